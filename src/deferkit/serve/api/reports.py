"""Replies of reports: summaries, status, time series, estimates, reviewers, what-if jobs."""

from typing import Annotated, Literal

import msgspec

Column = list[float]
Gaps = list[float | None]
Remark = Annotated[
    str,
    msgspec.Meta(description="The reason that fewer tasks than planned are deferred, and a remedy. Empty if on plan."),
]
Budgets = Annotated[
    list[Annotated[str, msgspec.Meta(min_length=1, max_length=200)]],
    msgspec.Meta(
        min_length=1,
        max_length=10,
        description="Budgets such as 500, 2x, 50% or inf; by resource minutes=500,euros=2x.",
    ),
]
JobId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{1,32}$", description="The id of the job.")]
Buckets = Annotated[int, msgspec.Meta(ge=1, le=2000, description="The maximum number of items.")]


class PeriodState(msgspec.Struct, frozen=True, kw_only=True):
    """The current period of a budget that renews, or the time up to its end. Times are seconds since 1970.

    total = carried + held + granted + changed.
    """

    number: int  # counted from 1
    start: float
    end: float  # when it is renewed, or ends
    total: float  # what there is to spend in it
    posted: float  # costs that were booked in it
    granted: float
    carried: float  # from the period before
    held: float  # for reviews that were pending when it began
    changed: float  # by top-ups and cuts
    tasks: int  # decided in it
    tasks_left: float | None  # that are expected until its end; null where no task has come in it
    pace: float | None  # share spent over share of its tasks decided, 1 is on plan
    runs_out_at: float | None  # if spending goes on as in it so far; null: not before its end
    renews: bool
    over: bool  # the end has passed


class BudgetState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The account of a resource, over all periods; a total of null is unlimited."""

    total: float | None
    reserved: float
    posted: float
    suspense: float
    free: float | None
    period: PeriodState | None = None  # left out for a budget with a horizon


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the review queue, in seats."""

    waiting: int
    claimed: int
    oldest_s: float | None  # how long the oldest is there


class EstimateState(msgspec.Struct, frozen=True, kw_only=True):
    """The mean estimate of a reward or cost over the latest tasks (at most 200), with its standard error."""

    mean: float
    error: float
    samples: int  # observations


class DriftState(msgspec.Struct, frozen=True, kw_only=True):
    """A reward or cost whose distribution changed, so that most of its old observations are discounted."""

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


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """A condition that needs attention."""

    kind: Literal[
        "suspense",
        "frozen",
        "horizon_over",
        "failing",
        "drift",
        "queue_age",
        "unconfirmed",
        "underspending",
        "overspending",
        "without_budget",
    ]
    text: str


class GainState(msgspec.Struct, frozen=True, kw_only=True):
    """The gain of experts over the model, in reward."""

    value: float
    error: float | None  # its standard error; None: not known
    basis: str  # observed: both rewards of every task are known; estimated: estimates stand in for some


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a policy. Times are seconds since 1970."""

    name: str
    decisions: int
    routes: dict[str, int]
    deferral_rate: float
    unit: str  # the first resource
    budget: dict[str, BudgetState]
    horizon: int | None  # tasks that the budget must last for; the shortest of several
    planned: float | None  # share of the planned tasks that are decided: of the horizon, or of those of the period
    pace: float | None  # share spent over that share, 1 is on plan; the fastest of several resources
    runs_out_at: float | None  # at the recent spending rate; the first of several resources
    runs_out_task: int | None
    price: float | dict[str, float]
    next_unit: float | None  # the reward that one more unit of the first resource brings, about
    reward_range: tuple[float, float]  # what a reward can be: from 0 to 1, it counts right answers
    gain: GainState
    held: str  # what pending reviews hold, and whether a smaller hold would do; empty if there are none
    queue: QueueState
    alarms: list[Alarm]
    state: str  # all of it in a sentence
    remark: Remark = ""


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The status of all policies of a tenant."""

    now: float  # seconds since 1970
    policies: list[Standing]


class SeriesReply(msgspec.Struct, frozen=True, kw_only=True):
    """Time series: values at the end of consecutive time buckets. Counts and sums are cumulative."""

    complete: bool  # false while a long log is still being read
    read: int  # records of the log that are in it
    records: int  # of the whole log
    width_s: float
    start: Column  # of each bucket, seconds since 1970
    decisions: list[int]
    deferred: list[int]
    routes: dict[str, list[int]]
    reasons: dict[str, list[int]]
    posted: dict[str, Column]
    reserved: dict[str, Column]
    plan: dict[str, Gaps | None]  # even spending over the tasks of the horizon, or of each period; None: no limit
    price: dict[str, Gaps]
    gain: Column
    gain_error: Gaps


class CalibrationBin(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks of about the same prediction."""

    predicted: float  # their mean
    observed: float  # their mean
    error: float | None  # the standard error of what was observed; None of one task
    count: int


class Coefficient(msgspec.Struct, frozen=True, kw_only=True):
    """What a feature adds to an estimate, with its standard error."""

    feature: str
    value: float
    error: float


class TargetEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """The estimate of a reward ("model", an expert) or a cost ("cost of …")."""

    target: str
    samples: int
    samples_in_use: float
    coefficients: list[Coefficient]  # the 50 that are clearest, by |value| over error
    calibration: list[CalibrationBin]  # of the latest 5,000 observations


class EstimatesReply(msgspec.Struct, frozen=True, kw_only=True):
    """The estimates of a policy."""

    targets: list[TargetEstimate]
    drifts: list[DriftState]
    representation: str


class ReviewerLine(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of a reviewer. Cost, time and agreement are those of the latest 20,000 answers of the policy."""

    reviewer: str
    done: int  # answers
    held: int  # tasks that the reviewer holds now
    declined: int
    lapsed: int  # claims that ended without an answer: the lease lapsed, or the task was given back or closed
    active_s: float | None  # by the timer of the review page; None: the policy has none
    cost: dict[str, float]
    agrees_with_model: float | None  # share of answers; None: there is none to compare with
    agrees_with_colleagues: float | None  # share of the answers that others gave to the same tasks
    last: float | None  # the last claim, in seconds since 1970


class ReviewersReply(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of the reviewers of a policy, sorted by name."""

    reviewers: list[ReviewerLine]


class ValueWithError(msgspec.Struct, frozen=True, kw_only=True):
    """A mean reward per task, or a difference of two, with its standard error."""

    value: float
    error: float


class WhatIfRow(msgspec.Struct, frozen=True, kw_only=True):
    """A budget with its results, logged or estimated. The first row is "as it was"."""

    budget: str
    totals: dict[str, float | None]  # by resource; None has no end
    asked: float  # the share of tasks that went to an expert
    spent: dict[str, float]
    price: float | dict[str, float]  # the last one
    reward: ValueWithError | None  # of a task; None if no rewards are known
    difference: ValueWithError | None  # from what was done
    unsupported: float  # the share of choices that rest on the estimates alone


class WhatIfReply(msgspec.Struct, frozen=True, kw_only=True):
    """Progress and result of a what-if job."""

    job: str
    state: str  # running, done or failed
    progress: float  # from 0 to 1
    rows: list[WhatIfRow]
    basis: str | None  # what the rewards rest on
    remarks: list[str]
    error: str | None


class WhatIfBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The budgets of a what-if job."""

    budgets: Budgets


class WhatIfStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A started job."""

    job: str
