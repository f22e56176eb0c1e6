"""The report: one page with every claim, what was measured, whether it holds, and how to measure it again."""

import platform
from collections.abc import Mapping, Sequence
from html import escape
from importlib.metadata import version
from typing import NamedTuple

import polars as pl

from deferkit.study.drawing.charts import runs_text
from deferkit.study.drawing.figures import STYLE, Drawn, bundle
from deferkit.study.experiments.experiment import FAILS, HOLDS, PARTLY, Experiment, Finding

CLASSES = {HOLDS: "holds", PARTLY: "part", FAILS: "not"}
OURS = ("default", "default, full", "Linear", "Logistic")
SUBJECTS = {False: "the synthetic study", True: "the study with people"}
OPTIMA = {
    False: "In synthetic worlds rewards are expected ones on just the tasks that came; OPT is the best fixed rule"
    " that knows the distribution and keeps the budget on average, so that a lucky stream can give more than 100. Where"
    " rewards drift it also knows the phase of every task.",
    True: "On tables of people's answers rewards are those that came, and OPT is <i>hindsight OPT</i>: the best"
    " choice for just these outcomes, which sees their noise. No policy can, so that gains are far below 100 even where"
    " nothing is left to learn.",
}
"""What OPT is, by whether rewards are realised ones."""


class Chapter(NamedTuple):
    """What came of an experiment."""

    experiment: Experiment
    drawn: Drawn
    findings: list[Finding]
    tables: dict[str, pl.DataFrame]
    trials: int
    seeds: Sequence[int]


def html_table(table: pl.DataFrame, caption: str) -> str:
    """Return a table as HTML; the default's row stands out."""
    numeric = [any(c.isdigit() for c in str(table[name][0])) if len(table) else False for name in table.columns]
    head = "".join(f"<th{cell_class(n)}>{escape(name)}</th>" for name, n in zip(table.columns, numeric, strict=True))
    body = []
    for row in table.iter_rows():
        cells = "".join(
            f"<td{cell_class(n)}>{'' if value is None else escape(str(value))}</td>"
            for value, n in zip(row, numeric, strict=True)
        )
        ours = ' class="ours"' if str(row[0]) in OURS else ""
        body.append(f"<tr{ours}>{cells}</tr>")
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def cell_class(number: bool) -> str:
    """Return the class of a cell with a number."""
    return ' class="number"' if number else ""


def claims_table(findings: Sequence[Finding]) -> str:
    """Return claims, measurements and verdicts as HTML."""
    rows = "".join(
        f'<tr><td><span class="verdict {CLASSES[f.verdict]}">{f.verdict}</span></td>'
        f"<td>{escape(f.claim)}</td><td>{escape(f.measured)}</td></tr>"
        for f in findings
    )
    head = "<thead><tr><th>verdict</th><th>claim</th><th>measured</th></tr></thead>"
    return f'<div class="scroll"><table>{head}<tbody>{rows}</tbody></table></div>'


def chapter_html(chapter: Chapter) -> str:
    """Return an experiment's part of the page."""
    name, drawn = chapter.experiment.name, chapter.drawn
    tables = "".join(html_table(table, caption) for caption, table in chapter.tables.items())
    links = " · ".join(f'<a href="figures/{name}.{kind}">{kind.upper()}</a>' for kind in ("png", "svg", "html"))
    return f"""<h2 id="{name}">{escape(chapter.experiment.title)}</h2>
<p>{escape(chapter.experiment.description)}</p>
<figure><div class="chart" id="figure-{name}">{drawn.svg}</div>
<figcaption>{chapter.trials:,} trials, seeds {runs_text(chapter.seeds)}. A click on the legend picks a line,
the pointer shows numbers. {links} · <a href="{name}.parquet">trials as Parquet</a></figcaption></figure>
{claims_table(chapter.findings)}
<details><summary>Tables</summary>{tables}</details>
"""


def report_html(
    chapters: Sequence[Chapter], rankings: Mapping[str, pl.DataFrame], *, trials: int, quick: bool, command: str
) -> str:
    """Return the whole page as HTML.

    Args:
        chapters: What came of each experiment, in their order.
        rankings: Tables at the head of the page, by caption.
        trials: How many trials there are in all.
        quick: Whether they are fewer than at full size.
        command: How to run the same again.
    """
    findings = [finding for chapter in chapters for finding in chapter.findings]
    of_paper, of_ours = ([f for f in findings if f.source == source] for source in ("paper", "deferkit"))
    size = (
        "This is the <b>quick</b> version: the same experiments with few trials. Its numbers are rough;"
        " run it without <code>--quick</code> for those to quote."
        if quick
        else "Full size."
    )
    kinds = dict.fromkeys(c.experiment.realised for c in chapters)
    subject, opts = " and ".join(SUBJECTS[kind] for kind in kinds), [OPTIMA[kind] for kind in kinds]
    nav = "".join(f'<a href="#{c.experiment.name}">{escape(c.experiment.title)}</a>' for c in chapters)
    scripts = "".join(
        f'vegaEmbed("#figure-{c.experiment.name}", {c.drawn.spec}, {{renderer: "svg", actions: false}});\n'
        for c in chapters
    )
    table = ""
    if rankings:
        tables = "".join(html_table(rows, caption) for caption, rows in rankings.items())
        table = "<h2>The default, the paper's algorithm and all baselines</h2>" + tables
    versions = ", ".join(f"{name} {version(name)}" for name in ("deferkit", "numpy", "polars"))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>deferkit: {escape(subject)}</title><style>{STYLE}</style></head><body><main>
<h1>Online decision deferral under budget constraints: {escape(subject)}</h1>
<p class="soft">{versions}, Python {platform.python_version()} on {platform.machine()}.
{trials:,} trials. {size}</p>
<p><b>gain</b> = (reward − ModelOnly) / (OPT − ModelOnly), in per cent: per cent of OPT alone flatters, because the
model alone already has most of it. {" ".join(opts)}
Bands and ± are one standard deviation over trials, a ± in brackets is a standard error.</p>
<nav>{nav}</nav>
<h2>Claims of the paper</h2>{claims_table(of_paper)}
<h2>Claims of ours</h2>{claims_table(of_ours)}
{table}
{"".join(chapter_html(chapter) for chapter in chapters)}
<h2>How to measure it again</h2>
<pre>{escape(command)}</pre>
<p>Every trial is kept under a hash of its specification, its seed and the code that measured it: what is there is not
run again, and what any of them changes is. Trials of a seed share a stream of tasks, so that policies are compared on
the same outcomes.</p>
</main>
<script>{bundle()}</script>
<script>
{scripts}</script>
</body></html>
"""
