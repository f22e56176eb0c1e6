"""Link functions μ of the generalised linear model E[y | x] = μ(xᵀθ): their properties and defaults.

Another link is a row here and its functions in `core/links.pxd`; nothing else knows which links there are.
"""

import math
from typing import NamedTuple

from deferkit.errors import expected
from deferkit.learn import core


class Link(NamedTuple):
    """A link function with its defaults.

    Attributes:
        name: "identity" or "logistic".
        domain: The least and the largest response y that it can be fitted to.
        exact_updates: Whether the online step is the exact minimiser, so that no refit is needed.
        ridge: The default ridge; a likelihood without a maximum needs more than least squares.
        scale: The default scale of the bonus, in units of the noise.
        is_probability: Whether the mean is a probability, so that the likelihood is Bernoulli.
    """

    name: str
    domain: tuple[float, float]
    exact_updates: bool
    ridge: float
    scale: float
    is_probability: bool

    @property
    def code(self) -> int:
        """The number of this link in the compiled core."""
        return core.LINKS.index(self.name)


LINKS = {
    link.name: link
    for link in (
        Link("identity", (-math.inf, math.inf), exact_updates=True, ridge=0.01, scale=0.3, is_probability=False),
        Link("logistic", (0.0, 1.0), exact_updates=False, ridge=0.1, scale=1.0, is_probability=True),
    )
}


AUTO_LINK = "auto"  # logistic while all rewards are 0 or 1, then the identity


def link_named(name: str, argument: str = "link") -> Link:
    """Return the link with a name.

    Args:
        name: "identity" or "logistic".
        argument: The argument that the error names; "link" by default.

    Raises:
        InvalidArgument: If there is no such link.

    >>> link_named("logistic").domain
    (0.0, 1.0)
    """
    if not isinstance(name, str) or name not in LINKS:
        raise expected(argument, "Deferrer", "one of " + ", ".join(map(repr, LINKS)), name)
    return LINKS[name]
