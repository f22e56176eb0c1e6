"""The clock is an hour off after a restart. The log stays in order, and leases are not over at once."""

import time
from collections.abc import Callable

import pytest

from deferkit.serve.storage.database import Database
from deferkit.serve.storage.store import Store
from tests.serve.harness.clients import CROWD_POLICY, PATH, Answer, until
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
