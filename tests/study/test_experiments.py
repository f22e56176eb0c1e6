"""What the experiments conclude, on tables whose answer is known."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from deferkit import Budget, Deferrer, InvalidArgument
from deferkit.study.coverage import distance, grid, run_and_measure
from deferkit.study.experiments import (
    DEFAULT,
    REGISTRY,
    coverage,
    exp1,
    exp2,
    feedback,
    horizon,
    load,
    logistic,
    noise,
    select_experiments,
    small_budget,
)
from deferkit.study.experiments.experiment import BUDGETS, GOALS, NOISY_BUDGETS, REGIMES, SHORT_BUDGETS, goal_claim
from deferkit.study.policy_registry import make_learner
from deferkit.study.statistics import cell, over_trials
from deferkit.worlds.synthetic import Synthetic
from tests.conftest import trial


def test_experiments_by_name() -> None:
    assert [e.name for e in select_experiments(None)] == list(DEFAULT)
    assert [e.name for e in select_experiments(["rivals", "exp1", "rivals"])] == ["rivals", "exp1"]
    with pytest.raises(InvalidArgument, match="There is no experiment 'exp9'. There is: exp1, exp2, horizon"):
        select_experiments(["exp9"])


@pytest.mark.parametrize("name", REGISTRY)
def test_quick_is_a_part_of_full(name: str, picture_data: Path) -> None:
    """So that a full run goes on from what a quick one has; data sets are made-up files here."""
    assert picture_data
    quick, full = ({(s.key, n) for s, n in load(name).trials(q)} for q in (True, False))
    assert quick < full


def power_law(exponents: dict[str, float]) -> pl.DataFrame:
    """Trials whose regret is T^exponent plus OPT's luck, which is large and has mean 0."""
    rows = []
    for policy, exponent in exponents.items():
        for seed in range(10):
            for t in horizon.HORIZONS:
                luck = (seed - 4.5) * math.sqrt(t)
                rows.append(
                    {"policy": policy, "horizon": t, "seed": seed, "regret": 3 * t**exponent + 2.0 * luck}
                    | {"asked_budget": horizon.SHARE if policy != "large" else horizon.LARGE}
                    | {"opt_price": 2.0, "opt_spent": 0.16 * t + luck, "budget": 0.16 * t, "pct_opt": 99.0}
                )
    return pl.DataFrame(rows)


def test_the_exponent_of_a_power_law_is_found() -> None:
    large = power_law({"large": 0.5}).with_columns(policy=pl.lit("paper"))
    frame = pl.concat([power_law({"paper": 0.66, "gradient": 0.47, "default": 0.2}), large])
    for policy, exponent in (("paper", 0.66), ("gradient", 0.47), ("default", 0.2)):
        slope, error = horizon.exponents(frame, policy)
        assert slope == pytest.approx(exponent, abs=1e-9)
        assert error < 1e-9
    verdicts = [finding.verdict for finding in horizon.EXPERIMENT.findings(frame)]
    assert verdicts == ["holds", "does not hold", "holds"]
    none = frame.with_columns(regret=pl.when(pl.col("horizon") == 128_000).then(-1e9).otherwise(pl.col("regret")))
    assert math.isnan(horizon.exponents(none, "paper")[0])
    assert [finding.verdict for finding in horizon.EXPERIMENT.findings(none)][2] == "does not hold"


def test_luck_has_mean_0_and_taking_it_out_narrows() -> None:
    """On 60 streams of T = 4,000: the correction's mean within 3 standard errors of 0, the spread less than half."""
    rows = [trial({"regime": "random", "horizon": 4_000}, "0.16T", ["default"], seed=s)[0] for s in range(60)]
    frame = horizon.add_steady_regret(pl.DataFrame(rows))
    luck = (frame["regret"] - frame["steady"]).to_numpy()
    assert abs(luck.mean()) < 3 * luck.std() / math.sqrt(60)
    assert frame["steady"].to_numpy().std() < 0.5 * frame["regret"].to_numpy().std()


def test_goals_are_judged_one_by_one() -> None:
    rows: list[dict[str, Any]] = [
        {
            "policy": "default",
            "regime": r,
            "noise": 0.1,
            "horizon": 50_000,
            "feedback": f,
            "budget": float(b),
            "gain": g,
        }
        for (r, noise, t), goals in GOALS.items()
        if (noise, t) == (0.1, 50_000)
        for b, g in goals.items()
        for f in ("full", "bandit")
    ]
    judge = goal_claim(noise=0.1, horizon=50_000).judge
    assert (judge(pl.DataFrame(rows)) or ("", ""))[1] == "holds"
    rows[0]["gain"] -= 0.1
    measured, verdict = judge(pl.DataFrame(rows)) or ("", "")
    assert verdict == "holds in part"
    assert "27 of 28 goals" in measured
    assert "complementary, full, B = 500: 93.9 < 94" in measured


def test_who_beats_the_baselines_is_counted_where() -> None:
    gains = {"paper": 50.0, "default": 99.0, "best-reject": 60.0, "threshold": 1.0, "random": 1.0}
    gains |= {"arbitrary-human": 1.0, "model-only": 0.0}
    rows = [
        {"policy": p, "regime": r, "budget": float(b), "feedback": "full", "seed": s}
        | {"gain": (61.0 if p == "paper" and b > 8_000 else g) + 0.1 * s * (p == "paper")}
        for p, g in gains.items()
        for r in REGIMES
        for b in BUDGETS
        for s in range(3)
    ]
    frame = pl.DataFrame(rows)
    contest = exp2.against_baselines(frame, "paper")
    assert (contest.won, contest.settings) == (4, 14)
    assert "dominant B = 8,000 (50 against 60 of best-reject)" in contest.lost
    assert contest.verdict == "holds in part"
    assert exp2.against_baselines(frame, "default").verdict == "holds"
    assert exp2.against_baselines(frame, "threshold").verdict == "does not hold"
    with pytest.raises(ValueError, match="nothing was measured"):
        exp2.against_baselines(frame.filter(pl.col("policy") != "default"), "default")


def test_losses_are_paired_by_seed() -> None:
    common = {"policy": "default", "regime": "dominant", "budget": 500.0}
    rows = [
        common | {"seed": s, "feedback": f, "gain": 90.0 + s - lost, "defer_rate": 5.0}
        for s in range(3)
        for f, lost in (("full", 0.0), ("bandit", 1.0), ("reviewed", 2.0))
    ]
    paired = feedback.losses(pl.DataFrame(rows))
    both = pl.concat(
        [
            pl.DataFrame(rows).with_columns(policy=pl.lit(p), regime=pl.lit(r))
            for p in ("default", "paper")
            for r in REGIMES
        ]
    )
    assert [finding.verdict for finding in feedback.EXPERIMENT.findings(both)] == ["does not hold", "does not hold"]
    kind = both.with_columns(gain=pl.when(feedback="full").then(pl.col("gain")).otherwise(pl.col("seed") + 89.9))
    assert [finding.verdict for finding in feedback.EXPERIMENT.findings(kind)] == ["holds", "holds"]
    assert paired.filter(feedback="bandit")["lost"].to_list() == [1.0] * 3
    assert paired.filter(feedback="reviewed")["seen"].to_list() == [5.0] * 3
    assert paired.filter(feedback="bandit")["seen"].to_list() == [95.0] * 3


def test_distance_in_the_metric_of_the_precision() -> None:
    rng = np.random.default_rng(0)
    half = rng.random((4, 4))
    precision = half @ half.T + np.eye(4)
    theta, true = rng.random(4), rng.random(4)
    wanted = math.sqrt((theta - true) @ precision @ (theta - true))
    assert distance(theta, np.asarray(np.linalg.inv(precision)), true) == pytest.approx(wanted)
    assert grid(20, 50_000)[0] == 20
    assert grid(20, 50_000)[-1] == 50_000


def test_coverage_measures_the_printed_width_and_changes_no_decision() -> None:
    """β(t) = σ·√(2d·log((1 + 2td)/δ)) at the next task t; and the routes of an undisturbed run."""
    stream = Synthetic(regime="random", horizon=3_000, n_features=10).draw(1)
    course, path = run_and_measure(make_learner("paper", stream, [300.0], seed=1), stream, "full")
    for i, t in enumerate(path["at"]):
        beta = 0.1 * math.sqrt(2 * 10 * math.log((1 + 2 * (t + 1) * 10) / 0.05))
        assert path["factor_at"][3 * i : 3 * i + 3] == pytest.approx([beta] * 3, rel=1e-6)
    again = make_learner("paper", stream, [300.0], seed=1)
    run = again.run(stream.contexts, {"model": stream.rewards[:, 0], "human": stream.rewards[:, 1]}, stream.costs)
    np.testing.assert_array_equal(run.routes, course.routes)
    # the last distance, from a least squares of its own
    routes, x = course.routes, stream.contexts
    precision = 1e-6 * np.eye(10) + x[routes == 1].T @ x[routes == 1]
    theta = np.linalg.solve(precision, x[routes == 1].T @ stream.rewards[routes == 1, 1])
    assert stream.truth is not None
    off = theta - stream.truth.thetas[1]
    assert path["distance_at"][-2] == pytest.approx(math.sqrt(off @ precision @ off), rel=1e-6)


def test_coverage_is_for_linear_worlds() -> None:
    stream = Synthetic(link="logistic", horizon=50).draw(0)
    learner = Deferrer(n_features=20, link="logistic", budget=Budget(5, horizon=50, max_cost=3))
    with pytest.raises(InvalidArgument, match="linear worlds"):
        run_and_measure(learner, stream, "full")


def test_coverage_counts_a_trial_as_inside_only_if_it_always_is() -> None:
    base: dict[str, Any] = {"at": [20.0, 30.0], "factor_at": [0.2] * 6, "regime": "random", "asked_budget": "8000"}
    base |= {"horizon": 50_000, "noise": 0.1, "feedback": "full"}
    inside = base | {"policy": "paper", "seed": 0, "distance_at": [0.1] * 6}
    once_out = base | {"policy": "paper", "seed": 1, "distance_at": [0.1, 0.1, 0.1, 0.3, 0.1, 0.1]}
    ours = base | {"policy": "default", "seed": 0, "distance_at": [0.3] * 6}
    first = coverage.EXPERIMENT.findings(pl.DataFrame([inside, once_out, ours]))[0]
    assert "model reward 50 %, human reward 100 %, cost 100 %" in first.measured
    assert first.verdict == "does not hold"


def test_newton_is_judged_with_its_standard_error() -> None:
    def rows(lost: list[float]) -> pl.DataFrame:
        common = {"policy": "default", "regime": "dominant", "asked_budget": "200", "budget": 200.0, "us_per_step": 3.0}
        made = []
        for seed, loss in enumerate(lost):
            one = common | {"seed": seed, "gain": 90.0, "policy_link": None}
            made.append(one | {"pct_opt": 99.0 - loss, "policy_refit": None})
            made.append(one | {"pct_opt": 99.0, "policy_refit": "always"})
            made.append(one | {"pct_opt": 98.0, "policy_refit": None, "policy_link": "identity", "gain": 80.0})
        frame = pl.DataFrame(made, infer_schema_length=None)
        settings = [(r, b) for r in REGIMES for b in logistic.BUDGETS]
        return pl.concat([frame.with_columns(regime=pl.lit(r), budget=pl.lit(float(b))) for r, b in settings])

    assert logistic.EXPERIMENT.findings(rows([0.01, 0.0, 0.02, 0.01]))[0].verdict == "holds"
    assert logistic.EXPERIMENT.findings(rows([0.3, -0.3, 0.3, -0.3]))[0].verdict == "holds in part"
    assert logistic.EXPERIMENT.findings(rows([0.3, 0.2, 0.3, 0.2]))[0].verdict == "does not hold"


def small_frame(**gains: float) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {"policy": p.replace("_", "-"), "regime": r, "budget": float(b), "horizon": t, "noise": 0.1, "feedback": f}
            | {"gain": g, "spent_pct": 99.0, "seed": 0}
            for p, g in gains.items()
            for r in REGIMES
            for t, budgets in ((50_000, small_budget.BUDGETS), (4_000, SHORT_BUDGETS))
            for b in budgets
            for f in ("full", "bandit")
        ]
    )


@pytest.mark.parametrize(
    ("default", "paper", "reject", "verdict"),
    [(95, 40, 60, "holds"), (95, 50, 60, "does not hold"), (95, 10, 96, "does not hold"), (99, -5, 50, "holds")],
)
def test_twice_as_much_is_twice_as_much(default: float, paper: float, reject: float, verdict: str) -> None:
    frame = small_frame(default=default, paper=paper, best_reject=reject)
    assert small_budget.EXPERIMENT.findings(frame)[0].verdict == verdict


def test_noise_compares_with_the_better_of_two_papers() -> None:
    def frame(bolder: float) -> pl.DataFrame:
        rows = [
            {"policy": p, "policy_noise": told, "regime": r, "budget": float(b), "horizon": 50_000, "noise": 0.5}
            | {"feedback": f, "gain": g}
            for p, told, g in (("default", None, 90.0), ("paper", None, 50.0), ("paper", 0.1, bolder))
            for r in REGIMES
            for b in NOISY_BUDGETS
            for f in ("full", "bandit")
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

    assert noise.EXPERIMENT.findings(frame(80.0))[1].verdict == "holds"
    assert noise.EXPERIMENT.findings(frame(91.0))[1].verdict == "does not hold"


def test_one_trial_has_no_spread() -> None:
    row = over_trials(pl.DataFrame({"policy": ["a"], "gain": [3.0]}), ["policy"], "gain").row(0, named=True)
    assert (row["sd"], row["low"], cell(row["mean"], row["sd"], 1)) == (None, 3.0, "3.0")


def test_the_slope_of_a_path_is_that_of_its_second_half() -> None:
    at = [float(t) for t in range(500, 50_001, 500)]
    path = {"at": at, "regret_at": [t**0.5 for t in at], "price_at": at, "spent_at": at}
    frame = pl.DataFrame([path | {"policy": "paper", "feedback": "full", "trace": "path", "opt_price": 1.0}])
    assert exp1.exponent(frame, "paper") == pytest.approx(0.5)
