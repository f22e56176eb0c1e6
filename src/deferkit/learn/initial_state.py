"""The state of a learner that has seen nothing: settings written to the arrays of a ledger."""

import math

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.core import CONSTANTS, REFITS
from deferkit.learn.core.layout import COUNTERS, shapes, size_of, whole_lanes
from deferkit.learn.encode import Encoder
from deferkit.learn.exploration import INDEX
from deferkit.learn.ledger import Ledger, LedgerSpec
from deferkit.learn.links import AUTO_LINK, LINKS, link_named
from deferkit.learn.settings import FIRST_REFIT, FOREVER, Settings
from deferkit.periods import START_OF_TIME
from deferkit.types import AUTO

LINK_BINARY: int = CONSTANTS["link_binary"]
# The prior of the confidence: the model's reward at a middle rank, its slope on the rank, the reward of an expert.
LOGISTIC_PRIOR = (1.5, 2.0, math.log(0.9 / 0.1))  # in log-odds
IDENTITY_PRIOR = (0.77, 0.30, 0.9)  # in units of the range of rewards
MODEL_SHARE = 0.5  # of the model's bonus: what choosing the model reveals is rarely what decides
LARGE_ARRAYS = ("inverse", "precision", "context", "rank_table")
HOLD_MEANS = 3.0  # the hold "auto", in mean costs


def sizes_of(settings: Settings) -> dict[str, int]:
    """Return the sizes of the arrays, by their names in `layout.py`.

    Args:
        settings: Of the learner.
    """
    width, n_views = settings.kind.width(settings.shape), settings.kind.n_views(settings.shape)
    n_resources, strategy = len(settings.budget), settings.strategy
    behind_memory = settings.explores_free + 2 * settings.catches_up * n_resources
    members, given = settings.members, width
    if settings.has_ranks:
        width, n_views = max(width, settings.n_features + 1), n_views + 1
    return {
        "n_features": width,
        "stride": whole_lanes(width),
        "n_experts": len(settings.experts),
        "n_resources": n_resources,
        "n_targets": settings.shape.n_targets,
        "n_members": len(members),
        "n_lasting": sum(member.forget_every == 0 for member in members),
        "n_views": n_views,
        "n_given": given,
        "n_ranked": settings.n_features if settings.has_ranks else 0,
        "memory": settings.memory,
        "overflow": 0,
        "window": whole_lanes(settings.remembered_contexts),
        "n_dual": n_resources + strategy.memory_size(n_resources) + behind_memory,
        "n_pacing": len(strategy.constants(settings.pacing.parameters, settings.budgets)),
    }


def count_numbers(settings: Settings) -> dict[str, int]:
    """Return the sizes of a learner's largest arrays by name, as numbers of elements without padding.

    Args:
        settings: Of the learner.
    """
    sizes = sizes_of(settings)
    found = shapes({**sizes, "stride": sizes["n_features"]})
    return {name: size_of(found[name]) for name in LARGE_ARRAYS}


def new_ledger(settings: Settings) -> Ledger:
    """Return the ledger of a learner that has seen nothing.

    Args:
        settings: Of the learner.
    """
    counters = {counter.name: 0 for counter in COUNTERS} | {
        "warm_up": settings.warm_up_steps,
        "retrain_at": settings.kind.first_fit(settings.shape),
        "link_state": LINK_BINARY if settings.link == AUTO_LINK else 0,
    }
    scalars = {**sizes_of(settings), **_options(settings), **counters, **_parameters(settings)}
    spec = LedgerSpec(scalars, settings.experts, settings.resources, settings.reward_bounds, _booked_bounds(settings))
    ledger = Ledger(spec)
    ledger.view("shares_design")[:] = [_shares_design(settings, expert) for expert in range(len(settings.experts))]
    ledger.view("indicator")[:] = -1
    ledger.view("next_refit")[:] = 1 if settings.refit_used == "always" else FIRST_REFIT
    _write_members(settings, ledger)
    _write_budgets(settings, ledger)
    return ledger


def _booked_bounds(settings: Settings) -> list[tuple[float, float]]:
    return [(0.0, high) for high in settings.largest_costs.max(axis=0).tolist()]


def _options(settings: Settings) -> dict[str, int]:
    return {
        "reward_link": settings.first_link.code,
        "cost_link": link_named(settings.cost_link).code,
        "pacing": settings.strategy.code,
        "refit": REFITS.index(settings.refit_used),
        "refit_limit": FOREVER if settings.refit_used == "always" else settings.refit_limit,
        "printed_costs": settings.printed_costs,
        "fisher": settings.weighted,
        "one_index": settings.exploration.rule == INDEX,
        "sampled": settings.exploration.sampled,
        "frozen": settings.kind.frozen,
        "width_member": settings.width_member,
        "has_prior": settings.confidence is not None or settings.kind.has_prior(settings.shape),
        "free_exploration": settings.explores_free,
        "catches_up": settings.catches_up,
        "drift_test": settings.tests_drifts,
        "joint": settings.has_new_defaults,
        "key": int(np.random.SeedSequence(int(settings.seed)).generate_state(1, np.uint64).view(np.int64)[0]),
    }


def _parameters(settings: Settings) -> dict[str, float]:
    exploration = settings.exploration
    return {
        "ridge": settings.ridge_used,
        "scale": settings.scale_used,
        "noise": math.nan if exploration.noise is None else exploration.noise,
        "delta": math.nan if exploration.delta is None else exploration.delta,
        "kappa": exploration.kappa,
        "floor": settings.explore_floor,
        "prior": exploration.prior,
        "least_reward": settings.reward_bounds[0],
        "largest_reward": settings.reward_bounds[1],
        "model_share": MODEL_SHARE if settings.has_new_defaults else 1.0,
        "noise_samples": settings.noise_samples,
        "noise_variance": settings.noise_variance_with(settings.first_link),
        "rank_length": 1.0 / math.sqrt(1.0 + settings.n_features),
        "intercept": _intercept(settings),
        "dimension": settings.n_features + 1 if settings.has_ranks else sizes_of(settings)["n_features"],
        "identity_ridge": settings.ridge_with(LINKS["identity"]),
        "identity_scale": settings.scale_with(LINKS["identity"]),
        "identity_variance": settings.noise_variance_with(LINKS["identity"]),
    }


def _intercept(settings: Settings) -> float:
    """Return the constant behind the features of a vector, for the prior; named features have one of the encoder."""
    if settings.confidence is None or settings.kind.trains:
        return 0.0
    return 1.0 / math.sqrt(1.0 + settings.n_features)


def _prior_rewards(settings: Settings, *, identity: bool) -> tuple[NDArray[np.float64], float]:
    """Return the prior reward of each decider at a middle rank of the confidence, and the model's slope on the rank."""
    model, slope, expert = IDENTITY_PRIOR if identity else LOGISTIC_PRIOR
    means = np.array([model, *(expert for _ in settings.experts)])
    if not identity:
        return means, slope
    low, high = settings.reward_bounds
    return low + means * (high - low), slope * (high - low)


def write_prior(settings: Settings, ledger: Ledger, encoder: Encoder | None) -> None:
    """Write the prior coefficients: what the model's confidence says of its reward, and that experts are good.

    The reward of the model starts at an intercept and a slope on the rank of the confidence; those of the experts are
    constant. Members that read values have the constants alone: a value of 0.9 means something else to each model.
    """
    if settings.confidence is None:
        return
    if encoder is None:
        at, size = ledger.get("n_given"), ledger.parameter("intercept")
    else:
        at, size = 0, 1.0 / math.sqrt(1 + len(encoder.features)) if encoder.intercept else 0.0
    ranks, length = ledger.get("n_views") - 1 if settings.has_ranks else -1, ledger.parameter("rank_length")
    switched = ledger.get("reward_link") == LINKS["identity"].code
    for name, identity in (("prior_theta", switched), ("identity_prior", True)):
        means, slope = _prior_rewards(settings, identity=identity)
        prior = ledger.view(name).reshape(len(settings.members), settings.shape.n_targets, -1)
        for member, theta in zip(settings.members, prior, strict=True):
            if member.view == ranks:
                theta[: len(means), 0] = means / length
                theta[0, 1 + settings.confidence] = slope / length
            elif size > 0.0:
                theta[: len(means), at] = means / size
    # A learner that was saved before its first outcome has its coefficients already: those of columns are in them, too.
    if ledger.next_id == 0 and not ledger.view("n_observed").any():
        ledger.core.initialise()


def _shares_design(settings: Settings, expert: int) -> bool:
    """Whether the costs of an expert can share the design of its reward: exact updates of the same view."""
    exact = settings.first_link.exact_updates and link_named(settings.cost_link).exact_updates
    first = len(settings.deciders) + expert * len(settings.budget)
    views = {settings.views[expert + 1], *settings.views[first : first + len(settings.budget)]}
    return exact and len(views) == 1 and not settings.kind.frozen


def _write_members(settings: Settings, ledger: Ledger) -> None:
    members = settings.members
    ledger.view("member_prior")[:] = [member.prior for member in members]
    ledger.view("forget_every")[:] = [member.forget_every for member in members]
    ledger.view("keep")[:] = [member.keep for member in members]
    ledger.view("member_weight")[:] = ledger.view("member_prior")
    ledger.view("view")[:] = [
        view if member.view is None else member.view for member in members for view in settings.views
    ]


def _write_budgets(settings: Settings, ledger: Ledger) -> None:
    budgets, strategy, given = settings.budgets, settings.strategy, list(settings.budget.values())
    ledger.view("total")[:], ledger.view("horizon")[:] = budgets
    ledger.view("timing")[:] = [settings.timing_of(each) for each in given]
    ledger.view("allowance")[:] = [0.0 if each.every is None else each.total for each in given]
    ledger.view("carry")[:] = [each.carry for each in given]
    ledger.view("period_start")[:], ledger.view("period_end")[:] = math.nan, math.nan
    ledger.view("clock")[:] = START_OF_TIME
    automatic = [math.nan if each.hold != AUTO else HOLD_MEANS for each in given]
    ledger.view("hold_means")[:] = automatic
    ledger.view("hold_fixed")[:] = [math.nan if isinstance(each.hold, str) else _number(each.hold) for each in given]
    ledger.view("limit")[:] = [_number(each.limit) for each in given]
    ledger.view("cap")[:] = settings.caps
    ledger.view("max_cost")[:] = settings.caps.max(axis=0)  # NaN if it is unknown of one expert
    ledger.view("known_cost")[:] = [_number(each.fixed_cost) for each in given]
    ledger.view("pacing_constant")[:] = strategy.constants(settings.pacing.parameters, budgets)
    strategy.start(ledger.dual, budgets, settings.warm_up_steps)


def _number(given: float | None) -> float:
    return math.nan if given is None else given
