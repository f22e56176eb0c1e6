"""Algorithm 1 as printed and the default learner, in plain numpy and knowing nothing of the package.

The default learner, from the line that says so to the end, is printed in docs/reference.md.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tests.conftest import Floats, Tasks


def algorithm_1(
    tasks: Tasks,
    warm_up_routes: list[int],
    *,
    budget: float,
    horizon: int,
    noise: float,
    delta: float,
    margin: float,
    ridge: float,
    full: bool,
) -> tuple[list[int], list[float]]:
    """Return the routes and γ·T/B at each step, with the random actions of the warm-up given."""
    d = tasks.contexts.shape[1]
    precisions = [ridge * np.eye(d), ridge * np.eye(d)]
    sums = [np.zeros(d), np.zeros(d)]  # Σ y·x of the two rewards
    cost_sum = np.zeros(d)
    gamma, alpha, epsilon = 0.5, 0.5, math.sqrt(2 / horizon)
    spent = 0.0
    routes, prices = [], []
    for t, x in enumerate(tasks.contexts, start=1):
        prices.append(horizon / budget * gamma)
        inverses = [np.linalg.inv(m) for m in precisions]
        beta = noise * math.sqrt(2 * d * math.log((1 + 2 * t * d) / delta))
        spread = [math.sqrt(x @ inverse @ x) for inverse in inverses]
        reward = [
            x @ (inverse @ s + beta * inverse @ x / w) for inverse, s, w in zip(inverses, sums, spread, strict=True)
        ]
        cost_model = x @ (-beta * inverses[0] @ x / spread[0])
        cost_human = x @ (inverses[1] @ cost_sum - beta * inverses[1] @ x / spread[1])
        if spent > budget - margin:
            route = 0
        elif t <= len(warm_up_routes):
            route = warm_up_routes[t - 1]
        else:
            price = horizon / budget * gamma
            route = int(reward[1] - price * cost_human > reward[0] - price * cost_model)
        cost = float(tasks.costs[t - 1, 0, 0]) if route else 0.0
        spent += cost
        for arm in {route, 0} if full else {route}:
            precisions[arm] += np.outer(x, x)
            sums[arm] += tasks.rewards[t - 1, arm] * x
        if route:
            cost_sum += cost * x
        if t > len(warm_up_routes):
            g = gamma * (cost - budget / horizon)
            alpha *= (1 + epsilon) ** g if g >= 0 else (1 - epsilon) ** -g
            gamma = alpha / (1 + alpha)
        routes.append(route)
    return routes, prices


def simplex_weights(costs: Floats, rates: Floats, horizon: int) -> Floats:
    """The multiplicative weights of Agrawal & Devanur on the simplex with a dummy coordinate: θ after each step.

    Coordinate j pays g_j = c_j − B/T with weight (1 + ε)^g or (1 − ε)^−g; the dummy pays nothing and keeps weight 1.
    """
    epsilon = math.sqrt(2 / horizon)
    weights = np.ones(costs.shape[1] + 1)
    thetas = []
    for cost in costs:
        g = np.append((cost - rates) * rates[0] / rates, 0.0)
        weights = weights * np.where(g >= 0, (1 + epsilon) ** g, (1 - epsilon) ** -g)
        thetas.append(weights[:-1] / weights.sum())
    return np.array(thetas)


# The default learner.

RIDGE = {"identity": 0.01, "logistic": 0.1}
SCALE = {"identity": 0.3, "logistic": 1.0}  # of a bonus, in standard errors
PRIOR = 1.0  # of a bonus where nothing was seen, in root mean squares of a reward
ASKS_A_FEATURE = 5  # that must be left for the whole bonus
MIN_WEIGHT = 1e-6  # of a sample in H
FIRST_SHARE = 0.01  # of a budget: reserved for one task before any cost is known
COLD_START_SHARE = 0.05  # of a budget: reserved for all tasks together before any cost is known
WINDOWS = ((math.inf, 0), (1_500, 128), (300, 64), (60, 32))  # samples known to a member; it forgets after so many


def mean_of(link: str, predictor: Floats) -> Floats:
    """μ of a number or of an array."""
    return predictor if link == "identity" else 1 / (1 + np.exp(np.minimum(-predictor, 700.0)))


class Member:
    """One estimate of a reward or a cost: E[y | x] = μ(xᵀθ). It forgets by a discount every so many samples."""

    columns = slice(None)  # of a context that it reads

    def __init__(self, n_features: int, link: str, ridge: float, window: float, every: int) -> None:
        self.link, self.ridge = link, ridge
        self.every = every
        self.keep = (1 - 1 / window) ** every  # the discount
        self.seen = 0  # samples so far
        self.theta = np.zeros(n_features)  # θ
        self.start = np.zeros(n_features)  # θ₀, which the ridge pulls to
        self.squares = np.zeros((n_features, n_features))  # S = Σ w·xxᵀ
        self.moment = np.zeros(n_features)  # Σ y·x

    def solve(self, v: Floats) -> Floats:
        """H⁻¹v, with the information H = ridge·I + S."""
        return np.asarray(np.linalg.solve(self.ridge * np.eye(len(v)) + self.squares, v))

    def predictor(self, X: Floats) -> Floats:
        """xᵀθ of a context, or of each row."""
        return np.asarray(X[..., self.columns] @ self.theta)

    def spread(self, x: Floats) -> float:
        """xᵀH⁻¹x."""
        return float(x[self.columns] @ self.solve(x[self.columns]))

    def learn(self, x: Floats, y: float) -> float:
        """Learn a sample; return its squared prediction error, over its variance."""
        mean = float(mean_of(self.link, self.predictor(x)))
        weight = 1.0 if self.link == "identity" else max(mean * (1 - mean), MIN_WEIGHT)  # w = μ'(xᵀθ)
        variance = 1 + weight * self.spread(x)
        x = x[self.columns]
        direction = self.solve(x)
        self.squares += weight * np.outer(x, x)
        self.moment += y * x
        if self.link == "identity":
            self.theta = self.solve(self.moment + self.ridge * self.start)
        else:
            self.theta = self.theta + direction * (y - mean) / variance
        self.seen += 1
        if self.every > 0 and self.seen % self.every == 0:
            self.forget()
        return (y - mean) ** 2 / (weight * variance)

    def forget(self) -> None:
        """Multiply the sums by `keep`, but not the ridge."""
        self.squares *= self.keep
        self.moment *= self.keep
        moment = self.moment if self.link == "identity" else self.squares @ self.theta
        self.theta = self.solve(moment + self.ridge * self.start)


class Estimate:
    """One reward or one cost: members that forget at different rates, weighted by prediction error."""

    def __init__(self, n_features: int, link: str, ridge: float, bounds: tuple[float, float]) -> None:
        self.link, self.ridge, self.bounds = link, ridge, bounds
        self.members = [Member(n_features, link, ridge, window, every) for window, every in WINDOWS]
        halves = 0.5 ** np.arange(len(WINDOWS))
        self.start = halves / halves.sum()  # π
        self.weights = self.start.copy()  # w
        self.responses: list[float] = []  # y
        self.forecast_error = 0.0  # sum of squared one-step-ahead errors of the mixture
        self.scaled_error = 0.0  # sum of squared errors, each over its variance

    def mean(self, predictor: Floats) -> Floats:
        """μ."""
        return mean_of(self.link, predictor)

    def predictor(self, X: Floats) -> Floats:
        """Σ w·xᵀθ of a context, or of each row."""
        return np.asarray(sum(w * each.predictor(X) for w, each in zip(self.weights, self.members, strict=True)))

    def root_spread(self, x: Floats) -> float:
        """√(xᵀH⁻¹x) of the member that forgets nothing: those of the others would never shrink."""
        return math.sqrt(self.members[0].spread(x))

    def factor(self, prior: float) -> float:
        """scale·σ̂ + prior: a width in units of √(xᵀH⁻¹x)."""
        noise = math.sqrt(self.scaled_error / max(len(self.responses), 1))  # σ̂
        return SCALE[self.link] * noise + prior

    def index(self, X: Floats, widths: Floats, b: float) -> Floats:
        """μ and b times the upper half of its interval, or the lower half where b < 0."""
        predictor = self.predictor(X)
        middle, end = self.mean(predictor), self.mean(predictor + (widths if b >= 0 else -widths))
        return middle + abs(b) * (end - middle)

    def learn(self, x: Floats, y: float) -> None:
        """Reweight the members by their errors on a sample, then let them learn it."""
        self.reweight(x, y)
        self.responses.append(y)
        self.scaled_error += float(self.weights @ np.array([each.learn(x, y) for each in self.members]))

    def reweight(self, x: Floats, y: float) -> None:
        """Multiply each weight by exp(−error² / 2v), then add a share of the prior weights."""
        n = len(self.responses) + 1
        predictors = np.array([self.predictor(x), *(member.predictor(x) for member in self.members)])
        mixed, *each = np.clip(self.mean(predictors), *self.bounds)
        self.forecast_error += (y - mixed) ** 2
        variance = self.forecast_error / n  # v
        if variance > 0:
            losses = (y - np.array(each)) ** 2
            weights = self.weights * np.exp((losses.min() - losses) / (2 * variance))
            share = 1 / (n + 1)  # a
            self.weights = (1 - share) * weights / weights.sum() + share * self.start


def least_price(gains: Floats, uses: Floats, prices: Floats, r: int, goal: float) -> float:
    """The least price λ_r, the others fixed, at which tasks use at most the goal of resource r.

    gains [n, K]: reward of each expert less that of the model. uses [n, K, R]: cost of each expert.
    """
    others = np.where(np.arange(len(prices)) == r, 0.0, prices)
    values_if_free = gains - uses @ others

    def demand(price: float) -> float:
        values = values_if_free - price * uses[:, :, r]
        used = uses[np.arange(len(uses)), values.argmax(axis=1), r]
        return float(used[values.max(axis=1) > 0].sum())

    if demand(0.0) <= goal:
        return 0.0
    start = float(prices[r])
    low, high = 0.0, 1.05 * start if start > 0 else 1.0
    while demand(high) > goal and high < 1e12:
        low, high = high, 2 * high
    if low == 0 < start:  # most of the time the price hardly moves
        below = 0.95 * start
        low, high = (below, high) if demand(below) > goal else (0.0, below)
    while high - low > 1e-3 * high and high > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if demand(middle) > goal else (low, middle)
    return high


def uniform(seed: int, decision: int) -> float:
    """A random number in [0, 1) for each decision: SplitMix64 on a counter."""
    key = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
    z = (key + (2 * decision + 1) * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return ((z ^ (z >> 31)) >> 11) / 2**53


class Limit(NamedTuple):
    """The budget of one resource."""

    budget: float  # B
    horizon: float  # T
    max_cost: float = math.nan  # of one task, if declared


class Choice(NamedTuple):
    """A decision."""

    route: int  # 0 is the model, k is the k-th expert
    reason: str
    propensity: float
    prices: tuple[float, ...]  # λ


class Learner:
    """The default learner for K experts and R resources, with contexts of d features."""

    every = 200  # decisions between two prices, at most
    window = 1_000  # recent contexts that the prices are solved for

    def __init__(self, d: int, K: int, limits: list[Limit], links: list[str], seed: int) -> None:
        self.d = d
        ridge = max(RIDGE[link] for link in links)  # the first is for rewards, the second for costs
        unit, any_cost = (0.0, 1.0), (-math.inf, math.inf)  # ranges of rewards and costs
        self.rewards = [Estimate(d, links[0], ridge, unit) for _ in range(K + 1)]
        self.costs = {k: [Estimate(d, links[1], ridge, any_cost) for _ in limits] for k in range(1, K + 1)}
        self.budgets = np.array([limit.budget for limit in limits], dtype=float)
        self.horizons = np.array([limit.horizon for limit in limits], dtype=float)
        self.max_costs = np.array([limit.max_cost for limit in limits], dtype=float)
        self.warm_up, self.seed = 1, seed
        self.contexts: list[Floats] = []
        self.sizes: list[float] = []  # ‖x‖²
        self.past_widths: list[list[float]] = []  # √(xᵀH⁻¹x)·√(samples + d) of each reward
        self.routes: list[int] = []
        self.model_seen = 0  # tasks that the model decided whose model reward became known
        self.observed_to = 0  # 1 + the latest task with an observation, or for which one is overdue
        self.delays: list[int] = []  # of observations, in tasks
        self.prices = np.zeros(len(limits))  # λ
        self.next_solve = self.warm_up  # solve the prices after this many decisions
        self.price_due = False  # it waits for the cost of the latest decision
        self.reserved: dict[int, Floats] = {}  # by decision, until its cost is known
        self.spent = np.zeros(len(limits))
        self.largest = np.zeros(len(limits))  # cost seen
        self.cost_sum = np.zeros(len(limits))
        self.n_costs = 0

    def held(self) -> Floats:
        """The sum of all reservations."""
        return sum(self.reserved.values(), np.zeros(len(self.budgets)))

    def left(self) -> Floats:
        """The budget left: neither spent nor reserved."""
        return self.budgets - self.spent - self.held()

    def reservation(self) -> Floats:
        """The hold of one task: its max_cost if declared, else the largest cost seen, else a share of B."""
        first = np.where(np.isfinite(self.budgets), FIRST_SHARE * self.budgets, 0.0)
        seen = self.largest if self.n_costs > 0 else first
        return np.where(np.isnan(self.max_costs), seen, self.max_costs)

    def untried(self, k: int) -> bool:
        """Whether an expert was never asked and never observed."""
        return k not in self.routes and not self.rewards[k].responses

    def waits(self, x: Floats, available: Sequence[int]) -> bool:  # noqa: ARG002 - of the day-one rule
        """Whether untried experts are not asked about this task."""
        return False

    def learning_share(self) -> float:
        """e: the share of the bonus, which fades when few asks are left."""
        bounded = (self.budgets > 0) & np.isfinite(self.budgets) & (self.cost_sum > 0)
        if not bounded.any():
            return 1.0
        asks_left = np.maximum(self.left(), 0)[bounded] / (self.cost_sum[bounded] / self.n_costs)
        return float(min(1.0, asks_left.min() / (ASKS_A_FEATURE * self.d)))

    def overdue(self) -> int:
        """After how many tasks an observation is overdue: then nothing is revealed of a task."""
        return 4 * (sum(self.delays) // len(self.delays)) + 32 if self.delays else 1000

    def model_bonus(self) -> float:
        """b: 1 if the model's reward is revealed when the model decides, towards −1 if not."""
        return 2 * (self.model_seen + 1) / (self.routes[: self.observed_to].count(0) + 1) - 1

    def prior(self) -> float:
        """prior·√ridge·rms of all rewards, more if contexts are short; for identity rewards only."""
        if self.rewards[0].link != "identity":
            return 0.0
        seen = [y for each in self.rewards for y in each.responses]
        rms = math.sqrt(sum(y * y for y in seen) / max(len(seen), 1))
        if self.sizes:
            rms /= min(1.0, math.sqrt(np.mean(self.sizes)))
        return PRIOR * math.sqrt(self.rewards[0].ridge) * rms

    def size(self, x: Floats) -> float:
        """‖x‖²."""
        return float(x @ x)

    def factor(self, decider: int) -> float:
        """The width of a decider's reward in units of √(xᵀH⁻¹x), before it fades."""
        return self.rewards[decider].factor(self.prior())

    def index(self, decider: int, x: Floats) -> float:
        """The expected reward of a decider, and its bonus."""
        estimate = self.rewards[decider]
        width = self.learning_share() * self.factor(decider) * estimate.root_spread(x)
        return float(estimate.index(x, np.array(width), 1.0 if decider > 0 else self.model_bonus()))

    def expected_costs(self, k: int, x: Floats) -> Floats:
        """What an expert is expected to use of each resource."""
        return np.array([max(0.0, float(each.mean(each.predictor(x)))) for each in self.costs[k]])

    def worth(self, decider: int, x: Floats) -> float:
        """The index of a decider − λ · its expected cost, where the model costs nothing."""
        cost = float(self.prices @ self.expected_costs(decider, x)) if decider > 0 else 0.0
        return self.index(decider, x) - cost

    def choose(self, x: Floats, available: Sequence[int]) -> tuple[int, str, float]:
        """The route, its reason and its propensity."""
        needed, held = self.reservation(), self.held()
        over_cap = (held > 0) & (held + needed > COLD_START_SHARE * self.budgets)
        choices = [0, *available]
        if not available:
            return 0, "unavailable", 1.0
        if np.any(needed > self.left()) or np.any(self.budgets <= 0):
            return 0, "budget", 1.0
        if self.n_costs == 0 and np.any(over_cap):  # cold start: no cost is known yet
            return 0, "unsettled", 1.0
        if len(self.routes) < self.warm_up:
            drawn = int(uniform(self.seed, len(self.routes)) * len(choices))
            return choices[drawn], "warm-up", 1 / len(choices)
        for k in available:  # an untried expert is asked once
            if self.untried(k) and not self.waits(x, available):
                return k, "warm-up", 1.0
        best = max(choices, key=lambda decider: self.worth(decider, x))  # ties go to the first
        return best, "worth it" if best > 0 else "not worth it", 1.0

    def decide(self, x: Floats, available: Sequence[int] | None = None) -> Choice:
        """Choose the route of a task, and reserve its hold."""
        if self.price_due:  # the cost was not observed before the next decision
            self.move_prices()
        choice = self.choose(x, list(self.costs) if available is None else available)
        prices = tuple(self.prices.tolist())
        self.remember(x, choice[0])
        if choice[0] > 0:
            self.reserved[len(self.routes) - 1] = self.reservation()
            self.price_due = True
        else:
            self.move_prices()
        return Choice(*choice, prices)

    def remember(self, x: Floats, route: int) -> None:
        """Keep what outcomes and prices need of a decision."""
        self.contexts.append(x)
        self.sizes.append(self.size(x))
        self.past_widths.append([e.root_spread(x) * math.sqrt(len(e.responses) + self.d) for e in self.rewards])
        self.routes.append(route)
        self.observed_to = max(self.observed_to, len(self.routes) - self.overdue())

    def learn(self, decision: int, rewards: Mapping[int, float], costs: Floats | None) -> None:
        """Learn outcomes of a task."""
        samples = [(self.rewards[decider], y) for decider, y in rewards.items()]
        if costs is not None:
            samples += zip(self.costs[self.routes[decision]], costs.tolist(), strict=True)
        for estimate, y in samples:
            estimate.learn(self.contexts[decision], y)

    def observe(self, decision: int, rewards: Mapping[int, float], costs: Floats | None) -> None:
        """Learn the rewards of deciders; learn and book the costs of the expert who was asked."""
        self.model_seen += self.routes[decision] == 0 and 0 in rewards
        if rewards or costs is not None:
            self.observed_to = max(self.observed_to, decision + 1)
            self.delays.append(len(self.routes) - decision)
        self.learn(decision, rewards, costs)
        if costs is not None:
            del self.reserved[decision]
            self.spent += np.minimum(costs, np.maximum(self.left(), 0))
            self.largest = np.maximum(self.largest, costs)
            self.cost_sum += costs
            self.n_costs += 1
            if decision == len(self.routes) - 1:  # the price waits for this cost
                self.move_prices()

    def move_prices(self) -> None:
        """Solve the prices periodically: recent tasks would use left / (tasks left) each."""
        self.price_due = False
        done = len(self.routes)
        if done < self.next_solve:
            return
        self.next_solve = done + min(max(done // 50, 1), self.every)
        self.solve_prices()

    def solve_prices(self) -> None:
        """Solve the price of each resource."""
        gains, uses = self.recent_values()
        for _ in range(4 if len(self.prices) > 1 else 1):  # sweeps over the resources
            for r, tasks_left in enumerate(self.horizons - len(self.routes)):
                if tasks_left >= 1 and 0 < self.budgets[r] < math.inf:
                    goal = max(0.0, self.left()[r]) / tasks_left * len(gains)
                    self.prices[r] = least_price(gains, uses, self.prices, r, goal)

    def recent_values(self) -> tuple[Floats, Floats]:
        """The gain of each expert over the model on the recent contexts, and its cost of each resource."""
        recent = np.array(self.contexts[-self.window :])
        past_widths = np.array(self.past_widths[-self.window :]).T
        indices = []
        for decider, each in enumerate(self.rewards):  # spreads shrink as 1 / (samples + d)
            seen = len(each.responses) + self.d
            widths = self.learning_share() * self.factor(decider) * past_widths[decider] / math.sqrt(seen)
            indices.append(each.index(recent, widths, 1.0 if decider > 0 else self.model_bonus()))
        gains = np.array(indices[1:]).T - indices[0][:, None]
        gains[:, [k - 1 for k in self.costs if self.untried(k)]] = 0.0
        costs = [[each.mean(each.predictor(recent)) for each in own] for own in self.costs.values()]
        return gains, np.maximum(0.0, np.array(costs).transpose(2, 0, 1))


def run(learner: Learner, tasks: Tasks, feedback: str) -> list[Choice]:
    """Decide a stream of tasks and observe each one at once."""
    choices = []
    for t, x in enumerate(tasks.contexts):
        choice = learner.decide(x)
        route = choice.route
        known = {"full": {0, route}, "bandit": {route}, "reviewed": {0, route} if route > 0 else {}}
        rewards = {decider: float(tasks.rewards[t, decider]) for decider in known[feedback]}
        learner.observe(t, rewards, tasks.costs[t, route - 1] if route > 0 else None)
        choices.append(choice)
    return choices


# The rule of December 2026.

RANKED = 100  # contexts that ranks are taken among
MIN_FOR_CUTS = 10  # values of a feature
UNIT, NARROW = 1.0, 0.25  # up to this size no value is an outlier, if the deciles are so near each other
ABSURD = 1_000  # times the larger decile: no value at all
RANK_WINDOWS = (WINDOWS[0], WINDOWS[2])  # of the members that read ranks
RANK_WEIGHT, CONFIDENT_RANK_WEIGHT = 2.0, 4.0  # of the ranks, where the values have 1
NOISE_SAMPLES = 4  # of the prior of σ̂²
NOISE_VARIANCE = {"identity": 0.25, "logistic": 1.0}  # of each of them
MODEL_SHARE = 0.5  # of the model's bonus
BOOSTS = (1.0, 1.5, 1.5**2, 1.5**3, 1.5**4, 20 / 3)  # of the expert's bonus
TOLERATED_ARREARS = 2.0  # mean costs, times the root of their number
CATCH_UP = 0.25  # for each mean cost beyond
PATIENCE = 100  # decisions in which an untried expert waits for a task that is worth asking
CONFIDENT_RIDGE = 0.1
# With a confidence: the model's reward at the middle rank of it, its slope on the rank, and the reward of an expert.
CONFIDENCE = {"identity": (0.77, 0.30, 0.9), "logistic": (1.5, 2.0, math.log(9))}


class Ranks:
    """The values of each feature in the first 100 contexts, without the missing ones."""

    def __init__(self, d: int) -> None:
        self.tables = [np.zeros(0) for _ in range(d)]
        self.scale = 1 / math.sqrt(1 + d)
        self.n_contexts = 0

    def add(self, x: Floats) -> None:
        """Add a context, unless there are 100."""
        if self.n_contexts < RANKED:
            self.n_contexts += 1
            for j, value in enumerate(x):
                if not math.isnan(value):
                    self.tables[j] = np.sort([*self.tables[j], value])

    def midrank(self, j: int, value: float) -> float:
        """The share of the values of a feature that are below a value, ties by half; before 100, with itself."""
        table = self.tables[j] if self.n_contexts == RANKED else np.append(self.tables[j], value)
        if math.isnan(value) or len(table) == 0:
            return 0.5
        return float(np.mean(table < value) + np.mean(table == value) / 2)

    def view(self, x: Floats) -> Floats:
        """[1, midrank − ½] / √(1 + d)."""
        return self.scale * np.array([1.0, *(self.midrank(j, value) - 0.5 for j, value in enumerate(x))])

    def cut(self, x: Floats) -> tuple[Floats, Floats]:
        """A context whose outliers are cut, and the context with NaN for absurd values."""
        cut, known = x.copy(), x.copy()
        for j, table in enumerate(self.tables):
            n = len(table)
            if n < MIN_FOR_CUTS:
                continue
            low, high = table[n // 10], table[n - 1 - n // 10]  # the first and the last decile
            if high - low < NARROW and abs(x[j]) <= UNIT:
                continue
            if abs(x[j]) > ABSURD * max(abs(low), abs(high)) > 0:
                cut[j], known[j] = table[n // 2], math.nan
            elif high > low:
                cut[j] = np.clip(x[j], 2 * low - high, 2 * high - low)
        return cut, known


class TwoViews(Estimate):
    """One reward or one cost: four members that read values, and two that read ranks."""

    def __init__(
        self, link: str, ridge: float, bounds: tuple[float, float], starts: Sequence[Floats], rank_weight: float
    ) -> None:
        d = len(starts[0])
        super().__init__(d, link, ridge, bounds)
        self.members += [Member(d, link, ridge, window, every) for window, every in RANK_WINDOWS]
        halves = 0.5 ** np.arange(len(RANK_WINDOWS))
        self.start = np.append(self.start, rank_weight * halves / halves.sum()) / (1 + rank_weight)
        self.weights = self.start.copy()
        for i, member in enumerate(self.members):
            view = int(i >= len(WINDOWS))
            member.columns = slice(view * d, (view + 1) * d)
            member.start, member.theta = starts[view], starts[view].copy()

    def root_spread(self, x: Floats) -> float:
        """√(xᵀH⁻¹x) of the member that reads ranks and forgets nothing."""
        return math.sqrt(self.members[len(WINDOWS)].spread(x))

    def factor(self, prior: float, boost: float = 1.0) -> float:
        """boost·scale·σ̂ + prior, where σ̂² is that of four more samples, and at most 1 for 0/1 rewards."""
        errors = self.scaled_error + NOISE_SAMPLES * NOISE_VARIANCE[self.link]
        variance = errors / (len(self.responses) + NOISE_SAMPLES)  # σ̂²
        noise = math.sqrt(variance if self.link == "identity" else min(variance, 1.0))
        return boost * SCALE[self.link] * noise + prior


class DayOne(Learner):
    """The learner with the rule of December 2026, for one resource.

    The confidence of the model is the feature with this number, if any. A context is [x, constant, rank view], where
    the constant is 0 without a confidence.
    """

    def __init__(self, d: int, limit: Limit, link: str, seed: int, confidence: int | None = None, K: int = 1) -> None:
        self.automatic = link == "auto"
        self.link = "logistic" if self.automatic else link
        self.confidence = confidence
        super().__init__(d, K, [limit], [self.link, "identity"], seed)
        self.d = d + 1  # what widths and the bonus depend on
        self.ranks = Ranks(d)
        self.known = np.zeros(d)  # the latest context, with NaN for missing values
        self.outcomes: list[tuple[dict[int, float], list[Floats]]] = []  # rewards and costs of each decision
        self.expected: list[Floats] = []  # costs of each decision
        self.solved = np.zeros(1)  # the price, before arrears lower it
        self.arrears = np.zeros(1)
        self.boost = 1.0  # of the experts' bonus
        self.scores: list[float] = []  # of the latest task: estimated rewards, their widths, estimated costs
        self.reset()

    def reset(self) -> None:
        """Forget all estimates."""
        unit, any_cost = (0.0, 1.0), (-math.inf, math.inf)
        ridge = RIDGE[self.link] if self.confidence is None else CONFIDENT_RIDGE
        weight = RANK_WEIGHT if self.confidence is None else CONFIDENT_RANK_WEIGHT
        rewards = [self.starts(decider) for decider in range(len(self.rewards))]
        zeros = [np.zeros(self.d), np.zeros(self.d)]
        self.rewards = [TwoViews(self.link, ridge, unit, starts, weight) for starts in rewards]
        for k, own in self.costs.items():
            self.costs[k] = [TwoViews("identity", ridge, any_cost, zeros, weight) for _ in own]

    def starts(self, decider: int) -> list[Floats]:
        """θ₀ of a decider's reward, on values and on ranks: a slope on the confidence is for ranks only."""
        values, ranks = np.zeros(self.d), np.zeros(self.d)
        if self.confidence is not None:
            model, slope, expert = CONFIDENCE[self.link]
            values[-1] = ranks[0] = (model if decider == 0 else expert) / self.ranks.scale
            ranks[1 + self.confidence] = slope / self.ranks.scale if decider == 0 else 0.0
        return [values, ranks]

    def decide(self, x: Floats, available: Sequence[int] | None = None) -> Choice:
        """Cut outliers, rank the context, and choose the route of a task."""
        cut, self.known = self.ranks.cut(x)
        constant = 0.0 if self.confidence is None else self.ranks.scale
        return super().decide(np.array([*cut, constant, *self.ranks.view(self.known)]), available)

    def choose(self, x: Floats, available: Sequence[int]) -> tuple[int, str, float]:
        """The route, its reason and its propensity; the scores are kept to be compared."""
        estimates = [float(each.mean(each.predictor(x))) for each in self.rewards]
        widths = [abs(self.index(decider, x) - estimate) for decider, estimate in enumerate(estimates)]
        self.scores = [*estimates, *widths, *(float(each.predictor(x)) for own in self.costs.values() for each in own)]
        return super().choose(x, available)

    def waits(self, x: Floats, available: Sequence[int]) -> bool:
        """Whether an untried expert waits for a task that is worth asking: early, and if another one was observed."""
        early = len(self.routes) < PATIENCE and bool(self.observed())
        return early and all(self.worth(k, x) <= self.worth(0, x) for k in available)

    def observed(self) -> list[int]:
        """The experts with observed rewards."""
        return [k for k in self.costs if self.rewards[k].responses]

    def remember(self, x: Floats, route: int) -> None:
        """Add the context to the ranks; when there are 100, cut outliers of the first ones and learn again."""
        self.expected.append(self.expected_costs(route, x) if route > 0 else np.zeros(1))
        self.outcomes.append(({}, []))
        super().remember(x, route)
        self.ranks.add(self.known)
        if len(self.routes) == RANKED:
            for context in self.contexts:
                context[: self.d - 1] = self.ranks.cut(context[: self.d - 1])[0]
            self.relearn()

    def relearn(self) -> None:
        """Learn all outcomes again, in the order of decisions."""
        self.reset()
        for decision, (rewards, costs) in enumerate(self.outcomes):
            super().learn(decision, rewards, costs[0] if costs else None)

    def learn(self, decision: int, rewards: Mapping[int, float], costs: Floats | None) -> None:
        """Learn outcomes of a task; the first reward that is neither 0 nor 1 switches an automatic link."""
        self.outcomes[decision][0].update(rewards)
        self.outcomes[decision][1].extend([] if costs is None else [costs])
        if self.automatic and not set(rewards.values()) <= {0.0, 1.0}:
            self.automatic, self.link = False, "identity"
            self.relearn()
        else:
            super().learn(decision, rewards, costs)

    def model_bonus(self) -> float:
        """b, and half of it if it is positive: what choosing the model reveals is rarely what decides."""
        b = min(1.0, super().model_bonus())
        return MODEL_SHARE * b if b > 0 and self.model_seen > 0 else b

    def size(self, x: Floats) -> float:
        """The squared length of the rank view."""
        return float(x[self.d :] @ x[self.d :])

    def factor(self, decider: int) -> float:
        """The width of a reward; those of experts are boosted, the less the more is known of all of them."""
        estimate = self.rewards[decider]
        assert isinstance(estimate, TwoViews)
        if decider == 0:
            return estimate.factor(self.prior())
        seen = sum(len(self.rewards[k].responses) for k in self.costs)
        known = min(1.0, ASKS_A_FEATURE * self.d / max(seen, 1))
        team = max(len(self.observed()), 1) ** 0.25 if self.link == "identity" else 1.0
        return team * estimate.factor(self.prior(), max(1.0, min(self.boost, BOOSTS[-1] * known**0.75)))

    def move_prices(self) -> None:
        """Solve the price periodically, and lower it while spending is far behind an even pace."""
        latest, tasks_left = len(self.routes) - 1, self.horizons - len(self.routes)
        pace = np.maximum(self.left(), 0) / tasks_left if tasks_left > 0 else 0.0
        known = self.outcomes[latest][1]
        self.arrears = np.maximum(0, self.arrears + pace - (known[0] if known else self.expected[latest]))
        self.prices = self.solved.copy()
        super().move_prices()
        self.solved = self.prices.copy()
        if self.cost_sum > 0:
            behind = self.arrears * self.n_costs / self.cost_sum - TOLERATED_ARREARS * math.sqrt(self.n_costs + 1)
            self.prices = self.solved / (1 + CATCH_UP * np.maximum(behind, 0))

    def solve_prices(self) -> None:
        """Solve the price; while it is 0, boost the bonus of the experts and solve it again."""
        for self.boost in BOOSTS:
            super().solve_prices()
            if self.prices > 0 or (self.boost == 1 and self.asks_always()):
                break

    def asks_always(self) -> bool:
        """Whether some expert is worth more than the model on all recent contexts: there is no more to ask."""
        return bool((self.recent_values()[0].max(axis=1) > 0).all())
