"""A local `Deferrer` that knows tasks by your own ids, kept in a file.

The same task again gets the same route, also after a crash. A `Client` of the service does this over HTTP.
"""

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from deferkit.errors import InvalidArgument, UnknownDecision, UnreadableState
from deferkit.learn import state
from deferkit.learn.deferrer import Deferrer
from deferkit.types import Amount

MAGIC = b"deferkit-tasks\n"


class TaskRoute(NamedTuple):
    """Who decides a task.

    Attributes:
        id: The number of the decision.
        route: "model", or the name of the expert to ask.
    """

    id: int
    route: str


class TaskDeferrer:
    """Decides tasks by your own ids with a local `Deferrer`.

    Everything is written to one file before `decide` and `observe` return, so that a program that crashes and starts
    again goes on where it was. The routes of the last `memory` tasks of the learner are kept. One process at a time
    may use the file; any number of its threads may.

    Args:
        path: The file. If it exists, the learner in it goes on, and `deferrer` is not used.
        deferrer: The learner to begin with; None (default) if the file exists.

    Raises:
        InvalidArgument: If there is neither a file nor a learner.
        UnreadableState: If the file is not one of this class.

    >>> import tempfile
    >>> from deferkit import Budget, Deferrer
    >>> path = Path(tempfile.mkdtemp()) / "approvals.deferkit"
    >>> tasks = TaskDeferrer(path, Deferrer(n_features=1, budget=Budget(5, horizon=100, max_cost=1)))
    >>> route = tasks.decide([1.0], task="mail-1")
    >>> TaskDeferrer(path).decide([1.0], task="mail-1") == route
    True
    """

    def __init__(self, path: str | os.PathLike[str], deferrer: Deferrer | None = None) -> None:
        self.path = Path(path)
        self._tasks: dict[str, TaskRoute] = {}
        self._turn = threading.Lock()
        if self.path.exists():
            self._tasks, self.deferrer = read_tasks(self.path)
        elif deferrer is not None:
            self.deferrer = deferrer
        else:
            raise InvalidArgument(f"There is no file {self.path}: give a Deferrer to begin with.")

    def decide(self, context: Any, *, task: str) -> TaskRoute:
        """Decide who decides a task; the same task again gets the same route, whatever its context is then.

        Args:
            context: A vector of numbers, or named features with an encoder.
            task: Your own id of the task.

        Raises:
            InvalidArgument: If the context is invalid.
        """
        with self._turn:
            if task not in self._tasks:
                decision = self.deferrer.decide(context)
                self._tasks[task] = TaskRoute(decision.id, decision.route)
                for old in list(self._tasks)[: -self.deferrer.settings.memory]:
                    del self._tasks[old]
                self._save()
            return self._tasks[task]

    def observe(self, task: str, rewards: Mapping[str, float] | None = None, cost: Amount | None = None) -> None:
        """Learn rewards and book the cost of a task; the same observation again changes nothing.

        Args:
            task: Your own id of the task.
            rewards: Rewards by decider; None (default) for none.
            cost: What asking has cost, in the unit of the budget; None (default) if it is not known.

        Raises:
            UnknownDecision: If there is no such task, or it is too old.
            ConflictingObservation: If a value differs from the one observed before.
        """
        with self._turn:
            if task not in self._tasks:
                raise UnknownDecision(f"There is no task {task!r}, or it is too old.")
            self.deferrer.observe(self._tasks[task].id, rewards, cost)
            self._save()

    def _save(self) -> None:
        tasks = json.dumps({task: [each.id, each.route] for task, each in self._tasks.items()})
        state.write(self.path, MAGIC + tasks.encode() + b"\n" + self.deferrer.to_bytes())


def read_tasks(path: Path) -> tuple[dict[str, TaskRoute], Deferrer]:
    """Return the tasks and the learner of a file.

    Args:
        path: A file that a `TaskDeferrer` has written.

    Raises:
        UnreadableState: If it is another file, or damaged.
    """
    data = state.read_file(path)
    if not data.startswith(MAGIC):
        raise UnreadableState(f"{path} is not a file of tasks: it does not start with {MAGIC.decode().strip()!r}.")
    line, _, learner = data[len(MAGIC) :].partition(b"\n")
    try:
        tasks = {str(task): TaskRoute(int(number), str(route)) for task, (number, route) in json.loads(line).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise UnreadableState(f"{path} has a damaged list of tasks ({error}).") from error
    return tasks, Deferrer.from_bytes(learner, str(path))
