"""Contexts as users give them, checked and converted to the vectors that the compiled core reads."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import InvalidArgument, expected
from deferkit.learn import inputs
from deferkit.learn.core import Core
from deferkit.learn.encode import Encoder
from deferkit.learn.representation import Representation
from deferkit.learn.tree_columns import TreeColumns
from deferkit.types import LARGEST

Floats = NDArray[np.float64]


class ContextLoader:
    """Converts contexts: named features by an encoder, then the views of a representation, if there is one.

    Until the encoder's scales are frozen, its rows are kept in `rows_before_freeze`, to be encoded again.
    """

    def __init__(
        self, core: Core, n_features: int, encoder: Encoder | None, representation: Representation | None
    ) -> None:
        self.encoder = None if encoder is None else Encoder.from_dict(encoder.to_dict())
        self.representation = representation
        self.largest = LARGEST if representation is None else representation.largest  # absolute value of a feature
        self.rows_before_freeze: list[dict[str, Any]] = []
        self._core = core
        self._given: Floats = np.zeros((1, n_features))
        self._row = self._given[0]
        self._latest: list[float] | None = None  # the result of the last `load_event`, if it is in `_row`
        self._loaded_as = (-1, 0)  # the number of loads after it, and the version of its views
        self._views = self._given if representation is None else representation.transform(self._given)

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
        return self._core.n_loads, 0 if self.representation is None else self.representation.version

    def _convert(self, context: Any) -> Any:
        """Write a context to `_row`; return it as checked by the encoder."""
        if self.encoder is not None:
            clean = self.encoder.check(context)
            self.encoder.encode_row(clean, self._row)
            return clean
        if type(context) is not np.ndarray:
            context = inputs.as_context(context, len(self._row))
        if context.shape != self._row.shape or context.dtype.kind not in "fiu":
            raise inputs.wrong_context(context, len(self._row))
        self._row[:] = context
        return context

    def _hand_over(self) -> None:
        if self.representation is not None:
            # a hidden layer might turn a number that is too large into a valid one; what is no larger than all
            # numbers may be is in the views itself, and the core sees to it
            if self.largest < LARGEST and not np.abs(self._given).max() <= self.largest:
                raise self._not_finite()
            self.representation.write(self._given, self._views)
        if not self._core.try_load(self._views[0]):
            raise self._not_finite()

    def _not_finite(self) -> InvalidArgument:
        index = int(np.argmin(np.abs(self._row) <= self.largest))
        what = f"finite numbers up to {self.largest:g} (element {index})"
        return expected("context", "Deferrer", what, float(self._row[index]))

    def decided(self) -> None:
        """Tell the representation that the context that was loaded last is decided."""
        if self.representation is not None:
            self.representation.append_decided(self._given)
            self.representation.refresh_window_if_due()

    def represent(self, matrix: Floats) -> Floats:
        """Return the views of context vectors, which the compiled core reads."""
        return matrix if self.representation is None else self.representation.transform(matrix)

    def vectors(self, contexts: Any) -> Floats:
        """Return contexts as the vectors of `Deferrer.coefficients`; with trees, those with the tree columns."""
        views = self.represent(self.matrix(contexts))
        return views[:, -self.representation.width :] if isinstance(self.representation, TreeColumns) else views

    def rows(self, contexts: Any) -> list[dict[str, Any]] | None:
        """Return several contexts as checked rows of named features; None for a learner without an encoder."""
        if self.encoder is None:
            return None
        return [self.encoder.check(row) for row in inputs.rows_of(contexts)]

    def matrix(self, contexts: Any) -> Floats:
        """Return several contexts as vectors, with the current scales of the encoder."""
        rows = self.rows(contexts)
        if rows is not None:
            return self.encode(rows)
        matrix = inputs.as_matrix(contexts, len(self._row))
        if self.representation is not None and len(matrix) and not np.abs(matrix).max() <= self.largest:
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
