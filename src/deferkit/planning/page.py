"""The page of a plan, with its figures."""

import platform
from collections.abc import Sequence
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from deferkit.planning.plan import LEVELS, Need, Plan, on_grid
from deferkit.planning.text import (
    WEEKDAYS,
    amount,
    arrivals_by_hour,
    curve_cells,
    headline,
    need_cells,
    per_cent,
    singular,
)
from deferkit.study.drawing.charts import (
    COLOURS,
    CONFIG,
    HEIGHT,
    WIDTH,
    bands,
    chart_of,
    colour,
    finish,
    layer,
    side_by_side,
)
from deferkit.study.drawing.figures import STYLE, Drawn, bundle, draw, write_figure, write_html
from deferkit.study.drawing.report import html_table
from deferkit.worlds.base import Floats

WIDE = WIDTH + 40  # of a panel
TALL = HEIGHT + 40
NEEDED = "The smallest budget that gets so much of what is possible; own: of the most that the learner gains itself"
CAPTION = (
    "Tasks asked and reward of the learner; what each policy gains, in per cent of what is possible;"
    " reward that the next unit brings"
)


ACHIEVABLE = (
    ", chance and all, before it is decided; <b>achievable</b> is what a rule of these columns gets: rewards and costs"
    " are predicted from the columns by regressions that have not seen the row, the best that a budget pays for are"
    " asked, and what really came of those is counted"
)


def curve_frame(plan: Plan) -> pl.DataFrame:
    """Return the points of all curves, with the band of one standard deviation over orders."""
    return pl.DataFrame(
        [
            {
                "policy": curve.policy,
                "budget": point.budget,
                "share %": point.share,
                "mean": point.reward,
                "low": point.reward - (point.reward_sd or 0.0),
                "high": point.reward + (point.reward_sd or 0.0),
                "reached %": point.reached,
                "asked %": point.asked_pct,
            }
            for curve in plan.curves
            for point in on_grid(plan, curve)
        ],
        infer_schema_length=None,
    )


def budget_axis(plan: Plan, unit: str) -> alt.X:
    """Return the axis of budgets, the same in both panels."""
    scale = alt.Scale(domain=[0, plan.everything or 1.0], nice=False)
    return alt.X("budget:Q", title="budget" + (f", {unit}" if unit else ""), scale=scale, axis=alt.Axis(format=",.6~g"))


def reward_panel(plan: Plan, unit: str) -> alt.LayerChart:
    """Return reward against budget, with what the model earns alone and the needed budgets of the learner."""
    names = [curve.policy for curve in plan.curves]
    lines = bands(
        curve_frame(plan),
        x=budget_axis(plan, unit),
        y_title="reward",
        y_scale=alt.Scale(zero=False),
        among=names,
        width=WIDE,
        height=TALL,
    )
    floor = chart_of(pl.DataFrame({"y": [plan.model], "label": [f"the model alone: {amount(plan.model, 4)}"]}))
    parts: list[Any] = [
        lines,
        floor.mark_rule(strokeDash=[5, 4], color="#777").encode(y="y:Q"),
        floor.mark_text(align="right", dy=12, dx=-4, fontSize=12, color="#555").encode(
            y="y:Q", x=alt.value(WIDE), text="label:N"
        ),
    ]
    learner = plan.learner
    own = reaches_nothing(plan)
    best = max(point.gained for point in learner.points) if own else plan.possible
    for place, each in enumerate(learner.needed_of_own if own else learner.needed):
        if each.budget is not None and not plan.free:
            parts += need_mark(
                each,
                plan.model + each.level / 100 * best,
                place,
                COLOURS.get(learner.policy, "#0b5fa5"),
                left=each.budget > 0.75 * plan.everything,
            )
    return layer(*parts).properties(width=WIDE, height=TALL, title="What a budget brings")


def reaches_nothing(plan: Plan) -> bool:
    """Whether the learner gets to no level of what is possible, so that its own best is what it is measured by."""
    return all(each.budget is None for each in plan.learner.needed)


def need_mark(found: Need, reward: float, place: int, hue: str, *, left: bool = False) -> list[alt.Chart]:
    """Return a diamond at a needed budget, and a line down to its label.

    A larger budget has its label higher up, where no line of a smaller one crosses it; one at the edge has it on the
    `left`.
    """
    row = {"budget": found.budget, "y": reward, "label": f"{found.level:.0f} %: {amount(found.budget)}"}
    at = chart_of(pl.DataFrame([row])).encode(x="budget:Q")
    height = 0.45 * TALL + 18 * (len(LEVELS) - place)
    return [
        at.mark_rule(strokeDash=[2, 3], color=hue).encode(y="y:Q", y2=alt.value(height + 7)),
        at.mark_point(shape="diamond", size=110, filled=True, color="white", stroke=hue, opacity=1).encode(y="y:Q"),
        at.mark_text(align="right" if left else "left", dx=-5 if left else 5, fontSize=12, color=hue).encode(
            y=alt.value(height), text="label:N"
        ),
    ]


def price_panel(plan: Plan, unit: str) -> alt.LayerChart:
    """Return a chart of the marginal reward against budget: λ* of OPT, and the slope of the learner's curve in steps.

    The price of the very first unit is left out: one cheap task can make it as high as one likes.
    """
    names = [curve.policy for curve in plan.curves]
    rows = [
        {"policy": curve.policy, "budget": point.budget, "share %": point.share, "price": point.price}
        for curve in plan.curves[:2]
        for place, point in enumerate(on_grid(plan, curve))
        if place > 0 or curve.policy != "opt" or len(curve.points) == 1
    ]
    frame = pl.DataFrame(rows, infer_schema_length=None)
    frame = frame.with_columns(price=pl.col("price").fill_null(strategy="forward"))  # a step ends where its unit does
    title = f"reward that the next {singular(unit)} brings"
    base = chart_of(frame).encode(
        x=budget_axis(plan, unit),
        y=alt.Y("price:Q", title=title),
        color=colour("policy", names),
        tooltip=["policy:N", *(alt.Tooltip(f"{name}:Q", format=",.4~r") for name in ("budget", "share %", "price"))],
    )
    smooth = base.transform_filter("datum.policy == 'opt'").mark_line(point={"size": 45}, strokeWidth=2.2)
    steps = base.transform_filter("datum.policy != 'opt'").mark_line(interpolate="step-after", strokeWidth=2.2)
    return layer(smooth, steps).properties(width=WIDE, height=TALL, title="What the next unit brings")


def plan_figure(plan: Plan, unit: str) -> alt.TopLevelMixin:
    """Return the figure: what a budget brings, and what the next unit brings."""
    orders = len(plan.seeds)
    about = f"{plan.n_tasks:,} tasks; reviewing everything costs {amount(plan.everything)}{f' {unit}' if unit else ''}"
    spread = f"mean ± sd over {orders} orders of the tasks" if orders > 1 else "one order of the tasks"
    whole = "of the most that it gains itself" if reaches_nothing(plan) else "of what is possible"
    marks = "" if plan.free or plan.hopeless else f"; diamonds: what {plan.learner.policy} needs for a share {whole}"
    done = finish(
        side_by_side([reward_panel(plan, unit), price_panel(plan, unit)]).resolve_scale(color="shared"),
        "How much review budget is needed, and what is the next unit worth?",
        [about, spread + marks],
    )
    below: alt.TopLevelMixin = done.configure_legend(**CONFIG["legend"], orient="bottom")
    return below


def cells_frame(cells: tuple[list[str], list[list[str]]], names: dict[str, str]) -> pl.DataFrame:
    """Return the cells of a table as a frame, its head in full words."""
    head, rows = cells
    return pl.DataFrame(rows, schema=[names.get(name, name) for name in head], orient="row")


def prose(text: str) -> str:
    """Return a sentence as HTML; a sign and a unit stay on the line of their number.

    >>> prose("+ 130 <b> at 10 %")
    '+&nbsp;130 &lt;b&gt; at 10&nbsp;%'
    """
    return escape(text).replace("+ ", "+&nbsp;").replace("− ", "−&nbsp;").replace(" %", "&nbsp;%")


def plan_html(
    plan: Plan,
    drawn: Drawn,
    *,
    world: str,
    unit: str,
    feedback: str,
    remarks: Sequence[str],
    command: str = "",
    links: Sequence[str] = (),
) -> str:
    """Return the whole page."""
    learner = plan.learner.policy
    budget = unit or "budget"
    curves = {"budget": budget, "%": "% of all", "OPT": "OPT %", "reject": "best-reject %", "random": "random %"}
    curves |= {"ach.": "achievable %"}
    curves |= {learner: f"{learner} %", "λ*": "next: OPT", "next": f"next: {learner}"}
    needs = {"budget": budget, "%": "% of all", "next": "next unit"}
    said = "".join(f"<p>{prose(each)}</p>" for each in remarks)
    files = " · ".join(f'<a href="{link}">{link.rpartition(".")[2].upper()}</a>' for link in links)
    n = len(plan.seeds)
    versions = ", ".join(f"{name} {version(name)}" for name in ("deferkit", "numpy", "polars"))
    best = max(plan.learner.points, key=lambda point: point.gained)
    who = "the achievable optimum" if plan.estimated else "OPT"
    adds = f"reviewing can add{' (as far as these columns tell where)' if plan.estimated else ''}"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>deferkit: a plan for {escape(world)}</title><style>{STYLE}
.answer {{ font-size: 21px; line-height: 1.45; margin: 18px 0; padding: 14px 18px; background: #eef5fb;
border-left: 4px solid var(--blue); max-width: none; }}</style></head><body><main>
<h1>How much review budget do we need, and what is the next {escape(singular(unit))} worth?</h1>
<p class="soft">{escape(world)}: {plan.n_tasks:,} tasks. Reviewing all of them costs {amount(plan.everything)}
{escape(unit)}; the model alone earns {amount(plan.model, 4)}; {adds} {amount(plan.possible)}
{f"({learner} at best: {amount(best.gained)}, {per_cent(best.reached)} %)" if not plan.hopeless else ""}.</p>
<p class="answer">{prose(headline(plan, unit))}</p>
{said}
<figure><div class="chart" id="figure-plan">{drawn.svg}</div>
<figcaption>A click on the legend picks a line, the pointer shows numbers. {files}</figcaption></figure>
<h2>What is needed</h2>
{html_table(cells_frame(need_cells(plan), needs), NEEDED)}
<h2>What a budget brings</h2>
{html_table(cells_frame(curve_cells(plan), curves), CAPTION)}
<h2>How it was measured</h2>
<p>{n} {"order" if n == 1 else "orders"} of the tasks (seeds {min(plan.seeds)} to {max(plan.seeds)}),
{escape(feedback)} feedback; bands and ± are one standard deviation over orders. What is <b>possible</b> is what
{who} adds to the model where everything can be paid for.
<b>OPT</b> knows what each task brings and costs{ACHIEVABLE if plan.estimated else ""};
<b>{escape(learner)}</b> learns that as it goes, and never passes the budget; <b>best-reject</b> asks where the model is
expected to earn least, with the best threshold in hindsight; <b>random</b> asks at the rate that the budget pays for.
Needed budgets are solved for: more budgets were measured around each until two that are
at most 2 % apart enclose it. What the next unit brings is OPT's price λ*, and for
{escape(learner)} the slope of its mean curve, neighbours pooled until it never rises.</p>
{f"<pre>{escape(command)}</pre>" if command else ""}
<p class="soft">{versions}, Python {platform.python_version()} on {platform.machine()}.</p>
</main>
<script>{bundle()}</script>
<script>vegaEmbed("#figure-plan", {drawn.spec}, {{renderer: "svg", actions: false}});</script>
</body></html>
"""


def write_plan(plan: Plan, path: Path, *, figures: Path | None = None, **about: Any) -> Path:
    """Write the page, and the figure as files of its own if there is a folder for them; return where the page is."""
    chart = plan_figure(plan, about["unit"])
    drawn = draw(chart, "plan") if figures is None else write_figure(chart, "plan", figures)
    links = [] if figures is None else [f"{figures.name}/plan.{kind}" for kind in ("png", "svg", "html")]
    return write_html(path, plan_html(plan, drawn, links=links, **about))


def arrivals_chart(times: Floats, title: str) -> alt.TopLevelMixin:
    """Return a square for each hour of the week, the darker the more tasks come in it."""
    counts = arrivals_by_hour(times)
    rows = pl.DataFrame(
        {
            "day": [day for day in WEEKDAYS for _ in range(24)],
            "hour": list(range(24)) * 7,
            "tasks": counts.reshape(-1).tolist(),
        }
    )
    chart = (
        chart_of(rows)
        .mark_rect()
        .encode(
            x=alt.X("hour:O", title="hour of the day", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("day:O", sort=list(WEEKDAYS), title=None),
            color=alt.Color("tasks:Q", title="tasks an hour", scale=alt.Scale(scheme="blues")),
            tooltip=["day:O", "hour:O", alt.Tooltip("tasks:Q", format=".1f")],
        )
        .properties(width=600, height=210)
    )
    return finish(chart, title, [f"{len(times):,} tasks, by the clock of the table"])


def draw_arrivals(times: Floats, folder: Path, title: str) -> Path:
    """Write the figure and return where its PNG is; SVG and an interactive page lie beside it."""
    write_figure(arrivals_chart(times, title), "arrivals", folder / "figures")
    return folder / "figures" / "arrivals.png"
