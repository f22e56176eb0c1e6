"""`deferkit plan`: numbers that can be checked by hand, odd tables, the command, its page in a real browser."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Browser
from sklearn.isotonic import IsotonicRegression
from typer.testing import CliRunner, Result

from deferkit.cli.app import add_commands
from deferkit.errors import InvalidArgument
from deferkit.planning import plan as trials_module
from deferkit.planning.plan import (
    LEVELS,
    SHARES,
    Curve,
    Need,
    Plan,
    Point,
    check_plannable,
    nothing,
    plan_of,
    plan_trials,
)
from deferkit.planning.text import headline, remarks
from deferkit.study.allowance import Allowance
from deferkit.study.runner import run_study
from deferkit.study.statistics import crossing, pool_adjacent, slopes
from deferkit.worlds import WORLDS
from deferkit.worlds.base import TaskStream
from tests.browsing import opened

app = add_commands()

TIMES = 25
KINDS = np.repeat([0, 1, 2], [10 * TIMES, 20 * TIMES, 50 * TIMES])


@dataclass(frozen=True, kw_only=True)
class ThreeKinds:
    """A table of 2,000 rows of three kinds, in the order of a seed; only what came is known.

    By hand, everything times 25: 10 tasks on which the human gains 1 for a cost of 1, 20 on which it gains 0.6 for 2,
    50 on which it loses 0.2 and costs 1. Asking always costs 10 + 40 + 50 = 100, so that per cent are units (of 25).
    OPT asks about the first kind, then the second: it gains B up to 10, 10 + 0.3·(B − 10) up to 50, and 22 from there.
    The model alone earns 0·10 + 0.2·20 + 0.6·50 = 34.
    """

    gain: float = 1.0  # times what the human is better
    shift: float = 0.0  # of what the human earns
    chance: float = 0.0  # standard deviation of what the human earns
    cost: float = 1.0  # times the costs
    missing: int = 0
    rows: int = len(KINDS)
    resources: int = 1
    times: int = TIMES  # how often there is each task

    def parameters(self) -> dict[str, Any]:
        return asdict(self)

    def draw(self, seed: int) -> TaskStream:
        kinds = np.repeat([0, 1, 2], [10 * self.times, 20 * self.times, 50 * self.times])
        kind = np.random.default_rng(seed).permutation(kinds)[: self.rows]
        model = np.array([0.0, 0.2, 0.6])[kind]
        human = self.shift + model + self.gain * np.array([1.0, 0.6, -0.2])[kind]
        human += self.chance * np.random.default_rng(7).standard_normal(len(KINDS))[: len(kind)]
        human[: self.missing] = np.nan
        costs = self.cost * np.array([1.0, 2.0, 1.0])[kind]
        costs = np.repeat(costs[:, None, None], self.resources, axis=2)
        return TaskStream(np.eye(3)[kind], np.column_stack([model, human]), costs)


@pytest.fixture(autouse=True)
def _kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WORLDS, "kinds", ThreeKinds)


def made(*, policy: str = "linear", seeds: int = 2, free: bool = False, **parameters: Any) -> Plan:
    """Return a plan; the default, which fits trees, takes a hundred times as long as a linear learner."""
    wanted = plan_trials("kinds", parameters, policy=policy, seeds=range(seeds), free=free)
    return plan_of(run_study(wanted), learner=policy, n_tasks=parameters.get("rows", len(KINDS)))


@pytest.fixture(scope="module")
def plan() -> Iterator[Plan]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(WORLDS, "kinds", ThreeKinds)
        yield made()


@dataclass(frozen=True, kw_only=True)
class FewOfEach(ThreeKinds):
    """An eighth of the table."""

    times: int = TIMES // 8


def by_share(curve: Curve) -> dict[float, Point]:
    return {point.share: point for point in curve.points}


def test_the_curve_of_opt_is_the_one_by_hand(plan: Plan) -> None:
    assert plan.everything == pytest.approx(100 * TIMES)
    assert plan.model == pytest.approx(34 * TIMES)
    assert plan.possible == pytest.approx(22 * TIMES)
    assert (plan.n_tasks, plan.seeds) == (2_000, (0, 1))
    opt = by_share(plan.curves[0])
    assert list(opt) == list(SHARES)
    for share, gained in ((0, 0), (5, 5), (10, 10), (20, 13), (40, 19), (50, 22), (100, 22)):
        point = opt[share]
        assert point.budget == pytest.approx(share * TIMES)
        assert point.gained == pytest.approx(gained * TIMES)
        assert point.reward == pytest.approx((34 + gained) * TIMES)
        assert point.reached == pytest.approx(100 * gained / 22)
        assert point.reward_sd == pytest.approx(0, abs=1e-9)
    assert opt[100].price == 0  # λ* is known there; the slope of a curve is not
    for share, price, asked in ((0, 1.0, 0), (5, 1.0, 5), (20, 0.3, 15), (40, 0.3, 25), (60, 0.0, 30)):
        assert opt[share].price == pytest.approx(price)
        assert opt[share].asked == pytest.approx(asked * TIMES)
        assert opt[share].asked_pct == pytest.approx(100 * asked / 80)


def test_the_needed_budgets_of_opt_are_those_by_hand(plan: Plan) -> None:
    """90 % of 22 is 19.8 = 10 + 0.3·(B − 10), so that B is 42⅔; half of what is above 10 for each unit is asked."""
    for found, level in zip(plan.curves[0].needed, LEVELS, strict=True):
        budget = 10 + (22 * level / 100 - 10) / 0.3
        assert found.level == level
        assert found.budget == pytest.approx(budget * TIMES)
        assert found.share == pytest.approx(budget)
        assert found.asked == pytest.approx((10 + (budget - 10) / 2) * TIMES)
        assert found.price == pytest.approx(0.3)
        assert found.budget_min == pytest.approx(found.budget) == found.budget_max
    assert [each.budget for each in plan.curves[0].needed_of_own] == pytest.approx(
        [each.budget for each in plan.curves[0].needed]
    )


def test_the_learner_needs_a_little_more_and_random_gets_less(plan: Plan) -> None:
    opt, learner, reject, random = plan.curves
    assert [curve.policy for curve in plan.curves] == ["opt", "linear", "best-reject", "random"]
    assert plan.learner is learner
    for mine, best in zip(learner.needed[:2], opt.needed[:2], strict=True):
        assert mine.budget is not None
        assert best.budget is not None
        assert best.budget < mine.budget < 1.3 * best.budget
        left = [point for point in learner.points if point.budget <= mine.budget][-1]
        assert mine.price == left.price
    # below 0.2 it asks about the first kind, below 0.6 the first two: best-reject is as good as OPT here, but for the
    # last cost that has to fit
    assert by_share(reject)[100].reached == pytest.approx(100)
    # asking always gains (10 + 12 − 10)·25, less the few that do not fit any more
    assert by_share(random)[100].reached == pytest.approx(100 * 12 / 22, abs=2)
    assert [need.budget for need in random.needed] == [None] * 3
    assert [point.price for point in learner.points][-1] is None
    prices = [point.price for point in learner.points[:-1]]
    assert prices == sorted(prices, reverse=True)  # type: ignore[type-var]
    assert prices[0] == pytest.approx(1.0, abs=0.25)
    text = headline(plan, "minutes")
    assert text.startswith("With 250 minutes (10 % of reviewing everything): reward 850 → 1,0")
    assert "To get 95 % of what reviewing can bring you need a budget of 1," in text
    assert "the next minute brings 0." in text
    assert remarks(plan)[0].startswith(("From 50 %", "From 60 %"))  # at 50 % itself rounding decides
    same = plan.representation == "linear"  # which its name says already
    assert remarks(plan)[1:] == ([] if same else [f"linear rests on: {plan.representation}."])


def test_a_needed_budget_has_the_price_of_its_place() -> None:
    """Gains of 0, 8, 10 with 0, 50, 100: 9 needs 75, where a unit brings 2/50; of two orders, one is 2 units dearer."""
    rows = [
        (policy, text, seed, budget + seed * 2 * (budget > 0), gained + 5.0)
        for seed in (0, 1)
        for policy in ("opt", "default")
        for text, budget, gained in (("0%", 0.0, 0.0), ("50%", 50.0, 8.0), ("100%", 100.0, 10.0), ("inf", 1e9, 10.0))
        if policy == "opt" or text != "inf"
    ]
    frame = pl.DataFrame(rows, schema=["policy", "asked_budget", "seed", "budget", "reward"], orient="row")
    frame = frame.with_columns(model=pl.lit(5.0), spent=pl.lit(0.0), defer_rate=pl.lit(20.0), opt_price=pl.lit(0.7))
    frame = frame.with_columns(gained_se=pl.lit(1.0), representation=pl.lit("linear"))
    plan = plan_of(frame, learner="default", n_tasks=10)
    found = plan.learner.needed[0]
    assert found.budget == pytest.approx(76)
    assert found.price == pytest.approx(2 / 50)
    assert found.asked == pytest.approx(2)
    assert (found.budget_min, found.budget_max) == pytest.approx((75, 77))
    assert [point.price for point in plan.learner.points] == [pytest.approx(8 / 51), pytest.approx(2 / 50), None]
    assert [point.price for point in plan.curves[0].points] == pytest.approx([0.7] * 3)


rewards = st.lists(st.floats(-100, 100), min_size=2, max_size=12)


@given(rewards)
def test_pooled_values_are_the_nearest_that_never_fall(values: list[float]) -> None:
    weights = [1.0 + (i % 3) for i in range(len(values))]
    ours = pool_adjacent(values, weights)
    theirs = IsotonicRegression().fit_transform(np.arange(len(values)), values, sample_weight=weights)
    assert ours == pytest.approx(theirs.tolist(), abs=1e-6)


@given(rewards)
def test_prices_never_rise_and_lie_on_a_curve_above_all_points(values: list[float]) -> None:
    rising = np.maximum.accumulate(values)  # so that no slope is cut at 0
    budgets = np.cumsum([0.0] + [1.0 + (i % 4) for i in range(len(values) - 1)])
    found = slopes(budgets.tolist(), rising.tolist())
    assert all(one >= other >= 0 for one, other in itertools.pairwise(found))
    above = rising[0] + np.concatenate([[0.0], np.cumsum(found * np.diff(budgets))])
    assert (above >= rising - 1e-6).all()
    assert above[-1] == pytest.approx(rising[-1], abs=1e-6)


@given(rewards, st.floats(-100, 100), st.floats(0, 50))
def test_more_needs_no_less_budget(values: list[float], level: float, more: float) -> None:
    budgets = [float(i) for i in range(len(values))]
    one, other = crossing(budgets, values, level), crossing(budgets, values, level + more)
    assert other is None or (one is not None and one <= other + 1e-9)


def test_levels_between_points_and_beyond() -> None:
    budgets = [0.0, 10.0, 20.0, 40.0]
    assert crossing(budgets, [0.0, 8.0, 10.0, 10.0], 4.0) == 5.0
    assert crossing(budgets, [0.0, 8.0, 10.0, 10.0], 10.0) == pytest.approx(20.0)
    assert crossing(budgets, [0.0, 8.0, 10.0, 10.0], 10.1) is None
    # 8 and 6 are pooled into 7: a peak by chance does not count
    assert crossing(budgets, [0.0, 8.0, 6.0, 10.0], 7.5) == pytest.approx(20 + 20 * 0.5 / 3)
    assert crossing([0.0], [3.0], 3.0) == 0.0


@pytest.mark.parametrize("worse", [{"shift": -1.5}, {"gain": 0.0}], ids=["worse", "equal"])
def test_a_human_who_is_never_better(worse: dict[str, Any]) -> None:
    plan = made(rows=400, **worse)
    assert plan.hopeless
    assert "never better" in headline(plan)
    for curve in plan.curves:
        assert all(point.reached is None for point in curve.points)
        assert all(each == nothing(each.level) for each in (*curve.needed, *curve.needed_of_own))
    assert all(point.price == 0 for point in plan.curves[0].points)
    assert remarks(plan) == []


def test_asking_for_nothing() -> None:
    plan = made(cost=0.0, free=True)
    assert plan.free
    assert plan.everything == 0
    assert "ask wherever the human is better" in headline(plan)
    assert [len(curve.points) for curve in plan.curves] == [1] * 4
    assert plan.curves[0].points[0].reached == pytest.approx(100)
    assert [each.budget for each in plan.curves[0].needed] == [0.0] * 3
    assert plan.learner.points[0].reached == pytest.approx(97, abs=4)
    assert plan.learner.points[0].price == 0


def test_the_unit_of_cost_does_not_matter() -> None:
    """In hours instead of minutes: budgets are a sixtieth, prices sixty times; the rest hardly changes."""
    minutes, hours = made(), made(cost=1 / 60)
    for one, other in zip(minutes.learner.points, hours.learner.points, strict=True):
        assert other.budget * 60 == pytest.approx(one.budget)
        assert other.reward == pytest.approx(one.reward, rel=0.03)
    assert hours.curves[0].points[3].price == pytest.approx(60)


def test_outcomes_that_nobody_can_foresee(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OPT sees them: a learner gets less, and is also measured by what it can get itself."""
    plan = made(chance=1.0)
    assert [each.budget for each in plan.learner.needed] == [None] * 3
    own = plan.learner.needed_of_own[1].budget
    assert own is not None
    assert "The learner (linear) gets at most " in headline(plan)
    assert "For 95 % of its own best you need a budget of 1," in headline(plan)
    monkeypatch.setitem(WORLDS, "noisy", lambda: ThreeKinds(chance=1.0))
    monkeypatch.setattr(ThreeKinds, "parameters", lambda _: {})
    text = " ".join(invoke("noisy", "--policy", "adaptive", "--out", str(tmp_path), "--trials", "2").stdout.split())
    # nor does anybody else: what is achievable is half of what OPT gains
    assert "OPT … random: % of achievable" in text
    assert "achievable 90 % 1," in text
    assert "adaptive 95 % own 1," in text  # the default gets 99 % of what is achievable
    assert "own: of the most that it gains itself" in text
    assert "…" not in text.replace("OPT … random", "")
    assert "OPT, which knows every outcome in advance: + 9" in text


def test_one_row() -> None:
    plan = made(rows=1, seeds=1)
    assert plan.n_tasks == 1
    assert len(plan.curves[0].points) == len(SHARES)
    assert plan.curves[0].points[0].reward_sd is None
    assert headline(plan)
    assert remarks(plan)[0].startswith("1 task shows the form of a plan")
    assert "One order alone" in remarks(plan)[1]


def test_what_cannot_be_planned_for() -> None:
    stream = ThreeKinds(missing=3).draw(0)
    with pytest.raises(InvalidArgument, match="what the human would have done on every row, and 3 of 2,000 rows"):
        check_plannable(stream, "default")
    with pytest.raises(InvalidArgument, match="A plan is for a learner: default, .* Got 'random' instead"):
        check_plannable(ThreeKinds().draw(0), "random")
    with pytest.raises(InvalidArgument, match="A plan is for one resource. This world has 2."):
        check_plannable(ThreeKinds(resources=2).draw(0), "default")


def invoke(*words: str) -> Result:
    return CliRunner().invoke(app, ["plan", *words], catch_exceptions=False)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """What the command writes and prints of 240 rows: the default learner, which fits trees, takes a while."""
    out = tmp_path_factory.mktemp("planned")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(WORLDS, "kinds", FewOfEach)
        done = invoke("kinds", "--out", str(out), "--unit", "minutes", "--trials", "2")
    assert done.exit_code == 0, done.output
    return out, done.stdout


def test_the_command_prints_tables_and_writes_a_page(printed: tuple[Path, str]) -> None:
    out, text = printed
    assert text.startswith("With 30 minutes (10 % of reviewing everything): reward 102 → ")
    assert max(len(line) for line in text.splitlines() if not line.startswith("page:")) <= 80
    assert "…" not in text.replace("OPT … random", "")
    for word in ("budget", "λ*", "best-reject", "2 orders from seed 0", "(minutes)"):
        assert word in " ".join(text.split())
    assert text.splitlines()[-1] == f"page: {out / 'plan.html'}"
    for kind, least in (("png", 20_000), ("svg", 10_000), ("html", 500_000)):
        assert (out / "figures" / f"plan.{kind}").stat().st_size > least
    assert "NaN" not in (out / "figures" / "plan.svg").read_text()


def test_json_has_the_keys_that_are_documented_and_trials_are_kept(
    printed: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, _ = printed
    monkeypatch.setitem(WORLDS, "kinds", FewOfEach)
    kept = sorted((out / "trials").iterdir())
    done = invoke("kinds", "--out", str(out), "--trials", "2", "--json")
    assert sorted((out / "trials").iterdir()) == kept
    data = json.loads(done.stdout)
    docs = (Path(__file__).parents[2] / "docs" / "plan.md").read_text()
    for key in (*data, *data["curves"][0], *data["curves"][0]["points"][0], *data["curves"][0]["needed"][0]):
        assert f"`{key}`" in docs, key
    assert data["tasks"] == 240
    assert data["seeds"] == [0, 1]
    assert data["unit"] is None
    assert data["world_parameters"] == FewOfEach().parameters()
    assert set(data["curves"][0]["points"][0]) == set(Point._fields)
    assert set(data["curves"][0]["needed"][0]) == set(Need._fields)
    assert data["curves"][1]["points"][-1]["price"] is None


@pytest.mark.parametrize("odd", [{"gain": 0.0}, {"cost": 0.0}, {"rows": 1}])
def test_odd_tables_have_a_page_as_well(odd: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WORLDS, "odd", lambda: ThreeKinds(**{"rows": 300} | odd))
    monkeypatch.setattr(ThreeKinds, "parameters", lambda _: {})
    done = invoke("odd", "--out", str(tmp_path), "--trials", "1", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["headline"]
    assert "NaN" not in (tmp_path / "figures" / "plan.svg").read_text()


def test_many_tasks_take_fewer_orders_in_several_rounds_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials_module, "MAX_DECISIONS", 3 * 2_000 * len(SHARES))
    monkeypatch.setattr(trials_module, "ROUND", 10_000)
    done = invoke("kinds", "--policy", "linear", "--out", str(tmp_path))
    assert "There are many tasks (2,000): 3 orders instead of 5; --trials 5 takes them all." in " ".join(
        done.stdout.split()
    )
    assert len(list((tmp_path / "trials").iterdir())) >= 3 * 4  # 18 budgets, 5 in a round; then needed budgets
    frame = pl.concat([pl.read_parquet(path) for path in (tmp_path / "trials").iterdir()])
    grid = [f"{share}%" for share in SHARES]
    budget = pl.col("spec").str.json_path_match("$.budget")
    assert frame.filter(budget.is_in([*grid, "inf"])).height == 3 * (5 * len(SHARES) + 2)
    assert frame.filter(budget.is_in([*grid, "inf"]).not_()).height > 0


def test_ctrl_c_leaves_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("deferkit.planning.answer.run_study", interrupted)
    done = invoke("kinds", "--out", str(tmp_path))
    assert done.exit_code == 130
    assert "the same command goes on from there" in " ".join(done.stderr.split())


@pytest.mark.browser
def test_the_page_in_a_browser_without_a_network(browser: Browser, printed: tuple[Path, str]) -> None:
    out, _ = printed
    for width in (1280, 390):
        page, troubles = opened(browser, out / "plan.html", viewport={"width": width, "height": 900})
        assert troubles == []
        assert page.locator("#figure-plan.vega-embed svg, #figure-plan .vega-embed svg").count() == 1
        assert page.locator("#figure-plan path").count() > 20
        assert "To get 95\N{NO-BREAK SPACE}%" in page.inner_text(".answer")
        assert page.locator("table").count() == 2
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page, troubles = opened(browser, out / "plan.html", java_script_enabled=False)
    assert page.locator("#figure-plan svg").count() == 1
    assert troubles == []


def test_a_curve_that_falls_reaches_its_own_best() -> None:
    """What it gains at most is read from the same rising curve as budgets are: 99 % of it is always reached."""
    gains = {"0%": 0.0, "50%": 10.0, "100%": 6.0}
    rows = [("opt", "inf", float("inf"), 25.0), *(("opt", b, g, 5.0 + 2 * g) for b, g in gains.items())]
    rows += [("default", b, Allowance.from_text(b).number, 5.0 + g) for b, g in gains.items()]
    same = {"seed": 0, "model": 5.0, "spent": 0.0, "defer_rate": 0.0, "opt_price": 0.5, "gained_se": 1.0}
    frame = pl.DataFrame(rows, schema=["policy", "asked_budget", "budget", "reward"], orient="row")
    frame = frame.with_columns(representation=pl.lit("linear"), **{k: pl.lit(v) for k, v in same.items()})
    plan = plan_of(frame, learner="default", n_tasks=900)
    assert all(each.budget is not None for each in plan.learner.needed_of_own)
    assert "gains nothing" not in headline(plan)
