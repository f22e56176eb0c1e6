"""`deferkit reproduce --quick` as a user runs it, and its report in a real browser without a network."""

import re
import shutil
from pathlib import Path

import polars as pl
import pytest
from playwright.sync_api import Browser

from deferkit.study.experiments import APART, EXPERIMENTS
from tests.browsing import opened
from tests.test_cli import deferkit

NAMES = [name for name in EXPERIMENTS if name not in APART]

pytestmark = pytest.mark.xdist_group("report")  # made once


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Everything that the quick version writes, and what it prints."""
    folder = tmp_path_factory.mktemp("reproduced")
    done = deferkit("reproduce", "--quick", cwd=folder, timeout=600)
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
    assert len(pl.read_parquet(out / f"{name}.parquet")) == len({(s.key, n) for s, n in EXPERIMENTS[name].trials(True)})
    svg = (out / "figures" / f"{name}.svg").read_text()
    assert "NaN" not in svg
    assert "trials" in svg  # how many, in the subtitle


def test_a_second_run_has_nothing_to_do_and_says_so(made: tuple[Path, str], tmp_path: Path) -> None:
    out, _ = made
    before = pl.read_parquet(out / "noise.parquet")
    shutil.copytree(out / "trials", tmp_path / "trials")
    done = deferkit("reproduce", "noise", "--quick", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert f"{len(before)} trials, {len(before)} of them are there already" in " ".join(done.stderr.split())
    assert pl.read_parquet(tmp_path / "noise.parquet").equals(before)


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
