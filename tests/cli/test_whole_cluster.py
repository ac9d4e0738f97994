"""A cluster is lost with its root, and comes back whole from its object storage, as a person would type it."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from reconciler.archives.keys import build_metadata_key
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.tiered.cluster_metadata import read_cluster_metadata
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.open import open_store
from tests.embedded.mounts.recovered_topics import say
from tests.embedded.samples import ids, values
from tests.embedded.tiered.tiered_cluster import archive
from tests.processes import ran

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from tests.cli.conftest import Call

SCHEMA = Path(__file__).parents[2] / "schemas" / "export.json"
WORKSPACE = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {name: shop}
spec: {manifests: [manifests]}
"""
CLUSTERS = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: east}
spec: {embedded: {root: "file://.clusters/east"}}
---
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec:
  embedded: {root: "file://.clusters/ROOT"}
  objectStorage: "STORAGE"
"""
EAST = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: prices, cluster: east}
spec: {partitions: 1}
"""
WEST = """\
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: "shop:eu", cluster: west}
spec:
  configs: {retention.ms: 30d, remote.write: true, remote.read: true}
  quotas: {topics: 9, partitions: 90}
  acls: [{principal: "User:ann", operations: [read], resources: [topics, groups], names: ["*"]}]
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: ops, cluster: west}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, namespace: "shop:eu", cluster: west}
spec:
  partitions: 2
  configs: {segment.bytes: 4MiB}
  acls: [{principal: "User:bob", operations: [write]}]
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: sessions, cluster: west}
spec: {partitions: 3, configs: {retention.ms: 1h, cleanup.policy: compact}}
---
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {name: from-east, cluster: west}
spec:
  source: east
  consumerOffsetSync: {enabled: true, filters: [{name: "*"}]}
  mirrorTopics: [{source: prices}]
"""
ORDERS, SESSIONS = "shop:eu:orders", "sessions"


@dataclass
class Shop:
    """One workspace, and what is done with it."""

    folder: Path
    call: Call
    url: str
    storage: ObjectStore

    def declare(self, root: str) -> None:
        self.write("clusters.yaml", CLUSTERS.replace("ROOT", root).replace("STORAGE", self.url))

    def write(self, name: str, text: str) -> None:
        (self.folder / "manifests" / name).write_text(text)

    def opened(self, root: str) -> EmbeddedCluster:
        return EmbeddedCluster.open(
            DirectoryStore(self.folder / ".clusters" / root),
            now_ms=lambda: time.time_ns() // 10**6,
            new_id=ids(),
            storage=self.storage,
        )

    def does(self, *arguments: str, code: int = 0) -> str:
        said = self.call(*arguments)
        assert said.code == code, said.err
        return said.out + said.err

    def exported(self, *options: str, code: int = 0) -> dict[str, Any]:
        shutil.rmtree(self.folder / "recovered", ignore_errors=True)
        out = self.call("export", "west", "--from-object-storage", "-o", "recovered", "--format", "json", *options)
        assert out.code == code, out.err
        found: dict[str, Any] = json.loads(out.out)
        jsonschema.validate(found, json.loads(SCHEMA.read_text()))
        return found

    def taken_in(self) -> None:
        """Put what was exported among the manifests, and name a new root."""
        (self.folder / "manifests" / "west.yaml").unlink(missing_ok=True)
        shutil.rmtree(self.folder / "manifests" / "recovered", ignore_errors=True)
        shutil.move(self.folder / "recovered", self.folder / "manifests" / "recovered")

    def lose(self, root: str, instead: str) -> str:
        """Lose the cluster at a root, declare another, and return the id that was lost."""
        lost = self.opened(root).cluster_id
        shutil.rmtree(self.folder / ".clusters" / root)
        self.does("state", "rm", "cluster/west", "--recursive", "--yes")
        self.declare(instead)
        return lost

    def kept(self, cluster_id: str) -> dict[str, str]:
        found = read_cluster_metadata(self.storage, cluster_id)
        assert found is not None
        return {name: part.key for name, part in found.parts.items()}

    def damage(self, key: str, body: bytes = b"\x1f\x8b cut off") -> None:
        self.storage.delete([key])
        self.storage.put(key, body)


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.thorough)])
def shop(typed: Call, tmp_path: Path, request: pytest.FixtureRequest) -> Shop:
    """Two clusters; in west one of everything, of which not all was uploaded when it was kept last."""
    (tmp_path / "manifests").mkdir()
    if request.param == "s3":
        assert request.getfixturevalue("s3_environ")
        server = request.getfixturevalue("s3_server")
        url = server.url("whole")
        shop = Shop(tmp_path, typed, url, open_store(server.settings(url=url)))
    else:
        shop = Shop(tmp_path, typed, "file://bucket", DirectoryStore(tmp_path / "bucket"))
    (tmp_path / "reconciler.yaml").write_text(WORKSPACE)
    shop.declare("west")
    shop.write("east.yaml", EAST)
    shop.write("west.yaml", WEST)
    shop.does("apply", "--yes")
    west = shop.opened("west")
    fill(west, 4)
    for partition in range(2):
        archive(west, ORDERS, partition)
    say(west, ORDERS)
    fill(west, 2)
    west.groups.commit("shop:eu:checkout", {(ORDERS, 0): 3, (ORDERS, 1): 6})
    west.groups.commit("reports", {(ORDERS, 0): 6, (SESSIONS, 0): 0})
    shop.does("run", "--once", "--only", "metadata")
    return shop


def fill(cluster: EmbeddedCluster, count: int) -> None:
    with cluster.producer() as producer:
        for partition in range(2):
            said = [f"v{partition}.{number}" for number in range(count)]
            producer.append(ORDERS, values(*said, partition=[partition] * count))


def rows(cluster: EmbeddedCluster) -> list[tuple[int, int, bytes | None]]:
    return sorted((each.partition, each.offset, each.value) for each in cluster.consume(ORDERS))


def declared(cluster: EmbeddedCluster) -> dict[str, Any]:
    """Return what was declared of a cluster, as its catalog has it."""
    catalog = cluster.catalog.read()
    topics = {
        name: (topic.partitions, dict(topic.configs), topic.acls, topic.active_mirror is not None)
        for name, topic in catalog.topics.items()
    }
    links = {name: (link.source_cluster, link.declared) for name, link in catalog.links.items()}
    return {"namespaces": dict(catalog.namespaces), "topics": topics, "links": links}


@pytest.mark.fact("F-R-132", "F-R-133")
def test_a_lost_cluster_comes_back_whole_and_says_how_old_each_part_is(shop: Shop) -> None:
    west = shop.opened("west")
    before, records = declared(west), [row for row in rows(west) if row[1] < 4]
    ids_before = {f"topic/west/{name}": west.topic(name).id for name in (ORDERS, SESSIONS)}
    lost = shop.lose("west", "new")
    found = shop.exported("--cluster-id", lost)
    assert found["left_out"] == found["unsaid"] == []
    kept = found["metadata"]
    assert kept["cluster_id"] == lost
    assert {part["name"]: part["entries"] for part in kept["parts"]} == {
        "cluster": 1,
        "namespaces": 3,
        "topics": 3,
        "links": 1,
        "groups": 2,
    }
    assert all(0 <= part["age_ms"] < 600_000 and part["message"] is None for part in kept["parts"])
    assert {each["address"]: each["former_id"] for each in found["exported"] if each["address"] in ids_before} == (
        ids_before
    )
    assert [each["address"] for each in found["exported"] if each["comes_back_empty"]] == [f"topic/west/{SESSIONS}"]
    assert {group["group"]: group["offsets"] for group in kept["groups"]} == {"reports": 1, "shop:eu:checkout": 2}
    clamped = [
        (group["group"], each["committed"], each["offset"]) for group in kept["groups"] for each in group["clamped"]
    ]
    assert clamped == [("reports", 6, 4), ("shop:eu:checkout", 6, 4)]
    assert any("Sequence numbers of producers" in each for each in kept["lost"])
    shop.taken_in()
    said = shop.does("apply", "--yes")
    assert "2 committed offsets beyond what was uploaded will be set back to its end" in said
    new = shop.opened("new")
    assert declared(new) == before
    assert rows(new) == records
    assert new.groups.read_committed_offsets("shop:eu:checkout", [ORDERS]) == {(ORDERS, 0): 3, (ORDERS, 1): 4}
    assert new.groups.read_committed_offsets("reports", [ORDERS]) == {(ORDERS, 0): 4}
    assert "nothing to do" in shop.does("plan")
    with new.producer() as producer:
        producer.append(ORDERS, values("new", partition=[0]))
    assert rows(new)[4] == (0, 4, b"new")


def test_it_may_be_restored_twice_and_the_second_time_is_like_the_first(shop: Shop) -> None:
    before = declared(shop.opened("west"))
    lost = shop.lose("west", "new")
    shop.exported("--cluster-id", lost)
    shop.taken_in()
    shop.does("apply", "--yes")
    assert "Nothing to do" in shop.does("apply", "--yes")
    shop.does("run", "--once", "--only", "metadata")
    second = shop.lose("new", "third")
    shop.exported("--cluster-id", lost)
    shop.taken_in()
    shop.does("apply", "--yes")
    third = shop.opened("third")
    assert declared(third) == before
    assert third.groups.read_committed_offsets("shop:eu:checkout", [ORDERS]) == {(ORDERS, 0): 3, (ORDERS, 1): 4}
    assert shop.kept(lost).keys() == shop.kept(second).keys()


def test_a_cluster_that_is_not_empty_keeps_what_it_has(shop: Shop) -> None:
    lost = shop.lose("west", "new")
    shop.write("west.yaml", "".join(f"{part}---\n" for part in WEST.split("---\n")[:2]) + WEST.split("---\n")[3])
    shop.does("apply", "--yes")
    new = shop.opened("new")
    with new.producer() as producer:
        producer.append(SESSIONS, values("mine", key=[b"k"], partition=[0]))
    new.groups.commit("reports", {(SESSIONS, 0): 1})
    shop.exported("--cluster-id", lost)
    shop.taken_in()
    shop.does("apply", "--yes")
    assert [each.value for each in new.consume(SESSIONS)] == [b"mine"]
    assert new.groups.read_committed_offsets("reports", [SESSIONS, ORDERS]) == {(SESSIONS, 0): 1, (ORDERS, 0): 4}
    assert len(rows(new)) == 8


DYING = """
import os, signal, sys
from reconciler.embedded.mounts import recovery

real = getattr(recovery, sys.argv[1])

def die(*given, **more):
    if sys.argv[2] == "after":
        real(*given, **more)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(recovery, sys.argv[1], die)
from reconciler.cli.main import main
main(["apply", "--yes"])
"""


@pytest.mark.thorough
@pytest.mark.parametrize("step", ["create_remote_head", "copy_offsets", "write_topic_manifest", "finish_recovery"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_restore_that_is_killed_goes_on_where_it_was(shop: Shop, step: str, when: str) -> None:
    before = declared(shop.opened("west"))
    lost = shop.lose("west", "new")
    shop.exported("--cluster-id", lost)
    shop.taken_in()
    assert ran(DYING, step, when, cwd=shop.folder).returncode == -9
    run = json.loads((shop.folder / ".reconciler" / "lockfile.json").read_text())["lease"]["run"]
    shop.does("state", "unlock", run, "--yes")
    shop.does("run", "--once", "--only", "recoveries")
    shop.does("apply", "--yes")
    new = shop.opened("new")
    assert declared(new) == before
    assert len(rows(new)) == 8
    assert new.groups.read_committed_offsets("shop:eu:checkout", [ORDERS]) == {(ORDERS, 0): 3, (ORDERS, 1): 4}
    assert "nothing to do" in shop.does("plan")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("part", "gone"),
    [
        ("namespaces", set()),
        ("topics", {"topic/west/sessions", "mirror/west/prices"}),
        ("links", {"link/west/from-east", "mirror/west/prices"}),
        ("groups", set()),
        ("cluster", set()),
    ],
)
def test_a_part_that_is_damaged_is_named_and_the_rest_comes_back(shop: Shop, part: str, gone: set[str]) -> None:
    lost = shop.lose("west", "new")
    whole = {each["address"] for each in shop.exported("--cluster-id", lost)["exported"]}
    key = shop.kept(lost)[part]
    shop.damage(key)
    found = shop.exported("--cluster-id", lost, code=8)
    assert f"metadata: {part}" in [left["place"] for left in found["left_out"]]
    assert all("Traceback" not in left["message"] for left in found["left_out"])
    assert [each["name"] for each in found["metadata"]["parts"] if each["message"]] == [part]
    missing = {"namespace/west/shop", "namespace/west/ops"} if part == "namespaces" else gone
    assert whole - {each["address"] for each in found["exported"]} == missing
    shop.taken_in()
    said = shop.does("apply", "--yes")
    assert len(rows(shop.opened("new"))) == 8
    assert ("the offsets of its consumer groups do not come along" in said) is (part == "groups")


def test_a_damaged_register_costs_what_lies_beside_segments_and_nothing_else(shop: Shop) -> None:
    lost = shop.lose("west", "new")
    shop.damage(build_metadata_key(lost), b'{"format": "reco')
    found = shop.exported("--cluster-id", lost, code=8)
    [left] = found["left_out"]
    assert left["place"] == "metadata"
    assert "it ends in the middle" in left["message"]
    assert [each["address"] for each in found["exported"]] == ["namespace/west/shop:eu", f"topic/west/{ORDERS}"]


def test_a_cluster_of_which_nothing_was_uploaded_comes_back_by_its_definitions(shop: Shop) -> None:
    lost = shop.lose("west", "new")
    shop.storage.delete([listed.key for listed in shop.storage.list("topics/")])
    found = shop.exported()  # It is the only one there: nobody has to name it.
    assert found["metadata"]["cluster_id"] == lost
    assert {each["address"] for each in found["exported"] if each["comes_back_empty"]} == {
        f"topic/west/{SESSIONS}",
        f"topic/west/{ORDERS}",
    }
    shop.taken_in()
    shop.does("apply", "--yes")
    assert rows(shop.opened("new")) == []


def test_a_topic_that_was_deleted_and_whose_records_were_kept_is_told_and_not_made_again(shop: Shop) -> None:
    west = shop.opened("west")
    west.create_topic("shop:eu:gone", partitions=1, configs={"remote.delete": "false"})
    with west.producer() as producer:
        producer.append("shop:eu:gone", values("x", partition=[0]))
    archive(west, "shop:eu:gone")
    say(west, "shop:eu:gone")
    west.delete_topic("shop:eu:gone")
    shop.does("run", "--once", "--only", "metadata")
    lost = shop.lose("west", "new")
    found = shop.exported("--cluster-id", lost)
    assert "topic/west/shop:eu:gone" not in {each["address"] for each in found["exported"]}
    [told] = found["unsaid"]
    assert "topic shop:eu:gone was deleted from the cluster" in told["message"]
    assert "recoverFrom: shop:eu:gone/" in told["hint"]


def test_a_topic_whose_description_is_lost_is_left_out_and_never_made_empty(shop: Shop) -> None:
    revision = shop.opened("west").topic(ORDERS).revision
    lost = shop.lose("west", "new")
    key = f"topics/{lost}/{revision}/topic.json"
    shop.damage(key, b"{")
    found = shop.exported("--cluster-id", lost, code=8)
    assert [left["place"] for left in found["left_out"]] == [key]
    assert f"topic/west/{ORDERS}" not in {each["address"] for each in found["exported"]}
    assert [group["lost"] for group in found["metadata"]["groups"] if group["group"] == "shop:eu:checkout"] == [
        [f"topic/west/{ORDERS}"]
    ]


def test_the_report_says_it_in_words(shop: Shop) -> None:
    lost = shop.lose("west", "new")
    said = shop.does("export", "west", "--from-object-storage", "-o", "recovered", "--cluster-id", lost)
    for sentence in (
        f"Kept of cluster {lost} besides segments:",
        "  topics      3 entries, written 20",
        " s ago",
        "comes back empty: none of its records were in object storage",
        "Consumer groups: 0 of 2 resume at their offsets, 2 are set back.",
        f"! reports: topic/west/{ORDERS}, partition 0: 6 is beyond the end: set to 4",
        f"! reports: its offsets of topic/west/{SESSIONS} are lost with the records",
        "Never kept, and lost:",
        "Transactions that were open",
    ):
        assert sentence in said
