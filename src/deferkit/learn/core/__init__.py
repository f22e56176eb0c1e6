"""The compiled core, in the build for this processor.

Both builds give the same bits. DEFERKIT_BASELINE=1 selects the one that runs on any processor.
"""

import os
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from deferkit.learn.core import _core, layout

__all__ = [
    "CONSTANTS",
    "FEEDBACKS",
    "LINKS",
    "PACINGS",
    "REFITS",
    "Core",
    "fit",
    "link_functions",
    "mean_and_weight",
    "revealed",
]

FAST = "deferkit.learn.core._core_v3"

if TYPE_CHECKING:
    from deferkit.learn.core._core import (
        CONSTANTS,
        FEEDBACKS,
        LINKS,
        PACINGS,
        REFITS,
        Core,
        fit,
        link_functions,
        mean_and_weight,
        revealed,
    )
else:
    fast = _core.has_x86_64_v3() and not os.environ.get("DEFERKIT_BASELINE") and find_spec(FAST) is not None
    build = import_module(FAST) if fast else _core
    globals().update({name: getattr(build, name) for name in __all__})
    if tuple(layout.fields()) != build.FIELDS:
        different = sorted(set(layout.fields()) ^ set(build.FIELDS)) or "their order"
        raise ImportError(
            f"The compiled core {build.__name__} was built from another layout.py; build it again."
            f" Different: {different}."
        )
