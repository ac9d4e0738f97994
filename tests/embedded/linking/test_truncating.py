"""A partition cut at an offset: what lies below stays, what lies above is gone, once for each operation."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.restore_cut import Cutting
from reconciler.embedded.segments.head import Partition, link_writer, swap_head
from reconciler.embedded.segments.pages import all_entries, all_pages
from reconciler.errors import UserError
from reconciler.resources.mirrors import Truncated
from tests.embedded.samples import values
from tests.embedded.tiered import Tiered
from tests.embedded.transacting import plain as send
from tests.embedded.transacting import writer
from tests.embedded.truncated import OPERATION, both_copied, cut, faults, is_sound, joined, mirror_more, rows, truncate
from tests.embedded.upkeeping import TOPIC, append, append_parts, head_of, parts_in, with_topic
from tests.embedded.watched import WatchedStore

if TYPE_CHECKING:
    from reconciler.embedded.segments.head import Head


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
    assert cut(it, at) == Truncated(at, 20 - at)
    assert rows(it) == before[:at]
    head = head_of(it.opened())
    assert (head.start, head.end, head.records) == (0, at, at)
    assert head.epochs[-1] == (2, at)
    assert len(list(all_entries(it.store, head))) == len(parts_in(it.store)) == (at + 1) // 2
    is_sound(it)
    assert not faults(it)
    mirror_more(it, 3)
    assert [offset for offset, _, _ in rows(it)] == list(range(at + 3))


@pytest.mark.parametrize("at", [7, 8, 100])
def test_beyond_the_end_there_is_nothing_to_cut(at: int) -> None:
    it = filled(3)
    joined(it)
    assert cut(it, at) == Truncated(6, 0)
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
    assert cut(it, 2, operation="operation-2") == Truncated(2, max(0, min(at, 6) + 4 - 2))
    assert len(rows(it)) == min(2, min(at, 6) + 4)


def test_what_is_mirrored_into_a_partition_that_was_never_written_to_is_not_cut_later() -> None:
    it = filled(0, partitions=3)
    joined(it)
    assert truncate(it.cluster, {0: 0, 1: 0, 2: 5}) == {number: Truncated(0, 0) for number in range(3)}
    mirror_more(it, 4, partition=1)
    assert truncate(it.cluster, {1: 0}) == {1: Truncated(0, 0)}
    assert len(rows(it, 1)) == 4


def test_partitions_are_cut_side_by_side_and_only_those_that_are_named() -> None:
    it = filled(2, partitions=3)
    append_parts(it.cluster, 3, partition=1)
    append_parts(it.cluster, 4, partition=2)
    joined(it)
    assert truncate(it.cluster, {0: 1, 2: 5}) == {0: Truncated(1, 3), 2: Truncated(5, 3)}
    assert [len(rows(it, number)) for number in range(3)] == [1, 6, 5]


@pytest.mark.fact("F-C-077")
def test_who_comes_after_a_failover_cuts_nothing() -> None:
    it = filled(3)
    joined(it)
    late = Cutting(it.store, None, it.cluster.cluster_id, it.cluster.catalog, link_writer("link-1"), OPERATION)
    it.cluster.linking.ask(TOPIC, "failover")
    append(it.opened(), ("k", "own"))
    with pytest.raises(UserError, match="topic orders is not cut: producers may write to it"):
        cut(it, 2)
    with pytest.raises(UserError, match="partition 0 is not cut: producers may write to it now, not link:link-1"):
        late.truncate(Partition(TOPIC, it.cluster.topics()[TOPIC].id, 0), 2)
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
    assert cut(it, at) == Truncated(at, 8 - max(6, at))
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
    pages = list(all_pages(it.store, head_of(it.opened())))
    assert {page.level for page in pages} == {0, 1}
    for at in (1, 1023, 2299):
        left = both_copied(it)
        watched = WatchedStore(left.store)
        assert truncate(left.opened(watched), {0: at}) == {0: Truncated(at, 2300 - at)}
        before_the_swap = itertools.takewhile(lambda call: call[0] != "swap", watched.calls)
        assert sum(key.startswith("pages/") for _, key in before_the_swap) <= 4
        assert rows(left) == before[:at]
        head = head_of(left.opened())
        assert head.records == at
        assert len(head.entries) <= 64
        is_sound(left)
        assert {listed.key for listed in left.store.list("pages/")} == {
            page.key for page in all_pages(left.store, head)
        }
        mirror_more(left, 2)
        assert not faults(left, deep=False)
