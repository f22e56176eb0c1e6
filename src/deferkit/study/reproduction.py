"""Runs experiments and writes what came of them: figures, tables and the report."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from deferkit.study.drawing.figures import write_figure
from deferkit.study.drawing.report import Chapter, report_html
from deferkit.study.engines import TrialEngine
from deferkit.study.experiments.experiment import Experiment, Finding, PolicyRanking
from deferkit.study.runner import count_missing, run_study
from deferkit.study.statistics import mean_of
from deferkit.study.trial_store import TrialStore, write_frame


class RankingTable(NamedTuple):
    """The ranking of an experiment."""

    declared: PolicyRanking
    rows: pl.DataFrame  # a row for each policy, as text
    trials: int  # for each setting


class Reproduced(NamedTuple):
    """What a reproduction came to."""

    report: Path
    findings: list[Finding]
    rankings: list[RankingTable]


def reproduce(
    experiments: Sequence[Experiment],
    *,
    quick: bool,
    out: Path,
    engine: TrialEngine,
    started: Callable[[int, int], None],
    progress: Callable[[int], None],
    drawing: Callable[[str], None],
    command: str,
) -> Reproduced:
    """Run the trials that are missing, then write a figure and tables for each experiment, and the report.

    Args:
        experiments: What is run, in the order of the report; trials that they share are run once.
        quick: Whether to run fewer seeds of the same settings.
        out: The folder of report, figures and trials.
        engine: Where trials run.
        started: Is called once, with the number of trials to run and the number of all.
        progress: Is called with a number of trials that are done.
        drawing: Is called with the name of the experiment that is drawn next.
        command: How to run the same again, for the report.

    Raises:
        StudyFailed: A trial failed; the others are saved.
        UnreadableResults: `out` cannot be written, or a file in it cannot be read.
    """
    trials = [trial for experiment in experiments for trial in experiment.trials(quick)]
    count = count_missing(trials, TrialStore(None))
    store = TrialStore(out / "trials")
    started(count_missing(trials, store), count)
    run_study(trials, store=store, engine=engine, progress=progress)
    chapters, rankings = [], []
    for experiment in experiments:
        drawing(experiment.name)
        frame = run_study(experiment.trials(quick), store=store, engine=engine)
        write_frame(frame, out / f"{experiment.name}.parquet")
        chapters.append(
            Chapter(
                experiment,
                write_figure(experiment.draw(frame), experiment.name, out / "figures"),
                experiment.findings(frame),
                experiment.tables_of(frame),
                trials=len(frame),
                seeds=frame["seed"].unique().to_list(),
            )
        )
        if experiment.ranking is not None:
            rows = rank_policies(experiment.ranking, frame)
            rankings.append(RankingTable(experiment.ranking, rows, frame["seed"].n_unique()))
    tables = {ranking.declared.caption: ranking.rows for ranking in rankings}
    report = out / "report.html"
    report.write_text(report_html(chapters, tables, trials=count, quick=quick, command=command), encoding="utf-8")
    return Reproduced(report, [finding for chapter in chapters for finding in chapter.findings], rankings)


def rank_policies(ranking: PolicyRanking, frame: pl.DataFrame) -> pl.DataFrame:
    """Return the mean of a value in each setting for every policy, best first.

    Args:
        ranking: Which value, and which settings.
        frame: Trials, a row each.

    >>> frame = pl.DataFrame({"policy": ["a", "b"], "budget": [1.0, 1.0], "gain": [2.0, 3.0]})
    >>> settings = {"B = 1": {"budget": 1.0}}
    >>> ranking = PolicyRanking(caption="", short_caption="", value="gain", where={}, settings=settings)
    >>> rank_policies(ranking, frame).rows()
    [('b', '3.0'), ('a', '2.0')]
    """
    rows = []
    for policy in frame["policy"].unique(maintain_order=True):
        means = [
            mean_of(frame, ranking.value, policy=policy, **ranking.where, **setting)
            for setting in ranking.settings.values()
        ]
        rank = -math.inf if policy in ranking.last else sum(means)
        rows.append((rank, [policy, *(f"{mean:.1f}" for mean in means)]))
    rows.sort(key=lambda row: -row[0])
    return pl.DataFrame([cells for _, cells in rows], schema=["policy", *ranking.settings], orient="row")
