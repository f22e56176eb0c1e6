"""API keys: creation, and storage as hashes."""

import hashlib
import hmac
import secrets
import time
from typing import NamedTuple

from deferkit.errors import InvalidArgument
from deferkit.serve.domain.accounts import MICRO
from deferkit.serve.domain.rows import KeyRow

# read: tasks and logs of the tenant, with contexts and payloads; operator: metrics of the whole process
SCOPES = ("decide", "observe", "review", "read", "admin", "operator")
TENANT_SCOPES = tuple(scope for scope in SCOPES if scope != "operator")
MAX_KEY_AGE_S = 100 * 366 * 86_400  # that a key may be valid for
PREFIX = "dk"


class Caller(NamedTuple):
    """The authenticated caller: tenant, scopes, and id of the API key; '' while the service requires no keys."""

    tenant: str
    scopes: frozenset[str]
    key: str = ""  # id of the API key
    reviewer: str | None = None  # the only reviewer that the key or session may claim for
    session: str = ""  # id of the session; '' without one
    bound: bool = False  # whether the key itself is bound to the reviewer, so that nobody else can be behind the call

    @property
    def origin(self) -> str:
        """The session of a call, or its key without one: what is kept of who made a claim."""
        return f"session {self.session}" if self.session else f"key {self.key}"

    @property
    def resumes(self) -> tuple[str, ...] | None:
        """Origins of the claims that the caller may resume; None for all claims of the reviewer it is bound to."""
        return None if self.bound or not self.key else (self.origin, f"key {self.key}")


def new_key(
    tenant: str,
    scopes: list[str],
    name: str,
    *,
    expires_s: float | None = None,
    reviewer: str | None = None,
    now: int | None = None,
) -> tuple[str, KeyRow]:
    """Return a new key and the row that is kept of it.

    Args:
        tenant: Whose key it is.
        scopes: Scopes, of `SCOPES`.
        name: A name to know it by.
        expires_s: Seconds after which it is refused; None: never.
        reviewer: The only reviewer that it claims reviews for; None: any.
        now: The time in microseconds by the clock of the service; None: by that of the machine.

    Raises:
        InvalidArgument: There are no scopes, or unknown ones.

    >>> key, row = new_key("acme", ["decide"], "router")
    >>> key.startswith(f"dk_{row.id}_"), row.scopes, key_fits(key, row)
    (True, 'decide', True)
    """
    check_scopes(scopes)
    number, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    kept = " ".join(scope for scope in SCOPES if scope in scopes)
    now = time.time_ns() // 1000 if now is None else now
    expires = None if expires_s is None else now + int(expires_s * MICRO)
    row = KeyRow(number, tenant, hash_of(secret), kept, name, now, None, expires, None, reviewer)
    return f"{PREFIX}_{number}_{secret}", row


def check_scopes(scopes: list[str]) -> None:
    """Raise if there are no scopes, or unknown ones."""
    wrong = [scope for scope in scopes if scope not in SCOPES]
    if wrong or not scopes:
        raise InvalidArgument(f"Scopes are {', '.join(SCOPES)}. Got {', '.join(wrong) or 'none'}.")


def hash_of(secret: str) -> bytes:
    """Return the hash of a secret. It has 256 random bits, so that one round is enough."""
    return hashlib.sha256(secret.encode()).digest()


def parts_of(key: str) -> tuple[str, str] | None:
    """Return the id and the secret of a key; None if it has not the form of one."""
    prefix, _, rest = key.partition("_")
    number, _, secret = rest.partition("_")
    return (number, secret) if prefix == PREFIX and number and secret else None


def key_fits(key: str, row: KeyRow) -> bool:
    """Whether a key is the one that a row was made for, compared in constant time."""
    parts = parts_of(key)
    return parts is not None and hmac.compare_digest(hash_of(parts[1]), bytes(row.hash))
