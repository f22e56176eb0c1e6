"""What the model is expected to earn on a table, where only outcomes are known."""

import numpy as np
import pytest

from deferkit.study import baselines
from deferkit.study.baselines import Limits
from deferkit.study.confidence import confidence, cross_validated
from deferkit.worlds.base import TaskStream


@pytest.mark.parametrize("logistic", [False, True])
def test_confidence_is_that_of_the_other_folds(logistic: bool) -> None:
    """Against the same regression written out for one fold, and nothing of a reward in its own estimate."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((503, 3))
    mean = 1 / (1 + np.exp(-x @ [1.0, -2.0, 0.5] - 0.3))
    y = (rng.random(503) < mean).astype(float) if logistic else 5 + x @ [1.0, 2.0, 3.0] + rng.standard_normal(503)
    found = cross_validated(x, y, logistic=logistic)
    others = np.arange(503) % 5 != 2
    design, ridge = np.column_stack([np.ones(503), x]), np.diag([1e-6, 1, 1, 1])
    theta = np.zeros(4)
    for _ in range(30 if logistic else 1):
        p = 1 / (1 + np.exp(-design @ theta)) if logistic else design @ theta
        w = (p * (1 - p) if logistic else np.ones(503))[others]
        curved = (design[others] * w[:, None]).T @ design[others] + ridge
        theta = theta + np.linalg.solve(curved, design[others].T @ (y - p)[others] - ridge @ theta)
    linear = design[~others] @ theta
    np.testing.assert_allclose(found[~others], 1 / (1 + np.exp(-linear)) if logistic else linear, atol=1e-5)
    changed = y.copy()
    changed[2::5] = 1 - changed[2::5]
    again = cross_validated(x, changed, logistic=logistic)
    np.testing.assert_allclose(again[2::5], found[2::5], rtol=1e-12, atol=1e-12)
    assert np.abs(again - found).max() > 1e-3


def test_rules_do_not_peek_at_the_models_outcome() -> None:
    """Contexts that say nothing: whoever knew the outcome would ask only where the model fails."""
    rng = np.random.default_rng(0)
    n = 4_000
    rewards = np.column_stack([rng.random(n) < 0.5, np.ones(n)]).astype(float)
    stream = TaskStream(rng.standard_normal((n, 3)), rewards, np.ones((n, 1, 1)), link="logistic")
    for rule in (baselines.threshold, baselines.best_reject):
        asked = rule(stream, Limits([800.0], 1.0, seed=0)) == 1
        assert 300 < asked.sum() <= 800
        assert rewards[asked, 0].mean() == pytest.approx(0.5, abs=0.08)
    assert confidence(stream) is confidence(stream)  # solved once for all budgets
