"""Exploration: the width of the bonus that optimism adds to an estimate."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deferkit.errors import expected
from deferkit.types import FLAG, Constraint, check_fields, number

INDEX, INTERVAL = "index", "interval"
INTERVAL_SCALE = 0.3

FINITE_AT_LEAST_0 = number("a finite number of at least 0", lambda value: 0 <= value < math.inf)
CONSTRAINTS = {
    "scale": FINITE_AT_LEAST_0.or_none._replace(words=FINITE_AT_LEAST_0.words),
    "prior": FINITE_AT_LEAST_0,
    "kappa": number("a finite number of at least 1e-300", lambda value: 1e-300 <= value < math.inf),
    "noise": FINITE_AT_LEAST_0.or_none,
    "delta": number("a number between 0 and 1", lambda value: 0 < value < 1).or_none,
    "sampled": FLAG,
    "rule": Constraint(f"{INDEX!r} or {INTERVAL!r}", lambda value: value in (INDEX, INTERVAL)),
}


@dataclass(frozen=True, kw_only=True)
class Exploration:
    """The width of an estimate: (scale × noise + prior × √ridge × root mean square reward) × √(xᵀM⁻¹x).

    The first term is the usual one of UCB; by default the noise of each reward and cost is estimated from its
    residuals. The second term is for directions without observations: there the width is as large as a reward, so that
    an expert is tried even if the noise is small. It vanishes after a few samples.

    Args:
        scale: The width in units of the noise, at least 0; by default 0.3, and 1 for the logistic link.
        prior: The size of a reward without observations, in units of the root mean square of all rewards; 1 by default.
        noise: σ, the standard deviation of rewards and costs around their mean; None (default) to estimate it.
        delta: δ of Definition 4.2, between 0 and 1; None (default) for a width that does not grow with t.
        kappa: κ of Definition 4.2; 1 by default.
        sampled: True for Thompson sampling: each value is drawn around its estimate, with the width as standard
            deviation. False by default.
        rule: "index" (default): decision and price use one index, whose bonus fades with the budget left and changes
            sign with the feedback. "interval": the ends of confidence intervals, for costs too, and prices solved on
            means.

    Raises:
        InvalidArgument: If an argument is of the wrong type or out of range.

    >>> Exploration(scale=0.5)
    Exploration(scale=0.5, prior=1.0, noise=None, delta=None, kappa=1.0, sampled=False, rule='index')
    >>> Exploration.printed(noise=0.1)
    Exploration(scale=1.0, prior=0.0, noise=0.1, delta=0.05, kappa=1.0, sampled=False, rule='interval')
    >>> Exploration.thompson()
    Exploration(scale=1.0, prior=1.0, noise=None, delta=None, kappa=1.0, sampled=True, rule='interval')
    """

    scale: float | None = None
    prior: float = 1.0
    noise: float | None = None
    delta: float | None = None
    kappa: float = 1.0
    sampled: bool = False
    rule: str = INDEX

    def __post_init__(self) -> None:
        check_fields(self, CONSTRAINTS)
        if self.rule == INDEX and (self.sampled or self.delta is not None):
            raise expected("rule", "Exploration", f"{INTERVAL!r} where values are drawn or widths grow", self.rule)

    @classmethod
    def printed(cls, *, noise: float, delta: float = 0.05, kappa: float = 1.0) -> "Exploration":
        """Return the width of the paper, β(t) = σ/κ·√(2d·log((1 + 2td)/δ)).

        Args:
            noise: σ, the standard deviation of rewards and costs around their mean.
            delta: δ, between 0 and 1; 0.05 by default.
            kappa: κ; 1 by default.
        """
        return cls(scale=1.0, prior=0.0, noise=noise, delta=delta, kappa=kappa, rule=INTERVAL)

    @classmethod
    def thompson(cls, *, scale: float = 1.0) -> "Exploration":
        """Return Thompson sampling, for one expert and identity links: there the propensity has a closed form.

        Args:
            scale: The standard deviation in units of the noise; 1 by default.
        """
        return cls(scale=scale, sampled=True, rule=INTERVAL)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "Exploration":
        """Restore an exploration from a state file; files older than `rule` have intervals."""
        return cls(**{"rule": INTERVAL, **saved})
