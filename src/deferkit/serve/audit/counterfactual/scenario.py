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
    """Another budget: the totals at the end of the log, in micro-units; None has no end."""

    text: str
    totals: dict[str, int | None]
    logged: dict[str, int | None]  # those of the log

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

    def spec(self, spec: PolicySpec, *, decisions: int, dearest: Mapping[str, float]) -> PolicySpec:
        """Return the policy with this budget from its start; a horizon and a cap that it needs are those of the log."""
        check_has_horizon(spec)
        budget = {}
        for name, each in spec.budget.items():
            total = self.total(name, None if each.total is None else to_micro("total", each.total))
            if total is None:
                budget[name] = BudgetSpec(max_cost=each.max_cost)
                continue
            cap = each.max_cost or dearest[name]
            if not cap:
                raise InvalidArgument(f"No cost in {name} is known, so that nothing can be said of a budget of it.")
            budget[name] = BudgetSpec(total=total / MICRO, horizon=each.horizon or max(1, decisions), max_cost=cap)
        return msgspec.structs.replace(spec, budget=budget)


def check_has_horizon(spec: PolicySpec) -> None:
    """Raise if a budget renews or has an end: what another one would have done is known for a horizon only."""
    for name, budget in spec.budget.items():
        if budget.is_timed:
            raise InvalidArgument(
                f"What another budget would have done is computed for budgets with a horizon; that of {name}"
                f" {'ends' if budget.every is msgspec.UNSET else 'renews'}."
            )


def scenario_of(text: str, accounts: Mapping[str, Account]) -> Scenario:
    """Read another budget for accounts as they stand at the end of the log.

    >>> scenario_of("50%", {"cost": Account(10_000_000)}).totals
    {'cost': 5000000}
    >>> scenario_of("lots", {"cost": Account(10_000_000)})
    Traceback (most recent call last):
    deferkit.errors.InvalidArgument: A budget is a total like 500, a part of what it was like 2x or 50%, or inf; by \
resource: minutes=500,euros=2x. Got 'lots'.
    """
    logged = {name: account.total for name, account in accounts.items()}
    totals = dict(logged)
    given: set[str] = set()
    for part in re.split(r",(?=[^0-9])", text):  # a comma before a digit groups thousands
        name, equals, value = (each.strip() for each in part.rpartition("="))
        same_for_all = value.endswith(("x", "%")) or value == "inf" or not value.strip("0.")
        if not equals and not same_for_all and len(accounts) > 1:
            raise InvalidArgument(f"A budget is given by resource, as in {next(iter(accounts))}=500. Got {text!r}.")
        names = [name] if equals else list(accounts)
        if names[0] not in accounts:
            raise InvalidArgument(f"There is no resource {name!r}. There is {', '.join(accounts)}.")
        if given & set(names):
            raise InvalidArgument(f"The budget of {names[0]} is given twice. Got {text!r}.")
        given.update(names)
        totals.update({each: total_of(text, value, each, logged[each]) for each in names})
    return Scenario(text, totals, logged)


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
