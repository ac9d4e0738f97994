"""Appending: partitions, times, sizes, and what a topic's configs refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from reconciler.embedded.catalog.mirror_tables import MirrorShape
from reconciler.embedded.clients import producer as producing
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.segments import parts
from reconciler.embedded.segments import parts as parts_module
from reconciler.embedded.segments.head import read_head
from reconciler.errors import LostRaceError, RetryableError, UserError
from reconciler.records.hashes import RoundRobinPosition, assign_partitions
from reconciler.records.log import OffsetRange
from reconciler.records.schema import INPUT_SCHEMA
from reconciler.resources.mirrors import LinkEntry, SourceTopic
from tests.contracts.lossy import LossyStore
from tests.embedded.clients.transactional_producers import Silent, head, plain, seen
from tests.embedded.samples import NOW, cluster_in, contents, ids, numbered, read, values
from tests.embedded.stores import WatchedStore

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore, Version


DAY = 86_400_000


def append(cluster: EmbeddedCluster, batch: pa.RecordBatch, topic: str = "orders") -> dict[int, OffsetRange]:
    producer = cluster.producer()
    producer.append(topic, batch)
    return producer.flush()[topic]


def test_offsets_are_dense_from_append_to_append(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders")
    assert append(cluster, values("a", "b")) == {0: OffsetRange(0, 2)}
    assert append(cluster, values("c")) == {0: OffsetRange(2, 3)}
    assert contents(cluster.log("orders")) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_keys_decide_the_partition_and_keep_their_order(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders", partitions=5)
    keys = [b"k%d" % (number % 37) for number in range(500)]
    batch = values(*[f"v{number}" for number in range(500)], key=keys)
    append(cluster, batch)
    expected = assign_partitions(batch.column("key"), 5, state=RoundRobinPosition()).to_pylist()
    log = cluster.log("orders")
    for partition in range(5):
        mine = [(key, b"v%d" % number) for number, key in enumerate(keys) if expected[number] == partition]
        assert [(row["key"], row["value"]) for row in read(log, partition)] == mine


def test_records_without_a_key_take_turns_across_flushes(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders", partitions=3)
    producer = cluster.producer()
    for _ in range(3):
        producer.append("orders", values(*["x"] * 1_000))
        producer.flush()
    assert [bounds.end for bounds in cluster.log("orders").read_bounds().values()] == [1_000, 1_000, 1_000]


def test_a_record_may_name_its_partition(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders", partitions=3)
    append(cluster, values("a", "b", "c", partition=pa.array([2, None, 0], pa.int32()), key=[b"k", b"k", b"k"]))
    for missing in (3, -1):
        with pytest.raises(UserError, match=f"partition {missing}: the topic does not have it"):
            append(cluster, values("d", partition=pa.array([missing], pa.int32())))
    log = cluster.log("orders")
    chosen = assign_partitions(pa.array([b"k"]), 3, state=RoundRobinPosition()).to_pylist()[0]
    assert b"a" in [row["value"] for row in read(log, 2)]
    assert b"b" in [row["value"] for row in read(log, chosen)]
    assert sum(bounds.end for bounds in log.read_bounds().values()) == 3


def test_text_is_taken_as_utf8_and_what_records_that_were_read_have_besides_is_left_out(
    cluster: EmbeddedCluster,
) -> None:
    cluster.create_topic("orders")
    batch = pa.RecordBatch.from_pydict({"value": ["é"], "key": ["k"], "offset": [77], "topic": ["more"]})
    append(cluster, batch)
    (row,) = read(cluster.log("orders"))
    assert (row["offset"], row["key"], row["value"], row["headers"]) == (0, b"k", "é".encode(), [])


@pytest.mark.parametrize(
    ("columns", "said", "hint"),
    [
        ({"val": ["a"]}, "val is no column", "Did you mean value?"),
        ({"value": ["a"], "Key": ["k"]}, "Key is no column", "Did you mean key?"),
        ({"value": ["a"], "zone": ["a"]}, "zone is no column", "value, key, headers, timestamp_ms, partition"),
        ({"value": [5]}, "column value takes binary, not int64", "Cast"),
        ({"timestamp_ms": ["x"]}, "column timestamp_ms takes int64, not string", "Cast"),
        ({"timestamp_ms": pa.array([1], pa.duration("s"))}, "column timestamp_ms takes int64", "Cast"),
        ({"headers": [5]}, "column headers takes list", "Cast"),
    ],
)
def test_a_batch_with_a_column_no_record_has_is_refused_and_takes_nothing_with_it(
    cluster: EmbeddedCluster, columns: dict[str, Any], said: str, hint: str
) -> None:
    cluster.create_topic("orders")
    batch = pa.RecordBatch.from_pydict(columns)
    sequenced = cluster.sequenced_producer("loader")
    with cluster.producer("shop") as transactional, cluster.producer() as producer:
        transactional.init_transactions()
        transactional.begin()
        producer.send("orders", "good")
        for append in (
            lambda: producer.append("orders", batch),
            lambda: transactional.append("orders", batch),
            lambda: sequenced.append("orders", 0, batch, sequence=0),
        ):
            with pytest.raises(UserError, match=f"orders: {said}") as refused:
                append()
            assert hint in refused.value.hint
    assert contents(cluster.log("orders")) == [(0, b"good")]


@pytest.mark.parametrize(
    "records", [{"value": ["a"]}, pa.Table.from_pydict({"value": ["a"]}), [{"value": "a"}], None], ids=type
)
def test_what_is_no_record_batch_is_refused(cluster: EmbeddedCluster, records: Any) -> None:
    with pytest.raises(UserError, match=r"append takes a pyarrow\.RecordBatch"):
        cluster.producer().append("orders", records)


def test_a_partition_no_topic_can_have_is_refused_before_it_is_written(cluster: EmbeddedCluster) -> None:
    with pytest.raises(UserError, match="orders: column partition takes int32, not int64"):
        cluster.producer().append("orders", values("a", partition=[1 << 40]))


def test_a_column_twice_is_refused(cluster: EmbeddedCluster) -> None:
    twice = pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array(["b"])], ["value", "value"])
    with pytest.raises(UserError, match="2 columns are named value"):
        cluster.producer().append("orders", twice)


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"x"}])
def test_a_header_without_a_name_is_refused(cluster: EmbeddedCluster, header: dict[str, Any] | None) -> None:
    named = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
    headers = pa.array([[{"key": "a", "value": b"x"}], [header]], named)
    problem = "orders: column headers has a header that is null, or whose name is"
    for column in (headers, headers.cast(pa.large_list(named.value_type))):
        with pytest.raises(UserError, match=problem) as refused:
            cluster.producer().append("orders", pa.RecordBatch.from_pydict({"headers": column}))
        assert refused.value.hint == "A header has a name; its value may be null. Nothing of this batch was accepted."


def test_times_of_any_unit_are_milliseconds_and_no_headers_are_none(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders")
    times = pa.array([NOW * 1_000 + 1, None], pa.timestamp("us", "UTC"))
    headers = pa.array([None, [("a", b"x")]], pa.map_(pa.string(), pa.binary()))
    append(cluster, pa.RecordBatch.from_pydict({"timestamp_ms": times, "headers": headers}))
    append(cluster, pa.RecordBatch.from_pydict({"headers": pa.array([None, []], INPUT_SCHEMA.field("headers").type)}))
    found = [(row["timestamp_ms"], row["headers"]) for row in read(cluster.log("orders"))]
    assert found == [(NOW, []), (NOW, [{"key": "a", "value": b"x"}]), (NOW, []), (NOW, [])]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"value": 5}, r"orders: value takes text, bytes or None, not 5 \(int\)"),
        ({"value": [1, 2]}, r"orders: value takes text, bytes or None, not \[1, 2\] \(list\)"),
        ({"value": "\ud800"}, "orders: value takes text that can be written as UTF-8"),
        ({"key": 1.5}, r"orders: key takes text, bytes or None, not 1\.5 \(float\)"),
        ({"headers": {"a": 5}}, r"orders: header a takes text, bytes or None, not 5 \(int\)"),
        ({"headers": {5: "a"}}, r"orders: the name of a header takes text, not 5 \(int\)"),
        ({"headers": ["a"]}, "orders: headers take a mapping"),
        ({"timestamp_ms": "x"}, r"orders: timestamp_ms takes a whole number, not 'x' \(str\)"),
        ({"timestamp_ms": ["x"]}, "orders: timestamp_ms takes a whole number"),
        ({"timestamp_ms": 1 << 63}, "orders: timestamp_ms takes a whole number of 64 bits"),
        ({"partition": "0"}, "orders: partition takes a whole number"),
        ({"partition": True}, "orders: partition takes a whole number"),
        ({"partition": 1 << 31}, "orders: partition takes a whole number of 32 bits"),
    ],
)
def test_a_record_with_a_field_it_cannot_have_is_refused_when_it_is_sent_and_alone(
    cluster: EmbeddedCluster, given: dict[str, Any], said: str
) -> None:
    cluster.create_topic("orders")
    with cluster.producer() as producer:
        producer.send("orders", "good")
        with pytest.raises(UserError, match=said):
            producer.send("orders", **given)
        producer.send("orders", bytearray(b"too"), partition=np.int32(0))  # type: ignore[arg-type]  # as good as bytes
    assert contents(cluster.log("orders")) == [(0, b"good"), (1, b"too")]


def test_single_records_and_batches_keep_the_order_they_were_given(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders")
    with cluster.producer() as producer:
        producer.send("orders", "a")
        producer.append("orders", values("b"))
        producer.send("orders", "c")
    assert contents(cluster.log("orders")) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_a_block_that_raised_writes_nothing(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders")

    def send_and_fail() -> None:
        with cluster.producer() as producer:
            producer.send("orders", "a")
            raise KeyError

    with pytest.raises(KeyError):
        send_and_fail()
    assert read(cluster.log("orders")) == []


def test_an_empty_batch_appends_nothing(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders")
    producer = cluster.producer()
    producer.append("orders", values())
    assert producer.flush() == {}
    assert cluster.log("orders").read_bounds()[0].end == 0


def test_many_records_are_written_before_the_end(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create_topic("orders")
    monkeypatch.setattr(producing, "FLUSH_BYTES", 2_000)
    producer = cluster.producer()
    producer.append("orders", values(*["x" * 100] * 200))
    written = cluster.log("orders").read_bounds()[0].end
    assert 150 < written <= 200
    assert producer.flush()["orders"] == {0: OffsetRange(0, 200)}


def test_many_single_records_are_written_before_the_end(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic("orders")
    monkeypatch.setattr(producing, "FLUSH_RECORDS", 10)
    monkeypatch.setattr(producing, "FLUSH_BYTES", 100)
    producer = cluster.producer()
    for number in range(25):
        producer.send("orders", str(number))
    assert cluster.log("orders").read_bounds()[0].end == 20
    assert producer.flush() == {"orders": {0: OffsetRange(0, 25)}}
    assert [value for _, value in contents(cluster.log("orders"))] == [b"%d" % number for number in range(25)]


def test_large_single_records_are_written_before_they_fill_the_memory(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic("orders")
    monkeypatch.setattr(producing, "FLUSH_BYTES", 2_000)
    producer = cluster.producer()
    for fields in ({"value": "x" * 900}, {"key": "x" * 900}, {"headers": {"h": "x" * 300}}):
        producer.send("orders", **fields)
    assert cluster.log("orders").read_bounds()[0].end == 3
    producer.send("orders", "x" * 900)
    assert cluster.log("orders").read_bounds()[0].end == 3
    assert producer.flush() == {"orders": {0: OffsetRange(0, 4)}}


# -- time


def test_a_record_without_a_time_gets_the_present_one(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders")
    append(cluster, values("a", "b", timestamp_ms=pa.array([None, NOW - 5], pa.int64())))
    assert [(row["timestamp_ms"], row["timestamp_type"]) for row in read(cluster.log("orders"))] == [
        (NOW, 0),
        (NOW - 5, 0),
    ]


def test_append_time_takes_the_clock_of_the_cluster(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders", configs={"message.timestamp.type": "LogAppendTime"})
    append(cluster, values("a", timestamp_ms=[NOW + 9 * DAY]))
    assert [(row["timestamp_ms"], row["timestamp_type"]) for row in read(cluster.log("orders"))] == [(NOW, 1)]


@pytest.mark.parametrize(
    ("configs", "time", "raised"),
    [
        ({"message.timestamp.before.max.ms": "1h"}, NOW - DAY, "message.timestamp.before.max.ms"),
        ({"message.timestamp.after.max.ms": "1h"}, NOW + DAY, "message.timestamp.after.max.ms"),
        ({"message.timestamp.difference.max.ms": "1h"}, NOW - DAY, "message.timestamp.difference.max.ms"),
    ],
)
def test_a_refused_time_names_the_config_that_refuses_it(
    cluster: EmbeddedCluster, configs: dict[str, str], time: int, raised: str
) -> None:
    cluster.create_topic("orders", configs=configs)
    with pytest.raises(UserError) as refused:
        append(cluster, values("a", timestamp_ms=[time]))
    assert refused.value.hint == f"{raised} of the topic is 3,600,000; correct the time, or raise it."
    cluster.alter_topic("orders", {raised: "2d"})
    append(cluster, values("a", timestamp_ms=[time]))


@pytest.mark.parametrize(
    ("configs", "time", "word"),
    [
        ({}, NOW + DAY, r"86,400,000 ms after now"),
        ({"message.timestamp.before.max.ms": "1h"}, NOW - DAY, r"before now"),
        ({"message.timestamp.difference.max.ms": "1h"}, NOW - DAY, r"before now"),
        ({}, -5, r"of the batch is -5 ms"),
        ({}, -(1 << 63), r"of the batch is -9,223,372,036,854,775,808 ms"),
        ({}, -(1 << 62), r"of the batch is -4,611,686,018,427,387,904 ms"),
    ],
)
def test_times_too_far_off_are_refused(cluster: EmbeddedCluster, configs: dict[str, str], time: int, word: str) -> None:
    cluster.create_topic("orders", configs=configs)
    with pytest.raises(UserError, match=rf"orders: the time of record 1 .*{word} \(INVALID_TIMESTAMP\)"):
        append(cluster, values("a", "b", timestamp_ms=[NOW, time]))
    assert read(cluster.log("orders")) == []


def test_the_first_offset_at_or_after_a_time_is_found(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders")
    for first in (0, 10, 20):
        append(cluster, values("a", "b", "c", timestamp_ms=[first + 3, first + 1, first + 5]))
    log = cluster.log("orders")
    found = [log.find_offset_at(0, time) for time in (0, 2, 4, 5, 6, 12, 25, 26)]
    assert found == [0, 0, 2, 2, 3, 3, 8, None]
    assert [record.offset for record in cluster.consume("orders", start_ms=14)] == [5, 6, 7, 8]
    assert list(cluster.consume("orders", start_ms=26)) == []


# -- size


def headers(content: bytes | None) -> list[dict[str, Any]]:
    return [{"key": "h", "value": content}]


@pytest.mark.parametrize("columns", [{}, {"key": [b"k", b"k" * 41]}, {"headers": [headers(None), headers(b"x" * 40)]}])
def test_a_record_larger_than_the_topic_takes_is_refused(cluster: EmbeddedCluster, columns: dict[str, Any]) -> None:
    cluster.create_topic("orders", configs={"max.message.bytes": "100"})
    value = "x" * (101 if not columns else 60)
    with pytest.raises(UserError, match=r"orders: record 1 of the batch has 101 bytes") as error:
        append(cluster, values("small", value, **columns))
    assert "(MESSAGE_TOO_LARGE)" in error.value.message
    assert "max.message.bytes of the topic is 100" in error.value.hint
    assert read(cluster.log("orders")) == []


def test_a_record_of_just_the_limit_is_taken(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders", configs={"max.message.bytes": "100"})
    append(cluster, values(*["x" * 100] * 3, None))
    assert len(read(cluster.log("orders"))) == 4


# -- keys


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_takes_no_record_without_a_key(cluster: EmbeddedCluster, policy: str) -> None:
    cluster.create_topic("orders", configs={"cleanup.policy": policy})
    cluster.create_topic("other")
    producer = cluster.producer()
    producer.append("other", values("c"))
    producer.append("orders", values("a", "b", key=pa.array([b"k", None], pa.binary())))
    with pytest.raises(UserError, match=r"record 1 of the batch has no key: Compacted topic cannot accept message"):
        producer.flush()
    assert producer.flush() == {"other": {0: OffsetRange(0, 1)}}
    append(cluster, values("a", None, key=[b"", b"k"]))
    assert len(read(cluster.log("orders"))) == 2


# -- parts


@pytest.mark.parametrize("codec", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_reads_back(cluster: EmbeddedCluster, codec: str) -> None:
    cluster.create_topic("orders", configs={"compression.type": codec})
    append(cluster, numbered(0, 50))
    assert read(cluster.log("orders"), 0, 10, 20) == [row | {"partition": 0} for row in numbered(10, 10).to_pylist()]


def test_a_large_append_is_cut_into_parts_published_by_one_swap(cluster: EmbeddedCluster, store: ObjectStore) -> None:
    cluster.create_topic("orders", configs={"segment.bytes": "50000"})
    random = np.random.default_rng(1)
    values_given = [random.bytes(100) for _ in range(3_000)]
    append(cluster, values(*values_given))
    head = read_head(store, cluster.topic("orders").id, 0)
    assert head is not None
    assert len(head.entries) > 300_000 // 50_000
    assert all(25_000 < entry.bytes <= 50_000 for entry in head.entries[:-1])
    assert [entry.base for entry in head.entries] == [0, *[entry.last + 1 for entry in head.entries[:-1]]]
    assert [row["value"] for row in read(cluster.log("orders"))] == values_given
    assert [row["value"] for row in read(cluster.log("orders"), 0, 350, 2_050)] == values_given[350:2_050]


def test_a_stretch_of_a_large_part_is_read_without_the_rest(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "GROUP_ROWS", 500)
    monkeypatch.setattr(parts_module, "_WHOLE_BYTES", 1_000)
    cluster.create_topic("orders")
    append(cluster, numbered(0, 5_000))
    log = cluster.log("orders")
    for start, stop in ((0, 1), (499, 501), (1_200, 2_600), (4_999, 6_000)):
        assert read(log, 0, start, stop) == numbered(start, min(stop, 5_000) - start).to_pylist()
    assert log.find_offset_at(0, NOW + 3_210) == 3_210


# -- gates


def test_a_mirror_takes_no_records_from_producers(cluster: EmbeddedCluster) -> None:
    cluster.create_link("from-west", LinkEntry("link-1", "west"))
    cluster.create_mirror("orders", MirrorShape(link="from-west", source="orders"), SourceTopic(partitions=1))
    with pytest.raises(UserError, match="orders is a mirror of orders: only its link writes to it"):
        append(cluster, values("a"))


def test_producing_to_what_is_not_there_is_refused(cluster: EmbeddedCluster) -> None:
    with pytest.raises(UserError, match="orders does not exist"):
        append(cluster, values("a"))


# A writer goes on until its delivery time-out; what it says then is so. Parts that waited too long are put again.


HOUR = 3_600_000


@pytest.fixture
def orders(cluster: EmbeddedCluster) -> EmbeddedCluster:
    cluster.create_topic("orders", partitions=2)
    return cluster


class Refusing(LossyStore):
    """Refuses some swaps of heads, before they land."""

    def __init__(self, cluster: EmbeddedCluster, refuse: Callable[[str], None]) -> None:
        super().__init__(cluster.store)
        self.refuse = refuse

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        if key.startswith("heads/"):
            self.refuse(key)
        return self.inner.swap(key, body, expected=expected)


def lose(key: str) -> None:
    raise LostRaceError(key, None, hint="Read it again.")


def fail(_key: str) -> None:
    raise RetryableError("the store is busy", hint="Run it again.")


# -- time-outs


def test_who_always_loses_gives_up_and_says_that_nothing_was_written(orders: EmbeddedCluster) -> None:
    producer = cluster_in(Refusing(orders, lose)).producer(delivery_timeout_ms=0)
    producer.send("orders", "a", partition=0)
    with pytest.raises(
        RetryableError, match=r"the append to orders, partition 0 was abandoned.*nothing of it was written"
    ):
        producer.flush()
    assert seen(orders) == []


def test_who_gets_no_answer_gives_up_and_says_that_it_may_be_written(orders: EmbeddedCluster) -> None:
    producer = cluster_in(Refusing(orders, fail)).producer(delivery_timeout_ms=1)
    producer.send("orders", "a", partition=0)
    with pytest.raises(RetryableError, match="the store is busy; it may have been written or not"):
        producer.flush()


def test_a_store_that_is_busy_for_a_while_is_tried_again(orders: EmbeddedCluster) -> None:
    refusals = [fail, lose, fail, fail]
    producer = cluster_in(Refusing(orders, lambda key: refusals.pop()(key) if refusals else None)).producer()
    producer.send("orders", "a", partition=0)
    producer.flush()
    assert (refusals, seen(orders)) == ([], [(0, b"a")])


@pytest.mark.parametrize("has_landed", [True, False])
def test_after_a_failed_flush_new_records_are_taken_be_the_old_there_or_not(
    orders: EmbeddedCluster, *, has_landed: bool
) -> None:
    refusals = [fail]
    store = (
        Silent(orders.store) if has_landed else Refusing(orders, lambda key: refusals.pop()(key) if refusals else None)
    )
    producer = cluster_in(store).producer(delivery_timeout_ms=0)
    if isinstance(store, Silent):
        store.of = "heads/"
    producer.send("orders", "a", partition=0)
    with pytest.raises(RetryableError):
        producer.flush()
    for value in "bc":
        producer.send("orders", value, partition=0)
        producer.flush()
    assert [value for _, value in seen(orders)] == ([b"a"] if has_landed else []) + [b"b", b"c"]


def test_a_topic_that_refuses_takes_its_records_alone_with_it(orders: EmbeddedCluster) -> None:
    orders.create_topic("small", configs={"max.message.bytes": "5"})
    producer = orders.producer()
    producer.send("orders", "before", partition=0)
    producer.send("small", "too large")
    producer.send("zebras", "nowhere")
    for said in ("MESSAGE_TOO_LARGE", "zebras does not exist"):
        with pytest.raises(UserError, match=said):
            producer.flush()
        assert list(orders.store.list("topics/")) == []
    producer.flush()
    assert seen(orders) == [(0, b"before")]


# -- parts that wait


class Sleepy(WatchedStore):
    """Its user sleeps, once, after it has put a part."""

    def __init__(self, cluster: EmbeddedCluster, ms: int, meanwhile: Callable[[str], None] = lambda _key: None) -> None:
        super().__init__(cluster.store, after=self._sleep)
        self.now_ms = NOW
        self._ms = ms
        self._meanwhile = meanwhile

    def _sleep(self, what: str, key: str) -> None:
        if what == "put" and key.startswith("topics/") and self.now_ms == NOW:
            self.now_ms += self._ms
            self._meanwhile(key)


def awake(store: Sleepy) -> EmbeddedCluster:
    return EmbeddedCluster.open(store, now_ms=lambda: store.now_ms, new_id=ids())


@pytest.mark.parametrize(("ms", "is_put_again"), [(HOUR, False), (HOUR + 1, True)])
def test_parts_older_than_an_hour_are_put_again_under_new_names(
    orders: EmbeddedCluster, ms: int, *, is_put_again: bool
) -> None:
    plain(orders, "first")
    store = Sleepy(orders, ms)
    plain(awake(store), "a", "b")
    assert seen(orders) == [(0, b"first"), (1, b"a"), (2, b"b")]
    assert store.count("copy_from", "topics/") == int(is_put_again)
    put = next(key for what, key in store.calls if what == "put")
    assert (put in {entry.key for entry in head(orders).entries}) is not is_put_again


def test_parts_that_were_swept_meanwhile_are_said_and_nothing_is_written(orders: EmbeddedCluster) -> None:
    store = Sleepy(orders, 30 * HOUR, lambda key: orders.store.delete([key]))
    with pytest.raises(UserError, match="waited so long that its uploaded parts were deleted; no record was written"):
        plain(awake(store), "a")
    assert contents(orders.log("orders")) == []
