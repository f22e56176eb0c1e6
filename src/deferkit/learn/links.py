"""Link functions μ of the generalised linear model: E[y | x] = μ(xᵀθ).

A link is a code in the compiled steps and a row of `LINKS` outside of them. Another one is a branch in
`mean`, `slope` and `cumulant` and a row in the table; nothing else knows which links there are.
"""

import math
from typing import NamedTuple

from deferkit.errors import expected
from deferkit.learn.compiled import inlined

IDENTITY = 0
LOGISTIC = 1


class Link(NamedTuple):
    """A link function: what its code is and which responses it can have."""

    name: str
    code: int
    domain: tuple[float, float]  # the responses y that it can be fitted to
    exact_updates: bool  # whether the online step is the exact minimiser, so that no refit is needed
    ridge: float  # that works well: a likelihood without a maximum needs more than least squares


LINKS = {
    "identity": Link("identity", IDENTITY, (-math.inf, math.inf), exact_updates=True, ridge=0.01),
    "logistic": Link("logistic", LOGISTIC, (0.0, 1.0), exact_updates=False, ridge=0.1),
}


def link_named(name: str, argument: str = "link") -> Link:
    """Return the link of this name.

    >>> link_named("logistic").domain
    (0.0, 1.0)
    """
    if not isinstance(name, str) or name not in LINKS:
        raise expected(argument, "Deferrer", "one of " + ", ".join(map(repr, LINKS)), name)
    return LINKS[name]


@inlined
def mean(link: int, predictor: float) -> float:
    """Return μ(predictor).

    >>> mean(IDENTITY, 0.3), mean(LOGISTIC, 0.0)
    (0.3, 0.5)
    """
    if link == LOGISTIC:
        if predictor >= 0.0:
            return 1.0 / (1.0 + math.exp(-predictor))
        # exp of a large positive number would overflow
        tail = math.exp(predictor)
        return tail / (1.0 + tail)
    return predictor


@inlined
def slope(link: int, predictor: float) -> float:
    """Return μ'(predictor), which is also the Fisher weight of a sample for a canonical link.

    >>> slope(IDENTITY, 0.3), slope(LOGISTIC, 0.0)
    (1.0, 0.25)
    """
    if link == LOGISTIC:
        tail = math.exp(-abs(predictor))
        return tail / ((1.0 + tail) * (1.0 + tail))
    return 1.0


@inlined
def cumulant(link: int, predictor: float) -> float:
    """Return A with A' = μ: the log-likelihood of a sample is y·predictor − A(predictor), up to a constant.

    >>> cumulant(IDENTITY, 2.0), round(cumulant(LOGISTIC, 0.0), 4)
    (2.0, 0.6931)
    """
    if link == LOGISTIC:
        return max(predictor, 0.0) + math.log1p(math.exp(-abs(predictor)))
    return 0.5 * predictor * predictor
