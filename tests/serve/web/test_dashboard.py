"""The dashboard in a real browser: every page of a service with decisions, and stories of its users."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

import deferkit
from tests.serve.harness.in_process import Running, running
from tests.serve.web.example_policies import ATTACK, NAME, SCRIPT, populate
from tests.serve.web.watched_pages import accessibility_faults, settled, watched

pytestmark = pytest.mark.browser

POLICY_PAGE = f"/console/p/{NAME}"
PAGES = {  # by path: a text that is there once the page has its data
    "/console": "Oldest waiting",
    POLICY_PAGE: "Spending against plan",
    f"{POLICY_PAGE}/queue": "Give up",
    f"{POLICY_PAGE}/decisions": "claim-0299",
    f"{POLICY_PAGE}/decisions/held": "Outcome",
    f"{POLICY_PAGE}/reviewers": "Same as colleagues",
    f"{POLICY_PAGE}/estimates": "Calibration",
    f"{POLICY_PAGE}/what-if": "Budgets to try",
    f"{POLICY_PAGE}/settings": "Preview for reviewers",
    "/console/keys": "New key",
    "/console/new": "policy",
}
FRESH = {"name": "fresh", "features": 2, "budget": {"minutes": {"total": 60, "horizon": 100, "max_cost": 1}}}
EMPTY_PAGES = {
    "/console/p/fresh": "No decisions yet",
    "/console/p/fresh/queue": "No tasks are waiting",
    "/console/p/fresh/decisions": "No decisions yet",
    "/console/p/fresh/reviewers": "No reviewers yet",
    "/console/p/fresh/estimates": "No estimates yet",
    "/console/p/fresh/settings": "No webhooks yet",
    "/console/keys": "This service has no keys",
}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 400, "height": 800}},
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service with keys and a policy with decisions."""
    with running(tmp_path_factory.mktemp("dashboard"), tenants=True, rate=0) as service:
        with sender(service) as policy:
            populate(service.client("acme"), policy)
        yield service


def sender(service: Running) -> deferkit.Client:
    """Return a client that sends tasks and reviews them."""
    return deferkit.Client(service.url, policy=NAME, key=service.key("acme"))


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_opens(browser: Browser, service: Running, look: str) -> None:
    with watched(browser, service.url, key=service.key("acme"), **LOOKS[look]) as page:
        for path, text in PAGES.items():
            settled(page, service.url + path, text)
            assert accessibility_faults(page) == [], path
            assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"), path
            assert page.title().endswith("· deferkit")


@pytest.mark.parametrize("look", LOOKS)
def test_pages_of_reviewers_open(browser: Browser, service: Running, look: str) -> None:
    key = service.key("acme", "review", "read", reviewer="zoe")  # resumes the claim that the looks before have made
    with watched(browser, service.url, key=key, reviewer="zoe", **LOOKS[look]) as page:
        for path, text in {"/review": NAME, f"/review/{NAME}": "Is the claim justified?"}.items():
            settled(page, service.url + path, text)
            assert accessibility_faults(page) == [], path
            assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"), path
    with watched(browser, service.url, **LOOKS[look]) as page:
        settled(page, f"{service.url}/console/login", "key")
        assert accessibility_faults(page) == []


def test_empty_pages_say_what_to_do_next(browser: Browser, tmp_path: Path) -> None:
    with running(tmp_path) as service, watched(browser, service.url) as page:
        settled(page, service.url, "No policies yet")
        assert service.client().post("/v1/policies", FRESH).status == 201
        for path, text in EMPTY_PAGES.items():
            settled(page, service.url + path, text)
            assert accessibility_faults(page) == [], path


def test_an_owner_tops_up_and_sees_the_price_fall(browser: Browser, service: Running) -> None:
    client = service.client("acme")
    before = client.get(f"/v1/policies/{NAME}/standing").json
    assert before["price"] > 0
    assert before["reward_range"] == [0, 1]
    with sender(service) as policy, watched(browser, service.url, key=service.key("acme")) as page:
        settled(page, service.url + POLICY_PAGE, "right answers.")
        page.get_by_label("Add to the budget").fill("240")
        expect(page.get_by_text("An estimate: about")).to_contain_text("240 minutes")
        page.get_by_role("button", name="Add to the budget").click()
        expect(page.get_by_text("Add 240 (two hundred forty) minutes?")).to_be_visible()
        page.get_by_role("button", name="Confirm").click()
        expect(page.get_by_text("240 minutes added.")).to_be_visible()
        expect(page.get_by_role("row", name="minutes 360")).to_be_visible()
        expect(page.get_by_text("moves with the next tasks")).to_be_visible()
        for number in range(20):
            policy.decide({"length": 0.5, "amount": 0.5, "sender": "new"}, task=f"after-{number}")
        expect(page.get_by_text(f"was {number_of(before['price'])} and is now")).to_be_visible()
    after = client.get(f"/v1/policies/{NAME}/standing").json
    assert after["price"] < before["price"]
    assert after["budget"]["minutes"]["total"] == 360


def number_of(value: float) -> str:
    """Return a number as the pages write it."""
    return f"{value:.4g}"


def test_the_sentence_of_the_next_unit(browser: Browser, service: Running) -> None:
    with watched(browser, service.url, key=service.key("acme", "read")) as page:
        settled(page, f"{service.url}/console", "The next minute brings about")
        assert page.get_by_text("right answers").count() >= 1


def attack_is_text(page: Page) -> None:
    """Check that what the attacker wrote is shown as text, its hidden character by its code, and did nothing."""
    expect(page.get_by_text(SCRIPT, exact=False).first).to_be_visible()
    expect(page.get_by_text("U+202E").first).to_be_visible()
    assert page.evaluate("() => window.attacked") is None
    assert page.locator("main script").count() == 0


def test_an_attack_is_shown_as_text(browser: Browser, service: Running) -> None:
    with watched(browser, service.url, key=service.key("acme")) as page:
        for path, text in {"queue": "Give up", "reviewers": "Same as", "decisions?search=attack": "waiting"}.items():
            settled(page, f"{service.url}{POLICY_PAGE}/{path}", text)
            attack_is_text(page)
        page.get_by_role("link", name="attack").click()
        expect(page.get_by_text("Shown to the reviewer")).to_be_visible()
        attack_is_text(page)
        assert page.get_by_role("heading", name="attack").inner_text().startswith(f"attack {SCRIPT}")
        expect(page.get_by_role("button", name="Show more")).to_be_visible()  # a megabyte does not come at once
        page.get_by_text("decided").first.click()
        attack_is_text(page)


def test_a_review_key_sees_the_review_page_only(browser: Browser, service: Running) -> None:
    with watched(browser, service.url, key=service.key("acme", "review")) as page:
        for path in PAGES:
            settled(page, service.url + path, "This key does not open this page")
        links = page.get_by_role("navigation", name="Main").get_by_role("link")
        assert links.all_inner_texts() == ["Review"]


def test_a_reader_changes_nothing(browser: Browser, service: Running) -> None:
    with watched(browser, service.url, key=service.key("acme", "read")) as page:
        for path, text in PAGES.items():
            if path in {"/console/keys", "/console/new"} or path.endswith(("queue", "settings")):
                continue
            settled(page, service.url + path, text)
            for action in ("Add to the budget", "Give up", "Erase", "Save"):
                assert page.get_by_role("button", name=action).count() == 0, path
        settled(page, f"{service.url}{POLICY_PAGE}/queue", "waiting")
        assert page.get_by_role("button", name="Give up").count() == 0
        settled(page, f"{service.url}{POLICY_PAGE}/settings", "can read settings")
        assert page.get_by_role("button", name="Save").count() == 0
        settled(page, f"{service.url}/console/keys", "This key does not open this page")


def test_giving_up_and_reassigning(browser: Browser, service: Running) -> None:
    with sender(service) as policy, watched(browser, service.url, key=service.key("acme")) as page:
        context = {"length": 1.0, "amount": 1.0, "sender": "new"}
        policy.decide(context, task="to-give-up", force="human")
        settled(page, f"{service.url}{POLICY_PAGE}/queue", "to-give-up")
        row = page.get_by_role("row", name="to-give-up")
        row.get_by_role("button", name="Give up").click()
        expect(row.get_by_role("button", name="Give up", exact=True)).to_be_focused()
        page.keyboard.press("Enter")
        expect(row).to_have_count(0)
        assert policy.read("to-give-up")["final"] == "model"
        held = page.get_by_role("row", name="eve ")
        held.get_by_role("button", name="Reassign").click()
        held.get_by_role("button", name="Reassign").click()
        expect(held).to_have_count(0)


def test_decisions_are_filtered_and_paged(browser: Browser, service: Running) -> None:
    with watched(browser, service.url, key=service.key("acme")) as page:
        settled(page, f"{service.url}{POLICY_PAGE}/decisions", "claim-0299")
        page.get_by_role("button", name="Older").click()
        expect(page.get_by_text("Page 2")).to_be_visible()
        expect(page.get_by_text("claim-0299")).to_have_count(0)
        page.get_by_label("Route").select_option("human")
        expect(page.get_by_text("Page 2")).to_have_count(0)
        expect(page.locator("tbody td:nth-child(3)").first).to_have_text("human")
        assert set(page.locator("tbody td:nth-child(3)").all_inner_texts()) == {"human"}
        assert "route=human" in page.url
        page.get_by_label("Task id contains").fill("no such task")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Show all decisions").click()
        expect(page.get_by_text("claim-0299")).to_be_visible()


def test_a_task_explains_itself(browser: Browser, service: Running) -> None:
    decided = service.client("acme").get(f"/v1/policies/{NAME}/decisions?task=claim-0299").json["decision"]
    with watched(browser, service.url, key=service.key("acme")) as page:
        settled(page, f"{service.url}{POLICY_PAGE}/decisions/claim-0299", f"Why {decided['route']}")
        model = page.get_by_role("region", name="Numbers of the decision").get_by_role("row", name="model")
        shown = float(model.get_by_role("cell").nth(1).inner_text().replace("−", "-"))
        assert shown == pytest.approx(decided["estimates"]["model"], rel=1e-3)
        assert page.locator(".decision-bars rect.estimate").count() == len(decided["estimates"])


def test_another_budget_is_tried(browser: Browser, service: Running) -> None:
    with watched(browser, service.url, key=service.key("acme")) as page:
        settled(page, f"{service.url}{POLICY_PAGE}/what-if", "Budgets to try")
        page.get_by_label("Budgets to try").fill("0.5x 2x")
        page.get_by_role("button", name="Compute").click()
        expect(page.get_by_role("heading", name="Reward of a task, by budget")).to_be_visible(timeout=120_000)
        assert page.locator(".error-bars .dot").count() == 3
        assert page.get_by_role("row", name="as it was").count() == 1
        assert accessibility_faults(page) == []


def test_the_review_form_is_edited_with_a_preview(browser: Browser, service: Running) -> None:
    client = service.client("acme")
    with watched(browser, service.url, key=service.key("acme")) as page:
        settled(page, f"{service.url}{POLICY_PAGE}/settings", "Preview for reviewers")
        preview = page.get_by_role("complementary", name="Preview")
        page.get_by_label("Question").first.fill("Shall we pay?")
        expect(preview.get_by_text("Shall we pay?")).to_be_visible()
        page.get_by_label("Options, one a line").fill("yes: Pay\nno: Refuse\nmore: Ask for more")
        page.get_by_label("Options, one a line").blur()
        expect(preview.get_by_text("Ask for more")).to_be_visible()
        page.get_by_role("button", name="Save").nth(1).click()
        expect(page.get_by_text("Saved", exact=True)).to_be_visible()
        page.get_by_label("Reviewers for each task").fill("2")
        page.get_by_label("Reviewers for each task").blur()
        page.get_by_role("button", name="Save").first.click()
        expect(page.get_by_text("Saved", exact=True)).to_have_count(2)
    policy = client.get(f"/v1/policies/{NAME}").json
    assert policy["reviewers"] == 2
    assert [option["value"] for option in policy["review"]["form"][0]["options"]] == ["yes", "no", "more"]
    assert client.call("PATCH", f"/v1/policies/{NAME}", {"reviewers": 1}).status == 200


def test_keys_are_made_and_revoked(browser: Browser, service: Running) -> None:
    with watched(browser, service.url, key=service.key("acme")) as page:
        settled(page, f"{service.url}/console/keys", "New key")
        page.get_by_role("checkbox", name="review").check()
        page.get_by_label("Name").fill(f"Zoë {SCRIPT}"[:64])
        page.get_by_label("Only for reviewer").fill("zoë")
        page.get_by_role("button", name="Create the key").click()
        secret = page.locator("code.secret").inner_text()
        assert service.client(key=secret).get("/v1/policies").status == 200
        page.get_by_role("button", name="I have it").click()
        assert secret not in page.content()
        row = page.get_by_role("row", name="Zoë")
        row.get_by_role("button", name="Revoke").click()
        row.get_by_role("button", name="Revoke").click()
        expect(row.get_by_text("revoked")).to_be_visible()
        assert service.client(key=secret).get("/v1/policies").status == 401


def test_a_hidden_page_reads_nothing(browser: Browser, service: Running) -> None:
    show = """(hidden) => {
      Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    with watched(browser, service.url, key=service.key("acme", "read")) as page:
        page.clock.install()
        settled(page, service.url + POLICY_PAGE, "Spending against plan")
        page.wait_for_load_state("networkidle")
        page.evaluate(show, True)
        calls: list[str] = []
        page.on("request", lambda request: calls.append(request.url))
        page.clock.run_for(600_000)
        assert calls == []
        with page.expect_response("**/standing"):
            page.evaluate(show, False)


def test_the_price_of_an_attack_is_a_page_that_stays_usable(browser: Browser, service: Running) -> None:
    """A task id with everything in it is a link that leads to its own page."""
    with watched(browser, service.url, key=service.key("acme")) as page, sender(service) as policy:
        odd = f"a/b?c#d %2e {ATTACK}"
        policy.decide({"length": 1.0, "amount": 1.0, "sender": "new"}, task=odd, force="model")
        settled(page, f"{service.url}{POLICY_PAGE}/decisions", "a/b?c#d")
        page.get_by_role("link", name="a/b?c#d").click()
        expect(page.get_by_role("heading", name="a/b?c#d")).to_be_visible()
        expect(page.get_by_text("The caller named who decides.")).to_be_visible()
