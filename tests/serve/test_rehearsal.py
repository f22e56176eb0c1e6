"""What a service rehearses before it listens is all that it compiles: no call waits for a compiler."""

import subprocess
import sys
from pathlib import Path

import msgspec
from numba.core.dispatcher import Dispatcher

from deferkit.learn.rehearsal import rehearse
from deferkit.serve.engine import Engine, EngineSettings
from deferkit.serve.spec import BudgetSpec, PolicySpec
from deferkit.serve.storage.sqlite import Sqlite
from tests.serve.life import Life
from tests.serve.playing import play

ROOT = Path(__file__).parents[2]
BUDGET = BudgetSpec(total=50, horizon=1000, max_cost=1)
PLAIN = PolicySpec(name="p", features=2, budget={"cost": BUDGET})
RICH = msgspec.structs.replace(
    PLAIN,
    link="logistic",
    cost_link="logistic",
    experts=["ann", "bo"],
    budget={"minutes": BUDGET, "euros": BUDGET},
    pacing="adaptive",
)
SPECS = [
    PLAIN,
    RICH,
    msgspec.structs.replace(PLAIN, pacing="gradient", exploration=0.5, explore_floor=0.1),
    msgspec.structs.replace(PLAIN, link="logistic", pacing="paper", warm_up=0),
]


def compiled() -> dict[str, int]:
    """Return how often each function was compiled or loaded so far, among those that Python calls."""
    return {
        f"{path}.{name}": len(value.signatures)
        for path, module in list(sys.modules.items())
        if path.startswith("deferkit.learn")
        for name, value in vars(module).items()
        if isinstance(value, Dispatcher)
    }


def rehearse_and_live(folder: str) -> None:
    """Let policies live after a rehearsal, and nothing else; print what was compiled for them."""
    rehearse()
    before = compiled()

    async def script(engine: Engine) -> None:
        for _ in range(300):
            await life.step(engine)

    for number, spec in enumerate(SPECS):
        database = Sqlite(f"{folder}/{number}.db")
        life = Life(number, spec)
        settings = EngineSettings(snapshot_every=50)
        play(database, script, spec=spec, settings=settings)
        play(database, script, spec=None, settings=settings)
    print(sum(before.values()), [name for name, times in compiled().items() if times != before.get(name, 0)])


def test_after_a_rehearsal_nothing_is_compiled(tmp_path: Path) -> None:
    code = "import sys; from tests.serve.test_rehearsal import rehearse_and_live as f; f(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False, cwd=ROOT
    )
    rehearsed, _, left = done.stdout.partition(" ")
    assert left == "[]\n", done.stderr
    assert int(rehearsed) > 10
