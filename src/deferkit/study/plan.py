"""How much budget is needed, and what the next unit of it brings: from trials to curves, prices and needed budgets.

*gained* is reward − what the model earns alone; *possible* is what can be gained where everything can be paid for: by
the achievable optimum on a table, by OPT where the truth is known. A curve is the mean over orders of the tasks, at
budgets from nothing to what asking about every task costs.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from deferkit.learn.representation_text import LINEAR
from deferkit.study.achievable import with_shares
from deferkit.study.allowance import Allowance
from deferkit.study.plan_need import LEVELS, Measured, Need, need
from deferkit.study.slopes import TOLERANCE, rising_of, slopes

CLOSE = 90.0  # per cent of possible: who gets there can foresee outcomes


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
    hindsight: float  # what OPT gains at most; on a table it knows every outcome beforehand
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
        """Whether the learner comes close to OPT somewhere: outcomes can be foreseen, then."""
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
            of_achievable=known(mean["of_achievable"][i]),
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


def known(value: float | None) -> float | None:
    """Return a mean, or None where something of it is not known."""
    return None if value is None or math.isnan(value) else float(value)
