"""How soon the console shows something, from a service on this machine with 100,000 decisions.

Chromium opens the overview and the page of the policy again and again, each time with an empty cache: the first thing
painted is the frame of the page, the largest one has the data. Both are what Chromium says of itself, from the moment
at which the address was entered.
"""

import argparse
import http.client
import json
import random
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median

from measure import cpu_model, make_console, make_table
from playwright.sync_api import Browser, sync_playwright
from serve import service

DECISIONS, BATCH, N_FEATURES = 100_000, 1000, 20
PAGES = {"overview": "/console", "policy": "/console/p/bench"}
DATA = {"overview": ".policy-card", "policy": ".line-chart path"}
PAINTS = """() => new Promise((done) => {
  new PerformanceObserver((list) => {
    const [first] = performance.getEntriesByName("first-contentful-paint");
    done([first.startTime, list.getEntries().at(-1).startTime]);
  }).observe({ type: "largest-contentful-paint", buffered: true });
})"""


def fill(url: str, decisions: int) -> None:
    """Decide tasks in batches, and report what those cost that went to an expert."""
    host, _, path = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=120)
    rng = random.Random(0)

    def post(path: str, body: object) -> dict[str, list[dict[str, dict[str, str]]]]:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        reply = answer.read()
        assert answer.status == 200, reply
        return json.loads(reply)  # type: ignore[no-any-return]

    for start in range(0, decisions, BATCH):
        tasks = [
            {"task": f"task-{start + i}", "context": [rng.random() for _ in range(N_FEATURES)]} for i in range(BATCH)
        ]
        for result in post(f"/{path}/batch", {"tasks": tasks})["results"]:
            if result["decision"]["route"] != "model":
                outcome = {"task": result["decision"]["task"], "rewards": {"human": 0.9, "model": 0.4}, "cost": 0.5}
                post(f"/{path.removesuffix('decisions')}outcomes", outcome)
    connection.close()


def paints(browser: Browser, url: str, data: str) -> tuple[float, float]:
    """Return the milliseconds until the first and the largest thing was painted."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(url)
    page.locator(data).first.wait_for()
    first, largest = page.evaluate(PAINTS)
    context.close()
    return first, largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=DECISIONS)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    console = make_console()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as folder, service(str(Path(folder) / "bench.db")) as url:
        began = time.perf_counter()
        fill(url, given.decisions)
        console.print(f"{given.decisions:,} decisions in {time.perf_counter() - began:.0f} s; {cpu_model()}")
        root = url.removesuffix("/v1/policies/bench/decisions")
        table = make_table(["page"], ["first paint", "slowest", "with its data", "slowest"])
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for name, path in PAGES.items():
                found = [paints(browser, root + path, DATA[name]) for _ in range(given.rounds + 1)][1:]
                firsts, largest = zip(*found, strict=True)
                table.add_row(
                    name, *(f"{each:.0f} ms" for kind in (firsts, largest) for each in (median(kind), max(kind)))
                )
            browser.close()
        console.print(table)


if __name__ == "__main__":
    main()
