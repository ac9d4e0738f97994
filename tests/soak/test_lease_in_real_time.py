"""The lease on real clocks and threads: what the simulations say in virtual time holds outside of them."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.errors import LeaseError, RetryableError
from reconciler.objectstore import s3_client as s3client
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.open import open_store
from reconciler.runtime.thread_effects import ThreadEffects
from reconciler.state.lease import LeasePatience, acquire
from reconciler.state.snapshots import read_snapshot
from tests.servers.proxy import Late, Proxy
from tests.state.samples import claim, record

if TYPE_CHECKING:
    from tests.servers.weed import S3Server

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
        began = effects.read_clock()
        with pytest.raises(LeaseError):
            await acquire(store, effects, claim("hasty", lease_s=LEASE_S), LeasePatience(lock_timeout_s=LEASE_S / 2))
        lease = await acquire(store, effects, claim("patient", lease_s=LEASE_S))
        assert effects.read_clock() - began >= LEASE_S
        assert lease.taken_from == "dead"
        with pytest.raises(LeaseError):
            dead.check()
        assert await lease.close(record("a")) == 1

    asyncio.run(run())
    effects.close()


@pytest.mark.soak
def test_a_holder_whose_writes_are_all_late_gives_up_and_what_arrives_after_the_takeover_changes_nothing(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3client, "CONDITIONAL_READ_SECONDS", 0.5)
    url = s3_server.url("late")
    truth = open_store(s3_server.settings(url=url))
    effects = ThreadEffects(4)

    async def run(proxy: Proxy) -> None:
        behind = open_store(s3_server.settings(url=url, endpoint=proxy.endpoint))
        cut = await acquire(behind, effects, claim("cut", lease_s=LEASE_S))
        late = [Late(threading.Event()) for _ in range(500)]
        for one in late:
            proxy.on("PUT", one)
        with pytest.raises((LeaseError, RetryableError)):
            await cut.close(record("cut"))
        began = effects.read_clock()
        other = await acquire(truth, effects, claim("other", lease_s=LEASE_S))
        assert effects.read_clock() - began <= LEASE_S + 2
        with pytest.raises(LeaseError):
            cut.check()
        await other.commit(record("other"))
        for one in late[: proxy.count("PUT")]:
            one.arrive.set()
        await effects.sleep(1)
        other.check()
        assert await other.close(record("other", "more")) == 2

    with Proxy(s3_server.endpoint) as proxy:
        asyncio.run(run(proxy))
    effects.close()
    snapshot = read_snapshot(truth)
    assert snapshot is not None
    assert sorted(snapshot.record) == ["topic/west/more", "topic/west/other"]
