"""Trials on disk: files of results, and errors of writing."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

import polars as pl

from deferkit.errors import InvalidArgument, UnreadableResults
from deferkit.study.spec import Spec
from deferkit.study.trial import Outcome

PROBE = bytes(65_536)
FILE_ENDINGS = (".csv", ".xlsx", ".xls", ".json", ".html", ".parquet", ".tsv", ".txt")


def reason_of(error: Exception, unfinished: Path) -> str:
    """Return the reason of a failed write, in the words of the system.

    On a full disk polars may say "Invalid thrift: transport error". So some bytes are appended to what was written:
    if that fails too, its reason is the one.

    Args:
        error: What the writer raised.
        unfinished: The file that it began, which is deleted afterwards.

    >>> reason_of(ValueError("transport error"), Path("/dev/full"))
    'No space left on device'
    """
    try:
        with unfinished.open("ab") as file:
            file.write(PROBE)
    except OSError as failed:
        return failed.strerror or str(failed)
    return str(error)


PATHS = ("at", "reward_at", "regret_at", "spent_at", "price_at", "distance_at", "factor_at")
SCHEMA: dict[str, Any] = (
    {"key": pl.String, "seed": pl.Int64, "spec": pl.String}
    | dict.fromkeys(Outcome._fields, pl.Float64)
    | {"representation": pl.String, "remark": pl.String}
    | dict.fromkeys(PATHS, pl.List(pl.Float64))
)

Trial = tuple[Spec, int]


class TrialStore:
    """Results of trials, in memory and on disk.

    Args:
        directory: The folder of Parquet files, which is made if it is missing; None keeps results in memory only.

    Raises:
        UnreadableResults: The folder cannot be written, or a file in it cannot be read.

    >>> store, spec = TrialStore(None), Spec.of("synthetic", {"horizon": 10}, policy="opt", budget="1")
    >>> store.save([((spec, 0), {"reward": 1.0})])
    >>> (spec, 0) in store, (spec, 1) in store, store.rows([(spec, 0)])[0]["reward"]
    (True, False, 1.0)
    """

    def __init__(self, directory: str | Path | None) -> None:
        self.directory = None if directory is None else Path(directory)
        self._rows: dict[tuple[str, int], dict[str, Any]] = {}
        for folder in () if self.directory is None else (self.directory, self.directory.parent):
            if folder.suffix.lower() in FILE_ENDINGS and not folder.is_dir():
                raise UnreadableResults(f"Results are kept in a folder, and {folder} is the name of a file.")
        if self.directory is not None:
            try:  # fail now, not after the first hour of trials
                self.directory.mkdir(parents=True, exist_ok=True)
                with NamedTemporaryFile(dir=self.directory):
                    pass
            except OSError as error:
                raise UnreadableResults(f"Results cannot be kept in {directory}: {error.strerror}.") from error
            for path in sorted(self.directory.glob("*.parquet")):
                self._read_file(path)

    def _read_file(self, path: Path) -> None:
        try:
            frame = pl.read_parquet(path)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise UnreadableResults(f"{path} cannot be read ({error}). Delete it, and its trials run again.") from error
        if "remark" not in frame.columns:  # written before there was one
            frame = frame.with_columns(remark=pl.lit(None, pl.String))
        if set(SCHEMA) <= set(frame.columns):  # else it is of another version, whose keys match nothing
            for row in frame.select(list(SCHEMA)).to_dicts():
                self._rows[row["key"], row["seed"]] = row

    def __contains__(self, trial: Trial) -> bool:
        spec, seed = trial
        row = self._rows.get((spec.key, seed))
        return row is not None and row["spec"] == spec.text

    def save(self, results: Iterable[tuple[Trial, dict[str, Any]]]) -> None:
        """Save results; a file is written whole or not at all.

        Args:
            results: Pairs of a trial and its row: values of some columns of `SCHEMA`.
        """
        rows: list[dict[str, Any]] = [
            {"key": spec.key, "seed": seed, "spec": spec.text} | row for (spec, seed), row in results
        ]
        if not rows:
            return
        known = {(row["key"], row["seed"]): dict.fromkeys(SCHEMA) | row for row in rows}
        if self.directory is None:
            self._rows.update(known)
        else:
            names = " ".join(f"{row['key']}/{row['seed']}" for row in rows)
            path = self.directory / f"{hashlib.sha256(names.encode()).hexdigest()[:24]}.parquet"
            part = path.with_suffix(f".{os.getpid()}.part")
            try:
                pl.DataFrame(rows, schema=SCHEMA).write_parquet(part)
                part.replace(path)
            except (OSError, pl.exceptions.PolarsError) as error:
                reason = reason_of(error, part)
                part.unlink(missing_ok=True)
                free = shutil.disk_usage(self.directory).free
                raise UnreadableResults(
                    f"Results cannot be kept in {self.directory}, which has {free:,} bytes free: {reason}."
                ) from error
            finally:  # an interrupt may come right after the file was written: then its trials count
                if path.exists():
                    self._rows.update(known)

    def all_rows(self) -> list[dict[str, Any]]:
        """Return all rows, of whatever code they are, sorted by specification and seed."""
        return sorted(self._rows.values(), key=lambda row: (row["spec"], row["seed"], row["key"]))

    def rows(self, trials: Iterable[Trial]) -> list[dict[str, Any]]:
        """Return the rows of trials, in this order.

        Raises:
            KeyError: A trial is not in the store.
        """
        return [self._rows[spec.key, seed] for spec, seed in trials]


SUFFIXES = (".parquet", ".csv")


class ResultColumn(NamedTuple):
    """A column of raw results: its type, and what it means."""

    kind: Any  # of polars
    meaning: str


NUMBER, PATH = pl.Float64, pl.List(pl.Float64)
COLUMNS: dict[str, ResultColumn] = {
    "key": ResultColumn(pl.String, "hash of the specification and of the code that ran it"),
    "world": ResultColumn(pl.String, "name of the world, or path of the table"),
    "world_parameters": ResultColumn(pl.String, "all its parameters, as JSON"),
    "policy": ResultColumn(pl.String, "name of the policy"),
    "policy_parameters": ResultColumn(pl.String, "its parameters that were given, as JSON"),
    "asked_budget": ResultColumn(pl.String, "the budget as it was asked for, such as `10%`"),
    "feedback": ResultColumn(pl.String, "which rewards were observed: `full`, `bandit`, `reviewed`"),
    "trace": ResultColumn(pl.String, "what was recorded along the way: nothing, `path`, `coverage`, `alarms`"),
    "seed": ResultColumn(pl.Int64, "of the stream"),
    "reward": ResultColumn(NUMBER, "sum of rewards: expected ones where the truth is known, else realised"),
    "pct_opt": ResultColumn(NUMBER, "per cent of the reward of OPT"),
    "gain": ResultColumn(NUMBER, "per cent of what lies between ModelOnly and OPT"),
    "regret": ResultColumn(NUMBER, "reward of OPT less `reward`"),
    "spent": ResultColumn(NUMBER, "realised cost, of the first resource"),
    "spent_pct": ResultColumn(NUMBER, "per cent of the budget, the largest of all resources"),
    "defer_rate": ResultColumn(NUMBER, "per cent of tasks that went to an expert"),
    "us_per_step": ResultColumn(NUMBER, "microseconds for a task, where a learner ran"),
    "budget": ResultColumn(NUMBER, "in units of cost"),
    "opt": ResultColumn(NUMBER, "reward of OPT"),
    "model": ResultColumn(NUMBER, "reward of ModelOnly"),
    "opt_price": ResultColumn(NUMBER, "λ* of OPT, of the first resource"),
    "opt_spent": ResultColumn(NUMBER, "what OPT is expected to spend"),
    "gained_se": ResultColumn(NUMBER, "standard error of `reward` − `model`, if the tasks are a sample"),
    "representation": ResultColumn(pl.String, "what the estimates of a learner rest on in the end"),
    "remark": ResultColumn(pl.String, "why a learner asked less than planned; empty if it did not"),
    "at": ResultColumn(PATH, "tasks at which a path was recorded"),
    "reward_at": ResultColumn(PATH, "reward until then"),
    "regret_at": ResultColumn(PATH, "regret until then"),
    "spent_at": ResultColumn(PATH, "spending until then"),
    "price_at": ResultColumn(PATH, "mean price since the point before"),
    "distance_at": ResultColumn(PATH, "distance of the estimates from the truth, of a trace `coverage`"),
    "factor_at": ResultColumn(PATH, "β, the radius of the ellipsoids, of a trace `coverage`"),
    "alarms": ResultColumn(PATH, "drift alarms of each reward and cost, of a trace `alarms`"),
    "alarm_at": ResultColumn(PATH, "decisions at which the model's reward raised one, of a trace `alarms`"),
}
"""All columns, in order. Null where there is nothing to measure; NaN is written as null."""


def is_results_file(path: Path) -> bool:
    """Return whether a path is that of a file of raw results, and not of a folder of trials.

    >>> is_results_file(Path("raw.parquet")), is_results_file(Path("results"))
    (True, False)
    """
    return path.suffix.lower() in SUFFIXES


def results_frame(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Return rows of a `TrialStore` as a table with the columns of `COLUMNS`."""
    told = []
    for row in rows:
        spec = json.loads(row["spec"])
        given = {
            "world": spec["world"],
            "world_parameters": json.dumps(spec["world_parameters"], sort_keys=True),
            "policy": spec["policy"],
            "policy_parameters": json.dumps(spec["policy_parameters"], sort_keys=True),
            "asked_budget": spec["budget"],
            "feedback": spec["feedback"],
            "trace": spec["trace"],
        }
        told.append({name: given.get(name, row.get(name)) for name in COLUMNS})
    frame = pl.DataFrame(told, schema={name: column.kind for name, column in COLUMNS.items()})
    return frame.with_columns(pl.col(pl.Float64).fill_nan(None))


def check_results_file(path: Path) -> None:
    """Raise unless a file of raw results can be written here: before the first trial, not after the last.

    Raises:
        InvalidArgument: Its name ends otherwise, or there is no such folder.
    """
    if not is_results_file(path):
        raise InvalidArgument(f"A file of results ends in {' or '.join(SUFFIXES)}. Got {str(path)!r} instead.")
    if not path.parent.is_dir():
        raise InvalidArgument(f"There is no folder {str(path.parent)!r} for {path.name}.")


def write_frame(frame: pl.DataFrame, path: Path) -> None:
    """Write a table as Parquet or CSV, whole or not at all. Lists are JSON in CSV.

    Raises:
        UnreadableResults: It cannot be written.
    """
    check_results_file(path)
    part = path.with_name(f"{path.name}.part")
    try:
        if path.suffix.lower() == ".parquet":
            frame.write_parquet(part)
        else:
            lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
            as_json = [pl.col(name).map_elements(lambda x: json.dumps(x.to_list()), pl.String) for name in lists]
            frame.with_columns(as_json).write_csv(part)
        part.replace(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = reason_of(error, part)
        part.unlink(missing_ok=True)
        raise UnreadableResults(f"{path} cannot be written: {reason}.") from error


def kept_results(folder: Path) -> pl.DataFrame:
    """Return all trials that are kept in a folder: that of `run --results`, or of `reproduce --out`.

    Raises:
        InvalidArgument: There are none.
    """
    places = [place for place in (folder / "trials", folder) if any(place.glob("*.parquet"))]
    if not places:
        raise InvalidArgument(f"There are no trials in {folder}: it is what `run --results` or `reproduce --out` made.")
    return results_frame(TrialStore(places[0]).all_rows())
