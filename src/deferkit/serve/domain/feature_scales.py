"""How large each feature of a policy's contexts has been, and which values are beyond what is plausible then.

One context of 1e50 would outweigh all others in the estimates for good. So a value that is many times the largest one
seen so far is an outlier, and is cut to a little more than that: where values stay large, the scale follows them, by
a fifth with each task.
"""

from typing import Any

import msgspec

from deferkit.learn._encoding import any_larger
from deferkit.serve.domain.policy_spec import FeatureSpec, PolicySpec
from deferkit.types import LARGEST, is_number

FACTOR = 5.0  # times the largest value seen: beyond that a value is an outlier, once many were seen …
FEW = 50.0  # … and while they are as few as this, the factor is twice as large, and more for fewer
FIRST = 3  # values of a feature without which nothing is known of its scale
PLAUSIBLE = 1e6  # until then: numbers of a context are of the order of 1
PLAUSIBLE_NAMED = 1e20  # named ones are scaled by the encoder, and may be of any unit
GROWTH = 1.2  # an outlier is cut to this many times the largest value seen
MOST_COUNTED = 1000  # values of a feature: more do not make the factor smaller

Context = list[float] | dict[str, Any]


def factor(seen: int) -> float:
    """Return how many times the largest of so many values a plausible one may be.

    >>> factor(10), factor(50), round(factor(1000), 2)
    (130.0, 10.0, 5.01)
    """
    return FACTOR * (1 + (FEW / seen) ** 2)


class FeatureScales(msgspec.Struct, kw_only=True):
    """The scale of each feature: the largest absolute value that the learner was shown. Zeros do not count.

    Rare features (an indicator that is seldom 1, an amount that is mostly 0) so have the scale of their own values.

    >>> scales = FeatureScales(largest=[0.0, 0.0], seen=[0, 0])
    >>> for i in range(20):
    ...     scales.see([0.5 + i / 40, float(i == 7)], 0)
    >>> scales.clip([1e50, 1.0])
    ([1.17, 1.0], 1)
    """

    largest: list[float]
    seen: list[int]  # values that were not zero, up to MOST_COUNTED
    names: list[str] = []  # of the features, where they have names
    clipped: int = 0  # features that were cut so far

    @classmethod
    def of(cls, spec: PolicySpec) -> "FeatureScales | None":
        """Return the scales of a policy that has seen nothing; None if it keeps outliers."""
        if spec.outliers_used == "keep":
            return None
        names = spec.features.numbers if isinstance(spec.features, FeatureSpec) else []
        n = len(names) if isinstance(spec.features, FeatureSpec) else spec.features
        return cls(largest=[0.0] * n, seen=[0] * n, names=list(names))

    def bound(self, place: int) -> float:
        """Return the largest plausible absolute value of a feature."""
        seen = self.seen[place]
        if seen < FIRST:
            return PLAUSIBLE_NAMED if self.names else PLAUSIBLE
        return factor(seen) * self.largest[place]

    def outliers(self, context: Context) -> list[int]:
        """Return the places of the features of a context that are beyond what is plausible.

        What is no number, or beyond what any policy takes, is left to the learner, which says what is wrong with it.
        """
        values = self._values(context)
        return [place for place in self._larger(values) if self.bound(place) < abs(values[place]) <= LARGEST]

    def clip(self, context: Context) -> tuple[Context, int]:
        """Return the context with its outliers cut, and how many there were; the very context if there were none."""
        if self._none_larger(context) or not (places := self.outliers(context)):
            return context, 0
        cut: Any = context.copy()
        for place in places:
            key: Any = self.names[place] if self.names else place
            most = GROWTH * self.largest[place] if self.seen[place] else self.bound(place)
            cut[key] = most if context[key] > 0 else -most
        return cut, len(places)

    def see(self, context: Context, clipped: int) -> None:
        """Take in a context as the learner was shown it."""
        values, seen = self._values(context), self.seen
        if not self._none_larger(context):
            for place in self._larger(values):
                self.largest[place] = abs(values[place])
        if values and min(seen) < MOST_COUNTED:
            self.seen = [n + 1 if v and n < MOST_COUNTED else n for v, n in zip(values, seen, strict=True)]
        self.clipped += clipped

    def _larger(self, values: list[float]) -> list[int]:
        pairs = enumerate(zip(values, self.largest, strict=False))
        return [place for place, (value, most) in pairs if value > most or -value > most]

    def _none_larger(self, context: Context) -> bool:
        """Whether no number is larger than all before, as nearly always; by a compiled step."""
        return type(context) is list and not self.names and not any_larger(context, self.largest)

    def _values(self, context: Context) -> list[float]:
        if isinstance(context, list):
            return context if len(context) == len(self.largest) and not self.names else []
        given = (context.get(name) for name in self.names)
        return [value if is_number(value) else 0.0 for value in given]  # type: ignore[misc]
