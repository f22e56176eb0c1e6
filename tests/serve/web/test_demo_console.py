"""`deferkit demo --console`: a visitor reviews a task within a minute, next to simulated people; it ends in order."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import deferkit
from deferkit.cli.demo.tasks import MODEL_IS_RIGHT, PERSON_IS_RIGHT, Comments
from deferkit.cli.demo.views import schedule
from deferkit.errors import InvalidArgument
from tests.command_line import SCRIPT
from tests.command_line import deferkit as run
from tests.serve.harness.clients import TIMEOUT_S
from tests.serve.harness.service_process import processes_with
from tests.serve.web.reviewing import all_sent, answer, seats_of, task_of
from tests.serve.web.watched_pages import Troubles


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The command, in a process of its own."""
    started = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, "demo", "--console", "--store", str(tmp_path / "demo.db")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "TMPDIR": str(tmp_path)},
    )
    yield started
    started.kill()
    started.communicate()


@pytest.mark.browser
def test_a_visitor_reviews_a_comment(browser: Browser, demo: subprocess.Popen[str], tmp_path: Path) -> None:
    assert demo.stdout is not None
    found = None
    while found is None:
        line = demo.stdout.readline()
        assert line, demo.stderr and demo.stderr.read()
        found = re.search(r"(http://127\.0\.0\.1:\d+)/review/comments", line)
    began = time.monotonic()
    page = browser.new_page()
    troubles = Troubles()
    troubles.watch(page, found[1])
    page.goto(found[0])
    page.get_by_label("Your name").fill("visitor")
    page.keyboard.press("Enter")
    page.set_default_timeout(60_000)
    task_of(page)
    expect(page.locator("#guidelines")).to_contain_text("In doubt: fine.")
    task = answer(page, "2")
    all_sent(page)
    assert time.monotonic() - began < 60
    expect(page.get_by_text("The model answered: ")).to_be_visible()
    with deferkit.Client(found[1], policy="comments") as client:
        [seat] = seats_of(client, task)
        assert (seat["reviewer"], seat["answer"]) == ("visitor", {"label": "spam"})
        first = client.summary().decisions
        while client.summary().decisions < first + 3:  # it is alive
            assert demo.poll() is None
    page.close()
    assert troubles == []
    demo.send_signal(signal.SIGINT)
    said, wrong = demo.communicate(timeout=TIMEOUT_S)
    assert demo.returncode == 0, wrong
    assert "Stopped." in said
    assert processes_with(str(tmp_path)) == []


def test_it_ends_when_the_time_is_up(tmp_path: Path) -> None:
    done = run("demo", "--console", "--seconds", "3", "--tasks", "200", "--reviewers", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "/review/comments" in done.stdout
    refused = run("demo", "knapsack", "--console", cwd=tmp_path)
    assert refused.returncode == 2
    assert "plays with comments" in refused.stderr


def test_comments_are_what_they_are_said_to_be() -> None:
    comments = Comments(tasks=4000, budget="10%", seed=1)
    places = range(comments.n_tasks)
    assert comments.budget.total == pytest.approx(0.1 * comments.costs.sum(), abs=1e-6)
    for tricky, share in MODEL_IS_RIGHT.items():
        rewards = [comments.reward(place, "model") for place in places if comments.comment(place).tricky == tricky]
        assert sum(rewards) / len(rewards) == pytest.approx(share, abs=0.03)
    right = [comments.answer(place, "ada")["label"] == comments.comment(place).label for place in places]
    assert sum(right) / len(right) == pytest.approx(PERSON_IS_RIGHT, abs=0.02)
    for place in range(300):
        assert comments.place_of(comments.name_of(place)) == place
        assert comments.comment(place) == comments.comment(place)
        assert "{" not in comments.payload(place)["comment"]
        assert schedule(place) < schedule(place + 1)
    assert Comments(tasks=10, budget="inf", seed=0).budget.total == float("inf")
    assert Comments(tasks=10, budget="0.5T", seed=0).budget.total == 5.0
    with pytest.raises(InvalidArgument, match="A budget must be"):
        Comments(tasks=10, budget="ten", seed=0)
