"""Idempotency: a request that is repeated under its id gets the reply that it got before."""

from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.problems import conflict
from deferkit.serve.domain.reply import Reply
from deferkit.serve.engine.unit_of_work import UnitOfWork


def idempotent_reply(work: UnitOfWork, owned: OwnedPolicy, request: str, request_digest: bytes) -> Reply | None:
    """Return the stored reply of an idempotency key, None if it is new; raise if it was used with another body."""
    before = work.requests[owned.id, request]
    if before is None:
        return None
    if bytes(before.digest) != request_digest:
        raise conflict(f"The id of {request!r} was used before, for a request with another body.")
    return Reply(200, bytes(before.reply))
