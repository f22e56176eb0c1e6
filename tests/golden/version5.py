"""State files of version 5 with the default rule "2026.12", and digests of what their learners go on to do.

`python -m tests.golden.version5` makes `version5.json` and `version5-*.state` again. Do that while the rule is not
released; later it would compare a commit with itself, and a change of the rule needs a new version of the defaults.
"""

import json
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from deferkit import Budget, Deferrer, Encoder, LinkWarning, Pacing
from tests.early_fits import early_fits
from tests.golden.lives import digest, live
from tests.golden.version3 import SINCE_5, STEPS_AFTER, STEPS_SAVED, digest_without

FOLDER = Path(__file__).parent
LATER = (*SINCE_5, *(f"fit ledger {name}" for name in SINCE_5))  # arrays and counters that came after version 5
SMALL: dict[str, Any] = {"budget": Budget(30, horizon=400, max_cost=1.0), "memory": 120, "pacing": Pacing(window=40)}
TEAM: dict[str, Any] = {"experts": ["ann", "bo"], "explore_floor": 0.1, "seed": 5}


def learners() -> Iterator[tuple[str, Deferrer]]:
    """Return new learners by name."""
    yield "graded", Deferrer(n_features=5, **SMALL, **TEAM)  # the link switches before the file is saved
    yield "switches", Deferrer(n_features=5, **SMALL, **TEAM)  # after it was saved
    yield "never", Deferrer(n_features=5, forget="never", **SMALL, **TEAM)
    yield "confidence", Deferrer(n_features=5, confidence=2, **SMALL, **TEAM)
    encoder = Encoder(numbers=["amount", "age"], categories={"country": ["de", "fr"], "kind": 3})
    yield "encoder", Deferrer(encoder=encoder, representation="linear", confidence="amount", seed=2, **SMALL)
    yield "auto", Deferrer(n_features=5, representation="auto", seed=5, **SMALL)


def state_digest(deferrer: Deferrer) -> str:
    """Return a digest of the whole state of version 5."""
    return digest_without(deferrer, LATER, LATER)


def live_until_saved(deferrer: Deferrer, name: str) -> None:
    """Take a learner to where its file was saved."""
    with early_fits() if name == "auto" else nullcontext():  # small trees make a small file
        live(deferrer, np.random.default_rng(17), STEPS_SAVED, binary=name not in ("graded", "never"))


def continue_with(deferrer: Deferrer, name: str) -> tuple[str, str]:
    """Go on from a state file; return digests of what was decided and of the state at the end.

    Trees are fitted by LightGBM, whose versions differ in the last bit: that learner decides, and observes nothing.
    """
    rng = np.random.default_rng(18)
    if name == "auto":
        log: list[Any] = [tuple(deferrer.decide(rng.random(5) / 5)) for _ in range(20)]
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LinkWarning)
            log = live(deferrer, rng, STEPS_AFTER, binary=name == "confidence")
    return digest(json.dumps(log).encode()), state_digest(deferrer)


def main() -> None:
    golden = {}
    for name, deferrer in learners():
        live_until_saved(deferrer, name)
        file = f"version5-{name}.state"
        deferrer.save(FOLDER / file)
        loaded = Deferrer.load(FOLDER / file)
        saved = state_digest(loaded)
        log, end = continue_with(loaded, name)
        golden[name] = {"file": file, "saved": saved, "log": log, "end": end}
    (FOLDER / "version5.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
