"""What Python calls: each entry is made of the steps, for one task or for a whole stream in one go."""

import math

import numpy as np

from deferkit.learn.account import absorb, commit, observe
from deferkit.learn.arrays import (
    FROZEN,
    MEND,
    N_EXPERTS,
    N_FEATURES,
    N_RESOURCES,
    N_VIEWS,
    NEXT_ID,
    RIDGE,
    SAMPLED,
    SLOT,
    STRIDE,
    Floats,
    Ints,
    places,
)
from deferkit.learn.choose import expected_cost, prepare, propose
from deferkit.learn.compiled import compiled, inlined
from deferkit.learn.glm import design_of, link_of, relabel
from deferkit.learn.lanes import N_LANES, load, store
from deferkit.learn.links import IDENTITY
from deferkit.learn.pacing import left
from deferkit.learn.precision import add_scaled, birth, dot
from deferkit.types import LARGEST

FULL = 0
BANDIT = 1
REVIEWED = 2
FEEDBACKS = {"full": FULL, "bandit": BANDIT, "reviewed": REVIEWED}

# The record of a proposal starts with these, then come price, budget left, held and expected cost [R] each,
# then estimates and widths [G] each.
ROUTE = 0
REASON = 1
PROPENSITY = 2
N_RECORD = 3


def record_length(experts: int, resources: int) -> int:
    """Return the length of the record of a proposal."""
    return N_RECORD + 4 * resources + 2 * (1 + experts + experts * resources)


@inlined
def record(f: Floats, z: Ints, route: int, reason: int, propensity: float, records: Floats, row: int) -> None:
    """Write down what an auditor needs."""
    at = places(z)
    resources = z[N_RESOURCES]
    records[row, ROUTE] = route
    records[row, REASON] = reason
    records[row, PROPENSITY] = propensity
    for r in range(resources):
        place = (route - 1) * resources + r
        records[row, N_RECORD + r] = f[at.peek + r]
        records[row, N_RECORD + resources + r] = left(f, z, r)
        held = f[at.hold + place] if route > 0 else 0.0
        cost = expected_cost(f, z, route - 1, r) if route > 0 else 0.0
        records[row, N_RECORD + 2 * resources + r] = held
        records[row, N_RECORD + 3 * resources + r] = cost
    first = N_RECORD + 4 * resources
    n = 1 + z[N_EXPERTS] * (1 + resources)
    for target in range(n):
        records[row, first + target] = f[at.estimate + target]
        reach = abs(f[at.optimistic + target] - f[at.estimate + target])
        records[row, first + n + target] = f[at.width + target] if z[SAMPLED] == 1 else reach
    for place in range(z[N_EXPERTS] * resources):
        if not math.isnan(f[at.known + place]):
            target = first + 1 + z[N_EXPERTS] + place
            records[row, target] = f[at.known + place]
            records[row, target + n] = 0.0


@inlined
def take(f: Floats, z: Ints, contexts: Floats, row: int) -> None:
    """Copy a context, its views one behind the other, to where the steps look for it."""
    at = places(z)
    d, w = z[N_FEATURES], z[STRIDE]
    whole = d - d % N_LANES
    for v in range(z[N_VIEWS]):
        to, start = at.x + v * w, v * d
        for i in range(0, whole, N_LANES):
            store(f, to + i, load(contexts, row * contexts.shape[1] + start + i))
        for i in range(whole, d):
            f[to + i] = contexts[row, start + i]


@inlined
def commit_proposed(f: Floats, z: Ints, route: int, reason: int) -> None:
    """Commit what was just proposed."""
    at = places(z)
    resources = z[N_RESOURCES]
    for r in range(resources):
        # `new_cost` and the first row of `hold` are free until the next step
        f[at.new_cost + r] = expected_cost(f, z, route - 1, r) if route > 0 else 0.0
        f[at.hold + r] = f[at.hold + (route - 1) * resources + r] if route > 0 else 0.0
    commit(f, z, route, reason, at.new_cost, at.hold)


@compiled
def first_bad(contexts: Floats) -> int:
    """Return the first row with a number that is not finite, or too large to work with, or −1."""
    for t in range(contexts.shape[0]):
        for i in range(contexts.shape[1]):
            if not abs(contexts[t, i]) <= LARGEST:
                return t
    return -1


@compiled
def start(f: Floats, z: Ints) -> None:
    """Give birth to every design of an empty learner."""
    at = places(z)
    d, w = z[N_FEATURES], z[STRIDE]
    for design in range(1 + z[N_EXPERTS] * (1 + z[N_RESOURCES])):
        birth(f, at.precision + design * w * w, at.inverse + design * w * w, f[RIDGE], d, w)


@compiled
def propose_many(f: Floats, z: Ints, contexts: Floats, available: int, force: int, records: Floats) -> None:
    """Write a record for each context, as if each came next; change nothing but scratch."""
    for t in range(contexts.shape[0]):
        take(f, z, contexts, t)
        route, reason, propensity = propose(f, z, available, force)
        record(f, z, route, reason, propensity, records, t)


@compiled
def decide_many(f: Floats, z: Ints, contexts: Floats, available: int, records: Floats) -> int:
    """Propose and commit, one task after the other; or do nothing and return a row that is not finite."""
    bad = first_bad(contexts)
    if bad >= 0:
        return bad
    for t in range(contexts.shape[0]):
        take(f, z, contexts, t)
        route, reason, propensity = propose(f, z, available, -1)
        record(f, z, route, reason, propensity, records, t)
        commit_proposed(f, z, route, reason)
    return -1


@compiled
def commit_one(f: Floats, z: Ints, contexts: Floats, route: int, reason: int, amounts: Floats) -> None:
    """Commit a decision that was proposed before, here or elsewhere: expected costs, then reservations."""
    at = places(z)
    take(f, z, contexts, 0)
    resources = z[N_RESOURCES]
    for r in range(resources):
        f[at.new_cost + r] = amounts[0, r]
        f[at.hold + r] = amounts[1, r]
    commit(f, z, route, reason, at.new_cost, at.hold)


@compiled
def observe_one(f: Floats, z: Ints, samples: Floats, decision: int, slot: int) -> None:
    """Book and learn what was written to `At.new_reward` and `At.new_cost`."""
    at = places(z)
    prepare(f, z, at.context + slot * z[STRIDE] * z[N_VIEWS])
    observe(f, z, samples, decision, slot)


@compiled
def absorb_many(
    f: Floats,
    z: Ints,
    samples: Floats,
    contexts: Floats,
    whose: Ints,
    rewards: Floats,
    costs: Floats,
    first: int,
) -> int:
    """Learn from tasks that were decided elsewhere; `whose` says which expert cost that, 0 for nobody.

    Return how far it came: it stops where something is to be mended.
    """
    at = places(z)
    for t in range(first, contexts.shape[0]):
        take(f, z, contexts, t)
        for decider in range(z[N_EXPERTS] + 1):
            f[at.new_reward + decider] = rewards[t, decider]
        for r in range(z[N_RESOURCES]):
            f[at.new_cost + r] = costs[t, r]
        prepare(f, z, at.x)
        absorb(f, z, samples, whose[t], at.x, at.new_reward, at.new_cost)
        if z[MEND] == 1:
            return t + 1
    return contexts.shape[0]


@compiled
def correct_one(f: Floats, z: Ints, samples: Floats, slot: int, target: int, old: float, new: float) -> None:
    """Learn that a sample was not `old` but `new`: exact for the identity link, one Newton step for another."""
    at = places(z)
    w = z[STRIDE]
    context = at.context + slot * w * z[N_VIEWS]
    x = context + z[at.sees + target]
    theta, moment = at.theta + target * w, at.moment + target * w
    if target <= z[N_EXPERTS]:
        f[at.power] = max(0.0, f[at.power] + (new * new - old * old))
    if z[FROZEN] == 1:
        return
    prepare(f, z, context)
    before = dot(f, moment, theta, w)
    add_scaled(f, theta, new - old, at.product + design_of(z, target) * w, w)
    add_scaled(f, moment, new - old, x, w)
    if link_of(z, target) == IDENTITY:
        # the penalised sum of squares is Σy² − θᵀΣxy
        change = (new * new - old * old) - (dot(f, moment, theta, w) - before)
        f[at.misfit + target] = max(0.0, f[at.misfit + target] + change)
    else:
        relabel(f, z, samples, target, x, old, new)


@compiled
def run_many(
    f: Floats,
    z: Ints,
    samples: Floats,
    contexts: Floats,
    rewards: Floats,
    costs: Floats,
    feedback: int,
    routes: Ints,
    reasons: Ints,
    propensities: Floats,
    prices: Floats,
    earned: Floats,
    paid: Floats,
) -> int:
    """Decide and at once observe a stream of tasks: the bulk loop. Costs are [task, expert, resource].

    Return how far it came: it stops where something is to be mended.
    """
    at = places(z)
    everyone = (1 << z[N_EXPERTS]) - 1
    for t in range(contexts.shape[0]):
        take(f, z, contexts, t)
        route, reason, propensity = propose(f, z, everyone, -1)
        routes[t] = route
        reasons[t] = reason
        propensities[t] = propensity
        earned[t] = rewards[t, route]
        for r in range(z[N_RESOURCES]):
            prices[t, r] = f[at.peek + r]
        decision, slot = z[NEXT_ID], z[SLOT]
        commit_proposed(f, z, route, reason)
        for decider in range(z[N_EXPERTS] + 1):
            f[at.new_reward + decider] = np.nan
        if route > 0 or feedback != REVIEWED:
            f[at.new_reward + route] = rewards[t, route]
            if feedback != BANDIT:
                f[at.new_reward] = rewards[t, 0]
        for r in range(z[N_RESOURCES]):
            paid[t, r] = costs[t, route - 1, r] if route > 0 else 0.0
            f[at.new_cost + r] = paid[t, r] if route > 0 else np.nan
        observe(f, z, samples, decision, slot)
        if z[MEND] == 1:
            return t + 1
    return contexts.shape[0]
