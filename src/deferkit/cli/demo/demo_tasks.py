"""What simulated users need to know of the tasks of a demonstration."""

from typing import Any, Protocol

from deferkit.types import Budget
from deferkit.worlds.task_stream import Floats


class DemoTasks(Protocol):
    """Simulated tasks under a budget: what is known of each when it comes, and what comes of it.

    Tasks are told apart by their place in the stream, which counts from 0.
    """

    n_tasks: int
    budget: Budget
    costs: Floats
    """What a person's answer costs, by place."""
    rewards_by_rule: bool
    """Whether the policy makes rewards of answers, so that nobody reports any for a task that a person answers."""

    def settings(self) -> dict[str, Any]:
        """Return what the policy is made with."""

    def name_of(self, place: int) -> str:
        """Return the id of a task."""

    def place_of(self, name: str) -> int:
        """Return which task has an id."""

    def context(self, place: int) -> Any:
        """Return what is known of a task when it comes."""

    def payload(self, place: int) -> Any:
        """Return what a reviewer sees of a task."""

    def model_answer(self, place: int) -> Any:
        """Return what the model answers."""

    def answer(self, place: int, reviewer: str) -> Any:
        """Return what a reviewer answers."""

    def reward(self, place: int, decider: str) -> float:
        """Return what a decider earns on a task."""

    def cost(self, place: int) -> float:
        """Return what asking costs."""

    def reviewed(self, place: int) -> None:
        """Record that a person has answered."""

    def gain(self, place: int) -> float:
        """Return what asking about a task brings above the model, as it is to be expected."""
