# %% [markdown]
# # A cheap language model first, an expensive one where it pays
# The cheap model answers every question. Then deferkit decides, with that answer in the context, whether the expensive
# model is asked as well. The two models here are made up, so that the program runs without a key: put your calls into
# `ask_cheap` and `ask_expensive`. The reward is known a moment later, from a check of the answer.

# %%
import numpy as np

from deferkit import Budget, Deferrer, Encoder

QUESTIONS = 600
DOLLARS = 0.6  # for the expensive model
rng = np.random.default_rng(0)


def ask_cheap(question: dict[str, float]) -> tuple[bool, float]:
    """Return whether the answer is right, and the mean log-probability of its words."""
    right = bool(rng.random() < 1.0 - 0.7 * question["difficulty"])
    return right, float(rng.normal(-0.2 if right else -0.8, 0.3))


def ask_expensive() -> tuple[bool, float]:
    """Return whether the answer is right, and what it cost."""
    return bool(rng.random() < 0.95), float(rng.uniform(0.001, 0.004))


# %%
encoder = Encoder(numbers=["words", "logprob"], categories={"kind": 4})
deferrer = Deferrer(
    encoder=encoder, experts=["expensive"], budget=Budget(DOLLARS, horizon=QUESTIONS, max_cost=0.004), seed=0
)
right = {"cheap alone": 0, "cascade": 0}
for _ in range(QUESTIONS):
    question = {"difficulty": rng.random(), "words": float(rng.integers(5, 60))}
    kind = rng.choice(["code", "text", "maths"])
    cheap_right, logprob = ask_cheap(question)
    right["cheap alone"] += cheap_right
    decision = deferrer.decide({"words": question["words"], "logprob": logprob, "kind": kind})
    if decision.route == "model":
        right["cascade"] += cheap_right
        deferrer.observe(decision.id, {"model": cheap_right})
    else:
        expensive_right, dollars = ask_expensive()
        right["cascade"] += expensive_right
        deferrer.observe(decision.id, {"expensive": expensive_right, "model": cheap_right}, cost=dollars)

# %%
print({name: f"{100 * n / QUESTIONS:.1f} % right" for name, n in right.items()})
print(deferrer)
