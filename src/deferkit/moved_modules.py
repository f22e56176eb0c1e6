"""Old names of modules that plug-ins import: each still works, with a `DeprecationWarning`."""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "deferkit.learn.pacing.strategy": "deferkit.learn.pacing.compiled",
    "deferkit.learn.representation": "deferkit.learn.embed.retrained",
    "deferkit.worlds.base_world": "deferkit.worlds.base",
    "deferkit.worlds.knapsack_calibration": "deferkit.worlds.knapsack_data",
    "deferkit.worlds.option": "deferkit.worlds.base",
    "deferkit.worlds.task_stream": "deferkit.worlds.base",
}
"""Module names of earlier versions, and the modules that have their content now."""


class MovedModules(MetaPathFinder, Loader):
    """Finds modules by their old names."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return the spec of a moved module; None for all others."""
        return ModuleSpec(fullname, self) if fullname in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        """Fill a module with the names of the one that has its content now."""
        name = module.__name__
        warnings.warn(f"{name} is {MOVED[name]} now.", DeprecationWarning, stacklevel=2)
        found = vars(import_module(MOVED[name]))
        vars(module).update({key: value for key, value in found.items() if not key.startswith("__")})


def register_moved_modules() -> None:
    """Let modules be imported by their old names."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())
