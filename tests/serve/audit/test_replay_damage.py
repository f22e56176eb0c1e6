"""Rows that were changed behind the back of the service: a replay names each of them."""

import hashlib
from collections.abc import Callable
from typing import Any

from deferkit.serve.audit.replay import NAMED
from deferkit.serve.domain import records
from deferkit.serve.domain.rows import DecisionRow
from deferkit.serve.engine.engine import Engine
from deferkit.serve.storage.connections import decision_values
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.store import Store
from tests.serve.audit.test_replay import OFTEN, again, eventful
from tests.serve.harness.in_process import decide, observe, play

ROWS = 37  # of the log of `eventful`
WAS_CHANGED = "Row {} of the log of policy 'p' was changed: its hash does not fit."
OTHER_COLUMN = "Row {} of the log of policy 'p' was changed: its kind or its task is not what its body says."
IS_MISSING = "Row {} of the log of policy 'p' is missing"
DECISION = "The decision on task '{}' was changed: "
LOST = "The decision on task '{}' is missing: the log has it, but the database does not."
INVENTED = "The log has no decision on task '{}', but the database has one."


class Damage:
    """Changes rows behind the back of the service."""

    def __init__(self, database: Database) -> None:
        self.store = Store(database)
        self.writer: Any = database.writer()
        self.log = list(self.store.log(1))

    def do(self, statement: str) -> None:
        self.writer.begin()
        self.writer.execute(statement)
        self.writer.commit()

    def put(self, name: str, *values: Any) -> None:
        self.writer.begin()
        self.writer.write_all({name: [values]})
        self.writer.commit()

    def line(self, number: int, **changes: Any) -> None:
        self.do(f"DELETE FROM log WHERE seq = {number}")
        self.put("add_log", *self.log[number]._replace(**changes))

    def body(self, number: int, old: bytes, new: bytes) -> None:
        before = bytes(self.log[number].body)
        assert old in before
        self.line(number, body=before.replace(old, new))

    def swap(self, one: int, other: int) -> None:
        first, second = self.log[one], self.log[other]
        self.line(one, **second._replace(seq=one)._asdict())
        self.line(other, **first._replace(seq=other)._asdict())

    def decision(self, task: str, **changes: Any) -> None:
        row = self.row(task)
        self.do(f"DELETE FROM decisions WHERE task = '{task}'")
        self.put("put_decision", *decision_values(row._replace(**changes)))

    def invent(self, task: str) -> None:
        self.put("put_decision", *decision_values(self.row("two")._replace(task=task)))

    def reply(self, task: str, old: bytes, new: bytes) -> None:
        before = bytes(self.row(task).reply)
        assert old in before
        self.decision(task, reply=before.replace(old, new))

    def row(self, task: str) -> DecisionRow:
        row = self.store.decision(1, task)
        assert row is not None
        return row

    def snapshot(self, change: Callable[[bytes], bytes], *, checksum: bool) -> None:
        """Change the latest snapshot, with or without its checksum."""
        seq, data = next(iter(self.store.snapshots(1)))
        self.do(f"DELETE FROM snapshots WHERE seq = {seq}")
        kept = hashlib.sha256(change(data) if checksum else data).digest()
        self.put("add_snapshot", 1, seq, kept, change(data))

    def keep(self) -> None:
        """Remember everything that can be damaged."""
        self.decisions = [self.row(task) for (task,) in self.writer.run("tasks_after", policy=1, after="", limit=100)]
        self.snapshots = self.writer.run("snapshots", policy=1)
        self.budgets = self.store.budgets(1)
        self.spec = self.store.policies()[0].spec

    def mend(self) -> None:
        """Put everything back as it was."""
        for table in ("log", "decisions", "snapshots"):
            self.do(f"DELETE FROM {table}")
        self.do(f"UPDATE policies SET spec = '{self.spec}'")
        self.writer.begin()
        self.writer.write_all(
            {
                "add_log": self.log,
                "put_decision": [decision_values(row) for row in self.decisions],
                "add_snapshot": [(1, *row) for row in self.snapshots],
                "set_budget": [(*account, 1, name) for name, account in self.budgets.items()],
            }
        )
        self.writer.commit()


def damaged(database: Database, change: Callable[[Damage], None], script: Any = eventful) -> list[str]:
    play(database, script, settings=OFTEN)
    damage = Damage(database)
    change(damage)
    damage.writer.close()
    return again(database).faults


DAMAGES: dict[str, tuple[Callable[[Damage], None], str]] = {
    "a body": (lambda d: d.body(1, b'"forced"', b'"warm-up"'), WAS_CHANGED.format(1)),
    "no JSON": (lambda d: d.line(4, body=b"{"), WAS_CHANGED.format(4)),
    "a time": (lambda d: d.line(5, at=d.log[5].at + 1), WAS_CHANGED.format(5)),
    "a hash": (lambda d: d.line(6, hash=bytes(32)), WAS_CHANGED.format(6)),
    "a task": (lambda d: d.line(7, task="b"), OTHER_COLUMN.format(7)),
    "a kind": (lambda d: d.line(7, kind="b"), OTHER_COLUMN.format(7)),
    "two rows swapped": (lambda d: d.swap(3, 9), WAS_CHANGED.format(3)),
    "the first row": (lambda d: d.do("DELETE FROM log WHERE seq = 0"), IS_MISSING.format(0) + "."),
    "a row in the middle": (lambda d: d.do("DELETE FROM log WHERE seq = 8"), IS_MISSING.format(8) + "."),
    "the end": (lambda d: d.do("DELETE FROM log WHERE seq > 29"), IS_MISSING.format(30) + f": there were {ROWS} rows."),
    "all rows": (lambda d: d.do("DELETE FROM log"), IS_MISSING.format(0) + f": there were {ROWS} rows."),
    "a budget": (
        lambda d: d.put("set_budget", 15_000_000, 1_000_000, 3_000_000, 0, 1, "cost"),
        "The budget of cost was changed: the database says 3 posted and 1 reserved of 15,"
        " the log says 3.625 posted and 2 reserved of 15.",
    ),
    "settings": (
        lambda d: d.do("UPDATE policies SET spec = replace(spec, '\"reviewers\":2', '\"reviewers\":1')"),
        "The settings of policy 'p' are not what its log says.",
    ),
    "a snapshot that was cut": (
        lambda d: d.snapshot(lambda data: data[:-1], checksum=False),
        f"The snapshot of policy 'p' after {ROWS} rows is damaged: its checksum does not fit.",
    ),
    "a snapshot that was forged": (
        lambda d: d.snapshot(lambda data: data[:-1] + b"?", checksum=True),
        f"The snapshot of policy 'p' after {ROWS} rows is not what its log says.",
    ),
    "a stored reply": (
        lambda d: d.reply("asked-0", b'"propensity":1.0', b'"propensity":0.5'),
        DECISION.format("asked-0") + "its stored reply is not the original one.",
    ),
    "a state": (
        lambda d: d.decision("asked-5", state="void", final="model"),
        DECISION.format("asked-5")
        + "its state is 'void', the log says 'open'; its final is 'model', the log says None.",
    ),
    "a cost and a reward": (
        lambda d: d.decision("asked-1", cost={"cost": 1}, rewards={"human": 0.25}),
        DECISION.format("asked-1") + "its rewards is {'human': 0.25}, the log says {'human': 1.0};"
        " its cost is {'cost': 1}, the log says {'cost': 1500000}.",
    ),
    "an answer": (lambda d: d.decision("two", answer='"spam"'), DECISION.format("two") + "its answer differs."),
    "what was told": (
        lambda d: d.decision("left-0", told=""),
        DECISION.format("left-0") + "the outcomes that the learner received are not those of the log.",
    ),
    "a decision": (lambda d: d.do("DELETE FROM decisions WHERE task = 'left-3'"), LOST.format("left-3")),
    "the last decision": (lambda d: d.do("DELETE FROM decisions WHERE task = 'two'"), LOST.format("two")),
    "a decision too many": (lambda d: d.invent("new"), INVENTED.format("new")),
    "one behind the last": (lambda d: d.invent("zzz"), INVENTED.format("zzz")),
}


def test_whatever_was_changed_is_named(database: Database) -> None:
    play(database, eventful, settings=OFTEN)
    damage = Damage(database)
    damage.keep()
    found = {}
    for name, (change, _) in DAMAGES.items():
        change(damage)
        found[name] = again(database).faults
        damage.mend()
    assert found == {name: [fault] for name, (_, fault) in DAMAGES.items()}
    assert again(database).faults == []
    damage.writer.close()


def test_rows_that_were_written_anew_do_not_lead_to_the_head(database: Database) -> None:
    """Who rewrites the end of a log, hashes and all, must also change the head, and all snapshots."""

    def anew(damage: Damage) -> None:
        last = damage.log[-1]
        fits = records.link(bytes(damage.log[-2].hash), last.seq, last.at + 1, bytes(last.body))
        damage.line(last.seq, at=last.at + 1, hash=fits)

    assert damaged(database, anew) == [
        f"The snapshot of policy 'p' after {ROWS} rows is not what its log says.",
        WAS_CHANGED.format(ROWS - 1).replace("does not fit", "is not the one that was kept beside the policy"),
    ]


def test_a_log_that_fits_but_cannot_have_happened(database: Database) -> None:
    def impossible(damage: Damage) -> None:
        last = damage.log[-1]
        body = bytes(damage.log[1].body)
        fits = records.link(bytes(damage.log[-2].hash), last.seq, last.at, body)
        damage.line(last.seq, kind="decided", task="asked-0", body=body, hash=fits)

    wrong = f"Row {ROWS - 1} of the log of policy 'p' cannot have happened: The next decision is 15. Got decision 0."
    assert damaged(database, impossible) == [wrong]


def test_many_bad_decisions_are_counted(database: Database) -> None:
    async def many(engine: Engine) -> None:
        for i in range(NAMED + 7):
            await decide(engine, f"t{i}", force="model")
            await observe(engine, f"t{i}", rewards={"model": 0.5})

    faults = damaged(database, lambda d: d.do("UPDATE decisions SET told = ''"), many)
    assert len(faults) == NAMED + 1
    assert faults[-1] == "7 more decisions are not what the log says."
