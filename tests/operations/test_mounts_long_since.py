"""Mountings that were carried out long ago: a plan of a thousand of them asks their object storage nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.objectstore.directory import DirectoryStore
from tests.operations.stage import MountShop, cluster, ids_of, mounting, topic

if TYPE_CHECKING:
    from conftest import Bench

MANY = 1000


@pytest.fixture
def asked(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is asked of the directory that is the object storage, from here on."""
    bucket, found = (bench.folder / "bucket").as_uri(), list[str]()
    get, listed = DirectoryStore.get, DirectoryStore.list

    def got(store: DirectoryStore, key: str) -> object:
        if store.url == bucket:
            found.append(key)
        return get(store, key)

    def seen(store: DirectoryStore, prefix: str) -> object:
        if store.url == bucket:
            found.append(f"{prefix}*")
        return listed(store, prefix)

    monkeypatch.setattr(DirectoryStore, "get", got)
    monkeypatch.setattr(DirectoryStore, "list", seen)
    return found


@pytest.mark.thorough
def test_a_plan_of_a_thousand_topics_that_are_mounted_asks_object_storage_nothing_about_them(
    bench: Bench, asked: list[str]
) -> None:
    shop = MountShop(bench)
    (bench.folder / "manifests" / "west.yaml").unlink()
    names = [f"t{number:04}" for number in range(MANY)]
    shop.apply(clusters=cluster("west"), topics="---\n".join(topic(name, "west", partitions=1) for name in names))
    shop.apply(mountings="---\n".join(mounting(name, "west", "mounted") for name in names))
    asked.clear()
    assert ids_of(shop.bench.plan()) == []
    assert [key for key in asked if key != "storage.json"] == []
    assert len(asked) <= 1
