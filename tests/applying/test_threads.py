"""The production effects: real threads, real clocks, and a thread apart that nothing holds up."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC
from typing import TYPE_CHECKING

import pytest

from reconciler.errors import StoppedError
from reconciler.runtime.thread_effects import ThreadEffects

if TYPE_CHECKING:
    from reconciler.runtime.effects import Effects


@pytest.fixture
def effects() -> Iterator[ThreadEffects]:
    made = ThreadEffects(2)
    yield made
    made.close()


def test_blocking_calls_run_beside_each_other_off_the_loop(effects: ThreadEffects) -> None:
    meet = threading.Barrier(2, timeout=10)

    def call() -> str:
        meet.wait()
        return threading.current_thread().name

    async def run() -> list[str]:
        return list(await asyncio.gather(effects.run_blocking(call), effects.run_blocking(call)))

    names = asyncio.run(run())
    assert threading.current_thread().name not in names


def test_what_a_call_raises_is_raised_where_it_is_awaited(effects: ThreadEffects) -> None:
    def call() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(effects.run_blocking(call))


def test_the_clock_only_goes_forward_and_wall_time_is_utc(effects: ThreadEffects) -> None:
    first = effects.read_clock()
    assert effects.read_clock() >= first
    assert effects.read_utc_time().tzinfo is UTC


def test_spawned_work_goes_on_beside_the_caller(effects: ThreadEffects) -> None:
    async def answer() -> int:
        await effects.sleep(0)
        return 42

    async def run() -> int:
        return await effects.start_task(answer())

    assert asyncio.run(run()) == 42


def test_work_apart_goes_on_while_the_loop_and_its_pool_are_held_up(effects: ThreadEffects) -> None:
    beats = threading.Semaphore(0)
    threads: set[int] = set()

    async def beat(own: Effects) -> None:
        while True:
            threads.add(threading.get_ident())
            await own.run_blocking(beats.release)
            await own.sleep(0.001)

    async def run() -> None:
        end = effects.run_on_thread(beat)
        # This blocks the loop itself, as a long fold or a slow callback would.
        assert all(beats.acquire(timeout=10) for _ in range(5))
        end()
        end()

    asyncio.run(run())
    assert threads
    assert threading.get_ident() not in threads


def test_work_apart_that_ended_by_itself_can_still_be_ended(effects: ThreadEffects) -> None:
    ended = threading.Event()

    async def once(own: Effects) -> None:
        await own.run_blocking(ended.set)

    async def run() -> None:
        before = set(threading.enumerate())
        end = effects.run_on_thread(once)
        assert ended.wait(10)
        for thread in set(threading.enumerate()) - before:
            thread.join(10)  # until its loop is closed
        end()

    asyncio.run(run())


def test_work_apart_that_was_ended_leaves_no_thread(effects: ThreadEffects) -> None:
    async def forever(own: Effects) -> None:
        await own.sleep(3600)

    async def run() -> None:
        before = {thread.ident for thread in threading.enumerate()}
        end = effects.run_on_thread(forever)
        (apart,) = [thread for thread in threading.enumerate() if thread.ident not in before]
        end()
        apart.join(10)
        assert not apart.is_alive()

    asyncio.run(run())


@pytest.mark.thorough
def test_in_a_hurry_a_call_that_hangs_is_not_waited_for_and_one_that_answers_is(effects: ThreadEffects) -> None:
    hangs, begun = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        hangs.wait(60)

    async def run() -> None:
        hung = effects.start_task(effects.run_blocking(hang))
        threading.Thread(target=lambda: begun.wait(60) and effects.hurry()).start()
        began = effects.read_clock()
        with pytest.raises(StoppedError, match="did not finish in time"):
            await hung
        assert 1.2 < effects.read_clock() - began < 30
        assert await effects.run_blocking(lambda: 42) == 42
        await effects.sleep(3600)

    asyncio.run(run())
    hangs.set()


def test_after_the_time_for_ending_nothing_is_begun(effects: ThreadEffects) -> None:
    called = threading.Event()
    clock = [0.0]
    effects.read_clock = lambda: clock[0]  # type: ignore[method-assign]  # so that nobody has to wait

    async def run() -> None:
        effects.hurry()
        clock[0] = 2.6
        with pytest.raises(StoppedError):
            await effects.run_blocking(called.set)

    asyncio.run(run())
    assert not called.is_set()


@pytest.mark.thorough
def test_a_call_that_hangs_does_not_keep_the_program_alive() -> None:
    program = """
import asyncio, threading
from reconciler.runtime.thread_effects import ThreadEffects
from reconciler.errors import StoppedError
from reconciler.errors import StoppedError
effects = ThreadEffects(1)
async def run():
    effects.hurry()
    try:
        await effects.run_blocking(threading.Event().wait)
    except StoppedError:
        print("left")
asyncio.run(run())
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "left\n", "")


def test_more_calls_than_threads_are_all_done(effects: ThreadEffects) -> None:
    async def run() -> list[int]:
        return list(
            await asyncio.gather(*(effects.run_blocking(lambda number=number: number) for number in range(100)))
        )

    assert asyncio.run(run()) == list(range(100))
