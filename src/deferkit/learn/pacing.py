"""The price λ of each resource, and how it moves: once for each decision.

`paper`     the exponentiated gradient as Algorithm 1 prints it, g = γ·(c − B/T)
`gradient`  the same with the gradient of Agrawal & Devanur, g = c − B/T
`adaptive`  λ ← max(0, λ + η·g/√Σg²) with g = (c − left/tasks left) / mean cost
`resolve`   every so often, the price at which the recent contexts would spend left/tasks left

The first two keep log α, because α itself underflows over a long run, and give λ = (T/B)·α/(1 + Σα).
"""

import math
from dataclasses import dataclass

from deferkit.errors import expected
from deferkit.learn.arrays import (
    COST_LINK,
    EVERY,
    MEMORY,
    N_EXPERTS,
    N_RESOURCES,
    N_VIEWS,
    NEXT_ID,
    PACING,
    REWARD_LINK,
    STEP,
    STRIDE,
    WARM_UP,
    WINDOW,
    Floats,
    Ints,
    places,
)
from deferkit.learn.compiled import compiled, inlined
from deferkit.learn.glm import predict
from deferkit.learn.lanes import N_LANES, add, load, multiply_add, spread_out, total, where_greater
from deferkit.learn.links import LOGISTIC, mean
from deferkit.types import is_number, is_whole, plain

PAPER = 0
GRADIENT = 1
RESOLVE = 2
ADAPTIVE = 3
CODES = {"paper": PAPER, "gradient": GRADIENT, "resolve": RESOLVE, "adaptive": ADAPTIVE}

LEAST_BUDGET = 1e-100  # what is below is nothing: T/B would not be a number any more
SWEEPS = 4  # over the resources, for a re-solved price vector
PRECISION = 1e-3  # of a re-solved price, relative


@dataclass(frozen=True, kw_only=True)
class Pacing:
    """How the price moves.

    >>> Pacing(kind="resolve", every=50)
    Pacing(kind='resolve', every=50, window=1000, step=0.3)
    """

    kind: str = "resolve"
    every: int = 200
    """resolve: decisions between two prices, once there are ten times as many."""
    window: int = 1_000
    """resolve: how many of the latest contexts the price is solved for."""
    step: float = 0.3
    """adaptive: η, in units of reward for the mean cost."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", plain(self.step))
        if not isinstance(self.kind, str) or self.kind not in CODES:
            raise expected("pacing", "Deferrer", "one of " + ", ".join(map(repr, CODES)), self.kind)
        for name, least in (("every", 1), ("window", 2)):
            value = getattr(self, name)
            if not is_whole(value, least):
                raise expected(name, "Pacing", f"a whole number of at least {least}", value)
            object.__setattr__(self, name, int(value))
        if not (is_number(self.step) and 0 < self.step < math.inf):
            raise expected("step", "Pacing", "a number above 0", self.step)


@inlined
def left(f: Floats, z: Ints, resource: int) -> float:
    """Return the budget that is neither spent nor reserved."""
    at = places(z)
    return f[at.total + resource] - f[at.spent + resource] - f[at.reserved + resource]


@inlined
def bounded(f: Floats, z: Ints, resource: int) -> bool:
    """Whether there is a price to find: not for a budget of nothing, nor for one without end."""
    at = places(z)
    return LEAST_BUDGET < f[at.total + resource] < math.inf


@inlined
def pace(f: Floats, z: Ints, dual: int, cost: int) -> None:
    """Move the price for the latest decision, which cost (or is expected to cost) this much.

    `dual` is where price, log α, Σg² and the time of the next solution lie, one behind the other: the
    state itself, or a copy of it when a proposal only wants to know.
    """
    kind = z[PACING]
    done = z[NEXT_ID]
    if kind == RESOLVE:
        if done >= f[dual + 3 * z[N_RESOURCES]]:
            solve(f, z, dual, done)
    elif done > z[WARM_UP]:
        if kind == ADAPTIVE:
            adapt(f, z, dual, cost, done)
        else:
            exponentiate(f, z, dual, cost, kind == PAPER)


@inlined
def exponentiate(f: Floats, z: Ints, dual: int, cost: int, printed: bool) -> None:
    """Take one step of the exponentiated gradient on the simplex with a dummy coordinate."""
    at = places(z)
    resources = z[N_RESOURCES]
    log_weight = dual + resources
    unit = f[at.total] / f[at.horizon]
    top = 0.0
    for r in range(resources):
        if bounded(f, z, r):
            rate = f[at.total + r] / f[at.horizon + r]
            g = f[cost + r] - rate
            if r > 0 and bounded(f, z, 0):
                g *= unit / rate  # in the unit of the first, so that weights compare
            if printed:
                g *= f[dual + r] * rate
            f[log_weight + r] += g * f[at.log_up + r] if g >= 0.0 else -g * f[at.log_down + r]
            top = max(top, f[log_weight + r])
    if resources == 1:
        if bounded(f, z, 0):
            f[dual] = mean(LOGISTIC, f[log_weight]) / unit
        return
    below = math.exp(-top)
    for r in range(resources):
        if bounded(f, z, r):
            below += math.exp(f[log_weight + r] - top)
    for r in range(resources):
        if bounded(f, z, r):
            share = math.exp(f[log_weight + r] - top) / below
            f[dual + r] = share * (f[at.horizon + r] / f[at.total + r])


@inlined
def adapt(f: Floats, z: Ints, dual: int, cost: int, done: int) -> None:
    """Take one step of the adaptive gradient."""
    at = places(z)
    squares = dual + 2 * z[N_RESOURCES]
    for r in range(z[N_RESOURCES]):
        tasks = f[at.horizon + r] - done
        if not bounded(f, z, r) or tasks < 1.0 or f[at.cost_sum + r] <= 0.0:
            continue
        unit = f[at.cost_sum + r] / f[at.cost_n + r]
        g = (f[cost + r] - left(f, z, r) / tasks) / unit
        f[squares + r] += g * g
        if f[squares + r] > 0.0:
            step = f[STEP] / unit * g / math.sqrt(f[squares + r])
            f[dual + r] = max(0.0, f[dual + r] + step)


@compiled
def solve(f: Floats, z: Ints, dual: int, done: int) -> None:
    """Set the price at which the latest contexts would spend what is left for each task to come."""
    at = places(z)
    resources = z[N_RESOURCES]
    f[dual + 3 * resources] = done + min(max(done // 10, 1), z[EVERY])
    n = imagine(f, z, done)
    for _ in range(1 if resources == 1 else SWEEPS):
        for r in range(resources):
            tasks = f[at.horizon + r] - done
            if bounded(f, z, r) and tasks >= 1.0:
                solve_one(f, z, dual, r, left(f, z, r) / tasks * n, n)


@compiled
def imagine(f: Floats, z: Ints, done: int) -> int:
    """Write what each expert would gain and use on the latest contexts, at today's estimates."""
    at = places(z)
    w = z[STRIDE] * z[N_VIEWS]
    experts, resources, window = z[N_EXPERTS], z[N_RESOURCES], z[WINDOW]
    n = min(done, window, z[MEMORY])
    slot = (done - n) % z[MEMORY]
    for i in range(n):
        predict(f, z, at.context + slot * w, at.predictor_other)
        slot = slot + 1 if slot + 1 < z[MEMORY] else 0
        base = mean(z[REWARD_LINK], f[at.predictor_other])
        for k in range(experts):
            f[at.gain + k * window + i] = mean(z[REWARD_LINK], f[at.predictor_other + 1 + k]) - base
            for r in range(resources):
                place = k * resources + r
                cost = mean(z[COST_LINK], f[at.predictor_other + 1 + experts + place])
                f[at.use + place * window + i] = max(0.0, cost)
    for k in range(experts):
        # the last lanes are filled up with contexts that gain nothing
        for i in range(n, min(n + N_LANES - 1, window)):
            f[at.gain + k * window + i] = 0.0
    return n


@compiled
def solve_one(f: Floats, z: Ints, price: int, resource: int, goal: float, n: int) -> None:
    """Set the least price of one resource, the others fixed, at which no more than the goal is used."""
    own = price + resource
    start = f[own]
    f[own] = 0.0
    if demand(f, z, price, resource, n) <= goal:
        return
    low = 0.0
    high = 1.05 * start if start > 0.0 else 1.0
    f[own] = high
    while high < 1e12 and demand(f, z, price, resource, n) > goal:
        low = high
        high *= 2.0
        f[own] = high
    if low == 0.0 and start > 0.0:
        low = start * 0.95  # most of the time the price hardly moves
        f[own] = low
        if demand(f, z, price, resource, n) <= goal:
            high = low
            low = 0.0
    while high - low > PRECISION * high and high > 1e-12:
        middle = 0.5 * (low + high)
        f[own] = middle
        if demand(f, z, price, resource, n) > goal:
            low = middle
        else:
            high = middle
    f[own] = high


@compiled
def demand(f: Floats, z: Ints, price: int, resource: int, n: int) -> float:
    """Return how much of a resource the imagined contexts would use at these prices."""
    at = places(z)
    window, resources = z[WINDOW], z[N_RESOURCES]
    sum_used = spread_out(0.0)
    for i in range(0, n, N_LANES):
        best = spread_out(0.0)
        used = spread_out(0.0)
        for k in range(z[N_EXPERTS]):
            use = at.use + k * resources * window + i
            value = load(f, at.gain + k * window + i)
            for r in range(resources):
                value = multiply_add(spread_out(-f[price + r]), load(f, use + r * window), value)
            used = where_greater(value, best, load(f, use + resource * window), used)
            best = where_greater(value, best, value, best)
        sum_used = add(sum_used, used)
    return total(sum_used)
