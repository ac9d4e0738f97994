"""Turning tiering off (KIP-950): what the states allow, what retain and delete do, and who comes too late."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from reconciler.archives.location import TopicTiering
from reconciler.archives.manifest import ManifestSwap, read_manifest
from reconciler.embedded.catalog.model import NamespaceEntry
from reconciler.embedded.catalog.tiering_state import find_tiering, finish_disabling
from reconciler.embedded.catalog.topics import alter_namespace, alter_topic, create_namespace, delete_topic, move_topic
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.segments.head import Partition, swap_head
from reconciler.embedded.tiered.topic_deletion import finish_disablings
from reconciler.errors import UserError
from reconciler.lifecycles import TIERING, TieringState
from reconciler.objectstore.memory import MemoryStore
from reconciler.resources.cluster_properties import EMBEDDED_PROPERTIES, read_property
from tests.embedded.maintenance.tiny_segments import DAY, TOPIC, append_parts, copied, head_of, held
from tests.embedded.samples import NOW, ids
from tests.embedded.stores import DiedError, Ticking, WatchedStore
from tests.embedded.tiered.tiered_cluster import Tiered, put_remote, tiered, upload_by_hand

if TYPE_CHECKING:
    from reconciler.embedded.catalog.tables import Draft
    from reconciler.objectstore.base import ListedObject, ObjectStore


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
    for changes in (OFF, OFF_AND_DELETE):
        for step in (lambda: begun(it, changes), it.cluster.finish_disablings, lambda: switch(it, ON)):  # noqa: B023
            step()
            seen.append((it.tiering().state, it.tiering().epoch))
    round_trip = [TieringState.DISABLING, TieringState.DISABLED, TieringState.ENABLED]
    assert seen == list(zip([TieringState.ENABLED, *round_trip, *round_trip], range(1, 8), strict=True))


@pytest.mark.fact("F-K-050")
@pytest.mark.parametrize("start", TieringState)
@pytest.mark.parametrize("end", TieringState)
def test_no_other_move_is_possible(start: TieringState, end: TieringState) -> None:
    it = filled()
    if start is not TieringState.ENABLED:
        begun(it, OFF)
    if start is TieringState.DISABLED:
        it.cluster.finish_disablings()
    before = it.cluster.topic(TOPIC)
    moves: dict[TieringState, Callable[[Draft], object]] = {
        TieringState.ENABLED: lambda draft: alter_topic(draft, TOPIC, ON),
        TieringState.DISABLING: lambda draft: alter_topic(draft, TOPIC, OFF),
        TieringState.DISABLED: lambda draft: finish_disabling(draft, before.id, it.tiering().epoch),
    }
    legal = {(each.start, each.end) for each in TIERING.moves}
    assert len(legal) == len(TieringState)
    is_refused = start is TieringState.DISABLING and end is not TieringState.DISABLED
    with pytest.raises(UserError, match="IN_PROGRESS") if is_refused else nullcontext():
        it.cluster.catalog.commit(moves[end])
    after = it.cluster.topic(TOPIC)
    assert (it.tiering().state is end) is ((start, end) in legal or start is end)
    assert (after.tiering != before.tiering) is ((start, end) in legal)


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
    assert it.manifest().tiered_epoch == tiering.epoch - 1  # of DISABLING: that is when each partition is gone through


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
def test_an_upload_begun_before_anything_was_uploaded_publishes_nothing_either() -> None:
    it = tiered()
    it.fill(4)
    late = ManifestSwap(it.storage, it.cluster.cluster_id, it.tiering())
    it.cluster.alter_topic(TOPIC, OFF)
    assert late(it.remote(), lambda manifest: replace(manifest, end=8)) is None
    assert it.manifest().end == 0


@pytest.mark.fact("F-K-056")
@pytest.mark.parametrize("changes", [OFF, OFF_AND_DELETE])
def test_at_each_step_a_change_that_carries_an_older_epoch_is_refused(changes: dict[str, str]) -> None:
    it = filled()
    topic_id, seen = it.cluster.topic(TOPIC).id, [it.tiering()]
    partition = Partition(TOPIC, topic_id, 0)

    def swap(tiering: TopicTiering, uploaded_ms: int) -> bool:
        late = ManifestSwap(it.storage, it.cluster.cluster_id, tiering)
        return late(it.remote(), lambda manifest: replace(manifest, uploaded_ms=uploaded_ms)) is not None

    for step in (lambda: begun(it, changes), it.cluster.finish_disablings, lambda: switch(it, ON)):
        step()
        assert it.tiering().epoch == seen[-1].epoch + 1
        assert swap(it.tiering(), it.tiering().epoch)  # the first change under it: uploads, or retention
        if it.tiering().uploads:
            assert swap_head(it.store, partition, lambda head: head.with_uploaded(10, it.tiering().epoch))
        before = (it.tiering(), it.manifest(), head_of(it.cluster))
        for old in seen:
            assert not swap(old, 99)
            if it.tiering().uploads:
                assert not swap_head(it.store, partition, lambda head: head.with_uploaded(12, old.epoch))  # noqa: B023
            it.cluster.catalog.commit(lambda draft: finish_disabling(draft, topic_id, old.epoch))  # noqa: B023
        assert (it.tiering(), it.manifest(), head_of(it.cluster)) == before
        seen.append(it.tiering())


@pytest.mark.fact("F-K-056")
def test_who_slept_through_a_whole_round_of_disabling_deletes_nothing_of_the_next() -> None:
    it = tiered(partitions=2, retention_local_strict="true", retention_local_target_ms="1000", retention_ms="-1")
    it.fill(2)
    begun(it, OFF_AND_DELETE)

    def next_round() -> None:
        it.cluster.finish_disablings()
        switch(it, ON)
        it.fill(6, partition=1)
        it.upload()
        evict(it)
        assert head_of(it.cluster, 1).local_start > 0

    late = StalledStore(it.store, next_round)
    finish_disablings(late, it.cluster.catalog, it.storage, it.cluster.cluster_id)
    assert late.meanwhile is None
    assert head_of(it.cluster, 1).start == 0
    assert [row["offset"] for row in held(it.cluster, 1)] == list(range(12))
    assert it.tiering().state is TieringState.ENABLED


class StalledStore(WatchedStore):
    """A store whose user sleeps before its first listing, while others do something."""

    def __init__(self, inner: ObjectStore, meanwhile: Callable[[], None]) -> None:
        super().__init__(inner)
        self.meanwhile: Callable[[], None] | None = meanwhile

    def list(self, prefix: str) -> Iterator[ListedObject]:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().list(prefix)


@pytest.mark.fact("F-K-056")
def test_a_topic_that_an_older_version_left_disabled_without_raising_its_epoch_goes_on() -> None:
    it = strict()
    it.fill(6)
    it.upload()
    evict(it)
    switch(it, TIERING_OFF)

    def as_it_was(draft: Draft) -> None:
        topic = draft.topics[TOPIC]
        assert topic.tiering is not None
        draft.put_topic(TOPIC, replace(topic, tiering=replace(topic.tiering, epoch=2)))

    it.cluster.catalog.commit(as_it_was)
    assert (it.tiering().epoch, it.manifest().tiered_epoch) == (2, 2)
    assert offsets(it) == list(range(12))
    switch(it, ON)
    it.fill(2)
    it.upload()
    assert (it.tiering().epoch, it.manifest().tiered_epoch) == (3, 3)
    assert offsets(it) == list(range(16))


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
        it.cluster.catalog.commit(lambda draft: finish_disabling(draft, topic_id, epoch))
        assert it.tiering().state is TieringState.DISABLED
    it.cluster.alter_topic(TOPIC, ON)
    it.cluster.catalog.commit(lambda draft: finish_disabling(draft, topic_id, epoch))
    assert it.tiering().state is TieringState.ENABLED


# Dying before and after every write of turning tiering off: whoever comes next finishes it, asked or not.

POLICIES = {"retain": OFF, "delete": {**OFF, "remote.log.disable.policy": "delete"}}
PARTITIONS = 2


def filled_topic() -> Tiered:
    it = tiered(partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        it.fill(4, partition=partition)
        upload_by_hand(it, 6, evicts=4, partition=partition)
    return it


def again(it: Tiered) -> Tiered:
    """Return the same cluster over copies of its stores."""
    other = Tiered(copied(it.store), copied(it.storage), it.clock)
    assert other.cluster.cluster_id == it.cluster.cluster_id
    return other


def deaths(it: Tiered, changes: dict[str, str]) -> Iterator[Tiered]:
    """Yield the cluster as it is left behind for every point at which switching off can die."""
    for done in (False, True):
        for at in itertools.count():
            left, tick = again(it), Ticking(at)
            cluster = left.opened(tick.watch(left.store, done=done), tick.watch(left.storage, done=done))
            try:
                cluster.alter_topic(TOPIC, changes)
            except DiedError:
                yield left
            else:
                assert at > PARTITIONS
                break


def shown(it: Tiered) -> list[object]:
    """Return what a reader goes by, and the manifests."""
    heads = [head_of(it.cluster, partition) for partition in range(PARTITIONS)]
    return [it.tiering(), heads, [read_manifest(it.storage, it.remote(each)) for each in range(PARTITIONS)]]


def fresh(it: Tiered) -> EmbeddedCluster:
    return EmbeddedCluster.open(it.store, now_ms=it.clock, new_id=ids(), storage=it.storage)


@pytest.mark.fact("F-K-063")
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_disabling_that_died_is_finished_by_the_next_who_comes(policy: str) -> None:
    it = filled_topic()
    whole = again(it)
    whole.cluster.alter_topic(TOPIC, POLICIES[policy])
    points, states = 0, set()
    for left in deaths(it, POLICIES[policy]):
        points += 1
        state = left.tiering().state
        states.add(state)
        # Whatever is named is there, and nothing local counts as uploaded that no manifest names.
        for partition in range(PARTITIONS):
            head, manifest = head_of(left.cluster, partition), left.manifest(partition)
            assert {entry.key for entry in left.segments(partition)} <= left.objects()
            assert head.uploaded_to <= manifest.end
        assert fresh(left).finish_disablings() == (1 if state is TieringState.DISABLING else 0)
        if state is TieringState.ENABLED:
            fresh(left).alter_topic(TOPIC, POLICIES[policy])
        assert shown(left) == shown(whole)
        assert fresh(left).finish_disablings() == 0
    assert states == set(TieringState)
    assert points > 2 * PARTITIONS


@pytest.mark.fact("F-K-063")
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_it_may_die_again_and_again(policy: str) -> None:
    it = filled_topic()
    whole = again(it)
    whole.cluster.alter_topic(TOPIC, POLICIES[policy])
    it.cluster.catalog.commit(lambda draft: alter_topic(draft, TOPIC, POLICIES[policy]))
    for at in itertools.count():
        tick = Ticking(at)
        cluster = it.opened(tick.watch(it.store, done=True), tick.watch(it.storage, done=True))
        try:
            cluster.finish_disablings()
        except DiedError:
            continue
        break
    assert shown(it) == shown(whole)


# Round after round of tiering switched off and on, with real uploads, evictions and reads in between.


TIERING_OFF = {"remote.write": "false", "remote.read": "false", "remote.log.disable.policy": "retain"}
TIERING_OFF_AND_DELETE = {**TIERING_OFF, "remote.log.disable.policy": "delete"}


def strict() -> Tiered:
    """Return a tiered topic that keeps nothing local that it need not keep."""
    return tiered(retention_local_strict="true", retention_local_target_ms="1000", retention_ms="-1")


def offsets(it: Tiered) -> list[int]:
    return [row["offset"] for row in held(it.cluster)]


def evict(it: Tiered) -> None:
    it.clock.now_ms += DAY
    it.cluster.upkeep().retain()


def switch(it: Tiered, changes: dict[str, str]) -> None:
    it.cluster.alter_topic(TOPIC, changes)


@pytest.mark.fact("F-K-057")
@pytest.mark.fact("F-K-059")
@pytest.mark.fact("F-K-064")
def test_retained_data_is_read_all_along_and_uploads_go_on_where_they_ended() -> None:
    it = strict()
    it.fill(6)
    it.upload()
    evict(it)
    ended, objects = it.manifest().end, it.objects()
    assert head_of(it.cluster).local_start > 0
    switch(it, TIERING_OFF)
    assert offsets(it) == list(range(12))
    it.fill(6)
    it.upload()
    evict(it)
    assert (it.manifest().end, it.objects()) == (ended, objects)
    assert head_of(it.cluster).local_start <= ended
    assert offsets(it) == list(range(24))
    switch(it, ON)
    it.fill(2)
    it.upload()
    assert it.manifest().end > 20
    bases = [(entry.base, entry.last) for entry in it.segments()]
    assert all(last + 1 == base for (_, last), (base, _) in pairwise(bases))
    evict(it)
    assert offsets(it) == list(range(28))


@pytest.mark.fact("F-K-062")
@pytest.mark.fact("F-K-064")
@pytest.mark.fact("F-R-011")
def test_deleted_objects_are_gone_after_a_run_and_what_is_local_is_uploaded_anew() -> None:
    it = strict()
    it.fill(6)
    it.upload()
    evict(it)
    it.fill(4)
    it.upload()
    local, old = head_of(it.cluster).local_start, it.objects()
    assert 0 < local < it.manifest().end
    switch(it, TIERING_OFF_AND_DELETE)
    assert offsets(it) == list(range(local, 20))
    assert it.objects() == old
    it.cluster.upkeep().retain()
    assert it.objects() == set()
    assert not it.manifest().garbage
    switch(it, ON)
    it.upload()
    assert it.segments()[0].base == local
    assert it.objects().isdisjoint(old)
    evict(it)
    assert head_of(it.cluster).local_start > local
    assert offsets(it) == list(range(local, 20))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
def test_whatever_the_order_nothing_is_lost_but_what_delete_takes(seed: int) -> None:
    it, dice = strict(), random.Random(seed)  # noqa: S311 - the same order each time
    end = 0

    def produce() -> None:
        nonlocal end
        it.fill(2)
        end += 4

    moves: list[Callable[[], object]] = [produce, produce, it.upload, lambda: evict(it), it.cluster.finish_disablings]
    start = 0
    for _ in range(40):
        if dice.random() < 0.2:
            if it.tiering().state is TieringState.ENABLED:
                policy = dice.choice([TIERING_OFF, TIERING_OFF_AND_DELETE])
                start = head_of(it.cluster).local_start if policy is TIERING_OFF_AND_DELETE and end else start
                switch(it, policy)
            else:
                switch(it, ON)
        else:
            dice.choice(moves)()
        assert offsets(it) == list(range(start, end))
    assert {entry.key for entry in it.segments()} <= it.objects()


# What becomes of a topic's tiering: its own word, the cluster's default when it was made, the cluster's switch.


A_DAY = 24 * 60 * 60 * 1000
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
    found = find_tiering(cluster.catalog.read(), topic, cluster.cluster_id)
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
        pytest.param({}, {}, (7 * A_DAY, A_DAY), marks=pytest.mark.fact("F-R-028")),
        pytest.param({}, {"retention.ms": str(30 * A_DAY)}, (30 * A_DAY, A_DAY), marks=pytest.mark.fact("F-R-026")),
        pytest.param({}, {"retention.ms": "1000"}, (1000, 1000), marks=pytest.mark.fact("F-R-026")),
        pytest.param(
            {"retention_local_target_ms_default": "5000"}, {}, (7 * A_DAY, 5000), marks=pytest.mark.fact("F-R-026")
        ),
        pytest.param({"delete_retention_ms": "9000"}, {}, (9000, 9000), marks=pytest.mark.fact("F-R-028")),
        pytest.param({"log_retention_ms": "9000"}, {}, (9000, 9000), marks=pytest.mark.fact("F-R-028")),
        pytest.param(
            {}, {"retention.local.target.ms": str(9 * A_DAY)}, (9 * A_DAY,) * 2, marks=pytest.mark.fact("F-R-027")
        ),
    ],
)
def test_limits_of_a_new_topic_follow_its_own_words_and_the_defaults_of_the_cluster(
    properties: dict[str, str | None], own: dict[str, str], expected: tuple[int, int]
) -> None:
    cluster = cluster_with(properties)
    cluster.create_topic("orders", configs={"remote.write": "true", **own})
    found = find_tiering(cluster.catalog.read(), "orders", cluster.cluster_id)
    assert found is not None
    assert (found.targets.total_ms, found.targets.local_ms) == expected


@pytest.mark.fact("F-R-027")
def test_of_bytes_the_smaller_of_both_limits_holds() -> None:
    cluster = cluster_with({})
    limits = {"retention.bytes": "1000", "retention.local.target.bytes": "5000"}
    cluster.create_topic("orders", configs={"remote.write": "true", **limits})
    found = find_tiering(cluster.catalog.read(), "orders", cluster.cluster_id)
    assert found is not None
    assert (found.targets.total_bytes, found.targets.local_bytes) == (1000, 1000)


@pytest.mark.fact("F-R-014")
@pytest.mark.parametrize("reset", [None, "default"])
def test_resetting_a_property_restores_its_default(reset: str | None) -> None:
    cluster = cluster_with({"cloud_storage_max_connections": "7"})
    cluster.alter_cluster({"cloud_storage_max_connections": reset})
    properties = cluster.catalog.read().cluster.properties
    assert "cloud_storage_max_connections" not in properties
    assert read_property(properties, "cloud_storage_max_connections") == "20"


@pytest.mark.fact("F-R-014")
@pytest.mark.parametrize("value", ["", "  "])
@pytest.mark.parametrize("name", sorted(EMBEDDED_PROPERTIES))
def test_no_property_is_reset_by_an_empty_value(name: str, value: str) -> None:
    cluster = cluster_with({})
    with pytest.raises(UserError, match="is empty: an empty value does not reset it"):
        cluster.alter_cluster({name: value})


@pytest.mark.fact("F-R-013")
def test_topics_do_not_move_to_another_object_storage() -> None:
    cluster = cluster_with({})
    cluster.create_topic("orders", configs={"remote.write": "true"})
    elsewhere = EmbeddedCluster.open(cluster.store, now_ms=lambda: NOW, new_id=ids(), storage=MemoryStore())
    with pytest.raises(UserError, match="orders has records there"):
        elsewhere.alter_cluster({})
    cluster.delete_topic("orders")


def test_two_names_of_one_property_may_not_differ() -> None:
    cluster = cluster_with({"log_retention_ms": "1000"})
    with pytest.raises(UserError, match="two names of one property"):
        cluster.alter_cluster({"delete_retention_ms": "2000"})
    cluster.alter_cluster({"delete_retention_ms": "2000", "log_retention_ms": None})
