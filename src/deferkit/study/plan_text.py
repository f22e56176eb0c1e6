"""The numbers of a plan as text, and the cells of its tables: the same in the terminal and on the page."""

import math

from deferkit.study.plan import Curve, Plan, Point, on_grid
from deferkit.study.plan_need import Need


def amount(value: float | None, digits: int = 3) -> str:
    """Return a number with as many digits as one reads: whole from 100 on, else about three.

    >>> amount(12345.6), amount(12.345), amount(0.012345), amount(0.0), amount(None), amount(0.2)
    ('12,346', '12.3', '0.0123', '0', '–', '0.2')
    """
    if value is None or not math.isfinite(value):
        return "–"
    if value and not 1e-4 <= abs(value) < 1e9:
        return f"{value:.{digits - 1}e}".replace("e-0", "e-").replace("e+0", "e+")
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{float(f'{value:.{digits}g}') + 0.0:.10f}".rstrip("0").rstrip(".")


def per_cent(value: float | None) -> str:
    """Return a percentage as one reads it.

    >>> per_cent(31.4), per_cent(3.14), per_cent(None), per_cent(99.96), per_cent(-0.01)
    ('31', '3.1', '–', '100', '0')
    """
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:.0f}" if abs(value) >= 9.95 else f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def unit_text(unit: str, count: float | None = None) -> str:
    """Return the unit behind a number, or nothing where it has no name."""
    return f" {unit}" if unit and count is not None else ""


def singular(unit: str) -> str:
    """Return what one unit of cost is called.

    >>> singular("minutes"), singular("EUR"), singular("")
    ('minute', 'EUR', 'unit')
    """
    return (unit.removesuffix("es" if unit.endswith("xes") else "s") if len(unit) > 2 else unit) or "unit"


def curve_cells(plan: Plan, *, narrow: bool = False) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the table of budgets; a `narrow` one fits a terminal, without the spread of rewards."""
    digits = 2 if narrow else 3
    opt, learner, *others = plan.curves
    head = ["budget", "%", "asked %", "reward", *(short(curve.policy) for curve in plan.curves), "λ*", "next"]
    rows = []
    grids = [on_grid(plan, curve) for curve in (opt, learner, *others)]
    for i, point in enumerate(grids[1]):
        reached = [per_cent(points[i].reached) for points in grids]
        rows.append(
            [
                amount(point.budget),
                per_cent(point.share),
                per_cent(point.asked_pct),
                amount(point.reward) if narrow else with_spread(point),
                *reached,
                price(grids[0][i].price, digits),
                price(point.price, digits),
            ]
        )
    return head, rows


def price(value: float | None, digits: int) -> str:
    """Return a price; a small one is short, too.

    >>> price(0.0123, 2), price(0.000123, 2), price(None, 2)
    ('0.012', '1e-4', '–')
    """
    return f"{value:.0e}".replace("e-0", "e-") if value is not None and 0 < value < 1e-3 else amount(value, digits)


def with_spread(point: Point) -> str:
    """Return the reward and its standard deviation over orders."""
    return amount(point.reward, 4) + ("" if point.reward_sd is None else f" ± {amount(point.reward_sd, 2)}")


def short(policy: str) -> str:
    """Return the name of a policy as the head of a narrow column."""
    return {"opt": "OPT", "best-reject": "reject", "achievable": "ach."}.get(policy, policy)


def need_cells(plan: Plan) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the table of needed budgets: of what is possible, then of the learner's own best."""
    head = ["policy", "to get", "budget", "over orders", "%", "asked", "asked %", "next"]
    rows = []
    # what somebody needs who knows every outcome says nothing about what anybody else needs
    hidden = ("random", "opt") if plan.estimated else ("random",)
    shown = [curve for curve in plan.curves if curve.policy not in hidden]
    for place in range(len(plan.learner.needed)):
        for curve in shown:
            rows.append(need_row(curve, curve.needed[place], f"{curve.needed[place].level:.0f} %"))
    if any(each.budget is None for each in plan.learner.needed):
        for each in plan.learner.needed_of_own:
            rows.append(need_row(plan.learner, each, f"{each.level:.0f} % own"))
    return head, rows


def need_row(curve: Curve, found: Need, level: str) -> list[str]:
    """Return the row of one needed budget."""
    if found.budget is None:
        return [curve.policy, level, "not reached", "", "", "", "", ""]
    spread = "" if found.budget_min is None else f"{amount(found.budget_min)}–{amount(found.budget_max)}"
    return [
        curve.policy,
        level,
        amount(found.budget),
        spread,
        per_cent(found.share),
        amount(found.asked),
        per_cent(found.asked_pct),
        amount(found.price),
    ]
