"""How wide the confidence intervals are that optimism goes to the end of."""

import math
from dataclasses import dataclass

from deferkit.errors import expected
from deferkit.types import is_number, plain


@dataclass(frozen=True, kw_only=True)
class Exploration:
    """The width of an interval: (scale × noise + prior × √ridge × size of a reward) × √(xᵀM⁻¹x).

    The noise of each reward and cost is estimated from its own residuals unless it is given. The second term is
    for directions that were never seen: there it is as wide as a reward is large, so that an expert is tried even
    if the noise is small; it is gone after a few samples.

    >>> Exploration(scale=0.5)
    Exploration(scale=0.5, prior=1.0, noise=None, delta=None, kappa=1.0, sampled=False)
    >>> Exploration.printed(noise=0.1)
    Exploration(scale=1.0, prior=0.0, noise=0.1, delta=0.05, kappa=1.0, sampled=False)
    >>> Exploration.thompson()
    Exploration(scale=1.0, prior=1.0, noise=None, delta=None, kappa=1.0, sampled=True)
    """

    scale: float = 0.3
    """How wide an interval is, in units of the noise; 0 for no optimism from it."""
    prior: float = 1.0
    """How large a reward may be where nothing was seen yet, in units of the root mean square of all rewards."""
    noise: float | None = None
    """σ, if known: the standard deviation of rewards and costs around their mean."""
    delta: float | None = None
    """δ of Definition 4.2; None for a width that does not grow with t."""
    kappa: float = 1.0
    """κ of Definition 4.2, by which the printed width is divided; used with `delta` only."""
    sampled: bool = False
    """Draw each value around its estimate, the width being one standard deviation, instead of taking its upper end."""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            object.__setattr__(self, name, plain(getattr(self, name)))
        for name, value, least in (
            ("scale", self.scale, 0.0),
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

    @classmethod
    def printed(cls, *, noise: float, delta: float = 0.05, kappa: float = 1.0) -> "Exploration":
        """Return β(t) = σ/κ·√(2d·log((1 + 2td)/δ)) as the paper prints it."""
        return cls(scale=1.0, prior=0.0, noise=noise, delta=delta, kappa=kappa)

    @classmethod
    def thompson(cls, *, scale: float = 1.0) -> "Exploration":
        """Return Thompson sampling: a decider is asked as often as it is believed to be the best.

        For one expert and identity links, where the probability of a route has a formula.
        """
        return cls(scale=scale, sampled=True)
