"""Runs the trials that are missing in a store, saves each when it is done, and returns all as a table."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import polars as pl

from deferkit.errors import StudyFailed
from deferkit.study.engines import Local, TrialEngine
from deferkit.study.policy_registry import check_installed, has_embedding
from deferkit.study.spec import Spec, code_digest
from deferkit.study.trial import run_together
from deferkit.study.trial_store import PATHS, Trial, TrialStore

Unit = tuple[tuple[Spec, ...], int]


def run_unit(unit: Unit) -> tuple[str, list[dict[str, Any]]]:
    """Return the digest of the code, and the rows of trials that share a stream; engines run it in other processes."""
    specs, seed = unit
    return code_digest(), run_together(specs, seed)


def units_of(trials: Iterable[Trial]) -> list[Unit]:
    """Group trials by stream, the longest first, so that no long one is left for the end.

    A learner with an embedding takes seconds for a stream: each of its trials is a unit of its own, so that progress
    shows and is kept.
    """
    groups: dict[tuple[str, int, str], dict[str, Spec]] = {}
    for spec, seed in trials:
        alone = spec.key if has_embedding(spec.policy) else ""
        groups.setdefault((spec.world_text, seed, alone), {})[spec.key] = spec
    units = [(tuple(specs.values()), seed) for (_, seed, _), specs in groups.items()]
    return sorted(units, key=weight, reverse=True)


def weight(unit: Unit) -> tuple[bool, int]:
    """Return a sort key that grows with the run time of a unit."""
    specs, _ = unit
    return has_embedding(specs[0].policy), len(specs) * specs[0].world_parameters.get("horizon", 0)


def run_study(
    trials: Sequence[Trial],
    *,
    store: TrialStore | None = None,
    engine: TrialEngine | None = None,
    progress: Callable[[int], None] | None = None,
    failed: list[tuple[Trial, str]] | None = None,
) -> pl.DataFrame:
    """Return a table of trials, a row each; trials that the store does not have are run.

    Args:
        trials: Pairs of a specification and a seed; one that is listed twice runs once.
        store: Where results are saved; in memory by default.
        engine: Where trials run; in this process by default. With `Local()` they run in a process for each core; a
            script then needs `if __name__ == "__main__":` around it.
        progress: Is called with a number of trials that are done.
        failed: A list that failed trials are appended to, with their errors; the table then goes without them.

    Returns:
        The table of `table`.

    Raises:
        StudyFailed: A trial failed and `failed` is not given; the others were saved.
        InvalidArgument: A policy needs a library that is not installed.

    >>> spec = Spec.of("synthetic", {"horizon": 200}, policy="opt", budget="10")
    >>> run_study([(spec, 0), (spec, 1)], engine=Local(1)).select("policy", "regime", "seed", "gain").rows()
    [('opt', 'complementary', 0, 100.0), ('opt', 'complementary', 1, 100.0)]
    """
    store = TrialStore(None) if store is None else store
    engine = Local(1) if engine is None else engine
    wanted = [trial for trial in trials if trial not in store]
    check_installed({spec.policy for spec, _ in wanted})
    units = units_of(wanted)
    failures = [] if failed is None else failed
    for place, (code, rows) in engine.map(run_unit, units) if units else ():
        if code != code_digest():
            raise StudyFailed("A worker runs other code than this process; nothing of it is kept.")
        specs, seed = units[place]
        pairs = [((spec, seed), row) for spec, row in zip(specs, rows, strict=True)]
        store.save(pair for pair in pairs if "failure" not in pair[1])
        failures += [(trial, row["failure"]) for trial, row in pairs if "failure" in row]
        if progress is not None:
            progress(len(rows))
    if failures and failed is None:
        (spec, seed), error = failures[0]
        first = f"{spec.policy}, budget {spec.budget}, seed {seed}: {error}"
        saved = "" if store.directory is None else "; the others are saved"
        raise StudyFailed(f"{len(failures)} of {len(trials)} trials failed{saved}. First: {first}")
    return table(trials, store)


def count_missing(trials: Iterable[Trial], store: TrialStore) -> int:
    """Return the number of different trials that a store does not have."""
    return len({(spec.key, seed) for spec, seed in trials if (spec, seed) not in store})


def table(trials: Sequence[Trial], store: TrialStore) -> pl.DataFrame:
    """Return the trials of a store as a table: parameters of world and policy, the seed, the results.

    A parameter of a policy is called `policy_…`; one of a world that has the name of a result is called `world_…`.
    """
    there = list({(spec.key, seed): (spec, seed) for spec, seed in trials if (spec, seed) in store}.values())
    rows = []
    for (spec, seed), row in zip(there, store.rows(there), strict=True):
        plain = json.loads(spec.text)
        given = {k: v for k, v in plain.items() if k not in ("world_parameters", "policy_parameters", "budget")}
        results = {k: v for k, v in row.items() if k not in ("key", "seed", "spec")}
        asked = {"asked_budget": spec.budget, "seed": seed}
        world = {f"world_{k}" if k in results else k: flat(v) for k, v in plain["world_parameters"].items()}
        told = {f"policy_{k}": flat(v) for k, v in plain["policy_parameters"].items()}
        rows.append(world | told | given | asked | results)
    return pl.DataFrame(rows, infer_schema_length=None, schema_overrides=dict.fromkeys(PATHS, pl.List(pl.Float64)))


def flat(value: Any) -> Any:
    """Return a parameter as a cell of a table: lists and mappings become JSON.

    >>> flat({"every": [[0, 20]]}), flat(0.1)
    ('{"every": [[0, 20]]}', 0.1)
    """
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else value
