"""Pace, forecast and alarms, small enough to verify by hand."""

import msgspec
import pytest

from deferkit.serve.api.reports import Standing
from deferkit.serve.api.tasks import TaskBody
from deferkit.serve.domain import records
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.spec import BudgetSpec, PolicySpec
from deferkit.serve.engine.commands.decide import Decide
from deferkit.serve.engine.commands.outcome import book, cost_of
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.reports.budgets import Forecast, Spending, forecast_of, pace_of
from deferkit.serve.reports.history import LogFold, log_figures_of
from deferkit.serve.reports.standing import standing_of
from deferkit.serve.reports.summary import summary_of

SPEC = PolicySpec(name="p", features=1, budget={"minutes": BudgetSpec(total=100, horizon=1000, max_cost=2)}, warm_up=0)
EMPTY = (0, 0, None)


class Story:
    """A policy whose tasks come every second; its log is folded along."""

    def __init__(self, spec: PolicySpec = SPEC) -> None:
        self.owned = OwnedPolicy(1, "default", Policy(spec), 1, 0)
        self.work = UnitOfWork()
        self.fold = LogFold(lambda *_: [])
        self.second = 0
        self.work.record(self.owned, records.CreatedRecord(spec=self.owned.policy.spec), 0)

    def tasks(self, n: int, cost: float | None) -> "Story":
        """Let tasks come, a second between them; with a cost the human is asked and paid at once."""
        for _ in range(n):
            key = (1, f"t{self.owned.policy.counts().decisions}")
            self.work.decisions[key] = None
            route = "model" if cost is None else "human"
            now = self.second * 1_000_000
            Decide(TaskBody(task=key[1], context=[1.0], force=route)).run(self.owned, self.work, now)
            row = self.work.decisions[key]
            assert row is not None
            if cost is not None:
                book(self.owned, self.work, now, row, {"human": 1.0, "model": 0.0}, cost_of(self.owned, cost))
            self.second += 1
        for line in self.work.log[self.fold.seq :]:
            self.fold.apply(line.at, records.decode(line.body))
        return self

    def standing(self, queue: tuple[int, int, int | None] = EMPTY, failing: str | None = None) -> Standing:
        return standing_of(self.owned, log_figures_of(self.fold), queue, self.second * 1_000_000, failing)


def kinds(standing: Standing) -> list[str]:
    return [alarm.kind for alarm in standing.alarms]


def test_a_pace_is_the_share_spent_over_the_share_decided() -> None:
    assert pace_of(50, 100, 500, 1000) == 1
    assert pace_of(30, 100, 500, 1000) == pytest.approx(0.6)
    assert pace_of(100, 100, 2000, 1000) == 1  # after the horizon all of it may be spent
    assert pace_of(0, 100, 0, 1000) is None
    assert pace_of(0, 0, 10, 1000) is None


def test_a_forecast_goes_on_as_of_late() -> None:
    then, now = Spending(100, 100, 10), Spending(200, 300, 20)  # 10 for 200 tasks, in 100 s
    assert forecast_of(30, then, now) == Forecast(300 + 600, 200 + 300)
    assert forecast_of(0, then, now) == Forecast(300, 200)
    assert forecast_of(30, then, Spending(200, 300, 10)) == Forecast(None, None)


def test_where_a_policy_stands_by_hand() -> None:
    # 200 tasks in 200 s: 150 by the model, then 50 by the human for 0.5 each: 25 of 100 minutes for a fifth of 1,000
    story = Story().tasks(150, None).tasks(50, 0.5)
    standing = story.standing()
    assert standing.pace == pytest.approx(0.25 / 0.2)
    # of late: the last 50 tasks, at 0.5 a second: the other 75 minutes last for 150 tasks and seconds
    assert standing.runs_out_task == 350
    assert standing.runs_out_at == pytest.approx(350, abs=1.5)  # buckets of a second
    assert (standing.decisions, standing.deferral_rate, standing.horizon, standing.unit) == (200, 0.25, 1000, "minutes")
    assert (standing.gain.value, standing.gain.error, standing.gain.basis) == (50, 0, "observed")
    assert standing.next_unit == standing.price
    assert kinds(standing) == ["overspending"]
    assert standing.state == (
        "Spending is ahead of plan: 25 of 100 minutes spent for 20 % of the planned tasks;"
        " it lasts until about task 350."
    )


def test_a_budget_that_lasts_says_so() -> None:
    standing = Story().tasks(100, 0.1).standing()
    assert standing.pace == pytest.approx(1)
    assert standing.runs_out_task == 1000
    assert kinds(standing) == []
    assert standing.state.startswith("Spending is on plan: 10 of 100 minutes spent for 10 %")
    assert standing.state.endswith("it lasts for all planned tasks.")


def test_too_slow_is_an_alarm_and_too_early_to_tell_is_none() -> None:
    assert kinds(Story().tasks(20, 0.01).standing()) == []
    slow = Story().tasks(100, 0.01).standing()
    assert kinds(slow) == ["underspending"]
    assert slow.alarms[0].text == "Spending is 90 % behind plan."


def compared(n: int, human: float) -> Story:
    """Return a policy that has compared its deciders itself, after n tasks; the model's reward is always 1."""
    story = Story(msgspec.structs.replace(SPEC, warm_up=20))
    for second in range(n):
        key = (1, f"t{second}")
        story.work.decisions[key] = None
        Decide(TaskBody(task=key[1], context=[1.0])).run(story.owned, story.work, second * 1_000_000)
        row = story.work.decisions[key]
        assert row is not None
        cost = cost_of(story.owned, 0.5) if row.route != "model" else None
        book(story.owned, story.work, second * 1_000_000, row, {row.route: human if cost else 1.0}, cost)
        story.second += 1
    return story.tasks(0, None)


def test_a_policy_that_asks_nobody_says_why() -> None:
    """Until 100 tasks 10 minutes are planned, and 20 random decisions have asked for about 5."""
    story = compared(400, human=0.2)
    standing, summary = story.standing(), story.owned.learner_summary()
    assert kinds(standing) == ["underspending"]
    expert, model = summary.estimates["human"], summary.estimates["model"]
    assert standing.remark == summary.remark
    assert standing.state == (
        f"Spending is behind plan: {summary.spent:g} of 100 minutes spent for 40 % of the planned tasks, because the"
        f" expert's estimate ({expert} from {expert.samples} reviews) is below the model's ({model})."
    )
    reply = summary_of(story.owned, EMPTY, 0, summary)
    assert reply.remark == summary.remark
    assert msgspec.to_builtins(reply.estimates["human"]) == expert._asdict()


def test_a_policy_on_plan_has_no_remark() -> None:
    assert Story().tasks(100, 0.1).standing().remark == ""


def test_while_another_thread_learns_there_is_no_remark() -> None:
    """Estimates are computed in the scratch arrays of the learner, which its own steps use too."""
    story = compared(400, human=0.2)
    story.owned.policy.deferred.append(lambda: None)
    assert story.standing().remark == ""
    assert story.owned.learner_summary().estimates == {}
    story.owned.policy.learn_deferred()
    assert story.standing().remark != ""


def test_suspense_nothing_left_and_the_end_of_the_horizon_are_alarms() -> None:
    story = Story().tasks(49, 2).tasks(1, 5)
    standing = story.standing()
    assert kinds(standing)[:2] == ["suspense", "overspending"]
    assert standing.state == "3 minutes stand in suspense, beyond the budget: nobody is asked."
    assert standing.runs_out_at == story.second
    story = Story().tasks(49, 2).tasks(1, 1)
    assert kinds(story.standing())[0] == "without_budget"
    assert story.standing().state == "1 minutes are free, and a review may cost 2: nobody is asked."
    over = Story().tasks(10, 0.5).tasks(990, None).standing()
    assert kinds(over) == ["horizon_over"]
    assert over.state == (
        "The planned 1,000 tasks are over: 5 of 100 minutes spent, because the caller prescribed the route of 1,000"
        " tasks (`force`)."
    )


def test_old_reviews_failures_and_an_empty_policy_are_told() -> None:
    story = Story()
    assert story.standing().state == "No task has come yet."
    assert (story.standing().pace, story.standing().runs_out_at) == (None, None)
    story.tasks(10, None)
    story.second = 10_000
    standing = story.standing(queue=(3, 1, 1_000_000), failing="full")
    assert kinds(standing) == ["failing", "queue_age"]
    assert standing.alarms[1].text == "The oldest task has waited for 2.8 h."
    story.owned.policy.spec = msgspec.structs.replace(SPEC, deadline_s=100)
    assert kinds(story.standing(queue=(1, 0, (10_000 - 51) * 1_000_000))) == ["queue_age"]
    assert kinds(story.standing(queue=(1, 0, (10_000 - 49) * 1_000_000))) == []


def test_a_budget_without_end_has_no_pace() -> None:
    spec = msgspec.structs.replace(SPEC, budget={"minutes": BudgetSpec(max_cost=2)})
    standing = Story(spec).tasks(10, 0.5).standing()
    assert (standing.pace, standing.runs_out_at, standing.horizon) == (None, None, None)
    assert standing.state == "No limit: 5 minutes spent on 10 tasks, 100.0 % of them to experts."


# --- budgets that renew or have an end ------------------------------------------------------------------------------

WEEKLY = msgspec.structs.replace(
    SPEC, budget={"minutes": BudgetSpec(total=100, every="1000s", start=0.0, max_cost=2, hold=0.5)}
)


def test_a_renewing_budget_is_paced_over_the_tasks_of_its_period() -> None:
    story = Story(WEEKLY).tasks(150, None).tasks(50, 0.5)  # a task a second: 800 more are expected
    standing = story.standing()
    period = standing.budget["minutes"].period
    assert period is not None
    assert (period.tasks, period.total, period.posted) == (200, 100.0, 25.0)
    assert period.tasks_left is not None
    assert period.tasks_left == pytest.approx(800, rel=0.1)
    assert standing.planned == pytest.approx(0.2, rel=0.1)
    assert standing.pace == pytest.approx(0.25 / 0.2, rel=0.1)
    assert standing.runs_out_at == pytest.approx(350, abs=1.5)
    assert period.runs_out_at == pytest.approx(800)  # a quarter in 200 s
    assert kinds(standing) == ["overspending"]
    assert standing.state == (
        "Spending is ahead of plan: 25 of 100 minutes of this period spent for 20 % of the tasks expected in it;"
        " it lasts until about 1970-01-01 00:05 UTC, and is renewed on 1970-01-01 00:16 UTC."
    )
    story.second = 1500
    quiet = story.standing()
    assert quiet.pace is None
    assert quiet.state == (
        "No task has come yet: 0 of 100 minutes of this period spent; it is renewed on 1970-01-01 00:33 UTC."
    )


def test_what_is_left_of_a_period_is_told_with_its_renewal() -> None:
    standing = Story(WEEKLY).tasks(51, 1.955).standing()
    assert kinds(standing)[0] == "without_budget"
    assert standing.state == (
        "0.295 minutes are free, and a review needs 0.5: nobody is asked until 1970-01-01 00:16 UTC."
    )


def test_a_budget_whose_end_has_come_says_so() -> None:
    spec = msgspec.structs.replace(SPEC, budget={"minutes": BudgetSpec(total=100, until=1000.0, max_cost=2)})
    story = Story(spec).tasks(50, 0.05)
    assert story.standing().state.endswith("it lasts until it ends on 1970-01-01 00:16 UTC.")
    story.tasks(45, 0.5)
    story.second = 1000
    over = story.standing()
    assert kinds(over) == ["horizon_over"]
    assert over.state == "The budget ended on 1970-01-01 00:16 UTC: 25 of 100 minutes spent."


def test_what_pending_reviews_hold_is_told() -> None:
    story = Story()
    for i in range(6):
        story.work.decisions[1, f"open {i}"] = None
        Decide(TaskBody(task=f"open {i}", context=[1.0], force="human")).run(story.owned, story.work, 0)
    assert story.standing().held == "6 pending reviews hold 12 % of the minutes."
    assert Story().standing().held == ""


def test_a_smaller_hold_is_proposed_where_costs_are_far_below_the_largest() -> None:
    heavy = msgspec.structs.replace(SPEC, budget={"minutes": BudgetSpec(total=900, horizon=1000, max_cost=60)})
    said = "A review costs 2 minutes on average, and 60 are held for it."
    said += ' If reviews can be stopped, hold "auto" holds less.'
    assert Story(heavy).tasks(9, cost=2).standing().held == ""  # too few to say
    assert Story(heavy).tasks(10, cost=2).standing().held == said
    assert Story(heavy).tasks(10, cost=7).standing().held == ""
    stopped = {"minutes": BudgetSpec(total=900, horizon=1000, max_cost=60, hold="auto")}
    assert Story(msgspec.structs.replace(SPEC, budget=stopped)).tasks(10, cost=2).standing().held == ""
