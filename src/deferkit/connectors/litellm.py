"""A LiteLLM router that sends a request to a strong model only where that is worth its dollars, within a budget.

The cheap model decides for nothing (its own price is what you pay anyway); the strong one is the expert, and the
difference of the prices is its cost. Needs LiteLLM: `pip install 'deferkit[litellm]'`.
"""

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deferkit.client.client import Client
from deferkit.connectors.task_deferrer import TaskDeferrer
from deferkit.errors import DeferkitError, InvalidArgument, expected
from deferkit.extras import needs
from deferkit.types import MODEL

needs("litellm")

import litellm  # noqa: E402  after the check
from litellm.integrations.custom_logger import CustomLogger  # noqa: E402
from litellm.types.router import PreRoutingHookResponse  # noqa: E402

Messages = Sequence[Mapping[str, Any]]
TASK = "deferkit_task"
LOOK_S = 0.02


def text_features(messages: Messages | None) -> dict[str, float]:
    """Return features of a request that need no other model: lengths, questions, code, digits, turns.

    Args:
        messages: Messages in the form of OpenAI.

    >>> text_features([{"role": "user", "content": "What is 17 × 23?"}])["digits"]
    0.25
    """
    texts = [each["content"] for each in messages or () if isinstance(each.get("content"), str)]
    last = texts[-1] if texts else ""
    n = max(len(last), 1)
    return {
        "length": float(len(last)),
        "turns": float(len(texts)),
        "total_length": float(sum(map(len, texts))),
        "questions": float(last.count("?")),
        "lines": float(last.count("\n")),
        "code": float("```" in last or "def " in last or "{" in last),
        "digits": sum(map(str.isdigit, last)) / n,
        "long_words": sum(len(word) > 8 for word in last.split()) / max(len(last.split()), 1),
    }


FEATURES = tuple(text_features(None))
"""The names that `text_features` returns, for an `Encoder` or for a policy of the service."""


class DeferringRouter(litellm.Router):  # type: ignore[misc]
    """A `litellm.Router` with one more model name: requests for it go to the cheap or to the strong model.

    Every request for `model` is a task: the strong model is asked where its answer is expected to be worth its price,
    and the budget in dollars holds. What a request has cost is learned from LiteLLM's own prices when it is answered;
    how good an answer was, you say with `observe`, as far as you know it. A request to the strong model that fails,
    after all retries and fallbacks of the router, gives its reservation back.

    Args:
        decider: A `Client` of the decision service, or a `TaskDeferrer`, whose only expert is the strong model.
        model: The name that callers ask for, such as "assistant".
        cheap: The model name of the router that decides for nothing.
        strong: The model name of the router that costs budget.
        features: Makes the context of a request from its messages; `text_features` by default.
        router: Arguments of `litellm.Router`, such as `model_list`.

    Raises:
        InvalidArgument: If cheap or strong is not in the model list.
    """

    def __init__(
        self,
        *,
        decider: Client | TaskDeferrer,
        model: str,
        cheap: str,
        strong: str,
        features: Callable[[Messages | None], Any] = text_features,
        **router: Any,
    ) -> None:
        # the name that callers ask for needs a deployment, or the router refuses it before the hook is asked
        given = list(router.pop("model_list", None) or ())
        by_name = {each["model_name"]: each for each in given}
        for name in (cheap, strong):
            if name not in by_name:
                raise InvalidArgument(f"There is no model {name!r} in the model list. There is {', '.join(by_name)}.")
        self._deciders = {cheap: MODEL}  # what callers call them → what the learner does
        if isinstance(decider, TaskDeferrer):
            experts = decider.deferrer.settings.experts
            if len(experts) > 1:
                raise expected("decider", "DeferringRouter", "a learner with one expert, the strong model", experts)
            self._deciders[strong] = experts[0]
        super().__init__(model_list=[*given, {**by_name[cheap], "model_name": model}], **router)
        self.decider = decider
        self.deferred_model, self.cheap, self.strong = model, cheap, strong
        self.features = features
        self._costs = CostLogger(decider)
        litellm.logging_callback_manager.add_litellm_callback(self._costs)

    async def async_pre_routing_hook(
        self,
        model: str,
        request_kwargs: dict[str, Any],
        messages: list[dict[str, Any]] | None = None,
        input: str | list[Any] | None = None,
        specific_deployment: bool | None = False,
    ) -> PreRoutingHookResponse | None:
        """Choose the model of a request; called by LiteLLM before it chooses a deployment."""
        if model != self.deferred_model:
            return await super().async_pre_routing_hook(model, request_kwargs, messages, input, specific_deployment)
        metadata = request_kwargs.setdefault("metadata", {})
        task = metadata.setdefault(TASK, f"request-{uuid.uuid4()}")
        context = self.features(messages)
        asked = await asyncio.to_thread(lambda: self.decider.decide(context, task=task).route) != MODEL
        if asked:
            self._costs.open.add(task)
        return PreRoutingHookResponse(model=self.strong if asked else self.cheap, messages=messages)

    async def async_function_with_fallbacks(self, *args: Any, **kwargs: Any) -> Any:
        """Send a request, again or to other models where it fails; called by LiteLLM for each request.

        Only a request that has failed for good has cost nothing: an attempt that fails may be followed by one that is
        answered, and paid for. The cost of an answer is booked as it comes back; that of a stream when LiteLLM reports
        its end, which it does as well as it can, not for sure.
        """
        task = (kwargs.get("metadata") or {}).get(TASK)
        if kwargs.get("model") != self.deferred_model or task in self._costs.trying:
            return await super().async_function_with_fallbacks(*args, **kwargs)
        if task is None:
            task = f"request-{uuid.uuid4()}"
            kwargs["metadata"] = {**(kwargs.get("metadata") or {}), TASK: task}
        self._costs.trying.add(task)
        try:
            answer = await super().async_function_with_fallbacks(*args, **kwargs)
        except BaseException:
            await self._costs.book(task, 0.0)
            raise
        finally:
            self._costs.trying.discard(task)
        if (cost := cost_of_answer(answer)) is not None:
            await self._costs.book(task, cost)
        return answer

    def observe(self, task: str, rewards: Mapping[str, float]) -> None:
        """Report the rewards of an answer.

        Args:
            task: The id of the request: `metadata={"deferkit_task": …}` of the call.
            rewards: From 0 to 1, by decider: "model" is the cheap model, which may be called by its own name, too.

        Raises:
            UnknownDecision: If there is no such request, or it is too old.
        """
        self.decider.observe(task, {self._deciders.get(name, name): value for name, value in rewards.items()})

    async def settled(self, timeout_s: float = 60.0) -> None:
        """Wait until the costs of all requests to the strong model are booked; those of streams come beside the calls.

        Call it before a program ends: what is not booked by then stays reserved.

        Args:
            timeout_s: Seconds to wait at most.

        Raises:
            TimeoutError: If LiteLLM has not reported the end of a request by then.
        """
        ends = asyncio.get_running_loop().time() + timeout_s
        while self._costs.open:
            if asyncio.get_running_loop().time() > ends:
                raise TimeoutError(f"LiteLLM has not reported the end of {', '.join(sorted(self._costs.open)[:5])}.")
            await asyncio.sleep(LOOK_S)

    def discard(self) -> None:
        """Stop counting costs, and let go of what the router holds."""
        lists = (litellm.callbacks, litellm._async_success_callback, litellm._async_failure_callback)
        for callbacks in (*lists, litellm.success_callback, litellm.failure_callback):
            litellm.logging_callback_manager.remove_callback_from_list_by_object(
                callbacks, self._costs, require_self=False
            )
        super().discard()


class CostLogger(CustomLogger):  # type: ignore[misc]
    """Books what requests to the strong model have cost, when LiteLLM reports that they ended.

    Args:
        decider: Where costs are booked.
    """

    def __init__(self, decider: Client | TaskDeferrer) -> None:
        super().__init__()
        self.decider = decider
        self.open: set[str] = set()  # requests to the strong model whose cost is not booked
        self.trying: set[str] = set()  # requests that the router is busy with: it may repeat those that fail
        self._booking: set[str] = set()
        self.failures: list[str] = []  # the latest bookings that failed, for people who look

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:  # noqa: ARG002
        """Book the cost of a request that was answered."""
        await self.book(task_of(kwargs), float(kwargs.get("response_cost") or 0.0))

    async def async_log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:  # noqa: ARG002
        """Book that an answer that broke off has cost nothing, so that its reservation is released."""
        if (task := task_of(kwargs)) not in self.trying:
            await self.book(task, 0.0)

    async def book(self, task: str | None, cost: float) -> None:
        """Book what a request to the strong model has cost, once.

        Args:
            task: The id of the request; None if it is none of the router's.
            cost: In dollars.
        """
        if task is None or task not in self.open or task in self._booking:
            return
        self._booking.add(task)
        try:
            await asyncio.to_thread(self.decider.observe, task, None, cost)
        except DeferkitError as error:  # LiteLLM would swallow it
            self.failures = [*self.failures, f"{task}: {error}"][-100:]
        finally:
            self._booking.discard(task)
            self.open.discard(task)


def cost_of_answer(answer: Any) -> float | None:
    """Return LiteLLM's cost of an answer, in dollars; None for a stream, which has just begun."""
    if not isinstance(answer, litellm.ModelResponse):
        return None
    cost = (answer._hidden_params or {}).get("response_cost")
    return None if cost is None else float(cost)


def task_of(kwargs: Mapping[str, Any]) -> str | None:
    """Return the id of the request that LiteLLM reports on; None if it is none of a router's."""
    metadata = (kwargs.get("litellm_params") or {}).get("metadata") or {}
    task: str | None = metadata.get(TASK)
    return task
