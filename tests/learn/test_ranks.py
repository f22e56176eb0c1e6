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
from deferkit.worlds.classifiers import JUNK, JunkContexts
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


@st.composite
def monotone_maps(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Return knots of a strictly monotone function, up or down, whose values are never absurd: at most 1,000 to 1."""
    steps = draw(st.lists(st.floats(0.01, 1.0), min_size=5, max_size=5))
    values = np.concatenate([[0.0], np.cumsum(steps)])
    low, high = draw(st.tuples(st.floats(1.0, 500.0), st.floats(1.5, 2.0)).map(lambda pair: (pair[0], math.prod(pair))))
    values = low + (high - low) * values / values[-1]
    up, sign = draw(st.booleans()), draw(st.sampled_from([-1.0, 1.0]))
    return np.linspace(0, 1, 6), sign * (values if up else values[::-1])


@settings(max_examples=40)
@given(st.lists(monotone_maps(), min_size=3, max_size=3), st.integers(0, 1000), st.booleans())
def test_without_values_no_strictly_monotone_map_of_a_feature_changes_a_route(
    maps: list[tuple[np.ndarray, np.ndarray]], seed: int, graded: bool
) -> None:
    """Maps that go down change the sign of a rank; features have ties, and are 0 to 1 in steps of 0.05."""
    tasks = draw_tasks(250, 3, binary=not graded, seed=seed)
    contexts = np.round(tasks.contexts, 1 + seed % 2)
    mapped = np.column_stack([np.interp(contexts[:, j], *knots) for j, knots in enumerate(maps)])
    routes = []
    for given_contexts in (contexts, mapped):
        deferrer = learner(3, without=("values",))
        run = deferrer.run(given_contexts, rewards_of(deferrer, tasks), tasks.costs)
        routes.append(run.routes)
    assert (routes[0] == routes[1]).all()


def test_an_absurd_value_is_missing_and_others_keep_their_rank() -> None:
    """A thousand times the larger decile: a broken sensor, or a code for missing values."""
    rng = np.random.default_rng(3)
    contexts = rng.uniform(1.0, 2.0, (160, 2))
    clean = learner(2)
    broken = learner(2)
    spoilt = contexts.copy()
    spoilt[[30, 120], 1] = [1e9, -1e50]
    for x, y in zip(contexts, spoilt, strict=True):
        clean.decide(x)
        broken.decide(y)
    assert broken._ledger.view("rank_count").tolist() == [100, 99]
    for t in (30, 120):
        assert stored_ranks(broken, t)[2] == 0.0
        assert stored_ranks(broken, t)[1] == stored_ranks(clean, t)[1]
        assert 1.0 <= broken._ledger.view("context")[t, 0, 1] <= 2.0  # the median
    first = np.delete(contexts[:100, 1], 30)
    expected = ((first < contexts[130, 1]).mean() + (first == contexts[130, 1]).mean() / 2) - 0.5
    assert stored_ranks(broken, 130)[2] == pytest.approx(expected)


@settings(max_examples=40)
@given(
    arrays(np.float64, 150, elements=st.floats(-1e3, 1e3)),
    st.floats(1e-3, 1e3),
    st.integers(10, 149).filter(lambda at: at != FROZEN - 1),  # the hundredth is cut once more
)
def test_values_are_cut_at_one_decile_distance(values: np.ndarray, size: float, at: int) -> None:
    """Of the contexts before; a value that is absurdly far becomes the median. Narrow features keep values up to 1."""
    values = np.round(values * size, 6)
    deferrer = learner(1)
    for value in values[:at]:
        deferrer.decide([value])
    table = deferrer._ledger.view("rank_table")[0][: deferrer._ledger.view("rank_count")[0]].copy()
    deferrer.decide([values[at]])
    n = len(table)
    assert (np.diff(table) >= 0).all()
    low, high = table[n // 10], table[n - 1 - n // 10]
    stored = deferrer._ledger.view("context")[at, 0, 0]
    if (abs(values[at]) <= 1.0 and high - low < 0.25) or low == high == 0.0:
        assert stored == values[at]
    elif abs(values[at]) > 1_000 * max(abs(low), abs(high)):
        assert stored == table[n // 2]
    elif low == high:
        assert stored == values[at]
    else:
        assert stored == pytest.approx(np.clip(values[at], 2 * low - high, 2 * high - low), rel=1e-12)


def test_rare_classes_are_no_outliers() -> None:
    """Chances of 20 classes, a category of 20 levels and a scaled indicator keep their values and their ranks."""
    rng = np.random.default_rng(5)
    likely = rng.integers(0, 20, 300)
    chances = np.full((300, 20), 1e-6)
    chances[np.arange(300), likely] = 1.0 - 19e-6
    indicator = np.where(rng.random(300) < 0.04, 4.9, -0.2)  # of a rare event, as StandardScaler gives it
    vectors = learner(21)
    for x in np.column_stack([chances, indicator]):
        vectors.decide(x)
    stored = vectors._ledger.view("context")[:300, 0, :21]
    assert (stored == np.column_stack([chances, indicator])).all()
    ranks = [stored_ranks(vectors, t)[1 + likely[t]] for t in range(100, 300) if likely[t] in likely[:100]]
    assert min(ranks) > 0.4

    levels = [f"class {k}" for k in range(20)]
    named = Deferrer(encoder=Encoder(categories={"predicted": levels}), representation="linear")
    for k in likely:
        named.decide({"predicted": levels[k]})
    features = named._ledger.view("context")[:300, 0, : named.settings.n_features]
    encoder = named._contexts.encoder
    assert encoder is not None
    expected = np.array([encoder.encode({"predicted": levels[k]}) for k in likely])
    assert features == pytest.approx(expected)


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


@pytest.mark.parametrize("feedback", ["full", "reviewed"])
@pytest.mark.parametrize("named", [False, True], ids=["vector", "named"])
def test_junk_costs_at_most_2_right_answers(named: bool, feedback: str) -> None:
    """60 contexts of 1e50 among 1,500, the first one among them, or a first one of 1e6 or 1e50: means over 30 seeds.

    Whoever decides the junk tasks is right. Of 300 seeds, a first context costs 1.4 ± 0.4 (vector, reviewed), which is
    the largest loss; the standard error of 30 is up to 1.2.
    """
    names = [f"number {i}" for i in range(5)]

    def earned(contexts: np.ndarray, rewards: np.ndarray, seed: int) -> float:
        limits = {"budget": Budget(150, horizon=1500, max_cost=1), "representation": "linear", "seed": seed}
        if named:
            deferrer = Deferrer(encoder=Encoder(numbers=names), **limits)  # type: ignore[arg-type]
            rows: Any = dict(zip(names, contexts[:, 1:].T.tolist(), strict=True))
        else:
            deferrer, rows = Deferrer(n_features=6, **limits), contexts  # type: ignore[arg-type]
        given = {"model": rewards[:, 0], "human": rewards[:, 1]}
        return float(deferrer.run(rows, given, np.ones(1500), feedback=feedback).rewards.sum())

    lost: dict[str, list[float]] = {"first 1e6": [], "first 1e50": [], "scattered": []}
    for seed in range(30):
        clean, scattered, first = (JunkContexts(junk=junk).draw(seed) for junk in JUNK)
        larger = first.contexts.copy()
        larger[0, 1:] = np.copysign(1e50, larger[0, 1:])
        before = earned(clean.contexts, clean.rewards, seed)
        for kind, contexts in zip(lost, (first.contexts, larger, scattered.contexts), strict=True):
            lost[kind].append(before - earned(contexts, clean.rewards, seed))
    for kind, each in lost.items():
        assert np.mean(each) <= 2.0 + 2.0 * np.std(each) / math.sqrt(len(each)), kind


def test_an_absurd_number_is_missing_and_leaves_the_scale_alone() -> None:
    """Among the rows that the scale is of, and later."""
    rng = np.random.default_rng(4)
    values = rng.uniform(1.0, 2.0, 40)
    spoilt = values.copy()
    spoilt[[0, 3, 9, 30]] = [1e50, 1e6, -1e50, -1e6]
    clean, broken = (Deferrer(encoder=Encoder(numbers=["a"]), representation="linear") for _ in range(2))
    for x, y in zip(values.tolist(), spoilt.tolist(), strict=True):
        clean.decide({"a": x})
        broken.decide({"a": y})
    scales = [deferrer._contexts.encoder.scales["a"] for deferrer in (clean, broken)]  # type: ignore[union-attr]
    kept = np.delete(values[:16], [0, 3, 9])
    assert scales[0].n == 16
    assert scales[1].n == 13
    assert (scales[1].mean, scales[1].std) == pytest.approx((kept.mean(), kept.std()))
    for t in (0, 3, 9, 30):
        assert stored_ranks(broken, t)[2] == 0.0
        assert broken._ledger.view("context")[t, 0, 1:3].tolist() == pytest.approx([0.0, 1 / math.sqrt(2)])
    again = Deferrer.from_bytes(broken.to_bytes())
    rows = {"a": [1.5, 1e50, -1e6, 1.9]}
    encoders = [deferrer._contexts.encoder for deferrer in (broken, again)]
    one_by_one = np.array([encoders[0].encode({"a": value}) for value in rows["a"]])  # type: ignore[union-attr]
    for encoder in encoders:
        assert encoder is not None
        assert encoder.encode_columns(rows).tolist() == one_by_one.tolist()
    assert one_by_one[:, 2].astype(bool).tolist() == [False, True, True, False]


def test_a_number_that_was_0_in_the_first_rows_may_have_any_size() -> None:
    deferrer = Deferrer(encoder=Encoder(numbers=["gain"]), representation="linear")
    for value in [0.0] * 20 + [99_999.0]:
        deferrer.decide({"gain": value})
    assert deferrer._ledger.view("context")[20, 0, 1] > 1.0  # squeezed, and not missing
    assert deferrer._ledger.view("context")[20, 0, 2] == 0.0


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


def test_a_named_chance_of_a_rare_class_is_no_outlier() -> None:
    """Nearly 0 in all rows that the scale is of, then 1."""
    deferrer = Deferrer(encoder=Encoder(numbers=["chance"]), representation="linear")
    for t in range(40):
        deferrer.decide({"chance": 0.95 if t in (5, 30) else 1e-7 * (t % 7)})
    column = deferrer._contexts.encoder.names.index("chance")  # type: ignore[union-attr]
    contexts = deferrer._ledger.view("context")[:40, 0]
    assert contexts[30, column] == contexts[5, column] > contexts[29, column] + 0.1
    assert contexts[30, column + 1] == 0.0  # it is not missing
