"""AUPD: its queue by hand, its rule from the estimates, the budget, and how close it comes to OPT."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deferkit.study.peers import PEERS, Setting, run_peer
from deferkit.study.peers.budgeted import Aupd
from deferkit.study.trial import Judge
from deferkit.worlds.drift import Drift
from deferkit.worlds.synthetic import Synthetic


def test_the_queue_by_hand() -> None:
    """T = 100, B = 30, costs up to 3: b = 0.1, V = b·√T = 1; a cost of 1.5 is 0.5 of the largest.

    Q: 0 → max(0, 0 + 0.5 − 0.1) = 0.4 → 0.4 − 0.1 = 0.3 → 0.3 + 1 − 0.1 = 1.2 → 1.1.
    """
    peer = Aupd(Setting(n_features=1, budget=30.0, horizon=100, mean_cost=1.0, seed=0, max_cost=3.0))
    assert peer.weight == pytest.approx(1.0)
    x = np.ones(1)
    queues = []
    for asked, cost in ((True, 1.5), (False, 0.0), (True, 3.0), (False, 0.0)):
        peer.observe(x, asked, 0.5, cost)
        queues.append(peer.queue)
    assert queues == pytest.approx([0.4, 0.3, 1.2, 1.1])
    assert peer.price == pytest.approx(1.1)
    for _ in range(20):
        peer.observe(x, False, 0.5, 0.0)
    assert peer.queue == 0.0


def test_the_human_is_asked_where_the_optimistic_gain_pays_the_price() -> None:
    """After many tasks of one context widths are small: asked at a price of gain / cost less a little, not above."""
    setting = Setting(n_features=1, budget=100.0, horizon=10_000, mean_cost=0.5, seed=0, max_cost=2.0)
    peer, x = Aupd(setting), np.ones(1)
    for _ in range(2_000):
        peer.observe(x, True, 0.8, 0.5)
        peer.observe(x, False, 0.4, 0.0)
    even = (0.8 - 0.4) / (0.5 / 2.0)  # in units of the largest cost
    for price, asks in ((even * 0.98, True), (even * 1.02, False)):
        peer.queue = price * peer.weight
        assert peer.price == pytest.approx(price)
        assert peer.decide(x) is asks


def test_b_in_v_makes_the_price_of_a_small_budget_move_faster() -> None:
    prices = []
    for budget in (10.0, 1_000.0):
        peer = Aupd(Setting(n_features=1, budget=budget, horizon=10_000, mean_cost=1.0, seed=0, max_cost=1.0))
        peer.observe(np.ones(1), True, 0.5, 1.0)
        prices.append(peer.price)
    assert prices == pytest.approx([(1 - 0.001) / 0.1, (1 - 0.1) / 10.0])


@given(st.floats(0.0, 60.0), st.integers(0, 50), st.sampled_from(["identity", "logistic"]))
@settings(max_examples=25, deadline=None)
def test_the_budget_is_never_exceeded(budget: float, seed: int, link: str) -> None:
    stream = Synthetic(horizon=150, n_features=4, most_ones=3, link=link).draw(seed)
    costs = stream.costs[:, 0, 0]
    setting = Setting(4, budget, 150, float(costs.mean()), seed, float(costs.max()), link)
    routes, _ = run_peer(PEERS["aupd"].make(setting), stream, setting, "bandit")
    assert float(costs[routes == 1].sum()) <= budget


def gain(stream_seed: int, share: float, *, drift: bool) -> float:
    """Return the gain of AUPD on a small stream, T = 4,000, d = 5."""
    world = Drift(kind="none", horizon=4_000, n_features=5, noise=0.1) if drift else None
    stream = (world or Synthetic(regime="dominant", horizon=4_000, n_features=5, most_ones=4)).draw(stream_seed)
    costs = stream.costs[:, 0, 0]
    budget = share * float(stream.known()[1].sum())
    setting = Setting(5, budget, 4_000, float(costs.mean()), stream_seed, max(3.0, math.ceil(costs.max())))
    routes, _ = run_peer(PEERS["aupd"].make(setting), stream, setting, "bandit")
    return Judge(stream).outcome(np.eye(2)[routes], [budget]).gain


@pytest.mark.parametrize("drift", [False, True])
def test_aupd_is_close_to_the_optimum_where_nothing_drifts(drift: bool) -> None:
    """Over 12 streams the mean gain is at least 90 at a tenth and 93 at a quarter of asking always."""
    for share, least in ((0.1, 90.0), (0.25, 93.0)):
        gains = [gain(seed, share, drift=drift) for seed in range(12)]
        assert np.mean(gains) >= least
        assert max(gains) <= 105.0


def test_nobody_is_asked_without_a_budget() -> None:
    peer = Aupd(Setting(n_features=1, budget=0.0, horizon=10, mean_cost=1.0, seed=0, max_cost=1.0))
    assert peer.price == math.inf
    assert peer.decide(np.ones(1)) is False
