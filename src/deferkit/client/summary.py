"""Status of a policy of a service."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from deferkit.client.wire import unending
from deferkit.types import Amount, Drifted, MeanEstimate, Period, align_fields


class PolicySummary(NamedTuple):
    """Where a policy stands: what a `Summary` of the library says, and what only a service has.

    >>> budget = {"minutes": {"total": 10.0, "reserved": 1.0, "posted": 2.5, "suspense": 0.0, "free": 6.5}}
    >>> amount("posted", budget)
    2.5
    """

    decisions: int
    routes: dict[str, int]  # decisions by decider
    deferral_rate: float
    total: Amount
    spent: Amount  # posted
    reserved: Amount
    left: Amount  # free
    overrun: Amount  # in suspense: booked, but beyond the total
    price: Amount
    pending: int  # decisions that hold budget
    expired: int
    without_budget: int  # decisions that went to the model because nothing was left
    expected_gain: float  # what experts were expected to earn above the model, when they were asked
    outcomes: int
    late: int  # outcomes that were booked but not learned
    corrected: int
    parked: int  # outcomes that wait for their decision
    frozen: bool  # a cost is in suspense, so nobody is asked
    horizon_over: bool
    waiting: int  # seats in the review queue
    claimed: int  # seats that a reviewer holds
    oldest_s: float | None  # how long the oldest of them is there
    records: int  # rows of the log
    samples: Mapping[str, int] = {}  # observations of each reward and cost; older services do not report it
    samples_in_use: Mapping[str, float] = {}  # how many of those its estimate rests on
    drifts: int = 0  # how often one of them was found to have changed
    unconfirmed_costs: int = 0  # reported costs above max_reported_cost, not booked until a correction confirms them
    clipped_features: int = 0  # features of contexts that were cut, because they were implausibly large
    drifted: tuple[Drifted, ...] = ()  # the latest change of each that has changed
    stopped: int = 0  # reviews that were stopped before they were done
    extended: int = 0  # times that more was reserved for a review
    overruns: int = 0  # reviews that have cost more than was held for them, where they can be stopped
    beyond_holds: Amount = 0.0  # what those have cost beyond their holds
    periods: Mapping[str, Period] = {}  # the current one of each resource that renews or has an end
    estimates: Mapping[str, MeanEstimate] = {}  # of each reward and cost, on the latest tasks
    remark: str = ""  # why experts are asked less than planned, and what would change it

    def __str__(self) -> str:
        """Return a line for each field, to be read by people."""
        return align_fields(self._asdict())


def summary_of(reply: Mapping[str, Any]) -> PolicySummary:
    """Return the summary that a service has replied with."""
    budget = reply["budget"]
    amounts: dict[str, Any] = {
        "total": amount("total", budget),
        "spent": amount("posted", budget),
        "reserved": amount("reserved", budget),
        "left": amount("free", budget),
        "overrun": amount("suspense", budget),
    }
    plain = {name: reply[name] for name in PolicySummary._fields if name in reply}
    if "drifted" in plain:
        plain["drifted"] = tuple(Drifted(**each) for each in plain["drifted"])
    if "estimates" in plain:
        plain["estimates"] = {name: MeanEstimate(**each) for name, each in plain["estimates"].items()}
    periods = {name: period_of(each["period"]) for name, each in budget.items() if each.get("period") is not None}
    return PolicySummary(**plain, **amounts, **reply["queue"], periods=periods)


def period_of(state: Mapping[str, Any]) -> Period:
    """Return a period as the library has it; no number of tasks is expected where none has come in it."""
    left = state["tasks_left"]
    return Period(state["start"], state["end"], state["total"], state["posted"], math.nan if left is None else left)


def amount(part: str, budget: Mapping[str, Mapping[str, float | None]]) -> Amount:
    """Return one part of a budget: a number when there is one resource, else one for each by name."""
    parts = {name: account[part] for name, account in budget.items()}
    return unending(parts if len(parts) > 1 else next(iter(parts.values())))
