"""The subtitle of a figure, from the specifications of its trials."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import polars as pl

from deferkit.study.trial import Outcome
from deferkit.study.trial_statistics import as_float, with_separators
from deferkit.worlds import WORLDS

FIELDS = {each.name: each for world in WORLDS.values() if is_dataclass(world) for each in fields(world)}
"""Parameters of all worlds; those that several worlds have mean the same in all of them."""


def parameter_columns(frame: pl.DataFrame) -> dict[str, str]:
    """Return the columns of trials that hold parameters of a world, by parameter.

    One that has the name of a result is called `world_…`, as in `deferkit.study.runner.table`.
    """
    columns = {name: f"world_{name}" if name in Outcome._fields else name for name in FIELDS}
    return {name: column for name, column in columns.items() if column in frame.columns}


def settings_text(frame: pl.DataFrame) -> str:
    """Return what all trials have in common: parameters of the world, budget and feedback.

    Args:
        frame: Trials, a row each.

    >>> both = {"horizon": 50_000, "regime": "random", "noise": 0.1, "asked_budget": "8000", "feedback": "full"}
    >>> settings_text(pl.DataFrame([both | {"n_features": 5}, both | {"n_features": 20}]))
    'random regime, T = 50,000, σ = 0.1, B = 8,000, full feedback'
    >>> without_path = pl.DataFrame({"at": [[]], "feedback": ["full"]}, schema_overrides={"at": pl.List(pl.Float64)})
    >>> settings_text(without_path)
    'full feedback'
    """
    texts = []
    for name, column in parameter_columns(frame).items():
        shown, value = FIELDS[name].metadata.get("shown"), common(frame, column)
        if shown and value is not None and not (isinstance(value, str) and value == FIELDS[name].default):
            texts.append(shown.format(value))
    if "horizon" not in frame.columns and "at" in frame.columns and (tasks := tasks_text(frame)):
        texts.append(f"T = {tasks}")
    budget, feedback = common(frame, "asked_budget"), common(frame, "feedback")
    texts += [] if budget is None else [f"B = {with_separators(budget)}" if budget != "inf" else "no limit"]
    return ", ".join([*texts, *([] if feedback is None else [f"{feedback} feedback"])])


def common(frame: pl.DataFrame, column: str) -> Any:
    """Return the value that a column has in all rows; None if there are several, or some are missing."""
    values = frame[column].unique().to_list() if column in frame.columns else []
    return values[0] if len(values) == 1 else None


def tasks_text(frame: pl.DataFrame) -> str:
    """Return the number of tasks, from trials with a path; "" if none has one."""
    counts = sorted(set(frame["at"].list.last().drop_nulls().to_list()))
    return " and ".join(f"{n:,.0f}" for n in counts)


def trials_text(frame: pl.DataFrame, variant: str = "policy") -> str:
    """Return how many trials each setting has.

    Args:
        frame: Trials, a row each.
        variant: The column that tells policies apart.

    >>> trials_text(pl.DataFrame({"policy": ["a", "a", "b"], "feedback": ["full"] * 3}))
    '1 to 2 trials'
    """
    settings = {"asked_budget", "feedback", *parameter_columns(frame).values()} & set(frame.columns)
    counts = frame.group_by(variant, *sorted(settings)).len()["len"]
    low, high = as_float(counts.min()), as_float(counts.max())
    return f"{high:.0f} trials" if low == high else f"{low:.0f} to {high:.0f} trials"


def runs_text(seeds: Sequence[int]) -> str:
    """Return whole numbers as text, those that follow each other as a range.

    >>> runs_text([0, 1, 2, 100]), runs_text([7])
    ('0 to 2, 100', '7')
    """
    parts: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if parts and parts[-1][1] == seed - 1:
            parts[-1][1] = seed
        else:
            parts.append([seed, seed])
    return ", ".join(f"{first} to {last}" if last > first else str(first) for first, last in parts)
