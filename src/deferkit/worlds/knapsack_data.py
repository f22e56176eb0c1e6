"""Data of knapsacks: files, the simulator and its calibration."""

import csv
import functools
import math
from collections.abc import Mapping
from itertools import count, pairwise, takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from deferkit.errors import InvalidArgument
from deferkit.worlds._knapsacks import pack
from deferkit.worlds.knapsack_instances import LIMIT_S, Floats, Instances, People, reward

ANSWERS = ("chosen_value", "performance")
MAX_WHOLE_NUMBER = 1_000_000  # of a whole number: the table of the optimum has a place for each unit of capacity


class KnapsackAnswer(NamedTuple):
    """One row of the file."""

    row: int
    person: str
    order: int
    capacity: int
    weights: list[int]
    values: list[int]
    answer: float
    seconds: float


def read_people(path: str | Path) -> People:
    r"""Return the people of a file, in the order in which they first appear, their answers by `order`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "people.csv")
    ...     _ = file.write_text("person,order,capacity,weight_1,value_1,chosen_value,seconds\nann,1,5,4,9,9,30\n")
    ...     read_people(file).performance
    array([1.])
    """
    answers, kind = _read_answers(Path(path))
    first: dict[str, int] = {}
    for answer in answers:
        first.setdefault(answer.person, len(first))
    answers.sort(key=lambda answer: (first[answer.person], answer.order))
    for one, other in pairwise(answers):
        if (one.person, one.order) == (other.person, other.order):
            raise InvalidArgument(f"{path}: rows {one.row} and {other.row} have the same person and order.")
    instances = Instances(
        np.array([answer.weights for answer in answers], dtype=np.int64),
        np.array([answer.values for answer in answers], dtype=np.int64),
        np.array([answer.capacity for answer in answers], dtype=np.int64),
    )
    optimum = instances.optimum()
    performance = np.array([answer.answer for answer in answers])
    for answer, best in zip(answers, optimum.tolist(), strict=True):
        if best == 0:
            raise _wrong(path, answer.row, "capacity", "large enough for at least one item", answer.capacity)
        most = best if kind == "chosen_value" else 1.0
        if answer.answer > most:
            raise _wrong(path, answer.row, kind, f"at most the optimum, {most:g}", answer.answer)
    if kind == "chosen_value":
        performance /= optimum
    seconds = np.array([answer.seconds for answer in answers])
    if not seconds.any():
        raise InvalidArgument(f"{path}: all seconds are 0, so that there is no cost.")
    return People(np.array([first[answer.person] for answer in answers]), instances, performance, seconds, False)


def _read_answers(path: Path) -> tuple[list[KnapsackAnswer], str]:
    """Return the rows of a file, each checked by itself, and which of the two kinds of answers it has."""
    try:
        # A file that a spreadsheet saved may start with a byte order mark.
        with path.open(encoding="utf-8-sig", newline="") as file:
            table = csv.DictReader(file)
            names = table.fieldnames or []
            items = len(list(takewhile(lambda item: f"weight_{item}" in names, count(1))))
            kinds = [name for name in ANSWERS if name in names]
            needed = ["person", "order", "capacity", "seconds"]
            needed += [f"{name}_{item}" for item in range(1, max(items, 1) + 1) for name in ("weight", "value")]
            for name in needed:
                if name not in names:
                    raise InvalidArgument(f"{path} has no column {name!r}. It has: {', '.join(names) or 'none'}.")
            if len(kinds) != 1:
                raise InvalidArgument(f"{path} must have one of the columns {' and '.join(map(repr, ANSWERS))}.")
            answers = [_answer(path, table.line_num, row, items, kinds[0]) for row in table]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidArgument(f"{path} cannot be read as a CSV file: {error}.") from error
    if not answers:
        raise InvalidArgument(f"{path} has no rows.")
    return answers, kinds[0]


def _answer(path: Path, row: int, cells: Mapping[str, str | None], items: int, kind: str) -> KnapsackAnswer:
    def read_whole(name: str, least: int) -> int:
        value = number(name)
        if not (least <= value <= MAX_WHOLE_NUMBER and value == int(value)):
            raise _wrong(path, row, name, f"a whole number from {least} to {MAX_WHOLE_NUMBER:,}", cells[name])
        return int(value)

    def number(name: str) -> float:
        try:
            value = float(cells[name] or "")
        except ValueError:
            value = math.nan
        if not 0 <= value < math.inf:
            raise _wrong(path, row, name, "a number of at least 0", cells[name])
        return value

    person = (cells["person"] or "").strip()
    if not person:
        raise _wrong(path, row, "person", "a name or number", cells["person"])
    return KnapsackAnswer(
        row,
        person,
        read_whole("order", 0),
        read_whole("capacity", 1),
        [read_whole(f"weight_{item}", 1) for item in range(1, items + 1)],
        [read_whole(f"value_{item}", 1) for item in range(1, items + 1)],
        number(kind),
        number("seconds"),
    )


def _wrong(path: str | Path, row: int, column: str, what: str, got: object) -> InvalidArgument:
    return InvalidArgument(f"{path}, row {row}, column {column!r} must be {what}. Got {got!r} instead.")


PEOPLE, TASKS, ITEMS = 396, 10, 18
DATA_SEED = 2024  # of the data set, which is one and the same in every trial
SMALLEST = 0.3  # of an instance's numbers, as a share of their largest
MAX_VALUES = (10.0, 100.0)
ALIKE = (0.0, 0.9)  # how much of a value is its weight
ROOM = (0.08, 0.233)  # the capacity, as a share of all weights

MISJUDGED = 0.31  # standard deviation of the log of a ratio, of a typical person on a typical knapsack
SKILL_SD = 0.7  # of its log, between people
SIZE, TIGHT, BOTH = 0.6, 0.4, 0.6  # what a standard deviation of each adds to its log
EXCHANGES = 32.0
STEP_S = 1.7  # to look at an item, or to try an exchange
PACE_SD = 0.23  # of its log, between people
MAX_EXCHANGES = 200


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
    planned = np.minimum(exchanges, MAX_EXCHANGES).astype(np.int64)
    step_s = STEP_S * np.exp(PACE_SD * pacing.standard_normal(PEOPLE)[person] + 0.2 * size)
    steps = np.minimum(ITEMS + planned, (LIMIT_S / step_s).astype(np.int64))
    seconds = np.minimum((ITEMS + planned) * step_s, LIMIT_S)

    tries = trying.integers(0, ITEMS, (len(person), MAX_EXCHANGES, 2))
    chosen = pack(instances.weights, instances.values, instances.capacities, order, tries, steps)
    return People(person, instances, chosen / instances.optimum(), seconds, True)


def draw_instances(n: int, rng: np.random.Generator) -> Instances:
    """Return random knapsacks: of small or large numbers, values like the weights or not, tight or roomy.

    >>> draw_instances(2, np.random.default_rng(0)).values.shape
    (2, 18)
    """
    largest = np.exp(rng.uniform(math.log(MAX_VALUES[0]), math.log(MAX_VALUES[1]), (n, 1)))
    alike = rng.uniform(*ALIKE, (n, 1))
    weights = np.ceil(largest * rng.uniform(SMALLEST, 1.0, (n, ITEMS))).astype(np.int64)
    others = np.ceil(largest * rng.uniform(SMALLEST, 1.0, (n, ITEMS)))
    values = np.rint(alike * weights + (1 - alike) * others).astype(np.int64)
    room = (rng.uniform(*ROOM, n) * weights.sum(axis=1)).astype(np.int64)
    return Instances(weights, values, np.maximum(room, weights.max(axis=1)))  # every item fits alone


def difficulty(instances: Instances) -> tuple[Floats, Floats]:
    """Return the size of the numbers of each knapsack and its tightness, both standardised.

    >>> knapsacks = Instances(np.array([[5, 5], [50, 50]]), np.array([[7, 7], [70, 70]]), np.array([5, 99]))
    >>> difficulty(knapsacks)
    (array([-1.,  1.]), array([ 1., -1.]))
    """
    size = np.log(instances.weights.mean(axis=1))
    tight = np.log(instances.weights.mean(axis=1) / instances.capacities)
    return (size - size.mean()) / size.std(), (tight - tight.mean()) / tight.std()


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
