"""Needed budgets are solved for: new budgets are measured around each until those on either side of it are close."""

from collections.abc import Sequence
from dataclasses import replace

from deferkit.study.plan import Plan
from deferkit.study.plan_need import next_shares
from deferkit.study.trial_store import Trial

ROUNDS = 8  # at most: every other one halves what is left
MOST_EXTRA = 30_000_000  # decisions beside those of the plan itself; the learner's come first
UNSOLVED = "random"  # not shown among needed budgets


def next_trials(plan: Plan, trials: Sequence[Trial], *, halve: bool) -> list[Trial]:
    """Return the trials that tell the needed budgets of a plan better; none if all are known closely enough.

    Args:
        plan: What the trials so far came to.
        trials: These trials.
        halve: Measure in the middle of the budgets on either side, instead of close to where the line crosses.
    """
    templates = {spec.policy: spec for spec, _ in trials}
    known = {(spec.policy, spec.budget) for spec, _ in trials}
    wanted: dict[tuple[str, str], None] = {}
    for curve in plan.curves:
        needs = [*curve.needed, *(curve.needed_of_own if curve is plan.learner else ())]
        for found in needs if curve.policy != UNSOLVED and not plan.free else ():
            for share in next_shares(found, plan.everything, halve=halve):
                if (key := (curve.policy, f"{share:.5g}%")) not in known:
                    wanted[key] = None
    extra = len(known) - len(plan.curves) * len(plan.shares)
    room = max(0, MOST_EXTRA // (plan.n_tasks * len(plan.seeds)) - extra)
    first = sorted(wanted, key=lambda key: key[0] != plan.learner.policy)[:room]
    return [(replace(templates[policy], budget=text), seed) for seed in plan.seeds for policy, text in first]
