"""ImageNet16H: a network and 145 people name what is on noisy pictures (Steyvers et al. 2022), as in Section 5.3."""

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from deferkit.errors import InvalidArgument
from deferkit.types import FLAG
from deferkit.worlds.base import HISTORIES, HISTORY_HELP, BaseWorld, Floats, TaskStream, option
from deferkit.worlds.data import DataSet, checked_digest, checked_times, read_table
from deferkit.worlds.people import CLASSES, Answers, stand_in

SET = DataSet("ImageNet16H", "imagenet16h", "the OSF project of Steyvers et al. (2022), https://osf.io/2ntrf/")
NETWORK = "densenet161"
PEOPLE_FILES = (
    "human_only_classification_6per_img_export.csv",
    "human_only_classification_6per_img_preprocessed.csv",
    "human_trials.csv",
)
MODEL_FILES = {
    "fine-tuned": ("hai_epoch10_model_preds_max_normalized.csv", "model_preds_epoch10.csv"),
    "baseline": (
        "hai_baseline_model_preds_max_normalized.csv",
        "hai_epoch00_model_preds_max_normalized.csv",
        "model_preds_epoch00_noise80_125.csv",
    ),
}
TINY = 1e-7  # a probability nearer to 0 or 1 is taken as this far off; its logit is ±16
MIXING_SEED = 17


@dataclass(frozen=True, kw_only=True)
class ImageNet16H(BaseWorld):
    """Pictures that a network or a person names: reward 1 if right, cost the person's time with mean 1.

    A seed reshuffles the people; the trials of a person stay together and in order. The context: an intercept, the
    network's answer (one-hot), its 16 probabilities as logits, the largest logit, and what is known of the person.

    >>> try:
    ...     ImageNet16H(model="oracle")
    ... except InvalidArgument as error:
    ...     print(error)
    The 'model' of an ImageNet16H must be one of 'fine-tuned', 'baseline'. Got 'oracle' instead.
    """

    model: str = option("fine-tuned", "Which network decides", choices=MODEL_FILES)
    """Densenet161 after 10 epochs on noisy pictures ("fine-tuned"), or as little tuned as there is ("baseline")."""
    history: str = option("observed", HISTORY_HELP, choices=HISTORIES)
    repeats: bool = option(True, "Each picture comes about six times, for other people, instead of once", valid=FLAG)
    data: str = ""
    """The digest of the files, so that other data are another specification; found by itself."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "data", checked_digest(self.data, self._files(), SET.name))

    def _files(self) -> tuple[Path, Path]:
        return SET.find(*PEOPLE_FILES), SET.find(*MODEL_FILES[self.model])

    def draw(self, seed: int) -> TaskStream:
        """Return the stream of this seed: the same tasks, people in another order."""
        self.check_seed(seed)
        people, model = self._files()
        answers = load(people, model, self.repeats, self.data)
        rng = np.random.default_rng(np.random.SeedSequence(int(seed)))
        return answers.stream(rng.permutation(answers.person[-1] + 1), self.history)


@functools.lru_cache(maxsize=4)
def load(people: Path, model: Path, repeats: bool, data: str) -> Answers:  # noqa: ARG001 - the digest is for the cache
    """Return the rows of both files, joined by picture and noise level."""
    trials, remarks = read_people(people)
    network = read_table(model, texts=["model_name", "image_name"], numbers=["noise_level", *CLASSES])
    network = network.filter(pl.col("model_name") == NETWORK).select("image_name", "noise_level", *CLASSES)
    if network.select("image_name", "noise_level").is_duplicated().any():
        raise InvalidArgument(f"{model.name} has several rows of {NETWORK} for a picture and noise level.")
    levels = sorted(set(trials["noise_level"]))
    joined = trials.join(network, on=["image_name", "noise_level"], how="inner", maintain_order="left")
    if joined.is_empty():
        raise InvalidArgument(f"{model.name} has no rows of {NETWORK} for the pictures in {people.name}.")
    left = sorted(set(joined["noise_level"]))
    if left != levels:
        remarks.append("noise levels " + " and ".join(f"{level:.0f}" for level in left) + " only")
    if "epoch00" in model.name:
        remarks.append("the baseline is the least fine-tuned checkpoint (epoch 00)")
    if not repeats:
        joined = once(joined)
        remarks.append("each picture once")
    features, answer = describe(joined.select(CLASSES).to_numpy())
    right = np.array(CLASSES)[answer] == joined["image_category"].to_numpy()
    rewards = np.column_stack([right, joined["right"].to_numpy()]).astype(float)
    return Answers.of(features, rewards, joined["time"].to_numpy(), joined["person"].to_numpy(), "; ".join(remarks))


def once(trials: pl.DataFrame) -> pl.DataFrame:
    """Return one trial of each picture and noise level, by a fixed draw.

    >>> once(pl.DataFrame({"image_name": ["a", "a", "b"], "noise_level": [80, 80, 80]})).height
    2
    """
    drawn = trials.with_columns(draw=np.random.default_rng(MIXING_SEED).random(len(trials)))
    first = pl.col("draw") == pl.col("draw").min().over("image_name", "noise_level")
    return drawn.filter(first).drop("draw")


def read_people(path: Path) -> tuple[pl.DataFrame, list[str]]:
    """Return the trials in the order in which each person had them, and the remarks on them."""
    texts = ["image_name", "participant_id", "participant_classification", "image_category"]
    trials = read_table(path, texts=texts, numbers=["noise_level"])
    level = trials["noise_level"].to_numpy()
    wrong = trials["participant_classification"].to_numpy() != trials["image_category"].to_numpy()
    person = trials["participant_id"].rank("dense").to_numpy().astype(np.int64) - 1
    remarks = []
    if "classification_time" in trials.columns:
        known = trials["classification_time"].cast(pl.Float64, strict=False).fill_nan(None)
        if known.is_null().any():
            remarks.append(f"{known.null_count()} missing classification times are the median")
        times = known.fill_null(known.median()).to_numpy()
        times = checked_times(times, "classification_time", path)
    else:
        remarks.append("classification times are a stand-in")
        times = stand_in(person, (level - level.mean()) / (level.std() or 1.0), wrong)
    trials = trials.with_columns(right=pl.Series(~wrong), time=pl.Series(times), person=pl.Series(person))
    return in_order(trials, level), remarks


def in_order(trials: pl.DataFrame, level: Floats) -> pl.DataFrame:
    """Return the trials as they came, as far as that is known.

    Where the time of each is known they are sorted by it; else they are taken as they stand in the file. A file that
    is sorted by noise level says nothing of how the levels came: then they are mixed, by a fixed draw.
    """
    if "task_end_time" in trials.columns:
        ended = trials["task_end_time"].cast(pl.Float64, strict=False)
        return trials[(trials["task_end_time"] if ended.is_null().any() else ended).arg_sort()]
    if len(set(level)) > 1 and (np.diff(level) >= 0).all():
        # Each level keeps its own order: sorted random numbers are dealt out within it.
        rng = np.random.default_rng(MIXING_SEED)
        place = np.concatenate([np.sort(rng.random(n)) for n in np.unique(level, return_counts=True)[1]])
        return trials[np.argsort(place)]
    return trials


def describe(probabilities: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Return the features of a network's output [n, 16 + 16 + 1], and which class it names.

    >>> features, answer = describe(np.array([[0.5, 0.25, 0.25]]))
    >>> features.round(2).tolist(), answer.tolist()
    ([[1.0, 0.0, 0.0, 0.0, -1.1, -1.1, 0.0]], [0])
    """
    shares = np.clip(probabilities / probabilities.sum(axis=1, keepdims=True), TINY, 1 - TINY)
    logits = np.log(shares / (1 - shares))
    answer = probabilities.argmax(axis=1)
    return np.column_stack([np.eye(shares.shape[1])[answer], logits, logits.max(axis=1)]), answer
