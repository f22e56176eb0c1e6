"""Encoder of named features: numbers with a running scale, one-hot categories, an intercept; in the unit ball."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.display import html_block, html_table, text_table
from deferkit.errors import InvalidArgument, expected
from deferkit.learn._encoding import RowEncoder
from deferkit.learn.core import CONSTANTS
from deferkit.learn.texts import WIDTH, hash_text
from deferkit.types import LARGEST, is_number, is_whole

CLIP = 3.0  # standard deviations at which a scaled number is clipped or squeezed
FREEZE_AFTER = 16  # rows that an encoder has seen, at least, before its scales are frozen
FENCE = 3.0  # quartile distances beyond the quartiles at which outliers are cut: the outer fences of Tukey
MIN_FOR_CUTS, ABSURD, UNIT = (CONSTANTS[name] for name in ("min_for_cuts", "absurd", "unit"))  # as in the rank tables


class Scale(NamedTuple):
    """The running mean and variance of a number feature (Welford: no large squares cancel)."""

    n: int = 0
    mean: float = 0.0
    squares: float = 0.0  # Σ (value − mean)²

    def with_value(self, value: float) -> "Scale":
        """Return the scale after one more value."""
        n = self.n + 1
        mean = self.mean + (value - self.mean) / n
        return Scale(n, mean, self.squares + (value - self.mean) * (value - mean))

    def with_values(self, values: NDArray[np.float64]) -> "Scale":
        """Return the scale after many more values: that of one by one, except for rounding (Chan).

        >>> Scale().with_value(1.0).with_values(np.array([2.0, 3.0]))
        Scale(n=3, mean=2.0, squares=2.0)
        """
        if not values.size:
            return self
        n, mean = self.n + values.size, float(values.mean())
        difference = mean - self.mean
        squares = self.squares + float(((values - mean) ** 2).sum())
        squares += difference * difference * self.n * values.size / n
        return Scale(n, self.mean + difference * values.size / n, squares)

    @property
    def std(self) -> float:
        """The standard deviation; 1 for a number that does not vary."""
        std = math.sqrt(self.squares / self.n) if self.n else 0.0
        return std if std > 0 else 1.0

    @property
    def largest(self) -> float:
        """The absolute value above which a number is absurd, and counts as missing in a learner with ranks."""
        size = abs(self.mean) + (self.std if self.squares else 0.0)
        return max(UNIT, ABSURD * size) if size > 0 else math.inf


def cut_outliers(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values without absurd ones, and cut at the fences; values up to 1 stay, as chances of rare classes are.

    Quartiles tell them, not deciles as in the rank tables: of the 16 values of a scale, three may be outliers.

    >>> cut_outliers(np.array([1e50, 60.0, *range(1, 19)])).tolist()[:3]
    [42.0, 1.0, 2.0]
    """
    n = len(values)
    if n < MIN_FOR_CUTS:
        return values
    low, high = np.sort(values)[[n // 4, n - 1 - n // 4]].tolist()
    reach = high - low if high > low else abs(high)
    if reach == 0:
        return values
    kept = values[np.abs(values) <= max(UNIT, ABSURD * max(abs(low), abs(high)))]
    return np.clip(kept, min(-UNIT, low - FENCE * reach), max(UNIT, high + FENCE * reach))


def is_missing(value: object) -> bool:
    """Whether a value is None, NaN or a missing value of pandas.

    Args:
        value: Anything.

    >>> is_missing(None), is_missing(float("nan")), is_missing(0.0), is_missing("")
    (True, True, False, False)
    """
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas' NA is neither equal nor unequal
        return True


def number_of(name: str, value: Any) -> float | None:
    """Return the value of a number feature, or None if it is missing.

    Args:
        name: The feature, for the error message.
        value: What a context holds.

    Raises:
        InvalidArgument: If it is neither a finite number nor missing.

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
    # most of a million cells are strings, for which one look at the type is enough
    return [value if type(value) is str else None if is_missing(value) else str(value) for value in values]


def first_index_of_levels(levels: Sequence[str]) -> dict[str, int]:
    """Return the index of each level; of one that is given twice, the first.

    >>> first_index_of_levels(["de", "fr", "de"])
    {'de': 0, 'fr': 1}
    """
    indices: dict[str, int] = {}
    for index, level in enumerate(levels):
        indices.setdefault(level, index)
    return indices


def vector_of(value: Any, length: int) -> NDArray[np.float64] | None:
    """Return a value as a vector of finite numbers; None if it is none.

    >>> vector_of([1, 2], 2), vector_of([1.0], 2), vector_of(["a", "b"], 2)
    (array([1., 2.]), None, None)
    """
    try:
        array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    except (TypeError, ValueError):
        return None
    if array.shape != (length,) or array.dtype.kind not in "fiu":
        return None
    vector = array.astype(np.float64)
    return vector if (np.abs(vector) <= LARGEST).all() else None


def matrix_of(name: str, function: Callable[[list[str]], Any], texts: list[str]) -> Any:
    """Return the vectors of texts by a function; raise unless there is one for each."""
    made = np.asarray(function(texts))
    if made.ndim != 2 or len(made) != len(texts):
        what = "a function that returns a matrix with a row for each text"
        raise expected(f"texts[{name!r}]", "Encoder", what, made.shape)
    return made


def squeeze(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values within ±1 as they are, and ±(2 − 1/|value|) beyond: bounded, and in the same order.

    >>> squeeze(np.array([0.5, 1.0, -4.0])).tolist()
    [0.5, 1.0, -1.75]
    """
    beyond = np.abs(values) > 1.0
    inverse = np.divide(1.0, values, out=np.zeros_like(values), where=beyond)
    return np.where(beyond, np.copysign(2.0, values) - inverse, values)


class Encoder:
    """Converts named features to vectors of fixed length within the unit ball.

    A number becomes (value − mean) / (3 std), clipped at ±1, and an indicator of a missing value. In a `Deferrer` with
    ranks, numbers beyond ±1 are squeezed to within ±2 instead, so that they keep their order. A category becomes
    one-hot: a column for each level, one for any other level and one for a missing value. The mean, the std and levels
    that are not given are learned in the learner's warm-up, then frozen, so that a vector keeps its meaning. With
    ranks, outliers are cut before, and an absurd number counts as missing.

    Args:
        numbers: The names of the number features; none by default.
        categories: The categories by name, each with its levels, or with the most levels that it can have: then the
            first ones seen are taken. None by default.
        intercept: Whether the first element is constant; True by default.
        confidence: The number feature that is the model's own confidence, for the prior of a `Deferrer`; None by
            default.
        vectors: The features that are vectors, such as embeddings, by name, each with its length. One longer than 1
            is scaled to length 1. None by default.
        texts: The features that are texts: names, whose words are hashed to 64 elements; or, by name, how many, or a
            function of your own that takes a list of texts and returns a matrix. A state file has no functions: in a
            loaded learner such a feature takes vectors. None by default.

    Raises:
        InvalidArgument: If there is no feature, a name occurs twice, or an argument is of the wrong type.

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
        confidence: str | None = None,
        vectors: Mapping[str, int] | None = None,
        texts: Sequence[str] | Mapping[str, int | Callable[[list[str]], Any]] | None = None,
    ) -> None:
        if isinstance(numbers, str) or not isinstance(numbers, Sequence):
            raise expected("numbers", "Encoder", "a list of names", numbers)
        if categories is not None and not isinstance(categories, Mapping):
            raise expected("categories", "Encoder", "levels, or their number, by name", categories)
        for name in (*numbers, *(categories or {})):
            if not isinstance(name, str):
                raise expected("numbers", "Encoder", "names, and categories too", name)
        self.numbers = tuple(numbers)
        self.max_levels: dict[str, int] = {}
        self.levels: dict[str, list[str]] = {}
        for name, levels in (categories or {}).items():
            if isinstance(levels, Sequence) and not isinstance(levels, str):
                self.max_levels[name], self.levels[name] = len(levels), [str(level) for level in levels]
            elif is_whole(levels, 1):
                self.max_levels[name], self.levels[name] = int(levels), []
            else:
                raise expected(f"categories[{name!r}]", "Encoder", "a list of levels or their number", levels)
        self.intercept = bool(intercept)
        self.clips = True  # False in a learner with ranks
        self.confidence = confidence
        if confidence is not None and confidence not in self.numbers:
            raise expected("confidence", "Encoder", "the name of a number feature", confidence)
        self._rows: RowEncoder | None = None  # compiled for the current scales when the first row is encoded
        self.scales = {name: Scale() for name in self.numbers}
        self.blocks: dict[str, int] = {}  # lengths of vectors, and of texts as vectors
        self.hashed: tuple[str, ...] = ()  # texts whose words are hashed
        self.functions: dict[str, Callable[[list[str]], Any]] = {}  # of other texts; not in the state
        self._add_blocks({} if vectors is None else vectors, {} if texts is None else texts)
        if not self.features:
            raise expected("numbers", "Encoder", "given, or categories", [])
        if len(set(self.features)) < len(self.features):
            raise expected("numbers", "Encoder", "names that occur once", self.features)

    def _add_blocks(self, vectors: Mapping[str, int], texts: Any) -> None:
        if isinstance(texts, str) or not isinstance(texts, Sequence | Mapping):
            raise expected("texts", "Encoder", "a list of names, or lengths or functions by name", texts)
        hashed = texts if isinstance(texts, Mapping) else dict.fromkeys(texts, WIDTH)
        if not isinstance(vectors, Mapping) or {*vectors} & {*hashed}:
            raise expected("vectors", "Encoder", "lengths by name, each name once", vectors)
        for name, given in {**vectors, **hashed}.items():
            length = given
            if name in hashed and callable(given):
                self.functions[name], length = given, len(matrix_of(name, given, [""])[0])
            elif name in hashed:
                self.hashed += (name,)
            if not isinstance(name, str) or not is_whole(length, 1):
                raise expected(f"vectors[{name!r}]", "Encoder", "the length of the vector", given)
            self.blocks[name] = int(length)

    def copy(self) -> "Encoder":
        """Return an independent encoder with the same features, scales, levels and functions.

        >>> Encoder(texts={"note": lambda texts: [[1.0, 0.0]] * len(texts)}).copy().encode({"note": "hi"}).round(2)
        array([0.71, 0.71, 0.  , 0.  ])
        """
        encoder = Encoder.from_dict(self.to_dict())
        encoder.functions = dict(self.functions)
        return encoder

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features that a row may have."""
        return (*self.numbers, *self.max_levels, *self.blocks)

    @property
    def _size(self) -> float:
        """The divisor of all elements, so that the vector is in the unit ball."""
        return math.sqrt(self.intercept + len(self.features))

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each element of the vector."""
        result = ["intercept"] if self.intercept else []
        for name in self.numbers:
            result += [name, f"{name} missing"]
        for name, max_levels in self.max_levels.items():
            known = self.levels[name]
            result += [f"{name}={known[i]}" if i < len(known) else f"{name} level {i + 1}" for i in range(max_levels)]
            result += [f"{name} other", f"{name} missing"]
        for name, length in self.blocks.items():
            result += [*(f"{name} {i + 1}" for i in range(length)), f"{name} missing"]
        return tuple(result)

    @property
    def n_features(self) -> int:
        """The length of the vector."""
        return self._before_blocks + sum(length + 1 for length in self.blocks.values())

    @property
    def _before_blocks(self) -> int:
        return self.intercept + 2 * len(self.numbers) + sum(most + 2 for most in self.max_levels.values())

    @property
    def indicators(self) -> list[int]:
        """For each element of the vector, the element that is not 0 where its feature is missing; -1 if none is.

        >>> Encoder(numbers=["age"], categories={"kind": 1}).indicators
        [-1, 2, -1, -1, -1, -1]
        """
        found = [-1] * self.n_features
        for i in range(len(self.numbers)):
            found[self.intercept + 2 * i] = self.intercept + 2 * i + 1
        at = self._before_blocks
        for length in self.blocks.values():
            found[at : at + length] = [at + length] * length
            at += length + 1
        return found

    def describe_features(self) -> list[list[str]]:
        """Return a row for each feature: its name, its kind, and its scale or levels.

        >>> Encoder(numbers=["age"], categories={"kind": ["a"]}).describe_features()
        [['age', 'number', 'no value yet'], ['kind', 'category', 'a']]
        """
        rows = []
        for name, scale in self.scales.items():
            rows.append([name, "number", f"{scale.mean:.4g} ± {scale.std:.4g}" if scale.n else "no value yet"])
        for name, room in self.max_levels.items():
            levels = ", ".join(self.levels[name])
            rows.append([name, "category", levels + f" (room for {room})" * (len(self.levels[name]) < room)])
        for name, length in self.blocks.items():
            kind = "text, hashed" if name in self.hashed else "text" if name in self.functions else "vector"
            rows.append([name, kind, f"{length} elements"])
        return rows

    def __repr__(self) -> str:
        """Return the features, their scales and levels as lines."""
        table = text_table((["feature", "kind", "mean ± std, or levels"], self.describe_features()), 3)
        return f"Encoder: vectors of {self.n_features} elements\n{table}"

    def _repr_html_(self) -> str:
        table = html_table((["feature", "kind", "mean ± std, or levels"], self.describe_features()), 3)
        return html_block(f"Encoder: vectors of {self.n_features} elements", table)

    def check(self, row: Mapping[str, Any]) -> dict[str, float | str | list[float] | None]:
        """Return a row with each value as a float, a string, or None if it is missing.

        Args:
            row: Values by feature; a feature that is left out is missing.

        Raises:
            InvalidArgument: If a feature is unknown, or the value of a number feature is not a number.

        >>> Encoder(numbers=["age"], categories={"kind": 3}).check({"age": 41, "kind": "a"})
        {'age': 41.0, 'kind': 'a'}
        """
        if hasattr(row, "to_dict") and not isinstance(row, Mapping):  # a row of a pandas frame
            row = row.to_dict()
            row = {name: row[name] for name in self.features} if set(self.features) <= set(row) else row
        if not isinstance(row, Mapping):
            raise expected("context", "Deferrer", f"named features ({', '.join(self.features)})", row)
        self._check_names(row)
        clean: dict[str, float | str | list[float] | None] = {}
        for name in self.numbers:
            clean[name] = number_of(name, row.get(name))
        for name in self.max_levels:
            value: Any = row.get(name)
            clean[name] = None if is_missing(value) else str(value)
        for name in self.blocks:
            clean[name] = self._check_block(name, row.get(name))
        return clean

    def _check_block(self, name: str, value: Any) -> str | list[float] | None:
        """Return a text that is to be hashed, or a vector; that of another text by its function."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return None
        if isinstance(value, str) and name in self.hashed:
            return value
        if isinstance(value, str) and name in self.functions:
            value = matrix_of(name, self.functions[name], [value])[0]
        vector = vector_of(value, self.blocks[name]) if name not in self.hashed else None
        if vector is None:
            what = "a text" if name in self.hashed else f"a vector of {self.blocks[name]} finite numbers"
            lost = isinstance(value, str) and name not in self.hashed
            more = ", because a loaded learner has no function for its texts" if lost else ""
            raise expected(name, "context", f"{what} or None{more}", value)
        found: list[float] = vector.tolist()
        return found

    def _write_blocks(self, row: Mapping[str, Any], x: NDArray[np.float64]) -> bool:
        """Write texts and vectors behind the other elements and return True; False if one needs `check`."""
        at, size = self._before_blocks, self._size
        for name, length in self.blocks.items():
            value = row.get(name)
            if value is None:
                x[at : at + length], x[at + length] = 0.0, 1.0 / size
            else:
                hashes = isinstance(value, str) and name in self.hashed
                vector = hash_text(value, length) if hashes else vector_of(value, length)
                if vector is None or (name in self.hashed and not hashes):
                    return False
                x[at : at + length], x[at + length] = vector / (size * max(1.0, float(np.linalg.norm(vector)))), 0.0
            at += length + 1
        return True

    def _check_names(self, given: Mapping[str, Any]) -> None:
        unknown = [name for name in given if name not in self.features]
        if unknown:
            raise InvalidArgument(
                f"The context has a feature {unknown[0]!r} that the encoder does not know."
                f" It knows {', '.join(map(repr, self.features))}."
            )

    def see(self, row: Mapping[str, Any]) -> None:
        """Update the running scales and the levels with a row.

        Args:
            row: Values by feature.

        Raises:
            InvalidArgument: If the row is invalid.

        >>> encoder = Encoder(categories={"kind": 1})
        >>> encoder.see({"kind": "a"})
        >>> encoder.names
        ('intercept', 'kind=a', 'kind other', 'kind missing')
        """
        self._rows = None
        for name, value in self.check(row).items():
            if isinstance(value, float):
                self.scales[name] = self.scales[name].with_value(value)
            elif isinstance(value, str) and name in self.levels:
                levels = self.levels[name]
                if value not in levels and len(levels) < self.max_levels[name]:
                    levels.append(value)

    def cut_scales(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Take outliers out of the scales of the numbers whose values are all in these checked rows."""
        self._rows = None
        for name, scale in self.scales.items():
            values = np.array([row[name] for row in rows if row[name] is not None], dtype=np.float64)
            cut = cut_outliers(values)
            if scale.n == len(values) and not np.array_equal(cut, values):
                self.scales[name] = Scale().with_values(cut)

    def encode(self, row: Mapping[str, Any]) -> NDArray[np.float64]:
        """Return the vector of a row, with the current scales and levels.

        Args:
            row: Values by feature.

        Raises:
            InvalidArgument: If the row is invalid.

        >>> Encoder(categories={"kind": ["a"]}, intercept=False).encode({"kind": "b"})
        array([0., 1., 0.])
        """
        x = np.zeros(self.n_features)
        self.encode_row(self.check(row), x)
        return x

    def encode_row(self, row: Any, x: NDArray[np.float64]) -> bool:
        """Write the vector of a row to x and return True; return False if the row must go through `check` first.

        Args:
            row: Values by feature; a dict of floats, ints, strings and None needs no check.
            x: [n_features] The vector to write to; undefined after False.
        """
        if self._rows is None:
            levels = {name: first_index_of_levels(known) for name, known in self.levels.items()}
            self._rows = RowEncoder(
                self.numbers,
                [self.scales[name].mean for name in self.numbers],
                [CLIP * self.scales[name].std for name in self.numbers],
                levels,
                list(self.max_levels.values()),
                self._size,
                self.intercept,
                self.clips,
                self._bounds(),
            )
        if not self.blocks:
            return type(row) is dict and self._rows.encode(row, x)
        others = {name: value for name, value in row.items() if name not in self.blocks} if type(row) is dict else None
        return others is not None and self._rows.encode(others, x[: self._before_blocks]) and self._write_blocks(row, x)

    def _bounds(self) -> list[float]:
        """Return the largest absolute value of each number that is not absurd."""
        return [math.inf if self.clips else self.scales[name].largest for name in self.numbers]

    def see_columns(self, columns: Mapping[str, Sequence[Any] | NDArray[Any]]) -> None:
        """Update the scales and levels with many rows at once; as `see` for each, except for rounding.

        Args:
            columns: The values of each feature, all of one length.

        Raises:
            InvalidArgument: If a feature is unknown, a value is invalid, or the lengths differ.
        """
        self._rows = None
        numbers, texts, _ = self._check_columns(columns)
        for name, values in numbers.items():
            self.scales[name] = self.scales[name].with_values(values[~np.isnan(values)])
        for name, cells in texts.items():
            levels, most = self.levels[name], self.max_levels[name]
            if len(levels) < most:
                new = [text for text in dict.fromkeys(cells) if text is not None and text not in levels]
                levels += new[: most - len(levels)]

    def encode_columns(self, columns: Mapping[str, Sequence[Any] | NDArray[Any]]) -> NDArray[np.float64]:
        """Return the vectors [n, d] of many rows at once, exactly those of `encode`.

        Args:
            columns: The values of each feature, all of length n.

        Raises:
            InvalidArgument: If a feature is unknown, a value is invalid, or the lengths differ.

        >>> encoder = Encoder(numbers=["amount"], categories={"country": ["de", "fr"]})
        >>> columns = {"amount": [10.0, 30.0, None], "country": ["de", "fr", None]}
        >>> encoder.see_columns(columns)
        >>> encoder.encode_columns(columns).shape
        (3, 7)
        >>> bool((encoder.encode_columns(columns)[1] == encoder.encode({"amount": 30.0, "country": "fr"})).all())
        True
        """
        numbers, texts, n = self._check_columns(columns)
        size = self._size
        x = np.zeros((n, self.n_features))
        column = 0
        if self.intercept:
            x[:, 0] = 1.0 / size
            column = 1
        for (name, values), bound in zip(numbers.items(), self._bounds(), strict=True):
            scale = self.scales[name]
            missing = np.isnan(values) | (np.abs(values) > bound)
            scaled = (values - scale.mean) / (CLIP * scale.std)
            scaled = (np.clip(scaled, -1.0, 1.0) if self.clips else squeeze(scaled)) / size
            x[:, column] = np.where(missing, 0.0, scaled)
            x[missing, column + 1] = 1.0 / size
            column += 2
        every = np.arange(n)
        for name, cells in texts.items():
            most = self.max_levels[name]
            offsets: dict[str | None, int] = dict(first_index_of_levels(self.levels[name])) | {None: most + 1}
            x[every, column + np.fromiter((offsets.get(text, most) for text in cells), np.int64, n)] = 1.0 / size
            column += most + 2
        for i in range(n) if self.blocks else ():
            given = {name: self._check_block(name, columns[name][i]) for name in self.blocks if name in columns}
            self._write_blocks(given, x[i])
        return x

    def _check_columns(
        self, columns: Mapping[str, Sequence[Any] | NDArray[Any]]
    ) -> tuple[dict[str, NDArray[np.float64]], dict[str, list[str | None]], int]:
        """Return number columns with NaN for missing values, category columns with None, and the number of rows."""
        self._check_names(columns)
        lengths = {len(column) for column in columns.values()}
        if len(lengths) != 1:
            raise expected("columns", "Encoder", "columns of one length", sorted(lengths))
        n = lengths.pop()
        numbers = {name: as_numbers(name, columns.get(name, [None] * n)) for name in self.numbers}
        texts = {name: as_texts(columns.get(name, [None] * n)) for name in self.max_levels}
        return numbers, texts, n

    def to_dict(self) -> dict[str, Any]:
        """Return features, scales and levels as JSON values, for the state file."""
        return (
            {
                "numbers": list(self.numbers),
                "room": self.max_levels,
                "levels": self.levels,
                "intercept": self.intercept,
                "scales": {name: list(scale) for name, scale in self.scales.items()},
            }
            | ({} if self.clips else {"clips": False})
            | self._blocks_as_dict()
        )

    def _blocks_as_dict(self) -> dict[str, Any]:
        return {"blocks": self.blocks, "hashed": list(self.hashed)} if self.blocks else {}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Encoder":
        """Restore an encoder from `to_dict()`.

        Args:
            plain: Features, scales and levels.

        Raises:
            ValueError: If no encoder can have them.

        >>> Encoder.from_dict(Encoder(numbers=["age"]).to_dict()).names
        ('intercept', 'age', 'age missing')
        """
        blocks, hashed = plain.get("blocks", {}), plain.get("hashed", [])
        encoder = cls(
            numbers=plain["numbers"],
            categories=plain["room"],
            intercept=plain["intercept"],
            vectors={name: length for name, length in blocks.items() if name not in hashed},
            texts={name: blocks[name] for name in hashed},
        )
        encoder.blocks = {name: encoder.blocks[name] for name in blocks}
        encoder.clips = bool(plain.get("clips", True))
        encoder.levels = {name: list(levels) for name, levels in plain["levels"].items()}
        encoder.scales = {name: Scale(int(n), mean, sq) for name, (n, mean, sq) in plain["scales"].items()}
        if list(encoder.levels) != list(encoder.max_levels) or list(encoder.scales) != list(encoder.numbers):
            raise ValueError("the levels or scales of an encoder are not those of its features")
        if any(len(known) > encoder.max_levels[name] for name, known in encoder.levels.items()):
            raise ValueError("an encoder has more levels than it has room for")
        if not all(type(level) is str for known in encoder.levels.values() for level in known):
            raise ValueError("the levels of an encoder are not texts")
        if not all(s.n >= 0 and math.isfinite(s.mean) and 0 <= s.squares < math.inf for s in encoder.scales.values()):
            raise ValueError("a scale of an encoder is not finite")
        return encoder
