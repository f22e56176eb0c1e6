"""People who solved knapsacks, from a CSV file (the format is in docs/data.md)."""

import csv
import math
from collections.abc import Mapping
from itertools import count, pairwise, takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from deferkit.errors import InvalidArgument
from deferkit.worlds.knapsack_instances import Instances
from deferkit.worlds.knapsack_people import People

ANSWERS = ("chosen_value", "performance")
LARGEST = 1_000_000  # of a whole number: the table of the optimum has a place for each unit of capacity


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
    answers, kind = _read(Path(path))
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


def _read(path: Path) -> tuple[list[KnapsackAnswer], str]:
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
    def whole(name: str, least: int) -> int:
        value = number(name)
        if not (least <= value <= LARGEST and value == int(value)):
            raise _wrong(path, row, name, f"a whole number from {least} to {LARGEST:,}", cells[name])
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
        whole("order", 0),
        whole("capacity", 1),
        [whole(f"weight_{item}", 1) for item in range(1, items + 1)],
        [whole(f"value_{item}", 1) for item in range(1, items + 1)],
        number(kind),
        number("seconds"),
    )


def _wrong(path: str | Path, row: int, column: str, what: str, got: object) -> InvalidArgument:
    return InvalidArgument(f"{path}, row {row}, column {column!r} must be {what}. Got {got!r} instead.")
