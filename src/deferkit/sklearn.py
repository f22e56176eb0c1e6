"""A scikit-learn classifier that asks an expert where that is worth its cost, within a budget.

Needs scikit-learn: `pip install 'deferkit[sklearn]'`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deferkit.errors import InvalidArgument, UnknownDecision, expected
from deferkit.extras import find_missing, needs
from deferkit.learn.deferrer import Deferrer
from deferkit.learn.settings import DECEMBER_2026
from deferkit.types import MODEL, Amount, Budget

needs("sklearn")

from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone  # noqa: E402  after the check
from sklearn.model_selection import StratifiedKFold  # noqa: E402
from sklearn.neighbors import NearestNeighbors  # noqa: E402
from sklearn.utils.metaestimators import available_if  # noqa: E402
from sklearn.utils.validation import check_is_fitted, validate_data  # noqa: E402

Floats = NDArray[np.float64]
MAX_SCORE = 5.0  # a standardised column is clipped here, so that an outlier does not outweigh the others
FOLDS = 5  # of the predictions that the learner starts from
CONTEXTS = ("auto", "both", "probabilities")
NEIGHBOURS = 3  # rows of the training data that vote on a label
MAX_VOTERS = 10_000  # rows of the training data that are kept to vote
SAME = 1e-9  # rows at a smaller distance are taken as this far apart
RIDGE = 0.25  # of the context "auto", whose columns are few and informative


class Deferral(NamedTuple):
    """Who decides each of n tasks, and what the model would answer.

    Attributes:
        labels: [n] The labels of the classifier, also where an expert is asked.
        routes: [n] "model", or the name of the expert to ask.
        ids: [n] The numbers of the decisions, for `observe`.
    """

    labels: NDArray[Any]
    routes: NDArray[np.str_]
    ids: NDArray[np.int64]

    @property
    def asked(self) -> NDArray[np.bool_]:
        """[n] Whether an expert is asked."""
        return np.asarray(self.routes != MODEL)


class Voters(NamedTuple):
    """Training rows that vote on the labels of tasks near them."""

    neighbours: NearestNeighbors
    labels: NDArray[Any]

    def vote(self, x: Floats, labels: Any) -> Floats:
        """Return the share of the nearest rows that have these labels [n], weighted by 1 / distance."""
        distances, rows = self.neighbours.kneighbors(x)
        weights = 1.0 / np.maximum(distances, SAME)
        agree = self.labels[rows] == np.asarray(labels)[:, None]
        return np.asarray((weights * agree).sum(axis=1) / weights.sum(axis=1))


def _has(method: str) -> Any:
    return available_if(lambda self: hasattr(getattr(self, "estimator_", self.estimator), method))


class DeferringClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Wraps a classifier; `defer` decides task by task whether its label is used or an expert is asked.

    The context of a task is how sure one can be of the classifier's label: its own confidence, the share of the three
    nearest training rows that have this label, and the mean of both. The training data also teach the learner where the
    classifier is right (by cross-validated predictions), before the first task.
    `predict` and `predict_proba` are those of the classifier and change nothing, so that the estimator can be used
    wherever a classifier can; `defer` spends budget and `observe` learns.

    Args:
        estimator: A classifier with `predict_proba` or `decision_function`. `fit` fits a clone of it; one that is
            fitted already is kept as it is inside `sklearn.frozen.FrozenEstimator`.
        budget: A `Budget`, or one for each resource by name; unlimited by default.
        experts: The names of the experts; ("human",) by default.
        context: "auto" (default) for the confidence, the vote of the neighbours and their mean; "probabilities" for the
            probabilities of the classes, their entropy and margin; "both" for these and the features, where experts
            are better at some tasks than at others and thousands of outcomes will be observed.
        representation: "linear" or "auto" (linear estimates and boosted trees). By default "linear" with the context
            "auto"; with another one "auto" where LightGBM is installed.
        random_state: The seed of the random decisions, at least 0; 0 by default.

    Attributes:
        estimator_: The fitted classifier.
        classes_: Its classes.
        deferrer_: The `Deferrer`, for `summary`, `change_budget`, `save` and all else.

    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from deferkit import Budget
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> classifier = DeferringClassifier(
    ...     LogisticRegression(max_iter=5_000), budget=Budget(20, horizon=269, max_cost=1), representation="linear"
    ... ).fit(X[:300], y[:300])
    >>> deferral = classifier.defer(X[300:310])
    >>> deferral.labels.shape, bool(deferral.asked.sum() <= 20)
    ((10,), True)
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        budget: Budget | Mapping[str, Budget] | None = None,
        experts: Sequence[str] = ("human",),
        context: str = "auto",
        representation: str | None = None,
        random_state: int = 0,
    ) -> None:
        self.estimator = estimator
        self.budget = budget
        self.experts = experts
        self.context = context
        self.representation = representation
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = getattr(self.estimator, "__sklearn_tags__", None)
        if inner is not None and inner().classifier_tags is not None:
            tags.classifier_tags = replace(inner().classifier_tags, multi_label=False)  # one answer for each task
        tags.input_tags.sparse = False
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit the classifier, and start a learner that has seen nothing.

        Args:
            X: [n, d] The training data.
            y: [n] Their labels.

        Raises:
            InvalidArgument: If an argument of the constructor is invalid.
        """
        if not hasattr(self.estimator, "fit"):
            raise expected("estimator", "DeferringClassifier", "a classifier", self.estimator)
        if self.context not in CONTEXTS:
            raise expected("context", "DeferringClassifier", " or ".join(map(repr, CONTEXTS)), self.context)
        X, y = validate_data(self, X, y)
        self.estimator_ = clone(self.estimator).fit(X, y)
        if not hasattr(self.estimator_, "predict_proba") and not hasattr(self.estimator_, "decision_function"):
            raise expected(
                "estimator",
                "DeferringClassifier",
                "a classifier with predict_proba or decision_function",
                type(self.estimator).__name__,
            )
        self.classes_ = self.estimator_.classes_
        x = np.asarray(X, dtype=np.float64)
        self._feature_mean, self._feature_spread = _scale_of(x)
        self._voters = self._voters_of(x, y)
        rows, right = self._cross_validated_columns(x, X, y)
        # a classifier is surer of the rows that it was fitted to than of others, which would be outliers then
        self._mean, self._spread = _scale_of(rows if len(rows) else self._columns(X, self.estimator_, self._voters))
        self.deferrer_ = self._new_deferrer(rows.shape[1] + 1, is_warm=len(rows) > 0)
        if len(rows):
            self.deferrer_.warm_start(self._scale_columns(rows), {MODEL: right})
        self._open: dict[int, tuple[Any, str]] = {}  # decision: label of the classifier, route
        return self

    def _new_deferrer(self, n_features: int, *, is_warm: bool) -> Deferrer:
        """Return a learner that has seen nothing.

        The training data teach it how the columns of the context relate to right labels, and all of them are bounded:
        ranks and the prior of the confidence would add nothing then, and cost right answers (see docs/sklearn.md).
        """
        is_auto = self.context == "auto"
        chosen = self.representation or ("linear" if is_auto or find_missing("trees") else "auto")
        return Deferrer(
            n_features=n_features,
            budget=self.budget,
            experts=self.experts,
            representation=chosen,
            link="logistic",
            ridge=RIDGE if is_auto else None,
            confidence=0 if is_auto and not is_warm else None,
            without=("ranks",) if is_warm else (),
            defaults=DECEMBER_2026,
            seed=self.random_state,
        )

    def _cross_validated_columns(self, x: Floats, X: Any, y: Any) -> tuple[Floats, Floats]:
        """Return the columns of the training rows by classifiers that have not seen them, and who was right."""
        folds = min(FOLDS, np.unique(y, return_counts=True)[1].min())
        width = self._columns(X[:1], self.estimator_, self._voters).shape[1]
        rows, right = np.zeros((len(y) if folds > 1 else 0, width)), np.zeros(len(y))
        if folds > 1:
            for train, test in StratifiedKFold(folds).split(X, y):
                part = clone(self.estimator).fit(X[train], y[train])
                right[test] = part.predict(X[test]) == y[test]
                rows[test] = self._columns(X[test], part, self._voters_of(x[train], y[train]))
        return rows, right

    def _voters_of(self, x: Floats, y: Any) -> Voters | None:
        """Return the training rows that vote, if the context has their vote."""
        if self.context != "auto":
            return None
        kept = np.unique(np.linspace(0, len(y) - 1, min(len(y), MAX_VOTERS)).astype(int))
        scaled = (x[kept] - self._feature_mean) / self._feature_spread
        return Voters(NearestNeighbors(n_neighbors=min(NEIGHBOURS, len(kept))).fit(scaled), np.asarray(y[kept]))

    def predict(self, X: ArrayLike, *, return_routes: bool = False) -> Any:
        """Return the labels of the classifier; nothing is decided and no budget is spent.

        Args:
            X: [n, d] Tasks.
            return_routes: Also return the route that each task would get if it came next.

        Returns:
            [n] labels, or (labels, routes) with `return_routes`.
        """
        X = self._check_input(X)
        labels = self.estimator_.predict(X)
        return (labels, self.deferrer_.score(self._contexts(X)).routes) if return_routes else labels

    @_has("predict_proba")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the probabilities [n, classes] of the classifier."""
        X = self._check_input(X)
        return np.asarray(self.estimator_.predict_proba(X))

    @_has("decision_function")  # type: ignore[untyped-decorator]
    def decision_function(self, X: ArrayLike) -> Floats:
        """Return the decision function of the classifier."""
        X = self._check_input(X)
        return np.asarray(self.estimator_.decision_function(X))

    def defer(self, X: ArrayLike) -> Deferral:
        """Decide who decides each task, in order, and reserve what an expert may cost.

        Args:
            X: [n, d] Tasks.

        Returns:
            The classifier's labels, the routes, and the numbers of the decisions.
        """
        X = self._check_input(X)
        labels = self.estimator_.predict(X)
        decisions = self.deferrer_.decide_many(self._contexts(X))
        self._open |= {each.id: (label, each.route) for each, label in zip(decisions, labels, strict=True)}
        for old in list(self._open)[: max(0, len(self._open) - self.deferrer_.settings.memory)]:
            del self._open[old]
        return Deferral(
            labels,
            np.array([decision.route for decision in decisions], dtype=np.str_),
            np.array([decision.id for decision in decisions], dtype=np.int64),
        )

    def observe(
        self,
        decision: int,
        *,
        answer: Any = None,
        label: Any = None,
        rewards: Mapping[str, float] | None = None,
        cost: Amount | None = None,
    ) -> None:
        """Learn from what became known of a task: now or later, in one call or several.

        A reward is 1 for the right label and 0 for another one. Where the right label is not known, an expert's answer
        is taken for it. Other rewards can be given instead.

        Args:
            decision: The number of the decision, one of `Deferral.ids`.
            answer: The label that the expert gave; None (default) if none was asked, or it is not known yet.
            label: The right label; None (default) if it is not known.
            rewards: Rewards by decider instead of those that follow from `answer` and `label`.
            cost: What asking has cost, in the unit of the budget, by resource if there are several.

        Raises:
            InvalidArgument: If nothing is given, or an answer to a task that the model decided.
            UnknownDecision: If there is no such decision, or it is too old.
            ConflictingObservation: If a value differs from the one observed before.
        """
        check_is_fitted(self)
        if rewards is None:
            rewards = self._rewards(int(decision), answer, label)
        if not rewards and cost is None:
            raise InvalidArgument("An observation needs an answer, a label, rewards or a cost.")
        self.deferrer_.observe(int(decision), rewards, cost)

    def _rewards(self, decision: int, answer: Any, label: Any) -> dict[str, float]:
        truth = answer if label is None else label
        if truth is None:
            return {}
        if decision not in self._open:
            raise UnknownDecision(f"There is no decision {decision}, or it is too old.")
        predicted, route = self._open[decision]
        rewards = {MODEL: float(predicted == truth)}
        if answer is not None:
            if route == MODEL:
                raise InvalidArgument(f"No expert was asked about task {decision}: there is no answer to it.")
            rewards[route] = float(answer == truth)
        return rewards

    def _check_input(self, X: ArrayLike) -> Any:
        check_is_fitted(self)
        return validate_data(self, X, reset=False)

    def _columns(self, X: Any, estimator: Any, voters: Voters | None) -> Floats:
        """Return the columns of the context, not yet scaled."""
        if voters is None:  # also in an estimator that was pickled before there was a vote
            said = said_by(estimator, X)
            return said if self.context == "probabilities" else np.hstack([np.asarray(X, dtype=np.float64), said])
        confidence = confidence_of(estimator, X)
        scaled = (np.asarray(X, dtype=np.float64) - self._feature_mean) / self._feature_spread
        vote = voters.vote(scaled, estimator.predict(X))
        return np.column_stack([(confidence + vote) / 2, confidence, vote])

    def _contexts(self, X: Any) -> Floats:
        return self._scale_columns(self._columns(X, self.estimator_, getattr(self, "_voters", None)))

    def _scale_columns(self, columns: Floats) -> Floats:
        """Return context vectors: standardised columns without outliers and an intercept, of a length of about 1."""
        scores = np.clip((columns - self._mean) / self._spread, -MAX_SCORE, MAX_SCORE)
        with_intercept = np.hstack([scores, np.ones((len(scores), 1))])
        return np.asarray(with_intercept / np.sqrt(with_intercept.shape[1]))


def _scale_of(columns: Floats) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of columns; 1 for the deviation of a constant one."""
    spread = columns.std(axis=0)
    return columns.mean(axis=0), np.where(spread > 0, spread, 1.0)


def confidence_of(estimator: Any, X: Any) -> Floats:
    """Return the confidence [n] of a classifier in its labels: the largest probability.

    A decision function is turned into probabilities by the logistic function, that of several classes by softmax.

    Args:
        estimator: A fitted classifier.
        X: [n, d] Tasks.
    """
    if hasattr(estimator, "predict_proba"):
        return np.asarray(np.max(estimator.predict_proba(X), axis=1), dtype=np.float64)
    values = np.asarray(estimator.decision_function(X), dtype=np.float64)
    if values.ndim == 1:
        return np.asarray(1.0 / (1.0 + np.exp(-np.abs(values))))
    return np.asarray(1.0 / np.exp(values - values.max(axis=1, keepdims=True)).sum(axis=1))


def said_by(estimator: Any, X: Any) -> Floats:
    """Return a classifier's outputs for tasks: probabilities, entropy and margin, or its decision function.

    Args:
        estimator: A fitted classifier.
        X: [n, d] Tasks.
    """
    if not hasattr(estimator, "predict_proba"):
        values = np.asarray(estimator.decision_function(X), dtype=np.float64)
        return np.hstack([np.abs(values[:, None]), values[:, None]]) if values.ndim == 1 else values
    chances = np.asarray(estimator.predict_proba(X), dtype=np.float64)
    entropy = -np.sum(chances * np.log(np.maximum(chances, 1e-300)), axis=1, keepdims=True)
    two = np.sort(chances, axis=1)[:, -2:]
    margin = two[:, -1:] - two[:, :1] if chances.shape[1] > 1 else np.ones((len(chances), 1))
    # of two classes one probability says it all
    return np.hstack([chances[:, 1:] if chances.shape[1] == 2 else chances, entropy, margin])
