"""The state of a learner that has seen nothing: settings written to the arrays of a ledger."""

import math

import numpy as np

from deferkit.learn.core import REFITS
from deferkit.learn.core.layout import COUNTERS, whole_lanes
from deferkit.learn.embed import tree_views
from deferkit.learn.exploration import INDEX
from deferkit.learn.ledger import Ledger, LedgerSpec
from deferkit.learn.links import link_named
from deferkit.learn.settings import FIRST_REFIT, FOREVER, Settings
from deferkit.periods import START_OF_TIME
from deferkit.types import AUTO

HOLD_MEANS = 3.0  # the hold "auto", in mean costs


def sizes_of(settings: Settings) -> dict[str, int]:
    """Return the sizes of the arrays, by their names in `layout.py`.

    Args:
        settings: Of the learner.
    """
    width, n_views = settings.n_features, 1
    if settings.embedding is not None:
        width, n_views = settings.embedding.width(settings.shape), max(settings.views) + 1
    elif settings.representation == "auto":
        width, n_views = tree_views.width_of(settings.shape), tree_views.N_VIEWS
    n_resources, strategy = len(settings.budget), settings.strategy
    members = settings.members
    return {
        "n_features": width,
        "stride": whole_lanes(width),
        "n_experts": len(settings.experts),
        "n_resources": n_resources,
        "n_targets": settings.shape.n_targets,
        "n_members": len(members),
        "n_lasting": sum(member.forget_every == 0 for member in members),
        "n_views": n_views,
        "memory": settings.memory,
        "overflow": 0,
        "window": whole_lanes(settings.remembered_contexts),
        "n_dual": n_resources + strategy.memory_size(n_resources),
        "n_pacing": len(strategy.constants(settings.pacing.parameters, settings.budgets)),
    }


def new_ledger(settings: Settings) -> Ledger:
    """Return the ledger of a learner that has seen nothing.

    Args:
        settings: Of the learner.
    """
    counters = {counter.name: 0 for counter in COUNTERS} | {
        "warm_up": settings.warm_up_steps,
        "retrain_at": settings.first_fit,
    }
    scalars = {**sizes_of(settings), **_options(settings), **counters, **_parameters(settings)}
    spec = LedgerSpec(scalars, settings.experts, settings.resources, settings.reward_bounds, settings.cost_bounds)
    ledger = Ledger(spec)
    ledger.view("shares_design")[:] = [_shares_design(settings, expert) for expert in range(len(settings.experts))]
    ledger.view("next_refit")[:] = 1 if settings.refit_used == "always" else FIRST_REFIT
    _write_members(settings, ledger)
    _write_budgets(settings, ledger)
    return ledger


def _options(settings: Settings) -> dict[str, int]:
    return {
        "reward_link": link_named(settings.link).code,
        "cost_link": link_named(settings.cost_link).code,
        "pacing": settings.strategy.code,
        "refit": REFITS.index(settings.refit_used),
        "refit_limit": FOREVER if settings.refit_used == "always" else settings.refit_limit,
        "printed_costs": settings.printed_costs,
        "fisher": settings.weighted,
        "one_index": settings.exploration.rule == INDEX,
        "sampled": settings.exploration.sampled,
        "frozen": settings.embedding is not None and settings.embedding.frozen,
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
    }


def _shares_design(settings: Settings, expert: int) -> bool:
    """Whether the costs of an expert can share the design of its reward: exact updates of the same view."""
    exact = link_named(settings.link).exact_updates and link_named(settings.cost_link).exact_updates
    first = len(settings.deciders) + expert * len(settings.budget)
    views = {settings.views[expert + 1], *settings.views[first : first + len(settings.budget)]}
    frozen = settings.embedding is not None and settings.embedding.frozen
    return exact and len(views) == 1 and not frozen


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
    ledger.view("max_cost")[:] = [_number(each.max_cost) for each in given]
    ledger.view("pacing_constant")[:] = strategy.constants(settings.pacing.parameters, budgets)
    strategy.start(ledger.dual, budgets, settings.warm_up_steps)


def _number(given: float | None) -> float:
    return math.nan if given is None else given
