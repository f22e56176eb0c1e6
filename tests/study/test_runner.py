"""The study runner: resumes, never mixes results up, fails loudly, and gives the same on every engine."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from deferkit import InvalidArgument
from deferkit.errors import StudyFailed, UnreadableResults
from deferkit.study import spec as spec_module
from deferkit.study.engines import Local, make_engine
from deferkit.study.runner import count_missing, run_study, run_unit, units_of
from deferkit.study.spec import Spec, code_digest
from deferkit.study.trial_store import Trial, TrialStore

WORLD = {"horizon": 800, "n_features": 8}


def some_trials(budget: str = "40", seeds: int = 4, **given: Any) -> list[Trial]:
    policies = ("default", "paper", "best-reject", "random", "opt")
    specs = [Spec.of("synthetic", WORLD, policy=name, budget=budget, trace="path", **given) for name in policies]
    return [(spec, seed) for seed in range(seeds) for spec in specs]


def without_times(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.drop("us_per_step")


class Stopping:
    """Works like the local engine and is interrupted after some units, as by Ctrl-C."""

    def __init__(self, after: int) -> None:
        self.after = after

    def map(self, function: Callable[[Any], Any], units: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        for i, unit in enumerate(units):
            if i == self.after:
                raise KeyboardInterrupt
            yield i, function(unit)


def test_interrupted_and_started_again_is_as_uninterrupted(tmp_path: Path) -> None:
    trials = some_trials()
    whole = run_study(trials, engine=Local(1))
    with pytest.raises(KeyboardInterrupt):
        run_study(trials, store=TrialStore(tmp_path), engine=Stopping(2))
    left = TrialStore(tmp_path)
    assert count_missing(trials, left) == 10
    done: list[int] = []
    again = run_study(trials, store=left, engine=Local(1), progress=done.append)
    assert sum(done) == 10
    assert_frame_equal(without_times(again), without_times(whole), check_exact=True)
    from_disk = run_study(trials, store=TrialStore(tmp_path), engine=Stopping(0))  # nothing left to run
    assert_frame_equal(from_disk, again, check_exact=True)


def test_changing_one_parameter_runs_only_what_changed(tmp_path: Path) -> None:
    run_study(some_trials(), store=TrialStore(tmp_path), engine=Local(1))
    other = [
        (Spec.of("synthetic", WORLD, policy="default", budget="40", trace="path", policy_parameters={"ridge": 1.0}), 0)
    ]
    assert count_missing(some_trials() + other, TrialStore(tmp_path)) == 1
    assert count_missing(some_trials(seeds=5), TrialStore(tmp_path)) == 5
    assert count_missing(some_trials(budget="41"), TrialStore(tmp_path)) == 20
    done: list[int] = []
    frame = run_study(some_trials() + other, store=TrialStore(tmp_path), engine=Local(1), progress=done.append)
    assert sum(done) == 1
    assert len(frame) == 21


def test_a_key_is_that_of_specification_and_code(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Spec.of("synthetic", {"horizon": 800, "noise": 0.1}, policy="default", budget="40")
    same = Spec.of("synthetic", {"noise": 0.1, "horizon": 800}, policy="default", budget="40")
    assert one.key == same.key
    others = [
        Spec.of("synthetic", {"horizon": 801}, policy="default", budget="40"),
        Spec.of("synthetic", {"horizon": 800}, policy="paper", budget="40"),
        Spec.of("synthetic", {"horizon": 800}, policy="default", budget="41"),
        Spec.of("synthetic", {"horizon": 800}, policy="default", budget="40", feedback="bandit"),
        Spec.of("synthetic", {"horizon": 800}, policy="default", budget="40", policy_parameters={"ridge": 2.0}),
    ]
    assert len({one.key, *(other.key for other in others)}) == 6
    monkeypatch.setattr(spec_module, "code_digest", lambda: "other code")
    later = Spec.of("synthetic", {"horizon": 800}, policy="default", budget="40")
    assert later.text == one.text
    assert later.key != one.key
    assert len(code_digest()) == 16


def test_a_row_of_another_specification_is_never_taken() -> None:
    mine, other = (Spec.of("synthetic", WORLD, policy=name, budget="40") for name in ("opt", "model-only"))
    store = TrialStore(None)
    store.save([((mine, 0), {"reward": 1.0})])
    store._rows[other.key, 0] = store._rows[mine.key, 0]  # as if the two keys were the same
    assert (mine, 0) in store
    assert (other, 0) not in store


def test_a_failure_fails_the_study_after_the_others_are_saved(tmp_path: Path) -> None:
    bad = Spec.of("synthetic", WORLD, policy="default", budget="40", policy_parameters={"ridge": -1.0})
    trials = [*some_trials(seeds=2), (bad, 0)]
    with pytest.raises(StudyFailed, match=r"1 of 11 trials failed.*default, budget 40, seed 0.*'ridge'"):
        run_study(trials, store=TrialStore(tmp_path), engine=Local(2))
    assert count_missing(trials, TrialStore(tmp_path)) == 1


def test_engines_give_the_same_bit_for_bit() -> None:
    trials = some_trials(seeds=3)
    one, two, ray = (run_study(trials, engine=e) for e in (Local(1), Local(2), make_engine("ray")))
    assert_frame_equal(without_times(one), without_times(two), check_exact=True)
    assert_frame_equal(without_times(one), without_times(ray), check_exact=True)


def die_at_one(unit: int) -> int:
    if unit == 1:
        os._exit(1)
    return unit


def test_a_worker_that_dies_is_told() -> None:
    with pytest.raises(StudyFailed, match="A worker process died"):
        list(Local(2).map(die_at_one, [0, 1, 2, 3]))


def test_damaged_files_are_named_and_half_written_ones_ignored(tmp_path: Path) -> None:
    run_study(some_trials(seeds=1), store=TrialStore(tmp_path), engine=Local(1))
    (tmp_path / "half.part").write_bytes(b"PAR1")
    assert count_missing(some_trials(seeds=1), TrialStore(tmp_path)) == 0
    path = next(tmp_path.glob("*.parquet"))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UnreadableResults, match=f"{path.name} cannot be read.*Delete it"):
        TrialStore(tmp_path)


def test_trials_of_a_stream_share_it_and_the_long_ones_come_first() -> None:
    long = Spec.of("synthetic", {"horizon": 9_000}, policy="opt", budget="40")
    units = units_of([*some_trials(seeds=2), (long, 7), (long, 7)])
    assert [(len(specs), seed) for specs, seed in units] == [(1, 7), (5, 0), (5, 1)]
    code, rows = run_unit(units[1])
    assert code == code_digest()
    assert all("failure" not in row for row in rows)


def test_a_library_that_is_not_there_is_told_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deferkit.study.policy_registry.find_spec", lambda _: None)
    spec = Spec.of("synthetic", WORLD, policy="vw", budget="40", feedback="bandit")
    with pytest.raises(InvalidArgument, match="'vw' needs another library: pip install 'vowpalwabbit"):
        run_study([*some_trials(), (spec, 0)], engine=Stopping(0))


def test_a_worker_with_other_code_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deferkit.study.runner.run_unit", other_code)
    store = TrialStore(None)
    with pytest.raises(StudyFailed, match="other code"):
        run_study(some_trials(seeds=1), store=store, engine=Local(1))
    assert count_missing(some_trials(seeds=1), store) == 5


def other_code(unit: Any) -> tuple[str, list[dict[str, Any]]]:
    return "other", run_unit(unit)[1]


def test_results_of_another_version_are_left_alone(tmp_path: Path) -> None:
    pl.DataFrame({"something": [1]}).write_parquet(tmp_path / "old.parquet")
    assert count_missing(some_trials(seeds=1), TrialStore(tmp_path)) == 5


def test_a_parameter_of_the_policy_does_not_pass_for_one_of_the_world() -> None:
    spec = Spec.of("synthetic", WORLD, policy="paper", budget="40", policy_parameters={"noise": 0.7})
    row = run_study([(spec, 0)]).row(0, named=True)
    assert (row["noise"], row["policy_noise"]) == (0.1, 0.7)


def test_bad_specifications() -> None:
    for given, message in (
        ({"policy": "best", "budget": "4"}, "There is no policy 'best'"),
        ({"policy": "opt", "budget": "x"}, "Got 'x' instead"),
        ({"policy": "opt", "budget": "4", "feedback": "some"}, "'feedback' of a study must be one of"),
        ({"policy": "opt", "budget": "4", "trace": "all"}, "'trace' of a study must be one of"),
        ({"policy": "random", "budget": "4", "policy_parameters": {"ridge": 1}}, "are for learners. Got .* 'random'"),
        ({"policy": "opt", "budget": "4", "trace": "coverage"}, "are for learners"),
        ({"policy": "vw", "budget": "4"}, "'vw' learns from bandit feedback only"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            Spec.of("synthetic", {}, **given)
    with pytest.raises(StudyFailed, match="There is no Ray cluster at"):
        list(make_engine("ray", address="127.0.0.1:1").map(die_at_one, [0]))
