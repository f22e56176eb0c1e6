"""The training set of a representation: contexts of tasks, with the outcomes that are known by now."""

import warnings

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.consistency import check_finite, check_shapes, count_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Singles = NDArray[np.float32]  # precision of the training of networks

FIRST_CAPACITY = 256  # rows
UNKNOWN = {"rewards": np.nan, "costs": np.nan}  # in the rows of tasks without outcomes; 0 in other arrays


class TrainingSet:
    """Tasks in the order in which they came: decided ones, and labelled ones of a warm start.

    Args:
        n_features: The length of a context vector.
        n_deciders: The number of deciders.
        n_resources: The number of resources.

    >>> training_set = TrainingSet(n_features=1, n_deciders=2, n_resources=1)
    >>> training_set.append(np.array([[0.5], [0.7]]))
    >>> training_set.label(1, np.array([[0.0, 1.0]]), np.array([[2.0]]), np.array([1]))
    >>> training_set.select_labelled(1), training_set.select_labelled(2)
    ((array([1]), array([1.])), (array([1]), array([2.])))
    """

    def __init__(self, *, n_features: int, n_deciders: int, n_resources: int) -> None:
        self.n = 0  # tasks; rows after them have no outcomes
        self._n_deciders = n_deciders
        self._arrays: dict[str, NDArray[np.float64]] = {
            "x": np.zeros((FIRST_CAPACITY, n_features)),
            "rewards": np.full((FIRST_CAPACITY, n_deciders), np.nan),
            "costs": np.full((FIRST_CAPACITY, n_resources), np.nan),
            "whose": np.zeros(
                (FIRST_CAPACITY, 1)
            ),  # the expert whose costs these are, 0 for none; a name of the state file
            "before": np.zeros((FIRST_CAPACITY, 1)),  # the number of decisions before the task
        }
        self.decided = 0  # decisions so far, with those that were dropped

    @property
    def x(self) -> Floats:
        """The contexts [n, n_features]."""
        return self._arrays["x"][: self.n]

    def append(self, x: Floats) -> None:
        """Append tasks that were just decided, in order."""
        rows, before = self._add_rows(len(x)), self.decided
        self._arrays["x"][rows] = x
        self.decided += len(x)
        self._arrays["before"][rows, 0] = before if len(x) == 1 else np.arange(before, self.decided)

    def append_labelled(self, x: Floats, rewards: Floats, costs: Floats, cost_expert: Ints) -> None:
        """Append labelled tasks of a warm start, which have no decisions."""
        rows = self._add_rows(len(x))
        self._arrays["x"][rows] = x
        self._arrays["before"][rows, 0] = self.decided
        self._arrays["rewards"][rows] = rewards
        self._arrays["costs"][rows] = costs
        self._arrays["whose"][rows, 0] = cost_expert

    def row(self, decision: int) -> int:
        """Return the row of a decision, or −1 if it was dropped."""
        before = self._arrays["before"][: self.n, 0]
        # of the tasks with as many decisions before, the decision itself is the last
        row = int(np.searchsorted(before, decision, side="right")) - 1
        return row if row >= 0 and before[row] == decision else -1

    def rows(self, decisions: Ints) -> Ints:
        """Return the rows of decisions, −1 for those that were dropped."""
        before = self._arrays["before"][: self.n, 0]
        found = np.searchsorted(before, decisions, side="right") - 1
        there = (found >= 0) & (before[np.maximum(found, 0)] == decisions) if self.n else np.zeros(len(decisions), bool)
        return np.where(there, found, -1)

    def replace(self, x: Floats) -> None:
        """Replace the contexts of the first decisions."""
        self._arrays["x"][self.rows(np.arange(len(x)))] = x

    def label(self, decision: int, rewards: Floats, costs: Floats, cost_expert: Ints) -> None:
        """Set the outcomes of consecutive decisions, with NaN for unknown values."""
        row = self.row(decision)
        if row < 0:
            return
        rows = slice(row, row + len(rewards))
        self._arrays["rewards"][rows] = rewards
        paid = (cost_expert > 0) & ~np.isnan(costs).any(axis=1)
        self._arrays["costs"][rows] = np.where(paid[:, None], costs, np.nan)
        self._arrays["whose"][rows, 0] = np.where(paid, cost_expert, 0)

    def select_labelled(self, target: int) -> tuple[Ints, Floats]:
        """Return the rows with a known response of a target, and the responses."""
        if target < self._n_deciders:
            y = self._arrays["rewards"][: self.n, target]
            rows = np.flatnonzero(~np.isnan(y))
        else:
            expert, resource = divmod(target - self._n_deciders, self._arrays["costs"].shape[1])
            y = self._arrays["costs"][: self.n, resource]
            rows = np.flatnonzero(self._arrays["whose"][: self.n, 0] == expert + 1)
        return rows, y[rows]

    def labelled(self, target: int) -> tuple[Ints, Floats]:
        """Return `select_labelled(target)`, for embeddings of other packages that use its old name."""
        warnings.warn("TrainingSet.labelled is select_labelled now.", DeprecationWarning, stacklevel=2)
        return self.select_labelled(target)

    def copy_outcomes(self) -> tuple[Floats, Floats, Ints]:
        """Return the outcomes of every task: rewards, costs, and the expert whose costs these are (0 for none)."""
        rewards, costs, cost_expert = (self._arrays[name][: self.n].copy() for name in ("rewards", "costs", "whose"))
        return rewards, costs, cost_expert[:, 0].astype(np.int64)

    def known(self) -> tuple[Floats, Floats, Ints]:
        """Return `copy_outcomes()`, for embeddings of other packages that use its old name."""
        warnings.warn("TrainingSet.known is copy_outcomes now.", DeprecationWarning, stacklevel=2)
        return self.copy_outcomes()

    def drop_first(self, n: int) -> None:
        """Drop the first n tasks."""
        for name, array in self._arrays.items():
            array[: self.n - n] = array[n : self.n]
            array[self.n - n : self.n] = UNKNOWN.get(name, 0.0)
        self.n -= n

    def state(self) -> dict[str, NDArray[np.float64]]:
        """Return the saved arrays by name."""
        return {name: array[: self.n] for name, array in self._arrays.items()} | {"decided": np.array([self.decided])}

    def restore(self, saved: dict[str, NDArray[np.float64]]) -> None:
        """Restore from `state()`; raise ValueError if it is inconsistent."""
        n = len(saved["x"])
        check_shapes(saved, {name: (n, array.shape[1]) for name, array in self._arrays.items()})
        check_finite(saved, ("x", "whose", "before"))
        check_finite(saved, ("rewards", "costs"), missing=True)
        decided = count_of(saved["decided"])
        before = saved["before"][:, 0]
        if not np.isin(saved["whose"], np.arange(self._n_deciders)).all():  # compiled steps index by it without a check
            raise ValueError("a task of the training set was decided by nobody")
        if n and not (before[0] >= 0 and before[-1] <= decided and (np.diff(before) >= 0).all()):
            raise ValueError("the tasks of the training set are out of order")
        self.drop_first(self.n)
        self._add_rows(n)
        for name, array in self._arrays.items():
            array[: self.n] = saved[name]
        self.decided = decided

    def _add_rows(self, n: int) -> slice:
        """Add n rows without outcomes, and return their slice."""
        first, last = self.n, self.n + n
        capacity = len(self._arrays["x"])
        if last > capacity:
            for name, array in self._arrays.items():
                grown = np.full((max(last, 2 * capacity), array.shape[1]), UNKNOWN.get(name, 0.0))
                grown[: self.n] = array[: self.n]
                self._arrays[name] = grown
        self.n = last
        return slice(first, last)
