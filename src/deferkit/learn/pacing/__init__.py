"""Pacing: how the price λ of each resource moves, once for each decision.

`PACINGS` has every `Strategy` of the modules beside this one: `Pacing`, the service and the studies read it. Another
pacing is a strategy in a file of its own here, its compiled step in `learn/core/`, and its entry in `core/pacing.pxd`.
"""

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from deferkit.errors import expected
from deferkit.learn.pacing.strategy import Budgets, Strategy
from deferkit.types import plain

__all__ = ["PACINGS", "Budgets", "Pacing", "Strategy"]

DEFAULT = "resolve"


def strategies_in(module: str) -> list[Strategy]:
    """Return the strategies that a module defines."""
    found = vars(import_module(module)).values()
    kinds = [each for each in found if isinstance(each, type) and issubclass(each, Strategy) and each is not Strategy]
    return [each() for each in kinds if each.can_be_chosen]


_FOUND = [each for module in iter_modules(__path__, f"{__name__}.") for each in strategies_in(module.name)]
PACINGS: dict[str, Strategy] = {
    each.name: each for each in sorted(_FOUND, key=lambda each: (each.name != DEFAULT, each.name))
}


class Pacing:
    """How the price of the budget moves. Immutable.

    Args:
        kind: "resolve" (default): the price is solved for the latest contexts every so often; "adaptive": it takes an
            adaptive gradient step after every decision; "gradient": the exponentiated gradient of Agrawal & Devanur;
            "paper": the same as Algorithm 1 prints it.
        parameters: Of "resolve": `every`, the most decisions between two prices (200 by default), and `window`, the
            number of contexts that the price is solved for, rounded up to a multiple of four (1,000 by default).
            Of "adaptive": `step`, in units of reward for the mean cost (0.3 by default).

    Raises:
        InvalidArgument: If the kind is unknown, has no such parameter, or a value is out of range.

    >>> Pacing(kind="resolve", every=50)
    Pacing(kind='resolve', every=50, window=1000)
    """

    __slots__ = ("kind", "parameters")

    kind: str
    parameters: Mapping[str, float]

    def __init__(self, *, kind: str = DEFAULT, **parameters: Any) -> None:
        if not isinstance(kind, str) or kind not in PACINGS:
            raise expected("pacing", "Deferrer", "one of " + ", ".join(map(repr, PACINGS)), kind)
        given = {name: plain(value) for name, value in parameters.items()}
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "parameters", PACINGS[kind].check(given))

    @property
    def strategy(self) -> Strategy:
        """The strategy of this kind: initial state and reactions."""
        return PACINGS[self.kind]

    @property
    def window(self) -> int:
        """The number of latest contexts that the price is solved for; 0 for pacings that read none."""
        return self.strategy.window(self.parameters)

    def to_dict(self) -> dict[str, Any]:
        """Return kind and parameters as JSON values."""
        return {"kind": self.kind, **self.parameters}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "Pacing":
        """Restore a pacing from `to_dict()`; parameters of other kinds, which older files hold, are ignored."""
        known = {parameter.name for parameter in PACINGS[saved["kind"]].parameters}
        return cls(kind=saved["kind"], **{name: value for name, value in saved.items() if name in known})

    def __repr__(self) -> str:
        return f"Pacing({', '.join(f'{name}={value!r}' for name, value in self.to_dict().items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pacing) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(tuple(self.to_dict().items()))

    def __reduce__(self) -> tuple[Any, ...]:  # by default a copy is written to, attribute by attribute
        return Pacing.from_dict, (self.to_dict(),)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"A Pacing cannot be changed: make another one with {name}={value!r}.")
