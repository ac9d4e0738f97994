"""What recovery refuses, and what a topic refuses while it recovers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.catalog.tiering_state import TopicLocation
from reconciler.embedded.mounts.mounts import Mount
from reconciler.embedded.tiered.recoverable import recoverable
from reconciler.errors import InvalidNamespaceError, UserError
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.recovering import (
    OTHER_ID,
    TOPIC,
    another,
    begun,
    contents_of,
    drop_first,
    location_in,
    records_in,
    source_in,
)
from tests.embedded.samples import cluster_in, values
from tests.embedded.watched import WatchedStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import Listed


def test_a_location_that_is_none_is_refused_before_anything_is_made() -> None:
    storage = MemoryStore()
    west = source_in(storage)
    east = another(storage)
    place = f"{west.cluster_id}/1"
    for location, message in (
        (f"{TOPIC}/{west.cluster_id}/2", "there is no topic at"),
        (f"{TOPIC}/{OTHER_ID}/1", "there is no topic at"),
        (f"shop:clicks/{place}", f"at shop:clicks/{place} in .* lies topic {TOPIC}"),
        ("orders", "'orders' is not the location of a topic"),
    ):
        with pytest.raises(UserError, match=message):
            east.recover_topic("shop:new", location)
    with pytest.raises(InvalidNamespaceError):
        east.recover_topic("none:new", location_in(west))
    assert east.catalog.read().topics == {}
    east.recover_topic("shop:new", f"orders/{place}")
    assert records_in(east, "shop:new") == records_in(west)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"format": "reconciler.topic/7"}', "was written by a newer version of reconciler"),
        (b'{"format": "reconciler.topic/1", "epo', "cannot be read"),
        (b"", "cannot be read"),
    ],
)
def test_a_location_of_a_newer_format_or_damaged_is_refused(body: bytes, message: str) -> None:
    storage = MemoryStore()
    west = source_in(storage)
    storage.put(f"topics/{west.cluster_id}/1/topic.json", body)
    with pytest.raises(UserError, match=message):
        another(storage).recover_topic(TOPIC, location_in(west))


def test_a_topic_that_is_mounted_elsewhere_is_refused_and_a_detached_one_is_not() -> None:
    storage = MemoryStore()
    west = source_in(storage)
    location = location_in(west)
    west.mounts.drive(west.mounts.unmount(TOPIC))
    north = another(storage)
    north.mounts.drive(north.mounts.mount(Mount(location, TOPIC)))
    with pytest.raises(UserError, match=f"{location} is mounted on cluster {north.cluster_id}"):
        another(storage, cluster_id=OTHER_ID.replace("9000", "a000")).recover_topic(TOPIC, location)
    north.mounts.drive(north.mounts.unmount(TOPIC))
    south = another(storage, cluster_id=OTHER_ID.replace("9000", "b000"))
    south.recover_topic(TOPIC, location)
    assert records_in(south)


def test_a_cluster_without_object_storage_recovers_nothing() -> None:
    storage = MemoryStore()
    west = source_in(storage)
    bare = cluster_in(MemoryStore())
    with pytest.raises(UserError, match="its cluster has no object storage"):
        bare.recover_topic(TOPIC, location_in(west))


def test_until_it_is_whole_it_takes_and_gives_no_records() -> None:
    storage = MemoryStore()
    west = source_in(storage)
    east = begun(storage, location_in(west))
    for use in (
        lambda: east.log(TOPIC),
        lambda: east.sink(TOPIC),
        lambda: east.consumer(topics=[TOPIC]).poll(),
        lambda: send(east),
    ):
        with pytest.raises(UserError, match=f"topic {TOPIC} is being recovered from {location_in(west)}"):
            use()
    assert east.consumer(pattern="shop:.*").poll() == []
    assert list(east.finish_recoveries().values()) == [None]
    assert records_in(east) == records_in(west)


def send(cluster: EmbeddedCluster) -> None:
    with cluster.producer() as producer:
        producer.append(TOPIC, values("x"))


@pytest.mark.fact("F-R-006")
def test_on_a_topic_that_is_there_recovery_has_no_effect() -> None:
    storage = MemoryStore()
    west = source_in(storage)
    east = another(storage)
    east.create_topic(TOPIC)
    before = contents_of(storage)
    east.alter_topic(TOPIC, {"remote.recovery": "true"})
    assert set(east.finish_recoveries()) == set()
    assert (records_in(east)[0], contents_of(storage)) == ([], before)
    with pytest.raises(UserError, match="topic shop:orders exists"):
        east.recover_topic(TOPIC, location_in(west))


def segment_in(storage: MemoryStore, west: EmbeddedCluster, partition: int, first: int) -> str:
    prefix = f"topics/{west.cluster_id}/1/{partition:05}/{first}-"
    return next(key for key in contents_of(storage, prefix) if key.endswith(".parquet"))


def test_segments_without_a_manifest_are_not_passed_over() -> None:
    storage = MemoryStore()
    west = source_in(storage, partitions=2)
    east = begun(storage, location_in(west))
    key = f"topics/{west.cluster_id}/1/00001/manifest.json"
    storage.delete([key])
    message = rf"has no {key}, but 3 segments of that partition, offsets 0 to 11: "
    with pytest.raises(UserError, match=message):
        another(storage).recover_topic(TOPIC, location_in(west))
    (refused,) = east.finish_recoveries().values()
    assert refused is not None
    assert "offsets 0 to 11" in refused.message
    assert east.catalog.read().topics[TOPIC].recovering == location_in(west)


def test_lost_and_torn_segments_are_found_before_anything_is_made_and_their_offsets_told() -> None:
    storage = MemoryStore()
    west, east = source_in(storage, partitions=2), another(storage)
    lost, torn = segment_in(storage, west, 1, 4), segment_in(storage, west, 0, 8)
    body = contents_of(storage)[torn]
    storage.delete([lost, torn])
    storage.put(torn, body[:-9])
    with pytest.raises(UserError, match="is not whole, what it names is lost") as refused:
        east.recover_topic(TOPIC, location_in(west))
    assert refused.value.message.endswith(
        f": partition 0, offsets 8 to 11 ({torn} has {len(body) - 9:,} bytes, not {len(body):,}); "
        f"partition 1, offsets 4 to 7 ({lost} is not there)"
    )
    assert east.catalog.read().topics == {}


def test_what_retention_of_the_source_takes_meanwhile_is_not_lost() -> None:
    storage = MemoryStore()
    west = source_in(storage)
    gone: list[str] = []

    class Expiring(WatchedStore):
        def list(self, prefix: str) -> Iterator[Listed]:
            if not gone and prefix.startswith("topics/"):
                gone.append(prefix)
                drop_first(west, 1)
            return super().list(prefix)

    found = recoverable(Expiring(storage), TopicLocation.parse(location_in(west)), OTHER_ID)
    assert gone
    assert found.ends == {0: (4, 12)}
