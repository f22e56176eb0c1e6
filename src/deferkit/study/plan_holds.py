"""What pending reviews keep back of a planned budget: all that each may cost, or less where they can be stopped."""

from collections.abc import Sequence

from deferkit.learn.initial_state import HOLD_MEANS
from deferkit.study.plan import Plan
from deferkit.study.plan_need import Need
from deferkit.study.plan_text import amount, per_cent, unit_text
from deferkit.worlds.task_stream import Floats

LEVEL = 95.0  # per cent of what the plan's learner can get
PENDING = 10  # reviews, for an example
SHARE = 0.01  # of the budget: the hold 'auto' is at most this, but never less than the mean cost


def needed_budget(plan: Plan) -> float | None:
    """Return the budget that the learner needs for nearly everything; None if none is enough."""
    known: Sequence[Need] = [*plan.learner.needed, *plan.learner.needed_of_own]
    return next((each.budget for each in known if each.level == LEVEL and each.budget is not None), None)


def hold_text(costs: Floats, budget: float | None, unit: str = "") -> list[str]:
    """Return what pending reviews keep back of a budget, if that is much more than they cost on average.

    Args:
        costs: Of all tasks.
        budget: The needed one, of a period if it renews; None if none is enough.
        unit: What cost is counted in.

    >>> import numpy as np
    >>> hold_text(np.array([1.0] * 99 + [51.0]), 200.0, "minutes")[0]  # doctest: +NORMALIZE_WHITESPACE
    "A pending review holds what it may cost: as the dearest here, 51 minutes (34 times the mean), which is 26 % of 200
    minutes, so that 3 can be pending at most. Where reviews can be stopped, the hold 'auto' is about 2 minutes: 10 of
    them hold 10 %."
    """
    if not budget or not costs.size:
        return []
    dearest, mean = float(costs.max()), float(costs.mean())
    if dearest <= HOLD_MEANS * mean:
        return []
    hold = max(mean, min(HOLD_MEANS * mean, dearest, SHARE * budget))
    most = int(budget // dearest)
    if most > PENDING:
        kept = f": {PENDING} of them hold {per_cent(100 * PENDING * dearest / budget)} %"
    else:
        kept = f", so that {most} can be pending at most" if most else ", so that nobody could be asked"
    return [
        f"A pending review holds what it may cost: as the dearest here, {amount(dearest)}{unit_text(unit, dearest)}"
        f" ({amount(dearest / mean, 2)} times the mean), which is {per_cent(100 * dearest / budget)} % of"
        f" {amount(budget)}{unit_text(unit, budget)}{kept}. Where reviews can be stopped, the hold 'auto' is about"
        f" {amount(hold)}{unit_text(unit, hold)}: {PENDING} of them hold {per_cent(100 * PENDING * hold / budget)} %."
    ]
