"""The achievable optimum: what a rule of the context alone could gain with a budget, where only outcomes are known.

Hindsight OPT sees the outcomes, chance and all, which nobody does who decides before them. So on a table:

1. Every reward and cost is predicted from the context *out of fold*: five folds, each predicted from the other four (an
   item that comes again is in the fold of its first row), by ridge (logistic for rewards of 0 and 1) or by boosted
   trees, whichever has the smaller squared error out of fold.
2. Tasks are asked in the order of predicted gain for a unit of predicted cost, from the best down to a price, never
   where the prediction is that asking loses. The price is the one that uses the budget up; the last task counts in
   part. Each fold has its share of the budget and a price of its own: the regressions of two folds differ by what the
   others happened to earn, and one price for both would prefer the fold whose own tasks earn less.
3. What that earns and costs is what really came of these tasks.

No outcome of a task has a part in whether it is asked, so that its reward is not a maximum over chances: on average it
is what such a rule earns on new tasks. A better rule of the same context may exist, one that knows how outcomes hang
together with it; a learner that finds it passes 100 per cent.
"""

import weakref
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from deferkit.errors import InvalidArgument
from deferkit.extras import find_missing
from deferkit.learn.links import link_named
from deferkit.study.confidence import FOLDS, cross_validated, folds_of
from deferkit.study.optimum import TOLERANCE, Steps, by_steps, steps
from deferkit.worlds.base import Floats, Population, TaskStream

TREES = 100
LEARNING_RATE = 0.05
LEAVES = 15
MIN_IN_LEAF = 20
MAX_ROWS = 50_000  # that the trees of a fold are fitted to: of more, every k-th
MIN_FOR_TREES = 100  # rows, below which trees have nothing to split
MIN_COST = 0.01  # of the mean: a regression that predicts less is wrong about it


class Predictions(NamedTuple):
    """Out-of-fold predictions of each task from its context."""

    rewards: Floats  # [n, deciders]
    costs: Floats  # [n, experts]
    fold: NDArray[np.int64]  # [n]
    tie: NDArray[np.int64]  # [n] breaks ties of predictions at random, not by the order of the file
    methods: tuple[str, ...]  # "linear" or "trees", of each reward and then of each cost


class CachedPredictions(NamedTuple):
    """The last predictions: orders, budgets and rules of a study need the same ones."""

    contexts: "weakref.ref[Floats]"
    rewards: "weakref.ref[Floats]"
    predictions: Predictions


_cached: list[CachedPredictions] = []


def is_achievable_known(stream: TaskStream) -> bool:
    """Whether the achievable optimum is known, or can be estimated from complete outcomes of one resource.

    It cannot where columns of the context depend on what a policy observed before.

    >>> is_achievable_known(TaskStream(np.ones((3, 1)), np.ones((3, 2)), np.ones((3, 1, 2))))
    False
    """
    if stream.truth is not None:
        return True
    return stream.complete and stream.costs.shape[2] == 1 and stream.running is None


def check_achievable(stream: TaskStream) -> None:
    """Raise InvalidArgument, with the reason, if the achievable optimum of a stream cannot be estimated."""
    if not is_achievable_known(stream):
        raise InvalidArgument(
            "The achievable optimum is estimated for one resource, where all outcomes are known and contexts do not"
            " depend on the policy."
        )


def with_shares(frame: pl.DataFrame) -> pl.DataFrame:
    """Return trials with a column `of_achievable`: what was gained, in per cent of the achievable optimum's gain.

    Each is compared on the same stream with the same budget; null where that was not measured, or gains no more than
    its standard error.

    >>> rows = [("achievable", 9.0), ("default", 8.0)]
    >>> frame = pl.DataFrame(rows, schema=["policy", "reward"], orient="row")
    >>> same = {"seed": 0, "asked_budget": "10%", "model": 5.0, "gained_se": 1.0}
    >>> with_shares(frame.with_columns(**{k: pl.lit(v) for k, v in same.items()}))["of_achievable"].to_list()
    [100.0, 75.0]
    """
    by = ["seed", "asked_budget"]
    best = frame.filter(policy="achievable").select(*by, most=pl.col("reward") - pl.col("model"), noise="gained_se")
    joined = frame.join(best.unique(by), on=by, how="left", maintain_order="left")
    some = pl.col("most") > pl.max_horizontal(TOLERANCE * pl.col("model").abs(), "noise")
    share = pl.when(some).then(100 * (pl.col("reward") - pl.col("model")) / pl.col("most"))
    return joined.with_columns(of_achievable=share.cast(pl.Float64)).drop("most", "noise")


class Achievable:
    """The achievable optimum of a stream without a truth, for all budgets; several experts, one resource.

    >>> rng = np.random.default_rng(0)
    >>> x = np.eye(2)[np.arange(400) % 2]
    >>> rewards = np.column_stack([np.full(400, 0.5), x[:, 0]]) + 0.1 * rng.standard_normal((400, 2))
    >>> best = Achievable(TaskStream(x, rewards, np.ones((400, 1, 1))))
    >>> best.at(100.0)[:, 1].reshape(200, 2).sum(axis=0).tolist()
    [100.0, 0.0]

    Raises:
        InvalidArgument: if the stream has several resources, unknown outcomes, or contexts that depend on a policy.
    """

    def __init__(self, stream: TaskStream) -> None:
        check_achievable(stream)
        self.predictions = predictions_of(stream)
        self._shape = stream.rewards.shape
        self._folds = [self._rank(stream, self._tasks_of(i)) for i in range(FOLDS)]

    def _tasks_of(self, fold: int) -> NDArray[np.int64]:
        rows = np.flatnonzero(self.predictions.fold == fold)
        return rows[np.argsort(self.predictions.tie[rows])]

    def _rank(self, stream: TaskStream, rows: NDArray[np.int64]) -> "Fold":
        """Return the tasks of a fold in the order in which they are asked, and what they really cost by then."""
        each = np.full(len(rows), 1.0)
        population = Population(each, self.predictions.rewards[rows], self.predictions.costs[rows, :, None])
        taken = steps(population)
        paid = np.concatenate([np.zeros((len(rows), 1)), stream.costs[rows, :, 0]], axis=1)  # [n, deciders]
        deciders = np.concatenate([np.zeros((len(rows), 1), dtype=np.int64), taken.path], axis=1)
        task, level = taken.context, occurrence(taken.context)
        more = paid[task, deciders[task, level + 1]] - paid[task, deciders[task, level]]
        # of several experts a later one can turn out cheaper: what was spent before that had to be there, too
        return Fold(rows, population, taken._replace(used=np.maximum.accumulate(np.cumsum(more))))

    def at(self, budget: float) -> Floats:
        """Return the probabilities [n, deciders] with which each decider decides a task, for a total budget."""
        choice = np.zeros(self._shape)
        for rows, population, taken in self._folds:
            if len(rows):
                choice[rows] = by_steps(population, taken, budget * len(rows) / len(choice)).choice
        return choice


class Fold(NamedTuple):
    """Tasks that were predicted from all others, in the order in which they are asked."""

    rows: NDArray[np.int64]
    population: Population
    steps: Steps  # `used` is what they really cost


def occurrence(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of earlier occurrences of each value.

    >>> occurrence(np.array([3, 1, 3, 3, 1])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(values, kind="stable")
    inside = np.arange(len(values))
    first = np.concatenate([[True], np.diff(values[order]) != 0])[: len(values)]
    count = inside - np.maximum.accumulate(np.where(first, inside, 0))
    result = np.empty_like(order)
    result[order] = count
    return result


def predictions_of(stream: TaskStream) -> Predictions:
    """Return the predictions of a stream's tasks; those of a table are made once for all its orders."""
    tasks = stream.unshuffled
    contexts, rewards, costs = stream[:3] if tasks is None else tasks[:3]
    if not (_cached and _cached[0].contexts() is contexts and _cached[0].rewards() is rewards):
        made = predict_outcomes(contexts, rewards, costs[:, :, 0], binary=link_named(stream.link).is_probability)
        _cached[:] = [CachedPredictions(weakref.ref(contexts), weakref.ref(rewards), made)]
    found = _cached[0].predictions
    if tasks is None:
        return found
    at = tasks.order
    return Predictions(found.rewards[at], found.costs[at], found.fold[at], found.tie[at], found.methods)


def predict_outcomes(contexts: Floats, rewards: Floats, costs: Floats, *, binary: bool) -> Predictions:
    """Return out-of-fold predictions of rewards [n, deciders] and costs [n, experts]."""
    fold = folds_of(contexts)
    found = [out_of_fold(contexts, y, fold, binary=binary) for y in rewards.T]
    found += [out_of_fold(contexts, y, fold, binary=False) for y in costs.T]
    values = np.column_stack([value for value, _ in found])
    split = rewards.shape[1]
    n = len(contexts)
    return Predictions(
        rewards=values[:, :split],
        costs=np.maximum(values[:, split:], MIN_COST * costs.mean(axis=0)),
        fold=fold,
        tie=np.random.default_rng(0).permutation(n),
        methods=tuple(name for _, name in found),
    )


def out_of_fold(
    contexts: Floats, y: Floats, fold: NDArray[np.int64] | None = None, *, binary: bool
) -> tuple[Floats, str]:
    """Return the prediction of each y from the tasks that are not in its fold, and what made it.

    Predictions beyond anything that came are cut off there: a line through the others may run anywhere.
    """
    fold = folds_of(contexts) if fold is None else fold
    made = {"linear": cross_validated(contexts, y, logistic=binary, fold=fold)}
    if not find_missing("trees") and len(y) >= MIN_FOR_TREES and y.min() < y.max():
        made["trees"] = predict_with_trees(contexts, y, fold, binary=binary)
    cut = {name: np.clip(value, y.min(), y.max()) for name, value in made.items()}
    best = min(cut, key=lambda name: float(np.mean((cut[name] - y) ** 2)))
    return cut[best], best


def predict_with_trees(contexts: Floats, y: Floats, fold: NDArray[np.int64] | None = None, *, binary: bool) -> Floats:
    """Return the same from boosted trees."""
    import lightgbm  # noqa: PLC0415 - an extra

    fold = folds_of(contexts) if fold is None else fold
    settings = {
        "objective": "binary" if binary else "l2",
        "num_leaves": LEAVES,
        "learning_rate": LEARNING_RATE,
        "min_data_in_leaf": MIN_IN_LEAF,
        "max_bin": 63,
        "num_threads": 1,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
        "seed": 0,
    }
    result = np.empty(len(y))
    for i in range(FOLDS):
        own, others = fold == i, np.flatnonzero(fold != i)
        others = others[:: -(-len(others) // MAX_ROWS)]
        if y[others].min() == y[others].max():
            result[own] = y[others[0]]
            continue
        data = lightgbm.Dataset(contexts[others], y[others], free_raw_data=True)
        booster = lightgbm.train(settings, data, num_boost_round=TREES)
        result[own] = booster.predict(contexts[own], num_threads=1)
    return result
