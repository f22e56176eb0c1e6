import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deferkit import Budget, Deferrer, Encoder, InvalidArgument
from deferkit.learn.encode import FREEZE_AFTER
from tests.conftest import Floats


def encoder() -> Encoder:
    return Encoder(numbers=["amount", "age"], categories={"country": ["de", "fr"], "kind": 3})


def rows(n: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [
        {
            "amount": None if rng.random() < 0.1 else float(rng.lognormal(3)),
            "age": float(rng.integers(18, 80)),
            "country": str(rng.choice(["de", "fr", "it"])),
            "kind": None if rng.random() < 0.1 else str(rng.choice(list("abcde"))),
        }
        for _ in range(n)
    ]


def outcomes(table: list[dict[str, Any]], seed: int = 0) -> tuple[dict[str, Floats], Floats]:
    rng = np.random.default_rng(seed)
    human = np.array([0.9 if row["country"] == "de" else 0.3 for row in table])
    model = np.array([0.3 if row["country"] == "de" else 0.7 for row in table])
    noise = 0.05 * rng.standard_normal((2, len(table)))
    return {"model": np.clip(model + noise[0], 0, 1), "human": np.clip(human + noise[1], 0, 1)}, rng.random(len(table))


def learner(**given: Any) -> Deferrer:
    return Deferrer(encoder=encoder(), budget=Budget(40, horizon=400, max_cost=1), **given)


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "amount": st.none() | st.floats(-1e50, 1e50) | st.just(math.nan),
                "age": st.integers(-(10**9), 10**9),
                "country": st.none() | st.text(),
                "kind": st.none() | st.text(max_size=1),
            },
        ),
        min_size=1,
        max_size=20,
    )
)
@settings(max_examples=100)
def test_every_row_lands_in_the_unit_ball(table: list[dict[str, Any]]) -> None:
    enc = encoder()
    for row in table[:10]:
        enc.see(row)
    for row in table:
        x = enc.encode(row)
        assert x.shape == (enc.n_features,) == (len(enc.names),)
        assert np.isfinite(x).all()
        assert np.linalg.norm(x) <= 1 + 1e-12


def test_a_number_is_standardised_by_hand() -> None:
    """Seen 2 and 4: mean 3, standard deviation 1. 4.5 is 1.5 of them, half of where it is cut; two features."""
    enc = Encoder(numbers=["a"])
    for value in (2.0, 4.0):
        enc.see({"a": value})
    np.testing.assert_allclose(enc.encode({"a": 4.5}), np.array([1, 0.5, 0]) / math.sqrt(2))
    np.testing.assert_allclose(enc.encode({"a": 1e9}), np.array([1, 1, 0]) / math.sqrt(2))
    np.testing.assert_allclose(enc.encode({}), np.array([1, 0, 1]) / math.sqrt(2))
    np.testing.assert_allclose(enc.encode({"a": math.nan}), enc.encode({"a": None}))


def test_levels_are_learned_up_to_their_room() -> None:
    enc = Encoder(categories={"kind": 2}, intercept=False)
    for level in ("x", "y", "x", "z"):
        enc.see({"kind": level})
    assert enc.names == ("kind=x", "kind=y", "kind other", "kind missing")
    places: list[tuple[str | None, int]] = [("x", 0), ("y", 1), ("z", 2), (None, 3)]
    for value, place in places:
        assert enc.encode({"kind": value}).argmax() == place


def test_scales_settle_in_the_warm_up_and_never_move_again() -> None:
    deferrer = learner()
    table = rows(60)
    for row in table:
        deferrer.decide(row)
    assert deferrer._contexts.encoder is not None
    after = deferrer._contexts.encoder.to_dict()
    deferrer.decide({"amount": 1e12, "age": 0, "country": "xx", "kind": "q"})
    assert deferrer._contexts.encoder.to_dict() == after
    assert deferrer._contexts.encoder.scales["age"].n == max(deferrer.settings.n_features, FREEZE_AFTER)


def test_what_was_observed_before_the_scales_settled_is_learned_with_the_settled_ones() -> None:
    deferrer = learner(warm_up=20, defaults="2026.11")
    table = rows(20)
    rewards, _ = outcomes(table)
    for t, row in enumerate(table):
        decision = deferrer.decide(row)
        if t % 3:  # the rest comes later
            seen = {"model": float(rewards["model"][t])}
            deferrer.observe(decision.id, seen)
    for t in range(0, 20, 3):
        deferrer.observe(t, {"model": float(rewards["model"][t])})
    assert deferrer._contexts.encoder is not None
    x = np.array([deferrer._contexts.encoder.encode(row) for row in table])
    direct = np.linalg.solve(0.01 * np.eye(x.shape[1]) + x.T @ x, x.T @ rewards["model"])
    theta, d = deferrer._ledger.view("theta")[0], len(direct)  # of a member that does not look at trees
    np.testing.assert_allclose(theta[:d], direct, rtol=1e-8, atol=1e-10)
    assert not theta[d:].any()


def test_bulk_is_one_at_a_time_is_replay_and_save(tmp_path: Path) -> None:
    table = rows(300)
    rewards, cost = outcomes(table)
    bulk, single, replayed = learner(), learner(), learner()
    run = bulk.run(table, rewards, cost)
    routes = []
    for t, row in enumerate(table):
        event = single.propose(row)
        single.apply(event)
        replayed.apply(event)
        route = event.decision.route
        seen = {"model": float(rewards["model"][t]), route: float(rewards[route][t])}
        paid = float(cost[t]) if route == "human" else None
        for each in (single, replayed):
            each.observe(event.decision.id, seen, paid)
        routes.append(route)
        if t in (5, 100):  # before and after the scales settle
            single.save(tmp_path / "s")
            single = Deferrer.load(tmp_path / "s")
    assert [run.deciders[r] for r in run.routes] == routes
    assert bulk == single == replayed
    assert run.costs.sum() <= 40
    late = [row["country"] == "de" for row, route in zip(table[150:], routes[150:], strict=True) if route == "human"]
    assert np.mean(late) > 0.8  # the human is asked where the human is good


def test_frames_and_columns_give_the_same() -> None:
    table = rows(40)
    forms: list[Any] = [table, pd.DataFrame(table), pl.DataFrame(table), {k: [r[k] for r in table] for k in table[0]}]
    learners = [learner() for _ in forms]
    for deferrer, form in zip(learners, forms, strict=True):
        deferrer.decide_many(form)
        deferrer.score(form)
    assert all(deferrer == learners[0] for deferrer in learners)


def test_a_warm_start_settles_the_scales() -> None:
    deferrer = learner()
    table = rows(80)
    rewards, cost = outcomes(table)
    deferrer.warm_start(table, rewards, cost=cost)
    assert deferrer.decide(table[0]).reason in ("worth it", "not worth it")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"amuont": 1.0}, "has a feature 'amuont' that the encoder does not know. It knows 'amount', 'age'"),
        ({"amount": "12"}, "'amount' of a context must be a finite number, or None or NaN if it is missing. Got '12'"),
        ({"amount": math.inf}, "'amount' of a context must be a finite number"),
        ({"age": True}, "'age' of a context"),
        ([1.0, 2.0], r"must be named features \(amount, age, country, kind\)"),
    ],
)
def test_bad_rows_change_nothing(row: Any, message: str) -> None:
    deferrer = learner()
    before = deferrer.to_bytes()
    with pytest.raises(InvalidArgument, match=message):
        deferrer.decide(row)
    if isinstance(row, dict):
        with pytest.raises(InvalidArgument, match=message):
            deferrer.decide_many([{"amount": 1.0}, row])
    assert deferrer.to_bytes() == before


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "'numbers' of an Encoder must be given, or categories"),
        ({"numbers": "amount"}, "'numbers' of an Encoder must be a list of names"),
        ({"numbers": ["a", "a"]}, "names that occur once"),
        ({"categories": {"a": "de"}}, "a list of levels or their number"),
        ({"categories": {"a": 0}}, "a list of levels or their number. Got 0"),
    ],
)
def test_bad_encoders(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Encoder(**given)


def test_a_learner_does_not_share_its_encoder() -> None:
    mine = encoder()
    deferrer = Deferrer(encoder=mine, budget=Budget(40, horizon=400, max_cost=1))
    deferrer.decide(rows(1)[0])
    assert mine.scales["age"].n == 0


def test_too_little_to_settle_on_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="at least 16, the rows before the encoder's scales are frozen. Got 8"):
        Deferrer(encoder=encoder(), pacing="adaptive", memory=8)
    deferrer = learner()
    table = rows(3)
    rewards, cost = outcomes(table)
    with pytest.raises(InvalidArgument, match="at least 16 rows, for the scales. Got 3"):
        deferrer.warm_start(table, rewards, cost=cost)


def test_columns_are_encoded_exactly_as_rows_are() -> None:
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {
        "a": rng.lognormal(2, 2, 300),
        "b": [None if rng.random() < 0.2 else int(v) for v in rng.integers(0, 9, 300)],
        "k": [None if rng.random() < 0.2 else str(v) for v in rng.choice(list("abcdef"), 300)],
        "m": list(rng.choice(np.array([True, False]), 300)),
    }
    columns["a"][::7] = np.nan
    rows = [{name: column[i] for name, column in columns.items()} for i in range(300)]
    one = Encoder(numbers=["a", "b"], categories={"k": 3, "m": ["True", "False"]})
    for row in rows:
        one.see(row)
    np.testing.assert_array_equal(one.encode_columns(columns), [one.encode(row) for row in rows])
    other = Encoder(numbers=["a", "b"], categories={"k": 3, "m": ["True", "False"]})
    for part in (slice(0, 100), slice(100, 300)):
        other.see_columns({name: column[part] for name, column in columns.items()})
    assert other.levels == one.levels
    for name in ("a", "b"):
        np.testing.assert_allclose(other.scales[name], one.scales[name], rtol=1e-12)
    with pytest.raises(InvalidArgument, match="finite number"):
        one.encode_columns({"a": np.array([math.inf])})
    with pytest.raises(InvalidArgument, match="finite number"):
        one.encode_columns({"a": ["12"]})
    with pytest.raises(InvalidArgument, match="columns of one length"):
        one.encode_columns({"a": [1.0], "b": [1.0, 2.0]})
    with pytest.raises(InvalidArgument, match="'c' that the encoder does not know"):
        one.encode_columns({"c": [1.0]})


def test_a_vector_of_another_length_is_refused() -> None:
    encoder = Encoder(numbers=["amount"], categories={"country": ["de", "fr"]})
    row = {"amount": 1.0, "country": "de"}
    assert encoder.encode_row(row, np.zeros(encoder.n_features))
    for length in (0, encoder.n_features - 1, encoder.n_features + 1):
        with pytest.raises(ValueError, match=f"has 7 elements. Got {length}"):
            encoder.encode_row(row, np.zeros(length))
    with pytest.raises(TypeError, match="must not be None"):
        encoder.encode_row(row, None)  # type: ignore[arg-type]


def test_more_levels_than_there_is_room_for_are_refused() -> None:
    encoder = Encoder(numbers=["amount"], categories={"country": ["de", "fr"]})
    encoder.levels["country"] += [str(i) for i in range(1_000)]  # past the end of the vector
    with pytest.raises(ValueError, match="room for 2 levels"):
        encoder.encode({"country": "999"})
    with pytest.raises(ValueError, match="more levels than it has room for"):
        Encoder.from_dict(encoder.to_dict())
