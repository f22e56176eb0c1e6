"""`defer` in real LangGraph graphs: interrupts only where a person is to be asked, resumes once, survives a crash."""

import runpy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from deferkit import Budget, Client, Deferrer, InvalidArgument, UnknownDecision, UnreadableState
from deferkit.connectors.langgraph import defer, review_of
from deferkit.connectors.task_deferrer import TaskDeferrer
from tests.guides import run_guide
from tests.serve.harness.service_process import ServiceProcess


class Mail(TypedDict, total=False):
    id: str
    answer: str
    route: str


def graph_of(decider: Client | TaskDeferrer, saver: InMemorySaver, runs: list[str]) -> Any:
    def approve(state: Mail) -> Mail:
        runs.append(state["id"])
        approval = defer(decider, [1.0], task=state["id"], model_answer="send", payload={"text": "Dear …"})
        return {"answer": approval.answer, "route": approval.route}

    builder = StateGraph(Mail)
    builder.add_node("approve", approve)
    builder.add_edge(START, "approve")
    builder.add_edge("approve", END)
    return builder.compile(checkpointer=saver)


def thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


def asking(path: Path) -> TaskDeferrer:
    """A learner that has reason to ask: the expert is right, the model is not."""
    deferrer = Deferrer(n_features=1, budget=Budget(50, horizon=200, max_cost=1), warm_up=0)
    deferrer.warm_start([[1.0]] * 20, {"model": [0.0] * 20, "human": [1.0] * 20}, cost=[0.1] * 20)
    return TaskDeferrer(path, deferrer)


def never_asking(path: Path) -> TaskDeferrer:
    return TaskDeferrer(path, Deferrer(n_features=1, budget=Budget(0, horizon=10)))


def test_the_model_answers_without_an_interrupt(tmp_path: Path) -> None:
    decider = never_asking(tmp_path / "tasks")
    result = graph_of(decider, InMemorySaver(), []).invoke({"id": "a"}, thread("a"))
    assert (result["answer"], result["route"]) == ("send", "model")
    assert "__interrupt__" not in result


def test_a_person_is_asked_once_and_the_node_that_runs_again_decides_the_same(tmp_path: Path) -> None:
    decider = asking(tmp_path / "tasks")
    runs: list[str] = []
    graph = graph_of(decider, InMemorySaver(), runs)
    waiting = graph.invoke({"id": "a"}, thread("a"))
    [stop] = waiting["__interrupt__"]
    assert stop.value == {"task": "a", "expert": "human", "payload": {"text": "Dear …"}, "model_answer": "send"}
    assert decider.deferrer.summary().reserved == 1.0
    result = graph.invoke(Command(resume={"answer": "rewrite", "cost": 0.25}), thread("a"))
    assert (result["answer"], result["route"], runs) == ("rewrite", "human", ["a", "a"])
    summary = decider.deferrer.summary()
    assert (summary.decisions, summary.spent, summary.reserved) == (1, 0.25, 0.0)


def test_a_crash_between_interrupt_and_resume_loses_and_doubles_nothing(tmp_path: Path) -> None:
    saver = InMemorySaver()  # stands for a checkpointer that survives
    decider = asking(tmp_path / "tasks")
    graph_of(decider, saver, []).invoke({"id": "a"}, thread("a"))
    before = decider.deferrer.summary()
    del decider  # the process is gone; what is left is the file
    again = TaskDeferrer(tmp_path / "tasks")
    assert again.deferrer.summary() == before
    result = graph_of(again, saver, []).invoke(Command(resume={"answer": "rewrite", "cost": 0.5}), thread("a"))
    assert result["answer"] == "rewrite"
    summary = TaskDeferrer(tmp_path / "tasks").deferrer.summary()
    assert (summary.decisions, summary.pending, summary.spent) == (1, 0, 0.5)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path) as process:
        yield process


def test_a_service_that_is_killed_between_interrupt_and_resume(service: ServiceProcess) -> None:
    with Client(service.url, policy="mails") as client:
        client.create(features=1, budget=Budget(50, horizon=200, max_cost=1), warm_up=0, representation="linear")
        for number in range(8):
            client.decide([1.0], task=f"past-{number}", force="human")
            client.observe(f"past-{number}", rewards={"human": 1.0, "model": 0.0}, cost=0.1)
        saver = InMemorySaver()
        waiting = graph_of(client, saver, []).invoke({"id": "a"}, thread("a"))
        assert waiting["__interrupt__"]
        service.kill()
        service.start()
        result = graph_of(client, saver, []).invoke(Command(resume={"answer": "rewrite", "cost": 0.5}), thread("a"))
        assert (result["answer"], result["route"]) == ("rewrite", "human")
        summary = client.summary()
        assert (summary.decisions, summary.pending) == (9, 0)
        assert summary.spent == pytest.approx(1.3)


def test_what_a_graph_is_resumed_with() -> None:
    assert review_of("send", "ann", "send")["rewards"] == {"ann": 1.0, "model": 1.0}
    given = review_of({"answer": "x", "rewards": {"ann": 0.5}, "cost": 2}, "ann", "send")
    assert given == {"answer": "x", "rewards": {"ann": 0.5}, "cost": 2}
    assert review_of({"text": "x"}, "ann", "send")["answer"] == {"text": "x"}
    with pytest.raises(InvalidArgument, match="Got price too"):
        review_of({"answer": "x", "price": 2}, "ann", "send")


def test_files_that_are_not_ours(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="give a Deferrer"):
        TaskDeferrer(tmp_path / "none")
    (tmp_path / "other").write_bytes(b"PK")
    with pytest.raises(UnreadableState, match="not a file of tasks"):
        TaskDeferrer(tmp_path / "other")
    decider = never_asking(tmp_path / "tasks")
    decider.decide([1.0], task="a")
    (tmp_path / "tasks").write_bytes((tmp_path / "tasks").read_bytes().replace(b'"a"', b"nil"))
    with pytest.raises(UnreadableState, match="damaged list of tasks"):
        TaskDeferrer(tmp_path / "tasks")
    with pytest.raises(UnknownDecision):
        decider.observe("b", {"model": 1.0})


def test_threads_share_a_learner_in_a_file(tmp_path: Path) -> None:
    tasks = asking(tmp_path / "tasks")
    names = [f"task-{number}" for number in range(40)]
    with ThreadPoolExecutor(8) as threads:
        routes = list(threads.map(lambda name: tasks.decide([1.0], task=name), names))
    assert sorted(route.id for route in routes) == list(range(40))
    again = TaskDeferrer(tmp_path / "tasks")
    assert [again.decide([1.0], task=name) for name in names] == routes


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "langgraph_approval.py"))
    assert "refunds were shown to a person" in capsys.readouterr().out


def test_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    run_guide("langgraph.md")
    assert capsys.readouterr().out
