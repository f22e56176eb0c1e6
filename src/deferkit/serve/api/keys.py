"""Bodies and replies of API keys and of sessions in the browser."""

from typing import Annotated

import msgspec

from deferkit.serve.api.common import Reviewer
from deferkit.serve.domain.api_keys import MAX_KEY_AGE_S, SCOPES

Scopes = Annotated[
    list[Annotated[str, msgspec.Meta(pattern=f"^({'|'.join(SCOPES)})$")]], msgspec.Meta(min_length=1, max_length=16)
]
KeyId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{1,64}$", description="The id of the key.")]


class KeyBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key to create."""

    scopes: Scopes
    name: Annotated[str, msgspec.Meta(max_length=64, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")] = ""
    expires_s: (
        Annotated[
            float, msgspec.Meta(gt=0, le=MAX_KEY_AGE_S, description="Seconds until the key expires. Never by default.")
        ]
        | None
    ) = None
    reviewer: (
        Annotated[Reviewer, msgspec.Meta(description="The only reviewer that may claim reviews with it.")] | None
    ) = None


class RevocationBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key to revoke."""

    id: KeyId


class KeyLine(msgspec.Struct, frozen=True, kw_only=True):
    """A key, without its secret. Times are seconds since 1970; `last_used` is accurate to about a minute."""

    id: str
    scopes: list[str]
    name: str
    created: float
    expires: float | None
    revoked: float | None
    last_used: float | None
    reviewer: str | None = None


class NewKeyReply(msgspec.Struct, frozen=True, kw_only=True):
    """A new key. Only this reply contains the secret."""

    key: str
    id: str
    scopes: list[str]
    name: str
    created: float
    expires: float | None


class KeyPage(msgspec.Struct, frozen=True, kw_only=True):
    """All keys of a tenant."""

    keys: list[KeyLine]


class SessionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A session to open."""

    key: (
        Annotated[str, msgspec.Meta(max_length=256, description="The key. Not needed if the service has no keys.")]
        | None
    ) = None
    reviewer: (
        Annotated[Reviewer, msgspec.Meta(description="The only reviewer that may claim reviews with it.")] | None
    ) = None


class SessionReply(msgspec.Struct, frozen=True, kw_only=True):
    """The caller's session info: tenant, scopes, reviewer, expiry."""

    tenant: str
    scopes: list[str]
    reviewer: str | None  # the only one that it may claim reviews for
    expires: float | None  # seconds since 1970; None: it is no session, but a key, or everyone
    open: bool  # there are no keys: everyone on this machine may call
    key: str  # the id of the key; '' where everyone may call
