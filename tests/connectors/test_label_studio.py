"""The bridge to Label Studio with a real service and a project in memory: crashes, copies, skips, late annotations."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deferkit import Client, InvalidArgument, ServiceError, ServiceUnavailable
from deferkit.connectors.label_studio import BridgeCounts, LabelStudioBridge, answer_of
from tests.command_line import Runner
from tests.serve.harness.in_process import Running, running
from tests.studio_project import StudioProject

POLICY: dict[str, Any] = {
    "name": "mails",
    "features": 2,
    "budget": {"minutes": {"total": 100, "horizon": 1000, "max_cost": 5}},
    "warm_up": 0,
    "review": {
        "form": [{"name": "label", "kind": "choice", "options": [{"value": "spam"}, {"value": "ham"}]}],
        "timer": {"resource": "minutes", "unit_s": 60},
        "reward_rule": {"kind": "match"},
    },
}


NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("service")) as service:
        yield service


@pytest.fixture
def client(service: Running) -> Iterator[Client]:
    """A client of a new policy."""
    name = f"mails-{next(NUMBERS)}"
    assert service.client().post("/v1/policies", POLICY | {"name": name}).status == 201
    with Client(service.url, policy=name) as client:
        yield client


@pytest.fixture
def studio() -> Iterator[StudioProject]:
    with StudioProject() as studio:
        yield studio


def ask(client: Client, *tasks: str) -> None:
    for task in tasks:
        client.decide([1.0, 0.5], task=task, force="human", payload={"text": task}, model_answer="ham")


def test_a_task_is_annotated_and_its_lead_time_is_the_cost(client: Client, studio: StudioProject) -> None:
    ask(client, "a", "b")
    client.decide([1.0, 0.5], task="c", force="model")
    bridge = LabelStudioBridge(client, studio)
    assert bridge.step() == BridgeCounts(created=2)
    assert studio.tasks[1]["data"] == {"text": "a", "deferkit_task": "a", "deferkit_policy": client.policy}
    studio.annotate("a", "spam", lead_time=90.0)
    assert bridge.step() == BridgeCounts(completed=1)
    task = client.read("a")
    assert (task["final"], task["answer"]) == ("human", {"label": "spam"})
    summary = client.summary()
    assert (summary.spent, summary.reserved, summary.outcomes) == (1.5, 5.0, 1)  # b is still held
    assert bridge.step() == BridgeCounts()
    assert studio.names == ["a", "b"]


def test_a_bridge_that_is_started_anew_goes_on_with_its_claims(client: Client, studio: StudioProject) -> None:
    ask(client, "a", "b")
    LabelStudioBridge(client, studio).step()  # and is killed
    studio.annotate("a", "ham")
    assert LabelStudioBridge(client, studio).step() == BridgeCounts(completed=1)
    assert studio.names == ["a", "b"]
    studio.annotate("b", "ham")
    assert LabelStudioBridge(client, studio).step() == BridgeCounts(completed=1)
    assert client.summary().spent == 1.0


def test_a_crash_after_the_creation_makes_no_task_twice(client: Client, studio: StudioProject) -> None:
    ask(client, "a")
    studio.fail_after_create = True
    with pytest.raises(ServiceUnavailable):
        LabelStudioBridge(client, studio).step()
    studio.fail_after_create = False
    assert LabelStudioBridge(client, studio).step() == BridgeCounts()
    assert studio.names == ["a"]


def test_a_copy_that_came_late_is_deleted_unless_it_is_annotated(client: Client, studio: StudioProject) -> None:
    ask(client, "a")
    for _ in range(3):
        studio.create({"deferkit_task": "a", "deferkit_policy": client.policy}, {})
    studio.tasks[2]["annotations"].append({"id": 7, "result": [], "lead_time": 1.0, "was_cancelled": True})
    LabelStudioBridge(client, studio).step()
    assert list(studio.tasks) == [2]


def test_at_most_so_many_tasks_wait_in_label_studio(client: Client, studio: StudioProject) -> None:
    ask(client, "a", "b", "c")
    bridge = LabelStudioBridge(client, studio, at_most=2)
    assert bridge.step() == BridgeCounts(created=2)
    assert bridge.step() == BridgeCounts()
    studio.annotate(studio.names[0], "ham")
    assert bridge.step() == BridgeCounts(created=1, completed=1)


def test_a_bridge_goes_on_with_as_many_tasks_as_the_service_lets_it_hold(tmp_path: Path, studio: StudioProject) -> None:
    with running(tmp_path, max_claims=2) as service:
        assert service.client().post("/v1/policies", POLICY).status == 201
        with Client(service.url, policy="mails") as client:
            ask(client, "a", "b", "c")
            bridge = LabelStudioBridge(client, studio)
            assert bridge.step() == BridgeCounts(created=2)
            studio.annotate(studio.names[0], "ham")
            assert bridge.step() == BridgeCounts(created=1, completed=1)


def test_a_skipped_task_is_declined_and_its_time_is_booked(client: Client, studio: StudioProject) -> None:
    ask(client, "a")
    bridge = LabelStudioBridge(client, studio)
    bridge.step()
    studio.annotate("a", "spam", lead_time=30.0, skipped=True)
    assert bridge.step() == BridgeCounts(skipped=1)
    assert client.summary().spent == 0.5
    assert bridge.step() == BridgeCounts()  # it does not come back
    review = client.reviews.claim("ann")
    assert review is not None
    assert review.task == "a"


def test_a_task_that_is_deleted_in_label_studio_is_created_anew(client: Client, studio: StudioProject) -> None:
    ask(client, "a")
    bridge = LabelStudioBridge(client, studio)
    bridge.step()
    studio.delete(1)
    bridge.step()
    bridge.step()
    assert studio.names == ["a"]


def test_a_task_that_nobody_waits_for_is_withdrawn(client: Client, studio: StudioProject) -> None:
    ask(client, "a", "b", "c")
    bridge = LabelStudioBridge(client, studio)
    bridge.step()
    studio.tasks[2]["drafts"].append({"id": 1})
    studio.annotate("c", "ham", lead_time=60.0)
    for task in "abc":
        client.expire(task)
    assert bridge.step() == BridgeCounts(withdrawn=1)
    assert studio.names == ["b", "c"]  # somebody has begun the one, and finished the other
    assert client.summary().spent == 1.0


def test_tasks_of_an_earlier_run_that_nobody_waits_for_are_withdrawn(client: Client, studio: StudioProject) -> None:
    ask(client, "a", "b")
    LabelStudioBridge(client, studio).step()
    studio.create({"deferkit_task": "z", "deferkit_policy": client.policy}, {"deferkit": {"reviewer": "another"}})
    client.expire("a")
    assert LabelStudioBridge(client, studio).step() == BridgeCounts(withdrawn=1)
    assert studio.names == ["b", "z"]


def test_an_annotation_that_does_not_fit_the_form_waits(client: Client, studio: StudioProject) -> None:
    ask(client, "a")
    bridge = LabelStudioBridge(client, studio)
    bridge.step()
    studio.annotate("a", "eggs")
    assert bridge.step() == BridgeCounts()
    client.change(review=POLICY["review"] | {"form": [{"name": "label", "kind": "text"}]})
    assert LabelStudioBridge(client, studio).step() == BridgeCounts(completed=1)


def test_a_project_that_takes_no_task_stops_the_bridge_and_one_bad_task_is_declined(
    client: Client, studio: StudioProject
) -> None:
    ask(client, "a")
    studio.refused.add("a")
    with pytest.raises(ServiceError, match="refuses it with 400"):
        LabelStudioBridge(client, studio).step()
    ask(client, "b")
    assert LabelStudioBridge(client, studio).step() == BridgeCounts(created=1)
    seats = {seat["task"]: seat for seat in client.reviews.list()}
    assert (seats["a"]["state"], seats["a"]["declines"], seats["b"]["state"]) == ("waiting", 1, "claimed")


def test_a_lease_is_renewed_and_one_that_lapsed_is_taken_up_again(client: Client, studio: StudioProject) -> None:
    ask(client, "a")
    bridge = LabelStudioBridge(client, studio, lease_s=0.001)
    bridge.step()
    assert client.reviews.claim("ann") is not None  # it had lapsed
    studio.annotate("a", "ham", lead_time=60.0)
    assert bridge.step() == BridgeCounts()  # too late, but the work is paid
    assert client.summary().spent == 1.0
    ask(client, "b")
    again = LabelStudioBridge(client, studio, lease_s=3600.0)
    again.step()
    assert client.reviews.claim("bo") is None


def test_a_key_that_is_not_for_the_reviewer_is_refused_at_the_start(tmp_path: Path, studio: StudioProject) -> None:
    with running(tmp_path, tenants=True) as service:
        key, admin = service.key("default", "review"), service.client("default")
        assert admin.post("/v1/policies", POLICY).status == 201
        with Client(service.url, policy="mails", key=key) as client, pytest.raises(ServiceError, match="--reviewer st"):
            LabelStudioBridge(client, studio, reviewer="studio")


def test_a_policy_with_several_resources_is_refused(service: Running, studio: StudioProject) -> None:
    two = {name: {"total": 10, "horizon": 100, "max_cost": 1} for name in ("minutes", "euros")}
    service.client().post("/v1/policies", {"name": "two", "features": 2, "budget": two})
    with Client(service.url, policy="two") as client, pytest.raises(InvalidArgument, match="has minutes, euros"):
        LabelStudioBridge(client, studio)


def region(name: str, **value: Any) -> dict[str, Any]:
    return {"from_name": name, "to_name": "text", "type": next(iter(value)), "value": value}


def test_answers_of_annotations() -> None:
    regions = [
        region("label", choices=["spam"]),
        region("why", text=["too", "many links"]),
        region("sure", rating=4),
        region("all", choices=["a", "b"]),
    ]
    assert answer_of(regions, None) == {"label": "spam", "why": ["too", "many links"], "sure": 4, "all": ["a", "b"]}
    form = [
        {"name": "why", "kind": "text"},
        {"name": "sure", "kind": "number"},
        {"name": "all", "kind": "choices"},
        {"name": "missing", "kind": "text"},
    ]
    assert answer_of(regions, form) == {"why": "too\nmany links", "sure": 4, "all": ["a", "b"]}
    span = region("part", start=3, end=9, labels=["name"])
    assert answer_of([span], None) == [span]  # more than a value


def test_the_command_says_in_one_line_what_is_wrong(client: Client, said: Runner) -> None:
    words = ("bridge", "label-studio", "--url", "http://127.0.0.1:9", "--project", "1", "--token", "t", "--once")
    done = said(*words, "--service", client.url, "--policy", client.policy)
    assert (done.code, done.error) == (2, "error: Label Studio at http://127.0.0.1:9 does not answer (ConnectError).\n")
    assert "one of mails-0, mails-1" in said(*words, "--service", client.url).error
    listening = said(*words[:-1], "--service", client.url, "--policy", client.policy, "--listen", "nowhere")
    assert listening.code == 2
