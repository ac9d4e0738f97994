"""A partition cut at an offset: what lies below stays, what lies above is gone, once for each operation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.archives.pages import iter_all_entries, iter_all_pages
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.check.damage import CheckFinding, Kind, Severity
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.maintenance import uploads
from reconciler.embedded.maintenance.chores import Chore, ChoreTask
from reconciler.embedded.restore_cut import TopicTruncation
from reconciler.embedded.segments.head import Head, Partition, build_link_writer, swap_head
from reconciler.embedded.segments.retention import iter_live_entries, iter_segments, read_cleanup_policy
from reconciler.embedded.tiered.remote_retention import evict_segments
from reconciler.errors import UserError
from reconciler.jobs.verify import compare_logs
from reconciler.records.log import OffsetRange
from reconciler.resources.mirrors import TruncatedPartition
from tests.contracts.lossy import LossyStore
from tests.embedded.clients.transactional_producers import plain as send
from tests.embedded.clients.transactional_producers import writer
from tests.embedded.links.linked import CUT_ID as OPERATION
from tests.embedded.links.linked import (
    ORDERS,
    Linked,
    archived,
    both_copied,
    cut,
    faults,
    is_sound,
    joined,
    let_go,
    mirror_more,
    rows,
    truncate,
)
from tests.embedded.maintenance.test_tiered_compaction import newest
from tests.embedded.maintenance.tiny_segments import (
    DAY,
    TOPIC,
    append,
    append_parts,
    head_of,
    held,
    parts_in,
    with_topic,
)
from tests.embedded.samples import ids, values
from tests.embedded.stores import DiedError, WatchedStore, dying
from tests.embedded.tiered.test_tier_crashes import Ticking
from tests.embedded.tiered.tiered_cluster import BOTH, Tiered, tiered
from tests.engines import here
from tests.servers.stores import fresh_store


def filled(parts: int, *, partitions: int = 1, **configs: str) -> Tiered:
    """Return a topic that was never tiered, with parts of two records in its first partition."""
    it = Tiered()
    with_topic(it.cluster, partitions=partitions, **{"segment_bytes": "4500", **configs})
    append_parts(it.cluster, parts)
    return it


@pytest.mark.fact("F-C-079")
@pytest.mark.parametrize("at", [0, 1, 2, 5, 19, 20])
def test_a_log_ends_at_the_cut_and_holds_what_it_held_below(at: int) -> None:
    it = filled(10)
    before = rows(it)
    joined(it)
    assert cut(it, at) == TruncatedPartition(at, 20 - at)
    assert rows(it) == before[:at]
    head = head_of(it.opened())
    assert (head.start, head.end, head.records) == (0, at, at)
    assert head.epochs[-1] == (2, at)
    assert len(list(iter_all_entries(it.store, head))) == len(parts_in(it.store)) == (at + 1) // 2
    is_sound(it)
    assert not faults(it)
    mirror_more(it, 3)
    assert [offset for offset, _, _ in rows(it)] == list(range(at + 3))


@pytest.mark.parametrize("at", [7, 8, 100])
def test_beyond_the_end_there_is_nothing_to_cut(at: int) -> None:
    it = filled(3)
    joined(it)
    assert cut(it, at) == TruncatedPartition(6, 0)
    assert len(rows(it)) == 6


@pytest.mark.parametrize("at", [0, 3, 6, 9])
def test_the_same_operation_cuts_once_also_where_records_were_mirrored_above_the_cut_since(at: int) -> None:
    it = filled(3)
    joined(it)
    first = cut(it, at)
    mirror_more(it, 4)
    after = rows(it)
    assert cut(it, at) == first
    assert rows(it) == after
    assert cut(it, 2, operation="operation-2") == TruncatedPartition(2, max(0, min(at, 6) + 4 - 2))
    assert len(rows(it)) == min(2, min(at, 6) + 4)


def test_what_is_mirrored_into_a_partition_that_was_never_written_to_is_not_cut_later() -> None:
    it = filled(0, partitions=3)
    joined(it)
    assert truncate(it.cluster, {0: 0, 1: 0, 2: 5}) == {number: TruncatedPartition(0, 0) for number in range(3)}
    mirror_more(it, 4, partition=1)
    assert truncate(it.cluster, {1: 0}) == {1: TruncatedPartition(0, 0)}
    assert len(rows(it, 1)) == 4


def test_partitions_are_cut_side_by_side_and_only_those_that_are_named() -> None:
    it = filled(2, partitions=3)
    append_parts(it.cluster, 3, partition=1)
    append_parts(it.cluster, 4, partition=2)
    joined(it)
    assert truncate(it.cluster, {0: 1, 2: 5}) == {0: TruncatedPartition(1, 3), 2: TruncatedPartition(5, 3)}
    assert [len(rows(it, number)) for number in range(3)] == [1, 6, 5]


@pytest.mark.fact("F-C-077")
def test_who_comes_after_a_failover_cuts_nothing() -> None:
    it = filled(3)
    joined(it)
    late = TopicTruncation(
        it.store, None, it.cluster.cluster_id, it.cluster.catalog, build_link_writer("link-1"), OPERATION
    )
    it.cluster.linking.start_operation(TOPIC, "failover")
    append(it.opened(), ("k", "own"))
    with pytest.raises(UserError, match="topic orders cannot be truncated: producers may write to it"):
        cut(it, 2)
    with pytest.raises(
        UserError, match="partition 0 cannot be truncated: producers may write to it now, not link:link-1"
    ):
        late.truncate_partition(Partition(TOPIC, it.cluster.topics()[TOPIC].id, 0), 2)
    assert len(rows(it)) == 7


@pytest.mark.parametrize("at", [3, 4, 5, 6, 7])
def test_a_cut_in_the_gap_of_an_aborted_transaction_counts_records_not_offsets(at: int) -> None:
    it = Tiered()
    with_topic(it.cluster)
    send(it.cluster, "a", "b", "c")
    producer = writer(it.cluster)
    producer.begin()
    for content in ("x", "y", "z"):
        producer.send(TOPIC, content, partition=0)
    producer.flush()
    producer.abort()
    send(it.cluster, "d", "e")
    joined(it)
    assert cut(it, at) == TruncatedPartition(at, 8 - max(6, at))
    assert [offset for offset, _, _ in rows(it)] == [0, 1, 2, *range(6, at)]
    assert head_of(it.opened()).bounds.stable == at
    is_sound(it)


def test_a_transaction_that_began_above_the_cut_is_not_open_any_more() -> None:
    it = filled(2)
    joined(it)

    def opened(head: Head) -> Head:
        return replace(head, transactions={"below": {"epoch": 0, "base": 1}, "above": {"epoch": 0, "base": 2}})

    assert swap_head(it.store, Partition(TOPIC, it.cluster.topics()[TOPIC].id, 0), opened)
    cut(it, 2)
    assert set(head_of(it.opened()).transactions) == {"below"}


@pytest.mark.parametrize(("at", "known"), [(4, {"loader", "other"}), (3, {"other"}), (1, set()), (0, set())])
def test_of_a_producer_whose_records_were_cut_no_sequence_is_known(at: int, known: set[str]) -> None:
    it = filled(0)
    for name, sequence in (("loader", 0), ("other", 0), ("other", 1), ("loader", 1)):
        it.cluster.sequenced_producer(name).append(TOPIC, 0, values("v"), sequence=sequence)
    joined(it)
    cut(it, at)
    assert set(head_of(it.opened()).producers) == known


def test_where_what_was_cut_does_not_say_who_wrote_it_nobodys_sequence_is_known() -> None:
    it = filled(0, segment_bytes="14")
    for sequence in range(3):
        it.cluster.sequenced_producer("loader").append(TOPIC, 0, values("v"), sequence=sequence)
    it.cluster.upkeep().roll()
    it.cluster.sequenced_producer("other").append(TOPIC, 0, values("v"), sequence=0)
    joined(it)
    cut(it, 1)
    assert head_of(it.opened()).producers == {}


@pytest.mark.soak
def test_pages_above_the_cut_go_with_all_that_they_name_and_few_are_read_for_that() -> None:
    it = filled(1150)
    joined(it)
    before = rows(it)
    pages = list(iter_all_pages(it.store, head_of(it.opened())))
    assert {page.level for page in pages} == {0, 1}
    for at in (1, 1023, 2299):
        left = both_copied(it)
        watched = WatchedStore(left.store)
        assert truncate(left.opened(watched), {0: at}) == {0: TruncatedPartition(at, 2300 - at)}
        before_the_swap = itertools.takewhile(lambda call: call[0] != "swap", watched.calls)
        assert sum(key.startswith("pages/") for _, key in before_the_swap) <= 4
        assert rows(left) == before[:at]
        head = head_of(left.opened())
        assert head.records == at
        assert len(head.entries) <= 64
        is_sound(left)
        assert {listed.key for listed in left.store.list("pages/")} == {
            page.key for page in iter_all_pages(left.store, head)
        }
        mirror_more(left, 2)
        assert not faults(left, deep=False)


# Cuts on stores as they are: a folder, and a real S3 server, the local and the remote tier.


KINDS = [("directory", 9), ("directory", 18), pytest.param("s3", 9, marks=pytest.mark.soak)]


@pytest.mark.fact("F-C-079")
@pytest.mark.parametrize(("kind", "at"), KINDS)
def test_both_tiers_are_cut(request: pytest.FixtureRequest, tmp_path: Path, kind: str, at: int) -> None:
    request.param = kind
    it = Tiered(fresh_store(request, tmp_path / "here"), fresh_store(request, tmp_path / "there"))
    it.switch_on(spillover_manifest_size="1024")
    with_topic(it.cluster, segment_bytes="4500", **{key.replace(".", "_"): value for key, value in BOTH.items()})
    append_parts(it.cluster, 14)
    it.upload()
    let_go(it, 3)
    before = rows(it)
    joined(it)
    assert cut(it, at) == cut(it, at) == TruncatedPartition(at, 28 - at)
    assert rows(it) == before[:at]
    assert it.manifest().end == head_of(it.opened()).uploaded_to == at
    is_sound(it)
    mirror_more(it, 5)
    assert cut(it, at) == TruncatedPartition(at, 28 - at)
    it.switch_on(segment_max_upload_interval_sec="1")
    it.clock.now_ms += 5_000
    assert not it.upload().errors
    assert it.manifest().end == at + 5
    assert [offset for offset, _, _ in rows(it)] == list(range(at + 5))
    findings = check_cluster(it.store, deep=True, storage=it.storage).findings
    assert {finding.kind for finding in findings} == {Kind.TRANSITION_UNDER_WAY}


# Cutting a log whose keys were compacted: no key is lost by what superseded it and is cut.


COMPACTED = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0", "segment_bytes": "14"}


def keyed(*, is_tiered: bool = False) -> Tiered:
    """Return a log whose first three keys were written anew, in segments of a record."""
    if is_tiered:
        it = tiered(**COMPACTED)
    else:
        it = Tiered()
        with_topic(it.cluster, **COMPACTED)
    for number in range(8):
        append(it.cluster, (f"k{number % 5}", str(number)))
    return it


@pytest.mark.parametrize("at", [4, 5, 6])
@pytest.mark.parametrize("is_tiered", [False, True])
def test_a_log_that_was_compacted_beyond_the_cut_is_cut_at_its_beginning(at: int, *, is_tiered: bool) -> None:
    it = keyed(is_tiered=is_tiered)
    theirs = both_copied(it)
    if is_tiered:
        it.upload()  # What is not uploaded is not learned from.
    assert it.cluster.upkeep().compact().records == 2
    if is_tiered:
        it.upload()
    assert head_of(it.cluster).compacted_to == 7
    joined(it)
    assert cut(it, at) == TruncatedPartition(0, 6)
    assert rows(it) == []
    assert head_of(it.opened()).compacted_to == 0
    is_sound(it)
    joined(theirs)
    assert cut(theirs, at) == TruncatedPartition(at, 8 - at)
    copy(theirs, it)
    assert newest(held(it.opened())) == newest(held(theirs.opened()))
    assert rows(it) == rows(theirs)


def test_a_log_that_was_compacted_below_the_cut_keeps_what_lies_there() -> None:
    it = keyed()
    it.cluster.upkeep().compact()
    for number in range(3):
        append(it.cluster, (f"n{number}", "own"))
    joined(it)
    before = rows(it)
    assert cut(it, 8) == TruncatedPartition(8, 3)
    assert rows(it) == before[:-3]
    assert head_of(it.opened()).compacted_to == 7
    is_sound(it)


def test_a_compaction_that_read_what_is_cut_meanwhile_removes_nothing() -> None:
    it = keyed(is_tiered=True)
    it.upload()
    joined(it)
    before = rows(it)
    done: list[int] = []
    upkeep = it.opened().upkeep()
    slow = replace(upkeep, may_go_on=lambda: done.append(cut(it, 5).records) if not done else None)
    slow.compact()
    assert done == [3]
    assert rows(it) == before[:5]
    is_sound(it)
    assert head_of(it.opened()).compacted_to == 0


@pytest.mark.thorough
@pytest.mark.parametrize("compacting", ["west", "east", "both"])
def test_a_mirror_compacts_by_itself_and_is_no_different_from_its_source(compacting: str) -> None:
    linked = Linked()
    configs = {key.replace("_", "."): value for key, value in COMPACTED.items()}
    linked.west.create_topic(ORDERS, configs=configs)
    linked.link("east", "west")
    linked.mirror("east", "west")
    linked.east.alter_topic(ORDERS, {"segment.bytes": "14", "min.cleanable.dirty.ratio": "0"})
    for round_ in range(3):
        with linked.west.producer() as producer:
            for number in range(6):
                producer.send(ORDERS, f"{round_}-{number}", key=f"k{number % 4}", partition=0)
                producer.flush()
        linked.catch_up("east")
        before = {name: {offset for offset, _ in linked.read(name)} for name in ("west", "east")}
        for name in ("west", "east"):
            if compacting in {name, "both"}:
                assert linked.cluster(name).upkeep().compact().records
        after = {name: {offset for offset, _ in linked.read(name)} for name in ("west", "east")}
        assert all(after[name] <= before[name] for name in after)
        assert compare_logs(here(), linked.west.log(ORDERS), linked.east.log(ORDERS), deep=False).is_equal
        assert compare_logs(here(), linked.west.log(ORDERS), linked.east.log(ORDERS), deep=True).is_equal


def copy(source: Tiered, mirror: Tiered) -> None:
    """Bring the mirror to the end of its source."""
    log, sink = source.opened().log(TOPIC), mirror.opened().sink(TOPIC)
    at = OffsetRange(sink.read_ends()[0], log.read_bounds()[0].end)
    assert sink.publish([sink.stage_copy(0, log, at)])


SUPERSEDED = {"delete_retention_ms": "20000", "retention_local_target_bytes": "1", "retention_local_strict": "true"}


def half_full() -> Tiered:
    """Return a tiered log whose older half, in object storage alone, is superseded by the newer one."""
    it = tiered(min_cleanable_dirty_ratio="0", cleanup_policy="compact", segment_bytes="14", **SUPERSEDED)
    for number in range(6):
        append(it.cluster, (f"k{number}", "old"))
    it.upload()
    assert not it.cluster.upkeep().retain().failed
    assert head_of(it.cluster).local_start > 2
    for number in range(6):
        append(it.cluster, (f"k{number}", "new"))
    append(it.cluster, ("z", "1"))
    it.upload()
    return it


def compact_remotely(it: Tiered) -> None:
    """Compact, and die before the swap of the head."""

    def die(what: str, key: str) -> None:
        if what == "swap" and "/parts/" not in key:
            raise DiedError

    with pytest.raises(DiedError):
        it.opened(WatchedStore(it.store, before=die)).upkeep().compact()
    it.cluster = it.opened()
    assert head_of(it.cluster).compacted_to == 0


@pytest.mark.parametrize("at", [6, 7, 11])
def test_a_compaction_that_died_once_its_remote_half_was_published_counts_too(at: int) -> None:
    it = half_full()
    compact_remotely(it)
    assert b"old" not in {row["value"] for row in held(it.cluster) if row["key"] == b"k0"}
    joined(it)
    assert cut(it, at).offset == 0
    assert rows(it) == []
    is_sound(it)


@pytest.mark.parametrize("dies", [False, True])
def test_also_where_it_was_published_while_the_log_was_being_cut(*, dies: bool) -> None:
    it = half_full()
    joined(it)
    done: list[str] = []

    def publish(what: str, key: str) -> None:
        if what == "swap" and key.startswith("heads/") and not done:
            done.append(key)
            compact_remotely(it)

    def die(what: str, key: str) -> None:
        publish(what, key)
        if dies and what == "swap" and head_of(it.cluster).truncated is not None:
            raise DiedError

    cutting = it.opened(WatchedStore(it.store, before=publish, after=die))
    if dies:
        with pytest.raises(DiedError):
            truncate(cutting, {0: 7})
        assert head_of(it.opened()).truncated == {"operation": OPERATION, "offset": 7, "epoch": 2, "records": 6}
        cutting = it.opened()
    assert truncate(cutting, {0: 7}) == {0: TruncatedPartition(0, 8)}
    assert done
    assert truncate(it.opened(), {0: 7}) == {0: TruncatedPartition(0, 8)}
    assert rows(it) == []
    is_sound(it)


# Dying before and after every write of a cut: readers see the log before or after it, and whoever comes ends it.


def soaked(*cuts: int) -> list[Any]:
    """Return cuts that are tried at length only: each is all points at which one can die."""
    return [pytest.param(at, marks=pytest.mark.soak) for at in cuts]


def deaths(it: Tiered, at: int) -> Iterator[Tiered]:
    """Yield the cluster as it is left behind, for every point at which a cut can die."""
    for done in (False, True):
        for point in itertools.count():
            left, tick = both_copied(it), Ticking(point)
            opened = left.opened(tick.watch(left.store, done=done), tick.watch(left.storage, done=done))
            try:
                truncate(opened, {0: at})
            except DiedError:
                yield left
            else:
                assert point > 1
                break


def errors_of(it: Tiered) -> list[CheckFinding]:
    """Return what a check calls broken: what a death leaves behind is none of it."""
    report = check_cluster(it.store, deep=True, storage=it.storage)
    return [finding for finding in report.findings if finding.severity is Severity.ERROR]


def upload_all(it: Tiered) -> None:
    """Upload what there is, also of the open segment."""
    it.clock.now_ms += 5_000
    it.switch_on(segment_max_upload_interval_sec="1")
    upkeep = it.opened().upkeep()
    upkeep.roll()
    assert not upkeep.upload().errors
    assert not it.opened().upkeep().retain().errors


@pytest.mark.thorough
@pytest.mark.parametrize("pages", [False, True])
@pytest.mark.parametrize("at", [7, *soaked(0, 12, 18, 27)])
def test_a_cut_that_died_is_ended_by_the_next_and_counts_the_same(at: int, *, pages: bool) -> None:
    it = archived(pages=pages)
    joined(it)
    before = rows(it)
    seen_whole = seen_cut = 0
    for left in deaths(it, at):
        found = rows(left)
        assert found in (before, before[:at])
        seen_whole, seen_cut = seen_whole + (found == before), seen_cut + (found != before)
        assert not errors_of(left)
        assert cut(left, at) == TruncatedPartition(at, 28 - at)
        assert rows(left) == before[:at]
        is_sound(left)
        mirror_more(left, 5)
        assert cut(left, at) == TruncatedPartition(at, 28 - at)
        upload_all(left)
        assert rows(left)[:at] == before[:at]
        assert len(rows(left)) == at + 5
        assert left.manifest().records == at + 5
    assert seen_whole
    assert seen_cut


@pytest.mark.thorough
@pytest.mark.fact("F-C-077")
@pytest.mark.parametrize("at", [12, *soaked(7, 18)])
def test_where_a_failover_ends_a_cut_that_died_what_is_uploaded_then_is_what_can_be_read(at: int) -> None:
    it = archived()
    joined(it)
    before = rows(it)
    for left in deaths(it, at):
        left.opened().linking.start_operation("orders", "failover")
        own = rows(left)
        assert own in (before, before[:at])
        for number in range(3):
            append(left.opened(), (f"own{number}", "new"))
        upload_all(left)
        found = rows(left)
        assert found[: len(own)] == own
        assert [key for _, key, _ in found[len(own) :]] == [b"own0", b"own1", b"own2"]
        head, manifest = head_of(left.opened()), left.manifest()
        assert manifest.end == head.uploaded_to == head.end == len(found)
        assert manifest.records == len(found)
        is_sound(left)
        assert not faults(left)


@pytest.mark.parametrize("at", [7, 18])
def test_a_cut_whose_answers_are_lost_is_done_once(at: int) -> None:
    it = archived()
    joined(it)
    before = rows(it)
    lossy = it.opened(LossyStore(it.store), LossyStore(it.storage))
    assert truncate(lossy, {0: at}, OPERATION) == {0: TruncatedPartition(at, 28 - at)}
    assert rows(it) == before[:at]
    is_sound(it)


# Any log cut anywhere, again and again, against a list: transactions, compaction, two tiers, dying in between.


STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4)),
    st.tuples(st.just("abort"), st.integers(1, 3)),
    st.tuples(st.just("commit"), st.integers(1, 3)),
    st.tuples(st.sampled_from(["roll", "upload", "compact", "retain"]), st.just(0)),
)
CUTS = st.lists(
    st.tuples(st.floats(0, 1.1), st.integers(0, 3), st.one_of(st.none(), st.integers(0, 12))), min_size=1, max_size=3
)


@pytest.mark.thorough
@settings(max_examples=60)
@given(steps=st.lists(STEPS, max_size=14), cuts=CUTS, compacts=st.booleans(), evicts=st.booleans())
def test_a_log_that_is_cut_holds_what_it_held_below(
    *, steps: list[tuple[str, int]], cuts: list[tuple[float, int, int | None]], compacts: bool, evicts: bool
) -> None:
    configs: dict[str, Any] = {"segment_bytes": "3000", "min_cleanable_dirty_ratio": "0"}
    configs |= {"cleanup_policy": "compact"} if compacts else {"retention_bytes": "9000"}
    configs |= {"retention_local_strict": "true", "retention_local_target_bytes": "1"} if evicts else {}
    it = tiered(**configs)
    it.switch_on(spillover_manifest_size="1024")
    for number, (what, count) in enumerate(steps):
        values = [(f"k{each}", f"{number}-{each}") for each in range(count)]
        match what:
            case "append":
                append(it.cluster, *values)
            case "abort" | "commit":
                producer = writer(it.cluster)
                producer.begin()
                for key, value in values:
                    producer.send(TOPIC, value, key=key, partition=0)
                producer.commit() if what == "commit" else producer.abort()
            case _:
                assert not getattr(it.cluster.upkeep(), what)().errors
    if not any(what in {"append", "commit"} for what, _ in steps):
        append(it.cluster, ("k", "v"))
    for turn, (share, mirrored, death) in enumerate(cuts):
        operation = f"operation-{turn}"
        if turn:
            it.cluster.linking.start_operation(TOPIC, "failover")
        joined(it, operation)
        before, head = rows(it), head_of(it.opened())
        asked = int(share * head.end)
        at = min(asked, head.end)
        at = min(at, head.start) if head.compacted_to > at else at
        if death is not None:
            tick = Ticking(death)
            try:
                opened = it.opened(tick.watch(it.store, done=False), tick.watch(it.storage, done=False))
                truncate(opened, {0: asked}, operation)
            except DiedError:
                pass
        below = [row for row in before if row[0] < at]
        assert rows(it) in (before, below)
        assert cut(it, asked, operation=operation) == TruncatedPartition(at, len(before) - len(below))
        assert rows(it) == below
        assert head_of(it.opened()).end == at
        if mirrored:
            mirror_more(it, mirrored)
        after = rows(it)
        assert after[: len(below)] == below
        assert len(after) == len(below) + mirrored
        assert cut(it, asked, operation=operation) == TruncatedPartition(at, len(before) - len(below))
        upkeep = it.opened().upkeep()
        for job in (upkeep.roll, upkeep.upload, upkeep.retain):
            assert not job().errors
        assert rows(it) == after
        findings = check_cluster(it.store, deep=True, storage=it.storage).findings
        assert not [finding for finding in findings if finding.severity is Severity.ERROR]
        is_sound(it)


# A log cut on two tiers: nothing above is seen again, nothing below is lost, and uploads go on where it ends.


def goes_on(it: Tiered, end: int) -> None:
    """See that the log goes on at its end: mirrored, uploaded, evicted and read from object storage."""
    before = rows(it)
    mirror_more(it, 3)
    mirror_more(it, 3)
    it.clock.now_ms += DAY
    it.switch_on(segment_max_upload_interval_sec="1")
    upkeep = it.opened().upkeep()
    upkeep.roll()
    assert not upkeep.upload().errors
    manifest, head = it.manifest(), head_of(it.opened())
    assert manifest.end == head.uploaded_to == head.end == end + 6
    assert manifest.epochs == head.epochs
    found = rows(it)
    assert found[: len(before)] == before
    assert [offset for offset, _, _ in found[len(before) :]] == list(range(end, end + 6))
    policy = read_cleanup_policy(it.cluster.catalog.read(), TOPIC, it.cluster.cluster_id)
    segments = list(iter_segments(iter_live_entries(it.store, head), policy.limits))[:-1]
    if segments:
        evict_segments(it.store, Partition(TOPIC, it.cluster.topics()[TOPIC].id, 0), segments)
    assert rows(it) == found
    assert not faults(it)


@pytest.mark.fact("F-C-079")
@pytest.mark.parametrize("pages", [False, True])
@pytest.mark.parametrize("at", [0, 1, 4, 7, 11, 12, 13, 16, 18, 23, 24, 25, 27, 28])
def test_both_tiers_end_at_the_cut(at: int, *, pages: bool) -> None:
    it = archived(pages=pages)
    assert (head_of(it.cluster).local_start, it.manifest().end) == (12, 24)
    before = rows(it)
    joined(it)
    assert cut(it, at) == TruncatedPartition(at, 28 - at)
    assert rows(it) == before[:at]
    head, manifest = head_of(it.opened()), it.manifest()
    assert (head.end, head.local_start) == (at, min(at, 12))
    assert manifest.end == head.uploaded_to == min(at, 24)
    assert manifest.records == min(at, 24)
    assert not manifest.garbage
    is_sound(it)
    assert not faults(it)
    assert cut(it, at) == TruncatedPartition(at, 28 - at)
    goes_on(it, at)


def test_what_is_remote_alone_is_cut_where_nothing_is_left_here() -> None:
    it = archived(12, evicted=0)
    it.switch_on(segment_max_upload_interval_sec="1")
    it.clock.now_ms += DAY
    it.upload()
    let_go(it, 5)
    before = rows(it)
    joined(it)
    assert cut(it, 9) == TruncatedPartition(9, 15)
    assert rows(it) == before[:9]
    head = head_of(it.opened())
    assert (head.local_start, head.end, head.entries, head.pages) == (9, 9, (), ())
    goes_on(it, 9)


@pytest.mark.parametrize("at", [0, 5, 8, 9, 12])
def test_a_cut_below_where_the_log_begins_leaves_nothing_and_the_log_goes_on_there(at: int) -> None:
    it = archived()
    it.clock.now_ms += DAY
    it.cluster.alter_topic(TOPIC, {"retention.bytes": "6000", "retention.ms": "-1"})
    it.cluster.upkeep().retain()
    start = head_of(it.cluster).start
    assert start > 8
    joined(it)
    assert cut(it, at) == TruncatedPartition(at, 28 - max(start, at))
    head = head_of(it.opened())
    assert (head.start, head.end) == (min(start, at), at)
    is_sound(it)
    goes_on(it, at)


def test_an_upload_that_began_before_the_cut_names_nothing_after_it() -> None:
    it = archived()
    joined(it)
    upkeep = it.opened().upkeep()
    upkeep.roll()
    it.switch_on(segment_max_upload_interval_sec="1")
    it.clock.now_ms += DAY
    slow = it.opened().upkeep()
    done: list[int] = []
    slow = replace(slow, may_go_on=lambda: done.append(cut(it, 24).records) if not done else None)
    slow.upload()
    assert done == [4]
    assert it.manifest().end == head_of(it.opened()).end == 24
    is_sound(it)
    goes_on(it, 24)


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize(("put", "at"), [(0, 1), (0, 10), (1, 2), (2, 6), (2, 10), (3, 9)])
def test_an_upload_during_which_the_log_is_cut_names_nothing_that_was_cut(
    monkeypatch: pytest.MonkeyPatch, put: int, at: int, *, dies: bool
) -> None:
    monkeypatch.setattr(uploads, "_CHORE_SEGMENTS", 1)
    it = tiered()
    append_parts(it.cluster, 3)
    it.upload()
    append_parts(it.cluster, 9)
    joined(it)
    upkeep = it.opened().upkeep()
    upkeep.roll()

    def spread(chores: Sequence[Chore], task: ChoreTask) -> Iterator[Sequence[Any]]:
        assert len(chores) == 4
        done = [*task(chores[:put])]
        if dies:
            with suppress(DiedError):
                truncate(it.opened(storage=dying(it.storage, 0, done=False)), {0: at})
        else:
            cut(it, at)
        mirror_more(it, 2)
        yield [*done, *task(chores[put:])]

    upkeep.upload(spread)
    assert cut(it, at).offset == at
    mirror_more(it, 12)
    assert not it.upload().errors
    found, manifest, head = rows(it), it.manifest(), head_of(it.opened())
    assert manifest.end == head.uploaded_to <= head.end == at + 14
    let_go(it, 2)
    assert rows(it) == found
    is_sound(it)
    goes_on(it, at + 14)


def test_without_its_object_storage_a_tiered_topic_is_not_cut() -> None:
    it = archived()
    joined(it)
    bare = EmbeddedCluster.open(it.store, now_ms=it.clock, new_id=ids())
    before = rows(it)
    with pytest.raises(UserError, match="the cluster is opened without one"):
        truncate(bare, {0: 3})
    assert rows(it) == before
