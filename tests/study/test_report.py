"""`deferkit reproduce --quick` as a user runs it, and its report in a real browser without a network."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from playwright.sync_api import Browser

from deferkit.study.experiments import DEFAULT, load
from tests.browsing import opened
from tests.command_line import SCRIPT, deferkit
from tests.few_seeds import SETUP, few_seeds

NAMES = list(DEFAULT)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Everything that the quick version writes, and what it prints."""
    folder = tmp_path_factory.mktemp("reproduced")
    done = deferkit("reproduce", "--quick", cwd=folder, timeout_s=600, setup=SETUP)
    assert done.returncode == 0, done.stderr
    return folder / "results", done.stdout


def test_it_ends_with_the_table_and_the_path_of_the_report(made: tuple[Path, str]) -> None:
    out, printed = made
    assert re.search(r"default +9\d\.\d", printed)
    for name in ("paper", "best-reject", "arbitrary-human", "model-only", "opt"):
        assert name in printed
    assert "The regret of Algorithm 1 is sublinear" in printed
    assert "results/report.html" in printed.splitlines()[-1]
    assert max(len(line) for line in printed.splitlines()) <= 80
    assert (out / "report.html").is_file()


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_has_a_figure_and_its_trials(made: tuple[Path, str], name: str) -> None:
    out, _ = made
    for kind, least in (("png", 20_000), ("svg", 10_000), ("html", 500_000)):
        assert (out / "figures" / f"{name}.{kind}").stat().st_size > least
    with few_seeds():
        wanted = {(spec.key, seed) for spec, seed in load(name).trials(True)}
    assert len(pl.read_parquet(out / f"{name}.parquet")) == len(wanted)
    svg = (out / "figures" / f"{name}.svg").read_text()
    assert "NaN" not in svg
    assert "trials" in svg  # how many, in the subtitle


def test_a_second_run_has_nothing_to_do_and_says_so(made: tuple[Path, str], tmp_path: Path) -> None:
    out, _ = made
    before = pl.read_parquet(out / "noise.parquet")
    shutil.copytree(out / "trials", tmp_path / "trials")
    done = deferkit("reproduce", "noise", "--quick", "--out", str(tmp_path), setup=SETUP)
    assert done.returncode == 0, done.stderr
    assert f"{len(before)} trials, {len(before)} of them are there already" in " ".join(done.stderr.split())
    assert pl.read_parquet(tmp_path / "noise.parquet").equals(before)


def running_reproduction(out: Path) -> subprocess.Popen[str]:
    """Start an experiment in two processes, and wait until some of its streams are done."""
    words = ("reproduce", "horizon", "--quick", "--workers=2")
    process = subprocess.Popen(
        [sys.executable, "-c", f"{SETUP}; {SCRIPT}", *words, f"--out={out}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and len(list(out.glob("trials/*.parquet"))) < 2:
        time.sleep(0.05)
    return process


def test_ctrl_c_with_workers_saves_what_is_done_and_leaves_nobody_behind(
    made: tuple[Path, str], tmp_path: Path
) -> None:
    process = running_reproduction(tmp_path)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "the same command goes on" in " ".join(err.split())
    assert "Traceback" not in err
    assert nobody_left(process.pid)
    kept = len(list(tmp_path.glob("trials/*.parquet")))
    assert kept >= 2
    again = deferkit("reproduce", "horizon", "--quick", "--out", str(tmp_path), setup=SETUP)
    assert again.returncode == 0, again.stderr
    assert "are there already" in again.stderr
    one, two = (pl.read_parquet(p / "horizon.parquet").drop("us_per_step") for p in (tmp_path, made[0]))
    assert one.equals(two)


def test_sigterm_leaves_nobody_behind(tmp_path: Path) -> None:
    process = running_reproduction(tmp_path)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert nobody_left(process.pid)


def nobody_left(group: int) -> bool:
    """Whether all processes of a group are gone, within a few seconds."""
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@pytest.fixture(scope="module")
def full_report(made: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the report alone: it needs none of the files beside it."""
    copy = tmp_path_factory.mktemp("page") / "report.html"
    shutil.copy(made[0] / "report.html", copy)
    return copy


@pytest.mark.browser
def test_the_page_works_alone_and_without_a_network(browser: Browser, full_report: Path) -> None:
    page, troubles = opened(browser, full_report, viewport={"width": 1280, "height": 900})
    assert troubles == []
    assert page.locator(".chart.vega-embed svg, .chart .vega-embed svg, .chart svg").count() >= len(NAMES)
    assert page.locator(".vega-embed").count() == len(NAMES)
    verdicts = page.locator(".verdict").all_inner_texts()
    assert len(verdicts) > 30  # each claim twice: at the top and at its experiment
    assert set(verdicts) <= {"holds", "holds in part", "does not hold"}
    assert "quick" in page.inner_text("main")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    for name in NAMES:
        assert page.locator(f"nav a[href='#{name}']").count() == 1


@pytest.mark.browser
def test_a_click_on_the_legend_picks_a_line(browser: Browser, full_report: Path) -> None:
    page, troubles = opened(browser, full_report, viewport={"width": 1280, "height": 900})
    figure = page.locator("#figure-exp2")
    figure.scroll_into_view_if_needed()
    before = figure.inner_html()
    figure.locator("text=paper").first.click()
    page.wait_for_timeout(500)
    assert figure.inner_html() != before
    assert 'opacity="0.12"' in figure.inner_html()
    assert troubles == []


@pytest.mark.browser
def test_the_page_without_scripts_and_on_a_phone(browser: Browser, full_report: Path) -> None:
    page, troubles = opened(browser, full_report, java_script_enabled=False)
    assert page.locator(".chart svg").count() == len(NAMES)
    assert troubles == []
    page, troubles = opened(browser, full_report, viewport={"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert troubles == []


@pytest.mark.browser
def test_an_interactive_figure_works_alone(browser: Browser, made: tuple[Path, str]) -> None:
    page, troubles = opened(browser, made[0] / "figures" / "exp1.html")
    assert page.locator(".vega-embed svg").count() >= 1
    assert troubles == []
