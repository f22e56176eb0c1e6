"""Routes of the review page and of the queue: form, held claims, resume, decline, status, listing, reassignment."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deferkit.serve.api.reviews import ClaimBody
from deferkit.serve.domain.api_keys import new_key
from deferkit.serve.domain.spec import PolicySpec
from deferkit.serve.engine.commands.lease import Claim
from deferkit.serve.http import auth
from tests.serve.harness.clients import Client
from tests.serve.harness.fault_injection import url_of
from tests.serve.harness.in_process import POLICY, Running, running
from tests.serve.http.test_application import Checked

REVIEWS = "/v1/policies/p/reviews"
FORM: dict[str, Any] = {
    "form": [
        {"name": "label", "kind": "choice", "options": [{"value": "ham"}, {"value": "spam", "label": "Spam"}]},
        {"name": "why", "kind": "text", "required": False},
    ],
    "guidelines": "Be *kind*.",
    "timer": {"resource": "cost", "unit_s": 60},
    "reward_rule": {"kind": "match"},
}


def lease(claimed: Any) -> dict[str, Any]:
    return {name: claimed[name] for name in ("task", "seat", "epoch", "token")}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as service:
        yield service


@pytest.fixture
def client(service: Running) -> Checked:
    client = Checked(service.url)
    service.clients.append(client)
    assert client.post("/v1/policies", POLICY | {"review": FORM}).status == 201
    return client


def claim(client: Client, reviewer: str = "ann", status: int = 200) -> Any:
    answer = client.post(f"{REVIEWS}/claim", {"reviewer": reviewer})
    assert answer.status == status
    return answer.json if status == 200 else None


def test_the_form_of_a_policy_can_be_read_and_changed(client: Checked) -> None:
    read = client.get("/v1/policies/p/review").json
    assert (read["policy"], read["unit"], read["max_cost"], read["reviewers"]) == ("p", "cost", 1, 1)
    assert [field["name"] for field in read["review"]["form"]] == ["label", "why"]
    assert (read["review"]["model_answer"], read["review"]["payload"]) == ("hidden", "auto")
    changed = FORM | {"model_answer": "after"}
    assert client.call("PATCH", "/v1/policies/p", {"review": changed}).json["review"]["model_answer"] == "after"
    assert client.get("/v1/policies/p/review").json["review"]["model_answer"] == "after"
    bad = FORM | {"timer": {"resource": "euros"}}
    assert client.call("PATCH", "/v1/policies/p", {"review": bad}).status == 422
    assert client.post("/v1/policies", POLICY | {"name": "q", "review": bad}).status == 422
    assert client.call("PATCH", "/v1/policies/p", {"review": None}).json["review"] is None
    default = client.get("/v1/policies/p/review").json["review"]
    assert [(field["name"], field["kind"]) for field in default["form"]] == [("answer", "text")]


def test_a_policy_without_a_form_takes_any_answer_and_shows_the_models(client: Checked) -> None:
    assert client.post("/v1/policies", POLICY | {"name": "q"}).status == 201
    client.decide("t", "q", model_answer="ham")
    claimed = client.post("/v1/policies/q/reviews/claim", {"reviewer": "ann"}).json
    assert claimed["model_answer"] == "ham"
    done = client.post("/v1/policies/q/reviews/complete", {**lease(claimed), "answer": 17, "cost": 0.5}).json
    assert (done["finished"], done["model_answer"]) == (True, None)
    [seat] = client.get("/v1/policies/q/decisions?task=t").json["seats"]
    assert (seat["answer"], seat["visible"]) == (17, True)


def test_answers_must_fit_the_form(client: Checked) -> None:
    client.decide("t", model_answer="spam")
    claimed = claim(client)
    for bad in (None, "spam", {}, {"label": "eggs"}, {"label": "spam", "more": 1}, {"label": "spam", "why": 3}):
        answer = client.post(f"{REVIEWS}/complete", {**lease(claimed), "answer": bad, "cost": 0.5})
        assert (answer.status, answer.json["code"]) == (422, "invalid"), bad
    good = client.post(f"{REVIEWS}/complete", {**lease(claimed), "answer": {"label": "spam"}, "cost": 0.5})
    assert good.status == 200
    read = client.get("/v1/policies/p/decisions?task=t").json
    assert read["answer"] == {"label": "spam"}
    assert read["rewards"] == {"human": 1.0, "model": 1.0}


@pytest.mark.parametrize(("setting", "before", "after"), [("hidden", 0, 0), ("after", 0, 1), ("shown", 1, 0)])
def test_the_models_answer_is_visible_as_the_policy_says(
    client: Checked, setting: str, before: bool, after: bool
) -> None:
    assert client.call("PATCH", "/v1/policies/p", {"review": FORM | {"model_answer": setting}}).status == 200
    client.decide("t", model_answer="ham", payload={"text": "x"})
    claimed = claim(client)
    assert claimed["model_answer"] == ("ham" if before else None)
    assert client.get(f"{REVIEWS}/held?reviewer=ann").json["held"][0]["model_answer"] == ("ham" if before else None)
    body = {**lease(claimed), "answer": {"label": "spam"}, "cost": 0.5}
    done = client.post(f"{REVIEWS}/complete", body)
    assert done.json["model_answer"] == ("ham" if after else None)
    assert client.post(f"{REVIEWS}/complete", body).body == done.body
    read = client.get("/v1/policies/p/decisions?task=t").json
    assert (read["payload"], read["model_answer"]) == ({"text": "x"}, "ham")
    assert [seat["visible"] for seat in read["seats"]] == [before]
    assert read["history"][-1]["record"]["visible"] == before
    assert client.post("/v1/policies/p/erase", {"task": "t"}).status == 200
    assert client.post(f"{REVIEWS}/complete", body).json["model_answer"] is None  # it is kept nowhere else
    read = client.get("/v1/policies/p/decisions?task=t").json
    assert (read["payload"], read["model_answer"]) == (None, None)


def test_a_reload_finds_what_is_held_and_goes_on_with_it(client: Checked) -> None:
    client.decide("t", payload="p")
    claimed = claim(client)
    assert client.get(f"{REVIEWS}/held?reviewer=bo").json == {"held": [], "next": None}
    [held] = client.get(f"{REVIEWS}/held?reviewer=ann").json["held"]
    assert held == {name: value for name, value in claimed.items() if name != "token"}
    assert client.post(f"{REVIEWS}/resume", {"reviewer": "bo", "task": "t"}).status == 409
    assert client.post(f"{REVIEWS}/resume", {"reviewer": "ann", "task": "u"}).status == 409
    resumed = client.post(f"{REVIEWS}/resume", {"reviewer": "ann", "task": "t", "seat": 0}).json
    assert (resumed["epoch"], resumed["payload"]) == (1, "p")
    assert resumed["token"] != claimed["token"]
    assert resumed["lease_until"] > claimed["lease_until"]
    done = {"answer": {"label": "ham"}, "cost": 0.25}
    assert client.post(f"{REVIEWS}/complete", {**lease(claimed), **done}).status == 403
    assert client.post(f"{REVIEWS}/complete", {**lease(resumed), **done}).status == 200
    assert client.get(f"{REVIEWS}/held?reviewer=ann").json == {"held": [], "next": None}
    assert client.post(f"{REVIEWS}/resume", {"reviewer": "ann", "task": "t"}).status == 409


@pytest.fixture(params=["sqlite", "postgres"])
def keyed(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A service with keys and a decided task of the tenant acme, on each database."""
    monkeypatch.setattr(auth, "NEW_S", -1.0)
    given = {"store": url_of(request.getfixturevalue("postgres_url"))} if request.param == "postgres" else {}
    with running(tmp_path, tenants=True, **given) as service:
        client = service.client("acme")
        assert client.post("/v1/policies", POLICY).status == 201
        for task in ("t", "u"):
            client.decide(task)
        yield service


def as_reviewer(service: Running, key: str, reviewer: str = "ann") -> Client:
    """Return a client with a session of a reviewer."""
    client = service.client()
    opened = client.post("/v1/session", {"key": key, "reviewer": reviewer})
    assert opened.status == 201
    client.headers["cookie"] = opened.headers["set-cookie"].partition(";")[0]
    return client


def test_a_claim_is_resumed_in_its_own_session_or_with_a_key_of_its_reviewer(keyed: Running) -> None:
    """A key that is bound to nobody opens sessions of everybody: it must not take over what others hold."""
    shared, other = keyed.key("acme", "review"), keyed.key("acme", "review")
    ann = as_reviewer(keyed, shared)
    claimed = claim(ann)
    resuming = {"reviewer": "ann", "task": claimed["task"]}
    for key in (shared, other):
        intruder = as_reviewer(keyed, key)
        refused = intruder.post(f"{REVIEWS}/resume", resuming)
        assert refused.status == 403
        assert "another session" in refused.json["detail"]
    assert ann.post(f"{REVIEWS}/extend", lease(claimed)).status == 200  # its token is still good
    resumed = ann.post(f"{REVIEWS}/resume", resuming).json
    assert resumed["epoch"] == claimed["epoch"]
    secret, row = new_key("acme", ["review"], "ann's", reviewer="ann")
    keyed.store.add_key(row)
    assert keyed.client(key=secret).post(f"{REVIEWS}/resume", resuming).json["epoch"] == claimed["epoch"]
    assert as_reviewer(keyed, secret).post(f"{REVIEWS}/resume", resuming).json["epoch"] == claimed["epoch"]


def test_a_claim_that_was_made_without_a_session_is_resumed_with_its_key(keyed: Running) -> None:
    made, other = keyed.key("acme", "review"), keyed.key("acme", "review")
    claimed = claim(keyed.client(key=made))
    resuming = {"reviewer": "ann", "task": claimed["task"]}
    assert as_reviewer(keyed, other).post(f"{REVIEWS}/resume", resuming).status == 403
    assert as_reviewer(keyed, made).post(f"{REVIEWS}/resume", resuming).json["epoch"] == claimed["epoch"]


def test_a_claim_from_before_origins_is_resumed_with_a_key_of_its_reviewer_alone(keyed: Running) -> None:
    shared = keyed.key("acme", "review")
    ann = as_reviewer(keyed, shared)
    row = keyed.store.policy("acme", "p")
    assert row is not None
    before = Claim(ClaimBody(reviewer="ann")).query(row.id, msgspec.json.decode(row.spec, type=PolicySpec), row.created)
    keyed.store.in_own_transaction(before.run)
    [held] = ann.get(f"{REVIEWS}/held?reviewer=ann").json["held"]
    resuming = {"reviewer": "ann", "task": held["task"]}
    assert ann.post(f"{REVIEWS}/resume", resuming).status == 403
    secret, bound = new_key("acme", ["review"], "ann's", reviewer="ann")
    keyed.store.add_key(bound)
    assert keyed.client(key=secret).post(f"{REVIEWS}/resume", resuming).status == 200


def test_a_declined_task_goes_to_others_alone(client: Checked) -> None:
    client.decide("t")
    claimed = claim(client)
    body = {**lease(claimed), "reason": "I know the sender."}
    assert client.post(f"{REVIEWS}/decline", body | {"token": "x"}).status == 403
    for reason in ("x" * 1001, "a\0b"):  # the second could not be written to PostgreSQL, nor its whole group
        assert client.post(f"{REVIEWS}/decline", body | {"reason": reason}).status == 422
    declined = client.post(f"{REVIEWS}/decline", body)
    assert declined.json == {"task": "t", "seat": 0, "epoch": 1, "lease_until": None}
    assert client.post(f"{REVIEWS}/decline", body).body == declined.body
    claim(client, status=204)
    assert client.get(f"{REVIEWS}?state=waiting").json["seats"][0]["declines"] == 1
    second = claim(client, "bo")
    assert second["epoch"] == 2
    assert client.post(f"{REVIEWS}/decline", body).status == 200  # still so, and bo's claim stands
    assert client.get(f"{REVIEWS}/held?reviewer=bo").json["held"][0]["task"] == "t"
    assert client.post(f"{REVIEWS}/effort", {**lease(claimed), "cost": 0.5}).status == 200


def test_an_empty_queue_says_why(client: Checked) -> None:
    def status(reviewer: str = "ann") -> Any:
        return client.get(f"{REVIEWS}/status?reviewer={reviewer}").json

    empty = status()
    assert (empty["waiting"], empty["why_empty"], empty["budget_left"]) == (0, "nothing_deferred", {"cost": 10})
    client.decide("t", reviewers=2)
    assert (status()["waiting"], status()["why_empty"]) == (2, None)
    mine = claim(client)
    assert (status()["waiting"], status()["why_empty"], status("bo")["waiting"]) == (0, "answered", 1)
    his = claim(client, "bo")
    third = status("cy")
    assert (third["waiting"], third["claimed"], third["why_empty"]) == (0, 2, "all_claimed")
    assert third["next_free_at"] == min(mine["lease_until"], his["lease_until"])
    assert "UTC" in third["text"]
    assert client.post(f"{REVIEWS}/decline", lease(his)).status == 200
    assert (status("bo")["declined"], status("bo")["claimed"]) == (2, 0)
    assert status("bo")["why_empty"] == "declined"
    done = {**lease(mine), "answer": {"label": "ham"}, "cost": 0.5}
    assert client.post(f"{REVIEWS}/complete", done).status == 200
    assert (status()["done"], status()["done_today"], status()["cost_today"]) == (1, 1, {"cost": 0.5})
    other = claim(client, "cy")
    assert client.post(f"{REVIEWS}/complete", {**lease(other), "answer": {"label": "ham"}, "cost": 9}).status == 200
    assert (status()["why_empty"], status()["budget_left"]) == ("budget_exhausted", {"cost": 0.5})
    assert client.post("/v1/policies/p/budget", {"id": "1", "add": 1}).status == 200
    assert status()["why_empty"] == "nothing_deferred"
    client.decide("u")
    last = claim(client)
    assert client.post(f"{REVIEWS}/complete", {**lease(last), "answer": {"label": "ham"}, "cost": 8}).status == 200
    assert status()["why_empty"] == "frozen"


def test_the_queue_is_listed_in_the_order_in_which_it_is_offered(client: Checked) -> None:
    for n in range(5):
        client.decide(f"t {n}", reviewers=1 + n % 2)
    claimed = claim(client)
    seats: list[Any] = []
    after = ""
    while after is not None:
        page = client.get(f"{REVIEWS}?limit=2&after={after.replace(' ', '%20').replace('+', '%2B')}").json
        seats += page["seats"]
        after = page["next"]
    assert len({(seat["task"], seat["seat"]) for seat in seats}) == len(seats) == 7
    keys = [(-seat["priority"], seat["created"], seat["task"], seat["seat"]) for seat in seats]
    assert keys == sorted(keys)
    assert (seats[0]["task"], seats[0]["state"], seats[0]["reviewer"]) == (claimed["task"], "claimed", "ann")
    assert seats[0]["lease_until"] == claimed["lease_until"]
    assert (seats[1]["lease_until"], seats[1]["reviewer"]) == (None, None)
    assert len(client.get(f"{REVIEWS}?state=claimed").json["seats"]) == 1
    assert len(client.get(f"{REVIEWS}?state=waiting").json["seats"]) == 6
    for bad in ("state=done", "after=x", "after=1%201%201", "after=1.2.3%201%201%20t", "limit=0", "more=1"):
        assert client.get(f"{REVIEWS}?{bad}").status == 422, bad


def test_a_claim_is_taken_from_who_does_not_come_back(client: Checked) -> None:
    client.decide("t")
    assert client.post(f"{REVIEWS}/reassign", {"task": "t"}).status == 409
    assert client.post(f"{REVIEWS}/reassign", {"task": "t", "seat": 1}).status == 404
    claimed = claim(client)
    assert client.post(f"{REVIEWS}/reassign", {"task": "t", "seat": 0}).json["lease_until"] is None
    done = client.post(f"{REVIEWS}/complete", {**lease(claimed), "answer": {"label": "ham"}})
    assert done.status == 409
    assert client.post(f"{REVIEWS}/effort", {**lease(claimed), "cost": 0.5}).status == 200
    assert claim(client)["epoch"] == 2  # anyone may have it, ann as well


def test_tasks_are_listed_by_filters_and_pages(client: Checked) -> None:
    for n in range(6):
        client.decide(f"Mail-{n}", force=("human", "model")[n % 2])
    claimed = claim(client)
    client.post(f"{REVIEWS}/complete", {**lease(claimed), "answer": {"label": "ham"}, "cost": 0.5})

    def names(query: str) -> list[str]:
        found: list[str] = []
        before: int | None = 2**53 - 1
        while before is not None:
            answer = client.get(f"/v1/policies/p/tasks?limit=2&before={before}{query and '&'}{query}")
            assert answer.status == 200, answer
            page = answer.json
            found += [task["task"] for task in page["tasks"]]
            before = page["next"]
        return found

    assert names("") == [f"Mail-{n}" for n in range(5, -1, -1)]
    assert names("route=model") == ["Mail-5", "Mail-3", "Mail-1"]
    assert names("state=posted") == [claimed["task"]]
    assert names("state=open") == [f"Mail-{n}" for n in (4, 2, 0) if f"Mail-{n}" != claimed["task"]]
    assert names("reason=forced&search=MAIL-2") == ["Mail-2"]
    assert names("reason=forc") == []
    assert names("search=%25") == []
    lines = client.get("/v1/policies/p/tasks").json["tasks"]
    assert names(f"since={lines[2]['at']}") == ["Mail-5", "Mail-4", "Mail-3"]
    assert names(f"until={lines[2]['at']}") == ["Mail-2", "Mail-1", "Mail-0"]
    [line] = [line for line in lines if line["task"] == claimed["task"]]
    assert (line["state"], line["final"], line["cost"], line["reviewers"]) == ("posted", "human", 0.5, ["ann"])
    assert line["rewards"] == {"human": 1.0}
    read = client.get(f"/v1/policies/p/decisions?task={claimed['task']}").json["decision"]
    assert (line["id"], line["reason"], line["price"]) == (read["id"], read["reason"], read["price"])
    assert line["expected_gain"] == pytest.approx(read["estimates"]["human"] - read["estimates"]["model"])
    for bad in ("state=done", "before=-1", "since=x", "more=1", "search=%00"):
        assert client.get(f"/v1/policies/p/tasks?{bad}").status == 422, bad


def test_each_scope_sees_its_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "FRESH_S", -1.0)
    with running(tmp_path, tenants=True) as service:
        admin, review, read = (service.client("a", scope) for scope in ("admin", "review", "read"))
        assert admin.post("/v1/policies", POLICY | {"review": FORM}).status == 201
        assert service.client("a", "decide").decide("t").status == 201
        assert [who.get("/v1/policies/p/review").status for who in (admin, review, read)] == [200] * 3
        for path in (REVIEWS, "/v1/policies/p/tasks"):
            assert [who.get(path).status for who in (admin, review, read)] == [200, 403, 200]
        for path in ("status", "held"):
            assert [who.get(f"{REVIEWS}/{path}?reviewer=ann").status for who in (admin, review, read)] == [
                403,
                200,
                403,
            ]
        assert [who.post(f"{REVIEWS}/reassign", {"task": "t"}).status for who in (admin, review, read)] == [
            409,
            403,
            403,
        ]
        claimed = review.post(f"{REVIEWS}/claim", {"reviewer": "ann"}).json
        resuming = {"reviewer": "ann", "task": claimed["task"]}
        assert review.post(f"{REVIEWS}/resume", resuming).status == 403  # the key is nobody's
        bound = admin.post("/v1/keys", {"scopes": ["admin"], "reviewer": "ann"})
        assert bound.status == 201
        keys = service.client("a")
        made = keys.post("/v1/keys", {"scopes": ["review"], "reviewer": "ann"}).json
        ann = service.client(key=made["key"])
        assert ann.get(f"{REVIEWS}/held?reviewer=bo").status == 403
        assert ann.get(f"{REVIEWS}/status?reviewer=bo").status == 403
        assert ann.post(f"{REVIEWS}/resume", resuming | {"reviewer": "bo"}).status == 403
        assert ann.post(f"{REVIEWS}/resume", resuming).json["epoch"] == 1
