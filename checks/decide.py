"""Decide and observe with an installed deferkit, and compare with the bits of every other build (`make dist`)."""

import hashlib
import random
import sys
from pathlib import Path

import deferkit
from deferkit import Budget, Deferrer, Encoder

# of all that is known of 500 decisions; identity links need no more than sums, products, roots and fused multiply-adds,
# while the weights of a mixture need exponentials, of which libraries differ in the last bit
EXPECTED = "c673977af1d310c508520829fc9a84c4e73adf99de67ab80f8fc2f2d36437c24"


def stream_digest(n: int = 500, d: int = 7) -> str:
    draw = random.Random(0)
    deferrer = Deferrer(n_features=d, budget=Budget(0.2 * n, horizon=n, max_cost=1), forget="never")
    told = hashlib.sha256()
    for _ in range(n):
        x = [draw.random() / d for _ in range(d)]
        decision = deferrer.decide(x)
        told.update(repr(tuple(decision)).encode())
        rewards = {"model": x[0] * d, "human": x[1] * d}
        cost = None if decision.route == "model" else draw.random()
        deferrer.observe(decision.id, {decision.route: rewards[decision.route]}, cost)
    assert Deferrer.from_bytes(deferrer.to_bytes(), "memory") == deferrer
    return told.hexdigest()


def main() -> None:
    assert Path(sys.prefix).resolve() in Path(deferkit.__file__).resolve().parents, deferkit.__file__
    named = Deferrer(link="logistic", encoder=Encoder(numbers=["amount"], categories={"country": ["de", "fr"]}))
    named.observe(named.decide({"amount": 3.0, "country": "de"}).id, {"model": 1.0})
    digest = stream_digest()
    assert digest == EXPECTED, f"other bits than elsewhere: {digest}"
    print("decides and observes, with the bits of every other build")


if __name__ == "__main__":
    main()
