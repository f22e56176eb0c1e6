"""What users read: rewards as truth values, coefficients with names, summaries in lines."""

import html
import json
import re
from typing import Any

import numpy as np
import pytest

from deferkit import Budget, Deferrer, Encoder
from deferkit.errors import InvalidArgument


def learner(**given: object) -> Deferrer:
    return Deferrer(n_features=1, budget=Budget(5, horizon=10, max_cost=1), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [bool, np.bool_])
def test_true_and_false_are_rewards(kind: type) -> None:
    told, numbers = learner(), learner()
    for each, values in ((told, (kind(1), kind(0))), (numbers, (1.0, 0.0))):
        decision = each.decide([1.0], force="human")
        each.observe(decision.id, rewards={"human": values[0], "model": values[1]}, cost=0.5)
        each.observe(decision.id, rewards={"human": values[0]})  # the same again
        each.correct(decision.id, rewards={"model": values[0]})
    assert told == numbers
    assert told.to_bytes() == numbers.to_bytes()


def test_true_is_no_cost() -> None:
    each = learner()
    decision = each.decide([1.0], force="human")
    with pytest.raises(InvalidArgument, match="cost"):
        each.observe(decision.id, cost=True)


@pytest.mark.parametrize("representation", ["linear", "auto"])
def test_coefficients_carry_the_names_of_features(representation: str) -> None:
    encoder = Encoder(numbers=["amount"], categories={"country": 2})
    each = Deferrer(encoder=encoder, budget=Budget(5, horizon=10), representation=representation)
    each.decide({"amount": 1.0, "country": "fr"})
    for found in each.coefficients().values():
        assert found.names is not None
        assert len(found.names) == len(found.theta)
        assert found.names[:4] == ("intercept", "amount", "amount missing", "country=fr")
    assert learner().coefficients()["human"].names is None


def test_a_summary_prints_a_line_for_each_field() -> None:
    each = learner()
    each.decide([1.0], force="human")
    each.decide([1.0], force="model")
    lines = str(each.summary()).splitlines()
    assert len(lines) == len(each.summary()._fields)
    assert lines[0].split() == ["decisions", "2"]
    assert "deferral rate   50 %" in lines
    assert "routes          model 1, human 1" in lines
    assert all(line[14:16] == "  " and line[16] != " " for line in lines)
    assert repr(each.summary()).startswith("Summary(decisions=2, ")


def learner_after(n: int, **given: Any) -> tuple[Deferrer, float]:
    """Return a learner after n tasks with full feedback, and what its reviews brought over the model."""
    rng = np.random.default_rng(0)
    deferrer = Deferrer(n_features=2, budget=Budget(0.3 * n, horizon=n, max_cost=2), experts=["<ann>"], **given)
    gain = 0.0
    for x in rng.random((n, 2)):
        decision = deferrer.decide(x)
        model, expert = float(rng.random() < x[0]), float(rng.random() < 0.9)
        asked = decision.route != "model"
        gain += asked * (expert - model)
        deferrer.observe(decision.id, {"model": model, "<ann>": expert}, cost=1.0 if asked else None)
    return deferrer, gain


def test_a_learner_shows_who_decides_what_was_spent_and_what_was_gained() -> None:
    deferrer, gain = learner_after(400)
    summary, shown, html = deferrer.summary(), repr(deferrer), deferrer._repr_html_()
    assert f"{summary.routes['<ann>']:,} ({100 * summary.deferral_rate:.3g} %)" in shown
    assert f"{summary.spent:.4g} of 120 spent" in shown
    assert f"gain     {gain:.3g} ± " in shown
    assert f"from {summary.routes['<ann>']} of {summary.routes['<ann>']} reviews" in shown
    assert f"<ann> {summary.estimates['<ann>']}" in shown
    assert "&lt;ann&gt;" in html
    assert "<ann>" not in html
    assert ", of the latest 1,000 tasks" in repr(learner_after(1_200, memory=1_000)[0])


def test_a_learner_says_what_is_off() -> None:
    deferrer = Deferrer(n_features=1, budget=Budget(100, horizon=100))
    for _ in range(60):
        deferrer.observe(deferrer.decide([1.0], available=[]).id, {"model": 1.0})
    assert deferrer.summary().remark
    assert deferrer.summary().remark in repr(deferrer)
    assert "remark" not in repr(Deferrer(n_features=1))


def test_the_model_is_taken_at_its_estimate_where_its_reward_is_not_known() -> None:
    rng = np.random.default_rng(0)
    deferrer = Deferrer(n_features=1, budget=Budget(1_000, horizon=1_000, max_cost=1), forget="never")
    for i in range(1_000):
        decision = deferrer.decide([1.0], force="human" if i % 2 else "model")
        right = {"model": float(rng.random() < 0.6), "human": float(rng.random() < 0.9)}
        deferrer.observe(decision.id, {decision.route: right[decision.route]}, cost=1.0 if i % 2 else None)
    found = float(repr(deferrer).partition("gain     ")[2].partition(" ")[0])
    assert found == pytest.approx(500 * 0.3, abs=4 * (500 * (0.09 + 0.24)) ** 0.5)


def points_of(deferrer: Deferrer) -> list[dict[str, float]]:
    """Return the points of the lines in the figure of a learner."""
    found = re.findall(r'"values": (\[[^]]*\])', json.dumps(deferrer.plot().to_dict()))
    points: list[dict[str, float]] = max(map(json.loads, found), key=len)
    return points


def test_the_figure_of_a_learner_has_its_spending_and_its_gain() -> None:
    deferrer, gain = learner_after(400)
    last = points_of(deferrer)[-1]
    assert last["task"] == 400
    assert last["spent"] == pytest.approx(deferrer.summary().spent)
    assert last["gain"] == pytest.approx(gain)
    assert last["low"] < gain < last["high"]
    deferrer, _ = learner_after(1_200, memory=1_000)
    assert points_of(deferrer)[0]["task"] == 201
    assert points_of(deferrer)[-1]["spent"] == pytest.approx(deferrer.summary().spent)
    assert Deferrer(n_features=1).plot().to_dict()["hconcat"]


def test_a_run_a_decision_a_summary_and_an_encoder_show_themselves() -> None:
    deferrer = Deferrer(n_features=2, budget=Budget(20, horizon=60, max_cost=2))
    run = Deferrer(n_features=1).run(
        np.ones((5_000, 1)), {"model": [0.0] * 5_000, "human": [1.0] * 5_000}, cost=[1.0] * 5_000
    )
    assert f"human {int((run.routes == 1).sum()):,}" in repr(run)
    assert len(repr(run)) < 400
    assert f"{run.reward:,.6g}" in run._repr_html_()
    decision = deferrer.decide([1.0, 0.0])
    assert html.escape(decision.explain()) in decision._repr_html_()
    assert "<td" in deferrer.summary()._repr_html_()
    encoder = Encoder(numbers=["age"], categories={"land": 3})
    encoder.see({"age": 30.0, "land": "de"})
    assert "30 ± 1" in repr(encoder)
    assert "de (room for 3)" in encoder._repr_html_()
