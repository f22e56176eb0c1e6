"""The summary of a policy: counts, budget, price, queue, drifts."""

from typing import Annotated

import msgspec

from deferkit.serve.domain.money import MICRO, all_in_reply
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.engine.budget_state import BudgetState, budget_states
from deferkit.types import Summary


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the review queue: seats, not tasks."""

    waiting: int
    claimed: int
    oldest_s: float | None  # how long the oldest is there


def queue_state(queue: tuple[int, int, int | None], now: int) -> QueueState:
    """Return where a queue stands: how many seats wait, how many are claimed, since when the oldest is there."""
    waiting, claimed, oldest = queue
    return QueueState(
        waiting=waiting, claimed=claimed, oldest_s=None if oldest is None else max(0, now - oldest) / MICRO
    )


Remark = Annotated[
    str,
    msgspec.Meta(
        description="Why experts are asked less than planned, and what would change it; empty if they are not."
    ),
]


class EstimateState(msgspec.Struct, frozen=True, kw_only=True):
    """The estimate of a reward or cost, on average over the latest tasks, at most 200, with its standard error."""

    mean: float
    error: float
    samples: int  # observations


class DriftState(msgspec.Struct, frozen=True, kw_only=True):
    """A reward or cost that has changed, so that much of what was learned of it was given up."""

    target: str  # "model", the name of an expert, or "cost of …"
    decision: int  # the number of the one that was to come next when it was found
    strength: float  # share of the observations that was given up then
    times: int  # how often it was found so far
    since: int | None = None  # the decision at the most likely time of the change; null with defaults "2026.11"
    before: float | None = None  # the mean before the change; null likewise
    after: float | None = None  # the mean since the change; null likewise
    error: float | None = None  # the standard error of after − before; null likewise


class SummaryReply(msgspec.Struct, frozen=True, kw_only=True):
    """The summary of a policy."""

    name: str
    decisions: int
    routes: dict[str, int]
    deferral_rate: float
    budget: dict[str, BudgetState]
    price: float | dict[str, float]  # the reward that one unit of budget must bring
    expected_gain: float  # what experts were expected to earn above the model, over all that they were asked
    frozen: bool  # a cost stands in suspense, so nobody is asked
    horizon_over: bool  # the tasks that a budget was to last for were decided, or its end has passed
    pending: int  # decisions that hold budget
    outcomes: int
    late: int  # outcomes that were booked but not learned
    corrected: int
    expired: int
    without_budget: int  # decisions that went to the model because nothing was left
    parked: int  # outcomes that wait for their decision
    stopped: int  # reviews that were stopped before they were done
    extended: int  # times that more was reserved for a review
    overruns: int  # reviews that have cost more than was held for them, where they can be stopped
    beyond_holds: float | dict[str, float]  # what those have cost beyond their holds
    unconfirmed_costs: int  # reported costs above max_reported_cost, not booked until a correction confirms them
    clipped_features: int  # features of contexts that were cut, because they were implausibly large
    queue: QueueState
    records: int  # rows of the log
    samples: dict[str, int]  # observations of each reward ("model", an expert) and cost ("cost of …")
    samples_in_use: dict[str, float]  # how many of those its estimate rests on: fewer where the past is forgotten
    drifts: int  # how often one of them was found to have changed
    drifted: list[DriftState]  # the latest change of each that has changed, the latest one last
    estimates: dict[str, EstimateState] = {}  # of each reward ("model", an expert) and cost ("cost of …")
    remark: Remark = ""


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
        horizon_over=any(counts.decisions >= horizon for horizon in horizons) or policy.ended(now),
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
