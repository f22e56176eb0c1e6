"""API keys and browser sessions. Each change is one transaction, in any thread."""

from collections.abc import Mapping

from deferkit.serve.domain.rows import KeyRow, SessionRow
from deferkit.serve.storage.database import Connection
from deferkit.serve.storage.store_connections import StoreConnections


class KeyStore(StoreConnections):
    """The tables of keys and sessions."""

    def keys(self) -> list[KeyRow]:
        """Return all keys."""
        return [KeyRow(*row) for row in self.database.reader().run("keys")]

    def add_key(self, key: KeyRow) -> None:
        """Write a new key."""
        values = key._asdict()
        del values["revoked"], values["last_used"]
        self.in_own_transaction(lambda connection: connection.run("add_key", **values))

    def revoke_keys_of(self, tenant: str, at: int) -> int:
        """Revoke all keys of a tenant; return how many there were."""
        return len(self.in_own_transaction(lambda connection: connection.run("revoke_keys_of", tenant=tenant, at=at)))

    def revoke_key(self, number: str, at: int, *, tenant: str | None = None) -> bool:
        """Revoke a key, only of a tenant if one is given; False if there is none to revoke."""
        if tenant is None:
            return bool(self.in_own_transaction(lambda connection: connection.run("revoke_key", id=number, at=at)))
        return bool(
            self.in_own_transaction(lambda connection: connection.run("revoke_key_of", id=number, at=at, tenant=tenant))
        )

    def use_keys(self, used: Mapping[str, int]) -> None:
        """Write when keys were last used."""
        calls = [("use_key", {"id": number, "at": at}) for number, at in used.items()]
        self.in_own_transaction(lambda connection: connection.run_all(calls))

    def sessions(self, now: int) -> list[SessionRow]:
        """Return the sessions that are neither revoked nor expired."""
        rows = self.database.reader().run("sessions", now=now)
        return [SessionRow(bytes(number), *rest) for number, *rest in rows]

    def add_session(self, row: SessionRow, *, most: int) -> None:
        """Write a new session; only the latest `most` of its key stay, and those that have expired are dropped."""
        values = row._asdict()
        del values["revoked"]

        def add(connection: Connection) -> None:
            connection.run("drop_sessions", now=row.created)
            connection.run("add_session", **values)
            connection.run("revoke_oldest_sessions", key=row.key, at=row.created, keep=most)

        self.in_own_transaction(add)

    def revoke_session(self, number: bytes, at: int) -> None:
        """End a session."""
        self.in_own_transaction(lambda connection: connection.run("revoke_session", id=number, at=at))
