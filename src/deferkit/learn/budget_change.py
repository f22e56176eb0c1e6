"""Changing a budget: its total, never below what is spent or reserved, its horizon, its end, its allowance."""

import math
from collections.abc import Mapping

import numpy as np

from deferkit.errors import BudgetExhausted, expected
from deferkit.events import BudgetChanged
from deferkit.learn import inputs
from deferkit.learn.components import Components
from deferkit.learn.core import CONSTANTS
from deferkit.learn.pacing import Budgets
from deferkit.periods import as_seconds, show_time
from deferkit.types import Amount, is_number, is_whole, show

# what each argument is an argument of: the timing of a budget
TIMINGS: dict[str, int] = {
    "horizon": CONSTANTS["horizon"],
    "until": CONSTANTS["until"],
    "allowance": CONSTANTS["renews"],
}
KINDS = {"horizon": "a horizon", "until": "`until`", "allowance": "`every`"}
PACED_BY_TASKS_LEFT = ("resolve", "adaptive")


def by_resource(components: Components, name: str, given: object) -> dict[int, object]:
    """Return values by the number of their resource; a single value is that of the only resource.

    Raises:
        InvalidArgument: If a resource is unknown, or its budget has no such setting.
    """
    resources, timing = components.settings.resources, components.ledger.view("timing")
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        if len(resources) > 1:
            raise expected(name, "budget", f"given by resource ({', '.join(resources)})", given)
        given = {resources[0]: given}
    found = {inputs.index_of(each, resources, "resource"): value for each, value in given.items()}
    for r, value in found.items():
        if timing[r] != TIMINGS[name] or math.isinf(components.ledger.view("total")[r]):
            raise expected(name, "budget", f"left out for {resources[r]}, whose budget has not {KINDS[name]}", value)
    return found


def topped_up(components: Components, total: Amount | None, add: Amount | None) -> Amount:
    """Return the new total: as given, or what there is now and an addition to it."""
    settings, reader = components.settings, components.reader
    now = components.ledger.view("total").tolist()
    if add is None:
        return reader.amount(now) if total is None else total
    if total is not None:
        raise expected("add", "budget", "left out where the total is given", add)
    more = add if isinstance(add, Mapping) else {settings.resources[0]: add} if len(now) == 1 else None
    if more is None:
        raise expected("add", "budget", f"given by resource ({', '.join(settings.resources)})", add)
    for name, amount in more.items():
        r = inputs.index_of(name, settings.resources, "resource")
        if not is_number(amount) or not math.isfinite(amount):
            raise expected("add", "budget", "a finite number", amount)
        now[r] += amount
    return reader.amount(now)


def change_budget(components: Components, event: BudgetChanged) -> None:
    """Change the budget, and let the pacing react; `Deferrer.change_budget` describes arguments and errors."""
    settings, ledger = components.settings, components.ledger
    before = Budgets(ledger.view("total").copy(), ledger.view("horizon").copy())
    totals = np.array(inputs.as_totals(event.total, settings.resources, before.total.tolist()))
    used = ledger.view("spent") + ledger.view("reserved")
    if (totals < used).any():
        taken = show(components.reader.amount(used.tolist()))
        raise BudgetExhausted(f"The budget cannot be cut to {show(event.total)}: {taken} is spent or reserved.")
    horizons = _horizons(components, event.horizon)
    ends = _ends(components, event.until)
    allowances = by_resource(components, "allowance", event.allowance)
    for allowance in allowances.values():
        if not is_number(allowance) or not 0 <= allowance < math.inf:  # type: ignore[operator]
            raise expected("allowance", "budget", "a finite number of at least 0", allowance)
    ledger.view("total")[:] = totals
    for name, changes in (("horizon", horizons), ("period_end", ends), ("allowance", allowances)):
        for r, value in changes.items():
            ledger.view(name)[r] = value
    if horizons or ends:
        ledger.set("horizon_told", 0)
    after = Budgets(totals, ledger.view("horizon").copy())
    settings.strategy.budget_changed(ledger.dual, before, after, ledger.next_id, ledger.get("warm_up"))
    components.renewals.find_next()
    if components.representation is not None:
        components.representation.refresh_window_if_due()


def _horizons(components: Components, given: object) -> dict[int, int]:
    found = by_resource(components, "horizon", given)
    if found and components.settings.pacing.kind not in PACED_BY_TASKS_LEFT:
        kinds = " or ".join(map(repr, PACED_BY_TASKS_LEFT))
        raise expected("horizon", "budget", f"changed with the pacing {kinds} only", components.settings.pacing.kind)
    for horizon in found.values():
        if not is_whole(horizon, 1):
            raise expected("horizon", "budget", "a whole number of at least 1", horizon)
    return {r: int(horizon) for r, horizon in found.items()}  # type: ignore[call-overload]


def _ends(components: Components, given: object) -> dict[int, float]:
    ledger = components.ledger
    found = {r: as_seconds("until", "budget", end) for r, end in by_resource(components, "until", given).items()}
    for end in found.values():
        if ledger.next_id == 0:
            raise expected("until", "budget", "changed after the first task; make another Budget", show_time(end))
        if end <= ledger.view("clock").item():
            latest = show_time(ledger.view("clock").item())
            raise expected("until", "budget", f"after the latest task, which came on {latest}", show_time(end))
    return found
