"""Who is compared on knapsacks, and with which settings."""

import polars as pl

from deferkit.study.experiments.people import PRICED, Entrant, named, remark

KIND = "Linear"
WORLD = "knapsack"
NEURAL = {"embedding": {"learning_rate": 5e-4, "every": 10, "batch": 500}}
"""The paper's: retrained every 10 tasks on mini-batches of 500."""

LINEAR, NETWORK, TREE = Entrant("linear"), Entrant("neural", NEURAL), Entrant("tree")
LEARNERS = (LINEAR, Entrant("default"), NETWORK, TREE)
WITH_PRINTED_PRICE = (Entrant("linear", PRICED), Entrant("paper"))
NETWORK_WITH_PRINTED_PRICE = Entrant("neural", NEURAL | PRICED)
RULES = tuple(map(Entrant, ("best-reject", "arbitrary-human", "human-only", "model-only", "opt")))
OTHER_NETWORKS = (Entrant("neural-ucb"), Entrant("neural-ts"))

PATHS = ("at", "reward_at", "regret_at", "spent_at")


def paths(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each point of each path."""
    return named(frame, KIND).filter(pl.col("at").list.len() > 0).explode(*PATHS)


def said() -> str:
    """Return what has to be said of the people."""
    return remark(WORLD, {})
