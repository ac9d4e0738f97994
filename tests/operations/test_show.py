from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.errors import UserError
from reconciler.operations.show import explain, show
from reconciler.operations.steps.invocation import Select

if TYPE_CHECKING:
    from conftest import Bench

ORDERS = "topic/west/shop:orders"
EVERYTHING = ["cluster/west", "namespace/west/shop", ORDERS]


def test_before_an_apply_only_the_files_know(bench: Bench) -> None:
    rows = show(bench.invocation, Select(), None)
    assert [row.address for row in rows] == EVERYTHING
    assert all(row.desired and row.recorded is None and row.observed is None for row in rows)


def test_after_an_apply_all_three_agree(applied: Bench) -> None:
    rows = show(applied.invocation, Select(), None)
    assert [row.address for row in rows] == EVERYTHING
    assert all(row.desired and row.recorded and row.observed for row in rows)
    (orders,) = show(applied.invocation, Select(), ORDERS)
    assert orders.source == "manifests/orders.yaml:1"
    assert orders.recorded is not None
    assert orders.observed is not None
    assert orders.recorded.incarnation == orders.observed.incarnation


def test_what_nobody_knows_is_said_with_what_looks_like_it(applied: Bench) -> None:
    for command in (show, explain):
        with pytest.raises(UserError, match="neither declared, nor recorded, nor on a cluster") as error:
            command(applied.invocation, Select(), "topic/west/shop:order")
        assert error.value.hint == f"Did you mean {ORDERS}? List what there is with: reconciler show"


def test_values_are_explained_by_where_they_are_written(bench: Bench) -> None:
    bench.write("values.yaml", "width: 3\n")
    bench.write(
        "reconciler.yaml",
        "apiVersion: reconciler/v1\nkind: Workspace\nmetadata: {name: shop}\nspec: {values: [values.yaml]}\n",
    )
    path = bench.folder / "manifests/orders.yaml"
    path.write_text(path.read_text().replace("partitions: 3", "partitions: '${var.width}'"))
    found = explain(bench.invocation, Select(), ORDERS)
    assert found.origins["spec.partitions"] == "manifests/orders.yaml:4 (var.width of values.yaml)"
    assert [action.id for action in found.actions] == [f"create:{ORDERS}"]
    assert found.effective == {}


def test_what_acts_on_a_topic_is_explained_with_what_it_inherits(applied: Bench) -> None:
    path = applied.folder / "manifests/west.yaml"
    path.write_text(path.read_text() + "spec: {configs: {max.message.bytes: 2MiB}}\n")
    applied.apply()
    found = explain(applied.invocation, Select(), ORDERS)
    assert (found.effective["max.message.bytes"], found.effective["retention.ms"]) == ("2097152", "604800000")
    assert found.actions == ()


def test_errors_about_an_address_are_explained(applied: Bench) -> None:
    path = applied.folder / "manifests/orders.yaml"
    path.write_text(path.read_text().replace("partitions: 3", "partitions: 2"))
    found = explain(applied.invocation, Select(), ORDERS)
    assert len(found.errors) == 1
