"""`deferkit replay`: is the log whole, and does everything else say the same?"""

import json
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from deferkit.cli.app import app, aside, console
from deferkit.cli.extras import needs_serve
from deferkit.cli.progress import bar
from deferkit.cli.serve import Store

if TYPE_CHECKING:
    from deferkit.serve.policy import Policy
    from deferkit.serve.replay import Report

BROKEN = 1


@app.command()
def replay(
    policy: Annotated[str, typer.Argument(help="The name of the policy")],
    store: Store = None,
    tenant: Annotated[str, typer.Option(help="Whose policy it is")] = "default",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables")] = False,
) -> None:
    """Rebuild a policy from its log, and compare with all that the database says of it.

    Nothing is written; a service may be running. The exit code is 1 if the log was changed, or if budgets, snapshots
    or decisions are not what it says.
    """
    needs_serve()
    from deferkit.serve.replay import replay as rebuild  # noqa: PLC0415
    from deferkit.serve.settings import Settings  # noqa: PLC0415
    from deferkit.serve.stores import store_to_read  # noqa: PLC0415

    kept = store_to_read(Settings.read(os.environ, store=store).store)
    try:
        with bar() as progress:
            job = progress.add_task("rows", total=None)
            report = rebuild(
                kept,
                tenant,
                policy,
                started=lambda rows: progress.update(job, total=rows),
                progress=lambda rows: progress.advance(job, rows),
            )
    finally:
        kept.close()
    show(report, as_json=as_json)
    if report.faults:
        raise typer.Exit(BROKEN)


def show(report: "Report", *, as_json: bool) -> None:
    """Print what a replay came to: a table of the facts, then each fault in a sentence."""
    if as_json:
        typer.echo(json.dumps(as_data(report), indent=2))
    elif report.policy is not None:
        grid = Table.grid(padding=(0, 2, 0, 0))
        for name, text in facts(report, report.policy).items():
            grid.add_row(name, text)
        console.print(grid, highlight=False)
    for fault in report.faults:
        aside.print("error:", style="red", end=" ")
        aside.print(fault, markup=False, highlight=False, soft_wrap=True)
    if not report.faults and not as_json:
        console.print("The log is whole; budgets, snapshots and decisions are what it says.", highlight=False)


def facts(report: "Report", policy: "Policy") -> dict[str, str]:
    """Return what is shown of a policy that was rebuilt."""
    from deferkit.serve.replay import said  # noqa: PLC0415

    balance = {name: said(account) for name, account in policy.accounts.items()}
    return {
        "policy": f"{report.row.name} of {report.row.tenant}",
        "rows": f"{report.rows:,}",
        "decisions": f"{policy.learner.summary().decisions:,}",
        "outcomes": f"{policy.tally.outcomes:,}",
        "snapshots": f"{report.snapshots} compared",
        **balance,
        "hash head": policy.head.hex(),
        "time": f"{report.seconds:.2f} s, {report.rows_per_second:,.0f} rows/s",
    }


def as_data(report: "Report") -> dict[str, Any]:
    """Return what a replay came to as plain data."""
    data: dict[str, Any] = {
        "policy": report.row.name,
        "tenant": report.row.tenant,
        "whole": not report.faults,
        "faults": report.faults,
        "rows": report.rows,
        "seconds": report.seconds,
    }
    if (policy := report.policy) is not None:
        data |= {
            "decisions": policy.learner.summary().decisions,
            "outcomes": policy.tally.outcomes,
            "snapshots": report.snapshots,
            "balance": {
                name: {key: None if value is None else value / 1e6 for key, value in account._asdict().items()}
                for name, account in policy.accounts.items()
            },
            "head": policy.head.hex(),
        }
    return data
