"""A policy rebuilt from its whole log, and compared with everything else that the database says of it.

Nothing is written. A service may be running on the same database: the log is replayed up to where it ended when the
replay began.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from deferkit.errors import DeferkitError, InvalidArgument, UnreadableState
from deferkit.serve.audit.decision_history import check_decisions
from deferkit.serve.audit.renewal_history import RenewalHistory
from deferkit.serve.domain import log_records
from deferkit.serve.domain.account import Account
from deferkit.serve.domain.log_records import AnyRecord
from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.policy_spec import PolicySpec
from deferkit.serve.domain.rows import PolicyRow
from deferkit.serve.engine.recovery import DamagedLog, apply_row, log_row_text, next_record
from deferkit.serve.storage.store import Store

TRIES = 1000
LISTED = 20  # policies that are listed where one was not found
NAMED = 10  # decisions that are named; the others are counted
STEP = 1000  # rows between two calls of `progress`

Progress = Callable[[int], None]
Watch = Callable[[AnyRecord], None]


class Report(NamedTuple):
    """What a replay came to."""

    row: PolicyRow  # as it stood at the start
    policy: Policy | None  # rebuilt; None if the log is not what was written
    rows: int  # of the log, that were replayed
    snapshots: int  # that were compared
    seconds: float
    faults: list[str]
    remarks: tuple[str, ...] = ()  # what is as the log says, and should not be: such a log is whole

    @property
    def rows_per_second(self) -> float:
        """How fast it went."""
        return self.rows / max(self.seconds, 1e-9)


def find(store: Store, tenant: str, name: str) -> tuple[PolicyRow, dict[str, Account]]:
    """Return a policy and its budgets, of one moment; say which policies there are if it is none of them."""
    for _ in range(TRIES):
        row = store.policy(tenant, name)
        if row is None:
            raise InvalidArgument(f"There is no policy {name!r} of tenant {tenant!r}. {there_is(store.policies())}")
        budgets = store.budgets(row.id)
        again = store.policy(tenant, name)
        if again is not None and again.seq == row.seq:  # budgets change only with the log
            return row, budgets
    raise DeferkitError(f"Policy {name!r} is too busy to be read.")


def there_is(policies: list[PolicyRow]) -> str:
    """Say which policies there are."""
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
    """Rebuild a policy from its log and compare; `watch` sees each record of the log.

    `started` hears how much there is to do, `progress` how much more was done: rows, then decisions.
    """
    begin = time.perf_counter()
    row, budgets = find(store, tenant, name)
    started(row.seq)
    faults: list[str] = []
    places = [seq for seq in store.snapshot_seqs(row.id) if seq <= row.seq]
    policy: Policy | None = None
    renewals = RenewalHistory()
    try:
        for line in store.log(row.id):
            if line.seq >= row.seq:
                break
            record = next_record(policy, row, line)
            policy = apply_row(policy, row, line, record, store)
            renewals.see(record)
            watch(record)
            if policy.seq in places:
                faults += check_snapshot(store, row, policy)
            if policy.seq % STEP == 0:
                progress(STEP)
        policy = ended(row, policy)
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
    return Report(row, policy, policy.seq, len(places), seconds, [*faults, *wrong.listed], tuple(remarks.listed))


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
        """The first ones, and how many more there are."""
        return [*self._first, *([f"{self._others:,} {self._more}"] if self._others else [])]


def read_again(store: Store, row: PolicyRow) -> Iterator[tuple[int, AnyRecord]]:
    """Yield the records of a log that was replayed, up to where it ended then, with their times in microseconds."""
    for line in store.log(row.id):
        if line.seq >= row.seq:
            return
        yield line.at, log_records.decode(bytes(line.body))


def ended(row: PolicyRow, policy: Policy | None) -> Policy:
    """Return the policy at the end of its log, if nothing is missing there."""
    if policy is None or policy.seq < row.seq:
        seq = 0 if policy is None else policy.seq
        raise DamagedLog(f"{log_row_text(row, seq)} is missing: there were {row.seq:,} rows.")
    if policy.head != bytes(row.head):
        raise DamagedLog(
            f"{log_row_text(row, row.seq - 1)} was changed: its hash is not the one that was kept beside the policy."
        )
    return policy


def check_row(row: PolicyRow, policy: Policy, budgets: dict[str, Account]) -> list[str]:
    """Compare the rows of the policy and of its budgets with what the log says."""
    faults = []
    for name in {**policy.accounts, **budgets}:
        is_, was = budgets.get(name), policy.accounts.get(name)
        if is_ != was:
            faults.append(f"The budget of {name} was changed: the database says {said(is_)}, the log says {said(was)}.")
    if msgspec.json.decode(row.spec, type=PolicySpec) != policy.spec:
        faults.append(f"The settings of policy {row.name!r} are not what its log says.")
    return faults


def said(account: Account | None) -> str:
    """Return an account in words.

    >>> said(Account(10_000_000, 2_000_000, 3_500_000))
    '3.5 posted and 2 reserved of 10'
    """
    if account is None:
        return "there is none"
    total = "a budget without end" if account.total is None else f"{account.total / 1e6:,.15g}"
    owed = f", {account.suspense / 1e6:,.15g} in suspense" if account.suspense else ""
    return f"{account.posted / 1e6:,.15g} posted and {account.reserved / 1e6:,.15g} reserved of {total}{owed}"


def check_snapshot(store: Store, row: PolicyRow, policy: Policy) -> list[str]:
    """Compare the snapshot of this place of the log, bit for bit."""
    found = store.database.reader().run("snapshot", policy=row.id, seq=policy.seq)
    if not found:
        return []  # a service that is running has let go of it
    sha256, data = map(bytes, found[0])
    if hashlib.sha256(data).digest() != sha256:
        return [f"The snapshot of policy {row.name!r} after {policy.seq:,} rows is damaged: its checksum does not fit."]
    if not holds(data, policy):
        return [f"The snapshot of policy {row.name!r} after {policy.seq:,} rows is not what its log says."]
    return []


def holds(data: bytes, policy: Policy) -> bool:
    """Whether a snapshot holds this policy, perhaps in the format of an older version."""
    try:
        return data == policy.to_bytes() or Policy.from_bytes(data) == policy
    except UnreadableState:
        return False
