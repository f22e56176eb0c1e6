"""Routes that export tables as CSV, in pieces: a long one is never in memory as a whole."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import cast

from litestar import Response, get
from litestar.response import Stream

from deferkit.serve.audit import ledger_table
from deferkit.serve.audit.csv_text import pieces
from deferkit.serve.audit.decision_table import decision_table, header_of
from deferkit.serve.http.route_support import AnyRequest, PolicyName, about, engine_of
from deferkit.serve.http.routes_queue import read_policy_row, spec_of

CSV = "text/csv"


async def in_threads(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield what an iterator yields that reads the database, one piece after the other, each in another thread."""
    while (part := await asyncio.to_thread(next, parts, None)) is not None:
        yield part


def table(parts: Iterator[bytes], name: str) -> Response[str]:
    """Return a table as a file to be saved."""
    headers = {"content-disposition": f'attachment; filename="{name}.csv"'}
    return cast("Response[str]", Stream(in_threads(parts), media_type=CSV, headers=headers))


@get("/v1/policies/{name:str}/export/decisions.csv", opt=about("tasks", "admin", "read"), media_type=CSV)
async def export_decisions(request: AnyRequest, name: PolicyName) -> Response[str]:
    """Export all decisions as CSV, the oldest first: why each was taken, and what became of it."""
    row, store = await read_policy_row(request, name, lambda _, row: row), engine_of(request).store
    spec = spec_of(row)
    return table(pieces(header_of(spec), decision_table(store, row.id, spec)), f"{name}-decisions")


@get("/v1/policies/{name:str}/export/ledger.csv", opt=about("tasks", "admin", "read"), media_type=CSV)
async def export_ledger(request: AnyRequest, name: PolicyName) -> Response[str]:
    """Export the ledger as CSV: what each record of the log holds, releases and costs, and the account after it."""
    row, store = await read_policy_row(request, name, lambda _, row: row), engine_of(request).store
    return table(pieces(ledger_table.HEADER, ledger_table.ledger_table(store, row.id)), f"{name}-ledger")


ROUTES = [export_decisions, export_ledger]
