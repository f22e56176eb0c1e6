"""Propensities: the probability of each decider at a logged decision."""

from collections.abc import Collection, Sequence
from typing import TypeAlias

from deferkit.serve.domain import log_records
from deferkit.types import MODEL, Decision, worth_of

Made: TypeAlias = Decision | log_records.DecidedRecord


def propensities(
    made: Made, deciders: Sequence[str], floor: float, available: Collection[str] | None = None
) -> list[float]:
    """Return the probability of each decider at one decision; they add up to 1.

    A decision has the probability of the route that was taken. With one expert the rest is the other's. With several,
    what an explore floor gives is the same for all that were not the best choice, and the best is found from the
    logged estimates; an expert who could not be afforded is taken for one who could.

    >>> from deferkit import Budget, Deferrer
    >>> deferrer = Deferrer(n_features=1, budget=Budget(9, horizon=100, max_cost=1), warm_up=0, explore_floor=0.2)
    >>> [round(p, 9) for p in propensities(deferrer.decide([1.0]), ("model", "human"), 0.2)]
    [0.9, 0.1]
    """
    taken, propensity = made.route, made.propensity
    others = [n for n in deciders if n != taken and (available is None or n == MODEL or n in available)]
    share = dict.fromkeys(deciders, 0.0)
    share[taken] = propensity
    left = 1.0 - propensity
    if left > 0.0 and len(others) > 1 and made.reason == "explored":
        best = best_of(made)
        if best != taken:  # then this route had but its part of the floor
            share[best] = min(left, 1.0 - floor + propensity)
            left -= share[best]
            others.remove(best)
    for name in others:
        share[name] = left / len(others)
    return [share[name] for name in deciders]


def best_of(made: Made) -> str:
    """Return the decider that is worth most by the estimates of a decision."""
    decision = made.decision if isinstance(made, log_records.DecidedRecord) else made
    return max(decision.estimates, key=lambda decider: worth_of(decision, decider))
