"""The verdicts on docs/paper.md and the gains on docs/comparison.md, made of what `deferkit reproduce` has kept.

    deferkit reproduce --out results
    python -m checks.paper_page results [more results]

Each experiment is taken from the first folder that has it. What no folder has stays on the page as it is, and if it
was never there its claims stand without a verdict.
"""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from checks.docstring_markdown import cell
from deferkit.study.drawing.charts import runs_text
from deferkit.study.experiments import REGISTRY, load
from deferkit.study.experiments.experiment import Experiment, Finding

DOCS = Path(__file__).parents[1] / "docs"
PAPER, COMPARISON, FIGURES = DOCS / "paper.md", DOCS / "comparison.md", DOCS / "figures"
RIVALS = "rivals"


def experiments_of_paper() -> list[Experiment]:
    """Return the experiments that judge a claim of the paper."""
    every = [load(name) for name in REGISTRY]
    return [each for each in every if any(claim.source == "paper" for claim in each.claims)]


def place_of(name: str, text: str) -> slice:
    """Return where a page has what is made of an experiment: between two comments."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    return slice(text.index(begin) + len(begin), text.index(end))


def replaced(page: Path, name: str, lines: Sequence[str]) -> None:
    """Write what is made of an experiment into a page."""
    text = page.read_text()
    place = place_of(name, text)
    page.write_text(text[: place.start] + "\n".join(["", *lines, "", ""]) + text[place.stop :])


def findings_table(findings: Sequence[Finding]) -> list[str]:
    """Return claims of the paper, what was measured, and the verdicts."""
    rows = [f"| {each.verdict} | {cell(each.claim)} | {cell(each.measured)} |" for each in findings]
    return ["| verdict | claim of the paper | measured |", "|---|---|---|", *rows]


def made_by(experiment: Experiment, frame: pl.DataFrame) -> str:
    """Return the command, how many trials it ran, and whether these are all of them."""
    whole = len({(spec.key, seed) for spec, seed in experiment.trials(quick=False)})
    seeds = runs_text(frame["seed"].unique().to_list())
    quick = len(frame) < whole
    size = f"; without `--quick` there are {whole:,}" if quick else ""
    command = f"deferkit reproduce {experiment.name}{' --quick' if quick else ''}"
    return f"`{command}`: {len(frame):,} trials, seeds {seeds}{size}."


def without_verdicts(experiment: Experiment) -> list[str]:
    """Return what the page says of an experiment that has not been run for it."""
    claims = [f"- {each.text}" for each in experiment.claims if each.source == "paper"]
    return [*claims, "", f"Not run for this page: `deferkit reproduce {experiment.name}` judges them."]


def chapter(experiment: Experiment, frame: pl.DataFrame) -> list[str]:
    """Return what the page says of an experiment."""
    found = [each for each in experiment.findings(frame) if each.source == "paper"]
    return [
        *findings_table(found),
        "",
        f"![{experiment.title}](figures/{experiment.name}.svg)",
        "",
        made_by(experiment, frame),
    ]


def gains(experiment: Experiment, frame: pl.DataFrame) -> list[str]:
    """Return the gain of each policy in each setting."""
    table = experiment.rows(frame).pivot("setting", index="policy", values="gain", aggregate_function="mean")
    settings = table.columns[1:]
    lines = [f"| policy | {' | '.join(settings)} |", f"|---|{'---:|' * len(settings)}"]
    for policy, *values in sorted(table.rows(), key=lambda row: -sum(row[1:])):
        lines.append(f"| `{policy}` | {' | '.join(f'{value:.1f}' for value in values)} |")
    return [
        *lines,
        "",
        f"![{experiment.title}](figures/{experiment.name}.svg)",
        "",
        made_by(experiment, frame),
    ]


def main(folders: Sequence[Path]) -> None:
    """Write what the folders have."""
    FIGURES.mkdir(exist_ok=True)
    for experiment in [*experiments_of_paper(), load(RIVALS)]:
        folder = next((each for each in folders if (each / f"{experiment.name}.parquet").exists()), None)
        page = COMPARISON if experiment.name == RIVALS else PAPER
        if folder is None:
            print(f"{experiment.name}: none of the folders has it")
            text = page.read_text()
            if page == PAPER and not text[place_of(experiment.name, text)].strip():
                replaced(page, experiment.name, without_verdicts(experiment))
            continue
        frame = pl.read_parquet(folder / f"{experiment.name}.parquet")
        shutil.copy(folder / "figures" / f"{experiment.name}.svg", FIGURES)
        lines = gains(experiment, frame) if experiment.name == RIVALS else chapter(experiment, frame)
        replaced(page, experiment.name, lines)


if __name__ == "__main__":
    main([Path(each) for each in sys.argv[1:]])
