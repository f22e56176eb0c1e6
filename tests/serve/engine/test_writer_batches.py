"""Large batches: many at once are several commits, so that none lasts as long as the owner's lease."""

import asyncio

import msgspec

from deferkit.serve.api.tasks import BatchBody, TaskBody
from deferkit.serve.engine.commands.decide import DecideMany
from deferkit.serve.engine.engine import Engine
from deferkit.serve.storage.sqlite import Sqlite
from tests.serve.harness.in_process import KEY, decide, play

BATCH = 1000


def batch(number: int) -> DecideMany:
    return DecideMany(BatchBody(tasks=[TaskBody(task=f"{number}-{i}", context=[1.0, i / BATCH]) for i in range(BATCH)]))


def test_batches_at_once_are_several_commits(sqlite: Sqlite) -> None:
    async def script(engine: Engine) -> None:
        large = [asyncio.create_task(engine.submit(KEY, batch(number))) for number in range(5)]
        small = [decide(engine, f"{number}", force=None) for number in range(20)]
        await asyncio.gather(*large, *small)
        for reply in [task.result() for task in large]:
            assert {each["status"] for each in msgspec.json.decode(reply.body)["results"]} == {201}
        assert engine.groups >= 5

    play(sqlite, script)
