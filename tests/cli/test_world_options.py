"""Options of worlds on the command line: each comes from a field of the world, and nothing else lists them."""

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from deferkit import InvalidArgument
from deferkit.cli.app import add_commands
from deferkit.cli.options import given_to
from deferkit.types import at_least
from deferkit.worlds import WORLDS, all_options
from deferkit.worlds.base import BaseWorld, check_choices, number_from, option, options_of
from deferkit.worlds.synthetic import Synthetic
from deferkit.worlds.table import Table
from tests.command_line import Runner

app = add_commands()

FILLED_IN = {"path", "digest", "data", "after", "after_digest"}
"""Fields that are no options: the world itself, and what is found out from its files."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """A world with an option that no other world has."""

    colour: str = option("red", "Colour of all tasks", choices=("red", "blue"))
    speed: float | None = option(None, "Tasks a second", flag="pace")
    digest: str = ""

    def __post_init__(self) -> None:
        check_choices(self)


@dataclass(frozen=True, kw_only=True)
class Shop(BaseWorld):
    """A world that declares what is valid, and checks nothing itself."""

    colour: str = option("red", "Colour of all tasks", choices=("red", "blue"))
    shelves: int = option(3, "Number of shelves", valid=at_least(1))
    decay: float = option(0.5, "Decay", valid=number_from(0.0))


def test_a_world_is_held_to_what_its_fields_declare() -> None:
    numbers: dict[str, Any] = {"shelves": np.float64(4.0), "decay": np.int64(1)}
    shop = Shop(**numbers)
    assert (type(shop.shelves), shop.shelves, type(shop.decay), shop.decay) == (int, 4, float, 1.0)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"colour": "green"}, "The 'colour' of a Shop must be one of 'red', 'blue'. Got 'green' instead."),
        ({"shelves": 0}, "The 'shelves' of a Shop must be a whole number of at least 1. Got 0 instead."),
        ({"shelves": True}, "The 'shelves' of a Shop must be a whole number of at least 1. Got True instead."),
        ({"decay": -0.1}, "The 'decay' of a Shop must be a number from 0 to 1e+09. Got -0.1 instead."),
        ({"decay": math.nan}, "The 'decay' of a Shop must be a number from 0 to 1e+09. Got nan instead."),
    ]
    for given, message in wrong:
        with pytest.raises(InvalidArgument) as caught:
            Shop(**given)
        assert str(caught.value) == message


@pytest.mark.parametrize("world", [*WORLDS.values(), Table])
def test_every_field_is_an_option_or_filled_in(world: Any) -> None:
    options = [each.parameter for each in options_of(world)]
    assert options == [each.name for each in fields(world) if each.name not in FILLED_IN]
    assert all(each.help for each in options_of(world))


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_command_has_the_options_of_all_worlds(command: str) -> None:
    parameters = get_command(app).commands[command].params  # type: ignore[attr-defined]
    flags = {flag for each in parameters for flag in each.opts}
    for world in (*WORLDS.values(), Table):
        assert {f"--{each.flag}" for each in options_of(world)} <= flags
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "240"}).stdout
    assert "T, the number of tasks (synthetic: 50,000, drift: 20,000, moderation: 5,000, late: 4,000)" in shown


def test_a_new_field_is_an_option_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WORLDS, "made", Made)
    assert [world for world, _ in all_options()["colour"]] == ["made"]
    colour, speed = options_of(Made)
    assert (colour.flag, colour.kind, colour.help) == ("colour", str, "Colour of all tasks: red, blue")
    assert (speed.flag, speed.kind, speed.default) == ("pace", float, None)
    assert given_to("made", {"colour": "blue", "regime": None}) == {"colour": "blue"}
    with pytest.raises(InvalidArgument, match="'made' has no option --regime. It has: --colour, --pace."):
        given_to("made", {"regime": "random"})


def test_choices_are_those_of_the_field() -> None:
    with pytest.raises(InvalidArgument, match="'colour' of a Made must be one of 'red', 'blue'. Got 'green'"):
        Made(colour="green")
    with pytest.raises(InvalidArgument, match="'regime' of a Synthetic must be one of 'complementary', 'dominant'"):
        Synthetic(regime="easy")


def test_an_option_reaches_the_world(said: Runner) -> None:
    small = ("run", "synthetic", "--trials", "1", "--budget", "20", "--policy", "opt", "--json")
    done = said(*small, "--horizon", "300", "--no-scaled", "--features", "4", "--most-ones", "2")
    assert done.code == 0, done.error
    done = said(*small, "--horizon", "0")
    assert "The 'horizon' of a Synthetic must be a whole number of at least 1. Got 0 instead." in done.error
