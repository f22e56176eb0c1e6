"""What reviewers are shown: every kind of payload, as text whatever is in it."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.serve.harness.in_process import Running, running
from tests.serve.web.reviewing import all_sent, answer, new_policy, reviewing, seats_of, send, task_of

pytestmark = pytest.mark.browser

SCRIPT = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'><b>bold</b>{{7*7}}"
OVERRIDE = "\u202e"
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAYAAACNMs+9AAAAFUlEQVR42mP8z8BQz0AEYBxVSF+FABJADveWkH6o"
    "AAAAAElFTkSuQmCC"
)
ATTACKS: list[Any] = [
    SCRIPT,
    {SCRIPT: SCRIPT, "nested": {"deep": [SCRIPT]}},
    [{SCRIPT: SCRIPT}, {"other": SCRIPT}],
    [{"role": SCRIPT, "content": SCRIPT}, {"role": "user", "content": [{"type": "text", "text": SCRIPT}]}],
    {"image": PIXEL, "alt": SCRIPT, "caption": SCRIPT},
    [SCRIPT, 1, None],
    {"__proto__": SCRIPT, "constructor": SCRIPT, "type": "script", "props": {"src": "/x.js"}},
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service without keys."""
    with running(tmp_path_factory.mktemp("payload"), rate=0) as service:
        yield service


def check_harmless(page: Page) -> None:
    """Check that nothing of a payload was taken for markup."""
    assert page.evaluate("() => window.hacked") is None
    assert page.locator(".payload script, .payload b, .payload img:not(.payload-picture)").count() == 0


@pytest.mark.parametrize("kind", ["auto", "text", "fields", "table", "chat", "image", "json"])
def test_an_attack_is_shown_as_text_in_every_kind(browser: Browser, service: Running, kind: str) -> None:
    review = {"payload": kind, "model_answer": "shown", "guidelines": SCRIPT}
    form = [{"name": "label", "kind": "choice", "label": SCRIPT[:200], "options": [{"value": SCRIPT[:200]}]}]
    with (
        new_policy(service, f"attack-{kind}", form=form, review=review) as client,
        reviewing(browser, service, f"attack-{kind}") as page,
    ):
        send(client, *ATTACKS, model_answer=SCRIPT)
        for _ in ATTACKS:
            place = int(task_of(page).removeprefix("task-"))
            check_harmless(page)
            shown = page.inner_text(".payload")
            if "script" in repr(ATTACKS[place]) and place != 4:
                assert "<script>" in shown or "script" in shown
            expect(page.locator("#guidelines")).to_contain_text(SCRIPT)
            answer(page, "1")
            check_harmless(page)


def test_each_kind_has_its_shape(browser: Browser, service: Running) -> None:
    shapes = {
        "plain words\nin two lines": ".payload-text",
        "fields": ".payload-fields dt",
        "table": ".payload table.payload-table td",
        "chat": ".payload ol.chat li",
        "image": ".payload img.payload-picture",
        "json": ".payload .mono",
    }
    payloads = [
        "plain words\nin two lines",
        {"subject": "Hello", "words": 12},
        [{"item": "pen", "price": 1.5}, {"item": "ink", "price": 4}],
        [{"role": "user", "content": "Where is it?"}, {"role": "assistant", "content": "On its way."}],
        PIXEL,
        ["a", 1],
    ]
    with new_policy(service, "shapes") as client, reviewing(browser, service, "shapes") as page:
        send(client, *payloads)
        selectors = list(shapes.values())
        for _ in payloads:
            place = int(task_of(page).removeprefix("task-"))
            expect(page.locator(selectors[place]).first).to_be_visible()
            if place == 4:
                page.wait_for_function("() => document.querySelector('.payload-picture').naturalWidth === 10")
            answer(page, "1")


def test_marks_that_change_the_direction_are_made_visible(browser: Browser, service: Running) -> None:
    with new_policy(service, "direction") as client, reviewing(browser, service, "direction") as page:
        send(client, {f"name{OVERRIDE}": f"pay {OVERRIDE}001$ to me\u0007", "arabic": "مرحبا بالعالم"})
        task_of(page)
        assert page.locator(".hidden-character").all_inner_texts() == ["U+202E", "U+202E", "U+0007"]
        assert OVERRIDE not in page.inner_text("main")
        box = page.get_by_text("مرحبا").bounding_box()
        whole = page.locator(".payload").bounding_box()
        assert box is not None
        assert whole is not None
        direction = page.get_by_text("مرحبا").evaluate("element => getComputedStyle(element).direction")
        assert direction == "rtl"
        assert page.locator("#task-title").evaluate("element => getComputedStyle(element).direction") == "ltr"


@pytest.mark.parametrize(
    "text", ["x" * 990_000, "word " * 198_000, "<p>" * 330_000], ids=["one word", "words", "markup"]
)
def test_a_megabyte_of_text_does_not_stop_the_page(browser: Browser, service: Running, text: str) -> None:
    name = f"large-{text[0] if text[0] != '<' else 'm'}"
    with new_policy(service, name) as client, reviewing(browser, service, name) as page:
        [task] = send(client, text)
        task_of(page)
        expect(page.get_by_text("20,000 of 990,000 characters")).to_be_visible()
        for _ in range(5):
            page.get_by_role("button", name="Show more").click()
        expect(page.get_by_role("button", name="Show more")).to_have_count(0)
        assert len(page.locator(".payload-text").text_content() or "") == 990_000
        began = time.monotonic()
        page.keyboard.press("2")
        expect(page.get_by_text("Your last answers")).to_be_visible()
        assert time.monotonic() - began < 5
        all_sent(page)
        assert seats_of(client, task)[0]["answer"] == {"label": "spam"}
