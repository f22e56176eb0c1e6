"""The best with a renewing budget, against a linear programme; streams with times and late outcomes."""

import math

import numpy as np
import pytest
from scipy.optimize import linprog

from deferkit import Budget, InvalidArgument
from deferkit.study.allowance import Allowance
from deferkit.study.optimum import best_shares, period_numbers
from deferkit.study.spec import Spec
from deferkit.study.trial import run_together
from deferkit.worlds.arrivals import PATTERNS, Arrivals, LateCosts
from deferkit.worlds.base import TaskStream


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("carry", [0.0, math.inf])
def test_the_optimum_is_that_of_the_linear_programme(carry: float, seed: int) -> None:
    """Against HiGHS: what is spent in each period, or up to the end of each, is bounded."""
    rng = np.random.default_rng(seed)
    n, periods = 60, 5
    gains, costs = rng.normal(0.3, 1.0, n), rng.random(n) + 0.01
    number = np.sort(rng.integers(0, periods, n))
    number[-1] = periods - 1
    budget = Budget(2.0, every="1h", start=0, carry=carry)
    shares = best_shares(gains, costs, number, budget)
    inside = number[None, :] <= np.arange(periods)[:, None] if carry else number[None, :] == np.arange(periods)[:, None]
    bounds = 2.0 * (np.arange(periods) + 1) if carry else np.full(periods, 2.0)
    best = linprog(-gains, A_ub=inside * costs, b_ub=bounds, bounds=(0, 1), method="highs")
    assert gains @ shares == pytest.approx(-best.fun, rel=1e-9)
    assert ((inside * costs) @ shares <= bounds + 1e-9).all()
    assert ((shares >= 0) & (shares <= 1)).all()


def test_periods_of_tasks_follow_the_calendar() -> None:
    noon = 43_200.0
    berlin = Budget(1, every="day", zone="Europe/Berlin")
    days = period_numbers(np.array([noon, noon + 11 * 3_600 - 1, noon + 11 * 3_600, noon + 5 * 86_400]), berlin)
    assert days.tolist() == [0, 0, 1, 5]
    assert period_numbers(np.array([1.0, 1e9]), Budget(5, until=2e9)).tolist() == [0, 0]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_tasks_come_in_order_and_as_often_as_said(pattern: str) -> None:
    stream = Arrivals(pattern=pattern).draw(3)
    assert stream.times is not None
    weeks = np.bincount((stream.times // (168 * 3_600)).astype(int))
    assert (np.diff(stream.times) >= 0).all()
    assert len(weeks) == 14
    if pattern in ("flat", "office", "weekend"):
        assert abs(weeks.mean() - 1_000) < 30
    if pattern == "step":
        assert weeks[6:].mean() > 1.9 * weeks[:6].mean()
    known = Arrivals(pattern=pattern, values="known").draw(3)
    gain = stream.known()[0][:, 1] - stream.known()[0][:, 0]
    np.testing.assert_allclose(known.contexts[:, 0], gain)
    np.testing.assert_allclose(known.known()[0][:, 1], gain)
    np.testing.assert_array_equal(known.costs, stream.costs)


def test_heavy_costs_are_as_expensive_as_expected_on_average() -> None:
    stream = LateCosts(horizon=200_000, late=0.0).draw(1)
    assert stream.delay == 0
    ratio = stream.costs[:, 0, 0] / stream.known()[1][:, 0, 0]
    assert ratio.mean() == pytest.approx(1, rel=0.05)
    assert ratio.max() > 150


def test_a_budget_as_text_with_a_period_or_an_end() -> None:
    hours = TaskStream(np.ones((4, 1)), np.ones((4, 2)), np.ones((4, 1, 1)), times=np.array([0.0, 9e4, 1.8e5, 2.7e5]))
    weekly = Allowance.from_text("40 every week in Europe/Berlin carry 1 hold auto").budget(hours, 2.0)
    assert weekly == Budget(40, every="week", zone="Europe/Berlin", carry=1, max_cost=2.0, hold="auto")
    assert Allowance.from_text("50% until end").budget(hours, 1.0) == Budget(2.0, until=270_001.0, max_cost=1.0)
    assert Allowance.from_text("2 every 7d").budget(hours, 1.0) == Budget(2, every="7d", start=0.0, max_cost=1.0)
    assert Allowance.from_text("2 hold 0.5").budget(hours, 1.0) == Budget(2, horizon=4, max_cost=1.0, hold=0.5)
    for wrong in ("2 every", "2 every 7d carry many", "2 hold some", "2 until then", "every 7d"):
        with pytest.raises(InvalidArgument, match="A budget must be"):
            Allowance.from_text(wrong)
    with pytest.raises(InvalidArgument, match="needs the time of each task"):
        Allowance.from_text("2 every 7d").budget(hours._replace(times=None), 1.0)


def test_trials_with_times_know_few_rules() -> None:
    names = ("opt", "model-only", "arbitrary-human", "best-reject")
    world = {"pattern": "office", "values": "known"}
    rows = run_together([Spec.of("arrivals", world, policy=name, budget="105 every 7d") for name in names], 0)
    assert rows[0]["gain"] == pytest.approx(100)
    assert rows[1]["gain"] == 0
    assert 35 < rows[2]["gain"] < 55
    assert "knows nothing of times" in rows[3]["failure"]
