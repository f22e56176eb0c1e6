"""The short way through `decide` and `observe` does what the slow path does, whatever a user hands in."""

import re
from collections import OrderedDict
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from deferkit import Budget, Deferrer, Encoder

D = 3
FINITE = st.floats(-1e3, 1e3)
ODD_FLOATS = st.sampled_from([np.nan, np.inf, -np.inf, 1e50, 1.1e50, -1e51, 5e-324, -0.0])


class OddFloat(float):
    """A float that is not exactly one."""


class OddText(str):
    """A text that is not exactly one."""

    __slots__ = ()


class OddArray(np.ndarray[Any, Any]):
    """An array that is not exactly one."""


def unaligned(values: list[float]) -> np.ndarray[Any, Any]:
    raw = np.zeros(8 * len(values) + 1, dtype=np.uint8)
    array = raw[1:].view(np.float64)
    array[:] = values
    return array


def read_only(values: list[float]) -> np.ndarray[Any, Any]:
    array = np.array(values)
    array.setflags(write=False)
    return array


SHAPES: list[Callable[[list[float]], Any]] = [
    list,
    tuple,
    np.array,
    read_only,
    unaligned,
    pd.Series,
    lambda v: (x for x in v),
    lambda v: [int(x) if abs(x) < 1e9 else 0 for x in v],
    lambda v: [bool(x) for x in v],
    lambda v: [str(x) for x in v],
    lambda v: np.array(v, dtype=np.float32),
    lambda v: np.array(v).astype(">f8"),
    lambda v: np.array([int(x) if abs(x) < 1e9 else 0 for x in v]),
    lambda v: np.array([x > 0 for x in v]),
    lambda v: np.array(v, dtype=object),
    lambda v: np.array(v, dtype=np.complex128),
    lambda v: np.repeat(np.array(v), 2)[::2],
    lambda v: np.array(v)[::-1],
    lambda v: np.asfortranarray([v, v])[0],
    lambda v: np.array([v]),
    lambda v: np.array([v]).T,
    lambda v: np.array(v).view(OddArray),
    lambda v: np.ma.masked_array(v, mask=[True] + [False] * (len(v) - 1)) if v else [],
    lambda v: {"a": v},
    *(lambda _, each=odd: each for odd in (None, "text", object, 1.0)),
]

# Most of what is drawn is nearly right, with one thing wrong at most: else everything is refused at the first look.
contexts = st.builds(
    lambda values, shape: (values, shape),
    st.one_of(
        st.lists(FINITE, min_size=D, max_size=D),
        st.lists(st.one_of(FINITE, FINITE, FINITE, ODD_FLOATS), min_size=D, max_size=D),
        st.lists(FINITE, min_size=0, max_size=D + 1),
    ),
    st.sampled_from(range(len(SHAPES))),
)


def learner(**given: Any) -> Deferrer:
    """Return a learner that has seen a few tasks."""
    budget = Budget(5, horizon=100, max_cost=1)
    settings: dict[str, Any] = {"n_features": D, "budget": budget, "reward_range": (-1, 1), "seed": 3}
    deferrer = Deferrer(**(settings | given))
    rng = np.random.default_rng(0)
    for t in range(20):
        x: Any = rng.random(D)
        if "encoder" in given:
            x = {"a": float(x[0]), "b": None if t % 5 == 0 else t, "kind": "xyz"[t % 3]}
        decision = deferrer.decide(x)
        deferrer.observe(decision.id, {decision.route: 0.5}, 0.25 if decision.route != "model" else None)
    return deferrer


def outcome_of(call: Callable[[], Any]) -> tuple[Any, ...]:
    """Return what a call returns, or the kind and text of what it raises."""
    try:
        return "returned", call()
    except Exception as error:  # whatever it is, both ways must raise it
        return type(error), re.sub(r" at 0x\w+", "", str(error))


def the_long_way(deferrer: Deferrer, context: Any) -> Any:
    event = deferrer.propose(context)
    deferrer.apply(event)
    return event.decision


def assert_alike(fast: Deferrer, slow: Deferrer, one: tuple[Any, ...], other: tuple[Any, ...], before: bytes) -> None:
    assert str(one) == str(other)  # NaN differs from itself, not from its text
    assert fast.to_bytes() == slow.to_bytes()
    if one[0] != "returned":
        assert fast.to_bytes() == before


@hypothesis_settings(max_examples=300)
@given(contexts)
@example(([0.5, 0.5, 0.5], 2))
@example(([np.nan, 0.5, 0.5], 2))
def test_decide_takes_the_same_contexts(given: tuple[list[float], int]) -> None:
    values, shape = given
    fast, slow = learner(), learner()
    before = fast.to_bytes()
    makes = [outcome_of(lambda: SHAPES[shape](values)) for _ in range(2)]
    if makes[0][0] != "returned":
        return  # not even the test can make that
    with np.errstate(all="ignore"):
        one = outcome_of(lambda: fast.decide(makes[0][1]))
        other = outcome_of(lambda: the_long_way(slow, makes[1][1]))
    assert_alike(fast, slow, one, other, before)


CELLS = st.one_of(
    FINITE,
    ODD_FLOATS,
    st.none(),
    st.booleans(),
    st.integers(-(10**60), 10**60),
    st.sampled_from(["x", "y", "other", "", "1.5", b"x", Decimal(1), Fraction(1, 3), OddFloat(0.5), OddText("x")]),
    st.sampled_from([np.float64(0.5), np.float32(0.5), np.int64(3), np.bool_(True), np.str_("x"), pd.NA, pd.NaT]),
    st.builds(list),
)
PLAIN = st.one_of(FINITE, ODD_FLOATS, st.integers(-9, 9), st.none())
rows = st.one_of(
    st.fixed_dictionaries({"a": PLAIN, "b": PLAIN, "kind": st.sampled_from(["x", "y", "z", None])}),
    st.fixed_dictionaries({"a": CELLS, "b": PLAIN}, optional={"kind": CELLS, "unknown": CELLS}),
    st.dictionaries(st.sampled_from(["a", "b", "kind", "unknown", OddText("a")]), CELLS, max_size=4),
)
KINDS: list[Callable[[dict[Any, Any]], Any]] = [dict] * 6 + [
    OrderedDict,
    MappingProxyType,
    lambda r: list(r.items()),
    str,
]


@hypothesis_settings(max_examples=300)
@given(rows, st.sampled_from(range(len(KINDS))))
@example({"a": 0.5, "b": 2, "kind": "x"}, 0)
@example({"a": 10**400, "b": 2, "kind": "x"}, 0)
def test_decide_takes_the_same_rows(row: dict[Any, Any], kind: int) -> None:
    encoder = Encoder(numbers=["a", "b"], categories={"kind": ["x", "y"]})
    given: dict[str, Any] = {"encoder": encoder, "n_features": None, "warm_up": 16}
    fast, slow = learner(**given), learner(**given)
    assert not fast._ledger.get("unsettled")
    before = fast.to_bytes()
    one = outcome_of(lambda: fast.decide(KINDS[kind](row)))
    other = outcome_of(lambda: the_long_way(slow, KINDS[kind](row)))
    assert_alike(fast, slow, one, other, before)


ODD_NUMBERS = st.one_of(
    ODD_FLOATS,
    st.booleans(),
    st.none(),
    st.sampled_from([10**400, "0.5", Decimal("0.5"), Fraction(1, 2), OddFloat(0.5), 0.5j, object]),
    st.sampled_from([np.float64(0.5), np.float32(0.5), np.int64(1), np.bool_(True), np.array(0.5), np.array([0.5])]),
    st.just([0.5]),
)
REWARDS = st.one_of(st.floats(-1.5, 1.5), st.integers(-2, 2), ODD_NUMBERS)
COSTS = st.one_of(st.none(), st.floats(-0.5, 1.5), st.integers(-1, 2))
IDS = st.one_of(
    st.just(20),
    st.just(21),
    st.integers(-2, 25),
    st.sampled_from([True, 1.0, 1.5, np.int64(3), np.float64(4), "3", None, 10**30, -(10**30), np.nan, Fraction(5)]),
)
rewards = st.one_of(
    st.fixed_dictionaries({}, optional={"model": REWARDS, "human": REWARDS}),
    st.dictionaries(st.sampled_from(["model", "human", "nobody", 3, None, OddText("human")]), REWARDS, max_size=3),
    st.sampled_from([None, [], "model", 0.5, MappingProxyType({"model": 0.5}), OrderedDict(model=0.5)]),
)
costs = st.one_of(
    COSTS,
    COSTS,
    st.one_of(ODD_NUMBERS, st.dictionaries(st.sampled_from(["cost", "minutes"]), REWARDS, max_size=2)),
)


@pytest.mark.parametrize("link", ["identity", "logistic"])
@hypothesis_settings(max_examples=400)
@given(decision=IDS, given=rewards, cost=costs, again=st.booleans())
@example(decision=20, given={"model": 0.5, "human": 1}, cost=0.5, again=True)
@example(decision=20, given={"human": 1}, cost=np.float64(0.5), again=False)
def test_observe_takes_the_same_outcomes(link: str, decision: Any, given: Any, cost: Any, again: bool) -> None:
    bounds = (-1, 1) if link == "identity" else (0, 1)
    fast, slow = learner(link=link, reward_range=bounds), learner(link=link, reward_range=bounds)
    for each in (fast, slow):
        each.decide([0.5, 0.5, 0.5], force="human")
        each.decide([0.5, 0.5, 0.5], force="model")
    for _ in range(1 + again):
        before = fast.to_bytes()
        one = outcome_of(lambda: fast.observe(decision, given, cost))
        other = outcome_of(lambda: slow._outcomes.observe(decision, given, cost))
        assert_alike(fast, slow, one, other, before)


def test_the_fast_path_is_taken() -> None:
    """Else the tests above would compare the slow path with itself."""
    deferrer = learner()
    x = np.full(D, 0.5)
    assert deferrer._ledger.core.try_load(x)
    decision = deferrer.decide(x)
    cost = 0.5 if decision.route == "human" else None
    assert deferrer._ledger.core.try_observe(decision.id, {decision.route: 0.5}, cost)
    assert not deferrer._ledger.core.try_observe(decision.id, {decision.route: 0.5}, cost)  # the same again
    encoder = Encoder(numbers=["a", "b"], categories={"kind": ["x", "y"]})
    assert encoder.encode_row({"a": 1.0, "b": 2, "kind": "x"}, np.zeros(encoder.n_features))
    assert not encoder.encode_row({"a": "1.0"}, np.zeros(encoder.n_features))
