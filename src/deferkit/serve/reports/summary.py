"""The summary of a policy: its estimates and reviewers."""

import datetime
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from deferkit.learn.links import link_named
from deferkit.learn.representation_text import representation_text
from deferkit.serve.api.reports import (
    CalibrationBin,
    Coefficient,
    DriftState,
    EstimatesReply,
    EstimateState,
    QueueState,
    ReviewerLine,
    ReviewersReply,
    SummaryReply,
    TargetEstimate,
)
from deferkit.serve.api.reviews import StatusReply, WhyEmpty
from deferkit.serve.domain.accounts import MICRO, Account, all_in_reply, in_reply
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.review import label_of
from deferkit.serve.domain.spec import PolicySpec
from deferkit.serve.reports.budgets import budget_states
from deferkit.serve.storage.listing import ReviewerQueue, costs_since, count_answers, queue_of_reviewer
from deferkit.serve.storage.store import Store
from deferkit.types import Coefficients, Summary


def queue_state(queue: tuple[int, int, int | None], now: int) -> QueueState:
    """Return the state of a queue: waiting seats, claimed seats, age of the oldest."""
    waiting, claimed, oldest = queue
    return QueueState(
        waiting=waiting, claimed=claimed, oldest_s=None if oldest is None else max(0, now - oldest) / MICRO
    )


def summary_of(
    owned: OwnedPolicy, queue: tuple[int, int, int | None], now: int, learned: Summary | None = None
) -> SummaryReply:
    """Return the summary of a policy.

    Args:
        owned: The policy.
        queue: The counts of its queue.
        now: The time of the policy, in microseconds.
        learned: The summary of its learner; by default without estimates and remark, which take most of its time.
    """
    policy = owned.policy
    learned, counts = policy.learner.figures() if learned is None else learned, policy.counts()
    horizons = [each.horizon for each in policy.spec.budget.values() if each.horizon is not None]
    return SummaryReply(
        name=policy.spec.name,
        decisions=counts.decisions,
        routes=counts.routes,
        deferral_rate=counts.deferral_rate,
        budget=budget_states(owned, now),
        price=learned.price,  # type: ignore[arg-type]
        expected_gain=policy.tally.expected_gain,
        frozen=policy.frozen,
        horizon_over=any(counts.decisions >= horizon for horizon in horizons) or policy.has_ended(now),
        pending=counts.pending,
        outcomes=policy.tally.outcomes,
        late=policy.tally.late,
        corrected=policy.tally.corrected,
        expired=policy.tally.expired,
        without_budget=counts.without_budget,
        parked=owned.parked,
        stopped=policy.holds.stopped,
        extended=policy.holds.extended,
        overruns=policy.holds.overruns,
        beyond_holds=all_in_reply({name: policy.holds.overrun.get(name, 0) for name in policy.accounts}),
        unconfirmed_costs=len(policy.unconfirmed),
        clipped_features=0 if policy.scales is None else policy.scales.clipped,
        queue=queue_state(queue, now),
        records=policy.seq,
        samples=learned.samples,
        samples_in_use=learned.samples_in_use,
        drifts=learned.drifts,
        drifted=drift_states(owned),
        estimates={name: EstimateState(**each._asdict()) for name, each in learned.estimates.items()},
        remark=learned.remark,
    )


def drift_states(owned: OwnedPolicy) -> list[DriftState]:
    """Return the latest drift of each target that has drifted."""
    return [
        DriftState(**{name: getattr(drift, name) for name in DriftState.__struct_fields__})
        for drift in owned.policy.learner.drifts()
    ]


TEXTS: dict[WhyEmpty, str] = {
    "all_claimed": "Others hold all tasks. The first of their leases ends at {:%H:%M} UTC.",
    "declined": "You have declined all tasks that wait.",
    "answered": "You have answered, or hold, all tasks that wait; they wait for answers of your colleagues.",
    "frozen": "Costs went beyond the budget, so nobody is asked until it is topped up.",
    "budget_exhausted": "The budget is exhausted, so nobody is asked until it is topped up.",
    "nothing_deferred": "Nothing waits for a review: the model decides the rest, and all else is answered.",
}
DAY = 86_400 * MICRO


def status_of(store: Store, policy: int, spec: PolicySpec, reviewer: str, now: int) -> StatusReply:
    """Return the queue of a policy as one reviewer sees it.

    Args:
        store: Where it is read.
        policy: Number of the policy.
        spec: Its settings.
        reviewer: Who wants to know.
        now: The time, in microseconds.
    """
    database, accounts = store.database, store.budgets(policy)
    queue = queue_of_reviewer(database, policy, reviewer, now, late=spec.after_deadline == "wait")
    costs = costs_since(database, policy, reviewer, now - now % DAY)
    why = why_empty(queue, accounts, spec)
    return StatusReply(
        waiting=queue.waiting,
        claimed=queue.claimed,
        next_free_at=None if queue.next_free_at is None else queue.next_free_at / MICRO,
        declined=queue.declined,
        budget_left={name: None if each.free is None else in_reply(each.free) for name, each in accounts.items()},
        why_empty=why,
        text=sentence(queue, why),
        done=count_answers(database, policy, reviewer),
        done_today=len(costs),
        cost_today={name: in_reply(sum(cost.get(name, 0) for cost in costs)) for name in accounts},
    )


def why_empty(queue: ReviewerQueue, accounts: dict[str, Account], spec: PolicySpec) -> WhyEmpty | None:
    """Return the reason that a reviewer gets no task; None if a task waits."""
    needed = {name: max(1, round((each.least_hold or 0) * MICRO)) for name, each in spec.budget.items()}
    reasons: list[tuple[object, WhyEmpty | None]] = [
        (queue.waiting, None),
        (queue.claimed, "all_claimed"),
        (queue.declined, "declined"),
        (queue.answered, "answered"),
        (any(each.suspense for each in accounts.values()), "frozen"),
        (any(each.free is not None and each.free < needed[n] for n, each in accounts.items()), "budget_exhausted"),
    ]
    return next((why for holds, why in reasons if holds), "nothing_deferred")


def sentence(queue: ReviewerQueue, why: WhyEmpty | None) -> str:
    """Return the status text for a reviewer.

    >>> sentence(ReviewerQueue(0, 2, 50_700_000_000, 0, 0), "all_claimed")
    'Others hold all tasks. The first of their leases ends at 14:05 UTC.'
    """
    if why is None:
        return f"{queue.waiting:,} {'waits' if queue.waiting == 1 else 'wait'} for a review."
    return TEXTS[why].format(datetime.datetime.fromtimestamp((queue.next_free_at or 0) / MICRO, datetime.UTC))


LATEST_ANSWERS = 20_000  # answers that cost and agreement are computed from
MAX_REVIEWERS = 1000  # reviewers


class ReviewAnswer(NamedTuple):
    """An answer of a reviewer."""

    reviewer: str
    task: str
    label: Any
    model: Any  # the label of the model's answer; None: not known, or erased
    cost: Mapping[str, int]


def reviewers_of(store: Store, policy: int, spec: PolicySpec, now: int) -> ReviewersReply:
    """Return the statistics of each reviewer of a policy.

    Args:
        store: Where that is kept.
        policy: The number of the policy.
        spec: Its settings.
        now: The time, in microseconds.
    """
    reader = store.database.reader()
    answers = [answer_of(spec, *row) for row in reader.run("reviewer_answers", policy=policy, limit=LATEST_ANSWERS)]
    costs: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for each in answers:
        costs[each.reviewer].update(each.cost)
    for reviewer, effort in reader.run("reviewer_efforts", policy=policy, limit=LATEST_ANSWERS):
        costs[reviewer].update(msgspec.json.decode(effort))
    with_model = shares((each.reviewer, each.label == each.model) for each in answers if each.model is not None)
    with_others = shares(pairs(answers))
    document = spec.review_used
    timer = None if document is None else document.timer
    lines = []
    for reviewer, claims, last, done, held, declined in reader.run(
        "reviewer_counts", policy=policy, now=now, limit=MAX_REVIEWERS
    ):
        spent = {name: costs[reviewer][name] for name in spec.resources}
        lines.append(
            ReviewerLine(
                reviewer=reviewer,
                done=done,
                held=held,
                declined=declined,
                lapsed=max(0, claims - done - held - declined),
                active_s=None if timer is None else spent[timer.resource] / MICRO * timer.unit_s,
                cost={name: in_reply(micro) for name, micro in spent.items()},
                agrees_with_model=with_model.get(reviewer),
                agrees_with_colleagues=with_others.get(reviewer),
                last=None if last is None else last / MICRO,
            )
        )
    return ReviewersReply(reviewers=lines)


def answer_of(
    spec: PolicySpec, reviewer: str, task: str, answer: str | None, model_answer: str | None, cost: str | None
) -> ReviewAnswer:
    """Decode the JSON columns of an answer; answers are reduced to their labels, to be compared."""
    given, model = (None if text is None else msgspec.json.decode(text) for text in (answer, model_answer))
    document = spec.review_used
    if document is not None:
        given, model = label_of(document.form, given), label_of(document.form, model)
    return ReviewAnswer(reviewer, task, given, model, {} if cost is None else msgspec.json.decode(cost))


def pairs(answers: Iterable[ReviewAnswer]) -> Iterable[tuple[str, bool]]:
    """Yield each reviewer of a task with whether a colleague gave the same answer, for each colleague.

    >>> answers = [ReviewAnswer(reviewer, task, 1, None, {}) for reviewer, task in ("at", "bt", "bu")]
    >>> list(pairs(answers))
    [('a', True), ('b', True)]
    """
    of_task: defaultdict[str, list[ReviewAnswer]] = defaultdict(list)
    for each in answers:
        of_task[each.task].append(each)
    for group in of_task.values():
        yield from ((one.reviewer, one.label == two.label) for one in group for two in group if one is not two)


def shares(compared: Iterable[tuple[str, bool]]) -> dict[str, float]:
    """Return the share of agreeing pairs, by reviewer.

    >>> shares([("ann", True), ("ann", False), ("bo", True)])
    {'ann': 0.5, 'bo': 1.0}
    """
    agreed: defaultdict[str, list[bool]] = defaultdict(list)
    for reviewer, same in compared:
        agreed[reviewer].append(same)
    return {reviewer: sum(each) / len(each) for reviewer, each in agreed.items()}


MAX_COEFFICIENTS = 50  # coefficients of a target


def estimates_of(owned: OwnedPolicy, calibrations: Mapping[str, list[CalibrationBin]]) -> EstimatesReply:
    """Return the coefficients, calibration and drifts of a policy.

    Args:
        owned: The policy.
        calibrations: Predicted against observed, by target, as the log has it.
    """
    learner, spec = owned.policy.learner, owned.policy.spec
    summary = learner.figures()
    columns = learner.settings.kind.column_names(learner.settings.shape)
    targets = []
    for name, each in learner.coefficients().items():
        probability = link_named(learner.link if name in spec.deciders else spec.cost_link).is_probability
        scale = 1.0 if probability else summary.noise[name]
        targets.append(
            TargetEstimate(
                target=name,
                samples=summary.samples[name],
                samples_in_use=summary.samples_in_use[name],
                coefficients=clearest(each, scale, columns),
                calibration=calibrations.get(name, []),
            )
        )
    return EstimatesReply(targets=targets, drifts=drift_states(owned), representation=representation_text(learner))


def clearest(given: Coefficients, scale: float, columns: tuple[str, ...]) -> list[Coefficient]:
    """Return the most significant coefficients, by |value| / standard error, which is √(M⁻¹)ⱼⱼ times the noise."""
    errors = scale * np.sqrt(np.maximum(0.0, np.diag(given.inverse)))
    names = given.names or columns
    clarity = np.where(errors > 0, np.abs(given.theta) / np.where(errors > 0, errors, 1.0), np.inf)
    clarity[given.theta == 0] = 0.0
    best = sorted(range(len(names)), key=lambda j: -clarity[j])[:MAX_COEFFICIENTS]
    return [Coefficient(feature=names[j], value=float(given.theta[j]), error=float(errors[j])) for j in best]
