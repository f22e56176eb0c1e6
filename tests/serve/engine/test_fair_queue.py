"""The queue to the writer: bounded, fair to tenants, and many callers share one commit."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deferkit.serve.api.common import Reply
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.problems import Problem
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.engine.fair_queue import FairQueue
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.connections import ReadSet
from deferkit.serve.storage.database import Database
from tests.serve.harness.in_process import KEY, SPEC, decide, play, problem_of, started


def test_everyone_has_a_turn_however_much_another_sends() -> None:
    queue: FairQueue[str] = FairQueue(limit=100, share=0.5)
    for i in range(40):
        queue.add("big", f"big {i}")
    queue.add("small", "small 0")
    taken = []
    for i in range(4):
        taken += asyncio.run(queue.take(1))
        queue.add("big", f"more {i}")
    assert taken == ["big 0", "small 0", "big 1", "big 2"]


def test_the_next_group_goes_on_with_whom_the_last_one_did_not_reach() -> None:
    queue: FairQueue[str] = FairQueue(limit=100, share=1.0)
    for i in range(3):
        for tenant in "abc":
            queue.add(tenant, f"{tenant}{i}")
    groups = [asyncio.run(queue.take(2)) for _ in range(5)]
    assert groups == [["a0", "b0"], ["c0", "a1"], ["b1", "c1"], ["a2", "b2"], ["c2"]]


def test_the_whole_queue_is_bounded_and_so_is_each_part_of_it() -> None:
    queue: FairQueue[int] = FairQueue(limit=5, share=0.5)
    for tenant in "aabb":
        queue.add(tenant, 0)
    with pytest.raises(Problem, match="Too many calls wait, 2 of them yours"):
        queue.add("a", 0)
    queue.add("c", 0)
    with pytest.raises(Problem, match="Too many calls wait, 0 of them yours"):
        queue.add("d", 0)
    assert FairQueue[int](limit=1, share=0.1).share == 1


@given(st.lists(st.one_of(st.sampled_from("abc"), st.integers(1, 4)), max_size=60))
def test_nothing_is_lost_or_overtaken_by_its_own_tenant(doings: list[str | int]) -> None:
    """A letter puts an item of that tenant, a number takes at most so many."""
    queue: FairQueue[tuple[str, int]] = FairQueue(limit=12, share=0.5)
    put: dict[str, int] = dict.fromkeys("abc", 0)
    got: dict[str, int] = dict.fromkeys("abc", 0)
    for doing in doings:
        waiting = {tenant: put[tenant] - got[tenant] for tenant in "abc"}
        if isinstance(doing, str):
            full = waiting[doing] >= 6 or sum(waiting.values()) >= 12
            if full:
                with pytest.raises(Problem):
                    queue.add(doing, (doing, put[doing]))
            else:
                queue.add(doing, (doing, put[doing]))
                put[doing] += 1
        elif sum(waiting.values()):
            taken = asyncio.run(queue.take(doing))
            assert len(taken) == min(doing, sum(waiting.values()))
            for tenant, number in taken:
                assert number == got[tenant]
                got[tenant] += 1
        assert queue.length == sum(put.values()) - sum(got.values())


class Slow:
    """A command that changes nothing and says when it ran."""

    def __init__(self, name: str, ran: list[str]) -> None:
        self.name = name
        self.ran = ran

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        return ReadSet(owned.id)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:  # noqa: ARG002
        self.ran.append(self.name)
        return Reply(200, b"{}")


def test_many_callers_share_few_commits(database: Database) -> None:
    async def script(engine: Engine) -> None:
        before = engine.groups
        replies = await asyncio.gather(*(decide(engine, f"t{i}", force=None) for i in range(200)))
        assert [reply["id"] for reply in replies] == list(range(200))
        assert engine.groups - before == 4  # of at most 64
        assert engine.commands == 200

    play(database, script, settings=EngineSettings(group_limit=64, group_s=60))  # however busy the machine is


def test_a_full_queue_is_told_at_once_and_forgets_nobody(database: Database) -> None:
    async def script(engine: Engine) -> None:
        async with engine.ownership.busy:
            first = asyncio.create_task(decide(engine, "first"))
            while not engine._at_work:  # the writer has taken it, and waits
                await asyncio.sleep(0)
            waiting = [asyncio.create_task(decide(engine, f"t{i}")) for i in range(4)]
            await asyncio.sleep(0)
            async with asyncio.timeout(30):
                problem = await problem_of(decide(engine, "too many"))
            assert (problem.status, problem.code, problem.retry_after) == (503, "unavailable", 1.0)
        replies = await asyncio.gather(first, *waiting)
        assert [reply["id"] for reply in replies] == [0, 1, 2, 3, 4]
        assert (await decide(engine, "too many"))["id"] == 5

    play(database, script, settings=EngineSettings(queue_limit=4, tenant_share=1.0))


def test_one_tenant_leaves_room_and_turns_to_the_others(database: Database) -> None:
    ran: list[str] = []
    other = ("other", "p")

    async def script(engine: Engine) -> None:
        await engine.create("other", SPEC)
        async with engine.ownership.busy:
            calls = [asyncio.create_task(engine.submit(KEY, Slow("first", ran)))]
            while not engine._at_work:
                await asyncio.sleep(0)
            calls += [asyncio.create_task(engine.submit(KEY, Slow(f"big {i}", ran))) for i in range(5)]
            await asyncio.sleep(0)
            async with asyncio.timeout(30):
                assert (await problem_of(engine.submit(KEY, Slow("big 5", ran)))).status == 503  # half is its share
            calls += [asyncio.create_task(engine.submit(other, Slow(f"small {i}", ran))) for i in range(2)]
            await asyncio.sleep(0)
        await asyncio.gather(*calls)
        assert ran == ["first", "big 0", "small 0", "big 1", "small 1", "big 2", "big 3", "big 4"]

    play(database, script, settings=EngineSettings(queue_limit=10, tenant_share=0.5, group_limit=3))


async def with_long_commands(engine: Engine) -> None:
    """Make a policy of another tenant beside the one whose commands take long."""
    await engine.create("other", SPEC)
    for _ in range(30):
        engine.queue.charge(KEY[0], 0.05)


def test_nobody_waits_for_commands_of_another_tenant_that_take_long(database: Database) -> None:
    """They are the next group: committed after the others, and before any that come later."""
    ran: list[str] = []
    other = ("other", "p")

    async def script(engine: Engine) -> None:
        await with_long_commands(engine)
        async with engine.ownership.busy:
            calls = {"first": asyncio.create_task(engine.submit(other, Slow("first", ran)))}
            while not engine._at_work:
                await asyncio.sleep(0)
            for name, key in (("long 0", KEY), ("quick 0", other), ("long 1", KEY), ("quick 1", other)):
                calls[name] = asyncio.create_task(engine.submit(key, Slow(name, ran)))
                await asyncio.sleep(0)
        before = engine.groups
        done: dict[str, int] = {}

        async def note(name: str) -> None:
            await calls[name]
            done[name] = engine.groups - before

        await asyncio.gather(*map(note, calls))
        assert ran == ["first", "quick 0", "quick 1", "long 0", "long 1"]
        assert done["first"] < done["quick 0"] == done["quick 1"] < done["long 0"] == done["long 1"]

    play(database, script)


def test_commands_that_take_long_are_not_kept_waiting_by_quick_ones(database: Database) -> None:
    """However many quick ones there are, each group of them is followed by those that take long."""
    ran: list[str] = []
    other = ("other", "p")

    async def script(engine: Engine) -> None:
        await with_long_commands(engine)
        going_on = True

        async def send_quick_ones() -> None:
            while going_on:
                await engine.submit(other, Slow("quick", ran))

        quick = [asyncio.create_task(send_quick_ones()) for _ in range(8)]
        async with asyncio.timeout(60):
            for i in range(5):
                await engine.submit(KEY, Slow(f"long {i}", ran))
                engine.queue.charge(KEY[0], 0.05)
        going_on = False
        await asyncio.gather(*quick)
        assert [name for name in ran if name != "quick"] == [f"long {i}" for i in range(5)]

    play(database, script)


def test_stopping_finishes_what_waits_and_takes_no_more(database: Database) -> None:
    async def script() -> list[Any]:
        engine = await started(database, settings=EngineSettings(group_limit=50))
        calls = [asyncio.create_task(decide(engine, f"t{i}", force=None)) for i in range(300)]
        while engine.queue.length < 300:
            await asyncio.sleep(0)
        stopping = asyncio.create_task(engine.stop())
        await asyncio.sleep(0)
        assert (await problem_of(decide(engine, "late"))).status == 503
        async with asyncio.timeout(60):
            replies = await asyncio.gather(*calls)
            await stopping
        return replies

    async def after(engine: Engine) -> None:
        again = await asyncio.gather(*(decide(engine, f"t{i}", force=None) for i in range(300)))
        assert again == replies
        assert engine.owned[KEY].policy.learner.summary().decisions == 300

    replies = asyncio.run(script())
    assert [reply["id"] for reply in replies] == list(range(300))
    play(database, after, spec=None)


def test_a_group_in_hand_is_answered_before_the_end(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer has a group in hand and is about to begin: it is neither in the queue nor at the store."""

    async def script() -> Any:
        engine = await started(database)
        await engine.ownership.busy.acquire()
        monkeypatch.setattr(engine.ownership.busy, "locked", lambda: False)  # as it is in the moment of handing over
        call = asyncio.create_task(decide(engine, "a"))
        while not engine._at_work:
            await asyncio.sleep(0)
        stopping = asyncio.create_task(engine.stop())
        await asyncio.wait(engine._ticking)
        for _ in range(100):
            await asyncio.sleep(0)  # by now it has looked whether anything is left to do
        engine.ownership.busy.release()
        async with asyncio.timeout(60):
            reply = await call
            await stopping
        return reply

    assert asyncio.run(script())["task"] == "a"


class Failing(Slow):
    """A command with a fault."""

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:
        super().run(owned, work, now)
        raise ZeroDivisionError


def test_a_command_that_was_refused_is_not_run_with_the_rest_of_its_group(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its policy is being rebuilt, then another command of the group fails, and the others are run again."""
    ran: list[str] = []
    rebuilt = ("other", "p")

    async def script(engine: Engine) -> None:
        await engine.create("other", SPEC)
        await engine.create("third", SPEC)
        asked: list[tuple[str, str]] = []

        def is_writable(key: tuple[str, str]) -> bool:
            asked.append(key)
            return key != rebuilt or asked.count(key) > 1

        monkeypatch.setattr(engine.ownership, "is_writable", is_writable)
        async with engine.ownership.busy:
            commands = [
                (KEY, Slow("good", ran)),
                (rebuilt, Slow("refused", ran)),
                (("third", "p"), Failing("bad", ran)),
            ]
            calls = [asyncio.create_task(engine.submit(key, command)) for key, command in commands]
            await asyncio.sleep(0)
        good, refused, bad = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(good, Reply)
        assert isinstance(refused, Problem)
        assert isinstance(bad, Problem)
        assert (refused.status, bad.status) == (503, 500)
        assert ran == ["good", "bad", "good"]

    play(database, script)
