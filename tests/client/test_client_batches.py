"""A client sends a batch that is too large for the service in smaller parts."""

from pathlib import Path

import numpy as np
import pytest

from deferkit import Budget, Client, Deferrer, ServiceError
from tests.serve.harness.in_process import running

BUDGET = Budget(50, horizon=5000, max_cost=1)
CONTEXTS = np.random.default_rng(0).normal(size=(1500, 3))


def test_a_batch_that_is_too_large_is_sent_in_parts(tmp_path: Path) -> None:
    """A batch of 1,000 has about 110 kB, and this service takes a tenth of that."""
    tasks = [f"t{i}" for i in range(len(CONTEXTS))]
    with running(tmp_path, max_body=10_000) as service, Client(service.url, policy="p") as client:
        client.create(features=3, budget=BUDGET, representation="linear", outliers="keep")
        decisions = client.decide_many(CONTEXTS, tasks=tasks)
        assert decisions == Deferrer(n_features=3, budget=BUDGET, defaults="2026.12").decide_many(CONTEXTS)
        assert client.summary().decisions == 1500
        assert client.decide_many(CONTEXTS, tasks=tasks) == decisions
        assert client.summary().decisions == 1500


def test_one_task_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with running(tmp_path, max_body=1000) as service, Client(service.url, policy="p") as client:
        client.create(features=60, budget=BUDGET)
        with pytest.raises(ServiceError, match="at most 1,000 bytes") as caught:
            client.decide_many(np.full((3, 60), 1 / 3))
        assert caught.value.status == 413
