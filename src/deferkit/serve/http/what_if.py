"""Routes and background jobs of what-if questions."""

import asyncio
import secrets
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from typing import cast

import msgspec
from litestar import Response, get, post
from litestar.params import JSONBody

from deferkit.errors import InvalidArgument
from deferkit.serve.api.common import PolicyName
from deferkit.serve.api.reports import JobId, WhatIfBody, WhatIfReply, WhatIfStarted
from deferkit.serve.audit.counterfactual.scenario import logged_budgets, scenario_of
from deferkit.serve.audit.counterfactual.what_if import WhatIfNews, WhatIfOrder
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.problems import Problem, invalid, unavailable, unknown
from deferkit.serve.http.route_support import (
    AnyRequest,
    ask_policy,
    caller_of,
    route_options,
)
from deferkit.serve.structured_logs import logger

MODULE = "deferkit.serve.audit.counterfactual.what_if"
KEPT_S = 3600.0  # how long what a job came to is kept
MAX_KEPT = 100  # of a tenant
MAX_RUNNING = 2  # of all tenants
MAX_JOB_S = 1800.0
MAX_LINE = 4_000_000  # bytes of what a job comes to


class WhatIfJob:
    """A what-if job and its latest news."""

    def __init__(self, tenant: str, policy: str) -> None:
        self.id = secrets.token_hex(8)
        self.tenant = tenant
        self.policy = policy
        self.began = time.monotonic()
        self.news = WhatIfNews()
        self.running: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the job is running."""
        return self.running is not None and not self.running.done()

    def reply(self) -> WhatIfReply:
        """Return the progress of the job, and its result."""
        news = self.news
        done = "done" if news.rows is not None else "failed"
        return WhatIfReply(
            job=self.id,
            state="running" if self.is_running else done,
            progress=news.progress,
            rows=news.rows or [],
            basis=news.basis,
            remarks=news.remarks,
            error=news.error,
        )


class WhatIfJobs:
    """The jobs of a service: one at a time for each tenant, two in all.

    Args:
        store: Where the logs are: a path, or a URL.
    """

    def __init__(self, store: str) -> None:
        self._store = store
        self._jobs: dict[str, WhatIfJob] = {}

    def start(self, tenant: str, policy: str, budgets: list[str]) -> WhatIfJob:
        """Start a job; raise if too many run.

        Args:
            tenant: Whose policy it is.
            policy: Its name.
            budgets: Other budgets, as people write them.
        """
        self._forget_old()
        running = [job for job in self._jobs.values() if job.is_running]
        if any(job.tenant == tenant for job in running):
            raise Problem(409, "busy", "Another what-if of the tenant is being computed: wait for it.")
        if len(running) >= MAX_RUNNING:
            raise unavailable("Other what-ifs are being computed.", retry_after=5)
        job = WhatIfJob(tenant, policy)
        order = WhatIfOrder(store=self._store, tenant=tenant, policy=policy, budgets=budgets)
        job.running = asyncio.create_task(self._run(job, order))
        self._jobs[job.id] = job
        return job

    def find(self, tenant: str, policy: str, number: str) -> WhatIfJob:
        """Return a job; raise if the policy has none of this id."""
        self._forget_old()
        job = self._jobs.get(number)
        if job is None or (job.tenant, job.policy) != (tenant, policy):
            raise unknown("what-if", number)
        return job

    async def close(self) -> None:
        """End all jobs."""
        running = [job.running for job in self._jobs.values() if job.running is not None and job.is_running]
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _forget_old(self) -> None:
        before = time.monotonic() - KEPT_S
        kept: Counter[str] = Counter()  # by tenant
        for job in reversed([job for job in self._jobs.values() if not job.is_running]):
            kept[job.tenant] += 1
            if job.began < before or kept[job.tenant] > MAX_KEPT:
                del self._jobs[job.id]

    async def _run(self, job: WhatIfJob, order: WhatIfOrder) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", MODULE, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=MAX_LINE
        )
        try:
            async with asyncio.timeout(MAX_JOB_S):
                await follow(process, job, order)
            if job.news.rows is None and job.news.error is None:
                job.news = msgspec.structs.replace(job.news, error="The process that computes it has ended.")
        except TimeoutError:
            job.news = msgspec.structs.replace(job.news, error=f"It took longer than {MAX_JOB_S:g} seconds.")
        except Exception as error:  # whatever it was, the waiting callers get a reply
            logger.exception("a what-if failed")
            job.news = msgspec.structs.replace(job.news, error=f"It failed: {type(error).__name__}.")
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def follow(process: Process, job: WhatIfJob, order: WhatIfOrder) -> None:
    """Give a process its order, and keep its latest news."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(msgspec.json.encode(order) + b"\n")
    await process.stdin.drain()
    while line := await process.stdout.readline():
        job.news = msgspec.json.decode(line, type=WhatIfNews)


def jobs_of(request: AnyRequest) -> WhatIfJobs:
    """Return the jobs of the service."""
    return cast("WhatIfJobs", request.app.state.what_ifs)


@post(
    "/v1/policies/{name:str}/what-if",
    status_code=202,
    opt=route_options("overview", "admin", "read", problems=(409,), example={"budgets": ["0.5x", "2x"]}),
)
async def start_what_if(request: AnyRequest, name: PolicyName, data: JSONBody[WhatIfBody]) -> Response[WhatIfStarted]:
    """Start a what-if job: replay the log with other budgets. Each tenant may run one job at a time."""

    async def start(owned: OwnedPolicy) -> WhatIfStarted:
        try:
            logged = logged_budgets(owned.policy.spec, owned.policy.accounts)
            for text in data.budgets:
                scenario_of(text, logged)
        except InvalidArgument as error:
            raise invalid(str(error)) from error
        return WhatIfStarted(job=jobs_of(request).start(caller_of(request).tenant, name, data.budgets).id)

    return await ask_policy(request, name, start, WhatIfStarted, 202)


@get("/v1/policies/{name:str}/what-if", opt=route_options("overview", "admin", "read"))
async def read_what_if(request: AnyRequest, name: PolicyName, job: JobId) -> Response[WhatIfReply]:
    """Read the progress and the result of a what-if job. A result is kept for an hour, the latest 100 of a tenant."""

    async def read_reply(_: OwnedPolicy) -> WhatIfReply:
        return jobs_of(request).find(caller_of(request).tenant, name, job).reply()

    return await ask_policy(request, name, read_reply, WhatIfReply)


WHAT_IF_ROUTES = [start_what_if, read_what_if]
