"""The step that chooses: score a task, and propose who decides it. It changes nothing but scratch.

Like the steps of `account.py` it is compiled, there is no second version of it, and it checks nothing that a caller
can get wrong; that is done before.
"""

import math

import numpy as np

from deferkit.learn.arrays import (
    COST_LINK,
    DELTA,
    FLOOR,
    KAPPA,
    KEY,
    N_EXPERTS,
    N_FEATURES,
    N_RESOURCES,
    NEXT_ID,
    NOISE,
    OWED,
    PRINTED_COSTS,
    PRIOR,
    REWARD_LINK,
    RIDGE,
    SAMPLED,
    SCALE,
    STRIDE,
    WARM_UP,
    Floats,
    Ints,
    places,
)
from deferkit.learn.compiled import compiled, inlined
from deferkit.learn.glm import link_of, predict
from deferkit.learn.links import IDENTITY, mean
from deferkit.learn.pacing import left, pace
from deferkit.learn.precision import copy, dot, multiply

# Why a decision went where it went; the words are `deferkit.types.REASONS`.
WARM = 0
WORTH_IT = 1
NOT_WORTH_IT = 2
NO_BUDGET = 3
FORCED = 4
EXPLORED = 5
UNAVAILABLE = 6
UNSETTLED = 7

FIRST_SHARE = 0.01  # of the budget: held for a decision before any cost was ever seen
BLIND_SHARE = 0.05  # of the budget: held for all decisions together until then, unless one alone needs more


@inlined
def uniform(key: int, decision: int, draw: int) -> float:
    """Return a number in [0, 1) that depends on nothing else: SplitMix64 on a counter.

    A stream that is a function of the decision's number needs no state to save and none to rewind.
    """
    z = np.uint64(key) + np.uint64(2 * decision + draw + 1) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.float64(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@compiled
def gaussian(key: int, decision: int, draw: int) -> float:
    """Return a standard normal number that depends on nothing else (Box & Muller), from a stream of its own."""
    other = key ^ (0x5851F42D4C957F2D + draw)
    radius = math.sqrt(-2.0 * math.log(1.0 - uniform(other, decision, 0)))
    return radius * math.cos(2.0 * math.pi * uniform(other, decision, 1))


@inlined
def noise_factor(f: Floats, z: Ints, target: int) -> float:
    """Return scale times the noise of an estimate, known or estimated."""
    at = places(z)
    noise = f[NOISE]
    if math.isnan(noise):
        noise = math.sqrt(f[at.misfit + target] / max(z[at.n_observed + target], 1))
    return f[SCALE] * noise


@inlined
def prior_factor(f: Floats, z: Ints) -> float:
    """Return what is added for rewards of which nothing is known yet.

    Where nothing was ever seen the ridge makes an estimate 0: that is ignorance, not knowledge.
    """
    at = places(z)
    if f[PRIOR] <= 0.0 or z[REWARD_LINK] != IDENTITY:
        return 0.0
    return f[PRIOR] * math.sqrt(f[RIDGE] * f[at.power] / max(f[at.power + 1], 1.0))


@inlined
def growth(f: Floats, z: Ints) -> float:
    """Return what the printed β(t) has beside the noise; 1 for a width that does not grow."""
    if math.isnan(f[DELTA]):
        return 1.0
    d, t = z[N_FEATURES], z[NEXT_ID] + 1
    return math.sqrt(2.0 * d * math.log((1.0 + 2.0 * t * d) / f[DELTA])) / f[KAPPA]


@inlined
def prepare_design(f: Floats, z: Ints, design: int, x: int) -> None:
    """Write inverse · x and xᵀ · inverse · x of one design."""
    at = places(z)
    w = z[STRIDE]
    product = at.product + design * w
    multiply(f, at.inverse + design * w * w, x, product, w)
    f[at.spread + design] = max(0.0, dot(f, x, product, w))


@inlined
def prepare(f: Floats, z: Ints, x: int) -> None:
    """Write what scoring and learning a context both need: products, spreads and predictors."""
    at = places(z)
    experts, resources = z[N_EXPERTS], z[N_RESOURCES]
    predict(f, z, x, at.predictor)
    for target in range(1 + experts):
        prepare_design(f, z, target, x + z[at.sees + target])
    target = 1 + experts
    for k in range(experts):
        follows = z[at.follows + k] == 1
        for _ in range(resources):
            if follows:
                f[at.spread + target] = f[at.spread + k + 1]
            else:
                prepare_design(f, z, target, x + z[at.sees + target])
            target += 1


@inlined
def score(f: Floats, z: Ints, x: int) -> None:
    """Write estimates, widths and optimistic values of all rewards and costs (Definition 4.2)."""
    at = places(z)
    prepare(f, z, x)
    prior = prior_factor(f, z)
    grown = growth(f, z)
    for target in range(1 + z[N_EXPERTS] * (1 + z[N_RESOURCES])):
        link = link_of(z, target)
        predictor = f[at.predictor + target]
        factor = noise_factor(f, z, target) * grown + (prior if target <= z[N_EXPERTS] else 0.0)
        width = factor * math.sqrt(f[at.spread + target])
        f[at.estimate + target] = mean(link, predictor)
        f[at.width + target] = width
        if z[SAMPLED] == 1:
            drawn = predictor + width * gaussian(z[KEY], z[NEXT_ID], target)
            f[at.optimistic + target] = mean(link, drawn)
        elif target <= z[N_EXPERTS]:
            f[at.optimistic + target] = mean(link, predictor + width)
        else:
            low = mean(link, predictor - width)
            f[at.optimistic + target] = low if z[PRINTED_COSTS] == 1 else max(0.0, low)


@inlined
def reserve(f: Floats, z: Ints) -> None:
    """Write what would be held for each expert and resource."""
    at = places(z)
    for r in range(z[N_RESOURCES]):
        hold = f[at.max_cost + r]
        if math.isnan(hold):
            hold = FIRST_SHARE * f[at.total + r]
            if f[at.cost_n + r] > 0.0 or not math.isfinite(hold):
                hold = f[at.largest + r]
        for k in range(z[N_EXPERTS]):
            known = f[at.known + k * z[N_RESOURCES] + r]
            f[at.hold + k * z[N_RESOURCES] + r] = hold if math.isnan(known) else known


@inlined
def affordable(f: Floats, z: Ints, expert: int) -> bool:
    """Whether what would be held for an expert is still free."""
    at = places(z)
    for r in range(z[N_RESOURCES]):
        if f[at.hold + expert * z[N_RESOURCES] + r] > left(f, z, r) or f[at.total + r] <= 0.0:
            return False
    return True


@inlined
def blind(f: Floats, z: Ints, expert: int) -> bool:
    """Whether to ask an expert would be to hold much of a budget before anything was heard of what is asked already.

    Without this, a stream that is faster than its first outcome would reserve all there is, knowing nothing.
    """
    at = places(z)
    for r in range(z[N_RESOURCES]):
        held = f[at.reserved + r]
        all_held = held + f[at.hold + expert * z[N_RESOURCES] + r]
        if f[at.cost_n + r] == 0.0 and held > 0.0 and all_held > BLIND_SHARE * f[at.total + r]:
            return True
    return False


@inlined
def expected_cost(f: Floats, z: Ints, expert: int, resource: int) -> float:
    """Return the cost that is known, or the estimate of it."""
    at = places(z)
    place = expert * z[N_RESOURCES] + resource
    known = f[at.known + place]
    return max(0.0, f[at.estimate + 1 + z[N_EXPERTS] + place]) if math.isnan(known) else known


@inlined
def worth(f: Floats, z: Ints, decider: int) -> float:
    """Return the optimistic reward of a decider less the price of its optimistic cost."""
    at = places(z)
    value = f[at.optimistic + decider]
    for r in range(z[N_RESOURCES]):
        price = f[at.peek + r]
        if decider > 0:
            place = (decider - 1) * z[N_RESOURCES] + r
            cost = f[at.known + place]
            if math.isnan(cost):
                cost = f[at.optimistic + 1 + z[N_EXPERTS] + place]
            value -= price * cost
        elif z[PRINTED_COSTS] == 1:
            # As printed, the model's cost has an optimistic estimate too: that of 0.
            value -= price * mean(z[COST_LINK], -f[at.width])
    return value


@inlined
def chance(f: Floats, z: Ints, best: int) -> float:
    """Return how likely the best decider was to be the best: 1, unless values are drawn.

    They are drawn with one expert and identity links only: then the difference of the two values is normal.
    """
    at = places(z)
    if z[SAMPLED] == 0:
        return 1.0
    ahead = f[at.predictor + 1] - f[at.predictor]
    variance = f[at.width] ** 2 + f[at.width + 1] ** 2
    for r in range(z[N_RESOURCES]):
        price, known = f[at.peek + r], f[at.known + r]
        if math.isnan(known):
            ahead -= price * f[at.predictor + 2 + r]
            variance += (price * f[at.width + 2 + r]) ** 2
        else:
            ahead -= price * known
    if variance == 0.0:
        return 1.0
    asked = 0.5 * math.erfc(-ahead / math.sqrt(2.0 * variance))
    return asked if best > 0 else 1.0 - asked


@compiled
def pick(f: Floats, z: Ints, available: int, place: int) -> int:
    """Return the decider at this place among the model and the experts that can be asked."""
    if place > 0:
        for k in range(z[N_EXPERTS]):
            if (available >> k) & 1 == 1 and affordable(f, z, k) and not blind(f, z, k):
                place -= 1
                if place == 0:
                    return k + 1
    return 0


@inlined
def stranger(f: Floats, z: Ints, available: int) -> int:
    """Return an expert who can be asked and of whom nothing is known, because the coins of the warm-up fell so; or 0.

    Optimism does not see to it: where it is measured in noise, there is none to be seen in nothing.
    """
    at = places(z)
    if z[WARM_UP] > 0:
        for k in range(z[N_EXPERTS]):
            new = z[at.n_routed + k + 1] == 0 and z[at.n_observed + k + 1] == 0
            if new and (available >> k) & 1 == 1 and affordable(f, z, k) and not blind(f, z, k):
                return k + 1
    return 0


@compiled
def propose(f: Floats, z: Ints, available: int, force: int) -> tuple[int, int, float]:
    """Return route, reason and propensity for the task in `At.x`; the scores and the price stay in the scratch."""
    at = places(z)
    score(f, z, at.x)
    reserve(f, z)
    copy(f, at.price, at.peek, 3 * z[N_RESOURCES] + 1)
    if z[OWED] == 1:
        pace(f, z, at.peek, at.owed)
    if force >= 0:
        return force, FORCED, 1.0

    excuse = UNAVAILABLE
    choices = 1
    best = 0
    best_value = worth(f, z, 0)
    for k in range(z[N_EXPERTS]):
        if (available >> k) & 1 == 1:
            if not affordable(f, z, k):
                excuse = UNSETTLED if excuse == UNSETTLED else NO_BUDGET
            elif blind(f, z, k):
                excuse = UNSETTLED
            else:
                choices += 1
                value = worth(f, z, k + 1)
                if value > best_value:
                    best_value = value
                    best = k + 1
    if choices == 1:
        return 0, excuse, 1.0

    decision = z[NEXT_ID]
    if decision < z[WARM_UP]:
        place = int(uniform(z[KEY], decision, 0) * choices)
        return pick(f, z, available, place), WARM, 1.0 / choices
    reason = WORTH_IT if best > 0 else NOT_WORTH_IT
    likely = chance(f, z, best)
    new = stranger(f, z, available)
    if new > 0:
        best, reason, likely = new, WARM, 1.0
    floor = f[FLOOR]
    if floor > 0.0 and uniform(z[KEY], decision, 0) < floor:
        route = pick(f, z, available, int(uniform(z[KEY], decision, 1) * choices))
        return route, EXPLORED, floor / choices + (1.0 - floor) * (likely if route == best else 1.0 - likely)
    return best, reason, (1.0 - floor) * likely + floor / choices
