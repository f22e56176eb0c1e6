"""Views of the demo: a live view in the terminal, and the console in the browser."""

import shlex
import socket
import time

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from deferkit.cli.app import console
from deferkit.cli.demo.service_process import ServiceProcess
from deferkit.cli.demo.simulation import SimulatedUsers, Simulation
from deferkit.cli.demo.tasks import Comments
from deferkit.client.summary import PolicySummary
from deferkit.types import MODEL, Decision

BAR = 30  # characters
POSTED, RESERVED, FREE = ("green", "━"), ("yellow", "━"), ("bright_black", "─")
READ_S = 2.0  # an explanation stays for as long
EARLY = 0.05  # of the tasks: before it a share of what is possible says nothing


class View:
    """Turns what the service and the users say into something to read."""

    look_s, line_s = 0.25, 3.0  # between two looks, and between two lines where there is no terminal
    stays_open = False

    def __init__(self, users: SimulatedUsers[Simulation], url: str, reviewers: int) -> None:
        self.users = users
        simulation = users.simulation
        remark = f" ({simulation.stream.remark})" if simulation.stream.remark else ""
        self.title = f"{simulation.world}{remark}: {simulation.n_tasks:,} tasks, {reviewers} simulated reviewers"
        self.about = f"The model decides for nothing, people for {simulation.unit}s. The service: {url}"
        self._why: list[Decision] = []
        self._since = 0.0

    def live(self, summary: PolicySummary) -> RenderableType:
        """Return the live view."""
        simulation = self.users.simulation
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column()
        decided = self.users.decided
        done = bar([(decided, POSTED), (simulation.n_tasks - decided, FREE)])
        grid.add_row("tasks", done.append(f"  {decided:,} of {simulation.n_tasks:,}, {self.users.rate():.0f}/s"))
        grid.add_row("routes", routes(summary))
        if isinstance(summary.total, float) and summary.total < float("inf"):
            parts = ((summary.spent, POSTED), (summary.reserved, RESERVED), (summary.left, FREE))
            grid.add_row("budget", bar([(float(size), style) for size, style in parts]))  # type: ignore[arg-type]
        grid.add_row("", colour_words(money(summary, simulation.unit)))
        for day in days(summary, simulation.unit):
            grid.add_row("day", day)
        grid.add_row("price", self.price(summary))
        grid.add_row("queue", queue(summary))
        grid.add_row("outcomes", f"{self.users.told:,} of the model, {self.users.reviewed:,} of people")
        grid.add_row("gain", self.gain())
        head = Text(self.title, style="bold"), Text(self.about, style="bright_black")
        return Group(*head, Text(), grid, Text(), *self.explanations())

    def line(self, summary: PolicySummary) -> str:
        """Return the same in one line."""
        users = self.users
        return (
            f"{time.monotonic() - users.began:3.0f} s: {users.decided:,} tasks, {users.rate():.0f}/s,"
            f" {100 * summary.deferral_rate:.1f} % deferred, {money(summary, users.simulation.unit)},"
            f"{''.join(f' {day},' for day in days(summary, users.simulation.unit))}"
            f" price {summary.price:.3g}, {queue(summary)}, gain {self.gain()}"
        )

    def gain(self) -> str:
        """Return the gain from asking people, and the possible gain, as text."""
        users, simulation = self.users, self.users.simulation
        possible = float(simulation.possible[users.decided - 1]) if users.decided else 0.0
        early = users.decided < EARLY * simulation.n_tasks
        share = f" ({100 * users.gain / possible:.0f} %)" if possible > 0 and not early else ""
        return f"{users.gain:+.1f} {simulation.gained_in} over the model alone, of {possible:.1f} possible{share}"

    def price(self, summary: PolicySummary) -> str:
        """Return the price of one unit of budget, as text."""
        simulation = self.users.simulation
        return f"one {simulation.unit} must bring {summary.price:.3g} {simulation.gained_in}"

    def explanations(self) -> list[Text]:
        """Return explanations of the latest decision of each route; they stay long enough to be read."""
        if time.monotonic() - self._since > READ_S:
            self._why, self._since = list(self.users.latest.values()), time.monotonic()
        return [Text(decision.explain(), style="cyan" if decision.route != MODEL else "") for decision in self._why]

    def result(self, summary: PolicySummary, seconds: float) -> Table:
        """Return the table at the end."""
        users, simulation = self.users, self.users.simulation
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(style="bold", no_wrap=True)
        table.add_column()
        table.add_row("decisions", f"{summary.decisions:,} in {seconds:.0f} s; {routes(summary)}")
        table.add_row("budget", money(summary, simulation.unit))
        reported = users.reported_micros / 1_000_000
        same = "exactly what is posted" if reported == summary.spent else f"but {summary.spent} is posted"
        table.add_row("reviewers", f"{users.reviewed:,} answers, {reported:,.6f} {simulation.unit}s reported: {same}")
        table.add_row("queue", queue(summary))
        table.add_row("outcomes", f"{summary.outcomes:,} in all, {summary.late:,} of them too late to learn from")
        table.add_row("price", f"{self.price(summary)}, at the end")
        table.add_row("gain", self.gain())
        table.add_row("", "(possible: by the best rule that knows the tasks and keeps the budget on average)")
        return table


def bar(parts: list[tuple[float, tuple[str, str]]]) -> Text:
    """Return sizes side by side.

    >>> bar([(1.0, ("green", "#")), (2.0, ("red", "."))]).plain
    '##########....................'
    """
    whole = sum(size for size, _ in parts) or 1.0
    text, at, place = Text(), 0.0, 0
    for size, (colour, mark) in parts:
        at += size
        until = round(BAR * at / whole)
        text.append(mark * (until - place), style=colour)
        place = until
    return text


def routes(summary: PolicySummary) -> str:
    """Return the number of decisions by decider, as text."""
    each = ", ".join(f"{name} {n:,}" for name, n in summary.routes.items())
    return f"{each}: {100 * summary.deferral_rate:.1f} % deferred"


def money(summary: PolicySummary, unit: str) -> str:
    """Return the posted, reserved and free budget, as text."""
    if summary.total == float("inf"):
        return f"{summary.spent:,.2f} {unit}s posted, {summary.reserved:,.2f} reserved; no limit"
    return (
        f"{summary.spent:,.2f} posted + {summary.reserved:,.2f} reserved + {summary.left:,.2f} free"
        f" = {summary.total:,.2f} {unit}s"
    )


def days(summary: PolicySummary, unit: str) -> list[str]:
    """Return a line on the current day of each renewing budget; an empty list for other budgets."""
    return [
        f"today {period.spent:,.2f} of {period.total:,.2f} {unit}s spent, tomorrow in {period.end - time.time():.0f} s"
        for period in summary.periods.values()
    ]


def colour_words(text: str) -> Text:
    """Return the words in the colours of the bar."""
    shown = Text(text)
    for word, (colour, _) in (("posted", POSTED), ("reserved", RESERVED), ("free", FREE)):
        shown.highlight_words([word], style=colour)
    return shown


def queue(summary: PolicySummary) -> str:
    """Return the state of the review queue, as text."""
    if summary.oldest_s is None:
        return "nobody waits"
    return f"{summary.waiting} wait, {summary.claimed} with reviewers, the oldest for {summary.oldest_s:.1f} s"


def next_steps(store: str | None, policy: str, task: str, *, limited: bool = True) -> list[tuple[str, str]]:
    """Return commands to try, and what each is for.

    >>> [command for command, _ in next_steps(None, "demo", "task-00017")][:1]
    ['deferkit demo --store demo.db']
    """
    kept = shlex.quote(store or "demo.db")
    base = f"http://127.0.0.1:8080/v1/policies/{policy}"
    steps = [] if store else [("deferkit demo --store demo.db", "play again and keep the file")]
    return [
        *steps,
        (f"deferkit replay {policy} --store {kept}", "is the log whole, and is everything what it says?"),
        *(
            [(f"deferkit replay {policy} --store {kept} --budget 2x", "what twice the budget would do")]
            if limited
            else []
        ),
        (f"deferkit serve --store {kept}", "go on with it; then, in another terminal:"),
        (f"curl -s {base}/summary", "where it stands"),
        (f"curl -s '{base}/decisions?task={task}'", "one task: who decided, why, what became of it"),
    ]


PORT = 8080  # if nobody else has it
TASKS, BUDGET = 20_000, "20%"
FIRST, FIRST_A_SECOND, A_SECOND = 300, 20, 4  # tasks that come quickly, so that there is something to see; then
SEATS = 5  # that simulated reviewers leave
LATE_S = (0.5, 4.0)


def schedule(place: int) -> float:
    """Return the arrival of a task, in seconds after the start.

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
    console.print(f"  review a comment  {url}/review/{policy}", soft_wrap=True)
    console.print(f"  the dashboard     {url}/console", soft_wrap=True)
    if keyed:
        console.print("\nLog in with the key that you gave, and any name.")
    console.print(f"\n{reviewers} simulated people review as well and leave {SEATS} tasks for you. Ctrl-C stops it.")


class ConsoleView:
    """Progress of the demo in one line, beside the pages in the browser."""

    look_s, line_s = 0.5, 10.0
    stays_open = True

    def __init__(self, users: SimulatedUsers[Comments]) -> None:
        self.users = users

    def live(self, summary: PolicySummary) -> RenderableType:
        """Return the live view."""
        return Text(self.line(summary), style="bright_black")

    def line(self, summary: PolicySummary) -> str:
        """Return the same without colours."""
        return (
            f"{summary.decisions:,} comments, {100 * summary.deferral_rate:.0f} % deferred, {money(summary, 'minute')};"
            f" {queue(summary)}; simulated people have answered {self.users.reviewed:,}"
        )


def watch(service: ServiceProcess, view: View | ConsoleView, seconds: float) -> bool:
    """Show progress until all is done or time is up; return whether somebody has pressed Ctrl-C.

    A view that stays open goes on when all is done.
    """
    users = view.users
    end = users.began + seconds
    told = time.monotonic() if view.stays_open else 0.0
    try:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            while time.monotonic() < end:
                service.check()
                if users.failure is not None:
                    raise users.failure
                summary = users.client.summary()
                if console.is_terminal:
                    live.update(view.live(summary), refresh=True)
                elif time.monotonic() - told >= view.line_s:
                    told = time.monotonic()
                    console.print(view.line(summary), soft_wrap=True)
                if not view.stays_open and users.is_done(summary.waiting + summary.claimed):
                    return False
                time.sleep(view.look_s)
    except KeyboardInterrupt:
        return True
    return False
