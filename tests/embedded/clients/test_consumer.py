"""Consumers: what they read, where they go on, and which topics a subscription means."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.archives.topic_manifest import CommittedOffset
from reconciler.embedded.catalog.model import AclEntry, NamespaceEntry
from reconciler.embedded.segments.head import Partition
from reconciler.embedded.segments.retention import raise_start, read_cleanup_policy
from reconciler.errors import InvalidNamespaceError, MissingObjectError, NotAuthorizedError, UserError
from reconciler.records.schema import match_names
from tests.embedded.links.linked import archived, cut, joined, mirror_more, truncate
from tests.embedded.maintenance.tiny_segments import TOPIC, held
from tests.embedded.samples import cluster_in, values
from tests.embedded.segments.test_truncation import filled
from tests.embedded.stores import WatchedStore

if TYPE_CHECKING:
    from reconciler.embedded.clients.consumer import Consumer
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore
    from tests.embedded.tiered.tiered_cluster import Tiered


def append(cluster: EmbeddedCluster, topic: str, *contents: str, partition: int = 0) -> None:
    producer = cluster.producer()
    producer.append(topic, values(*contents, partition=[partition] * len(contents)))
    producer.flush()


def polled(consumer: Consumer, most: int = 1000) -> list[tuple[str, int, int, bytes | None]]:
    return [
        (fetched.topic, record.partition, record.offset, record.value)
        for fetched in consumer.poll(most)
        for record in fetched
    ]


def seen(consumer: Consumer) -> list[bytes]:
    return [value or b"" for *_, value in polled(consumer)]


def polled_dry(consumer: Consumer) -> None:
    while polled(consumer):
        pass


@pytest.fixture
def orders(cluster: EmbeddedCluster) -> EmbeddedCluster:
    cluster.create_topic("orders", partitions=2)
    append(cluster, "orders", "a", "b", "c")
    append(cluster, "orders", "x", "y", partition=1)
    return cluster


# -- reading on


def test_a_poll_returns_what_is_new_and_nothing_when_all_is_read(orders: EmbeddedCluster) -> None:
    consumer = orders.consumer(topics=["orders"])
    assert sorted(seen(consumer)) == [b"a", b"b", b"c", b"x", b"y"]
    assert polled(consumer) == []
    append(orders, "orders", "d")
    assert polled(consumer) == [("orders", 0, 3, b"d")]


def test_records_come_as_arrow_batches_too(orders: EmbeddedCluster) -> None:
    [fetched] = orders.consumer(topics=["orders"], partitions=[1]).poll()
    assert fetched.records.column("value").to_pylist() == [b"x", b"y"]
    assert len(fetched) == 2


def test_small_polls_read_everything_once_and_partitions_take_turns(store: ObjectStore) -> None:
    watched = WatchedStore(store)
    cluster = cluster_in(watched)
    cluster.create_topic("orders", partitions=2)
    for partition in (0, 1):
        append(cluster, "orders", *(f"{partition}-{number}" for number in range(50)), partition=partition)
    consumer = cluster.consumer(topics=["orders"])
    watched.calls.clear()
    rounds = [polled(consumer, 7) for _ in range(15)]
    assert sorted(value or b"" for each in rounds for *_, value in each) == sorted(
        f"{partition}-{number}".encode() for partition in (0, 1) for number in range(50)
    )
    assert {place for _, place, *_ in rounds[0] + rounds[1]} == {0, 1}
    assert watched.count("get_range", "topics/") == 2


def test_a_group_goes_on_where_it_committed_and_not_where_it_had_read(orders: EmbeddedCluster) -> None:
    first = orders.consumer("checkout", topics=["orders"], partitions=[0])
    assert polled(first, 2) == [("orders", 0, 0, b"a"), ("orders", 0, 1, b"b")]
    first.commit()
    assert seen(first) == [b"c"]
    second = orders.consumer("checkout", topics=["orders"], partitions=[0])
    assert (second.committed(), second.lag()) == ({("orders", 0): 2}, {("orders", 0): 1})
    assert seen(second) == [b"c"]


def test_a_partition_that_cannot_be_read_takes_no_records_of_others_with_it(orders: EmbeddedCluster) -> None:
    head = orders.log("orders").read_head(1)
    assert head is not None
    key = head.entries[0].key
    stored = orders.store.get(key)
    assert stored is not None
    orders.store.delete([key])
    consumer = orders.consumer("checkout", topics=["orders"])
    assert seen(consumer) == [b"a", b"b", b"c"]
    with pytest.raises(MissingObjectError, match="orders, partition 1"):
        consumer.poll()
    consumer.commit()
    assert consumer.committed() == {("orders", 0): 3, ("orders", 1): 0}
    orders.store.put(key, stored.body)
    assert seen(consumer) == [b"x", b"y"]


def test_two_consumers_of_a_group_with_their_own_partitions_share_its_offsets(orders: EmbeddedCluster) -> None:
    def consume(partition: int) -> list[bytes]:
        consumer = orders.consumer("checkout", topics=["orders"], partitions=[partition])
        found = seen(consumer)
        consumer.commit()
        return found

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(consume, (0, 1))) == [[b"a", b"b", b"c"], [b"x", b"y"]]
    assert {place: each.offset for place, each in orders.groups.fetch("checkout").items()} == {
        ("orders", 0): 3,
        ("orders", 1): 2,
    }


@pytest.mark.parametrize(("beginning", "found"), [("earliest", [b"a", b"b", b"c"]), ("latest", [])])
def test_what_a_group_never_committed_begins_where_it_is_told(
    orders: EmbeddedCluster, beginning: str, found: list[bytes]
) -> None:
    consumer = orders.consumer("new", topics=["orders"], partitions=[0], auto_offset_reset=beginning)  # type: ignore[arg-type]  # parametrized
    assert seen(consumer) == found
    append(orders, "orders", "d")
    assert seen(consumer) == [b"d"]


def test_a_consumer_told_to_begin_nowhere_refuses_what_was_never_committed(orders: EmbeddedCluster) -> None:
    orders.groups.commit("checkout", {("orders", 0): 1})
    consumer = orders.consumer("checkout", topics=["orders"], partitions=[0], auto_offset_reset="none")
    assert seen(consumer) == [b"b", b"c"]
    with pytest.raises(UserError, match="orders, partition 1: group checkout never committed"):
        orders.consumer("checkout", topics=["orders"], auto_offset_reset="none")


@pytest.mark.parametrize("word", ["first", "EARLIEST", None])
def test_a_consumer_told_to_begin_where_nobody_could_is_refused(orders: EmbeddedCluster, word: Any) -> None:
    with pytest.raises(UserError, match="not a start position"):
        orders.consumer("readers", topics=["orders"], auto_offset_reset=word)


def test_seeking_reads_again_and_leaves_what_is_committed(orders: EmbeddedCluster) -> None:
    consumer = orders.consumer("checkout", topics=["orders"], partitions=[0])
    seen(consumer)
    consumer.commit()
    consumer.seek("orders", 0, 1)
    assert consumer.position("orders", 0) == 1
    assert polled(consumer, 1) == [("orders", 0, 1, b"b")]
    assert consumer.position("orders", 0) == 2
    assert consumer.committed() == {("orders", 0): 3}
    consumer.seek("orders", 0, 10**12)
    assert polled(consumer) == []
    for partition, offset in ((1, 0), (0, -1)):
        with pytest.raises(UserError):
            consumer.seek("orders", partition, offset)


def test_without_a_group_nothing_is_committed(orders: EmbeddedCluster) -> None:
    consumer = orders.consumer(topics=["orders"])
    for refused in (consumer.commit, consumer.committed):
        with pytest.raises(UserError, match="without a group"):
            refused()
    assert orders.groups.list_names() == []


def test_new_partitions_join_and_a_topic_made_anew_is_read_from_its_beginning(orders: EmbeddedCluster) -> None:
    consumer = orders.consumer("checkout", topics=["orders"])
    seen(consumer)
    consumer.commit()
    orders.alter_topic("orders", partitions=3)
    append(orders, "orders", "late", partition=2)
    assert polled(consumer) == [("orders", 2, 0, b"late")]
    orders.delete_topic("orders")
    orders.create_topic("orders")
    append(orders, "orders", "again")
    assert polled(consumer) == [("orders", 0, 0, b"again")]


def test_a_topic_that_is_named_and_gone_is_said_and_the_rest_is_read_when_it_is_back(orders: EmbeddedCluster) -> None:
    orders.create_topic("other")
    consumer = orders.consumer(topics=["orders", "other"])
    seen(consumer)
    orders.delete_topic("other")
    with pytest.raises(UserError, match="topic other does not exist"):
        consumer.poll()
    orders.create_topic("other")
    append(orders, "other", "o")
    assert seen(consumer) == [b"o"]


def test_a_part_that_is_missing_is_said_and_the_other_partitions_are_still_read(orders: EmbeddedCluster) -> None:
    [part] = [listed.key for listed in orders.store.list("topics/orders_0/")]
    orders.store.delete([part])
    consumer = orders.consumer(topics=["orders"])
    for _ in range(2):
        with pytest.raises(MissingObjectError, match="orders, partition 0"):
            polled_dry(consumer)
    consumer.seek("orders", 0, 3)
    append(orders, "orders", "d")
    assert b"d" in seen(consumer)


def test_one_topic_in_place_of_many_and_no_partition_at_all_are_refused(orders: EmbeddedCluster) -> None:
    cases: tuple[dict[str, Any], ...] = (
        {"topics": "orders"},
        {},
        {"topics": []},
        {"topics": ["orders"], "pattern": ".*"},
        {"topics": ["orders"], "partitions": [2]},
        {"topics": ["orders"], "partitions": [-1]},
    )
    for wrong in cases:
        with pytest.raises(UserError):
            orders.consumer(**wrong)
    with pytest.raises(InvalidNamespaceError):
        orders.consumer(topics=["shop:orders"])


def test_who_may_not_read_a_topic_does_not_see_it_by_pattern_and_is_refused_by_name(cluster: EmbeddedCluster) -> None:
    cluster.create_namespace("shop")
    cluster.create_topic("shop:orders")
    cluster.create_topic("free")
    append(cluster, "shop:orders", "secret")
    rule = AclEntry("User:owner", "allow", ("all",))
    cluster.catalog.commit(lambda draft: draft.put_namespace("shop", NamespaceEntry(acls=(rule,))))
    guest = cluster.acting_as("User:guest")
    assert guest.consumer(pattern=".*").assignment() == [("free", 0)]
    with pytest.raises(NotAuthorizedError):
        seen(guest.consumer(topics=["shop:orders"]))


# -- patterns


@pytest.mark.fact("F-K-021")
def test_a_pattern_sees_full_names_of_all_namespaces_and_those_made_later(cluster: EmbeddedCluster) -> None:
    for namespace in ("shop:eu", "bank"):
        cluster.create_namespace(namespace)
    for name in ("orders", "shop:orders", "shop:eu:orders", "bank:orders"):
        cluster.create_topic(name)
    everything, below = cluster.consumer(pattern=".*"), cluster.consumer("g", pattern="shop:.*")
    assert [topic for topic, _ in everything.assignment()] == ["bank:orders", "orders", "shop:eu:orders", "shop:orders"]
    assert [topic for topic, _ in below.assignment()] == ["shop:eu:orders", "shop:orders"]
    cluster.create_namespace("shop:us")
    cluster.create_topic("shop:us:orders")
    append(cluster, "shop:us:orders", "later")
    assert polled(below) == [("shop:us:orders", 0, 0, b"later")]
    assert ("shop:us:orders", 0, 0, b"later") in polled(everything)


@pytest.mark.fact("F-K-021")
def test_a_pattern_made_before_namespaces_can_match_a_later_one(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("blaa")
    consumer = cluster.consumer(pattern="bla.*")
    assert [topic for topic, _ in consumer.assignment()] == ["blaa"]
    cluster.create_namespace("bla")
    cluster.create_topic("bla:other")
    consumer.poll()
    assert [topic for topic, _ in consumer.assignment()] == ["bla:other", "blaa"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("orders", ["orders"]),
        ("order", []),
        ("rders", []),
        (".*orders", ["a.b:orders", "orders", "x-orders"]),
        ("a.b:.*", ["a.b:orders"]),
        (r"a\.b:orders|orders", ["a.b:orders", "orders"]),
        ("orders|x", ["orders"]),
        ("(?i)ORDERS", ["orders"]),
        ("[^:]+", ["orders", "x-orders"]),
        ("", []),
        (r"\Qa.b\E:.*", ["a.b:orders"]),
    ],
)
def test_a_pattern_must_match_the_whole_name(pattern: str, found: list[str]) -> None:
    assert match_names(pattern, ["a.b:orders", "orders", "x-orders"]) == found


@pytest.mark.parametrize(
    "pattern", ["[", "(", "a)|(b", "*", "a{1001}", "(a{999}){999}", "\ud800", "x" * 10_001, "(?=a)"]
)
def test_what_is_no_pattern_or_too_large_is_refused(cluster: EmbeddedCluster, pattern: str) -> None:
    with pytest.raises(UserError, match="regular expression"):
        cluster.consumer(pattern=pattern)


def test_no_pattern_takes_long(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("a" * 249)
    began = time.monotonic()
    for pattern in ("(a+)+b", "(a|aa)+$b", "(a*)*b", "(.*.*.*.*.*)*b", "(a?){200}a{200}b"):
        assert cluster.consumer(pattern=pattern).assignment() == []
    assert time.monotonic() - began < 5


def test_a_topic_that_moves_is_followed_by_pattern_where_it_left_off(cluster: EmbeddedCluster) -> None:
    cluster.create_namespace("shop")
    cluster.create_topic("orders")
    append(cluster, "orders", "a")
    consumer = cluster.consumer("g", pattern=".*orders")
    assert seen(consumer) == [b"a"]
    cluster.move_topic("orders", "shop:orders")
    append(cluster, "shop:orders", "b")
    assert polled(consumer) == [("shop:orders", 0, 1, b"b")]
    consumer.commit()
    assert {place: each.offset for place, each in cluster.groups.fetch("g").items()} == {("shop:orders", 0): 2}


# -- transactions


def test_an_aborted_end_is_passed_and_what_is_undecided_is_waited_for(orders: EmbeddedCluster) -> None:
    writer = orders.producer("writer")
    writer.init_transactions()
    writer.begin()
    writer.append("orders", values("no", "never", partition=[0, 0]))
    writer.flush()
    committed = orders.consumer("g", topics=["orders"], partitions=[0])
    uncommitted = orders.consumer(topics=["orders"], partitions=[0], isolation="read_uncommitted")
    assert seen(committed) == [b"a", b"b", b"c"]
    assert seen(uncommitted) == [b"a", b"b", b"c", b"no", b"never"]
    assert (committed.position("orders", 0), committed.lag()) == (3, {("orders", 0): 0})
    writer.abort()
    assert seen(committed) == []
    assert committed.position("orders", 0) == 5
    committed.commit()
    append(orders, "orders", "d")
    assert polled(orders.consumer("g", topics=["orders"], partitions=[0])) == [("orders", 0, 5, b"d")]


# Consumers of a log whose end was cut: they go on at the cut, skip nothing and read nothing twice (KIP-320).


def offsets(consumer: Consumer, most: int = 1_000) -> list[int]:
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
    it.cluster.groups.commit("readers", {(TOPIC, 0): CommittedOffset(0)})
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
    it.cluster.groups.commit("readers", {(TOPIC, 0): CommittedOffset(0)})
    policy = read_cleanup_policy(it.cluster.catalog.read(), TOPIC, it.cluster.cluster_id)
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


def test_so_does_a_group_whose_positions_a_transaction_committed_before_the_cut(it: Tiered) -> None:
    consumer, producer = it.opened().consumer("readers", topics=[TOPIC]), it.opened().producer("writer")
    assert offsets(consumer) == list(range(10))
    producer.init_transactions()
    with producer.transaction():
        producer.send_offsets("readers", consumer.positions())
    joined(it)
    cut(it, 6)
    mirror_more(it, 8)
    assert offsets(it.opened().consumer("readers", topics=[TOPIC])) == list(range(6, 14))


def test_an_offset_that_was_committed_by_hand_beyond_the_end_is_read_from_the_end(it: Tiered) -> None:
    it.cluster.groups.commit("readers", {(TOPIC, 0): CommittedOffset(9)})
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
