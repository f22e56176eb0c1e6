"""The step of a pacing in Python, as the compiled core calls it."""

import numpy as np

from deferkit.errors import DeferkitError
from deferkit.learn.ledger import Ledger
from deferkit.learn.pacing.compiled import Budgets
from deferkit.learn.pacing.python_pacing import PacingView, PythonPacing
from deferkit.learn.settings import Settings


class PacingFailed(DeferkitError):
    """The step of a pacing in Python raised an error, or left an invalid price.

    The decision or observation stands, and the price stays as it was.

    >>> from deferkit.learn.python_step import PacingFailed
    >>> raise PacingFailed("The pacing 'mypkg:Mine' failed: ZeroDivisionError: division by zero")
    Traceback (most recent call last):
    deferkit.learn.python_step.PacingFailed: The pacing 'mypkg:Mine' failed: ZeroDivisionError: division by zero
    """


class PythonStep:
    """Calls the step of a pacing on the arrays of a learner; keeps an error until the core raises it.

    Args:
        settings: Of the learner; its pacing is one in Python.
        ledger: Of the learner.
    """

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self._pacing = settings.pacing
        self._ledger = ledger
        self._error: Exception | None = None

    def __call__(self, proposed: bool, observed: bool) -> bool:
        """Move the price of the state, or of a proposal; return whether that worked."""
        strategy = self._pacing.strategy
        assert isinstance(strategy, PythonPacing)
        target = self._ledger.view("next_dual" if proposed else "dual")
        dual = target.copy()
        try:
            strategy.step(dual, self._view("new_cost" if observed else "owed"))
            n = len(self._ledger.price)
            if not (dual.shape == target.shape and np.isfinite(dual).all() and (dual[:n] >= 0).all()):
                raise ValueError(f"prices must be finite and at least 0, not {dual[:n].tolist()}")
        except Exception as error:  # of any kind: compiled code cannot be interrupted
            self._error = error
            return False
        budgets = Budgets(self._ledger.view("total"), self._ledger.view("horizon"))
        dual[:n][~budgets.bounded] = 0.0
        target[:] = dual
        return True

    def failure(self) -> PacingFailed:
        """Return the latest error, for the core to raise."""
        error = self._error
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        failed = PacingFailed(f"The pacing {self._pacing.kind!r} failed: {reason}")
        failed.__cause__ = error
        return failed

    def _view(self, cost: str) -> PacingView:
        of = self._ledger.view
        decided, seen = self._ledger.next_id, of("cost_n")
        with np.errstate(invalid="ignore"):
            mean = np.where(seen > 0, of("cost_sum") / np.maximum(seen, 1.0), np.nan)
        return PacingView(
            decided=decided,
            warm_up=self._ledger.get("warm_up"),
            cost=of(cost).copy(),
            left=of("total") - of("spent") - of("reserved"),
            tasks_left=np.maximum(of("horizon") - decided, 0.0),
            mean_cost=mean,
            parameters=self._pacing.parameters,
        )
