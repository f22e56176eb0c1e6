"""Sessions of browsers: a cookie that no script can read, and a row that ends with the key it was opened with."""

import hashlib
import secrets
import time
from collections.abc import Mapping
from typing import Any

from deferkit.serve.domain.money import MICRO
from deferkit.serve.domain.rows import SessionRow
from deferkit.serve.http.headers import header

COOKIE = "deferkit_session"
MOST_OF_A_KEY = 100  # sessions; one more ends the oldest


def new_session(key: str, tenant: str, reviewer: str | None, session_s: float) -> tuple[str, SessionRow]:
    """Return what the cookie of a new session holds, and the row that is kept of it.

    Args:
        key: The id of the key that it is opened with; '' where everyone may call.
        tenant: Whose key that is.
        reviewer: The only reviewer that it claims reviews for; None: any.
        session_s: Seconds after which it ends.

    >>> token, row = new_session("0123", "acme", "ann", 3600)
    >>> row.id == id_of(token), row.expires - row.created
    (True, 3600000000)
    """
    token, now = secrets.token_urlsafe(32), time.time_ns() // 1000
    return token, SessionRow(id_of(token), key, tenant, reviewer, now, now + int(session_s * MICRO))


def id_of(token: str) -> bytes:
    """Return the id of the session whose cookie holds this: a hash, so that the store does not tell."""
    return hashlib.sha256(token.encode("latin-1")).digest()


def token_of(scope: Mapping[str, Any]) -> str | None:
    """Return what the session cookie of a request holds; None without one.

    >>> token_of({"headers": [(b"cookie", b"theme=dark; deferkit_session=abc")]})
    'abc'
    """
    for each in header(scope, b"cookie").decode("latin-1").split(";"):
        name, _, value = each.strip().partition("=")
        if name == COOKIE and value:
            return value
    return None


def set_cookie(scope: Mapping[str, Any], token: str, age_s: float) -> str:
    """Return the header that gives a browser the cookie of a session, or takes it away (0 seconds).

    A browser sends it back over TLS alone, if the page came over TLS: the service's own, or a proxy's.
    """
    secure = scope["scheme"] == "https" or header(scope, b"origin").startswith(b"https://")
    rest = "; Secure" if secure else ""
    return f"{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/; Max-Age={int(age_s)}{rest}"
