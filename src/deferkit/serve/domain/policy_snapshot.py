"""Counters of a policy beside its learner and accounts, and the snapshot: a policy as bytes."""

from typing import NamedTuple

import msgspec

from deferkit.learn.archive import StateCopy
from deferkit.serve.domain.account import Account
from deferkit.serve.domain.budget_period import Periods
from deferkit.serve.domain.feature_scales import FeatureScales
from deferkit.serve.domain.money import Micros
from deferkit.serve.domain.policy_spec import PolicySpec
from deferkit.types import MODEL


class Tally(msgspec.Struct, kw_only=True):
    """Counters of a policy that are not the learner's."""

    expected_gain: float = 0.0  # Σ of what experts were expected to earn above the model, when they were asked
    outcomes: int = 0
    late: int = 0  # outcomes that were booked but not learned
    corrected: int = 0
    expired: int = 0


class HoldTally(msgspec.Struct, kw_only=True):
    """Counters of reviews that can be stopped."""

    extended: int = 0  # times that more was reserved
    stopped: int = 0  # reviews
    overruns: int = 0  # reviews that have cost more than was held for them
    overrun: Micros = {}  # what they have cost beyond that


class Relearned(msgspec.Struct, kw_only=True):
    """Counts of before the last reset, and the forgotten decisions."""

    decisions: int = 0  # before the last reset; the learner numbers its own from there on
    routes: dict[str, int] = {}  # of those
    without_budget: int = 0  # of those
    pending: int = 0  # of those that still hold budget
    forgotten: list[int] = []  # decisions of whose outcomes it is not told


class Counts(NamedTuple):
    """Decisions of a policy, over all resets of its learner."""

    decisions: int
    routes: dict[str, int]
    without_budget: int
    pending: int

    @property
    def asked(self) -> int:
        """How many decisions went to an expert."""
        return self.decisions - self.routes.get(MODEL, 0)

    @property
    def deferral_rate(self) -> float:
        """The share of decisions that went to an expert."""
        return 1 - self.routes.get(MODEL, 0) / self.decisions if self.decisions else 0.0


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A policy as bytes: what `Policy.to_bytes` writes, apart from the checksum beside it."""

    spec: PolicySpec
    seq: int
    head: bytes
    apart: bool  # `Policy.out_of_sync`
    accounts: dict[str, Account]
    tally: Tally
    learner: bytes
    unconfirmed: dict[str, Micros] | msgspec.UnsetType = msgspec.UNSET
    scales: FeatureScales | msgspec.UnsetType = msgspec.UNSET
    relearned: Relearned | msgspec.UnsetType = msgspec.UNSET
    periods: Periods | msgspec.UnsetType = msgspec.UNSET
    holds: HoldTally | msgspec.UnsetType = msgspec.UNSET


class PolicyCopy(NamedTuple):
    """An immutable copy of a policy, which another thread may serialise."""

    snapshot: Snapshot  # without the learner
    learner: StateCopy

    def to_bytes(self) -> bytes:
        """Return what `Policy.to_bytes` returned when the copy was made."""
        return msgspec.msgpack.encode(msgspec.structs.replace(self.snapshot, learner=self.learner.to_bytes()))
