"""Verification of decision rows: each is rebuilt from the log rows of its task, and compared.

This is an implementation of its own, not the code of the commands that write those rows.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

import msgspec

from deferkit.errors import DeferkitError
from deferkit.serve.domain import records
from deferkit.serve.domain.accounts import from_micros
from deferkit.serve.domain.rows import MODEL, OPEN, POSTED, VOID, DecisionRow, LogRow
from deferkit.serve.engine.commands.decide import reply_of
from deferkit.serve.engine.commands.outcome import COST, sum_costs, used_answer
from deferkit.serve.storage.connections import decision_row
from deferkit.serve.storage.store import Store

PAGE = 1000
TRIES = 100
SHOWN = ("id", "at", "route", "state", "held", "rewards", "cost", "final")  # short enough to be shown


def row_of(lines: list[LogRow]) -> DecisionRow | None:
    """Rebuild the decision row of a task from its log rows; fields that are not in the log are left empty."""
    row: DecisionRow | None = None
    for line in lines:
        record = records.decode(bytes(line.body))
        if isinstance(record, records.DecidedRecord) and row is None:
            row = new_decision_row(line, record)
        elif row is None:
            return None
        elif isinstance(record, records.ObservedRecord):
            row = with_outcome(row, record)
        elif isinstance(record, records.ExtendedRecord):
            row = row._replace(held=sum_costs(row.held, record.amount))
        elif isinstance(record, records.ExpiredRecord):
            row = row._replace(state=VOID, final=row.final or MODEL)
        elif isinstance(record, records.ForgottenRecord):
            row = row._replace(told="")
        elif isinstance(record, records.CorrectedRecord):
            cost = row.cost if record.cost is None else record.cost
            row = row._replace(rewards=row.rewards | record.rewards, cost=cost)
        elif isinstance(record, records.AnswerCorrectedRecord) and record.answers:
            row = row._replace(answer=msgspec.json.encode(used_answer(record.answers, record.used)).decode())
    return row


def new_decision_row(line: LogRow, record: records.DecidedRecord) -> DecisionRow:
    """Return the row of a decision that was just made."""
    return DecisionRow(
        policy=line.policy,
        task=record.task,
        id=record.id,
        digest=b"",
        reply=reply_of(record.task, record.decision),
        at=line.at,
        route=record.route,
        state=MODEL if record.held is None else OPEN,
        held=record.held,
        rewards={},
        cost=None,
        final=MODEL if record.held is None else None,
        answer=None,
        told="",
    )


def with_outcome(row: DecisionRow, record: records.ObservedRecord) -> DecisionRow:
    """Return the row of a decision after an outcome was observed."""
    told = [*record.rewards, *([] if record.told is None else [COST])] if record.learned else []
    reported = record.cost is not None or record.unconfirmed is not None
    ended = bool(record.reviewers) or (row.final is None and (reported or row.route in record.rewards))
    final = row.final or (MODEL if record.stopped and not record.reviewers else row.route)
    return row._replace(
        state=POSTED if record.cost is not None and row.state in (OPEN, VOID) else row.state,
        rewards=row.rewards | record.rewards,
        cost=row.cost if record.cost is None else record.cost,
        final=final if ended else row.final,
        answer=msgspec.json.encode(used_answer(record.answers, record.used)).decode() if record.answers else row.answer,
        told=" ".join([*row.told.split(), *told]),
    )


def faults_of(task: str, row: DecisionRow | None, told: DecisionRow | None) -> str | None:
    """Return the differences between a decision's row and the one rebuilt from the log (`told`); None without any."""
    if row is None and told is None:
        return None
    if row is None:
        return f"The decision on task {task!r} is missing: the log has it, but the database does not."
    if told is None:
        return f"The log has no decision on task {task!r}, but the database has one."
    if row._replace(digest=b"", reply=bytes(row.reply)) == told:
        return None
    wrong = []
    for name in SHOWN:
        is_, was = getattr(row, name), getattr(told, name)
        if is_ != was:
            wrong.append(f"its {name} is {is_!r}, the log says {was!r}")
    if bytes(row.reply) != told.reply:
        wrong.append("its stored reply is not the original one")
    if row.answer != told.answer:
        wrong.append("its answer differs")
    if row.told != told.told:
        wrong.append("the outcomes that the learner received are not those of the log")
    return f"The decision on task {task!r} was changed: {'; '.join(wrong)}."


def cost_of_model(row: DecisionRow) -> str | None:
    """Return a remark on a cost that was booked for a decision of the model; None without one.

    It is no fault: earlier versions booked such a cost if it was reported before the decision.
    """
    if row.route != MODEL or row.cost is None or not any(row.cost.values()):
        return None
    return f"A cost is booked for task {row.task!r}, which the model decided: {from_micros(row.cost)}."


class Compared(NamedTuple):
    """The result of comparing a page of decisions with the log."""

    decisions: int
    faults: list[str]
    remarks: list[str]  # oddities that are in the log too, and so no faults


def check_decisions(store: Store, policy: int) -> Iterator[Compared]:
    """Compare all decisions with the log, a page at a time.

    A service may be writing meanwhile, so that a page and its log may be from two moments: suspects are rechecked one
    by one.
    """
    reader = store.database.reader()
    last = ""
    while page := reader.run("decisions_after", policy=policy, after=last, limit=PAGE):
        after, last = last, page[-1][1]
        rows: dict[str, DecisionRow | None] = {row[1]: decision_row(row) for row in page}
        lines = map(LogRow._make, reader.run("log_of_tasks", policy=policy, after=after, last=last))
        told = {str(task): row_of(list(group)) for task, group in groupby(lines, key=lambda line: line.task)}
        suspects = [t for t in {**rows, **told} if faults_of(t, rows.get(t), told.get(t))]
        yield Compared(
            len(rows),
            [fault for task in suspects if (fault := recheck(store, policy, task))],
            [remark for row in told.values() if row is not None and (remark := cost_of_model(row))],
        )
    while page := reader.run("tasks_after", policy=policy, after=last, limit=PAGE):
        last = page[-1][0]
        yield Compared(0, [fault for (task,) in page if (fault := recheck(store, policy, task))], [])


def recheck(store: Store, policy: int, task: str) -> str | None:
    """Compare one decision with its log again, read at a moment when the log did not change; return the fault."""
    before = store.log_of_task(policy, task, 2**31 - 1)
    for _ in range(TRIES):
        row = store.decision(policy, task)
        lines = store.log_of_task(policy, task, 2**31 - 1)
        if len(lines) == len(before):
            return faults_of(task, row, row_of(lines))
        before = lines
    raise DeferkitError(f"Task {task!r} changes too often to be compared.")
