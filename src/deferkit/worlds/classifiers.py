"""Worlds of classifiers: scikit-learn's and simulated ones."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from deferkit.extras import needs
from deferkit.worlds.base import BaseWorld, Floats, TaskStream, option

EXPERT_ACCURACY = 0.93  # of the person, whatever the task
FORMS = ("vector", "encoder")


def _logistic_regression() -> Any:
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - takes a second

    return LogisticRegression(max_iter=1_000)


def _neighbours() -> Any:
    from sklearn.neighbors import KNeighborsClassifier  # noqa: PLC0415 - takes a second

    return KNeighborsClassifier(n_neighbors=7)


def _naive_bayes() -> Any:
    from sklearn.naive_bayes import GaussianNB  # noqa: PLC0415 - takes a second

    return GaussianNB()  # overconfident: most confidences are above 0.999


def _tree() -> Any:
    from sklearn.tree import DecisionTreeClassifier  # noqa: PLC0415 - takes a second

    # Leaves of five rows: pure ones would make every confidence 1, and nobody would have a threshold.
    return DecisionTreeClassifier(max_depth=3, min_samples_leaf=5, random_state=0)


class TrainedClassifier(NamedTuple):
    """A classifier, its data and how many rows it is trained on."""

    data: str  # loader in sklearn.datasets, without "load_"
    n_training: int
    make: Callable[[], Any]


CLASSIFIERS = {
    "digits-logistic": TrainedClassifier("digits", 150, _logistic_regression),
    "cancer-tree": TrainedClassifier("breast_cancer", 60, _tree),
    "digits-neighbours": TrainedClassifier("digits", 150, _neighbours),
    "digits-bayes": TrainedClassifier("digits", 150, _naive_bayes),
}


class ClassifierTasks(NamedTuple):
    """The tasks of one seed, in order."""

    confidence: Floats  # [n] largest predicted probability
    margin: Floats  # [n] between the two largest predicted probabilities
    rewards: Floats  # [n, 2] 1 where the classifier, the person is right, else 0
    costs: Floats  # [n] of asking the person: 1

    @property
    def contexts(self) -> Floats:
        """The context vectors [n, 3]: 1, confidence and margin."""
        return np.column_stack([np.ones(len(self.confidence)), self.confidence, self.margin])

    @property
    def columns(self) -> dict[str, Floats]:
        """The same as columns of named features."""
        return {"confidence": self.confidence, "margin": self.margin}


@functools.lru_cache(maxsize=4)
def load_data(name: str) -> tuple[Floats, Floats]:
    """Return features and classes of one of scikit-learn's bundled data sets."""
    needs("classifiers")
    from sklearn import datasets  # noqa: PLC0415 - takes a second

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return np.asarray(x, dtype=np.float64), np.asarray(y)


@functools.lru_cache(maxsize=512)
def draw_classifier_tasks(classifier: str, seed: int) -> ClassifierTasks:
    """Return the tasks of a seed.

    Args:
        classifier: A key of `CLASSIFIERS`.
        seed: Chooses the training rows, the order of the others and the person's answers.

    >>> tasks = draw_classifier_tasks("cancer-tree", seed=0)
    >>> tasks.contexts.shape, tasks.rewards.shape
    ((509, 3), (509, 2))
    """
    data, n_training, make = CLASSIFIERS[classifier]
    x, y = load_data(data)
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    order = rng.permutation(len(y))
    train, stream = order[:n_training], order[n_training:]
    mean, scale = x[train].mean(axis=0), x[train].std(axis=0)
    scaled = (x - mean) / np.where(scale > 0, scale, 1.0)
    fitted = make().fit(scaled[train], y[train])
    probabilities = fitted.predict_proba(scaled[stream])
    best_two = np.sort(probabilities, axis=1)[:, -2:]
    right = fitted.classes_[probabilities.argmax(axis=1)] == y[stream]
    expert = rng.random(len(stream)) < EXPERT_ACCURACY
    return ClassifierTasks(
        confidence=best_two[:, 1],
        margin=best_two[:, 1] - best_two[:, 0],
        rewards=np.column_stack([right, expert]).astype(float),
        costs=np.ones(len(stream)),
    )


@dataclass(frozen=True, kw_only=True)
class Classifiers(BaseWorld):
    """Streams of a scikit-learn classifier on the data that come with scikit-learn.

    A learner is made as on day one: it is told the budget, the number of tasks and the largest cost, and neither a
    link nor a range of rewards.

    >>> stream = Classifiers(classifier="cancer-tree").draw(seed=0)
    >>> stream.contexts.shape, float(stream.costs.max())
    ((509, 3), 1.0)
    """

    classifier: str = option(
        "digits-logistic", "Data and classifier", choices=tuple(CLASSIFIERS), flag="classifier", shown="{}"
    )
    form: str = option("vector", "Contexts as plain vectors or as named features", choices=FORMS, shown="{}")

    def draw(self, seed: int) -> TaskStream:
        """Return the stream of this seed: the same one for every policy."""
        self.check_seed(seed)
        tasks = draw_classifier_tasks(self.classifier, int(seed))
        return TaskStream(
            contexts=tasks.contexts,
            rewards=tasks.rewards,
            costs=tasks.costs[:, None, None],
            link="logistic",
            remark="simulated person",
            confidence=tasks.confidence,
            columns=tasks.columns if self.form == "encoder" else None,
            first_use=True,
        )


ACCURACIES = (0.84, 0.86, 0.885, 0.91, 0.93)  # of five experts
N_TASKS = 810
HARDEST_ERROR, ERROR_POWER = 0.5, 2.57  # the model errs in ½·(1 − u)^2.57 of the tasks with rank u: 14 % of all
HARDER = 0.8  # how much more often an expert errs in the model's hardest task than in its easiest, over the mean

JUNK = ("none", "scattered", "first")
N_JUNK_TASKS, N_JUNK, N_NUMBERS = 1_500, 60, 5
LARGE, MAX_JUNK = 1e6, 1e50
SHAPES = ("linear", "u-shape", "interaction", "uneven noise")
REWARDS = ("binary", "graded")
FALL = 2.0  # of the model's log-odds
SLOPES = (1.2, -0.9, 0.6, 0.0, 0.0)  # of the model's log-odds


@dataclass(frozen=True, kw_only=True)
class SeveralExperts(BaseWorld):
    """Five experts, right in 84 to 93 % of the tasks, cost 1 each; a model with a confidence, right in 86 %.

    As with the readers of a medical study: who is best is not known, and reviews are few.

    >>> stream = SeveralExperts().draw(seed=0)
    >>> stream.rewards.shape, stream.costs.shape
    ((810, 6), (810, 5, 1))
    """

    def draw(self, seed: int) -> TaskStream:
        """Return the stream of this seed; which expert is how good differs between seeds."""
        self.check_seed(seed)
        rng = np.random.default_rng(np.random.SeedSequence([int(seed), 5]))
        rank = rng.random(N_TASKS)
        model = 1.0 - HARDEST_ERROR * (1.0 - rank) ** ERROR_POWER
        errors = 1.0 - rng.permutation(np.array(ACCURACIES))
        # tasks that are hard for the model are somewhat harder for people too
        experts = 1.0 - errors * (1.0 + HARDER * (0.5 - rank))[:, None]
        chances = np.column_stack([model, experts])
        confidence = 0.5 + 0.5 * rank**0.7
        margin = np.clip(2 * confidence - 1 + 0.05 * rng.standard_normal(N_TASKS), 0.0, 1.0)
        return TaskStream(
            contexts=np.column_stack([np.ones(N_TASKS), confidence, margin]),
            rewards=(rng.random(chances.shape) < chances).astype(float),
            costs=np.ones((N_TASKS, len(ACCURACIES), 1)),
            link="logistic",
            remark="simulated people",
            confidence=confidence,
            first_use=True,
        )


@dataclass(frozen=True, kw_only=True)
class JunkContexts(BaseWorld):
    """A logistic stream with junk among the contexts, such as a broken sensor or an attacker sends.

    Junk tasks are right whoever decides, also where `junk` is "none" and their contexts are like the others: a loss
    is what the junk does to the other tasks.

    >>> [float(np.abs(JunkContexts(junk=each).draw(seed=0).contexts).max()) > 1e5 for each in JUNK]
    [False, True, True]
    """

    junk: str = option(
        "none", "Junk: none, 60 contexts of 1e50 anywhere, or the first context of 1e6", choices=JUNK, shown="{} junk"
    )

    def draw(self, seed: int) -> TaskStream:
        """Return the stream of this seed; the same tasks whatever the junk."""
        self.check_seed(seed)
        rng = np.random.default_rng(np.random.SeedSequence([int(seed), 6]))
        numbers = rng.standard_normal((N_JUNK_TASKS, N_NUMBERS))
        model = expit(0.8 + numbers @ np.array(SLOPES))
        expert = expit(2.6 + 0.4 * numbers[:, 3])
        rewards = (rng.random((N_JUNK_TASKS, 2)) < np.column_stack([model, expert])).astype(float)
        spots = np.sort(rng.choice(np.arange(1, N_JUNK_TASKS), N_JUNK - 1, replace=False))
        signs: Floats = rng.choice([-1.0, 1.0], (N_JUNK, N_NUMBERS))
        rewards[0] = 1.0
        rewards[spots] = 1.0
        if self.junk == "first":
            numbers[0] = LARGE * signs[0]
        elif self.junk == "scattered":
            numbers[[0, *spots]] = MAX_JUNK * signs
        return TaskStream(
            contexts=np.column_stack([np.ones(N_JUNK_TASKS), numbers]),
            rewards=rewards,
            costs=np.ones((N_JUNK_TASKS, 1, 1)),
            link="logistic",
            remark="simulated",
            first_use=True,
        )


@dataclass(frozen=True, kw_only=True)
class OneChange(BaseWorld):
    """A model that stays as good as it is, or falls once in the middle; for alarms of drift, false and true ones.

    All shapes but "linear" are what a linear learner cannot represent.

    >>> stream = OneChange(horizon=100, change=True).draw(seed=0)
    >>> stream.contexts.shape, stream.rewards.shape
    ((100, 5), (100, 2))
    """

    horizon: int = option(20_000, "Number of tasks", shown="T = {:,}")
    shape: str = option("linear", "How the model's reward depends on the context", choices=SHAPES)
    rewards: str = option("binary", "Rewards: 0 or 1, or any number between", choices=REWARDS)
    change: bool = option(False, "Whether the model gets worse in the middle")

    def draw(self, seed: int) -> TaskStream:
        """Return the stream of this seed."""
        self.check_seed(seed)
        rng = np.random.default_rng(np.random.SeedSequence([int(seed), 7]))
        numbers = rng.standard_normal((self.horizon, 4))
        odds = 1.5 + 0.8 * numbers[:, 0] - 0.5 * numbers[:, 1]
        if self.shape == "u-shape":
            odds = numbers[:, 0] ** 2 - 0.5 * numbers[:, 1]
        elif self.shape == "interaction":
            odds += 1.5 * numbers[:, 2] * numbers[:, 3]
        if self.change:
            odds = odds - FALL * (np.arange(self.horizon) >= self.horizon // 2)
        chances = np.column_stack([expit(odds), np.full(self.horizon, 0.85)])
        if self.rewards == "binary":
            rewards = (rng.random(chances.shape) < chances).astype(float)
        else:
            noise = 0.1 * rng.standard_normal(chances.shape)
            if self.shape == "uneven noise":
                noise *= (0.2 + np.abs(numbers[:, 2]))[:, None]
            rewards = np.clip(chances + noise, 0.0, 1.0)
        return TaskStream(
            contexts=np.column_stack([np.ones(self.horizon), numbers]),
            rewards=rewards,
            costs=np.ones((self.horizon, 1, 1)),
            link="logistic" if self.rewards == "binary" else "identity",
            remark="simulated",
            first_use=True,
        )
