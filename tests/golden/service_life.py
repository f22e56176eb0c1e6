"""A service that lives through every kind of record: `python -m tests.golden.service_life store.db` makes a store."""

import random
import sys
from pathlib import Path
from typing import Any

from deferkit import Budget
from deferkit.types import MODEL
from tests.serve.harness.service_process import ServiceProcess

POLICIES: dict[str, dict[str, Any]] = {
    "trees": {"forget": "auto", "representation": "auto", "link": "logistic"},
    "plain": {"forget": "never", "representation": "linear"},
}
FEATURES = {"numbers": ["amount", "age"], "categories": {"country": ["de", "fr"]}}


def live(service: ServiceProcess, name: str, tasks: int) -> None:
    """Let a policy decide, review, observe early and late, correct, expire, book efforts and change its budget."""
    rng = random.Random(name)
    with service.client(name) as client:
        budget = {
            "minutes": Budget(tasks / 2, horizon=tasks, max_cost=4),
            "euros": Budget(500, horizon=tasks, max_cost=9),
        }
        client.create(features=FEATURES, budget=budget, reviewers=1, lease_s=600, seed=5, **POLICIES[name])
        for number in range(tasks):
            task = f"{name}-{number}"
            amount, country = rng.random(), rng.choice(["de", "fr"])
            rewards = {MODEL: float(rng.random() < 0.8 - 0.6 * amount), "human": float(rng.random() < 0.9)}
            if number % 11 == 5:  # before its decision
                client.observe(task, rewards={MODEL: rewards[MODEL]}, park=True)
            context = {"amount": amount, "age": rng.random(), "country": country}
            decision = client.decide(context, task=task, payload={"text": task}, model_answer="yes")
            cost = {"minutes": round(rng.uniform(1, 3), 2), "euros": round(rng.uniform(1, 9), 2)}
            if decision.route == MODEL:
                client.observe(task, rewards={MODEL: rewards[MODEL]})
            elif number % 9 == 4:
                client.expire(task)
            elif (review := client.reviews.claim("ann")) is not None:
                if number % 7 == 3:  # gives it back, books what it has cost, and bo answers
                    client.reviews.release(review)
                    client.reviews.effort(review, cost={"minutes": 0.5, "euros": 0.25})
                    review = client.reviews.claim("bo") or review
                client.reviews.complete(review, "no", rewards={"human": rewards["human"]}, cost=cost)
                if number % 6 == 2:
                    client.correct(task, cost={"minutes": 1.25, "euros": 2.5}, id=f"correction {task}")
            if number == tasks // 2:
                client.change_budget(add={"minutes": 20.0, "euros": 10.0}, id=f"more for {name}")
        client.observe(f"{name}-never-decided", rewards={MODEL: 1.0}, park=True)


def make(path: Path) -> None:
    """Make a store in which each policy has lived, with a snapshot at the end."""
    with ServiceProcess(path.parent, "--snapshot-every", "100000", store=path) as service:
        for name in POLICIES:
            live(service, name, 100)
        service.stop()


if __name__ == "__main__":
    make(Path(sys.argv[1]))
