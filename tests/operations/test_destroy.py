from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import BlockedError, UsageError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.steps.invocation import Select

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.operations.apply import ApplyOutcome

EVERYTHING = Select(allow=("delete:*",))


def west(bench: Bench) -> EmbeddedCluster:
    store = DirectoryStore(bench.folder / ".clusters/west")
    return EmbeddedCluster.open(store, now_ms=bench.invocation.now_ms, new_id=bench.invocation.new_id)


def done(applied: ApplyOutcome) -> list[str]:
    return list(applied.result.done) if applied.result else []


def test_what_holds_data_is_blocked_until_allowed(applied: Bench) -> None:
    with pytest.raises(BlockedError, match="topic/west/shop:orders"):
        applied.destroy()
    assert list(west(applied).topics()) == ["shop:orders"]


def test_everything_we_created_goes_leaves_first(applied: Bench) -> None:
    assert done(applied.destroy(EVERYTHING)) == [
        "delete:topic/west/shop:orders",
        "delete:namespace/west/shop",
        "forget:cluster/west",
    ]
    assert not west(applied).topics()
    assert not west(applied).namespaces()
    assert applied.destroy(EVERYTHING).result is None


def test_after_destroying_the_files_can_be_applied_again(applied: Bench) -> None:
    applied.destroy(EVERYTHING)
    assert [action.id for action in applied.plan().plan.actions] == [
        "adopt:cluster/west",
        "create:namespace/west/shop",
        "create:topic/west/shop:orders",
    ]
    applied.apply()
    assert applied.plan().plan.is_empty


def test_changed_files_do_not_say_what_is_destroyed(applied: Bench) -> None:
    with pytest.raises(UsageError, match="--changed-since cannot be combined with destroy"):
        applied.destroy(replace(EVERYTHING, changed_since="main"))
    assert list(west(applied).topics()) == ["shop:orders"]


def test_a_target_leaves_alone_what_it_leans_on(applied: Bench) -> None:
    select = Select(targets=("topic/west/shop:orders",), allow=("delete:topic/west/shop:orders",))
    assert done(applied.destroy(select)) == ["delete:topic/west/shop:orders"]
    assert west(applied).namespaces() == ["shop"]


def test_recursive_takes_what_lies_below_a_target(applied: Bench) -> None:
    select = Select(targets=("namespace/west/shop",), allow=("delete:*",))
    assert done(applied.destroy(select, recursive=True)) == [
        "delete:topic/west/shop:orders",
        "delete:namespace/west/shop",
    ]


def test_recursive_takes_all_that_a_cluster_holds(applied: Bench) -> None:
    select = Select(targets=("cluster/west",), allow=("delete:*",))
    assert done(applied.destroy(select, recursive=True)) == [
        "delete:topic/west/shop:orders",
        "delete:namespace/west/shop",
        "forget:cluster/west",
    ]


def test_what_was_adopted_is_forgotten_and_left_alone(bench: Bench) -> None:
    EmbeddedCluster.create(
        DirectoryStore(bench.folder / ".clusters/west"),
        now_ms=bench.invocation.now_ms,
        new_id=bench.invocation.new_id,
    )
    there = west(bench)
    there.create_namespace("shop")
    there.create_topic("shop:orders", partitions=3, configs={"retention.ms": "604800000"})
    bench.apply()
    assert bench.plan().plan.is_empty
    assert done(bench.destroy()) == [
        "forget:topic/west/shop:orders",
        "forget:namespace/west/shop",
        "forget:cluster/west",
    ]
    assert list(west(bench).topics()) == ["shop:orders"]


def test_what_somebody_else_made_anew_is_forgotten_and_left_alone(applied: Bench) -> None:
    there = west(applied)
    there.delete_topic("shop:orders")
    there.create_topic("shop:orders", partitions=3, configs={"retention.ms": "604800000"})
    applied.apply()
    assert "forget:topic/west/shop:orders" in done(applied.destroy(EVERYTHING))
    assert list(west(applied).topics()) == ["shop:orders"]
