"""A policy from its log. A snapshot only makes it fast: one that does not fit is passed over."""

import msgspec

from deferkit.errors import DeferkitError
from deferkit.serve import records
from deferkit.serve.policy import Policy
from deferkit.serve.rows import LogRow, PolicyRow
from deferkit.serve.store import Store


class DamagedLog(DeferkitError):
    """The log of a policy is not what was written."""


def recover(store: Store, row: PolicyRow) -> Policy:
    """Return a policy as its log has it, from the latest snapshot that fits."""
    for seq, data in store.snapshots(row.id):
        policy = snapshot_at(store, row, seq, data)
        if policy is not None:
            return checked(store, row, roll_on(store, row, policy))
    return checked(store, row, roll_on(store, row, None))


def snapshot_at(store: Store, row: PolicyRow, seq: int, data: bytes) -> Policy | None:
    """Return the policy in a snapshot, if the log has the same past."""
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
        record = read(row, line)
        if policy is None:
            if not isinstance(record, records.Created):
                raise DamagedLog(f"The log of policy {row.name!r} does not begin with its creation.")
            policy = Policy(record.spec)
        apply(policy, row, line, record)
    if policy is None:
        raise DamagedLog(f"The log of policy {row.name!r} is empty.")
    return policy


def read(row: PolicyRow, line: LogRow) -> records.AnyRecord:
    """Return the record of a row of the log."""
    try:
        return records.decode(bytes(line.body))
    except msgspec.MsgspecError as error:
        raise DamagedLog(f"Row {line.seq} of the log of policy {row.name!r} cannot be read ({error}).") from error


def apply(policy: Policy, row: PolicyRow, line: LogRow, record: records.AnyRecord) -> None:
    """Apply a row of the log, and check that it is the one that was written."""
    if line.seq != policy.seq:
        raise DamagedLog(f"Row {policy.seq} of the log of policy {row.name!r} is missing.")
    policy.take(record, line.at, bytes(line.body))
    if policy.head != bytes(line.hash):
        raise DamagedLog(f"Row {line.seq} of the log of policy {row.name!r} was changed: its hash does not fit.")


def checked(store: Store, row: PolicyRow, policy: Policy) -> Policy:
    """Return the policy, if its log is whole and its accounts are those in the database."""
    if policy.seq < row.seq or (policy.seq == row.seq and policy.head != bytes(row.head)):
        raise DamagedLog(f"The log of policy {row.name!r} ends after {policy.seq} rows; there were {row.seq}.")
    if policy.seq == row.seq and store.budgets(row.id) != policy.accounts:
        raise DamagedLog(f"The budgets of policy {row.name!r} are not what its log says.")
    return policy
