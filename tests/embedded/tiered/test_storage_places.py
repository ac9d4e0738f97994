"""Object storage and the roots of clusters lie apart: what one sweeps away is all there is of the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.archives.storage import check_storage_place, create_storage, read_storage_id
from reconciler.embedded.catalog.commits import CatalogRegister
from reconciler.embedded.check.sweep import sweep_store
from reconciler.embedded.objects import create_cluster, read_cluster_id
from reconciler.errors import UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from reconciler.resources.cluster import urls_overlap
from tests.embedded.maintenance.tiny_segments import DAY, LateStore
from tests.embedded.samples import ids

SEGMENT = "topics/67f5505a/1/00000/0-9-10-0-v1-01234567.parquet"


@pytest.mark.parametrize("below", ["", "topics/", "topics/shop/"])
def test_a_root_that_is_an_object_storage_is_not_swept(below: str) -> None:
    store = MemoryStore()
    create_cluster(store, "west")
    store.put(f"{below}storage.json", b"{}")
    store.put(f"{below}{SEGMENT}", b"records")
    late = LateStore(store, DAY + 60_000)
    with pytest.raises(UserError, match=rf"an object storage too: it holds {below}storage\.json\. Nothing is swept"):
        sweep_store(late, CatalogRegister(late))
    assert store.get(f"{below}{SEGMENT}") is not None


@pytest.mark.parametrize("left", [b"", b'{"format": "recon'])
def test_a_first_write_that_was_cut_off_is_made_again(left: bytes) -> None:
    root, storage = MemoryStore(), MemoryStore()
    root.put("cluster.json", left)
    storage.put("storage.json", left)
    assert (read_cluster_id(root), read_storage_id(storage)) == (None, None)
    assert (create_cluster(root, "west"), read_cluster_id(root)) == ("west", "west")
    assert create_storage(storage, ids()) == read_storage_id(storage)


@pytest.mark.parametrize("left", [b"", b'{"format": "recon'])
def test_what_was_cut_off_beside_records_is_never_taken_for_new(left: bytes) -> None:
    root, storage = MemoryStore(), MemoryStore()
    root.put("cluster.json", left)
    root.put("catalog/head.json", b"{}")
    storage.put("storage.json", left)
    storage.put(SEGMENT, b"records")
    with pytest.raises(UserError, match=r"cluster\.json cannot be read"):
        create_cluster(root, "west")
    with pytest.raises(UserError, match="though remote objects of topics are there"):
        create_storage(storage, ids())


def test_the_root_of_a_cluster_becomes_no_object_storage() -> None:
    store = MemoryStore()
    create_cluster(store, "east")
    with pytest.raises(UserError, match=r"is the root of a cluster: it holds cluster\.json"):
        create_storage(store, ids())
    assert read_storage_id(store) is None


@pytest.mark.parametrize(("storage", "what"), [("", "holds the root"), ("east/topics/a", "lies in the root")])
def test_nor_does_what_lies_in_a_root_or_holds_one(tmp_path: Path, storage: str, what: str) -> None:
    create_cluster(DirectoryStore(tmp_path / "east"), "east")
    with pytest.raises(UserError, match=f"{what} of a cluster"):
        create_storage(DirectoryStore(tmp_path / storage), ids())


def test_files_of_others_that_are_called_so_are_no_clusters(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "a" / "b"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cluster.json").write_text('{"name": "mine"}')
    check_storage_place(DirectoryStore(tmp_path / "a"))


def test_an_object_storage_becomes_no_cluster() -> None:
    store = MemoryStore()
    create_storage(store, ids())
    with pytest.raises(UserError, match=r"is an object storage, not an embedded cluster: it holds storage\.json"):
        create_cluster(store, "west")
    assert store.get("cluster.json") is None


def test_a_file_is_no_place_for_anything(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for folder in ("file", "file/below"):
        with pytest.raises(UserError, match="a file is where a folder should be"):
            read_cluster_id(DirectoryStore(tmp_path / folder))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("file://.west", "file://./.west/"),
        ("file://.west", "file://.west/obj"),
        ("file://.", "file://.west"),
        ("file://..", "file://west"),
        ("file:///a/b", "file:////a//c/../b"),
        ("file:///", "file://west"),
        ("s3://topics", "s3://topics/prod/"),
        ("memory://a", "memory://a"),
    ],
)
def test_what_is_one_place_or_lies_in_another_is_known(one: str, other: str) -> None:
    assert urls_overlap(one, other)
    assert urls_overlap(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("file://.west", "file://.westend"),
        ("file://.", "file://../other"),
        ("file://a", "s3://a"),
        ("file:///x", "file://../x"),
        ("s3://topics/a", "s3://topics/ab"),
        ("memory://a", "memory://a/b"),
    ],
)
def test_what_lies_apart_is_known(one: str, other: str) -> None:
    assert not urls_overlap(one, other)
    assert not urls_overlap(other, one)
