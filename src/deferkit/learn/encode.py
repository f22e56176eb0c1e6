"""Named features to vectors: numbers with a running scale, categories one-hot, an intercept, in the unit ball."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import InvalidArgument, expected
from deferkit.learn._encoding import RowEncoder
from deferkit.types import LARGEST, is_number, is_whole

CLIP = 3.0  # standard deviations at which a number is cut


class Scale(NamedTuple):
    """The running mean and spread of a number (Welford's way: no large squares to cancel)."""

    n: int = 0
    mean: float = 0.0
    squares: float = 0.0  # Σ (value − mean)²

    def with_value(self, value: float) -> "Scale":
        """Return the scale with one more value."""
        n = self.n + 1
        mean = self.mean + (value - self.mean) / n
        return Scale(n, mean, self.squares + (value - self.mean) * (value - mean))

    def with_values(self, values: NDArray[np.float64]) -> "Scale":
        """Return the scale with many more values: that of them one by one, but for rounding (Chan's way to join two).

        >>> Scale().with_value(1.0).with_values(np.array([2.0, 3.0]))
        Scale(n=3, mean=2.0, squares=2.0)
        """
        if not values.size:
            return self
        n, mean = self.n + values.size, float(values.mean())
        apart = mean - self.mean
        squares = self.squares + float(((values - mean) ** 2).sum()) + apart * apart * self.n * values.size / n
        return Scale(n, self.mean + apart * values.size / n, squares)

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


def number_of(name: str, value: Any) -> float | None:
    """Return the value of a number feature, None if it is missing; raise if it is something else.

    >>> number_of("age", 41), number_of("age", float("nan"))
    (41.0, None)
    """
    if is_missing(value):
        return None
    if is_number(value) and abs(value) <= LARGEST:
        return float(value)
    raise expected(name, "context", "a finite number, or None or NaN if it is missing", value)


def as_numbers(name: str, values: Sequence[Any] | NDArray[Any]) -> NDArray[np.float64]:
    """Return the column of a number feature, NaN where a value is missing; raise if one is something else."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiu":
        column = values.astype(np.float64)
        wrong = np.flatnonzero(np.abs(column) > LARGEST)
        if wrong.size:
            number_of(name, float(column[wrong[0]]))
        return column
    each = (number_of(name, value) for value in values)
    return np.array([math.nan if number is None else number for number in each], dtype=np.float64)


def as_texts(values: Sequence[Any] | NDArray[Any]) -> list[str | None]:
    """Return the column of a category as texts, None where a value is missing.

    >>> as_texts(["a", 1, None, float("nan")])
    ['a', '1', None, None]
    """
    # of a million cells, most are texts: those need no more than a look at their type
    return [value if type(value) is str else None if is_missing(value) else str(value) for value in values]


def first_index_of_levels(levels: Sequence[str]) -> dict[str, int]:
    """Return the place of each level; of one that is given twice, the first.

    >>> first_index_of_levels(["de", "fr", "de"])
    {'de': 0, 'fr': 1}
    """
    places: dict[str, int] = {}
    for place, level in enumerate(levels):
        places.setdefault(level, place)
    return places


class Encoder:
    """Turns named features into a vector of fixed length within the unit ball.

    A number becomes (value − mean) / (3 std), cut at ±1, and a column that says whether it is missing. A category
    becomes a column for each level, one for any other level and one for a missing value. Levels are given, or their
    number is, and then the first ones seen in the warm-up are taken. Mean, std and levels settle in the learner's
    warm-up; from then on a vector means the same thing for ever.

    Arguments:
        numbers: names of the number features.
        categories: for each category, by name: its levels, or how many there is room for.
        intercept: whether the first element is constant; True by default.

    Raises:
        InvalidArgument: if there is no feature, if a name occurs twice, or if an argument is of the wrong kind.

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
        self._rows: RowEncoder | None = None  # made when the first row is encoded with the scales of now
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
        self._check_names(row)
        clean: dict[str, float | str | None] = {}
        for name in self.numbers:
            clean[name] = number_of(name, row.get(name))
        for name in self.room:
            value: Any = row.get(name)
            clean[name] = None if is_missing(value) else str(value)
        return clean

    def _check_names(self, given: Mapping[str, Any]) -> None:
        unknown = [name for name in given if name not in self.scales and name not in self.room]
        if unknown:
            raise InvalidArgument(
                f"The context has a feature {unknown[0]!r} that the encoder does not know."
                f" It knows {', '.join(map(repr, self.features))}."
            )

    def see(self, row: Mapping[str, Any]) -> None:
        """Take a row into the running scales and levels."""
        self._rows = None
        for name, value in self.check(row).items():
            if isinstance(value, float):
                self.scales[name] = self.scales[name].with_value(value)
            elif isinstance(value, str):
                levels = self.levels[name]
                if value not in levels and len(levels) < self.room[name]:
                    levels.append(value)

    def encode(self, row: Mapping[str, Any]) -> NDArray[np.float64]:
        """Return the vector of a row, with the scales and levels of now."""
        x = np.zeros(self.n_features)
        self.encode_row(self.check(row), x)
        return x

    def encode_row(self, row: Any, x: NDArray[np.float64]) -> bool:
        """Write the vector of a plain row, or of a checked one, to x; return whether the row was plain."""
        if self._rows is None:
            levels = {name: first_index_of_levels(known) for name, known in self.levels.items()}
            self._rows = RowEncoder(
                self.numbers,
                [self.scales[name].mean for name in self.numbers],
                [CLIP * self.scales[name].std for name in self.numbers],
                levels,
                list(self.room.values()),
                math.sqrt(self.intercept + len(self.numbers) + len(self.room)),
                self.intercept,
            )
        return type(row) is dict and self._rows.encode(row, x)

    def see_columns(self, columns: Mapping[str, Sequence[Any] | NDArray[Any]]) -> None:
        """Take many rows into the scales and levels at once, a column for each feature; as `see`, but for rounding."""
        self._rows = None
        numbers, texts, _ = self._checked(columns)
        for name, values in numbers.items():
            self.scales[name] = self.scales[name].with_values(values[~np.isnan(values)])
        for name, cells in texts.items():
            levels, room = self.levels[name], self.room[name]
            if len(levels) < room:
                new = [text for text in dict.fromkeys(cells) if text is not None and text not in levels]
                levels += new[: room - len(levels)]

    def encode_columns(self, columns: Mapping[str, Sequence[Any] | NDArray[Any]]) -> NDArray[np.float64]:
        """Return the vectors [n, d] of many rows, given as a column for each feature: exactly those of `encode`.

        >>> encoder = Encoder(numbers=["amount"], categories={"country": ["de", "fr"]})
        >>> columns = {"amount": [10.0, 30.0, None], "country": ["de", "fr", None]}
        >>> encoder.see_columns(columns)
        >>> encoder.encode_columns(columns).shape
        (3, 7)
        >>> bool((encoder.encode_columns(columns)[1] == encoder.encode({"amount": 30.0, "country": "fr"})).all())
        True
        """
        numbers, texts, n = self._checked(columns)
        size = math.sqrt(self.intercept + len(self.numbers) + len(self.room))
        x = np.zeros((n, self.n_features))
        at = 0
        if self.intercept:
            x[:, 0] = 1.0 / size
            at = 1
        for name, values in numbers.items():
            scale = self.scales[name]
            missing = np.isnan(values)
            scaled = np.clip((values - scale.mean) / (CLIP * scale.std), -1.0, 1.0) / size
            x[:, at] = np.where(missing, 0.0, scaled)
            x[missing, at + 1] = 1.0 / size
            at += 2
        every = np.arange(n)
        for name, cells in texts.items():
            room = self.room[name]
            places: dict[str | None, int] = dict(first_index_of_levels(self.levels[name])) | {None: room + 1}
            x[every, at + np.fromiter((places.get(text, room) for text in cells), np.int64, n)] = 1.0 / size
            at += room + 2
        return x

    def _checked(
        self, columns: Mapping[str, Sequence[Any] | NDArray[Any]]
    ) -> tuple[dict[str, NDArray[np.float64]], dict[str, list[str | None]], int]:
        """Return number columns with NaN where one is missing, category columns with None, and the number of rows."""
        self._check_names(columns)
        lengths = {len(column) for column in columns.values()}
        if len(lengths) != 1:
            raise expected("columns", "Encoder", "columns of one length", sorted(lengths))
        n = lengths.pop()
        numbers = {name: as_numbers(name, columns.get(name, [None] * n)) for name in self.numbers}
        texts = {name: as_texts(columns.get(name, [None] * n)) for name in self.room}
        return numbers, texts, n

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
        """Return an encoder from what `to_dict` returned; raise ValueError if no encoder can have.

        >>> Encoder.from_dict(Encoder(numbers=["age"]).to_dict()).names
        ('intercept', 'age', 'age missing')
        """
        encoder = cls(numbers=plain["numbers"], categories=plain["room"], intercept=plain["intercept"])
        encoder.levels = {name: list(levels) for name, levels in plain["levels"].items()}
        encoder.scales = {name: Scale(int(n), mean, sq) for name, (n, mean, sq) in plain["scales"].items()}
        if list(encoder.levels) != list(encoder.room) or list(encoder.scales) != list(encoder.numbers):
            raise ValueError("the levels or scales of an encoder are not those of its features")
        if any(len(known) > encoder.room[name] for name, known in encoder.levels.items()):
            raise ValueError("an encoder has more levels than it has room for")
        if not all(type(level) is str for known in encoder.levels.values() for level in known):
            raise ValueError("the levels of an encoder are not texts")
        if not all(s.n >= 0 and math.isfinite(s.mean) and 0 <= s.squares < math.inf for s in encoder.scales.values()):
            raise ValueError("a scale of an encoder is not finite")
        return encoder
