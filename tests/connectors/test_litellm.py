"""`DeferringRouter` with the real LiteLLM and a provider on this machine: routes, prices, a budget that holds."""

import asyncio
import json
import os
import re
import runpy
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # read when LiteLLM is imported, which else fetches it

import litellm
import pytest

from deferkit import Budget, Deferrer, Encoder, InvalidArgument
from deferkit.connectors.litellm import FEATURES, CostLogger, DeferringRouter, text_features
from deferkit.connectors.task_deferrer import TaskDeferrer
from tests.guides import run_guide

pytestmark = pytest.mark.filterwarnings("default")  # LiteLLM and pydantic have some of their own
PRICE = 0.001  # dollars for an output token of the strong model


class Provider(BaseHTTPRequestHandler):
    """Answers as an OpenAI-compatible provider does: 100 tokens from the strong model, 10 from the cheap one."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        server: Any = self.server
        server.asked.append(asked["model"])
        strong = asked["model"] == "strong-1"
        busy, failing = strong and server.busy > 0, strong and server.failing
        server.busy -= busy
        tokens = 100 if asked["model"] == "strong-1" else 10
        body = {
            "id": "chat-1",
            "object": "chat.completion",
            "created": 1,
            "model": asked["model"],
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "yes"}}],
            "usage": {"prompt_tokens": 0, "completion_tokens": tokens, "total_tokens": tokens},
        }
        data = json.dumps({"error": {"message": "no"}} if failing or busy else body).encode()
        self.send_response(503 if busy else 400 if failing else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def provider() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    server.asked, server.failing, server.busy = [], False, 0  # busy: so many more requests get 503
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def models(provider: Any) -> list[dict[str, Any]]:
    address = f"http://127.0.0.1:{provider.server_port}/v1"
    prices = {"cheap-1": 0.0, "strong-1": PRICE}
    return [
        {
            "model_name": name.partition("-")[0],
            "litellm_params": {
                "model": f"openai/{name}",
                "api_base": address,
                "api_key": "none",
                "input_cost_per_token": 0.0,
                "output_cost_per_token": price,
            },
        }
        for name, price in prices.items()
    ]


def decider(path: Path, total: float) -> TaskDeferrer:
    """A learner that knows: the strong model answers questions with digits better, and costs 0.1 dollars."""
    encoder = Encoder(numbers=list(FEATURES))
    deferrer = Deferrer(
        encoder=encoder, budget=Budget(total, horizon=40, max_cost=0.1), representation="linear", warm_up=0
    )
    easy, hard = text_features([{"content": "hello there"}]), text_features([{"content": "17 23 5 99 7"}])
    deferrer.warm_start([easy, hard] * 40, {"model": [1.0, 0.0] * 40, "human": [1.0, 1.0] * 40}, cost=[0.1] * 80)
    return TaskDeferrer(path, deferrer)


async def ask(router: DeferringRouter, text: str, task: str) -> Any:
    messages = [{"role": "user", "content": text}]
    return await router.acompletion("assistant", messages=messages, metadata={"deferkit_task": task})


def test_hard_requests_go_to_the_strong_model_within_the_budget(provider: Any, tmp_path: Path) -> None:
    tasks = decider(tmp_path / "requests", total=1.0)
    router = DeferringRouter(
        decider=tasks, model="assistant", cheap="cheap", strong="strong", model_list=models(provider)
    )

    async def play() -> None:
        for number in range(40):
            text = "17 23 5 99 7" if number % 2 else "hello there"
            await ask(router, text, f"request-{number}")
            await asyncio.wait_for(router.settled(), 10)

    asyncio.run(play())
    strong = [number for number, model in enumerate(provider.asked) if model == "strong-1"]
    assert len(strong) == 10  # 1 dollar, 0.1 each
    assert sum(number % 2 for number in strong) >= 8  # the odd ones are hard; the price is learned too
    assert tasks.deferrer.summary().spent == pytest.approx(1.0)
    router.observe("request-1", {"human": 1.0})
    assert router._costs.failures == []
    router.discard()


def test_a_request_that_fails_gives_its_reservation_back(provider: Any, tmp_path: Path) -> None:
    tasks = decider(tmp_path / "requests", total=1.0)
    provider.failing = True
    router = DeferringRouter(
        decider=tasks, model="assistant", cheap="cheap", strong="strong", model_list=models(provider), num_retries=0
    )

    async def play() -> None:
        with pytest.raises(litellm.exceptions.BadRequestError):
            await ask(router, "17 23 5 99 7", "request-1")
        await asyncio.wait_for(router.settled(), 10)

    asyncio.run(play())
    summary = tasks.deferrer.summary()
    assert (summary.spent, summary.reserved, summary.routes["human"]) == (0.0, 0.0, 1)
    router.discard()


@pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
def test_what_an_answer_costs_is_booked_after_attempts_that_failed(provider: Any, tmp_path: Path, named: bool) -> None:
    tasks = decider(tmp_path / "requests", total=1.0)
    provider.busy = 1
    router = DeferringRouter(
        decider=tasks, model="assistant", cheap="cheap", strong="strong", model_list=models(provider), retry_after=0
    )

    async def play() -> None:
        given: dict[str, Any] = {"metadata": {"deferkit_task": "request-1"}} if named else {}
        await router.acompletion("assistant", messages=[{"role": "user", "content": "17 23 5 99 7"}], **given)
        await asyncio.wait_for(router.settled(), 10)

    asyncio.run(play())
    summary = tasks.deferrer.summary()
    assert provider.asked == ["strong-1"] * 2
    assert (summary.decisions, summary.reserved, router._costs.failures) == (1, 0.0, [])
    assert summary.spent == pytest.approx(0.1)
    assert not router._costs.trying
    router.discard()


def test_the_cost_of_an_answer_is_booked_without_a_report_of_litellm(
    provider: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: Any, **__: Any) -> None:
        """LiteLLM reports as well as it can: a full queue or a slow machine loses some."""

    monkeypatch.setattr(CostLogger, "async_log_success_event", lost)
    tasks = decider(tmp_path / "requests", total=1.0)
    router = DeferringRouter(
        decider=tasks, model="assistant", cheap="cheap", strong="strong", model_list=models(provider)
    )

    async def play() -> None:
        await ask(router, "17 23 5 99 7", "request-1")
        assert tasks.deferrer.summary().spent == pytest.approx(0.1)
        router._costs.open.add("a stream")
        with pytest.raises(TimeoutError, match="has not reported the end of a stream"):
            await router.settled(timeout_s=0.05)

    asyncio.run(play())
    router.discard()


def test_costs_are_settled_when_they_are_booked_and_not_before(provider: Any, tmp_path: Path) -> None:
    tasks = decider(tmp_path / "requests", total=1.0)
    router = DeferringRouter(
        decider=tasks, model="assistant", cheap="cheap", strong="strong", model_list=models(provider)
    )
    observe, booked = tasks.observe, []

    def slow(task: str, rewards: Any, cost: float) -> None:
        time.sleep(0.2)
        observe(task, rewards, cost)
        booked.append(cost)

    tasks.observe = slow  # type: ignore[method-assign,assignment]
    hard = text_features([{"role": "user", "content": "17 23 5 99 7"}])
    assert tasks.decide(hard, task="request-1").route == "human"
    router._costs.open.add("request-1")

    async def play() -> None:
        calls = [asyncio.create_task(router._costs.book("request-1", 0.1)) for _ in range(2)]  # the answer and a report
        await asyncio.sleep(0)
        await router.settled()
        assert booked == [0.1]
        await asyncio.gather(*calls)

    asyncio.run(play())
    assert (booked, router._costs.failures) == ([0.1], [])
    router.discard()


def test_other_models_of_the_router_are_left_alone(provider: Any, tmp_path: Path) -> None:
    tasks = decider(tmp_path / "requests", total=1.0)
    router = DeferringRouter(
        decider=tasks, model="assistant", cheap="cheap", strong="strong", model_list=models(provider)
    )
    asyncio.run(router.acompletion("strong", messages=[{"role": "user", "content": "hello"}]))
    assert (provider.asked, tasks.deferrer.summary().decisions) == (["strong-1"], 0)
    router.discard()


def test_models_that_are_not_there(provider: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no model 'gpt'.*There is cheap, strong"):
        DeferringRouter(
            decider=decider(tmp_path / "requests", total=1.0),
            model="assistant",
            cheap="gpt",
            strong="strong",
            model_list=models(provider),
        )


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "litellm_routing.py"))
    alone, deferring, spent = capsys.readouterr().out.splitlines()
    assert percent(deferring) > percent(alone) + 15
    assert 0.2 < float(spent.split()[1]) <= 0.30


def test_the_guide_runs(provider: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_guide("litellm.md", {"http://127.0.0.1:9000": f"http://127.0.0.1:{provider.server_port}"})
    assert capsys.readouterr().out == "yes\n"
    assert provider.asked in (["small"], ["large"])
    found["router"].discard()


def percent(line: str) -> float:
    return float(re.findall(r"([0-9.]+)%", line)[0])


def test_requests_at_the_same_time_share_the_budget(provider: Any, tmp_path: Path) -> None:
    tasks = decider(tmp_path / "requests", total=0.3)
    router = DeferringRouter(
        decider=tasks, model="assistant", cheap="cheap", strong="strong", model_list=models(provider)
    )

    async def play() -> None:
        await asyncio.gather(*(ask(router, "17 23 5 99 7", f"request-{number}") for number in range(12)))
        await asyncio.wait_for(router.settled(), 10)

    asyncio.run(play())
    summary = tasks.deferrer.summary()
    strong = provider.asked.count("strong-1")
    assert 1 <= strong == summary.routes["human"] <= 3
    assert summary.spent == pytest.approx(0.1 * strong)
    assert summary.reserved == 0.0
    assert TaskDeferrer(tmp_path / "requests").deferrer.summary() == summary  # all of it is in the file
    router.discard()
