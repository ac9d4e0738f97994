"""A topic copied into another number of partitions on a real broker: each record once, in order, whatever dies."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from pyspark import cloudpickle

from reconciler.errors import IncompleteError, ReconcilerError, RetryableError, UserError
from reconciler.jobs import rekey as rekey_job
from reconciler.jobs.copy import TopicCopyJob, fill_topic
from reconciler.jobs.rekey import copy_by_key
from reconciler.providers.brokers.ledger import REKEYED, Ledger, encode_entry
from reconciler.providers.brokers.ledger import TOPIC as LEDGER
from reconciler.providers.brokers.records.copy_sink import CopyLimits
from reconciler.providers.brokers.records.rekey_copy import KafkaRekeySink, RekeyedEntries
from reconciler.records.log import OffsetRange, TopicLog, Written
from tests.engines import here, on
from tests.jobs.doubles import TOPIC, append
from tests.jobs.kafka.copies import Place, produce
from tests.jobs.test_rekey import place_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from reconciler.embedded.cluster import EmbeddedCluster

pytestmark = pytest.mark.thorough

SOURCES, TARGETS = 3, 5
SMALL = CopyLimits(records=40)


@dataclass
class Dying(KafkaRekeySink):
    """A sink whose process dies once, after it has committed a part of one partition."""

    died: Path | None = None
    is_killed: bool = False

    def write(self, partition: int, records: Iterable[pa.RecordBatch], through: Mapping[int, int]) -> Iterator[Written]:
        for written in super().write(partition, records, through):
            yield written
            if partition == 2 and self.died is not None and not self.died.exists():
                self.died.touch()
                if self.is_killed:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RetryableError("the process died", hint="Start it again.")


def sink_of(place: Place, source: TopicLog, target: str, **more: Any) -> KafkaRekeySink:
    return KafkaRekeySink(place.sink(target, limits=SMALL, **more).target, source.topic_id)


def ends_of(log: TopicLog) -> dict[int, int]:
    return {number: bounds.stable for number, bounds in log.read_bounds().items()}


def rows_in(log: TopicLog) -> dict[int, list[dict[str, Any]]]:
    return {
        number: [
            row for batch in log.read(number, OffsetRange(bounds.start, bounds.stable)) for row in batch.to_pylist()
        ]
        for number, bounds in sorted(log.read_bounds().items())
    }


def content(row: dict[str, Any]) -> str:
    return str([row[name] for name in ("timestamp_ms", "key", "value", "headers")])


def assert_rekeyed(source: TopicLog, copy: TopicLog) -> int:
    """See that each record is there once, where its key says, in the order of its partition; return how many."""
    wanted: dict[tuple[int, int], list[str]] = {}
    for number, rows in rows_in(source).items():
        for row in rows:
            wanted.setdefault((number, place_of(row["key"], number)), []).append(content(row))
    found = {number: [content(row) for row in rows] for number, rows in rows_in(copy).items()}
    for (_, target), rows in wanted.items():
        mine = set(rows)
        assert [row for row in found[target] if row in mine] == rows
    count = sum(map(len, wanted.values()))
    assert sum(map(len, found.values())) == count
    return count


@pytest.fixture
def source(place: Place) -> TopicLog:
    """A topic of records that differ, with markers and aborted ones between them."""
    name = place.create("orders", SOURCES)
    for partition in range(SOURCES):
        produce_into(place, name, partition, 300)
    return place.open_log(name)


def produce_into(place: Place, topic: str, partition: int, count: int, *, start: int = 0) -> None:
    producer = Producer({**place.settings, "transactional.id": f"{topic}.{partition}.{start}"})
    producer.init_transactions(60)
    for at in range(start, start + count, 30):
        producer.begin_transaction()
        for number in range(at, at + 30):
            key = None if number % 10 == 0 else f"{partition}-{number % 23}"
            producer.produce(topic, f"{partition}-{number}", key, partition=partition)
        assert producer.flush(60) == 0
        (producer.abort_transaction if at // 30 % 4 == 3 else producer.commit_transaction)(60)


@pytest.mark.spark
@pytest.mark.parametrize("where", ["here", "in Spark"])
def test_each_record_is_copied_once_to_where_its_key_says(
    place: Place, source: TopicLog, request: pytest.FixtureRequest, where: str
) -> None:
    engine = here() if where == "here" else on(request.getfixturevalue("spark"))
    target = place.create("copy", TARGETS)
    sink, told = sink_of(place, source, target), []
    moving = TopicCopyJob("topic orders", source, sink, place.open_log(target), engine, told.append)
    assert fill_topic(moving).records == assert_rekeyed(source, place.open_log(target))
    assert told[-1].records > 0
    produce_into(place, source.topic, 1, 60, start=300)  # type: ignore[attr-defined]  # half of them aborted
    assert fill_topic(replace(moving, sink=sink_of(place, source, target))).records == 30
    assert_rekeyed(source, place.open_log(target))
    assert fill_topic(replace(moving, sink=sink_of(place, source, target))).records == 0


@pytest.mark.spark
def test_an_embedded_topic_is_rekeyed_into_a_topic_of_brokers(
    place: Place, spark: SparkSession, west: EmbeddedCluster
) -> None:
    west.create_topic(TOPIC, partitions=SOURCES)
    append(west, partitions=SOURCES, count=100, parts=2)
    target, source = place.create("copy", TARGETS), west.log(TOPIC)
    done = copy_by_key(on(spark), source, sink_of(place, source, target), until=ends_of(source))
    assert done.records == 600
    found = sorted(content(row) for rows in rows_in(place.open_log(target)).values() for row in rows)
    assert found == sorted(content(row) for rows in rows_in(source).values() for row in rows)


@pytest.mark.spark
@pytest.mark.parametrize("where", ["here", "in Spark"])
def test_what_died_in_the_middle_goes_on_and_copies_nothing_twice(
    place: Place, source: TopicLog, tmp_path: Path, request: pytest.FixtureRequest, where: str
) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    engine = here() if where == "here" else on(request.getfixturevalue("spark"))
    target = place.create("copy", TARGETS)
    known = sink_of(place, source, target)
    dying = Dying(known.target, known.source_id, died=tmp_path / "died", is_killed=where == "in Spark")
    with pytest.raises(RetryableError):
        copy_by_key(engine, source, dying, until=ends_of(source))
    part = sum(map(len, rows_in(place.open_log(target)).values()))
    assert 0 < part < sum(map(len, rows_in(source).values()))
    rest = copy_by_key(engine, source, sink_of(place, source, target), until=ends_of(source))
    late = assert_rekeyed(source, place.open_log(target)) - part - rest.records
    # Tasks of a failed job in Spark may still write until they are ended: what they wrote is not copied again.
    assert late == 0 or (where == "in Spark" and late > 0)


def test_of_two_that_copy_at_once_each_record_comes_from_one(place: Place, source: TopicLog) -> None:
    target = place.create("copy", TARGETS)
    sinks = [sink_of(place, source, target) for _ in range(2)]

    def copy(sink: KafkaRekeySink) -> None:
        for _ in range(20):
            try:
                copy_by_key(here(), source, sink, until=ends_of(source))
            except ReconcilerError:
                continue
            return

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(copy, sinks))
    assert_rekeyed(source, place.open_log(target))


def test_what_another_process_wrote_into_the_new_topic_is_noticed(place: Place, source: TopicLog) -> None:
    target = place.create("copy", TARGETS)
    moving = TopicCopyJob("topic orders", source, sink_of(place, source, target), place.open_log(target), here())
    fill_topic(moving)
    produce(place, target, 1)
    with pytest.raises(UserError, match="the copy differs from it in its records"):
        fill_topic(moving)


def test_what_an_earlier_version_had_begun_is_refused_in_a_sentence(place: Place, source: TopicLog) -> None:
    target = place.create("copy", TARGETS)
    sink = sink_of(place, source, target)
    before = {"to": 30, "firsts": {"0": 0}, "records": 30, "total": "0" * 32}
    key, value = encode_entry((REKEYED, target, 0, 0), before)
    producer = Producer(place.settings)
    producer.produce(LEDGER, key=key, value=value, partition=0)
    assert producer.flush(30) == 0
    for reads in (sink.read_positions, sink.read_written_digest):
        with pytest.raises(UserError, match=f"topic {target} was begun by an earlier version of reconciler"):
            reads()


def test_what_was_written_into_a_topic_that_had_the_name_before_counts_for_nothing(
    place: Place, source: TopicLog
) -> None:
    target = place.create("copy", TARGETS)
    fill_topic(TopicCopyJob("topic orders", source, sink_of(place, source, target), place.open_log(target), here()))
    place.delete(target)
    assert place.create("copy", TARGETS) == target
    sink = KafkaRekeySink(place.sink(target).target, source.topic_id)  # Its transactions are larger, and so fewer.
    moving = TopicCopyJob("topic orders", source, sink, place.open_log(target), here())
    assert fill_topic(moving).records == assert_rekeyed(source, place.open_log(target))


def test_a_copy_that_is_stopped_says_so(place: Place, source: TopicLog) -> None:
    target = place.create("copy", TARGETS)
    with pytest.raises(IncompleteError, match="the copy was stopped"):
        copy_by_key(here(is_stopped=lambda: True), source, sink_of(place, source, target), until=ends_of(source))


def test_a_group_finds_a_place_that_skips_nothing_and_little_before_it(
    place: Place, source: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rekey_job, "_ROW_RECORDS", 4)
    target = place.create("copy", TARGETS)
    sink = replace(sink_of(place, source, target), target=place.sink(target).target)  # One transaction a partition.
    copy_by_key(here(), source, sink, until=ends_of(source))
    ids = source.topic_id, place.open_log(target).topic_id
    rows = RekeyedEntries.parse(Ledger(place.settings, "east").read(REKEYED), target, ids)
    before, after = rows_in(source), rows_in(place.open_log(target))
    ends = ends_of(place.open_log(target))

    def read_again(read: Mapping[int, int]) -> int:
        """See that nothing is skipped after so many records of each partition; return how many are read again."""
        committed = {number: before[number][many - 1]["offset"] + 1 for number, many in read.items() if many}
        places = rows.translate_offsets(committed, ends)
        unread = {content(row) for number, found in before.items() for row in found[read.get(number, 0) :]}
        read_on = {content(row) for number in after for row in after[number] if row["offset"] >= places[number]}
        assert unread <= read_on
        return len(read_on - unread)

    all_read = {number: len(found) for number, found in before.items()}
    few = TARGETS * SOURCES * 4
    assert read_again(all_read) == 0
    assert read_again({}) == 0
    for lag in range(1, 20, 3):
        for number, many in all_read.items():
            assert read_again({**all_read, number: many - lag}) <= few + lag * SOURCES
        assert read_again({number: many * lag // 20 for number, many in all_read.items()}) <= few
    read_again({0: 100, 1: all_read[1]})
    assert rows.translate_offsets(ends_of(source), ends) == ends
