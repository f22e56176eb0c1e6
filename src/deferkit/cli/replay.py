"""`deferkit replay`: the log of a policy replayed, or under another budget."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from deferkit.cli.app import Store, app, aside, console, store_path
from deferkit.cli.output import bar, plain_table, show_whole
from deferkit.display import short

if TYPE_CHECKING:
    from deferkit.serve.audit.counterfactual.estimate import DecisionLog, Value
    from deferkit.serve.audit.counterfactual.what_if import Row, WhatIf
    from deferkit.serve.audit.replay import Report
    from deferkit.serve.domain.policy import Policy
    from deferkit.serve.storage.store import Store as LogStore


def show_what_if(found: "WhatIf") -> None:
    """Print a row for what was done and one for each other budget."""
    title = f"What another budget would have done with these {found.decisions:,} tasks"
    table = plain_table(title, ("budget",), ("asked %", "spent", "price", "reward a task", "difference"))
    for row in found.rows:
        table.add_row(
            name_of(row),
            f"{100 * row.asked:.1f}",
            amount(row.spent),
            amount(row.price),
            value(row.reward),
            "" if row is found.rows[0] else value(row.difference, sign="+"),
        )
    console.print()
    show_whole(table)
    console.print(f"reward – {found.basis}", markup=False)
    console.print("± standard error; price: the last one; difference: from what was done")
    for said in found.remarks:
        console.print(said, markup=False)


def name_of(row: "Row") -> str:
    """Return a budget as it was asked for, and what that is."""
    totals = {name: float("inf") if total is None else total for name, total in row.totals.items()}
    shown = amount(totals)
    between = "\n" if len(totals) > 1 else " "
    return shown if row.budget == shown else f"{shown}{between}({row.budget})"


def amount(given: float | Mapping[str, float]) -> str:
    r"""Return an amount that fits a column: a line for each resource, if there are several.

    >>> amount(12.346), amount({"minutes": 3.0, "euros": float("inf")})
    ('12.35', '3 minutes\ninf euros')
    """
    if not isinstance(given, Mapping):
        return f"{given:,.4g}" if abs(given) < 1000 else short(given, 0)
    if len(given) == 1:
        return amount(next(iter(given.values())))
    return "\n".join(f"{amount(each)} {name}" for name, each in given.items())


def value(given: "Value | None", sign: str = "") -> str:
    """Return a mean with its standard error; never minus nothing."""
    return "–" if given is None else f"{round(given.mean, 4) + 0.0:{sign}.4f} ± {given.se:.4f}"


def what_if_data(found: "WhatIf") -> dict[str, Any]:
    """Return it as plain data."""
    rows = []
    for row in found.rows:
        data = row._asdict()
        for name in ("reward", "difference"):
            given = data.pop(name)
            data[name], data[f"{name}_se"] = (None, None) if given is None else given
        rows.append(data)
    return {"decisions": found.decisions, "basis": found.basis, "rows": rows, "remarks": found.remarks}


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

    from deferkit.serve.audit.counterfactual.estimate import DecisionLog  # noqa: PLC0415
    from deferkit.serve.audit.counterfactual.scenario import logged_budgets, scenario_of  # noqa: PLC0415
    from deferkit.serve.audit.replay import find  # noqa: PLC0415
    from deferkit.serve.audit.replay import replay as rebuild  # noqa: PLC0415
    from deferkit.serve.domain.spec import PolicySpec  # noqa: PLC0415
    from deferkit.serve.storage.open_store import store_to_replay  # noqa: PLC0415

    decision_log = DecisionLog()
    with store_to_replay(store_path(store)) as kept:
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
        aside.print(remark, markup=False, soft_wrap=True)
    for fault in report.faults:
        aside.print("error:", style="red", end=" ")
        aside.print(fault, markup=False, soft_wrap=True)
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
        console.print(grid)
    if not report.faults:
        console.print("The log is whole; budgets, snapshots and decisions are what it says.")


def facts(report: "Report", policy: "Policy") -> dict[str, str]:
    """Return the figures of a rebuilt policy, by label."""
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
    """Return the result of a replay as plain data."""
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
