"""A store and a cluster in it, over every kind of store that tests can have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.samples import cluster_in

if TYPE_CHECKING:
    from pathlib import Path

    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore


@pytest.fixture(params=["memory", "directory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return MemoryStore() if request.param == "memory" else DirectoryStore(tmp_path / "west")


@pytest.fixture
def cluster(store: ObjectStore) -> EmbeddedCluster:
    return cluster_in(store)
