"""Exports: decisions and the ledger as tables in CSV."""

import csv
import io
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from deferkit.serve.api.tasks import DecisionReply
from deferkit.serve.domain import records
from deferkit.serve.domain.accounts import MICRO, Account
from deferkit.serve.domain.books import book_record, open_accounts
from deferkit.serve.domain.records import AnyRecord
from deferkit.serve.domain.rows import LogRow
from deferkit.serve.domain.spec import PolicySpec
from deferkit.serve.storage.connections import from_json_column
from deferkit.serve.storage.listing import ListedTask, tasks_from
from deferkit.serve.storage.store import Store
from deferkit.types import MODEL

Cell = str | int | float | Decimal | None
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # and their full-width forms, which spreadsheets read alike
ROWS = 500  # in one piece


def cell(value: Cell) -> Cell:
    """Return a value as a cell; a text that begins like a formula gets a leading apostrophe, a number does not.

    >>> cell("=1+1"), cell("-5"), cell(-5), cell("5 - 3"), cell("＝1+1")
    ("'=1+1", "'-5", -5, '5 - 3', "'＝1+1")
    """
    begins = isinstance(value, str) and unicodedata.normalize("NFKC", value[:1]).startswith(FORMULA)
    return f"'{value}" if begins else value


def pieces(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Iterator[bytes]:
    r"""Yield a table as CSV, in pieces.

    Args:
        header: Names of the columns.
        rows: Cells in the order of the columns; None is empty.

    >>> list(pieces(["a", "b"], [["=x", -1.5], ["y, z", None]]))
    [b"a,b\r\n'=x,-1.5\r\n", b'"y, z",\r\n']
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(header)
    for number, row in enumerate(rows):
        writer.writerow([cell(value) for value in row])
        if number % ROWS == 0:
            yield text.getvalue().encode()
            text.seek(0)
            text.truncate()
    if rest := text.getvalue():
        yield rest.encode()


def time_of(micros: int) -> str:
    """Return a time as text.

    >>> time_of(1_700_000_000_250_000)
    '2023-11-14T22:13:20.250000Z'
    """
    return f"{datetime.fromtimestamp(micros / MICRO, UTC):%Y-%m-%dT%H:%M:%S}.{micros % MICRO:06}Z"


def amount_of(micro: int | None) -> Decimal | None:
    """Return micro-units as a number that is written exactly; None as None.

    >>> str(amount_of(1_500_000)), str(amount_of(-9_007_199_254_740_993))
    ('1.500000', '-9007199254.740993')
    """
    return None if micro is None else Decimal(micro).scaleb(-6)


PAGE = 1000


def header_of(spec: PolicySpec) -> list[str]:
    """Return the names of the columns."""
    return [
        *("task", "id", "at", "route", "reason", "propensity", "state", "final", "expected_gain"),
        *(f"price_{name}" for name in spec.resources),
        *(f"reserved_{name}" for name in spec.resources),
        *(f"cost_{name}" for name in spec.resources),
        *(f"estimate_{name}" for name in spec.deciders),
        *(f"width_{name}" for name in spec.deciders),
        *(f"reward_{name}" for name in spec.deciders),
        *("answer", "reviewers"),
    ]


def decision_table(store: Store, policy: int, spec: PolicySpec) -> Iterator[list[Cell]]:
    """Yield a row of cells for each decision, perhaps with decisions made during the export.

    Args:
        store: Where they are.
        policy: Number of the policy.
        spec: Its settings: resources and deciders are columns.
    """
    start = 0
    while page := tasks_from(store.database, policy, start, PAGE):
        yield from (decision_row(listed, spec) for listed in page)
        start = page[-1].decision.id + 1


def decision_row(listed: ListedTask, spec: PolicySpec) -> list[Cell]:
    """Return the cells of a decision."""
    row = listed.decision
    said = msgspec.json.decode(bytes(row.reply), type=DecisionReply)
    held, cost = row.held or {}, row.cost or {}
    return [
        *(row.task, row.id, time_of(row.at), row.route, said.reason, said.propensity, row.state, row.final or ""),
        said.estimates[row.route] - said.estimates[MODEL],
        *by_resource(said.price, spec),
        *(amount_of(held.get(name)) for name in spec.resources),
        *(amount_of(cost.get(name)) for name in spec.resources),
        *(said.estimates[name] for name in spec.deciders),
        *(said.widths[name] for name in spec.deciders),
        *(row.rewards.get(name) for name in spec.deciders),
        answer_text(from_json_column(row.answer)),
        "; ".join(listed.reviewers),
    ]


def by_resource(amount: float | dict[str, float], spec: PolicySpec) -> list[Cell]:
    """Return an amount of each resource."""
    return [amount[name] for name in spec.resources] if isinstance(amount, dict) else [amount]


def answer_text(answer: Any) -> str:
    """Return an answer as text: as it is, or as JSON."""
    return answer if isinstance(answer, str) else "" if answer is None else msgspec.json.encode(answer).decode()


HEADER = [
    *("seq", "at", "kind", "task", "resource"),
    *("held", "released", "cost", "granted", "lapsed"),  # what the record moves
    *("total", "reserved", "posted", "suspense", "free"),  # where the account stands after it
]


class Movement(NamedTuple):
    """What a record moves of one resource, in micro-units."""

    held: int = 0
    released: int = 0
    cost: int = 0  # below 0 where a correction takes some back
    granted: int = 0  # to the total, from the start, by a renewal or a top-up; below 0 where it was cut
    lapsed: int = 0  # of the total, at a renewal


def ledger_table(store: Store, policy: int) -> Iterator[list[Cell]]:
    """Yield a row of cells for each record that moves money, and each resource that it moves.

    The sum of `held` without that of `released` is what is reserved; the sum of `cost` is what is posted or in
    suspense; the sum of `granted` without that of `lapsed` is the total.

    Args:
        store: Where the log is.
        policy: Number of the policy.
    """
    accounts: dict[str, Account] = {}
    start = 0
    while page := store.log_page(policy, start, PAGE):
        for line in page:
            record = records.decode(bytes(line.body))
            after = (
                open_accounts(record.spec)
                if isinstance(record, records.CreatedRecord)
                else book_record(accounts, record)
            )
            for name, account in after.items():
                moved = movement_of(record, name)
                before = accounts.get(name, Account(0))
                moved = moved._replace(granted=(account.total or 0) - (before.total or 0) + moved.lapsed)
                if account != accounts.get(name) or any(moved):
                    yield ledger_row(line, name, moved, account)
            accounts = after
        start = page[-1].seq + 1


def movement_of(record: AnyRecord, resource: str) -> Movement:  # noqa: PLR0911  one for each kind
    """Return the movement of a resource by a record, except its grant: that is the difference of two totals."""
    match record:
        case records.DecidedRecord(held=held) if held is not None:
            return Movement(held=held.get(resource, 0))
        case records.ExtendedRecord(amount=amount):
            return Movement(held=amount.get(resource, 0))
        case records.ObservedRecord(cost=cost, released=released) if cost is not None:
            return Movement(released=(released or {}).get(resource, 0), cost=cost.get(resource, 0))
        case records.ExpiredRecord(released=released):
            return Movement(released=released.get(resource, 0))
        case records.CorrectedRecord(cost=cost, was=was) if cost is not None and was is not None:
            return Movement(cost=cost.get(resource, 0) - was.get(resource, 0))
        case records.EffortRecord(cost=cost):
            return Movement(cost=cost.get(resource, 0))
        case records.RenewedRecord(resource=name) if name == resource:
            return Movement(lapsed=record.lapsed + record.passed_lapsed)
        case _:
            return Movement()


def ledger_row(line: LogRow, resource: str, moved: Movement, account: Account) -> list[Cell]:
    """Return the cells of a record's movement."""
    known = (account.total, account.reserved, account.posted, account.suspense, account.free)
    return [
        *(line.seq, time_of(line.at), line.kind, line.task, resource),
        *(amount_of(micro) for micro in (*moved, *known)),
    ]
