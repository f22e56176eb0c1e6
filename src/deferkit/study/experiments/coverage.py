"""Coverage: the frequency with which the confidence ellipsoid of Lemma 3 contains the true parameters."""

import polars as pl

from deferkit.study.drawing.figures import Ellipsoids
from deferkit.study.drawing.panels import Figure
from deferkit.study.experiments.experiment import Experiment, Grid, Judgement, claim
from deferkit.study.statistics import as_float

TARGETS = ("model reward", "human reward", "cost")
LABELS = {"paper": "Algorithm 1, printed β", "default": "default, its own β"}
SIGMA = 0.1
LEVEL = 95  # per cent: 1 − δ
TIMES = (200, 2_000, 20_000, 50_000)


def points(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each trial, time and parameter: distance (`far`) and β (`beta`) in units of σ."""
    rows = []
    for trial in frame.iter_rows(named=True):
        n = len(TARGETS)
        for i, t in enumerate(trial["at"]):
            for j, target in enumerate(TARGETS):
                far, beta = trial["distance_at"][i * n + j] / SIGMA, trial["factor_at"][i * n + j] / SIGMA
                rows.append((trial["policy"], trial["seed"], t, target, far, beta, far <= beta))
    return pl.DataFrame(rows, schema=["policy", "seed", "at", "target", "far", "beta", "inside"], orient="row")


def always_inside(long: pl.DataFrame) -> float:
    """Return the per cent of trials in which the truth is inside at all times."""
    return 100 * as_float(long.group_by("seed").agg(pl.col("inside").all())["inside"].mean())


def shares(frame: pl.DataFrame, policy: str) -> tuple[list[float], str, float]:
    """Return the per cent of trials inside for each parameter, as text, and β at T in units of the distance."""
    long = points(frame).filter(policy=policy)
    inside = [always_inside(long.filter(target=target)) for target in TARGETS]
    text = ", ".join(f"{target} {share:.0f} %" for target, share in zip(TARGETS, inside, strict=True))
    end = long.filter(pl.col("at") == pl.col("at").max())
    return inside, text, end.select((pl.col("beta") / pl.col("far")).median()).item()


@claim("With probability 1 − δ = 95 %, θ* lies in the ellipsoid for all t ≥ τ (Lemma 3).", "paper")
def _lemma(frame: pl.DataFrame) -> Judgement:
    inside, text, slack = shares(frame, "paper")
    measured = (
        f"Trials in which it does, on a grid of times: {text}. At T the printed β is {slack:.1f} × the distance that"
        " it has to cover."
    )
    return measured, min(inside) >= LEVEL


@claim("The default's intervals are not confidence ellipsoids: they are narrow on purpose.")
def _narrow(frame: pl.DataFrame) -> Judgement:
    inside, text, slack = shares(frame, "default")
    measured = (
        f"Trials in which θ* is inside for all t: {text}; at T β is {slack:.2f} × the distance. What is bought with"
        " that: see the gains of Experiment 2."
    )
    return measured, max(inside) < LEVEL


def tables(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return the share of trials inside at some times."""
    rows = []
    for policy, label in LABELS.items():
        for target in TARGETS:
            part = points(frame).filter(policy=policy, target=target)
            row = {"intervals": label, "parameter": target}
            times = part["at"].unique().sort()
            for wanted in TIMES:
                at = float(times[int((times - wanted).abs().arg_min() or 0)])
                row[f"t ≈ {wanted:,}"] = f"{100 * as_float(part.filter(at=at)['inside'].mean()):.0f} %"
            rows.append(row | {"all t": f"{always_inside(part):.0f} %"})
    return {"Trials with the true parameter inside": pl.DataFrame(rows)}


EXPERIMENT = Experiment(
    title="Coverage of the confidence ellipsoids",
    description="Lemma 3 holds the regret bound up: the true parameter is in the ellipsoid around the estimate at all"
    " times. The distance is that of the learner's own estimates, in its own run; the dashed line is what its width"
    " allows for.",
    grids=(
        Grid(
            policies=tuple(LABELS),
            budgets=[8_000],
            worlds=[{"regime": "random"}],
            trace="coverage",
            seeds=range(100),
            quick={"seeds": range(10)},
        ),
    ),
    figure=Figure(
        title="Lemma 3: how far the truth is from the estimate (solid), and how far the ellipsoid reaches (dashed)",
        spread="median and 5–95 %",
        panels=(Ellipsoids(rows=points, titles=LABELS, targets=TARGETS),),
    ),
    claims=(_lemma, _narrow),
    tables=(tables,),
)
