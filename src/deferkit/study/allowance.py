"""Budgets as text: `2000`, `0.1T`, `10%`, `inf`."""

import math
import re
from typing import NamedTuple

from deferkit.errors import InvalidArgument
from deferkit.worlds.task_stream import Floats, TaskStream

FORMS = "a number of at least 0 like 2000, a share of the tasks like 0.1T, of what asking always costs like 10%, or inf"

WRITTEN = re.compile(
    r"(?P<number>[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?|[0-9]*\.?[0-9]+([eE][+-]?[0-9]+)?)\s*(?P<unit>T|%)?"
)


class Allowance(NamedTuple):
    """A budget that may depend on the stream: its size, in units of cost, tasks or what asking every time costs."""

    number: float
    unit: str  # "", "T" or "%"

    @classmethod
    def from_text(cls, text: str) -> "Allowance":
        """Read a budget.

        >>> Allowance.from_text("0.1T"), Allowance.from_text("10%"), Allowance.from_text("inf")
        (Allowance(number=0.1, unit='T'), Allowance(number=10.0, unit='%'), Allowance(number=inf, unit=''))
        """
        found = WRITTEN.fullmatch(text.strip()) if isinstance(text, str) else None
        number = float(found["number"].replace(",", "")) if found else math.nan
        if not number < math.inf and text != "inf":
            raise InvalidArgument(f"A budget must be {FORMS}. Got {text!r} instead.")
        unit = (found["unit"] or "") if found else ""
        return cls(math.inf if text == "inf" else number, unit)

    def total(self, stream: TaskStream) -> float:
        """Return the budget for a stream, in units of cost."""
        if not askable_costs(stream).any():
            return math.inf  # what is free needs no budget, and a share of nothing is none
        if self.unit == "T":
            return self.number * stream.n_tasks
        if self.unit == "%":
            return self.number / 100 * asking_always(stream)
        return self.number


def asking_always(stream: TaskStream) -> float:
    """Return what asking the expert every time is expected to cost (the mean of several; of the first resource).

    Where it is not known for all tasks, what asking costs in those where it is.
    """
    return float(askable_costs(stream)[:, :, 0].mean(axis=1).sum())


def askable_costs(stream: TaskStream) -> Floats:
    """Return the costs [n, experts, resources] of all tasks that an expert can be asked about."""
    costs = stream.known()[1]
    return costs if stream.complete else costs[stream.askable]


def remark(total: float, stream: TaskStream) -> str | None:
    """Return a remark on a budget that asks nobody, does not bind or has no end; None for any other.

    >>> import numpy as np
    >>> remark(5.0, TaskStream(np.ones((3, 1)), np.ones((3, 2)), np.ones((3, 1, 1))))
    'A budget of 5 covers asking every time (3): it does not bind, and the price is 0.'
    """
    dearest = float(askable_costs(stream).max(axis=1).sum(axis=0).max())
    if dearest == 0:
        return "Asking costs nothing here, so that no budget binds and the price is 0."
    if total == 0:
        return "A budget of 0 asks nobody: OPT is ModelOnly, and there is no gain to measure."
    if math.isinf(total):
        return "The budget has no end: the price is 0, and every task may be asked about."
    if total >= dearest:
        return (
            f"A budget of {total:,.0f} covers asking every time ({dearest:,.0f}): it does not bind, and the price is 0."
        )
    return None
