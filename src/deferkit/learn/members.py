"""The members of a learner's mixture: how fast each of them forgets, and what it looks at."""

from typing import NamedTuple

FORGETS = ("auto", "never")
WINDOWS = ((1_500, 128), (300, 64), (60, 32))  # samples that a member remembers, and after how many it forgets


class Member(NamedTuple):
    """One estimate of every target."""

    view: int | None  # the vector of a context that it looks at; None: what the embedding says
    prior: float  # its weight before anything was seen; those of all members add up to 1
    forget_every: int  # samples; 0: it forgets nothing
    keep: float  # what it multiplies its past with then


def members_of(forget: str, views: int | None) -> list[Member]:
    """Return the members of a mixture: every rate of forgetting for each view, those that forget nothing first.

    >>> [(each.forget_every, round(each.prior, 3)) for each in members_of("auto", None)]
    [(0, 0.533), (128, 0.267), (64, 0.133), (32, 0.067)]
    >>> members_of("never", None)
    [Member(view=None, prior=1.0, forget_every=0, keep=1.0)]
    """
    rates = [(0, 1.0), *((every, (1 - 1 / window) ** every) for window, every in WINDOWS)]
    rates = rates if forget == "auto" else rates[:1]
    seen = [None] if views is None else list(range(views))
    total = len(seen) * sum(0.5**i for i in range(len(rates)))
    return [Member(view, 0.5**i / total, every, keep) for i, (every, keep) in enumerate(rates) for view in seen]
