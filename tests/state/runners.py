"""Many processes that want one lease: `python runners.py RUNNERS TURNS LEASE_S DEATHS`, with a pickled store on stdin.

Each takes the lease `TURNS` times, and under it makes an object that nobody else may have made: that is how two holders
at once would be seen. Of all turns `DEATHS` in a hundred end by the death of the process, which is started anew.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import sys
from typing import TYPE_CHECKING

from reconciler.errors import LostRaceError
from reconciler.runtime.thread_effects import ThreadEffects
from reconciler.state.lease import LeasePatience, acquire
from tests.state.samples import claim, record

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore

HOLDER = "holder"
TWO_HOLDERS = 3
DIED = 4


class Runner:
    """One of them."""

    def __init__(self, store: ObjectStore, name: str, lease_s: float, deaths: int) -> None:
        self.store = store
        self.name = name
        self.lease_s = lease_s
        self.deaths = deaths
        self.chance = random.Random(name)  # noqa: S311 - who dies is the same each time

    async def take(self, turn: int) -> None:
        effects = ThreadEffects(2)
        run = f"{self.name}-{turn}"
        lease = await acquire(self.store, effects, claim(run, lease_s=self.lease_s), LeasePatience(lock_timeout_s=600))
        before = (await lease.read_snapshot()).record
        try:
            self.store.swap(HOLDER, run.encode(), expected=None)
        except LostRaceError as error:
            say(f"{run} found {error.current!r}")
            os._exit(TWO_HOLDERS)
        lease.check()
        self.store.delete([HOLDER])
        if self.chance.random() * 100 < self.deaths:
            os._exit(DIED)
        await lease.close({**before, **record(run)})
        say(f"committed {run}")
        effects.close()


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    runners, turns, lease_s, deaths = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    store: ObjectStore = pickle.load(sys.stdin.buffer)  # noqa: S301 - our own bytes
    assert store.get("nothing") is None  # what it needs is loaded once, for all of them
    children = {start(Runner(store, f"{number}", lease_s, deaths), turns): number for number in range(runners)}
    ended: list[int] = []
    again = 0
    while children:
        child, status = os.wait()
        number, code = children.pop(child), os.waitstatus_to_exitcode(status)
        if code == DIED:
            again += 1
            children[start(Runner(store, f"{number}-after-{again}", lease_s, 0), turns=1)] = number
        else:
            ended.append(code)
    say(f"ended {sorted(set(ended))} of {len(ended)}, {again} died")
    return max(ended)


def start(runner: Runner, turns: int) -> int:
    """Fork a runner and return its process; a fork has clients of its own."""
    child = os.fork()
    if child:
        return child
    try:
        for turn in range(turns):
            asyncio.run(runner.take(turn))
    except BaseException as error:  # noqa: BLE001 - the end of a process, told to whoever started it
        say(f"{runner.name}: {error!r}")
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
