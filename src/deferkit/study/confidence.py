"""What the model is expected to earn in each task: as it is known, or else estimated from the contexts.

On a table only outcomes are known. To ask where the model *did* earn little would be hindsight, so the expectation of a
task is that of a regression on the contexts and rewards of other tasks: five folds, each predicted from the other four.
Ridge regression, or logistic where rewards are 0 or 1.
"""

import weakref
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from deferkit.worlds.stream import Floats, Stream

FOLDS = 5
RIDGE = 1.0
BLOCK = 16_384  # rows at a time: what is squared stays in the processor's cache
FIRST = 20_000  # rows that the first Newton steps are made on, as good as all of them that far from the end
NEWTON_STEPS = 12
CLOSE_ENOUGH = 1e-6  # of a Newton step


class Kept(NamedTuple):
    """The estimate of the last stream; the budgets and rules of a trial ask for the same one."""

    contexts: "weakref.ref[Floats]"
    rewards: "weakref.ref[Floats]"
    estimate: Floats


_kept: list[Kept] = []


def confidence(stream: Stream) -> Floats:
    """Return what the model is expected to earn in each task [n].

    >>> x = np.linspace(-1, 1, 1_000)[:, None]
    >>> stream = Stream(x, np.hstack([2 + x, x]), np.ones((1_000, 1, 1)))
    >>> bool(np.abs(confidence(stream) - 2 - x[:, 0]).max() < 0.01)
    True
    """
    if stream.truth is not None:
        return np.asarray(stream.truth.rewards[:, 0])
    if not (_kept and _kept[0].contexts() is stream.contexts and _kept[0].rewards() is stream.rewards):
        estimate = cross_validated(stream.contexts, stream.rewards[:, 0], logistic=stream.link == "logistic")
        _kept[:] = [Kept(weakref.ref(stream.contexts), weakref.ref(stream.rewards), estimate)]
    return _kept[0].estimate


def cross_validated(contexts: Floats, rewards: Floats, *, logistic: bool) -> Floats:
    """Return the expectation of each reward [n], from the tasks that are not in its fold; every fifth one is."""
    fold = np.arange(len(contexts)) % min(FOLDS, len(contexts))
    predicted = np.empty(len(contexts))
    for each in range(int(fold.max()) + 1):
        held = fold == each
        theta = (logistic_fit if logistic else ridge_fit)(contexts, rewards, ~held)
        linear = contexts[held] @ theta[1:] + theta[0]
        predicted[held] = expit(linear) if logistic else linear
    return predicted


def blocks(contexts: Floats, rewards: Floats, rows: NDArray[np.bool_]) -> Iterator[tuple[Floats, Floats]]:
    """Yield contexts, with a 1 in front, and rewards of some rows, a block at a time."""
    for start in range(0, len(contexts), BLOCK):
        part = rows[start : start + BLOCK]
        x = contexts[start : start + BLOCK][part]
        yield np.hstack([np.ones((len(x), 1)), x]), rewards[start : start + BLOCK][part]


def ridge_fit(contexts: Floats, rewards: Floats, rows: NDArray[np.bool_]) -> Floats:
    """Return the coefficients of a ridge regression on some rows, the intercept first and not drawn to 0."""
    d = contexts.shape[1] + 1
    gram, moment = penalty(d), np.zeros(d)
    for x, y in blocks(contexts, rewards, rows):
        gram += x.T @ x
        moment += x.T @ y
    return np.asarray(np.linalg.lstsq(gram, moment, rcond=None)[0])


def logistic_fit(contexts: Floats, rewards: Floats, rows: NDArray[np.bool_]) -> Floats:
    """Return the same for a logistic regression: Newton steps, the first ones on a part of the rows."""
    some = np.flatnonzero(rows)
    theta = np.zeros(contexts.shape[1] + 1)
    if len(some) > 2 * FIRST:
        part = some[:: len(some) // FIRST]
        theta = newton(theta, contexts[part], rewards[part], np.ones(len(part), dtype=bool))
    return newton(theta, contexts, rewards, rows)


def newton(theta: Floats, contexts: Floats, rewards: Floats, rows: NDArray[np.bool_]) -> Floats:
    """Return the coefficients after Newton steps, none of which makes the loss larger."""
    ridge = penalty(len(theta))
    loss, gradient, hessian = slopes(theta, contexts, rewards, rows)
    for _ in range(NEWTON_STEPS):
        step = np.linalg.lstsq(hessian + ridge, gradient - ridge @ theta, rcond=None)[0]
        before = loss + 0.5 * theta @ ridge @ theta
        while True:
            nearer = theta + step
            loss, gradient, hessian = slopes(nearer, contexts, rewards, rows)
            if loss + 0.5 * nearer @ ridge @ nearer <= before or np.abs(step).max() < CLOSE_ENOUGH:
                break
            step = step / 2
        theta = nearer
        if np.abs(step).max() < CLOSE_ENOUGH * 1e3:  # the next one would be its square
            break
    return theta


def slopes(theta: Floats, contexts: Floats, rewards: Floats, rows: NDArray[np.bool_]) -> tuple[float, Floats, Floats]:
    """Return the logistic loss at some coefficients, its gradient downwards, and its curvature."""
    loss, gradient, hessian = 0.0, np.zeros(len(theta)), np.zeros((len(theta), len(theta)))
    for x, y in blocks(contexts, rewards, rows):
        linear = x @ theta
        mean = expit(linear)
        loss += float((np.logaddexp(0.0, linear) - y * linear).sum())
        gradient += x.T @ (y - mean)
        hessian += (x * (mean * (1.0 - mean))[:, None]).T @ x
    return loss, gradient, hessian


def penalty(d: int) -> Floats:
    """Return what the ridge adds to the curvature; a little of it for the intercept too, which may be there twice."""
    ridge: Floats = np.full(d, RIDGE)
    ridge[0] = 1e-6
    return np.diag(ridge)
