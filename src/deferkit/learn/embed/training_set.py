"""What a representation is retrained on: the tasks of the past and what has become known of them."""

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.consistency import check_finite, check_shapes, count_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Singles = NDArray[np.float32]  # what networks are trained in

FIRST_ROOM = 256


class TrainingSet:
    """Tasks in the order in which they came: decided ones, and labelled ones that a warm start brought.

    >>> training_set = TrainingSet(n_features=1, n_deciders=2, n_resources=1)
    >>> training_set.append(np.array([[0.5], [0.7]]))
    >>> training_set.label(1, np.array([[0.0, 1.0]]), np.array([[2.0]]), np.array([1]))
    >>> training_set.labelled(1), training_set.labelled(2)
    ((array([1]), array([1.])), (array([1]), array([2.])))
    """

    def __init__(self, *, n_features: int, n_deciders: int, n_resources: int) -> None:
        self.n = 0
        self._n_deciders = n_deciders
        self._arrays: dict[str, NDArray[np.float64]] = {
            "x": np.zeros((FIRST_ROOM, n_features)),
            "rewards": np.full((FIRST_ROOM, n_deciders), np.nan),
            "costs": np.full((FIRST_ROOM, n_resources), np.nan),
            "whose": np.zeros((FIRST_ROOM, 1)),  # the expert who cost that, 0 for nobody
            "before": np.zeros((FIRST_ROOM, 1)),  # how many decisions were made before
        }
        self.decided = 0  # decisions so far, also those that were let go of

    @property
    def x(self) -> Floats:
        """The contexts, as they came."""
        return self._arrays["x"][: self.n]

    def append(self, x: Floats) -> None:
        """Take in tasks that were just decided, one after the other."""
        rows = self._room(len(x))
        self._arrays["x"][rows] = x
        self._arrays["before"][rows, 0] = self.decided + np.arange(len(x))
        self.decided += len(x)

    def append_labelled(self, x: Floats, rewards: Floats, costs: Floats, cost_expert: Ints) -> None:
        """Take in tasks of which is known what they came to, and which nobody will ask about."""
        rows = self._room(len(x))
        self._arrays["x"][rows] = x
        self._arrays["before"][rows, 0] = self.decided
        self._arrays["rewards"][rows] = rewards
        self._arrays["costs"][rows] = costs
        self._arrays["whose"][rows, 0] = cost_expert

    def row(self, decision: int) -> int:
        """Return where a decision lies, or −1 if it was let go of."""
        before = self._arrays["before"][: self.n, 0]
        # of those with as many decisions before, the decision itself came last
        place = int(np.searchsorted(before, decision, side="right")) - 1
        return place if place >= 0 and before[place] == decision else -1

    def rows(self, decisions: Ints) -> Ints:
        """Return where decisions lie, −1 for each that was let go of."""
        before = self._arrays["before"][: self.n, 0]
        places = np.searchsorted(before, decisions, side="right") - 1
        there = (
            (places >= 0) & (before[np.maximum(places, 0)] == decisions) if self.n else np.zeros(len(decisions), bool)
        )
        return np.where(there, places, -1)

    def replace(self, x: Floats) -> None:
        """Set the contexts of the first decisions anew."""
        self._arrays["x"][self.rows(np.arange(len(x)))] = x

    def label(self, decision: int, rewards: Floats, costs: Floats, cost_expert: Ints) -> None:
        """Set what is known by now of decisions that came one after the other, NaN where nothing is."""
        place = self.row(decision)
        if place < 0:
            return
        rows = slice(place, place + len(rewards))
        self._arrays["rewards"][rows] = rewards
        paid = (cost_expert > 0) & ~np.isnan(costs).any(axis=1)
        self._arrays["costs"][rows] = np.where(paid[:, None], costs, np.nan)
        self._arrays["whose"][rows, 0] = np.where(paid, cost_expert, 0)

    def labelled(self, target: int) -> tuple[Ints, Floats]:
        """Return the rows whose response an estimate knows, and the responses; rewards come first, then costs."""
        if target < self._n_deciders:
            y = self._arrays["rewards"][: self.n, target]
            rows = np.flatnonzero(~np.isnan(y))
        else:
            expert, resource = divmod(target - self._n_deciders, self._arrays["costs"].shape[1])
            y = self._arrays["costs"][: self.n, resource]
            rows = np.flatnonzero(self._arrays["whose"][: self.n, 0] == expert + 1)
        return rows, y[rows]

    def known(self) -> tuple[Floats, Floats, Ints]:
        """Return what is known by now of every task: rewards, costs, and who cost that (0 for nobody)."""
        rewards, costs, cost_expert = (self._arrays[name][: self.n].copy() for name in ("rewards", "costs", "whose"))
        return rewards, costs, cost_expert[:, 0].astype(np.int64)

    def drop_first(self, n: int) -> None:
        """Forget the first n tasks."""
        for array in self._arrays.values():
            array[: self.n - n] = array[n : self.n]
        self.n -= n

    def state(self) -> dict[str, NDArray[np.float64]]:
        """Return all that there is, for saving."""
        return {name: array[: self.n] for name, array in self._arrays.items()} | {"decided": np.array([self.decided])}

    def restore(self, saved: dict[str, NDArray[np.float64]]) -> None:
        """Restore what `state` returned."""
        n = len(saved["x"])
        check_shapes(saved, {name: (n, array.shape[1]) for name, array in self._arrays.items()})
        check_finite(saved, ("x", "whose", "before"))
        check_finite(saved, ("rewards", "costs"), missing=True)
        decided = count_of(saved["decided"])
        before = saved["before"][:, 0]
        if not np.isin(saved["whose"], np.arange(self._n_deciders)).all():  # compiled steps will find its estimates
            raise ValueError("a task of the past was decided by nobody")
        if n and not (before[0] >= 0 and before[-1] <= decided and (np.diff(before) >= 0).all()):
            raise ValueError("the tasks of the past are out of order")
        self.n = 0
        self._room(n)
        for name, array in self._arrays.items():
            array[: self.n] = saved[name]
        self.decided = decided

    def _room(self, n: int) -> slice:
        """Make room for n more rows, and return where they go."""
        first, last = self.n, self.n + n
        room = len(self._arrays["x"])
        if last > room:
            for name, array in self._arrays.items():
                grown = np.empty((max(last, 2 * room), array.shape[1]))
                grown[: self.n] = array[: self.n]
                self._arrays[name] = grown
        self._arrays["rewards"][first:last] = np.nan
        self._arrays["costs"][first:last] = np.nan
        self._arrays["whose"][first:last] = 0.0
        self.n = last
        return slice(first, last)
