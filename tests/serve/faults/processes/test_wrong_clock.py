"""The clock is an hour off after a restart. The log stays in order, and leases are not over at once."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deferkit.serve.domain.api_keys import SCOPES, new_key
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.store import Store
from tests.serve.harness.attacks import Others
from tests.serve.harness.clients import CROWD_POLICY, PATH, Answer, Client, until
from tests.serve.harness.in_process import KEY
from tests.serve.harness.service_process import ServiceProcess

ServiceOn = Callable[..., ServiceProcess]
Reading = Callable[[str], Database]
HOUR = 3600


def claim(service: ServiceProcess, reviewer: str) -> Answer:
    return service.post(f"{PATH}/reviews/claim", reviewer=reviewer)


def decide(service: ServiceProcess, task: str) -> None:
    assert service.post(f"{PATH}/decisions", task=task, context=[1, 0, 0], force="human").status == 201


@pytest.mark.parametrize("hours", [(0, 1, -1), (0, -1, 1)])
def test_a_restart_with_the_clock_an_hour_off_keeps_order_and_leases(
    service_on: ServiceOn, store_url: str, reading: Reading, hours: tuple[int, ...]
) -> None:
    service = service_on(store_url)
    claims = []
    for number, wrong in enumerate(hours):
        service.start(clock=wrong * HOUR)
        assert service.ready().post("/v1/policies", **CROWD_POLICY).status == 201
        assert claim(service, f"another {number}").status == 204  # all are held, and none of them is over
        decide(service, f"t{number}")
        claims.append(claim(service, "ann").json)
        if number % 2:
            service.kill()
        else:
            assert service.stop() == 0
    service.start()
    service.ready()
    for owned in claims:
        lease = {name: owned[name] for name in ("task", "seat", "epoch", "token")}
        assert service.post(f"{PATH}/reviews/complete", **lease, cost=0.5).status == 200
    assert service.stop() == 0
    store = Store(reading(store_url))
    row = store.policy(*KEY)
    assert row is not None
    check_order(store, row.id)


def check_order(store: Store, policy: int) -> None:
    """Times of the log never go back."""
    times = [line.at for line in store.log(policy)]
    assert times == sorted(times)


def test_a_process_whose_clock_is_behind_takes_over(
    service_on: ServiceOn, postgres_store: str, reading: Reading
) -> None:
    ahead, behind = service_on(postgres_store), service_on(postgres_store)
    ahead.start(clock=HOUR)
    assert ahead.ready().post("/v1/policies", **CROWD_POLICY).status == 201
    decide(ahead, "first")
    time.sleep(1)  # the log says less of how late it is
    behind.start()
    behind.ready()
    decide(ahead, "second")
    ahead.kill()
    until(lambda: behind.get(f"{PATH}/summary").status == 200, "the other one takes over")
    decide(behind, "third")
    assert behind.stop() == 0
    store = Store(reading(postgres_store))
    row = store.policy(*KEY)
    assert row is not None
    check_order(store, row.id)


def test_a_clock_that_jumps_while_the_service_runs_moves_nothing(
    service_on: ServiceOn, store_url: str, reading: Reading, tmp_path: Path, soak: bool
) -> None:
    """Under load, again and again: no call is refused, no lease, key or session ends early, no budget renews early."""
    offset = tmp_path / "offset"
    offset.write_text("0")
    database = reading(store_url)
    database.prepare()
    store = Store(database)
    key, row = new_key("default", list(SCOPES), "")
    store.add_key(row)
    service = service_on(store_url)
    service.start(clock_of=str(offset))
    client, browser = Client(service.ready().url, key), Client(service.url)
    renewing = {"total": 20, "every": "1d", "max_cost": 1}
    policy = CROWD_POLICY | {"features": 2, "budget": {"cost": renewing}, "deadline_s": 7200}
    assert client.post("/v1/policies", policy).status == 201
    for n in range(4):
        assert client.decide(f"held {n}").status == 201
    before = client.get(f"{PATH}/summary").json["budget"]["cost"]
    claims = [client.post(f"{PATH}/reviews/claim", {"reviewer": "ann"}).json for _ in range(2)]
    short = client.post("/v1/keys", {"scopes": ["decide", "review"], "expires_s": 1800}).json["key"]
    opened = client.post("/v1/session", {"key": short, "reviewer": "ann"})
    cookie = {"cookie": opened.headers["set-cookie"].partition(";")[0], "sec-fetch-site": "same-origin"}
    others = Others(service.port, headers={"authorization": f"Bearer {short}"})
    jumps, began = 0, time.monotonic()
    with others.calling():
        for _ in range(10 if soak else 1):
            for seconds in (HOUR, -HOUR, 86_400 * 3, -86_400 * 3, 86_400 * 400, 0):
                offset.write_text(str(seconds))
                jumps += 1
                time.sleep(0.7)
                assert browser.get("/v1/session", headers=cookie).status == 200
    took = time.monotonic() - began
    for each in claims:
        lease = {name: each[name] for name in ("task", "seat", "epoch", "token")}
        assert client.post(f"{PATH}/reviews/complete", {**lease, "cost": 0.5}).status == 200
    after = client.get(f"{PATH}/summary").json["budget"]["cost"]
    assert (after["period"]["start"], after["total"]) == (before["period"]["start"], before["total"])
    assert after["reserved"] == 2.0  # no deadline has passed
    print(others.report(f"{jumps} jumps of the clock in {took:.0f} s"))
    assert not others.refused
    client.connection.close()
    browser.connection.close()
    assert service.stop() == 0
    found = store.policy(*KEY)
    assert found is not None
    check_order(store, found.id)
    times = [line.at for line in store.log(found.id)]
    assert times[-1] - times[0] < (took + 120) * 1e6
