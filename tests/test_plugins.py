"""Plug-ins: by entry point of a package that is really installed, by `module:name`, and what is said of bad ones."""

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deferkit import Budget, Deferrer, InvalidArgument, Pacing
from deferkit.learn.pacing import PACING_PLUGINS, PacingView, Parameter, PythonPacing
from deferkit.learn.pacing.compiled import Floats
from deferkit.learn.python_step import PacingFailed
from deferkit.plugins import InvalidPlugin, PluginGroup, find_installed, load_reference, plugin_digest
from deferkit.study.policy_registry import check_policy_name, policy_plugin, run_policy
from deferkit.study.spec import Spec
from deferkit.worlds import WORLD_PLUGINS, kind_of
from deferkit.worlds.synthetic import Synthetic

EXAMPLE = Path(__file__).parent.parent / "examples" / "plugin"
COMMAND = str(Path(sys.executable).with_name("deferkit"))  # with `python -c`, the working directory is searched anyway


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that the example package is installed in."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(EXAMPLE, folder / "source")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-build-isolation", "--target", str(folder / "target"), str(folder / "source")]
    subprocess.run(command, check=True, timeout=300)
    return folder / "target"


def deferkit(*words: str, path: Path | None = None, cwd: Path, columns: int = 200) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": str(columns)} | ({} if path is None else {"PYTHONPATH": str(path)})
    return subprocess.run(
        [COMMAND, *words], capture_output=True, text=True, timeout=300, check=False, env=environment, cwd=cwd
    )


POLICIES = ("uncertain", "proportional", "products", "model-only")


def test_an_installed_plugin_runs_by_its_names(target: Path, tmp_path: Path) -> None:
    words = [word for name in POLICIES for word in ("--policy", name)]
    shown = deferkit(
        *("run", "shop", "--horizon", "200", "--set", "shelves=4", *words, "--trials", "2", "--json"),
        *("--workers", "2"),
        path=target,
        cwd=tmp_path,
    )
    assert shown.returncode == 0, shown.stderr
    rows = {row["policy"]: row for row in json.loads(shown.stdout)}
    assert set(POLICIES) <= set(rows)
    for name in POLICIES[:3]:
        assert rows[name]["spent_pct"] <= 100
        assert rows[name]["defer_rate"] > 0


def test_installed_plugins_are_listed_and_keep_their_contracts(target: Path, tmp_path: Path) -> None:
    listed = deferkit("list", "--plugins", "--json", path=target, cwd=tmp_path)
    assert listed.returncode == 0, listed.stderr
    found = {(line["kind"], line["name"], line["source"], line["problem"]) for line in json.loads(listed.stdout)}
    kinds = [("world", "shop"), ("policy", "uncertain"), ("pacing", "proportional")]
    kinds += [("embedding", "products"), ("embedding", "gaussian-process")]
    assert found == {(kind, name, "deferkit-shop 1.0", "") for kind, name in kinds}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": str(target)},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout


HERE = """
from deferkit_shop.world import Shop
from deferkit_shop.rules import Uncertain
class Corner(Shop): pass
class Never(Uncertain):
    def decide(self, x): return False
"""


def test_a_module_of_the_working_directory_runs_by_reference(target: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(HERE)
    words = ("run", "mine:Corner", "--policy", "mine:Never", "--trials", "1", "--horizon", "200", "--json")
    shown = deferkit(*words, path=target, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert {row["policy"]: row["defer_rate"] for row in json.loads(shown.stdout)}["mine:Never"] == 0
    missing = deferkit("run", "mine:Corner", "--policy", "mine:Nevr", path=target, cwd=tmp_path)
    assert missing.returncode == 2
    assert missing.stderr == "error: The module 'mine' has no 'Nevr'. Did you mean 'Never'?\n"


# ------------------------------------------------------------ what is said of bad ones

BAD = """
1/0
"""
ENTRY_POINTS = """
[deferkit.policies]
default = odd_plugin:sound
broken = broken_plugin:Policy
gone = no_such_plugin:Policy
number = odd_plugin:NUMBER
twice = odd_plugin:sound
sound = odd_plugin:sound
[deferkit.worlds]
wrong = odd_plugin:sound
[deferkit.pacings]
both = odd_plugin:Pace
[deferkit.embeddings]
both = odd_plugin:Pace
"""
SECOND = """
[deferkit.policies]
twice = odd_plugin:other
"""
ODD = """
from deferkit.learn.pacing import PythonPacing
NUMBER = 5
def sound(setting): "a sound policy"
def other(setting): ...
class Pace(PythonPacing): ...
"""


def add_package(folder: Path, name: str, entries: str) -> None:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entries)


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install packages with plug-ins that are broken in one way each."""
    (tmp_path / "broken_plugin.py").write_text(BAD)
    (tmp_path / "odd_plugin.py").write_text(ODD)
    add_package(tmp_path, "odd", ENTRY_POINTS)
    add_package(tmp_path, "second", SECOND)
    monkeypatch.syspath_prepend(tmp_path)
    find_installed.cache_clear()
    policy_plugin.cache_clear()
    yield tmp_path
    find_installed.cache_clear()
    policy_plugin.cache_clear()
    for module in ("broken_plugin", "odd_plugin"):
        sys.modules.pop(module, None)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("broken", "'broken_plugin:Policy' failed when it was imported: ZeroDivisionError: division by zero"),
        ("gone", "There is no module 'no_such_plugin', which 'no_such_plugin:Policy' is in."),
        ("number", "'number' is no policy: it must be .* Got 5 instead."),
        ("odd_plugin:NUMBER", "'odd_plugin:NUMBER' is no policy: it must be .* Got 5 instead."),
        ("twice", "The policy 'twice' is in odd 1.0 and second 1.0: name one of them as module:name, such as"),
        ("both", "'both' is the name of a pacing and embedding: name one of them as module:name."),
        ("odd_plugin:sond", "The module 'odd_plugin' has no 'sond'. Did you mean 'sound'?"),
        ("soundd", "There is no policy 'soundd'. .*Did you mean 'sound'?"),
    ],
)
@pytest.mark.usefixtures("odd")
def test_a_bad_plugin_gets_one_line(name: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said) as caught:
        check_policy_name(name)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("odd")
def test_bad_plugins_break_nothing_else() -> None:
    check_policy_name("sound")
    check_policy_name("default")
    assert policy_plugin("default") is not None  # but the name stands for deferkit's own:
    assert Spec.of("synthetic", {"horizon": 10}, policy="default", budget="1").policy_parameters == {}
    with pytest.raises(InvalidPlugin, match="'wrong' is no world: it must be a class with the methods"):
        kind_of("wrong")
    with pytest.raises(InvalidArgument, match="There is no world 'wrog'. .*Did you mean 'wrong'?"):
        kind_of("wrog")


@pytest.mark.usefixtures("odd")
def test_a_function_that_makes_no_policy_is_told() -> None:
    with pytest.raises(InvalidArgument, match="The policy 'sound' must make a Deferrer or an object with `decide`"):
        run_policy("sound", Synthetic(horizon=10).draw(0), [1.0], seed=0)


def test_the_list_shows_what_is_wrong_with_a_plugin(odd: Path, tmp_path: Path) -> None:
    shown = deferkit("list", "--plugins", path=odd, cwd=tmp_path)
    assert shown.returncode == 1
    assert "odd 1.0: 'default' is a policy of deferkit; use odd_plugin:sound\n" in shown.stderr
    assert "ZeroDivisionError" in shown.stderr
    assert "cannot be used" in shown.stdout
    assert "a sound policy" in shown.stdout
    assert "Traceback" not in shown.stderr


def test_a_module_that_exits_or_lacks_another_one_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "exits.py").write_text("raise SystemExit(3)")
    (tmp_path / "lacks.py").write_text("import no_such_library")
    with pytest.raises(InvalidPlugin, match="'exits:A' failed when it was imported: SystemExit: 3"):
        load_reference("exits:A")
    with pytest.raises(
        InvalidPlugin, match="'lacks:A' failed when it was imported: ModuleNotFoundError: .*no_such_lib"
    ):
        load_reference("lacks:A")


def test_set_is_for_parameters_without_an_option(target: Path, tmp_path: Path) -> None:
    cases = {
        ("synthetic", "horizon=10"): "--set is for parameters without an option. Give --horizon instead.",
        ("shop", "shelfs=1"): "The world 'shop' has no parameter 'shelfs' for --set. Did you mean 'shelves'?",
        ("shop", "shelves=many"): "The 'shelves' of a world must be of the type int. Got 'many' instead.",
        ("shop", "shelves"): "--set takes a name and a value, as in --set shelves=5. Got 'shelves'.",
    }
    code = (
        "import sys\nfrom deferkit.cli.options import assigned_to\nfrom deferkit.errors import InvalidArgument\n"
        f"for world, pair in {list(cases)!r}:\n"
        "    try: assigned_to(world, [pair])\n    except InvalidArgument as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(target)},
        cwd=tmp_path,
    )
    assert done.stdout.splitlines() == list(cases.values())


# ------------------------------------------------------------ keys, files


def test_the_code_of_a_plugin_is_in_the_key_of_a_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    digests = []
    for name, more in (("first_rule", ""), ("second_rule", "# more\n")):
        (tmp_path / f"{name}.py").write_text(f"def make(setting): ...\n{more}")
        digests.append(plugin_digest(load_reference(f"{name}:make")))
    assert len({*digests, ""}) == 3
    spec = Spec.of("synthetic", {"horizon": 10}, policy="first_rule:make", budget="1")
    assert digests[0] in spec._plugin_code
    assert Spec.of("synthetic", {"horizon": 10}, policy="default", budget="1")._plugin_code == ""


class PythonAdaptive(PythonPacing):
    """The pacing `adaptive` once more, in Python."""

    description = "adaptive, in Python"
    parameters = (Parameter("step", 0.3, 0, False, "η"),)

    def memory_size(self, n_resources: int) -> int:
        return n_resources

    def step(self, dual: Floats, view: PacingView) -> None:
        n = len(view.cost)
        if view.decided <= view.warm_up:
            return
        for r in range(n):
            if view.tasks_left[r] < 1.0 or not view.mean_cost[r] > 0.0 or not math.isfinite(view.left[r]):
                continue
            unit = view.mean_cost[r]
            g = (view.cost[r] - view.left[r] / view.tasks_left[r]) / unit
            dual[n + r] += g * g
            if dual[n + r] > 0.0:
                dual[r] = max(0.0, dual[r] + view.parameters["step"] / unit * g / math.sqrt(dual[n + r]))


@pytest.mark.parametrize("resources", [1, 2])
def test_a_pacing_in_python_is_the_compiled_one_bit_for_bit(resources: int) -> None:
    stream = Synthetic(horizon=600, n_features=4, most_ones=3).draw(0)
    budgets = {f"r{i}": Budget(30.0 * (i + 1), horizon=600, max_cost=3) for i in range(resources)}
    costs = np.repeat(stream.costs, resources, axis=2)
    runs = []
    for pacing in ("adaptive", f"{__name__}:PythonAdaptive"):
        learner = Deferrer(n_features=4, budget=budgets, pacing=pacing, reward_range=(-9, 9), seed=1)
        rewards = {"model": stream.rewards[:, 0], "human": stream.rewards[:, 1]}
        runs.append(learner.run(stream.contexts, rewards, costs, feedback="full"))
    np.testing.assert_array_equal(runs[0].prices, runs[1].prices)
    np.testing.assert_array_equal(runs[0].routes, runs[1].routes)
    assert runs[0].prices.max() > 0


class Failing(PythonPacing):
    """Raises, or leaves a price that is none, from the third decision on."""

    description = "fails"
    parameters = (Parameter("price", 1.0, -10, False, "the price that it leaves"),)

    def step(self, dual: Floats, view: PacingView) -> None:
        if view.decided >= 3:
            dual[0] = 1 / 0 if view.parameters["price"] == 1.0 else view.parameters["price"]


@pytest.mark.parametrize(("price", "said"), [(1.0, "ZeroDivisionError: division by zero"), (-1.0, "prices must be")])
def test_a_step_that_fails_is_raised_and_the_price_stays(price: float, said: str) -> None:
    pacing = Pacing(kind=f"{__name__}:Failing", price=price)
    learner = Deferrer(n_features=1, budget=Budget(5, horizon=10, max_cost=1), pacing=pacing)
    for _ in range(2):
        learner.observe(learner.decide([1.0], force="model").id, {"model": 0.5})
    with pytest.raises(PacingFailed, match=said):
        learner.decide([1.0], force="model")
    assert learner.summary().price == 0.0
    with pytest.raises(PacingFailed, match=said):
        learner.run([[1.0]] * 4, {"model": [0.5] * 4, "human": [1.0] * 4}, [0.5] * 4)
    assert Deferrer.from_bytes(learner.to_bytes(), "memory") == learner


def test_a_state_file_imports_no_module(tmp_path: Path) -> None:
    """A file can name an installed plug-in, or one that was used before, and nothing else."""
    kind = f"{__name__}:PythonAdaptive"
    learner = Deferrer(n_features=1, budget=Budget(5, horizon=10, max_cost=1), pacing=kind)
    learner.save(tmp_path / "mine.state")
    assert Deferrer.load(tmp_path / "mine.state") == learner
    code = (
        "import sys; from deferkit import Deferrer\ntry: Deferrer.load(sys.argv[1])\nexcept Exception as e: print(e)\n"
    )
    code += "print([name for name in sys.modules if name.startswith('tests')])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "mine.state")],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent.parent,
    )
    assert "The 'pacing' of a Deferrer must be one of" in done.stdout
    assert f"or imported before. Got '{kind}' instead." in done.stdout
    assert done.stdout.endswith("[]\n")


def test_two_objects_cannot_have_one_name() -> None:
    group = PluginGroup(noun="thing", group="deferkit.things", wanted="any", accepts=lambda _: True)
    group.add("a", PythonAdaptive)
    group.add("a", PythonAdaptive)
    with pytest.raises(InvalidPlugin, match="There are two of the thing 'a'"):
        group.add("a", Failing)
    assert group.find("a") is PythonAdaptive
    assert group.find(7) is None
    assert PACING_PLUGINS.find("no such") is None
    assert WORLD_PLUGINS.find("no such") is None


def test_an_embedding_cannot_take_a_kind_of_deferkit() -> None:
    class Clash:
        kind = "neural"
        frozen = False
        memory = None
        discount = 0.5

        def _any(self, *_: Any) -> Any: ...

        width = views = next_at = make = to_dict = _any

    with pytest.raises(InvalidArgument, match="has the kind 'neural', which is an embedding of deferkit"):
        Deferrer(n_features=1, embedding=Clash())  # type: ignore[arg-type]


def test_the_list_shows_whole_names_in_a_narrow_terminal(tmp_path: Path) -> None:
    shown = deferkit("list", cwd=tmp_path, columns=80)
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert " arbitrary-human " in shown.stdout
    assert " model-vs-human " in shown.stdout
    assert "…" not in shown.stdout
