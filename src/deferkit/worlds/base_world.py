"""What all worlds have in common."""

from dataclasses import asdict
from typing import Any

from deferkit.errors import expected
from deferkit.types import is_whole


class BaseWorld:
    """The base class of worlds, which are frozen dataclasses."""

    def parameters(self) -> dict[str, Any]:
        """Return the values of all fields as plain data, for a specification."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    def check_seed(self, seed: Any) -> None:
        """Raise InvalidArgument unless a seed is a whole number of at least 0."""
        if not is_whole(seed, 0):
            raise expected("seed", type(self).__name__, "a whole number of at least 0", seed)
