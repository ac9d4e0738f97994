"""What recovery refuses, and what a topic refuses while it recovers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.keys import mountable_key
from reconciler.errors import InvalidNamespaceError, UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.objectstore.register import Register
from tests.embedded.recovering import (
    OTHER_ID,
    TOPIC,
    another,
    begun,
    contents_of,
    location_in,
    records_in,
    source_in,
)
from tests.embedded.samples import cluster_in, values

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster


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
    key = mountable_key(TOPIC, west.cluster_id, 1)
    assert key == f"mountable/shop/orders/{west.cluster_id}/1.json"
    register = Register(storage, key, format="reconciler.mountable/1")
    held = register.swap(None, {"state": "mounted", "owner": "north"})
    with pytest.raises(UserError, match=f"{location_in(west)} is mounted on cluster north"):
        another(storage).recover_topic(TOPIC, location_in(west))
    register.swap(held, {"state": "detached", "owner": None})
    another(storage).recover_topic(TOPIC, location_in(west))


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
