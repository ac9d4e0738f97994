"""All jobs on a real S3 server: what is readable stays, what is left over goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reconciler.embedded.catalog.commits import CatalogRegister
from reconciler.embedded.check.sweep import sweep
from tests.embedded.upkeeping import (
    DAY,
    TWO_PARTS,
    LateStore,
    append,
    clocked,
    digest_in,
    head_of,
    held,
    named_in,
    pairs_of,
    parts_in,
    with_topic,
)

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore


def test_a_partition_is_tended_in_a_bucket(s3_store: ObjectStore) -> None:
    cluster, clock = clocked(s3_store)
    with_topic(
        cluster, cleanup_policy="compact,delete", retention_ms="1d", segment_bytes=TWO_PARTS,
        min_cleanable_dirty_ratio="0",
    )  # fmt: skip
    for number in range(70):
        if number == 20:
            clock.now_ms += DAY
        append(cluster, (f"k{number % 9}", str(number)))
    clock.now_ms += 1
    before = pairs_of(held(cluster))

    upkeep = cluster.upkeep()
    assert upkeep.retain().records == 20
    assert pairs_of(held(cluster)) == before[20:]
    digest = digest_in(cluster)
    assert upkeep.roll().partitions == 1
    assert digest_in(cluster) == digest
    assert upkeep.compact().partitions == 1
    open_from = head_of(cluster).compacted_to
    newest = {key: (offset, key, value) for offset, key, value in before[20:open_from]}
    assert pairs_of(held(cluster)) == sorted(newest.values()) + before[open_from:]

    s3_store.put("topics/orders_0/0123456789abcdef.parquet", b"left over")
    assert cluster.sweep().objects == 0
    late: Any = LateStore(s3_store, DAY + 60_000)
    assert sweep(late, CatalogRegister(late)).objects == 1
    assert parts_in(s3_store) == named_in(cluster)
    assert (upkeep.retain().partitions, upkeep.roll().partitions, upkeep.compact().partitions) == (0, 0, 0)
