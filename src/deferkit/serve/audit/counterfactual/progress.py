"""The way of an alternative through a log, a piece at a time."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.serve.audit.counterfactual.alternative import Alternative
from deferkit.serve.audit.counterfactual.estimate import Doubt, Known
from deferkit.serve.audit.counterfactual.imputation import Belief, Beliefs
from deferkit.serve.domain import log_records

Floats = NDArray[np.float64]
PAGE = 1000  # decisions of a piece


class Piece(NamedTuple):
    """A piece of the log, and what is known and believed of the tasks that are decided in it."""

    log: list[log_records.AnyRecord]
    first: int  # the number of the first decision in it
    told: list[Belief]
    estimated: Floats  # [n, K]
    vectors: Floats  # [n, d]

    def doubt(self, doubt: Doubt, known: Known, weights: Floats) -> None:
        """Add to the doubts what rests on estimates alone."""
        doubt.add(known.unsupported(self.first, weights), self.vectors, self.estimated)


def pieces(log: Iterable[log_records.AnyRecord], beliefs: Beliefs) -> Iterator[Piece]:
    """Yield a log in pieces that fit memory."""
    kept: list[log_records.AnyRecord] = []
    decided: list[log_records.Decided] = []
    for record in log:
        kept.append(record)
        if isinstance(record, log_records.Decided):
            decided.append(record)
        if len(decided) == PAGE:
            yield Piece(kept, decided[0].id, *beliefs.of(decided))
            kept, decided = [], []
    if decided:
        yield Piece(kept, decided[0].id, *beliefs.of(decided))
    else:
        yield Piece(kept, 0, [], np.zeros((0, len(beliefs.deciders))), np.zeros((0, 0)))


class Course:
    """One alternative on its way through the log."""

    def __init__(self, other: Alternative, known: Known, doubts: tuple[Doubt, Doubt]) -> None:
        self.other = other
        self.known = known
        self.doubts = doubts  # of the difference, of the reward
        self.chances = np.zeros_like(known.chances)

    def go(self, piece: Piece) -> None:
        """Go through a piece of the log."""
        tasks = iter(piece.told)
        chosen: list[list[float]] = []
        for record in piece.log:
            if isinstance(record, log_records.Decided):
                chosen.append(self.other.decide(record, next(tasks)))
            else:
                self.other.see(record)
        if chosen:
            rows = slice(piece.first, piece.first + len(chosen))
            self.chances[rows] = chosen
            more = self.chances[rows] - self.known.chances[rows]
            piece.doubt(self.doubts[0], self.known, more)
            piece.doubt(self.doubts[1], self.known, more if self.known.at_first_hand else self.chances[rows])
