"""The protocol of a representation, in two base classes: its kind, and the representation of one learner."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.extras import find_missing
from deferkit.learn.consistency import NEVER
from deferkit.learn.embed.embedding import Shape
from deferkit.learn.embed.training_set import Floats, Ints
from deferkit.learn.ledger import Ledger
from deferkit.learn.pacing import Strategy
from deferkit.types import LARGEST


class Host(NamedTuple):
    """The parts of a learner that its representation uses.

    Attributes:
        shape: The sizes, link and seed.
        ledger: The ledger.
        ridge: The ridge penalty.
        strategy: The strategy of the pacing.
        fresh_ledger: Returns the ledger of a new learner with the same settings and a given link, to learn with.
    """

    shape: Shape
    ledger: Ledger
    ridge: float
    strategy: Strategy
    fresh_ledger: Callable[[str], Ledger]


class RepresentationKind:
    """The base class of kinds of representations, and the kind "linear": sizes, schedule, and what `make` makes.

    Settings, initial state, and the limits of the service read nothing else of a representation.
    """

    name = "linear"
    feature: str | None = None
    """What must be installed, a key of `extras.REQUIREMENTS`; None for nothing."""
    trains = False
    """Whether it is fitted to the past, which needs exact updates of the costs."""
    replaces = False
    """Whether estimates read its views alone: there is one member, which forgets nothing."""
    frozen = False
    """Whether estimates change at a retraining only, and not with each observation."""

    def find_missing(self) -> list[str]:
        """Return the modules that it needs and that are not installed. Nothing is imported."""
        return [] if self.feature is None else find_missing(self.feature)

    def view_names(self, shape: Shape) -> tuple[str, ...]:  # noqa: ARG002
        """Return the names of the views that have members of their own."""
        return (self.name,)

    def views(self, shape: Shape) -> list[int]:
        """Return the view that each target reads, where views have no members of their own."""
        return [0] * shape.n_targets

    def n_views(self, shape: Shape) -> int:
        """Return the number of views."""
        return max(len(self.view_names(shape)), max(self.views(shape)) + 1)

    def width(self, shape: Shape) -> int:
        """Return the length of a view."""
        return shape.n_features

    def column_names(self, shape: Shape) -> tuple[str, ...]:
        """Return the names of the columns of a view, where features have no names."""
        return tuple(f"feature {j + 1}" for j in range(shape.n_features))

    def has_prior(self, shape: Shape) -> bool:  # noqa: ARG002
        """Return whether it pulls coefficients to a prior."""
        return False

    def first_fit(self, shape: Shape) -> int:  # noqa: ARG002
        """Return the number of observations before it is first fitted."""
        return NEVER

    def count_numbers(self, shape: Shape, window: int) -> int:  # noqa: ARG002
        """Return the maximum number of numbers that it keeps beside the ledger; `window` is that of the price."""
        return 0

    def max_kept(self, window: int) -> int:  # noqa: ARG002
        """Return the maximum number of tasks that a retraining uses; `window` is that of the price."""
        return 0

    def retraining_step(self, shape: Shape, n: int) -> int:  # noqa: ARG002
        """Return the multiplications of a retraining on n tasks that an observation waits for."""
        return 0

    def make(self, host: Host) -> "Representation":
        """Return the representation of a new learner, untrained."""
        return Representation(host)


class Representation:
    """The base class of representations, and the one that adds nothing: estimates read the contexts themselves.

    A step calls its methods in the order in which they are declared. All that happens in them is part of the fold over
    events: the same events give the same views, at the same time.

    Args:
        host: The learner.
    """

    trains = False
    """Whether it learns from contexts and outcomes, so that the compiled fast paths must not pass it by."""
    fitting = False
    """Whether a fit is running in the background."""
    largest = LARGEST
    """The largest absolute value of a feature."""
    version = 0
    """Of the views: another one after each retraining."""

    def __init__(self, host: Host) -> None:
        self._ledger = host.ledger

    # ------------------------------------------------------------ write

    def write(self, x: Floats, out: Floats) -> None:
        """Write the views of contexts [n, d] to [n, views · width]."""

    def transform(self, x: Floats) -> Floats:
        """Return the views of contexts [n, d] as [n, views · width]."""
        return x

    def vectors(self, x: Floats) -> Floats:
        """Return the vectors of contexts [n, d] that the coefficients of the learner belong to."""
        return self.transform(x)

    def replace_contexts(self, matrix: Floats) -> Floats:
        """Replace the contexts of the first decisions, and return their views."""
        return self.transform(matrix)

    # ------------------------------------------------------------ decide

    def decisions_until_upkeep(self) -> int:
        """Return the number of decisions before `drop_old_tasks` or `refresh_window_if_due` must be called."""
        return self._ledger.memory

    def drop_old_tasks(self) -> None:
        """Drop the oldest tasks if memory is bounded and full."""

    def append_decided(self, x: Floats) -> None:
        """Append contexts that were just decided, at most `decisions_until_upkeep()` of them."""

    def refresh_window_if_due(self) -> None:
        """Recompute the views in the window of the price, if it is solved at the next decision."""

    # ------------------------------------------------------------ observe and correct

    def observations_until_retraining(self) -> int:
        """Return the number of observations that may come before the next retraining starts or takes effect."""
        return max(1, self._ledger.get("retrain_at") - self._ledger.get("n_seen"))

    def refresh_views(self, decision: int, slot: int) -> None:
        """Recompute the views of a decision in the ledger, before its outcome is learned."""

    def record_outcomes(self, first: int, n: int) -> None:
        """Copy the outcomes of n consecutive decisions, which were just made, from the ring of the ledger."""

    def append_outcomes(self, decision: int, slot: int, rewards: list[float], costs: list[float]) -> None:
        """Copy the outcome of a decision from its row in the ledger; NaN in `rewards` and `costs` is not new."""

    def replace_outcomes(self, decision: int, slot: int, changes: list[tuple[int, float, float]]) -> None:
        """Copy corrected outcomes of a decision; `changes` are (target, before, after)."""

    def learn_labelled(self, x: Floats, rewards: Floats, costs: Floats, cost_expert: Ints) -> None:
        """Learn from labelled tasks of a warm start."""
        self._ledger.grow_sample_store(len(x))
        self._ledger.core.learn_many(self.transform(x), cost_expert, rewards, costs)

    def link_switched(self) -> None:
        """React to a switch of the link: the rewards have the identity link from now on."""

    def retrain_if_due(self) -> None:
        """Retrain, or start or finish a fit, if that is due; not before the encoder's scales are frozen."""

    # ------------------------------------------------------------ cost of the next step

    def deciding_step(self, *, freezes: bool) -> int:  # noqa: ARG002
        """Return the multiplications of the next decision beyond its usual ones; `freezes` if it freezes an encoder."""
        return 0

    def observing_step(self, *, switches: bool) -> int:  # noqa: ARG002
        """Return the multiplications of an observation beyond its usual ones; `switches` if it switches a link."""
        return 0

    # ------------------------------------------------------------ state

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the saved arrays by name; waits for a running fit."""
        return {}

    def restore(self, saved: dict[str, NDArray[Any]]) -> None:
        """Restore from `state()`; raise ValueError if it is inconsistent."""


class TrainedRepresentation(Representation):
    """A representation with a training set.

    Args:
        host: The learner.
        kind: The kind that it is made from.
    """

    trains = True

    def __init__(self, host: Host, kind: RepresentationKind) -> None:
        super().__init__(host)
        self.training_set = host.shape.training_set()
        self.n_views, self.width = kind.n_views(host.shape), kind.width(host.shape)
        self._fresh_from = 0  # from this decision on, views in the ledger are current

    def transform(self, x: Floats) -> Floats:
        """Return the views of contexts [n, d] as [n, views · width]."""
        out = np.zeros((len(x), self.n_views * self.width))
        self.write(x, out)
        return out

    def replace_contexts(self, matrix: Floats) -> Floats:
        """Replace the contexts of the first decisions, and return their views."""
        self.training_set.replace(matrix)
        return super().replace_contexts(matrix)

    def append_decided(self, x: Floats) -> None:
        """Append contexts that were just decided, at most `decisions_until_upkeep()` of them."""
        self.drop_old_tasks()
        self.training_set.append(x)

    def refresh_views(self, decision: int, slot: int) -> None:
        """Recompute the views of a decision in the ledger, before its outcome is learned."""
        if decision < self._fresh_from:
            row = self.training_set.row(decision)
            if row >= 0:  # a task that was dropped keeps its old views
                views = self.transform(self.training_set.x[row : row + 1])
                self._ledger.view("context")[slot, : self.n_views] = views.reshape(self.n_views, -1)

    def record_outcomes(self, first: int, n: int) -> None:
        """Copy the outcomes of n consecutive decisions, which were just made, from the ring of the ledger."""
        ledger = self._ledger
        slots = np.arange(first, first + n) % ledger.memory
        self.training_set.label(first, ledger.reward[slots], ledger.cost[slots], ledger.route[slots])

    def replace_outcomes(self, decision: int, slot: int, changes: list[tuple[int, float, float]]) -> None:  # noqa: ARG002
        """Copy corrected outcomes of a decision; the next fit uses them, one that is under way does not."""
        self._label(decision, slot)

    def _label(self, decision: int, slot: int) -> int:
        """Copy the outcome of a decision; return its row in the training set, −1 if it was dropped."""
        ledger, rows = self._ledger, slice(slot, slot + 1)
        self.training_set.label(decision, ledger.reward[rows], ledger.cost[rows], ledger.route[rows])
        return self.training_set.row(decision)
