"""How much budget is needed, and what the next unit of it brings: from trials to curves, prices and needed budgets.

*gained* is reward − what the model earns alone; *possible* is what OPT gains where everything can be paid for. A curve
is the mean over orders of the tasks, at budgets from nothing to what asking about every task costs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from deferkit.study.allowance import Allowance
from deferkit.study.slopes import TOLERANCE, crossing, rising_of, slopes

Floats = NDArray[np.float64]

LEVELS = (90.0, 95.0, 99.0)  # per cent
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
    reached: float | None  # gained, in per cent of what is possible; None where nothing is
    spent: float
    asked: float  # tasks
    asked_pct: float  # of all tasks
    price: float | None  # reward that the next unit of budget brings; None where nothing was measured beyond


class Need(NamedTuple):
    """The smallest budget that gains a share; all None where no budget does."""

    level: float  # per cent
    budget: float | None
    share: float | None
    asked: float | None
    asked_pct: float | None
    price: float | None
    budget_min: float | None  # over orders, each with its own curve; None unless every order gets there
    budget_max: float | None


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
        return self.possible <= TOLERANCE * abs(self.model)

    @property
    def learner(self) -> Curve:
        """The curve of the learner that is planned for."""
        return self.curves[1]


def plan_of(frame: pl.DataFrame, *, learner: str, n_tasks: int) -> Plan:
    """Return the plan that these trials give: a row for each policy, budget (`10%`, or `inf`) and seed.

    OPT with the budget `inf` has to be among them: what it gains is what is possible. Where asking costs nothing all
    policies have this one budget.

    >>> rows = [("opt", "inf", float("inf"), 9.0), ("opt", "0%", 0.0, 5.0), ("opt", "100%", 8.0, 9.0)]
    >>> rows += [("default", "0%", 0.0, 5.0), ("default", "100%", 8.0, 7.0)]
    >>> names = ["policy", "asked_budget", "budget", "reward"]
    >>> same = {"seed": 0, "model": 5.0, "spent": 0.0, "defer_rate": 0.0, "opt_price": 0.5}
    >>> frame = pl.DataFrame(rows, schema=names, orient="row").with_columns(**{k: pl.lit(v) for k, v in same.items()})
    >>> plan = plan_of(frame, learner="default", n_tasks=10)
    >>> plan.possible, plan.learner.points[1].reached, plan.curves[0].needed[0].budget
    (4.0, 50.0, 7.2)
    """
    frame = frame.with_columns(gained=pl.col("reward") - pl.col("model"))
    top = frame.filter((pl.col("policy") == "opt") & (pl.col("asked_budget") == "inf"))
    limited = frame.filter(pl.col("asked_budget") != "inf")
    free = limited.is_empty()
    used = frame.with_columns(budget=pl.lit(0.0), asked_budget=pl.lit("0%")) if free else limited
    used = used.with_columns(
        share=pl.col("asked_budget").map_elements(
            lambda text: Allowance.from_text(text).number, return_dtype=pl.Float64
        )
    )
    possible = {row["seed"]: float(row["gained"]) for row in top.iter_rows(named=True)}
    names = used["policy"].unique(maintain_order=True).to_list()
    order = ["opt", learner, *(name for name in names if name not in ("opt", learner))]
    whole = float(np.mean(used.filter(pl.col("share") == used["share"].max())["budget"].to_numpy()))
    plan = Plan(
        n_tasks=n_tasks,
        seeds=tuple(sorted(possible)),
        everything=whole,
        model=float(np.mean(top["model"].to_numpy())),
        possible=float(np.mean(list(possible.values()))),
        curves=(),
    )
    curves = tuple(curve_of(used.filter(policy=name), plan, possible) for name in order)
    return plan._replace(curves=curves)


def curve_of(frame: pl.DataFrame, plan: Plan, possible: dict[int, float]) -> Curve:
    """Return the curve of one policy from its trials; `possible` is what can be gained in each order."""
    policy = str(frame["policy"][0])
    shares = sorted(frame["share"].unique().to_list())
    measured = {seed: each.sort("share") for (seed,), each in frame.group_by("seed", maintain_order=True)}
    columns = {
        name: np.array([measured[seed][name].to_numpy() for seed in plan.seeds])
        for name in ("budget", "reward", "gained", "spent", "defer_rate", "opt_price")
    }
    mean = {name: values.mean(axis=0) for name, values in columns.items()}
    rises = slopes(mean["budget"].tolist(), mean["gained"].tolist())
    prices: list[float | None] = [*rises, 0.0 if plan.free else None]
    if policy == "opt" and not plan.free:
        prices = mean["opt_price"].tolist()
    gained = columns["gained"]
    points = tuple(
        Point(
            budget=float(mean["budget"][i]),
            share=float(share),
            reward=float(mean["reward"][i]),
            reward_sd=float(gained[:, i].std(ddof=1)) if len(gained) > 1 else None,
            reward_min=float(columns["reward"][:, i].min()),
            reward_max=float(columns["reward"][:, i].max()),
            gained=float(mean["gained"][i]),
            reached=None if plan.hopeless else 100 * float(mean["gained"][i]) / plan.possible,
            spent=float(mean["spent"][i]),
            asked=float(mean["defer_rate"][i]) / 100 * plan.n_tasks,
            asked_pct=float(mean["defer_rate"][i]),
            price=prices[i],
        )
        for i, share in enumerate(shares)
    )
    tops = [possible[seed] for seed in plan.seeds]
    # the most that it gains is read from the same rising curve as the budgets are
    own = [max(rising_of(each.tolist())) for each in gained]
    best = max(rising_of(mean["gained"].tolist()))
    own_hopeless = best <= TOLERANCE * max(abs(plan.model), plan.possible)
    return Curve(
        policy,
        points,
        tuple(need(level, points, rises, columns, None if plan.hopeless else plan.possible, tops) for level in LEVELS),
        tuple(need(level, points, rises, columns, None if own_hopeless else best, own) for level in LEVELS),
    )


def need(
    level: float,
    points: Sequence[Point],
    rises: Sequence[float],
    columns: dict[str, Floats],
    whole: float | None,
    wholes: Sequence[float],
) -> Need:
    """Return the smallest budget that gains `level` per cent of `whole`, and of each order's own whole."""
    nothing = Need(level, None, None, None, None, None, None, None)
    if whole is None:
        return nothing
    budgets = [point.budget for point in points]
    budget = crossing(budgets, [point.gained for point in points], level / 100 * whole)
    if budget is None:
        return nothing
    apart = [
        crossing(list(own), list(gained), level / 100 * top)
        for own, gained, top in zip(columns["budget"], columns["gained"], wholes, strict=True)
    ]
    found = [each for each in apart if each is not None]
    everywhere = len(found) == len(apart)
    here = int(np.searchsorted(budgets, budget, side="right")) - 1
    price = rises[here] if here < len(rises) else points[-1].price
    share, asked, asked_pct = (
        float(np.interp(budget, budgets, [getattr(point, name) for point in points]))
        for name in ("share", "asked", "asked_pct")
    )
    least, most = (min(found), max(found)) if everywhere else (None, None)
    return Need(level, budget, share, asked, asked_pct, price, least, most)
