"""Leases of seats in the review queue: claim, extend, release. Any process may run them."""

import hmac
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import msgspec

from deferkit.serve.api.common import Reply
from deferkit.serve.api.reviews import (
    ClaimBody,
    ClaimReply,
    DeclineBody,
    ExtendBody,
    LeaseBody,
    LeaseReply,
    ReassignBody,
    ResumeBody,
)
from deferkit.serve.domain.accounts import MICRO
from deferkit.serve.domain.api_keys import hash_of
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.problems import Problem, conflict, invalid, unknown
from deferkit.serve.domain.review import SHOWN
from deferkit.serve.domain.rows import DONE, ClaimRow, SeatRow
from deferkit.serve.domain.spec import PolicySpec
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.connections import QueueQuery, ReadSet, seat_row
from deferkit.serve.storage.database import Connection


def plain(text: str | None) -> Any:
    """Return stored JSON as `msgspec.Raw`, which is encoded into a reply unchanged; None as None."""
    return None if text is None else msgspec.Raw(text.encode())


def new_token() -> str:
    """Return a claim token of 256 random bits."""
    return secrets.token_urlsafe(32)


def check_token(body: LeaseBody, stored: bytes | None) -> None:
    """Raise if a call does not have the token of its claim.

    Args:
        body: The call; its `token` is what `claim` returned.
        stored: The hash of the claim's token; None for a claim created before tokens existed, which needs none.
    """
    if stored is None:
        return
    given = b"" if body.token is msgspec.UNSET else hash_of(body.token)
    if not hmac.compare_digest(given, stored):
        raise Problem(403, "forbidden", f"The token is not that of the claim of epoch {body.epoch} on {body.task!r}.")


def check_bound(bound: str | None, reviewer: str) -> None:
    """Raise if the key or session of a caller is for one reviewer, and that is another.

    Args:
        bound: The only reviewer that the caller may act for; None: any.
        reviewer: The one that the call is about.
    """
    if bound is not None and bound != reviewer:
        raise Problem(403, "forbidden", f"The key is for the reviewer {bound!r} alone.")


def claim_of(body: LeaseBody, claims: Iterable[ClaimRow], bound: str | None) -> ClaimRow | None:
    """Return the claim of a call, from the claims of its task; None without one.

    Raises if the caller is `bound` to another reviewer than that of the claim, also with the right token.
    """
    for claim in claims:
        if (claim.seat, claim.epoch) == (body.seat, body.epoch):
            check_bound(bound, claim.reviewer)
            return claim
    return None


class LeaseCommand(ABC):
    """Base of commands that change leases in the database alone, not the policy in memory.

    The owner runs `query` at the end of a group's transaction. On a shared database any other process may run it in a
    transaction of its own.
    """

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`: none."""
        return ReadSet(owned.id)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> QueueQuery:
        """Queue the query: it runs after the group's other changes were written."""
        query = self.query(owned.id, owned.policy.spec, now)
        work.queue_queries.append(query)
        return query

    def query(self, policy: int, spec: PolicySpec, now: int) -> QueueQuery:
        """Return the command as a query of the review queue.

        Args:
            policy: Number of the policy.
            spec: Its settings.
            now: The time, in microseconds.
        """
        return QueueQuery(lambda connection: self.execute(connection, policy, spec, now))

    @abstractmethod
    def execute(self, connection: Connection, policy: int, spec: PolicySpec, now: int) -> Reply:
        """Execute the command in an open transaction; return its reply."""


class Claim(LeaseCommand):
    """Claim the free seat with the highest priority for a reviewer.

    Args:
        body: Who claims.
        most: How many tasks of a policy a reviewer may hold at a time; None (default) for no limit. Claims whose lease
            is over do not count: others may take them.
        origin: The session or key of the caller (`Caller.origin`), which may resume the claim; None (default) if nobody
            but a key of the reviewer may.
    """

    def __init__(self, body: ClaimBody, most: int | None = None, origin: str | None = None) -> None:
        self.body = body
        self.most = most
        self.origin = origin

    def query(self, policy: int, spec: PolicySpec, now: int) -> QueueQuery:
        """Return the query; raise if a reviewer represents an unknown expert."""
        for name in self.body.experts or ():
            if name not in spec.experts:
                raise invalid(f"There is no expert {name!r}. There is {', '.join(spec.experts)}.")
        return super().query(policy, spec, now)

    def execute(self, connection: Connection, policy: int, spec: PolicySpec, now: int) -> Reply:
        """Find a seat and claim it."""
        body = self.body
        connection.lock(f"{policy} {body.reviewer}")  # two concurrent claims must not get two seats of one task
        found = connection.run(
            "find_seat",
            policy=policy,
            now=now,
            any_expert=int(body.experts is None),
            experts=[""] if body.experts is None else body.experts,
            reviewer=body.reviewer,
            late=int(spec.after_deadline == "wait"),
        )
        if not found:
            return Reply(204, b"")
        if self.most is not None and self._count_held(connection, policy, now) >= self.most:
            return problem_reply(too_many_held(body.reviewer, self.most))
        task, seat = found[0]
        until = now + int((body.lease_s or spec.lease_s) * MICRO)
        [row] = connection.run(
            "claim_seat", policy=policy, task=task, seat=seat, reviewer=body.reviewer, lease_until=until
        )
        claimed, token = seat_row(row), new_token()
        connection.run(
            "add_claim",
            policy=policy,
            task=task,
            seat=seat,
            epoch=claimed.epoch,
            reviewer=body.reviewer,
            at=now,
            token=hash_of(token),
            visible=int(shows_model_answer(spec)),
            origin=self.origin,
        )
        return claim_reply(claimed, token, spec)

    def _count_held(self, connection: Connection, policy: int, now: int) -> int:
        [[held]] = connection.run("count_held", policy=policy, reviewer=self.body.reviewer, now=now, limit=self.most)
        return int(held)


def too_many_held(reviewer: str, most: int) -> Problem:
    """Return the problem that a reviewer holds as many tasks as it may."""
    return Problem(
        409,
        "too_many",
        f"Reviewer {reviewer!r} holds {most:,} tasks of this policy, which is the maximum (the setting max_claims):"
        " answer, release or decline some, or let their leases end.",
    )


MADE_ELSEWHERE = (
    "The claim was made in another session. It is resumed in that session, or with a key that is bound to its reviewer;"
    " when its lease is over, others get the task."
)


class Resume(LeaseCommand):
    """Return a claim that a reviewer holds again, with a new token: the page was reloaded.

    Args:
        body: Whose claim it is.
        origins: The session and the key of a caller who may act for any reviewer: the claim must have been made with
            one of them. None (default) for a caller whose key is the reviewer's.
    """

    def __init__(self, body: ResumeBody, origins: tuple[str, ...] | None = None) -> None:
        self.body = body
        self.origins = origins

    def execute(self, connection: Connection, policy: int, spec: PolicySpec, now: int) -> Reply:
        """Extend the lease of the claim, and replace its token; the epoch stays."""
        body, token = self.body, new_token()
        until = now + int(spec.lease_s * MICRO)
        named = {"policy": policy, "task": body.task, "seat": body.seat}
        holding = connection.run("held_claim", reviewer=body.reviewer, **named)
        if holding and self.origins is not None and holding[0][1] not in self.origins:
            return problem_reply(Problem(403, "forbidden", MADE_ELSEWHERE))
        found = holding and connection.run("resume_seat", epoch=holding[0][0], lease_until=until, **named)
        if not found:
            return problem_reply(conflict(f"Reviewer {body.reviewer!r} does not hold task {body.task!r}."))
        held = seat_row(found[0])
        connection.run(
            "renew_claim", epoch=held.epoch, token=hash_of(token), visible=int(shows_model_answer(spec)), **named
        )
        return claim_reply(held, token, spec)


def shows_model_answer(spec: PolicySpec) -> bool:
    """Whether reviewers see the model's answer before they give theirs."""
    review = spec.review_used
    return review is None or review.model_answer == SHOWN


def claim_reply(seat: SeatRow, token: str, spec: PolicySpec) -> Reply:
    """Return the reply to a claim."""
    return Reply(200, msgspec.json.encode(ClaimReply(token=token, **held_claim(seat, spec))))


def held_claim(seat: SeatRow, spec: PolicySpec) -> dict[str, Any]:
    """Return a claim as its reviewer sees it, without the token."""
    return {
        "task": seat.task,
        "seat": seat.seat,
        "epoch": seat.epoch,
        "expert": seat.expert,
        "lease_until": seat.lease_until / MICRO,
        "priority": seat.priority,
        "waiting_since": seat.created / MICRO,
        "deadline": None if seat.deadline is None else seat.deadline / MICRO,
        "payload": plain(seat.payload),
        "model_answer": plain(seat.model_answer) if shows_model_answer(spec) else None,
    }


Lease = TypeVar("Lease", bound=LeaseBody)


class ClaimCommand(LeaseCommand, Generic[Lease]):
    """Base of lease commands that take the token of a claim.

    Args:
        body: The claim.
        bound: The only reviewer that the caller may act for; None (default): any.
    """

    def __init__(self, body: Lease, bound: str | None = None) -> None:
        self.body = body
        self.bound = bound

    def refuse_claim(self, connection: Connection, policy: int) -> Reply | None:
        """Return the refusal of a caller who may not use the claim; None if it may, or there is no such claim.

        It needs the claim's token, and where it is bound to a reviewer, the claim is that reviewer's.
        """
        body = self.body
        found = connection.run("claim_holder", policy=policy, task=body.task, seat=body.seat, epoch=body.epoch)
        try:
            for token, reviewer in found:
                check_bound(self.bound, reviewer)
                check_token(body, None if token is None else bytes(token))
        except Problem as problem:
            return problem_reply(problem)
        return None


class Extend(ClaimCommand[ExtendBody]):
    """Extend the lease of a seat."""

    def execute(self, connection: Connection, policy: int, spec: PolicySpec, now: int) -> Reply:
        """Extend the lease, if the claim still holds."""
        body = self.body
        until = now + int((body.lease_s or spec.lease_s) * MICRO)
        values = {"policy": policy, "task": body.task, "seat": body.seat, "epoch": body.epoch}
        if (denied := self.refuse_claim(connection, policy)) is not None:
            return denied
        if not connection.run("extend_seat", lease_until=until, **values):
            return lease_refusal(connection, policy, body)
        return lease_reply(body, until / MICRO)


class Release(ClaimCommand[LeaseBody]):
    """Release a seat before its lease ends."""

    def execute(self, connection: Connection, policy: int, spec: PolicySpec, now: int) -> Reply:  # noqa: ARG002
        """End the lease, if the claim still holds."""
        body = self.body
        if (denied := self.refuse_claim(connection, policy)) is not None:
            return denied
        values = {"policy": policy, "task": body.task, "seat": body.seat, "epoch": body.epoch}
        if not connection.run("release_seat", **values):
            return lease_refusal(connection, policy, body)
        return lease_reply(body, None)


class Decline(ClaimCommand[DeclineBody]):
    """Decline a seat permanently: the reviewer does not get the task again."""

    def execute(self, connection: Connection, policy: int, spec: PolicySpec, now: int) -> Reply:  # noqa: ARG002
        """End the lease and store the decline with its reason, if the claim still holds. Idempotent."""
        body = self.body
        if (denied := self.refuse_claim(connection, policy)) is not None:
            return denied
        values = {"policy": policy, "task": body.task, "seat": body.seat, "epoch": body.epoch}
        if connection.run("decline_of_claim", **values):
            return lease_reply(body, None)
        if not connection.run("release_seat", **values):
            return lease_refusal(connection, policy, body)
        connection.run("add_decline", at=now, reason=body.reason, **values)
        return lease_reply(body, None)


class Reassign(LeaseCommand):
    """End another reviewer's claim, as an administrator: the seat waits again."""

    def __init__(self, body: ReassignBody) -> None:
        self.body = body

    def execute(self, connection: Connection, policy: int, spec: PolicySpec, now: int) -> Reply:  # noqa: ARG002
        """End the lease, if there is one."""
        body = self.body
        found = connection.run("free_seat", policy=policy, task=body.task, seat=body.seat)
        if not found:
            seats = connection.run("read_seats", policy=policy, keys=[body.task])
            problem = (
                conflict(f"Nobody holds seat {body.seat} of task {body.task!r}.")
                if body.seat < len(seats)
                else unknown("task under review", body.task)
            )
            return problem_reply(problem)
        reply = LeaseReply(task=body.task, seat=body.seat, epoch=found[0][0], lease_until=None)
        return Reply(200, msgspec.json.encode(reply))


def lease_reply(body: LeaseBody, until: float | None) -> Reply:
    """Return the reply of a lease."""
    reply = LeaseReply(task=body.task, seat=body.seat, epoch=body.epoch, lease_until=until)
    return Reply(200, msgspec.json.encode(reply))


def lease_refusal(connection: Connection, policy: int, body: LeaseBody) -> Reply:
    """Return the problem reply for a lease that is not held, or for an unknown seat."""
    seats = [seat_row(row) for row in connection.run("read_seats", policy=policy, keys=[body.task])]
    problem = not_held(body, seats[body.seat]) if body.seat < len(seats) else unknown("task under review", body.task)
    return problem_reply(problem)


def problem_reply(problem: Problem) -> Reply:
    """Return a problem as a reply. An exception in a query of the queue would fail the whole group."""
    document = {"status": problem.status, "code": problem.code, "detail": str(problem)}
    return Reply(problem.status, msgspec.json.encode(document))


def not_held(body: LeaseBody, seat: SeatRow) -> Problem:
    """Return the problem that a seat is not held by this claim."""
    if not 0 < body.epoch <= seat.epoch:
        return conflict(f"There was no claim of epoch {body.epoch} on task {body.task!r}.")
    if seat.epoch == body.epoch and seat.state == DONE:
        return conflict(f"Epoch {body.epoch} of task {body.task!r} is over: it was completed.")
    state = "has gone to another reviewer" if seat.epoch != body.epoch else f"is {seat.state}"
    return conflict(
        f"Epoch {body.epoch} of task {body.task!r} is over: it {state}."
        " What it has cost can be booked once, as an effort."
    )
