"""Rivals as a data scientist writes them in an afternoon: refit a regression now and then, re-solve a price.

Every script predicts the rewards of model and expert and the cost from the columns of a table, by the same recipe: ask
at random for a short while; refit after every 12 % of the stream on what was observed; solve the price at which the
recent tasks would use the budget left at an even pace; ask where the predicted gain is above price × predicted cost.
Scripts differ only in the regression. No exploration, no mixture, no forgetting.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.core import revealed
from deferkit.worlds.base import Floats, TaskStream

Ints = NDArray[np.int64]

REFIT_SHARE = 0.12  # of the stream between two fits
START_ASKS = 12  # asked at random, or a fifth of what the budget affords if that is less
START_RATE = 2.0  # times the budget's rate, while the start lasts
WINDOW = 1_000  # recent tasks that the price is solved on
PRICE_STEPS = 100  # how often the price is solved
MIN_COST_SHARE = 0.2  # of the mean cost: no predicted cost is lower
MIN_ROWS = 8  # with fewer outcomes the mean is predicted
KNOTS = 6  # of a column, at quantiles
PENALTIES = np.logspace(-1, 3.5, 10)
ROUNDS, LEARNING_RATE = 60, 0.1  # of boosted trees


class ScriptColumns(NamedTuple):
    """The columns of a table: numbers and codes of categories."""

    numbers: Floats  # [n, p], NaN where one is missing
    codes: Ints  # [n, q], −1 where one is missing

    @classmethod
    def of(cls, stream: TaskStream) -> "ScriptColumns":
        """Return the columns of a stream: its cells where it has them, else its context vectors."""
        n = stream.n_tasks
        if stream.columns is None:
            return cls(stream.contexts, np.zeros((n, 0), dtype=np.int64))
        numbers = [column for column in stream.columns.values() if isinstance(column, np.ndarray)]
        texts = [column for column in stream.columns.values() if not isinstance(column, np.ndarray)]
        return cls(
            np.column_stack(numbers) if numbers else np.zeros((n, 0)),
            np.column_stack([as_codes(column) for column in texts]) if texts else np.zeros((n, 0), dtype=np.int64),
        )


def as_codes(texts: list[str | None]) -> Ints:
    """Return the place of each text among all levels in order; −1 for None.

    >>> as_codes(["b", None, "a"])
    array([ 1, -1,  0])
    """
    places = {level: place for place, level in enumerate(sorted({text for text in texts if text is not None}))}
    return np.array([-1 if text is None else places[text] for text in texts], dtype=np.int64)


class Script(ABC):
    """A regression of one target on the columns of a table.

    Args:
        columns: Of the whole stream; a fit may look at the first `seen` rows only.
    """

    description: ClassVar[str]

    def __init__(self, columns: ScriptColumns) -> None:
        self.columns = columns

    @abstractmethod
    def fit_and_predict(self, rows: Ints, targets: Floats, at: Ints, seen: int) -> Floats:
        """Return predictions of the rows `at`.

        Args:
            rows: Rows whose outcome is known.
            targets: Their outcomes.
            at: Rows to be predicted.
            seen: How many rows have come; scales and knots are of these.
        """

    def predict(self, rows: Ints, targets: Floats, at: Ints, seen: int, guess: float) -> Floats:
        """Return predictions within the range of the targets, or their mean (with two `guess`es) if they are few."""
        if len(rows) < MIN_ROWS or targets.min() == targets.max():
            return np.full(len(at), (targets.sum() + 2 * guess) / (len(rows) + 2))
        return np.clip(self.fit_and_predict(rows, targets, at, seen), targets.min(), targets.max())


class RidgeScript(Script):
    """Ridge regression on standardised columns, or on hat functions of each (an additive model)."""

    n_knots = 0  # of a column; 0 for a line

    def fit_and_predict(self, rows: Ints, targets: Floats, at: Ints, seen: int) -> Floats:
        """Return predictions with the penalty of the least leave-one-out error."""
        design = self.design(seen)
        weights, intercept = fit_ridge(design[rows], targets)
        return np.asarray(design[at] @ weights + intercept)

    def design(self, seen: int) -> Floats:
        """Return the design matrix of all rows; its scales, medians, knots and levels are of the first `seen`."""
        parts: list[Floats] = [np.zeros((len(self.columns.numbers), 0))]
        for column in self.columns.numbers.T:
            known = column[:seen][~np.isnan(column[:seen])]
            if len(known) == 0:
                continue
            lost = np.isnan(column)
            if lost[:seen].any():
                parts.append(lost[:, None].astype(float))
            filled = np.where(lost, np.median(known), column)
            knots = np.unique(np.quantile(known, np.linspace(0, 1, self.n_knots))) if self.n_knots else known[:0]
            if len(knots) > 2:
                parts.append(hats(filled, knots))
            elif known.std() > 0:
                parts.append(((filled - known.mean()) / known.std())[:, None])
        for codes in self.columns.codes.T:
            parts.append((codes[:, None] == np.unique(codes[:seen])[None, :]).astype(float))
        return np.hstack(parts)


class LineScript(RidgeScript):
    """Ridge regression on standardised columns."""

    description = "the same script with ridge regression on the columns"


class GamScript(RidgeScript):
    """Ridge regression on hat functions: six knots a column, at quantiles."""

    n_knots = KNOTS
    description = (
        "a script that refits ridge regression on hat functions (6 quantile knots a column) every 12 % of the stream"
        " and solves the price anew"
    )


class TreeScript(Script):
    """Boosted trees of LightGBM."""

    n_leaves = 4
    description = "the same script with boosted trees of 4 leaves"

    def fit_and_predict(self, rows: Ints, targets: Floats, at: Ints, seen: int) -> Floats:
        """Return predictions of 60 trees; leaves are smaller where few outcomes are known."""
        import lightgbm  # noqa: PLC0415 - an extra

        del seen  # trees need no scales
        x = np.column_stack([self.columns.numbers, np.where(self.columns.codes < 0, np.nan, self.columns.codes)])
        n_numbers = self.columns.numbers.shape[1]
        settings = {
            "objective": "regression",
            "num_leaves": self.n_leaves,
            "learning_rate": LEARNING_RATE,
            "min_data_in_leaf": min(20, max(5, len(rows) // 20)),
            "min_data_per_group": 5,
            "num_threads": 1,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }
        data = lightgbm.Dataset(
            x[rows], targets, categorical_feature=list(range(n_numbers, x.shape[1])), params={"verbosity": -1}
        )
        return np.asarray(lightgbm.train(settings, data, ROUNDS).predict(x[at], num_threads=1))


class LargeTreeScript(TreeScript):
    """The same with 15 leaves."""

    n_leaves = 15
    description = "the same script with boosted trees of 15 leaves"


SCRIPTS: Mapping[str, type[Script]] = {
    "script-gam": GamScript,
    "script-trees": TreeScript,
    "script-trees-15": LargeTreeScript,
    "script-lines": LineScript,
}


def hats(values: Floats, knots: Floats) -> Floats:
    """Return the hat functions of values [n, knots]: linear between knots, constant outside.

    >>> hats(np.array([0.0, 0.25, 3.0]), np.array([0.0, 1.0, 2.0])).tolist()
    [[1.0, 0.0, 0.0], [0.75, 0.25, 0.0], [0.0, 0.0, 1.0]]
    """
    inside = np.clip(values, knots[0], knots[-1])
    left = np.clip(np.searchsorted(knots, inside, side="right") - 1, 0, len(knots) - 2)
    share = (inside - knots[left]) / (knots[left + 1] - knots[left])
    out = np.zeros((len(values), len(knots)))
    every = np.arange(len(values))
    out[every, left] = 1.0 - share
    out[every, left + 1] = share
    return out


def fit_ridge(x: Floats, y: Floats) -> tuple[Floats, float]:
    """Return weights and intercept of the ridge regression whose penalty has the least leave-one-out error.

    The errors are exact: (y − ŷ)/(1 − h) with the leverage h of each row, from one singular value decomposition for
    all penalties.
    """
    mean, level = x.mean(axis=0), float(y.mean())
    u, s, vt = np.linalg.svd(x - mean, full_matrices=False)
    used = s > 1e-9 * max(float(s.max(initial=0.0)), 1e-12)
    u, s, vt = u[:, used], s[used], vt[used]
    projected = u.T @ (y - level)
    shrunk = (s**2)[:, None] / ((s**2)[:, None] + PENALTIES)
    leverage = 1 / len(y) + (u * u) @ shrunk
    # a row that determines its own fit has no leave-one-out error to speak of
    errors = (y[:, None] - level - u @ (shrunk * projected[:, None])) / np.maximum(1 - leverage, 1e-6)
    best = int(np.argmin((errors**2).sum(axis=0)))
    weights = np.asarray(vt.T @ (shrunk[:, best] * projected / s))
    return weights, level - float(mean @ weights)


def solve_price(gains: Floats, costs: Floats, goal: float) -> float:
    """Return the least price at which the tasks with gain > price × cost cost no more than `goal`.

    >>> solve_price(np.array([3.0, 2.0, 1.0]), np.ones(3), 2.0), solve_price(np.array([3.0, -1.0]), np.ones(2), 2.0)
    (1.0, 0.0)
    """
    ratios = gains / costs
    order = np.argsort(-ratios)
    too_much = (np.cumsum(costs[order]) > goal) & (ratios[order] > 0)
    return float(ratios[order][too_much.argmax()]) if too_much.any() else 0.0


def run_script(
    name: str, stream: TaskStream, budget: float, *, max_cost: float, seed: int, feedback: str
) -> tuple[Ints, float]:
    """Run a script over a stream with one expert and one resource; return routes and the microseconds a step took.

    Args:
        name: A key of `SCRIPTS`.
        stream: The tasks; every outcome must be known.
        budget: The total.
        max_cost: The expert is asked only while this fits the budget left.
        seed: Of the random start, and of how ties are broken.
        feedback: Which rewards are observed: "full", "bandit" or "reviewed".
    """
    begin = time.perf_counter()
    script = SCRIPTS[name](ScriptColumns.of(stream))
    rng = np.random.default_rng(np.random.SeedSequence([seed, 2]))
    n, costs = stream.n_tasks, stream.costs[:, 0, 0]
    draws, jitter = rng.random(n), 1e-9 * rng.random(n)  # the jitter breaks ties, such as those of trees
    shown = [0 in revealed(feedback, route) for route in (0, 1)]  # whether the model's reward is, by route
    routes = np.zeros(n, dtype=np.int64)
    predicted = np.zeros((3, n))  # rewards of model and expert, and cost
    refit_every, solve_every = max(1, math.ceil(REFIT_SHARE * n)), max(1, n // PRICE_STEPS)
    spent, asks, price, fitted_at, solve_at = 0.0, 0, 0.0, -1, 0
    for t in range(n):
        left = budget - spent
        if left < max_cost:
            break
        mean_cost = spent / asks if asks and spent > 0 else max_cost
        starting = asks < min(START_ASKS, 0.2 * (spent + left) / mean_cost)
        if not starting and (fitted_at < 0 or t - fitted_at >= refit_every):
            fitted_at, solve_at = t, t
            at = np.arange(max(0, t - WINDOW), min(n, t + refit_every))
            asked = np.flatnonzero(routes[:t])
            seen = np.flatnonzero(np.where(routes[:t] == 1, shown[1], shown[0]))
            known = ((seen, stream.rewards[:, 0]), (asked, stream.rewards[:, 1]), (asked, costs))
            # Without a single reward of the model, its accuracy is anybody's guess: that of the expert.
            guess = float(stream.rewards[seen, 0].mean() if len(seen) else stream.rewards[asked, 1].mean())
            for target, (rows, values) in enumerate(known):
                predicted[target, at] = script.predict(rows, values[rows], at, t, guess if target < 2 else mean_cost)
            predicted[2, at] = np.maximum(predicted[2, at], max(MIN_COST_SHARE * mean_cost, 1e-12))
        if starting:
            wanted = draws[t] < START_RATE * left / mean_cost / (n - t)
        else:
            if t >= solve_at:
                recent = slice(max(0, t - WINDOW), max(t, 1))
                gains = predicted[1, recent] - predicted[0, recent] + jitter[recent]
                goal = left / (n - t) * len(gains)
                price, solve_at = solve_price(gains, np.maximum(predicted[2, recent], 1e-12), goal), t + solve_every
            wanted = predicted[1, t] - predicted[0, t] + jitter[t] > price * predicted[2, t]
        if wanted:
            routes[t] = 1
            spent += float(costs[t])
            asks += 1
    return routes, (time.perf_counter() - begin) / n * 1e6
