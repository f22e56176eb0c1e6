"""Runs experiments and writes what came of them: figures, tables and the report."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from deferkit.study.drawing.figures import write_figure
from deferkit.study.drawing.report import Chapter, report_html
from deferkit.study.engines import Engine
from deferkit.study.experiments import Experiment, Finding
from deferkit.study.experiments.experiment import mean_of
from deferkit.study.runner import missing, run_study
from deferkit.study.store import Store, Trial

SUMMARY = [(regime, budget) for regime in ("complementary", "dominant") for budget in (500, 2_000, 8_000)]

UNBOUND = ("human-only",)  # spends what it likes, so that its gain does not compare


class Reproduced(NamedTuple):
    """What a reproduction came to."""

    report: Path
    findings: list[Finding]
    summary: pl.DataFrame | None  # gains of all policies, where Experiment 2 was run
    summary_trials: int  # for each setting of it


def all_trials(experiments: Sequence[Experiment], quick: bool) -> list[Trial]:
    """Return the trials of all experiments; those that they share are run once."""
    return [trial for experiment in experiments for trial in experiment.trials(quick)]


def reproduce(
    experiments: Sequence[Experiment],
    *,
    quick: bool,
    out: Path,
    engine: Engine,
    started: Callable[[int, int], None],
    progress: Callable[[int], None],
    drawing: Callable[[str], None],
    command: str,
) -> Reproduced:
    """Run what is missing, then write a figure and a table for each experiment, and the report.

    `started` is told how many trials there are to run and how many there are, `progress` each time some are done,
    `drawing` the experiment that is drawn next.
    """
    trials = all_trials(experiments, quick)
    store = Store(out / "trials")
    started(missing(trials, store), missing(trials, Store(None)))
    run_study(trials, store=store, engine=engine, progress=progress)
    chapters = []
    summary, summary_trials = None, 0
    for experiment in experiments:
        drawing(experiment.name)
        frame = run_study(experiment.trials(quick), store=store, engine=engine)
        frame.write_parquet(out / f"{experiment.name}.parquet")
        drawn = write_figure(experiment.figure(frame), experiment.name, out / "figures")
        chapters.append(
            Chapter(
                experiment,
                drawn,
                experiment.findings(frame),
                experiment.tables(frame),
                trials=len(frame),
                seeds=frame["seed"].unique().to_list(),
            )
        )
        if experiment.name == "exp2":
            summary, summary_trials = summarise(frame), frame["seed"].n_unique()
    page = report_html(chapters, summary, trials=missing(trials, Store(None)), quick=quick, command=command)
    report = out / "report.html"
    report.write_text(page, encoding="utf-8")
    return Reproduced(
        report, [finding for chapter in chapters for finding in chapter.findings], summary, summary_trials
    )


def summarise(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the mean gain of every policy at three budgets in both regimes, best first; who keeps no budget, last."""
    rows = []
    for policy in frame["policy"].unique(maintain_order=True):
        gains = [
            mean_of(frame, "gain", policy=policy, regime=regime, budget=float(budget), feedback="full")
            for regime, budget in SUMMARY
        ]
        rank = -math.inf if policy in UNBOUND else sum(gains)
        rows.append((rank, [policy, *(f"{gain:.1f}" for gain in gains)]))
    rows.sort(key=lambda row: -row[0])
    columns = ["policy", *(f"{regime} {budget:,}" for regime, budget in SUMMARY)]
    return pl.DataFrame([cells for _, cells in rows], schema=columns, orient="row")
