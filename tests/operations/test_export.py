"""`export`: manifests of what a cluster has, or of what its object storage has when the cluster is lost."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from reconciler.archives.location import TopicLocation
from reconciler.archives.ownership import Ownership, OwnershipState, update_ownership
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import PartialError, RetryableError, UsageError, UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.export import ExportOptions, ExportResult, export
from reconciler.operations.steps.invocation import Select
from reconciler.records.log import Digest, OffsetRange
from tests.embedded.mounts.recovered_topics import say
from tests.embedded.samples import NOW, ids, numbered, read
from tests.embedded.tiered.tiered_cluster import archive

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.embedded.admin import Admin

CLUSTER = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec:
  embedded: {root: "file://.clusters/ROOT"}
  objectStorage: "file://bucket"
"""
REST = """\
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: "shop:eu", cluster: west}
spec: {configs: {retention.ms: 30d, remote.write: true, remote.read: true}}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, namespace: "shop:eu", cluster: west}
spec: {partitions: 2, configs: {segment.bytes: 4MiB}}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: clicks, cluster: west}
spec: {partitions: 1, configs: {remote.write: true, remote.read: false}}
"""
ORDERS, CLICKS = "shop:eu:orders", "clicks"


def opened(bench: Bench, root: str = "west") -> EmbeddedCluster:
    return EmbeddedCluster.open(
        DirectoryStore(bench.folder / ".clusters" / root),
        now_ms=lambda: NOW,
        new_id=ids(),
        storage=DirectoryStore(bench.folder / "bucket"),
    )


def exported(bench: Bench, out: str = "recovered", **options: object) -> ExportResult:
    given = {"out": bench.folder / out, "is_archived": True, **options}
    return export(bench.invocation, Select(), "west", ExportOptions(**given))  # type: ignore[arg-type]  # by name


def fill(cluster: EmbeddedCluster, topic: str, partition: int, first: int, parts: int) -> None:
    sink = cluster.sink(topic)
    for number in range(parts):
        sink.publish([sink.stage(partition, [numbered(first + 4 * number, 4, partition=partition)], at=None)])


@pytest.fixture
def west(bench: Bench) -> EmbeddedCluster:
    """A cluster with two tiered topics, of which not all is uploaded."""
    (bench.folder / "manifests" / "orders.yaml").unlink()
    bench.write("manifests/west.yaml", CLUSTER.replace("ROOT", "west"))
    bench.write("manifests/rest.yaml", REST)
    bench.apply()
    west = opened(bench)
    for topic, partition in ((ORDERS, 0), (ORDERS, 1), (CLICKS, 0)):
        fill(west, topic, partition, 0, 3)
        archive(west, topic, partition)
        say(west, topic)
    fill(west, ORDERS, 0, 12, 1)
    return west


def held(cluster: EmbeddedCluster, topic: str, partition: int) -> tuple[list[object], Digest]:
    """Return what object storage has of a partition: records, and their digest."""
    offsets = OffsetRange(0, 12)
    log = cluster.log(topic)
    return list(read(log, partition, 0, 12)), sum(log.read_digests(partition, offsets), Digest())


def lose(bench: Bench) -> None:
    """Lose the cluster's folder, and what the workspace remembers of it."""
    shutil.rmtree(bench.folder / ".clusters")
    shutil.rmtree(bench.folder / ".reconciler")
    (bench.folder / "manifests" / "rest.yaml").unlink()
    bench.write("manifests/west.yaml", CLUSTER.replace("ROOT", "new"))


def test_a_lost_cluster_is_recovered_topic_by_topic_in_a_new_one(bench: Bench, west: EmbeddedCluster) -> None:
    places = [(ORDERS, 0), (ORDERS, 1), (CLICKS, 0)]
    before = {place: held(west, *place) for place in places}
    lose(bench)
    found = exported(bench)
    assert found.verdict is None
    assert found.addresses == ("namespace/west/shop:eu", "topic/west/clicks", "topic/west/shop:eu:orders")
    assert found.archives.recoveries["topic/west/shop:eu:orders"].ends == {0: (0, 12), 1: (0, 12)}
    text = (bench.folder / "recovered" / "topics.yaml").read_text()
    assert "# Next offset: 12 of partition 0, 12 of partition 1. Records from there on were not uploaded." in text
    shutil.move(bench.folder / "recovered", bench.folder / "manifests" / "recovered")
    clicks = bench.folder / "manifests" / "recovered" / "topics.yaml"
    assert "remote.read: false" in text
    clicks.write_text(text.replace("remote.read: false", "remote.read: true"))
    assert bench.apply().verdict is None
    new = opened(bench, "new")
    assert {place: held(new, *place) for place in places} == before
    assert [bounds.end for bounds in new.log(ORDERS).read_bounds().values()] == [12, 12]
    assert new.topic(ORDERS).configs["retention.ms"] == str(30 * 86_400_000)
    assert bench.plan().plan.is_empty


def test_what_is_damaged_is_told_and_left_out_and_the_rest_is_written(bench: Bench, west: EmbeddedCluster) -> None:
    topics = bench.folder / "bucket" / "topics" / west.cluster_id
    orders, clicks = (west.topic(name).revision for name in (ORDERS, CLICKS))
    body = (topics / str(orders) / "topic.json").read_bytes()
    (topics / str(orders) / "topic.json").write_bytes(body[:40])
    found = exported(bench)
    assert isinstance(found.verdict, PartialError)
    assert found.addresses == ("topic/west/clicks",)
    assert [left.place for left in found.left_out] == [f"topics/{west.cluster_id}/{orders}/topic.json"]
    assert "cannot be read" in found.left_out[0].error.message
    (topics / str(orders) / "topic.json").write_bytes(body)
    (topics / str(clicks) / "00000" / "manifest.json").write_bytes(b"{")
    found = exported(bench, "again")
    assert found.addresses == ("namespace/west/shop:eu", "topic/west/shop:eu:orders")
    assert "manifest.json cannot be read" in found.left_out[0].error.message


def east_in(bench: Bench) -> EmbeddedCluster:
    """Return another cluster that shares the bucket, and has a topic of the same name there."""
    numbers = ids()
    east = EmbeddedCluster.create(
        DirectoryStore(bench.folder / ".clusters" / "east"),
        "00000000-0000-4000-9000-000000000000",
        now_ms=lambda: NOW,
        new_id=lambda: "e" + numbers()[1:],
        storage=DirectoryStore(bench.folder / "bucket"),
    )
    bind(east)
    east.create_topic(CLICKS, configs={"remote.write": "true", "remote.read": "true"})
    fill(east, CLICKS, 0, 0, 1)
    archive(east, CLICKS, 0)
    say(east, CLICKS)
    return east


@pytest.mark.fact("F-R-135")
def test_several_clusters_that_share_a_bucket_are_told_apart_by_their_id(bench: Bench, west: EmbeddedCluster) -> None:
    east = east_in(bench)
    found = exported(bench)
    assert found.verdict is None
    assert {each.location.split("/")[1] for each in found.archives.recoveries.values()} == {west.cluster_id}
    chosen = exported(bench, "chosen", cluster_id=east.cluster_id)
    assert chosen.verdict is None
    assert chosen.archives.recoveries["topic/west/clicks"].ends == {0: (0, 4)}
    with pytest.raises(UserError, match="no topic of cluster 00000000-0000-4000-a000-000000000000 is in") as refused:
        exported(bench, "none", cluster_id="00000000-0000-4000-a000-000000000000")
    assert refused.value.message.endswith(f"topics of {', '.join(sorted([east.cluster_id, west.cluster_id]))}")
    assert not (bench.folder / "none").exists()


@pytest.mark.parametrize("has_own", [False, True])
def test_topics_of_others_that_a_lost_cluster_had_mounted_are_named_with_what_frees_them(
    bench: Bench, west: EmbeddedCluster, *, has_own: bool
) -> None:
    east = ("f" if west.cluster_id.startswith("e") else "e") + west.cluster_id[1:]
    location = TopicLocation("shop:eu:orders", west.cluster_id, 5)
    mounted = Ownership(location, OwnershipState.MOUNTED, east, "c", "shop:orders", 2)
    storage = DirectoryStore(bench.folder / "bucket")
    update_ownership(storage, location, lambda _: mounted, mark="m")
    if has_own:
        east = east_in(bench).cluster_id
        update_ownership(storage, location, lambda _: replace(mounted, owner=east), mark="n")
    found = exported(bench, cluster_id=east)
    assert isinstance(found.verdict, PartialError)
    assert len(found.archives.recoveries) == has_own
    (left,) = found.left_out
    assert left.error.message == f"{location} is mounted on cluster {east} as shop:orders"
    assert f"mount release {location} --owner {east} --allow release:{location}" in left.error.hint
    assert f"declare a Mounting with source: {location}" in left.error.hint


def test_what_another_cluster_made_is_never_taken_for_what_is_lost(bench: Bench, west: EmbeddedCluster) -> None:
    east = east_in(bench)
    shutil.rmtree(bench.folder / ".clusters" / "west")
    recorded = exported(bench, "recorded")
    assert {each.location.split("/")[1] for each in recorded.archives.recoveries.values()} == {west.cluster_id}
    lose(bench)
    with pytest.raises(UserError, match="topics of 2 clusters lie in") as refused:
        exported(bench, "unknown")
    assert "Choose one with --cluster-id" in refused.value.hint
    shutil.rmtree(bench.folder / "bucket" / "topics" / west.cluster_id)
    bench.write("manifests/west.yaml", CLUSTER.replace("ROOT", "new") + f"  clusterId: {west.cluster_id}\n")
    with pytest.raises(UserError, match=f"no topic of cluster {west.cluster_id} is in .* topics of {east.cluster_id}"):
        exported(bench, "gone")


def test_a_folder_whose_description_is_lost_is_named(bench: Bench, west: EmbeddedCluster) -> None:
    revision = west.topic(ORDERS).revision
    place = f"topics/{west.cluster_id}/{revision}/topic.json"
    (bench.folder / "bucket" / place).unlink()
    found = exported(bench)
    assert isinstance(found.verdict, PartialError)
    assert found.addresses == ("topic/west/clicks",)
    (left,) = found.left_out
    assert left.place == place
    assert f"has no {place}, but manifests of 2 partitions: which topic that was is not known" in left.error.message


def test_an_empty_object_storage_has_nothing_to_export(bench: Bench, west: EmbeddedCluster) -> None:
    shutil.rmtree(bench.folder / "bucket" / "topics" / west.cluster_id)
    found = exported(bench)
    assert isinstance(found.verdict, UserError)
    assert found.verdict.message == "object storage has nothing to export"


def bind(cluster: Admin) -> None:
    cluster.alter_cluster({"cloud_storage_enabled": "true"})


def test_of_topics_that_had_one_name_the_newest_is_taken(bench: Bench, west: EmbeddedCluster) -> None:
    first = f"clicks/{west.cluster_id}/{west.topic(CLICKS).revision}"
    west.delete_topic(CLICKS)
    west.create_topic(CLICKS, configs={"remote.write": "true", "remote.read": "false"})
    fill(west, CLICKS, 0, 0, 1)
    archive(west, CLICKS, 0)
    say(west, CLICKS)
    found = exported(bench)
    assert found.archives.older == {"topic/west/clicks": [first]}
    assert found.archives.recoveries["topic/west/clicks"].ends == {0: (0, 4)}


def test_no_file_is_ever_overwritten(bench: Bench, west: EmbeddedCluster) -> None:
    assert west.cluster_id
    bench.write("recovered/notes.txt", "mine")
    with pytest.raises(UserError, match="recovered is not empty"):
        exported(bench)
    exported(bench, is_forced=True)
    before = {path.name: path.read_text() for path in (bench.folder / "recovered").iterdir()}
    assert sorted(before) == ["namespaces.yaml", "notes.txt", "topics.yaml"]
    with pytest.raises(UserError, match=r"namespaces\.yaml is there already"):
        exported(bench, is_forced=True)
    assert before == {path.name: path.read_text() for path in (bench.folder / "recovered").iterdir()}


def test_a_cluster_without_object_storage_has_nothing_to_recover_from(bench: Bench) -> None:
    with pytest.raises(UserError, match="cluster/west has no object storage"):
        exported(bench)


def test_a_live_cluster_is_exported_as_what_declares_it(bench: Bench, west: EmbeddedCluster) -> None:
    assert west.cluster_id
    found = exported(bench, "live", is_archived=False)
    assert found.verdict is None
    (bench.folder / "manifests" / "rest.yaml").unlink()
    shutil.move(bench.folder / "live", bench.folder / "manifests" / "live")
    assert [action.id for action in bench.plan().plan.actions if action.verb != "adopt"] == []
    shutil.rmtree(bench.folder / ".reconciler")
    planned = bench.plan().plan
    assert {action.verb for action in planned.actions} == {"adopt"}
    assert bench.apply().verdict is None
    assert bench.plan().plan.is_empty


POLICY = """\
apiVersion: reconciler/v1
kind: TieringPolicy
metadata: {name: standard}
spec: {remoteWrite: true, remoteRead: true, localRetention: {time: 6h, bytes: 10GiB}, onDisable: delete}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: tiered, cluster: west}
spec: {tieringPolicy: standard}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: logs, namespace: tiered, cluster: west}
spec: {partitions: 1}
"""


def test_policies_come_back_as_policies(bench: Bench, west: EmbeddedCluster) -> None:
    assert west.cluster_id
    bench.write("manifests/policy.yaml", POLICY)
    assert bench.apply().verdict is None
    for name in ("policy", "rest"):
        (bench.folder / "manifests" / f"{name}.yaml").unlink()
    found = exported(bench, "manifests/live", is_archived=False)
    assert found.verdict is None
    files = {path.relative_to(bench.folder / "manifests" / "live").as_posix() for path in found.files}
    assert files == {
        "namespaces/shop.yaml",
        "namespaces/shop/eu.yaml",
        "namespaces/tiered.yaml",
        "policies.yaml",
        "topics.yaml",
    }
    assert "policy/tiered-local-6h-10gib" in found.addresses
    assert [action.id for action in bench.plan().plan.actions if action.verb != "adopt"] == []
    shutil.rmtree(bench.folder / ".reconciler")
    assert {action.verb for action in bench.plan().plan.actions} == {"adopt"}


def test_a_live_cluster_that_is_gone_is_not_exported(bench: Bench, west: EmbeddedCluster) -> None:
    assert west.cluster_id
    shutil.rmtree(bench.folder / ".clusters")
    with pytest.raises(RetryableError, match="cluster west does not exist") as refused:
        exported(bench, is_archived=False)
    assert "--from-object-storage" in refused.value.hint


def test_a_cluster_id_chooses_in_object_storage_alone(bench: Bench) -> None:
    with pytest.raises(UsageError):
        exported(bench, is_archived=False, cluster_id="x")


def test_what_lies_in_object_storage_is_the_super_users(bench: Bench, west: EmbeddedCluster) -> None:
    assert west.cluster_id
    with pytest.raises(UserError, match="super user"):
        exported(bench.with_(principal="User:anna"))
