"""Commands that report outcomes: rewards and costs, parked ones, idempotent repeats."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from deferkit.errors import DeferkitError
from deferkit.serve.api.common import Reply
from deferkit.serve.api.tasks import OutcomeBody, OutcomeReply
from deferkit.serve.domain import records
from deferkit.serve.domain.accounts import MAX_SUM, MICRO, Micros, all_in_reply, to_micros
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.problems import conflict, invalid, unavailable, unknown
from deferkit.serve.domain.review import Judgement, judge
from deferkit.serve.domain.rows import (
    MODEL,
    OPEN,
    POSTED,
    VOID,
    DecisionRow,
    ParkedRow,
    SeatRow,
)
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.connections import ReadSet, from_json_column
from deferkit.types import Amount, is_number


class Reported(NamedTuple):
    """The merged reports of a task's reviewers: mean rewards, summed costs."""

    rewards: dict[str, float]
    cost: Micros | None
    reviewers: list[str]
    answers: list[Any]


def combine_reports(seats: list[SeatRow], deciders: Iterable[str]) -> Reported:
    """Return the combined reports of reviewers: mean rewards of these deciders, sum of costs."""
    rewards = {}
    for name in deciders:
        given = [seat.rewards[name] for seat in seats if name in seat.rewards]
        if given:
            rewards[name] = average(given)
    return Reported(
        rewards=rewards,
        cost=sum_costs(*(seat.cost for seat in seats)),
        reviewers=[seat.reviewer or "" for seat in seats],
        answers=[msgspec.json.decode(seat.answer) for seat in seats if seat.answer is not None],
    )


def average(values: list[float]) -> float:
    """Return the mean of values, clamped to their range.

    >>> sum([0.1] * 3) / 3, average([0.1] * 3)
    (0.10000000000000002, 0.1)
    """
    return min(max(sum(values) / len(values), min(values)), max(values))


def sum_costs(*costs: Micros | None) -> Micros | None:
    """Return the sum of the known costs; None if no cost is known.

    >>> sum_costs({"cost": 5}, None, {"cost": 3}), sum_costs(None)
    ({'cost': 8}, None)
    """
    known = [cost for cost in costs if cost is not None]
    return {name: sum(cost[name] for cost in known) for name in known[0]} if known else None


def check_rewards(owned: OwnedPolicy, rewards: Mapping[str, float]) -> None:
    """Raise if the decider of a reward is unknown, or the reward out of range."""
    low, high = owned.policy.learner.settings.reward_bounds
    for name, value in rewards.items():
        if name not in owned.policy.spec.deciders:
            raise invalid(f"There is no decider {name!r}. There is {', '.join(owned.policy.spec.deciders)}.")
        if not is_number(value) or not low <= value <= high:
            raise invalid(f"The reward of {name} is a number from {low:g} to {high:g}. Got {value!r}.")


def cost_of(owned: OwnedPolicy, cost: Amount | None) -> Micros | None:
    """Return a cost in micro-units; raise if it is invalid."""
    if cost is None:
        return None
    try:
        return to_micros("cost", cost, owned.policy.spec.resources)
    except DeferkitError as error:
        raise invalid(str(error)) from error


def has_room(owned: OwnedPolicy, micros: Micros, released: Micros | None = None) -> bool:
    """Whether the sums of the accounts stay within `MAX_SUM` if these amounts are added and one is released."""
    less = released or {}
    return all(owned.policy.accounts[name].has_room(micro - less.get(name, 0)) for name, micro in micros.items())


def check_room(owned: OwnedPolicy, micros: Micros, released: Micros | None = None) -> None:
    """Raise if a cost would make the sums of an account exceed `MAX_SUM`."""
    if not has_room(owned, micros, released):
        raise invalid(
            f"With this cost, the booked and reserved amounts would exceed {MAX_SUM:,}, the maximum of an account:"
            " use a larger unit."
        )


MAX_PARKED = 10_000
MAX_KEY_SETS = 200  # of two or more API keys that have parked the same outcomes
PARKED_S = 86_400  # seconds after which parked outcomes are dropped, where `MAX_PARKED` is reached


def is_full(owned: OwnedPolicy) -> bool:
    """Whether no more outcomes can be parked."""
    return owned.parked >= MAX_PARKED


def joined_keys(keys: str, key: str) -> str:
    """Add an API key to the space-separated keys of a parked outcome, and return them.

    >>> joined_keys("b", "a"), joined_keys("a b", "b"), joined_keys("", "a")
    ('a b', 'a b', ' a')
    """
    return " ".join(sorted({*keys.split(" "), key}))


def parked_shares(owned: OwnedPolicy) -> Counter[str]:
    """Return the number of parked outcomes of each API key. An outcome of several keys counts for each of them."""
    shares: Counter[str] = Counter()
    for keys, outcomes in owned.parked_by.items():
        for key in keys.split(" ") if " " in keys else (keys,):
            shares[key] += outcomes
    return shares


def check_key_sets(owned: OwnedPolicy, keys: str) -> None:
    """Raise if too many sets of API keys have parked outcomes together: an eviction looks at all of them."""
    if keys not in owned.parked_by and sum(" " in each for each in owned.parked_by) >= MAX_KEY_SETS:
        raise unavailable(
            f"{MAX_KEY_SETS} sets of API keys have parked outcomes of the same tasks; there is no room for another.",
            retry_after=60,
        )


def keys_with_most_parked(owned: OwnedPolicy, shares: Mapping[str, int]) -> str:
    """Return the set of API keys whose outcome is evicted next.

    The set is the one whose smallest number of parked outcomes (`least_share`) is largest. So an outcome of several
    keys is safe as long as one of them keeps to its share, whatever the others park: another key cannot evict it by
    reporting the same outcome. Nor can a caller fill the room with several keys, because a joint outcome counts for
    the share of each key.
    """
    return max(owned.parked_by, key=lambda keys: least_share(keys, shares), default="")


def least_share(keys: str, shares: Mapping[str, int]) -> int:
    """Return the smallest number of parked outcomes among these API keys."""
    return min(map(shares.__getitem__, keys.split(" "))) if " " in keys else shares[keys]


def evict_parked(owned: OwnedPolicy, work: UnitOfWork, key: str) -> None:
    """Evict the oldest outcome of the keys that have parked most; raise if the caller's key has as much."""
    shares = parked_shares(owned)
    most = keys_with_most_parked(owned, shares)
    if shares[key] + 1 >= least_share(most, shares):
        raise unavailable(
            f"{MAX_PARKED:,} outcomes wait for their decisions; there is no room for another.", retry_after=60
        )
    for row in work.oldest_parked.get((owned.id, most), ()):
        there = work.parked.get((owned.id, row.task), row)
        if there is not None and there.key == most:  # else it was decided, dropped or added to in this group
            work.unpark(owned, there)
            owned.dropped_parked += 1
            return
    raise unavailable("The quotas of parked outcomes are being redistributed. Try again.")


def merge_outcomes(owned: OwnedPolicy, first: OutcomeBody, more: OutcomeBody) -> OutcomeBody:
    """Merge two parked outcomes of a task; raise if they contradict each other."""
    rewards = first.rewards | more.rewards
    if any(rewards[name] != value for name, value in first.rewards.items()):
        raise conflict(f"Another outcome of task {more.task!r} waits for its decision.")
    if first.cost is None:
        return msgspec.structs.replace(first, rewards=rewards, cost=more.cost)
    if more.cost is not None and cost_of(owned, more.cost) != cost_of(owned, first.cost):
        raise conflict(f"Another cost of task {more.task!r} waits for its decision.")
    return msgspec.structs.replace(first, rewards=rewards)


class Forget:
    """Drop parked outcomes older than `PARKED_S`. Spans carry the name of this class (`deferkit.forget`)."""

    def __init__(self, tasks: list[str]) -> None:
        self.tasks = tuple(tasks)

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`."""
        return ReadSet(owned.id, self.tasks, parked=True)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:
        """Drop the outcomes that are still parked and as old; reply with their number."""
        parked = [work.parked[owned.id, task] for task in self.tasks]
        old = [row for row in parked if row is not None and row.at < now - PARKED_S * MICRO]
        for row in old:
            work.unpark(owned, row)
        return Reply(200, msgspec.json.encode(len(old)))


COST = "$cost"


class Observe:
    """Observe the outcome of a task.

    Args:
        body: What has become known.
        key: Id of the API key that it came with; '' without one. Each key has its share of the room for outcomes that
            come before their decisions.
    """

    def __init__(self, body: OutcomeBody, key: str = "") -> None:
        self.body = body
        self.key = key

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`."""
        parked_by = keys_with_most_parked(owned, parked_shares(owned)) if is_full(owned) else None
        return ReadSet(owned.id, (self.body.task,), parked=True, seats=True, observes=True, parked_by=parked_by)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:
        """Book the outcome and learn from it, or park it if the task has no decision yet."""
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
    """Whether a new cost is reported for a decision of the model, which has no cost; old stores have booked some."""
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
    so_far: Mapping[int, Micros] | None = None,
) -> OutcomeReply:
    """Book and learn the new values of a decision; raise if one contradicts an observed one.

    The outcome that ends a task also books the reports of its reviewers: their costs are added to the given one, and
    missing rewards are computed by the reward rule. If a cost is above the ceiling (`max_reported_cost`), none of them
    is booked until a correction confirms the cost. Whose answer is used (`final`) is set once.

    Args:
        owned: The policy.
        work: The unit of work that the record and the rows are added to.
        now: The time, in microseconds.
        row: The decision.
        rewards: Reported rewards by decider.
        micros: Reported cost in micro-units by resource; None if there is none.
        ends: Whether the task ends even if neither a cost nor its expert's reward is reported. False by default.
        confirms: Whether the cost is that of a correction, which confirms it. False by default.
        visible: Whether the reviewer whose answer ends the task was shown the model's answer. Unknown by default.
        by_rule: Whether `rewards` are those of the reward rule. False by default.
        stopped: Whether the review was stopped with this cost: the model's answer is used, unless others have
            answered. False by default.
        so_far: What reviewers who have not answered report as their costs so far, by seat, where that is the given
            cost. Not by default.

    Raises:
        Problem: If a reward is invalid, a value differs from the observed one, or an account would overflow.
    """
    policy = owned.policy
    check_rewards(owned, rewards)
    check_known(row, rewards)
    new = {name: float(value) for name, value in rewards.items() if name not in row.rewards}
    done = work.answered_seats(row)
    micros = new_cost(owned, row, done, micros, confirms=confirms)
    if not new and micros is None and not ends:
        return OutcomeReply(task=row.task, changed=False, learned=False)
    ended = ends or (row.final is None and (micros is not None or row.route in new))
    unknown_yet = [name for name in policy.spec.deciders if name not in row.rewards and name not in new]
    review = combine_reports(done if ended else [], unknown_yet)
    new |= review.rewards
    judgement = judgement_of(owned, row, done, review.answers)
    ruled = {name: reward for name, reward in judgement.rewards.items() if name in unknown_yet and name not in new}
    new |= ruled
    reports = [*(so_far.values() if so_far else [micros]), *(seat.cost for seat in done if ended)]
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
    record = records.ObservedRecord(
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
        so_far=dict(so_far or {}),
    )
    work.record(owned, record, now, row.task)
    row = observed_row(row, record, ended=ended)
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


def new_cost(
    owned: OwnedPolicy, row: DecisionRow, done: list[SeatRow], micros: Micros | None, *, confirms: bool
) -> Micros | None:
    """Return a reported cost if it is new; None if it is booked already, waits to be confirmed, or is 0 for the model.

    Args:
        owned: The policy.
        row: The decision.
        done: The seats whose reviewers have answered: the booked cost may include theirs.
        micros: The reported cost; None without one.
        confirms: Whether the cost is that of a correction.

    Raises:
        Problem: If another cost was booked, or waits to be confirmed.
    """
    if micros is None:
        return None
    waiting = owned.policy.unconfirmed.get(row.task)
    if waiting is not None and not confirms:
        if not is_booked(micros, waiting, sum_costs(*(seat.cost for seat in done))):
            raise conflict(f"Another cost of task {row.task!r} waits to be confirmed: correct it.")
        return None
    if row.cost is not None:
        if not is_booked(micros, row.cost, sum_costs(*(seat.cost for seat in done))):
            raise conflict(f"Another cost was booked for task {row.task!r}: send a correction to change it.")
        return None
    return None if row.route == MODEL and not any(micros.values()) else micros


def observed_row(row: DecisionRow, record: records.ObservedRecord, *, ended: bool) -> DecisionRow:
    """Return the row of a decision after an outcome; if it ended the task, with the decider whose answer is used."""
    learned = [*record.rewards, *([] if record.told is None else [COST])] if record.learned else []
    final = row.final or (MODEL if record.stopped and not record.reviewers else row.route)
    row = row._replace(
        rewards=row.rewards | record.rewards,
        cost=row.cost if record.cost is None else record.cost,
        state=POSTED if record.cost is not None and row.state in (OPEN, VOID) else row.state,
        told=" ".join([*row.told.split(), *learned]),
        final=final if ended else row.final,
    )
    if record.answers:
        row = row._replace(answer=msgspec.json.encode(used_answer(record.answers, record.used)).decode())
    return row


def check_known(row: DecisionRow, rewards: Mapping[str, float]) -> None:
    """Raise if a reward differs from the observed one."""
    for name, value in rewards.items():
        if row.rewards.get(name, value) != value:
            raise conflict(
                f"The reward of {name} for task {row.task!r} was observed as {row.rewards[name]}. Got {value}:"
                " send a correction to change it."
            )


def is_booked(cost: Micros, booked: Micros, of_reviewers: Micros | None) -> bool:
    """Whether a cost is the one that was booked, with or without what reviewers have reported themselves.

    >>> is_booked({"cost": 3}, {"cost": 8}, {"cost": 5}), is_booked({"cost": 5}, {"cost": 8}, None)
    (True, False)
    """
    return booked in (cost, sum_costs(cost, of_reviewers))


def judgement_of(owned: OwnedPolicy, row: DecisionRow, done: list[SeatRow], answers: list[Any]) -> Judgement:
    """Return the judgement of a task's answers by the review document; empty without a document."""
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
    history = map(records.decode, work.history(row.policy, row.task))
    return any(isinstance(record, records.ObservedRecord) and record.stopped for record in history)


def booked_with_stop(work: UnitOfWork, row: DecisionRow, seat: int) -> Micros | None:
    """Return the cost so far of a seat that was booked when its review was stopped; None if none was."""
    for record in map(records.decode, work.history(row.policy, row.task)):
        if isinstance(record, records.ObservedRecord) and record.stopped and record.cost is not None:
            return record.so_far.get(seat)
    return None


def why_late(owned: OwnedPolicy, row: DecisionRow, now: int) -> str | None:
    """Return the reason that an outcome is not learned; None if it is."""
    window = owned.policy.spec.learning_window_s
    if window is not None and now - row.at > window * MICRO:
        return "the learning window is over"
    if row.id in owned.policy.relearned.forgotten:
        return "the task was forgotten"
    if not owned.policy.remembers(row.id):
        return "the learner remembers the decision no longer"
    return None


def idempotent_reply(work: UnitOfWork, owned: OwnedPolicy, request: str, request_digest: bytes) -> Reply | None:
    """Return the stored reply of an idempotency key, None if it is new; raise if it was used with another body."""
    before = work.requests[owned.id, request]
    if before is None:
        return None
    if bytes(before.digest) != request_digest:
        raise conflict(f"The id of {request!r} was used before, for a request with another body.")
    return Reply(200, bytes(before.reply))
