"""The representation of the context that a learner uses, as text."""

from collections.abc import Mapping

from deferkit.learn.deferrer import Deferrer

LINEAR = "linear"


def representation_text(learner: Deferrer) -> str:
    """Return the representation of a learner's estimates; of several, with their mean shares, largest first.

    >>> representation_text(Deferrer(n_features=2, defaults="2026.11"))
    'linear'
    """
    by_target = learner.representation_shares().values()
    names = next(iter(by_target))
    return text_of_shares({name: sum(shares[name] for shares in by_target) / len(by_target) for name in names})


def text_of_shares(shares: Mapping[str, float]) -> str:
    """Return shares as text, without those that round to 0 per cent.

    >>> text_of_shares({"linear": 0.186, "trees": 0.814}), text_of_shares({"linear": 1.0, "trees": 0.0})
    ('trees 81 %, linear 19 %', 'linear')
    """
    some = {name: share for name, share in shares.items() if round(100 * share) > 0}
    if len(some) == 1:
        return next(iter(some))
    ordered = sorted(some, key=lambda name: -some[name])
    return ", ".join(f"{name} {100 * some[name]:.0f} %" for name in ordered) or LINEAR
