"""The login page in a real browser: keys become sessions, scopes decide which pages there are."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

import deferkit
from deferkit import Budget
from deferkit.serve.http import auth
from tests.serve.harness.in_process import Running, running
from tests.serve.web.reviewing import CHOICE, TIMER, all_sent, answer, seats_of, send, task_of
from tests.serve.web.watched_pages import Troubles, accessibility_faults, watched

pytestmark = pytest.mark.browser


@pytest.fixture(autouse=True)
def known_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is made in a test is known at once."""
    monkeypatch.setattr(auth, "NEW_S", -1.0)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service with keys and a policy."""
    with running(tmp_path_factory.mktemp("login"), tenants=True, rate=0) as service:
        with sender(service) as client:
            review = {"form": [CHOICE], "timer": TIMER, "reward_rule": {"kind": "match"}}
            client.create(features=1, budget={"minutes": Budget(100, horizon=1000, max_cost=1)}, review=review)
        yield service


def sender(service: Running) -> deferkit.Client:
    """Return a client that sends tasks."""
    return deferkit.Client(service.url, policy="mails", key=service.key("acme"))


def test_a_reviewer_logs_in_answers_and_logs_out(browser: Browser, service: Running) -> None:
    key = service.key("acme", "review")
    context = browser.new_context()
    page = context.new_page()
    troubles = Troubles()
    troubles.watch(page, service.url)
    with sender(service) as client:
        [task] = send(client, "one")
        page.goto(f"{service.url}/review/mails")
        page.get_by_label("Key").fill("dk_wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("key")
        page.get_by_label("Key").fill(key)
        page.get_by_label("Your name as a reviewer").fill("ann")
        page.keyboard.press("Enter")
        assert task_of(page) == task, "back at the page that asked for a login"
        expect(page.get_by_role("navigation").get_by_role("link")).to_have_text(["Review"])
        answer(page, "2")
        all_sent(page)
        assert seats_of(client, task)[0]["reviewer"] == "ann"
    page.goto(f"{service.url}/console")
    expect(page.get_by_role("heading", name="This key does not open this page")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    page.goto(f"{service.url}/review/mails")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    assert [each for each in troubles if "status of 401" not in each] == []
    context.close()


def test_a_key_that_is_revoked_ends_the_page_and_keeps_its_answers(browser: Browser, service: Running) -> None:
    key = service.key("acme", "review")
    admin = service.client("acme")
    context = browser.new_context()
    entered = context.request.post(f"{service.url}/v1/session", data={"key": key, "reviewer": "bo"})
    assert entered.status == 201
    page = context.new_page()
    with sender(service) as client:
        [task] = send(client, "two", start=10)
        page.goto(f"{service.url}/review/mails")
        assert task_of(page) == task
        assert admin.post("/v1/keys/revoke", {"id": key.split("_")[1]}).status == 200
        page.keyboard.press("3")
        expect(page.get_by_role("heading", name="Log in")).to_be_visible(timeout=20_000)
        page.get_by_label("Key").fill(service.key("acme", "review"))
        page.get_by_label("Your name as a reviewer").fill("bo")
        page.keyboard.press("Enter")
        page.wait_for_url("**/review/mails")
        all_sent(page)
        assert seats_of(client, task)[0]["answer"] == {"label": "abusive"}
    context.close()


def test_a_key_without_a_name_asks_for_one(browser: Browser, service: Running) -> None:
    with watched(browser, service.url, key=service.key("acme")) as page:
        page.goto(f"{service.url}/review/mails")
        page.get_by_role("link", name="Log in with a name").click()
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_the_login_page_in_every_look(browser: Browser, service: Running, width: int, colours: str) -> None:
    look: dict[str, Any] = {"viewport": {"width": width, "height": 800}, "color_scheme": colours}
    with watched(browser, service.url, **look) as page:
        page.goto(f"{service.url}/console/login?next=https://example.org")
        page.get_by_label("Key").wait_for()
        assert accessibility_faults(page) == []
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        page.get_by_label("Key").fill(service.key("acme"))
        page.keyboard.press("Enter")
        page.wait_for_url(f"{service.url}/console")  # never to another site
