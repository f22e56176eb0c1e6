"""Kill -9 at any moment, under clients that retry, loses and doubles nothing."""

import random
import signal
import time
from collections.abc import Callable
from contextlib import closing

from deferkit.serve.storage.database import Database
from tests.serve.harness.clients import CROWD_POLICY, Client, Crowd
from tests.serve.harness.fault_injection import KillablePostgres, url_of
from tests.serve.harness.policy_histories import audit, check_last_snapshot
from tests.serve.harness.service_process import ServiceProcess

ServiceOn = Callable[..., ServiceProcess]
Reading = Callable[[str], Database]


def under_load(service: ServiceProcess, crowd: Crowd, rng: random.Random) -> None:
    """Kill it while it answers."""
    crowd.go_on(20)
    time.sleep(rng.uniform(0, 0.5))
    service.kill()
    service.start()


def while_starting(service: ServiceProcess, crowd: Crowd, rng: random.Random) -> None:  # noqa: ARG001
    """Kill it before it is there, again and again."""
    service.kill()
    for _ in range(3):
        service.start()
        time.sleep(rng.uniform(0, 0.4))
        service.kill()
    service.start()


def while_stopping(service: ServiceProcess, _: Crowd, rng: random.Random) -> None:
    """Kill it while it stops in order."""
    service.ready()
    service.signal(signal.SIGTERM)
    time.sleep(rng.uniform(0, 0.3))
    service.kill()
    service.start()


def at_a_statement(service: ServiceProcess, _: Crowd, rng: random.Random) -> None:
    """Let it die between two statements of SQL."""
    service.kill()
    service.start(death=rng.randrange(20, 300))
    assert service.wait() == -signal.SIGKILL
    service.start()


MOMENTS = (under_load, at_a_statement, while_starting, while_stopping)


def test_kill_9_loses_and_doubles_nothing(service_on: ServiceOn, store_url: str, reading: Reading, soak: bool) -> None:
    rng = random.Random(1)
    service = service_on(store_url, snapshot_every=40)
    service.start()
    assert service.ready().post("/v1/policies", **CROWD_POLICY).status == 201
    kills = 0
    with Crowd(service) as crowd:
        for round_ in range(60 if soak else 4):
            MOMENTS[round_ % len(MOMENTS)](service, crowd, rng)
            kills += 3 if MOMENTS[round_ % len(MOMENTS)] is while_starting else 1
            crowd.check()
        under_load(service, crowd, rng)
    asked = crowd.ask_again(200)
    assert service.stop() == 0
    decisions = audit(reading(store_url), crowd)
    check_last_snapshot(reading(store_url))
    print(
        f"{kills} kills: {crowd.count} acknowledged, {decisions} decisions, {asked + crowd.repeated} asked again,"
        f" failures {dict(crowd.failures)}"
    )


def test_a_server_that_is_killed_loses_and_doubles_nothing(
    service_on: ServiceOn, killable_postgres: KillablePostgres, reading: Reading, soak: bool
) -> None:
    store_url = url_of(killable_postgres.conninfo)
    service = service_on(store_url, snapshot_every=40)
    service.start()
    assert service.ready().post("/v1/policies", **CROWD_POLICY).status == 201
    rounds = 12 if soak else 2
    with Crowd(service) as crowd:
        for number in range(rounds):
            crowd.go_on(50)
            if number % 2:
                killable_postgres.kill()
            else:
                killable_postgres.stop()
            killable_postgres.start()
        under_load(service, crowd, random.Random(2))
    asked = crowd.ask_again(100)
    print(f"{rounds} ends of the server: {crowd.count} acknowledged, {asked} asked again, {dict(crowd.failures)}")
    assert service.stop() == 0
    audit(reading(store_url), crowd)
    check_last_snapshot(reading(store_url))


def test_a_session_outlives_a_service_that_is_killed(service_on: ServiceOn, store_url: str) -> None:
    service = service_on(store_url)
    service.start()
    service.ready()
    client = Client(service.url)
    with closing(client.connection):
        opened = client.post("/v1/session", {"reviewer": "ann"})
        client.headers["cookie"] = opened.headers["set-cookie"].partition(";")[0]
        assert client.get("/v1/session").json == opened.json
        service.kill()
        service.start()
        service.ready()
        client.connection.close()
        assert client.get("/v1/session").json == opened.json
