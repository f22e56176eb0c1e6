"""What the experiments with people conclude, on tables whose answer is known; and that their figures draw."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from deferkit.errors import MissingData
from deferkit.study.confidence import confidence
from deferkit.study.drawing.figures import write_figure
from deferkit.study.experiments import imagenet16h, knapsack_bandit, knapsack_regret, knapsack_reward, load, mvh
from deferkit.study.experiments.knapsacks import by_name
from deferkit.study.experiments.people import BUDGETS, PRICED, add_names, names
from deferkit.study.runner import run_study
from deferkit.study.spec import Spec
from deferkit.study.trial_store import PATHS
from deferkit.worlds.base import TaskStream

AT = [float(t) for t in range(40, 4001, 40)]
POLICIES = tuple(names("Linear"))
GAINS = {
    "linear": 50.0,
    "default": 64.5,
    "neural": 60.0,
    "tree": 65.0,
    "paper": 10.0,
    "best-reject": 30.0,
    "neural-ucb": 55.0,
}
GAINS |= {"neural-ts": 45.0, "arbitrary-human": 3.0, "human-only": -5.0, "model-only": 0.0, "opt": 100.0}

Gain = Callable[[dict[str, Any]], float]


def row(policy: str, budget: str, seed: int, gain: Gain, **more: Any) -> dict[str, Any]:
    """A trial in which the model earns 0.8 a task, OPT 1, and regret grows evenly or as a power of t."""
    made: dict[str, Any] = {"policy": policy, "asked_budget": budget, "seed": seed, "feedback": "full", **more}
    noise = ((seed * 7 + len(policy)) % 3 - 1) * 0.1
    got = gain(made) + noise
    lost = (100 - got) / 100 * 0.2
    power = more.get("power", 1.0)
    regret = [lost * 4000 * (t / 4000) ** power for t in AT]
    paths = {"at": AT, "regret_at": regret, "reward_at": [t - r for t, r in zip(AT, regret, strict=True)]}
    made |= dict.fromkeys(PATHS) | paths | {"spent_at": AT} if policy != "opt" else dict.fromkeys(PATHS)
    made |= {"gain": got, "pct_opt": 100 - 100 * lost, "regret": regret[-1], "reward": 4000 - regret[-1]}
    made |= {"spent_pct": 20.0 if more.get("policy_pacing") else 95.0, "defer_rate": 30.0, "us_per_step": 3.0}
    return made


def frame_of(
    gain: Gain = lambda trial: GAINS[trial["policy"]] - (30.0 if trial.get("policy_pacing") else 0.0),
    budgets: tuple[str, ...] = tuple(BUDGETS),
    **more: Any,
) -> pl.DataFrame:
    rows = [
        row(policy, budget, seed, gain, policy_pacing=pacing, **more)
        for policy in POLICIES
        for budget in budgets
        for pacing in (None, "paper")
        if not pacing or (policy in ("linear", "neural") and budget != "inf")
        for seed in range(4)
    ]
    return pl.DataFrame(rows, infer_schema_length=None, schema_overrides=dict.fromkeys(PATHS, pl.List(pl.Float64)))


def verdicts(module: Any, frame: pl.DataFrame) -> list[str]:
    return [finding.verdict for finding in module.EXPERIMENT.findings(frame)]


def test_reward_is_judged_against_either_alone_and_over_time() -> None:
    frame = frame_of(budgets=("inf",))
    # networks are ahead from the first task on, by more than what counts as alike
    assert verdicts(knapsack_reward, frame) == ["holds", "holds in part", "holds"]
    worse = frame_of(lambda t: -9.0 if t["policy"] in ("linear", "neural", "tree") else GAINS[t["policy"]], ("inf",))
    assert verdicts(knapsack_reward, worse) == ["does not hold", "holds in part", "does not hold"]


def test_early_and_late_are_told_apart() -> None:
    """NeuralLinear earns what Linear does in 400 tasks, and 0.1 a task more after them."""
    frame = frame_of(lambda _: 50.0, ("inf",)).filter(pl.col("policy").is_in(["linear", "neural"]))
    later = [t - 400 if t > 400 else 0.0 for t in AT]
    more = [0.1 * t for t in later]
    neural = pl.Series([more if policy == "neural" else [0.0] * len(AT) for policy in frame["policy"]])
    moved = frame.with_columns(reward_at=pl.col("at") * 0.5 + neural)
    early, late = knapsack_reward.between(by_name(moved), "NeuralLinear", "Linear")
    assert early == pytest.approx((0.0, 0.0), abs=1e-12)
    assert late == pytest.approx((0.1, 0.0), abs=1e-12)
    whole = frame_of(budgets=("inf",))
    steady = [0.5 * t for t in AT]
    ahead = [base + extra for base, extra in zip(steady, more, strict=True)]
    paths = pl.Series([ahead if policy == "neural" else steady for policy in whole["policy"]])
    assert verdicts(knapsack_reward, whole.with_columns(reward_at=paths))[1] == "holds"


def test_regret_is_judged_by_its_exponent() -> None:
    def gain(trial: dict[str, Any]) -> float:
        limited = trial["asked_budget"] != "inf"
        return GAINS[trial["policy"]] - 30.0 * bool(trial["policy_pacing"]) - 5.0 * float(limited)

    frame = frame_of(gain, power=2 / 3)
    assert knapsack_regret.exponent(by_name(frame), "Linear", "0.25T") == pytest.approx(2 / 3)
    assert verdicts(knapsack_regret, frame) == ["holds"] * 7
    assert verdicts(knapsack_regret, frame_of(power=1.0))[0] == "does not hold"
    spent = frame.with_columns(spent_pct=pl.when(policy="tree").then(100.01).otherwise("spent_pct"))
    assert verdicts(knapsack_regret, spent)[3] == "does not hold"
    bad_trees = frame_of(lambda t: 40.0 if t["policy"] == "tree" else gain(t))
    assert verdicts(knapsack_regret, bad_trees)[4] == "does not hold"
    good_network = frame_of(lambda t: 70.0 if t["policy"] == "neural-ucb" else gain(t))
    assert verdicts(knapsack_regret, good_network)[5] == "holds in part"
    cheap = frame_of(lambda t: GAINS[t["policy"]] + (1.0 if t["policy_pacing"] else 0.0))
    assert verdicts(knapsack_regret, cheap)[1:3] == ["does not hold", "does not hold"]


@pytest.mark.parametrize(
    ("more", "wanted"), [(2.0, ["holds", "holds"]), (-1.0, ["does not hold", "holds"]), (9.0, ["does not hold"] * 2)]
)
def test_bandit_less_full(more: float, wanted: list[str]) -> None:
    full = frame_of().filter(pl.col("policy").is_in(["linear", "neural", "tree"]), pl.col("policy_pacing").is_null())
    noise = 0.1 * (pl.col("seed") % 2)
    both = pl.concat([full, full.with_columns(pl.lit("bandit").alias("feedback"), gain=pl.col("gain") + more + noise)])
    assert verdicts(knapsack_bandit, both) == wanted


def of_models(gain: Gain) -> pl.DataFrame:
    return pl.concat([frame_of(gain, world_model=model, repeats=True) for model in imagenet16h.MODELS])


def test_imagenet_finds_the_weak_spot() -> None:
    def gain(trial: dict[str, Any]) -> float:
        weak = trial["policy_pacing"] and all(trial[name] == value for name, value in imagenet16h.WEAK.items())
        like = 50.0 if trial["policy"] == "neural" else GAINS[trial["policy"]]
        return like - 30.0 if weak else like - 5.0 * bool(trial["policy_pacing"])

    assert verdicts(imagenet16h, of_models(gain)) == ["holds"] * 6
    flat = of_models(lambda t: GAINS[t["policy"]] + 30.0 * (t["policy"] == "neural"))
    assert verdicts(imagenet16h, flat) == ["holds", "does not hold", "does not hold", "does not hold", "holds", "holds"]
    bad = of_models(lambda t: -20.0 if t["policy"] in ("linear", "neural", "tree") else gain(t))
    assert verdicts(imagenet16h, bad)[0] == "does not hold"
    assert verdicts(imagenet16h, of_models(lambda t: 40.0 if t["policy"] == "tree" else gain(t)))[4] == "does not hold"


def of_orders(lost: float, tree: float = 65.0) -> pl.DataFrame:
    def gain(trial: dict[str, Any]) -> float:
        like = tree if trial["policy"] == "tree" else GAINS[trial["policy"]]
        return like - 30.0 * bool(trial["policy_pacing"]) - lost * float(trial["order"] == "experiment")

    return pl.concat([frame_of(gain, world_model=world["model"], order=world["order"]) for world in mvh.WORLDS])


def test_model_vs_human_judges_the_shift() -> None:
    assert verdicts(mvh, of_orders(1.0)) == ["holds"] * 6
    assert verdicts(mvh, of_orders(8.0))[2] == "does not hold"
    assert "does not hold" in verdicts(mvh, of_orders(1.0, tree=70.0))
    assert verdicts(mvh, of_orders(1.0, tree=20.0))[4] == "does not hold"


FRAMES: dict[str, Callable[[], pl.DataFrame]] = {
    "knapsack-reward": lambda: frame_of(budgets=("inf",)),
    "knapsack-regret": lambda: frame_of(power=0.7),
    "knapsack-bandit": lambda: pl.concat(
        [
            frame_of().filter(pl.col("policy") == "linear", pl.col("policy_pacing").is_null()),
            frame_of()
            .filter(pl.col("policy") == "linear", pl.col("policy_pacing").is_null())
            .with_columns(feedback=pl.lit("bandit")),
        ]
    ),
    "imagenet16h": lambda: of_models(lambda t: GAINS[t["policy"]]),
    "mvh": lambda: of_orders(1.0),
}


@pytest.mark.parametrize("name", FRAMES)
def test_figures_and_tables_are_made(name: str, tmp_path: Path) -> None:
    experiment, frame = load(name), FRAMES[name]()
    drawn = write_figure(experiment.draw(frame), name, tmp_path)
    assert "NaN" not in drawn.svg
    assert "4 trials (seeds 0 to 3" in drawn.svg
    if name.startswith("knapsack"):
        assert "simulated people" in drawn.svg
    tables = experiment.tables_of(frame)
    assert all(len(table) for table in tables.values())
    if name == "knapsack-reward":
        facts = tables["The simulated people, beside what is known of real ones"]
        assert facts.row(0) == ("mean performance of people", "0.895", "0.896")


@pytest.mark.parametrize("name", ["imagenet16h", "mvh"])
def test_without_its_data_an_experiment_says_what_to_download(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEFERKIT_DATA", raising=False)
    with pytest.raises(MissingData, match="Download it from"):
        load(name).trials(True)


def test_nested_parameters_and_clashing_names_fit_a_table() -> None:
    """A trial of knapsacks with parameters of an embedding, kept and read back."""
    many = [
        Spec.of("knapsack", {}, policy=policy, budget="0.05T", policy_parameters=given, trace="path")
        for policy, given in (
            ("linear", PRICED),
            ("model-only", {}),
            ("tree", {"embedding": {"trees": 5, "first": 3_000}}),
        )
    ]
    frame = add_names(run_study([(spec, 0) for spec in many]), "Linear")
    assert frame["who"].to_list() == ["Linear, printed price", "ModelOnly", "TreeLinear"]
    assert frame["policy_embedding"].to_list() == [None, None, json.dumps({"first": 3_000, "trees": 5})]
    for each in frame.iter_rows(named=True):
        assert each["reward_at"][-1] == pytest.approx(each["reward"])
        assert each["reward_at"][-1] + each["regret_at"][-1] == pytest.approx(each["opt"])


def test_confidence_on_a_table_does_not_see_the_outcome() -> None:
    """Noise cannot be foreseen, what the context says can."""
    rng = np.random.default_rng(0)
    x = np.column_stack([np.ones(2_000), rng.random(2_000)]) / 2
    for link, spread in (("identity", 0.3), ("logistic", 0.0)):
        expected = 0.2 + 1.2 * x[:, 1]
        seen = (
            expected + spread * rng.standard_normal(2_000) if spread else (rng.random(2_000) < expected).astype(float)
        )
        stream = TaskStream(x, np.column_stack([seen, seen]), np.ones((2_000, 1, 1)), link=link)
        found = confidence(stream)
        assert np.abs(found - expected).mean() < 0.03
        assert abs(np.corrcoef(found - expected, seen - expected)[0, 1]) < 0.1
