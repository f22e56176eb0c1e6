"""The log of each policy and its snapshots, and the times that logs and machines have."""

import hashlib
from collections.abc import Iterator

from deferkit.serve.domain.rows import LogRow
from deferkit.serve.storage.store_connections import StoreConnections

SNAPSHOTS_KEPT = 3
PAGE = 5000


class PolicyLog(StoreConnections):
    """Reads logs from any thread; snapshots are written in the thread that writes. `Store.commit` adds to logs."""

    def log_of_task(self, policy: int, task: str, limit: int) -> list[LogRow]:
        """Return what happened to a task."""
        return [
            LogRow(*row) for row in self.database.reader().run("log_of_task", policy=policy, task=task, limit=limit)
        ]

    def log_page(self, policy: int, seq: int, limit: int) -> list[LogRow]:
        """Return a page of the log."""
        return [LogRow(*row) for row in self.database.reader().run("log_after", policy=policy, seq=seq, limit=limit)]

    def log_bodies(self, policy: int, seq: int, limit: int) -> list[tuple[int, bytes]]:
        """Return the time and the record of each row of a page of the log: half the work of whole rows."""
        return self.database.reader().run("log_bodies", policy=policy, seq=seq, limit=limit)

    def log(self, policy: int, seq: int = 0) -> Iterator[LogRow]:
        """Yield the rows of the log from a place on."""
        while page := self.log_page(policy, seq, PAGE):
            yield from page
            seq = page[-1].seq + 1

    def snapshots(self, policy: int) -> Iterator[tuple[int, bytes]]:
        """Yield the snapshots that are whole, the latest first."""
        for seq, sha256, data in self.database.reader().run("snapshots", policy=policy):
            if hashlib.sha256(data).digest() == bytes(sha256):
                yield seq, bytes(data)

    def snapshot_places(self, policy: int) -> list[int]:
        """Return where in the log there are snapshots."""
        return [seq for (seq,) in self.database.reader().run("snapshot_places", policy=policy)]

    def last_time(self) -> int:
        """Return the latest time that any log has."""
        return int(self.database.reader().run("last_time")[0][0] or 0)

    def clock(self, boot: str) -> tuple[int, int] | None:
        """Return what the clock said at the last start in this boot of a machine, and for how long it had run then."""
        rows = self.database.reader().run("clock", boot=boot)
        return rows[0] if rows else None

    def put_clock(self, boot: str, wall: int, uptime: int) -> None:
        """Keep what the clock says at a start."""
        self.directly(lambda connection: connection.run("put_clock", boot=boot, wall=wall, uptime=uptime))

    def add_snapshot(self, policy: int, seq: int, data: bytes) -> None:
        """Keep a snapshot, and the two before it."""
        writer = self.writer
        writer.begin()
        try:
            writer.run("add_snapshot", policy=policy, seq=seq, sha256=hashlib.sha256(data).digest(), data=data)
            writer.run("drop_snapshots", policy=policy, keep=SNAPSHOTS_KEPT)
            writer.commit()
        finally:
            writer.rollback()
