"""The answer of a plan in a few sentences, and remarks on it."""

from deferkit.study.plan import Plan, Point
from deferkit.study.plan_need import Need
from deferkit.study.plan_text import amount, per_cent, singular, unit_text

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
            f" {learner.policy} then gets {per_cent(best.reached)} % of {whole(plan)}."
        )
    opening = brought(plan, unit)
    found = next(each for each in learner.needed if each.level == HEADLINE)
    if found.budget is not None:
        return f"{opening} To get {HEADLINE:.0f} % of {whole(plan)} you need {sentence(found, unit)}"
    own = next(each for each in learner.needed_of_own if each.level == HEADLINE)
    named = f"the learner ({learner.policy})"
    if own.budget is None:
        return f"Reviewing could bring {amount(plan.possible)} reward, but {named} gains nothing here."
    return (
        f"{opening} {named[0].upper()}{named[1:]} gets at most {per_cent(best.reached)} % of {whole(plan)}. For"
        f" {HEADLINE:.0f} % of its own best you need {sentence(own, unit)}"
    )


def whole(plan: Plan) -> str:
    """Return what is possible, in words."""
    if plan.estimated:
        return "what is achievable from these columns"
    return "what reviewing can bring" + ("" if plan.within_reach else " to somebody who knows every outcome")


def brought(plan: Plan, unit: str) -> str:
    """Return what a budget of a tenth brings, in a sentence."""
    point = min(plan.learner.points, key=lambda each: abs(each.share - AT))
    budget = f"{amount(point.budget)}{unit_text(unit, point.budget)}" if unit else f"a budget of {amount(point.budget)}"
    with_ = f"With {budget} ({per_cent(point.share)} % of reviewing everything):"
    before, after = plan.model, point.reward
    if plan.right:
        course = f"{100 * before / plan.n_tasks:.1f} → {100 * after / plan.n_tasks:.1f} % right"
        more, thing = f"{signed(point.gained)} right answers", "right answer"
    else:
        course = f"reward {amount(before, 4)} → {amount(after, 4)}"
        more, thing = signed(point.gained), "unit of reward"
    if point.gained <= 0:
        return f"{with_} {course}: nothing is gained."
    all_spent = point.spent >= SPENT * point.budget
    used = point.budget if all_spent else point.spent
    each = f"one more {thing} for every {amount(used / point.gained, 2)}{unit_text(unit, 1.0) or ' of budget'}"
    unspent = "" if all_spent else f" ({amount(point.spent)} of it spent)"
    return f"{with_} {course}, {more}{unspent}; {each}{levels_off(plan, point, unit)}."


def signed(value: float) -> str:
    """Return a number with its sign, as in a sentence.

    >>> signed(130.2), signed(-3.0)
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
    return said if plan.hopeless else [*said, f"{plan.learner.policy} rests on: {plan.representation}."]


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
            f"Achievable from these columns: {signed(plan.possible)} at most{share}. OPT, which knows every outcome"
            f" beforehand: {signed(plan.hindsight)}."
        ]
    enough = next((point.share for point in plan.curves[0].points if point.price == 0), 100.0)
    if enough >= 100:
        return []
    return [
        f"From {per_cent(enough)} % of reviewing everything on, OPT has asked wherever the human is better."
        + ("" if plan.within_reach else " It knows every outcome beforehand: nobody else can stop there.")
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
            " every outcome beforehand."
        )
    best = max(plan.learner.points, key=lambda point: point.gained)
    if 0 < best.gained < SURE * best.gained_se:
        said.append(
            f"{signed(best.gained)} ± {amount(best.gained_se, 2)} (standard error) at best: {plan.n_tasks:,} tasks"
            " cannot tell whether reviewing brings anything."
        )
    return said
