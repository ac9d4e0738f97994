"""`topic consume` of a topic whose older records lie in object storage, some of them lost there."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import DamagedObjectError, MissingObjectError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.clusters.consume import ConsumeOptions, consume
from reconciler.operations.steps.invocation import Select
from tests.embedded.archiving import TIERED, archive, evict

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Bench

WEST = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec:
  embedded: {root: "file://.clusters/west"}
  objectStorage: {url: "file://.bucket"}
  properties: {cloud_storage_enabled: true}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: shop, cluster: west}
"""


@pytest.fixture
def tiered(bench: Bench) -> Bench:
    """A workspace whose topic has three records, the first two of them in object storage alone."""
    bench.write("manifests/west.yaml", WEST)
    bench.apply()
    folder = bench.folder
    cluster = EmbeddedCluster.open(
        DirectoryStore(folder / ".clusters/west"),
        now_ms=bench.invocation.now_ms,
        new_id=bench.invocation.new_id,
        storage=DirectoryStore(folder / ".bucket"),
    )
    cluster.alter_topic("shop:orders", TIERED)
    for value in ("first", "second", "third"):
        with cluster.producer() as producer:
            producer.send("shop:orders", value, partition=0)
    archive(cluster, "shop:orders")
    evict(cluster, "shop:orders", to=2)
    return bench


def read(bench: Bench, *, skip_missing: bool = False) -> list[str]:
    out = io.BytesIO()
    options = ConsumeOptions(output_format="values", group="g", skip_missing=skip_missing)
    consume(bench.invocation, Select(), "topic/west/shop:orders", options, stdout=out, stop=bench.stop)
    return out.getvalue().decode().split()


def segment(bench: Bench, base: int) -> Path:
    (found,) = (bench.folder / ".bucket/topics").rglob(f"{base}-*.parquet")
    return found


@pytest.mark.fact("F-R-039")
def test_records_of_both_tiers_are_consumed_and_cached_where_the_user_keeps_caches(tiered: Bench) -> None:
    caches = tiered.folder / "caches"
    bench = tiered.with_(environ={"XDG_CACHE_HOME": str(caches)})
    assert read(bench) == ["first", "second", "third"]
    assert len([path for path in caches.rglob("*_chunks/0") if path.is_file()]) == 2


def test_what_is_gone_is_an_error_that_says_how_to_go_on(tiered: Bench) -> None:
    segment(tiered, 0).unlink()
    with pytest.raises(
        MissingObjectError, match="shop:orders, partition 0: what lies at offsets 0 to 0 cannot be"
    ) as raised:
        read(tiered)
    assert "topic consume --skip-missing, or --from 1." in raised.value.hint


def test_what_is_gone_is_left_out_when_asked_and_said_and_never_waited_for_again(tiered: Bench) -> None:
    lost = segment(tiered, 0)
    lost.unlink()
    assert read(tiered, skip_missing=True) == ["second", "third"]
    (warning,) = tiered.warned
    assert warning.startswith("shop:orders, partition 0: offsets 0 to 0 are gone: file://")
    assert warning.endswith(f"has no object {lost.relative_to(tiered.folder / '.bucket')}")
    assert read(tiered) == []


def test_what_is_damaged_is_left_out_when_asked_and_said_why(tiered: Bench) -> None:
    cut = segment(tiered, 0)
    cut.chmod(0o600)
    cut.write_bytes(cut.read_bytes()[:40])
    with pytest.raises(DamagedObjectError) as raised:
        read(tiered)
    assert "topic consume --skip-missing, or --from 1." in raised.value.hint
    assert read(tiered, skip_missing=True) == ["second", "third"]
    (warning,) = tiered.warned
    assert warning.startswith("shop:orders, partition 0: offsets 0 to 0 cannot be read: file://")
    assert "is damaged: it ends at byte 40" in warning
