"""The rows of a table as they stand in its columns: contexts and outcomes, not yet encoded."""

from typing import NamedTuple

import numpy as np

from deferkit.errors import InvalidArgument
from deferkit.worlds.columns import check_columns, named, outcome, pick, times_of
from deferkit.worlds.context_columns import ContextColumns, ContextReader
from deferkit.worlds.notes import Notes
from deferkit.worlds.numerals import Numerals
from deferkit.worlds.sheet import Sheet
from deferkit.worlds.task_stream import Floats


class Names(NamedTuple):
    """Which columns of a table are meant."""

    context: str  # a name, a glob or several of them with commas between
    model_reward: str
    human_reward: str
    cost: str
    time: str | None = None


class Rows(NamedTuple):
    """Tasks, a row for each; NaN where an outcome is not known."""

    path: str
    contexts: ContextColumns
    rewards: Floats  # [n, 2]
    costs: Floats  # [n]
    times: Floats | None  # [n] where there is a column for them
    remarks: list[str]
    reader: ContextReader

    @property
    def binary(self) -> bool:
        """Whether all rewards that are known are 0 or 1."""
        return bool((np.isin(self.rewards, (0.0, 1.0)) | np.isnan(self.rewards)).all())


def read_rows(sheet: Sheet, names: Names, *, like: Rows | None = None, past: bool = False) -> Rows:
    """Return the rows of a table.

    Args:
        sheet: Its cells.
        names: Its columns.
        like: Rows of another table with the same context columns; they say what each column is.
        past: Whether these are tasks of the past, where the model's reward may be missing too, and nobody may have
            been asked.

    Raises:
        InvalidArgument: if a column or a cell is not what it must be, or differs from the table to be like.
    """
    needed = {"model's reward": names.model_reward, "human's reward": names.human_reward, "cost": names.cost}
    check_columns(sheet, needed if names.time is None else {**needed, "time": names.time})
    outcomes = (names.model_reward, names.human_reward, names.cost)
    if len(set(outcomes)) < len(outcomes):
        raise InvalidArgument(f"Rewards and cost must be three columns. Got {', '.join(outcomes)} instead.")
    if names.time in outcomes:
        raise InvalidArgument(f"The column {names.time!r} of {sheet.path} is an outcome and cannot be the time too.")
    picked = pick(sheet, names.context, outcomes)
    numerals, notes = Numerals(sheet), Notes()
    model = outcome(numerals, notes, names.model_reward, optional=past)
    human = outcome(numerals, notes, names.human_reward, optional=True)
    costs = outcome(numerals, notes, names.cost, optional=True, cost=True)
    if not past and np.isnan(human + costs).all():
        raise InvalidArgument(
            f"No row of {sheet.path} has both a {names.human_reward} and a {names.cost}: nobody was ever asked."
        )
    reader = ContextReader(numerals, notes, None if like is None else like.reader)
    contexts = reader.read(picked, named(sheet, names.context))
    times = None if names.time is None else times_of(numerals, notes, names.time)
    rewards = np.column_stack([model, human])
    return Rows(sheet.path, contexts, rewards, costs, times, [*sheet.remarks, *notes.lines()], reader)
