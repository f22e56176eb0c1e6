"""The client of a service: policies, decisions, outcomes and figures."""

import ssl
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from deferkit.client.admin import Keys, Webhooks
from deferkit.client.calls import Calls
from deferkit.client.reviews import Reviews
from deferkit.client.summary import PolicySummary, summary_of
from deferkit.client.wire import (
    amount_of,
    context_of,
    contexts_of,
    decision_of,
    drop_none,
    names_of,
    problem_of,
    rewards_of,
    to_json,
)
from deferkit.errors import ConflictingObservation, ServiceError, ServiceUnavailable, UnknownDecision, expected
from deferkit.periods import as_seconds
from deferkit.types import AT_LEAST_ONE, Amount, Budget, Decision, is_whole

OF_A_PERIOD = ("until", "every", "zone", "start", "hold", "limit")


def budget_of(budget: Budget) -> dict[str, Any]:
    """Return a budget as the service takes it.

    >>> budget_of(Budget(40, every="7d", carry=float("inf"), max_cost=2))
    {'total': 40, 'max_cost': 2, 'every': '7d', 'carry': None}
    """
    if isinstance(budget.max_cost, Mapping) or budget.fixed_cost is not None or budget.strict:
        raise expected("budget", "Client", "without fixed_cost, strict and a max_cost by expert", budget)
    body = drop_none(
        total=None if budget.total == float("inf") else budget.total,
        horizon=budget.horizon,
        max_cost=budget.max_cost,
        **{name: getattr(budget, name) for name in OF_A_PERIOD},
    )
    if budget.carry:
        body["carry"] = None if budget.carry == float("inf") else budget.carry
    return body


def plans_of(resources: Sequence[str], *, horizon: Any, until: Any, allowance: Amount | None) -> dict[str, Any]:
    """Return the horizon, end or allowance of budgets, by resource.

    >>> plans_of(["minutes"], horizon=None, until=1.9e9, allowance=None)
    {'minutes': {'until': 1900000000.0}}
    """
    plans: dict[str, dict[str, Any]] = {}
    ends = {name: as_seconds("until", "budget", each) for name, each in by_resource(resources, until).items()}
    for field, values in (
        ("horizon", by_resource(resources, horizon)),
        ("until", ends),
        ("allowance", by_resource(resources, amount_of("allowance", allowance))),
    ):
        for name, value in values.items():
            plans.setdefault(name, {})[field] = value
    return plans


def by_resource(resources: Sequence[str], value: Any) -> dict[str, Any]:
    """Return values by resource; a single one is that of the only resource."""
    if value is None or isinstance(value, Mapping):
        return dict(value or {})
    if len(resources) > 1:
        raise expected("change", "budget", f"given by resource ({', '.join(resources)})", value)
    return {resources[0]: value}


POLL_S = 0.25  # between two looks at a job


class PolicyFigures:
    """Where policies stand and how they came there: `client.figures`. It needs the scope `admin` or `read`.

        standing = client.figures.standing()
        print(standing["state"], standing["gain"]["value"])

    Times are seconds since 1970. The OpenAPI document of the service describes every field.
    """

    def __init__(self, calls: Calls, path: str) -> None:
        self._calls = calls
        self._path = path

    def overview(self) -> list[dict[str, Any]]:
        """Return the status of all policies of the tenant.

        late = [policy["name"] for policy in client.figures.overview() if policy["alarms"]]
        """
        return list(self._calls.fields("GET", "/v1/overview")["policies"])

    def standing(self) -> dict[str, Any]:
        """Return the status of the policy: pace, forecast, gain with its error, queue, alarms.

        client.figures.standing()["runs_out_at"]
        """
        return self._calls.fields("GET", f"{self._path}/standing")

    def series(self, buckets: int = 120) -> dict[str, Any]:
        """Return decisions, spending, price and gain over time.

        client.figures.series(buckets=24)["gain"]

        Args:
            buckets: How many steps of time at most, up to 2,000.
        """
        return self._calls.fields("GET", f"{self._path}/series?buckets={int(buckets)}")

    def estimates(self) -> dict[str, Any]:
        """Return the estimates of the policy: coefficients with errors, predicted against observed, drifts.

        client.figures.estimates()["targets"][0]["calibration"]
        """
        return self._calls.fields("GET", f"{self._path}/estimates")

    def reviewers(self) -> list[dict[str, Any]]:
        """Return the work of each reviewer: answers, declined and lapsed tasks, time, cost, agreement.

        {line["reviewer"]: line["done"] for line in client.figures.reviewers()}
        """
        return list(self._calls.fields("GET", f"{self._path}/reviewers")["reviewers"])

    def what_if(self, budgets: Sequence[str], *, total_s: float = 1800.0) -> dict[str, Any]:
        """Return a counterfactual replay of the same tasks with other budgets; wait until it is computed.

        rows = client.figures.what_if(["0.5x", "2x"])["rows"]

        Args:
            budgets: As `deferkit replay --budget` takes them: 500, 2x, 50%, inf; minutes=500,euros=2x.
            total_s: Seconds to wait for it.

        Raises:
            ServiceUnavailable: It was not computed in time, or failed.
        """
        body = {"budgets": names_of("budgets", budgets)}
        job = self._calls.call("POST", f"{self._path}/what-if", body)["job"]
        end = time.monotonic() + total_s
        while True:
            found: dict[str, Any] = self._calls.call("GET", f"{self._path}/what-if?job={job}")
            if found["state"] == "done":
                return found
            if found["state"] == "failed":
                raise ServiceUnavailable(f"The what-if failed. {found['error']}")
            if time.monotonic() > end:
                raise ServiceUnavailable(f"The what-if was not computed within {total_s:g} seconds.")
            time.sleep(POLL_S)


BATCH, BATCH_BYTES = 1000, 400_000  # tasks and bytes of one call
TOO_LARGE = 413
CONFLICT = {409: ConflictingObservation}
OF_A_TASK = {404: UnknownDecision, 409: ConflictingObservation}


class Client:
    """A policy of a decision service, with the calls of a `Deferrer`.

    >>> from deferkit import Client
    >>> client = Client("http://127.0.0.1:8080", policy="claims")
    >>> client.url, client.policy
    ('http://127.0.0.1:8080', 'claims')

        with Client("https://example.org", policy="claims", key="dk_…") as client:
            decision = client.decide({"amount": 1250.0, "country": "it"}, task="claim-17")
            client.observe("claim-17", rewards={"model": 1.0})  # later, in this process or in another one

    The service knows a task by your own id. Without one the client makes it and remembers it for the number of the
    decision, so that `observe(decision.id, …)` works as with a `Deferrer`, for the last `memory` decisions of this
    client; the id itself works everywhere and for ever.

    A call whose reply does not come is repeated with the same id, so that nothing is decided or booked twice: after
    connection errors, time-outs and the statuses 429, 502 and 503, with growing, random pauses, for at most `total_s`
    seconds (`timeout_s` is for one try); then it raises `ServiceUnavailable`. What the service refuses raises the
    library's own errors (`InvalidArgument`, `UnknownDecision`, `ConflictingObservation`, `BudgetExhausted`), and
    `ServiceError` where there is none. Costs are rounded to 6 decimals, as the service books them.

    A client may be used by any number of threads. `ssl_context` is for https with certificates of your own.
    """

    def __init__(
        self,
        url: str,
        *,
        policy: str,
        key: str | None = None,
        timeout_s: float = 10.0,
        total_s: float = 60.0,
        memory: int = 100_000,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        if not isinstance(policy, str) or not policy:
            raise expected("policy", "Client", "the name of a policy", policy)
        self.policy = policy
        self.memory: int = AT_LEAST_ONE.check("memory", "Client", memory)
        self._calls = Calls(url, key=key, timeout_s=timeout_s, total_s=total_s, context=ssl_context)
        self._path = f"/v1/policies/{quote(policy, safe='')}"
        self._tasks: dict[int, str] = {}
        self._remembering = threading.Lock()
        self.reviews = Reviews(self._calls, self._path)
        self.keys = Keys(self._calls)
        self.figures = PolicyFigures(self._calls, self._path)
        self.webhooks = Webhooks(self._calls)

    @property
    def url(self) -> str:
        """Where the service is."""
        return self._calls.url

    def create(
        self,
        *,
        features: int | Mapping[str, Any],
        budget: Budget | Mapping[str, Budget | Mapping[str, Any]],
        max_reported_cost: Amount | None = None,
        **settings: Any,
    ) -> dict[str, Any]:
        """Make the policy, unless it is there; return it with all its settings. Another one of its name is a conflict.

            client.create(features=3, budget=Budget(100, horizon=1_000, max_cost=1))
            client.create(
                features={"numbers": ["amount"], "categories": {"country": ["de", "fr"]}},
                budget={"minutes": Budget(600, horizon=1_000, max_cost=10)},
                experts=["ann", "bo"],
                deadline_s=3600,
            )
            client.create(features=3, budget=Budget(40, every="week", zone="Europe/Berlin", max_cost=2, hold="auto"))

        `features` is how many numbers a context has, or names for an encoder. A budget by resource may be given as its
        JSON, too. A reported cost above
        `max_reported_cost` (20 times `max_cost` by default) is not booked until a correction confirms it.
        `settings` are those of a policy in the service: `experts`, `link`, `pacing`, `representation`, `forget`,
        `defaults`, `confidence`, `seed`, `deadline_s`, `lease_s` and so on.
        The returned policy has the defaults that the service chose, such as `defaults`, `link` and `representation`.
        """
        budgets = dict(budget) if isinstance(budget, Mapping) else {"cost": budget}
        body = {"name": self.policy, "features": features, "budget": {}, **settings}
        for name, each in budgets.items():
            if not isinstance(each, (Budget, Mapping)):
                raise expected("budget", "Client", "a Budget, or one for each resource", each)
            ceiling = max_reported_cost.get(name) if isinstance(max_reported_cost, Mapping) else max_reported_cost
            plain = budget_of(each) if isinstance(each, Budget) else dict(each)
            body["budget"][name] = plain | drop_none(max_reported_cost=ceiling)
        return self._calls.fields("POST", "/v1/policies", body)

    def decide(
        self,
        context: Any,
        *,
        cost: Any = None,
        available: Sequence[str] | None = None,
        force: str | None = None,
        task: str | None = None,
        payload: Any = None,
        model_answer: Any = None,
        reviewers: int | None = None,
    ) -> Decision:
        """Decide who decides a task, and reserve what it may cost.

            decision = client.decide([0.6, 0.0, 0.8], task="claim-17", payload={"text": "…"}, model_answer="pay")

        As in the library, with what a reviewer is to see (`payload`, `model_answer`) and how many shall. The same task
        again gets the same decision; with anything else than before it raises `ConflictingObservation`.
        """
        body = drop_none(
            task=new_id() if task is None else task,
            context=context_of(context),
            payload=payload,
            model_answer=model_answer,
            cost=amount_of("cost", cost),
            available=names_of("available", available),
            force=force,
            reviewers=reviewers,
        )
        reply = self._calls.call("POST", f"{self._path}/decisions", body, CONFLICT)
        return self._remember(reply)

    def decide_many(self, contexts: Any, *, tasks: Sequence[str] | None = None) -> list[Decision]:
        """Decide several tasks, one after the other: the same decisions as that many calls of `decide`.

            decisions = client.decide_many([[0.6, 0.8], [0.8, 0.6]], tasks=["claim-17", "claim-18"])

        Many tasks share a call and a commit, as many as the service takes at once. Each is decided or refused by
        itself: if one is refused that raises, and the others stand; the same call again returns what was decided
        before.
        """
        rows = contexts_of(contexts)
        names = [new_id() for _ in rows] if tasks is None else list(tasks)
        if len(names) != len(rows):
            raise expected("tasks", "Client", f"{len(rows)} ids, one for each context", names)
        decisions: list[Decision] = []
        refused = None
        for result in self._batch_results(
            {"task": task, "context": row} for task, row in zip(names, rows, strict=True)
        ):
            if "decision" in result:
                decisions.append(self._remember(result["decision"]))
            elif refused is None:
                refused = problem_of(result["status"], to_json(result), CONFLICT)
        if refused is not None:
            raise refused
        return decisions

    def _batch_results(self, bodies: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        most = BATCH
        for batch in batches(bodies):
            done = 0
            while done < len(batch):
                part = batch[done : done + most]
                try:
                    reply = self._calls.call("POST", f"{self._path}/decisions/batch", {"tasks": part})
                except ServiceError as error:
                    if error.status != TOO_LARGE or len(part) == 1:
                        raise
                    most = len(part) // 2  # for the batches after this one as well
                    continue
                yield from reply["results"]
                done += len(part)

    def observe(
        self,
        decision: Decision | int | str,
        rewards: Mapping[str, float] | None = None,
        cost: Amount | None = None,
        *,
        park: bool = False,
    ) -> None:
        """Take in what has become known of a decision: rewards of any decider, the cost, in any order and in parts.

            client.observe(decision.id, rewards={"model": 0.7})
            client.observe("claim-17", rewards={"human": 0.9}, cost=4.5)

        The same observation again changes nothing; a different one raises `ConflictingObservation`. With `park`, an
        outcome that comes before its decision is kept for it; else that raises `UnknownDecision`.
        """
        body = {"task": self.task_of(decision), "rewards": rewards_of(rewards), "park": bool(park)}
        self._calls.call("POST", f"{self._path}/outcomes", body | drop_none(cost=amount_of("cost", cost)), OF_A_TASK)

    def correct(
        self,
        decision: Decision | int | str,
        rewards: Mapping[str, float] | None = None,
        cost: Amount | None = None,
        *,
        id: str | None = None,
    ) -> None:
        """Replace values that were observed before; once for each `id`, which is made if none is given.

        client.correct("claim-17", cost=5.0)
        """
        body = {"id": id or new_id(), "task": self.task_of(decision), "rewards": rewards_of(rewards)}
        self._calls.call("POST", f"{self._path}/corrections", body | drop_none(cost=amount_of("cost", cost)), OF_A_TASK)

    def unconfirmed_costs(self) -> dict[str, Amount]:
        """Return the oldest 1,000 reported costs above `max_reported_cost`, by task.

            for task, cost in client.unconfirmed_costs().items():
                client.correct(task, cost=cost)  # or what it really was

        They are neither booked nor learned until a correction says what they are. Needs a key with the scope admin.
        """
        reply = self._calls.call("GET", f"{self._path}/costs/unconfirmed")
        return {each["task"]: each["cost"] for each in reply["costs"]}

    def expire(self, decision: Decision | int | str) -> None:
        """Give up waiting for a decision: what it reserved is released. Nothing happens if nothing is reserved.

        client.expire(decision.id)
        """
        try:
            self._calls.call("POST", f"{self._path}/expirations", {"task": self.task_of(decision)}, OF_A_TASK)
        except ConflictingObservation:
            return

    def extend(self, decision: Decision | int | str, amount: Amount, *, id: str | None = None) -> Amount:
        """Reserve more for a pending review that can be stopped; return how much was added. Once for each `id`.

            granted = client.extend("claim-17", 5.0)

        That is less where less is left, and at most up to the `max_cost` and the `limit` of one review. A review that
        needs more is stopped: `stop`.
        """
        body = {"id": id or new_id(), "task": self.task_of(decision), "amount": amount_of("amount", amount)}
        granted: Amount = self._calls.call("POST", f"{self._path}/holds", body, OF_A_TASK)["granted"]
        return granted

    def stop(self, decision: Decision | int | str, cost: Amount, rewards: Mapping[str, float] | None = None) -> None:
        """Book what a review has cost that was stopped before it was done. The model's answer stands.

        client.stop("claim-17", cost=7.5)
        """
        body = {"task": self.task_of(decision), "cost": amount_of("cost", cost), "rewards": rewards_of(rewards)}
        self._calls.call("POST", f"{self._path}/stops", body, OF_A_TASK)

    def change_budget(
        self,
        total: Amount | None = None,
        *,
        add: Amount | None = None,
        horizon: Any = None,
        until: Any = None,
        allowance: Amount | None = None,
        id: str | None = None,
    ) -> None:
        """Set the total of the budget, or `add` to it (less than nothing cuts it); once for each `id`.

            client.change_budget(150)
            client.change_budget(add={"minutes": 60}, id="top-up-of-june")
            client.change_budget(until=datetime(2026, 5, 1, tzinfo=UTC))
            client.change_budget(allowance=50)  # from the next renewal on

        It cannot be cut below what is reserved and spent: `BudgetExhausted`. `horizon`, `until` and `allowance` are
        the new terms of the budget, whichever it was made with; by resource if there are several.
        """
        plans: dict[str, dict[str, Any]] = {}
        if any(each is not None for each in (horizon, until, allowance)):
            resources = list(self._calls.call("GET", self._path)["budget"])
            plans = plans_of(resources, horizon=horizon, until=until, allowance=allowance)
        if total is not None or add is not None or not plans:
            body = drop_none(id=id or new_id(), total=amount_of("total", total), add=amount_of("add", add))
            self._calls.call("POST", f"{self._path}/budget", body, CONFLICT)
        if plans:
            self._calls.call("PATCH", self._path, {"budget": plans}, CONFLICT)

    def reset(self, *, id: str | None = None) -> None:
        """Let the learner start anew, once for each `id`; budget, log and open tasks stay. Needs the scope admin.

        client.reset()
        """
        self._calls.call("POST", f"{self._path}/reset", {"id": id or new_id()}, CONFLICT)

    def forget(self, decision: Decision | int | str) -> bool:
        """Take the outcome of a task out of the estimates; return False if it was before. Needs the scope admin.

            client.forget("claim-17")

        The decision, its cost and its place in the log stay; the policy is rebuilt from its log without the outcome.
        """
        reply = self._calls.call("POST", f"{self._path}/forget", {"task": self.task_of(decision)}, OF_A_TASK)
        return bool(reply["forgotten"])

    def upgrade(self, defaults: str = "2026.12", *, confidence: int | str | None = None) -> dict[str, Any]:
        """Give the policy another version of the default rule; return it with all its settings. Needs the scope admin.

            client.upgrade()
            client.upgrade("2026.11")  # and back

        The policy is rebuilt from its log as if it had this rule from its start, while decisions go on. The same again
        changes nothing. `deferkit upgrade` compares both rules before.

        Args:
            defaults: The version of the default rule; "2026.12" by default.
            confidence: The feature that is the model's own confidence: a name, or an index for plain vectors.
        """
        body = drop_none(defaults=defaults, confidence=confidence)
        return self._calls.fields("POST", f"{self._path}/upgrade", body, CONFLICT)

    def erase(self, decision: Decision | int | str | None = None, *, older_than_s: float | None = None) -> int:
        """Erase what reviewers were shown (payload, model's answer); return of how many seats. Needs the scope admin.

        client.erase("claim-17")
        client.erase(older_than_s=30 * 86_400)  # of all tasks that ended and are older than a month
        """
        task = None if decision is None else self.task_of(decision)
        reply = self._calls.call(
            "POST", f"{self._path}/erase", drop_none(task=task, older_than_s=older_than_s), OF_A_TASK
        )
        return int(reply["erased"])

    def delete(self) -> None:
        """Delete the policy with its log, decisions, reviews and snapshots, for good. Needs the scope admin.

        client.delete()
        """
        self._calls.call("DELETE", self._path)

    def summary(self) -> PolicySummary:
        """Return the status of the policy: the library's fields, and those of a service, such as its queue.

        client.summary().spent
        """
        return summary_of(self._calls.call("GET", f"{self._path}/summary"))

    def settings(self) -> dict[str, Any]:
        """Return the policy with all its settings, as `create` and `change` do.

        client.settings()["budget"]
        """
        return self._calls.fields("GET", self._path)

    def session(self) -> dict[str, Any]:
        """Return the session of this client: its tenant, scopes and reviewer, and the id of its key.

        client.session()["scopes"]
        """
        return self._calls.fields("GET", "/v1/session")

    def read(self, decision: Decision | int | str) -> dict[str, Any]:
        """Return the record of a task: its decision and reason, the `final` decider, the answer, its history.

        client.read("claim-17")["answer"]
        """
        task = quote(self.task_of(decision), safe="")
        return self._calls.fields("GET", f"{self._path}/decisions?task={task}", None, OF_A_TASK)

    def tasks(self, **wanted: Any) -> Iterator[dict[str, Any]]:
        """Yield decided tasks that match all that is given, the latest first. Needs the scope admin or read.

            waiting = list(client.tasks(state="open"))
            recent = next(client.tasks(route="human", reason="index", search="claim-"))

        Args:
            wanted: `state` (model, open, posted, void), `route`, `reason`, `since` and `until` (seconds since 1970),
                `search` (a part of the task's id), `limit` (tasks in one call, 100 by default).
        """
        yield from self._calls.pages(f"{self._path}/tasks?{urlencode({'limit': 100} | wanted)}", "tasks", "before")

    def export(self, table: str) -> str:
        """Return a table as CSV: "decisions", or "ledger" for what was held, released and booked.

            Path("decisions.csv").write_text(client.export("decisions"), newline="")

        Cells that a spreadsheet would take for a formula begin with an apostrophe. Needs the scope admin or read.
        """
        return self._calls.text(f"{self._path}/export/{quote(table, safe='')}.csv")

    def change(self, **settings: Any) -> dict[str, Any]:
        """Change settings that may be changed; return the policy with all its settings. Needs the scope admin.

            client.change(deadline_s=3600, review={"form": [{"name": "spam", "kind": "boolean"}]})

        Args:
            settings: `learning_window_s`, `deadline_s`, `after_deadline`, `lease_s`, `reviewers`, `review` (what
                reviewers are asked and shown) and `retention_s` (seconds until payloads are erased; None: never).
        """
        return self._calls.fields("PATCH", self._path, settings)

    def task_of(self, decision: Decision | int | str) -> str:
        """Return the id of a decision's task: the one that was given, or that was made for it.

        task = client.task_of(decision)
        """
        if isinstance(decision, str):
            return decision
        number = decision.id if isinstance(decision, Decision) else decision
        if not is_whole(number, 0):
            raise expected("decision", "Client", "a decision, its number, or the id of its task", decision)
        with self._remembering:
            task = self._tasks.get(int(number))
        if task is None:
            raise UnknownDecision(
                f"Decision {number} is not one of the last {self.memory:,} of this client: name its task instead."
            )
        return task

    def _remember(self, reply: Mapping[str, Any]) -> Decision:
        with self._remembering:
            self._tasks[reply["id"]] = reply["task"]
            while len(self._tasks) > self.memory:
                del self._tasks[next(iter(self._tasks))]
        return decision_of(reply)

    def close(self) -> None:
        """Close the connections.

        client.close()
        """
        self._calls.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def new_id() -> str:
    """Return an id that nothing else has."""
    return uuid.uuid4().hex


def batches(tasks: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield tasks in groups that are small enough for one call.

    >>> [len(batch) for batch in batches({"task": str(i), "context": [0.5]} for i in range(2500))]
    [1000, 1000, 500]
    """
    batch: list[dict[str, Any]] = []
    size = 0
    for task in tasks:
        size += len(to_json(task)) + 1
        if batch and (len(batch) == BATCH or size > BATCH_BYTES):
            yield batch
            batch, size = [], len(to_json(task)) + 1
        batch.append(task)
    if batch:
        yield batch
