"""model-vs-human: networks and people name drawings, edges and silhouettes (Geirhos et al. 2021), with real times."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from deferkit.errors import InvalidArgument, expected
from deferkit.worlds.base import HISTORIES, HISTORY_HELP, BaseWorld, TaskStream, option
from deferkit.worlds.data import DataSet, checked_digest, checked_times, read_table
from deferkit.worlds.people import CLASSES, Answers

SET = DataSet(
    "model-vs-human", "model_vs_human", "Geirhos et al. (2021), https://github.com/bethgelab/model-vs-human (raw-data)"
)
FILE = "trials.csv"
ORDERS = ("experiment", "shuffled")
ANSWER = "_response"
WINDOW_S = 1.5  # to answer in; no recorded time is longer, but for a millisecond


class Loaded(NamedTuple):
    """The answers, and which experiment each person took part in, in the order of the file."""

    answers: Answers
    experiment: NDArray[np.int64]  # [people]


@dataclass(frozen=True, kw_only=True)
class ModelVsHuman(BaseWorld):
    """Pictures that a network or a person names: reward 1 if right, cost the person's response time with mean 1.

    The context: an intercept, the network's answer (one-hot), how many of the other networks agree with it, the
    experiment (one-hot), and what is known of the person.

    >>> try:
    ...     ModelVsHuman(order="sideways")
    ... except InvalidArgument as error:
    ...     print(error)
    The 'order' of a ModelVsHuman must be one of 'experiment', 'shuffled'. Got 'sideways' instead.
    """

    model: str = option("clip", "Which network decides: any of the file")
    order: str = option(
        "experiment", "One experiment after another, which is a real shift, or shuffled", choices=ORDERS
    )
    history: str = option("observed", HISTORY_HELP, choices=HISTORIES)
    data: str = ""
    """The digest of the file, so that other data are another specification; found by itself."""

    def __post_init__(self) -> None:
        super().__post_init__()
        path = SET.find(FILE)
        object.__setattr__(self, "data", checked_digest(self.data, [path], SET.name))
        networks = read_trials(path, self.data)[1]
        if self.model not in networks:
            raise expected("model", "ModelVsHuman", "one of " + ", ".join(map(repr, networks)), self.model)

    def draw(self, seed: int) -> TaskStream:
        """Return the stream of this seed: the same tasks, people in another order."""
        self.check_seed(seed)
        answers, experiment = load(SET.find(FILE), self.data, self.model)
        people = np.random.default_rng(np.random.SeedSequence(int(seed))).permutation(len(experiment))
        if self.order == "experiment":
            people = people[np.argsort(experiment[people], kind="stable")]
        return answers.stream(people, self.history)


@functools.lru_cache(maxsize=4)
def read_trials(path: Path, data: str) -> tuple[pl.DataFrame, tuple[str, ...]]:  # noqa: ARG001 - the cache's key
    """Return the trials, in the order in which each person had them, and the names of the networks."""
    trials = read_table(path, texts=["experiment", "subj", "category", "human" + ANSWER], gaps=["rt"])
    networks = [name.removesuffix(ANSWER) for name in trials.columns if name.endswith(ANSWER)]
    # Where nobody answered there is no time: it took the whole window to find that out.
    trials = trials.with_columns(pl.col("rt").fill_null(WINDOW_S))
    return trials, tuple(name for name in networks if name != "human")


@functools.lru_cache(maxsize=8)
def load(path: Path, data: str, model: str) -> Loaded:
    """Return the rows of the file for one network."""
    trials, networks = read_trials(path, data)
    answers = trials.select(name + ANSWER for name in networks).to_numpy()
    own = answers[:, networks.index(model)]
    if not np.isin(own, CLASSES).all():
        raise InvalidArgument(f"The column {model + ANSWER} of {path.name} has answers that are not categories.")
    right = [np.equal(name, trials["category"].to_numpy()) for name in (own, trials["human" + ANSWER].to_numpy())]
    experiment = number_names(trials["experiment"])
    # Subjects of different experiments have the same names and are different people.
    person = number_names(trials["experiment"] + " " + trials["subj"])
    others_agree = (answers == own[:, None]).sum(axis=1) - 1
    one_hot = own[:, None] == np.array(CLASSES)
    features = np.column_stack([one_hot, others_agree, np.eye(experiment.max() + 1)[experiment]]).astype(float)
    times = checked_times(trials["rt"].to_numpy(), "rt", path)
    first = np.unique(person, return_index=True)[1]
    return Loaded(Answers.of(features, np.column_stack(right).astype(float), times, person), experiment[first])


def number_names(names: pl.Series) -> NDArray[np.int64]:
    """Return the number of each name, in order of appearance.

    >>> number_names(pl.Series(["sketch", "edge", "sketch"]))
    array([0, 1, 0])
    """
    known = {name: number for number, name in enumerate(names.unique(maintain_order=True))}
    return np.array([known[name] for name in names], dtype=np.int64)
