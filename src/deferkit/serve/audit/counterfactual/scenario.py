"""Another budget, as people write it: `500`, `2x`, `50%`, `inf`, `minutes=500`, `minutes=2x,euros=50`."""

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from deferkit.errors import InvalidArgument
from deferkit.serve.domain.account import Account
from deferkit.serve.domain.money import MICRO, to_micro
from deferkit.serve.domain.policy_spec import BudgetSpec, PolicySpec

WRITTEN = re.compile(r"(?P<number>[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?|[0-9]*\.?[0-9]+)\s*(?P<unit>x|%)?")
FORMS = "a total like 500, a part of what it was like 2x or 50%, or inf; by resource: minutes=500,euros=2x"


class Scenario(NamedTuple):
    """Another budget: the totals at the end of the log, in micro-units; None has no end.

    Of a budget that renews it is the allowance of a period; periods and ends are those of the log.
    """

    text: str
    totals: dict[str, int | None]
    logged: dict[str, int | None]  # those of the log
    learning: PolicySpec | None = None  # a policy whose settings the learner has; None: that of the log

    def total(self, resource: str, logged: int | None) -> int | None:
        """Return the total at a moment at which the log's was this: top-ups and cuts are in proportion.

        Where there is no proportion, because the log's budget was nothing or had no end, it is there from the start.

        >>> scenario = Scenario("2x", {"cost": 20_000_000}, {"cost": 10_000_000})
        >>> scenario.total("cost", 4_000_000)
        8000000
        """
        wanted, last = self.totals[resource], self.logged[resource]
        if wanted is None or not last or logged is None:
            return wanted
        return round(logged * wanted / last)

    def spec(self, spec: PolicySpec, *, decisions: int, max_logged_cost: Mapping[str, float]) -> PolicySpec:
        """Return the policy with this budget from its start; a horizon and a cap that it needs are those of the log."""
        budget = {}
        for name, each in spec.budget.items():
            total = self.total(name, None if each.total is None else to_micro("total", each.total))
            if total is None:
                budget[name] = BudgetSpec(max_cost=each.max_cost)
                continue
            cap = each.max_cost or max_logged_cost[name]
            if not cap:
                raise InvalidArgument(f"No cost in {name} is known, so that nothing can be said of a budget of it.")
            horizon = each.horizon if each.is_timed else each.horizon or max(1, decisions)
            budget[name] = msgspec.structs.replace(each, total=total / MICRO, horizon=horizon, max_cost=cap)
        return msgspec.structs.replace(spec, budget=budget)

    def after_change(self, resource: str, before: BudgetSpec, logged: BudgetSpec) -> BudgetSpec:
        """Return a budget after the horizon, the end or the allowance of the log's was changed to that of `logged`."""
        if before.total is None or logged.total is None:
            return before
        changed = msgspec.structs.replace(before, horizon=logged.horizon, until=logged.until)
        if logged.every is msgspec.UNSET:
            return changed
        allowance = self.total(resource, to_micro("total", logged.total))
        return changed if allowance is None else msgspec.structs.replace(changed, total=allowance / MICRO)

    def top_up(self, resource: str, logged: int) -> int:
        """Return a top-up or a cut of a period, in proportion to that of the log."""
        wanted, last = self.totals[resource], self.logged[resource]
        return round(logged * wanted / last) if wanted is not None and last else logged


def logged_budgets(spec: PolicySpec, accounts: Mapping[str, Account]) -> dict[str, int | None]:
    """Return what a scenario is compared with: totals, and of budgets that renew the allowance, in micro-units.

    Args:
        spec: The policy, at the end of its log.
        accounts: Its accounts.

    Raises:
        InvalidArgument: If its reviews can be stopped.
    """
    for name, budget in spec.budget.items():
        if budget.can_be_stopped:
            raise InvalidArgument(
                "What another budget would have done is not known where reviews can be stopped (hold or limit of"
                f" {name}): it would have stopped other reviews, and what those would have cost is not in the log."
            )
    return {
        name: account.total if (each := spec.budget[name]).every is msgspec.UNSET else to_micro("total", each.total)
        for name, account in accounts.items()
    }


def scenario_of(text: str, logged: Mapping[str, int | None]) -> Scenario:
    """Read another budget, given the `logged_budgets` at the end of the log.

    >>> scenario_of("50%", {"cost": 10_000_000}).totals
    {'cost': 5000000}
    >>> scenario_of("lots", {"cost": 10_000_000})
    Traceback (most recent call last):
    deferkit.errors.InvalidArgument: A budget is a total like 500, a part of what it was like 2x or 50%, or inf; by \
resource: minutes=500,euros=2x. Got 'lots'.
    """
    totals = dict(logged)
    given: set[str] = set()
    for part in re.split(r",(?=[^0-9])", text):  # a comma before a digit groups thousands
        name, equals, value = (each.strip() for each in part.rpartition("="))
        same_for_all = value.endswith(("x", "%")) or value == "inf" or not value.strip("0.")
        if not equals and not same_for_all and len(logged) > 1:
            raise InvalidArgument(f"A budget is given by resource, as in {next(iter(logged))}=500. Got {text!r}.")
        names = [name] if equals else list(logged)
        if names[0] not in logged:
            raise InvalidArgument(f"There is no resource {name!r}. There is {', '.join(logged)}.")
        if given & set(names):
            raise InvalidArgument(f"The budget of {names[0]} is given twice. Got {text!r}.")
        given.update(names)
        totals.update({each: total_of(text, value, each, logged[each]) for each in names})
    return Scenario(text, totals, dict(logged))


def total_of(text: str, value: str, resource: str, logged: int | None) -> int | None:
    """Return the total that was written, in micro-units."""
    if value == "inf":
        return None
    found = WRITTEN.fullmatch(value)
    if found is None:
        raise InvalidArgument(f"A budget is {FORMS}. Got {text!r}.")
    number = float(found["number"].replace(",", ""))
    if found["unit"] is None:
        return to_micro("budget", number)
    if logged is None:
        raise InvalidArgument(f"The budget of {resource} has no end, and no part of it either. Got {text!r}.")
    micro = logged * (number if found["unit"] == "x" else number / 100)
    return to_micro("budget", round(micro) / MICRO) if math.isfinite(micro) else None
