"""The rule of December 2026: automatic link, noise prior, free exploration, confidence prior, tested drift alarms."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deferkit import Budget, Deferrer, Encoder, Exploration, InvalidArgument, LinkWarning, SpendingWarning
from tests.conftest import draw_tasks, rewards_of


def made(**given: object) -> Deferrer:
    given = {"n_features": 4, "budget": Budget(60, horizon=600, max_cost=1)} | given
    return Deferrer(**given)  # type: ignore[arg-type]


# ------------------------------------------------------------ the automatic link


@pytest.mark.parametrize(
    ("given", "link"),
    [
        ({}, "auto"),
        ({"defaults": "2026.11"}, "identity"),
        ({"reward_range": (0.0, 2.0)}, "identity"),
        ({"cost_link": "logistic"}, "identity"),
        ({"exploration": Exploration(rule="interval")}, "identity"),
        ({"exploration": Exploration.thompson()}, "identity"),
        ({"link": "logistic"}, "logistic"),
        ({"link": "identity"}, "identity"),
    ],
)
def test_the_link_is_automatic_where_it_can_switch(given: dict[str, object], link: str) -> None:
    assert made(**given).settings.link == link


def test_right_or_wrong_is_learned_as_with_the_logistic_link() -> None:
    tasks = draw_tasks(300, 4, binary=True, seed=1)
    auto, logistic = made(), made(link="logistic")
    runs = [each.run(tasks.contexts, rewards_of(each, tasks), tasks.costs) for each in (auto, logistic)]
    assert (runs[0].routes == runs[1].routes).all()
    assert (auto.coefficients()["human"].theta == logistic.coefficients()["human"].theta).all()


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), switch=st.integers(1, 120), memory=st.sampled_from([30, 1000]))
def test_after_the_switch_estimates_are_those_of_an_identity_learner(seed: int, switch: int, memory: int) -> None:
    """One that learned the same remembered outcomes, in the order of decisions."""
    rng = np.random.default_rng(seed)
    given = {"memory": memory, "pacing": "adaptive"}
    auto, identity = made(**given), made(link="identity", **given)
    contexts = rng.random((switch + 1, 4))
    known = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LinkWarning)
        for t, x in enumerate(contexts):
            rewards = {"model": float(rng.random() < 0.7) if t < switch else 0.5}
            decision = auto.decide(x)
            cost = None
            if decision.route == "human":
                rewards["human"], cost = float(rng.random() < 0.9), 0.5
            auto.observe(decision.id, rewards, cost)
            known.append((decision.route, rewards, cost))
    for t, x in enumerate(contexts):  # the same decisions, so that the ranks are the same
        route, rewards, cost = known[t]
        decision = identity.decide(x, force=route)
        if t >= len(contexts) - memory:
            identity.observe(decision.id, rewards, cost)
    for name, found in auto.coefficients().items():
        assert found.theta == pytest.approx(identity.coefficients()[name].theta, rel=1e-9, abs=1e-9)


def test_the_switch_is_said_once_and_not_where_no_reward_was_0_or_1() -> None:
    deferrer = made()
    for reward in (1.0, 0.0):
        deferrer.observe(deferrer.decide([1, 0, 0, 0]).id, {"model": reward})
    decision = deferrer.decide([1, 0, 0, 0])
    with pytest.warns(LinkWarning, match="neither 0 nor 1"):
        deferrer.observe(decision.id, {"model": 0.25})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        deferrer.observe(deferrer.decide([1, 0, 0, 0]).id, {"model": 0.75})
        graded = made()
        graded.observe(graded.decide([1, 0, 0, 0]).id, {"model": 0.75})
        for seed in range(4):  # the first decision is random: a run learns one reward or two of it
            made(seed=seed).run(np.eye(4), {"model": [0.75] * 4, "human": [0.5] * 4}, np.ones(4))
            both = made(seed=seed)
            both.observe(both.decide([1, 0, 0, 0]).id, {"model": 0.75, "human": 0.5})


def test_a_correction_and_a_warm_start_switch_the_link_too() -> None:
    deferrer = made()
    decisions = [deferrer.decide(np.eye(4)[t % 4]) for t in range(8)]
    for decision in decisions:
        deferrer.observe(decision.id, {"model": 1.0})
    with pytest.warns(LinkWarning):
        deferrer.correct(decisions[3].id, {"model": 0.4})
    assert Deferrer.from_bytes(deferrer.to_bytes()) == deferrer
    warm = made()
    warm.warm_start(np.eye(4), {"model": [0.5, 1, 0, 1], "human": [1, 1, 1, 1]}, cost=[1, 1, 1, 1])
    assert warm._ledger.get("reward_link") == 0


# ------------------------------------------------------------ the noise prior


def test_the_noise_starts_at_its_prior_and_goes_to_the_residuals() -> None:
    """σ̂² = (Σe² + 4·v₀) / (n + 4), with v₀ = (range / 2)²: the width of the first task by hand."""
    deferrer = made(n_features=1, link="identity", warm_up=0, exploration=Exploration(prior=0.0))
    decision = deferrer.propose([1.0]).decision
    # √(xᵀH⁻¹x) with the rank view [1, 0]/√2 and ridge 0.01
    spread = math.sqrt(0.5 / 0.01)
    assert decision.widths["human"] == pytest.approx(0.3 * 0.5 * spread)


# ------------------------------------------------------------ free exploration


def stream(seed: int, n: int = 1500) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return contexts with a score that is the model's chance to be right, and an expert who is right in 93 %."""
    rng = np.random.default_rng(seed)
    score = rng.random(n) ** 0.5
    contexts = np.column_stack([np.ones(n), score, rng.random(n)])
    return contexts, {
        "model": (rng.random(n) < score).astype(float),
        "human": (rng.random(n) < 0.93).astype(float),
    }


@pytest.mark.parametrize("feedback", ["full", "bandit", "reviewed"])
def test_an_expert_who_starts_badly_is_asked_again(feedback: str) -> None:
    """The expert is wrong in the first six reviews; without free exploration streams end with the budget unspent."""
    for seed in range(20):
        contexts, rewards = stream(seed)
        rewards["human"][:40] = 0.0
        deferrer = Deferrer(n_features=3, budget=Budget(150, horizon=1500, max_cost=1), seed=seed)
        deferrer.run(contexts, rewards, np.ones(1500), feedback=feedback)
        assert deferrer.summary().spent >= 0.25 * 150  # type: ignore[operator]


def test_an_expert_who_is_worse_is_not_asked_for_ever() -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        contexts = np.column_stack([np.ones(3000), rng.random((3000, 2))])
        rewards = {"model": (rng.random(3000) < 0.95) * 1.0, "human": (rng.random(3000) < 0.5) * 1.0}
        deferrer = Deferrer(n_features=3, budget=Budget(3000, horizon=3000, max_cost=1), seed=seed)
        with pytest.warns(SpendingWarning, match="is below the model's"):
            deferrer.run(contexts, rewards, np.ones(3000))
        assert deferrer.summary().spent <= 300  # type: ignore[operator]


def test_a_given_exploration_or_an_unlimited_budget_explores_nothing_for_free() -> None:
    assert made().settings.explores_free
    for other in ({"exploration": 0.3}, {"budget": Budget.unlimited()}, {"pacing": "adaptive"}):
        assert not made(**other).settings.explores_free
    assert not made(defaults="2026.11").settings.explores_free


# ------------------------------------------------------------ the prior of the confidence


@pytest.mark.filterwarnings("ignore::deferkit.SpendingWarning")  # nothing is observed
def test_the_first_estimates_are_those_of_the_prior() -> None:
    """The model: log-odds 0.5 + 2·rank of the confidence; the expert 0.9. The first context has the rank ½."""
    deferrer = made(n_features=2, confidence=1, warm_up=0)
    first = deferrer.decide([1.0, 0.8])
    assert first.estimates["model"] == pytest.approx(1 / (1 + math.exp(-1.5)))
    assert first.estimates["human"] == pytest.approx(0.9)
    for value in np.linspace(0, 1, 200):
        deferrer.decide([1.0, value])
    low, high = deferrer.propose([1.0, -1.0]).decision, deferrer.propose([1.0, 2.0]).decision
    # a fifth of the mixture reads values, whose prior is constant
    assert low.estimates["model"] == pytest.approx(1 / (1 + math.exp(-(0.8 * 0.5 + 0.2 * 1.5))), abs=1e-6)
    assert high.estimates["model"] == pytest.approx(1 / (1 + math.exp(-(0.8 * 2.5 + 0.2 * 1.5))), abs=1e-6)


def test_the_prior_of_graded_rewards_is_scaled_to_their_range() -> None:
    deferrer = made(n_features=2, confidence=1, warm_up=0, reward_range=(-1.0, 3.0))
    first = deferrer.decide([1.0, 0.8])
    assert first.estimates["model"] == pytest.approx(-1 + 4 * 0.77)
    assert first.estimates["human"] == pytest.approx(-1 + 4 * 0.9)


def test_the_confidence_is_named_by_the_encoder_or_by_the_learner() -> None:
    by_encoder = Encoder(numbers=["age", "score"], confidence="score")
    by_learner = Encoder(numbers=["age", "score"])
    one = Deferrer(encoder=by_encoder, representation="linear")
    other = Deferrer(encoder=by_learner, confidence="score", representation="linear")
    assert one.settings.confidence == other.settings.confidence == by_encoder.names.index("score")


@pytest.mark.parametrize(
    "given",
    [
        {"confidence": 4},
        {"confidence": "score"},
        {"confidence": -1},
        {"confidence": 1, "defaults": "2026.11"},
        {"confidence": 1, "reward_range": (0.0, math.inf)},
        {"defaults": "2025"},
        {"without": ("hats",)},
        {"without": ("values", "ranks")},
    ],
)
def test_impossible_settings_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        made(**given)


# ------------------------------------------------------------ drift alarms


@pytest.mark.filterwarnings("ignore::deferkit.LinkWarning")
@pytest.mark.parametrize("kind", ["logistic", "misspecified", "graded"])
def test_stationary_streams_raise_no_drift_alarm(kind: str) -> None:
    """α is 0.01 for each target: of 40 streams of 6,000 tasks, more than 2 alarms have a chance of 0.8 %."""
    alarms = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((6000, 3))
        eta = x @ [1.0, -0.5, 0.3] + (np.sin(3 * x[:, 0]) if kind == "misspecified" else 0.0)
        chance = 1 / (1 + np.exp(-eta))
        model = (
            np.clip(chance + 0.1 * rng.standard_normal(6000), 0, 1) if kind == "graded" else rng.random(6000) < chance
        )
        rewards = {"model": model * 1.0, "human": (rng.random(6000) < 0.8) * 1.0}
        deferrer = Deferrer(n_features=3, budget=Budget(300, horizon=6000, max_cost=1), seed=seed)
        deferrer.run(x, rewards, np.ones(6000))
        alarms += any(drift.target == "model" for drift in deferrer.drifts())
    assert alarms <= 2


def test_one_change_raises_one_alarm() -> None:
    """10 seeds each, graded and right or wrong: the slow members remember the past, which is no second change."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        late = np.arange(9_000) >= 2_000
        graded = np.clip(np.where(late, 0.8, 0.2) + 0.1 * rng.standard_normal(9_000), 0, 1)
        binary = (rng.random(9_000) < np.where(late, 0.6, 0.9)) * 1.0
        for y in (graded, binary):
            deferrer = made(n_features=1, budget=Budget(0, horizon=9_000))
            deferrer.run(np.ones((9_000, 1)), {"model": y, "human": y}, np.zeros(9_000))
            assert deferrer.summary().drifts == 1
            assert 2_000 < deferrer.drifts()[0].decision < 2_200


def test_a_second_change_is_found_too() -> None:
    """At least 18 of 20 seeds: 0.9, 0.6 from task 2,000 on, and 0.9 again from task 5,000 on, within 600 tasks."""
    found = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        chance = np.where((np.arange(6_000) >= 2_000) & (np.arange(6_000) < 5_000), 0.6, 0.9)
        y = (rng.random(6_000) < chance) * 1.0
        deferrer = made(n_features=1, budget=Budget(0, horizon=6_000))
        deferrer.run(np.ones((6_000, 1)), {"model": y, "human": y}, np.zeros(6_000))
        found += deferrer.summary().drifts == 2 and 5_000 < deferrer.drifts()[0].decision < 5_600
    assert found >= 18


def test_abrupt_changes_are_found_soon_after() -> None:
    found, delays, errors = 0, [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x = np.column_stack([np.ones(6000), rng.random((6000, 2))])
        chance = np.where(np.arange(6000) < 3000, 0.9, 0.6)
        rewards = {"model": (rng.random(6000) < chance) * 1.0, "human": (rng.random(6000) < 0.8) * 1.0}
        deferrer = Deferrer(n_features=3, budget=Budget(300, horizon=6000, max_cost=1), seed=seed)
        deferrer.run(x, rewards, np.ones(6000))
        for drift in deferrer.drifts():
            if drift.target == "model" and drift.decision >= 3000:
                found += 1
                delays.append(drift.decision - 3000)
                assert drift.before is not None
                assert drift.after is not None
                assert drift.before > drift.after
                errors.append(abs(drift.since - 3000))  # type: ignore[operator]
    assert found >= 38
    assert np.median(errors) < 100
    assert np.median(delays) < 300


def test_absurd_values_count_as_missing() -> None:
    """A sensor that sends 1e50 now and then changes nothing of the estimates but for the lost tasks."""
    rng = np.random.default_rng(0)
    deferrer = made(n_features=2)
    for x in rng.random((120, 2)):
        deferrer.decide(x)
    decision = deferrer.decide([0.5, 1e50])
    view = deferrer._ledger.view("context")[decision.id]
    assert view[-1, 2] == 0.0
    assert view[0, 1] == pytest.approx(np.median(deferrer._ledger.view("rank_table")[1]), abs=0.02)
