"""State files of version 3, and digests of what their learners go on to do.

`version3.json` and the files `version3-*.state` were made by the commit that added the counters `n_heard` and
`delay_sum`, with `python -m tests.golden.version3`. A later commit that runs it again would compare itself with itself.
`version4.json` and `version4-*.state` were made likewise by the last commit before version 5; its learner with trees
was saved while trees were being fitted.
"""

import json
from collections.abc import Collection, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from deferkit import Budget, Deferrer, Pacing
from deferkit.learn.state import ADDED, NEW_BY_RESOURCE
from tests.early_fits import early_fits
from tests.golden.lives import SINCE_VERSION_4, SINCE_VERSION_5, digest, live

FOLDER = Path(__file__).parent
BUDGET = Budget(30, horizon=400, max_cost=1.0)
SMALL: dict[str, Any] = {
    "budget": BUDGET,
    "memory": 60,
    "pacing": Pacing(window=40),
    "seed": 5,
    "defaults": "2026.11",
}
STEPS_SAVED, STEPS_AFTER = 200, 150
SINCE_5 = ("uncovered", "announced")  # arrays that came with version 6
COUNTERS_SINCE = (*SINCE_VERSION_4, *SINCE_VERSION_5)


def learners() -> Iterator[tuple[str, Deferrer]]:
    """Return new learners by name: the default, which is a mixture, one that forgets nothing, and one with trees."""
    yield "mixture", Deferrer(n_features=5, experts=["ann", "bo"], explore_floor=0.1, **SMALL)
    yield "never", Deferrer(n_features=5, experts=["ann", "bo"], explore_floor=0.1, forget="never", **SMALL)
    yield "auto", Deferrer(n_features=5, representation="auto", **SMALL)


def state_digest(deferrer: Deferrer) -> str:
    """Return a digest of every array that version 3 saved, by its name in the file, and of the counters."""
    arrays = (*NEW_BY_RESOURCE, "clock", "at", "expected", *ADDED, *SINCE_5)
    return digest_without(deferrer, {*arrays, *(f"fit ledger {name}" for name in (*ADDED, *SINCE_5))}, COUNTERS_SINCE)


def digest_without(deferrer: Deferrer, later: Collection[str], later_counters: Collection[str]) -> str:
    """Return a digest of the state without arrays and counters that came later."""
    ledger = deferrer._ledger
    arrays = {name: np.ascontiguousarray(array) for name, array in ledger.state().items() if name not in later}
    lower = np.tril(np.ones(arrays["precision"].shape[1:]))
    for name in ("precision", "rounding"):  # the upper half is not kept up to date
        arrays[name] = arrays[name] * lower
    waiting = np.arange(arrays["stash"].shape[1])[None, :, None] < arrays["n_stashed"][:, None, None]
    arrays["stash"] = np.where(waiting, arrays["stash"], 0.0)
    if deferrer._representation is not None:
        kept = {name: array for name, array in deferrer._representation.state().items() if name not in later}
        arrays |= {f"representation {name}": array for name, array in kept.items()}
    parts = [name.encode() + arrays[name].tobytes() for name in sorted(arrays)]
    counters = {name: count for name, count in ledger.counters().items() if name not in later_counters}
    return digest(*parts, json.dumps(counters, sort_keys=True).encode())


def continue_with(deferrer: Deferrer, name: str) -> tuple[str, str]:
    """Go on from a state file; return digests of what was decided and of the state at the end.

    Trees are fitted by LightGBM, whose versions differ in the last bit: that learner decides, and observes nothing.
    """
    rng = np.random.default_rng(18)
    if name == "auto":
        log: list[Any] = [tuple(deferrer.decide(rng.random(5) / 5)) for _ in range(20)]
    else:
        log = live(deferrer, rng, STEPS_AFTER)
    return digest(json.dumps(log).encode()), state_digest(deferrer)


def main() -> None:
    golden = {}
    for name, deferrer in learners():
        with early_fits() if name == "auto" else nullcontext():  # small trees make a small file
            live(deferrer, np.random.default_rng(17), STEPS_SAVED)
        file = f"version3-{name}.state"
        deferrer.save(FOLDER / file)
        loaded = Deferrer.load(FOLDER / file)
        saved = state_digest(loaded)
        log, end = continue_with(loaded, name)
        golden[name] = {"file": file, "saved": saved, "log": log, "end": end}
    (FOLDER / "version3.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
