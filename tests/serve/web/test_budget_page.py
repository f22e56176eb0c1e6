"""Budgets that renew or have an end, in a real browser: the plan on the picture, and the form that changes it."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.serve.harness.clients import Client, until
from tests.serve.harness.in_process import POLICY, Running, running
from tests.serve.web.test_dashboard import LOOKS
from tests.serve.web.watched_pages import Troubles, accessibility_faults, settled, watched

pytestmark = pytest.mark.browser

END = datetime(2036, 12, 31, 18, tzinfo=UTC).timestamp()
BUDGETS: dict[str, dict[str, Any]] = {
    "renews": {"minutes": {"total": 40, "every": "week", "zone": "Europe/Berlin", "max_cost": 2}},
    "ends": {"minutes": {"total": 40, "until": END, "max_cost": 2}},
    "lasts": {"minutes": {"total": 40, "horizon": 500, "max_cost": 2}},
    "both": {
        "minutes": {"total": 40, "every": "1d", "max_cost": 2},
        "euros": {"total": 90, "until": END, "max_cost": 5},
    },
    "free": {"minutes": {}},
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service with a policy for each kind of budget, each with a few reviews."""
    with running(tmp_path_factory.mktemp("budgets"), rate=0) as started:
        client = started.client()
        for name, budget in BUDGETS.items():
            policy = {"name": name, "features": 2, "budget": budget, "representation": "linear", "warm_up": 0}
            assert client.post("/v1/policies", policy).status == 201
            for number in range(8):
                path = f"/v1/policies/{name}"
                task = {"task": f"t{number}", "context": [1.0, number / 8], "force": "human"}
                assert client.post(f"{path}/decisions", task).status == 201
                cost = dict.fromkeys(budget, 1.5)
                assert client.post(f"{path}/outcomes", {"task": f"t{number}", "cost": cost}).status == 200
        yield started


def budget_of(client: Client, name: str, resource: str = "minutes") -> Any:
    return client.get(f"/v1/policies/{name}").json["budget"][resource]


def has_two_seconds(client: Client, name: str) -> bool:
    """Send another task; return whether a second has begun since the first one."""
    client.decide(str(time.time()), policy=name, force="model")
    return len(client.get(f"/v1/policies/{name}/series").json["start"]) > 1


def opened(page: Page, service: Running, name: str) -> None:
    settled(page, f"{service.url}/console/p/{name}", "Accounts")


@pytest.mark.parametrize("look", LOOKS)
def test_the_page_of_every_budget_opens(browser: Browser, service: Running, look: str) -> None:
    with watched(browser, service.url, **LOOKS[look]) as page:
        for name in BUDGETS:
            opened(page, service, name)
            expect(page.get_by_role("heading", name="Plan", exact=True)).to_have_count(0 if name == "free" else 1)
            assert accessibility_faults(page) == [], name
            assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"), name


def test_the_plan_is_on_the_picture_of_spending(browser: Browser, service: Running) -> None:
    with watched(browser, service.url) as page:
        for name in BUDGETS:
            until(partial(has_two_seconds, service.client(), name), "the chart has two points")
            settled(page, f"{service.url}/console/p/{name}", "Accounts")
            spending = page.locator("figure", has=page.get_by_role("heading", name="Spending against plan"))
            expect(spending.locator(".legend li", has_text="spent")).to_be_visible()
            line = spending.locator("path.line.dashed")
            expect(line).to_have_count(0 if name == "free" else 1)
            if name != "free":
                assert (line.get_attribute("d") or "").startswith("M"), name


def test_another_allowance_is_for_the_periods_to_come(browser: Browser, service: Running) -> None:
    client = service.client()
    with watched(browser, service.url) as page:
        opened(page, service, "renews")
        field, save = page.get_by_label("What each period gets, in minutes"), page.get_by_role("button", name="Save")
        expect(field).to_have_value("40")
        expect(save).to_be_disabled()
        field.fill("")
        expect(save).to_be_disabled()
        field.fill("55.5")
        save.click()
        expect(page.get_by_text("Saved", exact=True)).to_be_visible()
        assert budget_of(client, "renews")["total"] == 55.5
        assert client.get("/v1/policies/renews/summary").json["budget"]["minutes"]["period"]["total"] == 40


def test_a_plan_that_makes_no_sense_is_refused_beside_the_form(browser: Browser, service: Running) -> None:
    """Chromium writes a reply of 422 to its console: nothing else may be there."""
    context = browser.new_context()
    page, said = context.new_page(), Troubles()
    said.watch(page, service.url)
    for name, label, wrong, reason in (
        ("renews", "What each period gets, in minutes", "1", "what minutes gets in a period is 1"),
        ("ends", "When the budget of minutes ends", "2001-01-01T00:00", "would have ended on 2001-01-01 00:00 UTC"),
        ("lasts", "Number of tasks to plan the budget of minutes for", "0", "Expected `int` >= 1"),
    ):
        opened(page, service, name)
        before = budget_of(service.client(), name)
        page.get_by_label(label).fill(wrong)
        page.get_by_role("button", name="Save").click()
        form = page.locator("section", has=page.get_by_role("heading", name="Plan", exact=True))
        expect(form.get_by_role("alert")).to_contain_text(reason)
        assert accessibility_faults(page) == []
        page.get_by_role("button", name="Undo changes").click()
        expect(page.get_by_label(label)).not_to_have_value(wrong)
        assert budget_of(service.client(), name) == before
    assert [each for each in said if "422" not in each] == []
    context.close()


def test_another_end_is_that_of_the_clock_on_the_wall(browser: Browser, service: Running) -> None:
    with watched(browser, service.url, timezone_id="America/New_York") as page:
        opened(page, service, "ends")
        field = page.get_by_label("When the budget of minutes ends")
        expect(field).to_have_value("2036-12-31T13:00")
        field.fill("2037-07-01T08:30")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("Saved", exact=True)).to_be_visible()
        expect(page.get_by_text("It ends 1 Jul 2037, 08:30")).to_be_visible()
        expect(page.get_by_text("In the time zone America/New_York.")).to_be_visible()
    assert budget_of(service.client(), "ends")["until"] == datetime(2037, 7, 1, 12, 30, tzinfo=UTC).timestamp()


def test_another_horizon_and_only_what_was_edited(browser: Browser, service: Running) -> None:
    client = service.client()
    with watched(browser, service.url) as page:
        opened(page, service, "lasts")
        page.get_by_label("Number of tasks to plan the budget of minutes for").fill("800")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("Saved", exact=True)).to_be_visible()
        assert budget_of(client, "lasts")["horizon"] == 800
        opened(page, service, "both")
        client.call("PATCH", "/v1/policies/both", {"budget": {"minutes": {"allowance": 44}}})
        page.get_by_label("When the budget of euros ends").fill("2037-07-01T08:30")
        with page.expect_request(lambda request: request.method == "PATCH") as sent:
            page.get_by_role("button", name="Save").click()
        assert list(json.loads(sent.value.post_data or "")["budget"]) == ["euros"]
        expect(page.get_by_text("Saved", exact=True)).to_be_visible()
        assert budget_of(client, "both")["total"] == 44


def test_a_reader_sees_no_form(browser: Browser, tmp_path: Path) -> None:
    with running(tmp_path, tenants=True) as service:
        assert service.client("acme").post("/v1/policies", POLICY).status == 201
        with watched(browser, service.url, key=service.key("acme", "read")) as page:
            opened(page, service, "p")
            expect(page.get_by_role("heading", name="Plan", exact=True)).to_have_count(0)


def total_of(client: Client, name: str) -> Any:
    return client.get(f"/v1/policies/{name}/standing").json["budget"]["minutes"]["total"]


def test_a_thousand_is_a_thousand_and_can_be_undone(browser: Browser, service: Running) -> None:
    client = service.client()
    before = total_of(client, "lasts")
    with watched(browser, service.url) as page:
        opened(page, service, "lasts")
        field = page.get_by_label("Add to the budget")
        for unclear in ("12,5", "1.000,5"):
            field.fill(unclear)
            expect(page.get_by_text("Write the amount like 1,000 or 12.5.")).to_be_visible()
            expect(page.get_by_role("button", name="Add to the budget")).to_be_disabled()
        field.fill("1,000")
        page.get_by_role("button", name="Add to the budget").click()
        expect(page.get_by_text("Add 1,000 (one thousand) minutes?")).to_be_visible()
        assert total_of(client, "lasts") == before
        field.fill("1,001")
        expect(page.get_by_role("button", name="Confirm")).to_have_count(0)
        field.fill("1,000")
        page.get_by_role("button", name="Add to the budget").click()
        page.get_by_role("button", name="Confirm").click()
        expect(page.get_by_text("1,000 minutes added.")).to_be_visible()
        assert total_of(client, "lasts") == before + 1000
        assert accessibility_faults(page) == []
        page.get_by_role("button", name="Undo", exact=True).click()
        expect(page.get_by_text("taken away: the change was undone.")).to_be_visible()
        expect(page.get_by_role("button", name="Undo", exact=True)).to_have_count(0)
    assert total_of(client, "lasts") == before
