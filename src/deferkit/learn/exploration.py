"""Exploration: the width of the bonus that optimism adds to an estimate."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deferkit.errors import expected
from deferkit.types import is_number, plain

INDEX, INTERVAL = "index", "interval"
INTERVAL_SCALE = 0.3


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
        for name in self.__dataclass_fields__:
            object.__setattr__(self, name, plain(getattr(self, name)))
        for name, value, least in (
            ("scale", 0.0 if self.scale is None else self.scale, 0.0),
            ("prior", self.prior, 0.0),
            ("kappa", self.kappa, 1e-300),
        ):
            if not is_number(value) or not least <= value < math.inf:
                raise expected(name, "Exploration", f"a finite number of at least {least:g}", value)
        if self.noise is not None and not (is_number(self.noise) and 0 <= self.noise < math.inf):
            raise expected("noise", "Exploration", "None or a finite number of at least 0", self.noise)
        if self.delta is not None and not (is_number(self.delta) and 0 < self.delta < 1):
            raise expected("delta", "Exploration", "None or a number between 0 and 1", self.delta)
        if not isinstance(self.sampled, bool):
            raise expected("sampled", "Exploration", "True or False", self.sampled)
        if self.rule not in (INDEX, INTERVAL):
            raise expected("rule", "Exploration", f"{INDEX!r} or {INTERVAL!r}", self.rule)
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
