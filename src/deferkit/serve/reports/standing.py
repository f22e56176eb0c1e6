"""The standing of a policy: alarms, spending against plan, and the sentences that describe it."""

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from deferkit.periods import show_time
from deferkit.serve.api.reports import Alarm, BudgetState, GainState, PeriodState, QueueState, Standing
from deferkit.serve.domain.accounts import MICRO, Account
from deferkit.serve.domain.books import Books
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.rows import PolicyRow
from deferkit.serve.domain.spec import BudgetSpec, PolicySpec
from deferkit.serve.reports.budgets import Forecast, Pace, Spending, budget_state, budget_states, forecast_of, pace_of
from deferkit.serve.reports.history import LogFigures
from deferkit.serve.reports.summary import queue_state
from deferkit.types import MODEL, Drifted

SLOWEST_PACE, FASTEST_PACE = 0.9, 1.1  # paces between these are on plan
MIN_PLANNED_SHARE = 0.05  # of the planned tasks: before that the pace is too noisy for an alarm
RECENT_DRIFT = 1000  # decisions for which a drift raises an alarm
OLD_REVIEW_S = 3600.0  # seconds after which a waiting review raises an alarm, if there is no deadline


def alarms_of(
    owned: OwnedPolicy, past: LogFigures | None, queue: QueueState, pace: Pace | None, failing: str | None, now: int
) -> list[Alarm]:
    """Return the alarms of a policy at a time, in microseconds; the most urgent first."""
    found = []
    if failing is not None:
        found.append(
            Alarm(kind="failing", text="Nothing can be written at the moment; the log of the service says why.")
        )
    return [
        *(*found, *money_alarms(owned, now), *pace_alarms(owned, pace, now)),
        *(*review_alarms(owned, queue), *drift_alarms(owned, past)),
    ]


def money_alarms(owned: OwnedPolicy, now: int) -> list[Alarm]:
    """Return alarms of the accounts: suspense, exhausted budgets, unconfirmed costs."""
    policy, found = owned.policy, []
    accounts, periods = policy.books_at(now)
    for name, account in accounts.items():
        if account.suspense:
            text = f"{account.suspense / MICRO:,.6g} {name} stand in suspense, beyond the budget: nobody is asked."
            found.append(Alarm(kind="suspense", text=text))
    is_frozen = any(account.suspense for account in accounts.values())
    for name, account in accounts.items():
        budget = policy.spec.budget[name]
        cap = 1 / MICRO if budget.least_hold is None and budget.can_be_stopped else budget.least_hold
        if not is_frozen and account.free is not None and cap is not None and account.free < cap * MICRO:
            needs = f"needs {cap:g}" if budget.can_be_stopped else f"may cost {cap:g}"
            until = "" if budget.every is msgspec.UNSET else f" until {show_time(periods[name].end)}"
            left = f"{account.free / MICRO:,.6g} {name} are free, and a review {needs}"
            found.append(Alarm(kind="without_budget", text=f"{left}: nobody is asked{until}."))
    if policy.unconfirmed:
        count = len(policy.unconfirmed)
        text = f"{count:,} reported {'costs wait' if count > 1 else 'cost waits'} for somebody to confirm."
        found.append(Alarm(kind="unconfirmed", text=text))
    return found


def pace_alarms(owned: OwnedPolicy, pace: Pace | None, now: int) -> list[Alarm]:
    """Return alarms of budgets that have ended, or are spent faster or slower than planned."""
    policy = owned.policy
    horizon = min((each.horizon for each in policy.spec.budget.values() if each.horizon is not None), default=None)
    decisions = policy.counts().decisions
    if horizon is not None and decisions >= horizon:
        text = f"The budget was planned for {horizon:,} tasks, and there were {decisions:,}."
        return [Alarm(kind="horizon_over", text=text)]
    for name, budget in policy.spec.budget.items():
        if budget.until is not msgspec.UNSET and budget.until <= now / MICRO:
            text = f"The budget of {name} ended on {show_time(budget.until)}: what is left is spent at the last price."
            return [Alarm(kind="horizon_over", text=text)]
    if pace is None or pace.done < MIN_PLANNED_SHARE:
        return []
    if pace.value > FASTEST_PACE:
        return [Alarm(kind="overspending", text=f"Spending is {100 * (pace.value - 1):.0f} % ahead of plan.")]
    reserved = sum(account.reserved for account in policy.accounts.values())
    if pace.value < SLOWEST_PACE and not reserved:  # what is reserved may yet be spent
        return [Alarm(kind="underspending", text=f"Spending is {100 * (1 - pace.value):.0f} % behind plan.")]
    return []


def review_alarms(owned: OwnedPolicy, queue: QueueState) -> list[Alarm]:
    """Return alarms of tasks that have waited too long for a review."""
    deadline = owned.policy.spec.deadline_s
    limit = OLD_REVIEW_S if deadline is None else deadline / 2
    if queue.oldest_s is None or queue.oldest_s <= limit:
        return []
    until = "" if deadline is None else f", of the {duration(deadline)} that it may wait"
    return [Alarm(kind="queue_age", text=f"The oldest task has waited for {duration(queue.oldest_s)}{until}.")]


def drift_alarms(owned: OwnedPolicy, past: LogFigures | None) -> list[Alarm]:
    """Return alarms of recent drifts of rewards and costs."""
    decisions = owned.policy.learner.figures().decisions
    return [
        Alarm(kind="drift", text=drift_text(owned, drift, past))
        for drift in owned.policy.learner.drifts()
        if drift.decision > decisions - RECENT_DRIFT
    ]


def drift_text(owned: OwnedPolicy, drift: Drifted, past: LogFigures | None) -> str:
    """Return a sentence on a drift: its target, and its time and values if the learner knows them."""
    first, target = owned.policy.relearned.decisions, drift.target
    is_cost = target.startswith("cost")
    if drift.since is None or drift.before is None or drift.after is None:
        what = f"The {'' if is_cost else 'reward of '}{target}"
        return f"{what} has changed, about at task {drift.decision + first:,}."
    at = None if past is None else past.time_of(drift.since + first)
    since = f"task {drift.since + first:,}" if at is None else date_text(at)
    error = "" if drift.error is None else f" (standard error of the difference: {drift.error:.2g})"
    if owned.policy.learner.link == "logistic" and not is_cost:  # its rewards are right or wrong
        who = "The model" if target == MODEL else target
        return f"{who} is right in {drift.after:.0%} since about {since}, before in {drift.before:.0%}{error}."
    what = f"The {'' if is_cost else 'reward of '}{target}"
    return f"{what} is {drift.after:.3g} since about {since}, before {drift.before:.3g}{error}."


def date_text(seconds: float) -> str:
    """Return the day of a time, in UTC.

    >>> date_text(1_777_800_000.0)
    '3 May 2026'
    """
    day = datetime.fromtimestamp(seconds, UTC)
    return f"{day.day} {day:%B %Y}"


def duration(seconds: float) -> str:
    """Return a duration as text.

    >>> duration(40), duration(150), duration(9000), duration(200_000)
    ('40 s', '2 min', '2.5 h', '2.3 days')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"


HEAVY = 10.0  # means that the largest cost must be above for a smaller hold to be proposed
MIN_REVIEWED = 10


def state_text(standing: "Standing") -> str:
    """Return the status of a policy as one sentence."""
    kinds = {alarm.kind: alarm.text for alarm in standing.alarms}
    for urgent in ("failing", "suspense", "without_budget"):
        if urgent in kinds:
            return kinds[urgent]
    if not standing.decisions:
        return "No task has come yet."
    budget = standing.budget[standing.unit]
    if budget.period is not None:
        return period_text(standing, budget.period)
    tasks = f"{standing.decisions:,} tasks, {100 * standing.deferral_rate:.1f} % of them to experts"
    if budget.total is None or standing.horizon is None or standing.pace is None:
        return f"No limit: {amount(budget.posted)} {standing.unit} spent on {tasks}."
    share = min(1.0, standing.decisions / standing.horizon)
    spent = f"{amount(budget.posted)} of {amount(budget.total)} {standing.unit} spent"
    if "horizon_over" in kinds:
        return f"The planned {standing.horizon:,} tasks are over: {spent}{because(standing.remark)}."
    plan = plan_text(standing.pace)
    end = because(standing.remark)
    if not end and standing.runs_out_task is not None:
        lasts = standing.runs_out_task >= standing.horizon
        end = "; it lasts for all planned tasks" if lasts else f"; it lasts until about task {standing.runs_out_task:,}"
    return f"Spending is {plan}: {spent} for {100 * share:.0f} % of the planned tasks{end}."


def plan_text(pace: float) -> str:
    """Return whether a pace is on, ahead of or behind plan.

    >>> plan_text(1.05), plan_text(1.3), plan_text(0.5)
    ('on plan', 'ahead of plan', 'behind plan')
    """
    return (
        "on plan" if SLOWEST_PACE <= pace <= FASTEST_PACE else "ahead of plan" if pace > FASTEST_PACE else "behind plan"
    )


def period_text(standing: "Standing", period: PeriodState) -> str:
    """Return the status of a budget's current period, or of a budget with an end, as one sentence."""
    of, expected, end = (" of this period", " in it", "is renewed") if period.renews else ("", "", "ends")
    spent = f"{amount(period.posted)} of {amount(period.total)} {standing.unit}{of} spent"
    if period.over:
        return f"The budget ended on {show_time(period.end)}: {spent}."
    when = f"{end} on {show_time(period.end)}"
    if standing.pace is None or standing.planned is None:
        return f"No task has come yet: {spent}; it {when}."
    lasts = "lasts until it"
    if standing.runs_out_at is not None and standing.runs_out_at < period.end:
        lasts = f"lasts until about {show_time(standing.runs_out_at)}, and"
    share = f"for {100 * standing.planned:.0f} % of the tasks expected{expected}"
    why = because(standing.remark) or f"; it {lasts} {when}"
    return f"Spending is {plan_text(standing.pace)}: {spent} {share}{why}."


def because(remark: str) -> str:
    """Return the reason in a learner's remark as the end of a sentence; empty without a remark.

    >>> because("asked 6 of 1,647; 97 % of the budget unspent: no cost is known yet. Report the `cost` of a review.")
    ', because no cost is known yet'
    """
    reason = remark.partition(": ")[2].partition(". ")[0].rstrip(".")
    return f", because {reason}" if reason else ""


def held_text(pending: int, accounts: Mapping[str, Account]) -> str:
    """Return the share of a budget that pending reviews hold, as a sentence; empty if nothing is held.

    >>> held_text(3, {"minutes": Account(100, reserved=12)})
    '3 pending reviews hold 12 % of the minutes.'
    """
    shares = {name: each.reserved / each.total for name, each in accounts.items() if each.total and each.reserved}
    if not shares:
        return ""
    name = max(shares, key=lambda each: shares[each])
    who = "1 pending review holds" if pending == 1 else f"{pending:,} pending reviews hold"
    return f"{who} {100 * shares[name]:.0f} % of the {name}."


def hold_proposal(reviewed: int, accounts: Mapping[str, Account], budgets: Mapping[str, BudgetSpec]) -> str:
    """Return a proposal where reviews cost far less than is held for each and cannot be stopped; else nothing.

    Args:
        reviewed: Reviews whose costs are booked.
        accounts: Of the resources since the policy was made.
        budgets: Of the same resources.

    >>> budget = BudgetSpec(total=900, max_cost=60)
    >>> hold_proposal(50, {"minutes": Account(None, posted=100 * MICRO)}, {"minutes": budget})
    'A review costs 2 minutes on average, and 60 are held for it. If reviews can be stopped, hold "auto" holds less.'
    """
    for name, budget in budgets.items():
        mean = accounts[name].posted / MICRO / max(reviewed, 1)
        heavy = budget.max_cost is not None and reviewed >= MIN_REVIEWED and HEAVY * mean < budget.max_cost
        if heavy and not budget.can_be_stopped and accounts[name].posted:
            return (
                f"A review costs {mean:,.3g} {name} on average, and {budget.max_cost:,.6g} are held for it. If reviews"
                ' can be stopped, hold "auto" holds less.'
            )
    return ""


def amount(given: float) -> str:
    """Return an amount of a reply, which may be a JSON number that no double is.

    >>> amount(1234.5), amount(msgspec.Raw(b"9007199254.740993"))
    ('1,234.5', '9.0072e+09')
    """
    number = float(bytes(given)) if isinstance(given, msgspec.Raw) else given
    return f"{number:,.6g}"


FEW_ASKED = 20  # tasks: what fewer have brought on average says little


def spending_of(account: Account) -> float:
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
            before = Spending(at, then.decisions, spending_of(then.accounts[name]))
            here = Spending(now, decisions, spending_of(account))
            found = forecast_of(account.total / MICRO - here.spent, before, here)
            if found.task is not None and (first.task is None or found.task < first.task):
                first = found
    return first


def standing_of(
    owned: OwnedPolicy, past: LogFigures | None, queue: tuple[int, int, int | None], now: int, failing: str | None
) -> Standing:
    """Return the status of a policy.

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
            price[unit] if isinstance(price, Mapping) else price, gain, spending_of(policy.accounts[unit]), counts.asked
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
    """Return the spending pace of each budget, over its horizon or the expected tasks of its period."""
    found, decisions = [], owned.policy.counts().decisions
    for name, budget in owned.policy.spec.budget.items():
        account, period = owned.policy.accounts[name], states[name].period
        if budget.horizon is not None and account.total:
            value = pace_of(spending_of(account), account.total / MICRO, decisions, budget.horizon)
            done = min(1.0, decisions / budget.horizon)
        elif period is not None and period.tasks_left is not None and period.tasks:
            value, done = period.pace, period.tasks / (period.tasks + period.tasks_left)
        else:
            continue
        if value is not None:
            found.append(Pace(value, done))
    return found


def next_unit_of(price: float, gain: GainState, paid: float, asked: int) -> float:
    """Return the likely reward of one more unit of budget, at most the average so far.

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
