"""Turning tiering off (KIP-950): what the states allow, what retain and delete do, and who comes too late."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.catalog.model import NamespaceEntry
from reconciler.embedded.catalog.tiering_state import disabled
from reconciler.embedded.catalog.topics import alter_namespace, alter_topic, create_namespace, delete_topic, move_topic
from reconciler.embedded.segments.head import Partition, swap_head
from reconciler.embedded.tiered.manifest import ManifestSwap, read_manifest
from reconciler.errors import UserError
from reconciler.lifecycles.tiered import TieringState
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.evicted import put_remote, upload_by_hand
from tests.embedded.tiered import Tiered, tiered
from tests.embedded.upkeeping import TOPIC, append_parts, head_of

if TYPE_CHECKING:
    from reconciler.embedded.catalog.tables import Draft

OFF = {"remote.write": "false", "remote.read": "false"}
ON = {"remote.write": "true", "remote.read": "true"}
OFF_AND_DELETE = {**OFF, "remote.log.disable.policy": "delete"}


def filled(*, partitions: int = 1) -> Tiered:
    """Return a topic of twelve records a partition: eight uploaded, of which four lie in object storage alone."""
    it = tiered(partitions=partitions)
    for partition in range(partitions):
        it.fill(6, partition=partition)
        upload_by_hand(it, 8, evicts=4, partition=partition)
    return it


def begun(it: Tiered, changes: dict[str, str]) -> None:
    """Commit what switches tiering off, and nothing after it: whoever did it has died."""
    it.cluster.catalog.commit(lambda draft: alter_topic(draft, TOPIC, changes))
    assert it.tiering().state is TieringState.DISABLING


@pytest.mark.fact("F-K-050")
@pytest.mark.fact("F-K-056")
def test_each_transition_raises_the_tiered_epoch_and_off_and_on_go_round() -> None:
    it = filled()
    seen = [(it.tiering().state, it.tiering().epoch)]
    for changes in (OFF, ON, OFF_AND_DELETE, ON):
        it.cluster.alter_topic(TOPIC, changes)
        seen.append((it.tiering().state, it.tiering().epoch))
    assert seen == [
        (TieringState.ENABLED, 1),
        (TieringState.DISABLED, 2),
        (TieringState.ENABLED, 3),
        (TieringState.DISABLED, 4),
        (TieringState.ENABLED, 5),
    ]


@pytest.mark.fact("F-K-051")
def test_disabling_one_topic_leaves_others_alone() -> None:
    it = filled()
    it.cluster.create_topic("other", configs=ON)
    it.cluster.alter_topic(TOPIC, OFF_AND_DELETE)
    other = it.cluster.catalog.read().topics["other"].tiering
    assert other is not None
    assert (other.state, other.epoch) == ("ENABLED", 1)


@pytest.mark.fact("F-K-052")
@pytest.mark.fact("F-K-057")
@pytest.mark.fact("F-K-059")
def test_without_a_policy_remote_data_is_retained_and_served_and_nothing_more_is_uploaded() -> None:
    it = filled()
    head, named = head_of(it.cluster), it.segments()
    it.cluster.alter_topic(TOPIC, OFF)
    tiering = it.tiering()
    assert (tiering.state, tiering.policy) == (TieringState.DISABLED, "retain")
    assert (tiering.uploads, tiering.serves) == (False, True)
    assert head_of(it.cluster) == head
    assert it.segments() == named
    assert it.manifest().tiered_epoch == tiering.epoch


@pytest.mark.fact("F-K-053")
def test_a_policy_that_is_none_is_refused() -> None:
    it = filled()
    with pytest.raises(UserError, match="policy") as error:
        it.cluster.alter_topic(TOPIC, {**OFF, "remote.log.disable.policy": "keep"})
    assert error.value.hint
    assert it.tiering().state is TieringState.ENABLED


@pytest.mark.fact("F-K-060")
@pytest.mark.fact("F-K-061")
@pytest.mark.fact("F-K-062")
def test_delete_begins_the_log_at_its_local_start_and_marks_what_is_remote() -> None:
    it = filled()
    named, objects, local = it.segments(), it.objects(), head_of(it.cluster).entries
    it.cluster.alter_topic(TOPIC, OFF_AND_DELETE)
    head, manifest = head_of(it.cluster), it.manifest()
    assert it.tiering().serves is False
    assert (head.start, head.local_start, head.end) == (4, 4, 12)
    assert head.entries == local
    assert (manifest.start, manifest.end, it.segments()) == (4, 4, [])
    assert list(manifest.garbage.entries) == named
    assert it.objects() == objects  # they are marked; `run` deletes them
    tended = it.cluster.upkeep().retain()
    records, stored = sum(entry.digest.records for entry in named), sum(entry.bytes for entry in named)
    assert (tended.partitions, tended.records, tended.bytes) == (1, records, stored)
    assert it.objects() != objects


@pytest.mark.fact("F-R-011")
def test_after_delete_nothing_local_counts_as_uploaded_and_uploads_begin_at_the_local_start() -> None:
    it = filled()
    it.cluster.alter_topic(TOPIC, OFF_AND_DELETE)
    it.cluster.alter_topic(TOPIC, ON)
    head, manifest = head_of(it.cluster), it.manifest()
    assert head.uploaded_to == head.local_start == manifest.end == 4
    assert it.tiering().uploads


@pytest.mark.fact("F-K-054")
@pytest.mark.parametrize("policy", [OFF, OFF_AND_DELETE])
@pytest.mark.parametrize("changes", [OFF, OFF_AND_DELETE, {"remote.read": None}, {"remote.storage.enable": "true"}])
def test_while_disabling_every_change_of_tiering_is_refused(
    policy: dict[str, str], changes: dict[str, str | None]
) -> None:
    it = filled()
    begun(it, policy)
    before = it.cluster.catalog.read().topics[TOPIC]
    with pytest.raises(UserError, match="TIERED_STORAGE_DISABLEMENT_IN_PROGRESS"):
        it.cluster.alter_topic(TOPIC, changes)
    assert it.cluster.catalog.read().topics[TOPIC] == before


@pytest.mark.fact("F-K-055")
def test_enabling_waits_until_disabled() -> None:
    it = filled()
    begun(it, OFF)
    with pytest.raises(UserError, match="TIERED_STORAGE_DISABLEMENT_IN_PROGRESS"):
        it.cluster.alter_topic(TOPIC, ON)
    assert it.cluster.finish_disablings() == 1
    it.cluster.alter_topic(TOPIC, ON)
    assert it.tiering().state is TieringState.ENABLED


def test_what_has_nothing_to_do_with_tiering_can_change_while_disabling() -> None:
    it = filled()
    begun(it, OFF)
    it.cluster.alter_topic(TOPIC, {"retention.ms": "1000"}, partitions=2)
    assert it.cluster.topic(TOPIC).configs["retention.ms"] == "1000"
    assert it.tiering().state is TieringState.DISABLING


def test_a_refused_change_leaves_nothing_of_itself_in_a_commit_with_others() -> None:
    it = filled()
    begun(it, OFF)
    entry = it.cluster.topic(TOPIC)

    def decide(draft: Draft) -> None:
        create_namespace(draft, "shop", NamespaceEntry({"remote.write": "true"}))
        for value in ("true", None):
            with pytest.raises(UserError, match="IN_PROGRESS"):
                alter_topic(draft, TOPIC, {"remote.write": value})

    it.cluster.catalog.commit(decide)
    catalog = it.cluster.catalog.read()
    assert "shop" in catalog.namespaces
    assert catalog.topics == {TOPIC: entry}


def test_a_namespace_that_switches_off_switches_off_every_topic_that_inherits() -> None:
    it = tiered()
    it.cluster.create_namespace("shop", ON)
    it.cluster.create_topic("shop:a")
    it.cluster.create_topic("shop:b", configs={"remote.write": "true"})
    it.cluster.alter_namespace("shop", OFF_AND_DELETE)
    states = {name: (entry.tiering.state if entry.tiering else None) for name, entry in it.cluster.topics().items()}
    assert states == {TOPIC: "ENABLED", "shop:a": "DISABLED", "shop:b": "ENABLED"}


def test_a_namespace_above_a_topic_that_is_disabling_keeps_its_switches() -> None:
    it = tiered()
    it.cluster.create_namespace("shop", ON)
    it.cluster.create_topic("shop:a")
    it.cluster.catalog.commit(lambda draft: alter_namespace(draft, "shop", OFF))
    before = it.cluster.catalog.read().namespaces["shop"]
    with pytest.raises(UserError, match=r"topic shop:a: .* being switched off"):
        it.cluster.alter_namespace("shop", {"remote.read": "true"})
    assert it.cluster.catalog.read().namespaces["shop"] == before
    it.cluster.alter_namespace("shop", {"retention.ms": "1000"})


def test_a_topic_that_is_disabling_moves_where_it_stays_off_and_nowhere_else() -> None:
    it = filled()
    it.cluster.create_namespace("on", ON)
    it.cluster.create_namespace("off")
    begun(it, {"remote.read": "false", "remote.write": "false"})
    it.cluster.catalog.commit(
        lambda draft: draft.put_topic(TOPIC, replace(draft.topics[TOPIC], configs={}))
    )  # as if its namespace had switched it off
    before = it.cluster.catalog.read().topics
    with pytest.raises(UserError, match="IN_PROGRESS"):
        it.cluster.move_topic(TOPIC, "on:orders")
    assert it.cluster.catalog.read().topics == before
    it.cluster.catalog.commit(lambda draft: move_topic(draft, TOPIC, "off:orders", cluster_id=it.cluster.cluster_id))
    assert it.cluster.finish_disablings() == 1
    entry = it.cluster.topic("off:orders").tiering
    assert entry is not None
    assert entry.state == "DISABLED"


def test_a_topic_deleted_while_disabling_is_no_longer_waited_for() -> None:
    it = filled()
    begun(it, OFF_AND_DELETE)
    it.cluster.catalog.commit(lambda draft: delete_topic(draft, TOPIC, cluster_id=it.cluster.cluster_id))
    assert it.cluster.finish_disablings() == 0
    it.cluster.finish_deletions()
    assert it.cluster.topics() == {}


def test_what_disabling_gave_up_on_another_topic_does_not_keep_this_one() -> None:
    it = filled()
    it.cluster.create_topic("other", configs=ON)
    append_to(it, "other")
    begun(it, OFF)
    it.cluster.catalog.commit(lambda draft: alter_topic(draft, "other", OFF))
    it.storage.put(it.remote().key, b"{}")
    with pytest.raises(UserError):
        it.cluster.finish_disablings()
    entry = it.cluster.topic("other").tiering
    assert entry is not None
    assert entry.state == "DISABLED"
    assert it.tiering().state is TieringState.DISABLING


def append_to(it: Tiered, topic: str) -> None:
    with it.cluster.producer() as producer:
        producer.send(topic, "x")


@pytest.mark.fact("F-K-056")
@pytest.mark.parametrize("changes", [OFF, OFF_AND_DELETE])
@pytest.mark.parametrize("is_on_again", [False, True])
def test_an_upload_begun_under_the_old_epoch_publishes_nothing(changes: dict[str, str], *, is_on_again: bool) -> None:
    it = filled()
    late = ManifestSwap(it.storage, it.cluster.cluster_id, it.tiering())
    it.cluster.alter_topic(TOPIC, changes)
    if is_on_again:
        it.cluster.alter_topic(TOPIC, ON)
    before = it.manifest()
    assert late(it.remote(), lambda manifest: replace(manifest, entries=(), start=manifest.end)) is None
    assert it.manifest() == before


@pytest.mark.fact("F-K-056")
def test_an_upload_begun_before_anything_was_uploaded_publishes_nothing_either() -> None:
    it = tiered()
    it.fill(4)
    late = ManifestSwap(it.storage, it.cluster.cluster_id, it.tiering())
    it.cluster.alter_topic(TOPIC, OFF)
    assert late(it.remote(), lambda manifest: replace(manifest, end=8)) is None
    assert it.manifest().end == 0


@pytest.mark.fact("F-K-056")
def test_an_uploader_that_slept_through_a_delete_does_not_let_local_records_count_as_uploaded() -> None:
    it = filled()
    topic_id, old = it.cluster.topic(TOPIC).id, it.tiering().epoch
    it.cluster.alter_topic(TOPIC, OFF_AND_DELETE)
    it.cluster.alter_topic(TOPIC, ON)
    partition = Partition(TOPIC, topic_id, 0)
    assert not swap_head(it.store, partition, lambda head: head.uploaded(8, old))
    assert head_of(it.cluster).uploaded_to == 4
    assert swap_head(it.store, partition, lambda head: head.uploaded(6, it.tiering().epoch))
    assert head_of(it.cluster).uploaded_to == 6


@pytest.mark.fact("F-K-062")
def test_an_upload_that_came_just_before_the_fence_is_marked_too() -> None:
    it = filled()
    copies, old = put_remote(it, 12)[2:], it.tiering()
    begun(it, OFF_AND_DELETE)
    swap = ManifestSwap(it.storage, it.cluster.cluster_id, old)
    assert swap(it.remote(), lambda found: replace(found, end=12, entries=(*found.entries, *copies))) is not None
    it.cluster.finish_disablings()
    assert it.segments() == []
    assert {entry.key for entry in copies} <= {entry.key for entry in it.manifest().garbage.entries}
    assert (head_of(it.cluster).uploaded_to, it.manifest().end) == (4, 4)


@pytest.mark.fact("F-K-062")
def test_a_swap_of_other_upkeep_under_the_new_epoch_does_not_pass_for_the_delete() -> None:
    it = filled()
    begun(it, OFF_AND_DELETE)
    swap = ManifestSwap(it.storage, it.cluster.cluster_id, it.tiering())
    assert swap(it.remote(), lambda found: replace(found, uploaded_ms=1)) is not None
    it.cluster.finish_disablings()
    assert it.segments() == []


def test_partitions_that_were_never_written_to_cost_nothing() -> None:
    it = tiered(partitions=4)
    it.fill(1, partition=2)
    it.cluster.alter_topic(TOPIC, OFF)
    assert it.tiering().state is TieringState.DISABLED
    there = [read_manifest(it.storage, it.remote(partition)) is not None for partition in range(4)]
    assert there == [False, False, True, False]


@pytest.mark.fact("F-K-066")
def test_the_cluster_wide_switch_moves_no_topic_and_keeps_none_from_moving() -> None:
    it = filled()
    it.cluster.alter_cluster({"cloud_storage_enabled": "false"})
    assert it.tiering().state is TieringState.ENABLED
    it.cluster.alter_topic(TOPIC, OFF_AND_DELETE)
    assert it.tiering().state is TieringState.DISABLED
    assert it.segments() == []


def test_without_its_object_storage_disabling_waits_and_says_for_what() -> None:
    it = filled()
    begun(it, OFF_AND_DELETE)
    it.cluster.storage = None
    with pytest.raises(UserError, match="no object storage any more") as error:
        it.cluster.finish_disablings()
    assert "objectStorage" in error.value.hint
    it.cluster.storage = MemoryStore()
    with pytest.raises(UserError, match="holds nothing of it"):
        it.cluster.finish_disablings()
    it.cluster.storage = it.storage
    assert it.cluster.finish_disablings() == 1


def test_a_cluster_that_never_had_object_storage_has_nothing_to_go_through() -> None:
    it = Tiered()
    it.cluster.create_topic(TOPIC, configs=ON)
    append_parts(it.cluster, 2)
    it.cluster.alter_topic(TOPIC, OFF_AND_DELETE)
    assert it.tiering().state is TieringState.DISABLED
    assert it.cluster.finish_disablings() == 0


def test_two_that_finish_it_at_once_both_say_so() -> None:
    it = filled()
    begun(it, OFF)
    topic_id, epoch = it.cluster.topic(TOPIC).id, it.tiering().epoch
    for _ in range(2):
        it.cluster.catalog.commit(lambda draft: disabled(draft, topic_id, epoch))
        assert it.tiering().state is TieringState.DISABLED
    it.cluster.alter_topic(TOPIC, ON)
    it.cluster.catalog.commit(lambda draft: disabled(draft, topic_id, epoch))
    assert it.tiering().state is TieringState.ENABLED
