"""Budgets as text: `2000`, `0.1T`, `10%`, `inf`; `40 every 7d carry 1`, `10% until end`, `10% hold auto`."""

import math
import re
from typing import NamedTuple

from deferkit.errors import InvalidArgument
from deferkit.periods import CALENDAR
from deferkit.types import AUTO, Budget
from deferkit.worlds.base import Floats, TaskStream

FORMS = "a number of at least 0 like 2000, a share of the tasks like 0.1T, of what asking always costs like 10%, or inf"
FORMS += "; then perhaps 'every 7d', 'every week carry 1' or 'until end', and 'hold auto'"

DAY = 86_400.0  # seconds

WRITTEN = re.compile(
    r"(?P<number>[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?|[0-9]*\.?[0-9]+([eE][+-]?[0-9]+)?)\s*(?P<unit>T|%)?"
)


TERMS = re.compile(
    r"(?P<amount>.*?)( every (?P<every>\S+)( in (?P<zone>\S+))?( carry (?P<carry>\S+))?|(?P<until> until end))?"
    r"( hold (?P<hold>\S+))?"
)


class Allowance(NamedTuple):
    """A budget that may depend on the stream: its size, in units of cost, tasks or what asking every time costs.

    With `every` that is the size of one period; with `until_end` it lasts until the last task, however many come.
    """

    number: float
    unit: str  # "", "T" or "%"
    every: str = ""  # a period, as in `Budget`
    zone: str = ""  # of a calendar period
    carry: float = 0.0
    until_end: bool = False
    hold: str = ""  # "auto" or a number: what is held for a review that can be stopped

    @classmethod
    def from_text(cls, text: str) -> "Allowance":
        """Read a budget.

        >>> [Allowance.from_text(text)[:2] for text in ("0.1T", "10%", "inf")]
        [(0.1, 'T'), (10.0, '%'), (inf, '')]
        >>> Allowance.from_text("40 every week carry 1").every
        'week'
        """
        terms = TERMS.fullmatch(text.strip()) if isinstance(text, str) else None
        found = WRITTEN.fullmatch(terms["amount"]) if terms else None
        number = float(found["number"].replace(",", "")) if found else math.nan
        if not number < math.inf and text != "inf":
            raise InvalidArgument(f"A budget must be {FORMS}. Got {text!r} instead.")
        unit = (found["unit"] or "") if found else ""
        if text == "inf" or terms is None:
            return cls(math.inf, unit)
        carry = number_in(terms["carry"] or "0")
        hold = terms["hold"] or ""
        if math.isnan(carry) or (hold and hold != AUTO and math.isnan(number_in(hold))):
            raise InvalidArgument(f"A budget must be {FORMS}. Got {text!r} instead.")
        return cls(number, unit, terms["every"] or "", terms["zone"] or "", carry, terms["until"] is not None, hold)

    @property
    def is_timed(self) -> bool:
        """Whether the budget has a period or an end, so that tasks need a time."""
        return bool(self.every) or self.until_end

    def budget(self, stream: TaskStream, max_cost: float) -> Budget:
        """Return the budget for a stream: over its tasks, until its last one, or in every period.

        Args:
            stream: Its tasks have times, unless the budget is over tasks.
            max_cost: The largest cost of one review.
        """
        total = self.total(stream)
        hold: float | str | None = self.hold if self.hold == AUTO else float(self.hold) if self.hold else None
        if not (self.every or self.until_end) or math.isinf(total):
            horizon = None if math.isinf(total) else stream.n_tasks
            return Budget(total, horizon=horizon, max_cost=max_cost, hold=hold)
        if stream.times is None:
            raise InvalidArgument("A budget with a period or an end needs the time of each task; of a table: --time.")
        if self.until_end:
            return Budget(total, until=float(stream.times[-1]) + 1.0, max_cost=max_cost, hold=hold)
        start = None if self.every in CALENDAR else float(stream.times[0] // DAY * DAY)
        zone = self.zone or None
        return Budget(total, every=self.every, zone=zone, start=start, carry=self.carry, max_cost=max_cost, hold=hold)

    def total(self, stream: TaskStream) -> float:
        """Return the budget for a stream, in units of cost."""
        if not askable_costs(stream).any():
            return math.inf  # what is free needs no budget, and a share of nothing is none
        if self.unit == "T":
            return self.number * stream.n_tasks
        if self.unit == "%":
            return self.number / 100 * asking_always(stream)
        return self.number


def number_in(text: str) -> float:
    """Return a number of at least 0; NaN if the text is none.

    >>> number_in("inf"), number_in("0.5"), number_in("-1"), number_in("many")
    (inf, 0.5, nan, nan)
    """
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if number >= 0 else math.nan


def asking_always(stream: TaskStream) -> float:
    """Return the expected cost of asking the expert every time (the mean of several; of the first resource).

    If it is not known for all tasks, the cost in those where it is known.
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
    highest = float(askable_costs(stream).max(axis=1).sum(axis=0).max())
    if highest == 0:
        return "Asking costs nothing here, so that no budget binds and the price is 0."
    if total == 0:
        return "A budget of 0 asks nobody: OPT is ModelOnly, and there is no gain to measure."
    if math.isinf(total):
        return "The budget has no end: the price is 0, and every task may be asked about."
    if total >= highest:
        return (
            f"A budget of {total:,.0f} covers asking every time ({highest:,.0f}): it does not bind, and the price is 0."
        )
    return None


def with_terms(
    budget: str | None, *, every: str | None, carry: str | None, until_end: bool, hold: str | None
) -> str | None:
    """Return a budget as text, with its period, its end and its holds.

    Raises:
        InvalidArgument: Options contradict each other, or there is no budget that they belong to.

    >>> with_terms("40", every="week", carry="1", until_end=False, hold=None)
    '40 every week carry 1'
    """
    if not (every or carry or until_end or hold):
        return budget
    if budget is None:
        raise InvalidArgument("--every, --carry, --until-end and --hold say more of a budget: give it with --budget.")
    if every and until_end:
        raise InvalidArgument("--every and --until-end are two budgets: give one of them.")
    if carry and not every:
        raise InvalidArgument("--carry is what is carried over from one period to the next: it needs --every.")
    terms = [budget, f"every {every}" if every else "", f"carry {carry}" if carry else ""]
    terms += ["until end" if until_end else "", f"hold {hold}" if hold else ""]
    return " ".join(term for term in terms if term)
