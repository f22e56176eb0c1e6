"""The subprocess of a what-if: the service goes on deciding meanwhile.

`python -m deferkit.serve.audit.counterfactual.what_if_process` reads a line of JSON (`WhatIfOrder`) from stdin and
writes lines of JSON (`WhatIfNews`) to stdout: its progress, then the result. It exits when stdin is closed.
"""

import os
import sys
import threading

import msgspec

from deferkit.errors import DeferkitError
from deferkit.serve.audit.counterfactual.estimate import Value
from deferkit.serve.audit.counterfactual.logged_decisions import DecisionLog
from deferkit.serve.audit.counterfactual.scenario import logged_budgets, scenario_of
from deferkit.serve.audit.counterfactual.what_if import Row, WhatIf, what_if
from deferkit.serve.audit.replay import logged_records, replay
from deferkit.serve.storage.open_store import store_to_replay
from deferkit.serve.storage.store import Store

NICE = 10
STEP = 0.01  # of the progress that is told


class WhatIfOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Which log to replay, with which budgets."""

    store: str
    tenant: str
    policy: str
    budgets: list[str]


class ValueWithError(msgspec.Struct, frozen=True, kw_only=True):
    """A mean reward of a task, or a difference of two, with its standard error."""

    value: float
    error: float


class WhatIfRow(msgspec.Struct, frozen=True, kw_only=True):
    """A budget, and what came or would have come of it; the first one is "as it was"."""

    budget: str
    totals: dict[str, float | None]  # by resource; None has no end
    asked: float  # the share of tasks that went to an expert
    spent: dict[str, float]
    price: float | dict[str, float]  # the last one
    reward: ValueWithError | None  # of a task; None if no rewards are known
    difference: ValueWithError | None  # from what was done
    unsupported: float  # the share of choices that rest on the estimates alone


class WhatIfNews(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far the process is, and what it came to."""

    progress: float = 0.0
    rows: list[WhatIfRow] | None = None
    basis: str | None = None
    remarks: list[str] = []
    error: str | None = None


def row_of(row: Row) -> WhatIfRow:
    """Return a row for a reply."""
    fields = row._asdict() | {"reward": value_of(row.reward), "difference": value_of(row.difference)}
    return WhatIfRow(**fields)


def value_of(value: Value | None) -> ValueWithError | None:
    """Return a mean with its error for a reply."""
    return None if value is None else ValueWithError(value=value.mean, error=value.se)


class Progress:
    """Reports the progress of the two passes through the log."""

    def __init__(self) -> None:
        self._rows = 1
        self._done = 0
        self._reported = 0.0

    def begin(self, rows: int) -> None:
        """Set the number of rows of the log."""
        self._rows = max(1, rows)

    def advance(self, rows: int) -> None:
        """Add rows that were read; write a message after each per cent."""
        self._done += rows
        share = min(1.0, self._done / (2 * self._rows))
        if share >= self._reported + STEP:
            self._reported = share
            write_message(WhatIfNews(progress=share))


def write_message(news: WhatIfNews) -> None:
    """Write a line of JSON to stdout."""
    sys.stdout.buffer.write(msgspec.json.encode(news) + b"\n")
    sys.stdout.buffer.flush()


def compute(store: Store, order: WhatIfOrder, progress: Progress) -> WhatIf:
    """Rebuild a policy from its log, then replay the log with other budgets."""
    decisions = DecisionLog()
    report = replay(
        store,
        order.tenant,
        order.policy,
        started=progress.begin,
        progress=progress.advance,
        watch=decisions.see,
    )
    if report.policy is None or report.faults:
        raise DeferkitError(f"The log of the policy is not what was written: {' '.join(report.faults)}")
    logged = logged_budgets(report.policy.spec, report.policy.accounts)
    scenarios = [scenario_of(text, logged) for text in dict.fromkeys(order.budgets)]
    log = logged_records(store, report.row)
    return what_if(log, report.policy, decisions, scenarios, progress=progress.advance)


def end_with_input() -> None:
    """Exit when stdin is closed: the service has stopped, or has cancelled the job."""
    sys.stdin.buffer.read()
    os._exit(1)


def main() -> None:
    """Read an order, and carry it out."""
    os.nice(NICE)
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=WhatIfOrder)
    threading.Thread(target=end_with_input, daemon=True).start()
    try:
        with store_to_replay(order.store) as store:
            found = compute(store, order, Progress())
        write_message(
            WhatIfNews(progress=1.0, rows=[row_of(row) for row in found.rows], basis=found.basis, remarks=found.remarks)
        )
    except DeferkitError as error:
        write_message(WhatIfNews(error=str(error)))


if __name__ == "__main__":
    main()
