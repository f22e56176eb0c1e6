"""The rank view: midranks among the first contexts, frozen, bounded, and invariant to monotone transformations."""

import math
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra.numpy import arrays
from scipy.stats import rankdata

from deferkit import Budget, Deferrer, Encoder
from tests.conftest import draw_tasks, rewards_of

FROZEN = 100


def learner(d: int, **given: object) -> Deferrer:
    return Deferrer(n_features=d, budget=Budget(60, horizon=600, max_cost=1), **given)  # type: ignore[arg-type]


def stored_ranks(deferrer: Deferrer, decision: int) -> np.ndarray:
    """Return the rank view of a decision, without its scale: the constant, then midrank − ½ of each feature."""
    view = deferrer._ledger.view("context")[decision, -1]
    return np.asarray(view / view[0])


@pytest.mark.filterwarnings("ignore::deferkit.SpendingWarning")  # nothing is observed
@settings(max_examples=30)
@given(arrays(np.float64, (130, 3), elements=st.sampled_from([-90.0, -1.0, 0.0, 0.25, 0.5, 3.0, 100.0])))
def test_ranks_are_midranks_among_the_first_hundred(contexts: np.ndarray) -> None:
    deferrer = learner(3)
    for x in contexts:
        deferrer.decide(x)
    for t in (0, 1, 17, 99):
        expected = (rankdata(contexts[: t + 1], axis=0)[-1] - 0.5) / (t + 1) - 0.5
        assert stored_ranks(deferrer, t)[1:4] == pytest.approx(expected, abs=1e-12)
    first = contexts[:FROZEN]
    for t in (100, 129):
        below, equal = (first < contexts[t]).sum(axis=0), (first == contexts[t]).sum(axis=0)
        assert stored_ranks(deferrer, t)[1:4] == pytest.approx((below + equal / 2) / FROZEN - 0.5, abs=1e-12)


@pytest.mark.filterwarnings("ignore::deferkit.SpendingWarning")  # nothing is observed
def test_the_view_has_a_constant_and_length_at_most_1() -> None:
    deferrer = learner(4)
    for x in np.random.default_rng(0).standard_normal((150, 4)) * 1e9:
        deferrer.decide(x)
    view = deferrer._ledger.view("context")[:150, -1]
    assert view[:, 0] == pytest.approx(1 / math.sqrt(5))
    assert (np.linalg.norm(view, axis=1) <= 1.0).all()


@pytest.mark.parametrize("n", [1, 60, 99, 100, 250])
def test_a_warm_start_is_kept_when_the_tables_are_frozen(n: int) -> None:
    """Its samples are not remembered: whatever learns the remembered outcomes again would lose them."""
    deferrer, rng = learner(2), np.random.default_rng(n)
    deferrer.warm_start(rng.random((n, 2)), {"model": np.full(n, 0.2), "human": np.full(n, 0.9)}, cost=np.full(n, 0.5))
    learned = deferrer.summary().noise, {who: each.theta.tolist() for who, each in deferrer.coefficients().items()}
    for x in rng.random((2 * FROZEN, 2)):
        deferrer.decide(x)
    now = deferrer.summary().noise, {who: each.theta.tolist() for who, each in deferrer.coefficients().items()}
    assert now == learned


def test_without_values_monotone_transformations_change_no_decision() -> None:
    tasks = draw_tasks(400, 4, binary=True, seed=5)
    routes = []
    for contexts in (tasks.contexts, np.exp(20 * tasks.contexts), tasks.contexts**3 - 1e4):
        deferrer = learner(4, without=("values",))
        run = deferrer.run(contexts, rewards_of(deferrer, tasks), tasks.costs)
        routes.append(run.routes)
    assert (routes[0] == routes[1]).all()
    assert (routes[0] == routes[2]).all()


def test_a_missing_number_has_rank_0_and_is_in_no_table() -> None:
    deferrer = Deferrer(encoder=Encoder(numbers=["a"]), representation="linear")
    values = [1.0, None, 2.0, None, 3.0] * 8
    for value in values:
        deferrer.decide({"a": value})
    column = deferrer._contexts.encoder.names.index("a")  # type: ignore[union-attr]
    assert deferrer._ledger.view("rank_count")[column] == 24
    assert stored_ranks(deferrer, 1)[1 + column] == 0.0
    assert stored_ranks(deferrer, 1)[2 + column] > 0.0  # its indicator


def test_named_numbers_beyond_three_standard_deviations_keep_their_order() -> None:
    deferrer = Deferrer(encoder=Encoder(numbers=["a"]), representation="linear")
    for value in [*np.linspace(0, 1, 40), 50.0, 60.0, 70.0]:
        deferrer.decide({"a": float(value)})
    column = deferrer._contexts.encoder.names.index("a")  # type: ignore[union-attr]
    far = [stored_ranks(deferrer, t)[1 + column] for t in (40, 41, 42)]
    assert far[0] < far[1] < far[2] or len(set(far)) == 3  # each is the largest so far
    x = deferrer._ledger.view("context")[40:43, 0, column]
    assert x[0] < x[1] < x[2] < 2.0


def test_outliers_cost_next_to_nothing() -> None:
    """60 contexts of 1e50 among 1,500 tasks, and a first context of 1e6: means over 20 seeds."""
    lost: dict[str, list[float]] = {"many": [], "first": []}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        score = rng.random(1500)
        rewards = {"model": (rng.random(1500) < score).astype(float), "human": (rng.random(1500) < 0.93).astype(float)}
        clean = np.column_stack([np.ones(1500), score, rng.random(1500)])

        def earned(contexts: np.ndarray, rewards: dict[str, np.ndarray] = rewards) -> float:
            deferrer = Deferrer(n_features=3, budget=Budget(150, horizon=1500, max_cost=1))
            return float(deferrer.run(contexts, rewards, np.ones(1500)).rewards.sum())

        many, first = clean.copy(), clean.copy()
        many[rng.choice(1500, 60, replace=False)] = 1e50
        first[0] = 1e6
        before = earned(clean)
        lost["many"].append(before - earned(many))
        lost["first"].append(before - earned(first))
    # nobody can tell what the 60 tasks are worth: 4 % of a gain of about 135
    assert np.mean(lost["many"]) <= 8.0
    assert np.mean(lost["first"]) <= 2.0


@pytest.mark.parametrize("options", [{}, {"confidence": 1}, {"representation": "auto"}], ids=str)
def test_coefficients_are_of_the_values(options: dict[str, Any]) -> None:
    """They fit `vectors`, and where values decide, they are what the estimates rest on."""
    rng = np.random.default_rng(0)
    deferrer = Deferrer(n_features=3, link="identity", defaults="2026.12", **options)
    contexts = rng.normal(size=(200, 3))
    for context in contexts:
        decision = deferrer.decide(context, force="model")
        deferrer.observe(decision.id, {"model": float(np.clip(0.5 + 0.1 * context[0] + 0.05 * rng.normal(), 0, 1))})
    found = deferrer.coefficients()["model"]
    assert found.theta.shape == (deferrer.vectors(contexts).shape[1],)
    assert found.inverse.shape == (len(found.theta), len(found.theta))
