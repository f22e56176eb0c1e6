"""The steps that change a learner: commit a decision, observe its outcome, expire it.

The one-at-a-time calls and the bulk loop (`loop.py`) are made of the same steps. The steps check nothing that a
caller can get wrong; that is done before them, so that a step either happens or does not.
"""

import math

import numpy as np

from deferkit.learn.arrays import (
    ENCODING,
    MEMORY,
    MEND,
    N_BUDGET,
    N_EXPERTS,
    N_EXPIRED,
    N_FORCED,
    N_RESOURCES,
    N_SEEN,
    N_VIEWS,
    NEXT_ID,
    OWED,
    RETRAIN_AT,
    SLOT,
    STRIDE,
    Floats,
    Ints,
    places,
)
from deferkit.learn.choose import FORCED, NO_BUDGET
from deferkit.learn.compiled import compiled, inlined
from deferkit.learn.glm import absorb_one, absorb_together, part
from deferkit.learn.pacing import left, pace
from deferkit.learn.precision import copy_vector

ROUNDING = 1e-12  # of the total: less than that is no overrun but what sums of decimals come to

# What has become of a decision.
OPEN = 1  # an expert was asked; the cost is not known, so budget is held
SETTLED = 2  # the cost is booked, or the model decided
EXPIRED = 3  # the reservation was released without a cost


@compiled
def commit(f: Floats, z: Ints, route: int, reason: int, cost: int, hold: int) -> None:
    """Write down the decision on the task in `At.x`: hold its reservation, move the price."""
    at = places(z)
    if z[OWED] == 1:
        pace(f, z, at.price, at.owed)
        z[OWED] = 0
    resources = z[N_RESOURCES]
    slot = z[SLOT]
    z[SLOT] = slot + 1 if slot + 1 < z[MEMORY] else 0
    z[NEXT_ID] += 1
    z[at.n_routed + route] += 1
    z[N_FORCED] += reason == FORCED
    z[N_BUDGET] += reason == NO_BUDGET
    w = z[STRIDE] * z[N_VIEWS]
    copy_vector(f, at.x, at.context + slot * w, w)
    z[at.route + slot] = route
    z[at.status + slot] = OPEN if route > 0 else SETTLED
    for decider in range(z[N_EXPERTS] + 1):
        f[at.reward + slot * (z[N_EXPERTS] + 1) + decider] = np.nan
    for r in range(resources):
        place = slot * resources + r
        f[at.cost + place] = np.nan if route > 0 else 0.0
        f[at.held + place] = f[hold + r]
        f[at.reserved + r] += f[hold + r]
        f[at.owed + r] = f[cost + r]
    if route > 0:
        z[OWED] = 1
    else:
        pace(f, z, at.price, at.owed)


@inlined
def release(f: Floats, z: Ints, slot: int) -> None:
    """Give a reservation back."""
    at = places(z)
    for r in range(z[N_RESOURCES]):
        place = slot * z[N_RESOURCES] + r
        f[at.reserved + r] = max(0.0, f[at.reserved + r] - f[at.held + place])
        f[at.held + place] = 0.0


@inlined
def book(f: Floats, z: Ints, slot: int, cost: int) -> None:
    """Release a reservation and book the true cost; what does not fit the budget is an overrun."""
    at = places(z)
    release(f, z, slot)
    for r in range(z[N_RESOURCES]):
        c = f[cost + r]
        room = left(f, z, r)
        if c <= room:
            f[at.spent + r] += c
        else:
            f[at.spent + r] += max(room, 0.0)
            if c - max(room, 0.0) > ROUNDING * f[at.total + r]:
                f[at.overrun + r] += c - max(room, 0.0)
        f[at.cost + slot * z[N_RESOURCES] + r] = c
        f[at.largest + r] = max(f[at.largest + r], c)
        f[at.cost_sum + r] += c
        f[at.cost_n + r] += 1.0
    z[at.status + slot] = SETTLED


@inlined
def absorb(f: Floats, z: Ints, samples: Floats, route: int, x: int, reward: int, cost: int) -> None:
    """Learn what has newly become known of a task, NaN where nothing has. Needs `prepare`."""
    at = places(z)
    experts, resources = z[N_EXPERTS], z[N_RESOURCES]
    together = 0  # the expert whose reward and cost were learned at once
    if route > 0:
        has_reward, has_cost = not math.isnan(f[reward + route]), not math.isnan(f[cost])
        if has_reward and has_cost and z[at.follows + route - 1] == 1:
            absorb_together(f, z, route - 1, x, f[reward + route], cost)
            together = route
    expert = 0
    resource = -1  # the reward
    for target in range(1 + experts * (1 + resources)):
        if target <= experts:
            expert = target
            y = f[reward + target]
        else:
            # costs lie by expert, then by resource; counting along is faster than dividing
            resource += 1
            if resource in (0, resources):
                expert = 1 if target == experts + 1 else expert + 1
                resource = 0
            y = f[cost + resource] if expert == route else np.nan
        if not math.isnan(y) and (expert == 0 or expert != together):
            if expert > 0:
                part(f, z, expert - 1)
            absorb_one(f, z, samples, target, x, y)


@compiled
def observe(f: Floats, z: Ints, samples: Floats, decision: int, slot: int) -> None:
    """Book and learn `At.new_reward` and `At.new_cost` of a decision. Needs `prepare`."""
    at = places(z)
    deciders = z[N_EXPERTS] + 1
    new = 0
    for decider in range(deciders):
        if not math.isnan(f[at.new_reward + decider]):
            f[at.reward + slot * deciders + decider] = f[at.new_reward + decider]
            new = 1
    route = z[at.route + slot]
    if z[ENCODING] == 0:
        x = at.context + slot * z[STRIDE] * z[N_VIEWS]
        absorb(f, z, samples, route, x, at.new_reward, at.new_cost)
    if route > 0 and not math.isnan(f[at.new_cost]):
        book(f, z, slot, at.new_cost)
        if z[OWED] == 1 and decision == z[NEXT_ID] - 1:
            pace(f, z, at.price, at.new_cost)
            z[OWED] = 0
        new = 1
    z[N_SEEN] += new
    if z[N_SEEN] >= z[RETRAIN_AT]:
        z[MEND] = 1  # the caller retrains the embedding


@compiled
def expire(f: Floats, z: Ints, slot: int) -> None:
    """Release the reservation of a decision that will not hear back."""
    at = places(z)
    release(f, z, slot)
    z[at.status + slot] = EXPIRED
    z[N_EXPIRED] += 1
