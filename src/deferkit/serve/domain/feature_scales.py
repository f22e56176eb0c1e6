"""Outlier detection and clipping of features, by the largest absolute value of each feature so far.

One context of 1e50 would dominate the estimates for good. So a value that is many times the largest one seen so far is
an outlier, and is clipped to a little more than that: where values stay large, the scale grows by a fifth with each
task.
"""

from typing import Any

import msgspec

from deferkit.learn._encoding import any_larger
from deferkit.serve.domain.spec import FeatureSpec, PolicySpec
from deferkit.types import LARGEST, is_number

FACTOR = 5.0  # times the largest value seen: beyond that a value is an outlier, once many were seen …
FEW_SEEN = 50.0  # … after this many values the factor is twice as large, and larger for fewer
MIN_SEEN = 3  # values of a feature before its scale is used
PLAUSIBLE = 1e6  # bound until then: numbers of a context are of the order of 1
PLAUSIBLE_NAMED = 1e20  # named ones are scaled by the encoder, and may be of any unit
GROWTH = 1.2  # an outlier is clipped to this many times the largest value seen
MAX_COUNTED = 1000  # values of a feature at which the count, and so the factor, saturates

Context = list[float] | dict[str, Any]


def factor(seen: int) -> float:
    """Return the largest plausible ratio of a new value to the largest of the `seen` values.

    >>> factor(10), factor(50), round(factor(1000), 2)
    (130.0, 10.0, 5.01)
    """
    return FACTOR * (1 + (FEW_SEEN / seen) ** 2)


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
    seen: list[int]  # values that were not zero, up to MAX_COUNTED
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

    def plausible_bound(self, index: int) -> float:
        """Return the largest plausible absolute value of a feature."""
        seen = self.seen[index]
        if seen < MIN_SEEN:
            return PLAUSIBLE_NAMED if self.names else PLAUSIBLE
        return factor(seen) * self.largest[index]

    def outliers(self, context: Context) -> list[int]:
        """Return the indices of the outliers of a context.

        Values that are no numbers, or larger than `LARGEST`, are left to the learner, which raises.
        """
        values = self._values(context)
        return [index for index in self._larger(values) if self.plausible_bound(index) < abs(values[index]) <= LARGEST]

    def clip(self, context: Context) -> tuple[Context, int]:
        """Return the context with outliers clipped, and their number; the same object if there are none."""
        if self._none_larger(context) or not (indices := self.outliers(context)):
            return context, 0
        cut: Any = context.copy()
        for index in indices:
            key: Any = self.names[index] if self.names else index
            most = GROWTH * self.largest[index] if self.seen[index] else self.plausible_bound(index)
            cut[key] = most if context[key] > 0 else -most
        return cut, len(indices)

    def see(self, context: Context, clipped: int) -> None:
        """Update the scales by a context as the learner gets it: clipped."""
        values, seen = self._values(context), self.seen
        if not self._none_larger(context):
            for index in self._larger(values):
                self.largest[index] = abs(values[index])
        if values and min(seen) < MAX_COUNTED:
            self.seen = [n + 1 if v and n < MAX_COUNTED else n for v, n in zip(values, seen, strict=True)]
        self.clipped += clipped

    def _larger(self, values: list[float]) -> list[int]:
        pairs = enumerate(zip(values, self.largest, strict=False))
        return [index for index, (value, most) in pairs if value > most or -value > most]

    def _none_larger(self, context: Context) -> bool:
        """Whether no number exceeds its scale: the usual case, by a compiled function."""
        return type(context) is list and not self.names and not any_larger(context, self.largest)

    def _values(self, context: Context) -> list[float]:
        if isinstance(context, list):
            return context if len(context) == len(self.largest) and not self.names else []
        given = (context.get(name) for name in self.names)
        return [value if is_number(value) else 0.0 for value in given]  # type: ignore[misc]
