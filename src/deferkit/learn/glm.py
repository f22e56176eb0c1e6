"""Online estimates of a generalised linear model, one sample at a time, and exact refits.

For a sample (x, y) with weight w = μ'(xᵀθ) and the inverse information H⁻¹ before it,

    θ ← θ + H⁻¹x·(y − μ(xᵀθ)) / (1 + w·xᵀH⁻¹x),     H ← H + w·xxᵀ.

With the identity link this is exact ridge regression. With another link it is one online Newton step on the
running Fisher information; each time the sample has doubled, Newton's method on all samples gives the exact
maximum of Σ log-likelihood − ridge/2·‖θ‖², started from the running estimate.
"""

import math

from deferkit.learn.arrays import (
    CAPACITY,
    COST_LINK,
    FISHER,
    FROZEN,
    MEND,
    N_EXPERTS,
    N_FEATURES,
    N_RESOURCES,
    N_VIEWS,
    REFIT,
    REFIT_LIMIT,
    REWARD_LINK,
    RIDGE,
    STASH,
    STRIDE,
    Floats,
    Ints,
    places,
)
from deferkit.learn.compiled import compiled, inlined
from deferkit.learn.lanes import N_LANES
from deferkit.learn.links import IDENTITY, cumulant, mean, slope
from deferkit.learn.precision import (
    add_outer,
    add_scaled,
    birth,
    copy,
    copy_scaled,
    dot,
    dot_three,
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


@inlined
def predict(f: Floats, z: Ints, x: int, out: int) -> None:
    """Write xᵀθ of every estimate."""
    at = places(z)
    w = z[STRIDE]
    targets = 1 + z[N_EXPERTS] * (1 + z[N_RESOURCES])
    triples = targets - targets % 3 if z[N_VIEWS] == 1 else 0
    for target in range(0, triples, 3):
        dot_three(f, x, at.theta + target * w, out + target, w)
    for target in range(triples, targets):
        f[out + target] = dot(f, x + z[at.sees + target], at.theta + target * w, w)


@compiled
def part(f: Floats, z: Ints, expert: int) -> None:
    """Give the costs of an expert designs of their own from now on: copies of the one they shared."""
    at = places(z)
    if z[at.follows + expert] == 0:
        return
    z[at.follows + expert] = 0
    w = z[STRIDE]
    source = expert + 1
    for r in range(z[N_RESOURCES]):
        target = 1 + z[N_EXPERTS] + expert * z[N_RESOURCES] + r
        copy(f, at.inverse + source * w * w, at.inverse + target * w * w, w * w)
        copy(f, at.precision + source * w * w, at.precision + target * w * w, w * w)
        copy(f, at.rounding + source * w * w, at.rounding + target * w * w, w * w)
        copy(f, at.stash + source * STASH * w, at.stash + target * STASH * w, STASH * w)
        copy(f, at.product + source * w, at.product + target * w, w)
        f[at.spread + target] = f[at.spread + source]
        z[at.n_stashed + target] = z[at.n_stashed + source]
        z[at.n_absorbed + target] = z[at.n_absorbed + source]


@inlined
def weight_of(z: Ints, link: int, predictor: float) -> float:
    """Return the weight of a sample in its design."""
    if link == IDENTITY or z[FISHER] == 0:
        return 1.0
    return max(slope(link, predictor), LEAST_WEIGHT)


@inlined
def learn(f: Floats, z: Ints, target: int, design: int, x: int, y: float) -> float:
    """Move an estimate for a sample, before its view enters the design; return the sample's weight."""
    at = places(z)
    w = z[STRIDE]
    link = link_of(z, target)
    predictor = f[at.predictor + target]
    weight = weight_of(z, link, predictor)
    residual = y - mean(link, predictor)
    step = residual / (1.0 + weight * f[at.spread + design])
    if z[FROZEN] == 0:
        add_scaled(f, at.theta + target * w, step, at.product + design * w, w)
        add_scaled(f, at.moment + target * w, y, x, w)
    # Squared errors, each over its own variance, add up to the penalised sum of squares.
    f[at.misfit + target] += residual * step / weight
    z[at.n_observed + target] += 1
    if target <= z[N_EXPERTS]:
        f[at.power] += y * y
        f[at.power + 1] += 1.0
    return weight


@inlined
def absorb_one(f: Floats, z: Ints, samples: Floats, target: int, x: int, y: float) -> None:
    """Learn a sample of an estimate that has a design of its own."""
    at = places(z)
    own = x + z[at.sees + target]
    weight = learn(f, z, target, target, own, y)
    if z[FROZEN] == 0:
        enter(f, z, target, own, weight)
    if link_of(z, target) != IDENTITY and z[REFIT] != REFIT_NEVER:
        keep(f, z, samples, target, own, y)
        if z[at.n_observed + target] >= z[at.next_refit + target]:
            z[MEND] = 1


@inlined
def absorb_together(f: Floats, z: Ints, expert: int, x: int, reward: float, cost: int) -> None:
    """Learn the reward and the costs of an expert that share one design (identity links) and one view."""
    at = places(z)
    design = expert + 1
    own = x + z[at.sees + design]
    first = 1 + z[N_EXPERTS] + expert * z[N_RESOURCES]
    learn(f, z, design, design, own, reward)
    for r in range(z[N_RESOURCES]):
        learn(f, z, first + r, design, own, f[cost + r])
    enter(f, z, design, own, 1.0)


@compiled
def mend(f: Floats, z: Ints, samples: Floats) -> None:
    """Refactor what has drifted and refit what is due.

    Apart from the steps, because it is rare: a step only says that it is needed, the caller sees to it before
    the next step. Compiled into each step it would take most of the time that compiling takes.
    """
    at = places(z)
    d, w = z[N_FEATURES], z[STRIDE]
    z[MEND] = 0
    targets = 1 + z[N_EXPERTS] * (1 + z[N_RESOURCES])
    for design in range(targets):
        if z[at.drifted + design] == 1:
            refactor(f, at.precision + design * w * w, at.inverse + design * w * w, at.factor, d, w)
    for target in range(targets):
        design = design_of(z, target)
        if link_of(z, target) != IDENTITY:
            if z[REFIT] != REFIT_NEVER and z[at.n_observed + target] >= z[at.next_refit + target]:
                refit(f, z, samples, target)
        elif z[at.drifted + design] == 1:
            moment, theta = at.moment + target * w, at.theta + target * w
            multiply(f, at.inverse + design * w * w, moment, theta, w)
    for design in range(targets):
        z[at.drifted + design] = 0


@inlined
def sample_place(z: Ints, target: int, sample: int) -> int:
    """Return where a sample lies in the store; only estimates with a link that is refitted have room."""
    row = target if z[REWARD_LINK] != IDENTITY else target - z[N_EXPERTS] - 1
    return (row * z[CAPACITY] + sample) * (z[STRIDE] + N_LANES)


@compiled
def keep(f: Floats, z: Ints, samples: Floats, target: int, x: int, y: float) -> None:
    """Store the latest sample of an estimate for the exact refits to come, if there are any."""
    at = places(z)
    sample = z[at.n_observed + target] - 1
    if sample < z[REFIT_LIMIT]:
        w = z[STRIDE]
        place = sample_place(z, target, sample)
        for i in range(w):
            samples[place + i] = f[x + i]
        samples[place + w] = y


@compiled
def relabel(f: Floats, z: Ints, samples: Floats, target: int, x: int, old: float, new: float) -> None:
    """Correct the latest stored sample that is this context with this response, if it is still stored."""
    at = places(z)
    w = z[STRIDE]
    for back in range(min(z[at.n_observed + target], z[CAPACITY])):
        place = sample_place(z, target, min(z[at.n_observed + target], z[CAPACITY]) - 1 - back)
        same = samples[place + w] == old
        for i in range(w):
            same = same and samples[place + i] == f[x + i]
        if same:
            samples[place + w] = new
            return


@compiled
def refit(f: Floats, z: Ints, samples: Floats, target: int) -> None:
    """Maximise the penalised likelihood of the stored samples, and refresh the design at the maximum."""
    at = places(z)
    d, w = z[N_FEATURES], z[STRIDE]
    n = z[at.n_observed + target]
    theta = at.theta + target * w
    precision, inverse = at.precision + target * w * w, at.inverse + target * w * w
    step, gradient = at.work, at.work + w
    scale = 0.0
    best = -n * cumulant(link_of(z, target), 0.0)
    for iteration in range(NEWTON_STEPS):
        value = newton_system(f, z, samples, target, n, gradient)
        if not value >= best - 1e-12 * abs(best):
            # worse than before, or not a number: start from zero, or go back half of the last step
            scale *= 0.5
            if iteration == 0:
                copy_scaled(f, theta, 0.0, theta, w)
            else:
                add_scaled(f, theta, -scale, step, w)
            continue
        best = value
        refactor(f, precision, inverse, at.factor, d, w)
        multiply(f, inverse, gradient, step, w)
        scale = 1.0
        add_scaled(f, theta, scale, step, w)
        if dot(f, step, gradient, w) < NEWTON_TOLERANCE * n:
            break
    if z[FISHER] == 0:
        design_matrix(f, z, samples, target, n)
        refactor(f, precision, inverse, at.factor, d, w)
    z[at.n_stashed + target] = 0
    for i in range(w * w):
        f[at.rounding + target * w * w + i] = 0.0
    if z[REFIT] == REFIT_ALWAYS:
        z[at.next_refit + target] = n + 1
    else:
        z[at.next_refit + target] = 2 * n if 2 * n <= z[REFIT_LIMIT] else NEVER


@compiled
def newton_system(f: Floats, z: Ints, samples: Floats, target: int, n: int, gradient: int) -> float:
    """Write information and gradient of the penalised log-likelihood at the running estimate; return its value."""
    at = places(z)
    w = z[STRIDE]
    link = link_of(z, target)
    theta = at.theta + target * w
    precision = at.precision + target * w * w
    birth(f, precision, at.inverse + target * w * w, f[RIDGE], z[N_FEATURES], w)
    copy_scaled(f, gradient, -f[RIDGE], theta, w)
    value = -0.5 * f[RIDGE] * dot(f, theta, theta, w)
    for s in range(n):
        place = sample_place(z, target, s)
        for i in range(w):
            f[at.x_other + i] = samples[place + i]
        predictor = dot(f, at.x_other, theta, w)
        value += samples[place + w] * predictor - cumulant(link, predictor)
        add_scaled(f, gradient, samples[place + w] - mean(link, predictor), at.x_other, w)
        root = math.sqrt(max(slope(link, predictor), LEAST_WEIGHT))
        copy_scaled(f, at.x_other, root, at.x_other, w)
        add_outer(f, precision, 1.0, at.x_other, w)
    return value


@compiled
def design_matrix(f: Floats, z: Ints, samples: Floats, target: int, n: int) -> None:
    """Write ridge·I + Σ xxᵀ of the stored samples, unweighted, as the precision."""
    at = places(z)
    w = z[STRIDE]
    precision = at.precision + target * w * w
    birth(f, precision, at.inverse + target * w * w, f[RIDGE], z[N_FEATURES], w)
    for s in range(n):
        place = sample_place(z, target, s)
        for i in range(w):
            f[at.x_other + i] = samples[place + i]
        add_outer(f, precision, 1.0, at.x_other, w)
