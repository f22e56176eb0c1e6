"""The page that creates a policy, in a real browser; the lines that it shows are run as they are."""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, Page, expect

import deferkit
from tests.serve.harness.in_process import Running, running
from tests.serve.web.watched_pages import accessibility_faults, watched

pytestmark = pytest.mark.browser

TABLE = '''comment_id,text,length,language,model_label
c-1,"Nice picture, it's ""great""",20,en,fine
c-2,"Buy now
in two lines",30,en,spam
c-3,Gewinne jetzt!,"14",de,spam
c-4,ok,2,en,fine
'''


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    """A service on an empty store."""
    with running(tmp_path) as service:
        yield service


def create(page: Page) -> None:
    """Create the policy, and wait for the lines to send it a task."""
    page.get_by_role("button", name="Create the policy").click()
    expect(page.get_by_role("heading", name="Send it a task")).to_be_visible()


def check_lines(page: Page, service: Running, policy: str, task: str) -> None:
    """Run the lines for a shell and for Python: the same task, so the same decision."""
    shell = subprocess.run(["sh", "-c", page.inner_text("#curl")], capture_output=True, text=True, check=True)
    assert f'"task":"{task}"' in shell.stdout
    program = [sys.executable, "-c", page.inner_text("#python")]
    printed = subprocess.run(program, capture_output=True, text=True, check=True).stdout.strip()
    with deferkit.Client(service.url, policy=policy) as client:
        assert client.read(task)["decision"]["route"] == printed
        assert client.summary().decisions == 1


def test_a_policy_from_a_form(browser: Browser, service: Running) -> None:
    with watched(browser, service.url) as page:
        page.goto(f"{service.url}/console/new")
        page.get_by_label("Name", exact=True).fill("it-s")
        page.get_by_role("button", name="Create the policy").click()
        expect(page.get_by_text("At least one feature is needed")).to_be_visible()
        page.get_by_label("Name of feature 1").fill("user's age")
        page.get_by_role("button", name="Add a feature").click()
        page.get_by_label("Name of feature 2").fill("country")
        page.get_by_label("Kind of feature 2").select_option("category")
        page.get_by_label("Levels of feature 2").fill("it, d'or")
        page.get_by_label("Budget", exact=True).fill("50")
        page.get_by_label("Answers to choose from").fill("it's fine\nspam")
        create(page)
        check_lines(page, service, "it-s", "task-1")
        page.get_by_role("link", name="Open the review page").click()
        page.wait_for_url("**/review/it-s")
    made = service.client().get("/v1/policies/it-s").json
    assert made["features"] == {"numbers": ["user's age"], "categories": {"country": ["it", "d'or"]}}
    assert made["budget"]["minutes"]["total"] == 50
    assert [each["value"] for each in made["review"]["form"][0]["options"]] == ["it's fine", "spam"]
    assert made["review"]["timer"] == {"resource": "minutes", "unit_s": 60}
    assert made["review"]["reward_rule"] == {"kind": "match"}


def test_a_policy_whose_budget_renews_or_ends(browser: Browser, service: Running) -> None:
    with watched(browser, service.url, timezone_id="Europe/Berlin") as page:
        for name, lasts in (("weekly", "week"), ("dated", "until")):
            page.goto(f"{service.url}/console/new")
            page.get_by_label("Name", exact=True).fill(name)
            page.get_by_label("Name of feature 1").fill("length")
            page.get_by_label("Period").select_option(lasts)
            if lasts == "week":
                page.get_by_label("Carry over the unused budget").check()
                page.get_by_label("Reviews can be stopped").check()
            else:
                page.get_by_label("Last day").fill("2099-03-31")
            assert accessibility_faults(page) == []
            create(page)
            check_lines(page, service, name, "task-1")
        page.goto(f"{service.url}/console/p/weekly")
        expect(page.get_by_text("Period 1:")).to_be_visible()
        assert accessibility_faults(page) == []
    weekly, dated = (
        service.client().get(f"/v1/policies/{name}").json["budget"]["minutes"] for name in ("weekly", "dated")
    )
    assert [weekly[name] for name in ("every", "zone", "carry", "hold")] == ["week", "Europe/Berlin", 1, "auto"]
    assert weekly["horizon"] is None
    assert dated["until"] == datetime(2099, 4, 1, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()


def test_a_policy_from_the_header_of_a_file(browser: Browser, service: Running, tmp_path: Path) -> None:
    table = tmp_path / "my comments (1).csv"
    table.write_text(TABLE)
    with watched(browser, service.url) as page:
        page.goto(f"{service.url}/console/new")
        page.get_by_label("Read the features from a CSV file").set_input_files(table)
        expect(page.get_by_label("Name", exact=True)).to_have_value("my-comments-1-")
        uses = {each: page.get_by_label(f"Use of {each}") for each in TABLE.partition("\n")[0].split(",")}
        assert {name: use.input_value() for name, use in uses.items()} == {
            "comment_id": "task",
            "text": "shown",
            "length": "number",
            "language": "category",
            "model_label": "model",
        }
        expect(page.get_by_label("Answers to choose from")).to_have_value("fine\nspam")
        assert accessibility_faults(page) == []
        create(page)
        check_lines(page, service, "my-comments-1-", "c-1")
        assert json.loads(shlex.split(page.inner_text("#curl"))[-1]) == {
            "task": "c-1",
            "context": {"length": 20, "language": "en"},
            "payload": {"text": 'Nice picture, it\'s "great"', "length": "20", "language": "en"},
            "model_answer": "fine",
        }
        assert accessibility_faults(page) == []


@pytest.mark.parametrize(
    ("content", "uses"),
    [
        (b"a;b\n1,5;x\n2,5;x\n3;y\n4;y\n", ["number", "category"]),
        ("größe\tname\n1\tMüller\n2\tMayer\n".encode("windows-1252"), ["number", "shown"]),
        ("\ufeffa,b\r\n1,\r\n2,\r\n".encode(), ["number", "unused"]),
        (b"a,b\n" + b"1,2\n" * 400_000, ["number", "number"]),  # only its beginning is read
    ],
    ids=["semicolons", "windows", "empty column", "large"],
)
def test_files_as_they_come(
    browser: Browser, service: Running, tmp_path: Path, content: bytes, uses: list[str]
) -> None:
    table = tmp_path / "table.csv"
    table.write_bytes(content)
    with watched(browser, service.url) as page:
        page.goto(f"{service.url}/console/new")
        page.get_by_label("Read the features from a CSV file").set_input_files(table)
        page.locator("td.use select").first.wait_for()
        assert [each.input_value() for each in page.locator("td.use select").all()] == uses


def test_a_file_without_rows_is_refused(browser: Browser, service: Running, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("a,b\n")
    with watched(browser, service.url) as page:
        page.goto(f"{service.url}/console/new")
        page.get_by_label("Read the features from a CSV file").set_input_files(table)
        expect(page.get_by_text("The file needs a header and at least one row.")).to_be_visible()


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_the_page_in_every_look(browser: Browser, service: Running, width: int, colours: str) -> None:
    with watched(browser, service.url, viewport={"width": width, "height": 800}, color_scheme=colours) as page:
        page.goto(f"{service.url}/console/new")
        page.get_by_label("Name", exact=True).wait_for()
        assert accessibility_faults(page) == []
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
