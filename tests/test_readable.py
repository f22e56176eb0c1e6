"""What users read: rewards as truth values, coefficients with names, summaries in lines."""

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
