"""Corrections of observed rewards and costs."""

from collections.abc import Mapping

import msgspec

from deferkit.serve.api.common import Reply
from deferkit.serve.api.tasks import CorrectionBody, CorrectionReply
from deferkit.serve.domain import records
from deferkit.serve.domain.accounts import Micros
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.problems import Problem, conflict, invalid, unknown
from deferkit.serve.domain.rows import DecisionRow, RequestRow
from deferkit.serve.engine.commands.outcome import (
    COST,
    book,
    check_rewards,
    check_room,
    cost_of,
    idempotent_reply,
    was_stopped,
)
from deferkit.serve.engine.unit_of_work import UnitOfWork, digest
from deferkit.serve.storage.connections import ReadSet


class Correct:
    """Replace observed values."""

    def __init__(self, body: CorrectionBody, *, unlimited: bool = False) -> None:
        self.body = body
        self.unlimited = unlimited  # the cost may be above max_reported_cost
        self.digest = digest(body)

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`."""
        confirms = self.body.task in owned.policy.unconfirmed
        request = f"correction {self.body.id}"
        return ReadSet(owned.id, (self.body.task,), request=request, observes=confirms, histories=confirms)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:
        """Replace observed values, or confirm an unconfirmed cost and book it."""
        body = self.body
        request = f"correction {body.id}"
        if (done := idempotent_reply(work, owned, request, self.digest)) is not None:
            return done
        if body.task not in owned.policy.unconfirmed:
            owned.check_quota()
        row = work.decisions[owned.id, body.task]
        if row is None:
            raise unknown("task", body.task)
        check_rewards(owned, body.rewards)
        micros = cost_of(owned, body.cost)
        for name in body.rewards:
            if name not in row.rewards:
                raise conflict(f"No reward of {name} was observed for task {body.task!r}: report an outcome first.")
        if micros is not None and not self.unlimited and owned.policy.exceeds_ceiling(micros):
            raise above_ceiling()
        if micros is not None and row.cost is None and row.task not in owned.policy.unconfirmed:
            raise conflict(f"No cost was observed for task {body.task!r}: report an outcome first.")
        if not body.rewards and micros is None:
            raise invalid("A correction needs rewards or a cost.")
        learned = replace(owned, work, now, row, body.id, body.rewards, micros)
        reply = msgspec.json.encode(CorrectionReply(task=row.task, learned=learned))
        work.answer(owned, RequestRow(owned.id, request, self.digest, reply))
        return Reply(200, reply)


def above_ceiling() -> Problem:
    """Return the 403 for a cost above `max_reported_cost` without the scope admin."""
    return Problem(403, "forbidden", "Confirming a cost above max_reported_cost needs the scope admin.")


def replace(
    owned: OwnedPolicy,
    work: UnitOfWork,
    now: int,
    row: DecisionRow,
    request: str,
    rewards: Mapping[str, float],
    micros: Micros | None,
    *,
    by_rule: bool = False,
) -> bool:
    """Replace observed rewards, and the cost that is booked or unconfirmed.

    Args:
        owned: The policy.
        work: Where it is written.
        now: The time, in microseconds.
        row: The decision.
        request: The id of the call that wants it.
        rewards: Those that replace others, by decider.
        micros: The cost of the task from now on; None: as before.
        by_rule: Whether the rewards are those of the reward rule.

    Returns:
        Whether the learner was told.
    """
    if micros is not None and row.cost is not None:
        check_room(owned, micros, row.cost)
    confirmed = False
    if micros is not None and row.task in owned.policy.unconfirmed:
        stopped = was_stopped(work, row)
        confirmed = book(owned, work, now, row, {}, micros, confirms=True, stopped=stopped).learned
        row, micros = work.decisions[owned.id, row.task] or row, None
    remembers = owned.policy.remembers_settled if owned.policy.deferred else owned.policy.remembers
    knows = row.told.split() if remembers(row.id) else []
    replaced = {name: float(value) for name, value in rewards.items()}
    learned = {name: value for name, value in replaced.items() if name in knows}
    told = owned.policy.clamp_cost(micros) if micros is not None and COST in knows else None
    if replaced or micros is not None:
        record = records.CorrectedRecord(
            task=row.task,
            id=row.id,
            request=request,
            rewards=replaced,
            cost=micros,
            was=row.cost if micros is not None else None,
            learned=learned,
            told=told,
            ruled=[*replaced] if by_rule else [],
        )
        work.record(owned, record, now, row.task)
        cost = row.cost if micros is None else micros
        work.put_decision(row._replace(rewards=row.rewards | replaced, cost=cost))
    return bool(learned) or told is not None or confirmed
