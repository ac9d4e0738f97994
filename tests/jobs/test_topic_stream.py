"""A topic as a stream: where it goes on, what it may miss, and which checkpoints are not its own."""

from __future__ import annotations

import datetime as dt
import json
import logging
import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import CaseInsensitiveDict, GreaterThan
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from reconciler.embedded.clients.topic_log import EmbeddedLog
from reconciler.errors import ReconcilerError, UserError
from reconciler.jobs import stream
from reconciler.jobs.source import register
from tests.jobs.doubles import TOPIC, append, fill
from tests.jobs.streams import to_the_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reconciler.embedded.cluster import EmbeddedCluster

SCHEMA = StructType([StructField("partition", IntegerType()), StructField("offset", LongType())])

Batches = list[list[tuple[int, int]]]


def run(session: SparkSession, cluster: EmbeddedCluster, folder: Path, **options: str) -> Batches:
    """Run a stream to the end of the topic as it is now, and return what each of its batches had."""
    log = cluster.log(options.get("topic", TOPIC))
    register(session, lambda _options: log)
    given = {"cluster": "west", "topic": TOPIC, "columns": "partition, offset", "start": "earliest", **options}
    batches: Batches = []
    written = session.readStream.format("topic-log").options(**given).load().writeStream
    kept = written.foreachBatch(lambda frame, _batch: batches.append(sorted(tuple(row) for row in frame.collect())))
    to_the_end(kept, folder / "checkpoint")
    return batches


class Registry:
    """Takes a data source as a session would, to use it without one."""

    def __init__(self) -> None:
        self.dataSource = self
        self.found: Any = None

    def register(self, found: Any) -> None:
        self.found = found


def source(cluster: EmbeddedCluster, **options: str) -> Any:
    registry, log = Registry(), cluster.log(TOPIC)
    register(registry, lambda _options: log)  # type: ignore[arg-type]  # all that is asked of a session
    return registry.found(CaseInsensitiveDict(topic=TOPIC, **options))


def reader(cluster: EmbeddedCluster, **options: str) -> Any:
    return source(cluster, **options).streamReader(SCHEMA)


def position(cluster: EmbeddedCluster, *offsets: int) -> dict[str, Any]:
    places = {str(partition): offset for partition, offset in enumerate(offsets)}
    return {"topic": TOPIC, "topic_id": cluster.log(TOPIC).topic_id, "offsets": places}


def offsets_of(found: dict[str, Any]) -> list[int]:
    return [found["offsets"][str(partition)] for partition in range(len(found["offsets"]))]


def ranges_of(planned: Any) -> list[tuple[int, int, int]]:
    return [(one.partition, one.offsets.start, one.offsets.stop) for one in planned]


def trimmed(cluster: EmbeddedCluster) -> int:
    """Let retention remove what is old from the first partition, and return where it begins since."""
    cluster.alter_topic(TOPIC, {"retention.bytes": "1", "segment.bytes": "14"})
    cluster.upkeep().retain()
    start = cluster.log(TOPIC).read_bounds()[0].start
    assert start > 0
    return start


@pytest.mark.thorough
@pytest.mark.spark
def test_a_stream_goes_on_where_it_was_and_takes_what_came_since(
    spark: SparkSession, west: EmbeddedCluster, tmp_path: Path
) -> None:
    fill(west, partitions=2, count=5, parts=1)
    (first,) = run(spark, west, tmp_path)
    assert first == [(partition, offset) for partition in range(2) for offset in range(5)]
    assert run(spark, west, tmp_path) == []
    west.alter_topic(TOPIC, partitions=3)
    append(west, partitions=3, count=2)
    (second,) = run(spark, west, tmp_path)
    assert second == [(0, 5), (0, 6), (1, 5), (1, 6), (2, 0), (2, 1)]


@pytest.mark.spark
def test_a_batch_has_at_most_so_many_offsets(spark: SparkSession, west: EmbeddedCluster, tmp_path: Path) -> None:
    fill(west, partitions=2, count=10, parts=1)
    batches = run(spark, west, tmp_path, maxOffsetsPerTrigger="8")
    assert [len(batch) for batch in batches] == [8, 8, 4]
    assert sorted(row for batch in batches for row in batch) == [(p, o) for p in range(2) for o in range(10)]


@pytest.mark.thorough
@pytest.mark.spark
def test_a_checkpoint_of_a_topic_that_was_created_again_is_refused(
    spark: SparkSession, west: EmbeddedCluster, tmp_path: Path
) -> None:
    fill(west, partitions=1, count=3, parts=1)
    run(spark, west, tmp_path)
    west.delete_topic(TOPIC)
    fill(west, partitions=1, count=9, parts=1)
    with pytest.raises(StreamingQueryException, match="the checkpoint is of topic orders with id"):
        run(spark, west, tmp_path)


@pytest.mark.thorough
@pytest.mark.spark
def test_what_retention_removed_is_an_error_that_names_it_unless_it_may_be_lost(
    spark: SparkSession, west: EmbeddedCluster, tmp_path: Path
) -> None:
    fill(west, partitions=1, count=5, parts=1)
    run(spark, west, tmp_path)
    append(west, partitions=1, count=5, parts=3)
    start = trimmed(west)
    words = re.escape(f"partition 0: offsets 5 to {start - 1} were removed before they were read")
    with pytest.raises(StreamingQueryException, match=words):
        run(spark, west, tmp_path)
    (rows,) = run(spark, west, tmp_path, failOnDataLoss="false")
    assert rows == [(0, offset) for offset in range(start, 20)]


@pytest.mark.parametrize(
    ("start", "begins"),
    [
        ("earliest", [0, 0]),
        ("latest", [10, 10]),
        (" EARLIEST ", [0, 0]),
        ("Latest", [10, 10]),
        ("4", [4, 4]),
        ('{"0": -1, "1": -2}', [10, 0]),
        ('{"orders": {"0": 3, "1": 7}}', [3, 7]),
    ],
)
def test_a_new_stream_begins_where_it_is_told(west: EmbeddedCluster, start: str, begins: list[int]) -> None:
    fill(west, partitions=2, count=10, parts=1)
    assert offsets_of(reader(west, startingOffsets=start).initialOffset()) == begins


def test_a_new_stream_that_is_told_nothing_begins_at_the_end_as_kafkas_does(west: EmbeddedCluster) -> None:
    fill(west, partitions=1, count=10, parts=1)
    assert offsets_of(reader(west).initialOffset()) == [10]


def test_a_limit_is_dealt_out_in_proportion_and_leaves_nobody_behind(west: EmbeddedCluster) -> None:
    fill(west, partitions=3, count=20, parts=1)
    it = reader(west, maxOffsetsPerTrigger="10")
    assert it.getDefaultReadLimit() == ReadMaxRows(10)
    assert offsets_of(it.latestOffset(position(west, 0, 0, 19), ReadMaxRows(10))) == [4, 4, 20]
    assert offsets_of(it.latestOffset(position(west, 0, 0, 19), ReadAllAvailable())) == [20, 20, 20]
    assert reader(west).getDefaultReadLimit() == ReadAllAvailable()


def test_with_available_now_a_stream_ends_where_the_topic_ended_when_it_began(west: EmbeddedCluster) -> None:
    fill(west, partitions=1, count=4, parts=1)
    it = reader(west)
    it.prepareForTriggerAvailableNow()
    west.alter_topic(TOPIC, partitions=2)
    append(west, partitions=2, count=4)
    end = it.latestOffset(position(west, 0), ReadAllAvailable())
    assert offsets_of(end) == [4]
    assert offsets_of(it.latestOffset(end, ReadAllAvailable())) == [4]


def test_what_was_lost_is_logged_where_the_stream_goes_on(
    west: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(west, partitions=1, count=5, parts=4)
    start = trimmed(west)
    with caplog.at_level(logging.WARNING):
        planned = reader(west, failOnDataLoss="false").partitions(position(west, 2), position(west, 20))
    assert ranges_of(planned) == [(0, start, 20)]
    assert f"orders, partition 0: offsets 2 to {start - 1} were removed before they were read" in caplog.text
    assert "the rest is read (failOnDataLoss is false)" in caplog.text


def planned_in(cluster: EmbeddedCluster, kind: str, begin: int, end: int, **options: str) -> tuple[Any, Any]:
    """Return a reader, and the one task it planned between two offsets of one partition."""
    if kind == "stream":
        it = reader(cluster, **options)
        (task,) = it.partitions(position(cluster, begin), position(cluster, end))
    else:
        it = source(cluster, start=json.dumps({"0": begin}), end=json.dumps({"0": end}), **options).reader(SCHEMA)
        (task,) = it.partitions()
    return it, task


BOTH = pytest.mark.parametrize("kind", ["stream", "batch"])


@BOTH
def test_what_is_removed_between_planning_and_reading_is_noticed(west: EmbeddedCluster, kind: str) -> None:
    fill(west, partitions=1, count=5, parts=4)
    (it, task), (other, same) = (planned_in(west, kind, 2, 20, failOnDataLoss=fails) for fails in ("true", "false"))
    start = trimmed(west)
    with pytest.raises(ReconcilerError, match=f"offsets 2 to {start - 1} were removed before they were read"):
        list(it.read(task))
    kept = [offset for batch in other.read(same) for offset in batch.column("offset").to_pylist()]
    assert kept == list(range(start, 20))


def test_what_is_removed_is_noticed_by_a_batch_read_of_some_times(west: EmbeddedCluster) -> None:
    fill(west, partitions=1, count=5, parts=4)
    it = source(west, pushFilters="true").reader(SCHEMA)
    assert list(it.pushFilters([GreaterThan(("timestamp",), dt.datetime(1990, 1, 1, tzinfo=dt.UTC))]))
    (task,) = it.partitions()
    start = trimmed(west)
    with pytest.raises(ReconcilerError, match=f"offsets 0 to {start - 1} were removed before they were read"):
        list(it.read(task))


@BOTH
def test_offsets_without_records_are_no_loss_when_retention_passes_them_once_they_were_read(
    west: EmbeddedCluster, kind: str
) -> None:
    fill(west, partitions=1, count=5, parts=1)
    producer = west.producer("checkout")
    producer.init_transactions()
    producer.begin()
    for value in "abcde":
        producer.send(TOPIC, value)
    producer.flush()
    producer.abort()
    append(west, partitions=1, count=5, parts=2)
    it, task = planned_in(west, kind, 0, 20)
    batches = it.read(task)
    found: list[int] = []
    while found[-1:] != [14]:
        found += next(batches).column("offset").to_pylist()
    assert trimmed(west) > 5
    found += [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert found == [*range(5), *range(10, 20)]


@pytest.mark.parametrize(
    ("options", "lost"),
    [
        ({"start": "3"}, "offsets 3 to {before} were removed before they were read"),
        ({"startingOffsets": '{"0": 0}'}, "offsets 0 to {before} were removed before they were read"),
        ({"endingOffsets": '{"0": 500}'}, "offsets 20 to 499 are not there"),
    ],
)
def test_a_batch_read_of_offsets_that_are_not_there_says_which(
    west: EmbeddedCluster, options: dict[str, str], lost: str
) -> None:
    fill(west, partitions=1, count=5, parts=4)
    start = trimmed(west)
    with pytest.raises(UserError, match=f"orders, partition 0: {lost.format(before=start - 1)}"):
        source(west, **options).reader(SCHEMA).partitions()
    kept = source(west, failOnDataLoss="false", **options).reader(SCHEMA).partitions()
    assert ranges_of(kept) == [(0, start, 20)]
    everything = source(west, start="earliest", end="9999").reader(SCHEMA).partitions()
    assert ranges_of(everything) == [(0, start, 20)]


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": '{"0": 21, "1": 0}'},
        {"start": '{"0": 21, "1": 0}', "end": "25"},
        {"start": '{"0": 21, "1": 0}', "end": '{"0": 25, "1": -1}'},
    ],
)
def test_a_batch_read_that_begins_after_the_end_says_so(west: EmbeddedCluster, options: dict[str, str]) -> None:
    fill(west, partitions=2, count=20, parts=1)
    problem = "orders, partition 0: it ends at offset 20, before the start 21 that was requested"
    with pytest.raises(UserError, match=problem):
        source(west, **options).reader(SCHEMA).partitions()
    lax = source(west, failOnDataLoss="false", **options).reader(SCHEMA).partitions()
    other = source(west, partitions="1", **options).reader(SCHEMA).partitions()
    assert ranges_of(lax) == ranges_of(other) == [(1, 0, 20)]


def test_an_offset_for_every_partition_is_there_in_every_partition(west: EmbeddedCluster) -> None:
    fill(west, partitions=2, count=20, parts=1)
    with west.producer() as producer:
        producer.send(TOPIC, "more", partition=1)
    assert source(west, start="20").reader(SCHEMA).partitions() != []
    with pytest.raises(UserError, match="orders, partition 0: it ends at offset 20, before the start 21"):
        source(west, start="21").reader(SCHEMA).partitions()


@pytest.mark.parametrize(
    "options",
    [
        {"start": "20"},
        {"start": "20", "end": "20"},
        {"start": "20", "end": "9999"},
        {"start": "latest"},
        {"startingOffsets": '{"0": -1}', "end": '{"0": 20}'},
        {"startingTimestamp": "9999999999999"},
        {"start": "3", "startingTimestamp": "9999999999999"},
    ],
)
def test_a_batch_read_that_begins_at_the_end_is_empty(west: EmbeddedCluster, options: dict[str, str]) -> None:
    fill(west, partitions=1, count=20, parts=1)
    assert source(west, **options).reader(SCHEMA).partitions() == []


def test_a_log_is_asked_for_no_time_beyond_64_bits(west: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(west, partitions=1, count=5, parts=1)
    asked: list[int] = []
    monkeypatch.setattr(EmbeddedLog, "find_offset_at", lambda _log, _partition, time: asked.append(time))
    times = {"startingTimestamp": str(1 << 63), "endingTimestamp": "1700000000000000000000"}
    assert source(west, **times).reader(SCHEMA).partitions() == []
    assert asked == [(1 << 63) - 1] * 2


@pytest.mark.parametrize("option", ["start", "startingOffsets", "end", "endingOffsets"])
def test_a_place_that_is_empty_is_refused(west: EmbeddedCluster, option: str) -> None:
    west.create_topic(TOPIC)
    with pytest.raises(UserError, match=f"option {option} of topic-log: '' is not a place in a topic"):
        source(west, **{option: ""}).reader(SCHEMA)


def test_a_batch_read_may_begin_between_the_end_and_what_is_stable(west: EmbeddedCluster) -> None:
    fill(west, partitions=1, count=5, parts=1)
    producer = west.producer("checkout")
    producer.init_transactions()
    producer.begin()
    for value in "abc":
        producer.send(TOPIC, value)
    producer.flush()
    assert source(west, start="7").reader(SCHEMA).partitions() == []
    producer.abort()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"startingOffsets": "20", "endingOffsets": "10"},
            "orders, partition 0: option startingOffsets of topic-log is offset 20, and option endingOffsets is offset",
        ),
        ({"start": "7", "end": '{"0": 9, "1": 6}'}, "orders, partition 1: option start of topic-log is offset 7, and"),
    ],
)
def test_a_batch_read_that_begins_after_its_own_end_is_refused(
    west: EmbeddedCluster, options: dict[str, str], problem: str
) -> None:
    fill(west, partitions=2, count=30, parts=1)
    for lax in ("true", "false"):
        with pytest.raises(UserError, match=re.escape(problem)):
            source(west, failOnDataLoss=lax, **options).reader(SCHEMA).partitions()


def test_a_batch_read_of_a_partition_that_is_not_there_is_refused(west: EmbeddedCluster) -> None:
    fill(west, partitions=2, count=1, parts=1)
    with pytest.raises(UserError, match="option partitions of topic-log names partition 7, which the topic does not"):
        source(west, partitions="1,7").reader(SCHEMA).partitions()


def test_a_partition_that_is_new_begins_at_its_first_offset_and_misses_nothing(west: EmbeddedCluster) -> None:
    fill(west, partitions=1, count=5, parts=4)
    start = trimmed(west)
    with pytest.raises(ReconcilerError, match=f"partition 0: offsets 0 to {start - 1} were removed"):
        reader(west).latestOffset({**position(west), "offsets": {}}, ReadAllAvailable())


def test_an_end_that_was_cut_off_is_noticed(west: EmbeddedCluster) -> None:
    fill(west, partitions=1, count=5, parts=1)
    with pytest.raises(ReconcilerError, match="partition 0: offsets 5 to 8 were cut off its end"):
        reader(west).latestOffset(position(west, 9), ReadAllAvailable())
    it = reader(west, failOnDataLoss="false")
    assert offsets_of(it.latestOffset(position(west, 9), ReadAllAvailable())) == [5]
    assert it.partitions(position(west, 9), position(west, 5)) == []


def test_a_start_that_is_not_written_yet_is_no_loss(west: EmbeddedCluster) -> None:
    fill(west, partitions=1, count=5, parts=1)
    with pytest.raises(
        ReconcilerError, match="partition 0: it ends at offset 5, before the start 99 that was requested"
    ):
        reader(west, start="99").initialOffset()
    assert offsets_of(reader(west, start="99", failOnDataLoss="false").initialOffset()) == [5]


@pytest.mark.parametrize(
    ("kept", "problem"),
    [
        (
            {"topic": TOPIC, "topic_id": "another", "offsets": {"0": 1}},
            r'the checkpoint is of topic orders with id another.*startingOffsets \{"orders": \{"0": 1\}\}',
        ),
        ({"index": 5}, "the checkpoint has no valid position in a topic of topic-log"),
    ],
)
def test_positions_of_something_else_are_refused(west: EmbeddedCluster, kept: dict[str, Any], problem: str) -> None:
    fill(west, partitions=1, count=5, parts=1)
    with pytest.raises(ReconcilerError, match=problem):
        reader(west).latestOffset(json.loads(json.dumps(kept)), ReadAllAvailable())


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("endingOffsets", "latest", "option endingOffsets of topic-log is for batch reads only"),
        ("maxOffsetsPerTrigger", "0", "option maxOffsetsPerTrigger of topic-log takes a whole number of at least 1"),
        ("failOnDataLoss", "no", "option failOnDataLoss of topic-log is true or false, not 'no'"),
        ("startingOffsets", "stable", "'stable' is not a place in a topic"),
        ("startingOffsets", "", "option startingOffsets of topic-log: '' is not a place in a topic"),
    ],
)
def test_options_that_a_stream_does_not_take_are_refused(
    west: EmbeddedCluster, option: str, value: str, problem: str
) -> None:
    west.create_topic(TOPIC)
    refused = reader(west, **{option: value})
    for ask in (
        refused.initialOffset,
        refused.getDefaultReadLimit,
        lambda: refused.latestOffset(position(west, 0), ReadAllAvailable()),
        lambda: refused.partitions(position(west, 0), position(west, 0)),
    ):
        with pytest.raises(ReconcilerError, match=problem):
            ask()


def test_what_an_opener_of_ones_own_raises_is_told_once_a_stream_is_asked() -> None:
    registry, logs = Registry(), dict[str, Any]()
    register(registry, lambda options: logs[options["topic"]])  # type: ignore[arg-type]  # as above
    refused = registry.found(CaseInsensitiveDict(topic="ordres")).streamReader(SCHEMA)
    with pytest.raises(KeyError, match="ordres"):
        refused.initialOffset()


@pytest.mark.thorough
@pytest.mark.spark
def test_a_stream_that_is_refused_ends_with_the_reason(
    spark: SparkSession, west: EmbeddedCluster, tmp_path: Path
) -> None:
    west.create_topic(TOPIC)
    with pytest.raises(StreamingQueryException, match="option end of topic-log is for batch reads only") as caught:
        run(spark, west, tmp_path, end="5")
    assert not {"UnboundLocalError", "Traceback"} & set(re.findall(r"\w+", str(caught.value)))


def several(cluster: EmbeddedCluster, **options: str) -> Any:
    """Return the reader of a stream of topics of a cluster, by names or by a pattern."""
    registry = Registry()
    register(registry, lambda found: cluster.log(found["topic"]), list_topics=lambda _options: cluster.topics())  # type: ignore[arg-type]  # as above
    return registry.found(CaseInsensitiveDict(options)).streamReader(SCHEMA)


def entry(cluster: EmbeddedCluster, topic: str, *offsets: int) -> dict[str, Any]:
    places = {str(partition): offset for partition, offset in enumerate(offsets)}
    return {"topic": topic, "topic_id": cluster.log(topic).topic_id, "offsets": places}


def sent(cluster: EmbeddedCluster, topic: str, count: int) -> None:
    if topic not in cluster.topics():
        cluster.create_topic(topic)
    with cluster.producer() as producer:
        for number in range(count):
            producer.send(topic, str(number))


def test_a_stream_of_one_topic_has_its_position_whichever_option_names_it(west: EmbeddedCluster) -> None:
    west.create_topic(TOPIC)
    for option in ("topic", "subscribe"):
        assert several(west, **{option: TOPIC}).initialOffset() == position(west, 0)


@pytest.mark.parametrize("options", [{"subscribe": "orders,payments"}, {"subscribePattern": "orders|pay.*"}])
def test_a_stream_of_several_topics_has_a_position_in_each_and_shares_its_limit(
    west: EmbeddedCluster, options: dict[str, str]
) -> None:
    for topic, count in ((TOPIC, 30), ("payments", 10), ("prepayments", 5)):
        sent(west, topic, count)
    it = several(west, start='{"orders": {"0": 20}, "payments": {"0": -2}}', **options)
    begin = it.initialOffset()
    assert begin == {"topics": [entry(west, TOPIC, 20), entry(west, "payments", 0)]}
    assert it.latestOffset(begin, ReadMaxRows(10)) == {"topics": [entry(west, TOPIC, 25), entry(west, "payments", 5)]}
    end = it.latestOffset(begin, ReadAllAvailable())
    assert end == it.latestOffset() == {"topics": [entry(west, TOPIC, 30), entry(west, "payments", 10)]}
    tasks = it.partitions(begin, end)
    assert [(task.topic, *rest) for task, rest in zip(tasks, ranges_of(tasks), strict=True)] == [
        (TOPIC, 0, 20, 30),
        ("payments", 0, 0, 10),
    ]
    read = pickle.loads(pickle.dumps(it.read))  # noqa: S301 - as Spark hands it to tasks
    assert [sum(batch.num_rows for batch in read(pickle.loads(pickle.dumps(task)))) for task in tasks] == [10, 10]  # noqa: S301


def test_a_checkpoint_of_one_topic_goes_on_with_more_and_a_topic_less_is_a_loss(west: EmbeddedCluster) -> None:
    fill(west, partitions=1, count=5, parts=1)
    sent(west, "payments", 3)
    both = several(west, subscribe="orders,payments")
    end = both.latestOffset(position(west, 2), ReadAllAvailable())
    assert end == {"topics": [entry(west, TOPIC, 5), entry(west, "payments", 3)]}
    assert ranges_of(both.partitions(position(west, 2), end)) == [(0, 2, 5), (0, 0, 3)]
    lost = "payments, the checkpoint has offsets in it, and it was deleted or is not subscribed to"
    with pytest.raises(UserError, match=lost):
        several(west, topic=TOPIC).latestOffset(end, ReadAllAvailable())
    assert several(west, topic=TOPIC, failOnDataLoss="false").latestOffset(end, ReadAllAvailable()) == position(west, 5)
    west.delete_topic("payments")
    sent(west, "payments", 1)
    with pytest.raises(ReconcilerError, match=r'topic payments with id .* startingOffsets \{"payments": \{"0": 3\}\}'):
        several(west, subscribe="orders,payments").latestOffset(end, ReadAllAvailable())


def test_a_stream_of_a_pattern_takes_topics_that_come_and_reports_those_that_go(
    west: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_LIST_EVERY_S", 0)
    sent(west, "orders-eu", 2)
    it = several(west, subscribePattern="orders-.*", start="latest")
    begin = it.initialOffset()
    sent(west, "orders-us", 3)
    end = it.latestOffset(begin, ReadAllAvailable())
    assert end == {"topics": [entry(west, "orders-eu", 2), entry(west, "orders-us", 3)]}
    assert [task.topic for task in it.partitions(begin, end)] == ["orders-us"]
    west.delete_topic("orders-us")
    with pytest.raises(UserError, match="orders-us, the checkpoint has offsets in it, and it was deleted"):
        it.latestOffset(end, ReadAllAvailable())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"subscribePattern": "order"}, "option subscribePattern of topic-log: 'order' matches no topic"),
        ({"subscribePattern": "("}, r"'\(' is no regular expression: missing \)"),
        ({"subscribePattern": ".*", "topic": TOPIC}, "options topic and subscribePattern of topic-log both name"),
        ({"subscribe": "orders,others"}, "topic others does not exist"),
    ],
)
def test_topics_that_a_stream_cannot_find_are_refused(
    west: EmbeddedCluster, options: dict[str, str], problem: str
) -> None:
    west.create_topic(TOPIC)
    with pytest.raises(UserError, match=problem):
        several(west, **options).initialOffset()


def test_a_pattern_needs_a_list_of_topics() -> None:
    registry = Registry()
    register(registry, len)  # type: ignore[arg-type]  # as above
    with pytest.raises(UserError, match="without a list of topics, which option subscribePattern needs"):
        registry.found(CaseInsensitiveDict(subscribePattern=".*")).streamReader(SCHEMA).initialOffset()
