"""Outcomes of tasks: booked exactly once, learned from if they are not late."""

from collections.abc import Mapping
from typing import Any

import msgspec

from deferkit.serve.domain import log_records
from deferkit.serve.domain.money import MICRO, Micros, all_in_reply
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.problems import conflict, invalid, unknown
from deferkit.serve.domain.reply import Reply
from deferkit.serve.domain.request_bodies import OutcomeBody
from deferkit.serve.domain.review_form import Judgement, judge
from deferkit.serve.domain.rows import (
    MODEL,
    OPEN,
    POSTED,
    VOID,
    DecisionRow,
    ParkedRow,
    SeatRow,
)
from deferkit.serve.domain.seats import reported, sum_costs
from deferkit.serve.engine.commands.parked_outcomes import (
    check_key_sets,
    evict_parked,
    is_full,
    joined_keys,
    keys_with_most_parked,
    merge_outcomes,
    parked_shares,
)
from deferkit.serve.engine.commands.reported_values import check_rewards, check_room, cost_of
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.row_codec import from_json_column
from deferkit.serve.storage.transaction import ReadSet

COST = "$cost"


class OutcomeReply(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an outcome."""

    task: str
    changed: bool  # False: all of it was known before
    learned: bool
    parked: bool = False  # its decision is yet to come
    late: str | None = None  # why it was not learned
    booked: float | dict[str, float] | None = None
    unconfirmed: float | dict[str, float] | None = None  # a cost above max_reported_cost: a correction confirms it


class Observe:
    """Observe the outcome of a task.

    Parameters
    ----------
    body
        What has become known.
    key
        Id of the API key that it came with; '' without one. Each key has its share of the room for outcomes that come
        before their decisions.
    """

    def __init__(self, body: OutcomeBody, key: str = "") -> None:
        self.body = body
        self.key = key

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`."""
        parked_by = keys_with_most_parked(owned, parked_shares(owned)) if is_full(owned) else None
        return ReadSet(owned.id, (self.body.task,), parked=True, seats=True, observes=True, parked_by=parked_by)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:
        """Book it and learn from it; park it if its decision is yet to come."""
        body = self.body
        row = work.decisions[owned.id, body.task]
        if row is None and not body.park:
            raise unknown("task", body.task)
        if not body.rewards and body.cost is None:
            raise invalid("An outcome needs rewards or a cost.")
        micros = cost_of(owned, body.cost)
        if row is None:
            return self._park(owned, work, now)
        if is_cost_of_model(row, micros):
            raise invalid(f"The model decided task {body.task!r}: there is no cost to book.")
        return Reply(200, msgspec.json.encode(book(owned, work, now, row, body.rewards, micros)))

    def _park(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:
        body = self.body
        check_rewards(owned, body.rewards)
        before = work.parked[owned.id, body.task]
        first = None if before is None else msgspec.json.decode(before.body, type=OutcomeBody)
        if first is None and is_full(owned):
            evict_parked(owned, work, self.key)
        kept = body if first is None else merge_outcomes(owned, first, body)
        # also for one that adds nothing: what it was told is kept must not go when another key has parked too much
        keys = self.key if before is None else joined_keys(before.key, self.key)
        if before is not None and keys != before.key:
            check_key_sets(owned, keys)
        if before is None or kept != first:
            work.park(owned, ParkedRow(owned.id, body.task, msgspec.json.encode(kept), now, keys))
        elif keys != before.key:
            work.park(owned, before._replace(key=keys))
        reply = OutcomeReply(task=body.task, changed=kept != first, learned=False, parked=True)
        return Reply(202, msgspec.json.encode(reply))


def is_cost_of_model(row: DecisionRow, micros: Micros | None) -> bool:
    """Whether a new cost is reported for a decision of the model, which has none; old stores have booked some."""
    return row.route == MODEL and row.cost is None and micros is not None and any(micros.values())


def book(
    owned: OwnedPolicy,
    work: UnitOfWork,
    now: int,
    row: DecisionRow,
    rewards: Mapping[str, float],
    micros: Micros | None,
    *,
    ends: bool = False,
    confirms: bool = False,
    visible: bool | None = None,
    by_rule: bool = False,
    stopped: bool = False,
) -> OutcomeReply:
    """Book and learn the new values of a decision; raise if one contradicts an observed one.

    The outcome that ends a task also books the reports of its reviewers: their costs are added to the given one, and
    missing rewards are computed by the reward rule. If a cost is above the ceiling (`max_reported_cost`), none of them
    is booked until a correction confirms the cost. Whose answer is used (`final`) is set once.

    Parameters
    ----------
    owned
        The policy.
    work
        The unit of work that the record and the rows are added to.
    now
        The time, in microseconds.
    row
        The decision.
    rewards
        Reported rewards by decider.
    micros
        Reported cost in micro-units by resource; None if there is none.
    ends
        Whether the task ends even if neither a cost nor its expert's reward is reported. False unless given.
    confirms
        Whether the cost is that of a correction, which confirms it. False unless given.
    visible
        Whether the reviewer whose answer ends the task was shown the model's answer. Not known unless given.
    by_rule
        Whether `rewards` are those of the reward rule. False unless given.
    stopped
        Whether the review was stopped with this cost: the model's answer is used, unless others have answered. False
        unless given.
    """
    policy = owned.policy
    check_rewards(owned, rewards)
    check_known(row, rewards)
    new = {name: float(value) for name, value in rewards.items() if name not in row.rewards}
    done = work.answered_seats(row)
    unconfirmed_before = policy.unconfirmed.get(row.task)
    if micros is not None and unconfirmed_before is not None and not confirms:
        if not is_booked(micros, unconfirmed_before, sum_costs(*(seat.cost for seat in done))):
            raise conflict(f"Another cost of task {row.task!r} waits to be confirmed: correct it.")
        micros = None
    if micros is not None and row.cost is not None:
        if not is_booked(micros, row.cost, sum_costs(*(seat.cost for seat in done))):
            raise conflict(f"Another cost was booked for task {row.task!r}: a correction is a call of its own.")
        micros = None
    if row.route == MODEL and micros is not None and not any(micros.values()):
        micros = None  # the model costs nothing
    if not new and micros is None and not ends:
        return OutcomeReply(task=row.task, changed=False, learned=False)
    ended = ends or (row.final is None and (micros is not None or row.route in new))
    unknown_yet = [name for name in policy.spec.deciders if name not in row.rewards and name not in new]
    review = reported(done if ended else [], unknown_yet)
    new |= review.rewards
    judgement = judgement_of(owned, row, done, review.answers)
    ruled = {name: reward for name, reward in judgement.rewards.items() if name in unknown_yet and name not in new}
    new |= ruled
    reports = [micros, *(seat.cost for seat in done if ended)]
    micros = sum_costs(micros, review.cost)
    unconfirmed = None
    if not confirms and any(each is not None and policy.exceeds_ceiling(each) for each in reports):
        unconfirmed, micros = micros, None
    late = why_late(owned, row, now)
    released = row.held if row.state == OPEN and micros is not None else None
    if micros is not None:
        check_room(owned, micros, released)
    told = None
    if micros is not None and late is None and row.route != MODEL:
        told = policy.clamp_cost(micros)
    record = log_records.ObservedRecord(
        task=row.task,
        id=row.id,
        learned=late is None,
        rewards=new,
        cost=micros,
        told=told,
        released=released,
        late=late,
        reviewers=review.reviewers,
        answers=review.answers,
        unconfirmed=unconfirmed,
        confirms=confirms,
        ruled=[*(rewards if by_rule else ()), *ruled],
        used=judgement.used,
        visible=visible,
        stopped=stopped,
    )
    work.record(owned, record, now, row.task)
    known = [] if late is not None else [*new, *([] if told is None else [COST])]
    final = row.final or (MODEL if stopped and not review.reviewers else row.route)
    row = row._replace(
        rewards=row.rewards | new,
        cost=row.cost if micros is None else micros,
        state=POSTED if micros is not None and row.state in (OPEN, VOID) else row.state,
        told=" ".join([*row.told.split(), *known]),
        final=final if ended else row.final,
    )
    if review.answers:
        row = row._replace(answer=msgspec.json.encode(used_answer(review.answers, judgement.used)).decode())
    work.put_decision(row)
    if ended:
        work.close_seats(owned, row)
    return OutcomeReply(
        task=row.task,
        changed=True,
        learned=late is None,
        late=late,
        booked=None if micros is None else all_in_reply(micros),
        unconfirmed=None if unconfirmed is None else all_in_reply(unconfirmed),
    )


def check_known(row: DecisionRow, rewards: Mapping[str, float]) -> None:
    """Raise if a reward differs from the observed one."""
    for name, value in rewards.items():
        if row.rewards.get(name, value) != value:
            raise conflict(
                f"The reward of {name} for task {row.task!r} was observed as {row.rewards[name]}. Got {value}:"
                " a correction is a call of its own."
            )


def is_booked(cost: Micros, booked: Micros, of_reviewers: Micros | None) -> bool:
    """Whether a cost is the one that was booked, with or without what reviewers have reported themselves.

    >>> is_booked({"cost": 3}, {"cost": 8}, {"cost": 5}), is_booked({"cost": 5}, {"cost": 8}, None)
    (True, False)
    """
    return booked in (cost, sum_costs(cost, of_reviewers))


def judgement_of(owned: OwnedPolicy, row: DecisionRow, done: list[SeatRow], answers: list[Any]) -> Judgement:
    """Return the judgement of a task's answers by the review document; an empty one if the policy has none."""
    document = owned.policy.spec.review_used
    if document is None or not answers:
        return Judgement(None, {})
    return judge(document, answers, from_json_column(done[0].model_answer), row.route)


def used_answer(answers: list[Any], used: int | None) -> Any:
    """Return the answer that is used: that of index `used` (`Judgement.used`), else the majority answer."""
    return majority_answer(answers) if used is None else answers[used]


def majority_answer(answers: list[Any]) -> Any:
    """Return the answer that most reviewers gave; the first one in a tie.

    >>> majority_answer(["ham", "spam", "spam"]), majority_answer([{"a": 1}, {"b": 2}])
    ('spam', {'a': 1})
    """
    texts = [msgspec.json.encode(answer, order="sorted") for answer in answers]
    return answers[max(range(len(texts)), key=lambda i: (texts.count(texts[i]), -i))]


def was_stopped(work: UnitOfWork, row: DecisionRow) -> bool:
    """Whether the review of a task was stopped, also with a cost that waits to be confirmed, or after an answer."""
    history = map(log_records.decode, work.history(row.policy, row.task))
    return any(isinstance(record, log_records.ObservedRecord) and record.stopped for record in history)


def why_late(owned: OwnedPolicy, row: DecisionRow, now: int) -> str | None:
    """Return why an outcome comes too late to be learned; None if it does not."""
    window = owned.policy.spec.learning_window_s
    if window is not None and now - row.at > window * MICRO:
        return "the learning window is over"
    if row.id in owned.policy.relearned.forgotten:
        return "the task was forgotten"
    if not owned.policy.remembers(row.id):
        return "the learner remembers the decision no longer"
    return None
