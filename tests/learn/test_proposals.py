"""A proposal is applied as an equal event from elsewhere is, whatever the learner was asked or told in between."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deferkit import Budget, Deferrer, InvalidArgument
from deferkit.events import Decided
from tests.early_fits import early_fits

D = 2
CONTEXTS = st.lists(st.floats(-1, 1), min_size=D, max_size=D)
MEANWHILE = st.lists(
    st.one_of(
        st.tuples(st.just("observe"), st.tuples(st.floats(0, 1), st.floats(0, 1))),
        st.tuples(st.just("propose"), CONTEXTS),
        st.tuples(st.just("score"), CONTEXTS),
        st.tuples(st.just("warm"), CONTEXTS),
        st.tuples(st.sampled_from(["bad", "short"]), st.none()),
    ),
    max_size=4,
)


def learner(representation: str) -> Deferrer:
    return Deferrer(
        n_features=D,
        budget=Budget(100, horizon=1000, max_cost=1),
        representation=representation,
        warm_up=2,
        explore_floor=0.5,
    )


def do(deferrer: Deferrer, what: str, value: Any, open_tasks: list[int]) -> None:
    """Do something that is no decision."""
    match what:
        case "observe" if open_tasks:
            rewards = {"model": value[0], "human": value[1]}
            deferrer.observe(open_tasks[0], rewards=rewards, cost=0.5)
        case "propose":
            deferrer.propose(value)
        case "score":
            deferrer.score([value])
        case "warm":
            deferrer.warm_start([value], rewards={"model": [0.5], "human": [1.0]}, cost=[0.5])
        case "bad":
            with pytest.raises(InvalidArgument):
                deferrer.decide(np.array([1.0, np.nan]))
        case "short":
            with pytest.raises(InvalidArgument):
                deferrer.propose([1.0])


@pytest.mark.parametrize("representation", ["linear", "auto"])
@settings(max_examples=30, deadline=None)
@given(steps=st.lists(st.tuples(CONTEXTS, MEANWHILE), min_size=1, max_size=25))
def test_a_proposal_is_applied_as_its_copy_is(
    representation: str, steps: list[tuple[list[float], list[tuple[str, Any]]]]
) -> None:
    with early_fits():
        one, other = learner(representation), learner(representation)
        open_tasks: list[int] = []
        for context, meanwhile in steps:
            event = one.propose(context)
            other.propose(context)
            for what, value in meanwhile:
                do(one, what, value, open_tasks)
                do(other, what, value, open_tasks)
                if what == "observe" and open_tasks:
                    open_tasks.pop(0)
            assert isinstance(event.context, list)
            one.apply(event)
            other.apply(Decided(event.decision, list(event.context), event.at))  # read from a log, say
            if event.decision.route == "human":
                open_tasks.append(event.decision.id)
        assert one.to_bytes() == other.to_bytes()


def test_a_proposal_before_new_trees_is_applied_with_their_views() -> None:
    rng = np.random.default_rng(0)
    with early_fits():
        one, other = learner("auto"), learner("auto")
        for context in rng.uniform(-1, 1, (60, D)).tolist():
            for deferrer in (one, other):
                deferrer.decide(context, force="human")
        event = one.propose([0.5, -0.5])
        before = one.vectors([[0.5, -0.5]])
        for decision, value in enumerate(rng.uniform(size=60).tolist()):  # trees are fitted, and take effect
            for deferrer in (one, other):
                deferrer.observe(decision, rewards={"model": value, "human": 1 - value}, cost=0.5)
        assert (one.vectors([[0.5, -0.5]]) != before).any()
        one.apply(event)
        other.apply(Decided(event.decision, [0.5, -0.5], event.at))
        assert one.to_bytes() == other.to_bytes()
