"""Pages in a real Chromium, without a network."""

from pathlib import Path
from typing import Any

from playwright.sync_api import Browser


def opened(browser: Browser, page_file: Path, **given: Any) -> tuple[Any, list[str]]:
    """Open a file, refusing every request that leaves it; return the page and what went wrong."""
    context = browser.new_context(**given)
    page = context.new_page()
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: troubles.append(request.url) if not request.url.startswith("file:") else None)
    page.goto(page_file.as_uri())
    page.wait_for_timeout(1_500)
    return page, troubles
