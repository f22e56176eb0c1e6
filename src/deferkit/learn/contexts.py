"""What a user hands in as a task, turned into the vector that the compiled steps read."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import InvalidArgument, expected
from deferkit.learn import inputs
from deferkit.learn.encode import Encoder
from deferkit.learn.loop import first_bad
from deferkit.learn.representation import Representation
from deferkit.types import LARGEST

Floats = NDArray[np.float64]

LARGEST_EMBEDDED = 1e9
"""What a number of a context may be at most with an embedding, which is trained in single precision."""


class Contexts:
    """Numbers are taken as they are, named features go through an encoder; then comes the representation, if any.

    While the encoder's scales are not settled, the rows that it has seen are kept, so that they can be encoded again.
    """

    def __init__(self, n_features: int, encoder: Encoder | None, representation: Representation | None) -> None:
        self.encoder = None if encoder is None else Encoder.from_dict(encoder.to_dict())
        self.representation = representation
        self.unsettled: list[dict[str, Any]] = []
        self._given: Floats = np.zeros((1, n_features))
        self._row = self._given[0]
        self._shape = self._row.shape
        self._latest: list[float] | None = None  # what `load_finite` has returned last, where `x` depends on it alone
        self.x = self._given if representation is None else representation.transform(self._given)
        """What the compiled steps read: one row."""

    def load(self, context: Any) -> Any:
        """Write a context to `x`; return it as an event keeps it. Whether it is finite is not checked."""
        if self.encoder is not None:
            clean = self.encoder.check(context)
            self._row[:] = self.encoder.encode(clean)
            self._represent()
            return clean
        if type(context) is not np.ndarray:
            context = inputs.as_context(context, len(self._row))
        if context.shape != self._shape or context.dtype.kind not in "fiu":
            raise inputs.wrong_context(context, len(self._row))
        self._row[:] = context
        if self.representation is not None:
            self._represent()
        return context

    def _represent(self) -> None:
        """Write the views of the context, if there is a representation."""
        if self.representation is not None:
            if not np.abs(self._given).max() <= LARGEST_EMBEDDED:  # a hidden layer might hide it
                raise self.not_finite()
            self.representation.embedder.transform(self._given, self.x)

    def decided(self) -> None:
        """Let the representation know that the context that was loaded last was decided."""
        if self.representation is not None:
            self.representation.enter(self._given)
            self.representation.look_if_due()

    def represent(self, matrix: Floats) -> Floats:
        """Return what the compiled steps read for vectors of contexts."""
        return matrix if self.representation is None else self.representation.transform(matrix)

    def load_finite(self, context: Any) -> Any:
        """Do the same, and check that all numbers are finite. What is returned is not the caller's own array."""
        if context is self._latest and self._row.tolist() == context:
            return context  # proposed just now, and to be applied: it lies there already
        kept = self.load(context)
        if first_bad(self._given) >= 0:
            raise self.not_finite()
        if self.encoder is not None:
            return kept
        kept = self._row.tolist()
        self._latest = kept if self.representation is None else None
        return kept

    def not_finite(self) -> InvalidArgument:
        """Return the error for the context in `x`."""
        largest = LARGEST if self.representation is None else LARGEST_EMBEDDED
        place = int(np.argmin(np.abs(self._row) <= largest))
        what = f"finite numbers up to {largest:g} (element {place})"
        return expected("context", "Deferrer", what, float(self._row[place]))

    def rows(self, contexts: Any) -> list[dict[str, Any]] | None:
        """Return several contexts as checked rows of named features; None for a learner without an encoder."""
        if self.encoder is None:
            return None
        return [self.encoder.check(row) for row in inputs.rows_of(contexts)]

    def matrix(self, contexts: Any) -> Floats:
        """Return several contexts as vectors, with the scales of now."""
        rows = self.rows(contexts)
        if rows is not None:
            return self.encode(rows)
        matrix = inputs.as_matrix(contexts, len(self._row))
        if self.representation is not None and len(matrix) and not np.abs(matrix).max() <= LARGEST_EMBEDDED:
            most = float(np.abs(matrix).max())
            raise expected("contexts", "Deferrer", f"numbers up to {LARGEST_EMBEDDED:g} with an embedding", most)
        return matrix

    def encode(self, rows: list[dict[str, Any]]) -> Floats:
        """Return the vectors of checked rows, with the scales of now."""
        matrix = np.zeros((len(rows), len(self._row)))
        if self.encoder is not None:
            for i, row in enumerate(rows):
                matrix[i] = self.encoder.encode(row)
        return matrix
