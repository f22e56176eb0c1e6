"""`deferkit.testing`: all that deferkit has passes its checks, and each check fails on what breaks its promise."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from deferkit import Deferrer, InvalidArgument
from deferkit.learn.embed import EMBEDDINGS
from deferkit.learn.pacing import PACINGS, PacingView, PythonPacing
from deferkit.learn.pacing.compiled import Floats
from deferkit.study.peers import Setting
from deferkit.study.policy_registry import OPTIMA, POLICIES
from deferkit.testing import (
    ContractCheck,
    ContractViolated,
    check_embedding,
    check_pacing,
    check_policy,
    check_world,
    embedding_checks,
    pacing_checks,
    policy_checks,
    world_checks,
)
from deferkit.testing.learner_checks import run_one
from deferkit.worlds import WORLDS
from deferkit.worlds.base import BaseWorld, TaskStream
from deferkit.worlds.synthetic import Synthetic


def failing(checks: list[ContractCheck]) -> set[str]:
    """Return the names of the checks that fail."""
    found = set()
    for check in checks:
        try:
            run_one(check)
        except ContractViolated as error:
            said = str(error)
            found.add(check.name if said.startswith(f"{check.name}: ") and said.endswith(f"{check.promise}.") else said)
    return found


# ------------------------------------------------------------ policies

LEARNER = ["bulk", "propose", "save", "price", "refused"]
ANY = ["budget", "seed", "routes", "inputs", "feedback", "small"]


@pytest.mark.parametrize("name", [name for name in POLICIES if name not in OPTIMA and name != "human-only"])
def test_every_policy_of_deferkit_keeps_the_contract(name: str) -> None:
    assert check_policy(name)[: len(ANY)] == ANY


def test_human_only_knows_no_budget_and_an_optimum_is_no_policy() -> None:
    assert failing(policy_checks("human-only")) == {"budget"}
    with pytest.raises(InvalidArgument, match="The optimum 'opt' knows what no policy is told"):
        check_policy("opt")
    with pytest.raises(InvalidArgument, match="There is no policy 'defalt'"):
        check_policy("defalt")
    with pytest.raises(InvalidArgument, match="is no policy"):
        check_policy(7)


class Sound:
    """Asks about every other task; has a state."""

    def __init__(self, setting: Setting) -> None:
        self.seen = np.zeros(1)
        self.rng = np.random.default_rng(setting.seed)

    def decide(self, x: Floats) -> Any:
        return bool(self.seen[0] % 2)

    def observe(self, x: Floats, asked: bool, reward: float, cost: float) -> None:
        self.seen[0] += 1

    def state(self) -> dict[str, Floats]:
        return {"seen": self.seen}

    def restore(self, saved: dict[str, Floats]) -> None:
        self.seen = saved["seen"]


class OfGlobalStream(Sound):
    def decide(self, x: Floats) -> Any:
        return bool(np.random.random() < 0.5)  # noqa: NPY002


class OfCallsBefore(Sound):
    calls: ClassVar[int] = 0

    def decide(self, x: Floats) -> Any:
        OfCallsBefore.calls += 1
        return OfCallsBefore.calls % 7 == 0


class NoAnswer(Sound):
    def decide(self, x: Floats) -> Any:
        return None


class Writes(Sound):
    def observe(self, x: Floats, asked: bool, reward: float, cost: float) -> None:
        super().observe(x, asked, reward, cost)
        x.flags.writeable = True
        x *= 0.5


class NeedsRewards(Sound):
    def observe(self, x: Floats, asked: bool, reward: float, cost: float) -> None:
        super().observe(x, asked, reward, cost)
        if np.isnan(reward):
            raise ValueError("no reward")


class NeedsFeatures(Sound):
    def decide(self, x: Floats) -> Any:
        return bool(x[1] > 2)


class ForgetsOnRestore(Sound):
    def restore(self, saved: dict[str, Floats]) -> None:
        pass


@pytest.mark.parametrize(
    ("policy", "broken"),
    [
        (Sound, set()),
        (OfGlobalStream, {"seed", "save"}),
        (OfCallsBefore, {"seed", "save"}),
        (NoAnswer, {"budget", "seed", "routes", "inputs", "feedback", "small"}),
        (NeedsRewards, {"feedback"}),
        (NeedsFeatures, {"small"}),
        (ForgetsOnRestore, {"save"}),
    ],
)
def test_a_broken_policy_fails_the_check_of_its_promise(policy: type, broken: set[str]) -> None:
    assert failing(policy_checks(policy)) == broken


def test_a_policy_that_writes_to_a_context_is_found() -> None:
    assert "inputs" in failing(policy_checks(Writes))


class Overspending(Deferrer):
    """Tells nobody what was spent."""

    def run(self, contexts: Any, rewards: Any, cost: Any = None, **given: Any) -> Any:
        done = super().run(contexts, rewards, cost, **given)
        return done._replace(routes=np.ones_like(done.routes))


class Changed(Deferrer):
    """Breaks one promise of a learner, which its name says."""

    broken = ""

    def propose(self, *given: Any, **more: Any) -> Any:
        if self.broken == "propose":
            self.decide(*given, **more)
        return super().propose(*given, **more)

    def decide(self, context: Any, **given: Any) -> Any:
        if self.broken == "refused" and isinstance(context, str):
            context = [0.0] * self.settings.n_features
        return super().decide(context, **given)

    def run(self, contexts: Any, rewards: Any, cost: Any = None, **given: Any) -> Any:
        if self.broken == "bulk":
            contexts = np.asarray(contexts)[::-1].copy()
        return super().run(contexts, rewards, cost, **given)


def made_with(setting: Setting, kind: type[Deferrer], broken: str, **given: Any) -> Deferrer:
    learner = setting.deferrer(**given)
    learner.__class__ = kind
    if broken:
        learner.broken = broken  # type: ignore[attr-defined]
    return learner


@pytest.mark.parametrize(
    ("kind", "broken"), [(Overspending, ""), (Changed, "propose"), (Changed, "refused"), (Changed, "bulk")]
)
def test_a_broken_learner_fails_the_check_of_its_promise(kind: type[Deferrer], broken: str) -> None:
    found = failing(policy_checks(functools.partial(made_with, kind=kind, broken=broken)))
    assert (broken or "budget") in found


def test_a_sound_learner_of_a_function_has_the_checks_of_a_learner() -> None:
    def make(setting: Setting) -> Deferrer:
        return setting.deferrer(pacing="adaptive")

    assert check_policy(make) == [*ANY, *LEARNER]


# ------------------------------------------------------------ pacings


@pytest.mark.parametrize("name", list(PACINGS))
def test_every_pacing_of_deferkit_keeps_the_contract(name: str) -> None:
    check_pacing(name)


class Still(PythonPacing):
    """A price that stays at a tenth."""

    description = "still"

    def step(self, dual: Floats, view: PacingView) -> None:
        dual[0] = 0.1


class Remembers(PythonPacing):
    description = "has a memory of its own"

    def __init__(self) -> None:
        self.steps = 0

    def step(self, dual: Floats, view: PacingView) -> None:
        self.steps += 1
        dual[0] = 0.001 * (self.steps % 50)


class BelowZero(PythonPacing):
    description = "pays for asking"

    def step(self, dual: Floats, view: PacingView) -> None:
        dual[0] = -1.0


class Shaken(PythonPacing):
    description = "does not stand a change of the budget"

    def step(self, dual: Floats, view: PacingView) -> None: ...

    def budget_changed(self, dual: Floats, *given: Any) -> None:
        dual[0] = np.nan


@pytest.mark.parametrize(
    ("pacing", "broken"),
    [(Still, set()), (Remembers, {"seed", "bulk", "propose", "save"}), (Shaken, {"change"})],
)
def test_a_broken_pacing_fails_the_check_of_its_promise(pacing: type, broken: set[str]) -> None:
    assert failing(pacing_checks(pacing)) == broken


def test_a_price_below_zero_is_found() -> None:
    assert "price" in failing(pacing_checks(BelowZero))
    with pytest.raises(InvalidArgument, match="is no pacing"):
        check_pacing(dict)


# ------------------------------------------------------------ embeddings


@pytest.mark.parametrize("kind", [each.kind for each in EMBEDDINGS])
def test_every_embedding_of_deferkit_keeps_the_contract(kind: str) -> None:
    check_embedding(kind)


class Plain:
    """The context as it is."""

    def transform(self, x: Floats, out: Floats) -> None:
        out[:, : x.shape[1]] = x

    def retrain(self, training_set: Any, epochs: int) -> None: ...

    def embed(self, training_set: Any, rows: Any, view: int) -> Floats:
        chosen: Floats = training_set.x[rows].copy()
        return chosen

    def system(self, target: int) -> None: ...

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, saved: dict[str, Any]) -> None: ...


class Centred(Plain):
    """Less the mean of the tasks beside it."""

    def transform(self, x: Floats, out: Floats) -> None:
        out[:, : x.shape[1]] = x - x.mean(axis=0)


class Random(Plain):
    """With noise of the global stream."""

    def transform(self, x: Floats, out: Floats) -> None:
        out[:, : x.shape[1]] = x + np.random.random()  # noqa: NPY002


class Counted(Plain):
    """Scaled by how often it was retrained, which is not in its state."""

    scale = 1.0

    def retrain(self, training_set: Any, epochs: int) -> None:
        self.scale += 0.5

    def transform(self, x: Floats, out: Floats) -> None:
        out[:, : x.shape[1]] = x * self.scale

    def embed(self, training_set: Any, rows: Any, view: int) -> Floats:
        return super().embed(training_set, rows, view) * self.scale


def embedding_named(name: str, embedder: type[Plain], told: Callable[[], dict[str, Any]] | None = None) -> Any:
    @dataclass(frozen=True, kw_only=True)
    class Made:
        kind: ClassVar[str] = name
        frozen: ClassVar[bool] = False
        memory: int | None = None
        discount: float = 0.5

        def width(self, shape: Any) -> int:
            return int(shape.n_features)

        def views(self, shape: Any) -> list[int]:
            return [0] * shape.n_targets

        def next_at(self, seen: int) -> int:
            return max(40, 2 * seen)

        def make(self, shape: Any) -> Plain:
            return embedder()

        def to_dict(self) -> dict[str, Any]:
            return {"kind": name} if told is None else told()

    return Made()


@pytest.mark.parametrize(
    ("embedder", "least"),
    [(Plain, set()), (Centred, {"views"}), (Random, {"seed", "views"}), (Counted, {"save"})],
)
def test_a_broken_embedding_fails_the_check_of_its_promise(embedder: type[Plain], least: set[str]) -> None:
    found = failing(embedding_checks(embedding_named(f"test-{embedder.__name__}", embedder)))
    assert found >= least
    assert bool(found) == bool(least)


def test_settings_of_an_embedding_are_json() -> None:
    broken = embedding_named("test-settings", Plain, lambda: {"kind": "test-settings", "memory": {1, 2}})
    assert "settings" in failing(embedding_checks(broken))
    with pytest.raises(InvalidArgument, match="is no embedding"):
        check_embedding("no such kind")


# ------------------------------------------------------------ worlds

SMALL_WORLDS = {"synthetic": {"horizon": 60}, "drift": {"horizon": 60}, "moderation": {"horizon": 60}}
SMALL_WORLDS |= {"late": {"horizon": 60}}
NEED_DATA = ("imagenet16h", "model-vs-human")


@pytest.mark.parametrize("name", [name for name in WORLDS if name not in NEED_DATA])
def test_every_world_of_deferkit_keeps_the_contract(name: str) -> None:
    assert check_world(name, **SMALL_WORLDS.get(name, {})) == ["parameters", "seed", "shapes", "refused"]


@dataclass(frozen=True, kw_only=True)
class Little(BaseWorld):
    """Two tasks, broken as `how` says."""

    how: str = ""
    made: Any = None

    def parameters(self) -> dict[str, Any]:
        return {} if self.how == "parameters" else super().parameters()

    def draw(self, seed: int) -> TaskStream:
        if self.how != "refused":
            self.check_seed(seed)
        rng = np.random.default_rng(None if self.how == "seed" else 0)
        contexts, rewards, costs = rng.random((5, 2)), rng.random((5, 2)), rng.random((5, 1, 1))
        if self.how == "shapes":
            rewards = rewards[:, :1]
        if self.how == "costs":
            costs = -costs
        return TaskStream(contexts + (self.how == "parameters"), rewards, costs)


@pytest.mark.parametrize(
    ("how", "broken"),
    [
        ("", set()),
        ("parameters", {"parameters"}),
        ("seed", {"seed", "parameters"}),
        ("shapes", {"shapes"}),
        ("costs", {"shapes"}),
        ("refused", {"refused"}),
    ],
)
def test_a_broken_world_fails_the_check_of_its_promise(how: str, broken: set[str]) -> None:
    assert failing(world_checks(Little, how=how)) == broken


def test_a_world_whose_parameters_are_no_json_is_found() -> None:
    assert failing(world_checks(Little, made={1, 2})) == {"parameters"}
    assert failing(world_checks(Synthetic, horizon=30)) == set()
