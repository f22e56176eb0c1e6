"""Arguments of a `Deferrer` as its settings hold them: converted and completed, with errors that name the argument."""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import cast

from deferkit.errors import AssumptionWarning, MissingTreesWarning, UnaffordableReviewWarning, expected
from deferkit.extras import listed, missing
from deferkit.learn.embed.embedding import Embedding
from deferkit.learn.encode import FREEZE_AFTER, Encoder
from deferkit.learn.exploration import INDEX, Exploration
from deferkit.learn.pacing import Pacing
from deferkit.learn.settings import Settings
from deferkit.types import AUTO, Budget


def as_n_features(n_features: int | None, encoder: Encoder | None) -> int:
    """Return the length of a context vector: as given, or that of the encoder. One of the two must be given."""
    if (n_features is None) == (encoder is None):
        raise expected("n_features", "Deferrer", "given, or else an encoder", n_features)
    if encoder is not None and not isinstance(encoder, Encoder):
        raise expected("encoder", "Deferrer", "an Encoder", encoder)
    return encoder.n_features if encoder is not None else cast("int", n_features)


def as_budgets(budget: Budget | Mapping[str, Budget] | None) -> dict[str, Budget]:
    """Return the budgets by resource; a single resource is called "cost".

    >>> as_budgets(None)
    {'cost': Budget(total=inf, horizon=None, max_cost=None)}
    """
    if isinstance(budget, Mapping):
        return dict(budget)
    return {"cost": Budget.unlimited() if budget is None else budget}


def as_experts(experts: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the experts; raise for a single string, whose letters would be taken for names."""
    if isinstance(experts, str) or not isinstance(experts, Sequence):
        raise expected("experts", "Deferrer", "a list of names", experts)
    return tuple(experts)


def as_confidence(given: int | str | None, encoder: Encoder | None) -> int | None:
    """Return the index of the model's confidence in a context vector: as given, by name, or that of the encoder."""
    name = encoder.confidence if given is None and encoder is not None else given
    if encoder is None or name is None:
        if isinstance(name, str):
            raise expected("confidence", "Deferrer", "an index, unless there is an encoder", name)
        return name
    if name not in encoder.numbers:
        raise expected("confidence", "Deferrer", f"one of the numbers {', '.join(encoder.numbers)}", name)
    return encoder.names.index(name)


def as_exploration(exploration: float | Exploration | None) -> Exploration:
    """Return an exploration, which may be given by its scale alone."""
    if exploration is None:
        return Exploration()
    return exploration if isinstance(exploration, Exploration) else Exploration(scale=exploration)


def as_pacing(pacing: str | Pacing) -> Pacing:
    """Return a pacing, which may be given by its kind alone."""
    return pacing if isinstance(pacing, Pacing) else Pacing(kind=pacing)


def choose_representation(
    given: str | None, encoder: Encoder | None, embedding: Embedding | None, exploration: Exploration, cost_link: str
) -> str:
    """Return the representation to use: as given, else "auto" for named features if LightGBM is installed.

    "auto" without LightGBM becomes "linear" with a warning, whose `stacklevel` is that of a caller of `Deferrer`.
    """
    absent = missing("trees")
    if given == "auto" and absent:
        warnings.warn(
            f"Estimates will be linear, because {listed(absent)} is missing: pip install 'deferkit[trees]'.",
            MissingTreesWarning,
            stacklevel=3,
        )
        return "linear"
    if given is not None:
        return given
    supported = embedding is None and exploration.rule == INDEX and cost_link == "identity"
    return "auto" if encoder is not None and supported and not absent else "linear"


def check_encoder_memory(settings: Settings, encoder: Encoder | None) -> None:
    """Raise unless the memory holds all rows that come before the encoder's scales are frozen."""
    least = max(settings.warm_up_steps, FREEZE_AFTER)
    if encoder is not None and settings.memory < least:
        what = f"at least {least}, the rows before the encoder's scales are frozen"
        raise expected("memory", "Deferrer", what, settings.memory)


def unaffordable_reviews(budgets: Mapping[str, Budget]) -> str | None:
    """Return a sentence if a budget is smaller than the hold of one review; None for 0, where that is meant.

    >>> unaffordable_reviews({"cost": Budget(0, horizon=10, max_cost=1)})
    >>> unaffordable_reviews({"cost": Budget(1, every="day", carry=1, max_cost=2)})
    """
    for name, budget in budgets.items():
        caps = {"max_cost": budget.max_cost, "limit": budget.limit, "hold": budget.hold}
        known = {what: cap for what, cap in caps.items() if cap is not None and not isinstance(cap, str)}
        least = min(known, key=lambda what: known[what], default=None)
        most = budget.total * (1.0 + budget.carry) if budget.total else 0.0
        if least is not None and budget.hold != AUTO and 0 < most < known[least]:
            total = f"what {name} gets in a period" if budget.every is not None else f"the total of {name}"
            carried = " and can carry over" if budget.carry else ""
            return (
                f"Nobody can be asked: each deferral reserves the {least} of {known[least]:g} until its cost is"
                f" known, and {total}{carried} is {most:g}. Raise the total or lower the {least}."
            )
    return None


def warn_if_unaffordable(budgets: Mapping[str, Budget]) -> None:
    """Warn if a budget is smaller than its `max_cost`, with the `stacklevel` of a caller of `Deferrer`."""
    if sentence := unaffordable_reviews(budgets):
        warnings.warn(sentence, UnaffordableReviewWarning, stacklevel=3)


def warn_if_below_guarantee(n_features: int, budget: Budget) -> None:
    """Warn if a budget is smaller than the paper's corollary asks for: B > √d·T^¾."""
    least = math.sqrt(n_features) * (budget.horizon or 0) ** 0.75
    if budget.total < least:
        warnings.warn(
            f"The paper's guarantee asks for B > √d·T^¾ = {least:,.0f}; the budget of {budget.total:,.0f} is smaller.",
            AssumptionWarning,
            stacklevel=3,
        )
