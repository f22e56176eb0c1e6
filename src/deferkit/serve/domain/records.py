"""Log records, and the hash chain that links them."""

import hashlib
import math
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Self, TypeAlias

import msgspec

from deferkit.serve.domain.accounts import Micros
from deferkit.serve.domain.spec import PolicySpec
from deferkit.types import MODEL, Amount, Decision

FIELDS = attrgetter(*Decision._fields)


def without_infinity(amount: Amount) -> float | dict[str, float | None] | None:
    """Return an amount as JSON can hold it: None where it has no end.

    >>> without_infinity(float("inf")), without_infinity({"minutes": 2.0, "euros": float("inf")})
    (None, {'minutes': 2.0, 'euros': None})
    """
    if isinstance(amount, Mapping):
        return {name: None if value == math.inf else value for name, value in amount.items()}
    return None if amount == math.inf else amount


def with_infinity(amount: float | dict[str, float | None] | None) -> Amount:
    """Return the amount that `without_infinity` was given."""
    if isinstance(amount, dict):
        return {name: math.inf if value is None else value for name, value in amount.items()}
    return math.inf if amount is None else amount


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """Base class of the log records."""


class CreatedRecord(Record, frozen=True, kw_only=True, tag="created"):
    """The policy was made."""

    spec: PolicySpec


class ChangedRecord(Record, frozen=True, kw_only=True, tag="changed"):
    """Settings of the policy that the learner does not read were changed."""

    spec: PolicySpec


class DecisionFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a decision that the log and the replies share."""

    task: str
    id: int
    route: str
    reason: str
    propensity: float
    price: float | dict[str, float]
    budget_left: float | dict[str, float | None] | None  # None: without end
    reserved: float | dict[str, float]
    expected_cost: float | dict[str, float]
    estimates: dict[str, float]
    widths: dict[str, float]
    costs: dict[str, float | dict[str, float]]
    cost_widths: dict[str, float | dict[str, float]]

    @classmethod
    def of(cls, task: str, decision: Decision, **more: Any) -> Self:
        """Return the reply or the record of a decision on a task, with `more` fields where it has them."""
        made: Any = decision  # its amounts by resource are dicts
        return cls(
            task=task,
            id=made.id,
            route=made.route,
            reason=made.reason,
            propensity=made.propensity,
            price=made.price,
            budget_left=without_infinity(made.budget_left),
            reserved=made.reserved,
            expected_cost=made.expected_cost,
            estimates=made.estimates,
            widths=made.widths,
            costs=made.costs,
            cost_widths=made.cost_widths,
            **more,
        )


class DecidedRecord(
    DecisionFields, Record, frozen=True, kw_only=True, tag="decided", tag_field="kind", omit_defaults=True
):
    """A task was decided. If it was deferred to an expert, budget was reserved."""

    context: list[float] | dict[str, Any]
    held: Micros | None = None
    announced: float | dict[str, float | dict[str, float]] | None = None  # the cost, where it was known in advance
    available: list[str] | None = None  # the experts on duty, where the caller named them
    clipped: int = 0  # features of the context that were cut, because they were implausibly large

    @property
    def expected_gain(self) -> float:
        """The expected reward of the route above the model's."""
        return self.estimates[self.route] - self.estimates[MODEL]

    @property
    def decision(self) -> Decision:
        """The decision as a `deferkit.Decision`."""
        decision = Decision._make(FIELDS(self))
        left = with_infinity(self.budget_left)
        return decision if left is self.budget_left else decision._replace(budget_left=left)


class ObservedRecord(Record, frozen=True, kw_only=True, tag="observed"):
    """Rewards or the cost of a decision were observed. A cost is always booked, learned or not."""

    task: str
    id: int
    learned: bool
    rewards: dict[str, float] = {}
    cost: Micros | None = None
    told: Micros | None = None  # the cost as the learner gets it: at most the promised cap
    released: Micros | None = None  # the reservation that ends with it
    late: str | None = None  # why it was not learned
    reviewers: list[str] = []
    answers: list[Any] = []
    unconfirmed: Micros | None = None  # a reported cost above the ceiling: not booked until a correction confirms it
    confirms: bool = False  # the cost is that of such a correction
    ruled: list[str] = []  # deciders whose rewards are those of the reward rule
    used: int | None = None  # which of the answers is used, where the policy has a review form
    visible: bool | None = None  # whether the last reviewer was shown the model's answer, where there is a form
    stopped: bool = False  # before it was done: the model's answer is used, unless other reviewers have answered
    so_far: dict[int, Micros] = {}  # costs of reviewers who had not answered yet, by seat: parts of the cost


class ExtendedRecord(Record, frozen=True, kw_only=True, tag="extended"):
    """More was reserved for a review that is pending."""

    task: str
    id: int
    amount: Micros


class AnsweredRecord(Record, frozen=True, kw_only=True, tag="answered"):
    """One of several reviewers of a task answered. The report is booked when all have answered or the task ends."""

    task: str
    id: int
    seat: int
    reviewer: str
    answer: Any = None
    rewards: dict[str, float] = {}
    cost: Micros | None = None
    visible: bool | None = None  # whether the reviewer was shown the model's answer, where the policy has a review form


class CorrectedRecord(Record, frozen=True, kw_only=True, tag="corrected"):
    """Observed values were replaced."""

    task: str
    id: int
    request: str
    rewards: dict[str, float] = {}
    cost: Micros | None = None
    was: Micros | None = None  # the cost that was booked before
    learned: dict[str, float] = {}  # those of the rewards that the learner knows
    told: Micros | None = None  # the cost as the learner gets it, if it remembers the task
    ruled: list[str] = []  # deciders whose rewards are those of the reward rule, for an answer that was corrected


class AnswerCorrectedRecord(Record, frozen=True, kw_only=True, tag="answer_corrected"):
    """A reviewer replaced their own answer. The following records contain the changes of the decision."""

    task: str
    id: int
    seat: int
    reviewer: str
    request: str
    answer: Any = None
    cost: Micros | None = None  # of this reviewer, from now on
    answers: list[Any] = []  # of all reviewers, where the task has ended
    used: int | None = None  # which of them is used, where the policy has a review form


class ExpiredRecord(Record, frozen=True, kw_only=True, tag="expired"):
    """A decision waits no longer: the model's answer is used, its reservation is released."""

    task: str
    id: int
    why: str
    released: Micros


class EffortRecord(Record, frozen=True, kw_only=True, tag="effort"):
    """The cost of a claim that lapsed without an answer was booked."""

    task: str
    id: int
    seat: int
    epoch: int
    reviewer: str
    cost: Micros


class BudgetChangedRecord(Record, frozen=True, kw_only=True, tag="budget"):
    """Totals were topped up or cut."""

    request: str
    totals: dict[str, int | None]


class RenewedRecord(Record, frozen=True, kw_only=True, tag="renewed"):
    """A period of a budget began: the free amount lapses or is carried over, and the allowance is granted.

    The time of a budget with `until` is one period, which begins with the first task and carries all of the total.
    Periods that have passed without a call, after many of them, have no record of their own: the amounts of the next
    one are those after them, and it says what they were granted and what lapsed.
    """

    resource: str
    start: float  # seconds since 1970: the end of the period before, unless it is the first
    end: float
    granted: int  # micro-units, as the two below
    carried: int  # of what was free
    lapsed: int  # the rest of it
    decisions: int = 0  # tasks that were decided before
    passed: int = 0  # periods before this one that have no record of their own
    passed_granted: int = 0  # micro-units in all of these, as the one below
    passed_lapsed: int = 0


class ResetRecord(Record, frozen=True, kw_only=True, tag="reset"):
    """The learner was reset; accounts, settings and feature scales are kept."""

    request: str


class UpgradedRecord(Record, frozen=True, kw_only=True, tag="upgraded"):
    """The learner was replaced by one with other defaults.

    It is then the one that all records before give if the policy had these settings from its start.
    """

    spec: PolicySpec


class ForgottenRecord(Record, frozen=True, kw_only=True, tag="forgotten"):
    """The observed outcome of a task was removed from the estimates.

    The learner is then rebuilt from the records before this one, without the outcomes of this task.
    """

    task: str
    id: int
    releases: bool = False  # whether the learner releases a forgotten decision that expires; earlier versions kept it


class ErasedRecord(Record, frozen=True, kw_only=True, tag="erased"):
    """Payload and model answer were erased, of one task or of all that had ended before a time."""

    task: str | None = None
    before: int | None = None


AnyRecord: TypeAlias = (
    CreatedRecord
    | ChangedRecord
    | DecidedRecord
    | ObservedRecord
    | ExtendedRecord
    | AnsweredRecord
    | CorrectedRecord
    | AnswerCorrectedRecord
    | ExpiredRecord
    | EffortRecord
    | BudgetChangedRecord
    | RenewedRecord
    | ResetRecord
    | UpgradedRecord
    | ForgottenRecord
    | ErasedRecord
)
encode = msgspec.json.Encoder().encode
decode: Callable[[bytes], AnyRecord] = msgspec.json.Decoder(AnyRecord).decode


START = bytes(32)


def link(before: bytes, seq: int, at: int, body: bytes) -> bytes:
    """Return the hash of a row of the log.

    >>> link(START, 0, 0, b"{}").hex()[:8]
    '1341a09d'
    """
    return hashlib.sha256(b"%b%d %d %b" % (before, seq, at, body)).digest()
