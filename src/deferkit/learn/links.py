"""Link functions μ of the generalised linear model E[y | x] = μ(xᵀθ): what is known of each outside the compiled core.

Another link is a row here and its functions in `core/links.pxd`; nothing else knows which links there are.
"""

import math
from typing import NamedTuple

from deferkit.errors import expected
from deferkit.learn import core


class Link(NamedTuple):
    """A link function: which responses it can have, and what works well with it."""

    name: str
    domain: tuple[float, float]  # the responses y that it can be fitted to
    exact_updates: bool  # whether the online step is the exact minimiser, so that no refit is needed
    ridge: float  # that works well: a likelihood without a maximum needs more than least squares
    scale: float  # of the bonus for what is not known, in units of the noise
    is_probability: bool  # whether the mean is a probability, so that the likelihood is that of a coin

    @property
    def code(self) -> int:
        """Its number in the compiled core."""
        return core.LINKS.index(self.name)


LINKS = {
    link.name: link
    for link in (
        Link("identity", (-math.inf, math.inf), exact_updates=True, ridge=0.01, scale=0.3, is_probability=False),
        Link("logistic", (0.0, 1.0), exact_updates=False, ridge=0.1, scale=1.0, is_probability=True),
    )
}


def link_named(name: str, argument: str = "link") -> Link:
    """Return the link of this name.

    >>> link_named("logistic").domain
    (0.0, 1.0)
    """
    if not isinstance(name, str) or name not in LINKS:
        raise expected(argument, "Deferrer", "one of " + ", ".join(map(repr, LINKS)), name)
    return LINKS[name]
