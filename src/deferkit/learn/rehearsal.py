"""Every step once: afterwards nothing is left to compile, or to load from the cache, when it matters."""

import numpy as np

from deferkit.learn.deferrer import Deferrer
from deferkit.types import Budget

N = 40  # enough for a refit


def rehearse() -> None:
    """Take a learner of each link through its life: one task at a time, many at once, written down and read back."""
    x = [0.6, 0.8]
    many = np.tile(np.array(x), (N, 1))
    rewards = {"model": np.ones(N), "human": np.zeros(N)}
    for link in ("identity", "logistic"):
        deferrer = Deferrer(n_features=2, budget=Budget(5, horizon=100, max_cost=1), link=link)
        deferrer.score([x])
        decision = deferrer.decide(x, force="human")
        deferrer.observe(decision.id, {"human": 1.0}, 0.5)
        deferrer.correct(decision.id, {"human": 0.0})
        deferrer.decide(x)
        deferrer.expire(deferrer.decide(x, force="human").id)
        deferrer.coefficients()
        deferrer.warm_start(many, rewards, cost=np.full(N, 0.1))
        deferrer.run(many, rewards, np.full(N, 0.1))
        again = Deferrer.from_bytes(deferrer.to_bytes())
        event = again.propose(x)
        again.apply(event)
