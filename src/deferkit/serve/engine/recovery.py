"""Recovery of a policy from its log. Snapshots only make it faster: one that does not match the log is skipped.

A `ForgottenRecord` or an `UpgradedRecord` rebuilds the learner from the start of the log. What it learned before is
dropped then, so that only the last of them matters: a recovery looks for it first, and applies the log once.
"""

import threading
from typing import NamedTuple

import msgspec

from deferkit.errors import DeferkitError
from deferkit.serve.domain import records
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.rows import LogRow, PolicyRow
from deferkit.serve.domain.spec import PolicySpec
from deferkit.serve.storage.store import Store


class DamagedLog(DeferkitError):
    """The log of a policy is damaged: rows are missing, were changed, or cannot be applied."""


class Interrupted(DeferkitError):
    """The process stops: the recovery was given up."""


class Relearning(NamedTuple):
    """How a rebuilt learner has learned the first rows of its log."""

    seq: int  # of the row that says so
    spec: PolicySpec | None  # the policy whose learning settings it has; None: those of its creation
    forgotten: set[int]  # decisions whose outcomes it has not learned
    releases: bool  # that of the latest `ForgottenRecord`


def recover(store: Store, row: PolicyRow, stopping: threading.Event | None = None) -> Policy:
    """Recover a policy from its log, starting at the latest snapshot that matches it.

    Raises:
        DamagedLog: If the log is not what was written.
        Interrupted: If `stopping` was set meanwhile.
    """
    for seq, data in store.snapshots(row.id):
        policy = load_snapshot(store, row, seq, data)
        if policy is not None:
            return check_complete(store, row, roll_forward(store, row, policy, stopping))
    return check_complete(store, row, roll_forward(store, row, None, stopping))


def load_snapshot(store: Store, row: PolicyRow, seq: int, data: bytes) -> Policy | None:
    """Return the policy in a snapshot; None if it cannot be read, or its hash is not that of the log."""
    try:
        policy = Policy.from_bytes(data)
    except DeferkitError:
        return None
    last = store.log_page(row.id, seq - 1, 1)
    matches = policy.seq == seq and last and last[0].seq == seq - 1 and bytes(last[0].hash) == policy.head
    return policy if matches else None


def roll_forward(
    store: Store, row: PolicyRow, policy: Policy | None, stopping: threading.Event | None = None
) -> Policy:
    """Apply the rest of the log to a policy from a snapshot; the whole log if it is None, or must be learned anew."""
    learning = last_relearning(store, row, 0 if policy is None else policy.seq)
    if learning is not None:
        policy = None
    for line in store.log(row.id, 0 if policy is None else policy.seq):
        if stopping is not None and stopping.is_set():
            raise Interrupted("The service stops.")
        policy = apply_row(policy, row, line, next_record(policy, row, line), store, learning)
    if policy is None:
        raise DamagedLog(f"The log of policy {row.name!r} is empty.")
    return policy


def last_relearning(store: Store, row: PolicyRow, seq: int, end: int | None = None) -> Relearning | None:
    """Return the last rebuild of the learner before row `end`; None if no row from `seq` on is one.

    Rows that cannot be read are passed over: whoever applies them finds them.
    """
    if not store.relearning_rows(row.id, seq):
        return None
    found: Relearning | None = None
    for line in store.relearning_rows(row.id, 0):
        try:
            record = None if end is not None and line.seq >= end else records.decode(bytes(line.body))
        except msgspec.MsgspecError:
            continue
        spec, forgotten, releases = (None, set[int](), False) if found is None else found[1:]
        if isinstance(record, records.ForgottenRecord):
            found = Relearning(line.seq, spec, {*forgotten, record.id}, record.releases)
        elif isinstance(record, records.UpgradedRecord):
            found = Relearning(line.seq, record.spec, forgotten, releases)
    return None if found is None or found.seq < seq else found


def apply_row(
    policy: Policy | None,
    row: PolicyRow,
    line: LogRow,
    record: records.AnyRecord,
    store: Store,
    learning: Relearning | None = None,
) -> Policy:
    """Apply the next row of its log to a policy, None before the first; return the policy.

    A `ForgottenRecord` rebuilds the policy from the start of its log, without the outcomes that are forgotten; an
    `UpgradedRecord`, with other settings of its learner. A policy that has learned so from its start needs no rebuild.

    Args:
        policy: The policy before the row.
        row: The policy as the database has it.
        line: The row.
        record: What the row says.
        store: Where the log is.
        learning: How the policy has learned from its start. By default as the rows so far say.
    """
    if policy is not None and (learning is None or line.seq > learning.seq):
        before = policy.relearned
        if isinstance(record, records.ForgottenRecord):
            forgotten = {*before.forgotten, record.id}
            policy = rebuild(store, row, line.seq, policy.spec, forgotten, releases=record.releases)
        elif isinstance(record, records.UpgradedRecord):
            policy = rebuild(store, row, line.seq, record.spec, set(before.forgotten), releases=before.releases)
    if policy is None:
        policy = first_policy(row, record, learning)
    try:
        policy.take(record, line.at, bytes(line.body))
    except DeferkitError as error:
        raise DamagedLog(f"{log_row_text(row, line.seq)} cannot have happened: {error}") from error
    return policy


def first_policy(row: PolicyRow, record: records.AnyRecord, learning: Relearning | None) -> Policy:
    """Return the policy that the first record of a log creates."""
    if not isinstance(record, records.CreatedRecord):
        raise DamagedLog(f"The log of policy {row.name!r} does not begin with its creation.")
    if learning is None:
        return Policy(record.spec)
    spec = record.spec if learning.spec is None else record.spec.learning_as(learning.spec)
    return Policy(spec, forgotten=learning.forgotten, releases=learning.releases)


def rebuild(store: Store, row: PolicyRow, seq: int, spec: PolicySpec, forgotten: set[int], *, releases: bool) -> Policy:
    """Return the policy after the first `seq` rows of its log, with the learning settings of `spec` from its start.

    Outcomes of `forgotten` decisions are not learned; `releases` is that of the latest `ForgottenRecord`.
    """
    policy: Policy | None = None
    learning = Relearning(seq, spec, forgotten, releases)
    for line in store.log(row.id):
        if line.seq >= seq:
            break
        policy = apply_row(policy, row, line, next_record(policy, row, line), store, learning)
    if policy is None:
        raise DamagedLog(f"The log of policy {row.name!r} does not begin with its creation.")
    return policy


def next_record(policy: Policy | None, row: PolicyRow, line: LogRow) -> records.AnyRecord:
    """Decode the next row of the log. Its hash is verified first: a tampered row is not decoded."""
    seq, head = (0, records.START) if policy is None else (policy.seq, policy.head)
    if line.seq != seq:
        raise DamagedLog(f"{log_row_text(row, seq)} is missing.")
    if records.link(head, seq, line.at, bytes(line.body)) != bytes(line.hash):
        raise DamagedLog(f"{log_row_text(row, seq)} was changed: its hash does not fit.")
    try:
        record = records.decode(bytes(line.body))
    except msgspec.MsgspecError as error:
        raise DamagedLog(f"{log_row_text(row, seq)} cannot be read ({error}).") from error
    if (record.__struct_config__.tag, getattr(record, "task", None)) != (line.kind, line.task):
        raise DamagedLog(f"{log_row_text(row, seq)} was changed: its kind or its task is not what its body says.")
    return record


def log_row_text(row: PolicyRow, seq: int) -> str:
    """Return the name of a log row for error messages."""
    return f"Row {seq} of the log of policy {row.name!r}"


def check_complete(store: Store, row: PolicyRow, policy: Policy) -> Policy:
    """Return the policy; raise if the log is truncated or its accounts are not those in the database."""
    if policy.seq < row.seq or (policy.seq == row.seq and policy.head != bytes(row.head)):
        raise DamagedLog(f"The log of policy {row.name!r} ends after {policy.seq} rows; there were {row.seq}.")
    if policy.seq == row.seq and store.budgets(row.id) != policy.accounts:
        raise DamagedLog(f"The budgets of policy {row.name!r} are not what its log says.")
    return policy
