"""Base classes of worlds, their options, streams of tasks, scales and running averages."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import Field, asdict, field, fields, is_dataclass
from types import NoneType
from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from deferkit.errors import expected
from deferkit.learn.encode import CLIP
from deferkit.types import Constraint, at_least, check_fields, number

MAX = 1e9  # of a number that is no count


class BaseWorld:
    """The base class of worlds, which are frozen dataclasses."""

    def __post_init__(self) -> None:
        check_choices(self)
        given = {each.name: each.metadata.get("valid") for each in fields(self)}  # type: ignore[arg-type]
        check_fields(self, {name: valid for name, valid in given.items() if valid is not None})

    def parameters(self) -> dict[str, Any]:
        """Return the values of all fields as plain data, for a specification."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    def check_seed(self, seed: Any) -> None:
        """Raise InvalidArgument unless a seed is a whole number of at least 0."""
        at_least(0).check("seed", type(self).__name__, seed)


class Option(NamedTuple):
    """A field of a world that users may set."""

    parameter: str  # the field
    flag: str  # on the command line, without the dashes
    kind: type  # of its values
    help: str
    default: Any


def option(
    default: Any,
    help: str,
    *,
    choices: Iterable[str] = (),
    valid: Constraint | None = None,
    flag: str = "",
    shown: str = "",
) -> Any:
    """Return a field of a world that is an option of the command line as well.

    Args:
        default: The default value.
        help: What the option means, for `--help`.
        choices: The values that are allowed; any by default. A `BaseWorld` checks them, and what is `valid`.
        valid: The constraint of values that are not listed.
        flag: The name on the command line, without dashes; by default that of the field.
        shown: The format of a value in the subtitle of a figure, such as "T = {:,}"; by default it is left out.
    """
    metadata = {"help": help, "choices": tuple(choices), "valid": valid, "flag": flag, "shown": shown}
    return field(default=default, metadata=metadata)


def number_from(least: float) -> Constraint:
    """Return the constraint to numbers from `least` to 1e9, which are kept as float."""
    return number(f"a number from {least:g} to {MAX:g}", lambda value: least <= value <= MAX)._replace(convert=float)


def options_of(world: type) -> list[Option]:
    """Return the options of a world, in the order of its fields; none if it is not a dataclass.

    >>> from deferkit.worlds.moderation import Moderation
    >>> [(each.flag, each.kind, each.default) for each in options_of(Moderation)]
    [('horizon', <class 'int'>, 5000)]
    """
    if not is_dataclass(world):
        return []
    hints = get_type_hints(world)
    return [
        Option(
            parameter=each.name,
            flag=each.metadata["flag"] or each.name.replace("_", "-"),
            kind=next(kind for kind in (*get_args(hints[each.name]), hints[each.name]) if kind is not NoneType),
            help=each.metadata["help"] + _list_choices(each),
            default=each.default,
        )
        for each in fields(world)
        if "help" in each.metadata
    ]


def _list_choices(of: "Field[Any]") -> str:
    return ": " + ", ".join(of.metadata["choices"]) if of.metadata["choices"] else ""


def check_choices(world: Any) -> None:
    """Raise if a field has a value that is not among its choices.

    Args:
        world: A world, which is a dataclass.

    Raises:
        InvalidArgument: The message names the field, the choices and the value.
    """
    for each in fields(world):
        known, value = each.metadata.get("choices"), getattr(world, each.name)
        if known and value not in known:
            raise expected(each.name, type(world).__name__, "one of " + ", ".join(map(repr, known)), value)


Floats = NDArray[np.float64]


def unit_ball(matrix: Floats) -> Floats:
    """Return an intercept and (value − mean) / (3 std), cut at ±1, all divided by √(number of columns).

    So an `Encoder` would scale them that had seen the whole data set first. A column that does not vary becomes 0: it
    can be filled in later, by as much as ±1/√(number of columns).

    >>> unit_ball(np.array([[1.0, 7.0], [3.0, 7.0]])).round(3)
    array([[ 0.577, -0.192,  0.   ],
           [ 0.577,  0.192,  0.   ]])
    """
    numbers = np.asarray(matrix, dtype=np.float64)
    if numbers.ndim != 2 or not numbers.size or not np.isfinite(numbers).all():
        raise expected("matrix", "unit ball", "finite numbers with rows and columns", matrix)
    # The mean of equal numbers can be off by a rounding error, and dividing that by a spread as small gives anything.
    varies = numbers.max(axis=0) > numbers.min(axis=0)
    spread = np.where(varies, CLIP * numbers.std(axis=0), 1.0)
    centred = np.where(varies, numbers - numbers.mean(axis=0), 0.0)
    scaled = np.clip(centred / spread, -1.0, 1.0)
    return np.column_stack([np.ones(len(numbers)), scaled]) / math.sqrt(1 + numbers.shape[1])


HISTORIES = ("observed", "leaky")
HISTORY_HELP = "What a context knows of the person: what the policy observed, or all that came before"
PRIOR_WEIGHT = 1.0  # observations that the mean of everybody counts for in the mean of one person


class Running(NamedTuple):
    """Which columns hold the running means of reward and cost of the person who would be asked."""

    person: NDArray[np.int64]  # [n]
    reward_column: int
    cost_column: int
    scale: float = 1.0  # a column holds scale · mean
    most: float = math.inf  # a mean counts as this at most, so that one very long task does not dwarf the other columns


class Means:
    """Running means of each person, drawn a little towards the mean of everybody.

    >>> means = Means()
    >>> means.of(7)
    (0.0, 0.0)
    >>> means.add(7, 1.0, 3.0)
    >>> means.of(7), means.of(8)
    ((1.0, 3.0), (1.0, 3.0))
    >>> means.add(8, 0.0, 1.0)
    >>> means.of(8)
    (0.25, 1.5)
    """

    def __init__(self) -> None:
        self._people: dict[int, tuple[int, float, float]] = {}
        self._everybody = (0, 0.0, 0.0)

    def of(self, person: int) -> tuple[float, float]:
        """Return the mean reward and cost of a person, as far as they are known."""
        n, reward, cost = self._everybody
        if n == 0:
            return 0.0, 0.0
        own, own_reward, own_cost = self._people.get(person, (0, 0.0, 0.0))
        weight = own + PRIOR_WEIGHT
        return (own_reward + PRIOR_WEIGHT * reward / n) / weight, (own_cost + PRIOR_WEIGHT * cost / n) / weight

    def add(self, person: int, reward: float, cost: float) -> None:
        """Take in what was observed of a person."""
        n, rewards, costs = self._people.get(person, (0, 0.0, 0.0))
        self._people[person] = n + 1, rewards + reward, costs + cost
        n, rewards, costs = self._everybody
        self._everybody = n + 1, rewards + reward, costs + cost


class Follower:
    """Gives the context of each task of a stream as it is known when the task comes, and takes in what follows."""

    def __init__(self, contexts: Floats, running: Running) -> None:
        self._contexts = contexts
        self._running = running
        self._means = Means()
        self._row = np.zeros(contexts.shape[1])

    def context(self, task: int) -> Floats:
        """Return the context of a task; the same array is used for the next one."""
        running = self._running
        self._row[:] = self._contexts[task]
        reward, cost = self._means.of(int(running.person[task]))
        self._row[running.reward_column] = running.scale * min(reward, running.most)
        self._row[running.cost_column] = running.scale * min(cost, running.most)
        return self._row

    def record_answer(self, task: int, reward: float, cost: float) -> None:
        """Record the reward and cost of the answer of a task's person."""
        self._means.add(int(self._running.person[task]), reward, cost)


def leaky(contexts: Floats, running: Running, rewards: Floats, costs: Floats) -> Floats:
    """Return contexts whose columns know everything that happened before, asked or not: the paper's features.

    >>> running = Running(np.array([0, 0]), 0, 1)
    >>> leaky(np.zeros((2, 2)), running, np.array([1.0, 0.0]), np.array([3.0, 0.0]))
    array([[0., 0.],
           [1., 3.]])
    """
    filled = contexts.copy()
    n = np.arange(len(contexts))
    together = np.argsort(running.person, kind="stable")
    own = np.empty_like(n)  # how many tasks the person had before
    first = np.flatnonzero(np.diff(running.person[together], prepend=running.person[together[:1]] - 1))
    sizes = np.diff(first, append=len(n))
    own[together] = n - np.repeat(first, sizes)
    for column, values in ((running.reward_column, rewards), (running.cost_column, costs)):
        everybody = (np.cumsum(values) - values) / np.maximum(n, 1)
        sums = np.cumsum(values[together]) - values[together]
        before = np.empty(len(n))
        before[together] = sums - np.repeat(sums[first], sizes)
        means = (before + PRIOR_WEIGHT * everybody) / (own + PRIOR_WEIGHT)
        filled[:, column] = running.scale * np.minimum(means, running.most)
    return filled


class Population(NamedTuple):
    """Every context that can come, or a sample of them, with expected rewards and costs."""

    probabilities: Floats  # [m]
    rewards: Floats  # [m, deciders] expected
    costs: Floats  # [m, experts, resources] expected


class Truth(NamedTuple):
    """Expected outcomes and coefficients of a simulated stream."""

    population: Population
    kind: NDArray[np.int64] | None  # [n] which context of the population a task is; None if that is a sample
    rewards: Floats  # [n, deciders] expected
    costs: Floats  # [n, experts, resources] expected
    thetas: Floats  # [deciders, d] coefficients of the rewards, before the link; their mean over time, if they drift
    weights: Floats  # [experts, resources, d] coefficients of the costs, before they are cut at 0
    averaged: Floats | None = None  # [n, deciders] expected of a task's context on average over time, if that drifts


class Unshuffled(NamedTuple):
    """The tasks of a stream before they were put in order; the same arrays for each order of the same tasks."""

    contexts: Floats  # [n, d]
    rewards: Floats  # [n, deciders]
    costs: Floats  # [n, experts, resources]
    order: NDArray[np.int64]  # [n] where each task of the stream lies in them


class PastTasks(NamedTuple):
    """Tasks that were decided before the stream began, for a warm start; NaN where an outcome is not known."""

    contexts: Floats  # [m, d]
    rewards: Floats  # [m, deciders]
    costs: Floats  # [m] of the one expert, in the one resource


class TaskStream(NamedTuple):
    """Tasks in order, with what each decider would have earned and cost; NaN where an expert was never asked."""

    contexts: Floats  # [n, d]
    rewards: Floats  # [n, deciders] realised
    costs: Floats  # [n, experts, resources] realised
    link: str = "identity"  # the link that suits the rewards
    noise: float | None = None  # σ, where it is known
    truth: Truth | None = None
    running: Running | None = None  # columns of the contexts that a policy's own observations fill in
    remark: str = ""  # a note for tables and figures, such as "simulated people"
    hidden: Population | None = None  # expected outcomes of a simulated table: for the policy `informed` only
    unshuffled: Unshuffled | None = None  # where streams are orders of the same tasks
    past: PastTasks | None = None  # earlier tasks with known outcomes
    times: Floats | None = None  # [n] when each task comes, in seconds, in order
    delay: int = 0  # how many tasks are decided before the outcome of one is known
    confidence: Floats | None = None  # [n] of the model in its own answer, where it has one
    confidence_at: int | None = None  # where that is in the contexts, for the prior of a learner
    columns: Mapping[str, Any] | None = None  # the cells before they were encoded: arrays of numbers, lists of texts
    first_use: bool = False  # a learner is told the budget alone: no link, no range; with an encoder for the columns

    @property
    def complete(self) -> bool:
        """Whether every outcome is known, as hindsight needs."""
        return not (np.isnan(self.rewards).any() or np.isnan(self.costs).any())

    @property
    def askable(self) -> NDArray[np.bool_]:
        """For which tasks [n] it is known what every expert would have earned and cost."""
        unknown = np.isnan(self.rewards[:, 1:]).any(axis=1) | np.isnan(self.costs).any(axis=(1, 2))
        return ~np.asarray(unknown, dtype=bool)

    @property
    def n_tasks(self) -> int:
        """The number of tasks."""
        return len(self.contexts)

    def known(self) -> tuple[Floats, Floats]:
        """Return expected rewards and costs where the truth is known, else realised ones."""
        return (self.rewards, self.costs) if self.truth is None else (self.truth.rewards, self.truth.costs)
