"""A team's past reviews in a table: what they are, and a learner that starts from them."""

import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import polars as pl

from deferkit.errors import ConfidenceWarning, DeferkitError, InvalidArgument, expected
from deferkit.learn.encode import is_missing
from deferkit.learn.settings import DEFAULT_RULE, NOVEMBER_2026
from deferkit.tables.rows import NONE, Names, Rows, find_confidence, read_rows
from deferkit.tables.sheet import Sheet, with_missing
from deferkit.types import Budget

if TYPE_CHECKING:
    from deferkit.learn.deferrer import Deferrer

Kind = TypeVar("Kind", bound="Deferrer")

TABLE = "The table"  # what a table that is no file is called in messages
OPTION = re.compile(r"--(?P<name>[a-z][a-z-]*)(?P<value> (?:none|auto|inf)\b| (?='))?")  # of the command line


def reviews_of(past: Rows) -> str:
    """Return a remark on the number of past reviews of each decider."""
    n = len(past.costs)
    model, human = (int((~np.isnan(past.rewards[:, place])).sum()) for place in (0, 1))
    costs = int((~np.isnan(past.costs)).sum())
    return (
        f"Warm start from {past.path}: {human:,} past reviews of the human ({costs:,} with their cost) and {model:,}"
        f" rewards of the model, from {n:,} tasks."
    )


def sheet_of(table: Any) -> Sheet:
    """Return the cells of a file, a pandas or polars frame, or columns by name."""
    if isinstance(table, str | os.PathLike):
        return Sheet.from_file(os.fspath(table))
    if isinstance(table, pl.LazyFrame):
        table = table.collect()
    if not isinstance(table, pl.DataFrame) and "pandas" not in type(table).__module__:
        table = pl.DataFrame(table) if hasattr(table, "__arrow_c_stream__") else table  # of Arrow, DuckDB and others
    if isinstance(table, pl.DataFrame):
        frame = table
    elif isinstance(table, Mapping) or hasattr(table, "columns"):
        try:
            names = list(table.columns if hasattr(table, "columns") else table)
            frame = pl.DataFrame({str(name): pl.Series(str(name), cells_of(table[name])) for name in names})
        except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
            raise InvalidArgument(f"{TABLE} cannot be read: {str(error).partition(chr(10))[0].rstrip('.')}.") from error
    else:
        what = "a path, a pandas or polars frame, an Arrow table, or columns by name"
        raise expected("table", "Deferrer.from_table", what, type(table).__name__)
    if not frame.width or not frame.height:
        raise InvalidArgument(f"{TABLE} has no rows.")
    return Sheet(TABLE, with_missing(frame), pl.Series("row", range(1, frame.height + 1)))


@contextmanager
def named_file(table: Any, columns: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any], Callable[[str], str]]]:
    """Yield the name of a world, its parameters, and what turns sentences about options into ones about arguments.

    A frame becomes a file for as long as its trials run, so that other processes can read it too.

    Args:
        table: A frame, columns by name, a path, or the name of a simulated world.
        columns: The parameters; a list of columns is a text with commas.
    """
    given = {name: value for name, value in columns.items() if value is not None}
    given |= {name: ",".join(value) for name, value in given.items() if isinstance(value, list | tuple)}
    with TemporaryDirectory(prefix="deferkit-") as folder:
        path = Path(folder) / "table.parquet"
        if not isinstance(table, str | os.PathLike):
            sheet_of(table).frame.write_parquet(path)

        def as_said(text: str) -> str:
            return OPTION.sub(as_argument, text.replace(str(path), TABLE))

        try:
            yield (os.fspath(table) if isinstance(table, str | os.PathLike) else str(path)), given, as_said
        except DeferkitError as error:
            raise type(error)(as_said(str(error))) from error


def as_argument(option: re.Match[str]) -> str:
    """Return the argument that an option of the command line has in Python.

    >>> [OPTION.sub(as_argument, text) for text in ("--confidence none to", "--context 'age'", "with --model-reward.")]
    ["confidence='none' to", "context='age'", 'with model_reward=….']
    """
    name, value = option["name"].replace("-", "_"), option["value"]
    return f"{name}={'…' if value is None else value.strip() and repr(value.strip())}"


def frame_like(table: Any, frame: pl.DataFrame) -> Any:
    """Return a frame of pandas if the table is one, else one of polars."""
    kind = type(table).__module__.partition(".")[0]
    return sys.modules[kind].DataFrame(frame.to_dict(as_series=False)) if kind == "pandas" else frame


def cells_of(column: Any) -> list[Any]:
    """Return a column as a list, with None for what is missing: pandas has NaN among its texts."""
    cells = column.tolist() if hasattr(column, "tolist") else list(column)
    return [None if is_missing(cell) else cell for cell in cells]


def learner_from_table(
    kind: type[Kind],
    table: Any,
    columns: tuple[str, str, str, str],
    *,
    confidence: str | None,
    budget: Budget | Mapping[str, Budget] | None,
    expert: str | None,
    settings: Mapping[str, Any],
) -> Kind:
    """Return a learner whose encoder is settled on a table of past tasks, and that has learned from them.

    Args:
        kind: The class of the learner.
        table: A path, a frame, or columns by name.
        columns: Which ones are meant: of the context, the model's reward, the expert's reward, the cost.
        confidence: The column of the model's confidence, "none", or None to find it.
        budget: Of the learner, for the tasks to come.
        expert: Who reviewed; by default the first expert.
        settings: Other arguments of the learner.
    """
    if isinstance(budget, Mapping) and len(budget) > 1:
        raise InvalidArgument(f"A table has one column of costs. Got a budget of {len(budget)} resources.")
    for name in ("encoder", "n_features"):
        if name in settings:
            raise InvalidArgument(f"The {name!r} of Deferrer.from_table comes from the table and cannot be given.")
    for name, column in zip(("context", "model_reward", "human_reward", "cost"), columns, strict=True):
        if not isinstance(column, str) or not column:
            raise expected(name, "Deferrer.from_table", "a name of a column", column)
    if confidence is not None and (not isinstance(confidence, str) or not confidence):
        raise expected("confidence", "Deferrer.from_table", "a name of a column, 'none' or None", confidence)
    names = Names(*columns, confidence=confidence)
    past = read_rows(sheet_of(table), names, past=True)
    for name, what in past.reader.kinds.items():
        if what == "dates":
            raise InvalidArgument(
                f"The column {name!r} of {past.path} holds dates, and a Deferrer takes numbers and texts: name the"
                " other columns with context=…, or put in numbers such as the hour."
            )
    features, encoder = past.contexts.by_name, past.contexts.encoder()
    known = past.rewards[~np.isnan(past.rewards)]
    within = len(known) == 0 or (known.min() >= 0 and known.max() <= 1)
    given: dict[str, Any] = {
        "link": "auto" if past.binary else "identity",
        "reward_range": (0.0, 1.0) if within else (-np.inf, np.inf),
        "defaults": DEFAULT_RULE,
    } | dict(settings)
    has_prior = given["defaults"] != NOVEMBER_2026 and np.isfinite(given["reward_range"]).all()
    if has_prior and given.get("embedding") is None and "exploration" not in given:
        found = find_confidence(names, past.contexts.numbers, past)
        given["confidence"] = found.column
        if found.remark:
            said = found.remark.replace("--confidence none", "confidence='none'").replace("--confidence", "confidence=")
            warnings.warn(said, ConfidenceWarning, stacklevel=3)
    elif confidence not in (None, NONE):
        needed = "None, unless the learner has the new defaults, a finite reward_range and no embedding"
        raise expected("confidence", "Deferrer.from_table", needed, confidence)
    learner = kind(encoder=encoder, budget=budget, **given)
    who = learner.settings.experts[0] if expert is None else expert
    rewards = {"model": past.rewards[:, 0], who: past.rewards[:, 1]}
    learner.warm_start(features, rewards, expert=who, cost=past.costs)
    return learner
