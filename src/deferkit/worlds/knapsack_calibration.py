"""What people on knapsacks are like, beside what is known of the real ones."""

from typing import NamedTuple

import numpy as np

from deferkit.worlds.knapsack_people import LIMIT_S, Floats, People, reward
from deferkit.worlds.knapsack_simulator import simulate


class Fact(NamedTuple):
    """A figure of the people, and what it should be."""

    name: str
    target: float | None  # None where nothing is known of it
    measured: float


def calibration(people: People | None = None) -> list[Fact]:
    """Return the facts of these people, or of the simulated ones.

    Mean and limit are those of the paper's data set. How much people differ is only known of another study, with 20
    people and 6 items: in how often they find the optimum by 0.08, in time by 8.1 of 42.5 s.

    >>> for fact in calibration()[:2]:
    ...     print(f"{fact.name}: {fact.target}, {fact.measured:.2f}")
    mean performance of people: 0.895, 0.90
    mean performance of RatioMax4: 0.895, 0.89
    """
    people = simulate() if people is None else people
    human, model, seconds = people.performance, people.model, people.seconds
    found = (human == 1.0).astype(np.float64)
    human_reward, model_reward = reward(human), reward(model)
    return [
        Fact("mean performance of people", 0.895, float(human.mean())),
        Fact("mean performance of RatioMax4", 0.895, float(model.mean())),
        Fact("correlation of the two performances", None, _correlation(human, model)),
        Fact("share of tasks where the person is better", None, float((human > model).mean())),
        Fact("share of tasks where RatioMax4 is better", None, float((model > human).mean())),
        Fact("share of optima that people find", None, float(found.mean())),
        Fact("standard deviation between people: share of optima", 0.08, between(found, people)),
        Fact("standard deviation between people: performance", None, between(human, people)),
        Fact("standard deviation between people: time / mean", 8.1 / 42.5, between(people.costs, people)),
        Fact("correlation of time and performance", None, _correlation(seconds, human)),
        Fact("mean time, s", None, float(seconds.mean())),
        Fact("median time, s", None, float(np.median(seconds))),
        Fact("longest time, s", LIMIT_S, float(seconds.max())),
        Fact("share of tasks that reach the time limit", None, float((seconds >= LIMIT_S).mean())),
        Fact("mean cost", 1.0, float(people.costs.mean())),
        Fact("mean reward of people", None, float(human_reward.mean())),
        Fact("mean reward of RatioMax4", None, float(model_reward.mean())),
        Fact("mean reward of the better one of each task", None, float(np.maximum(human_reward, model_reward).mean())),
    ]


def between(figure: Floats, people: People) -> float:
    """Return the standard deviation between people, without what chance adds to the mean of a few tasks.

    >>> people = simulate()
    >>> between(np.where(people.person % 2, 3.0, 1.0), people).__round__(2)
    1.0
    """
    tasks = np.bincount(people.person)
    means = np.bincount(people.person, figure) / tasks
    squares = np.bincount(people.person, (figure - means[people.person]) ** 2)
    several = tasks > 1
    if several.sum() < 2:
        return 0.0
    chance = (squares[several] / (tasks[several] - 1) / tasks[several]).mean()
    return float(np.sqrt(max(0.0, means[several].var(ddof=1) - chance)))


def _correlation(one: Floats, other: Floats) -> float:
    spread = float(one.std() * other.std())
    return float(((one - one.mean()) * (other - other.mean())).mean()) / spread if spread > 0 else 0.0
