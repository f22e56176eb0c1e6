"""A budget planned for a table or a simulated world: `deferkit.plan`, which `deferkit plan` calls."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from deferkit.display import Cells, html_block, html_table, text_table
from deferkit.planning.plan import (
    ORDERS,
    ROUNDS,
    Plan,
    check_plannable,
    next_trials,
    orders_for,
    plan_of,
    plan_trials,
    rounds_of,
    worth_workers,
)
from deferkit.planning.text import (
    PeriodPlan,
    curve_cells,
    describe_possible,
    headline,
    hold_text,
    need_cells,
    needed_budget,
    period_text,
    plan_periods,
    remarks,
)
from deferkit.study.achievable import is_achievable_known
from deferkit.study.allowance import asking_always
from deferkit.study.comparison import heavy
from deferkit.study.engines import make_engine
from deferkit.study.policy_registry import is_learner, make_learner, without_trees
from deferkit.study.runner import count_missing, run_study, table
from deferkit.study.trial_store import Trial, TrialStore
from deferkit.tables.history import frame_like, named_file
from deferkit.worlds import make_world
from deferkit.worlds.base import Floats, TaskStream

if TYPE_CHECKING:
    import altair as alt

Rounds = Callable[[str, int], Callable[[int], None]]
"""Is called with what is run next and its number of trials, and returns what is called with those that are done."""


@dataclass(frozen=True, kw_only=True)
class BudgetPlan:
    """How much budget is needed, and what the next unit is worth, from `plan`.

    Attributes:
        curves: What each policy comes to with each budget, and the needed budgets.
        remarks: What is to be known about the tasks and the outcomes.
        tasks: What the tasks are called.
        parameters: The columns of the table, or the parameters of the simulated world.
        unit: What cost is counted in; may be empty.
        feedback: Which rewards were observed.
        periods: The plan of a budget that renews, or None.
        times: When the tasks came, if that is known.
        table: The table that was given, or None: `to_frame` returns a frame of its kind.

    >>> made = plan("synthetic", policy="greedy", trials=2, horizon=100)
    >>> made.to_frame()["policy"].unique(maintain_order=True).to_list()
    ['opt', 'greedy', 'best-reject', 'random']
    """

    curves: Plan
    remarks: list[str]
    tasks: str
    parameters: Mapping[str, Any]
    unit: str = ""
    feedback: str = "full"
    periods: PeriodPlan | None = None
    times: Floats | None = None
    table: Any = None

    @property
    def headline(self) -> str:
        """The answer in one or two sentences."""
        return headline(self.curves, self.unit)

    @property
    def needed(self) -> float | None:
        """The budget (of a period, if it renews) that the learner needs for 95 %; None if none is enough."""
        return needed_budget(self.curves) if self.periods is None else self.periods.needed

    @property
    def tables(self) -> list[tuple[str, Cells, int]]:
        """The two tables: title, cells, and the number of columns of text."""
        made, n = self.curves, len(self.curves.seeds)
        orders = f"{n} {'order' if n == 1 else 'orders'} from seed {min(made.seeds)}"
        whole = "achievable" if made.estimated else "possible"
        about = f"{made.n_tasks:,} tasks, {orders}; OPT … random: % of {whole}"
        needs = f"the smallest budget that gets so much of {describe_possible(made)}"
        return [(about, curve_cells(made, narrow=True), 0), (needs, need_cells(made), 2)]

    @property
    def legend(self) -> str:
        """What the columns of the tables mean."""
        what, learner = f" ({self.unit})" if self.unit else "", self.curves.learner.policy
        own = any("own" in row[1] for row in need_cells(self.curves)[1])
        return (
            f"budget: units of cost{what}; %: of reviewing everything; asked, reward: of {learner};"
            f" λ*, next: reward that the next unit brings, to OPT and to {learner}"
            f"{'; own: of the most that it gains itself' if own else ''}"
        )

    def __repr__(self) -> str:
        """Return the answer, the remarks and the tables as text."""
        shown = [f"{title}\n{text_table(cells, texts)}" for title, cells, texts in self.tables]
        return "\n\n".join(["\n".join([self.headline, *self.remarks]), *shown, self.legend])

    def _repr_html_(self) -> str:
        shown = [f"<p>{title}</p>{html_table(cells, texts)}" for title, cells, texts in self.tables]
        return html_block(self.headline, *shown, remarks=[*self.remarks, self.legend])

    def to_frame(self) -> Any:
        """Return the curves as a frame, a row for each policy and budget: of pandas if the table was one."""
        rows = [{"policy": curve.policy, **point._asdict()} for curve in self.curves.curves for point in curve.points]
        return frame_like(self.table, pl.DataFrame(rows, infer_schema_length=None))

    def plot(self) -> "alt.TopLevelMixin":
        """Return the figure of the page as an Altair chart: what a budget brings, and what the next unit brings."""
        from deferkit.planning.page import plan_figure  # noqa: PLC0415 - altair takes a second

        return plan_figure(self.curves, self.unit)

    def save(self, path: str | Path) -> Path:
        """Write the plan as a page that needs no other file, and return its path.

        Args:
            path: A file of HTML.

        Raises:
            UnwritableState: It cannot be written.
        """
        from deferkit.planning.page import write_plan  # noqa: PLC0415 - altair takes a second

        about: dict[str, Any] = {"world": self.tasks, "unit": self.unit, "feedback": self.feedback}
        return write_plan(self.curves, Path(path), remarks=self.remarks, **about)

    def as_data(self) -> dict[str, Any]:
        """Return the plan as plain data, as `deferkit plan --json` prints it."""
        made = self.curves
        data: dict[str, Any] = {
            "world": self.tasks,
            "world_parameters": dict(self.parameters),
            "policy": made.learner.policy,
            "feedback": self.feedback,
            "unit": self.unit or None,
            "tasks": made.n_tasks,
            "seeds": list(made.seeds),
            "everything": made.everything,
            "model_only": made.model,
            "possible": made.possible,
            "hindsight": made.hindsight,
            "estimated": made.estimated,
            "representation": made.representation,
            "headline": self.headline,
            "remarks": self.remarks,
            "curves": [
                {
                    "policy": curve.policy,
                    "points": [point._asdict() for point in curve.points],
                    "needed": [each._asdict() for each in curve.needed],
                    "needed_of_own": [each._asdict() for each in curve.needed_of_own],
                }
                for curve in made.curves
            ],
        }
        if self.periods is not None:
            about = {"every": self.periods.every, "needed": self.periods.needed, "tasks": self.periods.tasks.tolist()}
            data["periods"] = about | {"allowances": self.periods.allowances}
        return data


def plan(
    tasks: Any,
    *,
    policy: str = "default",
    every: str | None = None,
    unit: str = "",
    trials: int | None = None,
    seed: int = 0,
    feedback: str = "full",
    workers: int | None = 1,
    progress: bool = True,
    **columns: Any,
) -> BudgetPlan:
    """Plan a budget: how much is needed, and what is the next unit worth?

    Every policy runs with 17 budgets from nothing to what asking about every task costs, over reshuffled orders.

    Args:
        tasks: A frame of pandas or polars (eager or lazy), an Arrow table, columns by name, the path of a file, or the
            name of a simulated world. All outcomes must be known.
        policy: The learner to plan for; "default" by default.
        every: The budget is that of a period: "day", "week", "month" or a length such as "7d"; needs `time`.
        unit: What cost is counted in, such as "minutes"; for texts and axes.
        trials: Orders of the tasks; by default 5, and fewer of more than 700,000 tasks, but at least 2.
        seed: The seed of the first order; 0 by default.
        feedback: Which rewards are observed: "full" (default), "bandit" or "reviewed".
        workers: The number of processes; 1 by default, None for all cores.
        progress: Whether a line on stderr says how far it is, where that is a terminal. True by default.
        columns: As for `compare`.

    Returns:
        The plan: shown as text and tables, with `headline`, `needed`, `to_frame`, `plot` and `save`.

    Raises:
        InvalidArgument: If an argument or a cell of the table is wrong, or outcomes are missing.
    """
    with named_file(tasks, columns) as (world, parameters, as_said):
        made = make_plan(
            world,
            parameters,
            policy=policy,
            every=every,
            unit=unit,
            trials=trials,
            seed=seed,
            feedback=feedback,
            workers=workers,
            rounds=line_of_progress if progress and sys.stderr.isatty() else lambda *_: lambda _: None,
        )
        said = [as_said(each) for each in made.remarks]
        return replace(made, tasks=as_said(made.tasks), remarks=said, parameters=columns, table=tasks)


def line_of_progress(what: str, total: int) -> Callable[[int], None]:
    """Return a function that adds to a count and shows it in a line on stderr."""
    done = 0

    def advance(more: int) -> None:
        nonlocal done
        done += more
        print(f"\r\x1b[K{what}: {done} of {total}" if done < total else "\r\x1b[K", end="", file=sys.stderr, flush=True)

    return advance


def make_plan(
    world: str,
    parameters: Mapping[str, Any],
    *,
    policy: str = "default",
    every: str | None = None,
    unit: str = "",
    trials: int | None = None,
    seed: int = 0,
    feedback: str = "full",
    store: TrialStore | None = None,
    workers: int | None = 1,
    rounds: Rounds = lambda *_: lambda _: None,
) -> BudgetPlan:
    """Return a plan for the tasks of a world; the other arguments are those of `plan`.

    With a `store` a plan that was stopped goes on; `rounds` is told what is run next.
    """
    stream = make_world(world, parameters).draw(seed)
    check_plannable(stream, policy)
    make_learner(policy, stream, [asking_always(stream)], seed=seed)  # what it does not like is told at once
    orders = orders_for(stream.n_tasks) if trials is None else trials
    wanted = plan_trials(
        world,
        parameters,
        policy=policy,
        seeds=range(seed, seed + orders),
        feedback=feedback,
        free=asking_always(stream) == 0,
        achievable=stream.truth is None and is_achievable_known(stream),
    )
    if workers is None and not worth_workers(stream.n_tasks, orders, policy):
        workers = 1
    made = solve(wanted, stream, TrialStore(None) if store is None else store, workers, rounds)
    better = int((stream.rewards[:, 1:] > stream.rewards[:, :1]).any(axis=1).sum())
    said = remarks(made, full_orders=ORDERS if trials is None else None, better=better)
    said += [*without_trees([policy], stream), *stream.remark.splitlines()]
    periods = None if every is None else plan_periods(made, stream, world, parameters, every, seed)
    needed = needed_budget(made) if periods is None else periods.needed
    said += [] if periods is None else period_text(periods, unit)
    said += hold_text(stream.costs, needed, unit)
    if needed and periods is None:
        proposal = heavy(world, parameters, f"{needed:.6g}", stream)
        said += [] if proposal is None else [proposal]
    return BudgetPlan(
        curves=made,
        remarks=said,
        tasks=world,
        parameters=wanted[0][0].world_parameters,
        unit=unit,
        feedback=feedback,
        periods=periods,
        times=stream.times,
    )


def solve(wanted: list[Trial], stream: TaskStream, store: TrialStore, workers: int | None, rounds: Rounds) -> Plan:
    """Run the trials of a plan, then more of them around the needed budgets until those are known closely."""
    learner = next(spec.policy for spec, _ in wanted if is_learner(spec.policy))
    right = bool(np.isin(stream.rewards, (0.0, 1.0)).all())
    trials, more, engine = list(wanted), wanted, make_engine("local", workers=workers)
    for turn in range(ROUNDS + 1):
        advance = rounds(f"needed budgets, round {turn}" if turn else "trials", count_missing(more, store))
        for part in rounds_of(more, stream.n_tasks):  # a few budgets at a time, which are kept
            run_study(part, store=store, engine=engine, progress=advance)
        made = plan_of(table(trials, store), learner=learner, n_tasks=stream.n_tasks, right=right)
        more = next_trials(made, trials, halve=turn % 2 == 1)
        if not more:
            break
        trials += more
    return made
