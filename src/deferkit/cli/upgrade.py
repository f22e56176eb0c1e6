"""`deferkit upgrade`: give a policy of a service another version of the default rule, after a comparison."""

import asyncio
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deferkit.cli.app import Store, app, console, store_path
from deferkit.cli.output import bar, plain_table, show_whole
from deferkit.cli.replay import amount, value, what_if_data
from deferkit.client.client import Client
from deferkit.errors import DeferkitError, InvalidArgument

if TYPE_CHECKING:
    from deferkit.serve.api.policies import UpgradeBody
    from deferkit.serve.audit.counterfactual.what_if import WhatIf
    from deferkit.serve.domain.spec import PolicySpec
    from deferkit.serve.storage.store import Store as LogStore


@app.command()
def upgrade(
    policy: Annotated[str, typer.Argument(help="The name of the policy")],
    store: Store = None,
    tenant: Annotated[str, typer.Option(help="Whose policy it is")] = "default",
    defaults: Annotated[str, typer.Option(help="The version of the default rule")] = "2026.12",
    confidence: Annotated[
        str | None, typer.Option(help="The feature that is the model's own confidence: a name, or an index")
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Switch the policy; without it, only compare")] = False,
    service: Annotated[
        str | None, typer.Option(help="The URL of the running service that owns the policy, for --apply")
    ] = None,
    key: Annotated[str | None, typer.Option(help="A key of it with the scope admin", envvar="DEFERKIT_KEY")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables")] = False,
) -> None:
    """Compare the default rule of a policy with another version of it, and switch to that with --apply.

    The log is replayed with both rules: nothing is written, and a service may be running. With --apply the policy is
    rebuilt from its log with the other rule, and its log has a record of that. --defaults 2026.11 undoes it.
    """
    import msgspec  # noqa: PLC0415 - needs the extra

    from deferkit.serve.api.policies import UpgradeBody  # noqa: PLC0415
    from deferkit.serve.storage.open_store import store_to_replay  # noqa: PLC0415

    feature = int(confidence) if confidence is not None and confidence.isdecimal() else confidence
    given = {"defaults": defaults} | ({} if feature is None else {"confidence": feature})
    try:
        body = msgspec.convert(given, UpgradeBody)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"{error}.") from error
    path = store_path(store)
    with store_to_replay(path) as kept:
        before, after, found = compare(kept, tenant, policy, body)
    data: dict[str, Any] = {"policy": policy, "tenant": tenant, "before": before.defaults_used, "after": defaults}
    if isinstance(found, str):
        data["remarks"] = [found]
    else:
        data |= what_if_data(found) | {"equal_routes": equal_routes(found)}
    if not as_json:
        show(before, after, found)
    data["applied"] = apply and before != after
    if data["applied"]:
        if service is not None:
            with Client(service, policy=policy, key=key) as client:
                client.upgrade(defaults, confidence=feature)
        else:
            asyncio.run(upgrade_in_store(path, tenant, policy, body))
    if as_json:
        typer.echo(json.dumps(data, indent=2))
    elif data["applied"]:
        console.print(f"The policy has the rule {defaults} from now on.")


def compare(
    kept: "LogStore", tenant: str, name: str, body: "UpgradeBody"
) -> "tuple[PolicySpec, PolicySpec, WhatIf | str]":
    """Return a policy before and after an upgrade, and its log replayed with both; a sentence if that is impossible."""
    from deferkit.serve.audit.counterfactual.estimate import DecisionLog  # noqa: PLC0415
    from deferkit.serve.audit.counterfactual.scenario import Scenario, logged_budgets  # noqa: PLC0415
    from deferkit.serve.audit.counterfactual.what_if import what_if  # noqa: PLC0415
    from deferkit.serve.audit.replay import logged_records, replay  # noqa: PLC0415
    from deferkit.serve.domain.policy_learner import upgraded_spec  # noqa: PLC0415
    from deferkit.serve.domain.records import AnyRecord, CreatedRecord  # noqa: PLC0415

    decision_log, created = DecisionLog(), []

    def watch(record: AnyRecord) -> None:
        decision_log.see(record)
        if isinstance(record, CreatedRecord):
            created.append(record.spec)

    with bar() as progress:
        job = progress.add_task("rows", total=None)
        advance = lambda rows: progress.advance(job, rows)  # noqa: E731
        report = replay(kept, tenant, name, started=lambda rows: progress.update(job, total=2 * rows), watch=watch)
        policy = report.policy
        if policy is None or report.faults:
            raise DeferkitError(f"The log of the policy is not what was written: {' '.join(report.faults)}")
        spec = upgraded_spec(created[0], policy.spec, body.defaults, body.confidence)
        try:
            logged = logged_budgets(policy.spec, policy.accounts)
        except InvalidArgument as error:  # reviews can be stopped
            return policy.spec, spec, str(error)
        scenarios = [
            Scenario(text, logged, logged, learning)
            for text, learning in ((f"rule {policy.spec.defaults_used}", policy.spec), (f"rule {body.defaults}", spec))
        ]
        log = logged_records(kept, report.row)
        return policy.spec, spec, what_if(log, policy, decision_log, scenarios, progress=advance)


def equal_routes(found: "WhatIf") -> float | None:
    """Return the share of tasks that both rules give to the same decider; None if there are no tasks."""
    first, second = found.routes
    return sum(a == b for a, b in zip(first, second, strict=True)) / len(first) if first else None


def show(before: "PolicySpec", after: "PolicySpec", found: "WhatIf | str") -> None:
    """Print the settings that change, and what both rules would have done with the log."""
    from deferkit.serve.domain.spec import LEARNING_SETTINGS  # noqa: PLC0415

    settings = [name for name in LEARNING_SETTINGS if getattr(before, name) != getattr(after, name)]
    if not settings:
        console.print("The policy has this rule already.")
        return
    for name in settings:
        console.print(f"{name}: {getattr(before, name)} → {getattr(after, name)}", markup=False)
    if isinstance(found, str):
        console.print(found, markup=False, soft_wrap=True)
        return
    table = plain_table(
        f"What each rule would have done with these {found.decisions:,} tasks",
        ("rule",),
        ("asked %", "spent", "reward a task", "difference"),
    )
    for row in found.rows:
        difference = "" if row is found.rows[0] else value(row.difference, sign="+")
        table.add_row(row.budget, f"{100 * row.asked:.1f}", amount(row.spent), value(row.reward), difference)
    console.print()
    show_whole(table)
    if (share := equal_routes(found)) is not None:
        console.print(f"Both rules give {100 * share:.1f} % of the tasks to the same decider.")
    console.print(f"reward – {found.basis}", markup=False)
    for said in found.remarks:
        console.print(said, markup=False)


async def upgrade_in_store(path: str, tenant: str, name: str, body: "UpgradeBody") -> None:
    """Upgrade a policy in a store that no service owns: this process owns it meanwhile."""
    from deferkit.serve.engine.commands.relearn import upgrade_policy  # noqa: PLC0415
    from deferkit.serve.engine.engine import Elsewhere, Engine  # noqa: PLC0415
    from deferkit.serve.storage.open_store import database_of  # noqa: PLC0415
    from deferkit.serve.storage.store import Store as LogStore  # noqa: PLC0415

    engine = Engine(LogStore(database_of(path)))
    try:
        await engine.start()
    except DeferkitError as error:
        raise DeferkitError(f"{error} If a service is running, name it with --service.") from error
    try:
        await upgrade_policy(engine, (tenant, name), body)
    except Elsewhere as error:
        raise DeferkitError("A running service owns the policy: name it with --service.") from error
    finally:
        await engine.stop()
