"""A learner that can be written down and read back; two are equal if the same would be written."""

import os
from typing import Self

from deferkit.errors import UnreadableState
from deferkit.learn import state
from deferkit.learn.arrays import ENCODING
from deferkit.learn.embed import given_again
from deferkit.learn.embed.embedding import Embedding
from deferkit.learn.encode import Encoder
from deferkit.learn.learner import Learner
from deferkit.learn.ledger import Ledger
from deferkit.learn.settings import Settings

REPRESENTATION = "representation "  # what the names of its arrays begin with


class SavedLearner(Learner):
    """Everything that decides is in the bytes: estimates, price, budget, pending decisions, random stream."""

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def _of(cls, settings: Settings, ledger: Ledger, encoder: Encoder | None) -> Self:
        learner = cls.__new__(cls)
        learner._set_up(settings, ledger, encoder)
        return learner

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything that decides to one file; see `deferkit.learn.state` for the format.

        >>> import tempfile, pathlib
        >>> from deferkit import Budget, Deferrer
        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100))
        >>> _ = deferrer.decide([1.0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     deferrer.save(pathlib.Path(folder, "a.state"))
        ...     Deferrer.load(pathlib.Path(folder, "a.state")) == deferrer
        True
        """
        state.write(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return what `save` writes.

        >>> from deferkit import Budget, Deferrer
        >>> deferrer = Deferrer(n_features=1, budget=Budget(10, horizon=100))
        >>> Deferrer.from_bytes(deferrer.to_bytes()) == deferrer
        True
        """
        saved = {
            "deferrer": self.settings.to_dict(),
            "encoder": None if self._contexts.encoder is None else self._contexts.encoder.to_dict(),
            "rows": self._contexts.unsettled,
        }
        arrays = self._ledger.state()
        if self._representation is not None:
            arrays |= {REPRESENTATION + name: array for name, array in self._representation.state().items()}
        return state.pack(saved, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, embedding: Embedding | None = None) -> Self:
        """Return the learner that was saved; it goes on exactly where that one was.

        One that was made with a torch module of your own needs the same `embedding` again: code is not saved.
        """
        return cls.from_bytes(state.read(path), str(path), embedding=embedding)

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "The state", *, embedding: Embedding | None = None) -> Self:
        """Return the learner that `to_bytes` was asked for."""
        saved, arrays = state.unpack(data, source)
        if isinstance(saved, dict) and isinstance(saved.get("deferrer"), dict):
            saved["deferrer"]["embedding"] = given_again(saved["deferrer"].get("embedding"), embedding, source)
        try:
            encoder = None if saved["encoder"] is None else Encoder.from_dict(saved["encoder"])
            learner = cls._of(Settings.from_dict(saved["deferrer"]), Ledger.from_state(arrays), encoder)
            if learner._representation is not None:
                start = len(REPRESENTATION)
                kept = {name[start:]: array for name, array in arrays.items() if name.startswith(REPRESENTATION)}
                learner._representation.restore(kept)
            learner._contexts.unsettled = saved["rows"]
            learner._ledger.ints[ENCODING] = arrays["ints"][ENCODING]
        except (KeyError, TypeError, ValueError) as error:
            raise UnreadableState(f"{source} does not hold a learner ({error}).") from error
        return learner

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SavedLearner):
            return NotImplemented
        return self.to_bytes() == other.to_bytes()
