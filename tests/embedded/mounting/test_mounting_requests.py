"""What mounting and unmounting ask of the stores: nothing that grows with bytes, a few requests for each partition."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.embedded.catalog.tiering_state import TopicLocation
from reconciler.embedded.tiered.manifest import Manifest, manifest_register
from reconciler.embedded.tiered.remote_tier import remote_partition
from reconciler.objectstore.directory import DirectoryStore
from tests.embedded.asked import GIB, MIB, Counted
from tests.embedded.mounting.bucket import CLICKS, Bucket, Mount
from tests.embedded.watched import WatchedStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from reconciler.objectstore.base import ObjectStore, Stored

# -- what it costs


@pytest.mark.fact("F-R-103")
def test_mounting_10_gib_takes_as_many_requests_as_mounting_1_mib() -> None:
    asked = []
    for stored_bytes in (MIB, 10 * GIB):
        it = Counted()
        location = it.detached(1)
        it.grown(location, stored_bytes)
        asked.append(it.asked(lambda it=it, location=location: it.bucket.mounted(location)))  # type: ignore[misc]
        head = it.bucket.east.log(CLICKS).head(0)
        assert head is not None
        assert (head.local_start, head.entries) == (head.end, ())
        held = manifest_register(it.storage, remote_partition(TopicLocation.parse(location), 0)).read()
        assert held is not None
        assert Manifest.from_json(held.value).stored_bytes == stored_bytes
    assert asked[0] == asked[1]
    assert sum(asked[0].values()) < 100
    assert not {"get_range", "put", "copy_in", "delete"} & asked[0].keys()


def test_each_partition_adds_the_same_few_requests_to_a_mount() -> None:
    few, some, many = (
        it.asked(lambda it=it, location=location: it.bucket.mounted(location))  # type: ignore[misc]
        for partitions in (1, 11, 101)
        for it in [Counted()]
        for location in [it.detached(partitions)]
    )
    per_ten = some - few
    assert sum(per_ten.values()) <= 60
    assert sum((many - some).values()) == 9 * sum(per_ten.values())
    assert per_ten["list"] == 0


def test_each_partition_adds_the_same_few_requests_to_an_unmount_and_none_where_it_was_never_written() -> None:
    uploading, alone = [], []
    for partitions in (1, 11, 101):
        it = Counted()
        location = it.bucket.filled(records=1, partitions=partitions)
        uploading.append(sum(it.asked(it.bucket.unmounted).values()))
        it.bucket.mounted(location)
        alone.append(sum(it.asked(lambda it=it: it.bucket.unmounted(cluster="east")).values()))  # type: ignore[misc]
    for most, (few, some, many) in ((300, uploading), (120, alone)):
        assert some - few <= most
        assert many - some <= 1.1 * 9 * (some - few)

    it = Counted()
    it.bucket.filled(records=0, partitions=500)
    assert sum(it.asked(it.bucket.unmounted).values()) < 650  # To read that nothing is there takes one GET each.


def test_an_unmount_uploads_only_what_is_not_there_yet() -> None:
    it = Counted()
    location = it.detached(3)
    it.bucket.mounted(location)
    written = {"put", "copy_in"}
    assert not written & it.asked(lambda: it.bucket.unmounted(cluster="east")).keys()
    it.bucket.mounted(location)
    with it.bucket.east.producer() as producer:
        producer.send(CLICKS, b"one more", partition=1)
    again = it.asked(lambda: it.bucket.unmounted(cluster="east"))
    assert again["put"] + again["copy_in"] == 2  # A segment and its index.


# -- side by side


class Meeting(WatchedStore):
    """A store that answers for some keys only when several ask for such at once."""

    def __init__(self, inner: ObjectStore, parties: int, waits: Callable[[str, str], bool]) -> None:
        super().__init__(inner)
        self.waits, self.met = waits, 0
        self._gate = threading.Barrier(parties, timeout=30)
        self._lock, self._left = threading.Lock(), parties

    def get(self, key: str) -> Stored | None:
        self._meet("get", key)
        return super().get(key)

    def swap(self, key: str, body: bytes, *, expected: Any) -> Any:
        self._meet("swap", key)
        return super().swap(key, body, expected=expected)

    def _meet(self, what: str, key: str) -> None:
        with self._lock:
            if not self._left or not self.waits(what, key):
                return
            self._left -= 1
        self._gate.wait()
        self.met += 1


@pytest.mark.parametrize("what", ["get", "swap"])
def test_partitions_are_mounted_and_unmounted_side_by_side(what: str) -> None:
    it = Bucket()
    location = it.filled(records=1, partitions=8)
    for cluster in ("west", "east"):
        met = Meeting(it.storage, 8, lambda does, key: does == what and key.endswith("manifest.json"))
        opened = it.cluster(cluster, storage=met)
        mounts = opened.mounts
        number = mounts.unmount(CLICKS) if cluster == "west" else mounts.mount(Mount(location, CLICKS))
        assert mounts.drive(number) is None
        assert met.met == 8


def test_heads_are_made_side_by_side() -> None:
    it = Bucket()
    location = it.filled(records=1, partitions=8)
    it.unmounted()
    it.east  # noqa: B018 - it is made
    met = Meeting(it.stores["east"], 8, lambda does, key: does == "swap" and key.startswith("heads/"))
    it.stores["east"] = met
    it.mounted(location)
    assert met.met == 8


@pytest.mark.parametrize("where", ["heads/", "mountable/", "topic.json"])
@pytest.mark.fact("F-R-118")
def test_topics_of_one_migration_are_mounted_and_unmounted_side_by_side(where: str) -> None:
    it = Bucket()
    names = [f"shop:eu:topic-{number}" for number in range(8)]
    locations = [it.filled(name, records=1) for name in names]
    it.east  # noqa: B018 - it is made

    def swaps(does: str, key: str) -> bool:
        return does == "swap" and where in key

    for cluster in ("west", "east"):
        mounts = it.cluster(cluster).mounts
        topics = [Mount(location, name) for name, location in zip(names, locations, strict=True)]
        number = (mounts.unmount if cluster == "west" else mounts.mount)(
            *(names if cluster == "west" else topics),  # type: ignore[arg-type]
            is_automatic=False,
        )
        mounts.ask(number, "prepare")
        mounts.drive(number)
        met = Meeting(it.stores[cluster] if where == "heads/" else it.storage, 8, swaps)
        if where == "heads/":
            it.stores[cluster] = met
        mounts = it.cluster(cluster, storage=it.storage if where == "heads/" else met).mounts
        for verb in ("execute", "finish"):
            mounts.ask(number, verb)
            mounts.drive(number)
        assert met.met == 8
        assert mounts.under_way()[number].state == "finished"


@pytest.mark.soak
@pytest.mark.fact("F-R-118")
def test_1000_partitions_in_one_migration_take_seconds(tmp_path: Path) -> None:
    it = Bucket(storage=DirectoryStore(tmp_path / "bucket"))
    it.stores = {name: DirectoryStore(tmp_path / name) for name in ("west", "east")}
    for name in it.stores:
        opened = it.cluster(name)
        opened.alter_cluster({"cloud_storage_enabled": "true"})
        opened.create_namespace("shop")
        opened.create_namespace("shop:eu")
    location = it.filled(records=1, partitions=1000)
    took = {}
    for what, do in (
        ("unmount", it.unmounted),
        ("mount", lambda: it.mounted(location)),
        ("unmount again", lambda: it.unmounted(cluster="east")),
    ):
        began = time.perf_counter()
        do()
        took[what] = time.perf_counter() - began
    assert max(took.values()) < 120, took
