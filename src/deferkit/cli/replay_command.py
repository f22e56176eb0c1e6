"""`deferkit replay`: is the log whole, does everything else say the same, and what would another budget have done?"""

import json
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from deferkit.cli.app import app, aside, console
from deferkit.cli.progress import bar
from deferkit.cli.store_option import Store
from deferkit.cli.what_if_table import show_what_if, what_if_data

if TYPE_CHECKING:
    from deferkit.serve.audit.counterfactual.logged_decisions import DecisionLog
    from deferkit.serve.audit.counterfactual.what_if import WhatIf
    from deferkit.serve.audit.replay import Report
    from deferkit.serve.domain.policy import Policy
    from deferkit.serve.storage.store import Store as LogStore

BROKEN = 1


@app.command()
def replay(
    policy: Annotated[str, typer.Argument(help="The name of the policy")],
    store: Store = None,
    tenant: Annotated[str, typer.Option(help="Whose policy it is")] = "default",
    budget: Annotated[
        list[str] | None,
        typer.Option(
            help="What would another budget have done? 500, 2x, 50%, inf; by resource minutes=500,euros=2x; any number"
            " of times"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables")] = False,
) -> None:
    """Rebuild a policy from its log, and compare with what the database says of it.

    Nothing is written; a service may be running. The exit code is 1 if the log was changed, or if budgets, settings,
    snapshots or decisions are not what it says. With --budget, a fresh policy with that budget goes
    through the log as well.
    """
    import msgspec  # noqa: PLC0415 - needs the extra

    from deferkit.serve.audit.counterfactual.logged_decisions import DecisionLog  # noqa: PLC0415
    from deferkit.serve.audit.counterfactual.scenario import logged_budgets, scenario_of  # noqa: PLC0415
    from deferkit.serve.audit.replay import find  # noqa: PLC0415
    from deferkit.serve.audit.replay import replay as rebuild  # noqa: PLC0415
    from deferkit.serve.domain.policy_spec import PolicySpec  # noqa: PLC0415
    from deferkit.serve.service_settings import ServiceSettings  # noqa: PLC0415
    from deferkit.serve.storage.open_store import store_to_replay  # noqa: PLC0415

    decision_log = DecisionLog()
    with store_to_replay(ServiceSettings.read(os.environ, store=store).store) as kept:
        if budget:  # a mistake is told before anything takes long
            row, accounts = find(kept, tenant, policy)
            logged = logged_budgets(msgspec.json.decode(row.spec, type=PolicySpec), accounts)
            for text in budget:
                scenario_of(text, logged)
        with bar() as progress:
            job = progress.add_task("rows", total=None)
            report = rebuild(
                kept,
                tenant,
                policy,
                started=lambda rows: progress.update(job, total=rows),
                progress=lambda rows: progress.advance(job, rows),
                watch=decision_log.see if budget else lambda _: None,
            )
        found = None
        if budget and report.policy is not None:
            found = others(kept, report, report.policy, decision_log, budget)
    if as_json:
        data = as_data(report) | ({} if found is None else {"what_if": what_if_data(found)})
        typer.echo(json.dumps(data, indent=2))
    else:
        show(report)
        if found is not None:
            show_what_if(found)
    for remark in report.remarks:
        aside.print("warning:", style="yellow", end=" ")
        aside.print(remark, markup=False, highlight=False, soft_wrap=True)
    for fault in report.faults:
        aside.print("error:", style="red", end=" ")
        aside.print(fault, markup=False, highlight=False, soft_wrap=True)
    if report.faults:
        raise typer.Exit(BROKEN)


def others(
    kept: "LogStore", report: "Report", policy: "Policy", decision_log: "DecisionLog", budgets: list[str]
) -> "WhatIf":
    """Go through the log with other budgets."""
    from deferkit.serve.audit.counterfactual.scenario import logged_budgets, scenario_of  # noqa: PLC0415
    from deferkit.serve.audit.counterfactual.what_if import what_if  # noqa: PLC0415
    from deferkit.serve.audit.replay import logged_records  # noqa: PLC0415

    logged = logged_budgets(policy.spec, policy.accounts)
    scenarios = [scenario_of(text, logged) for text in dict.fromkeys(budgets)]
    with bar() as progress:
        job = progress.add_task("rows", total=report.rows)
        log = logged_records(kept, report.row)
        return what_if(log, policy, decision_log, scenarios, progress=lambda rows: progress.advance(job, rows))


def show(report: "Report") -> None:
    """Print what a replay came to."""
    if report.policy is not None:
        grid = Table.grid(padding=(0, 2, 0, 0))
        for name, text in facts(report, report.policy).items():
            grid.add_row(name, text)
        console.print(grid, highlight=False)
    if not report.faults:
        console.print("The log is whole; budgets, snapshots and decisions are what it says.", highlight=False)


def facts(report: "Report", policy: "Policy") -> dict[str, str]:
    """Return what is shown of a policy that was rebuilt."""
    from deferkit.serve.audit.replay import account_text  # noqa: PLC0415

    balance = {name: account_text(account) for name, account in policy.accounts.items()}
    return {
        "policy": f"{report.row.name} of {report.row.tenant}",
        "rows": f"{report.rows:,}",
        "decisions": f"{policy.counts().decisions:,}",
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
        "remarks": report.remarks,
        "rows": report.rows,
        "seconds": report.seconds,
    }
    if (policy := report.policy) is not None:
        data |= {
            "decisions": policy.counts().decisions,
            "outcomes": policy.tally.outcomes,
            "snapshots": report.snapshots,
            "balance": {
                name: {key: None if value is None else value / 1e6 for key, value in account._asdict().items()}
                for name, account in policy.accounts.items()
            },
            "head": policy.head.hex(),
        }
    return data
