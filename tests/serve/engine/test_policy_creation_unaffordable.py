"""A new policy whose budget is smaller than its max_cost is refused; one that is there goes on."""

from pathlib import Path

from deferkit.serve.domain.policy import Policy
from deferkit.serve.domain.policy_learner import with_defaults
from deferkit.serve.engine.engine import Engine
from deferkit.serve.storage.database import Database
from tests.serve.harness.in_process import KEY, POLICY, again, decide, play, replayed, running, small

BUDGETS = {
    "minutes": {"total": 10, "horizon": 100, "max_cost": 1},
    "euros": {"total": 5, "horizon": 9, "max_cost": 100},
}


def test_a_new_policy_that_can_ask_nobody_is_refused(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        client = service.client()
        answer = client.post("/v1/policies", POLICY | {"budget": BUDGETS})
        assert answer.status == 422
        assert answer.json["detail"] == (
            "Nobody can be asked: each deferral reserves the max_cost of 100 until its cost is known, and the total of"
            " euros is 5. Raise the total or lower the max_cost."
        )
        assert client.get("/v1/policies/p").status == 404
        nobody = {"cost": {"total": 0, "horizon": 9, "max_cost": 100}}  # to be topped up later
        assert client.post("/v1/policies", POLICY | {"budget": nobody}).status == 201


def test_a_policy_from_before_that_can_ask_nobody_goes_on(database: Database) -> None:
    spec = small(0.5)

    async def as_before(engine: Engine) -> None:
        assert await engine.policy_creation._add(KEY[0], Policy(with_defaults(spec))) is not None

    async def script(engine: Engine) -> None:
        assert (await engine.create(KEY[0], spec)).status == 201
        assert (await decide(engine, "t1", force=None))["reason"] == "budget"
        assert replayed(engine.store).learner == engine.owned[KEY].policy.learner

    play(database, as_before, spec=None)
    play(again(database), script, spec=None)
