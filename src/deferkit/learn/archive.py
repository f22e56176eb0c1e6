"""A learner as bytes: its complete state and nothing else, so that equal bytes mean equal learners."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import MissingExtra, UnreadableState
from deferkit.learn import state
from deferkit.learn.components import Components
from deferkit.learn.consistency import check_sizes
from deferkit.learn.embed import given_again
from deferkit.learn.embed.embedding import Embedding
from deferkit.learn.encode import Encoder
from deferkit.learn.initial_state import new_ledger, sizes_of
from deferkit.learn.ledger import Ledger
from deferkit.learn.settings import Settings

REPRESENTATION = "representation "  # prefix of the names of its arrays


class StateCopy(NamedTuple):
    """A copy of a learner's state, which does not change with the learner: another thread may write it as bytes.

    Attributes:
        plain: Settings, counters, encoder and rows before it was frozen.
        arrays: The arrays by name.
    """

    plain: dict[str, Any]
    arrays: dict[str, NDArray[Any]]

    def to_bytes(self) -> bytes:
        """Return what `Deferrer.to_bytes` returned when the copy was made."""
        return state.pack(self.plain, self.arrays)


def copy_state(components: Components) -> StateCopy:
    """Return a copy of the state of a learner; it takes a fraction of the time of `to_bytes`."""
    plain, arrays = plain_and_arrays(components)
    return StateCopy(copy.deepcopy(plain), {name: np.array(array) for name, array in arrays.items()})


def to_bytes(components: Components) -> bytes:
    """Return settings, counters, encoder and arrays of a learner as the bytes of a state file."""
    return state.pack(*plain_and_arrays(components))


def plain_and_arrays(components: Components) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the state of a learner; the arrays are those that it goes on to change."""
    saved = {
        "deferrer": components.settings.to_dict(),
        "counters": components.ledger.counters(),
        "encoder": None if components.contexts.encoder is None else components.contexts.encoder.to_dict(),
        "rows": components.contexts.rows_before_freeze,
    }
    arrays = components.ledger.state()
    if components.settings.forget_used == "never":  # read by forgetting members only, and absent in version 2
        arrays["learned_as"] = np.zeros_like(arrays["learned_as"])
    if components.representation is not None:
        arrays |= {REPRESENTATION + name: array for name, array in components.representation.state().items()}
    return saved, arrays


class SavedLearner(NamedTuple):
    """The settings, counters, encoder and arrays in a state file."""

    plain: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    source: str

    @classmethod
    def from_bytes(cls, data: bytes, source: str, embedding: Embedding | None) -> "SavedLearner":
        """Parse the bytes of a state file, or raise `UnreadableState`."""
        plain, arrays = state.unpack(data, source)
        if isinstance(plain, dict) and isinstance(plain.get("deferrer"), dict):
            plain["deferrer"]["embedding"] = given_again(plain["deferrer"].get("embedding"), embedding, source)
        return cls(plain, arrays, source)

    @contextmanager
    def errors_as_unreadable_state(self) -> Iterator[None]:
        """Convert errors about missing or invalid values to `UnreadableState`."""
        try:
            yield
        except MissingExtra:
            raise  # not the fault of the file
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError) as error:
            raise UnreadableState(f"{self.source} does not hold a learner ({error}).") from error

    def settings(self) -> Settings:
        """Return the settings, checked."""
        return Settings.from_dict(self.plain["deferrer"])

    def ledger(self) -> Ledger:
        """Return the ledger, checked and restored."""
        settings = self.settings()
        check_sizes(self.arrays, sizes_of(settings))  # before memory is allocated for these sizes
        ledger = new_ledger(settings)
        ledger.restore(self.plain["counters"], self.arrays)
        return ledger

    def encoder(self) -> Encoder | None:
        """Return the encoder, or None."""
        if self.plain["encoder"] is None:
            return None
        encoder = Encoder.from_dict(self.plain["encoder"])
        if encoder.n_features != self.plain["deferrer"]["n_features"]:
            raise ValueError(f"its encoder makes {encoder.n_features} features")
        return encoder

    def restore(self, components: Components) -> None:
        """Restore the representation, and the rows that wait for the encoder to be frozen."""
        if components.representation is not None:
            start = len(REPRESENTATION)
            kept = {name[start:]: array for name, array in self.arrays.items() if name.startswith(REPRESENTATION)}
            components.representation.restore(kept)
        unsettled, rows, encoder = self.plain["counters"]["unsettled"], self.plain["rows"], components.contexts.encoder
        if len(rows) != (components.ledger.next_id if unsettled else 0) or (unsettled and encoder is None):
            raise ValueError(f"there are {len(rows)} rows to settle an encoder on")
        components.contexts.rows_before_freeze = [] if encoder is None else [encoder.check(row) for row in rows]
        components.ledger.set("unsettled", unsettled)
