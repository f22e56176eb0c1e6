"""Pacing: how the price λ of each resource moves, once for each decision.

`PACINGS` has every `Strategy` of the modules beside this one: `Pacing`, the service and the studies read it. Another
pacing is a strategy in a file of its own here, its compiled step in `learn/core/`, and its entry in `core/pacing.pxd`.
One from outside the package is a `PythonPacing`, found by `strategy_named`.
"""

import functools
from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from deferkit.errors import expected
from deferkit.learn.pacing.compiled import Budgets, Parameter, Strategy
from deferkit.learn.pacing.python_pacing import PacingView, PythonPacing
from deferkit.plugins import PluginGroup
from deferkit.types import plain

__all__ = [
    "PACINGS",
    "PACING_PLUGINS",
    "Budgets",
    "Pacing",
    "PacingView",
    "Parameter",
    "PythonPacing",
    "Strategy",
    "strategy_named",
]

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


PACING_PLUGINS = PluginGroup(
    noun="pacing",
    group="deferkit.pacings",
    wanted="a class derived from deferkit.learn.pacing.PythonPacing",
    accepts=lambda kind: isinstance(kind, type) and issubclass(kind, PythonPacing) and kind is not PythonPacing,
)


def strategy_named(kind: object, *, may_import: bool = True) -> Strategy:
    """Return the strategy of a pacing: one of `PACINGS`, or of a plug-in.

    Args:
        kind: A key of `PACINGS`, the name of an entry point, or `module:name`.
        may_import: Whether `module:name` may be imported (default); not where the name is out of a file.

    Raises:
        InvalidArgument: There is no such pacing, or the plug-in cannot be used.
    """
    if isinstance(kind, str) and kind in PACINGS:
        return PACINGS[kind]
    found = PACING_PLUGINS.find(kind, may_import=may_import)
    if found is None:
        names = [*PACINGS, *PACING_PLUGINS.names()]
        known = "one of " + ", ".join(map(repr, names))
        raise expected("pacing", "Deferrer", known if may_import else f"{known}, or imported before", kind)
    return _instance_of(found)


@functools.cache
def _instance_of(kind: type[Strategy]) -> Strategy:
    return kind()


class Pacing:
    """How the price of the budget moves. Immutable.

    Args:
        kind: "resolve" (default): the price is solved for the latest contexts every so often; "adaptive": it takes an
            adaptive gradient step after every decision; "gradient": the exponentiated gradient of Agrawal & Devanur;
            "paper": the same as Algorithm 1 prints it. Or a pacing of a plug-in: the name of its entry point, or
            `module:name` (docs/plugins.md).
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
        strategy = strategy_named(kind)
        given = {name: plain(value) for name, value in parameters.items()}
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "parameters", strategy.check(given))

    @property
    def strategy(self) -> Strategy:
        """The strategy of this kind: initial state and reactions."""
        return strategy_named(self.kind)

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
        strategy = strategy_named(saved["kind"], may_import=False)
        known = {parameter.name for parameter in strategy.parameters}
        return cls(kind=saved["kind"], **{name: value for name, value in saved.items() if name in known})

    def __repr__(self) -> str:
        return f"Pacing({', '.join(f'{name}={value!r}' for name, value in self.to_dict().items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pacing) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(tuple(self.to_dict().items()))

    def __reduce__(self) -> tuple[Any, ...]:  # by default a copy is written to, attribute by attribute
        return pacing_with, (self.to_dict(),)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"A Pacing cannot be changed: make another one with {name}={value!r}.")


def pacing_with(given: Mapping[str, Any]) -> Pacing:
    """Return a pacing with these arguments: `Pacing` takes them by name only, and a copy is made by place."""
    return Pacing(**given)
