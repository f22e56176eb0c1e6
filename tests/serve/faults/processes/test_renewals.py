"""A budget is renewed once, whenever the process that renews it is killed, and whoever owns the policy then."""

import http.client
import random
from collections.abc import Callable

from deferkit.serve.audit.replay import replay
from deferkit.serve.domain import records
from deferkit.serve.domain.records import RenewedRecord
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.store import Store
from tests.serve.harness.clients import PATH, until
from tests.serve.harness.in_process import KEY
from tests.serve.harness.service_process import ServiceProcess

ServiceOn = Callable[..., ServiceProcess]
Reading = Callable[[str], Database]
HOUR = 3600
POLICY = {
    "name": "p",
    "features": 2,
    "budget": {"cost": {"total": 3, "every": "1h", "carry": 0.5, "max_cost": 1, "hold": 0.5}},
    "warm_up": 0,
}


def decide(service: ServiceProcess, task: str) -> int:
    return service.post(f"{PATH}/decisions", task=task, context=[1, 0], force="human").status


def decide_until_it_dies(service: ServiceProcess, task: str) -> None:
    """Ask for the same decision again and again; the process dies before, during or after it."""
    while service.wait(0) is None:
        try:
            decide(service, task)
        except (OSError, http.client.HTTPException):
            continue


def check_renewals(store: Store, hours: int) -> None:
    """Each period has begun once, and the books of all add up."""
    row = store.policy(*KEY)
    assert row is not None
    found = [records.decode(bytes(line.body)) for line in store.log(row.id)]
    starts = [each.start for each in found if isinstance(each, RenewedRecord)]
    assert [round((start - starts[0]) / HOUR) for start in starts] == list(range(hours + 1))
    report = replay(store, *KEY)
    assert report.faults == []
    assert report.policy is not None
    assert report.policy.periods["cost"].number == hours + 1


def test_kill_9_around_a_renewal_renews_once(service_on: ServiceOn, store_url: str, reading: Reading) -> None:
    rng = random.Random(3)
    service = service_on(store_url, max_clock_jump_s=0)
    service.start()
    assert service.ready().post("/v1/policies", **POLICY).status == 201
    assert decide(service, "t0") == 201
    service.kill()
    hours = 3
    for hour in range(1, hours + 1):
        service.start(clock=hour * HOUR + 60, death=rng.randrange(15, 40))
        decide_until_it_dies(service, f"t{hour}")
        service.start(clock=hour * HOUR + 90)
        service.ready()
        assert decide(service, f"t{hour}") == 201
        if hour % 2:
            service.kill()
        else:
            assert service.stop() == 0
    check_renewals(Store(reading(store_url)), hours)


def test_another_process_takes_over_and_does_not_renew_again(
    service_on: ServiceOn, postgres_store: str, reading: Reading
) -> None:
    first, second = (service_on(postgres_store, max_clock_jump_s=0, owner_lease_s=3) for _ in range(2))
    first.start()
    assert first.ready().post("/v1/policies", **POLICY).status == 201
    assert decide(first, "t0") == 201
    assert first.stop() == 0
    first.start(clock=HOUR + 60)
    first.ready()
    assert decide(first, "t1") == 201
    second.start(clock=HOUR + 60)
    second.ready()
    first.kill()
    until(lambda: second.get(f"{PATH}/summary").status == 200, "the other one takes over")
    assert decide(second, "t1") == 201
    assert decide(second, "t2") == 201
    assert second.stop() == 0
    check_renewals(Store(reading(postgres_store)), 1)
