"""Small files in the form of the data sets of pictures, made up."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from deferkit.worlds.people import CLASSES

LEVELS = (80, 95, 110, 125)


def write(path: Path, table: pl.DataFrame) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as file:
        file.write(table.write_csv().encode())


def pictures(rng: np.random.Generator, levels: tuple[int, ...] = LEVELS, n: int = 40) -> pl.DataFrame:
    """Return probabilities of two networks for n pictures at each noise level, columns as published."""
    rows = []
    for model in ("alexnet", "densenet161"):
        for level in levels:
            for picture in range(n):
                p = rng.dirichlet(np.full(16, 0.1))
                rows.append(
                    {
                        "model_name": model,
                        "noise_level": level,
                        "image_name": f"n{picture}",
                        "category": CLASSES[picture % 16],
                        "correct": int(CLASSES[p.argmax()] == CLASSES[picture % 16]),
                    }
                    | dict(zip(CLASSES, p, strict=True))
                )
    return pl.DataFrame(rows)


def people(rng: np.random.Generator, n: int = 40, *, original: bool = False) -> pl.DataFrame:
    """Return what 5 people said of every picture at every noise level; the re-shaped file is sorted by level."""
    rows = []
    for level in LEVELS:
        for person in ("7", "12", "3", "40", "5"):
            for picture in rng.permutation(n):
                truth = CLASSES[picture % 16]
                said = truth if rng.random() < 0.8 else str(rng.choice(CLASSES))
                rows.append(
                    {
                        "image_name": f"n{picture}",
                        "noise_level": level,
                        "participant_id": person,
                        "participant_classification": said,
                        "image_category": truth,
                        "correct": int(said == truth),
                    }
                )
    table = pl.DataFrame(rows)
    if original:
        times = rng.lognormal(8, 1, len(rows))
        ended = rng.permutation(len(rows)) + 1_600_000_000
        return table.with_columns(classification_time=pl.Series(times), task_end_time=pl.Series(ended))
    return table


def trials(rng: np.random.Generator) -> pl.DataFrame:
    """Return trials of three networks and 3 people in each of two experiments."""
    rows: list[dict[str, Any]] = []
    for experiment in ("sketch", "edge"):
        for person in ("subject-01", "subject-02", "subject-03"):
            for trial in range(30):
                truth = str(rng.choice(CLASSES))
                row: dict[str, Any] = {"experiment": experiment, "subj": person, "trial": trial + 1}
                row |= {"rt": None if trial == 4 else 0.5 + trial / 30, "image": f"x{trial}", "category": truth}
                for name in ("human", "clip", "resnet50", "bagnet9"):
                    said = "na" if name == "human" and trial == 4 else truth if rng.random() < 0.7 else "knife"
                    row |= {f"{name}_response": said, f"{name}_correct": int(said == truth)}
                rows.append(row)
    return pl.DataFrame(rows)


def change(path: Path, how: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    write(path, how(pl.read_csv(path, infer_schema=False)))
