"""A learner says why experts are asked less than planned, and what would change it; it warns once."""

import math
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from deferkit import Budget, Decision, Deferrer, Encoder, MeanEstimate, Pacing, SpendingWarning, Summary
from deferkit.types import MODEL

OLD, NEW = "2026.11", "2026.12"
DAY = 86_400.0
N = 1_647


def day_one(seed: int, n: int = N, human: float = 0.93) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return contexts [1, confidence, margin], and rewards of a calibrated model and of an expert."""
    rng = np.random.default_rng(seed)
    confidence = rng.beta(8, 2, n)
    contexts = np.column_stack([np.ones(n), confidence, rng.beta(2, 2, n) * confidence])
    rewards = {MODEL: (rng.random(n) < confidence) * 1.0, "human": (rng.random(n) < human) * 1.0}
    return contexts, rewards


def unlucky(rule: str, seed: int, wrong: tuple[int, int]) -> Deferrer:
    """Return a learner after a stream in which the expert is wrong in two of the first six reviews."""
    contexts, rewards = day_one(seed)
    deferrer = Deferrer(n_features=3, budget=Budget(165, horizon=N, max_cost=1), seed=seed, defaults=rule)
    reviews = 0
    for t, context in enumerate(contexts):
        decision = deferrer.decide(context)
        if decision.route == MODEL:
            deferrer.observe(decision.id, {MODEL: rewards[MODEL][t]})
        else:
            answer = float(reviews not in wrong) if reviews < 6 else rewards["human"][t]
            deferrer.observe(decision.id, {MODEL: rewards[MODEL][t], "human": answer}, cost=1.0)
            reviews += 1
    return deferrer


def made(rule: str = NEW, total: float = 100, horizon: int = 1_000, **more: Any) -> Deferrer:
    given: dict[str, Any] = {"n_features": 3, "budget": Budget(total, horizon=horizon, max_cost=1), "defaults": rule}
    return Deferrer(**given | more)


def live(deferrer: Deferrer, n: int, observe: Callable[[Deferrer, Decision, int], None], **options: Any) -> None:
    """Decide n tasks of day one and report what `observe` does."""
    contexts, _ = day_one(0, n)
    for t, context in enumerate(contexts):
        observe(deferrer, deferrer.decide(context, **options), t)


def report_all(deferrer: Deferrer, decision: Decision, t: int) -> None:
    asked = decision.route != MODEL
    deferrer.observe(decision.id, {decision.route: float(t % 5 > 0)}, cost=0.5 if asked else None)


def remark_of(deferrer: Deferrer) -> str:
    return deferrer.summary().remark


# ------------------------------------------------------------ the remark


def test_a_learner_that_stops_asking_says_why() -> None:
    deferrer = unlucky(OLD, 3, wrong=(1, 2))
    summary = deferrer.summary()
    assert summary.routes["human"] == 3
    expert, model = summary.estimates["human"], summary.estimates[MODEL]
    assert summary.remark == (
        "asked 3 of 1,647; 98 % of the budget unspent: the expert's estimate"
        f" ({expert} from 3 reviews) is below the model's ({model}). More reviews would tell: `explore_floor`, a longer"
        " `warm_up`, `warm_start` with past reviews or the model's `confidence`."
    )
    assert expert.mean + 2 * expert.error > model.mean  # it is not known to be worse
    assert str(summary).splitlines()[-1] == f"remark          {summary.remark}"


@pytest.mark.parametrize("wrong", [(0, 1), (1, 2), (0, 5)])
def test_every_stream_that_stops_asking_has_a_remark_and_no_other(wrong: tuple[int, int]) -> None:
    for seed in range(12):
        summary = unlucky(OLD, seed, wrong).summary()
        if summary.spent < 0.5 * 165:  # type: ignore[operator]
            assert f"asked {summary.routes['human']:,} of 1,647; " in summary.remark
            assert "is below the model's" in summary.remark or "asking is worth it again" in summary.remark
        else:
            assert summary.remark == ""


def test_an_expert_who_is_known_to_be_worse_is_said_to_be() -> None:
    contexts, rewards = day_one(0, human=0.4)
    deferrer = made(OLD, total=165, horizon=N, warm_up=200)
    deferrer.run(contexts, rewards, np.full(N, 0.5))
    assert "is below the model's" in remark_of(deferrer)
    assert remark_of(deferrer).endswith(
        "If that is right, the budget is not needed; if not, check the reported rewards."
    )


def test_a_price_above_the_gain() -> None:
    """The printed pacing starts at half of T/B: 5 for a unit, where asking brings 0.2."""
    contexts, rewards = day_one(0, 300)
    deferrer = made(OLD, total=30, horizon=300, pacing=Pacing(kind="paper"), warm_up=20)
    deferrer.warm_start(contexts, rewards, cost=np.ones(300))
    deferrer.run(contexts[:100], {name: each[:100] for name, each in rewards.items()}, np.ones(100))
    said = remark_of(deferrer)
    assert "the price (" in said
    assert "is above the gain: the expert's estimate is better by " in said
    assert said.endswith("a shorter horizon lowers it.")


def test_budget_reserved_for_reviews_whose_cost_was_never_reported() -> None:
    deferrer = made(OLD, total=10, horizon=100, warm_up=40)

    def report_rewards(learner: Deferrer, decision: Decision, _: int) -> None:
        known = learner.summary().samples["cost of human"] > 0
        cost = None if known or decision.route == MODEL else 0.5
        learner.observe(decision.id, {MODEL: 0.0} | ({} if decision.route == MODEL else {"human": 1.0}), cost=cost)

    live(deferrer, 60, report_rewards)
    summary = deferrer.summary()
    assert summary.left < 1  # type: ignore[operator]
    assert f"9 is reserved for {summary.pending} reviews whose cost was not reported" in summary.remark
    assert summary.remark.endswith("Report `cost` with `observe`, or `expire` them.")
    for decision in range(60):
        if deferrer._ledger.status[decision] == 1:
            deferrer.expire(decision)
    assert "is reserved" not in remark_of(deferrer)


def test_a_budget_that_is_left_but_does_not_cover_a_review() -> None:
    deferrer = Deferrer(n_features=3, budget=Budget(5, horizon=100, max_cost=4), warm_up=30, defaults=OLD)
    live(deferrer, 30, report_all)
    summary = deferrer.summary()
    assert "left is less than a review may cost (4). A larger total, a smaller `max_cost`" in summary.remark
    assert summary.without_budget > 0


def test_a_budget_that_is_spent_early() -> None:
    deferrer = made(OLD, total=5, horizon=100)
    for t in range(40):
        decision = deferrer.decide([1.0, 0.5, 0.5], force="human" if t < 5 else None)
        deferrer.observe(decision.id, {decision.route: 1.0}, cost=1.0 if t < 5 else None)
    assert remark_of(deferrer) == (
        "asked 5 of 40; 0 % of the budget unspent: the 0 left is less than a review may cost (1). `change_budget` adds"
        " to it."
    )


def test_no_cost_is_known_yet() -> None:
    deferrer = made(OLD)
    live(deferrer, 60, lambda *_: None)
    held = deferrer.summary().reserved
    assert f"no cost is known yet, and {held:g} is held for" in remark_of(deferrer)
    assert remark_of(deferrer).endswith("Report the `cost` of a review with `observe`.")


def test_nobody_is_available() -> None:
    deferrer = made(OLD)
    live(deferrer, 60, report_all, available=[])
    assert remark_of(deferrer).startswith(
        "asked 0 of 60; 100 % of the budget unspent: no expert was available for 60 of"
    )
    restored = Deferrer.from_bytes(deferrer.to_bytes())
    assert remark_of(restored) == remark_of(deferrer)


def test_routes_that_the_caller_prescribes() -> None:
    deferrer = made()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is the caller's own wish
        live(deferrer, 300, report_all, force=MODEL)
    assert "the caller prescribed the route of 300 tasks" in remark_of(deferrer)


def test_named_features_wait_for_their_scales() -> None:
    deferrer = Deferrer(
        encoder=Encoder(numbers=["size"]), representation="linear", budget=Budget(10, horizon=100, max_cost=1)
    )
    for size in range(5):
        deferrer.decide({"size": size}, force=MODEL)
    assert "before the scales of the named features are known, after 16 tasks" in remark_of(deferrer)
    for size in range(20):
        deferrer.decide({"size": size}, force=MODEL)
    assert "scales" not in remark_of(deferrer)


def test_several_experts_and_resources_are_named() -> None:
    contexts, rewards = day_one(1)
    budget = {"minutes": Budget(100, horizon=N, max_cost=1), "euros": Budget(100, horizon=N, max_cost=1)}
    deferrer = made(OLD, budget=budget, experts=["ann", "bo"], warm_up=60)
    answers = {MODEL: np.ones(N), "ann": 0.4 * rewards["human"], "bo": 0.6 * rewards["human"]}
    costs = {"minutes": np.full(N, 0.5), "euros": np.full(N, 0.1)}
    deferrer.run(contexts, answers, {"ann": costs, "bo": costs})
    assert "the best expert's (bo) estimate (" in remark_of(deferrer)


def test_nothing_is_said_of_a_learner_that_spends_as_planned() -> None:
    for seed in range(5):
        contexts, rewards = day_one(seed)
        deferrer = made(total=165, horizon=N, seed=seed)
        for end in range(100, N, 200):
            part = slice(end - 100, end)
            deferrer.run(contexts[part], {name: each[part] for name, each in rewards.items()}, np.ones(100))
            assert remark_of(deferrer) == ""


def test_nothing_is_said_of_an_unlimited_budget_or_before_the_first_task() -> None:
    assert remark_of(made()) == ""
    assert made().summary().estimates == {}
    deferrer = made(budget=Budget.unlimited())
    live(deferrer, 300, report_all, available=[])
    assert remark_of(deferrer) == ""


def test_a_summary_of_before_can_still_be_read() -> None:
    """Pickles hold the fields in their order, and the new ones have defaults."""
    summary = unlucky(OLD, 3, wrong=(1, 2)).summary()
    before = Summary(*summary[:21])
    assert (before.estimates, before.remark) == ({}, "")
    assert pickle.loads(pickle.dumps(summary)) == summary


# ------------------------------------------------------------ estimates


@pytest.mark.parametrize("rule", [OLD, NEW])
@pytest.mark.parametrize("graded", [False, True])
def test_estimates_are_the_mean_scores_of_the_latest_contexts(rule: str, graded: bool) -> None:
    contexts, rewards = day_one(2, 600)
    if graded:
        rewards = {name: 0.25 + each / 2 for name, each in rewards.items()}
    deferrer = made(rule, total=60, horizon=600, link="identity" if graded else "auto")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpendingWarning)  # graded rewards are asked late
        deferrer.run(contexts, rewards, np.ones(600))
    scores, estimates = deferrer.score(contexts[-200:]), deferrer.summary().estimates
    for name in (MODEL, "human"):
        assert estimates[name].mean == pytest.approx(scores.estimates[name].mean(), rel=1e-9)
        assert estimates[name].samples == deferrer.summary().samples[name]
    assert estimates["cost of human"].mean == pytest.approx(scores.costs["human"].mean(), rel=1e-9)


def test_the_error_by_its_formula() -> None:
    """Noise · √(xᵀH⁻¹x) with H = ridge·I + Σxxᵀ and noise² = (Σe² + 4·v₀)/(n + 4), v₀ that of a fair coin."""
    contexts, rewards = day_one(0, 50)
    deferrer = made(OLD, forget="never", ridge=0.5, budget=Budget.unlimited())
    for t in range(50):
        deferrer.observe(deferrer.decide(contexts[t], force=MODEL).id, {MODEL: rewards[MODEL][t]})
    precision = 0.5 * np.eye(3) + contexts.T @ contexts
    theta = np.linalg.solve(precision, contexts.T @ rewards[MODEL])
    squares = ((rewards[MODEL] - contexts @ theta) ** 2).sum() + 0.5 * theta @ theta
    spreads = np.sqrt(np.einsum("ij,ji->i", contexts, np.linalg.solve(precision, contexts.T)))
    error = math.sqrt((squares + 4 * 0.25) / 54) * spreads.mean()
    assert deferrer.summary().estimates[MODEL].error == pytest.approx(error, rel=1e-6)


def test_an_error_is_at_most_half_the_range() -> None:
    deferrer = made(reward_range=(-1.0, 3.0))
    deferrer.decide([1.0, 1e3, 1e3])
    assert deferrer.summary().estimates["human"].error == 2.0
    assert str(MeanEstimate(0.7, 0.0123, 9)) == "0.7 ± 0.012"


def test_the_estimates_take_no_part_in_a_proposal() -> None:
    """A summary between a proposal and its commit, as at a check, changes nothing."""
    contexts, rewards = day_one(0, 300)
    first, second = made(), made()
    for t, context in enumerate(contexts):
        event = first.propose(context)
        first.summary()
        first.apply(event)
        decision = second.decide(context)
        assert decision == event.decision
        for each in (first, second):
            cost = None if decision.route == MODEL else 0.5
            each.observe(decision.id, {decision.route: rewards[decision.route][t]}, cost=cost)
    assert first == second


# ------------------------------------------------------------ the warning


def stalled(deferrer: Deferrer, n: int, by: str, *, at: np.ndarray | None = None) -> list[str]:
    """Let a learner decide n tasks of which no outcome is reported; return the warnings."""
    contexts, _ = day_one(0, n)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if by == "many":
            deferrer.decide_many(contexts, at=at)
        elif by == "run":
            deferrer.run(contexts, {MODEL: np.ones(n), "human": np.zeros(n)}, np.ones(n), at=at)
        for t, context in enumerate(contexts if by in ("one", "options", "apply") else ()):
            when = None if at is None else float(at[t])
            if by == "one":
                deferrer.decide(context, at=when)
            elif by == "options":
                deferrer.decide(context, available=["human"], at=when)
            else:
                for renewed in deferrer.renewals(when) if when is not None else ():
                    deferrer.apply(renewed)
                deferrer.apply(deferrer.propose(context, at=when))
    assert all(issubclass(warning.category, SpendingWarning) for warning in caught)
    assert all(warning.filename == __file__ for warning in caught)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("timed", [False, True])
def test_it_is_raised_once_after_a_fifth_whoever_decides(timed: bool) -> None:
    """Without outcomes the cold start holds a twentieth of the budget, a quarter of the plan of a fifth at most."""
    budget = Budget(100, every="day", max_cost=1) if timed else Budget(100, horizon=1_000, max_cost=1)
    times = np.linspace(0.0, DAY, 1_000, endpoint=False) if timed else None
    learners = {by: made(budget=budget, seed=1) for by in ("one", "options", "many", "apply")}
    said = {
        by: stalled(deferrer, 900, by, at=None if times is None else times[:900]) for by, deferrer in learners.items()
    }
    assert {by: len(lines) for by, lines in said.items()} == {"one": 1, "options": 1, "many": 1, "apply": 0}
    assert said["one"] == said["options"] == said["many"]
    assert said["one"][0].startswith("Less than a quarter of the planned spending is used: asked ")
    assert "no cost is known yet" in said["one"][0]
    assert learners["one"] == learners["many"] == learners["apply"] == learners["options"]


def test_it_comes_at_the_first_fifth_and_not_before() -> None:
    deferrer = made()
    assert stalled(deferrer, 200, "one") == []
    assert len(stalled(deferrer, 1, "one")) == 1
    assert stalled(deferrer, 700, "one") == []


def test_it_is_raised_by_run_where_the_expert_is_worse() -> None:
    said = stalled(made(total=1_000), 1_000, "run")
    assert len(said) == 1
    assert "asked " in said[0]
    assert "is below the model's" in said[0]


def test_run_and_decide_have_the_same_state_after_it() -> None:
    contexts, _ = day_one(0, 600)
    rewards = {MODEL: np.ones(600), "human": np.zeros(600)}
    first, second = made(total=600, horizon=600), made(total=600, horizon=600)
    with pytest.warns(SpendingWarning):
        first.run(contexts, rewards, np.ones(600))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpendingWarning)
        for context in contexts:
            decision = second.decide(context)
            asked = decision.route != MODEL
            seen = {MODEL: 1.0, "human": 0.0} if asked else {MODEL: 1.0}
            second.observe(decision.id, seen, cost=1.0 if asked else None)
    assert first == second


def test_it_is_not_repeated_after_a_save() -> None:
    before = made()
    stalled(before, 150, "one")
    after = Deferrer.from_bytes(before.to_bytes())
    assert len(stalled(after, 100, "one")) == 1
    assert stalled(Deferrer.from_bytes(after.to_bytes()), 700, "one") == []


def test_a_later_fifth_is_checked_too() -> None:
    """Six reviews are enough at the first fifth, for which 20 are planned, but not at the second."""
    deferrer = made(total=100, horizon=1_000)
    contexts, _ = day_one(0, 1_000)
    said = []
    for t, context in enumerate(contexts[:900]):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            decision = deferrer.decide(context, available=["human"] if t < 12 else [], force="human" if t < 6 else None)
        said += [(t, str(each.message)) for each in caught]
        cost = None if decision.route == MODEL else 1.0
        deferrer.observe(decision.id, {decision.route: 1.0}, cost=cost)
    assert [t for t, _ in said] == [400]
    assert "no expert was available for" in said[0][1]


def test_it_is_not_raised_by_the_old_rule_nor_without_a_limit() -> None:
    for deferrer in (made(OLD), made(budget=Budget.unlimited()), made(OLD, budget=Budget(100, every="day"))):
        at = np.linspace(0.0, DAY, 900) if deferrer.settings.is_timed else None
        assert stalled(deferrer, 900, "one", at=at) == []


def test_it_is_not_raised_for_a_handful_of_tasks_or_reviews() -> None:
    assert stalled(made(total=3, horizon=50), 20, "one") == []
    assert stalled(made(total=2, horizon=1_000), 1_000, "one") == []


def test_it_is_not_raised_while_outcomes_are_late() -> None:
    """Outcomes come 150 tasks later: what is pending counts as used."""
    contexts, rewards = day_one(3, 1_000)
    deferrer, asked = made(total=100, seed=3), []
    for t, context in enumerate(contexts):
        decision = deferrer.decide(context)  # a warning would be an error
        asked.append(decision.route != MODEL)
        if (late := t - 150) >= 0:
            seen = {MODEL: rewards[MODEL][late]} | ({"human": rewards["human"][late]} if asked[late] else {})
            deferrer.observe(late, seen, cost=1.0 if asked[late] else None)
    assert deferrer.summary().spent > 50  # type: ignore[operator]


def test_as_an_error_it_leaves_the_decision_to_the_next_call() -> None:
    deferrer, other = made(), made()
    stalled(deferrer, 200, "one")
    stalled(other, 200, "one")
    context = day_one(0, 1)[0][0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SpendingWarning):
            deferrer.decide(context)
        assert deferrer.summary().decisions == 200
        deferrer.decide(context)
    with pytest.warns(SpendingWarning):
        other.decide(context)
    assert deferrer == other


def test_the_check_of_a_period_follows_its_tasks() -> None:
    """All tasks come in the evening: a fifth of the day passes without any, and no warning comes before they do."""
    contexts, rewards = day_one(0, 400)
    times = np.concatenate([np.linspace(0.75, 0.99, 200), np.linspace(1.75, 1.99, 200)]) * DAY
    deferrer = made(budget=Budget(20, every="day", max_cost=1))
    deferrer.run(contexts, rewards, np.ones(400), at=times)  # a warning would be an error
    assert deferrer.summary().spent > 20  # type: ignore[operator]


# ------------------------------------------------------------ decisions


def decided(**fields: Any) -> Decision:
    plain = made(total=50).propose([1.0, 0.5, 0.5]).decision
    estimates = {MODEL: 0.7, "human": 0.23}
    widths = {MODEL: 0.01, "human": 0.21}
    same: dict[str, Any] = {"route": MODEL, "reason": "not worth it", "price": 0.0}
    same |= {"estimates": estimates, "widths": widths, "costs": {"human": 1.0}, "cost_widths": {"human": 0.0}}
    return plain._replace(**same | fields)


@pytest.mark.parametrize(
    ("fields", "ends"),
    [
        ({}, "; even at best, human is expected to earn no more than the model."),
        (
            {"estimates": {MODEL: 0.7, "human": 0.6}, "price": 0.5},
            "; at best human is expected to earn 0.11 more, and the price of its cost is 0.5.",
        ),
        (
            {"estimates": {MODEL: 0.7, "human": 0.6}, "widths": {MODEL: 0.4, "human": 0.21}},
            "; at best human is expected to earn 0.11 more, and as much may be true of the model.",
        ),
        (
            {"route": "human", "reason": "worth it", "estimates": {MODEL: 0.4, "human": 0.3}},
            "; human is asked to learn more, because the budget would not be used otherwise.",
        ),
        (
            {"route": "human", "reason": "worth it", "estimates": {MODEL: 0.4, "human": 0.3}, "price": 0.01},
            "; human is asked to learn more.",
        ),
        (
            {"route": "human", "reason": "worth it", "estimates": {MODEL: 0.4, "human": 0.9}},
            "with a price of 0 for a unit of budget.",
        ),
    ],
)
def test_a_decision_says_why_nobody_or_somebody_is_asked(fields: dict[str, Any], ends: str) -> None:
    said = decided(**fields).explain()
    assert said.endswith(ends)
    assert "±" in said


def test_free_exploration_is_explained() -> None:
    """An expert who is worse is tried while the price is 0, and each such decision says so."""
    contexts, _ = day_one(0, 400)
    deferrer = made(total=300, horizon=3_000)
    free = []
    for context in contexts:
        decision = deferrer.decide(context)
        asked = decision.route != MODEL
        if asked and decision.reason == "worth it" and decision.estimates["human"] < decision.estimates[MODEL]:
            free.append(decision)
        deferrer.observe(decision.id, {decision.route: 0.0 if asked else 1.0}, cost=1.0 if asked else None)
    assert free
    for decision in free:
        assert ("would not be used otherwise" in decision.explain()) == (decision.price == 0.0)
