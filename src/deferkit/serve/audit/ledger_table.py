"""The ledger of a policy as a table: each log record that changes an account, and the account after it."""

from collections.abc import Iterator
from typing import NamedTuple

from deferkit.serve.audit.csv_text import Cell, amount_of, time_of
from deferkit.serve.domain import log_records
from deferkit.serve.domain.account import Account
from deferkit.serve.domain.bookkeeping import booked, opened
from deferkit.serve.domain.log_records import AnyRecord
from deferkit.serve.domain.rows import LogRow
from deferkit.serve.storage.store import Store

HEADER = [
    *("seq", "at", "kind", "task", "resource"),
    *("held", "released", "cost", "granted", "lapsed"),  # what the record moves
    *("total", "reserved", "posted", "suspense", "free"),  # where the account stands after it
]
PAGE = 1000


class Movement(NamedTuple):
    """What a record moves of one resource, in micro-units."""

    held: int = 0
    released: int = 0
    cost: int = 0  # below 0 where a correction takes some back
    granted: int = 0  # to the total, from the start, by a renewal or a top-up; below 0 where it was cut
    lapsed: int = 0  # of the total, at a renewal


def ledger_table(store: Store, policy: int) -> Iterator[list[Cell]]:
    """Yield a row of cells for each record that moves money, and each resource that it moves.

    The sum of `held` without that of `released` is what is reserved; the sum of `cost` is what is posted or stands in
    suspense; the sum of `granted` without that of `lapsed` is the total.

    Parameters
    ----------
    store
        Where the log is.
    policy
        Number of the policy.
    """
    accounts: dict[str, Account] = {}
    start = 0
    while page := store.log_page(policy, start, PAGE):
        for line in page:
            record = log_records.decode(bytes(line.body))
            after = opened(record.spec) if isinstance(record, log_records.CreatedRecord) else booked(accounts, record)
            for name, account in after.items():
                moved = movement_of(record, name)
                before = accounts.get(name, Account(0))
                moved = moved._replace(granted=(account.total or 0) - (before.total or 0) + moved.lapsed)
                if account != accounts.get(name) or any(moved):
                    yield row_of(line, name, moved, account)
            accounts = after
        start = page[-1].seq + 1


def movement_of(record: AnyRecord, resource: str) -> Movement:  # noqa: PLR0911  one for each kind
    """Return what a record moves of a resource; what it grants is the difference of two totals."""
    match record:
        case log_records.DecidedRecord(held=held) if held is not None:
            return Movement(held=held.get(resource, 0))
        case log_records.ExtendedRecord(amount=amount):
            return Movement(held=amount.get(resource, 0))
        case log_records.ObservedRecord(cost=cost, released=released) if cost is not None:
            return Movement(released=(released or {}).get(resource, 0), cost=cost.get(resource, 0))
        case log_records.ExpiredRecord(released=released):
            return Movement(released=released.get(resource, 0))
        case log_records.CorrectedRecord(cost=cost, was=was) if cost is not None and was is not None:
            return Movement(cost=cost.get(resource, 0) - was.get(resource, 0))
        case log_records.EffortRecord(cost=cost):
            return Movement(cost=cost.get(resource, 0))
        case log_records.RenewedRecord(resource=name) if name == resource:
            return Movement(lapsed=record.lapsed)
        case _:
            return Movement()


def row_of(line: LogRow, resource: str, moved: Movement, account: Account) -> list[Cell]:
    """Return the cells of what a record moves."""
    known = (account.total, account.reserved, account.posted, account.suspense, account.free)
    return [
        *(line.seq, time_of(line.at), line.kind, line.task, resource),
        *(amount_of(micro) for micro in (*moved, *known)),
    ]
