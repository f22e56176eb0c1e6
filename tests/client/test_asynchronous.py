"""The client for asyncio against a real service: the calls, replies and errors of a `Client`."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from deferkit import AsyncClient, Budget, Client, ConflictingObservation, InvalidArgument, ServiceUnavailable
from deferkit.client.asynchronous import PARTS
from tests.serve.harness.client_fixtures import service
from tests.serve.harness.service_process import ServiceProcess

__all__ = ["service"]

BUDGET = Budget(50, horizon=500, max_cost=1)


def run(service: ServiceProcess, name: str, program: Callable[[AsyncClient], Awaitable[Any]], **given: Any) -> Any:
    """Run a program with a client of a policy of its own."""

    async def main() -> Any:
        async with AsyncClient(service.url, policy=name, **given) as client:
            await client.create(features=2, budget=BUDGET)
            return await program(client)

    return asyncio.run(main())


def test_decisions_outcomes_and_reviews(service: ServiceProcess) -> None:
    async def program(client: AsyncClient) -> None:
        asked = await client.decide([0.6, 0.8], task="one", payload={"text": "?"}, force="human")
        assert asked == await client.decide([0.6, 0.8], task="one", payload={"text": "?"}, force="human")
        with pytest.raises(ConflictingObservation):
            await client.decide([0.8, 0.6], task="one")
        review = await client.reviews.claim("ann")
        assert (review.task, review.payload) == ("one", {"text": "?"})
        await client.reviews.complete(review, "yes", rewards={"human": 1.0, "model": 0.0}, cost=0.5)
        assert (await client.summary()).spent == 0.5
        assert (await client.figures.standing())["name"] == "calls"
        assert [task["task"] async for task in client.tasks()] == ["one"]
        assert [seat async for seat in client.reviews.list("waiting")] == []
        assert client.url == service.url
        assert client.policy == "calls"

    run(service, "calls", program)


def test_the_generator_of_tasks_goes_through_all_pages(service: ServiceProcess) -> None:
    async def program(client: AsyncClient) -> None:
        await client.decide_many([[0.6, 0.8]] * 7, tasks=[f"t{i}" for i in range(7)])
        assert [task["task"] async for task in client.tasks(limit=3)] == [f"t{i}" for i in reversed(range(7))]

    run(service, "pages", program)


def test_calls_go_on_side_by_side_and_the_loop_is_never_held_up(service: ServiceProcess) -> None:
    async def program(client: AsyncClient) -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)

        ticking = asyncio.create_task(tick())
        made = await asyncio.gather(*(client.decide([0.6, 0.8], task=f"t{i}") for i in range(100)))
        ticking.cancel()
        assert sorted(decision.id for decision in made) == list(range(100))
        assert ticks > 3

    run(service, "side-by-side", program, concurrency=8)


def test_errors_and_retries_are_those_of_a_client() -> None:
    async def program() -> None:
        async with AsyncClient("http://127.0.0.1:9", policy="claims", total_s=0.01) as client:
            began = time.monotonic()
            with pytest.raises(ServiceUnavailable):
                await asyncio.gather(*(client.summary() for _ in range(5)))
            assert time.monotonic() - began < 5

    asyncio.run(program())
    with pytest.raises(InvalidArgument, match="'policy' of a Client"):
        AsyncClient("http://127.0.0.1:9", policy="")


def test_one_client_serves_several_loops_and_opens_anew_after_close(service: ServiceProcess) -> None:
    client = AsyncClient(service.url, policy="loops")

    async def decide(task: str) -> int:
        decision = await client.decide([0.6, 0.8], task=task)
        await client.close()
        return int(decision.id)

    asyncio.run(client.create(features=2, budget=BUDGET))
    assert [asyncio.run(decide("a")), asyncio.run(decide("b"))] == [0, 1]


def test_a_cancelled_call_can_be_made_again(service: ServiceProcess) -> None:
    async def program(client: AsyncClient) -> None:
        waiting = asyncio.create_task(client.decide([0.6, 0.8], task="one"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await client.decide([0.6, 0.8], task="one")).id == 0

    run(service, "cancelled", program)


def test_every_call_of_a_client_is_there_with_its_signature_and_text() -> None:
    client = AsyncClient("http://127.0.0.1:9", policy="claims")
    plain = Client("http://127.0.0.1:9", policy="claims")
    for part in (None, *PARTS):
        mine, theirs = (each if part is None else getattr(each, part) for each in (client, plain))
        for name, method in inspect.getmembers(theirs, inspect.ismethod):
            if name.startswith("_") or name == "close":
                continue
            call = getattr(mine, name)
            assert name in dir(mine)
            assert inspect.signature(call) == inspect.signature(method)
            assert call.__doc__ == method.__doc__
            is_generator = inspect.isgeneratorfunction(method)
            assert (inspect.isasyncgenfunction if is_generator else inspect.iscoroutinefunction)(call)
    with pytest.raises(AttributeError):
        client.decides  # noqa: B018 - no such call
    with pytest.raises(AttributeError):
        client._calls  # noqa: B018 - not of the interface


@pytest.mark.parametrize("page", ["asyncio.md"])
def test_the_program_of_the_page_runs(service: ServiceProcess, page: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "docs" / page).read_text()
    [program] = [block.partition("```")[0] for block in text.split("```python\n")[1:]]
    code = program.replace("http://127.0.0.1:8080", service.url)
    exec(compile(code, page, "exec"), {"__name__": "__main__"})
    assert "20 decisions" in capsys.readouterr().out


def test_create_takes_the_budget_of_the_tutorial_as_it_is(service: ServiceProcess) -> None:
    with service.client("json") as client:
        made = client.create(features=2, budget={"minutes": {"total": 150, "horizon": 1000, "max_cost": 10}})
    assert made["budget"]["minutes"]["total"] == 150


def test_a_budget_that_the_service_does_not_know_is_refused() -> None:
    with Client("http://127.0.0.1:9", policy="claims") as client, pytest.raises(InvalidArgument, match="fixed_cost"):
        client.create(features=2, budget=Budget.reviews(10, horizon=100))
