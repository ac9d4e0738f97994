"""Topics made anew from object storage: everything they had, whatever became of the cluster that wrote it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.catalog.tiering_state import tiering_of
from reconciler.embedded.tiered.manifest import ManifestSwap, RemotePartition
from reconciler.errors import UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.log import Digest, OffsetRange
from tests.embedded.archiving import archive, tiered_cluster
from tests.embedded.keyed import KeyedStore
from tests.embedded.recovering import (
    OTHER_ID,
    TOPIC,
    another,
    contents_of,
    fill,
    location_in,
    manifest_of,
    named_objects,
    records_in,
    remote_objects,
    say,
    source_in,
)
from tests.embedded.samples import NOW
from tests.servers.stores import KINDS, fresh_store

if TYPE_CHECKING:
    from pathlib import Path

    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore

ALL = OffsetRange(0, 1 << 40)


@pytest.fixture(params=KINDS)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return fresh_store(request, tmp_path / "storage")


def digests_in(cluster: EmbeddedCluster) -> list[Digest]:
    log = cluster.log(TOPIC)
    return [sum(log.digests(partition, ALL), Digest()) for partition in sorted(log.bounds())]


@pytest.mark.fact("F-R-006")
def test_a_topic_is_recovered_with_all_it_had_and_its_source_is_untouched(storage: ObjectStore) -> None:
    west = source_in(storage, partitions=3)
    before = contents_of(storage)
    east = another(storage)
    east.recover_topic(TOPIC, location_in(west))
    assert records_in(east) == records_in(west)
    assert digests_in(east) == digests_in(west)
    assert {key: body for key, body in contents_of(storage).items() if key in before} == before
    assert remote_objects(storage) == named_objects(east, 3)
    assert {number: bounds.end for number, bounds in east.log(TOPIC).bounds().items()} == {0: 12, 1: 12, 2: 12}


def test_the_cluster_that_wrote_it_may_be_gone() -> None:
    storage, store = MemoryStore(), MemoryStore()
    west = source_in(storage, store=store)
    location, records = location_in(west), records_in(west)
    store.delete(list(contents_of(store)))
    east = another(storage)
    east.recover_topic(TOPIC, location)
    assert records_in(east) == records


def test_what_came_after_the_last_upload_is_lost_and_writing_goes_on_where_that_ended() -> None:
    storage = MemoryStore()
    west = source_in(storage)
    fill(west, 1, first=12)
    east = another(storage)
    east.recover_topic(TOPIC, location_in(west))
    assert [row["offset"] for row in records_in(east)[0]] == list(range(12))
    fill(east, 2, first=12)
    assert records_in(east)[0][:12] == records_in(west)[0][:12]
    bounds = east.log(TOPIC).bounds()[0]
    assert (bounds.start, bounds.local_start, bounds.end, bounds.epochs) == (0, 12, 20, ((0, 0), (1, 12)))
    archive(east, TOPIC)
    assert [entry.epoch for entry in manifest_of(east).entries] == [0, 0, 0, 1, 1]


def test_a_partition_of_which_nothing_was_uploaded_is_as_one_never_written() -> None:
    storage = MemoryStore()
    west = tiered_cluster(storage=storage)
    west.create_namespace("shop")
    west.create_topic(TOPIC, partitions=2, configs={"remote.write": "true", "remote.read": "true"})
    fill(west, 1, partition=1)
    archive(west, TOPIC, 1)
    say(west)
    east = another(storage)
    east.recover_topic(TOPIC, location_in(west))
    assert [len(rows) for rows in records_in(east).values()] == [0, 4]
    fill(east, 1)
    assert [len(rows) for rows in records_in(east).values()] == [4, 4]


def test_configs_come_along_and_those_that_are_given_win() -> None:
    storage = MemoryStore()
    west = source_in(storage, retention_ms="1000000", segment_bytes="5000")
    west.alter_namespace("shop", {"max.message.bytes": "70000"})
    say(west)
    east = another(storage)
    east.recover_topic(TOPIC, location_in(west), configs={"segment.bytes": "6000"})
    assert east.topic(TOPIC).configs == {
        "max.message.bytes": "70000",
        "remote.read": "true",
        "remote.write": "true",
        "retention.ms": "1000000",
        "segment.bytes": "6000",
    }


def test_what_the_new_namespace_says_alike_stays_its_word() -> None:
    storage = MemoryStore()
    west = source_in(storage)
    west.alter_namespace("shop", {"retention.ms": "70000"})
    say(west)
    east = another(storage)
    east.alter_namespace("shop", {"retention.ms": "70000"})
    east.recover_topic(TOPIC, location_in(west))
    assert "retention.ms" not in east.topic(TOPIC).configs


@pytest.mark.fact("F-R-037")
def test_an_archive_gives_no_records_from_there_and_recovery_restores_them() -> None:
    storage = MemoryStore()
    west = source_in(storage, **{"remote.read": "false"})
    assert west.log(TOPIC).bounds()[0].start == 0  # what is local is readable
    east = another(storage)
    east.recover_topic(TOPIC, location_in(west))
    assert east.log(TOPIC).bounds()[0].start == 12  # write-only itself: nothing is fetched
    assert records_in(east)[0] == []
    north = another(storage, cluster_id="00000000-0000-4000-a000-000000000000")
    north.recover_topic(TOPIC, location_in(west), configs={"remote.read": "true"})
    assert records_in(north) == records_in(west)


def test_a_topic_that_is_not_to_be_tiered_keeps_what_is_recovered_readable() -> None:
    storage = MemoryStore()
    west = source_in(storage)
    east = another(storage)
    east.recover_topic(TOPIC, location_in(west), configs={"remote.write": "false", "remote.read": "false"})
    tiering = east.topic(TOPIC).tiering
    assert tiering is not None
    assert (tiering.state, tiering.policy) == ("DISABLED", "retain")
    assert records_in(east) == records_in(west)


@pytest.mark.fact("F-R-006")
def test_by_its_name_a_topic_is_found_where_only_one_lies() -> None:
    storage = MemoryStore()
    west = source_in(storage)
    east = another(storage)
    east.recover_topic(TOPIC)
    assert records_in(east) == records_in(west)
    with pytest.raises(UserError, match=r"2 topics called shop:orders lie in .*/1, shop:orders/.*/1") as refused:
        another(storage, cluster_id="00000000-0000-4000-a000-000000000000").recover_topic(TOPIC)
    assert refused.value.hint == "Name one of them as recoverFrom."
    with pytest.raises(UserError, match="there is no topic shop:other"):
        east.recover_topic("shop:other")


@pytest.mark.fact("F-R-067")
def test_spilled_manifests_are_recovered_whole() -> None:
    storage = MemoryStore()
    west = tiered_cluster(storage=storage, properties={"cloud_storage_spillover_manifest_size": "1024"})
    west.create_namespace("shop")
    west.create_topic(TOPIC, configs={"remote.write": "true", "remote.read": "true"})
    fill(west, 40)
    archive(west, TOPIC)
    say(west)
    assert manifest_of(west, made_by=west.cluster_id).pages
    east = another(storage)
    east.alter_cluster({"cloud_storage_spillover_manifest_size": "2048"})
    east.recover_topic(TOPIC, location_in(west))
    assert manifest_of(east).pages
    assert records_in(east) == records_in(west)
    assert remote_objects(storage) == named_objects(east)


@pytest.mark.parametrize(
    ("configs", "local_start"),
    [
        ({}, 20),
        ({"initial.retention.local.target.bytes": "1"}, 20),
        ({"initial.retention.local.target.bytes": "1000000"}, 0),
        ({"initial.retention.local.target.bytes": "-1"}, 20),
        ({"initial.retention.local.target.ms": "90"}, 12),
        ({"initial.retention.local.target.ms": "90", "initial.retention.local.target.bytes": "1"}, 20),
    ],
)
def test_the_newest_segments_are_brought_down_as_initial_local_retention_says(
    configs: dict[str, str], local_start: int
) -> None:
    storage, store = MemoryStore(), MemoryStore()
    west = source_in(storage, parts=5)
    east = another(storage, store, at_ms=NOW + 105)
    east.recover_topic(TOPIC, location_in(west), configs=configs)
    assert east.log(TOPIC).bounds()[0].local_start == local_start
    assert len(contents_of(store, "topics/")) == (20 - local_start) // 4
    assert records_in(east) == records_in(west)


def test_a_compacted_topic_stays_as_far_compacted_as_it_was() -> None:
    storage = MemoryStore()
    west = source_in(storage)
    tiering = tiering_of(west.catalog.read(), TOPIC, west.cluster_id)
    assert tiering is not None
    place = RemotePartition(west.cluster_id, 1, 0)
    ManifestSwap(storage, west.cluster_id, tiering)(place, lambda held: replace(held, compacted_to=8))
    east = another(storage)
    east.recover_topic(TOPIC, location_in(west))
    assert (manifest_of(east).compacted_to, east.log(TOPIC).bounds()[0].compacted_to) == (8, 8)


def test_objects_lie_under_the_key_of_the_new_namespace() -> None:
    storage, store = KeyedStore(), KeyedStore()
    west = source_in(storage)
    east = another(storage, store)
    east.encrypt_namespace("shop", "key-east")
    east.recover_topic(TOPIC, location_in(west), configs={"initial.retention.local.target.bytes": "1000000"})
    keys = {key: kms for key, kms in storage.parts().items() if key.startswith(f"topics/{OTHER_ID}")}
    assert set(keys.values()) == set(store.parts().values()) == {"key-east"}
    assert records_in(east) == records_in(west)
