"""A store and a cluster in it, over every kind of store that tests can have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.embedded.samples import cluster_in
from tests.servers.stores import fresh_store

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore


@pytest.fixture(
    params=[
        "memory",
        pytest.param("directory", marks=pytest.mark.thorough),
        *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("s3", "gs", "az")),
    ]
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return fresh_store(request, tmp_path / "west")


@pytest.fixture
def cluster(store: ObjectStore) -> EmbeddedCluster:
    return cluster_in(store)
