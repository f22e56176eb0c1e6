"""The members of the mixture by which each target is estimated: their forgetting and their view."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

FORGETS = ("auto", "never")
WINDOWS = ((1_500, 128), (300, 64), (60, 32))  # effective samples of a member, and samples between two discounts

RANK_WEIGHT = 2.0  # prior weight of the rank view, in units of another view
CONFIDENT_RANK_WEIGHT = 4.0  # where the confidence is named, whose rank has a prior slope
RANK_RATES = (0, 2)  # of the members that read ranks: none, and the middle window; more cost time and gain nothing
STACK_RATES = (0, 2)  # of the members that read the stack


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


def members_of(
    forget: str,
    views: int | None,
    *,
    values: bool = True,
    ranks: bool = False,
    rank_weight: float = RANK_WEIGHT,
    stacked: bool = False,
) -> list[Member]:
    """Return the members of a mixture: every window for each view, those that forget nothing first, then the ranks.

    Args:
        forget: "auto", or "never" for members that forget nothing.
        views: The number of views with members of their own; None if the embedding assigns the views.
        values: Whether there are members for these views; True by default.
        ranks: Whether there are members for the rank view, which comes after these views; False by default.
        rank_weight: The prior weight of the rank view, in units of another view.
        stacked: Whether view 1 is a stack, with members at `STACK_RATES` only; False by default.

    >>> [(each.forget_every, round(each.prior, 3)) for each in members_of("auto", None)]
    [(0, 0.533), (128, 0.267), (64, 0.133), (32, 0.067)]
    >>> members_of("never", None)
    [Member(view=None, prior=1.0, forget_every=0, keep=1.0)]
    >>> [(each.view, round(each.prior, 3)) for each in members_of("never", None, ranks=True)]
    [(0, 0.333), (1, 0.667)]
    """
    rates = [(0, 1.0), *((every, (1 - 1 / window) ** every) for window, every in WINDOWS)]
    rates = rates if forget == "auto" else rates[:1]
    fewer = {1: STACK_RATES} if stacked else {}
    if not ranks:
        return _of_views(rates, [None] if views is None else list(range(views)), 1.0, fewer)
    n = views or 1
    share = n / (n + rank_weight) if values else 0.0
    of_values = _of_views(rates, list(range(n)), share, fewer) if values else []
    return of_values + _of_views(rates, [n], 1.0 - share, {n: RANK_RATES})


def _of_views(
    rates: list[tuple[int, float]],
    views: Sequence[int | None],
    share: float,
    fewer: Mapping[int | None, Sequence[int]],
) -> list[Member]:
    """Return a member for each rate and view, with this share of the prior weight; some views have `fewer` rates."""
    members = []
    for i, (every, keep) in enumerate(rates):
        for view in views:
            used = [rate for rate in fewer.get(view, range(len(rates))) if rate < len(rates)]
            if i in used:
                total = len(views) * sum(0.5**rank for rank in range(len(used))) / share
                members.append(Member(view, 0.5 ** used.index(i) / total, every, keep))
    return members
