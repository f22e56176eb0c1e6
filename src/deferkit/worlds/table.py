"""Your own tasks: a row for each, with its context, what the model and the human earned and what the human cost."""

import functools
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from deferkit.errors import InvalidArgument, expected
from deferkit.learn.encode import Encoder
from deferkit.types import is_whole
from deferkit.worlds.columns import ContextReader, Contexts, check_columns, named, order_of, outcome, pick
from deferkit.worlds.notes import Notes
from deferkit.worlds.numerals import Numerals
from deferkit.worlds.sheet import Sheet, digest_of_table
from deferkit.worlds.stream import Floats, Stream

ORDERS = ("shuffled", "file")


class Tasks(NamedTuple):
    """The rows of a table in the file's order, ready to be streamed."""

    contexts: Floats  # [n, d]
    rewards: Floats  # [n, 2]
    costs: Floats  # [n, 1, 1]
    link: str
    remark: str  # a line for each thing that has to be said


@functools.lru_cache(maxsize=1)  # all policies and trials of a run are on the same table
def read(
    path: str, _digest: str, context: str, model_reward: str, human_reward: str, cost: str, time: str | None
) -> Tasks:
    """Return the tasks of a file whose content has this digest, by time if there is a column for it."""
    sheet = Sheet.from_file(path)
    needed = {"model's reward": model_reward, "human's reward": human_reward, "cost": cost}
    check_columns(sheet, needed if time is None else {**needed, "time": time})
    outcomes = (model_reward, human_reward, cost)
    if len(set(outcomes)) < len(outcomes):
        raise InvalidArgument(f"Rewards and cost must be three columns. Got {', '.join(outcomes)} instead.")
    if time in outcomes:
        raise InvalidArgument(f"The column {time!r} of {path} is an outcome and cannot be the time too.")
    picked = pick(sheet, context, outcomes)
    numerals, notes = Numerals(sheet), Notes()
    model = outcome(numerals, notes, model_reward, optional=False)
    human = outcome(numerals, notes, human_reward, optional=True)
    costs = outcome(numerals, notes, cost, optional=True, cost=True)
    if np.isnan(human + costs).all():
        raise InvalidArgument(f"No row of {path} has both a {human_reward} and a {cost}: nobody was ever asked.")
    x = encoded(ContextReader(numerals, notes).read(picked, named(sheet, context)))
    rewards = np.column_stack([model, human])
    if time is not None:
        order = order_of(numerals, notes, time)
        x, rewards, costs = x[order], rewards[order], costs[order]
    binary = bool((np.isin(rewards, (0.0, 1.0)) | np.isnan(rewards)).all())
    remarks = [*sheet.remarks, *notes.lines(), *odd(x, rewards)]
    return Tasks(x, rewards, costs[:, None, None], "logistic" if binary else "identity", "\n".join(remarks))


def encoded(columns: Contexts) -> Floats:
    """Return the vectors of contexts, scaled by all rows of the file: no outcome is looked at.

    A column of the vectors that is 0 in all rows teaches nothing and is left out (such as "missing" where nothing is).
    """
    encoder = Encoder(numbers=list(columns.numbers), categories=columns.levels)
    together: dict[str, Any] = {**columns.numbers, **columns.categories}
    encoder.see_columns(together)
    x = encoder.encode_columns(together)
    used = x.any(axis=0)
    return x if used.all() else np.ascontiguousarray(x[:, used])


def odd(x: Floats, rewards: Floats) -> list[str]:
    """Say what is odd about tasks."""
    remarks = []
    if (x == x[0]).all():
        remarks.append("All contexts are equal: there is nothing to tell one task from another.")
    lost = np.isnan(rewards[:, 1])
    if not lost.any() and (rewards[:, 1] <= rewards[:, 0]).all():
        remarks.append(
            "The human earns more than the model in no task: OPT is ModelOnly, and there is no gain to measure."
        )
    return remarks


@dataclass(frozen=True, kw_only=True)
class Table:
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
    context: str = "x_*"
    model_reward: str = "model_reward"
    human_reward: str = "human_reward"
    cost: str = "cost"
    order: str = "shuffled"
    """"shuffled": rows in a new order for each seed. "file": as they are, for every seed."""
    time: str | None = None
    """A column of dates or numbers: rows are sorted by it and come in this order for every seed (`order` is "file")."""
    digest: str | None = None
    """Of the file's content; filled in, and if it is given, the file must still have it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", str(self.path))
        for name in ("context", "model_reward", "human_reward", "cost"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise expected(name, "Table", "a name of a column", getattr(self, name))
        if self.order not in ORDERS:
            raise expected("order", "Table", "one of " + ", ".join(map(repr, ORDERS)), self.order)
        if self.time is not None:
            if not isinstance(self.time, str) or not self.time:
                raise expected("time", "Table", "a name of a column or None", self.time)
            object.__setattr__(self, "order", "file")
        now = digest_of_table(self.path)
        if self.digest not in (None, now):
            raise InvalidArgument(f"{self.path} has changed since this was asked for.")
        object.__setattr__(self, "digest", now)
        self._tasks()  # what is wrong with the file shall be told now

    def _tasks(self) -> Tasks:
        outcomes = self.model_reward, self.human_reward, self.cost
        return read(self.path, str(self.digest), self.context, *outcomes, self.time)

    def parameters(self) -> dict[str, Any]:
        """Return all that the world was made with, and what the file holds, as plain data."""
        return asdict(self)

    def draw(self, seed: int) -> Stream:
        """Return the stream of this seed."""
        if not is_whole(seed, 0):
            raise expected("seed", "Table", "a whole number of at least 0", seed)
        tasks = self._tasks()
        x, rewards, costs = tasks.contexts, tasks.rewards, tasks.costs
        if self.order == "shuffled":
            order = np.random.default_rng(seed).permutation(len(x))
            x, rewards, costs = x[order], rewards[order], costs[order]
        return Stream(contexts=x, rewards=rewards, costs=costs, link=tasks.link, remark=tasks.remark)
