"""Modules by their old names."""

import importlib
import sys

import pytest

from deferkit.moved_modules import MOVED, MovedModules, register_moved_modules


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_has_the_same_objects_and_warns(old: str) -> None:
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"{old} is {MOVED[old]} now."):
        found = importlib.import_module(old)
    new = importlib.import_module(MOVED[old])
    names = [name for name in vars(new) if not name.startswith("__")]
    assert names
    assert all(getattr(found, name) is getattr(new, name) for name in names)


def test_an_unknown_module_is_still_missing() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        importlib.import_module("deferkit.worlds.no_such_module")


def test_the_finder_is_registered_once() -> None:
    register_moved_modules()
    assert sum(isinstance(finder, MovedModules) for finder in sys.meta_path) == 1
