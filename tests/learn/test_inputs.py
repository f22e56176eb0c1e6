"""Bad input says which, what was expected and what came, and changes nothing. Good input comes in many forms."""

import math
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from deferkit import Budget, Decided, DeferkitError, Deferrer, Encoder, InvalidArgument, Pacing

nan, inf = math.nan, math.inf
BUDGET = Budget(10, horizon=100, max_cost=1, strict=True)


def learner(**given: Any) -> Deferrer:
    return Deferrer(**{"n_features": 2, "budget": BUDGET, **given})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_features": None}, "'n_features' of a Deferrer must be given, or else an encoder"),
        ({"n_features": 0}, "'n_features' of a Deferrer must be a whole number of at least 1. Got 0"),
        ({"n_features": 2.5}, "a whole number of at least 1. Got 2.5"),
        ({"n_features": nan}, "a whole number of at least 1. Got nan"),
        ({"memory": inf}, "'memory' of a Deferrer must be a whole number of at least 1. Got inf"),
        ({"budget": 100}, "'budget' of a Deferrer must be a Budget"),
        ({"budget": {}}, "'budget' of a Deferrer must be a Budget"),
        ({"experts": "ann"}, "'experts' of a Deferrer must be a list of names. Got 'ann'"),
        ({"experts": []}, "1 to 32 different names"),
        ({"experts": ["ann", "ann"]}, "1 to 32 different names"),
        ({"experts": ["model"]}, "names other than 'model'"),
        ({"link": "probit"}, "'link' of a Deferrer must be one of 'identity', 'logistic'. Got 'probit'"),
        ({"cost_link": "log"}, "'cost_link' of a Deferrer must be one of"),
        ({"pacing": "fast"}, "'pacing' of a Deferrer must be one of"),
        ({"exploration": -1}, "'scale' of an Exploration must be a finite number of at least 0"),
        ({"ridge": 0}, "'ridge' of a Deferrer must be None or a finite number above 0. Got 0"),
        ({"ridge": inf}, "'ridge' of a Deferrer"),
        ({"warm_up": -1}, "'warm_up' of a Deferrer must be None or a whole number of at least 0. Got -1"),
        ({"explore_floor": 1.5}, "'explore_floor' of a Deferrer must be a number from 0 to 1. Got 1.5"),
        ({"reward_range": (1, 0)}, "'reward_range' of a Deferrer must be"),
        ({"refit": "daily"}, "'refit' of a Deferrer must be one of 'never', 'doubling', 'always'"),
        ({"memory": 10}, "'memory' of a Deferrer must be at least the pacing's window of 1000. Got 10"),
        ({"seed": -1}, "'seed' of a Deferrer must be a whole number of at least 0. Got -1"),
    ],
)
def test_bad_settings(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        learner(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((-1,), "'total' of a Budget must be a number of at least 0. Got -1"),
        ((nan,), "'total' of a Budget"),
        (("10",), "'total' of a Budget"),
        ((10,), "'horizon' of a Budget must be given, unless the total is infinite"),
        ((10, 0), "'horizon' of a Budget must be a whole number of at least 1. Got 0"),
        ((10, 1.5), "'horizon' of a Budget"),
        ((10, 5, 0), "'max_cost' of a Budget must be a finite number above 0. Got 0"),
        ((10, 5, inf), "'max_cost' of a Budget"),
    ],
)
def test_bad_budgets(given: tuple[Any, ...], message: str) -> None:
    names = ("horizon", "max_cost")
    with pytest.raises(InvalidArgument, match=message):
        Budget(given[0], **dict(zip(names, given[1:], strict=False)))


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ([1.0], r"must be 2 numbers. Got the shape \(1,\)"),
        ([[1.0, 2.0]], r"must be 2 numbers. Got the shape \(1, 2\)"),
        (1.0, r"must be 2 numbers. Got the shape \(\)"),
        ([], r"must be 2 numbers. Got the shape \(0,\)"),
        (["a", "b"], r"must be 2 numbers. Got \['a', 'b'\]"),
        ({"a": 1}, "without an encoder must be 2 numbers. Got named features"),
        (None, "must be 2 numbers"),
        (np.array([1j, 2]), "must be 2 numbers"),
        ([1.0, nan], r"finite numbers up to 1e\+50 \(element 1\). Got nan"),
        ([inf, 1.0], r"finite numbers up to 1e\+50 \(element 0\). Got inf"),
    ],
)
def test_bad_contexts_change_nothing(context: Any, message: str) -> None:
    deferrer = learner()
    before = deferrer.to_bytes()
    for call in (deferrer.decide, deferrer.propose, lambda x: deferrer.decide(x, force="model")):
        with pytest.raises(InvalidArgument, match=message):
            call(context)
    assert deferrer.to_bytes() == before


@pytest.mark.parametrize(
    ("contexts", "message"),
    [
        ([[1.0, 2.0], [1.0, nan]], "Got nan in row 1, column 1"),
        ([[1.0, 2.0, 3.0]], r"Got the shape \(1, 3\)"),
        ([1.0, 2.0], r"Got the shape \(2,\)"),
        ([["a", "b"]], "finite numbers of shape"),
    ],
)
def test_bad_tables_change_nothing(contexts: Any, message: str) -> None:
    deferrer = learner()
    before = deferrer.to_bytes()
    for call in (deferrer.decide_many, deferrer.score):
        with pytest.raises(InvalidArgument, match=message):
            call(contexts)
    with pytest.raises(InvalidArgument, match=message):
        deferrer.run(contexts, {"model": [0, 0], "human": [0, 0]}, [0, 0])
    assert deferrer.to_bytes() == before


@pytest.mark.parametrize(
    ("rewards", "cost", "message"),
    [
        ({"human": 1.5}, None, "'reward of human' of a decision must be between 0 and 1. Got 1.5"),
        ({"human": nan}, None, "'reward of human' of a decision must be between 0 and 1. Got nan"),
        ({"human": "good"}, None, "Got 'good'"),
        (None, True, "Got True"),  # a cost; as a reward it is one (test_readable.py)
        ({"ann": 0.5}, None, "There is no decider 'ann'. There are 'model', 'human'"),
        (None, -0.5, "'cost' of a Deferrer must be a finite number of at least 0. Got -0.5"),
        (None, nan, "'cost' of a Deferrer must be a finite number"),
        (None, inf, "'cost' of a Deferrer must be a finite number"),
        (None, 1.5, "'cost' of a decision must be at most 1, the max_cost of its budget. Got 1.5"),
        (None, {"minutes": 1.0}, "'cost' of a Deferrer must be given for cost"),
        ({"human": 0.5}, "much", "Got 'much'"),
    ],
)
def test_bad_observations_change_nothing(rewards: Any, cost: Any, message: str) -> None:
    deferrer = learner()
    deferrer.decide([0.6, 0.8], force="human")
    deferrer.decide([0.6, 0.8], force="human")
    before = deferrer.to_bytes()
    with pytest.raises(InvalidArgument, match=message):
        deferrer.observe(0, rewards, cost)
    if rewards in ({"human": 1.5}, {"human": "good"}, {"ann": 0.5}):
        with pytest.raises(DeferkitError):
            deferrer.observe_many([1, 0], {name: [0.5, value] for name, value in rewards.items()})
    assert deferrer.to_bytes() == before


def test_the_model_costs_nothing() -> None:
    deferrer = learner()
    deferrer.decide([0.6, 0.8], force="model")
    with pytest.raises(InvalidArgument, match="must be 0, because the model decided task 0. Got 0.5"):
        deferrer.observe(0, cost=0.5)
    deferrer.observe(0, {"model": 0.5, "human": 0.75}, cost=0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"force": "ann"}, "There is no decider 'ann'"),
        ({"available": ["ann"]}, "There is no expert 'ann'. There is 'human'"),
        ({"available": "human"}, "'available' of a Deferrer must be a list of experts"),
        ({"cost": 2.0}, "'cost' must be between 0 and 1. Got 2.0"),
        ({"cost": -1.0}, "at least 0. Got -1"),
        ({"cost": {"ann": 1}}, "'cost' of a Deferrer must be given for cost"),
    ],
)
def test_bad_steering_changes_nothing(given: dict[str, Any], message: str) -> None:
    deferrer = learner()
    before = deferrer.to_bytes()
    with pytest.raises(InvalidArgument, match=message):
        deferrer.decide([0.6, 0.8], **given)
    assert deferrer.to_bytes() == before
    assert deferrer.decide([0.6, 0.8]).id == 0


@pytest.mark.parametrize(
    ("rewards", "cost", "more", "message"),
    [
        ({"model": [0.5, 0.5]}, [0.1, 0.1], {}, "'rewards' of a Deferrer must be given for model, human"),
        ({"model": [0.5], "human": [0.5, 0.5]}, [0.1, 0.1], {}, r"'rewards of model' must be 2 numbers.*shape \(1,\)"),
        ({"model": [0.5, 2.0], "human": [0.5, 0.5]}, [0.1, 0.1], {}, r"between 0 and 1. Got 2.0 at \[1\]"),
        ({"model": [0.5, nan], "human": [0.5, 0.5]}, [0.1, 0.1], {}, r"between 0 and 1. Got nan at \[1\]"),
        ({"model": [0.5, 0.5], "human": [0.5, 0.5]}, [0.1, 1.1], {}, r"'cost' must be between 0 and 1. Got 1.1 at"),
        ({"model": [0.5, 0.5], "human": [0.5, 0.5]}, [0.1], {}, "'cost' must be 2 numbers"),
        ({"model": [0.5, 0.5], "human": [0.5, 0.5]}, [0.1, 0.1], {"feedback": "all"}, "one of 'full', 'bandit', 'rev"),
    ],
)
def test_bad_streams_change_nothing(rewards: Any, cost: Any, more: dict[str, Any], message: str) -> None:
    deferrer = learner()
    before = deferrer.to_bytes()
    with pytest.raises(InvalidArgument, match=message):
        deferrer.run([[0.6, 0.8]] * 2, rewards, cost, **more)
    assert deferrer.to_bytes() == before


def test_many_forms_of_the_same_context() -> None:
    x = np.array([0.5, 0.25])
    strided = np.array([0.5, 9, 0.25, 9])[::2]
    forms = [x, x.tolist(), tuple(x), x.astype(np.float32), strided, pd.Series(x), pl.Series(x)]
    learners = [learner() for _ in forms]
    for deferrer, form in zip(learners, forms, strict=True):
        deferrer.decide(form)
    assert all(deferrer == learners[0] for deferrer in learners)


def test_many_forms_of_the_same_table() -> None:
    x = np.random.default_rng(0).random((5, 2))
    forms = [x, x.tolist(), np.asfortranarray(x), pd.DataFrame(x), pl.DataFrame(x)]
    learners = [learner() for _ in forms]
    for deferrer, form in zip(learners, forms, strict=True):
        deferrer.decide_many(form)
    assert all(deferrer == learners[0] for deferrer in learners)


@pytest.mark.filterwarnings("ignore::deferkit.LinkWarning")
def test_several_experts_and_resources_take_costs_by_name() -> None:
    budget = {"minutes": Budget(10, horizon=100), "euros": Budget(20, horizon=100)}
    one, two = (Deferrer(n_features=1, experts=["ann", "bo"], budget=budget) for _ in range(2))
    x = np.ones((6, 1))
    rewards = {name: np.linspace(0, 1, 6) for name in ("model", "ann", "bo")}
    costs = np.random.default_rng(0).random((6, 2, 2))
    by_name = {name: {"euros": costs[:, k, 1], "minutes": costs[:, k, 0]} for k, name in enumerate(("ann", "bo"))}
    one.run(x, rewards, costs)
    two.run(x, rewards, by_name)
    assert one == two
    with pytest.raises(InvalidArgument, match="'cost of ann' of a Deferrer must be given for minutes, euros"):
        one.run(x, rewards, {"ann": costs[:, 0, 0], "bo": costs[:, 1, 0]})
    with pytest.raises(InvalidArgument, match="given by expert"):
        one.run(x, rewards, costs[:, 0, 0])
    decision = one.decide([1.0], force="bo", cost={"bo": {"minutes": 0.5, "euros": 1.0}})
    assert decision.reserved == {"minutes": 0.5, "euros": 1.0}
    with pytest.raises(InvalidArgument, match="given for each of minutes, euros"):
        one.observe(decision.id, cost=0.5)


def test_empty_input_is_nothing() -> None:
    deferrer = learner()
    before = deferrer.to_bytes()
    assert deferrer.decide_many(np.zeros((0, 2))) == []
    run = deferrer.run(np.zeros((0, 2)), {"model": [], "human": []}, [])
    assert run.deferral_rate == 0
    deferrer.observe_many([])
    assert deferrer.to_bytes() == before


def test_observe_many_wants_different_ids() -> None:
    deferrer = learner()
    deferrer.decide_many([[0.6, 0.8]] * 2)
    with pytest.raises(InvalidArgument, match="different ids"):
        deferrer.observe_many([0, 0], {"model": [0.5, 0.25]})


def test_denormal_and_huge_numbers_stay_finite() -> None:
    deferrer = learner(reward_range=(-inf, inf), pacing=Pacing(kind="adaptive"))
    for x in ([5e-324, 1e-310], [1e-300, 0.0], [0.0, 0.0], [1.0, 1e-16]):
        for _ in range(20):
            decision = deferrer.decide(x)
            deferrer.observe(decision.id, {decision.route: 1e50 if x[0] == 1.0 else 0.5})
    scores = deferrer.score([[0.5, 0.5]])
    assert np.isfinite(scores.estimates["model"]).all()


def test_numbers_of_numpy_are_saved_as_numbers() -> None:
    deferrer = Deferrer(
        n_features=np.int64(2),  # type: ignore[arg-type]
        budget=Budget(np.float32(5), horizon=np.int64(100), max_cost=np.float64(1)),  # type: ignore[arg-type]
        seed=np.uint8(3),  # type: ignore[arg-type]
        ridge=np.float64(0.5),
    )
    assert Deferrer.from_bytes(deferrer.to_bytes()) == deferrer


def test_an_event_keeps_its_own_copy_of_the_context() -> None:
    buffer = np.array([0.6, 0.8])
    event = learner().propose(buffer)
    buffer[:] = 0
    assert event.context == [0.6, 0.8]
    assert event == learner().propose([0.6, 0.8])


ODD: list[Any] = [5, None, "x", [], ["a"], {}, 10**400, object(), 2.5, np.array([[1, 2]]), {"a": 1.0}]


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:20])
def test_wrong_types_raise_our_own_errors_and_change_nothing(value: Any) -> None:
    """Whatever is handed in where, it is taken or refused with a DeferkitError; refused, nothing changes."""
    deferrer = learner()
    deferrer.decide([0.6, 0.8], force="human")
    rewards = {"model": [0.5], "human": [0.5]}
    calls: list[Any] = [
        lambda: deferrer.observe(0, value),
        lambda: deferrer.observe(0, {"human": value}),
        lambda: deferrer.observe(0, cost=value),
        lambda: deferrer.observe(value, {"human": 0.5}),
        lambda: deferrer.correct(0, value),
        lambda: deferrer.observe_many(value, {}),
        lambda: deferrer.observe_many([0], value),
        lambda: deferrer.decide(value),
        lambda: deferrer.decide_many(value),
        lambda: deferrer.decide([0.6, 0.8], available=value),
        lambda: deferrer.decide([0.6, 0.8], cost=value),
        lambda: deferrer.propose([0.6, 0.8], force=value),
        lambda: deferrer.change_budget(value),
        lambda: deferrer.apply(value),
        lambda: deferrer.apply(Decided(value, [0.6, 0.8])),
        lambda: deferrer.run([[0.6, 0.8]], rewards, [0.1], feedback=value),
        lambda: deferrer.run(value, rewards, [0.1]),
        lambda: deferrer.run([[0.6, 0.8]], value, [0.1]),
        lambda: deferrer.run([[0.6, 0.8]], rewards, value),
        lambda: deferrer.warm_start(value, rewards),
        lambda: Deferrer.from_bytes(value),
        lambda: Deferrer.load(value),
        *(
            lambda name=name: learner(**{name: value})
            for name in ("n_features", "budget", "experts", "link", "pacing", "exploration", "ridge", "warm_up")
        ),
        *(
            lambda name=name: learner(**{name: value})
            for name in ("explore_floor", "reward_range", "refit", "memory", "seed", "refit_limit")
        ),
        lambda: Deferrer(encoder=value),
        lambda: Encoder(numbers=value),
        lambda: Encoder(categories=value),
        lambda: Encoder(categories={"c": value}),
        lambda: Budget(value, horizon=5),
        lambda: Budget(5, horizon=value),
        lambda: Budget(5, horizon=5, max_cost=value),
    ]
    for call in calls:
        before = deferrer.to_bytes()
        try:
            call()
        except DeferkitError:
            assert deferrer.to_bytes() == before


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:20])
def test_wrong_rows_raise_our_own_errors(value: Any) -> None:
    deferrer = Deferrer(encoder=Encoder(numbers=["a"], categories={"c": 2}), budget=BUDGET)
    for call in (deferrer.decide, deferrer.decide_many, deferrer.score, lambda v: deferrer.warm_start(v, {})):
        before = deferrer.to_bytes()
        try:
            call(value)
        except DeferkitError:
            assert deferrer.to_bytes() == before


def test_missing_values_of_pandas_are_missing() -> None:
    frame = pd.DataFrame({"a": pd.array([1, None, 3], dtype="Int64"), "c": pd.array(["x", None, "y"], dtype="string")})
    encoder = Encoder(numbers=["a"], categories={"c": 2})
    deferrer = Deferrer(encoder=encoder, budget=BUDGET)
    deferrer.decide_many(frame)
    assert deferrer._contexts.encoder is not None
    assert deferrer._contexts.encoder.levels["c"] == ["x", "y"]


@pytest.mark.parametrize("huge", [1e51, -1e51, 1e308])
def test_numbers_too_large_to_work_with_are_refused(huge: float) -> None:
    deferrer = learner(reward_range=(-inf, inf), budget=Budget.unlimited())
    deferrer.decide([0.6, 0.8], force="human")
    for call in (
        lambda: deferrer.decide([huge, 1.0]),
        lambda: deferrer.decide_many([[huge, 1.0]]),
        lambda: deferrer.observe(0, {"human": huge}),
        lambda: deferrer.observe(0, cost=abs(huge)),
    ):
        with pytest.raises(InvalidArgument):
            call()
    enc = Encoder(numbers=["a"])
    with pytest.raises(InvalidArgument):
        enc.see({"a": huge})


def test_a_tampered_event_is_refused() -> None:
    deferrer = learner()
    event = deferrer.propose([0.6, 0.8], force="model")
    before = deferrer.to_bytes()
    for change in ({"reserved": 5.0}, {"route": "human", "reserved": 5.0}, {"route": "bo"}, {"reason": "whim"}):
        with pytest.raises(DeferkitError):
            deferrer.apply(event._replace(decision=event.decision._replace(**change)))
    assert deferrer.to_bytes() == before
