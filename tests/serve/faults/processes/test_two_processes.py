"""Two processes on one store. One owns a policy; whoever was paused and wakes up late writes nothing."""

import random
import signal
import time
from collections.abc import Callable

from deferkit.serve.storage.database import Database
from deferkit.serve.storage.store import Store
from tests.serve.harness.clients import CROWD_POLICY, PATH, Crowd, until
from tests.serve.harness.fault_injection import url_of
from tests.serve.harness.in_process import KEY
from tests.serve.harness.policy_histories import audit
from tests.serve.harness.service_process import ServiceProcess

ServiceOn = Callable[..., ServiceProcess]
Reading = Callable[[str], Database]
TASK = {"task": "a", "context": [1, 0, 0]}


def test_a_second_process_on_a_file_is_refused(service_on: ServiceOn, sqlite_path: str) -> None:
    first, second = service_on(sqlite_path), service_on(sqlite_path)
    first.start()
    first.ready()
    for made in (False, True):  # also where there is no policy yet that could be owned
        if made:
            assert first.post("/v1/policies", **CROWD_POLICY).status == 201
        second.log_path.unlink(missing_ok=True)
        second.start()
        assert second.wait() == 2
        [line] = second.log.splitlines()
        assert line == f"error: {sqlite_path} is served by another process. Stop that one first, or serve another file."
    assert first.post(f"{PATH}/decisions", **TASK).status == 201
    first.kill()  # what held the file is gone with the process
    second.start()
    assert second.ready().post(f"{PATH}/decisions", **TASK).status == 201


def pair(service_on: ServiceOn, store: str, **settings: object) -> tuple[ServiceProcess, ServiceProcess]:
    """Return two services that know each other's address."""
    made = service_on(store, **settings), service_on(store, **settings)
    for each in made:
        each.options.append(f"--address={each.url}")
        each.start()
    for each in made:
        each.ready()
    return made


def owner(store: Store, services: tuple[ServiceProcess, ...]) -> ServiceProcess | None:
    """Return the service that owns the policy."""
    row = store.policy(*KEY)
    assert row is not None
    return next((each for each in services if each.url == row.address), None)


def pause_the_owner(store: Store, services: tuple[ServiceProcess, ...]) -> ServiceProcess:
    """Pause the service that owns the policy until another one does; return it."""
    while True:
        until(lambda: owner(store, services) is not None, "somebody owns the policy")
        paused = owner(store, services)
        if paused is None:
            continue
        paused.signal(signal.SIGSTOP)
        if owner(store, services) is paused:
            break
        paused.signal(signal.SIGCONT)  # it had lost the policy before it was paused
    until(lambda: owner(store, services) is not paused, "the other one takes over")
    return paused


def test_calls_are_passed_on_to_the_owner(service_on: ServiceOn, postgres_store: str, reading: Reading) -> None:
    one, two = services = pair(service_on, postgres_store)
    assert one.post("/v1/policies", **CROWD_POLICY).status == 201
    first = two.post(f"{PATH}/decisions", **TASK)
    assert first.status == 201
    assert one.post(f"{PATH}/decisions", **TASK).reply == first.reply
    other = two.post(f"{PATH}/decisions", **TASK | {"context": [0, 1, 0]})  # what is refused is passed on as well
    assert (other.status, other.json["code"]) == (409, "conflict")
    assert two.get(f"{PATH}/summary").json["decisions"] == 1
    with Crowd(one, two) as crowd:
        crowd.go_on(100)
    assert owner(Store(reading(postgres_store)), services) is one
    assert one.stop() == 0  # it gives up what it owns, and the other one goes on at once
    assert two.post(f"{PATH}/decisions", **TASK).reply == first.reply
    assert two.stop() == 0


def test_a_paused_owner_is_fenced(service_on: ServiceOn, postgres_url: str, reading: Reading, soak: bool) -> None:
    rng = random.Random(5)
    store_url = url_of(postgres_url, transaction_timeout="2s")
    services = pair(service_on, store_url, owner_lease_s=1, snapshot_every=100)
    assert services[0].post("/v1/policies", **CROWD_POLICY).status == 201
    store = Store(reading(store_url))
    rounds = 20 if soak else 2
    with Crowd(*services, timeout_s=3) as crowd:
        for _ in range(rounds):
            crowd.go_on(50)
            paused = pause_the_owner(store, services)
            crowd.go_on(20)
            paused.signal(signal.SIGCONT)
            time.sleep(rng.uniform(0, 0.5))
    asked = crowd.ask_again(100)
    print(f"{rounds} pauses: {crowd.count} acknowledged, {asked + crowd.repeated} asked again, {dict(crowd.failures)}")
    assert [each.stop() for each in services] == [0, 0]
    audit(reading(store_url), crowd)
    assert "lost a policy" in services[0].log + services[1].log
