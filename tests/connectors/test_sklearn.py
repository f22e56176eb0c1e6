"""`DeferringClassifier` in scikit-learn's own company: its checks, pipelines, and a real data set."""

import pickle
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from deferkit import Budget, ConflictingObservation, InvalidArgument, UnknownDecision
from deferkit.sklearn import DeferringClassifier, confidence_of, said_by
from deferkit.study.baselines import confidence_quantile
from tests.guides import run_guide

BUDGET = Budget(30, horizon=500, max_cost=1)
ROOT = Path(__file__).parents[2]


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        DeferringClassifier(LogisticRegression(), budget=BUDGET, representation="linear"),
        DeferringClassifier(RidgeClassifier(), representation="linear", context="probabilities"),
    ]
)
def test_passes_the_checks_of_scikit_learn(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def digits() -> tuple[Any, Any, Any, Any]:
    X, y = load_digits(return_X_y=True)
    return tuple(train_test_split(X, y, train_size=200, random_state=0))


def deferring(**given: Any) -> DeferringClassifier:
    return DeferringClassifier(GaussianNB(), **{"budget": BUDGET, "representation": "linear", **given})


def test_prediction_spends_nothing(digits: tuple[Any, Any, Any, Any]) -> None:
    X, X_new, y, _ = digits
    classifier = deferring().fit(X, y)
    labels, routes = classifier.predict(X_new, return_routes=True)
    np.testing.assert_array_equal(labels, GaussianNB().fit(X, y).predict(X_new))
    assert routes.shape == labels.shape
    assert classifier.deferrer_.summary().decisions == 0


def test_a_reviewer_is_asked_within_the_budget_and_improves_on_the_classifier(
    digits: tuple[Any, Any, Any, Any],
) -> None:
    """Over five orders of the tasks, with a reviewer who is always right, and feedback where she was asked."""
    X, X_new, y, y_new = digits
    better, random_better = [], []
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(X_new))
        budget = Budget(150, horizon=len(order), max_cost=1)
        classifier = deferring(budget=budget, random_state=seed).fit(X, y)
        right = 0
        for rows in np.array_split(order, 100):
            deferral = classifier.defer(X_new[rows])
            right += np.sum(deferral.asked | (deferral.labels == y_new[rows]))
            for number, truth in zip(deferral.ids[deferral.asked], y_new[rows][deferral.asked], strict=True):
                classifier.observe(number, answer=truth, cost=1.0)
        spent = classifier.deferrer_.summary().spent
        assert isinstance(spent, float)
        assert spent <= 150
        wrong = classifier.predict(X_new) != y_new
        better.append(right - (len(order) - wrong.sum()))
        random_better.append(150 * wrong.mean())
    # asking at random mends 150 × the share of errors; the context and the training data say where errors are
    assert np.mean(better) > 2.5 * np.mean(random_better)


def test_training_data_teach_where_the_classifier_errs(digits: tuple[Any, Any, Any, Any]) -> None:
    X, X_new, y, y_new = digits
    classifier = deferring(representation="auto").fit(X, y)
    expected = classifier.deferrer_.score(classifier._contexts(X_new)).estimates["model"]
    right = classifier.predict(X_new) == y_new
    assert roc_auc_score(right, expected) > 0.7
    rare = deferring().fit(X, np.arange(len(y)))  # a class for each row: there is nothing to cross-validate
    assert rare.deferrer_.summary().samples["model"] == 0
    assert rare.deferrer_.settings.confidence == 0  # so it starts from the prior


def gained_over_the_threshold(estimator: Any, data: Any, n_training: int, seed: int, feedback: str) -> float:
    """Return how many more tasks are right than by `confidence_quantile`, with an expert who is right in 93 %."""
    X, y = data
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    train, new = order[:n_training], order[n_training:]
    expert = (rng.random(len(new)) < 0.93).astype(float)
    budget = 0.1 * len(new)
    classifier = DeferringClassifier(
        estimator, budget=Budget(budget, horizon=len(new), max_cost=1), random_state=seed
    ).fit(X[train], y[train])
    right = (classifier.predict(X[new]) == y[new]).astype(float)
    rewards = {"model": right, "human": expert}
    run = classifier.deferrer_.run(classifier._contexts(X[new]), rewards, np.ones(len(new)), feedback=feedback)
    threshold = confidence_quantile(confidence_of(classifier, X[new]), np.ones(len(new)), budget, 1.0)
    return float((expert - right) @ ((run.routes > 0).astype(float) - threshold))


@pytest.mark.parametrize("feedback", ["full", "bandit", "reviewed"])
@pytest.mark.parametrize(
    ("estimator", "data", "n_training"),
    [
        (LogisticRegression(max_iter=1_000), load_digits(return_X_y=True), 150),
        (GaussianNB(), load_digits(return_X_y=True), 150),
        (
            DecisionTreeClassifier(max_depth=3, min_samples_leaf=5, random_state=0),
            load_breast_cancer(return_X_y=True),
            60,
        ),
    ],
    ids=["digits-logistic", "digits-bayes", "cancer-tree"],
)
def test_more_is_right_than_with_a_threshold_on_the_confidence(
    estimator: Any, data: Any, n_training: int, feedback: str
) -> None:
    """In the mean over six seeds; over twenty it is + 12 to + 15, + 62 and + 15 (docs/connectors/sklearn.md)."""
    more = [gained_over_the_threshold(estimator, data, n_training, seed, feedback) for seed in range(6)]
    assert np.mean(more) > 4


def test_the_context_has_confidence_and_the_vote_of_three_neighbours(digits: tuple[Any, Any, Any, Any]) -> None:
    X, X_new, y, _ = digits
    classifier = deferring().fit(X, y)
    columns = classifier._columns(X_new, classifier.estimator_, classifier._voters)
    spread = np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    for row in range(5):
        distance = np.sqrt((((X - X_new[row]) / spread) ** 2).sum(axis=1))
        near = np.argsort(distance)[:3]
        weights = 1 / distance[near]
        label = classifier.predict(X_new[[row]])[0]
        vote = weights[y[near] == label].sum() / weights.sum()
        confidence = classifier.predict_proba(X_new[[row]]).max()
        np.testing.assert_allclose(columns[row], [(vote + confidence) / 2, confidence, vote], atol=1e-6)


def test_scales_come_from_rows_that_a_classifier_has_not_seen(digits: tuple[Any, Any, Any, Any]) -> None:
    """A classifier is nearly certain of its own training rows: new ones would all be outliers."""
    X, X_new, y, _ = digits
    for context in ("auto", "both", "probabilities"):
        classifier = DeferringClassifier(LogisticRegression(max_iter=1_000), context=context, representation="linear")
        contexts = classifier.fit(X, y)._contexts(X_new)
        assert (np.abs(contexts) * np.sqrt(contexts.shape[1]) > 4.99).mean() < 0.01


def test_a_decision_function_has_a_confidence(digits: tuple[Any, Any, Any, Any]) -> None:
    X, X_new, y, _ = digits
    two = RidgeClassifier().fit(X, y > 4)
    np.testing.assert_allclose(confidence_of(two, X_new), 1 / (1 + np.exp(-np.abs(two.decision_function(X_new)))))
    ten = RidgeClassifier().fit(X, y)
    shares = np.exp(ten.decision_function(X_new))
    np.testing.assert_allclose(confidence_of(ten, X_new), (shares / shares.sum(axis=1, keepdims=True)).max(axis=1))


def test_an_estimator_from_before_the_vote_goes_on(digits: tuple[Any, Any, Any, Any]) -> None:
    """Pickles of earlier versions have the context "both" and none of the new attributes."""
    X, X_new, y, _ = digits
    classifier = deferring(context="both").fit(X, y)
    copy = pickle.loads(pickle.dumps(classifier))
    for name in ("_voters", "_feature_mean", "_feature_spread"):
        delattr(copy, name)
    np.testing.assert_array_equal(classifier.defer(X_new[:40]).routes, copy.defer(X_new[:40]).routes)


def test_the_context_has_probabilities_entropy_and_margin(digits: tuple[Any, Any, Any, Any]) -> None:
    X, X_new, y, _ = digits
    estimator = LogisticRegression(max_iter=2_000).fit(X, y)
    chances = estimator.predict_proba(X_new[:1])[0]
    said = said_by(estimator, X_new[:1])[0]
    np.testing.assert_allclose(said[:10], chances)
    np.testing.assert_allclose(said[10], -(chances * np.log(chances)).sum())
    np.testing.assert_allclose(said[11], np.sort(chances)[-1] - np.sort(chances)[-2])
    binary = LogisticRegression(max_iter=2_000).fit(X, y > 4)
    assert said_by(binary, X_new[:1]).shape == (1, 3)


def test_rewards_follow_from_answer_and_label(digits: tuple[Any, Any, Any, Any]) -> None:
    X, X_new, y, _ = digits
    classifier = deferring(budget=None).fit(X, y)
    number = next(int(each.ids[0]) for each in (classifier.defer(X_new[[row]]) for row in range(50)) if each.asked[0])
    predicted = classifier.predict(X_new)[number]
    classifier.observe(number, answer=predicted, label=(predicted + 1) % 10, cost=2.0)
    samples = classifier.deferrer_.summary().samples
    assert (samples["model"], samples["human"]) == (len(X) + 1, 1)
    with pytest.raises(ConflictingObservation):
        classifier.observe(number, answer=predicted)  # both would be right then
    with pytest.raises(UnknownDecision):
        classifier.observe(10_000, answer=1)
    with pytest.raises(InvalidArgument, match="needs an answer, a label, rewards or a cost"):
        classifier.observe(number)


def test_an_answer_needs_a_question(digits: tuple[Any, Any, Any, Any]) -> None:
    X, X_new, y, _ = digits
    classifier = deferring(budget=Budget(0, horizon=10)).fit(X, y)
    number = int(classifier.defer(X_new[:1]).ids[0])
    with pytest.raises(InvalidArgument, match="No expert was asked"):
        classifier.observe(number, answer=3)
    classifier.observe(number, label=3)


def test_works_in_a_pipeline_frozen_cloned_and_pickled(digits: tuple[Any, Any, Any, Any]) -> None:
    X, X_new, y, _ = digits
    pipeline = make_pipeline(StandardScaler(), deferring()).fit(X, y)
    assert pipeline.predict(X_new).shape == (len(X_new),)
    fitted = GaussianNB().fit(X, y)
    frozen = DeferringClassifier(FrozenEstimator(fitted), budget=BUDGET).fit(X_new[:50], np.arange(50) % 10)
    np.testing.assert_array_equal(frozen.predict(X_new), fitted.predict(X_new))
    assert clone(pipeline).get_params()["deferringclassifier__budget"] == BUDGET
    classifier = pipeline[-1]
    scaled = pipeline[0].transform(X_new[:40])
    copy = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(classifier.defer(scaled).routes, copy.defer(scaled).routes)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"context": "all"}, "'both' or 'probabilities'"),
        ({"budget": 3}, "budget"),
        ({"representation": "best"}, "representation"),
        ({"experts": []}, "experts"),
    ],
)
def test_bad_arguments_are_named(digits: tuple[Any, Any, Any, Any], given: dict[str, Any], message: str) -> None:
    X, _, y, _ = digits
    with pytest.raises(InvalidArgument, match=message):
        deferring(**given).fit(X, y)


def test_the_estimator_must_be_a_classifier(digits: tuple[Any, Any, Any, Any]) -> None:
    X, _, y, _ = digits
    with pytest.raises(InvalidArgument, match="a classifier"):
        DeferringClassifier(None).fit(X, y)
    with pytest.raises(InvalidArgument, match="a classifier"):
        DeferringClassifier(StandardScaler()).fit(X, y)


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "sklearn_digits.py"))
    said = capsys.readouterr().out
    alone, randomly, threshold, ours = (float(line.split("%")[0].split()[-1]) for line in said.splitlines()[:4])
    assert ours > alone + 2
    assert ours > max(randomly, threshold)


def test_the_example_of_the_readme_wins_over_seeds() -> None:
    """The text says: 13.8 ± 1.5 more than the rule in the mean over seeds 0 to 19. Two others are seen here."""
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)[0]
    more = []
    for seed in (20, 21):
        seen: dict[str, Any] = {}
        exec(compile(code.replace("seed, reviews = 0,", f"seed, reviews = {seed},"), "README.md", "exec"), seen)
        assert seen["seed"] == seed
        assert np.sum(seen["rule"] != seen["alone"]) > 50
        assert seen["classifier"].deferrer_.summary().spent <= seen["reviews"]
        more.append(np.sum(seen["ours"] == seen["y"]) - np.sum(seen["rule"] == seen["y"]))
    assert np.mean(more) > 4


def test_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    run_guide("sklearn.md")
    assert capsys.readouterr().out
