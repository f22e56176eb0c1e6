"""What learned representations cost: whole streams, beside a straightforward loop in eager torch.

The torch loop does the same work as NeuralLinear in the plainest way: three separate modules, autograd and torch.optim,
one epoch of mini-batches of 500 every so many tasks, then new views of all tasks and a direct solution of the three
linear systems. It decides nothing and has no budget. CPU seconds of one thread, best of several rounds in turn.
"""

import os

os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from deferkit.errors import MissingData
from deferkit.learn.embed.neural import next_in
from deferkit.study.policy_registry import make_learner, run_learner
from deferkit.worlds import make_world
from deferkit.worlds.base import TaskStream

HIDDEN, BATCH, ROUNDS = 50, 500, 2
IMAGES = ((0, 20), (4_000, 100))


def cpu_seconds(job: Callable[[], object]) -> float:
    begin = time.process_time()
    job()
    return time.process_time() - begin


def eager(stream: TaskStream, asked: np.ndarray[Any, Any], every: Any, rate: float) -> None:
    """Train and solve, as a first version would: `asked` says where the human's reward and cost are known."""
    torch.set_num_threads(1)
    x = torch.from_numpy(stream.contexts.astype(np.float32)) * float(np.sqrt(stream.contexts.shape[1]))
    columns = (stream.rewards[:, 0], stream.rewards[:, 1], stream.costs[:, 0, 0])
    ys = [torch.from_numpy(y.astype(np.float32)) for y in columns]
    known = [np.ones(len(asked), dtype=bool), asked, asked]
    d = x.shape[1]
    nets = [
        torch.nn.Sequential(torch.nn.Linear(d, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 1)) for _ in range(3)
    ]
    adams = [torch.optim.Adam(net.parameters(), lr=rate) for net in nets]
    due = next_in(every, 0)
    for t in range(1, stream.n_tasks + 1):
        if t < due:
            continue
        due = next_in(every, t)
        for net, adam, y, where in zip(nets, adams, ys, known, strict=True):
            rows = torch.from_numpy(np.flatnonzero(where[:t]))
            for batch in torch.split(rows[torch.randperm(len(rows))], BATCH):
                adam.zero_grad()
                out = net(x[batch])[:, 0]
                torch.nn.functional.mse_loss(torch.sigmoid(out), y[batch]).backward()  # type: ignore[no-untyped-call]
                adam.step()
            with torch.no_grad():
                views = torch.cat([net[:2](x[rows]), x[rows]], dim=1).double()
                precision = views.T @ views + 0.01 * torch.eye(views.shape[1], dtype=torch.float64)
                torch.linalg.solve(precision, views.T @ y[rows].double())


def crossed(n: int, d: int) -> TaskStream:
    """Return a table with interactions."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (n, d)) / np.sqrt(d)
    means = np.column_stack([0.2 + 0.6 * (x[:, 0] * x[:, 1] > 0), 0.5 + 0.3 * np.sin(4 * np.sqrt(d) * x[:, 2])])
    rewards = np.clip(means + 0.2 * rng.standard_normal((n, 2)), 0, 1)
    return TaskStream(x, rewards, rng.gamma(4, 0.25, (n, 1, 1)))


def measured(
    name: str, stream: TaskStream, share: float, parameters: dict[str, Any]
) -> tuple[float, np.ndarray[Any, Any]]:
    learner = make_learner(name, stream, [share * stream.n_tasks], seed=0, parameters=parameters)
    found: list[Any] = []
    seconds = cpu_seconds(lambda: found.append(run_learner(learner, stream, "full")))
    return seconds, found[0].routes > 0


def main() -> None:
    table = Table("stream", "tasks", "d", "learner", "CPU s", "eager torch s", "torch / ours", "goal s")
    knapsacks = make_world("knapsack", {}).draw(0)
    jobs: list[tuple[str, TaskStream, str, Any, float, float]] = [
        ("knapsack", knapsacks, "neural", ((0, 10),), 5e-4, 2),
        ("knapsack, without skip", knapsacks, "neural", ((0, 10),), 5e-4, 2),
        ("a table", crossed(60_000, 20), "tree", None, 0.0, 20),
    ]
    try:
        jobs.insert(2, ("ImageNet16H", make_world("imagenet16h", {}).draw(0), "neural", IMAGES, 1e-4, 15))
    except MissingData as error:
        print(f"without ImageNet16H: {error}")
    for name, stream, policy, every, rate, goal in jobs:
        parameters: dict[str, Any] = {} if every is None else {"embedding": {"every": every, "learning_rate": rate}}
        if "without skip" in name:
            parameters["embedding"]["skip"] = False
        ours, theirs = [], []
        for _ in range(ROUNDS):
            seconds, asked = measured(policy, stream, 0.25, parameters)
            ours.append(seconds)
            if every is not None:
                theirs.append(cpu_seconds(functools.partial(eager, stream, asked, every, rate)))
        other = [f"{min(theirs):.1f}", f"{min(theirs) / min(ours):.1f} ×"] if theirs else ["–", "–"]
        sizes = [f"{stream.n_tasks:,}", str(stream.contexts.shape[1])]
        table.add_row(name, *sizes, policy, f"{min(ours):.2f}", *other, f"≤ {goal:g}")
    Console().print(table)


if __name__ == "__main__":
    main()
