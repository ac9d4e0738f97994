"""Consumers of a log whose end was cut: they go on at the cut, skip nothing and read nothing twice (KIP-320)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.segments.groups import Committed
from reconciler.embedded.segments.head import Partition
from reconciler.embedded.segments.retention import cleanup_policy, raise_start
from reconciler.errors import UserError
from tests.embedded.linking.test_truncating import filled
from tests.embedded.truncated import archived, cut, joined, mirror_more, truncate
from tests.embedded.upkeeping import TOPIC, held

if TYPE_CHECKING:
    from reconciler.embedded.clients.consumer import Consumer
    from tests.embedded.tiered import Tiered


def offsets(consumer: Consumer, most: int = 1_000) -> list[int]:
    """Return the offsets of what is polled."""
    return [record.offset for fetched in consumer.poll(most) for record in fetched]


@pytest.fixture
def it() -> Tiered:
    return filled(5)


def test_a_consumer_beyond_the_cut_goes_on_at_the_cut_and_reads_all_that_is_mirrored(it: Tiered) -> None:
    consumer = it.opened().consumer("readers", topics=[TOPIC])
    assert offsets(consumer) == list(range(10))
    joined(it)
    cut(it, 6)
    assert offsets(consumer) == []
    assert consumer.position(TOPIC, 0) == 6
    mirror_more(it, 3)
    assert offsets(consumer) == [6, 7, 8]


def test_also_where_the_log_has_grown_beyond_its_position_before_it_looks_again(it: Tiered) -> None:
    consumer = it.opened().consumer("readers", topics=[TOPIC])
    assert offsets(consumer) == list(range(10))
    joined(it)
    cut(it, 6)
    mirror_more(it, 8)
    assert offsets(consumer) == list(range(6, 14))


def test_a_consumer_below_the_cut_is_not_concerned(it: Tiered) -> None:
    consumer = it.opened().consumer("readers", topics=[TOPIC])
    assert offsets(consumer, 4) == [0, 1, 2, 3]
    consumer.seek(TOPIC, 0, 4)
    joined(it)
    cut(it, 6)
    mirror_more(it, 2)
    assert offsets(consumer) == [4, 5, 6, 7]


def test_what_was_on_its_way_when_the_log_was_cut_is_read_and_then_it_goes_on_at_the_cut(it: Tiered) -> None:
    consumer = it.opened().consumer("readers", topics=[TOPIC])
    assert offsets(consumer, 3) == [0, 1, 2]
    joined(it)
    cut(it, 6)
    mirror_more(it, 2)
    seen: list[int] = []
    for _ in range(10):
        seen += offsets(consumer)
    assert seen[-2:] == [6, 7]
    assert set(seen) >= set(range(3, 8))
    assert consumer.position(TOPIC, 0) == 8


@pytest.mark.parametrize("mirrored", [0, 2, 8])
def test_a_consumer_that_is_to_begin_nowhere_is_told_and_goes_on_where_it_is_sought_to(
    it: Tiered, mirrored: int
) -> None:
    it.cluster.groups.commit("readers", {(TOPIC, 0): Committed(0)})
    consumer = it.opened().consumer("readers", topics=[TOPIC], auto_offset_reset="none")
    assert offsets(consumer) == list(range(10))
    joined(it)
    cut(it, 6)
    mirror_more(it, mirrored) if mirrored else None
    for _ in range(2):
        with pytest.raises(UserError, match=r"offset 10 is out of range: .* to offset 6"):
            consumer.poll()
    assert consumer.position(TOPIC, 0) == 10
    consumer.seek(TOPIC, 0, 6)
    assert offsets(consumer) == list(range(6, 6 + mirrored))


@pytest.mark.parametrize("sought", [0, 11])
def test_so_it_is_where_it_is_sought_to_what_the_log_does_not_have(it: Tiered, sought: int) -> None:
    it.cluster.groups.commit("readers", {(TOPIC, 0): Committed(0)})
    policy = cleanup_policy(it.cluster.catalog.read(), TOPIC, it.cluster.cluster_id)
    raise_start(it.store, Partition(TOPIC, it.cluster.topics()[TOPIC].id, 0), 3, policy.limits)
    consumer = it.opened().consumer("readers", topics=[TOPIC], auto_offset_reset="none")
    assert offsets(consumer) == list(range(3, 10))
    consumer.seek(TOPIC, 0, sought)
    with pytest.raises(UserError, match=f"offset {sought} is out of range: .* from offset 3 to offset 10"):
        consumer.poll()


@pytest.mark.parametrize("mirrored", [0, 2, 8])
def test_a_group_that_commits_after_the_cut_what_it_read_before_goes_on_at_the_cut(it: Tiered, mirrored: int) -> None:
    consumer = it.opened().consumer("readers", topics=[TOPIC])
    assert offsets(consumer) == list(range(10))
    joined(it)
    cut(it, 6)
    consumer.commit()
    mirror_more(it, mirrored) if mirrored else None
    (row,) = it.opened().groups.describe("readers").offsets
    assert (row.committed, row.lag) == (6, mirrored)
    assert offsets(it.opened().consumer("readers", topics=[TOPIC])) == list(range(6, 6 + mirrored))


def test_an_offset_that_was_committed_by_hand_beyond_the_end_is_read_from_the_end(it: Tiered) -> None:
    it.cluster.groups.commit("readers", {(TOPIC, 0): Committed(9)})
    joined(it)
    cut(it, 6)
    consumer = it.opened().consumer("readers", topics=[TOPIC])
    mirror_more(it, 3)
    assert offsets(consumer) == [6, 7, 8]


@pytest.mark.parametrize("at", [3, 11, 14, 20, 26])
def test_readers_meet_no_error_while_both_tiers_are_cut(at: int) -> None:
    it = archived(pages=True)
    joined(it)
    before = [row["value"] for row in held(it.opened())]
    stop = threading.Event()
    problems: list[Exception] = []
    looks: list[list[bytes | None]] = []

    def read() -> None:
        while not stop.is_set():
            try:
                looks.append([row["value"] for row in held(it.opened())])
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told
                problems.append(error)
                return

    def wait_for(count: int) -> None:
        while len(looks) < count and not problems:
            pass

    reader = threading.Thread(target=read)
    reader.start()
    try:
        wait_for(1)
        truncate(it.opened(), {0: at})
        wait_for(len(looks) + 2)
    finally:
        stop.set()
        reader.join()
    assert not problems
    assert all(before[: len(found)] == found and len(found) >= at for found in looks)
    assert looks[-1] == before[:at]
