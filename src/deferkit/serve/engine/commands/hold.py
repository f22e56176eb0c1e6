"""Holds of pending reviews that can be stopped: extended while budget is free, otherwise the review is stopped."""

import msgspec

from deferkit.serve.api.common import Reply
from deferkit.serve.api.reviews import ExtendBody, LeaseReply
from deferkit.serve.api.tasks import HoldBody, HoldReply, StopBody
from deferkit.serve.domain import records
from deferkit.serve.domain.accounts import MICRO, Micros, all_in_reply, to_micro
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.problems import conflict, invalid, unknown
from deferkit.serve.domain.rows import CLAIMED, CLOSED, MODEL, OPEN, DecisionRow, RequestRow, is_stopped
from deferkit.serve.engine.commands.lease import check_token, claim_of, not_held
from deferkit.serve.engine.commands.outcome import (
    book,
    booked_with_stop,
    cost_of,
    idempotent_reply,
    sum_costs,
    was_stopped,
)
from deferkit.serve.engine.unit_of_work import UnitOfWork, digest
from deferkit.serve.storage.connections import ReadSet


def check_stoppable(owned: OwnedPolicy) -> None:
    """Raise if the reviews of a policy cannot be stopped: `max_cost` is held for each."""
    if not owned.policy.spec.can_be_stopped:
        raise invalid("No budget of the policy has a hold or a limit: max_cost is held for each review.")


def open_decision(owned: OwnedPolicy, work: UnitOfWork, task: str) -> DecisionRow:
    """Return a decision that holds budget; raise if there is none."""
    row = work.decisions[owned.id, task]
    if row is None:
        raise unknown("task", task)
    if row.state != OPEN:
        what = "the model decided it" if row.route == MODEL else "its cost is booked, or it waits no longer"
        raise conflict(f"Nothing is held for task {task!r}: {what}.")
    return row


def grantable(owned: OwnedPolicy, row: DecisionRow, wanted: Micros) -> Micros:
    """Return the amounts by which a hold can be extended: limited by the free budget, `max_cost` and `limit`."""
    held, found = row.held or {}, {}
    for name, micro in wanted.items():
        budget, account = owned.policy.spec.budget[name], owned.policy.accounts[name]
        room = [micro]
        if account.total is not None:
            room.append(0 if account.suspense else account.free or 0)
        room += [
            to_micro("hold", cap) - held.get(name, 0)
            for cap in (budget.max_cost, budget.limit)
            if isinstance(cap, (int, float))
        ]
        found[name] = max(0, min(room))
    return found


def extend_hold(owned: OwnedPolicy, work: UnitOfWork, now: int, row: DecisionRow, amount: Micros) -> DecisionRow:
    """Extend the hold of a decision by granted amounts; return its row."""
    if not any(amount.values()):
        return row
    work.record(owned, records.ExtendedRecord(task=row.task, id=row.id, amount=amount), now, row.task)
    row = row._replace(held=sum_costs(row.held, amount))
    work.put_decision(row)
    return row


class ExtendHold:
    """Reserve more for a pending review; once for each id."""

    def __init__(self, body: HoldBody) -> None:
        self.body = body
        self.digest = digest(body)
        self.request = f"hold {body.id}"

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`."""
        return ReadSet(owned.id, (self.body.task,), request=self.request)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:
        """Extend the hold by as much of the amount as is free; reply with the granted part."""
        if (done := idempotent_reply(work, owned, self.request, self.digest)) is not None:
            return done
        check_stoppable(owned)
        row = open_decision(owned, work, self.body.task)
        granted = grantable(owned, row, cost_of(owned, self.body.amount) or {})
        row = extend_hold(owned, work, now, row, granted)
        reply = HoldReply(task=row.task, granted=all_in_reply(granted), hold=all_in_reply(row.held or {}))
        body = msgspec.json.encode(reply)
        work.answer(owned, RequestRow(owned.id, self.request, self.digest, body))
        return Reply(200, body)


class StopReview:
    """Stop a review: its cost is booked, and the model's answer is used."""

    def __init__(self, body: StopBody) -> None:
        self.body = body

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`."""
        return ReadSet(owned.id, (self.body.task,), seats=True, observes=True, histories=True)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:
        """Book the cost and stop the review. A stopped review accepts new rewards, but no other cost."""
        body = self.body
        row, micros = work.decisions[owned.id, body.task], cost_of(owned, body.cost)
        if row is not None and (is_stopped(row) or was_stopped(work, row)):
            done = book(owned, work, now, row, body.rewards, micros)
        else:
            check_stoppable(owned)
            row = open_decision(owned, work, body.task)
            done = book(owned, work, now, row, body.rewards, micros, ends=True, stopped=True)
        return Reply(200, msgspec.json.encode(done))


class ExtendReview:
    """Extend the lease of a reviewer who reports the cost so far, and the hold of the task with it.

    The cost so far is kept with the seat. The hold is extended to what all reviewers of the task have cost so far plus
    the initial hold, as far as budget is free. If their cost has reached the hold, the review is stopped, and all of it
    is booked.

    Args:
        body: The claim, and what it has cost.
        bound: The only reviewer that the caller may act for; None (default): any.
    """

    def __init__(self, body: ExtendBody, bound: str | None = None) -> None:
        self.body = body
        self.bound = bound

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`."""
        return ReadSet(owned.id, (self.body.task,), seats=True, claims=True, observes=True, histories=True)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:
        """Extend the lease and the hold, or stop the review."""
        body = self.body
        row, seats = work.decisions[owned.id, body.task], work.seats[owned.id, body.task]
        if row is None or body.seat >= len(seats):
            raise unknown("task under review", body.task)
        if (claim := claim_of(body, work.claims[owned.id, body.task], self.bound)) is not None:
            check_token(body, claim.token)
        seat, cost = seats[body.seat], cost_of(owned, body.cost) or {}
        if seat.state == CLOSED and seat.epoch == body.epoch and (is_stopped(row) or was_stopped(work, row)):
            return self._reply_stopped(row, booked_with_stop(work, row, body.seat))
        if seat.state != CLAIMED or seat.epoch != body.epoch:
            raise not_held(body, seat)
        if owned.policy.spec.can_be_stopped and row.state == OPEN:
            seats = [each._replace(cost=cost) if each is seat else each for each in seats]
            seat = seats[body.seat]
            work.put_seats(owned, seats)
            reported = {each.seat: each.cost for each in seats if each.state == CLAIMED and each.cost is not None}
            so_far = sum_costs(*reported.values(), *(each.cost for each in work.answered_seats(row))) or {}
            row = extend_hold(owned, work, now, row, grantable(owned, row, hold_extension(row, so_far)))
            if is_hold_used_up(owned, row, so_far):
                together = sum_costs(*reported.values())
                done = book(owned, work, now, row, {}, together, ends=True, stopped=True, so_far=reported)
                return self._reply_stopped(row, None if done.booked is None else cost)
        until = now + int((body.lease_s or owned.policy.spec.lease_s) * MICRO)
        work.put_seats(owned, [each._replace(lease_until=until) if each is seat else each for each in seats])
        return self._reply(until / MICRO, row)

    def _reply(self, until: float | None, row: DecisionRow) -> Reply:
        return Reply(200, msgspec.json.encode(self._lease(until, row)))

    def _reply_stopped(self, row: DecisionRow, booked: Micros | None) -> Reply:
        booked_amount = None if booked is None else all_in_reply(booked)
        lease = msgspec.structs.replace(self._lease(None, row), stopped=True, booked=booked_amount)
        return Reply(200, msgspec.json.encode(lease))

    def _lease(self, until: float | None, row: DecisionRow) -> LeaseReply:
        body, hold = self.body, all_in_reply(row.held) if row.held else None
        return LeaseReply(task=body.task, seat=body.seat, epoch=body.epoch, lease_until=until, hold=hold)


def hold_extension(row: DecisionRow, so_far: Micros) -> Micros:
    """Return the amounts by which a hold falls short of the cost so far plus the initial hold."""
    first = msgspec.json.decode(row.reply)["reserved"]
    held = row.held or {}
    firsts = first if isinstance(first, dict) else dict.fromkeys(held, first)
    return {name: max(0, so_far.get(name, 0) + round(firsts[name] * MICRO) - micro) for name, micro in held.items()}


def is_hold_used_up(owned: OwnedPolicy, row: DecisionRow, so_far: Micros) -> bool:
    """Whether the cost so far has reached the hold of a resource whose reviews can be stopped."""
    return any(
        0 < so_far.get(name, 0) >= micro
        for name, micro in (row.held or {}).items()
        if owned.policy.spec.budget[name].can_be_stopped
    )
