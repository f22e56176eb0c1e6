"""Simulated people on knapsacks, since the answers of the real ones are not public.

A person ranks the items by value/weight, but misjudges each ratio; packs what fits in that order; then tries
exchanges, of which those are kept that raise the value. So every answer is a feasible one, and its value a real one.
Larger numbers and a tight capacity are misjudged more, and both together more still; they also take longer.
Whoever runs out of time hands in what is packed by then. `calibration` sets the outcome beside what is known.
"""

import functools
import math

import numpy as np

from deferkit.worlds._knapsacks import pack
from deferkit.worlds.knapsack_instances import Instances
from deferkit.worlds.knapsack_people import LIMIT_S, Floats, People

PEOPLE, TASKS, ITEMS = 396, 10, 18
DATA_SEED = 2024  # of the data set, which is one and the same in every trial
SMALLEST = 0.3  # of an instance's numbers, as a share of their largest
LARGEST = (10.0, 100.0)
ALIKE = (0.0, 0.9)  # how much of a value is its weight
ROOM = (0.08, 0.233)  # the capacity, as a share of all weights

MISJUDGED = 0.31  # standard deviation of the log of a ratio, of a typical person on a typical knapsack
SKILL_SD = 0.7  # of its log, between people
SIZE, TIGHT, BOTH = 0.6, 0.4, 0.6  # what a standard deviation of each adds to its log
EXCHANGES = 32.0
STEP_S = 1.7  # to look at an item, or to try an exchange
PACE_SD = 0.23  # of its log, between people
MOST_EXCHANGES = 200


@functools.lru_cache(maxsize=2)
def simulate(seed: int = DATA_SEED) -> People:
    """Return 396 people with 10 knapsacks each.

    >>> people = simulate()
    >>> people.instances.weights.shape, float(people.seconds.max())
    ((3960, 18), 180.0)
    """
    drawing, judging, trying, pacing = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(4))
    instances = draw_instances(PEOPLE * TASKS, drawing)
    person = np.repeat(np.arange(PEOPLE), TASKS)
    size, tight = difficulty(instances)
    hard = SIZE * size + TIGHT * tight + BOTH * size * tight

    misjudged = MISJUDGED * np.exp(SKILL_SD * judging.standard_normal(PEOPLE)[person] + hard)
    ratio = np.log(instances.values / instances.weights)
    seen = ratio + misjudged[:, None] * judging.standard_normal(ratio.shape)
    order = np.argsort(-seen, axis=1)

    exchanges = EXCHANGES * np.exp(0.5 * hard + 0.3 * pacing.standard_normal(len(person)))
    planned = np.minimum(exchanges, MOST_EXCHANGES).astype(np.int64)
    step_s = STEP_S * np.exp(PACE_SD * pacing.standard_normal(PEOPLE)[person] + 0.2 * size)
    steps = np.minimum(ITEMS + planned, (LIMIT_S / step_s).astype(np.int64))
    seconds = np.minimum((ITEMS + planned) * step_s, LIMIT_S)

    tries = trying.integers(0, ITEMS, (len(person), MOST_EXCHANGES, 2))
    chosen = pack(instances.weights, instances.values, instances.capacities, order, tries, steps)
    return People(person, instances, chosen / instances.optimum(), seconds, True)


def draw_instances(n: int, rng: np.random.Generator) -> Instances:
    """Return random knapsacks: of small or large numbers, values like the weights or not, tight or roomy.

    >>> draw_instances(2, np.random.default_rng(0)).values.shape
    (2, 18)
    """
    largest = np.exp(rng.uniform(math.log(LARGEST[0]), math.log(LARGEST[1]), (n, 1)))
    alike = rng.uniform(*ALIKE, (n, 1))
    weights = np.ceil(largest * rng.uniform(SMALLEST, 1.0, (n, ITEMS))).astype(np.int64)
    others = np.ceil(largest * rng.uniform(SMALLEST, 1.0, (n, ITEMS)))
    values = np.rint(alike * weights + (1 - alike) * others).astype(np.int64)
    room = (rng.uniform(*ROOM, n) * weights.sum(axis=1)).astype(np.int64)
    return Instances(weights, values, np.maximum(room, weights.max(axis=1)))  # every item fits alone


def difficulty(instances: Instances) -> tuple[Floats, Floats]:
    """Return how large the numbers of each knapsack are and how tight it is, both standardised.

    >>> knapsacks = Instances(np.array([[5, 5], [50, 50]]), np.array([[7, 7], [70, 70]]), np.array([5, 99]))
    >>> difficulty(knapsacks)
    (array([-1.,  1.]), array([ 1., -1.]))
    """
    size = np.log(instances.weights.mean(axis=1))
    tight = np.log(instances.weights.mean(axis=1) / instances.capacities)
    return (size - size.mean()) / size.std(), (tight - tight.mean()) / tight.std()
