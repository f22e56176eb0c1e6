"""`deferkit bridge`: carry tasks for experts to other people's review tools, and their answers back."""

import logging
import sys
from contextlib import ExitStack
from typing import Annotated

import typer

from deferkit.cli.app import app, console
from deferkit.client.calls import Calls
from deferkit.client.client import Client
from deferkit.errors import InvalidArgument, ServiceError, ServiceUnavailable

bridge = typer.Typer(help="Review tools of others: Label Studio.", no_args_is_help=True)
app.add_typer(bridge, name="bridge")


@bridge.callback()
def bridges() -> None:
    """Carry tasks for experts to other people's review tools, and their answers back."""


@bridge.command("label-studio")
def label_studio(
    url: Annotated[str, typer.Option(help="Where Label Studio is", envvar="LABEL_STUDIO_URL")],
    project: Annotated[int, typer.Option(help="The number of its project", min=1)],
    token: Annotated[
        str, typer.Option(help="A token of Label Studio, legacy or personal", envvar="LABEL_STUDIO_API_KEY")
    ],
    policy: Annotated[str | None, typer.Option(help="The policy; not needed where there is one")] = None,
    service: Annotated[str, typer.Option(help="Where the decision service is")] = "http://127.0.0.1:8080",
    key: Annotated[
        str | None,
        typer.Option(help="A key of the service, made with --scopes review --reviewer", envvar="DEFERKIT_KEY"),
    ] = None,
    reviewer: Annotated[str, typer.Option(help="Who answers, as the service knows it")] = "label-studio",
    expert: Annotated[list[str] | None, typer.Option(help="Whom annotators stand for; all experts")] = None,
    at_most: Annotated[int, typer.Option(help="Tasks in Label Studio at a time", min=1, max=10_000)] = 100,
    lease_s: Annotated[
        float, typer.Option(help="Seconds after which others may take what a stopped bridge holds", min=1)
    ] = 3600.0,
    unit_s: Annotated[
        float | None, typer.Option(help="Seconds of lead time for a unit of the budget; the policy's timer, or 60")
    ] = None,
    poll_s: Annotated[float, typer.Option(help="Seconds between two looks", min=0.1)] = 10.0,
    listen: Annotated[str | None, typer.Option(help="HOST:PORT for webhooks of Label Studio")] = None,
    webhook_url: Annotated[
        str | None, typer.Option(help="Where Label Studio reaches that address; makes the webhook if it is not there")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Look once, and end")] = False,
) -> None:
    """Have tasks for experts annotated in a project of Label Studio; an annotation's lead time is its cost.

    It can be stopped and killed at any time: what it has begun, the next start goes on with.
    """
    from deferkit.connectors.label_studio import LabelStudioBridge, WakeUpServer  # noqa: PLC0415
    from deferkit.connectors.label_studio_api import LabelStudio  # noqa: PLC0415

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("deferkit.bridge").setLevel(logging.INFO)
    with ExitStack() as stack:
        client = stack.enter_context(Client(service, policy=policy or only_policy(service, key), key=key))
        studio = stack.enter_context(LabelStudio(url, token=token, project=project))
        made = LabelStudioBridge(
            client, studio, reviewer=reviewer, experts=expert, at_most=at_most, lease_s=lease_s, unit_s=unit_s
        )
        if once:
            done = made.step()
            console.print(", ".join(f"{name} {n}" for name, n in done._asdict().items()))
            return
        wake = None
        if listen is not None:
            server = stack.enter_context(WakeUpServer(*address_of(listen)))
            wake = server.wake
            try:
                studio.call_on_annotations(webhook_url or server.url)
            except ServiceUnavailable:
                raise
            except ServiceError as error:  # it works without, a little later
                logging.getLogger("deferkit.bridge").warning("%s Annotations are seen every %g s.", error, poll_s)
        elif webhook_url is not None:
            raise InvalidArgument("--webhook-url needs --listen HOST:PORT, where the webhooks come in.")
        console.print(f"{client.policy} ↔ project {project} at {studio.url}", soft_wrap=True)
        made.run(poll_s=poll_s, wake=wake)


def only_policy(service: str, key: str | None) -> str:
    """Return the name of the only policy; raise if there are others, or none."""
    calls = Calls(service, key=key, timeout_s=10.0, total_s=60.0, context=None)
    names = [each["name"] for each in calls.call("GET", "/v1/policies")["policies"]]
    calls.close()
    if len(names) != 1:
        raise InvalidArgument(f"Which policy? --policy, one of {', '.join(names)}." if names else "There is no policy.")
    return str(names[0])


def address_of(text: str) -> tuple[str, int]:
    """Return host and port of an address.

    >>> address_of("127.0.0.1:9100")
    ('127.0.0.1', 9100)
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise InvalidArgument(f"--listen is an address like 127.0.0.1:9100. Got {text!r}.")
    return host, int(port)
