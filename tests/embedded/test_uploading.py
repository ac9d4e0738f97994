"""What is closed and stable is copied to object storage, each segment once."""

from __future__ import annotations

from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from pyarrow import BufferReader

from reconciler.embedded.keys import index_key
from reconciler.embedded.remote.topicmanifest import TopicManifest, read_topic_manifest, write_topic_manifest
from reconciler.embedded.upkeep.tended import Tended
from reconciler.errors import OwnershipLostError
from tests.embedded.tiered import tiered
from tests.embedded.upkeeping import DAY, TOPIC, head_of


@pytest.mark.fact("F-R-030")
@pytest.mark.fact("F-K-040")
def test_closed_segments_are_uploaded_and_the_open_one_is_not() -> None:
    tier = tiered()
    tier.fill(5)
    done = tier.upload()
    assert (done.partitions, done.records, done.failed) == (1, 8, 0)
    manifest = tier.manifest()
    assert [(entry.base, entry.last) for entry in manifest.entries] == [(0, 3), (4, 7)]
    assert (manifest.start, manifest.end, head_of(tier.cluster).uploaded_to) == (0, 8, 8)
    for entry in manifest.entries:
        stored, index = tier.storage.get(entry.key), tier.storage.get(index_key(entry.key))
        assert stored is not None
        assert index is not None
        assert len(stored.body) == entry.bytes
        assert stored.body.endswith(index.body)
        assert pq.read_metadata(BufferReader(index.body)).num_rows == 4
    assert tier.upload() == Tended()


@pytest.mark.fact("F-R-032")
def test_topic_and_manifests_are_described_before_any_segment_is_closed() -> None:
    tier = tiered(retention_ms="10d")
    tier.fill(1)
    assert tier.upload() == Tended()
    manifest, location = tier.manifest(), tier.tiering().location
    assert (manifest.start, manifest.end, manifest.entries) == (0, 0, ())
    found = read_topic_manifest(tier.storage, location.cluster_id, location.revision)
    assert found is not None
    assert (found.location, found.owner, found.name, found.partitions) == (location, location.cluster_id, TOPIC, 1)
    assert found.effective["retention.ms"] == str(10 * DAY)


@pytest.mark.fact("F-R-032")
def test_a_topic_that_was_never_written_is_described_and_follows_the_catalog() -> None:
    tier = tiered(partitions=2)
    assert tier.upload() == Tended()
    tier.cluster.alter_topic(TOPIC, {"retention.ms": "5d"}, partitions=3)
    tier.cluster.create_namespace("shop", {"max.message.bytes": "2000"})
    tier.cluster.move_topic(TOPIC, "shop:sold")
    tier.upload()
    (key,) = (listed.key for listed in tier.storage.list("topics/"))
    _, cluster_id, revision, name = key.split("/")
    found = read_topic_manifest(tier.storage, cluster_id, int(revision))
    assert name == "topic.json"
    assert found is not None
    assert (found.name, found.location.topic, found.partitions) == ("shop:sold", TOPIC, 3)
    assert (found.effective["max.message.bytes"], found.configs["retention.ms"]) == ("2000", str(5 * DAY))


def test_an_older_look_at_the_catalog_never_replaces_what_a_newer_one_wrote() -> None:
    tier = tiered()
    old = TopicManifest.of(tier.cluster.catalog.read(), TOPIC, tier.cluster.cluster_id)
    tier.cluster.alter_topic(TOPIC, {"retention.ms": "5d"})
    new = TopicManifest.of(tier.cluster.catalog.read(), TOPIC, tier.cluster.cluster_id)
    assert not write_topic_manifest(tier.storage, new, creates=False)
    assert write_topic_manifest(tier.storage, new)
    assert not write_topic_manifest(tier.storage, old)
    assert read_topic_manifest(tier.storage, old.location.cluster_id, old.location.revision) == new
    with pytest.raises(OwnershipLostError):
        write_topic_manifest(tier.storage, replace(new, owner="another", serial=99))
