"""Tasks from a file: a row each, with context, rewards of the model and the human, and the cost of the human."""

import functools
from dataclasses import dataclass

import numpy as np

from deferkit.errors import InvalidArgument
from deferkit.tables.columns import ContextColumns
from deferkit.tables.history import reviews_of
from deferkit.tables.rows import Names, Rows, find_confidence, read_rows
from deferkit.tables.sheet import Sheet, digest_of_table
from deferkit.types import Constraint
from deferkit.worlds.base import BaseWorld, Floats, PastTasks, TaskStream, Unshuffled, option

ORDERS = ("shuffled", "file")


@functools.lru_cache(maxsize=1)  # all policies and trials of a run are on the same table
def read_tasks(path: str, names: Names, after: str | None, _digests: tuple[str | None, str | None]) -> TaskStream:
    """Return the tasks of a file, by time if there is a column for it, and of one with past tasks.

    The digests are of what is in the two files: with other content they are read again.
    """
    past = None if after is None else read_rows(Sheet.from_file(after), names, past=True)
    return tasks_of(Sheet.from_file(path), names, past)


def tasks_of(sheet: Sheet, names: Names, past: Rows | None = None) -> TaskStream:
    """Return the tasks that the cells of a table stand for in the order of the file, and past ones."""
    rows = read_rows(sheet, names, like=past)
    found = find_confidence(names, rows.contexts.numbers, past)
    x, old, elements = encode(rows.contexts, None if past is None else past.contexts)
    rewards, costs = rows.rewards, rows.costs
    times = rows.times
    at = elements.index(found.column) if found.column in elements else None
    confidence = None if found.column is None else rows.contexts.numbers[found.column]
    if times is not None:
        order = np.argsort(times, kind="stable")  # rows of the same moment as in the file
        x, rewards, costs, times = x[order], rewards[order], costs[order], times[order]
        confidence = None if confidence is None else confidence[order]
    binary = rows.binary and (past is None or past.binary)
    remarks = [*rows.remarks, *([found.remark] if found.remark else []), *odd(x, rewards)]
    if past is not None:
        remarks += [reviews_of(past), *(said for said in past.remarks if said not in remarks)]
    return TaskStream(
        contexts=x,
        rewards=rewards,
        costs=costs[:, None, None],
        link="logistic" if binary else "identity",
        remark="\n".join(remarks),
        past=None if past is None else PastTasks(old, past.rewards, past.costs),
        times=times,
        confidence=None if confidence is None or np.isnan(confidence).any() else confidence,
        confidence_at=at,
    )


def encode(columns: ContextColumns, past: ContextColumns | None = None) -> tuple[Floats, Floats, list[str]]:
    """Return the vectors of contexts, and of past ones, and the names of their elements.

    The past rows alone settle the scales: no outcome is looked at.

    Without a past all rows of the file do. A column of the vectors that is 0 in all rows teaches nothing and is left
    out (such as "missing" where nothing is).
    """
    first = columns if past is None else past
    encoder = first.encoder()
    encoder.see_columns(first.by_name)
    x = encoder.encode_columns(columns.by_name)
    old = x[:0] if past is None else encoder.encode_columns(past.by_name)
    used = np.asarray(x.any(axis=0) | old.any(axis=0))
    names = [name for name, is_used in zip(encoder.names, used, strict=True) if is_used]
    if used.all():
        return x, old, names
    return np.ascontiguousarray(x[:, used]), np.ascontiguousarray(old[:, used]), names


def odd(x: Floats, rewards: Floats) -> list[str]:
    """Return remarks on contexts that are all equal, and on a human who is never better."""
    remarks = []
    if (x == x[0]).all():
        remarks.append("All contexts are equal: there is nothing to tell one task from another.")
    lost = np.isnan(rewards[:, 1])
    if not lost.any() and (rewards[:, 1] <= rewards[:, 0]).all():
        remarks.append(
            "The human earns more than the model in no task: OPT is ModelOnly, and there is no gain to measure."
        )
    return remarks


COLUMN = Constraint("a name of a column", lambda value: isinstance(value, str) and value != "")
COLUMN_OR_NONE = Constraint("a name of a column or None", lambda value: value is None or COLUMN.holds(value))


@dataclass(frozen=True, kw_only=True)
class Table(BaseWorld):
    r"""A world over a CSV (also .csv.gz), Parquet or Excel (.xlsx) file, in a new order for each seed.

    `context` is a name, a glob or several of them with commas between. Where the human's reward or the cost is
    missing, the human was never asked: the stream has NaN there. Rewards that are all 0 or 1 have a logistic link.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "tasks.csv"
    ...     _ = path.write_text("x_size,model_reward,human_reward,cost\n3,1,1,2\n9,0,1,4\n5,1,0,3\n")
    ...     stream = Table(path=str(path), order="file").draw(seed=0)
    >>> stream.contexts.shape, stream.rewards[:, 1].tolist(), stream.costs[:, 0, 0].tolist(), stream.link
    ((3, 2), [1.0, 1.0, 0.0], [2.0, 4.0, 3.0], 'logistic')
    """

    path: str
    context: str = option("x_*", "Columns of the context: names or globs, with commas between", valid=COLUMN)
    model_reward: str = option("model_reward", "Column of the model's rewards", valid=COLUMN)
    human_reward: str = option("human_reward", "Column of the human's rewards", valid=COLUMN)
    cost: str = option("cost", "Column of the human's costs", valid=COLUMN)
    order: str = option("shuffled", "Rows in a new order for each seed, or as they are in the file", choices=ORDERS)
    time: str | None = option(None, "Column of dates or numbers that rows are sorted by", valid=COLUMN_OR_NONE)
    """They come in this order for every seed (`order` is "file")."""
    confidence: str | None = option(
        None,
        "Column of the model's confidence in its own answer, or none; by default it is detected",
        valid=COLUMN_OR_NONE,
    )
    digest: str | None = None
    """Of the file's content; filled in, and if it is given, the file must still have it."""
    after: str | None = None
    """A file of past tasks with the same columns, for a warm start; rewards and cost may be missing there."""
    after_digest: str | None = None
    """The same of its content."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", str(self.path))
        super().__post_init__()
        if self.time is not None:
            object.__setattr__(self, "order", "file")
        if self.after is not None:
            object.__setattr__(self, "after", str(self.after))
        for name, path in (("digest", self.path), ("after_digest", self.after)):
            now = None if path is None else digest_of_table(path)
            if getattr(self, name) not in (None, now):
                raise InvalidArgument(f"{path} has changed since this was asked for.")
            object.__setattr__(self, name, now)
        self._tasks()  # raises now if the file cannot be read

    def _tasks(self) -> TaskStream:
        names = Names(self.context, self.model_reward, self.human_reward, self.cost, self.time, self.confidence)
        return read_tasks(self.path, names, self.after, (self.digest, self.after_digest))

    def draw(self, seed: int) -> TaskStream:
        """Return the stream of this seed."""
        self.check_seed(seed)
        tasks = self._tasks()
        if self.order == "file":
            return tasks
        order = np.random.default_rng(seed).permutation(tasks.n_tasks)
        x, rewards, costs = (each[order] for each in tasks[:3])
        confidence = None if tasks.confidence is None else tasks.confidence[order]
        return tasks._replace(
            contexts=x,
            rewards=rewards,
            costs=costs,
            confidence=confidence,
            unshuffled=Unshuffled(*tasks[:3], order),
        )
