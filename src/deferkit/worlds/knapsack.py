"""The knapsack tasks of Section 5.2: RatioMax4, or a person who takes time?"""

import functools
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deferkit.errors import InvalidArgument
from deferkit.tables.sheet import digest_of
from deferkit.types import Constraint
from deferkit.worlds.base import HISTORIES, HISTORY_HELP, BaseWorld, Running, TaskStream, leaky, option, unit_ball
from deferkit.worlds.knapsack_data import read_people, simulate
from deferkit.worlds.knapsack_instances import Floats, People, features, reward

TEXT = Constraint("a text", lambda value: isinstance(value, str))


@dataclass(frozen=True, kw_only=True)
class Knapsack(BaseWorld):
    """The world of the knapsacks: people one after another, each with ten of them; a seed shuffles the people.

    The reward of a decider is 0.1 / (1.1 − V/V_max), the cost is the person's time in units of its mean.

    >>> stream = Knapsack().draw(seed=0)
    >>> stream.contexts.shape, stream.remark
    ((3960, 53), 'simulated people')
    """

    people: str = option("", "A CSV file of people as docs/data.md describes it, instead of simulated ones", valid=TEXT)
    digest: str = ""
    """The SHA-256 of that file, filled in by itself: results belong to what a file holds, not to its name."""
    history: str = option("observed", HISTORY_HELP, choices=HISTORIES)
    """"leaky" is the paper's: how a person did so far, whether anybody asked or not."""

    def __post_init__(self) -> None:
        if isinstance(self.people, Path):
            object.__setattr__(self, "people", str(self.people))
        TEXT.check("digest", "Knapsack", self.digest)
        super().__post_init__()
        try:
            found = digest_of([Path(self.people)]) if self.people else ""
        except OSError as error:
            raise InvalidArgument(f"The file {self.people!r} of people cannot be read: {error.strerror}.") from error
        if self.digest not in ("", found):
            raise InvalidArgument(
                f"The file {self.people!r} has changed: its digest is no longer {self.digest}."
                if self.people
                else "The 'digest' of a Knapsack is that of its file of people; none is given."
            )
        object.__setattr__(self, "digest", found)

    def draw(self, seed: int) -> TaskStream:
        """Return the stream of this seed: the same answers, the people in another order."""
        self.check_seed(seed)
        people, contexts, rewards = _data(self.people, self.digest)
        rows = people.shuffle_people(np.random.default_rng(seed))
        costs = people.costs[rows]
        # The two columns of the history come last and are 0 until a policy fills them in. Rewards reach 1 and costs
        # the largest one, so that with this scale the context stays in the unit ball.
        d = contexts.shape[1]
        scale = math.sqrt(2 / d) / math.hypot(1.0, people.costs.max())
        running = Running(people.person[rows], d - 2, d - 1, scale)
        leaks = self.history == "leaky"
        x = contexts[rows]
        return TaskStream(
            contexts=leaky(x, running, rewards[rows, 1], costs) if leaks else x,
            rewards=rewards[rows],
            costs=costs[:, None, None],
            running=None if leaks else running,
            remark="simulated people" if people.simulated else "",
        )


@functools.lru_cache(maxsize=4)
def _data(path: str, _digest: str) -> tuple[People, Floats, Floats]:
    """Return the people, the contexts and the rewards [n, 2] of the data set, in the order of the data set."""
    people = read_people(path) if path else simulate()
    contexts = unit_ball(np.hstack([features(people.instances), np.zeros((len(people.person), 2))]))
    return people, contexts, np.column_stack([reward(people.model), reward(people.performance)])
