"""What forgetting and trees cost: the bulk loop with four members beside one, a call at a time, and tables of any size.

Ratios are of the same tasks, one after the other in one run. Trees are fitted in a thread beside the decisions: both
the time on the clock and that of all processors are shown.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # before numpy is loaded

import argparse
import resource
import time
from statistics import median

import numpy as np

from deferkit import Budget, Deferrer

N_FEATURES = 20
STEPS = 100_000
CALLS = 20_000
ROUNDS = 7


def stream(n: int, *, binary: bool) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Return contexts, rewards and costs of n tasks; binary rewards depend on a square and on an interaction."""
    rng = np.random.default_rng(0)
    x = rng.random((n, N_FEATURES)) / 2
    model = 1 / (1 + np.exp(1 - 48 * (x[:, 0] - 0.25) ** 2 - x[:, 1]))
    human = 1 / (1 + np.exp(-1.2 - 2 * x[:, 2] * (x[:, 3] > 0.3)))
    both = (model, human)
    rewards = [(rng.random(n) < p).astype(float) if binary else p + 0.1 * rng.standard_normal(n) for p in both]
    return x, dict(zip(("model", "human"), rewards, strict=True)), rng.lognormal(0, 0.4, n)


def learner(costs: np.ndarray, **given: object) -> Deferrer:
    """Return a learner with a budget for a tenth of all that asking would cost."""
    budget = Budget(0.1 * costs.sum(), horizon=len(costs), max_cost=costs.max())
    return Deferrer(n_features=N_FEATURES, budget=budget, reward_range=(-9, 9), **given)  # type: ignore[arg-type]


def bulk() -> None:
    """Print the time of a step with and without forgetting."""
    x, rewards, costs = stream(STEPS, binary=False)
    for link, feedback in (("identity", "full"), ("identity", "bandit")):
        times: dict[str, list[float]] = {"auto": [], "never": []}
        for _ in range(ROUNDS):
            for forget, found in times.items():
                made = learner(costs, link=link, forget=forget)
                begin = time.process_time()
                made.run(x, rewards, costs, feedback=feedback)
                found.append((time.process_time() - begin) / STEPS * 1e6)
        best = {forget: min(found) for forget, found in times.items()}
        ratio = median(a / b for a, b in zip(times["auto"], times["never"], strict=True))
        print(
            f"bulk, d = {N_FEATURES}, {feedback}: {best['auto']:.2f} µs with forgetting,"
            f" {best['never']:.2f} without; ratio {ratio:.2f}"
        )


def one_at_a_time() -> None:
    """Print the time of decide and observe together."""
    x, rewards, costs = stream(CALLS, binary=False)
    rows, values = list(x), {name: y.tolist() for name, y in rewards.items()}
    found = []
    for _ in range(ROUNDS):
        made = learner(costs)
        begin = time.process_time()
        for i, row in enumerate(rows):
            decision = made.decide(row)
            asked = decision.route != "model"
            made.observe(decision.id, {decision.route: values[decision.route][i]}, float(costs[i]) if asked else None)
        found.append((time.process_time() - begin) / CALLS * 1e6)
    print(f"decide + observe, d = {N_FEATURES}, bandit: {min(found):.2f} µs (median {median(found):.2f})")


def trees(n: int) -> None:
    """Print the time of a stream with trees."""
    x, rewards, costs = stream(n, binary=True)
    made = learner(costs, link="logistic", representation="auto")
    begin, cpu = time.perf_counter(), time.process_time()
    made.run(x, rewards, costs)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"auto, {n:,} rows of {N_FEATURES} features: {time.perf_counter() - begin:.1f} s,"
        f" {time.process_time() - cpu:.1f} s of CPU, at most {peak:,.0f} MB"
    )


def main() -> None:
    """Print everything; with --million also a table of that size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--million", action="store_true", help="also a table of a million rows: two minutes")
    asked = parser.parse_args()
    bulk()
    one_at_a_time()
    trees(60_000)
    if asked.million:
        trees(1_000_000)


if __name__ == "__main__":
    main()
