"""Keys of a tenant, for those who hand them out."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from deferkit.client.calls import Calls
from deferkit.client.wire import given, names_of


class Key(NamedTuple):
    """A key of a tenant, without its secret.

    >>> Key("0123456789ab", ("decide",), "router", 1.7e9).revoked is None
    True
    """

    id: str
    scopes: tuple[str, ...]
    name: str
    created: float  # seconds since 1970, by the service's clock, like all times here
    expires: float | None = None
    revoked: float | None = None
    last_used: float | None = None  # right to about a minute
    reviewer: str | None = None  # the only reviewer that it claims for


class Keys:
    """The keys of the tenant that a client's key belongs to: `client.keys`. It needs the scope `admin`.

        secret, key = client.keys.create(["decide", "observe"], name="router", expires_s=30 * 86_400)
        client.keys.revoke(key)

    The first key of a service is made by `deferkit keys create`.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def create(
        self, scopes: Sequence[str], *, name: str = "", expires_s: float | None = None, reviewer: str | None = None
    ) -> tuple[str, Key]:
        """Make a key; return it, this once, and what is known of it.

            secret, key = client.keys.create(["decide"], name="router")

        Args:
            scopes: What it is good for: decide, observe, review, read, admin, operator; those that this client has.
            name: A name to know it by.
            expires_s: Seconds after which it is refused; never unless given.
            reviewer: The only reviewer that it may claim reviews for; any unless given.

        Should the reply be lost on its way, the call is repeated and there is a key that nobody has: `list` shows it.
        """
        body = given(scopes=names_of("scopes", scopes), name=name, expires_s=expires_s, reviewer=reviewer)
        reply: dict[str, Any] = self._calls.call("POST", "/v1/keys", body)
        return reply.pop("key"), key_of(reply)

    def list(self) -> list[Key]:
        """Return the keys of the tenant, revoked and expired ones too.

        unused = [key for key in client.keys.list() if key.last_used is None]
        """
        return [key_of(each) for each in self._calls.call("GET", "/v1/keys")["keys"]]

    def revoke(self, key: Key | str) -> Key:
        """Revoke a key, or the one with this id; the service refuses it within a second.

        client.keys.revoke("0123456789ab")
        """
        number = key.id if isinstance(key, Key) else key
        return key_of(self._calls.call("POST", "/v1/keys/revoke", {"id": number}))


def key_of(reply: dict[str, Any]) -> Key:
    """Return the key that a service has replied with."""
    return Key(**reply | {"scopes": tuple(reply["scopes"])})
