"""Quotas and keys of namespaces through plan and apply."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.catalog.model import QuotaEntry
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.steps.invocation import Select

if TYPE_CHECKING:
    from conftest import Bench

SHOP = """\
apiVersion: reconciler/v1
kind: Namespace
metadata: {{name: shop, cluster: west}}
spec: {spec}
"""


def namespace(bench: Bench, spec: str) -> None:
    west = (bench.folder / "manifests/west.yaml").read_text().partition("---")[0]
    bench.write("manifests/west.yaml", west)
    bench.write("manifests/shop.yaml", SHOP.format(spec=spec))


def quotas(bench: Bench) -> QuotaEntry | None:
    store = DirectoryStore(bench.folder / ".clusters/west")
    cluster = EmbeddedCluster.open(store, now_ms=bench.invocation.now_ms, new_id=bench.invocation.new_id)
    return cluster.catalog.read().namespaces["shop"].quotas


def topic(bench: Bench, name: str) -> None:
    orders = (bench.folder / "manifests/orders.yaml").read_text()
    bench.write(f"manifests/{name}.yaml", orders.replace("name: orders", f"name: {name}"))


def test_quotas_are_set_changed_and_taken_away_and_every_second_plan_is_empty(applied: Bench) -> None:
    for spec, expected in (
        ("{quotas: {topics: 1, bytes: 1GiB}}", QuotaEntry(1, None, 1 << 30)),
        ("{quotas: {topics: 2, partitions: 6}}", QuotaEntry(2, 6, None)),
        ("{}", None),
    ):
        namespace(applied, spec)
        assert [action.id for action in applied.plan().plan.actions] == ["update:namespace/west/shop"]
        assert applied.apply().verdict is None
        assert quotas(applied) == expected
        assert applied.plan().plan.is_empty


def test_what_would_be_too_much_is_refused_at_plan_with_the_place_of_the_quota(applied: Bench) -> None:
    namespace(applied, "{quotas: {topics: 2, partitions: 8}}")
    assert applied.apply().verdict is None
    topic(applied, "refunds")
    errors = applied.plan().plan.errors
    assert [(found.address, found.source) for found in errors] == []
    topic(applied, "returns")
    errors = applied.plan().plan.errors
    assert {(found.address, found.source) for found in errors} == {("namespace/west/shop", "manifests/shop.yaml:1")}
    assert sorted(found.message for found in errors) == [
        "quotas.partitions is 8, and 9 would lie in it after this plan, 3 now",
        "quotas.topics is 2, and 3 would lie in it after this plan, 1 now",
    ]


def test_what_one_plan_deletes_makes_room_for_what_it_makes(applied: Bench) -> None:
    namespace(applied, "{quotas: {topics: 1}}")
    assert applied.apply().verdict is None
    topic(applied, "refunds")
    (applied.folder / "manifests/orders.yaml").unlink()
    select = Select(allow=("delete:topic/west/shop:orders",))
    assert applied.plan(select).plan.errors == ()
    assert applied.apply(select).verdict is None
    assert applied.plan().plan.is_empty


def test_bytes_are_measured_where_something_is_made(applied: Bench) -> None:
    store = DirectoryStore(applied.folder / ".clusters/west")
    cluster = EmbeddedCluster.open(store, now_ms=applied.invocation.now_ms, new_id=applied.invocation.new_id)
    namespace(applied, "{quotas: {bytes: 100}}")
    assert applied.apply().verdict is None
    with cluster.producer() as producer:
        producer.send("shop:orders", "x" * 1_000)
    topic(applied, "refunds")
    (error,) = applied.plan().plan.errors
    assert error.message.startswith("quotas.bytes is 100, and it holds ")
    namespace(applied, "{quotas: {bytes: 1MiB}}")
    assert applied.plan().plan.errors == ()


@pytest.mark.parametrize("kind", ["new", "there"])
def test_a_key_is_refused_at_plan_where_the_store_cannot_encrypt(bench: Bench, kind: str) -> None:
    if kind == "there":
        assert bench.apply().verdict is None
    namespace(bench, "{encryption: {kmsKeyId: alias/shop}}")
    (error,) = bench.plan().plan.errors
    assert "cannot write a namespace under a key of its own (encryption)" in error.message
