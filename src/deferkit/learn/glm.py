"""Online estimates of a generalised linear model, one sample at a time, and exact refits.

For a sample (x, y) with weight w = μ'(xᵀθ) and the inverse information H⁻¹ before it,

    θ ← θ + H⁻¹x·(y − μ(xᵀθ)) / (1 + w·xᵀH⁻¹x),     H ← H + w·xxᵀ.

With the identity link this is exact ridge regression. With another link it is one online Newton step on the
running Fisher information; each time the sample has doubled, Newton's method on all samples gives the exact
maximum of Σ log-likelihood − ridge/2·‖θ‖², started from the running estimate.
"""

from deferkit.learn.arrays import (
    COST_LINK,
    FISHER,
    N_EXPERTS,
    N_FEATURES,
    N_RESOURCES,
    REFIT,
    REFIT_LIMIT,
    REWARD_LINK,
    RIDGE,
    STASH,
    Floats,
    Ints,
    places,
)
from deferkit.learn.compiled import compiled, inlined
from deferkit.learn.links import IDENTITY, mean, slope
from deferkit.learn.precision import (
    add_scaled,
    birth,
    copy,
    dot,
    enter,
    multiply,
    refactor,
)

REFIT_NEVER = 0
REFIT_DOUBLING = 1
REFIT_ALWAYS = 2
REFITS = {"never": REFIT_NEVER, "doubling": REFIT_DOUBLING, "always": REFIT_ALWAYS}

FIRST_REFIT = 16
NEVER = 1 << 62
LEAST_WEIGHT = 1e-6  # keeps the information positive where a probability is 0 or 1 to the last bit
NEWTON_STEPS = 100
NEWTON_TOLERANCE = 1e-20  # of the squared Newton decrement, for each sample


@inlined
def link_of(z: Ints, target: int) -> int:
    """Return the link of an estimate: rewards of the deciders come first, costs after them."""
    return z[REWARD_LINK] if target <= z[N_EXPERTS] else z[COST_LINK]


@inlined
def design_of(z: Ints, target: int) -> int:
    """Return which design an estimate uses: its own, or that of the reward which it is observed with."""
    at = places(z)
    if target <= z[N_EXPERTS]:
        return target
    expert = (target - z[N_EXPERTS] - 1) // z[N_RESOURCES]
    return expert + 1 if z[at.follows + expert] == 1 else target


@compiled
def part(f: Floats, z: Ints, expert: int) -> None:
    """Give the costs of an expert designs of their own from now on: copies of the one they shared."""
    at = places(z)
    if z[at.follows + expert] == 0:
        return
    z[at.follows + expert] = 0
    d = z[N_FEATURES]
    source = expert + 1
    for r in range(z[N_RESOURCES]):
        target = 1 + z[N_EXPERTS] + expert * z[N_RESOURCES] + r
        copy(f, at.inverse + source * d * d, at.inverse + target * d * d, d * d)
        copy(f, at.precision + source * d * d, at.precision + target * d * d, d * d)
        copy(f, at.stash + source * STASH * d, at.stash + target * STASH * d, STASH * d)
        copy(f, at.product + source * d, at.product + target * d, d)
        f[at.spread + target] = f[at.spread + source]
        z[at.n_stashed + target] = z[at.n_stashed + source]
        z[at.n_absorbed + target] = z[at.n_absorbed + source]


@inlined
def weight_of(z: Ints, link: int, predictor: float) -> float:
    """Return the weight of a sample in its design."""
    if link == IDENTITY or z[FISHER] == 0:
        return 1.0
    return max(slope(link, predictor), LEAST_WEIGHT)


@compiled
def learn(f: Floats, z: Ints, target: int, design: int, x: int, y: float) -> float:
    """Move an estimate for a sample, before its context enters the design; return the sample's weight."""
    at = places(z)
    d = z[N_FEATURES]
    link = link_of(z, target)
    theta = at.theta + target * d
    predictor = dot(f, x, theta, d)
    weight = weight_of(z, link, predictor)
    residual = y - mean(link, predictor)
    step = residual / (1.0 + weight * f[at.spread + design])
    add_scaled(f, theta, step, at.product + design * d, d)
    add_scaled(f, at.moment + target * d, y, x, d)
    # Squared errors, each over its own variance, add up to the penalised sum of squares.
    f[at.misfit + target] += residual * step / weight
    z[at.n_observed + target] += 1
    return weight


@compiled
def absorb_one(f: Floats, z: Ints, samples: Floats, target: int, x: int, y: float) -> None:
    """Learn a sample of an estimate that has a design of its own."""
    at = places(z)
    weight = learn(f, z, target, target, x, y)
    refactored = enter(f, z, target, x, weight)
    if link_of(z, target) == IDENTITY:
        if refactored:
            solve_estimate(f, z, target, target)
    elif z[REFIT] != REFIT_NEVER:
        keep(f, z, samples, target, x, y)
        if z[at.n_observed + target] >= z[at.next_refit + target]:
            refit(f, z, samples, target)


@compiled
def absorb_together(f: Floats, z: Ints, expert: int, x: int, reward: float, cost: int) -> None:
    """Learn the reward and the costs of an expert that share one design (identity links)."""
    design = expert + 1
    first = 1 + z[N_EXPERTS] + expert * z[N_RESOURCES]
    learn(f, z, design, design, x, reward)
    for r in range(z[N_RESOURCES]):
        learn(f, z, first + r, design, x, f[cost + r])
    if enter(f, z, design, x, 1.0):
        solve_estimate(f, z, design, design)
        for r in range(z[N_RESOURCES]):
            solve_estimate(f, z, first + r, design)


@compiled
def solve_estimate(f: Floats, z: Ints, target: int, design: int) -> None:
    """Compute an estimate with the identity link afresh: inverse · Σ y·x."""
    at = places(z)
    d = z[N_FEATURES]
    multiply(f, at.inverse + design * d * d, at.moment + target * d, at.theta + target * d, d)


@inlined
def sample_row(z: Ints, target: int) -> int:
    """Return the row of the sample store of an estimate; only links that are refitted have rows."""
    return target if z[REWARD_LINK] != IDENTITY else target - z[N_EXPERTS] - 1


@compiled
def keep(f: Floats, z: Ints, samples: Floats, target: int, x: int, y: float) -> None:
    """Store the latest sample of an estimate for the exact refits to come, if there are any."""
    at = places(z)
    place = z[at.n_observed + target] - 1
    if place < z[REFIT_LIMIT]:
        d = z[N_FEATURES]
        row = sample_row(z, target)
        for i in range(d):
            samples[row, place, i] = f[x + i]
        samples[row, place, d] = y


@compiled
def refit(f: Floats, z: Ints, samples: Floats, target: int) -> None:
    """Maximise the penalised likelihood of the stored samples, and refresh the design at the maximum."""
    at = places(z)
    d = z[N_FEATURES]
    n = z[at.n_observed + target]
    link = link_of(z, target)
    row = sample_row(z, target)
    theta = at.theta + target * d
    precision = at.precision + target * d * d
    inverse = at.inverse + target * d * d
    step, gradient = at.work, at.work + d
    before = 1e300
    for _ in range(NEWTON_STEPS):
        newton_system(f, samples, row, n, link, f[RIDGE], theta, precision, inverse, gradient, d)
        refactor(f, precision, inverse, at.factor, d)
        multiply(f, inverse, gradient, step, d)
        decrement = dot(f, step, gradient, d)
        # A decrement that grew means that the last step overshot: go on more carefully.
        add_scaled(f, theta, 1.0 if decrement <= before else 0.5, step, d)
        before = decrement
        if decrement < NEWTON_TOLERANCE * n:
            break
    if z[FISHER] == 0:
        birth(f, precision, inverse, f[RIDGE], d)
        for s in range(n):
            for i in range(d):
                for j in range(d):
                    f[precision + i * d + j] += samples[row, s, i] * samples[row, s, j]
        refactor(f, precision, inverse, at.factor, d)
    z[at.n_stashed + target] = 0
    if z[REFIT] == REFIT_ALWAYS:
        z[at.next_refit + target] = n + 1
    else:
        z[at.next_refit + target] = 2 * n if 2 * n <= z[REFIT_LIMIT] else NEVER


@compiled
def newton_system(
    f: Floats,
    samples: Floats,
    row: int,
    n: int,
    link: int,
    ridge: float,
    theta: int,
    precision: int,
    inverse: int,
    gradient: int,
    d: int,
) -> None:
    """Write the information and the gradient of the penalised likelihood at theta."""
    birth(f, precision, inverse, ridge, d)
    for i in range(d):
        f[gradient + i] = -ridge * f[theta + i]
    for s in range(n):
        predictor = 0.0
        for i in range(d):
            predictor += samples[row, s, i] * f[theta + i]
        residual = samples[row, s, d] - mean(link, predictor)
        weight = max(slope(link, predictor), LEAST_WEIGHT)
        for i in range(d):
            xi = samples[row, s, i]
            f[gradient + i] += residual * xi
            for j in range(d):
                f[precision + i * d + j] += weight * xi * samples[row, s, j]
