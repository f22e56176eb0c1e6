"""Logs and snapshots of policies, and the clock readings of earlier starts."""

import hashlib
from collections.abc import Iterator

from deferkit.serve.domain.rows import LogRow
from deferkit.serve.storage.store_connections import StoreConnections

SNAPSHOTS_KEPT = 3
PAGE = 5000


class PolicyLog(StoreConnections):
    """Reads logs in any thread, and writes snapshots in the writer thread. `Store.commit` appends to logs."""

    def log_of_task(self, policy: int, task: str, limit: int) -> list[LogRow]:
        """Return the log rows of a task."""
        return [
            LogRow(*row) for row in self.database.reader().run("log_of_task", policy=policy, task=task, limit=limit)
        ]

    def log_page(self, policy: int, seq: int, limit: int) -> list[LogRow]:
        """Return a page of the log."""
        return [LogRow(*row) for row in self.database.reader().run("log_after", policy=policy, seq=seq, limit=limit)]

    def log_bodies(self, policy: int, seq: int, limit: int) -> list[tuple[int, bytes]]:
        """Return time and body of each row of a page of the log; half the cost of `log_page`."""
        return self.database.reader().run("log_bodies", policy=policy, seq=seq, limit=limit)

    def log(self, policy: int, seq: int = 0) -> Iterator[LogRow]:
        """Yield the rows of the log from number `seq` on."""
        while page := self.log_page(policy, seq, PAGE):
            yield from page
            seq = page[-1].seq + 1

    def snapshots(self, policy: int) -> Iterator[tuple[int, bytes]]:
        """Yield the snapshots whose checksum is right, the latest first."""
        for seq, sha256, data in self.database.reader().run("snapshots", policy=policy):
            if hashlib.sha256(data).digest() == bytes(sha256):
                yield seq, bytes(data)

    def snapshot_seqs(self, policy: int) -> list[int]:
        """Return the sequence numbers at which there are snapshots."""
        return [seq for (seq,) in self.database.reader().run("snapshot_seqs", policy=policy)]

    def last_time(self) -> int:
        """Return the latest time that any log has."""
        return int(self.database.reader().run("last_time")[0][0] or 0)

    def clock(self, boot: str) -> tuple[int, int] | None:
        """Return wall clock and uptime, in microseconds, at the last start in this boot; None if there was none."""
        rows = self.database.reader().run("clock", boot=boot)
        return rows[0] if rows else None

    def put_clock(self, boot: str, wall: int, uptime: int) -> None:
        """Store wall clock and uptime at a start."""
        self.in_own_transaction(lambda connection: connection.run("put_clock", boot=boot, wall=wall, uptime=uptime))

    def add_snapshot(self, policy: int, seq: int, data: bytes) -> None:
        """Write a snapshot; only the latest `SNAPSHOTS_KEPT` are kept."""
        writer = self.writer
        writer.begin()
        try:
            writer.run("add_snapshot", policy=policy, seq=seq, sha256=hashlib.sha256(data).digest(), data=data)
            writer.run("drop_snapshots", policy=policy, keep=SNAPSHOTS_KEPT)
            writer.commit()
        finally:
            writer.rollback()
