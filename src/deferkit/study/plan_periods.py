"""How much budget a period needs, and when tasks come within it: the answer of a plan for a renewing budget."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from deferkit.errors import InvalidArgument, StudyFailed
from deferkit.study.period_optimum import period_numbers
from deferkit.study.plan import Plan
from deferkit.study.plan_holds import needed_budget
from deferkit.study.plan_text import amount, unit_text
from deferkit.study.spec import Spec
from deferkit.study.trial import run_together
from deferkit.types import Budget
from deferkit.worlds.task_stream import Floats, TaskStream

SHARES = (0.5, 1.0, 1.5)  # of the needed budget
HOUR, DAY = 3_600.0, 86_400.0  # seconds
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
SHADES = " ▁▂▃▄▅▆▇█"


class PeriodPlan(NamedTuple):
    """What allowances bring, and how many tasks come in a period."""

    every: str
    needed: float  # in a period on average
    tasks: Floats  # in each period
    allowances: list[dict[str, float]]  # allowance, share of the possible gain in per cent, and spent in per cent


def plan_periods(
    made: Plan, stream: TaskStream, world: str, parameters: Mapping[str, Any], every: str, seed: int
) -> PeriodPlan:
    """Return what several allowances bring, in the order in which the tasks came.

    Raises:
        InvalidArgument: If the tasks have no times, or the plan found no budget that is enough.
    """
    if stream.times is None:
        raise InvalidArgument("A budget for each period needs the time of each task: --time COLUMN.")
    periods = period_numbers(stream.times, Budget(1.0, every=every))
    tasks = np.bincount(periods).astype(np.float64)
    found = needed_budget(made)
    if found is None:
        raise InvalidArgument("No budget is enough here, so that there is none for a period either.")
    needed = found / whole_periods(stream.times, every, len(tasks))
    budgets = {share: f"{share * needed:.6g} every {every}" for share in SHARES}
    specs = [Spec.of(world, parameters, policy=made.learner.policy, budget=text) for text in budgets.values()]
    rows = run_together(specs, seed)
    for row in rows:
        if "failure" in row:
            raise StudyFailed(f"An allowance could not be tried out: {row['failure']}")
    gained = [row["reward"] - row["model"] for row in rows]
    return PeriodPlan(
        every,
        needed,
        tasks,
        [
            {"allowance": share * needed, "of_possible": 100 * gain / made.possible, "spent_pct": row["spent_pct"]}
            for share, gain, row in zip(SHARES, gained, rows, strict=True)
        ],
    )


def whole_periods(times: Floats, every: str, begun: int) -> float:
    """Return how many periods the tasks are spread over; of the first and the last there may be a part only.

    >>> whole_periods(np.array([0.0, 5_400.0]), "1h", begun=2)
    1.5
    """
    schedule = Budget(1.0, every=every).schedule
    start, end = schedule.containing(float(times[0]))
    for _ in range(begun - 1):
        end = schedule.following(end)
    return max(1.0, float(times[-1] - times[0]) / (end - start) * begun)


def period_text(plan: PeriodPlan, unit: str) -> list[str]:
    """Return the answer in sentences."""
    name = {"day": "a day", "week": "a week", "month": "a month"}.get(plan.every, f"every {plan.every}")
    least, most = int(plan.tasks.min()), int(plan.tasks.max())
    said = [
        f"That is {amount(plan.needed)}{unit_text(unit, plan.needed)} {name}: there are {len(plan.tasks)} periods, some"
        f" perhaps in part, with {least:,} to {most:,} tasks each."
    ]
    for each in plan.allowances:
        said.append(
            f"  {amount(each['allowance'])}{unit_text(unit, each['allowance'])} {name}, use it or lose it: the learner"
            f" gets {each['of_possible']:.0f} % of what is possible and spends {each['spent_pct']:.0f} % of it."
        )
    return said


def arrivals_by_hour(times: Floats) -> Floats:
    """Return how many tasks came in each hour of the week [7, 24], from Monday on, on average over weeks.

    >>> arrivals_by_hour(np.array([4 * 86_400.0, 4 * 86_400.0 + 60])).sum()
    np.float64(2.0)
    """
    monday = times + 3 * DAY  # 1970-01-01 was a Thursday
    hour = ((monday % (7 * DAY)) // HOUR).astype(int)
    weeks = max(1.0, (times[-1] - times[0]) / (7 * DAY)) if len(times) else 1.0
    return np.asarray(np.bincount(hour, minlength=168).reshape(7, 24) / weeks)


def arrivals_text(times: Floats) -> list[str]:
    """Return the pattern of arrivals as lines: a bar for each hour of each day."""
    counts = arrivals_by_hour(times)
    top = max(float(counts.max()), 1e-9)
    lines = [f"Tasks by hour of the week (a full block is {top:.1f} an hour):", "     0     6     12    18"]
    for day, row in zip(WEEKDAYS, counts, strict=True):
        lines.append(f"{day}  " + bars(row / top) + f"  {row.sum():,.0f}")
    return lines


def bars(heights: Sequence[float] | Floats) -> str:
    """Return heights from 0 to 1 as text.

    >>> bars([0.0, 0.5, 1.0])
    ' ▄█'
    """
    return "".join(SHADES[round(min(max(float(height), 0.0), 1.0) * (len(SHADES) - 1))] for height in heights)
