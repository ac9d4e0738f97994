"""Retention, eviction, deletion and sweep of two tiers over every kind of store, the local and the remote one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from reconciler.embedded.check.check import check_cluster
from tests.embedded.tiered import Tiered
from tests.embedded.upkeeping import DAY, TOPIC, LateStore, append, head_of, held, with_topic
from tests.servers.stores import fresh_store

if TYPE_CHECKING:
    from pathlib import Path

    from reconciler.objectstore.base import ObjectStore


@pytest.fixture
def storage(request: pytest.FixtureRequest, tmp_path: Path, store: ObjectStore) -> ObjectStore:
    """Object storage of the same kind as the store."""
    kind = type(store).__name__
    request.param = {"MemoryStore": "memory", "DirectoryStore": "directory"}.get(kind, "s3")
    return fresh_store(request, tmp_path / "remote")


@pytest.fixture
def it(store: ObjectStore, storage: ObjectStore) -> Tiered:
    found = Tiered(store, storage)
    found.switch_on(spillover_manifest_size="1024")
    found.cluster.alter_cluster({"retention_local_target_capacity_percent": "100"})
    with_topic(
        found.cluster, partitions=2, segment_bytes="14", remote_write="true", remote_read="true",
        retention_ms="2d", retention_local_target_ms="1d",
    )  # fmt: skip
    for number in range(24):
        at_ms = found.clock.now_ms + 1_000 * number
        append(found.cluster, (f"k{number}", str(number)), partition=number % 2, at_ms=at_ms)
    found.upload()
    return found


def values(it: Tiered, partition: int = 0) -> list[bytes]:
    return [row["value"] for row in held(it.opened(), partition)]


def test_a_topic_lives_on_two_tiers_and_goes_from_both(it: Tiered) -> None:
    before = [values(it, partition) for partition in range(2)]
    it.cluster.alter_topic(TOPIC, {"retention.local.strict": "true"})
    it.clock.now_ms += DAY + 10_500
    it.cluster.upkeep().retain()
    assert [head_of(it.cluster, partition).local_start for partition in range(2)] == [6, 5]
    assert [values(it, partition) for partition in range(2)] == before
    it.clock.now_ms += DAY
    it.cluster.upkeep().retain()
    assert [head_of(it.cluster, partition).start for partition in range(2)] == [6, 5]
    assert [values(it, partition) for partition in range(2)] == [before[0][6:], before[1][5:]]
    assert check_cluster(it.store, deep=True, storage=it.storage).findings == []
    it.storage.put(f"{it.remote().place}/0-0-1-0-v1-01234567.parquet", b"x")
    late: tuple[Any, Any] = LateStore(it.store, DAY + 60_000), LateStore(it.storage, DAY + 60_000)
    assert it.opened(*late).sweep().objects == 1
    assert [values(it, partition) for partition in range(2)] == [before[0][6:], before[1][5:]]
    it.cluster.delete_topic(TOPIC)
    assert [listed.key for listed in it.storage.list("")] == ["storage.json"]
    assert [listed.key for listed in it.store.list("topics/")] == []
