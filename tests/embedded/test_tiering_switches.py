"""What becomes of a topic's tiering: its own word, the cluster's default when it was made, the cluster's switch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.catalog.tiering_state import tiering_of
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.resources.cluster_properties import EMBEDDED_PROPERTIES, property_of
from tests.embedded.samples import NOW, ids

if TYPE_CHECKING:
    from collections.abc import Mapping

DAY = 24 * 60 * 60 * 1000
COMBINATIONS = [
    ("true", None, True),
    ("true", "false", False),
    ("true", "true", True),
    ("false", None, False),
    ("false", "false", False),
    ("false", "true", True),
]
"""The cluster's default, what the topic says, and the outcome."""


def cluster_with(properties: Mapping[str, str | None]) -> EmbeddedCluster:
    made = EmbeddedCluster.create(MemoryStore(), now_ms=lambda: NOW, new_id=ids(), storage=MemoryStore())
    made.alter_cluster({"cloud_storage_enabled": "true", **properties})
    return made


def outcome(cluster: EmbeddedCluster, topic: str = "orders") -> tuple[bool, bool]:
    """Return whether a topic uploads, and whether it serves what is uploaded."""
    found = tiering_of(cluster.catalog.read(), topic, cluster.cluster_id)
    return (False, False) if found is None else (found.uploads, found.serves)


def said(key: str, value: str | None) -> dict[str, str]:
    return {} if value is None else {key: value}


@pytest.mark.fact("F-R-002")
@pytest.mark.parametrize(("default", "own", "expected"), COMBINATIONS)
@pytest.mark.parametrize("reads", ["true", "false"])
def test_whether_a_topic_uploads(default: str, own: str | None, reads: str, *, expected: bool) -> None:
    cluster = cluster_with({"cloud_storage_enable_remote_write": default})
    cluster.create_topic("orders", configs={"remote.read": reads, **said("remote.write", own)})
    assert outcome(cluster) == (expected, reads == "true")


@pytest.mark.fact("F-R-003")
@pytest.mark.parametrize(("default", "own", "expected"), COMBINATIONS)
@pytest.mark.parametrize("writes", ["true", "false"])
def test_whether_a_topic_reads(default: str, own: str | None, writes: str, *, expected: bool) -> None:
    cluster = cluster_with({"cloud_storage_enable_remote_read": default})
    cluster.create_topic("orders", configs={"remote.write": writes, **said("remote.read", own)})
    assert outcome(cluster) == (writes == "true", expected)


@pytest.mark.fact("F-R-001")
@pytest.mark.parametrize("own", [{"remote.write": "true", "remote.read": "true"}, {"remote.storage.enable": "true"}])
def test_with_the_switch_of_the_cluster_off_nothing_is_tiered(own: dict[str, str]) -> None:
    cluster = cluster_with({"cloud_storage_enabled": "false", "cloud_storage_enable_remote_write": "true"})
    cluster.create_topic("orders", configs=own)
    cluster.create_topic("refunds")
    assert [outcome(cluster, name) for name in ("orders", "refunds")] == [(False, False)] * 2
    cluster.alter_cluster({"cloud_storage_enabled": "true"})
    assert [outcome(cluster, name) for name in ("orders", "refunds")] == [(True, True), (True, False)]


@pytest.mark.fact("F-R-004")
@pytest.mark.parametrize("key", ["cloud_storage_enable_remote_write", "cloud_storage_enable_remote_read"])
@pytest.mark.parametrize(("before", "after"), [("true", "false"), ("false", "true"), ("true", None), (None, "true")])
def test_a_changed_default_changes_topics_made_later_and_none_that_is_there(
    key: str, before: str | None, after: str | None
) -> None:
    cluster = cluster_with({key: before})
    cluster.create_topic("old")
    was = outcome(cluster, "old")
    cluster.alter_cluster({key: after})
    cluster.create_topic("new")
    assert outcome(cluster, "old") == was
    assert any(was) is (before == "true")
    assert any(outcome(cluster, "new")) is (after == "true")


@pytest.mark.fact("F-R-005")
@pytest.mark.parametrize(("key", "place"), [("remote.write", 0), ("remote.read", 1)])
def test_a_switch_can_be_set_when_a_topic_is_made_and_changed_later(key: str, place: int) -> None:
    cluster = cluster_with({})
    other = "remote.read" if place == 0 else "remote.write"
    cluster.create_topic("orders", configs={key: "true", other: "true"})
    seen = [outcome(cluster)[place]]
    for value in ("false", "true", "false"):
        cluster.alter_topic("orders", {key: value})
        seen.append(outcome(cluster)[place])
    assert seen == [True, False, True, False]


@pytest.mark.fact("F-R-007")
def test_deleting_a_topic_deletes_its_objects_unless_somebody_says_otherwise() -> None:
    cluster = cluster_with({})
    cluster.create_topic("orders")
    assert cluster.effective_configs("orders")["remote.delete"].value == "true"


@pytest.mark.parametrize(
    ("properties", "own", "expected"),
    [
        pytest.param({}, {}, (7 * DAY, DAY), marks=pytest.mark.fact("F-R-028")),
        pytest.param({}, {"retention.ms": str(30 * DAY)}, (30 * DAY, DAY), marks=pytest.mark.fact("F-R-026")),
        pytest.param({}, {"retention.ms": "1000"}, (1000, 1000), marks=pytest.mark.fact("F-R-026")),
        pytest.param(
            {"retention_local_target_ms_default": "5000"}, {}, (7 * DAY, 5000), marks=pytest.mark.fact("F-R-026")
        ),
        pytest.param({"delete_retention_ms": "9000"}, {}, (9000, 9000), marks=pytest.mark.fact("F-R-028")),
        pytest.param({"log_retention_ms": "9000"}, {}, (9000, 9000), marks=pytest.mark.fact("F-R-028")),
        pytest.param(
            {}, {"retention.local.target.ms": str(9 * DAY)}, (9 * DAY, 9 * DAY), marks=pytest.mark.fact("F-R-027")
        ),
    ],
)
def test_limits_of_a_new_topic_follow_its_own_words_and_the_defaults_of_the_cluster(
    properties: dict[str, str | None], own: dict[str, str], expected: tuple[int, int]
) -> None:
    cluster = cluster_with(properties)
    cluster.create_topic("orders", configs={"remote.write": "true", **own})
    found = tiering_of(cluster.catalog.read(), "orders", cluster.cluster_id)
    assert found is not None
    assert (found.targets.total_ms, found.targets.local_ms) == expected


@pytest.mark.fact("F-R-027")
def test_of_bytes_the_smaller_of_both_limits_holds() -> None:
    cluster = cluster_with({})
    limits = {"retention.bytes": "1000", "retention.local.target.bytes": "5000"}
    cluster.create_topic("orders", configs={"remote.write": "true", **limits})
    found = tiering_of(cluster.catalog.read(), "orders", cluster.cluster_id)
    assert found is not None
    assert (found.targets.total_bytes, found.targets.local_bytes) == (1000, 1000)


@pytest.mark.fact("F-R-014")
@pytest.mark.parametrize("reset", [None, "default"])
def test_resetting_a_property_restores_its_default(reset: str | None) -> None:
    cluster = cluster_with({"cloud_storage_max_connections": "7"})
    cluster.alter_cluster({"cloud_storage_max_connections": reset})
    properties = cluster.catalog.read().cluster.properties
    assert "cloud_storage_max_connections" not in properties
    assert property_of(properties, "cloud_storage_max_connections") == "20"


@pytest.mark.fact("F-R-014")
@pytest.mark.parametrize("value", ["", "  "])
@pytest.mark.parametrize("name", sorted(EMBEDDED_PROPERTIES))
def test_no_property_is_reset_by_an_empty_value(name: str, value: str) -> None:
    cluster = cluster_with({})
    with pytest.raises(UserError, match="is empty: that is no way to reset it"):
        cluster.alter_cluster({name: value})


@pytest.mark.fact("F-R-013")
def test_topics_do_not_move_to_another_object_storage() -> None:
    cluster = cluster_with({})
    cluster.create_topic("orders", configs={"remote.write": "true"})
    elsewhere = EmbeddedCluster.open(cluster.store, now_ms=lambda: NOW, new_id=ids(), storage=MemoryStore())
    with pytest.raises(UserError, match="orders is or was tiered into it"):
        elsewhere.alter_cluster({})
    cluster.delete_topic("orders")


def test_two_names_of_one_property_may_not_differ() -> None:
    cluster = cluster_with({"log_retention_ms": "1000"})
    with pytest.raises(UserError, match="one property by two names"):
        cluster.alter_cluster({"delete_retention_ms": "2000"})
    cluster.alter_cluster({"delete_retention_ms": "2000", "log_retention_ms": None})
