"""`deferkit demo` from end to end: the numbers are right, the budget holds, no process is left."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from deferkit import Client, DeferkitError, InvalidArgument
from deferkit.cli.demo.service_process import ServiceProcess
from deferkit.cli.demo.simulation import SimulatedUsers, Simulation
from deferkit.cli.demo.views import View, next_steps
from deferkit.client import PolicySummary
from deferkit.serve.audit.replay import replay
from deferkit.serve.storage.sqlite import Sqlite
from deferkit.serve.storage.store import Store
from deferkit.types import MODEL, Amount, Decision
from tests.command_line import SCRIPT, deferkit
from tests.serve.harness.clients import TIMEOUT_S
from tests.serve.harness.service_process import processes_with

MONEY = re.compile(r"([\d,.]+) posted \+ ([\d,.]+) reserved \+ ([\d,.]+) free = ([\d,.]+) minutes")


def test_a_demo_from_end_to_end(tmp_path: Path) -> None:
    store = tmp_path / "kept demo.db"
    done = deferkit("demo", "--tasks", "150", "--seconds", "6", "--store", str(store), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "exactly what is posted" in done.stdout
    said = [tuple(float(part.replace(",", "")) for part in each) for each in MONEY.findall(done.stdout)]
    assert len(said) >= 2
    for posted, reserved, free, total in said:
        assert posted + reserved + free == pytest.approx(total, abs=0.02)
    database = Sqlite(str(store))
    kept = Store(database)
    report = replay(kept, "default", "demo")  # which compares the log with accounts, snapshots and decisions
    assert report.faults == []
    policy = report.policy
    assert policy is not None
    kept.close()
    [account] = policy.accounts.values()
    assert account.total is not None
    assert 0 < account.posted + account.reserved <= account.total
    assert f"{account.posted / 1e6:.6f} minutes reported" in done.stdout
    assert f"{policy.learner.summary().decisions} in " in done.stdout
    for command in ("deferkit replay demo", "deferkit serve", "curl -s"):
        assert f"  {command}" in done.stdout
    assert f"--store '{store}'" in done.stdout
    assert processes_with(str(tmp_path)) == []


def test_a_demo_of_office_hours_has_a_budget_a_day(tmp_path: Path) -> None:
    store = tmp_path / "days.db"
    given = ("--tasks", "400", "--days", "2", "--seconds", "8", "--budget", "20%")
    done = deferkit("demo", *given, "--store", str(store), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"today [\d.]+ of [\d.]+ minutes spent, tomorrow in \d+ s", done.stdout)
    assert "exactly what is posted" in done.stdout
    kept = Store(Sqlite(str(store)))
    assert replay(kept, "default", "demo").faults == []
    kept.close()


def test_however_a_demo_ends_it_leaves_no_process(tmp_path: Path) -> None:
    words = [sys.executable, "-c", SCRIPT, "demo", "--seconds", "300", "--tasks", "3000", "--store"]
    ends = (signal.SIGINT, signal.SIGKILL)
    demos = [
        subprocess.Popen(
            [*words, str(tmp_path / f"{number.name}.db")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},  # who is killed does not tidy up
        )
        for number in ends
    ]
    try:
        for demo, number in zip(demos, ends, strict=True):
            assert demo.stdout is not None
            while not re.match(r" *[1-9][0-9]* s: ", line := demo.stdout.readline()):  # it is well under way
                assert line, demo.stderr and demo.stderr.read()
            demo.send_signal(number)
        said, wrong = demos[0].communicate(timeout=TIMEOUT_S)
        demos[1].communicate(timeout=TIMEOUT_S)
    finally:
        for demo in demos:
            demo.kill()
    assert demos[0].returncode == 130, wrong
    assert "Stopped after" in said
    assert "exactly what is posted" in said
    end = time.monotonic() + TIMEOUT_S
    while (left := processes_with(str(tmp_path))) and time.monotonic() < end:
        time.sleep(0.5)
    assert left == []


def test_a_service_that_cannot_start_is_said_in_one_line(tmp_path: Path) -> None:
    service = ServiceProcess(str(tmp_path / "no" / "demo.db"), tmp_path / "log")
    with service, pytest.raises(DeferkitError, match=r"ended with code 2\. error: There is no folder") as caught:
        service.wait()
    assert "Traceback" not in str(caught.value)
    with pytest.raises(DeferkitError, match="ended with code 2"):
        service.check()


@pytest.mark.parametrize("world", ["synthetic", "knapsack"])
def test_a_scene_knows_its_tasks(world: str) -> None:
    simulation = Simulation(world, tasks=200, budget="10%", seed=1)
    assert simulation.n_tasks == 200
    assert simulation.budget.max_cost is not None
    assert simulation.costs.max() <= simulation.budget.max_cost
    assert simulation.budget.total == pytest.approx(0.1 * simulation.stream.known()[1].sum(), abs=1e-6)
    assert simulation.possible[-1] == max(simulation.possible) > 0
    before = simulation.context(199)
    for place in range(150):
        assert simulation.place_of(simulation.name_of(place)) == place
        assert simulation.cost(place) == round(simulation.cost(place), 6) >= 0
        simulation.record_review(place)
    assert (simulation.context(199) != before) == (world == "knapsack"), "what is known of people grows"


def test_other_worlds_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="synthetic, knapsack"):
        Simulation("imagenet16h", tasks=10, budget="10%", seed=0)
    with pytest.raises(InvalidArgument, match="A budget must be"):
        Simulation("synthetic", tasks=10, budget="ten", seed=0)


SUMMARY = PolicySummary(
    decisions=1000,
    routes={"model": 880, "human": 120},
    deferral_rate=0.12,
    total=74.573512,
    spent=30.25,
    reserved=4.8,
    left=39.523512,
    overrun=0.0,
    price=1.2345,
    pending=6,
    expired=0,
    without_budget=0,
    expected_gain=30.0,
    outcomes=900,
    late=0,
    corrected=0,
    parked=0,
    frozen=False,
    horizon_over=False,
    waiting=4,
    claimed=2,
    oldest_s=1.25,
    records=2000,
)


@pytest.mark.parametrize("width", [80, 120])
def test_the_live_view_fits_a_terminal(width: int) -> None:
    simulation = Simulation("synthetic", tasks=2000, budget="10%", seed=0)
    with Client("http://127.0.0.1:1", policy="demo") as client:
        users = SimulatedUsers(simulation, client, reviewers=3, seconds=36, seed=0)
    users.decided, users.gain, users.reviewed = 1000, 31.5, 114
    amounts: dict[str, Amount] = {"human": 0.5123}
    numbers = {MODEL: 0.123456, "human": 0.987654}
    for number, (route, reason) in enumerate([("model", "not worth it"), ("human", "worth it")]):
        users.latest[route] = Decision(
            number, route, reason, 1.0, 1.2345, 39.5, 0.8, 0.5, numbers, numbers, amounts, amounts
        )
    console = Console(width=width, height=24, record=True)
    with console.capture() as capture:
        console.print(View(users, "http://127.0.0.1:54321", 3).live(SUMMARY))
    lines = capture.get().splitlines()
    assert len(lines) < 24
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    assert "1,000 of 2,000" in text
    assert "30.25 posted + 4.80 reserved + 39.52 free = 74.57 minutes" in text
    assert "4 wait, 2 with reviewers, the oldest for 1.2 s" in text
    assert "model 880, human 120: 12.0 % deferred" in text
    share = 100 * 31.5 / simulation.possible[999]
    assert (
        f"+31.5 right answers over the model alone, of {simulation.possible[999]:.1f} possible ({share:.0f} %)" in text
    )
    assert "Task 1 goes to human, which is worth it" in text
    unlimited = SUMMARY._replace(total=float("inf"), left=float("inf"), oldest_s=None)
    line = View(users, "", 3).line(unlimited)
    assert "no limit" in line
    assert "nobody waits" in line


def test_next_steps_are_for_the_store_that_was_used() -> None:
    commands = [command for command, _ in next_steps("postgresql://db/deferkit", "demo-2", "task-00001")]
    assert commands[0] == "deferkit replay demo-2 --store postgresql://db/deferkit"
    assert not [command for command in commands if "deferkit demo" in command]
