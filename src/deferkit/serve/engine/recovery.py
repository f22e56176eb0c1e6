"""Recovery of a policy from its log. Snapshots only make it faster: one that does not match the log is skipped."""

import msgspec

from deferkit.errors import DeferkitError
from deferkit.serve.domain import records
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.rows import LogRow, PolicyRow
from deferkit.serve.domain.spec import PolicySpec
from deferkit.serve.storage.store import Store


class DamagedLog(DeferkitError):
    """The log of a policy is damaged: rows are missing, were changed, or cannot be applied."""


def recover(store: Store, row: PolicyRow) -> Policy:
    """Recover a policy from its log, starting at the latest snapshot that matches it."""
    for seq, data in store.snapshots(row.id):
        policy = load_snapshot(store, row, seq, data)
        if policy is not None:
            return check_complete(store, row, roll_forward(store, row, policy))
    return check_complete(store, row, roll_forward(store, row, None))


def load_snapshot(store: Store, row: PolicyRow, seq: int, data: bytes) -> Policy | None:
    """Return the policy in a snapshot; None if it cannot be read, or its hash is not that of the log."""
    try:
        policy = Policy.from_bytes(data)
    except DeferkitError:
        return None
    last = store.log_page(row.id, seq - 1, 1)
    matches = policy.seq == seq and last and last[0].seq == seq - 1 and bytes(last[0].hash) == policy.head
    return policy if matches else None


def roll_forward(store: Store, row: PolicyRow, policy: Policy | None) -> Policy:
    """Apply the rest of the log to a policy from a snapshot; the whole log if it is None."""
    for line in store.log(row.id, 0 if policy is None else policy.seq):
        policy = apply_row(policy, row, line, next_record(policy, row, line), store)
    if policy is None:
        raise DamagedLog(f"The log of policy {row.name!r} is empty.")
    return policy


def apply_row(policy: Policy | None, row: PolicyRow, line: LogRow, record: records.AnyRecord, store: Store) -> Policy:
    """Apply the next row of its log to a policy, None before the first; return the policy.

    A `ForgottenRecord` rebuilds the policy from the start of its log, without the outcomes that are forgotten; an
    `UpgradedRecord`, with other settings of its learner.
    """
    if policy is not None and isinstance(record, records.ForgottenRecord):
        forgotten, releases = {*policy.relearned.forgotten, record.id}, record.releases
        policy = rebuild(store, row, line.seq, policy.spec, forgotten, releases=releases)
    if policy is not None and isinstance(record, records.UpgradedRecord):
        forgotten, releases = set(policy.relearned.forgotten), policy.relearned.releases
        policy = rebuild(store, row, line.seq, record.spec, forgotten, releases=releases)
    if policy is None:
        if not isinstance(record, records.CreatedRecord):
            raise DamagedLog(f"The log of policy {row.name!r} does not begin with its creation.")
        policy = Policy(record.spec)
    try:
        policy.take(record, line.at, bytes(line.body))
    except DeferkitError as error:
        raise DamagedLog(f"{log_row_text(row, line.seq)} cannot have happened: {error}") from error
    return policy


def rebuild(store: Store, row: PolicyRow, seq: int, spec: PolicySpec, forgotten: set[int], *, releases: bool) -> Policy:
    """Return the policy after the first `seq` rows of its log, with the learning settings of `spec` from its start.

    Outcomes of `forgotten` decisions are not learned; `releases` is that of the latest `ForgottenRecord`.
    """
    policy: Policy | None = None
    for line in store.log(row.id):
        if line.seq >= seq:
            break
        record = next_record(policy, row, line)
        if policy is None and isinstance(record, records.CreatedRecord):
            policy = Policy(record.spec.learning_as(spec), forgotten=forgotten, releases=releases)
        if policy is not None:
            policy.take(record, line.at, bytes(line.body))
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
