"""CSV exports: they add up to what is booked, and no cell is a formula."""

import csv
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deferkit import Client
from deferkit.errors import ServiceError
from deferkit.serve import export
from deferkit.serve.engine.engine import Engine
from deferkit.serve.export import Cell, pieces
from deferkit.serve.storage.database import Database
from tests.serve.domain.test_policy import SPECS
from tests.serve.harness.in_process import KEY, POLICY, play, running
from tests.serve.harness.policy_histories import RandomHistory

cells = st.one_of(
    st.text(st.sampled_from("=+-@＝＋－＠﹢\t\r\n\"',;x5 é"), max_size=4),
    st.integers(-5, 5),
    st.floats(-5, 5),
    st.none(),
)


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


@given(st.lists(st.lists(cells, min_size=2, max_size=2), max_size=4))
def test_no_text_is_a_formula_and_numbers_stay_numbers(rows: list[list[Cell]]) -> None:
    text = b"".join(pieces(["a", "b"], rows)).decode()
    found = list(csv.reader(io.StringIO(text, newline="")))
    assert found[0] == ["a", "b"]
    assert len(found) == len(rows) + 1
    for row, line in zip(rows, found[1:], strict=True):
        for value, cell in zip(row, line, strict=True):
            if isinstance(value, str):
                assert cell[:1] not in {*"=+-@＝＋－＠﹢\t\r\n"}
                assert cell.removeprefix("'" if value[:1] != "'" else "") == value
            else:
                assert cell == ("" if value is None else str(value))


@pytest.mark.parametrize("name", SPECS)
def test_the_tables_of_a_random_life_add_up(name: str, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (export, export):
        monkeypatch.setattr(module, "PAGE", 7)
    spec = SPECS[name]
    life = RandomHistory(11, spec)

    async def script(engine: Engine) -> None:
        for _ in range(120):
            await life.step(engine)
        owned, store = engine.owned[KEY], engine.store
        ledger = read(b"".join(pieces(export.HEADER, export.ledger_table(store, owned.id))).decode())
        for resource, account in owned.policy.accounts.items():
            rows = [row for row in ledger if row["resource"] == resource]
            last = {name: Decimal(rows[-1][name] or "-1") * 1_000_000 for name in rows[-1] if name in account._fields}
            assert last == account._asdict() | ({"total": -1_000_000} if account.total is None else {})
            moved = {name: sum(Decimal(row[name]) for row in rows) * 1_000_000 for name in ("held", "released", "cost")}
            assert moved["held"] - moved["released"] == account.reserved
            assert moved["cost"] == account.posted + account.suspense
        header = export.header_of(owned.policy.spec)
        table = read(b"".join(pieces(header, export.decision_table(store, owned.id, owned.policy.spec))).decode())
        assert [int(row["id"]) for row in table] == list(range(owned.policy.counts().decisions))
        for row in table:
            decision = store.decision(owned.id, row["task"])
            assert decision is not None
            assert (row["route"], row["state"], row["final"]) == (decision.route, decision.state, decision.final or "")
            for who in spec.deciders:
                wanted = decision.rewards.get(who)
                assert row[f"reward_{who}"] == ("" if wanted is None else str(wanted))
            for resource in spec.resources:
                cost = "" if decision.cost is None else Decimal(decision.cost[resource]).scaleb(-6)
                assert row[f"cost_{resource}"] == str(cost)

    play(database, script, spec=spec)


def test_exports_over_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "ROWS", 2)
    with running(tmp_path) as service:
        client = service.client()
        assert client.post("/v1/policies", POLICY).status == 201
        for n in range(7):
            assert client.decide(f"=cmd|{n}", force="model").status == 201
        assert client.decide("@t").status == 201
        claimed = client.post("/v1/policies/p/reviews/claim", {"reviewer": "-bo"}).json
        lease: dict[str, Any] = {name: claimed[name] for name in ("task", "seat", "epoch", "token")}
        done = {**lease, "answer": "+1", "cost": 0.25, "rewards": {"human": 1}}
        assert client.post("/v1/policies/p/reviews/complete", done).status == 200
        answer = client.get("/v1/policies/p/export/decisions.csv")
        assert (answer.status, answer.headers["content-type"]) == (200, "text/csv; charset=utf-8")
        assert answer.headers["content-disposition"] == 'attachment; filename="p-decisions.csv"'
        rows = read(answer.body.decode())
        assert [row["task"] for row in rows] == [*(f"'=cmd|{n}" for n in range(7)), "'@t"]
        assert (rows[-1]["answer"], rows[-1]["reviewers"], rows[-1]["cost_cost"]) == ("'+1", "'-bo", "0.250000")
        ledger = read(client.get("/v1/policies/p/export/ledger.csv").body.decode())
        assert [row["kind"] for row in ledger] == ["created", "decided", "observed"]
        assert ledger[-1]["free"] == "9.750000"
        assert client.get("/v1/policies/q/export/ledger.csv").status == 404
        assert client.get("/v1/policies/p/export/ledger.csv?x=1").status == 422
        with Client(service.url, policy="p") as caller:
            assert read(caller.export("decisions")) == rows
            with pytest.raises(ServiceError):
                caller.export("secrets")
