"""A plan in words: headline, curves, needs, what reviews hold, and periods."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from deferkit.errors import InvalidArgument, StudyFailed
from deferkit.learn.initial_state import HOLD_MEANS
from deferkit.planning.plan import Curve, Need, Plan, Point, on_grid
from deferkit.study.optimum import period_numbers
from deferkit.study.spec import Spec
from deferkit.study.trial import run_together
from deferkit.types import Budget
from deferkit.worlds.base import Floats, TaskStream


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
    """Return the name of one unit of cost.

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


HEADLINE = 95.0  # per cent
AT = 10.0  # per cent of reviewing everything: the budget that the answer opens with
FEW = 200  # tasks
FEW_BETTER = 30  # tasks in which the human is better
SPENT = 0.95  # of a budget: less than this is told
SURE = 2.0  # standard errors


def headline(plan: Plan, unit: str = "") -> str:
    """Return the answer: what a tenth of all reviews brings, and what is needed for nearly everything."""
    learner = plan.learner
    if plan.hopeless:
        return "The human is never better than the model here: reviewing brings nothing, whatever the budget."
    best = max(learner.points, key=lambda point: point.gained)
    if plan.free:
        return (
            "Asking costs nothing here: no budget is needed, and the plan is to ask wherever the human is better."
            f" {learner.policy} then gets {per_cent(best.reached)} % of {describe_possible(plan)}."
        )
    opening = describe_gain(plan, unit)
    found = next(each for each in learner.needed if each.level == HEADLINE)
    if found.budget is not None:
        return f"{opening} To get {HEADLINE:.0f} % of {describe_possible(plan)} you need {sentence(found, unit)}"
    own = next(each for each in learner.needed_of_own if each.level == HEADLINE)
    named = f"the learner ({learner.policy})"
    if own.budget is None:
        return f"Reviewing could bring {amount(plan.possible)} reward, but {named} gains nothing here."
    return (
        f"{opening} {named[0].upper()}{named[1:]} gets at most {per_cent(best.reached)} % of {describe_possible(plan)}."
        f" For {HEADLINE:.0f} % of its own best you need {sentence(own, unit)}"
    )


def describe_possible(plan: Plan) -> str:
    """Return a description of the possible gain."""
    if plan.estimated:
        return "what is achievable from these columns"
    return "what reviewing can bring" + ("" if plan.within_reach else " to somebody who knows every outcome")


def describe_gain(plan: Plan, unit: str) -> str:
    """Return a sentence on the gain from a budget of a tenth."""
    point = min(plan.learner.points, key=lambda each: abs(each.share - AT))
    budget = f"{amount(point.budget)}{unit_text(unit, point.budget)}" if unit else f"a budget of {amount(point.budget)}"
    with_ = f"With {budget} ({per_cent(point.share)} % of reviewing everything):"
    before, after = plan.model, point.reward
    if plan.right:
        course = f"{100 * before / plan.n_tasks:.1f} → {100 * after / plan.n_tasks:.1f} % right"
        more, thing = f"{format_signed(point.gained)} right answers", "right answer"
    else:
        course = f"reward {amount(before, 4)} → {amount(after, 4)}"
        more, thing = format_signed(point.gained), "unit of reward"
    if point.gained <= 0:
        return f"{with_} {course}: nothing is gained."
    all_spent = point.spent >= SPENT * point.budget
    used = point.budget if all_spent else point.spent
    each = f"one more {thing} for every {amount(used / point.gained, 2)}{unit_text(unit, 1.0) or ' of budget'}"
    unspent = "" if all_spent else f" ({amount(point.spent)} of it spent)"
    return f"{with_} {course}, {more}{unspent}; {each}{levels_off(plan, point, unit)}."


def format_signed(value: float) -> str:
    """Return a number with its sign, as in a sentence.

    >>> format_signed(130.2), format_signed(-3.0)
    ('+ 130', '− 3')
    """
    return f"{'+' if value >= 0 else '−'} {amount(abs(value))}"


def levels_off(plan: Plan, point: Point, unit: str) -> str:
    """Return from which budget on more of it hardly brings anything: that gains 95 per cent of the most."""
    own = next(each for each in plan.learner.needed_of_own if each.level == HEADLINE)
    if own.budget is None or own.budget >= 0.9 * plan.everything:
        return ""
    if own.budget <= point.budget:
        return f"; more than {amount(own.budget)}{unit_text(unit, own.budget)} bring hardly anything"
    return f"; from {amount(own.budget)}{unit_text(unit, own.budget)} on hardly anything"


def sentence(found: Need, unit: str) -> str:
    """Return the end of a sentence about a needed budget."""
    what = f"a budget of {amount(found.budget)}{unit_text(unit, found.budget)}"
    brings = ""
    if found.price is not None:
        brings = f"; at that point the next {singular(unit)} brings {amount(found.price)} reward"
    return f"{what} ({per_cent(found.share)} % of reviewing everything){brings}."


def remarks(plan: Plan, *, full_orders: int | None = None, better: int | None = None) -> list[str]:
    """Return remarks on a plan: what is possible, what is uncertain.

    Args:
        plan: The plan.
        full_orders: How many orders would have been taken of fewer tasks.
        better: In how many tasks the human is better than the model, where that is known.
    """
    said = of_possible(plan)
    if full_orders is not None and full_orders > len(plan.seeds):
        said.append(
            f"There are many tasks ({plan.n_tasks:,}): {len(plan.seeds)} orders instead of {full_orders};"
            f" --trials {full_orders} takes them all."
        )
    said += untold(plan, better)
    if plan.hopeless or plan.representation == plan.learner.policy:
        return said
    return [*said, f"{plan.learner.policy} rests on: {plan.representation}."]


def of_possible(plan: Plan) -> list[str]:
    """Return sentences on what is possible, and how much of it each policy gains."""
    if plan.hopeless or plan.free:
        return []
    if plan.estimated:
        point = min(plan.learner.points, key=lambda each: abs(each.share - AT))
        share = (
            ""
            if point.of_achievable is None
            else (
                f"; with {per_cent(point.share)} % of reviewing everything {plan.learner.policy} gets"
                f" {per_cent(point.of_achievable)} % of what is achievable with as much"
            )
        )
        return [
            f"Achievable from these columns: {format_signed(plan.possible)} at most{share}. OPT, which knows every"
            f" outcome in advance: {format_signed(plan.hindsight)}."
        ]
    enough = next((point.share for point in plan.curves[0].points if point.price == 0), 100.0)
    if enough >= 100:
        return []
    return [
        f"From {per_cent(enough)} % of reviewing everything on, OPT has asked wherever the human is better."
        + ("" if plan.within_reach else " It knows every outcome in advance: nobody else can stop there.")
    ]


def untold(plan: Plan, better: int | None) -> list[str]:
    """Return sentences on what is uncertain: too few tasks, too few where the human is better, gains within chance."""
    said = []
    if plan.n_tasks < FEW:
        tasks = "1 task shows" if plan.n_tasks == 1 else f"{plan.n_tasks} tasks show"
        said.append(f"{tasks} the form of a plan, but teach a learner next to nothing: it takes some hundred.")
    if len(plan.seeds) == 1:
        said.append("One order alone does not show how much the numbers depend on the order of the tasks.")
    if plan.hopeless:
        return said
    if better is not None and better < FEW_BETTER:
        said.append(
            f"The human is better in {better:,} of {plan.n_tasks:,} tasks: too few to tell from the context where."
        )
    if any(curve.policy == "achievable" for curve in plan.curves) and not plan.estimated:
        said.append(
            "No rule of these columns was found that gains anything: what is possible is what OPT gains, which knows"
            " every outcome in advance."
        )
    best = max(plan.learner.points, key=lambda point: point.gained)
    if 0 < best.gained < SURE * best.gained_se:
        said.append(
            f"{format_signed(best.gained)} ± {amount(best.gained_se, 2)} (standard error) at best: {plan.n_tasks:,}"
            " tasks cannot tell whether reviewing brings anything."
        )
    return said


LEVEL = 95.0  # per cent of what the plan's learner can get
PENDING = 10  # reviews, for an example
SHARE = 0.01  # of the budget: the hold 'auto' is at most this, but never less than the mean cost


def needed_budget(plan: Plan) -> float | None:
    """Return the budget that the learner needs for nearly everything; None if none is enough."""
    known: Sequence[Need] = [*plan.learner.needed, *plan.learner.needed_of_own]
    return next((each.budget for each in known if each.level == LEVEL and each.budget is not None), None)


def hold_text(costs: Floats, budget: float | None, unit: str = "") -> list[str]:
    """Return a remark on the share of a budget that pending reviews hold, if it is much more than their mean cost.

    Args:
        costs: Of all tasks.
        budget: The needed one, of a period if it renews; None if none is enough.
        unit: What cost is counted in.

    >>> import numpy as np
    >>> hold_text(np.array([1.0] * 99 + [51.0]), 200.0, "minutes")[0]  # doctest: +NORMALIZE_WHITESPACE
    "A pending review holds what it may cost: the most expensive here, 51 minutes (34 times the mean), which is 26 % of
    200 minutes, so that 3 can be pending at most. Where reviews can be stopped, the hold 'auto' is about 2 minutes: 10
    of them hold 10 %."
    """
    if not budget or not costs.size:
        return []
    highest, mean = float(costs.max()), float(costs.mean())
    if highest <= HOLD_MEANS * mean:
        return []
    hold = max(mean, min(HOLD_MEANS * mean, highest, SHARE * budget))
    most = int(budget // highest)
    if most > PENDING:
        kept = f": {PENDING} of them hold {per_cent(100 * PENDING * highest / budget)} %"
    else:
        kept = f", so that {most} can be pending at most" if most else ", so that nobody could be asked"
    return [
        f"A pending review holds what it may cost: the most expensive here, {amount(highest)}{unit_text(unit, highest)}"
        f" ({amount(highest / mean, 2)} times the mean), which is {per_cent(100 * highest / budget)} % of"
        f" {amount(budget)}{unit_text(unit, budget)}{kept}. Where reviews can be stopped, the hold 'auto' is about"
        f" {amount(hold)}{unit_text(unit, hold)}: {PENDING} of them hold {per_cent(100 * PENDING * hold / budget)} %."
    ]


SHARES = (0.5, 1.0, 1.5)  # of the needed budget
HOUR, DAY = 3_600.0, 86_400.0  # seconds
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
SHADES = " ▁▂▃▄▅▆▇█"


class PeriodPlan(NamedTuple):
    """What allowances bring, and how many tasks come in a period."""

    every: str
    needed: float  # in a period on average
    tasks: Floats  # in each period
    allowances: list[dict[str, float]]  # allowance, share of the possible gain in per cent, and spent in per cent


def plan_periods(
    made: Plan, stream: TaskStream, world: str, parameters: Mapping[str, Any], every: str, seed: int
) -> PeriodPlan:
    """Return the gains from several allowances, with the tasks in the order in which they came.

    Raises:
        InvalidArgument: If the tasks have no times, or the plan found no budget that is enough.
    """
    if stream.times is None:
        raise InvalidArgument("A budget for each period needs the time of each task: --time COLUMN.")
    periods = period_numbers(stream.times, Budget(1.0, every=every))
    tasks = np.bincount(periods).astype(np.float64)
    found = needed_budget(made)
    if found is None:
        raise InvalidArgument("No budget is enough here, so that there is none for a period either.")
    needed = found / whole_periods(stream.times, every, len(tasks))
    budgets = {share: f"{share * needed:.6g} every {every}" for share in SHARES}
    specs = [Spec.of(world, parameters, policy=made.learner.policy, budget=text) for text in budgets.values()]
    rows = run_together(specs, seed)
    for row in rows:
        if "failure" in row:
            raise StudyFailed(f"An allowance could not be tried out: {row['failure']}")
    gained = [row["reward"] - row["model"] for row in rows]
    return PeriodPlan(
        every,
        needed,
        tasks,
        [
            {"allowance": share * needed, "of_possible": 100 * gain / made.possible, "spent_pct": row["spent_pct"]}
            for share, gain, row in zip(SHARES, gained, rows, strict=True)
        ],
    )


def whole_periods(times: Floats, every: str, begun: int) -> float:
    """Return the number of periods that the tasks cover; the first and the last may be partial.

    >>> whole_periods(np.array([0.0, 5_400.0]), "1h", begun=2)
    1.5
    """
    schedule = Budget(1.0, every=every).schedule
    start, end = schedule.containing(float(times[0]))
    for _ in range(begun - 1):
        end = schedule.following(end)
    return max(1.0, float(times[-1] - times[0]) / (end - start) * begun)


def period_text(plan: PeriodPlan, unit: str) -> list[str]:
    """Return the answer in sentences."""
    name = {"day": "a day", "week": "a week", "month": "a month"}.get(plan.every, f"every {plan.every}")
    least, most = int(plan.tasks.min()), int(plan.tasks.max())
    said = [
        f"That is {amount(plan.needed)}{unit_text(unit, plan.needed)} {name}: there are {len(plan.tasks)} periods, some"
        f" perhaps in part, with {least:,} to {most:,} tasks each."
    ]
    for each in plan.allowances:
        said.append(
            f"  {amount(each['allowance'])}{unit_text(unit, each['allowance'])} {name}, use it or lose it: the learner"
            f" gets {each['of_possible']:.0f} % of what is possible and spends {each['spent_pct']:.0f} % of it."
        )
    return said


def arrivals_by_hour(times: Floats) -> Floats:
    """Return the mean number of tasks in each hour of the week [7, 24], from Monday on.

    >>> arrivals_by_hour(np.array([4 * 86_400.0, 4 * 86_400.0 + 60])).sum()
    np.float64(2.0)
    """
    monday = times + 3 * DAY  # 1970-01-01 was a Thursday
    hour = ((monday % (7 * DAY)) // HOUR).astype(int)
    weeks = max(1.0, (times[-1] - times[0]) / (7 * DAY)) if len(times) else 1.0
    return np.asarray(np.bincount(hour, minlength=168).reshape(7, 24) / weeks)


def arrivals_text(times: Floats) -> list[str]:
    """Return the pattern of arrivals as lines: a bar for each hour of each day."""
    counts = arrivals_by_hour(times)
    top = max(float(counts.max()), 1e-9)
    lines = [f"Tasks by hour of the week (a full block is {top:.1f} an hour):", "     0     6     12    18"]
    for day, row in zip(WEEKDAYS, counts, strict=True):
        lines.append(f"{day}  " + bars(row / top) + f"  {row.sum():,.0f}")
    return lines


def bars(heights: Sequence[float] | Floats) -> str:
    """Return heights from 0 to 1 as text.

    >>> bars([0.0, 0.5, 1.0])
    ' ▄█'
    """
    return "".join(SHADES[round(min(max(float(height), 0.0), 1.0) * (len(SHADES) - 1))] for height in heights)
