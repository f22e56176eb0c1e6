"""A policy to be reviewed in a browser: tasks sent to it, a reviewer at its page, what the service has kept."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from playwright.sync_api import Browser, Page, expect

import deferkit
from deferkit import Budget
from tests.serve.web.watched_pages import Troubles

OPTIONS = ("fine", "spam", "abusive")
CHOICE = {
    "name": "label",
    "kind": "choice",
    "label": "What is it?",
    "options": [{"value": each, "label": each.capitalize()} for each in OPTIONS],
}
TIMER = {"resource": "minutes", "unit_s": 60}
WAIT_MS = 20_000
expect.set_options(timeout=WAIT_MS)
TITLE = "#task-title"
NO_CONNECTION = re.compile(r"net::ERR_(INTERNET_DISCONNECTED|CONNECTION_REFUSED|CONNECTION_RESET|EMPTY_RESPONSE)")


class Service(Protocol):
    """A running service."""

    @property
    def url(self) -> str:
        """Where it listens."""


def new_policy(service: Service, name: str, *, form: list[Any] | None = None, **given: Any) -> deferkit.Client:
    """Create a policy with a review form; return a client for it."""
    review = {"form": form or [CHOICE], "timer": TIMER, "reward_rule": {"kind": "match"}, **given.pop("review", {})}
    client = deferkit.Client(service.url, policy=name, total_s=60)
    budget = given.pop("budget", Budget(100, horizon=1000, max_cost=1))
    client.create(features=1, budget={"minutes": budget}, review=review, **given)
    return client


def send(client: deferkit.Client, *payloads: Any, model_answer: Any = "fine", start: int = 0) -> list[str]:
    """Have tasks with these payloads reviewed; return their ids."""
    tasks = [f"task-{number}" for number in range(start, start + len(payloads))]
    for task, payload in zip(tasks, payloads, strict=True):
        client.decide([1.0], task=task, payload=payload, model_answer=model_answer, force="human")
    return tasks


@contextmanager
def reviewing(
    browser: Browser,
    service: Service,
    policy: str,
    reviewer: str = "ann",
    *,
    allowed: str = "",
    clock: bool = False,
    **given: Any,
) -> Iterator[Page]:
    """Open the review page under a name; at the end nothing may have gone wrong but what is allowed.

    Args:
        browser: Chromium.
        service: Where the policy is.
        policy: Its name.
        reviewer: The name.
        allowed: A pattern of what may stand in the console.
        clock: Whether the clock of the page can be moved on.
        given: How the browser is to be: `viewport`, `color_scheme`.
    """
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | given)
    context.set_default_timeout(WAIT_MS)
    try:
        page = context.new_page()
        troubles = Troubles()
        troubles.watch(page, service.url)
        if clock:
            page.clock.install()
        page.goto(f"{service.url}/review/{policy}")
        page.get_by_label("Your name").fill(reviewer)
        page.keyboard.press("Enter")
        yield page
        assert [each for each in troubles if not allowed or not re.search(allowed, each)] == []
    finally:
        context.close()


def task_of(page: Page) -> str:
    """Wait for a task; return its id."""
    page.wait_for_selector(TITLE)
    return page.inner_text(TITLE)


def answer(page: Page, key: str) -> str:
    """Answer the task at the desk by a key; return its id once another one is there, or none."""
    task = task_of(page)
    page.keyboard.press(key)
    page.wait_for_function("before => document.querySelector('#task-title')?.textContent !== before", arg=task)
    return task


def all_sent(page: Page) -> None:
    """Wait until the service has acknowledged all answers."""
    page.wait_for_function(
        """() => Object.keys(localStorage).filter((key) => key.startsWith("deferkit.outbox."))
          .every((key) => JSON.parse(localStorage.getItem(key)).state === "sent")""",
        timeout=WAIT_MS,
    )


def seats_of(client: deferkit.Client, task: str) -> list[Mapping[str, Any]]:
    """Return the seats of a task, as the service has kept them."""
    seats: list[Mapping[str, Any]] = client.read(task)["seats"]
    return seats


def spent(client: deferkit.Client) -> float:
    """Return the minutes that are booked."""
    booked = client.summary().spent
    assert isinstance(booked, float)
    return booked


def cost_of(seat: Mapping[str, Any]) -> float:
    """Return the minutes of one answer."""
    cost = seat["cost"]
    return float(cost["minutes"] if isinstance(cost, dict) else cost)


def is_empty(page: Page) -> None:
    """Wait until the page says that no task waits."""
    expect(page.get_by_role("heading", name="No task waits for you")).to_be_visible(timeout=WAIT_MS)
