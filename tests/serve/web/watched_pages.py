"""Pages of a running service in a real Chromium. Whatever goes wrong in one is kept, and fails the test."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.serve.harness.clients import until

AXE = Path(__file__).parents[3] / "checks" / "web" / "node_modules" / "axe-core" / "axe.min.js"
GRAVE = {"serious", "critical"}
VIOLATIONS = """async () => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  return violations.map(({ id, impact, help, nodes }) => [impact, `${id}: ${help}: ${nodes.map((n) => n.html)}`]);
}"""


class Troubles(list[str]):
    """What went wrong in a page: errors in its console, reports of its security policy, calls of other hosts."""

    def watch(self, page: Page, url: str) -> None:
        """Keep what goes wrong from now on."""
        page.on("pageerror", lambda error: self.append(f"error: {error}"))
        page.on("console", lambda message: self.append(message.text) if message.type in {"error", "warning"} else None)
        page.on("request", lambda request: None if request.url.startswith((url, "data:")) else self.append(request.url))


@contextmanager
def watched(
    browser: Browser, url: str, *, key: str | None = None, reviewer: str | None = None, **given: Any
) -> Iterator[Page]:
    """Open a page of a service, logged in with a key if there is one; at the end, nothing may have gone wrong.

    Args:
        browser: Chromium.
        url: Where the service listens.
        key: Exchanged for a session.
        reviewer: Whose session it is.
        given: How the browser is to be: `viewport`, `color_scheme`.
    """
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | given)
    try:
        if key is not None:
            session = {"key": key, "reviewer": reviewer}  # a key that was put into the store is known within a second
            until(lambda: context.request.post(f"{url}/v1/session", data=session).status == 201, "the key is taken")
        page = context.new_page()
        troubles = Troubles()
        troubles.watch(page, url)
        yield page
        assert troubles == []
    finally:
        context.close()


def accessibility_faults(page: Page) -> list[str]:
    """Return the serious violations that axe-core finds in a page."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm ci --prefix checks/web")
    page.evaluate(AXE.read_text() + "; null")  # by the debugger: the policy of the page allows no other script
    return [text for impact, text in page.evaluate(VIOLATIONS) if impact in GRAVE]


def settled(page: Page, path: str, text: str) -> None:
    """Go to a path and wait until the main part of the page shows a text and loads nothing any more."""
    page.goto(path)
    page.locator("main").get_by_text(text, exact=False).filter(visible=True).first.wait_for()
    page.wait_for_function("() => !document.querySelector('.loading')")
