"""Results of trials in Parquet files; a row is found by the key of its specification and its seed."""

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import polars as pl

from deferkit.errors import UnreadableResults
from deferkit.study.spec import Spec
from deferkit.study.trial import Outcome
from deferkit.study.write_failure import reason_of

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
        if self.directory is not None:
            try:  # fail now, not after the first hour of trials
                self.directory.mkdir(parents=True, exist_ok=True)
                with NamedTemporaryFile(dir=self.directory):
                    pass
            except OSError as error:
                raise UnreadableResults(f"Results cannot be kept in {directory}: {error.strerror}.") from error
            for path in sorted(self.directory.glob("*.parquet")):
                self._read(path)

    def _read(self, path: Path) -> None:
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
