"""Trees beside the decisions: what they are fitted to, when they take effect, and where there are none."""

import warnings
from importlib.util import find_spec
from typing import Any

import lightgbm
import numpy as np
import pytest

from deferkit import Budget, Deferrer, Encoder, MissingTreesWarning, WarmStarted
from deferkit.errors import MissingExtra
from deferkit.learn.embed import tree_columns
from deferkit.learn.embed.tree_columns import FOLDS, TreeColumns, TreeFit
from deferkit.learn.settings import members_of
from tests.conftest import Floats, Tasks, make, rewards_of, step_through
from tests.training_sets import crossed

D = 4
PARAMETERS = {  # of the large trees of `tree_views.py`, written down once more
    "objective": "l2",
    "num_leaves": 15,
    "learning_rate": 0.1,
    "max_bin": 63,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}


def auto(**given: Any) -> Deferrer:
    """Return a learner with trees alone; test_auto_feedback.py and test_hats.py have the stack of the default."""
    given.setdefault("budget", Budget(100, horizon=1_000, max_cost=1))
    given.setdefault("defaults", "2026.11")
    given.setdefault("representation", "auto")
    return Deferrer(n_features=D, **given)


def trees_of(deferrer: Deferrer) -> TreeColumns:
    assert isinstance(deferrer._representation, TreeColumns)
    return deferrer._representation


def fit_now(deferrer: Deferrer) -> TreeFit:
    """Return a fit to all that is known now."""
    fit = trees_of(deferrer)._begin(1_000_000)
    fit.wait()
    return fit


def noise(n: int, seed: int = 0) -> Tasks:
    """Return tasks whose rewards have nothing to do with their contexts."""
    rng = np.random.default_rng(seed)
    return Tasks(rng.uniform(-1, 1, (n, D)), rng.random((n, 2)), rng.random((n, 1, 1)))


def column(views: Floats) -> Floats:
    """Return what the large trees say of the model's reward: the first column behind both copies of the context."""
    return np.asarray(views[:, views.shape[1] // 2 + D])


def test_a_task_is_shown_what_trees_say_that_have_not_seen_it() -> None:
    """Each column of the past is LightGBM's prediction from the other folds; that of a new task, the mean of all."""
    n = 240
    tasks, deferrer = noise(n), auto(seed=9)
    deferrer.run(tasks.contexts, rewards_of(deferrer, tasks), tasks.costs)
    fit = fit_now(deferrer)
    x, y = tasks.contexts, tasks.rewards[:, 0]
    fold = np.random.default_rng([9, n]).permutation(n) % FOLDS
    fresh = np.random.default_rng(5).uniform(-1, 1, (50, D))
    said = []
    for i in range(FOLDS):
        others = fold != i
        least = max(5, int(others.sum()) // 20)
        given = PARAMETERS | {"min_data_in_leaf": least, "seed": 9}
        booster = lightgbm.train(given, lightgbm.Dataset(x[others], y[others]), num_boost_round=60)
        np.testing.assert_allclose(column(fit.latest)[fold == i], booster.predict(x[fold == i]), rtol=1e-9)
        said.append(booster.predict(fresh))
    np.testing.assert_allclose(column(trees_of(deferrer)._views.of(fit.trees, fresh)), np.mean(said, axis=0), rtol=1e-9)


def test_noise_is_not_foreseen() -> None:
    """In-sample columns would correlate with rewards that nothing explains; the mean over ten streams does not."""
    out_of_fold, in_sample, shares = [], [], []
    for seed in range(10):
        tasks, deferrer = noise(300, seed), auto(seed=seed)
        trees_of(deferrer)._ledger.set("retrain_at", 10_000)  # no fits but the one below
        deferrer.run(tasks.contexts, rewards_of(deferrer, tasks), tasks.costs)
        fit = fit_now(deferrer)
        out_of_fold.append(np.corrcoef(column(fit.latest), tasks.rewards[:, 0])[0, 1])
        again = trees_of(deferrer)._views.of(fit.trees, tasks.contexts)
        in_sample.append(np.corrcoef(column(again), tasks.rewards[:, 0])[0, 1])
        # how much the member that forgets nothing trusts the columns
        theta = fit.ledger.view("theta").reshape(8, 3, -1)[1, 0]
        shares.append(float(np.std(column(fit.latest)) * abs(theta[D])))
    assert abs(np.mean(out_of_fold)) < 0.1
    assert np.mean(in_sample) > 0.5
    assert np.mean(shares) < 0.1  # of rewards whose standard deviation is 0.29


def test_a_fit_takes_effect_exactly_when_it_is_promised() -> None:
    """Begun after 64 observations, in effect after 96: not one earlier or later, however fast it was."""
    tasks, deferrer = crossed(140, D), auto()
    trees = trees_of(deferrer)
    probe = tasks.contexts[:5]
    for t, x in enumerate(tasks.contexts):
        before = deferrer.vectors(probe)
        decision = deferrer.decide(x)
        asked = decision.route == "human"
        deferrer.observe(decision.id, {decision.route: float(tasks.rewards[t, int(asked)])}, 0.5 if asked else None)
        changed = not np.array_equal(deferrer.vectors(probe), before)
        assert (trees._fit is not None) == (t + 1 >= 64)
        assert changed == (t + 1 in (96, 128))
        assert (len(trees.trees["root"]) > 0) == (t + 1 >= 96)


def test_an_observation_that_brings_nothing_new_brings_no_fit_nearer() -> None:
    tasks, deferrer = crossed(80, D), auto()
    deferrer.run(tasks.contexts[:63], {n: y[:63] for n, y in rewards_of(deferrer, tasks).items()}, tasks.costs[:63])
    known = float(deferrer._ledger.reward[62, 0])
    for _ in range(5):
        deferrer.observe(62, {"model": known})
    assert trees_of(deferrer)._fit is None
    deferrer.observe(deferrer.decide(tasks.contexts[63]).id, {"model": 0.5})
    assert trees_of(deferrer)._fit is not None


@pytest.mark.parametrize("moment", [63, 64, 65, 95, 96, 97, 128])
def test_saved_around_a_fit_goes_on_bit_for_bit(moment: int) -> None:
    learner, tasks = make("auto, logistic", horizon=200)
    step_through(learner, tasks._replace(contexts=tasks.contexts[:moment]))
    restored = Deferrer.from_bytes(learner.to_bytes())
    for each in (learner, restored):
        step_through(each, tasks, start=moment)
    assert restored == learner


def test_what_is_linear_stays_so_and_what_is_not_is_left_to_trees() -> None:
    tasks, deferrer = crossed(1_200, D), auto(budget=Budget(100, horizon=1_200, max_cost=1))
    deferrer.run(tasks.contexts, rewards_of(deferrer, tasks), tasks.costs)
    assert deferrer.representation_shares()["model"]["trees"] > 0.9
    rng = np.random.default_rng(0)
    y = np.clip(0.5 + tasks.contexts @ np.array([0.5, -0.3, 0.2, 0.1]) + 0.05 * rng.standard_normal(1_200), 0, 1)
    linear = auto(budget=Budget(0, horizon=1_200))
    linear.run(np.column_stack([tasks.contexts[:, :3], np.ones(1_200)]), {"model": y, "human": y}, tasks.costs)
    for shares in linear.representation_shares().values():
        assert sum(shares.values()) == pytest.approx(1)
    never: dict[str, Any] = {"budget": Budget(0, horizon=1_200), "representation": "linear", "forget": "never"}
    assert auto(**never, defaults="2026.11").representation_shares()["model"] == {"linear": 1.0}
    both = auto(**never, defaults="2026.12").representation_shares()["model"]
    assert both == {"linear": pytest.approx(1 - both["ranks"]), "ranks": members_of("never", None, ranks=True)[1].prior}


@pytest.mark.parametrize("before", [0, 10, 70])
@pytest.mark.parametrize("n", [20, 300])
def test_a_warm_start_is_learned_at_once(before: int, n: int) -> None:
    """Before any decision, after some, and while a fit is under way; the same from its event and from a file."""
    past, tasks = crossed(n, D, seed=1), crossed(before + 60, D, seed=2)
    learner, replayed = auto(), auto()
    events: list[Any] = step_through(learner, tasks._replace(contexts=tasks.contexts[:before]))
    rewards = {"model": past.rewards[:, 0].tolist(), "human": past.rewards[:, 1].tolist()}
    warm = WarmStarted(past.contexts.tolist(), rewards, "human", past.costs[:, 0, 0].tolist())
    learner.apply(warm)
    assert (len(trees_of(learner).trees["root"]) > 0) == (n + before >= 64)
    restored = Deferrer.from_bytes(learner.to_bytes())
    assert restored == learner
    events = [*events, warm, *step_through(learner, tasks, start=before)]
    step_through(restored, tasks, start=before)
    for event in events:
        replayed.apply(event)
    assert learner == restored == replayed
    if n == 300:
        probe = crossed(200, D, seed=3)
        told = learner.score(probe.contexts).estimates["model"]
        assert np.corrcoef(told, probe.rewards[:, 0])[0, 1] > 0.6  # no linear estimate has more than about 0
        assert learner.summary().samples["model"] == n + before + 60


@pytest.mark.parametrize(("name", "n"), [("auto, 2026.11", 8), ("auto", 12)])
def test_a_correction_reaches_the_next_fit_and_moves_no_member_too_far(
    name: str, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members of trees may know fewer samples than have come, because tasks were let go of: 60 are kept here."""
    monkeypatch.setattr(tree_columns, "MAX_KEPT", 60)
    learner, tasks = make(name, horizon=700)
    step_through(learner, tasks)
    ledger = learner._ledger
    views = ledger.view("view").reshape(n, 3)[:, 0].tolist()
    absorbed = ledger.view("n_absorbed").reshape(n, 3)[:, 0]
    assert absorbed[1] < absorbed[0] - 100
    slot, before = 695, ledger.view("theta").reshape(n, 3, -1)[:, 0].copy()
    context = ledger.view("context")[slot]
    steps = [
        float(np.abs(inverse @ context[view]).max())
        for inverse, view in zip(
            ledger.view("inverse").reshape(n, 3, *ledger.view("inverse").shape[1:])[:, 0], views, strict=True
        )
    ]
    old = float(ledger.reward[slot, 0])
    learner.correct(695, {"model": 1 - old})
    moved = np.abs(ledger.view("theta").reshape(n, 3, -1)[:, 0] - before).max(axis=1)
    assert (moved > 0).all()
    assert (moved <= abs(1 - 2 * old) * np.array(steps) * (1 + 1e-9)).all()
    past = trees_of(learner).training_set
    assert past.copy_outcomes()[0][past.row(695), 0] == 1 - old


def test_without_lightgbm_estimates_are_linear_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = auto().to_bytes()
    monkeypatch.setattr("deferkit.extras.find_spec", lambda name: None if name == "lightgbm" else find_spec(name))
    with pytest.warns(MissingTreesWarning) as told:
        deferrer = auto()
    assert [str(each.message) for each in told] == [
        "Estimates will be linear, because lightgbm is missing: pip install 'deferkit[trees]'."
    ]
    assert told[0].filename == __file__
    linear = auto(representation="linear")
    assert deferrer == linear
    tasks = crossed(100, D)
    for each in (deferrer, linear):
        each.run(tasks.contexts, rewards_of(each, tasks), tasks.costs)
    assert deferrer == linear
    with warnings.catch_warnings():  # nobody asked for trees
        warnings.simplefilter("error")
        assert Deferrer(encoder=Encoder(numbers=["a"])).settings.representation == "linear"
    with pytest.raises(
        MissingExtra, match="^The representation 'auto' needs lightgbm: pip install 'deferkit\\[trees\\]'"
    ):
        Deferrer.from_bytes(saved)


def test_named_features_have_trees_unless_something_speaks_against_it() -> None:
    assert Deferrer(encoder=Encoder(numbers=["a"])).settings.representation == "auto"
    assert Deferrer(encoder=Encoder(numbers=["a"]), representation="linear").settings.representation == "linear"
    assert Deferrer(encoder=Encoder(numbers=["a"]), cost_link="logistic").settings.representation == "linear"
    assert Deferrer(n_features=2).settings.representation == "linear"


@pytest.mark.parametrize("tiny", [0.0, 1e-200, 5e-324])
def test_costs_that_begin_next_to_nothing_and_then_grow(tiny: float) -> None:
    """The unit of costs is their first mean; a later cost in that unit must fit the 32-bit labels of LightGBM."""
    deferrer = auto()
    x = np.random.default_rng(0).uniform(-1, 1, (300, D))
    y = (x[:, 0] > 0).astype(float)
    costs = np.where(np.arange(300) < 150, tiny, 0.2 + 0.5 * y)
    for rows in (slice(0, 150), slice(150, 300)):
        deferrer.warm_start(x[rows], {"model": y[rows], "human": 1 - y[rows]}, cost=costs[rows])
    expected = deferrer.score(x).costs["human"]
    assert np.isfinite(expected).all()
    assert np.abs(expected).max() < 2
