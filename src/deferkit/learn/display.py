"""A learner as people see it: its state as lines and as HTML, its spending and gain as a figure."""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.display import html_block, html_table, text_table
from deferkit.extras import needs
from deferkit.learn.reports import LedgerReader
from deferkit.types import MODEL, Budget, show

if TYPE_CHECKING:
    import altair as alt

Floats = NDArray[np.float64]
POINTS = 200  # of a line in the figure


class Course(NamedTuple):
    """Spending and gain over the remembered decisions.

    Attributes:
        first: The id of the first of them.
        spent: [n] Known costs of the first resource so far, with those before `first`.
        gain: [n] Rewards of the experts so far, less what the model earned or is expected to have earned there.
        error: [n] The standard error of `gain`.
        asked: How many of them went to an expert.
        known: Of how many of these the expert's reward is known.
    """

    first: int
    spent: Floats
    gain: Floats
    error: Floats
    asked: int
    known: int


def course_of(reader: LedgerReader) -> Course:
    """Return spending and gain over the remembered decisions."""
    ledger = reader.ledger
    made = ledger.next_id
    first = max(0, made - ledger.memory)
    rows = np.arange(first, made) % ledger.memory
    route, rewards = ledger.route[rows], ledger.reward[rows]
    own, model = rewards[np.arange(len(rows)), route], rewards[:, 0].copy()
    asked = route > 0
    unknown = np.flatnonzero(asked & ~np.isnan(own) & np.isnan(model))
    if len(unknown):
        model[unknown] = reader.spending.estimates_at(rows[unknown]).means[:, 0]
    gains = np.where(asked & ~np.isnan(own), own - model, 0.0)
    costs = np.nan_to_num(ledger.cost[rows, 0])
    counted = np.maximum(np.cumsum(asked & ~np.isnan(own)), 1)
    gain, squares = np.cumsum(gains), np.cumsum(gains**2)
    before = float(ledger.view("spent")[0] + ledger.view("overrun")[0]) - float(costs.sum())
    return Course(
        first=first,
        spent=max(0.0, before) + np.cumsum(costs),
        gain=gain,
        error=np.sqrt(np.maximum(squares - gain**2 / counted, 0.0)),
        asked=int(asked.sum()),
        known=int((asked & ~np.isnan(own)).sum()),
    )


def facts_of(reader: LedgerReader) -> dict[str, str]:
    """Return the state of a learner by label: who decides, spending, gain, beliefs, and a remark if there is one."""
    summary = reader.summary()
    course = course_of(reader)
    shares = [
        f"{name} {n:,}" + (f" ({100 * n / summary.decisions:.3g} %)" if summary.decisions else "")
        for name, n in summary.routes.items()
    ]
    held = f", {show(summary.reserved)} held for {summary.pending:,} pending reviews" if summary.pending else ""
    facts = {
        "tasks": f"{summary.decisions:,}: {', '.join(shares)}",
        "budget": f"{show(summary.spent)} of {show(summary.total)} spent{held}",
        "price": f"{show(summary.price)} for a unit of budget",
    }
    if course.known:
        of = "" if not course.first else f", of the latest {len(course.gain):,} tasks"
        facts["gain"] = (
            f"{course.gain[-1]:.3g} ± {course.error[-1]:.2g} over the model alone, from {course.known:,} of"
            f" {course.asked:,} reviews{of}"
        )
    if summary.estimates:
        facts["expects"] = ", ".join(f"{name} {each}" for name, each in summary.estimates.items())
    return facts | ({"remark": summary.remark} if summary.remark else {})


def text_of(reader: LedgerReader, name: str) -> str:
    """Return a learner as lines of text."""
    facts = [["", label, fact] for label, fact in facts_of(reader).items()]
    return f"{name}\n" + text_table((["", "", ""], facts), 3).lstrip("\n")


def html_of(reader: LedgerReader, name: str) -> str:
    """Return a learner as HTML."""
    facts = facts_of(reader)
    remark = [facts.pop("remark")] if "remark" in facts else []
    return html_block(name, html_table((["", ""], list(facts.items())), 2), remarks=remark)


def plot_of(reader: LedgerReader, budget: Budget) -> "alt.HConcatChart":
    """Return spending against the plan, and the gain with two standard errors, over the remembered decisions."""
    needs("study", what="A figure")
    import altair as alt  # noqa: PLC0415 - an extra

    course, summary = course_of(reader), reader.figures()
    n = len(course.gain)
    at = np.unique(np.linspace(0, max(0, n - 1), min(n, POINTS)).astype(int)) if n else np.zeros(0, dtype=int)
    values: list[dict[str, Any]] = [
        {
            "task": course.first + i + 1,
            "spent": float(course.spent[i]),
            "gain": float(course.gain[i]),
            "low": float(course.gain[i] - 2 * course.error[i]),
            "high": float(course.gain[i] + 2 * course.error[i]),
        }
        for i in at.tolist()
    ]
    base = alt.Chart(alt.Data(values=values)).encode(x=alt.X("task:Q", title="tasks"))  # type: ignore[no-untyped-call]
    tip = [alt.Tooltip(f"{name}:Q", format=",.4~r") for name in ("task", "spent", "gain")]
    spent: Any = base.mark_line(strokeWidth=2.2).encode(y=alt.Y("spent:Q", title="spent"), tooltip=tip)
    if budget.horizon is not None and math.isfinite(budget.total):
        ends = [{"task": 0, "plan": 0}, {"task": budget.horizon, "plan": budget.total}]
        plan = alt.Chart(alt.Data(values=ends)).mark_line(strokeDash=[5, 4], color="#777", clip=True)  # type: ignore[no-untyped-call]
        spent = alt.layer(plan.encode(x="task:Q", y="plan:Q"), spent)
    band = base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", title="gain over the model alone"), y2="high:Q")
    gain = alt.layer(band, base.mark_line(strokeWidth=2.2).encode(y="gain:Q", tooltip=tip))
    size = {"width": 320, "height": 220}
    panels = alt.hconcat(
        spent.properties(title="Spending; dashed: the plan", **size), gain.properties(title="Gain ± 2 errors", **size)
    )
    about = f"price now {show(summary.price)} for a unit of budget; {show(summary.left)} left of {show(summary.total)}"
    title = f"{summary.decisions:,} tasks, {summary.decisions - summary.routes[MODEL]:,} asked"
    named: alt.HConcatChart = panels.properties(title=alt.TitleParams(title, subtitle=about))
    return named
