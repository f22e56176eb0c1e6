"""Planning a budget: trials over budgets, the need of a goal, and the price of the next unit."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from deferkit.errors import InvalidArgument, closest
from deferkit.learn.representation_text import LINEAR
from deferkit.study.achievable import with_shares
from deferkit.study.allowance import Allowance
from deferkit.study.policy_registry import LEARNERS, POLICIES, has_embedding, is_learner
from deferkit.study.spec import Spec
from deferkit.study.statistics import TOLERANCE, crossing, reached_at, rising_of, slopes
from deferkit.study.trial_store import Trial
from deferkit.worlds.base import TaskStream

LEVELS = (90.0, 95.0, 99.0)  # per cent
TIGHT = 0.02  # of a needed budget: how far the measured budgets around it may be apart
CLOSE_SHARE = 0.02  # per cent of reviewing everything: budgets that are nearer to each other than this are the same
BESIDE = 0.4  # of TIGHT: how far on either side of a needed budget is measured next


class Need(NamedTuple):
    """The smallest budget that gains a share; all None where no budget does."""

    level: float  # per cent
    budget: float | None
    share: float | None  # the budget in per cent of what asking about every task costs
    asked: float | None
    asked_pct: float | None
    price: float | None
    budget_min: float | None  # over orders, each with its own curve; None unless every order gets there
    budget_max: float | None
    below: float | None  # the measured budgets that it lies between
    above: float | None


def nothing(level: float) -> Need:
    """Return that no budget gains so much."""
    return Need(level, *[None] * (len(Need._fields) - 1))


class Measured(NamedTuple):
    """A curve as it was measured: means over orders, and each order by itself."""

    budgets: Sequence[float]
    shares: Sequence[float]
    gained: Sequence[float]
    asked: Sequence[float]
    asked_pct: Sequence[float]
    prices: Sequence[float | None]
    orders: Sequence[tuple[Sequence[float], Sequence[float]]]  # budgets and gained of each


def need(level: float, curve: Measured, whole: float | None, wholes: Sequence[float]) -> Need:
    """Return the smallest budget that gains `level` per cent of `whole`, and of each order's own whole."""
    budget = None if whole is None else crossing(curve.budgets, curve.gained, level / 100 * whole)
    if whole is None or budget is None:
        return nothing(level)
    apart = [
        crossing(budgets, gained, level / 100 * top)
        for (budgets, gained), top in zip(curve.orders, wholes, strict=True)
    ]
    found = [each for each in apart if each is not None]
    least, most = (min(found), max(found)) if len(found) == len(apart) else (None, None)
    here = int(np.searchsorted(curve.budgets, budget, side="right")) - 1
    share, asked, asked_pct = (
        float(np.interp(budget, curve.budgets, values)) for values in (curve.shares, curve.asked, curve.asked_pct)
    )
    at = reached_at(curve.gained, level / 100 * whole)
    below, above = curve.budgets[max(0, (at or 0) - 1)], curve.budgets[at or 0]
    return Need(level, budget, share, asked, asked_pct, curve.prices[here], least, most, below, above)


def next_shares(found: Need, everything: float, *, halve: bool) -> list[float]:
    """Return the budgets to measure next, in per cent of everything, until those around a needed one are close.

    Two closely around it, or, to `halve` what lies between the two that are known, the middle.

    >>> found = nothing(90.0)._replace(budget=30.0, share=30.0, below=20.0, above=40.0)
    >>> next_shares(found, 100.0, halve=False), next_shares(found, 100.0, halve=True)
    ([29.76, 30.24], [30.0])
    >>> next_shares(found._replace(below=29.9, above=30.1), 100.0, halve=False)
    []
    """
    if found.budget is None or found.share is None or found.below is None or found.above is None or everything <= 0:
        return []
    low, high = 100 * found.below / everything, 100 * found.above / everything
    if high - low <= max(TIGHT * high, CLOSE_SHARE):
        return []
    middle = (low + high) / 2
    beside = BESIDE * TIGHT * found.share
    wanted = [middle] if halve else [found.share - beside, found.share + beside]
    inside = [share for share in wanted if low + CLOSE_SHARE / 2 < share < high - CLOSE_SHARE / 2]
    return [float(f"{share:.5g}") for share in inside or [middle]]


CLOSE = 90.0  # per cent of possible: a learner that gets there can predict outcomes


class Point(NamedTuple):
    """What a policy comes to with a budget: means over orders."""

    budget: float  # in units of cost
    share: float  # the budget in per cent of what asking about every task costs
    reward: float
    reward_sd: float | None  # over orders, of what was gained; None of a single one
    reward_min: float
    reward_max: float
    gained: float
    gained_se: float  # its standard error, if the tasks are a sample of those to come
    reached: float | None  # gained, in per cent of what is possible; None where nothing is
    of_achievable: float | None  # in per cent of what is achievable with the same budget; None where that is unknown
    spent: float
    asked: float  # tasks
    asked_pct: float  # of all tasks
    price: float | None  # reward that the next unit of budget brings; None where nothing was measured beyond


class Curve(NamedTuple):
    """What a policy comes to, from no budget to all that can be spent."""

    policy: str
    points: tuple[Point, ...]
    needed: tuple[Need, ...]  # for shares of what is possible
    needed_of_own: tuple[Need, ...]  # for shares of the most that this policy gains itself


class Plan(NamedTuple):
    """The answer: how much is needed, and what the next unit brings."""

    n_tasks: int
    seeds: tuple[int, ...]  # one order each
    everything: float  # what asking about every task costs
    model: float  # what the model earns alone
    possible: float  # what can be gained at most
    hindsight: float  # what OPT gains at most; on a table it knows every outcome in advance
    estimated: bool  # whether what is possible is an estimate: that of the achievable optimum
    right: bool  # whether a reward is 1 for right and 0 for wrong
    representation: str  # what the learner's estimates rest on
    curves: tuple[Curve, ...]  # OPT first, then the learner

    @property
    def free(self) -> bool:
        """Whether asking costs nothing."""
        return self.everything == 0

    @property
    def within_reach(self) -> bool:
        """Whether the learner comes close to OPT somewhere: outcomes can be predicted, then."""
        return any(point.reached is not None and point.reached >= CLOSE for point in self.learner.points)

    @property
    def hopeless(self) -> bool:
        """Whether nobody is ever better than the model."""
        return self.hindsight <= TOLERANCE * abs(self.model)

    @property
    def shares(self) -> tuple[float, ...]:
        """The budgets that all policies were measured with, in per cent of what asking about every task costs."""
        return tuple(share for share in shares_of(self.learner) if all(share in shares_of(c) for c in self.curves))

    @property
    def learner(self) -> Curve:
        """The curve of the learner that is planned for."""
        return self.curves[1]


def shares_of(curve: Curve) -> list[float]:
    """Return the budgets that a policy was measured with."""
    return [point.share for point in curve.points]


def on_grid(plan: Plan, curve: Curve) -> list[Point]:
    """Return the points of a curve at the budgets that all policies were measured with."""
    return [point for point in curve.points if point.share in plan.shares]


def plan_of(frame: pl.DataFrame, *, learner: str, n_tasks: int, right: bool = False) -> Plan:
    """Return the plan that these trials give: a row for each policy, budget (`10%`, or `inf`) and seed.

    OPT with the budget `inf` has to be among them: what it gains is what is possible, unless the achievable optimum is
    there too. Where asking costs nothing all policies have this one budget. `right`: whether rewards are 0 or 1.

    >>> rows = [("opt", "inf", float("inf"), 9.0), ("opt", "0%", 0.0, 5.0), ("opt", "100%", 8.0, 9.0)]
    >>> rows += [("default", "0%", 0.0, 5.0), ("default", "100%", 8.0, 7.0)]
    >>> names = ["policy", "asked_budget", "budget", "reward"]
    >>> same = {"seed": 0, "model": 5.0, "spent": 0.0, "defer_rate": 0.0, "opt_price": 0.5, "gained_se": 1.0}
    >>> same["representation"] = "linear"
    >>> frame = pl.DataFrame(rows, schema=names, orient="row").with_columns(**{k: pl.lit(v) for k, v in same.items()})
    >>> plan = plan_of(frame, learner="default", n_tasks=10)
    >>> plan.possible, plan.learner.points[1].reached, plan.curves[0].needed[0].budget
    (4.0, 50.0, 7.2)
    """
    frame = with_shares(frame.with_columns(gained=pl.col("reward") - pl.col("model")))
    ends = {name: frame.filter(policy=name, asked_budget="inf") for name in ("opt", "achievable")}
    top = ends["opt"]
    tops = {
        name: {row["seed"]: float(row["gained"]) for row in end.iter_rows(named=True)} for name, end in ends.items()
    }
    hindsight, most = (float(np.mean(list(each.values()) or [0.0])) for each in tops.values())
    model = float(np.mean(top["model"].to_numpy()))
    estimated = most > TOLERANCE * max(abs(model), hindsight)
    limited = frame.filter(pl.col("asked_budget") != "inf")
    free = limited.is_empty()
    used = frame.with_columns(budget=pl.lit(0.0), asked_budget=pl.lit("0%")) if free else limited
    used = used.with_columns(
        share=pl.col("asked_budget").map_elements(
            lambda text: Allowance.from_text(text).number, return_dtype=pl.Float64
        )
    )
    possible = tops["achievable" if estimated else "opt"]
    names = used["policy"].unique(maintain_order=True).to_list()
    order = ["opt", learner, *(name for name in names if name not in ("opt", learner))]
    whole = float(np.mean(used.filter(pl.col("share") == used["share"].max())["budget"].to_numpy()))
    plan = Plan(
        n_tasks=n_tasks,
        seeds=tuple(sorted(possible)),
        everything=whole,
        model=model,
        possible=most if estimated else hindsight,
        hindsight=hindsight,
        estimated=estimated,
        right=right,
        representation=str(used.filter(policy=learner)["representation"].drop_nulls().first() or LINEAR),
        curves=(),
    )
    every = [set(used.filter(policy=name)["share"].to_list()) for name in order]
    grid = sorted(set.intersection(*every))
    curves = tuple(curve_of(used.filter(policy=name), plan, possible, grid) for name in order)
    return plan._replace(curves=curves)


def curve_of(frame: pl.DataFrame, plan: Plan, possible: dict[int, float], grid: Sequence[float]) -> Curve:
    """Return the curve of one policy from its trials; `possible` is what can be gained in each order.

    Prices are slopes between the budgets of `grid`: between those that lie close to each other chance would be one.
    """
    policy = str(frame["policy"][0])
    shares = sorted(frame["share"].unique().to_list())
    measured = {seed: each.sort("share") for (seed,), each in frame.group_by("seed", maintain_order=True)}
    columns = {
        name: np.array([measured[seed][name].to_numpy() for seed in plan.seeds])
        for name in ("budget", "reward", "gained", "gained_se", "spent", "defer_rate", "opt_price", "of_achievable")
    }
    mean = {name: values.mean(axis=0) for name, values in columns.items()}
    at = [shares.index(share) for share in grid]
    rises = slopes(mean["budget"][at].tolist(), mean["gained"][at].tolist())
    steps: list[float | None] = [*rises, 0.0 if plan.free else None]
    prices = [steps[int(np.searchsorted(grid, share, side="right")) - 1] for share in shares]
    gained = columns["gained"]
    asked = (mean["defer_rate"] / 100 * plan.n_tasks).tolist()
    points = tuple(
        Point(
            budget=float(mean["budget"][i]),
            share=float(share),
            reward=float(mean["reward"][i]),
            reward_sd=float(gained[:, i].std(ddof=1)) if len(gained) > 1 else None,
            reward_min=float(columns["reward"][:, i].min()),
            reward_max=float(columns["reward"][:, i].max()),
            gained=float(mean["gained"][i]),
            gained_se=float(mean["gained_se"][i]),
            reached=None if plan.hopeless else 100 * float(mean["gained"][i]) / plan.possible,
            of_achievable=drop_nan(mean["of_achievable"][i]),
            spent=float(mean["spent"][i]),
            asked=asked[i],
            asked_pct=float(mean["defer_rate"][i]),
            price=float(mean["opt_price"][i]) if policy == "opt" and not plan.free else prices[i],
        )
        for i, share in enumerate(shares)
    )
    curve = Measured(
        budgets=mean["budget"].tolist(),
        shares=shares,
        gained=mean["gained"].tolist(),
        asked=asked,
        asked_pct=mean["defer_rate"].tolist(),
        prices=prices,
        orders=[(own.tolist(), each.tolist()) for own, each in zip(columns["budget"], gained, strict=True)],
    )
    tops = [possible[seed] for seed in plan.seeds]
    # the most that it gains is read from the same rising curve as the budgets are
    own = [max(rising_of(each.tolist())) for each in gained]
    best = max(rising_of(curve.gained))
    own_hopeless = best <= TOLERANCE * max(abs(plan.model), plan.possible)
    return Curve(
        policy,
        points,
        tuple(need(level, curve, None if plan.hopeless else plan.possible, tops) for level in LEVELS),
        tuple(need(level, curve, None if own_hopeless else best, own) for level in LEVELS),
    )


def drop_nan(value: float | None) -> float | None:
    """Return a mean, or None if it is NaN because a value is missing."""
    return None if value is None or math.isnan(value) else float(value)


ROUNDS = 8  # at most: every other one halves what is left
MAX_EXTRA = 30_000_000  # decisions beside those of the plan itself; the learner's come first
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
    room = max(0, MAX_EXTRA // (plan.n_tasks * len(plan.seeds)) - extra)
    first = sorted(wanted, key=lambda key: key[0] != plan.learner.policy)[:room]
    return [(replace(templates[policy], budget=text), seed) for seed in plan.seeds for policy, text in first]


# per cent of what asking about every task costs: the first of it brings most, so that is where a plan looks closest
SHARES = (0, 1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 35, 40, 50, 60, 80, 100)
RULES = ("best-reject", "random")
ORDERS = 5
MIN_ROWS = 200  # complete rows that are worth planning on
MIN_ORDERS = 2  # of one alone nobody knows how much it depends on the order
MAX_DECISIONS = 60_000_000  # of the learner in all: a few minutes
ROUND = 4_000_000  # tasks × budgets of an order that are run in one go, so that an interrupt does not lose more
SLOWER = 50  # how many times as long a decision takes with a learned representation
MANY = 5_000_000  # decisions from which on more than one process is worth starting


def orders_for(n_tasks: int) -> int:
    """Return the default number of orders: 5, or down to 2 where there are many tasks.

    >>> orders_for(5_000), orders_for(700_000), orders_for(1_000_000), orders_for(50_000_000)
    (5, 5, 3, 2)
    """
    return max(MIN_ORDERS, min(ORDERS, MAX_DECISIONS // (n_tasks * len(SHARES))))


def worth_workers(n_tasks: int, orders: int, policy: str = "default") -> bool:
    """Return whether there are enough decisions to start more than one process.

    >>> worth_workers(5_000, 5), worth_workers(100_000, 5), worth_workers(5_000, 5, "tree")
    (False, True, True)
    """
    return n_tasks * len(SHARES) * orders * (SLOWER if has_embedding(policy) else 1) > MANY


def check_plannable(stream: TaskStream, policy: str) -> None:
    """Raise InvalidArgument, with the reason, if no plan can be made for a stream and policy."""
    if not is_learner(policy):
        meant = "" if policy in POLICIES else closest(policy, LEARNERS)
        raise InvalidArgument(f"A plan is for a learner: {', '.join(LEARNERS)}. Got {policy!r} instead.{meant}")
    if stream.costs.shape[2] > 1:
        raise InvalidArgument(f"A plan is for one resource. This world has {stream.costs.shape[2]}.")
    if not stream.complete:
        lost = np.isnan(stream.rewards).any(axis=1) | np.isnan(stream.costs).any(axis=(1, 2))
        complete = stream.n_tasks - int(lost.sum())
        advice = (
            "keep the complete rows, and plan on those"
            if complete >= MIN_ROWS
            else (f"{complete:,} rows with a human outcome are too few to plan on, it takes some hundred")
        )
        raise InvalidArgument(
            "Planning needs to know what the human would have done on every row, and"
            f" {int(lost.sum()):,} of {stream.n_tasks:,} rows do not say: {advice}."
        )


def plan_trials(
    world: str,
    parameters: Mapping[str, Any],
    *,
    policy: str,
    seeds: Sequence[int],
    feedback: str = "full",
    free: bool = False,
    achievable: bool = False,
) -> list[Trial]:
    """Return the trials of a plan; where asking is `free`, no budget is the only one.

    `achievable`: with the achievable optimum, which is what the others are measured by then.

    >>> trials = plan_trials("synthetic", {"horizon": 50}, policy="default", seeds=[0])
    >>> len(trials), trials[0][0].policy, trials[0][0].budget
    (69, 'opt', 'inf')
    """
    budgets = [f"{share}%" for share in SHARES]
    beside = ("achievable",) if achievable else ()
    wanted = [(name, "inf") for name in ("opt", *beside)]
    wanted += [(name, text) for text in (["inf"] if free else budgets) for name in ("opt", policy, *beside, *RULES)]
    specs = [
        Spec.of(world, parameters, policy=name, budget=text, feedback=feedback) for name, text in dict.fromkeys(wanted)
    ]
    return [(spec, seed) for seed in seeds for spec in specs]


def rounds_of(trials: Sequence[Trial], n_tasks: int) -> list[list[Trial]]:
    """Return the trials in rounds of a few budgets each, which are done and kept one after the other.

    >>> trials = plan_trials("synthetic", {"horizon": 50}, policy="default", seeds=[0, 1])
    >>> [len(each) for each in rounds_of(trials, 50)], len(rounds_of(trials, 1_000_000))
    ([138], 5)
    """
    budgets = list(dict.fromkeys(spec.budget for spec, _ in trials))
    size = max(1, ROUND // n_tasks)
    parts = [set(budgets[start : start + size]) for start in range(0, len(budgets), size)]
    return [[trial for trial in trials if trial[0].budget in part] for part in parts]
