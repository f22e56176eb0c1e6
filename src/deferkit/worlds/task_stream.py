"""A stream of tasks, and the population that it is drawn from, where that is known."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.worlds.running import Running

Floats = NDArray[np.float64]


class Population(NamedTuple):
    """Every context that can come, or a sample of them, with expected rewards and costs."""

    probabilities: Floats  # [m]
    rewards: Floats  # [m, deciders] expected
    costs: Floats  # [m, experts, resources] expected


class Truth(NamedTuple):
    """Expected outcomes and coefficients of a simulated stream."""

    population: Population
    kind: NDArray[np.int64] | None  # [n] which context of the population a task is; None if that is a sample
    rewards: Floats  # [n, deciders] expected
    costs: Floats  # [n, experts, resources] expected
    thetas: Floats  # [deciders, d] coefficients of the rewards, before the link; their mean over time, if they drift
    weights: Floats  # [experts, resources, d] coefficients of the costs, before they are cut at 0
    averaged: Floats | None = None  # [n, deciders] expected of a task's context on average over time, if that drifts


class Unshuffled(NamedTuple):
    """The tasks of a stream before they were put in order; the same arrays for each order of the same tasks."""

    contexts: Floats  # [n, d]
    rewards: Floats  # [n, deciders]
    costs: Floats  # [n, experts, resources]
    order: NDArray[np.int64]  # [n] where each task of the stream lies in them


class PastTasks(NamedTuple):
    """Tasks that were decided before the stream began, for a warm start; NaN where an outcome is not known."""

    contexts: Floats  # [m, d]
    rewards: Floats  # [m, deciders]
    costs: Floats  # [m] of the one expert, in the one resource


class TaskStream(NamedTuple):
    """Tasks in order, with what each decider would have earned and cost; NaN where an expert was never asked."""

    contexts: Floats  # [n, d]
    rewards: Floats  # [n, deciders] realised
    costs: Floats  # [n, experts, resources] realised
    link: str = "identity"  # the link that suits the rewards
    noise: float | None = None  # σ, where it is known
    truth: Truth | None = None
    running: Running | None = None  # columns of the contexts that a policy's own observations fill in
    remark: str = ""  # a note for tables and figures, such as "simulated people"
    hidden: Population | None = None  # expected outcomes of a simulated table: for the policy `informed` only
    unshuffled: Unshuffled | None = None  # where streams are orders of the same tasks
    past: PastTasks | None = None  # what is known from before
    times: Floats | None = None  # [n] when each task comes, in seconds, in order
    delay: int = 0  # how many tasks are decided before the outcome of one is known
    confidence: Floats | None = None  # [n] of the model in its own answer, where it has one
    confidence_at: int | None = None  # where that is in the contexts, for the prior of a learner
    columns: Mapping[str, Any] | None = None  # the cells before they were encoded: arrays of numbers, lists of texts
    first_use: bool = False  # a learner is told the budget alone: no link, no range; with an encoder for the columns

    @property
    def complete(self) -> bool:
        """Whether every outcome is known, as hindsight needs."""
        return not (np.isnan(self.rewards).any() or np.isnan(self.costs).any())

    @property
    def askable(self) -> NDArray[np.bool_]:
        """For which tasks [n] it is known what every expert would have earned and cost."""
        unknown = np.isnan(self.rewards[:, 1:]).any(axis=1) | np.isnan(self.costs).any(axis=(1, 2))
        return ~np.asarray(unknown, dtype=bool)

    @property
    def n_tasks(self) -> int:
        """The number of tasks."""
        return len(self.contexts)

    def known(self) -> tuple[Floats, Floats]:
        """Return expected rewards and costs where the truth is known, else realised ones."""
        return (self.rewards, self.costs) if self.truth is None else (self.truth.rewards, self.truth.costs)
