"""The standing of a policy, for those who pay for it: pace, forecast of exhaustion, gain, alarms."""

from collections.abc import Mapping

import msgspec

from deferkit.serve.domain.account import Account
from deferkit.serve.domain.budget_period import Books
from deferkit.serve.domain.money import MICRO
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy_spec import PolicySpec
from deferkit.serve.domain.rows import PolicyRow
from deferkit.serve.engine.alarms import SLOWEST_PACE, Alarm, alarms_of
from deferkit.serve.engine.budget_state import BudgetState, budget_state, budget_states
from deferkit.serve.engine.forecast import Forecast, Pace, Spending, forecast_of, pace_of
from deferkit.serve.engine.history.log_figures import LogFigures
from deferkit.serve.engine.policy_summary import QueueState, Remark, queue_state
from deferkit.serve.engine.standing_text import held_text, hold_proposal, state_text

FEW_ASKED = 20  # tasks: what fewer have brought on average says little


class GainState(msgspec.Struct, frozen=True, kw_only=True):
    """What experts have earned above the model, in reward."""

    value: float
    error: float | None  # its standard error; None: not known
    basis: str  # observed: both rewards of every task are known; estimated: estimates stand in for some


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where a policy stands. Times are seconds since 1970."""

    name: str
    decisions: int
    routes: dict[str, int]
    deferral_rate: float
    unit: str  # the first resource
    budget: dict[str, BudgetState]
    horizon: int | None  # tasks that the budget is to last for; the shortest of several
    planned: float | None  # share of the planned tasks that are decided: of the horizon, or of those of the period
    pace: float | None  # share spent over that share, 1 is on plan; the fastest of several resources
    runs_out_at: float | None  # at the spending of late; the first of several resources
    runs_out_task: int | None
    price: float | dict[str, float]
    next_unit: float | None  # the reward that one more unit of the first resource brings, about
    reward_range: tuple[float, float]  # what a reward can be: from 0 to 1, it counts right answers
    gain: GainState
    held: str  # what pending reviews hold, and whether a smaller hold would do; empty if there are none
    queue: QueueState
    alarms: list[Alarm]
    state: str  # all of it in a sentence
    remark: Remark = ""


def spent(account: Account) -> float:
    """Return the cost so far, in units: posted and in suspense."""
    return (account.posted + account.suspense) / MICRO


def forecasts(books: Books, decisions: int, past: LogFigures | None, now: float) -> Forecast:
    """Return the earliest forecast of exhaustion of the budgets; of those that renew, within the current period."""
    first = Forecast(None, None)
    if past is None:
        return first
    at, then = past.recent
    for name, account in books.accounts.items():
        if account.total is not None and account.total:
            before = Spending(at, then.decisions, spent(then.accounts[name]))
            here = Spending(now, decisions, spent(account))
            found = forecast_of(account.total / MICRO - here.spent, before, here)
            if found.task is not None and (first.task is None or found.task < first.task):
                first = found
    return first


def standing_of(
    owned: OwnedPolicy, past: LogFigures | None, queue: tuple[int, int, int | None], now: int, failing: str | None
) -> Standing:
    """Return where a policy stands.

    Args:
        owned: The policy.
        past: What its log has told so far.
        queue: How many seats wait, how many are claimed, and since when the oldest is there.
        now: The time of the policy, in microseconds.
        failing: Why nothing can be written, if so.
    """
    policy = owned.policy
    spec, counts, price = policy.spec, policy.counts(), policy.learner.figures().price
    horizons = [each.horizon for each in spec.budget.values() if each.horizon is not None]
    books, states = policy.books_at(now), budget_states(owned, now)
    pace = max(paces_of(owned, states), default=None)
    unit = spec.resources[0]
    ends = forecasts(books, counts.decisions, past, now / MICRO)
    gain = gain_state(policy.tally.expected_gain, past)
    proposal = hold_proposal(counts.asked - counts.pending, policy.accounts, spec.budget)
    standing = Standing(
        name=spec.name,
        decisions=counts.decisions,
        routes=counts.routes,
        deferral_rate=counts.deferral_rate,
        unit=unit,
        budget=states,
        horizon=min(horizons, default=None),
        planned=None if pace is None else pace.done,
        pace=None if pace is None else pace.value,
        runs_out_at=ends.at,
        runs_out_task=ends.task,
        price=price,  # type: ignore[arg-type]
        next_unit=next_unit_of(
            price[unit] if isinstance(price, Mapping) else price, gain, spent(policy.accounts[unit]), counts.asked
        ),
        reward_range=spec.reward_range,
        gain=gain,
        held=" ".join(filter(None, [held_text(counts.pending, books.current()), proposal])),
        queue=queue_state(queue, now),
        alarms=alarms_of(owned, past, queue_state(queue, now), pace, failing, now),
        state="",
        remark=owned.learner_summary().remark if pace is None or pace.value < SLOWEST_PACE else "",
    )
    return msgspec.structs.replace(standing, state=state_text(standing))


def paces_of(owned: OwnedPolicy, states: Mapping[str, BudgetState]) -> list[Pace]:
    """Return how fast each budget is spent: over its horizon, or over the tasks that are expected in its period."""
    found, decisions = [], owned.policy.counts().decisions
    for name, budget in owned.policy.spec.budget.items():
        account, period = owned.policy.accounts[name], states[name].period
        if budget.horizon is not None and account.total:
            value = pace_of(spent(account), account.total / MICRO, decisions, budget.horizon)
            done = min(1.0, decisions / budget.horizon)
        elif period is not None and period.tasks_left is not None and period.tasks:
            value, done = period.pace, period.tasks / (period.tasks + period.tasks_left)
        else:
            continue
        if value is not None:
            found.append(Pace(value, done))
    return found


def next_unit_of(price: float, gain: GainState, paid: float, asked: int) -> float:
    """Return the reward that one more unit of budget is likely to bring: at most what units have brought on average.

    The price is solved with the optimism of the learner, so it is too high while little is known; and the most
    worthwhile tasks are asked first, so that the next unit brings no more than those before.

    >>> next_unit_of(2.4, GainState(value=22.0, error=3.5, basis="observed"), 16.0, 53)
    1.375
    """
    if gain.basis != "observed" or asked < FEW_ASKED or gain.value <= 0 or paid <= 0:
        return price
    return min(price, gain.value / paid)


def gain_state(expected: float, past: LogFigures | None) -> GainState:
    """Return the gain from the log; the expected gain while the log is not read yet."""
    if past is None:
        return GainState(value=expected, error=None, basis="estimated")
    found = past.figures
    return GainState(value=found.gain, error=found.gain_error, basis="observed" if found.observed else "estimated")


def unreachable(row: PolicyRow, accounts: Mapping[str, Account], why: str) -> Standing:
    """Return the standing of a policy whose owner process does not answer, from the database alone."""
    spec = msgspec.json.decode(row.spec, type=PolicySpec)
    return Standing(
        name=row.name,
        decisions=0,
        routes={},
        deferral_rate=0.0,
        unit=spec.resources[0],
        budget={name: budget_state(account) for name, account in accounts.items()},
        horizon=None,
        planned=None,
        pace=None,
        runs_out_at=None,
        runs_out_task=None,
        price=0.0,
        next_unit=None,
        reward_range=spec.reward_range,
        gain=GainState(value=0.0, error=None, basis="estimated"),
        held="",
        queue=QueueState(waiting=0, claimed=0, oldest_s=None),
        alarms=[Alarm(kind="failing", text=why)],
        state=why,
    )
