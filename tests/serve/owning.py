"""A process that owns a policy until it is killed: `python -m tests.serve.owning Sqlite path`, or `Postgres url`."""

import asyncio
import sys

from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.storage.postgres import Postgres
from deferkit.serve.storage.sqlite import Sqlite
from deferkit.serve.storage.store import Store
from tests.serve.playing import KEY, SPEC, decide


async def main(kind: str, place: str) -> None:
    """Decide a task, say so, and wait for the end."""
    engine = Engine(Store(Sqlite(place) if kind == "Sqlite" else Postgres(place)), EngineSettings(address="there:1"))
    await engine.start()
    await engine.create(KEY[0], SPEC)
    await decide(engine, "first")
    print("ready", flush=True)
    await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
