"""A whole stream of tasks through the compiled loop, in chunks between which the ledger makes room."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.ledger import Ledger
from deferkit.learn.loop import FEEDBACKS, run_many
from deferkit.learn.representation import Representation
from deferkit.types import Run

Floats = NDArray[np.float64]

CHUNK = 8_192  # tasks between two reports of progress


def blank_run(n: int, resources: int, deciders: tuple[str, ...]) -> Run:
    """Return the record of a run of n tasks that has not begun."""
    return Run(
        routes=np.zeros(n, dtype=np.int64),
        reasons=np.zeros(n, dtype=np.int64),
        propensities=np.zeros(n),
        prices=np.zeros((n, resources)),
        rewards=np.zeros(n),
        costs=np.zeros((n, resources)),
        deciders=deciders,
    )


def run_through(
    ledger: Ledger,
    representation: Representation | None,
    matrix: Floats,
    rewards: Floats,
    costs: Floats,
    feedback: str,
    run: Run,
    done: int,
    progress: Callable[[int], None] | None,
) -> None:
    """Decide and observe the tasks from `done` on, and write what they came to into `run`."""
    while done < len(matrix):
        before = done
        end = min(len(matrix), done + min(CHUNK, ledger.memory))
        if representation is not None:  # views hold until the next retraining, and no further
            representation.make_room()
            end = min(end, done + representation.room(), done + representation.free_steps())
        ledger.make_room(end - done)
        ledger.room_for_samples(end - done)
        contexts = matrix[done:end] if representation is None else representation.transform(matrix[done:end])
        first = ledger.next_id
        done += run_many(
            ledger.floats,
            ledger.ints,
            ledger.samples,
            contexts,
            rewards[done:end],
            costs[done:end],
            FEEDBACKS[feedback],
            run.routes[done:end],
            run.reasons[done:end],
            run.propensities[done:end],
            run.prices[done:end],
            run.rewards[done:end],
            run.costs[done:end],
        )
        ledger.mend_if_due()
        if representation is not None:
            representation.enter(matrix[before:done])
            representation.record(first, done - before)
            representation.retrain_if_due()
            representation.look_if_due()
        if progress is not None:
            progress(done - before)
