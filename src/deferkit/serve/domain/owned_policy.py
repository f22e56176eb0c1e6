"""A policy that this process owns, in memory."""

from collections import Counter
from collections.abc import Mapping

from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.problems import TooMuchData
from deferkit.serve.domain.records import AnyRecord
from deferkit.serve.domain.webhook import BudgetAlarm
from deferkit.types import Drifted, Summary


class OwnedPolicy:
    """A policy in memory, with the epoch (fencing token) under which this process owns it."""

    def __init__(
        self,
        number: int,
        tenant: str,
        policy: Policy,
        epoch: int,
        parked: int,
        parked_by: Mapping[str, int] | None = None,
    ) -> None:
        self.id = number
        self.tenant = tenant
        self.policy = policy
        self.epoch = epoch
        self.parked = parked
        self.parked_by = Counter(parked_by)  # parked outcomes by their API keys, separated by spaces
        self.dropped_parked = 0  # parked outcomes that this process has dropped
        self.dropped_costs = 0  # costs that were parked, then the model decided
        self.snapshot_at = policy.seq  # where the last snapshot was taken
        self.copying = False  # another thread copies it for a snapshot: nothing may change it
        self.relearning = False  # it is about to be replaced by a rebuilt policy, without a forgotten outcome
        self.over_quota: TooMuchData | None = None  # set while the tenant has reached its quota on the disk
        self._drifts = drifts_of(policy)
        self._learned: tuple[object, ...] = ()  # as of the last call of `new_drifts`
        self.tail: list[tuple[AnyRecord, int, bytes]] | None = None  # records since a rebuild began, while one runs
        self.clock_offset = 0  # microseconds added to the clock: an earlier owner's clock may have been ahead
        self.alarms: frozenset[BudgetAlarm] | None = (
            None  # of the budget, as webhooks were told; None: as the accounts have it
        )

    @property
    def blocked(self) -> bool:
        """Whether another thread reads or changes the policy, so that its commands must wait."""
        return self.copying or self.relearning or bool(self.policy.deferred)

    def check_quota(self) -> None:
        """Raise if the tenant has reached its quota on the disk."""
        if self.over_quota is not None:
            raise self.over_quota

    def learner_summary(self) -> Summary:
        """Return the summary of the learner; without estimates and remark while another thread uses the learner."""
        return self.policy.learner.figures() if self.blocked else self.policy.learner.summary()

    def count_parked(self, keys: str, change: int) -> None:
        """Count parked outcomes of some API keys; keys without any are forgotten."""
        self.parked_by[keys] += change
        if not self.parked_by[keys]:
            del self.parked_by[keys]

    def time(self, now: int) -> int:
        """Return the time of the policy in microseconds: monotonic, also after a change of owner."""
        return now + self.clock_offset

    def new_drifts(self) -> list[Drifted]:
        """Return the drifts since the last call; they are found when an outcome is learned."""
        tally = self.policy.tally
        if (learned := (id(self.policy), tally.outcomes, tally.corrected)) == self._learned:
            return []
        self._learned = learned
        before, self._drifts = self._drifts, drifts_of(self.policy)
        return [drift for name, drift in self._drifts.items() if name not in before or drift.times > before[name].times]


def drifts_of(policy: Policy) -> dict[str, Drifted]:
    """Return the latest drift of each target that has drifted."""
    return {drift.target: drift for drift in policy.learner.drifts()} if policy.spec.forget_used == "auto" else {}
