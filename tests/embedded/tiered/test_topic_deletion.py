"""Deleting a topic: its remote objects go with it where it deletes, writes and reads remotely, and stay otherwise."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from reconciler.archives.keys import build_topic_manifest_key
from reconciler.archives.manifest import manifest_register
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.tiered.remote_sweep import RemoteDeletion
from reconciler.errors import UserError
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.maintenance.tiny_segments import TOPIC, append
from tests.embedded.samples import ids
from tests.embedded.tiered.tiered_cluster import Tiered, tiered

OFF = {"remote.write": "false", "remote.read": "false"}


def uploaded(**configs: str) -> Tiered:
    """Return a topic of two partitions with segments, indexes, manifests and pages in object storage."""
    it = tiered(partitions=2, segment_bytes="14", **configs)
    it.switch_on(spillover_manifest_size="1024")
    for number in range(30):
        append(it.cluster, (None, str(number)), partition=number % 2)
    it.upload()
    assert it.manifest().pages
    return it


def left(it: Tiered) -> list[str]:
    return [listed.key for listed in it.storage.list("topics/")]


def location(it: Tiered) -> str:
    return str(it.tiering().location)


@pytest.mark.fact("F-R-007")
@pytest.mark.fact("F-R-008")
def test_all_objects_of_a_topic_go_with_it() -> None:
    it = uploaded()
    assert it.storage.get(build_topic_manifest_key(it.cluster.cluster_id, it.tiering().location.revision)) is not None
    it.cluster.delete_topic(TOPIC)
    assert left(it) == []
    assert it.cluster.catalog.read().deletions == {}


@pytest.mark.fact("F-R-008")
def test_those_of_a_namespace_go_with_it_and_others_stay() -> None:
    it = uploaded()
    before = left(it)
    it.cluster.create_namespace("shop")
    it.cluster.create_topic(
        "shop:orders", configs={"remote.write": "true", "remote.read": "true", "segment.bytes": "14"}
    )
    with it.cluster.producer() as producer:
        for number in range(4):
            producer.send("shop:orders", str(number), partition=0)
            producer.flush()
    it.upload()
    assert len(left(it)) > len(before)
    it.cluster.delete_namespace("shop")
    assert left(it) == before


@pytest.mark.fact("F-R-009")
@pytest.mark.fact("F-R-010")
@pytest.mark.parametrize(
    "configs",
    [
        {"remote.delete": "false"},
        {"remote.write": "false"},
        {"remote.read": "false"},
        OFF,
        {**OFF, "remote.delete": "true"},
    ],
    ids=str,
)
def test_objects_stay_where_the_topic_does_not_delete_write_and_read(configs: Mapping[str, str]) -> None:
    it = uploaded()
    it.cluster.alter_topic(TOPIC, configs)
    it.cluster.finish_disablings()
    before, where = left(it), location(it)
    it.cluster.delete_topic(TOPIC)
    assert left(it) == before
    assert it.cluster.catalog.read().deletions == {}
    assert where.startswith(f"{TOPIC}/{it.cluster.cluster_id}/")


def test_what_switching_off_was_to_delete_goes_with_the_topic_too() -> None:
    it = uploaded()
    it.cluster.alter_topic(TOPIC, {**OFF, "remote.log.disable.policy": "delete"})
    it.cluster.finish_disablings()
    it.cluster.delete_topic(TOPIC)
    assert left(it) == []


def test_a_moved_topic_takes_its_objects_along_from_where_it_was_made() -> None:
    it = uploaded()
    it.cluster.move_topic(TOPIC, "renamed")
    it.cluster.delete_topic("renamed")
    assert left(it) == []


def test_without_its_object_storage_the_mark_stays_until_it_is_there_again() -> None:
    it = uploaded()
    before = left(it)
    without = it.opened()
    without.storage = None
    with pytest.raises(UserError, match="opened without one"):
        without.delete_topic(TOPIC)
    assert TOPIC not in without.topics()
    assert list(it.store.list("heads/")) == []
    another = EmbeddedCluster.open(it.store, now_ms=it.clock, new_id=ids(), storage=MemoryStore())
    with pytest.raises(UserError, match="holds nothing of it"):
        another.finish_deletions()
    assert left(it) == before
    assert it.opened().finish_deletions() == 1
    assert left(it) == []


def test_a_partition_that_belongs_to_another_cluster_by_now_is_left_alone() -> None:
    it = uploaded()
    place = it.remote(1)
    register = manifest_register(it.storage, place)
    held = register.read()
    assert held is not None
    register.swap(held, {**held.value, "owner": "somebody"})
    theirs = [key for key in left(it) if key.startswith(place.key_prefix)]
    it.cluster.delete_topic(TOPIC)
    assert left(it) == theirs


def test_a_damaged_manifest_keeps_its_topic_marked_and_stops_no_other() -> None:
    it = uploaded()
    it.cluster.create_topic("other")
    it.storage.put(it.remote().key, b"{")
    with pytest.raises(UserError, match="cannot be read"):
        it.cluster.delete_topic(TOPIC)
    with pytest.raises(UserError, match="cannot be read"):
        it.cluster.delete_topic("other")
    assert [entry.name for entry in it.cluster.catalog.read().deletions.values()] == [TOPIC]


def test_an_upload_that_slept_names_nothing_of_a_topic_that_is_going() -> None:
    it = tiered()
    it.fill(5)
    it.upload()
    epoch, where, place = it.tiering().epoch, it.tiering().location, it.remote()

    class Halted(MemoryStore):
        """Object storage in which nothing is deleted."""

        def delete(self, keys: object) -> None:
            del keys

    halted = Halted(it.storage.url.removeprefix("memory://"))
    RemoteDeletion(halted, it.cluster.cluster_id).delete_location(where, it.cluster.catalog.read().cluster.storage_id)
    held = manifest_register(halted, place).read()
    assert held is not None
    assert (held.value["entries"], held.value["tiered_epoch"]) == ([], epoch + 1)
    assert len(held.value["garbage"]["entries"]) == 2
