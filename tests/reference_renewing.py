"""The prices of budgets with an end or a period, transcribed from their formulas in plain numpy.

The rest of the learner is `tests.reference.Learner`.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tests.conftest import Floats
from tests.reference import Choice, Learner, Limit, least_price

BINS = 168


class Plan(NamedTuple):
    """How a budget is paced: a horizon, an end, or periods of a fixed length from a start on."""

    amount: float
    horizon: float = math.inf
    until: float | None = None
    every: float | None = None
    carry: float = 0.0


class RenewingLearner(Learner):
    """The default learner whose prices follow the time. Every period is known by the times of all tasks so far."""

    def __init__(
        self, d: int, K: int, plans: Sequence[Plan], caps: Sequence[float], links: list[str], seed: int
    ) -> None:
        limits = [Limit(plan.amount, plan.horizon, cap) for plan, cap in zip(plans, caps, strict=True)]
        super().__init__(d, K, limits, links, seed)
        self.plans = plans
        self.times: list[float] = []
        self.period = [0] * len(plans)  # the number of the current one
        self.solved_at = 0.0

    def learning_share(self) -> float:
        """e, with three allowances to come as if they were left."""
        bounded = (self.budgets > 0) & np.isfinite(self.budgets) & (self.cost_sum > 0)
        if not bounded.any():
            return 1.0
        coming = np.array([3 * plan.amount if plan.every is not None else 0.0 for plan in self.plans])
        asks = (np.maximum(self.left(), 0) + coming)[bounded] / (self.cost_sum[bounded] / self.n_costs)
        return float(min(1.0, asks.min() / (5 * self.d)))

    def decide_at(self, x: Floats, at: float) -> Choice:
        """Renew what is to be renewed, solve the prices if that is due, and decide."""
        at = max([at, *self.times[-1:]])
        self.first = at if not self.times else self.times[0]
        for r, plan in enumerate(self.plans):
            while plan.every is not None and at >= self.first + (self.period[r] + 1) * plan.every:
                self.period[r] += 1
                left = max(0.0, self.left()[r])
                self.budgets[r] += min(left, plan.carry * plan.amount if plan.carry else 0.0) - left + plan.amount
                self.next_solve = min(self.next_solve, len(self.times))
        lengths = [plan.every or (plan.until or math.inf) - self.first for plan in self.plans]
        done = len(self.times)
        if done >= self.warm_up and (done >= self.next_solve or at - self.solved_at > min(lengths) / 100):
            self.next_solve, self.solved_at = done + min(max(done // 50, 1), 10), at
            if done > 0:
                self.solve(at)
        choice = super().decide(x)
        self.times.append(at)
        return choice

    def move_prices(self) -> None:
        """Prices move before a decision, not after it."""
        self.price_due = False

    def solve(self, at: float) -> None:
        for _ in range(4 if len(self.prices) > 1 else 1):
            for r, plan in enumerate(self.plans):
                if plan.until is not None and at >= plan.until:
                    continue
                if 0 < self.budgets[r] < math.inf:
                    self.prices[r] = self.price(r, plan, at)

    def price(self, r: int, plan: Plan, at: float) -> float:
        left, recent = max(0.0, self.left()[r]), list(range(len(self.times)))[::-1][: self.window]
        if plan.every is None:
            tasks = plan.horizon - len(self.times) if plan.until is None else self.at_recent_rate(plan.until, at)
            return self.least(r, recent, left / max(tasks, 1.0))
        tasks, whole = self.expected(plan.every, self.period[r], at)
        sample = self.rest(plan.every, self.period[r], at, recent) if self.period[r] > 0 else recent
        need = self.least(r, sample, left / tasks)
        if plan.carry == 0:
            return need
        spare = left - plan.carry * plan.amount
        excess = self.least(r, sample, spare / tasks) if spare > 0 else math.inf
        long = self.least(r, recent, (left + 3 * plan.amount) / (tasks + 3 * whole))
        return min(max(long, need), excess)

    def at_recent_rate(self, until: float, at: float) -> float:
        """Tasks until the end, at the rate of the last 168 bins."""
        length = min(3_600.0, (until - self.first) / BINS)
        since = self.first + max(0, math.floor((at - self.first) / length) - BINS + 1) * length
        seen = sum(time >= since for time in self.times) + 1
        return (seen + 1) / max(at - since, length) * (until - at)

    def expected(self, every: float, period: int, at: float) -> tuple[float, float]:
        """N and N_period."""
        position = (at - self.first) / every - period
        numbers = np.floor((np.array(self.times) - self.first) / every).astype(int)
        seen = int((numbers == period).sum()) + 1
        if period == 0:
            rate = (seen + 1) / max(position * every, every / BINS)
            return max(rate * (1 - position) * every, 1.0), rate * every
        counts, weight = np.zeros(BINS), 0.0
        for k in range(period):
            shares = (np.array(self.times)[numbers == k] - self.first) / every - k
            counts = 0.7 * counts + np.bincount(np.minimum((shares * BINS).astype(int), BINS - 1), minlength=BINS)
            weight = 0.7 * weight + 1
        p = (counts + 0.5 * counts.sum() / BINS / weight) / (weight + 0.5)
        over = np.clip(position * BINS - np.arange(BINS), 0, 1)
        level = (25 + seen) / (25 + (p * over).sum())
        return max(level * (p * (1 - over)).sum(), 1.0), level * p.sum()

    def rest(self, every: float, period: int, at: float, recent: list[int]) -> list[int]:
        """Tasks of the last two periods that came later in them than it is in this one."""
        share = (at - self.first) / every - period
        found: list[int] = []
        by_period: list[list[int]] = []
        for k in (1, 2):
            if period >= k:
                start = self.first + (period - k) * every
                low, high = start + share * every, start + every
                by_period.append([t for t, time in enumerate(self.times) if low <= time < high])
                found += by_period[-1]
        step = 1 + max(len(found) - 1, 0) // (2 * self.window)  # at most two windows
        thinned = [t for period in by_period for t in period[::step]]
        latest = list(range(len(self.times)))[::-1]
        return thinned + latest[: max(0, 200 - len(thinned))] if found else recent

    def least(self, r: int, sample: list[int], each: float) -> float:
        """The least price at which the tasks of a sample use this much each."""
        contexts = np.array(self.contexts)[sample]
        past_widths = np.array(self.past_widths)[sample].T
        indices = []
        for decider, estimate in enumerate(self.rewards):
            seen = len(estimate.responses) + self.d
            widths = self.learning_share() * estimate.factor(self.prior()) * past_widths[decider] / math.sqrt(seen)
            indices.append(estimate.index(contexts, widths, 1.0 if decider > 0 else self.model_bonus()))
        gains = np.array(indices[1:]).T - indices[0][:, None]
        gains[:, [k - 1 for k in self.costs if self.untried(k)]] = 0.0
        costs = [[one.mean(one.predictor(contexts)) for one in own] for own in self.costs.values()]
        uses = np.maximum(0.0, np.array(costs).transpose(2, 0, 1))
        return least_price(gains, uses, self.prices, r, each * len(sample))
