"""A representation is one class and one line of the registry, in the library and in the service."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deferkit import Budget, Deferrer
from deferkit.learn.embed import REPRESENTATIONS
from deferkit.learn.embed.embedding import Shape
from deferkit.learn.embed.representation import Host, Representation, RepresentationKind
from deferkit.learn.embed.training_set import Floats


class Squares(RepresentationKind):
    """The context, and the context with its squares, in the mixture."""

    name = "squares"
    trains = True

    def view_names(self, shape: Shape) -> tuple[str, ...]:  # noqa: ARG002
        return ("linear", "squares")

    def width(self, shape: Shape) -> int:
        return 2 * shape.n_features

    def make(self, host: Host) -> "WithSquares":
        return WithSquares(host)


class WithSquares(Representation):
    """Nothing is learned but the estimates."""

    trains = True

    def write(self, x: Floats, out: Floats) -> None:
        d = x.shape[1]
        out[:] = 0.0
        out[:, :d] = out[:, 2 * d : 3 * d] = x
        out[:, 3 * d :] = x**2

    def transform(self, x: Floats) -> Floats:
        out = np.zeros((len(x), 4 * x.shape[1]))
        self.write(x, out)
        return out


def test_a_representation_is_a_line_of_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REPRESENTATIONS, "squares", Squares())
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (400, 2))
    rewards = {"model": x[:, 0] ** 2, "human": np.full(400, 0.5)}
    budget = Budget(100, horizon=400, max_cost=1)
    by_run, by_step = (Deferrer(n_features=2, budget=budget, representation="squares") for _ in range(2))
    run = by_run.run(x, rewards, np.full((400, 1, 1), 0.5), feedback="bandit")
    for t in range(400):
        decision = by_step.decide(x[t])
        known = {decision.route: float(rewards[decision.route][t])}
        by_step.observe(decision.id, known, None if decision.route == "model" else 0.5)
        assert decision.route == run.deciders[run.routes[t]]
    assert by_step == by_run == Deferrer.from_bytes(by_run.to_bytes())
    assert by_run.representation_shares()["model"]["squares"] > 0.5


SERVED = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from deferkit.learn.embed import REPRESENTATIONS
from tests.learn.test_registry import Squares
REPRESENTATIONS["squares"] = Squares()
from pathlib import Path
from deferkit.serve.audit.replay import replay
from deferkit.serve.domain.spec import PolicySpec
from deferkit.serve.storage.sqlite import Sqlite
from tests.serve.harness.in_process import KEY, POLICY, decide, observe, play
import msgspec

async def script(engine):
    for i in range(20):
        await decide(engine, f"t{{i}}", context=[i / 20, 0.5], force="human")
        await observe(engine, f"t{{i}}", rewards={{"human": 1.0, "model": 0.5}}, cost=0.1)
    assert replay(engine.store, *KEY).faults == []
    print(engine.owned[KEY].policy.spec.representation)

play(Sqlite(sys.argv[1]), script, spec=msgspec.convert(POLICY | {{"representation": "squares"}}, PolicySpec))
"""


def test_the_service_serves_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SERVED, str(tmp_path / "a.db")]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (shown.stdout, shown.stderr) == ("squares\n", "")
