"""Where a policy stands, in one sentence."""

from typing import TYPE_CHECKING

import msgspec

from deferkit.serve.engine.alarms import FAST, SLOW

if TYPE_CHECKING:
    from deferkit.serve.engine.standing import Standing


def state_text(standing: "Standing") -> str:
    """Return where a policy stands in one plain sentence."""
    kinds = {alarm.kind: alarm.text for alarm in standing.alarms}
    for urgent in ("failing", "suspense", "without_budget"):
        if urgent in kinds:
            return kinds[urgent]
    if not standing.decisions:
        return "No task has come yet."
    budget = standing.budget[standing.unit]
    tasks = f"{standing.decisions:,} tasks, {100 * standing.deferral_rate:.1f} % of them to experts"
    if budget.total is None or standing.horizon is None or standing.pace is None:
        return f"No limit: {amount(budget.posted)} {standing.unit} spent on {tasks}."
    share = min(1.0, standing.decisions / standing.horizon)
    spent = f"{amount(budget.posted)} of {amount(budget.total)} {standing.unit} spent"
    if "horizon_over" in kinds:
        return f"The planned {standing.horizon:,} tasks are over: {spent}."
    plan = "on plan" if SLOW <= standing.pace <= FAST else "ahead of plan" if standing.pace > FAST else "behind plan"
    end = ""
    if standing.runs_out_task is not None:
        lasts = standing.runs_out_task >= standing.horizon
        end = "; it lasts for all planned tasks" if lasts else f"; it lasts until about task {standing.runs_out_task:,}"
    return f"Spending is {plan}: {spent} for {100 * share:.0f} % of the planned tasks{end}."


def amount(given: float) -> str:
    """Return an amount of a reply, which may be a JSON number that no double is.

    >>> amount(1234.5), amount(msgspec.Raw(b"9007199254.740993"))
    ('1,234.5', '9.0072e+09')
    """
    number = float(bytes(given)) if isinstance(given, msgspec.Raw) else given
    return f"{number:,.6g}"
