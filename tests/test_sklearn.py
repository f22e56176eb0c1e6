"""`DeferringClassifier` in scikit-learn's own company: its checks, pipelines, and a real data set."""

import pickle
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from deferkit import Budget, ConflictingObservation, InvalidArgument, UnknownDecision
from deferkit.sklearn import DeferringClassifier, said_by
from tests.guides import run_guide

BUDGET = Budget(30, horizon=500, max_cost=1)


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
    expected = classifier.deferrer_.score(classifier._contexts(X_new, classifier.estimator_)).estimates["model"]
    right = classifier.predict(X_new) == y_new
    assert roc_auc_score(right, expected) > 0.7
    rare = deferring().fit(X, np.arange(len(y)))  # a class for each row: there is nothing to cross-validate
    assert rare.deferrer_.summary().samples["model"] == 0


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
    runpy.run_path(str(Path(__file__).parents[1] / "examples" / "sklearn_digits.py"))
    said = capsys.readouterr().out
    alone, _, ours = (float(line.split("%")[0].split()[-1]) for line in said.splitlines()[:3])
    assert ours > alone + 2


def test_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    run_guide("sklearn.md")
    assert capsys.readouterr().out
