"""Cutting a log whose keys were compacted: no key is lost by what superseded it and is cut."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.jobs.verify import verify
from reconciler.records.log import OffsetRange
from reconciler.resources.mirrors import Truncated
from tests.embedded.linking.linked import ORDERS, Linked
from tests.embedded.test_tiered_compacting import newest
from tests.embedded.tiered import Tiered, tiered
from tests.embedded.truncated import OPERATION, both_copied, cut, is_sound, joined, rows, truncate
from tests.embedded.upkeeping import TOPIC, append, head_of, held, with_topic
from tests.embedded.watched import DiedError, WatchedStore

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
    assert cut(it, at) == Truncated(0, 6)
    assert rows(it) == []
    assert head_of(it.opened()).compacted_to == 0
    is_sound(it)
    joined(theirs)
    assert cut(theirs, at) == Truncated(at, 8 - at)
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
    assert cut(it, 8) == Truncated(8, 3)
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
        assert verify(None, linked.west.log(ORDERS), linked.east.log(ORDERS), deep=False).is_equal
        assert verify(None, linked.west.log(ORDERS), linked.east.log(ORDERS), deep=True).is_equal


def copy(source: Tiered, mirror: Tiered) -> None:
    """Bring the mirror to the end of its source."""
    log, sink = source.opened().log(TOPIC), mirror.opened().sink(TOPIC)
    at = OffsetRange(sink.ends()[0], log.bounds()[0].end)
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
    assert truncate(cutting, {0: 7}) == {0: Truncated(0, 8)}
    assert done
    assert truncate(it.opened(), {0: 7}) == {0: Truncated(0, 8)}
    assert rows(it) == []
    is_sound(it)
