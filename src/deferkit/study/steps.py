"""A stream through a learner one task at a time, where what a task looks like depends on what was observed before."""

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.core import revealed
from deferkit.learn.deferrer import Deferrer
from deferkit.learn.inputs import as_amount
from deferkit.types import Amount
from deferkit.worlds.running import Follower
from deferkit.worlds.task_stream import Floats, TaskStream


def run_by_steps(learner: Deferrer, stream: TaskStream, feedback: str) -> tuple[NDArray[np.int64], Floats]:
    """Return route and prices of every task, decided and at once observed.

    Where it is not known what an expert would have earned or cost, nobody asked then, and nobody can be asked now.

    >>> from deferkit import Budget
    >>> stream = TaskStream(np.ones((3, 1)), np.array([[0.5, 0.9]] * 2 + [[0.5, np.nan]]), np.ones((3, 1, 1)))
    >>> learner = Deferrer(n_features=1, budget=Budget(3, horizon=3, max_cost=1), seed=4)
    >>> run_by_steps(learner, stream, "full")[0]
    array([1, 1, 0])
    """
    deciders, resources = learner.settings.deciders, learner.settings.resources
    places = {name: place for place, name in enumerate(deciders)}
    follower = None if stream.running is None else Follower(stream.contexts, stream.running)
    routes = np.zeros(stream.n_tasks, dtype=np.int64)
    prices = np.zeros((stream.n_tasks, len(resources)))
    unknown = (np.isnan(stream.rewards[:, 1:]) | np.isnan(stream.costs).any(axis=2)).tolist()
    rewards, costs = stream.rewards.tolist(), stream.costs.tolist()
    for task in range(stream.n_tasks):
        context = stream.contexts[task] if follower is None else follower.context(task)
        known = None
        if any(unknown[task]):
            known = [name for name, lost in zip(deciders[1:], unknown[task], strict=True) if not lost]
        decision = learner.decide(context, available=known)
        route = places[decision.route]
        routes[task] = route
        prices[task] = as_amount("price", decision.price, resources)
        seen = {deciders[each]: rewards[task][each] for each in revealed(feedback, route)}
        if route == 0:
            learner.observe(decision.id, seen)
            continue
        paid = costs[task][route - 1]
        cost: Amount = paid[0] if len(resources) == 1 else dict(zip(resources, paid, strict=True))
        learner.observe(decision.id, seen, cost)
        if follower is not None:
            follower.asked(task, rewards[task][route], paid[0])
    return routes, prices
