"""Streams whose values are known beforehand, so that only pacing and holds differ between policies."""

import numpy as np

from deferkit.worlds.task_stream import Floats, PastTasks, Population, TaskStream, Truth

LABELS = 8_000  # tasks without noise, which a learner is told before the stream: it knows all values from then on


def with_truth(stream: TaskStream, rewards: Floats, costs: Floats) -> TaskStream:
    """Return a stream with other expected rewards [n, 2] and costs [n, 1, 1]: the tasks are their own population."""
    n = stream.n_tasks
    population = Population(np.full(n, 1 / n), rewards, costs)
    empty = np.zeros((0, stream.contexts.shape[1]))
    return stream._replace(truth=Truth(population, np.arange(n), rewards, costs, empty, empty[None]))


def with_known_values(stream: TaskStream) -> TaskStream:
    """Return the same tasks whose context is the expected gain and cost of asking, with labels to learn that from.

    The rewards that come are the expected ones, less those of the model; costs stay as they came.
    """
    rewards, costs = stream.known()
    gain, cost = rewards[:, 1] - rewards[:, 0], costs[:, 0, 0]
    contexts = np.ascontiguousarray(np.stack([gain, cost], axis=1))
    known = np.stack([np.zeros(len(gain)), gain], axis=1)
    some = np.arange(LABELS) % stream.n_tasks
    past = PastTasks(contexts[some], known[some], cost[some])
    return with_truth(stream._replace(contexts=contexts, rewards=known, past=past), known, costs)
