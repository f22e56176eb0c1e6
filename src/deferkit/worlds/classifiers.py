"""Day one: a scikit-learn classifier decides, and a person may be asked who is right in 93 % of the tasks.

The data come with scikit-learn. A classifier is trained on a few rows; the other rows are the tasks, in a new order and
with another training set for each seed. The context is what most teams have first: the confidence of the classifier
and the margin between its two most probable classes.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from deferkit.extras import needs
from deferkit.worlds.base_world import BaseWorld
from deferkit.worlds.option import check_choices, option
from deferkit.worlds.task_stream import Floats, TaskStream

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

    def __post_init__(self) -> None:
        check_choices(self)

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
