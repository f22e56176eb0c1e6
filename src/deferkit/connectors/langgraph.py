"""Human approval in a LangGraph node, only where it is worth its cost and within a budget.

Needs LangGraph: `pip install 'deferkit[langgraph]'`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from deferkit.client.client import Client
from deferkit.connectors.task_deferrer import TaskDeferrer
from deferkit.errors import InvalidArgument
from deferkit.extras import needs
from deferkit.types import MODEL, Amount

needs("langgraph")

from langgraph.types import interrupt  # noqa: E402  after the check

PARTS = frozenset({"answer", "rewards", "cost"})


class Approval(NamedTuple):
    """Who has decided a task, and what.

    Attributes:
        route: "model", or the name of the expert who was asked.
        answer: The model's answer, or that of the reviewer.
    """

    route: str
    answer: Any

    @property
    def reviewed(self) -> bool:
        """Whether a person has answered."""
        return self.route != MODEL


def defer(
    decider: Client | TaskDeferrer,
    context: Any,
    *,
    task: str,
    model_answer: Any = None,
    payload: Any = None,
    cost: Amount | None = None,
) -> Approval:
    """Return the model's answer, or interrupt the graph until a reviewer has answered.

    Call it inside a node of a graph with a checkpointer. Where a person is to be asked it raises LangGraph's interrupt,
    whose value is `{"task", "expert", "payload", "model_answer"}`; resume the graph with `Command(resume=…)`: the
    answer, or `{"answer": …, "cost": 2.5, "rewards": {"human": 1, "model": 0}}`. LangGraph runs the node again from its
    beginning then: `task` makes that repeatable, so give each task an id that is the same in every run of the node.

    Without rewards, the reviewer's answer counts as right (1), and the model's as right if it is the same.

    Args:
        decider: A `Client` of the decision service, or a `TaskDeferrer`.
        context: What is known of the task: numbers, or named features.
        task: Your own id of the task.
        model_answer: What is used if nobody is asked.
        payload: What a reviewer is to see.
        cost: What a review costs where the resumed value does not say so; None (default): not known yet, so that its
            reservation stays until a cost or a deadline comes.

    Returns:
        Who has decided, and the answer.

    Raises:
        InvalidArgument: If the context is invalid, or the resumed value has unknown fields.
    """
    if isinstance(decider, Client):
        route = decider.decide(context, task=task, payload=payload, model_answer=model_answer).route
    else:
        route = decider.decide(context, task=task).route
    if route == MODEL:
        return Approval(MODEL, model_answer)
    reply = interrupt({"task": task, "expert": route, "payload": payload, "model_answer": model_answer})
    review = review_of(reply, route, model_answer)
    paid = review["cost"] if review["cost"] is not None else cost
    decider.observe(task, review["rewards"], paid)
    return Approval(route, review["answer"])


def review_of(reply: Any, expert: str, model_answer: Any) -> dict[str, Any]:
    """Return answer, rewards and cost of a resumed value.

    Args:
        reply: The answer, or a mapping that has it under "answer", beside "rewards" and "cost".
        expert: The expert who was asked.
        model_answer: What the model would have answered.

    Raises:
        InvalidArgument: If a mapping with an answer has other fields too.

    >>> review_of("refuse", "human", "pay")
    {'answer': 'refuse', 'rewards': {'human': 1.0, 'model': 0.0}, 'cost': None}
    """
    if isinstance(reply, Mapping) and "answer" in reply:
        if unknown := set(reply) - PARTS:
            raise InvalidArgument(f"A review has {', '.join(sorted(PARTS))}. Got {', '.join(map(str, unknown))} too.")
        answer, rewards, cost = reply["answer"], reply.get("rewards"), reply.get("cost")
    else:
        answer, rewards, cost = reply, None, None
    if rewards is None:
        rewards = {expert: 1.0, MODEL: float(answer == model_answer)}
    return {"answer": answer, "rewards": dict(rewards), "cost": cost}
