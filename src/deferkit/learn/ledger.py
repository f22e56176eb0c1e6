"""The arrays of a learner with Python around them: where a decision lies, what is known of it, growing room."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import AlreadySettled, UnknownDecision
from deferkit.learn import arrays
from deferkit.learn.account import OPEN
from deferkit.learn.arrays import (
    CAPACITY,
    COST_LINK,
    MEMORY,
    MEND,
    N_EXPERTS,
    NEXT_ID,
    OVERFLOW,
    REFIT,
    REFIT_LIMIT,
    REWARD_LINK,
    STRIDE,
    Floats,
    Ints,
)
from deferkit.learn.glm import REFIT_ALWAYS, REFIT_NEVER, mend
from deferkit.learn.lanes import N_LANES
from deferkit.learn.links import IDENTITY
from deferkit.types import is_number

FIRST_CAPACITY = 256
ROWS = ("context", "held", "reward", "cost", "route", "status")


class Ledger:
    """The state of a learner: its buffers, and the decisions that it remembers.

    The last `memory` decisions lie in a ring. An older one that still holds budget is moved behind the ring, so that
    nothing that is owed is ever forgotten; the room there grows as needed.
    """

    def __init__(self, head: Ints) -> None:
        self.floats, self.ints = arrays.allocate(head)
        self.samples: Floats = np.zeros(0)
        self.overflow: dict[int, int] = {}  # decision → its place behind the ring
        self._free: list[int] = []  # places behind the ring
        self._look()

    def _look(self) -> None:
        """Make the views that are used at every call."""
        self.reward: NDArray[Any] = self.view("reward")
        self.cost: NDArray[Any] = self.view("cost")
        self.route: NDArray[Any] = self.view("route")
        self.status: NDArray[Any] = self.view("status")
        self.new_reward: NDArray[Any] = self.view("new_reward")
        self.new_cost: NDArray[Any] = self.view("new_cost")
        self.next_solve: NDArray[Any] = self.view("next_solve")
        self.known: NDArray[Any] = self.view("known")
        self.known[:] = np.nan
        self.memory = int(self.ints[MEMORY])
        exact = self.ints[REWARD_LINK] == IDENTITY and self.ints[COST_LINK] == IDENTITY
        self.refits = bool(not exact and self.ints[REFIT] != REFIT_NEVER)

    def view(self, name: str) -> NDArray[Any]:
        """Return the array of this name; it shares memory with the state."""
        return arrays.view(self.floats, self.ints, name)

    @property
    def next_id(self) -> int:
        """The id of the next decision."""
        return self.ints.item(NEXT_ID)

    def slot(self, decision: object) -> int:
        """Return where a decision lies, or raise."""
        following = self.ints.item(NEXT_ID)
        if type(decision) is int and max(0, following - self.memory) <= decision < following:
            return decision % self.memory
        if not is_number(decision) or not 0 <= decision < following or decision % 1:  # type: ignore[operator]
            known = f"0 to {following - 1}" if following else "none yet"
            raise UnknownDecision(f"There is no decision {decision!r}. There are: {known}.")
        number = int(decision)  # type: ignore[call-overload]
        if number >= following - self.memory:
            return number % self.memory
        if number in self.overflow:
            return self.overflow[number]
        raise AlreadySettled(
            f"Decision {number} is already settled; only the last {self.memory:,} decisions"
            " and those that hold budget are remembered."
        )

    def in_the_way(self) -> bool:
        """Whether the next decision would take the place of one that holds budget."""
        first = self.ints.item(NEXT_ID) - self.memory
        return first >= 0 and self.status.item(first % self.memory) == OPEN

    def make_room(self, n: int) -> None:
        """Move decisions that hold budget out of the way of the next n, which take their place in the ring."""
        first = self.ints.item(NEXT_ID) - self.memory
        if n == 1 and not self.in_the_way():
            return
        decisions = np.arange(max(first, 0), max(first + n, 0))
        for decision in decisions[self.status[decisions % self.memory] == OPEN].tolist():
            if decision not in self.overflow:
                self._move(decision, decision % self.memory)

    def _move(self, decision: int, slot: int) -> None:
        if not self._free:
            self._grow()
        place = self._free.pop()
        for name in ROWS:
            rows = self.view(name)
            rows[place] = rows[slot]
        self.overflow[decision] = place

    def _grow(self) -> None:
        """Double the room behind the ring."""
        head = self.ints[: arrays.HEAD].copy()
        head[OVERFLOW] = max(16, 2 * head[OVERFLOW])
        before = {name: self.view(name).copy() for name in arrays.NAMES}
        settings = self.floats[: arrays.N_SETTING].copy()
        self.floats, self.ints = arrays.allocate(head)
        self.floats[: arrays.N_SETTING] = settings
        for name, array in before.items():
            self.view(name)[tuple(slice(0, n) for n in array.shape)] = array
        self._look()
        self._find_free()

    def _find_free(self) -> None:
        """List the free places behind the ring, the first one last, so that it is taken first."""
        taken = set(self.overflow.values())
        room = range(self.memory, self.memory + int(self.ints[OVERFLOW]))
        self._free = [place for place in reversed(room) if place not in taken]

    def forget_if_done(self, decision: int, slot: int) -> None:
        """Give back the room of a decision behind the ring that no longer holds budget."""
        if slot >= self.memory and self.status[slot] != OPEN:
            del self.overflow[decision]
            self._find_free()

    def room_for_samples(self, n: int) -> None:
        """Make room for n more samples of each estimate whose link is refitted."""
        ints = self.ints
        if not self.refits:
            return
        rewards, costs = ints[REWARD_LINK] != IDENTITY, ints[COST_LINK] != IDENTITY
        deciders = int(ints[N_EXPERTS]) + 1
        first = 0 if rewards else deciders
        last = len(self.view("n_observed")) if costs else deciders
        most = int(self.view("n_observed")[first:last].max())
        if ints[REFIT] != REFIT_ALWAYS and self.view("n_observed")[first:last].min() >= ints[REFIT_LIMIT]:
            self.samples = np.zeros(0)  # the last refit is done
            ints[CAPACITY] = 0
            return
        need = min(most + n, int(ints[REFIT_LIMIT]))
        before = int(ints[CAPACITY])
        if need > before:
            capacity = max(FIRST_CAPACITY, need, min(2 * before, int(ints[REFIT_LIMIT])))
            stride = int(ints[STRIDE]) + N_LANES
            samples = arrays.aligned((last - first) * capacity * stride)
            grown = samples.reshape(last - first, capacity, stride)
            grown[:, :before] = self.samples.reshape(last - first, before, stride)
            self.samples = samples
            ints[CAPACITY] = capacity

    def left(self) -> Floats:
        """Return the budgets that are neither spent nor reserved."""
        with np.errstate(invalid="ignore"):
            return np.maximum(self.view("total") - self.view("spent") - self.view("reserved"), 0.0)

    def mend_if_due(self) -> None:
        """Refactor and refit what the last step said is due."""
        if self.ints.item(MEND):
            mend(self.floats, self.ints, self.samples)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return all arrays that decide, for saving and for comparing; spare room for samples is left out."""
        ints = self.ints.copy()
        capacity = int(ints[CAPACITY])
        samples = self.samples
        if capacity:
            stride = int(ints[STRIDE]) + N_LANES
            first = 0 if ints[REWARD_LINK] != IDENTITY else int(ints[N_EXPERTS]) + 1
            rows = self.samples.reshape(-1, capacity, stride)
            used = int(self.view("n_observed")[first : first + len(rows)].max())
            ints[CAPACITY] = min(used, capacity)
            samples = rows[:, : int(ints[CAPACITY])].reshape(-1)
        return {
            "floats": self.floats[: arrays.state_length(self.ints)],
            "ints": ints,
            "samples": samples,
            "overflow": np.array(sorted(self.overflow.items()), dtype=np.int64).reshape(-1, 2),
        }

    @classmethod
    def from_state(cls, saved: dict[str, NDArray[Any]]) -> "Ledger":
        """Return the ledger that `state` was asked for."""
        ledger = cls(saved["ints"][: arrays.HEAD].astype(np.int64))
        ledger.floats[: len(saved["floats"])] = saved["floats"]
        ledger.ints[:] = saved["ints"]
        ledger.samples = arrays.aligned(len(saved["samples"]))
        ledger.samples[:] = saved["samples"]
        ledger.overflow = {int(decision): int(place) for decision, place in saved["overflow"]}
        ledger._find_free()
        return ledger
