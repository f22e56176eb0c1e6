"""`deferkit demo --console`: the service keeps running, with a seat for whoever looks at its pages."""

import socket
import time

from rich.live import Live
from rich.text import Text

from deferkit.cli.app import console
from deferkit.cli.demo.comments import Comments
from deferkit.cli.demo.live_view import money, queue
from deferkit.cli.demo.service_process import ServiceProcess
from deferkit.cli.demo.simulated_users import SimulatedUsers
from deferkit.client.client import Client
from deferkit.client.summary import PolicySummary

PORT = 8080  # if nobody else has it
TASKS, BUDGET = 20_000, "20%"
FIRST, FIRST_A_SECOND, A_SECOND = 300, 20, 4  # tasks that come quickly, so that there is something to see; then
SEATS = 5  # that simulated reviewers leave
LATE_S = (0.5, 4.0)
LOOK_S, LINE_S = 0.5, 10.0


def schedule(place: int) -> float:
    """Return when a task comes, in seconds after the start.

    >>> schedule(300), schedule(302)
    (15.0, 15.5)
    """
    return min(place, FIRST) / FIRST_A_SECOND + max(0, place - FIRST) / A_SECOND


def free_port() -> int:
    """Return the usual port if it is free, else 0 for any."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PORT))
        except OSError:
            return 0
    return PORT


def introduce(url: str, policy: str, reviewers: int, *, keyed: bool) -> None:
    """Print where the pages are."""
    console.print(
        "[bold]The console is open.[/] Comments are moderated: a model decides, people read what it doubts.\n"
    )
    console.print(f"  review a comment  {url}/review/{policy}", highlight=False, soft_wrap=True)
    console.print(f"  the dashboard     {url}/console", highlight=False, soft_wrap=True)
    if keyed:
        console.print("\nLog in with the key that you gave, and any name.")
    console.print(
        f"\n{reviewers} simulated people review as well and leave {SEATS} tasks for you. Ctrl-C stops it.",
        highlight=False,
    )


def keep_open(service: ServiceProcess, client: Client, users: SimulatedUsers[Comments], seconds: float | None) -> None:
    """Show how it goes until Ctrl-C, or until the time is up."""
    end = float("inf") if seconds is None else users.began + seconds
    told = time.monotonic()
    try:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            while time.monotonic() < end:
                service.check()
                if users.failure is not None:
                    raise users.failure
                text = line(client.summary(), users)
                if console.is_terminal:
                    live.update(Text(text, style="bright_black"), refresh=True)
                elif time.monotonic() - told >= LINE_S:
                    told = time.monotonic()
                    console.print(text, highlight=False, soft_wrap=True)
                time.sleep(LOOK_S)
    except KeyboardInterrupt:
        console.print("Stopped.")


def line(summary: PolicySummary, users: SimulatedUsers[Comments]) -> str:
    """Return how it goes, in one line."""
    return (
        f"{summary.decisions:,} comments, {100 * summary.deferral_rate:.0f} % deferred, {money(summary, 'minute')};"
        f" {queue(summary)}; simulated people have answered {users.reviewed:,}"
    )
