"""What every log of records must do, over every implementation: the same tests on real brokers, old and new."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from reconciler.errors import ReconcilerError
from reconciler.records.hashes import compute_digest
from reconciler.records.log import Digest, OffsetRange, TopicLog
from reconciler.records.schema import INPUT_SCHEMA
from tests.contracts.topics import EmbeddedTopic, KafkaTopic, Topic
from tests.embedded.samples import NOW, numbered, read, rows_of
from tests.servers.stores import ON_SERVERS_THOROUGHLY, fresh_store

BROKERS = ("kafka_broker", "kafka_39")
ON_BROKERS = ("kafka_broker", pytest.param("kafka_39", marks=pytest.mark.thorough))


@pytest.fixture(params=[*ON_SERVERS_THOROUGHLY, *ON_BROKERS])
def topic(request: pytest.FixtureRequest, tmp_path: Path) -> Topic:
    if request.param in BROKERS:
        return KafkaTopic(request.getfixturevalue(request.param), request.getfixturevalue("kafka_prefix"))
    return EmbeddedTopic(fresh_store(request, tmp_path / "west"))


@pytest.fixture
def log(topic: Topic) -> TopicLog:
    return topic.log


def digest(log: TopicLog, offsets: OffsetRange, partition: int = 0) -> Digest:
    return sum(log.read_digests(partition, offsets), Digest())


def test_a_log_that_was_never_written_has_bounds_for_every_partition(log: TopicLog) -> None:
    assert sorted(log.read_bounds()) == [0, 1, 2]
    assert {(one.start, one.local_start, one.stable, one.end) for one in log.read_bounds().values()} == {(0, 0, 0, 0)}
    assert read(log, 1) == []
    assert list(log.read_digests(1, OffsetRange(0, 10))) == []
    assert list(log.list_extents(1, OffsetRange(0, 10))) == []


def test_records_are_read_as_they_were_written(log: TopicLog, topic: Topic) -> None:
    topic.fill(7, partition=2)
    assert read(log, 2) == numbered(0, 7, partition=2).to_pylist()
    assert log.read_bounds()[2].end == 7
    assert log.read_bounds()[0].end == 0


def test_null_and_empty_stay_different(log: TopicLog, topic: Topic) -> None:
    rows = [
        {"key": b"", "value": None, "headers": [{"key": "none", "value": None}, {"key": "empty", "value": b""}]},
        {"key": None, "value": b"", "headers": []},
    ]
    whole = [{"partition": 0, "timestamp_ms": NOW, "timestamp_type": 0, **row} for row in rows]
    topic.append(pa.RecordBatch.from_pylist(whole, schema=INPUT_SCHEMA))
    first, second = read(log)
    assert (first["key"], first["value"]) == (b"", None)
    assert first["headers"] == [{"key": "none", "value": None}, {"key": "empty", "value": b""}]
    assert (second["key"], second["value"], second["headers"]) == (None, b"", [])


def test_any_range_is_read_exactly(log: TopicLog, topic: Topic) -> None:
    topic.fill(4, 1, 5)
    whole = numbered(0, 10).to_pylist()
    for start, stop in itertools.combinations_with_replacement(range(12), 2):
        assert read(log, 0, start, stop) == whole[start:stop]


def test_what_is_read_is_as_of_the_call_and_what_comes_later_is_not_missed(log: TopicLog, topic: Topic) -> None:
    topic.fill(3)
    reading = log.read(0, OffsetRange(0, 100))
    first = next(reading)
    topic.fill(2)
    assert rows_of([first, *reading])[:3] == numbered(0, 3).to_pylist()
    assert read(log, 0, 3) == numbered(3, 2).to_pylist()


def test_digests_of_any_range_are_those_of_its_records(log: TopicLog, topic: Topic) -> None:
    topic.fill(4, 1, 5)
    for start, stop in itertools.combinations_with_replacement(range(12), 2):
        records = numbered(start, max(0, min(stop, 10) - start))
        assert digest(log, OffsetRange(start, stop)) == compute_digest(records, base=0)


def test_a_log_travels_to_other_processes(log: TopicLog, topic: Topic) -> None:
    topic.fill(3)
    travelled: TopicLog = pickle.loads(pickle.dumps(log))  # noqa: S301 - our own pickle
    travelled.check_shared()
    assert read(travelled) == read(log)
    assert travelled.read_bounds() == log.read_bounds()


def test_extents_are_in_order_and_hold_every_record(log: TopicLog, topic: Topic) -> None:
    topic.fill(4, 1, 5)
    for start, stop in itertools.combinations(range(11), 2):
        extents = list(log.list_extents(0, OffsetRange(start, stop)))
        assert [offset for each in extents for offset in range(each.offsets.start, each.offsets.stop)] == list(
            range(start, stop)
        )
        assert sum(extent.records for extent in extents) == stop - start
    assert all(extent.stored_bytes > 0 for extent in log.list_extents(0, OffsetRange(0, 10)))


def test_a_time_leads_to_the_first_record_that_is_not_older(log: TopicLog, topic: Topic) -> None:
    topic.fill(4, 1, 5)
    assert [log.find_offset_at(0, NOW + after) for after in (-5, 0, 3, 9)] == [0, 0, 3, 9]
    assert log.find_offset_at(0, NOW + 10) is None
    assert log.find_offset_at(1, NOW) is None
    assert [log.find_offset_at(0, early) for early in (0, -1, -2, -3)] == [0] * 4
    assert log.find_offset_at(1, -1) is None


def test_a_topic_made_later_under_the_same_name_is_another(log: TopicLog, topic: Topic) -> None:
    topic.fill(3)
    before = log.topic_id
    assert before is not None
    assert topic.made_anew().topic_id not in {None, before}
    assert log.topic_id == before
    with pytest.raises(ReconcilerError, match="was deleted"):
        log.read_bounds()
