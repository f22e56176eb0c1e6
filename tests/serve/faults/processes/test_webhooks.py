"""Kill -9 between a commit and the delivery of its events: none is lost, and the receiver knows each by its id."""

import json
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from deferkit.serve.domain import records
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.store import Store
from tests.serve.harness.clients import CROWD_POLICY, PATH, Crowd, until
from tests.serve.harness.in_process import KEY
from tests.serve.harness.service_process import ServiceProcess
from tests.serve.harness.webhook_receiver import Receiver

ServiceOn = Callable[..., ServiceProcess]
Reading = Callable[[str], Database]
EVENTS = ["decided", "completed", "expired"]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def listening(service_on: ServiceOn, store_url: str, receiver: Receiver, **settings: object) -> ServiceProcess:
    """Return a service that tells the receiver of what happens."""
    service = service_on(store_url, **{"webhook_private": True} | settings)
    service.options = [each.replace("--webhook-private=True", "--webhook-private") for each in service.options]
    service.start()
    assert service.ready().post("/v1/policies", **CROWD_POLICY).status == 201
    made = service.post("/v1/webhooks", url=receiver.url, events=EVENTS)
    assert made.status == 201
    return service


def decide(service: ServiceProcess, task: str) -> None:
    body = {"task": task, "context": [1, 0, 0], "force": "human"}
    assert service.post(f"{PATH}/decisions", **body).status == 201


def test_an_event_that_was_committed_and_not_sent_is_delivered_after_the_restart(
    service_on: ServiceOn, store_url: str, receiver: Receiver
) -> None:
    service = listening(service_on, store_url, receiver)
    service.kill()
    service.start(death_before_delivery=True)
    service.ready()
    with suppress(OSError):  # the reply and the death come at the same time
        decide(service, "a")
    assert service.wait() == -signal.SIGKILL
    assert receiver.calls == []
    service.start()
    service.ready()
    until(receiver.events)
    assert [(event["event"], event["data"]["task"]) for event in receiver.events()] == [("decided", "a")]
    assert set(receiver.times().values()) == {1}


def test_an_event_that_was_sent_and_not_written_as_delivered_comes_again_under_its_id(
    service_on: ServiceOn, store_url: str, receiver: Receiver
) -> None:
    service = listening(service_on, store_url, receiver)
    receiver.open.clear()  # it takes the event, and does not answer
    decide(service, "a")
    until(lambda: receiver.calls)
    service.kill()
    receiver.open.set()
    service.start()
    until(lambda: len(receiver.calls) == 2)
    assert set(receiver.times().values()) == {2}
    assert len(receiver.events()) == 1


def expected(store: Store) -> set[tuple[str, str]]:
    """Return what a log says that happened: the kind of the event, and the task."""
    row = store.policy(*KEY)
    assert row is not None
    found, settled = set(), set()
    for line in store.log(row.id):
        record = records.decode(bytes(line.body))
        if isinstance(record, records.DecidedRecord) and record.held is not None:
            found.add(("decided", record.task))
        elif isinstance(record, records.ExpiredRecord):
            found.add(("expired", record.task))
        elif isinstance(record, records.ObservedRecord) and record.cost is not None:
            settled.add(record.task)
    return found | {("completed", task) for task in settled}


def test_under_load_kill_9_loses_no_event_and_doubles_none(
    service_on: ServiceOn, store_url: str, receiver: Receiver, reading: Reading, soak: bool
) -> None:
    rng = random.Random(3)
    service = listening(service_on, store_url, receiver, snapshot_every=100)
    rounds = 30 if soak else 3
    with Crowd(service) as crowd:
        for _ in range(rounds):
            crowd.go_on(60)
            time.sleep(rng.uniform(0, 0.3))
            service.kill()
            service.start()
        crowd.go_on(20)
    wanted = expected(Store(reading(store_url)))
    until(lambda: len(receiver.events()) >= len(wanted), "all events have come")
    assert service.stop() == 0
    told = [(event["event"], event["data"]["task"]) for event in receiver.events()]
    assert len(told) == len(set(told))  # by id each is one
    assert set(told) == wanted
    bodies = {call.id: call.body for call in receiver.calls}
    assert all(bodies[call.id] == call.body for call in receiver.calls)
    assert all(json.loads(body)["id"] == number for number, body in bodies.items())
    print(f"{rounds} kills: {len(wanted)} events, {len(receiver.calls)} calls of the receiver")
