# %% [markdown]
# # A cheap and a strong language model, within a budget of dollars
# Callers ask for the model "assistant". Each request goes to a cheap model, or to a strong one where its answer is
# worth its dollars: there are 30 cents for 100 requests, and the strong model costs about one cent for each.
#
# So that this runs without an account, both models are simulated by a server on this machine that speaks OpenAI's
# protocol: the cheap one multiplies small numbers alone, the strong one is right 98 times out of 100. Put your own
# models and addresses into `model_list`, and the rest stays as it is.

# %%
import asyncio
import json
import os
import random
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # the prices are below: none are fetched

from deferkit import Budget, Deferrer, Encoder
from deferkit.connectors.litellm import FEATURES, DeferringRouter
from deferkit.connectors.task_deferrer import TaskDeferrer

DOLLARS, REQUESTS = 0.30, 100
chance = random.Random(0)


class SimulatedProvider(BaseHTTPRequestHandler):
    """Answers "What is 17 × 23?" as the two models would."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        a, b = map(int, asked["messages"][-1]["content"].removeprefix("What is ").rstrip("?").split(" × "))
        strong = asked["model"] == "strong-1"
        right = chance.random() < 0.98 if strong else a * b < 1000
        message = {"role": "assistant", "content": str(a * b if right else a * b + 10)}
        tokens = chance.randint(60, 140) if strong else 10
        body = {
            "id": "chat-1",
            "object": "chat.completion",
            "created": 1,
            "model": asked["model"],
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 0, "completion_tokens": tokens, "total_tokens": tokens},
        }
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


provider = ThreadingHTTPServer(("127.0.0.1", 0), SimulatedProvider)
threading.Thread(target=provider.serve_forever, daemon=True).start()
address = f"http://127.0.0.1:{provider.server_port}/v1"

# %% [markdown]
# The router. A request to the strong model holds 1.5 cents (`max_cost`, for the longest answer that is allowed) until
# LiteLLM says what it has cost.

# %%
model_list = [
    {
        "model_name": name,
        "litellm_params": {
            "model": f"openai/{name}-1",
            "api_base": address,
            "api_key": "none",
            "input_cost_per_token": 0.0,
            "output_cost_per_token": dollars,
        },
    }
    for name, dollars in (("cheap", 0.0), ("strong", 0.0001))
]
deferrer = Deferrer(
    encoder=Encoder(numbers=list(FEATURES)),
    budget=Budget(DOLLARS, horizon=REQUESTS, max_cost=0.015),
    experts=["strong"],
    representation="linear",
)
decider = TaskDeferrer(Path(tempfile.mkdtemp()) / "assistant.deferkit", deferrer)
router = DeferringRouter(decider=decider, model="assistant", cheap="cheap", strong="strong", model_list=model_list)

# %% [markdown]
# The stream. Here every answer can be checked, so that `observe` says how good it was; with people, report what you
# learn of some of them, whenever that is.


# %%
async def play() -> tuple[int, int]:
    """Return how many answers were right, and how many would have been with the cheap model alone."""
    right = cheap_alone = 0
    for number in range(REQUESTS):
        hard = chance.random() < 0.5
        a, b = (chance.randint(100, 999) if hard else chance.randint(2, 9) for _ in range(2))
        task = f"request-{number}"
        question = [{"role": "user", "content": f"What is {a} × {b}?"}]
        answer = await router.acompletion("assistant", messages=question, metadata={"deferkit_task": task})
        good = answer.choices[0].message.content == str(a * b)
        asked = decider.decide(None, task=task).route  # known by now: the route of the task
        router.observe(task, {asked: float(good)})
        right += good
        cheap_alone += a * b < 1000
    await router.settled()
    return right, cheap_alone


right, cheap_alone = asyncio.run(play())
summary = deferrer.summary()
print(f"cheap model alone  {cheap_alone / REQUESTS:.1%} right")
print(f"deferkit           {right / REQUESTS:.1%} right, {summary.routes['strong']} requests to the strong model")
print(f"spent              {summary.spent:.3f} of {DOLLARS:.2f} dollars")

# %%
router.discard()
provider.shutdown()
provider.server_close()
