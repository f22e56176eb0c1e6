"""A plan in words and in the cells of its tables: the same in the terminal and on the page."""

import math

from deferkit.study.plan import Curve, Need, Plan, Point

HEADLINE = 95.0  # per cent
FEW = 200  # tasks


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


def headline(plan: Plan, unit: str = "") -> str:
    """Return the answer in one or two sentences."""
    learner = plan.learner
    if plan.hopeless:
        return "The human is never better than the model here: reviewing brings nothing, whatever the budget."
    best = max(learner.points, key=lambda point: point.gained)
    if plan.free:
        return (
            "Asking costs nothing here: no budget is needed, and the plan is to ask wherever the human is better."
            f" {learner.policy} then gets {per_cent(best.reached)} % of what reviewing can bring."
        )
    found = next(each for each in learner.needed if each.level == HEADLINE)
    if found.budget is not None:
        return f"To get {HEADLINE:.0f} % of what reviewing can bring you need {sentence(found, unit)}"
    own = next(each for each in learner.needed_of_own if each.level == HEADLINE)
    named = f"the learner ({learner.policy})"
    if own.budget is None:
        return f"Reviewing could bring {amount(plan.possible)} reward, but {named} gains nothing here."
    return (
        f"{named[0].upper()}{named[1:]} gets at most {per_cent(best.reached)} % of what reviewing could bring to"
        f" somebody who knew every outcome. For {HEADLINE:.0f} % of that you need {sentence(own, unit)}"
    )


def sentence(found: Need, unit: str) -> str:
    """Return the end of a sentence about a needed budget."""
    what = f"a budget of {amount(found.budget)}{unit_text(unit, found.budget)}"
    brings = ""
    if found.price is not None:
        brings = f"; at that point the next {singular(unit)} brings {amount(found.price)} reward"
    return f"{what} ({per_cent(found.share)} % of reviewing everything){brings}."


def singular(unit: str) -> str:
    """Return what one unit of cost is called.

    >>> singular("minutes"), singular("EUR"), singular("")
    ('minute', 'EUR', 'unit')
    """
    return (unit.removesuffix("es" if unit.endswith("xes") else "s") if len(unit) > 2 else unit) or "unit"


def remarks(plan: Plan, *, full_orders: int | None = None) -> list[str]:
    """Return what has to be said about a plan; `full_orders` is what would have been taken of fewer tasks."""
    said = []
    if full_orders is not None and full_orders > len(plan.seeds):
        said.append(
            f"There are many tasks ({plan.n_tasks:,}): {len(plan.seeds)} orders instead of {full_orders};"
            f" --trials {full_orders} takes them all."
        )
    if plan.n_tasks < FEW:
        tasks = "1 task shows" if plan.n_tasks == 1 else f"{plan.n_tasks} tasks show"
        said.append(f"{tasks} the form of a plan, but teach a learner next to nothing: it takes some hundred.")
    if len(plan.seeds) == 1:
        said.append("One order alone does not show how much the numbers depend on the order of the tasks.")
    enough = next((point.share for point in plan.curves[0].points if point.price == 0), 100.0)
    if enough < 100 and not plan.hopeless and not plan.free:
        said.append(
            f"From {per_cent(enough)} % of reviewing everything on, OPT has asked wherever the human is better."
            + ("" if plan.within_reach else " It knows every outcome beforehand: nobody else can stop there.")
        )
    return said


def curve_cells(plan: Plan, *, narrow: bool = False) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the table of budgets; a `narrow` one fits a terminal, without the spread of rewards."""
    digits = 2 if narrow else 3
    opt, learner, *others = plan.curves
    head = ["budget", "%", "asked %", "reward", *(short(curve.policy) for curve in plan.curves), "λ*", "next"]
    rows = []
    for i, point in enumerate(learner.points):
        reached = [per_cent(curve.points[i].reached) for curve in (opt, learner, *others)]
        rows.append(
            [
                amount(point.budget),
                per_cent(point.share),
                per_cent(point.asked_pct),
                amount(point.reward) if narrow else with_spread(point),
                *reached,
                amount(opt.points[i].price, digits),
                amount(point.price, digits),
            ]
        )
    return head, rows


def with_spread(point: Point) -> str:
    """Return the reward and its standard deviation over orders."""
    return amount(point.reward, 4) + ("" if point.reward_sd is None else f" ± {amount(point.reward_sd, 2)}")


def short(policy: str) -> str:
    """Return the name of a policy as the head of a narrow column."""
    return {"opt": "OPT", "best-reject": "reject"}.get(policy, policy)


def need_cells(plan: Plan) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the table of needed budgets: of what is possible, then of the learner's own best."""
    head = ["policy", "to get", "budget", "over orders", "%", "asked", "asked %", "next"]
    rows = []
    shown = [curve for curve in plan.curves if curve.policy != "random"]
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
