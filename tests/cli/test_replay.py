"""`deferkit replay`, as a user runs it."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import apsw
import msgspec
import psycopg
import pytest

from deferkit.cli import main
from deferkit.serve.domain.spec import BudgetSpec, PolicySpec
from deferkit.serve.engine.engine import Engine
from deferkit.serve.storage.open_store import database_of
from deferkit.serve.storage.sqlite import Sqlite
from tests.serve.conftest import postgres_server, server
from tests.serve.harness.in_process import decide, observe, play

__all__ = ["postgres_server", "server"]

Ran = tuple[int, str, str]  # exit code, standard output, standard error
Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process."""

    def ran(*words: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["deferkit", *words])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        return int(left.value.code or 0), out, " ".join(err.split())

    return ran


async def some_tasks(engine: Engine) -> None:
    for i in range(40):
        made = await decide(engine, f"t{i}", force=None, context=[1.0, (i % 5) / 5])
        known = {"cost": 0.25} if made["route"] == "human" else {}
        await observe(engine, f"t{i}", rewards={made["route"]: 0.5 + 0.25 * (made["route"] == "human")}, **known)


EXPLORING = PolicySpec(
    name="p",
    features=2,
    budget={"minutes": BudgetSpec(total=4, horizon=40, max_cost=1)},
    explore_floor=0.2,
    warm_up=4,
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A store with a policy that has decided forty tasks."""
    where = str(tmp_path / "deferkit.db")
    play(Sqlite(where), some_tasks, spec=EXPLORING)
    return where


def test_a_log_that_is_whole(run: Run, path: str) -> None:
    before = Path(path).read_bytes()
    code, out, err = run("replay", "p", "--store", path)
    assert Path(path).read_bytes() == before
    assert (code, err) == (0, "")
    facts = dict(line.split(None, 1) for line in out.splitlines())
    assert [facts[name].strip() for name in ("rows", "decisions", "outcomes")] == ["81", "40", "40"]
    assert "posted and 0 reserved of 4" in facts["minutes"]
    assert "rows/s" in facts["time"]
    assert "The log is whole" in out
    head = facts["hash"].split()[1]
    assert bytes.fromhex(head) == bytes(next(iter(apsw.Connection(path).execute("SELECT head FROM policies")))[0])
    assert max(len(line) for line in out.splitlines()) <= 80


def test_as_json(run: Run, path: str) -> None:
    code, out, _ = run("replay", "p", "--store", path, "--json", "--budget", "2x")
    data = json.loads(out)
    assert code == 0
    assert data["whole"] is True
    assert data["faults"] == []
    assert (data["rows"], data["decisions"], data["balance"]["minutes"]["total"]) == (81, 40, 4.0)
    first, other = data["what_if"]["rows"]
    assert (first["budget"], first["totals"], other["budget"], other["totals"]) == (
        "as it was",
        {"minutes": 4.0},
        "2x",
        {"minutes": 8.0},
    )
    assert other["difference"] == pytest.approx(other["reward"] - first["reward"])
    assert other["difference_se"] >= 0


def test_other_budgets(run: Run, path: str) -> None:
    words = [word for text in ("1x", "200%", "minutes=1", "inf", "0") for word in ("--budget", text)]
    code, out, err = run("replay", "p", "--store", path, *words)
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.splitlines() if "±" in line and "standard" not in line]
    assert [row[0] for row in rows] == ["4", "4", "8", "1", "inf", "0"]
    assert rows[1][-3:] == ["+0.0000", "±", "0.0000"]
    assert "from logged propensities (explore floor 20 %)" in out
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "…" not in out


async def tasks_of_two_costs(engine: Engine) -> None:
    for i in range(40):
        made = await decide(engine, f"t{i}", force=None, context=[1.0, (i % 5) / 5])
        known = {"cost": {"minutes": 0.25, "euros": 1234.5}} if made["route"] == "human" else {}
        await observe(engine, f"t{i}", rewards={made["route"]: 0.5}, **known)


def test_other_budgets_of_several_resources(run: Run, tmp_path: Path) -> None:
    where = str(tmp_path / "deferkit.db")
    budget = {
        "minutes": BudgetSpec(total=4, horizon=40, max_cost=1),
        "euros": BudgetSpec(total=123_456, horizon=40, max_cost=2000),
    }
    play(Sqlite(where), tasks_of_two_costs, spec=msgspec.structs.replace(EXPLORING, budget=budget))
    words = [word for text in ("1x", "inf", "0", "minutes=2x,euros=5") for word in ("--budget", text)]
    code, out, err = run("replay", "p", "--store", where, *words)
    assert (code, err) == (0, "")
    assert "…" not in out
    for text in ("4 minutes", "123,456 euros", "(1x)", "inf minutes", "inf euros", "0 minutes", "(minutes=2x,euros=5)"):
        assert text in out
    assert len([line for line in out.splitlines() if "±" in line and "standard" not in line]) == 5
    assert max(len(line) for line in out.splitlines() if "posted" not in line) < 100


def test_a_log_that_was_changed(run: Run, path: str) -> None:
    apsw.Connection(path).execute("UPDATE log SET at = at + 1 WHERE seq = 17")
    said = "Row 17 of the log of policy 'p' was changed: its hash does not fit."
    assert run("replay", "p", "--store", path) == (1, "", f"error: {said}")
    code, out, _ = run("replay", "p", "--store", path, "--json", "--budget", "2x")
    data = json.loads(out)
    assert (code, data["whole"], data["faults"], "what_if" in data) == (1, False, [said], False)


def test_a_budget_that_was_changed_is_told_beside_the_facts(run: Run, path: str) -> None:
    apsw.Connection(path).execute("UPDATE budgets SET posted = posted - 1")
    code, out, err = run("replay", "p", "--store", path)
    assert code == 1
    assert "decisions  40" in out
    assert "whole" not in out
    assert err.startswith("error: The budget of minutes was changed: the database says")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["q"], "There is no policy 'q' of tenant 'default'. There is p of default."),
        (["p", "--tenant", "acme"], "There is no policy 'p' of tenant 'acme'. There is p of default."),
        (["p", "--budget", "lots"], "A budget is a total like 500, a part of what it was like 2x or 50%, or inf;"),
        (["p", "--budget=-5"], "Got '-5'."),
        (["p", "--budget", "euros=5"], "There is no resource 'euros'. There is minutes."),
        (["p", "--budget", "minutes=5,minutes=6"], "The budget of minutes is given twice."),
        (["p", "--budget", "9999999999"], "The budget is a number from 0 to"),
    ],
)
def test_a_mistake_gives_one_line(run: Run, path: str, words: list[str], said: str) -> None:
    code, out, err = run("replay", *words, "--store", path)
    assert (code, out) == (2, "")
    assert said in err


def test_a_store_that_is_none(run: Run, tmp_path: Path, path: str) -> None:
    text, empty, newer = tmp_path / "notes.txt", tmp_path / "empty.db", tmp_path / "newer.db"
    text.write_text("not a database, but a text that is long enough to be taken for one" * 20)
    empty.touch()
    newer.write_bytes(Path(path).read_bytes())
    apsw.Connection(str(newer)).execute("PRAGMA user_version = 99")
    for store, said in (
        (tmp_path / "none.db", f"error: There is no file {tmp_path / 'none.db'}."),
        (tmp_path, f"error: There is no file {tmp_path}."),
        (text, "is no store of deferkit, or cannot be read. SQLite: file is not a database."),
        (empty, "is no store of deferkit, or cannot be read. SQLite: no such table: policies."),
        (newer, "is of version 99, this deferkit knows"),
    ):
        code, out, err = run("replay", "p", "--store", str(store))
        assert (code, out) == (2, "")
        assert said in err
    assert not (tmp_path / "none.db").exists()


def test_postgres_by_its_url(run: Run, postgres_server: str) -> None:
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA replayed")
    url = f"{postgres_server}{'&' if '?' in postgres_server else '?'}options={quote('-c search_path=replayed')}"
    code, _, err = run("replay", "p", "--store", url)
    assert code == 2
    assert "is no store of deferkit, or cannot be read. PostgreSQL:" in err
    database = database_of(url)
    play(database, some_tasks, spec=EXPLORING)
    database.close()
    code, out, err = run("replay", "p", "--store", url, "--budget", "2x")
    assert (code, err) == (0, "")
    assert "8 (2x)" in out
    gone = "postgresql://ann:secret@127.0.0.1:1/work"
    code, _, err = run("replay", "p", "--store", gone)
    assert code == 2
    assert "postgresql://127.0.0.1:1/work is no store of deferkit" in err
    assert "secret" not in err


WITHOUT_APSW = """
import sys
sys.modules["apsw"] = None
from deferkit.cli import main
for words in (["--version"], ["replay", "p"]):
    sys.argv = ["deferkit", *words]
    try:
        main()
    except SystemExit as left:
        print("left with", left.code)
"""


def test_without_the_service_installed_other_commands_work() -> None:
    command = [sys.executable, "-c", WITHOUT_APSW]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    first, *rest = done.stdout.splitlines()
    assert first.startswith("deferkit ")
    assert rest == ["left with 0", "left with 2"]
    assert done.stderr == "error: The service needs apsw: pip install 'deferkit[serve]'.\n"
