"""Take the pictures of the console that docs/ shows: `make pictures`, two minutes.

They are of `deferkit demo --console`: the review page while a task is answered, and the page of the policy.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
SIZE = {"width": 1280, "height": 760}
SCRIPT = "from deferkit.cli import main; main()"
RUNS_S = 60  # before the page of the policy is taken, so that its charts have something to show


@contextmanager
def demo() -> Iterator[str]:
    """Run the demonstration; yield where it listens."""
    words = [sys.executable, "-u", "-c", SCRIPT, "demo", "--console", "--tasks", "2000"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.search(r"(http://\S+)/review/", line):
                    yield found[1]
                    return
            raise AssertionError("The demonstration did not start.")
        finally:
            process.terminate()


def take_review(page: Page, url: str) -> None:
    page.goto(f"{url}/review/comments")
    page.get_by_label("Your name").fill("ada")
    page.keyboard.press("Enter")
    for key in ("2", "1"):
        page.wait_for_selector("#task-title")
        page.wait_for_timeout(6_000)
        page.keyboard.press(key)
    page.wait_for_selector("#task-title")
    page.wait_for_timeout(3_000)
    page.screenshot(path=FOLDER / "review.png")


def take_policy(page: Page, url: str) -> None:
    page.goto(f"{url}/console/p/comments")
    page.wait_for_timeout(1_000 * RUNS_S)
    page.screenshot(path=FOLDER / "policy.png")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    with demo() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE)  # type: ignore[arg-type]
        take_review(page, url)
        take_policy(page, url)
        browser.close()
    for picture in sorted(FOLDER.glob("*.png")):
        print(f"{picture.name}: {picture.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main()
