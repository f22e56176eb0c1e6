"""Decisions. They are idempotent: a repeated task gets the same reply, byte for byte."""

import copy
import math
from typing import Any

import msgspec

from deferkit.errors import BudgetExhausted, DeferkitError
from deferkit.events import Decided
from deferkit.serve.api.common import Reply
from deferkit.serve.api.tasks import BatchBody, DecisionReply, OutcomeBody, TaskBody
from deferkit.serve.domain import records
from deferkit.serve.domain.accounts import MICRO, Micros, from_micros, to_micro
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy_learner import matrix_numbers
from deferkit.serve.domain.problems import Problem, budget_conflict, conflict, invalid
from deferkit.serve.domain.rows import MODEL, OPEN, WAITING, DecisionRow, SeatRow
from deferkit.serve.engine.commands.outcome import book, cost_of, has_room, is_cost_of_model
from deferkit.serve.engine.commands.upkeep import renew
from deferkit.serve.engine.unit_of_work import Unfinished, UnitOfWork, digest
from deferkit.serve.storage.connections import ReadSet, to_json_column
from deferkit.serve.structured_logs import logger
from deferkit.types import Amount, Decision

SLICE = 100  # tasks of a batch that are read and decided in one group, if it has time
NOT_A_NUMBER = "The values of this context, or of an earlier one, are too large: the estimates are not finite."
ENCODER = msgspec.json.Encoder()
MAX_WORK = 10_000_000_000  # matrix entries that the decisions of a batch may read: about ten seconds


class Decide:
    """Decide a task."""

    def __init__(self, body: TaskBody) -> None:
        self.body = body
        self.digest = digest(body)

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`."""
        return ReadSet(owned.id, (self.body.task,), parked=owned.parked > 0)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:
        """Decide, reserve, queue."""
        return Reply(201, decide(owned, work, now, self.body, self.digest))


class DecideMany:
    """Decide the tasks of a batch in slices; each slice is committed with its group.

    An interrupted batch has decided some of its tasks. A retry gets the same replies for those, and decides the others.
    """

    def __init__(self, body: BatchBody) -> None:
        self.tasks = [(each, digest(each)) for each in body.tasks]
        self.results: list[Any] = []  # of the slices before

    @property
    def slice(self) -> list[tuple[TaskBody, bytes]]:
        """The next tasks of a batch, and the digest of each."""
        return self.tasks[len(self.results) : len(self.results) + SLICE]

    @property
    def size(self) -> int:
        """How many tasks the next slice has at most."""
        return len(self.slice)

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`."""
        return ReadSet(owned.id, tuple(body.task for body, _ in self.slice), parked=owned.parked > 0)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply | Unfinished:
        """Decide the tasks of the slice one by one, until the group is out of time."""
        if not self.results:
            check_work(owned, len(self.tasks))
        results = self.results.copy()  # not changed: a group that fails is run again
        for body, request_digest in self.slice:
            try:
                reply = decide(owned, work, now, body, request_digest)
                results.append({"status": 201, "decision": msgspec.Raw(reply)})
            except Problem as problem:
                results.append({"status": problem.status, "code": problem.code, "detail": str(problem)})
            if work.out_of_time or owned.policy.deferred:  # the learner has yet to learn an outcome that was parked
                break
        if len(results) == len(self.tasks):
            return Reply(200, msgspec.json.encode({"results": results}))
        rest = copy.copy(self)
        rest.results = results
        return Unfinished(rest)


def check_work(owned: OwnedPolicy, tasks: int) -> None:
    """Raise if a batch is more work than `MAX_WORK`."""
    numbers = matrix_numbers(owned.policy.learner.settings)
    if tasks * numbers > MAX_WORK:
        raise Problem(
            413,
            "too_large",
            f"A decision of this policy goes through {numbers:,} numbers, so a batch has at most"
            f" {MAX_WORK // numbers:,} tasks. Got {tasks:,}: send them in parts.",
        )


def decide(owned: OwnedPolicy, work: UnitOfWork, now: int, body: TaskBody, request_digest: bytes) -> bytes:
    """Decide a task; return the reply. A task that was decided before gets its stored reply (idempotency)."""
    row = work.decisions[owned.id, body.task]
    if row is not None:
        if row.digest != request_digest:
            raise conflict(f"Task {body.task!r} was decided before, for a request with another body.")
        return row.reply
    owned.check_quota()
    policy = owned.policy
    context, clipped = plausible_context(owned, body)
    if policy.is_timed:
        renew(owned, work, now, begin=True)
    asked = body if context is body.context else msgspec.structs.replace(body, context=context)
    event, micros = propose(owned, asked, now)
    decision = event.decision
    if policy.relearned.decisions:
        decision = decision._replace(id=decision.id + policy.relearned.decisions)
    deferred = micros is not None
    record = records.DecidedRecord.of(
        body.task,
        decision,
        context=event.context,
        held=micros,
        announced=body.cost,
        available=body.available,
        clipped=clipped,
    )
    reply = reply_of(body.task, decision)
    if b"null" in reply:  # what is not a number becomes null in JSON; so does a budget without end
        check_finite(decision)
    try:
        work.record(owned, record, now, body.task)
    except DeferkitError as error:  # nothing was changed
        raise invalid(NOT_A_NUMBER) from error
    work.put_decision(
        DecisionRow(
            policy=owned.id,
            task=body.task,
            id=decision.id,
            digest=request_digest,
            reply=reply,
            at=now,
            route=decision.route,
            state=OPEN if deferred else MODEL,
            held=micros,
            rewards={},
            cost=None,
            final=None if deferred else MODEL,
            answer=None,
            told="",
        )
    )
    if deferred:
        deadline = None if policy.spec.deadline_s is None else now + int(policy.spec.deadline_s * MICRO)
        work.put_seats(
            owned,
            [
                SeatRow(
                    policy=owned.id,
                    task=body.task,
                    seat=seat,
                    expert=decision.route,
                    state=WAITING,
                    epoch=0,
                    reviewer=None,
                    lease_until=0,
                    priority=record.expected_gain,
                    created=now,
                    deadline=deadline,
                    payload=to_json_column(body.payload),
                    model_answer=to_json_column(body.model_answer),
                    answer=None,
                    rewards={},
                    cost=None,
                )
                for seat in range(body.reviewers or policy.spec.reviewers)
            ],
        )
    if owned.parked:
        book_parked_outcome(owned, work, now, body.task)
    return reply


def plausible_context(owned: OwnedPolicy, body: TaskBody) -> tuple[Any, int]:
    """Return the context for the learner, and the number of outliers; raise if the policy refuses them.

    They are clipped, unless the learner itself cuts them: values clipped to a plausible size would look like values.
    """
    scales = owned.policy.scales
    if scales is None:
        return body.context, 0
    if owned.policy.spec.outliers == "refuse" and (places := scales.outliers(body.context)):
        names = [repr(scales.names[place]) if scales.names else str(place) for place in places[:5]]
        raise invalid(f"The context has features that are many times larger than all before: {', '.join(names)}.")
    clipped, n = scales.clip(body.context)
    return (body.context if owned.policy.spec.learner_cuts_outliers else clipped), n


def propose(owned: OwnedPolicy, body: TaskBody, now: int = 0) -> tuple[Decided, Micros | None]:
    """Return the learner's decision and the amount to reserve; the model decides if the account does not allow it."""
    policy = owned.policy
    at = policy.task_time(now)
    check_announced(body.cost)
    try:
        event = policy.learner.propose(body.context, cost=body.cost, available=body.available, force=body.force, at=at)
    except BudgetExhausted as error:
        raise budget_conflict(str(error)) from error
    except DeferkitError as error:
        raise invalid(without_features(str(error))) from error
    if event.decision.route == MODEL:
        return event, None
    micros = micros_of(event.decision, policy.spec.resources)
    fits = policy.fits(micros) and has_room(owned, micros)
    if policy.spec.can_be_stopped:  # what is held is any number: the learner gets it as it is booked
        event = event._replace(decision=event.decision._replace(reserved=from_micros(micros)))
        fits = fits and policy.can_learn_hold(micros)
    if fits:
        return event, micros
    if body.force is not None:
        raise budget_conflict(f"Asking {body.force} needs more than what is free of the budget.")
    event = policy.learner.propose(body.context, available=[], at=at)
    return event._replace(decision=event.decision._replace(reason="budget")), None


def without_features(sentence: str) -> str:
    """Return the learner's error message about a context, without the values of the context.

    >>> without_features("The 'age' of a context must be a finite number. Got 'a secret' instead.")
    "The 'age' of a context must be a finite number."
    >>> without_features("The 'context' of a Deferrer must be 2 numbers. Got the shape (3,) instead.")
    "The 'context' of a Deferrer must be 2 numbers. Got the shape (3,) instead."
    """
    said, _, got = sentence.partition(" Got ")
    return said if " context" in said.replace("'", " ") and not got.startswith(("the shape", "named")) else sentence


def check_finite(decision: Decision) -> None:
    """Raise if a decision holds a NaN or infinity: JSON has neither, so that its log record could not be read back."""
    amounts = [decision.price, decision.expected_cost, *decision.costs.values(), *decision.cost_widths.values()]
    numbers = [*decision.estimates.values(), *decision.widths.values()]
    for amount in amounts:
        numbers += [amount] if isinstance(amount, float) else amount.values()
    if not all(map(math.isfinite, numbers)):
        raise invalid(NOT_A_NUMBER)


def micros_of(decision: Decision, resources: tuple[str, ...]) -> Micros:
    """Return the reservation of a decision, rounded up to whole micro-units."""
    reserved: Amount = decision.reserved
    amounts = {resources[0]: reserved} if isinstance(reserved, float) else reserved
    return {name: math.ceil(round(value * MICRO, 3)) for name, value in amounts.items()}


def check_announced(cost: Any) -> None:
    """Raise if a cost that is known in advance is not whole micro-units."""
    if isinstance(cost, dict):
        for each in cost.values():
            check_announced(each)
    elif cost is not None:
        try:
            to_micro("cost", cost)
        except DeferkitError as error:
            raise invalid(str(error)) from error


def reply_of(task: str, decision: Decision) -> bytes:
    """Return the reply that the decision on a task gets."""
    return ENCODER.encode(DecisionReply.of(task, decision))


def book_parked_outcome(owned: OwnedPolicy, work: UnitOfWork, now: int, task: str) -> None:
    """Book a parked outcome of the task; its cost only if an expert is asked."""
    parked = work.parked.get((owned.id, task))
    row = work.decisions[owned.id, task]
    if parked is None or row is None:
        return  # also if it was not read, because nothing was parked when the group began
    work.unpark(owned, parked)
    body = msgspec.json.decode(parked.body, type=OutcomeBody)
    micros = cost_of(owned, body.cost)
    reason = None
    if is_cost_of_model(row, micros):
        reason = "the model decided"
    elif micros is not None and not has_room(owned, micros, row.held):
        reason = "the account cannot hold it"
    if reason is not None:  # reported after the decision, such a cost is refused
        micros = None
        owned.dropped_costs += 1
        logger.warning(f"a parked cost was dropped: {reason}", extra={"policy": owned.id, "task": task})
    book(owned, work, now, row, body.rewards, micros)
