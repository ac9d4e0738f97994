"""Merging and scrub while processes die and others work on the same manifest: nothing is lost, doubled or left over."""

from __future__ import annotations

import itertools
from threading import Lock
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.embedded.keys import index_key
from reconciler.embedded.maintenance.passes import scrub
from reconciler.embedded.segments.entries import STALE_MS
from reconciler.embedded.segments.parts import read_part
from reconciler.errors import OwnershipLostError
from reconciler.objectstore.register import Register
from tests.contracts.lossy import LossyStore
from tests.embedded.samples import rows_of
from tests.embedded.tiered import Tiered, tiered
from tests.embedded.upkeeping import ALL, DAY, TOPIC, LateStore, append_parts, copied, held
from tests.embedded.watched import DiedError, WatchedStore, dying
from tests.servers.stores import fresh_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore


def filled(*, evicts: bool = True, spilled: bool = True, storage: ObjectStore | None = None) -> Tiered:
    """Return a topic with runs to merge, some of them in spilled pages; most of it lies in object storage alone."""
    it = tiered(partitions=1, storage=storage, retention_local_target_bytes="1", retention_local_strict="true")
    it.switch_on(
        segment_size_target="5000", segment_size_min="1", spillover_manifest_size="1024" if spilled else "65536"
    )
    it.fill(25)
    it.upload()
    if evicts:
        it.cluster.upkeep().retain()
    return it


def both_copied(it: Tiered) -> Tiered:
    return Tiered(copied(it.store), copied(it.storage), it.clock)


def remote_rows(it: Tiered) -> list[dict[str, Any]]:
    return [row for entry in it.segments() for row in rows_of(read_part(it.storage, entry, 0, ALL))]


def has_only_what_is_named(it: Tiered) -> bool:
    named = {key for entry in it.segments() for key in (entry.key, index_key(entry.key))}
    pages = {listed.key for listed in it.storage.list("topics/") if "/pages/" in listed.key}
    return it.objects() == named and pages == {page.key for page in it.manifest().pages} and not it.manifest().garbage


def sweep_later(it: Tiered) -> None:
    late: Any = LateStore(it.storage, 2 * DAY)
    it.opened(storage=late).sweep()


@pytest.mark.parametrize("done", [pytest.param(False, marks=pytest.mark.soak), True])
def test_a_merge_that_died_is_finished_by_the_next_and_nothing_is_unreadable_in_between(*, done: bool) -> None:
    it = filled()
    rows, remote = held(it.cluster), remote_rows(it)
    points = 0
    for at in itertools.count():
        left = both_copied(it)
        try:
            left.opened(storage=dying(left.storage, at, done=done)).upkeep().merge()
        except DiedError:
            points += 1
        else:
            break
        assert held(left.opened()) == rows
        assert remote_rows(left) == remote
        left.cluster = left.opened()
        assert not left.cluster.upkeep().merge().failed
        assert remote_rows(left) == remote
        assert held(left.cluster) == rows
        if points % 3:
            continue
        sweep_later(left)
        assert has_only_what_is_named(left)
        assert held(left.opened()) == rows
    assert points >= 12


@pytest.mark.parametrize("retries", [False, True])
def test_a_merge_whose_answers_are_lost_loses_nothing(*, retries: bool) -> None:
    it = filled()
    rows = held(it.cluster)
    lossy = LossyStore(it.storage, key=it.remote().key, retries=retries)
    it.opened(storage=lossy).upkeep().merge()
    assert lossy.swaps
    it.cluster = it.opened()
    it.cluster.upkeep().merge()
    sweep_later(it)
    assert held(it.opened()) == rows
    assert has_only_what_is_named(it)


def overtaken(it: Tiered, by: Callable[[], object], at: str = "manifest.json") -> EmbeddedCluster:
    """Return the cluster of one who is overtaken right before it swaps for the first time."""
    was: list[str] = []

    def before(what: str, key: str) -> None:
        if what == "swap" and key.endswith(at) and not was:
            was.append(key)
            by()

    return it.opened(storage=WatchedStore(it.storage, before=before))


def test_retention_and_merging_at_once() -> None:
    it = filled()

    def retain() -> None:
        it.cluster.alter_topic(TOPIC, {"retention.bytes": "9000"})
        it.cluster.upkeep().retain()

    done = overtaken(it, retain).upkeep().merge()
    assert not done.failed
    assert remote_rows(it)[0]["offset"] > 0
    assert sum(entry.bytes for entry in it.segments()) <= 9000
    assert has_only_what_is_named(it)
    assert [row["offset"] for row in held(it.opened())] == sorted({row["offset"] for row in held(it.opened())})


def test_uploading_and_merging_at_once() -> None:
    it = filled()

    def upload() -> None:
        append_parts(it.cluster, 8)
        it.upload()

    rows = held(it.cluster)
    assert not overtaken(it, upload).upkeep().merge().failed
    assert held(it.opened())[: len(rows)] == rows
    assert len(held(it.opened())) == len(rows) + 16
    assert [row["offset"] for row in remote_rows(it)] == list(range(it.manifest().end))
    assert has_only_what_is_named(it)


def test_two_merges_at_once_make_one() -> None:
    it = filled()
    rows = remote_rows(it)
    first = overtaken(it, lambda: it.cluster.upkeep().merge()).upkeep().merge()
    assert not first.failed
    assert remote_rows(it) == rows
    assert has_only_what_is_named(it)


@pytest.mark.parametrize("policy", ["retain", "delete"])
def test_what_was_read_before_tiering_was_switched_off_is_not_published(policy: str) -> None:
    it = filled(evicts=False)
    rows = held(it.cluster)

    def disable() -> None:
        configs = {"remote.write": "false", "remote.read": "false", "remote.log.disable.policy": policy}
        it.cluster.alter_topic(TOPIC, configs)

    before = {entry.key for entry in it.segments()}
    assert not overtaken(it, disable).upkeep().merge().failed
    after = it.opened()
    after.finish_disablings()
    it.cluster = after
    if policy == "retain":
        assert {entry.key for entry in it.segments()} == before
    else:
        assert not it.segments()
    assert held(after) == rows


def test_a_partition_that_another_cluster_owns_is_left_alone() -> None:
    it = filled()

    def take() -> None:
        register = Register(it.storage, it.remote().key, format="reconciler.manifest/1")
        register.update(lambda now: {**(now.value if now else {}), "owner": "another"}, mark="taken")

    done = overtaken(it, take).upkeep().merge()
    assert [type(error) for error in done.errors] == [OwnershipLostError]


def test_what_was_written_longer_than_an_hour_ago_is_not_named() -> None:
    it = filled()
    before = it.segments()
    clock = it.clock

    def sleep(what: str, key: str) -> None:
        if what == "put" and key.endswith(".index"):
            clock.now_ms += STALE_MS

    it.opened(storage=WatchedStore(it.storage, before=sleep)).upkeep().merge()
    assert it.segments() == before
    assert has_only_what_is_named(it)


def test_whoever_reads_an_object_that_was_merged_away_reads_the_manifest_again() -> None:
    it = filled()
    rows = remote_rows(it)  # Not by a reader: what he caches he does not ask for.
    merged: list[int] = []
    lock = Lock()

    def merge_once() -> None:
        with lock:  # A reader asks from many threads.
            if not merged:
                merged.append(it.cluster.upkeep().merge().partitions)

    class Overtaken(WatchedStore):
        def get_range(self, key: str, start: int, length: int) -> bytes:
            merge_once()
            return super().get_range(key, start, length)

        def get(self, key: str) -> Any:
            if key.endswith(".index"):
                merge_once()
            return super().get(key)

    reader = it.opened(storage=Overtaken(it.storage))
    assert held(reader)[: len(rows)] == rows
    assert merged == [1]


@pytest.mark.parametrize("done", [False, True])
def test_a_scrub_that_died_is_done_by_the_next(*, done: bool) -> None:
    it = filled(evicts=False)
    lost, unindexed = it.segments()[1], it.segments()[2]
    it.storage.delete([lost.key, index_key(unindexed.key)])
    rows = held(it.cluster)
    points = 0
    for at in itertools.count():
        left = both_copied(it)
        try:
            scrub(left.opened(storage=dying(left.storage, at, done=done)).upkeep(), is_named=True)
        except DiedError:
            points += 1
        else:
            break
        left.cluster = left.opened()
        assert not scrub(left.cluster.upkeep(), is_named=True).failed
        assert remote_rows(left) == rows[: len(remote_rows(left))]
        left.cluster.upkeep().merge()
        sweep_later(left)
        assert has_only_what_is_named(left)
    assert points >= 5


@pytest.fixture(params=["memory", "directory", pytest.param("s3", marks=pytest.mark.soak)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return fresh_store(request, tmp_path / "remote")


@pytest.mark.fact("F-R-060")
def test_every_kind_of_storage_is_merged_and_scrubbed(storage: ObjectStore) -> None:
    it = filled(storage=storage)
    rows, count = held(it.cluster), len(it.segments())
    done = it.cluster.upkeep().merge()
    assert (done.partitions, done.failed) == (1, 0)
    assert len(it.segments()) < count
    it.storage.delete([index_key(it.segments()[0].key)])
    assert not scrub(it.cluster.upkeep(), is_named=True).failed
    assert held(it.cluster) == rows
    assert has_only_what_is_named(it)
