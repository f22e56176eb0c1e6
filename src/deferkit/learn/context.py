"""Contexts: checking, encoding and loading them for the compiled core."""

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deferkit.errors import InvalidArgument, expected
from deferkit.learn.core import Core
from deferkit.learn.embed.representation import Representation
from deferkit.learn.encode import Encoder
from deferkit.periods import EARLIEST, LATEST, as_seconds
from deferkit.types import LARGEST, Amount, is_number, plain

Floats = NDArray[np.float64]


def is_frame(value: object) -> bool:
    """Whether a value is a pandas or polars frame."""
    return hasattr(value, "columns") and hasattr(value, "to_numpy")


def rows_of(table: Any, features: Collection[str]) -> list[dict[str, Any]]:
    """Return the rows of a frame, of columns by name, or of a list of rows by name.

    A frame that has all `features` may have other columns, which are left out.
    """
    what = "a frame, columns by name or a list of rows by name"
    try:
        if hasattr(table, "collect") and hasattr(table, "lazy"):
            table = table.collect()
        if is_frame(table):
            if set(features) <= set(table.columns):
                table = table[list(features)]
            columns = {name: table[name].to_list() for name in table.columns}
        elif isinstance(table, Mapping):
            columns = {name: list(column) for name, column in table.items() if not isinstance(column, str)}
        else:
            rows = list(table)
            if not all(isinstance(row, Mapping) for row in rows):
                raise expected("contexts", "Deferrer", what, table)
            return [dict(row) for row in rows]
    except (TypeError, AttributeError):
        raise expected("contexts", "Deferrer", what, type(table).__name__) from None
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1 or len(columns) != len(table.columns if is_frame(table) else table):
        raise expected("contexts", "Deferrer", "columns of one length, each name once", list(columns))
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def as_matrix(contexts: Any, n_features: int) -> Floats:
    """Return contexts as finite, contiguous float64 [n, n_features]."""
    what = f"finite numbers of shape [tasks, {n_features}]"
    try:
        contexts = contexts.collect() if hasattr(contexts, "collect") and hasattr(contexts, "lazy") else contexts
        given = np.asarray(contexts.to_numpy() if is_frame(contexts) else contexts)
        if given.size and given.dtype.kind not in "fiu":
            raise InvalidArgument(f"The 'contexts' of a Deferrer must be {what}. Got {given.dtype} instead.")
        array = np.ascontiguousarray(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument(f"The 'contexts' of a Deferrer must be {what}. {error}.") from error
    if array.ndim != 2 or array.shape[1] != n_features:
        raise InvalidArgument(f"The 'contexts' of a Deferrer must be {what}. Got the shape {array.shape} instead.")
    flat = array.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        fine = None if flat.dot(flat) <= LARGEST else np.abs(array) <= LARGEST  # one pass is enough for almost all
    if fine is not None and not fine.all():
        row, column = (int(i) for i in np.argwhere(~fine)[0])
        raise InvalidArgument(
            f"The 'contexts' of a Deferrer must be {what}. Got {array[row, column]} in row {row}, column {column}."
        )
    return array


def wrong_context(context: Any, n_features: int) -> InvalidArgument:
    """Return the error for a context that is not a vector of the right length."""
    got = f"the shape {context.shape}" if isinstance(context, np.ndarray) else repr(context)
    return InvalidArgument(f"The 'context' of a Deferrer must be {n_features} numbers. Got {got} instead.")


def as_context(context: Any, n_features: int) -> Floats:
    """Return one context as float64; the caller checks its length and that it is finite."""
    if isinstance(context, Mapping):
        raise InvalidArgument(
            f"The 'context' of a Deferrer without an encoder must be {n_features} numbers. Got named features instead."
        )
    try:
        array = np.asarray(context.to_numpy() if hasattr(context, "to_numpy") else context)
        if array.dtype.kind in "US" or (
            array.dtype.kind == "O" and any(isinstance(v, (str, bytes)) for v in array.flat)
        ):
            raise wrong_context(context, n_features)  # numpy would read numerals, as "12"
        return array.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InvalidArgument):
            raise
        raise wrong_context(context, n_features) from None


def as_vector(name: str, values: ArrayLike, n: int) -> Floats:
    """Return values as float64 [n]; NaN is allowed."""
    try:
        array = np.ascontiguousarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(f"The '{name}' must be {n} numbers. {error}.") from error
    if array.shape != (n,):
        raise InvalidArgument(
            f"The '{name}' must be {n} numbers, one for each task. Got the shape {array.shape} instead."
        )
    return array


def as_times(at: Any, n: int) -> Floats:
    """Return the times of n tasks as seconds: one for all of them or one for each, numbers or datetimes with a zone."""
    if isinstance(at, (int, float, datetime)):
        return np.full(n, as_seconds("at", "Deferrer", at))
    try:
        given = at.to_numpy() if hasattr(at, "to_numpy") else at
        if isinstance(given, np.ndarray) and given.dtype.kind in "fiu":
            array = np.ascontiguousarray(given, dtype=np.float64)
        else:
            array = np.array([as_seconds("at", "Deferrer", plain(each)) for each in given], dtype=np.float64)
    except TypeError:
        raise expected("at", "Deferrer", "the time of each task", at) from None
    if array.shape != (n,):
        raise expected("at", "Deferrer", f"{n} times, one for each task", array.shape)
    wrong = ~((array >= EARLIEST) & (array <= LATEST))
    if wrong.any():
        as_seconds("at", "Deferrer", array[wrong.argmax()].item())
    return array


def check_range(name: str, array: Floats, low: float, high: float, *, missing: bool) -> None:
    """Raise if a value is outside [low, high], or NaN unless `missing` values are allowed."""
    low, high = max(low, -LARGEST), min(high, LARGEST)
    if array.size == 0 or (low <= array.min() and array.max() <= high):
        return  # false if one of them is NaN
    fine = (array >= low) & (array <= high)
    if missing:
        fine |= np.isnan(array)
    if not fine.all():
        index = tuple(int(i) for i in np.argwhere(~fine)[0])
        raise InvalidArgument(
            f"The '{name}' must be between {low:g} and {high:g}. Got {array[index]} at {list(index)}."
        )


def as_rewards(
    rewards: Mapping[str, ArrayLike], deciders: Sequence[str], n: int, bounds: tuple[float, float], *, missing: bool
) -> Floats:
    """Return rewards by decider as [n, deciders], with NaN for deciders that are not given."""
    result = np.full((n, len(deciders)), np.nan)
    if not isinstance(rewards, Mapping):
        raise expected("rewards", "Deferrer", f"given by decider ({', '.join(deciders)})", rewards)
    for name, values in rewards.items():
        result[:, index_of(name, deciders, "decider")] = as_vector(f"rewards of {name}", values, n)
    if not missing:
        for name in deciders:
            if name not in rewards:
                raise expected("rewards", "Deferrer", f"given for {', '.join(deciders)}", list(rewards))
    for index, name in enumerate(deciders):
        check_range(f"rewards of {name}", result[:, index], *bounds, missing=missing)
    return result


def index_of(name: object, names: Sequence[str], what: str) -> int:
    """Return the index of a name; raise with a list of all names if there is no such one."""
    try:
        return names.index(cast("str", name))
    except ValueError:
        verb = "is" if len(names) == 1 else "are"
        raise InvalidArgument(f"There is no {what} {name!r}. There {verb} {', '.join(map(repr, names))}.") from None


def as_costs(cost: Any, experts: Sequence[str], resources: Sequence[str], n: int) -> Floats:
    """Return the cost of asking each expert as [n, experts, resources].

    Args:
        cost: Numbers [n] for one expert and one resource; else by expert, then by resource if there are several; or an
            array [n, experts, resources].
        experts: The names of the experts.
        resources: The names of the resources.
        n: The number of tasks.

    Raises:
        InvalidArgument: If the shape or a name is wrong.
    """
    shape = (n, len(experts), len(resources))
    if not isinstance(cost, Mapping):
        try:
            array = np.ascontiguousarray(cost, dtype=np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgument(f"The 'cost' must be numbers, one for each task. {error}.") from error
        if array.shape == shape:
            return array
        if shape[1:] == (1, 1):
            return as_vector("cost", array, n).reshape(shape)
        raise expected("cost", "Deferrer", f"given by expert ({', '.join(experts)})", array.shape)
    result = np.empty(shape)
    by_expert = cost if set(cost) == set(experts) else {experts[0]: cost} if len(experts) == 1 else None
    if by_expert is None:
        raise expected("cost", "Deferrer", f"given for {', '.join(experts)}", list(cost))
    for k, expert in enumerate(experts):
        each = by_expert[expert]
        by_resource = each if isinstance(each, Mapping) else {resources[0]: each}
        if set(by_resource) != set(resources):
            raise expected(f"cost of {expert}", "Deferrer", f"given for {', '.join(resources)}", list(by_resource))
        for r, resource in enumerate(resources):
            result[:, k, r] = as_vector(f"cost of {expert} in {resource}", by_resource[resource], n)
    return result


def as_amount(name: str, amount: Amount, resources: Sequence[str], low: float = 0.0) -> list[float]:
    """Return an amount as a list of numbers, one for each resource.

    Args:
        name: The argument, for the error message.
        amount: A number, or numbers by resource.
        resources: The names of the resources.
        low: The least number allowed; 0 by default.

    Raises:
        InvalidArgument: If a number is not finite or too small, or a resource is missing or unknown.

    >>> as_amount("cost", {"minutes": 3, "euros": 0.5}, ["euros", "minutes"])
    [0.5, 3.0]
    """
    if type(amount) is float and len(resources) == 1 and low <= amount <= LARGEST:
        return [amount]
    if isinstance(amount, Mapping):
        if set(amount) != set(resources):
            raise expected(name, "Deferrer", f"given for {', '.join(resources)}", dict(amount))
        numbers = [amount[resource] for resource in resources]
    elif len(resources) == 1:
        numbers = [amount]
    else:
        raise expected(name, "Deferrer", f"given for each of {', '.join(resources)}", amount)
    for number in numbers:
        if not is_number(number) or not low <= number <= LARGEST:
            raise expected(name, "Deferrer", f"a finite number of at least {low:g}", number)
    return [float(number) for number in numbers]


def as_totals(total: Amount, resources: Sequence[str], before: Sequence[float]) -> list[float]:
    """Return new totals of budgets; an infinite one stays infinite, because it has no horizon to pace over."""
    given = dict(total) if isinstance(total, Mapping) else {resources[0]: total} if len(resources) == 1 else total
    if not isinstance(given, dict) or set(given) != set(resources):
        raise expected("total", "budget", f"given for each of {', '.join(resources)}", total)
    for name, old in zip(resources, before, strict=True):
        endless = is_number(given[name]) and given[name] == math.inf
        if endless != (old == math.inf):
            raise expected("total", "budget", "infinite if it was, and else not", given[name])
    finite = [0.0 if old == math.inf else given[name] for name, old in zip(resources, before, strict=True)]
    checked = as_amount("total", dict(zip(resources, finite, strict=True)), resources)
    return [old if old == math.inf else new for new, old in zip(checked, before, strict=True)]


def as_known_costs(cost: Any, experts: Sequence[str], resources: Sequence[str]) -> Floats:
    """Return costs that are known before a decision as [experts, resources], with NaN for unknown ones."""
    result = np.full((len(experts), len(resources)), np.nan)
    if isinstance(cost, Mapping) and set(cost) <= set(experts):
        for expert, amount in cost.items():
            result[experts.index(expert)] = as_amount(f"cost of {expert}", amount, resources)
    elif len(experts) == 1:
        result[0] = as_amount("cost", cost, resources)
    else:
        raise expected("cost", "Deferrer", f"given by expert ({', '.join(experts)})", cost)
    return result


class ContextLoader:
    """Converts contexts: named features by an encoder, then the views of a representation, if there is one.

    Until the encoder's scales are frozen, its rows are kept in `rows_before_freeze`, to be encoded again.
    """

    def __init__(self, core: Core, n_features: int, encoder: Encoder | None, representation: Representation) -> None:
        self.encoder = None if encoder is None else encoder.copy()
        self.representation = representation
        self.largest = representation.largest  # absolute value of a feature
        self.rows_before_freeze: list[dict[str, Any]] = []
        self._core = core
        self._given: Floats = np.zeros((1, n_features))
        self._row = self._given[0]
        self._latest: list[float] | None = None  # the result of the last `load_event`, if it is in `_row`
        self._loaded_as = (-1, 0)  # the number of loads after it, and the version of its views
        self._views = representation.transform(self._given)

    def load(self, context: Any) -> None:
        """Load a context into the compiled core, or raise `InvalidArgument`."""
        if not (self.encoder.encode_row(context, self._row) if self.encoder is not None else False):
            self._convert(context)
        self._hand_over()

    def load_event(self, context: Any) -> Any:
        """Load a context, and return it as an event stores it: never the caller's own array."""
        if context is not self._latest or self._row.tolist() != context:
            kept = self._convert(context)
            self._hand_over()
            if self.encoder is not None:
                return kept
            self._latest = self._row.tolist()
            self._loaded_as = self._state_of_load()
            return self._latest
        if self._loaded_as != self._state_of_load():
            self._hand_over()
            self._loaded_as = self._state_of_load()
        return context  # it was just proposed and is applied now: it is loaded already

    def _state_of_load(self) -> tuple[int, int]:
        return self._core.n_loads, self.representation.version

    def _convert(self, context: Any) -> Any:
        """Write a context to `_row`; return it as checked by the encoder."""
        if self.encoder is not None:
            clean = self.encoder.check(context)
            self.encoder.encode_row(clean, self._row)
            return clean
        if type(context) is not np.ndarray:
            context = as_context(context, len(self._row))
        if context.shape != self._row.shape or context.dtype.kind not in "fiu":
            raise wrong_context(context, len(self._row))
        self._row[:] = context
        return context

    def _hand_over(self) -> None:
        # a hidden layer might turn a number that is too large into a valid one; smaller numbers are in the views
        # themselves, where the core checks them
        if self.largest < LARGEST and not np.abs(self._given).max() <= self.largest:
            raise self._not_finite()
        self.representation.write(self._given, self._views)
        if not self._core.try_load(self._views[0]):
            raise self._not_finite()

    def _not_finite(self) -> InvalidArgument:
        index = int(np.argmin(np.abs(self._row) <= self.largest))
        what = f"finite numbers up to {self.largest:g} (element {index})"
        return expected("context", "Deferrer", what, float(self._row[index]))

    def mark_decided(self) -> None:
        """Tell the representation that the context that was loaded last is decided."""
        self.representation.append_decided(self._given)
        self.representation.refresh_window_if_due()

    def vectors(self, contexts: Any) -> Floats:
        """Return contexts as the vectors of `Deferrer.coefficients`; with trees, those with the tree columns."""
        return self.representation.vectors(self.matrix(contexts))

    def rows(self, contexts: Any) -> list[dict[str, Any]] | None:
        """Return several contexts as checked rows of named features; None for a learner without an encoder."""
        if self.encoder is None:
            return None
        return [self.encoder.check(row) for row in rows_of(contexts, self.encoder.features)]

    def matrix(self, contexts: Any) -> Floats:
        """Return several contexts as vectors, with the current scales of the encoder."""
        rows = self.rows(contexts)
        if rows is not None:
            return self.encode(rows)
        matrix = as_matrix(contexts, len(self._row))
        if self.largest < LARGEST and len(matrix) and not np.abs(matrix).max() <= self.largest:
            most = float(np.abs(matrix).max())
            raise expected("contexts", "Deferrer", f"numbers up to {self.largest:g} with an embedding", most)
        return matrix

    def encode(self, rows: list[dict[str, Any]]) -> Floats:
        """Return the vectors of checked rows, with the current scales of the encoder."""
        matrix = np.zeros((len(rows), len(self._row)))
        if self.encoder is not None:
            for row, x in zip(rows, matrix, strict=True):
                self.encoder.encode_row(row, x)
        return matrix
