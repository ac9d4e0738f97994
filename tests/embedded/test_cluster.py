"""Opening and creating clusters: what is at the root decides, and nothing foreign is touched."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.objects import create_cluster
from reconciler.errors import RetryableError, UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from reconciler.planning.actions import Create
from reconciler.providers.protocol import Edge, FailedAction, Scope
from reconciler.providers.registry import open_provider
from reconciler.resources.address import Address
from reconciler.resources.cluster import Cluster
from tests.embedded.samples import NOW, cluster_in, ids
from tests.embedded.stores import WatchedStore

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore


def opened(store: ObjectStore) -> EmbeddedCluster:
    return EmbeddedCluster.open(store, now_ms=lambda: NOW, new_id=ids())


def test_an_empty_root_holds_no_cluster_and_is_not_made_one_by_looking(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no cluster at file://"):
        opened(DirectoryStore(tmp_path / "west"))
    assert list(tmp_path.iterdir()) == []


def test_creating_opens_what_is_there(store: ObjectStore) -> None:
    first = cluster_in(store)
    first.create_topic("orders")
    again = EmbeddedCluster.create(store, now_ms=lambda: NOW, new_id=lambda: "another")
    assert again.cluster_id == first.cluster_id
    assert list(again.topics()) == ["orders"]
    assert opened(store).cluster_id == first.cluster_id


def test_of_two_that_create_at_once_one_is_first(store: ObjectStore) -> None:
    def intrude(what: str, _key: str) -> None:
        if what == "swap":
            create_cluster(store, "theirs")

    assert create_cluster(WatchedStore(store, before=intrude), "mine") == "theirs"
    assert create_cluster(store, "mine") == "theirs"


def test_another_cluster_than_the_one_asked_for_is_refused(store: ObjectStore) -> None:
    create_cluster(store, "theirs")
    with pytest.raises(UserError, match="is cluster theirs, not mine"):
        EmbeddedCluster.create(store, "mine", now_ms=lambda: NOW, new_id=ids())


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"x")
    for attempt in (opened, cluster_in):
        with pytest.raises(UserError, match=r"is not an embedded cluster: it has no cluster\.json, but holds photos"):
            attempt(DirectoryStore(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_a_cluster_made_while_we_look_is_found(store: ObjectStore) -> None:
    class Late(WatchedStore):
        def list(self, prefix: str) -> object:  # type: ignore[override]  # between our two looks
            create_cluster(self.inner, "late")
            return super().list(prefix)

    assert opened(Late(store)).cluster_id == "late"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"format": "reconciler.cluster/2", "id": "x"}', "newer format"),
        (b'{"format": "something/1", "id": "x"}', "does not describe an embedded cluster"),
        (b'{"name": "x"}', "does not describe an embedded cluster"),
        (b'{"format": "reconciler.cluster/1"}', "it has no id"),
        (b'{"format": "reconciler.cluster/1", "id": ""}', "it has no id"),
        (b"[]", "not a JSON object"),
        (b"", "cannot be read"),
        (b'{"format": ', "cannot be read"),
    ],
)
def test_a_cluster_file_that_cannot_be_ours_is_refused(body: bytes, words: str) -> None:
    store = MemoryStore()
    store.swap("cluster.json", body, expected=None)
    store.put("heads/a/0.json", b"{}")  # One that was cut off with nothing beside it counts as not written.
    for attempt in (opened, cluster_in):
        with pytest.raises(UserError, match=words) as error:
            attempt(store)
        assert error.value.hint


def test_the_cluster_file_says_what_it_is(store: ObjectStore) -> None:
    cluster = cluster_in(store)
    stored = store.get("cluster.json")
    assert stored is not None
    assert orjson.loads(stored.body) == {"format": "reconciler.cluster/1", "id": cluster.cluster_id}


# -- through the provider


def declared(root: Path | str, **spec: object) -> Cluster:
    spec = spec or {"embedded": {"root": str(root)}}
    return Cluster.model_validate({"metadata": {"name": "west"}, "spec": spec})


def edge(folder: Path) -> Edge:
    return Edge(folder=folder, environ={}, new_id=ids(), now_ms=lambda: NOW)


def test_a_relative_root_starts_at_the_workspace(tmp_path: Path) -> None:
    west = declared("file://clusters/west")
    provider = open_provider(west, edge(tmp_path))
    list(provider.apply([Create(address=west.address, after=west)]))
    assert (tmp_path / "clusters" / "west" / "cluster.json").exists()


def test_a_foreign_root_is_refused_by_everything(tmp_path: Path) -> None:
    (tmp_path / "cat.jpg").write_bytes(b"x")
    west = declared(f"file://{tmp_path}")
    provider = open_provider(west, edge(tmp_path))
    for ask in (provider.identify, lambda: provider.observe(Scope()), lambda: provider.measure_topics([])):
        with pytest.raises(UserError, match="is not an embedded cluster"):
            ask()
    (outcome,) = provider.apply([Create(address=west.address, after=west)])
    assert isinstance(outcome, FailedAction)
    assert "is not an embedded cluster" in outcome.error.message


def test_a_cluster_that_is_not_there_can_be_asked_again_later(tmp_path: Path) -> None:
    provider = open_provider(declared("file://west"), edge(tmp_path))
    with pytest.raises(RetryableError, match="there is no cluster at"):
        provider.open_log(Address("topic/west/orders"))


def test_another_cluster_in_the_same_place_is_seen_as_another(tmp_path: Path) -> None:
    west = declared("file://west")
    provider = open_provider(west, edge(tmp_path))
    list(provider.apply([Create(address=west.address, after=west)]))
    cluster_in(DirectoryStore(tmp_path / "west")).create_topic("orders")
    assert len(provider.observe(Scope())) == 2
    shutil.rmtree(tmp_path / "west")
    assert provider.identify() is None
    assert provider.observe(Scope()) == {}
    create_cluster(DirectoryStore(tmp_path / "west"), "another")
    seen = provider.observe(Scope())
    assert {address: found.incarnation for address, found in seen.items()} == {west.address: "another"}


def test_planning_against_a_cluster_loads_neither_arrow_nor_spark(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from reconciler.planning.actions import Create
from reconciler.providers.protocol import Edge, Scope
from reconciler.providers.registry import open_provider
from reconciler.resources.cluster import Cluster
from reconciler.resources.topic import Topic
root = Path({str(tmp_path)!r})
west = Cluster.model_validate({{"metadata": {{"name": "west"}}, "spec": {{"embedded": {{"root": "file://west"}}}}}})
provider = open_provider(west, Edge(root, {{}}, lambda: "an-id", lambda: 1))
list(provider.apply([Create(address=west.address, after=west)]))
topic = Topic.model_validate({{"metadata": {{"name": "t", "cluster": "west"}}, "spec": {{"partitions": 1}}}})
list(provider.apply([Create(address=topic.address, after=topic)]))
assert len(provider.observe(Scope())) == 2
provider.measure_topics([topic.address])
print(sorted({{"pyarrow", "numpy", "pyspark", "boto3", "botocore"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
