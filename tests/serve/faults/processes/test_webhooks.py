"""Kill -9 between a commit and the delivery of its events: none is lost, and the receiver knows each by its id."""

import itertools
import json
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from deferkit.serve.domain import records
from deferkit.serve.domain.books import book_record, open_accounts
from deferkit.serve.domain.webhook import BudgetAlarm, alarms_of
from deferkit.serve.storage.database import Database
from deferkit.serve.storage.store import Store
from tests.serve.harness.clients import CROWD_POLICY, PATH, Crowd, until
from tests.serve.harness.in_process import KEY
from tests.serve.harness.service_process import ServiceProcess
from tests.serve.harness.webhook_receiver import Receiver

ServiceOn = Callable[..., ServiceProcess]
Reading = Callable[[str], Database]
Alarm = tuple[int, str, str | None]
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


def told(event: Any) -> Alarm:
    """Return the alarm of an event: the record that raised it, its kind, the resource."""
    return event["seq"], event["data"]["alarm"], event["data"]["resource"]


def alarms_in(store: Store) -> tuple[set[Alarm], set[Alarm]]:
    """Return the alarms that a log must have raised, and those that it may have raised.

    Whoever starts anew does not know which alarms go on below their threshold: those may be raised again.
    """
    row = store.policy(*KEY)
    assert row is not None
    accounts, active, must, may = {}, frozenset[BudgetAlarm](), set(), set()
    for line in store.log(row.id):
        record = records.decode(bytes(line.body))
        if isinstance(record, records.CreatedRecord):
            spec, accounts = record.spec, open_accounts(record.spec)
            continue
        after = book_record(accounts, record)
        passed, now = alarms_of(accounts, spec, frozenset()), alarms_of(after, spec, active)
        must |= {(line.seq, *alarm) for alarm in now - active}
        may |= {(line.seq, *alarm) for alarm in alarms_of(after, spec, frozenset()) - passed}
        accounts, active = after, now
    return must, may


def test_under_kill_9_alarms_and_completions_are_neither_lost_nor_invented(
    service_on: ServiceOn, store_url: str, receiver: Receiver, reading: Reading, soak: bool
) -> None:
    """A budget of 20 reviews is reserved and released again and again, which passes 80 and 100 per cent each time."""
    rng, over, wrong = random.Random(5), threading.Event(), []
    cycles = itertools.count()
    service = service_on(store_url, webhook_private=True, snapshot_every=100)
    service.options = [each.replace("--webhook-private=True", "--webhook-private") for each in service.options]
    service.start()
    budget = {"cost": {"total": 20, "horizon": 1_000_000, "max_cost": 1}}
    assert service.ready().post("/v1/policies", **CROWD_POLICY | {"budget": budget}).status == 201
    assert service.post("/v1/webhooks", url=receiver.url, events=["completed", "budget"]).status == 201

    def fill_and_empty() -> None:
        try:
            with service.client("p") as client:
                while not over.is_set():
                    cycle = next(cycles)
                    tasks = [f"{cycle}-{number}" for number in range(20)]
                    for task in tasks:
                        client.decide([1, 0, 0], task=task, force="clerk")
                    for task in tasks:
                        client.observe(task, {"clerk": 1.0}, cost=0.0)
        except BaseException as error:
            wrong.append(error)

    thread = threading.Thread(target=fill_and_empty)
    thread.start()
    rounds = 40 if soak else 4
    try:
        for _ in range(rounds):
            seen = len(receiver.calls)
            until(lambda: len(receiver.calls) > seen + 30 or wrong)  # noqa: B023
            time.sleep(rng.uniform(0, 0.3))
            service.kill()
            service.start()
            service.ready()
    finally:
        over.set()
        thread.join()
    assert not wrong, wrong
    store = Store(reading(store_url))
    completed = {task for kind, task in expected(store) if kind == "completed"}
    must, may = alarms_in(store)
    until(lambda: len(receiver.events("completed")) >= len(completed), "all completions have come")
    until(lambda: must <= {told(event) for event in receiver.events("budget")}, "all alarms have come")
    assert service.stop() == 0
    assert len(must) >= 2 * (rounds - 1)
    alarms = [told(event) for event in receiver.events("budget")]
    assert must <= set(alarms) <= must | may
    assert len(alarms) == len(set(alarms))  # by id each is one
    tasks = [event["data"]["task"] for event in receiver.events("completed")]
    assert len(tasks) == len(set(tasks))
    assert set(tasks) == completed
    again = sum(receiver.times().values()) - len(receiver.times())
    print(
        f"{rounds} kills: {len(tasks)} completions, {len(alarms)} alarms, each told; {again} came again under their id"
    )


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
