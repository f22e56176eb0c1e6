"""The review page in a real browser: whole stories of reviewers."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from deferkit import Budget
from tests.serve.harness.in_process import Running, running
from tests.serve.web.reviewing import (
    CHOICE,
    OPTIONS,
    TIMER,
    all_sent,
    answer,
    cost_of,
    is_empty,
    new_policy,
    reviewing,
    seats_of,
    send,
    spent,
    task_of,
)
from tests.serve.web.watched_pages import accessibility_faults, watched

pytestmark = pytest.mark.browser

LONG_FORM = [
    CHOICE,
    {"name": "sure", "kind": "boolean", "label": "Are you sure?"},
    {
        "name": "signs",
        "kind": "choices",
        "label": "Signs",
        "required": False,
        "options": [{"value": "link"}, {"value": "rude"}],
    },
    {"name": "score", "kind": "number", "label": "Score", "min": 1, "max": 5},
    {"name": "why", "kind": "text", "label": "Why?", "required": False},
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service without keys."""
    with running(tmp_path_factory.mktemp("review"), rate=0) as service:
        yield service


def test_ten_tasks_with_the_keyboard_alone(browser: Browser, service: Running) -> None:
    with new_policy(service, "keyboard") as client, reviewing(browser, service, "keyboard") as page:
        is_empty(page)
        expect(page.locator("[data-empty=nothing_deferred]")).to_be_visible()
        send(client, *(f"Message {number}" for number in range(10)))  # they appear by themselves
        given = {}
        for number in range(10):
            shown = page.inner_text(".payload") if task_of(page) else ""
            key = number % 3
            given[answer(page, str(key + 1))] = OPTIONS[key]
            assert shown.startswith("Message ")
        is_empty(page)
        all_sent(page)
        assert len(given) == 10
        costs = 0.0
        for task, label in given.items():
            [seat] = seats_of(client, task)
            assert (seat["state"], seat["answer"], seat["reviewer"]) == ("done", {"label": label}, "ann")
            costs += cost_of(seat)
            rewards = client.read(task)["rewards"]
            assert rewards == {"human": 1.0, "model": float(label == "fine")}, "by the rule, not typed in"
        summary = client.summary()
        assert (summary.waiting, summary.claimed) == (0, 0)
        assert spent(client) == pytest.approx(costs)
        expect(page.locator("[data-progress]")).to_contain_text("10 answers today")


def test_a_long_form_is_filled_in_with_keys_and_text(browser: Browser, service: Running) -> None:
    with new_policy(service, "long", form=LONG_FORM) as client, reviewing(browser, service, "long") as page:
        [task] = send(client, "one")
        assert task_of(page) == task
        page.keyboard.press("Enter")  # nothing was entered: the first field that is needed has the focus
        expect(page.get_by_text("An answer is needed.").first).to_be_visible()
        page.keyboard.press("2")
        expect(page.get_by_label("Spam")).to_be_focused()
        page.keyboard.press("Tab")
        page.get_by_label("Yes").check()
        page.get_by_label("rude").focus()
        page.keyboard.press("1")  # chooses in the field that has the focus
        page.keyboard.press("2")
        page.get_by_label("Score").fill("9")
        page.get_by_label("Why?").fill("1 2 3 ? u d g")  # keys are off while somebody types
        page.keyboard.press("Control+Enter")
        expect(page.get_by_text("At most 5.")).to_be_visible()
        page.get_by_label("Score").fill("4")
        page.keyboard.press("Enter")  # of a single line sends the form
        is_empty(page)
        all_sent(page)
        expected = {"label": "spam", "sure": True, "signs": ["link", "rude"], "score": 4, "why": "1 2 3 ? u d g"}
        assert seats_of(client, task)[0]["answer"] == expected


def test_escape_clears_and_a_question_mark_lists_the_keys(browser: Browser, service: Running) -> None:
    with new_policy(service, "escape", form=LONG_FORM) as client, reviewing(browser, service, "escape") as page:
        send(client, "one")
        task_of(page)
        page.keyboard.press("1")
        expect(page.get_by_label("Fine")).to_be_checked()
        page.keyboard.press("Escape")
        expect(page.get_by_label("Fine")).not_to_be_checked()
        expect(page.get_by_text("The answer was cleared.")).to_be_visible()
        assert accessibility_faults(page) == []
        page.keyboard.press("u")
        expect(page.get_by_label("Fine")).to_be_checked()
        expect(page.get_by_text("The answer was cleared.")).to_have_count(0)
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("take the last one back")
        page.keyboard.press("1")  # nothing happens behind the dialog
        page.keyboard.press("Escape")
        expect(dialog).not_to_be_visible()
        expect(page.get_by_label("Fine")).not_to_be_checked()


def test_keys_choose_several_options_of_one_field(browser: Browser, service: Running) -> None:
    form = [LONG_FORM[2], CHOICE]
    with new_policy(service, "several", form=form) as client, reviewing(browser, service, "several") as page:
        [task] = send(client, "one")
        task_of(page)
        page.keyboard.press("1")
        page.keyboard.press("2")
        expect(page.get_by_label("link")).to_be_checked()
        expect(page.get_by_label("rude")).to_be_checked()
        page.keyboard.press("1")
        expect(page.get_by_label("link")).not_to_be_checked()
        expect(page.get_by_label("Fine")).not_to_be_checked()
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.get_by_label("Spam").check()
        page.keyboard.press("Enter")
        is_empty(page)
        all_sent(page)
        assert seats_of(client, task)[0]["answer"] == {"signs": ["rude"], "label": "spam"}


def test_an_answer_is_taken_back_and_a_sent_one_is_corrected(browser: Browser, service: Running) -> None:
    with new_policy(service, "undo") as client, reviewing(browser, service, "undo") as page:
        send(client, "one", "two")
        first = answer(page, "1")
        second = task_of(page)
        page.keyboard.press("u")
        expect(page.locator("#task-title")).to_have_text(first)
        assert seats_of(client, first)[0]["state"] == "claimed", "nothing was sent"
        answer(page, "2")
        assert task_of(page) == second, "the task that was put aside comes back"
        answer(page, "3")
        all_sent(page)
        assert [seats_of(client, task)[0]["answer"]["label"] for task in (first, second)] == ["spam", "abusive"]
        page.keyboard.press("u")  # the latest answer, which was sent: it is corrected
        expect(page.locator("#task-title")).to_have_text(f"Correct {second}")
        page.keyboard.press("1")
        expect(page.get_by_text("✓ corrected")).to_be_visible()
        assert seats_of(client, second)[0]["answer"] == {"label": "fine"}
        assert client.read(second)["rewards"] == {"human": 1.0, "model": 1.0}


def test_a_task_is_declined_with_a_reason_and_does_not_come_back(browser: Browser, service: Running) -> None:
    with new_policy(service, "decline") as client, reviewing(browser, service, "decline") as page:
        [task] = send(client, "one")
        task_of(page)
        page.wait_for_timeout(1_500)  # so that there is an effort to book
        page.keyboard.press("d")
        page.get_by_label("Why?").fill("I know the author.")
        page.get_by_role("button", name="Decline", exact=True).last.click()
        is_empty(page)
        expect(page.locator("[data-empty=declined]")).to_be_visible()
        expect(page.get_by_text("✓ effort booked")).to_be_visible()
        assert spent(client) > 0
        review = client.reviews.claim("bo")
        assert review is not None
        assert review.task == task, "a colleague gets it"


def test_two_reviewers_of_a_task_are_blind_to_each_other(browser: Browser, service: Running) -> None:
    form = [{"name": "why", "kind": "text", "label": "Why?"}]
    secret = "the-words-of-ann"
    with new_policy(service, "two", form=form, reviewers=2) as client:
        [task] = send(client, "one", model_answer="the-words-of-the-model")
        with reviewing(browser, service, "two", "ann") as ann, reviewing(browser, service, "two", "bo") as bo:
            seen: list[str] = []
            bo.on("response", lambda reply: seen.append(reply.text()) if "/reviews" in reply.url else None)
            assert task_of(ann) == task_of(bo) == task
            ann.get_by_label("Why?").fill(secret)
            ann.keyboard.press("Control+Enter")
            all_sent(ann)
            is_empty(ann)
            expect(ann.locator("[data-empty=answered]")).to_be_visible()
            bo.reload()
            assert task_of(bo) == task, "the same seat, not a second one"
            assert secret not in bo.content()
            assert len(seen) >= 2
            assert not [text for text in seen if secret in text or "the-words-of-the-model" in text]
            bo.get_by_label("Why?").fill("mine")
            bo.keyboard.press("Control+Enter")
            all_sent(bo)
        answers = {seat["reviewer"]: seat["answer"]["why"] for seat in seats_of(client, task)}
        assert answers == {"ann": secret, "bo": "mine"}


def test_a_task_that_went_to_somebody_else_offers_to_book_the_effort(browser: Browser, service: Running) -> None:
    policy = new_policy(service, "lost", lease_s=4)
    with policy as client, reviewing(browser, service, "lost", allowed="409") as page:
        [task] = send(client, "one")
        task_of(page)
        page.wait_for_timeout(1_500)
        assert service.client().post("/v1/policies/lost/reviews/reassign", {"task": task, "seat": 0}).status == 200
        review = client.reviews.claim("bo", lease_s=600)
        assert review is not None
        page.mouse.move(5, 5)  # somebody is here, so that the lease is extended
        expect(page.get_by_role("heading", name="This task cannot be answered any more")).to_be_visible()
        page.get_by_role("button", name=re.compile("Book the effort")).click()
        expect(page.get_by_text("✓ effort booked")).to_be_visible()
        is_empty(page)
        client.reviews.complete(review, {"label": "spam"}, cost=0.5)
        assert spent(client) > 0.5


def test_an_answer_that_comes_too_late_offers_to_book_the_effort(browser: Browser, service: Running) -> None:
    with new_policy(service, "late") as client, reviewing(browser, service, "late", allowed="409") as page:
        [task] = send(client, "one")
        task_of(page)
        page.wait_for_timeout(1_000)
        page.keyboard.press("1")
        client.expire(task)
        page.get_by_role("button", name="Book the effort").click()
        expect(page.get_by_text("✓ effort booked")).to_be_visible()
        assert spent(client) > 0


def test_the_model_is_shown_as_the_policy_says(browser: Browser, service: Running) -> None:
    for visibility in ("hidden", "after", "shown"):
        with (
            new_policy(service, visibility, review={"model_answer": visibility}) as client,
            reviewing(browser, service, visibility) as page,
        ):
            send(client, "one", model_answer="spam")
            task_of(page)
            expect(page.get_by_text("The model answers: Spam")).to_have_count(int(visibility == "shown"))
            answer(page, "1")
            all_sent(page)
            expect(page.get_by_text("The model answered: Spam")).to_have_count(int(visibility == "after"))


def test_the_timer_stops_when_nobody_works(browser: Browser, service: Running) -> None:
    policy = new_policy(service, "timer", form=LONG_FORM)
    with policy as client, reviewing(browser, service, "timer", clock=True) as page:
        send(client, "one")
        task_of(page)
        seconds = "() => Number(document.querySelector('.cost').textContent.match(/([\\d.]+) minutes/)[1]) * 60"
        page.mouse.move(9, 9)
        page.clock.run_for(20_000)
        busy = page.evaluate(seconds)
        assert 17 < busy < 27
        page.mouse.move(12, 12)
        page.clock.run_for(600_000)  # idle: none of it is work, nor is the first minute
        idle = page.evaluate(seconds)
        assert idle == pytest.approx(busy, abs=3)
        expect(page.locator(".cost")).to_contain_text("paused")
        page.mouse.move(20, 20)
        page.evaluate("""() => {
          Object.defineProperty(document, "hidden", { configurable: true, get: () => true });
          document.dispatchEvent(new Event("visibilitychange"));
        }""")
        page.clock.run_for(30_000)
        assert page.evaluate(seconds) == pytest.approx(idle, abs=2), "hidden"
        page.evaluate("""() => {
          Object.defineProperty(document, "hidden", { configurable: true, get: () => false });
          document.dispatchEvent(new Event("visibilitychange"));
        }""")
        page.clock.run_for(12_000)
        assert page.evaluate(seconds) == pytest.approx(idle + 12, abs=3)
        page.get_by_role("button", name="Correct").click()
        page.get_by_label("Cost in minutes").fill("0.25")
        page.keyboard.press("Escape")  # leaves the field
        page.keyboard.press("1")
        page.get_by_label("Yes").check()
        page.get_by_label("Score").fill("1")
        page.keyboard.press("Enter")
        page.clock.run_for(6_000)
        all_sent(page)
        assert spent(client) == 0.25


def test_the_lease_is_extended_while_somebody_works(browser: Browser, service: Running) -> None:
    with new_policy(service, "lease", lease_s=4) as client, reviewing(browser, service, "lease") as page:
        [task] = send(client, "one")
        task_of(page)
        for _ in range(7):
            page.wait_for_timeout(1_000)
            page.mouse.move(5, 5)
        assert client.reviews.claim("bo") is None, "it was held for seven seconds with a lease of four"
        answer(page, "1")
        all_sent(page)
        assert seats_of(client, task)[0]["state"] == "done"


def test_a_review_that_reaches_its_limit_is_stopped(browser: Browser, service: Running) -> None:
    budget = Budget(100, horizon=1000, limit=0.05)  # three seconds
    with new_policy(service, "limit", budget=budget) as client, reviewing(browser, service, "limit") as page:
        [task] = send(client, "one")
        task_of(page)
        stopped = page.get_by_role("heading", name="This task cannot be answered any more")
        while not stopped.is_visible():
            page.mouse.move(5, 5)
            page.wait_for_timeout(300)
        expect(
            page.get_by_role("paragraph").filter(has_text="the review was stopped, its cost is booked")
        ).to_be_visible()
        expect(page.get_by_role("button", name=re.compile("Book the effort"))).to_have_count(0)
        page.get_by_role("button", name="Next task").click()
        is_empty(page)
        assert client.read(task)["final"] == "model"
        assert 0.05 <= spent(client) < 0.5
        assert client.summary().stopped == 1


def test_only_the_tab_that_was_opened_last_claims(browser: Browser, service: Running) -> None:
    with new_policy(service, "tabs") as client, reviewing(browser, service, "tabs") as page:
        tasks = send(client, "one", "two")
        held = task_of(page)
        other = page.context.new_page()
        other.goto(page.url)
        expect(page.get_by_role("heading", name="You review in another tab")).to_be_visible()
        assert task_of(other) == held
        page.get_by_role("button", name="Review here").click()
        assert task_of(page) == held
        expect(other.get_by_role("heading", name="You review in another tab")).to_be_visible()
        other.close()
        answer(page, "1")
        answer(page, "2")
        all_sent(page)
        assert [seats_of(client, task)[0]["state"] for task in tasks] == ["done", "done"]


@pytest.mark.parametrize(
    "look",
    [{"color_scheme": "light"}, {"color_scheme": "dark"}, {"viewport": {"width": 400, "height": 800}}],
    ids=["light", "dark", "phone"],
)
def test_the_page_in_every_look(browser: Browser, service: Running, look: dict[str, Any]) -> None:
    name = f"look-{len(service.clients)}-{'-'.join(map(str, look))}-{look.get('color_scheme', '')}".strip("-").lower()
    review = {"guidelines": "Read it first.", "timer": TIMER}
    with new_policy(service, name, form=LONG_FORM, review=review) as client:
        with reviewing(browser, service, name, **look) as page:
            is_empty(page)
            check_look(page)
            send(client, {"subject": "long", "body": "word " * 2000, "link": "x" * 300}, "two")
            task_of(page)
            check_look(page)
            page.keyboard.press("d")
            check_look(page)
        new_policy(service, f"{name}-other").close()  # with a single one there is nothing to choose
        with watched(browser, service.url, **look) as page:
            page.goto(f"{service.url}/review")
            page.get_by_role("heading", name="What do you review?").wait_for()
            check_look(page)


def check_look(page: Page) -> None:
    """Check that nothing is wider than the window, and that everybody can use the page."""
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    assert accessibility_faults(page) == []
