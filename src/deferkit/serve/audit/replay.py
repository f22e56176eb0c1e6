"""Replay of a policy: it is rebuilt from its whole log, and compared with its rows and snapshots.

Nothing is written. A service may be running on the same database: the log is replayed up to its end at the start.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from deferkit.errors import DeferkitError, InvalidArgument, UnreadableState
from deferkit.serve.audit.decision_history import check_decisions
from deferkit.serve.audit.renewal_history import RenewalHistory
from deferkit.serve.domain import records
from deferkit.serve.domain.accounts import Account
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.records import AnyRecord
from deferkit.serve.domain.rows import PolicyRow
from deferkit.serve.domain.spec import PolicySpec
from deferkit.serve.engine.recovery import DamagedLog, apply_row, last_relearning, log_row_text, next_record
from deferkit.serve.storage.store import Store

TRIES = 1000
LISTED = 20  # policies that are listed where one was not found
NAMED = 10  # decisions that are named; the others are counted
STEP = 1000  # rows between two calls of `progress`

Progress = Callable[[int], None]
Watch = Callable[[AnyRecord], None]


class Report(NamedTuple):
    """The result of a replay."""

    row: PolicyRow  # as it stood at the start
    policy: Policy | None  # rebuilt; None if the log is not what was written
    rows: int  # of the log, that were replayed
    snapshots: int  # that were compared
    seconds: float
    faults: list[str]
    remarks: tuple[str, ...] = ()  # oddities that are in the log too, and so no faults

    @property
    def rows_per_second(self) -> float:
        """How fast it went."""
        return self.rows / max(self.seconds, 1e-9)


def find(store: Store, tenant: str, name: str) -> tuple[PolicyRow, dict[str, Account]]:
    """Return a policy and its budgets, read consistently; raise if there is none, with a list of those there are."""
    for _ in range(TRIES):
        row = store.policy(tenant, name)
        if row is None:
            raise InvalidArgument(
                f"There is no policy {name!r} of tenant {tenant!r}. {policies_text(store.policies())}"
            )
        budgets = store.budgets(row.id)
        again = store.policy(tenant, name)
        if again is not None and again.seq == row.seq:  # budgets change only with the log
            return row, budgets
    raise DeferkitError(f"Policy {name!r} is too busy to be read.")


def policies_text(policies: list[PolicyRow]) -> str:
    """Return a sentence that lists the policies."""
    if not policies:
        return "There are no policies."
    names = [f"{each.name} of {each.tenant}" for each in policies[:LISTED]]
    more = f" and {len(policies) - LISTED:,} more" if len(policies) > LISTED else ""
    return f"There is {', '.join(names)}{more}."


def replay(
    store: Store,
    tenant: str,
    name: str,
    *,
    started: Progress = lambda _: None,
    progress: Progress = lambda _: None,
    watch: Watch = lambda _: None,
) -> Report:
    """Rebuild a policy from its log, and compare it with the rows and snapshots in the database.

    Callbacks: `watch` gets each record of the log, `started` the amount of work, and `progress` each part of it that
    was done: rows, then decisions.
    """
    begin = time.perf_counter()
    row, budgets = find(store, tenant, name)
    started(row.seq)
    faults: list[str] = []
    snapshot_seqs = [seq for seq in store.snapshot_seqs(row.id) if seq <= row.seq]
    policy: Policy | None = None
    renewals = RenewalHistory()
    # as the learner is when it is first compared, so that it is not rebuilt for every row before that rebuilds it
    learning = last_relearning(store, row, 0, min(snapshot_seqs, default=row.seq))
    try:
        for line in store.log(row.id):
            if line.seq >= row.seq:
                break
            record = next_record(policy, row, line)
            policy = apply_row(policy, row, line, record, store, learning)
            renewals.see(record)
            watch(record)
            if policy.seq in snapshot_seqs:
                faults += check_snapshot(store, row, policy)
            if policy.seq % STEP == 0:
                progress(STEP)
        policy = check_log_end(row, policy)
    except DamagedLog as error:
        seconds = time.perf_counter() - begin
        return Report(row, None, 0 if policy is None else policy.seq, 0, seconds, [*faults, str(error)])
    faults += [*renewals.faults, *check_row(row, policy, budgets)]
    started(policy.seq + policy.counts().decisions)
    wrong, remarks = FirstFew("more decisions are not what the log says."), FirstFew("more such costs are booked.")
    for page in check_decisions(store, row.id):
        progress(page.decisions)
        wrong.add(page.faults)
        remarks.add(page.remarks)
    seconds = time.perf_counter() - begin
    return Report(row, policy, policy.seq, len(snapshot_seqs), seconds, [*faults, *wrong.listed], tuple(remarks.listed))


class FirstFew:
    """Keeps the first sentences of many, and counts the others.

    >>> few = FirstFew("more are odd.")
    >>> few.add([f"{i} is odd." for i in range(1, 26, 2)])
    >>> few.listed[0], few.listed[-1]
    ('1 is odd.', '3 more are odd.')
    """

    def __init__(self, more: str) -> None:
        self._more = more
        self._first: list[str] = []
        self._others = 0

    def add(self, sentences: list[str]) -> None:
        """Add sentences."""
        room = NAMED - len(self._first)
        self._first += sentences[:room]
        self._others += len(sentences[room:])

    @property
    def listed(self) -> list[str]:
        """The first faults, and the number of the others."""
        return [*self._first, *([f"{self._others:,} {self._more}"] if self._others else [])]


def logged_records(store: Store, row: PolicyRow) -> Iterator[tuple[int, AnyRecord]]:
    """Yield the records of a log that was replayed, up to where it ended then, with their times in microseconds."""
    for line in store.log(row.id):
        if line.seq >= row.seq:
            return
        yield line.at, records.decode(bytes(line.body))


def check_log_end(row: PolicyRow, policy: Policy | None) -> Policy:
    """Return the policy at the end of its log; raise if the log is truncated or its last hash is wrong."""
    if policy is None or policy.seq < row.seq:
        seq = 0 if policy is None else policy.seq
        raise DamagedLog(f"{log_row_text(row, seq)} is missing: there were {row.seq:,} rows.")
    if policy.head != bytes(row.head):
        raise DamagedLog(
            f"{log_row_text(row, row.seq - 1)} was changed: its hash is not the one that was kept beside the policy."
        )
    return policy


def check_row(row: PolicyRow, policy: Policy, budgets: dict[str, Account]) -> list[str]:
    """Compare the rows of the policy and of its budgets with the log."""
    faults = []
    for name in {**policy.accounts, **budgets}:
        is_, was = budgets.get(name), policy.accounts.get(name)
        if is_ != was:
            faults.append(
                f"The budget of {name} was changed: the database says {account_text(is_)},"
                f" the log says {account_text(was)}."
            )
    if msgspec.json.decode(row.spec, type=PolicySpec) != policy.spec:
        faults.append(f"The settings of policy {row.name!r} are not what its log says.")
    return faults


def account_text(account: Account | None) -> str:
    """Return an account as text.

    >>> account_text(Account(10_000_000, 2_000_000, 3_500_000))
    '3.5 posted and 2 reserved of 10'
    """
    if account is None:
        return "there is none"
    total = "a budget without end" if account.total is None else f"{account.total / 1e6:,.15g}"
    owed = f", {account.suspense / 1e6:,.15g} in suspense" if account.suspense else ""
    return f"{account.posted / 1e6:,.15g} posted and {account.reserved / 1e6:,.15g} reserved of {total}{owed}"


def check_snapshot(store: Store, row: PolicyRow, policy: Policy) -> list[str]:
    """Compare the snapshot at this sequence number with the rebuilt policy, bit for bit; return faults."""
    found = store.database.reader().run("snapshot", policy=row.id, seq=policy.seq)
    if not found:
        return []  # a running service has dropped it meanwhile
    sha256, data = map(bytes, found[0])
    if hashlib.sha256(data).digest() != sha256:
        return [f"The snapshot of policy {row.name!r} after {policy.seq:,} rows is damaged: its checksum does not fit."]
    if not snapshot_matches(data, policy):
        return [f"The snapshot of policy {row.name!r} after {policy.seq:,} rows is not what its log says."]
    return []


def snapshot_matches(data: bytes, policy: Policy) -> bool:
    """Whether a snapshot contains this policy, also in the format of an older version."""
    try:
        return data == policy.to_bytes() or Policy.from_bytes(data) == policy
    except UnreadableState:
        return False
