"""The lease on real clocks and threads: what the simulations say in virtual time holds outside of them."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from reconciler.applying.threads import ThreadEffects
from reconciler.errors import LeaseError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.state.acquiring import Patience, acquire
from tests.state.samples import claim, record

if TYPE_CHECKING:
    from pathlib import Path

LEASE_S = 6.0


@pytest.mark.soak
def test_a_lease_outlives_a_loop_that_is_held_up_for_longer_than_the_lease(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    effects = ThreadEffects(2)

    async def run() -> int:
        lease = await acquire(store, effects, claim("one", lease_s=LEASE_S))
        time.sleep(2 * LEASE_S)  # noqa: ASYNC251 - holding up the loop is the point
        lease.check()
        return await lease.close(record("a"))

    assert asyncio.run(run()) == 1
    effects.close()


@pytest.mark.soak
def test_a_lease_that_nobody_renews_is_taken_over_after_a_whole_lease_and_its_holder_knows(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    effects = ThreadEffects(2)

    async def run() -> None:
        dead = await acquire(store, effects, claim("dead", lease_s=LEASE_S))
        dead._stop_renewing()
        began = effects.now()
        with pytest.raises(LeaseError):
            await acquire(store, effects, claim("hasty", lease_s=LEASE_S), Patience(lock_timeout_s=LEASE_S / 2))
        lease = await acquire(store, effects, claim("patient", lease_s=LEASE_S))
        assert effects.now() - began >= LEASE_S
        assert lease.taken_from == "dead"
        with pytest.raises(LeaseError):
            dead.check()
        assert await lease.close(record("a")) == 1

    asyncio.run(run())
    effects.close()
