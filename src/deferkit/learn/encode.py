"""Named features to vectors: numbers with a running scale, categories one-hot, an intercept, in the unit ball."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import InvalidArgument, expected
from deferkit.types import LARGEST, is_number, is_whole

CLIP = 3.0  # standard deviations at which a number is cut


class Scale(NamedTuple):
    """The running mean and spread of a number (Welford's way: no large squares to cancel)."""

    n: int = 0
    mean: float = 0.0
    squares: float = 0.0  # Σ (value − mean)²

    def seen(self, value: float) -> "Scale":
        """Return the scale with one more value."""
        n = self.n + 1
        mean = self.mean + (value - self.mean) / n
        return Scale(n, mean, self.squares + (value - self.mean) * (value - mean))

    @property
    def std(self) -> float:
        """The standard deviation; 1 for a number that does not vary."""
        std = math.sqrt(self.squares / self.n) if self.n else 0.0
        return std if std > 0 else 1.0


def is_missing(value: object) -> bool:
    """Whether a value is None, or not equal to itself as NaN and the missing values of pandas are.

    >>> is_missing(None), is_missing(float("nan")), is_missing(0.0), is_missing("")
    (True, True, False, False)
    """
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas' NA is neither equal nor unequal
        return True


class Encoder:
    """Turns named features into a vector of fixed length within the unit ball.

    A number becomes (value − mean) / (3 std), cut at ±1, and a column that says whether it is missing. A category
    becomes a column for each level, one for any other level and one for a missing value. Levels are given, or their
    number is, and then the first ones seen in the warm-up are taken. Mean, std and levels settle in the learner's
    warm-up; from then on a vector means the same thing for ever.

    >>> encoder = Encoder(numbers=["amount"], categories={"country": ["de", "fr"]})
    >>> encoder.n_features
    7
    >>> encoder.names
    ('intercept', 'amount', 'amount missing', 'country=de', 'country=fr', 'country other', 'country missing')
    >>> encoder.see({"amount": 10.0, "country": "de"})
    >>> encoder.see({"amount": 30.0, "country": "fr"})
    >>> encoder.encode({"amount": 50.0, "country": "it"}).round(3)
    array([0.577, 0.577, 0.   , 0.   , 0.   , 0.577, 0.   ])
    """

    def __init__(
        self,
        *,
        numbers: Sequence[str] = (),
        categories: Mapping[str, Sequence[str] | int] | None = None,
        intercept: bool = True,
    ) -> None:
        if isinstance(numbers, str) or not isinstance(numbers, Sequence):
            raise expected("numbers", "Encoder", "a list of names", numbers)
        if categories is not None and not isinstance(categories, Mapping):
            raise expected("categories", "Encoder", "levels, or their number, by name", categories)
        for name in (*numbers, *(categories or {})):
            if not isinstance(name, str):
                raise expected("numbers", "Encoder", "names, and categories too", name)
        self.numbers = tuple(numbers)
        self.room: dict[str, int] = {}
        self.levels: dict[str, list[str]] = {}
        for name, levels in (categories or {}).items():
            if isinstance(levels, Sequence) and not isinstance(levels, str):
                self.room[name], self.levels[name] = len(levels), [str(level) for level in levels]
            elif is_whole(levels, 1):
                self.room[name], self.levels[name] = int(levels), []
            else:
                raise expected(f"categories[{name!r}]", "Encoder", "a list of levels or their number", levels)
        self.intercept = bool(intercept)
        self.scales = {name: Scale() for name in self.numbers}
        if not self.numbers and not self.room:
            raise expected("numbers", "Encoder", "given, or categories", [])
        if len({*self.numbers, *self.room}) < len(self.numbers) + len(self.room):
            raise expected("numbers", "Encoder", "names that occur once", (*self.numbers, *self.room))

    @property
    def features(self) -> tuple[str, ...]:
        """The names that a row may have."""
        return (*self.numbers, *self.room)

    @property
    def names(self) -> tuple[str, ...]:
        """What each element of the vector stands for."""
        result = ["intercept"] if self.intercept else []
        for name in self.numbers:
            result += [name, f"{name} missing"]
        for name, room in self.room.items():
            known = self.levels[name]
            result += [f"{name}={known[i]}" if i < len(known) else f"{name} level {i + 1}" for i in range(room)]
            result += [f"{name} other", f"{name} missing"]
        return tuple(result)

    @property
    def n_features(self) -> int:
        """The length of the vector."""
        return self.intercept + 2 * len(self.numbers) + sum(room + 2 for room in self.room.values())

    def check(self, row: Mapping[str, Any]) -> dict[str, float | str | None]:
        """Return the row with each value as a float, a text, or None if it is missing; raise if one is neither."""
        if not isinstance(row, Mapping):
            raise expected("context", "Deferrer", f"named features ({', '.join(self.features)})", row)
        unknown = [name for name in row if name not in self.scales and name not in self.room]
        if unknown:
            raise InvalidArgument(
                f"The context has a feature {unknown[0]!r} that the encoder does not know."
                f" It knows {', '.join(map(repr, self.features))}."
            )
        clean: dict[str, float | str | None] = {}
        for name in self.numbers:
            value: Any = row.get(name)
            if is_missing(value):
                clean[name] = None
            elif is_number(value) and abs(value) <= LARGEST:
                clean[name] = float(value)
            else:
                raise expected(name, "context", "a finite number, or None or NaN if it is missing", value)
        for name in self.room:
            value = row.get(name)
            clean[name] = None if is_missing(value) else str(value)
        return clean

    def see(self, row: Mapping[str, Any]) -> None:
        """Take a row into the running scales and levels."""
        for name, value in self.check(row).items():
            if isinstance(value, float):
                self.scales[name] = self.scales[name].seen(value)
            elif isinstance(value, str):
                levels = self.levels[name]
                if value not in levels and len(levels) < self.room[name]:
                    levels.append(value)

    def encode(self, row: Mapping[str, Any]) -> NDArray[np.float64]:
        """Return the vector of a row, with the scales and levels of now."""
        clean = self.check(row)
        x = np.zeros(self.n_features)
        at = 0
        if self.intercept:
            x[0] = 1.0
            at = 1
        for name in self.numbers:
            value = clean[name]
            if isinstance(value, float):
                scale = self.scales[name]
                x[at] = min(1.0, max(-1.0, (value - scale.mean) / (CLIP * scale.std)))
            else:
                x[at + 1] = 1.0
            at += 2
        for name, room in self.room.items():
            level = clean[name]
            if level is None:
                x[at + room + 1] = 1.0
            elif level in self.levels[name]:
                x[at + self.levels[name].index(str(level))] = 1.0
            else:
                x[at + room] = 1.0
            at += room + 2
        return x / math.sqrt(self.intercept + len(self.numbers) + len(self.room))

    def to_dict(self) -> dict[str, Any]:
        """Return everything that decides about an encoding, as plain data."""
        return {
            "numbers": list(self.numbers),
            "room": self.room,
            "levels": self.levels,
            "intercept": self.intercept,
            "scales": {name: list(scale) for name, scale in self.scales.items()},
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Encoder":
        """Return the encoder that `to_dict` was asked for."""
        encoder = cls(numbers=plain["numbers"], categories=plain["room"], intercept=plain["intercept"])
        encoder.levels = {name: list(levels) for name, levels in plain["levels"].items()}
        encoder.scales = {name: Scale(int(n), mean, sq) for name, (n, mean, sq) in plain["scales"].items()}
        return encoder
