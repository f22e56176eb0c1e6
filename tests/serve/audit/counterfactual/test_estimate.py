"""Estimates of what other choices would have brought, small enough to be worked out by hand."""

import math
from typing import Any

import numpy as np
import pytest

from deferkit.serve.audit.counterfactual.estimate import (
    DecisionLog,
    DoublyRobust,
    LoggedOutcomes,
    ModelVariance,
    feedback_of,
)
from deferkit.serve.audit.counterfactual.scenario import scenario_of
from deferkit.serve.domain.records import CorrectedRecord, CreatedRecord, DecidedRecord, ExpiredRecord, ObservedRecord
from deferkit.serve.domain.spec import BudgetSpec, PolicySpec
from deferkit.types import Coefficients

NAN = math.nan
SPEC = PolicySpec(name="p", features=1, budget={"cost": BudgetSpec(total=9, horizon=9, max_cost=1)}, explore_floor=0.2)


def facts(
    routes: list[int], asked: list[float], rewards: list[list[float]], expired: list[bool] | None = None
) -> LoggedOutcomes:
    """Return a log of one expert: who decided, how likely asking was, rewards of model and human."""
    costs = [[0.5] if route and not (expired and expired[t]) else [NAN] for t, route in enumerate(routes)]
    return LoggedOutcomes(
        routes=np.array(routes, dtype=np.int8),
        propensities=np.array([[1 - p, p] for p in asked]),
        rewards=np.array(rewards),
        costs=np.array(costs),
        expired=np.array(expired or [False] * len(routes)),
        delays=[0, 0],
    )


def known_of(given: LoggedOutcomes, imputed: list[list[float]]) -> DoublyRobust:
    known = DoublyRobust(given, d=0)
    known.impute(0, np.array(imputed))
    return known


def test_an_explored_task_stands_for_those_that_were_not() -> None:
    """Four tasks, asked with probability 1/4, one was: its surprise of 0.8 − 0.6 counts four times.

    Always asking: (4·0.6 + 4·0.2)/4 = 0.8. The model: 4·0.5 and the surprises of 0.1 on three tasks, each 4/3 times,
    is 2.4/4 = 0.6, so that one fourth of the first and three of the second were expected, 0.65, and asking always is
    better by 0.15. What was done brought (3·0.6 + 0.8)/4 = 0.65.
    """
    log = facts([0, 0, 0, 1], [0.25] * 4, [[0.6, NAN]] * 3 + [[NAN, 0.8]])
    known = known_of(log, [[0.5, 0.6]] * 4)
    assert known.logged_value() == pytest.approx((0.65, 0.0))
    always = np.array([[0.0, 1.0]] * 4)
    found = known.estimate(always, 0.0, (0.0, 0.0))
    assert found.difference.mean == pytest.approx(0.15)
    assert found.reward.mean == pytest.approx(0.8)
    assert known.sum(always) / 4 == pytest.approx(0.8)
    # the human: 0.75²·(4 − 1)·0.2²·4 tasks as expected or as measured; the model: 0.75²·(4/3 − 1)·0.1²·4
    assert found.difference.se == pytest.approx(math.sqrt(0.75**2 * (3 * 0.2**2 + 0.1**2 / 3) * 4) / 4)
    assert found.unsupported == 0
    assert known.estimate(known.propensities, 0.2, (0.0, 0.0)).difference == (0.0, 0.0)


def test_where_nobody_could_be_asked_there_are_only_estimates() -> None:
    known = known_of(facts([0, 0], [0.0, 0.0], [[0.6, NAN], [0.4, NAN]]), [[0.5, 0.75], [0.5, 0.75]])
    found = known.estimate(np.array([[0.0, 1.0], [1.0, 0.0]]), 0.0, (0.01, 0.04))
    assert found.difference == pytest.approx((0.5 * (0.75 - 0.6), 0.1))
    assert found.reward == pytest.approx((0.5 * (0.75 + 0.4), 0.2))
    assert found.unsupported == 0.5


def test_rewards_that_are_missing_are_like_those_that_are_known() -> None:
    """Of four model decisions two are known, to be 0.1 above what was believed: so are the others."""
    known = known_of(facts([0] * 4, [0.0] * 4, [[0.6, NAN], [NAN, NAN]] * 2), [[0.5, 0.5]] * 4)
    assert known.logged_value() == pytest.approx((0.6, math.sqrt(2 * 2 * 0.01) / 4))


def test_a_reward_that_is_always_known_needs_no_weight() -> None:
    """The model's reward is known on every task: not to ask would have brought exactly that."""
    log = facts([0, 1, 1], [0.5] * 3, [[0.5, NAN], [0.25, 1.0], [0.75, 0.5]])
    known = known_of(log, [[0.1, 0.9]] * 3)
    never = np.array([[1.0, 0.0]] * 3)
    assert known.sum(never) / 3 == pytest.approx(0.5)
    assert known.variance(never) == 0


def test_what_only_an_expert_judges_is_judged_by_what_experts_saw() -> None:
    """The model's reward is known when the human was asked, half of the time: it counts twice there."""
    log = facts([0, 1], [0.5, 0.5], [[NAN, NAN], [0.25, 1.0]])
    known = known_of(log, [[0.5, 0.5], [0.5, 0.5]])
    assert not known.own_rewards_suffice
    # model: 0.5 and 0.5 − 2·0.25 = 0; human: 0.5 and 0.5 + 2·0.5 = 1.5; each with probability 1/2
    assert known.logged_value().mean == pytest.approx((0.5 + 0.0 + 0.5 + 1.5) / 2 / 2)
    assert known.logged_value().se > 0


def test_who_does_not_answer_brings_what_the_model_does() -> None:
    """One of two who were asked did not answer: the model's 0.2 was used, and half of asking is the model's."""
    log = facts([1, 1], [0.5, 0.5], [[0.2, NAN], [NAN, 0.8]], [True, False])
    known = known_of(log, [[0.3, 0.7], [0.3, 0.7]])
    assert known.imputed.tolist() == [[0.3, 0.5], [0.3, 0.5]]
    assert known.rewards[:, 1].tolist() == [0.2, 0.8]
    assert known.logged_value().mean == pytest.approx(0.5)


def test_doubt_is_that_of_the_sum_of_the_estimates() -> None:
    """A mean over tasks with contexts 1 and 3, one coefficient of variance noise/M: (4/2)²·0.04/8, and two noises."""
    model_variance = ModelVariance([Coefficients(np.array([0.5]), np.array([[1 / 8]]))], "identity")
    model_variance.add(np.ones((2, 1)), np.array([[1.0], [3.0]]), np.zeros((2, 1)))
    assert model_variance.variance(2, np.array([0.04])) == pytest.approx(4 * 0.04 / 8 + 0.04 * 2 / 4)
    logistic = ModelVariance([Coefficients(np.array([0.0]), np.array([[1 / 8]]))], "logistic")
    logistic.add(np.ones((2, 1)), np.array([[1.0], [3.0]]), np.full((2, 1), 0.5))
    assert logistic.variance(2, np.array([0.25])) == pytest.approx((0.25 * 4 / 2) ** 2 / 8 + 0.25 * 2 / 4)


def decided(number: int, route: str, propensity: float) -> DecidedRecord:
    zero: dict[str, Any] = {"price": 0.0, "budget_left": 9.0, "reserved": 0.0, "expected_cost": 0.0}
    by_name: dict[str, Any] = {"estimates": {"model": 0.0, "human": 0.0}, "widths": {"model": 0.0, "human": 0.0}}
    costs: dict[str, Any] = {"costs": {"human": 0.0}, "cost_widths": {"human": 0.0}}
    task = {"task": f"t{number}", "context": [1.0], "route": route, "reason": "worth it", "id": number}
    return DecidedRecord(**task, propensity=propensity, **zero, **by_name, **costs)  # type: ignore[arg-type]


def test_the_past_is_what_the_log_says_in_the_end() -> None:
    decision_log = DecisionLog()
    for record in (
        CreatedRecord(spec=SPEC),
        decided(0, "human", 0.9),
        decided(1, "model", 0.9),
        ObservedRecord(task="t1", id=1, learned=True, rewards={"model": 0.5}),
        decided(2, "human", 1.0),
        ObservedRecord(task="t0", id=0, learned=True, rewards={"human": 0.75, "model": 0.25}, cost={"cost": 500_000}),
        CorrectedRecord(task="t0", id=0, request="c", rewards={"human": 1.0}, cost={"cost": 250_000}),
        ExpiredRecord(task="t2", id=2, why="", released={}),
    ):
        decision_log.see(record)
    seen = decision_log.facts()
    assert seen.routes.tolist() == [1, 0, 1]
    assert seen.propensities == pytest.approx(np.array([[0.1, 0.9], [0.9, 0.1], [0.0, 1.0]]))
    assert np.array_equal(seen.rewards, [[0.25, 1.0], [0.5, NAN], [NAN, NAN]], equal_nan=True)
    assert np.array_equal(seen.costs, [[0.25], [NAN], [NAN]], equal_nan=True)
    assert seen.delays == [0, 2]
    assert seen.expiry().tolist() == [0, 0.5]
    heard = feedback_of(decision_log, seen)
    assert heard.reported == {"model": ("model",), "human": ("model", "human")}
    assert heard.expiry == {"model": 0.0, "human": 0.5}


@pytest.mark.parametrize(
    ("text", "totals"),
    [
        ("2x", {"minutes": 20_000_000, "euros": 6_000_000}),
        ("50 %", {"minutes": 5_000_000, "euros": 1_500_000}),
        ("minutes=1,500.5", {"minutes": 1_500_500_000, "euros": 3_000_000}),
        ("minutes=2x,euros=0", {"minutes": 20_000_000, "euros": 0}),
        ("euros=inf", {"minutes": 10_000_000, "euros": None}),
        ("inf", {"minutes": None, "euros": None}),
        ("0", {"minutes": 0, "euros": 0}),
    ],
)
def test_budgets_as_people_write_them(text: str, totals: dict[str, int | None]) -> None:
    logged = {"minutes": 10_000_000, "euros": 3_000_000}
    assert scenario_of(text, logged).totals == totals
    with pytest.raises(ValueError, match="A budget is given by resource, as in minutes=500. Got '5'"):
        scenario_of("5", logged)
    with pytest.raises(ValueError, match="The budget of minutes has no end, and no part of it either"):
        scenario_of("2x", {"minutes": None})
