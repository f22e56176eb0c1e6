"""Functions of the dashboard, called in a real browser and compared with numbers that are computed here."""

import itertools
import math
import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from deferkit import Budget, Deferrer
from tests.serve.harness.in_process import running
from tests.serve.web.watched_pages import watched

pytestmark = pytest.mark.browser

STANDING: dict[str, Any] = {
    "name": "p",
    "decisions": 10,
    "unit": "minutes",
    "budget": {"minutes": {"total": 10, "posted": 4, "reserved": 1, "suspense": 0, "free": 5}},
    "horizon": 1000,
    "pace": 1.0,
    "runs_out_at": None,
    "runs_out_task": None,
    "next_unit": 0.1184,
    "alarms": [],
    "reward_range": [0, 1],
}


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page of a service, to load modules in."""
    with running(tmp_path_factory.mktemp("modules")) as service, watched(browser, service.url) as page:
        page.goto(f"{service.url}/console/login")
        yield page


def called(page: Page, module: str, function: str, *given: Any) -> Any:
    """Return what an exported function returns."""
    script = "async ([module, name, given]) => (await import(`/web/${module}`))[name](...given)"
    return page.evaluate(script, [module, function, list(given)])


def test_bars_of_a_decision_are_what_deciders_were_compared_by(page: Page) -> None:
    learner = Deferrer(n_features=2, budget=Budget(20, horizon=300, max_cost=1), warm_up=5)
    compared = set()
    for number in range(200):
        decision = learner.decide([1.0, (number % 7) / 7])
        asked = decision.route != "model"
        learner.observe(decision.id, rewards={"model": 0.3, "human": 0.9}, cost=0.4 if asked else None)
        if decision.reason not in {"worth it", "not worth it"} or number < 140:
            continue
        compared.add(decision.reason)
        model, human = called(page, "charts/decision_bars.js", "indices", decision._asdict())
        price, cost, spread = decision.price, decision.costs["human"], decision.cost_widths["human"]
        assert isinstance(price, float)
        assert isinstance(cost, float)
        assert isinstance(spread, float)
        net = decision.estimates["human"] + decision.widths["human"] - price * max(0.0, cost - spread)
        assert human["net"] == pytest.approx(net)
        assert (human["net"] > model["net"]) == asked
    assert compared


def test_a_price_of_several_resources(page: Page) -> None:
    decision = {
        "price": {"minutes": 0.1, "euros": 0.5},
        "estimates": {"model": 0.5, "human": 1.0},
        "widths": {"model": 0.0, "human": 0.25},
        "costs": {"human": {"minutes": 2.0, "euros": 0.5}},
        "cost_widths": {"human": {"minutes": 1.0, "euros": 1.0}},
    }
    rows = called(page, "charts/decision_bars.js", "indices", decision)
    assert rows[0] == {"decider": "model", "estimate": 0.5, "width": 0, "priced": 0, "net": 0.5}
    assert rows[1]["priced"] == pytest.approx(0.1 * (2 - 1) + 0.5 * 0)
    assert rows[1]["net"] == pytest.approx(1.25 - 0.1)


@pytest.mark.parametrize(
    ("low", "high", "count"), [(0, 1, 5), (-3, 8, 4), (0.61, 0.63, 5), (0, 123_456, 6), (5, 5, 4), (0, 1e-9, 3)]
)
def test_marks_of_an_axis_are_round_and_within_it(page: Page, low: float, high: float, count: int) -> None:
    marks = called(page, "charts/scales.js", "ticks", low, high, count)
    assert 1 <= len(marks) <= 2 * count + 1
    room = (high - low) * 1e-6
    assert all(low - room <= mark <= high + room for mark in marks)
    if len(marks) > 1:
        step = marks[1] - marks[0]
        digits = step / 10 ** math.floor(math.log10(step) + 1e-9)
        assert any(digits == pytest.approx(round_one, rel=1e-6) for round_one in (1, 2, 5))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({}, "The next minute brings about 0.12 right answers."),
        ({"reward_range": [-1, 1]}, "The next minute brings about 0.12 reward."),
        ({"unit": "cost"}, "The next unit of cost brings about 0.12 right answers."),
        ({"next_unit": 0}, "The next minute brings nothing: there is enough budget."),
        ({"next_unit": None}, "What the next minute brings is not known yet."),
    ],
)
def test_the_next_unit_in_one_sentence(page: Page, change: dict[str, Any], sentence: str) -> None:
    assert called(page, "console/wording.js", "nextUnit", STANDING | change) == sentence


@pytest.mark.parametrize(
    ("change", "text", "tone"),
    [
        ({"pace": 0.9}, "On plan", "good"),
        ({"pace": 1.1}, "On plan", "good"),
        ({"pace": 0.89}, "Behind plan", "warn"),
        ({"pace": 1.11}, "Ahead of plan", "warn"),
        ({"pace": None}, "No plan", ""),
        ({"pace": None, "decisions": 0}, "No decisions yet", ""),
        ({"alarms": [{"kind": "suspense", "text": ""}]}, "Frozen", "bad"),
        ({"alarms": [{"kind": "drift", "text": ""}]}, "On plan", "good"),
    ],
)
def test_whether_it_is_on_plan(page: Page, change: dict[str, Any], text: str, tone: str) -> None:
    assert called(page, "console/wording.js", "pace", STANDING | change) == {"text": text, "tone": tone}


@pytest.mark.parametrize(
    ("change", "text", "note"),
    [
        ({"runs_out_at": 0.0, "runs_out_task": 1000}, "It lasts", "for all 1,000 planned tasks"),
        ({"runs_out_at": None}, "Not in sight", "5 minutes free"),
        ({"budget": {"minutes": STANDING["budget"]["minutes"] | {"free": 0}}}, "Now", "nothing is free"),
        ({"budget": {"minutes": STANDING["budget"]["minutes"] | {"total": None}}}, "Never", "no limit is set"),
    ],
)
def test_when_it_runs_out(page: Page, change: dict[str, Any], text: str, note: str) -> None:
    assert called(page, "console/wording.js", "runsOut", STANDING | change) == {"text": text, "note": note}


@pytest.mark.parametrize(
    ("remark", "text"),
    [
        ("asked 1 of 9; 99 % unspent: 0.2 is below. Report `cost`, or `expire`.", "Report cost, or expire."),
        ("asked 1 of 9; 99 % unspent: it is worth it again.", ""),
        ("", ""),
    ],
)
def test_what_would_make_a_policy_ask_more(page: Page, remark: str, text: str) -> None:
    assert called(page, "console/wording.js", "remedy", STANDING | {"remark": remark}) == text
    assert called(page, "console/wording.js", "remedy", STANDING) == ""


def test_it_runs_out_before_its_plan_ends(page: Page) -> None:
    standing = STANDING | {"runs_out_at": time.time() + 3630, "runs_out_task": 999}
    assert called(page, "console/wording.js", "runsOut", standing)["note"] in {
        f"in 1 h{minutes}, task 999" for minutes in ("", " 1 min")
    }


@pytest.mark.parametrize(
    ("seconds", "step"), [(4, 1), (100, 30), (3600, 600), (50_000, 10_800), (10 * 86_400, 172_800)]
)
def test_moments_of_an_axis_are_round(page: Page, seconds: int, step: int) -> None:
    start = 1_794_951_325
    moments, found = called(page, "charts/line_chart.js", "moments", start, start + seconds, 6)
    assert found == step
    assert 1 <= len(moments) <= 7
    assert all(start <= moment <= start + seconds for moment in moments)
    assert {right - left for left, right in itertools.pairwise(moments)} <= {step}


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (103.44, 9.71, "103.4 ± 9.7"),
        (0.84211, 0.00613, "0.8421 ± 0.0061"),
        (-12.3, 150.0, "−12 ± 150"),
        (5.0, None, "5"),
    ],
)
def test_a_value_has_as_many_digits_as_its_error(page: Page, value: float, error: float | None, text: str) -> None:
    assert called(page, "console/wording.js", "withError", {"value": value, "error": error}) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,000", 1000),
        ("1,000.5", 1000.5),
        (" 12.25 ", 12.25),
        ("−20", -20),
        ("1 000", 1000),
        ("1,234,567", 1234567),
        ("12,5", None),
        ("1,00", None),
        ("1.000,5", None),
        ("1e3", None),
        ("ten", None),
        ("", None),
        (".", None),
        ("-", None),
    ],
)
def test_typed_amounts_are_read_as_the_page_writes_them(page: Page, text: str, value: float | None) -> None:
    assert called(page, "format.js", "parseNumber", text) == value


@pytest.mark.parametrize("value", [0.5, 7.25, 999, 1000, 1203.4, 12_345.678, 20_000_000])
def test_an_exact_amount_is_read_back(page: Page, value: float) -> None:
    assert called(page, "format.js", "parseNumber", called(page, "format.js", "exact", value)) == value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "zero"),
        (13, "thirteen"),
        (21, "twenty-one"),
        (100, "one hundred"),
        (1000, "one thousand"),
        (1203.4, "one thousand two hundred three point four"),
        (45_000_080, "forty-five million eighty"),
        (0.05, "zero point zero five"),
    ],
)
def test_amounts_in_words(page: Page, value: float, words: str) -> None:
    assert called(page, "format.js", "inWords", value) == words


def test_policies_that_stopped_asking_are_the_most_urgent(page: Page) -> None:
    alarms: list[list[dict[str, str]]] = [[], [{"kind": "drift", "text": ""}], [{"kind": "frozen", "text": ""}]]
    urgencies = [called(page, "console/wording.js", "urgency", STANDING | {"alarms": each}) for each in alarms]
    assert urgencies == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "late"),
    [
        ("human_reward", True),
        ("model_reward", True),
        ("cost", True),
        ("human_label", True),
        ("modelCorrect", True),
        ("model_confidence", False),
        ("model_label", False),
        ("length", False),
    ],
)
def test_columns_that_are_known_only_afterwards_are_not_features(page: Page, name: str, late: bool) -> None:
    assert called(page, "console/csv.js", "isKnownAfterwards", name) is late
