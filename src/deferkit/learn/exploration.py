"""How wide the confidence intervals are that optimism goes to the end of."""

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
    """How much is paid for what asking would teach: (scale × noise + prior × √ridge × size of a reward) × √(xᵀM⁻¹x).

    The noise of each reward and cost is estimated from its own residuals unless it is given. The second term is
    for directions that were never seen: there it is as wide as a reward is large, so that an expert is tried even
    if the noise is small; it is gone after a few samples.

    Arguments:
        scale: the width in units of the noise; by default 0.3, and 1 for logistic rewards.
        prior: how large a reward may be where nothing was seen yet, in units of the root mean square of all rewards.
        noise: σ, if known: the standard deviation of rewards and costs around their mean.
        delta: δ of Definition 4.2; None for a width that does not grow with t.
        kappa: κ of Definition 4.2.
        sampled: draw each value around its estimate, the width being one standard deviation.
        rule: "index" (default): one index for decision and price, whose bonus fades with the budget and has the sign
            that the feedback gives it; "interval": the ends of intervals, for costs too, and prices solved on means.

    Raises:
        InvalidArgument: if an argument is of the wrong kind or out of range.

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
        """Return β(t) = σ/κ·√(2d·log((1 + 2td)/δ)) as the paper prints it."""
        return cls(scale=1.0, prior=0.0, noise=noise, delta=delta, kappa=kappa, rule=INTERVAL)

    @classmethod
    def thompson(cls, *, scale: float = 1.0) -> "Exploration":
        """Return Thompson sampling: a decider is asked as often as it is believed to be the best.

        For one expert and identity links, where the probability of a route has a formula.
        """
        return cls(scale=scale, sampled=True, rule=INTERVAL)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "Exploration":
        """Return the exploration of a state file; those from before there was a rule have intervals."""
        return cls(**{"rule": INTERVAL, **saved})
