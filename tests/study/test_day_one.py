"""Day one: streams of real classifiers, the rival of eleven lines, several experts, junk, and what is claimed."""

import dataclasses
from typing import Any

import numpy as np
import polars as pl
import pytest

from deferkit import Budget, Deferrer, Encoder, InvalidArgument
from deferkit.study.baselines import confidence_quantile, sorted_quantile
from deferkit.study.experiments import day_one
from deferkit.study.policy_registry import RULES, make_learner, run_policy
from deferkit.worlds.classifiers import (
    ACCURACIES,
    CLASSIFIERS,
    JUNK,
    Classifiers,
    JunkContexts,
    SeveralExperts,
    draw_classifier_tasks,
)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifier_tasks_are_deterministic_and_differ_by_seed(name: str) -> None:
    first = draw_classifier_tasks.__wrapped__(name, 3)
    again = draw_classifier_tasks.__wrapped__(name, 3)
    for mine, theirs in zip(first, again, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert not np.array_equal(first.rewards, draw_classifier_tasks(name, 4).rewards)
    assert set(np.unique(first.rewards)) == {0.0, 1.0}
    assert (first.confidence >= first.margin).all()
    assert (first.costs == 1).all()


def test_classifier_tasks_have_the_rates_of_day_one() -> None:
    """20 seeds: sizes, the model's accuracy (± 3 points) and the expert's (0.93 ± 0.01)."""
    sizes = {"digits-logistic": 1_647, "cancer-tree": 509, "digits-neighbours": 1_647, "digits-bayes": 1_647}
    accuracies = {"digits-logistic": 0.90, "cancer-tree": 0.91, "digits-neighbours": 0.85, "digits-bayes": 0.78}
    for name, size in sizes.items():
        tasks = [draw_classifier_tasks(name, seed) for seed in range(20)]
        assert {len(each.costs) for each in tasks} == {size}
        model, expert = np.concatenate([each.rewards for each in tasks]).mean(axis=0)
        assert model == pytest.approx(accuracies[name], abs=0.04)
        assert expert == pytest.approx(0.93, abs=0.01)
    assert np.mean([(draw_classifier_tasks("digits-bayes", s).confidence > 0.999).mean() for s in range(5)]) > 0.8


def test_forms_are_the_same_tasks() -> None:
    vector, named = (Classifiers(classifier="cancer-tree", form=form).draw(1) for form in ("vector", "encoder"))
    np.testing.assert_array_equal(vector.rewards, named.rewards)
    assert vector.columns is None
    assert named.columns is not None
    np.testing.assert_array_equal(named.columns["margin"], vector.contexts[:, 2])
    with pytest.raises(InvalidArgument, match="'form' of a Classifiers must be one of 'vector', 'encoder'"):
        Classifiers(form="frame")


def test_a_learner_of_day_one_is_told_no_link_and_no_range() -> None:
    """What `Deferrer(n_features=3, budget=...)` would have, so that the default is judged as users meet it."""
    budget = Budget(50.0, horizon=509, max_cost=1.0)
    vector, named = (Classifiers(classifier="cancer-tree", form=form).draw(1) for form in ("vector", "encoder"))
    plain = Deferrer(n_features=3, experts=["human"], budget=budget, seed=0)
    assert make_learner("default", vector, [50.0], seed=0).settings == plain.settings
    encoder = Encoder(numbers=["confidence", "margin"])
    encoding = Deferrer(encoder=encoder, experts=["human"], budget=budget, seed=0)
    assert make_learner("default", named, [50.0], seed=0).settings == encoding.settings


def test_the_policies_of_day_one_differ_by_rule_and_prior() -> None:
    vector, named = (Classifiers(classifier="cancer-tree", form=form).draw(1) for form in ("vector", "encoder"))
    team, junk = SeveralExperts().draw(0), JunkContexts().draw(0)
    for stream, confidence in ((vector, 1), (named, 1), (team, 1), (junk, None)):  # an encoder has a constant first
        given = {name: make_learner(name, stream, [50.0], seed=0).settings for name in day_one.POLICIES[:3]}
        assert given["default"].confidence is None
        assert given["confidence"] == dataclasses.replace(given["default"], confidence=confidence)
        assert given["default-2026.11"].defaults == "2026.11"
        assert given["default"].defaults == "2026.12"


# ------------------------------------------------------------ the rule


def by_hand(confidences: list[float], costs: list[float], budget: float, max_cost: float) -> list[bool]:
    """Return the rule as eleven lines of plain numpy."""
    asked: list[bool] = []
    paid: list[float] = []
    for t in range(len(confidences)):
        left = budget - sum(paid)
        mean_cost = np.mean(paid) if paid else max_cost
        share = min(1.0, (left / mean_cost) / (len(confidences) - t)) if left > 0 else 0.0
        level = np.quantile(confidences[max(0, t - 499) : t + 1], share)
        asked.append(bool(confidences[t] <= level and left >= max_cost))
        if asked[-1]:
            paid.append(costs[t])
    return asked


def test_confidence_quantile_by_hand() -> None:
    # share 2/4: 0.9 is its own median; 1/3 of (0.8, 0.9): 0.833; 0 asks are left after that
    assert confidence_quantile(np.array([0.9, 0.8, 0.1, 0.1]), np.ones(4), 2.0, 1.0).tolist() == [1, 1, 0, 0]
    # 1 of 3: asked; a cost of 3 leaves nothing
    assert confidence_quantile(np.array([0.5, 0.1, 0.1]), np.array([3.0, 1, 1]), 3.0, 3.0).tolist() == [1, 0, 0]


@pytest.mark.parametrize("seed", range(6))
def test_confidence_quantile_is_eleven_lines_and_keeps_the_budget(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 1_200  # longer than the window
    confidences, costs = np.round(rng.random(n), 2), rng.uniform(0.25, 2.0, n)  # rounded: ties
    budget = (0.05, 0.1, 0.3)[seed % 3] * costs.sum()
    asked = confidence_quantile(confidences, costs, budget, 2.0)
    assert asked.tolist() == by_hand(confidences.tolist(), costs.tolist(), budget, 2.0)
    assert costs[asked].sum() <= budget
    assert costs[asked].sum() > 0.85 * budget


def test_sorted_quantile_is_that_of_numpy() -> None:
    values = np.sort(np.random.default_rng(0).random(37))
    for share in (0.0, 0.01, 0.5, 0.99, 1.0):
        assert sorted_quantile(values.tolist(), share) == pytest.approx(np.quantile(values, share), abs=1e-12)


def test_the_rule_is_a_policy_that_asks_the_best_expert() -> None:
    assert "eleven lines" in RULES["confidence-quantile"]
    stream = SeveralExperts().draw(2)
    routes = run_policy("confidence-quantile", stream, [81.0], seed=0).routes
    best = 1 + int(stream.rewards[:, 1:].mean(axis=0).argmax())
    assert set(np.unique(routes)) == {0, best}
    assert (routes > 0).sum() <= 81


def test_the_rule_takes_the_expected_reward_where_there_is_no_confidence() -> None:
    stream = Classifiers(classifier="cancer-tree").draw(0)
    without = stream._replace(confidence=None, first_use=False)
    assert run_policy("confidence-quantile", without, [50.0], seed=0).routes.sum() <= 50


# ------------------------------------------------------------ several experts, junk


def test_experts_are_as_good_as_they_should_be() -> None:
    """60 seeds: the accuracies within 0.01, in another order for each seed."""
    streams = [SeveralExperts().draw(seed) for seed in range(60)]
    assert np.mean([each.rewards[:, 0].mean() for each in streams]) == pytest.approx(0.86, abs=0.01)
    everyone = np.mean([each.rewards[:, 1:].mean() for each in streams])
    assert everyone == pytest.approx(np.mean(ACCURACIES), abs=0.01)
    assert len({int(each.rewards[:, 1:].mean(axis=0).argmax()) for each in streams}) == len(ACCURACIES)
    np.testing.assert_array_equal(SeveralExperts().draw(7).rewards, streams[7].rewards)


def test_junk_changes_contexts_only() -> None:
    clean, scattered, first = (JunkContexts(junk=junk).draw(5) for junk in JUNK)
    for other in (scattered, first):
        np.testing.assert_array_equal(other.rewards, clean.rewards)
    changed = (scattered.contexts != clean.contexts).any(axis=1)
    assert changed.sum() == 60
    assert (scattered.rewards[changed] == 1).all()
    assert np.abs(scattered.contexts).max() == 1e50
    assert np.flatnonzero((first.contexts != clean.contexts).any(axis=1)).tolist() == [0]
    assert np.abs(clean.contexts).max() < 10


# ------------------------------------------------------------ claims


def frame_of(ours: float, *, spent: float = 95.0, reviewed: float = 0.0, team: float = 30.0, junk: float = 0.0) -> Any:
    """Return trials in which the default is so much ahead of a rival that gains 30."""
    rows = []
    for seed in range(4):
        for policy in day_one.POLICIES:
            wobble = 0.1 * (seed - 1.5)
            base = {"policy": policy, "seed": seed, "model": 800.0, "spent_pct": spent}
            for classifier in (*day_one.MAIN, *day_one.OTHERS):
                for feedback in ("full", "bandit", "reviewed"):
                    ahead = (reviewed if feedback == "reviewed" else ours) + wobble
                    gained = 30.0 if policy == day_one.RIVAL else 30.0 + ahead
                    rows.append(
                        base
                        | {"world": "classifiers", "classifier": classifier, "form": "vector", "asked_budget": "10%"}
                        | {"feedback": feedback, "reward": 800.0 + gained, "junk": None}
                    )
            other = base | {"classifier": None, "form": None, "feedback": "full", "asked_budget": "10%"}
            gained = 30.0 if policy == day_one.RIVAL else team
            rows.append(other | {"world": "several-experts", "reward": 800.0 + gained, "junk": None})
            for kind, lost in (("none", 0.0), ("scattered", junk), ("first", junk)):
                rows.append(other | {"world": "junk-contexts", "reward": 900.0 - lost, "junk": kind})
    return pl.DataFrame(rows, infer_schema_length=None)


@pytest.mark.parametrize(
    ("given", "failing"),
    [
        ({"ours": 0.5}, set()),
        ({"ours": -3.0}, {0, 1, 5}),
        ({"ours": -0.5}, {1}),
        ({"ours": 0.5, "reviewed": -2.5}, {2, 3}),
        ({"ours": 0.5, "reviewed": -1.0}, {3}),  # of the confidence prior more is claimed
        ({"ours": 0.5, "spent": 20.0}, {4}),
        ({"ours": 0.5, "team": 26.0}, {6}),
        ({"ours": 0.5, "junk": 2.5}, {7}),
    ],
)
def test_claims_of_day_one_can_fail(given: dict[str, float], failing: set[int]) -> None:
    findings = day_one.EXPERIMENT.findings(frame_of(**given))
    assert len(findings) == 8
    assert {place for place, finding in enumerate(findings) if finding.verdict != "holds"} == failing


def test_the_figure_and_tables_of_day_one_are_drawn() -> None:
    frame = frame_of(0.5)
    assert day_one.EXPERIMENT.draw(frame).to_dict()["concat"]
    assert "Right answers gained, five experts, by budget (mean ± sd)" in day_one.EXPERIMENT.tables_of(frame)
