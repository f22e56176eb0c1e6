"""A policy with a few hundred decisions of every kind, for pages to show."""

import random
from typing import Any

import deferkit
from tests.serve.harness.clients import Client

NAME = "claims"
SCRIPT = "<script>window.attacked = true</script>"
RIGHT_TO_LEFT = "\u202egnp.exe"
ATTACK = f"{SCRIPT} {RIGHT_TO_LEFT}"
REVIEW: dict[str, Any] = {
    "form": [
        {
            "name": "label",
            "kind": "choice",
            "label": "Is the claim justified?",
            "options": [{"value": "yes", "label": "Yes"}, {"value": "no", "label": "No"}],
        },
        {"name": "note", "kind": "text", "label": "Why", "required": False},
    ],
    "guidelines": "Judge the claim, not the claimant.",
    "timer": {"resource": "minutes", "unit_s": 60.0},
    "reward_rule": {"kind": "match"},
}
POLICY: dict[str, Any] = {
    "name": NAME,
    "features": {"numbers": ["length", "amount"], "categories": {"sender": ["new", "known"]}},
    "budget": {"minutes": {"total": 120, "horizon": 2000, "max_cost": 2}},
    "explore_floor": 0.05,
    "warm_up": 20,
    "representation": "linear",
    "review": REVIEW,
}


def populate(client: Client, policy: deferkit.Client, *, tasks: int = 300) -> None:
    """Make the policy, decide tasks, have most reviews answered, and leave some waiting, held and declined.

    Args:
        client: Of an administrator.
        policy: Of whoever sends tasks and reviews them.
        tasks: How many to decide.
    """
    made = client.post("/v1/policies", POLICY)
    assert made.status == 201, made.body
    rng = random.Random(0)
    truth = {}
    for number in range(tasks):
        sender, length = rng.choice(["new", "known"]), rng.random()
        task = f"claim-{number:04d}"
        truth[task] = rng.random() < 0.5
        right = rng.random() < (0.95 if sender == "known" else 0.6)
        answer = "yes" if truth[task] == right else "no"
        decision = policy.decide(
            {"length": length, "amount": rng.random(), "sender": sender},
            task=task,
            payload={"subject": f"Claim {number}", "text": "The parcel did not arrive."},
            model_answer=answer,
        )
        if decision.route == "model":
            policy.observe(task, rewards={"model": float(right)})
        elif number < tasks - 30:
            answered(policy, truth, "ann" if number % 3 else "bo", cost=0.2 + length)
    policy.decide({"length": 1.0, "amount": 1.0, "sender": "new"}, task="held", payload="Who holds it?", force="human")
    policy.decide(
        {"length": 1.0, "amount": 1.0, "sender": "new"},
        task=f"attack {ATTACK}",
        payload={"text": f"{ATTACK} {'long ' * 180_000}", SCRIPT: SCRIPT},
        model_answer=ATTACK,
        force="human",
    )
    policy.reviews.claim(f"eve {ATTACK}")


def answered(policy: deferkit.Client, truth: dict[str, bool], reviewer: str, *, cost: float) -> None:
    """Have a reviewer answer the task that is worth most."""
    review = policy.reviews.claim(reviewer)
    assert review is not None
    policy.reviews.complete(review, {"label": "yes" if truth[review.task] else "no"}, cost=round(cost, 3))
