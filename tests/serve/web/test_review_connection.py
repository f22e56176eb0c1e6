"""The review page when the connection, the page or the service goes away: nothing is lost, nothing is booked twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from deferkit.serve.audit.replay import replay
from deferkit.serve.domain.accounts import MICRO
from deferkit.serve.storage.sqlite import Sqlite
from deferkit.serve.storage.store import Store
from tests.serve.harness.clients import until
from tests.serve.harness.in_process import Running, running
from tests.serve.harness.service_process import ServiceProcess
from tests.serve.web.reviewing import (
    NO_CONNECTION,
    OPTIONS,
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

pytestmark = pytest.mark.browser

TEXT_FORM = [{"name": "why", "kind": "text", "label": "Why?"}]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service without keys."""
    with running(tmp_path_factory.mktemp("connection"), rate=0) as service:
        yield service


def test_a_connection_that_is_lost_in_the_middle_loses_no_answer(browser: Browser, service: Running) -> None:
    policy = new_policy(service, "offline")
    with policy as client, reviewing(browser, service, "offline", allowed=NO_CONNECTION.pattern) as page:
        tasks = send(client, *(f"Message {number}" for number in range(4)))
        given = {answer(page, "1"): "fine"}
        second = task_of(page)
        page.context.set_offline(True)
        page.keyboard.press("2")
        given[second] = "spam"
        expect(page.get_by_role("heading", name="Waiting for the service")).to_be_visible()
        expect(page.get_by_text("kept in this browser")).to_be_visible()
        assert seats_of(client, second)[0]["state"] == "claimed"
        page.context.set_offline(False)
        given[answer(page, "3")] = "abusive"
        given[answer(page, "1")] = "fine"
        is_empty(page)
        all_sent(page)
        expect(page.get_by_text("kept in this browser")).to_have_count(0)
        assert {task: seats_of(client, task)[0]["answer"]["label"] for task in tasks} == given


def test_a_reply_that_is_lost_neither_claims_nor_answers_twice(browser: Browser, service: Running) -> None:
    policy = new_policy(service, "lossy")
    with policy as client, reviewing(browser, service, "lossy", allowed="net::ERR_") as page:
        lost: list[str] = []

        def lose(route: Route) -> None:
            name = route.request.url.rpartition("/")[2]
            if name in lost:
                route.continue_()
            else:
                lost.append(name)
                route.fetch()  # the service has got it, and the page does not learn of it
                route.abort("connectionreset")

        is_empty(page)
        for name in ("claim", "complete"):
            page.route(f"**/reviews/{name}", lose)
        [first, second] = send(client, "one", "two")
        assert {answer(page, "2"), answer(page, "2")} == {first, second}
        is_empty(page)
        all_sent(page)
        assert lost == ["claim", "complete"]
        seats = [seats_of(client, task)[0] for task in (first, second)]
        assert [(seat["state"], seat["answer"]) for seat in seats] == [("done", {"label": "spam"})] * 2
        assert client.summary().claimed == 0


def test_a_reload_goes_on_with_the_same_task_and_draft(browser: Browser, service: Running) -> None:
    policy = new_policy(service, "reload", form=TEXT_FORM)
    with policy as client, reviewing(browser, service, "reload") as page:
        send(client, "one", "two")
        task = task_of(page)
        page.get_by_label("Why?").fill("half a senten")
        page.reload()
        assert task_of(page) == task
        expect(page.get_by_label("Why?")).to_have_value("half a senten")
        assert client.summary().claimed == 1, "no second one was claimed"
        page.get_by_label("Why?").fill("a whole one")
        page.keyboard.press("Control+Enter")
        page.reload()  # within the seconds in which it could be taken back
        assert task_of(page) != task
        all_sent(page)
        assert seats_of(client, task)[0]["answer"] == {"why": "a whole one"}
        expect(page.get_by_label("Why?")).to_have_value("")


def test_a_page_that_is_closed_sends_its_answers_first(browser: Browser, service: Running) -> None:
    with new_policy(service, "closed") as client:
        [task] = send(client, "one")
        with reviewing(browser, service, "closed") as page:
            answer(page, "3")
            assert seats_of(client, task)[0]["state"] == "claimed"
            page.goto("about:blank")
            until(lambda: seats_of(client, task)[0]["state"] == "done", "the answer is there")
        assert seats_of(client, task)[0]["answer"] == {"label": "abusive"}


def test_a_service_that_is_killed_comes_back_to_the_same_page(browser: Browser, tmp_path: Path) -> None:
    with ServiceProcess(tmp_path, "--rate=0") as service:
        service.ready()
        given: dict[str, str] = {}
        with new_policy(service, "killed") as client:
            tasks = send(client, *(f"Message {number}" for number in range(6)))
            with reviewing(browser, service, "killed", allowed=NO_CONNECTION.pattern + "|status of 503") as page:
                for round_ in range(2):
                    answer_and_note(page, "1", given)
                    held = task_of(page)
                    service.kill()  # one answer waits to be sent, another task is at the desk
                    page.keyboard.press("2")
                    given[held] = OPTIONS[1]
                    expect(page.get_by_text("kept in this browser")).to_be_visible()
                    if round_:
                        page.wait_for_timeout(3_000)  # tries that fail
                    service.start()
                    service.ready()
                    all_sent(page)
                answer_and_note(page, "3", given)
                answer_and_note(page, "1", given)
                is_empty(page)
                all_sent(page)
            costs = 0.0
            for task in tasks:
                [seat] = seats_of(client, task)
                assert (seat["state"], seat["answer"]) == ("done", {"label": given[task]})
                costs += cost_of(seat)
            assert spent(client) == pytest.approx(costs), "each was booked once"
        assert service.stop() == 0
    database = Sqlite(service.store)
    store = Store(database)
    report = replay(store, "default", "killed")
    store.close()
    assert report.faults == []
    assert report.policy is not None
    assert report.policy.accounts["minutes"].posted == pytest.approx(costs * MICRO)


def answer_and_note(page: Page, key: str, given: dict[str, str]) -> None:
    """Answer by a key, and remember what was answered."""
    given[answer(page, key)] = OPTIONS[int(key) - 1]
