"""The expected reward of the model in each task: the truth, or a cross-validated estimate from the contexts.

On a table only outcomes are known. To ask where the model *did* earn little would be hindsight, so the expectation of a
task is that of a regression on the contexts and rewards of other tasks: five folds, each predicted from the other four.
Ridge regression, or logistic where rewards are 0 or 1.
"""

import weakref
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit

from deferkit.learn.links import link_named
from deferkit.worlds.base import Floats, TaskStream

FOLDS = 5
MIN_ITEMS = 50  # different contexts, and each at most
MAX_REPEATS = 10  # times on average, for a context to be an item and not a kind of tasks
RIDGE = 1.0
BLOCK = 256  # tasks at a time: few enough that BLAS starts no threads, which on a busy machine wait for each other
FIRST = 20_000  # tasks that the first Newton steps are made on, as good as all of them that far from the end
NEWTON_STEPS = 12
CLOSE_ENOUGH = 1e-6  # of a Newton step


class CachedEstimate(NamedTuple):
    """The last estimate: budgets and rules of a trial need the same one."""

    contexts: "weakref.ref[Floats]"
    rewards: "weakref.ref[Floats]"
    estimate: Floats


_cached: list[CachedEstimate] = []


def confidence(stream: TaskStream) -> Floats:
    """Return the expected reward of the model in each task [n].

    >>> x = np.linspace(-1, 1, 1_000)[:, None]
    >>> stream = TaskStream(x, np.hstack([2 + x, x]), np.ones((1_000, 1, 1)))
    >>> bool(np.abs(confidence(stream) - 2 - x[:, 0]).max() < 0.01)
    True
    """
    if stream.truth is not None:
        return np.asarray(stream.truth.rewards[:, 0])
    if not (_cached and _cached[0].contexts() is stream.contexts and _cached[0].rewards() is stream.rewards):
        estimate = cross_validated(
            stream.contexts, stream.rewards[:, 0], logistic=link_named(stream.link).is_probability
        )
        _cached[:] = [CachedEstimate(weakref.ref(stream.contexts), weakref.ref(stream.rewards), estimate)]
    return _cached[0].estimate


def folds_of(contexts: Floats) -> NDArray[np.int64]:
    """Return the fold of each task: every fifth one is in the same, and an item that comes again in that of its first.

    Where a few contexts come again and again they are kinds of tasks, not the same item: each fold has some of each.

    >>> folds_of(np.arange(7.0)[:, None]).tolist(), folds_of(np.repeat(np.arange(60.0), 2)[:, None])[:6].tolist()
    ([0, 1, 2, 3, 4, 0, 1], [0, 0, 1, 1, 2, 2])
    """
    n = len(contexts)
    _, first, item = np.unique(pl.DataFrame(contexts).hash_rows().to_numpy(), return_index=True, return_inverse=True)
    if len(first) < max(MIN_ITEMS, n / MAX_REPEATS):
        return np.arange(n) % FOLDS
    return np.asarray(np.argsort(np.argsort(first))[item] % FOLDS)


def cross_validated(
    contexts: Floats, rewards: Floats, *, logistic: bool, fold: NDArray[np.int64] | None = None
) -> Floats:
    """Return the expectation of each reward [n], from the tasks that are not in its fold, by default every fifth."""
    fold = np.arange(len(contexts)) % FOLDS if fold is None else fold
    rows = [np.flatnonzero(fold == i) for i in range(min(FOLDS, len(contexts)))]
    folds = [TaskBlock(contexts[own], rewards[own]) for own in rows]
    predicted = np.empty(len(contexts))
    for i, theta in enumerate(logistic_fits(folds) if logistic else ridge_fits(folds)):
        linear = folds[i].contexts @ theta[1:] + theta[0]
        predicted[rows[i]] = expit(linear) if logistic else linear
    return predicted


class TaskBlock(NamedTuple):
    """Some of the tasks."""

    contexts: Floats  # [m, d]
    rewards: Floats  # [m]


def blocks(parts: Sequence[TaskBlock]) -> Iterator[TaskBlock]:
    """Yield the tasks of some parts, a block at a time, their contexts with a 1 in front."""
    for x, y in parts:
        for start in range(0, len(x), BLOCK):
            block = x[start : start + BLOCK]
            yield TaskBlock(np.hstack([np.ones((len(block), 1)), block]), y[start : start + BLOCK])


def ridge_fits(folds: Sequence[TaskBlock]) -> list[Floats]:
    """Return, for each fold, the coefficients of a ridge regression on all others, the intercept first.

    All others are everything less the fold, so that every task is squared once.
    """
    d = folds[0].contexts.shape[1] + 1
    grams, moments = np.zeros((len(folds), d, d)), np.zeros((len(folds), d))
    for i, fold in enumerate(folds):
        for x, y in blocks([fold]):
            grams[i] += x.T @ x
            moments[i] += x.T @ y
    others = [(grams.sum(axis=0) - grams[i], moments.sum(axis=0) - moments[i]) for i in range(len(folds))]
    return [np.linalg.lstsq(gram + penalty(d), moment, rcond=None)[0] for gram, moment in others]


def logistic_fits(folds: Sequence[TaskBlock]) -> list[Floats]:
    """Return the same for logistic regressions: Newton steps, the first ones on some of the tasks."""
    fits = []
    for i in range(len(folds)):
        others = [fold for place, fold in enumerate(folds) if place != i]
        theta = np.zeros(folds[0].contexts.shape[1] + 1)
        thin = sum(len(x) for x, _ in others) // FIRST
        if thin >= 2:
            theta = newton(theta, [TaskBlock(x[::thin], y[::thin]) for x, y in others])
        fits.append(newton(theta, others))
    return fits


def newton(theta: Floats, parts: Sequence[TaskBlock]) -> Floats:
    """Return the coefficients after Newton steps, none of which makes the loss larger."""
    ridge = penalty(len(theta))
    loss, gradient, hessian = slopes(theta, parts)
    for _ in range(NEWTON_STEPS):
        step = np.linalg.lstsq(hessian + ridge, gradient - ridge @ theta, rcond=None)[0]
        before = loss + 0.5 * theta @ ridge @ theta
        while True:
            nearer = theta + step
            loss, gradient, hessian = slopes(nearer, parts)
            if loss + 0.5 * nearer @ ridge @ nearer <= before or np.abs(step).max() < CLOSE_ENOUGH:
                break
            step = step / 2
        theta = nearer
        if np.abs(step).max() < CLOSE_ENOUGH * 1e3:  # the next one would be its square
            break
    return theta


def slopes(theta: Floats, parts: Sequence[TaskBlock]) -> tuple[float, Floats, Floats]:
    """Return the logistic loss at some coefficients, its gradient downwards, and its curvature."""
    loss, gradient, hessian = 0.0, np.zeros(len(theta)), np.zeros((len(theta), len(theta)))
    for x, y in blocks(parts):
        linear = x @ theta
        mean = expit(linear)
        loss += float((np.logaddexp(0.0, linear) - y * linear).sum())
        gradient += x.T @ (y - mean)
        hessian += (x * (mean * (1.0 - mean))[:, None]).T @ x
    return loss, gradient, hessian


def penalty(d: int) -> Floats:
    """Return the ridge penalty on the curvature; a small one for the intercept too, which may be there twice."""
    ridge: Floats = np.full(d, RIDGE)
    ridge[0] = 1e-6
    return np.diag(ridge)
