"""One alternative budget run through a log, a chunk at a time."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.serve.audit.counterfactual.alternative import Alternative
from deferkit.serve.audit.counterfactual.estimate import DoublyRobust, ModelVariance
from deferkit.serve.audit.counterfactual.imputation import ImputedOutcome, OutcomeImputer
from deferkit.serve.domain import log_records

Floats = NDArray[np.float64]
TimedRecord = tuple[int, log_records.AnyRecord]  # when, in microseconds, and what
PAGE = 1000  # decisions of a piece


class LogChunk(NamedTuple):
    """A chunk of the log, with the logged and imputed outcomes of the tasks that are decided in it."""

    log: list[TimedRecord]
    first: int  # the number of the first decision in it
    told: list[ImputedOutcome]
    estimated: Floats  # [n, K]
    vectors: Floats  # [n, d]

    def model_variance(self, model_variance: ModelVariance, known: DoublyRobust, weights: Floats) -> None:
        """Add the variance of what rests on estimates alone."""
        model_variance.add(known.unsupported(self.first, weights), self.vectors, self.estimated)


def chunks(log: Iterable[TimedRecord], imputer: OutcomeImputer) -> Iterator[LogChunk]:
    """Yield a log in chunks that fit memory."""
    kept: list[TimedRecord] = []
    decided: list[log_records.DecidedRecord] = []
    for at, record in log:
        kept.append((at, record))
        if isinstance(record, log_records.DecidedRecord):
            decided.append(record)
        if len(decided) == PAGE:
            yield LogChunk(kept, decided[0].id, *imputer.of(decided))
            kept, decided = [], []
    if decided:
        yield LogChunk(kept, decided[0].id, *imputer.of(decided))
    else:
        yield LogChunk(kept, 0, [], np.zeros((0, len(imputer.deciders))), np.zeros((0, 0)))


class ScenarioRun:
    """One alternative and its propensities so far."""

    def __init__(
        self, other: Alternative, known: DoublyRobust, model_variances: tuple[ModelVariance, ModelVariance]
    ) -> None:
        self.other = other
        self.known = known
        self.model_variances = model_variances  # of the difference, of the reward
        self.propensities = np.zeros_like(known.propensities)

    def replay(self, chunk: LogChunk) -> None:
        """Replay a chunk of the log."""
        tasks = iter(chunk.told)
        chosen: list[list[float]] = []
        for at, record in chunk.log:
            if isinstance(record, log_records.DecidedRecord):
                chosen.append(self.other.decide(record, next(tasks), at))
            else:
                self.other.see(record)
        if chosen:
            rows = slice(chunk.first, chunk.first + len(chosen))
            self.propensities[rows] = chosen
            more = self.propensities[rows] - self.known.propensities[rows]
            chunk.model_variance(self.model_variances[0], self.known, more)
            chunk.model_variance(
                self.model_variances[1], self.known, more if self.known.own_rewards_suffice else self.propensities[rows]
            )
