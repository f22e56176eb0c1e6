"""The members of the mixture by which each target is estimated: their forgetting and their view."""

from typing import NamedTuple

FORGETS = ("auto", "never")
WINDOWS = ((1_500, 128), (300, 64), (60, 32))  # effective samples of a member, and samples between two discounts


class Member(NamedTuple):
    """One estimate of every target.

    Attributes:
        view: The view of a context that it reads; None for the one that the embedding assigns to the target.
        prior: Its weight before any observation; the weights of all members add up to 1.
        forget_every: The number of samples between two discounts; 0 if it forgets nothing.
        keep: The factor of a discount, applied to everything learned so far.
    """

    view: int | None
    prior: float
    forget_every: int
    keep: float


def members_of(forget: str, views: int | None) -> list[Member]:
    """Return the members of a mixture: every window for each view, those that forget nothing first.

    Args:
        forget: "auto", or "never" for members that forget nothing.
        views: The number of views with members of their own; None if the embedding assigns the views.

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
