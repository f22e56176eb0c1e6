"""A completion needs only task, seat and epoch: now it needs the claim's token, and a key may be one reviewer's."""

from pathlib import Path
from typing import Any

import pytest

from deferkit import Client
from deferkit.errors import ServiceError
from deferkit.serve.api.reviews import CompleteBody, EffortBody, ExtendBody, LeaseBody
from deferkit.serve.domain.api_keys import hash_of, new_key
from deferkit.serve.engine.commands.lease import Extend, Release
from deferkit.serve.engine.commands.review import Complete, Effort
from deferkit.serve.engine.engine import Engine
from deferkit.serve.storage.database import Database
from tests.serve.harness.fault_injection import url_of
from tests.serve.harness.in_process import (
    KEY,
    POLICY,
    account,
    call,
    claim,
    complete,
    decide,
    play,
    problem_of,
    running,
)

LEASE = ("task", "seat", "epoch", "token")


def lease_of(claimed: Any) -> dict[str, Any]:
    return {name: claimed[name] for name in LEASE}


def test_a_completion_needs_the_token_of_its_claim(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        await decide(engine, "b")
        mine, other = await claim(engine, "ann"), await claim(engine, "bo")
        assert mine["token"] != other["token"]
        assert len(mine["token"]) >= 43  # 256 bits
        for token in ({}, {"token": other["token"]}, {"token": "x"}):
            forged = {name: mine[name] for name in LEASE[:3]} | token
            before = account(engine)
            refused = await problem_of(call(engine, Complete(CompleteBody(**forged, answer="eve", cost=0.5))))
            assert (refused.status, refused.code) == (403, "forbidden")
            assert mine["token"] not in str(refused)
            for lease in (Extend(ExtendBody(**forged)), Release(LeaseBody(**forged))):
                assert (await engine.submit(KEY, lease)).status == 403
            assert account(engine) == before
        assert (await engine.submit(KEY, Extend(ExtendBody(**lease_of(mine))))).status == 200
        assert (await complete(engine, mine, answer="ham", cost=0.5))["booked"] == 0.5
        # the reply of a completion is repeated for its holder alone
        assert (await complete(engine, mine, answer="ham", cost=0.5))["booked"] == 0.5
        forged = {name: mine[name] for name in LEASE[:3]}
        again = await problem_of(call(engine, Complete(CompleteBody(**forged, answer="ham", cost=0.5))))
        assert again.status == 409

    play(database, script)


def test_an_effort_needs_the_token_of_its_claim(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        lease = lease_of(await claim(engine, "ann"))
        assert (await engine.submit(KEY, Release(LeaseBody(**lease)))).status == 200
        forged = lease | {"token": "guessed"}
        assert (await problem_of(call(engine, Effort(EffortBody(**forged, cost=0.5))))).status == 403
        assert (await call(engine, Effort(EffortBody(**lease, cost=0.5))))["booked"] == 0.5

    play(database, script)


def test_only_the_hash_of_a_token_is_stored(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        token = (await claim(engine, "ann"))["token"]
        [row] = engine.store.claims(engine.owned[KEY].id, "a")
        assert row.token == hash_of(token)
        assert token not in str(list(engine.store.log(engine.owned[KEY].id)))

    play(database, script)


def test_a_claim_from_before_there_were_tokens_is_completed_without_one(database: Database) -> None:
    async def script(engine: Engine) -> None:
        await decide(engine, "a")
        claimed = await claim(engine, "ann")
        connection: Any = engine.store.writer
        connection.begin()
        connection.execute("UPDATE claims SET token = NULL")
        connection.commit()
        old = {name: claimed[name] for name in LEASE[:3]}
        assert (await engine.submit(KEY, Extend(ExtendBody(**old)))).status == 200
        assert (await call(engine, Complete(CompleteBody(**old, answer="ham", cost=0.5))))["finished"]

    play(database, script)


def test_a_key_made_for_a_reviewer_claims_under_that_name_only(tmp_path: Path) -> None:
    with running(tmp_path, tenants=True) as service:
        key, row = new_key("acme", ["review"], "", reviewer="ann")
        service.store.add_key(row)
        admin = service.client("acme")
        assert admin.post("/v1/policies", POLICY).status == 201
        for task in ("a", "b", "c"):
            assert admin.decide(task).status == 201
        path = "/v1/policies/p/reviews/claim"
        ann = service.client(key=key)
        refused = ann.post(path, {"reviewer": "bo"})
        assert (refused.status, refused.json["code"]) == (403, "forbidden")
        assert ann.post(path, {"reviewer": "ann"}).status == 200
        assert admin.post(path, {"reviewer": "bo"}).status == 200  # a key of no reviewer, as before
        with Client(service.url, policy="p", key=key) as client:
            with pytest.raises(ServiceError, match="for the reviewer 'ann' alone"):
                client.reviews.claim("bo")
            review = client.reviews.claim("ann")
            assert review is not None
            with pytest.raises(ServiceError, match="The token is not that of the claim"):
                client.reviews.complete(review._replace(token="guessed"), "ham")
            assert client.reviews.complete(review, "ham", cost=0.5)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_key_made_for_a_reviewer_uses_no_claim_of_another_one(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    """On every route that takes a token, though the token is right; a key of no reviewer may use any claim."""
    store = {"store": url_of(request.getfixturevalue("postgres_url"))} if kind == "postgres" else {}
    with running(tmp_path, tenants=True, **store) as service:
        keys = {"": service.key("acme", "review")}
        for name in ("ann", "bob"):
            keys[name], row = new_key("acme", ["review"], "", reviewer=name)
            service.store.add_key(row)
        admin, ann, bob = service.client("acme"), service.client(key=keys["ann"]), service.client(key=keys["bob"])
        policy = POLICY | {"budget": {"cost": {"total": 100, "horizon": 1000, "max_cost": 1, "hold": 0.5}}}
        assert admin.post("/v1/policies", policy).status == 201
        assert admin.decide("a").status == 201
        path = "/v1/policies/p/reviews"
        mine = lease_of(ann.post(f"{path}/claim", {"reviewer": "ann"}).json)
        answer = {"answer": "ham", "cost": 0.5}
        calls: dict[str, dict[str, Any]] = {
            "extend": {},
            "extend ": {"cost": 0.1},
            "release": {},
            "decline": {"reason": "mine"},
            "complete": answer,
            "correct": {"id": "c-1", "answer": "spam"},
            "effort": {"cost": 0.5},
        }
        session = service.client()
        opened = session.post("/v1/session", {"key": keys[""], "reviewer": "bob"})
        cookie = {"cookie": opened.headers["set-cookie"].partition(";")[0]}

        def check_refused() -> None:
            before = admin.get("/v1/policies/p/decisions?task=a").json
            for route, more in calls.items():
                for each in (
                    bob.post(f"{path}/{route.strip()}", mine | more),
                    session.call("POST", f"{path}/{route.strip()}", mine | more, headers=cookie),
                ):
                    assert (each.status, each.json["code"]) == (403, "forbidden"), route
                    assert each.json["detail"] == "The key is for the reviewer 'bob' alone.", route
            assert admin.get("/v1/policies/p/decisions?task=a").json == before

        check_refused()
        assert admin.post(f"{path}/extend", mine).status == 200  # a key of no reviewer, with the token
        assert ann.post(f"{path}/extend", mine | {"cost": 0.1}).status == 200
        assert ann.post(f"{path}/complete", mine | answer).status == 200
        assert ann.post(f"{path}/correct", mine | calls["correct"]).status == 200
        check_refused()  # also a repeated call, whose reply is known
        assert admin.post(f"{path}/complete", mine | answer).status == 200
