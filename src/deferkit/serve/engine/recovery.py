"""Recovery of a policy from its log. Snapshots only make it faster: one that does not match the log is skipped."""

import msgspec

from deferkit.errors import DeferkitError
from deferkit.serve.domain import hash_chain, log_records
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.rows import LogRow, PolicyRow
from deferkit.serve.storage.store import Store


class DamagedLog(DeferkitError):
    """The log of a policy is not what was written."""


def recover(store: Store, row: PolicyRow) -> Policy:
    """Recover a policy from its log, starting at the latest snapshot that matches it."""
    for seq, data in store.snapshots(row.id):
        policy = snapshot_at(store, row, seq, data)
        if policy is not None:
            return checked(store, row, roll_on(store, row, policy))
    return checked(store, row, roll_on(store, row, None))


def snapshot_at(store: Store, row: PolicyRow, seq: int, data: bytes) -> Policy | None:
    """Return the policy in a snapshot; None if its hash is not that of the log."""
    try:
        policy = Policy.from_bytes(data)
    except DeferkitError:
        return None
    last = store.log_page(row.id, seq - 1, 1)
    fits = policy.seq == seq and last and last[0].seq == seq - 1 and bytes(last[0].hash) == policy.head
    return policy if fits else None


def roll_on(store: Store, row: PolicyRow, policy: Policy | None) -> Policy:
    """Apply the rest of the log to a policy; the whole log if there is none."""
    for line in store.log(row.id, 0 if policy is None else policy.seq):
        policy = after(policy, row, line, following(policy, row, line), store)
    if policy is None:
        raise DamagedLog(f"The log of policy {row.name!r} is empty.")
    return policy


def after(policy: Policy | None, row: PolicyRow, line: LogRow, record: log_records.AnyRecord, store: Store) -> Policy:
    """Return the policy after the next row of its log; None: before the first."""
    if policy is not None and isinstance(record, log_records.ForgottenRecord):
        policy = rebuilt(store, row, line.seq, {*policy.relearned.forgotten, record.id})
    if policy is None:
        if not isinstance(record, log_records.CreatedRecord):
            raise DamagedLog(f"The log of policy {row.name!r} does not begin with its creation.")
        policy = Policy(record.spec)
    try:
        policy.take(record, line.at, bytes(line.body))
    except DeferkitError as error:
        raise DamagedLog(f"{nth(row, line.seq)} cannot have happened: {error}") from error
    return policy


def rebuilt(store: Store, row: PolicyRow, seq: int, forgotten: set[int]) -> Policy:
    """Return the policy after the first `seq` rows of its log, its learner told of no outcome of some decisions."""
    policy: Policy | None = None
    for line in store.log(row.id):
        if line.seq >= seq:
            break
        record = following(policy, row, line)
        if policy is None and isinstance(record, log_records.CreatedRecord):
            policy = Policy(record.spec, forgotten=forgotten)
        if policy is not None:
            policy.take(record, line.at, bytes(line.body))
    if policy is None:
        raise DamagedLog(f"The log of policy {row.name!r} does not begin with its creation.")
    return policy


def following(policy: Policy | None, row: PolicyRow, line: LogRow) -> log_records.AnyRecord:
    """Return the record of the next row of the log. Its hash is checked first: the rest may be anybody's writing."""
    seq, head = (0, hash_chain.START) if policy is None else (policy.seq, policy.head)
    if line.seq != seq:
        raise DamagedLog(f"{nth(row, seq)} is missing.")
    if hash_chain.link(head, seq, line.at, bytes(line.body)) != bytes(line.hash):
        raise DamagedLog(f"{nth(row, seq)} was changed: its hash does not fit.")
    try:
        record = log_records.decode(bytes(line.body))
    except msgspec.MsgspecError as error:
        raise DamagedLog(f"{nth(row, seq)} cannot be read ({error}).") from error
    if (record.__struct_config__.tag, getattr(record, "task", None)) != (line.kind, line.task):
        raise DamagedLog(f"{nth(row, seq)} was changed: its kind or its task is not what its body says.")
    return record


def nth(row: PolicyRow, seq: int) -> str:
    """Return the name of a log row for messages."""
    return f"Row {seq} of the log of policy {row.name!r}"


def checked(store: Store, row: PolicyRow, policy: Policy) -> Policy:
    """Return the policy, if its log is whole and its accounts are those in the database."""
    if policy.seq < row.seq or (policy.seq == row.seq and policy.head != bytes(row.head)):
        raise DamagedLog(f"The log of policy {row.name!r} ends after {policy.seq} rows; there were {row.seq}.")
    if policy.seq == row.seq and store.budgets(row.id) != policy.accounts:
        raise DamagedLog(f"The budgets of policy {row.name!r} are not what its log says.")
    return policy
