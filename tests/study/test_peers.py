"""Other people's methods behind the adapter: budget, seed, and what is said when a package is missing."""

import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from deferkit import InvalidArgument
from deferkit.study.peers import PACKAGED, PEERS, Setting, run_peer
from deferkit.worlds.synthetic import Synthetic

MAX_COST = 3.0


def run(name: str, budget: float, n_tasks: int = 2_000, seed: int = 0) -> tuple[NDArray[np.int64], float]:
    """Return the routes of a peer on a stream, and what they cost."""
    stream = Synthetic(horizon=n_tasks).draw(seed=3)
    costs = stream.costs[:, 0, 0]
    setting = Setting(stream.contexts.shape[1], budget, len(costs), float(costs.mean()), seed, MAX_COST)
    routes, us = run_peer(PEERS[name].make(setting), stream, setting, "bandit")
    assert us > 0
    return routes, float((costs * routes).sum())


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_asks_keeps_the_budget_and_repeats_itself(name: str) -> None:
    state = np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002 - must not move
    routes, spent = run(name, 80.0)
    assert 0 < spent <= 80.0
    assert set(np.unique(routes)) == {0, 1}
    again, _ = run(name, 80.0)
    np.testing.assert_array_equal(routes, again)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # type: ignore[index]  # noqa: NPY002


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_with_money_for_nothing_asks_nobody(name: str) -> None:
    _, spent = run(name, MAX_COST / 2, n_tasks=200)
    assert spent == 0


@pytest.mark.parametrize("name", PACKAGED)
def test_a_missing_package_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, PEERS[name].import_name, None)
    with pytest.raises(InvalidArgument, match="'peer' of a study must be one whose packages are installed") as caught:
        PEERS[name].make(Setting(4, 10.0, 100, 1.0, 0, MAX_COST))
    assert PEERS[name].install in str(caught.value)
