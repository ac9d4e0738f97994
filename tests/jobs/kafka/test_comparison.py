"""Copies compared: by the order of records where they are numbered anew, by offsets where they are the same."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark import cloudpickle

from reconciler.errors import SourceChangedError, UserError
from reconciler.jobs.copy import TopicCopyJob, copy_log, fill_topic, finish_topic
from reconciler.jobs.ordered import make_whole_spans, verify_renumbered
from reconciler.jobs.progress import JobProgress
from reconciler.jobs.verify import compare_logs
from reconciler.operations.verify import compare_renumbered
from reconciler.providers.brokers.records.copy_sink import CopyLimits
from reconciler.providers.brokers.records.record_log import KafkaLog
from reconciler.records.log import OffsetRange, Spans
from reconciler.runtime.dataclass import dataclass, field, replace
from tests.engines import here, on
from tests.jobs.doubles import TOPIC
from tests.jobs.kafka.copies import Place, copied, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.jobs.stage import Engine

pytestmark = pytest.mark.thorough


def test_a_kafka_topic_is_mirrored_to_an_embedded_cluster_at_the_same_offsets(
    place: Place, east: EmbeddedCluster
) -> None:
    source = place.create("orders", 2)
    produce(place, source, 200, partitions=2, each=30)
    east.create_topic(TOPIC, partitions=2)
    copy = copy_log(here(), place.open_log(source), east.sink(TOPIC))
    ends = {number: bounds.stable for number, bounds in place.open_log(source).read_bounds().items()}
    assert {number: bounds.end for number, bounds in east.log(TOPIC).read_bounds().items()} == ends
    comparison = compare_logs(here(), place.open_log(source), east.log(TOPIC), deep=True)
    assert comparison.is_equal
    assert sum(each.left.records for each in comparison.partitions if each.left) == copy.records
    assert compare_logs(here(), place.open_log(source), east.log(TOPIC)).is_equal


@pytest.mark.fact("F-C-094")
@pytest.mark.parametrize("count", [50, 400], ids=["shorter", "longer"])
def test_an_embedded_mirror_takes_nothing_of_what_takes_the_place_of_its_source_while_that_is_read(
    place: Place, east: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    source = place.create("orders")
    produce(place, source, 200)
    log = replace(place.open_log(source), id=place.open_log(source).topic_id)
    east.create_topic(TOPIC, partitions=1)
    real = KafkaLog.read

    def late(log: KafkaLog, partition: int, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        place.delete(source)
        produce(place, place.create("orders"), count, start=1000)
        return real(log, partition, offsets)

    monkeypatch.setattr(KafkaLog, "read", late)
    with pytest.raises(SourceChangedError, match="deleted and created again"):
        copy_log(here(), log, east.sink(TOPIC))
    assert east.log(TOPIC).read_bounds()[0].end == 0


def test_a_copy_is_equal_though_markers_moved_its_records(place: Place) -> None:
    source, target = place.create("orders", 2), place.create("copy", 2)
    produce(place, source, 200, partitions=2, each=30)
    sink = place.sink(target, limits=CopyLimits(records=50))
    copied(place.open_log(source), sink)
    bounds = place.open_log(source).read_bounds()
    seen: list[JobProgress] = []
    spans = sink.find_spans(bounds)
    comparison = verify_renumbered(here(), place.open_log(target), place.open_log(source), spans, progress=seen.append)
    assert comparison.is_equal
    assert seen[-1].records == sum(each.right.records for each in comparison.partitions if each.right) > 0
    assert [each.left.end for each in comparison.partitions if each.left] != [each.stable for each in bounds.values()]
    whole = make_whole_spans(place.open_log(target).read_bounds(), bounds)
    assert verify_renumbered(here(), place.open_log(target), place.open_log(source), whole).is_equal


def test_of_a_copy_that_is_behind_it_is_told_how_far_its_source_goes(place: Place) -> None:
    source, target = place.create("orders", 1), place.create("copy", 1)
    sink = place.sink(target)
    produce(place, source, 5, partitions=1)
    bounds = place.open_log(source).read_bounds()
    (found,) = compare_renumbered(
        here(), (place.open_log(target), place.open_log(source)), sink.find_spans(bounds)
    ).partitions
    assert found.differences == ("end",)
    assert found.left is not None
    assert found.right is not None
    assert (found.left.end, found.right.end) == (0, bounds[0].stable)


@pytest.mark.soak
def test_spark_reads_both_in_many_pieces_and_finds_the_same(place: Place, spark: SparkSession) -> None:
    source, target = place.create("orders", 3), place.create("copy", 3)
    produce(place, source, 300, partitions=3)
    sink = place.sink(target)
    copied(place.open_log(source), sink)
    logs = place.open_log(target), place.open_log(source)
    assert verify_renumbered(on(spark), *logs, sink.find_spans(logs[1].read_bounds())).is_equal


@pytest.mark.parametrize("partition", [0, 1])
def test_it_is_said_where_a_copy_begins_to_differ(place: Place, partition: int) -> None:
    source, target = place.create("orders", 2), place.create("copy", 2)
    produce(place, source, 40, partitions=2)
    sink = place.sink(target)
    copied(place.open_log(source), sink)
    producer = Producer(place.settings)
    producer.produce(target, "not ours", partition=partition)
    assert producer.flush(60) == 0
    produce(place, source, 80, partitions=2, start=40)
    copied(place.open_log(source), sink)
    spans = sink.find_spans(place.open_log(source).read_bounds())
    comparison = verify_renumbered(here(), place.open_log(target), place.open_log(source), spans)
    (differing,) = comparison.differing
    assert differing.partition == partition
    assert differing.differences == ("records", "digest")
    marker = 1
    assert differing.first_difference == 40 + marker


@pytest.mark.parametrize(
    ("deleted_to", "begins", "differences"), [(30, {}, ()), (40, {}, ("start",)), (40, {0: 40}, ())]
)
def test_a_copy_that_let_go_of_all_that_its_source_has_is_not_equal(
    place: Place, deleted_to: int, begins: dict[int, int], differences: tuple[str, ...]
) -> None:
    source, target = place.create("orders", 1), place.create("copy", 1)
    produce(place, source, 40, partitions=1)
    sink = place.sink(target)
    copied(place.open_log(source), sink)
    copy = place.open_log(target)
    admin = AdminClient({"bootstrap.servers": place.settings["bootstrap.servers"]})
    for deleted in admin.delete_records([TopicPartition(target, 0, deleted_to)]).values():
        deleted.result()
    found = compare_renumbered(
        here(), (copy, place.open_log(source)), sink.find_spans(place.open_log(source).read_bounds()), begins=begins
    )
    assert [each.differences for each in found.partitions] == [differences]


# Copies of compacted topics compared: both brokers compact when they like, and the newest of each key must be in both.
#
# What a broker compacted is written here as it leaves it: a log without the records that it took.


KEYS = ["a", "b", "a", "c", "b", "a", "d", "e"]
VALUES = ["0", "1", "2", "3", None, "5", "6", "7"]


@dataclass(frozen=True)
class Thinned(KafkaLog):
    """A log as its broker leaves it that took some records away: by key and value, which are told apart here."""

    taken: frozenset[str | None] = frozenset()

    def __reduce__(self) -> tuple[Any, ...]:
        kind, given = super().__reduce__()
        return kind, (*given, {}, self.taken)

    def read(self, partition: int, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        for batch in super().read(partition, offsets):
            values = [None if each is None else each.decode() for each in batch.column("value").to_pylist()]
            yield batch.filter(pa.array([value not in self.taken for value in values]))


@dataclass
class Pair:
    """A compacted source of one partition, and its copy, with markers between records."""

    place: Place
    source: str
    target: str
    spans: Mapping[int, Spans] = field(default_factory=dict)

    def without(
        self, copy: Sequence[str | None] = (), source: Sequence[str | None] = (), engine: Engine | None = None
    ) -> Any:
        """Return what comes of comparing them, without records that were taken from either."""
        logs = (self._thinned(self.target, copy), self._thinned(self.source, source))
        (found,) = verify_renumbered(engine or here(), *logs, self.spans).partitions
        return found

    def _thinned(self, topic: str, taken: Sequence[str | None]) -> Thinned:
        return thinned(self.place, topic, taken)


def thinned(place: Place, topic: str, taken: Sequence[str | None]) -> Thinned:
    log = place.open_log(topic)
    return Thinned(log.topic, log.settings, log.admin, log.cluster, taken=frozenset(taken))


def state_of(place: Place, **configs: str) -> str:
    """Return a topic that has the values of `KEYS`, each in a transaction of its own."""
    source = place.create("state", **configs)
    producer = Producer({**place.settings, "transactional.id": source})
    producer.init_transactions(60)
    for key, value in zip(KEYS, VALUES, strict=True):
        producer.begin_transaction()
        producer.produce(source, value, key, partition=0)
        producer.commit_transaction(60)
    return source


def pair_of(place: Place, **configs: str) -> Pair:
    source, target = state_of(place, **configs), place.create("copy", **configs)
    sink = place.sink(target)
    copied(place.open_log(source), sink)
    return Pair(place, source, target, sink.find_spans(place.open_log(source).read_bounds()))


@pytest.fixture
def pair(place: Place) -> Pair:
    return pair_of(place, cleanup_policy="compact", min_cleanable_dirty_ratio="1", segment_ms="604800000")


@pytest.mark.parametrize(
    ("copy", "source", "superseded"),
    [
        ((), (), 0),
        (("0",), (), 1),
        ((), ("0", "2", "1"), 3),
        (("0", "1"), ("2",), 3),
        ((None,), (), 1),
        (("0", "2"), ("1", None), 4),
    ],
    ids=str,
)
def test_what_one_broker_compacted_sooner_is_no_difference(
    pair: Pair, copy: Sequence[str | None], source: Sequence[str | None], superseded: int
) -> None:
    found = pair.without(copy, source)
    assert (found.differences, found.superseded) == ((), superseded)


@pytest.mark.parametrize(("taken", "is_equal"), [(("0", "2"), True), (("6",), False)])
def test_a_compacted_topic_is_moved_though_its_broker_compacts_it_meanwhile(
    place: Place, taken: Sequence[str], *, is_equal: bool
) -> None:
    source, target = state_of(place, cleanup_policy="compact"), place.create("copy")
    job = TopicCopyJob("topic state", place.open_log(source), place.sink(target), place.open_log(target), here())
    assert fill_topic(job).records == len(VALUES)
    ends = {number: bounds.end for number, bounds in job.source.read_bounds().items()}
    thinner = replace(job, source=thinned(place, source, taken))
    if is_equal:
        assert finish_topic(thinner, ends).records == 0
    else:
        with pytest.raises(UserError, match="the copy differs from it in partitions 0"):
            finish_topic(thinner, ends)


@pytest.mark.parametrize(
    ("copy", "source", "first"),
    [(("5",), (), 5), (("0", "3"), (), 3), ((), ("6",), 6), (("7",), ("0",), 7), (("2", "5"), (), 5)],
    ids=str,
)
def test_the_newest_record_of_a_key_must_be_in_both(
    pair: Pair, copy: Sequence[str | None], source: Sequence[str | None], first: int
) -> None:
    found = pair.without(copy, source)
    assert found.differences
    assert found.first_difference == first


@pytest.mark.parametrize("is_deep", [False, True])
def test_what_a_broker_compacted_after_an_embedded_cluster_had_copied_it_is_no_difference(
    place: Place, east: EmbeddedCluster, *, is_deep: bool
) -> None:
    source = state_of(place, cleanup_policy="compact", min_cleanable_dirty_ratio="1", segment_ms="604800000")
    east.create_topic(TOPIC)
    copy_log(here(), place.open_log(source), east.sink(TOPIC))

    def compared(*taken: str | None) -> tuple[tuple[str, ...], int]:
        (found,) = compare_logs(here(), east.log(TOPIC), thinned(place, source, taken), deep=is_deep).partitions
        return found.differences, found.superseded

    assert compared() == ((), 0)
    assert compared("0", "2", "1") == ((), 3)
    assert compared("0", "7") == (("records", "digest"), 0)


@pytest.mark.spark
def test_a_join_in_spark_finds_the_same(pair: Pair, spark: SparkSession) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    cases: list[tuple[tuple[str | None, ...], tuple[str | None, ...]]] = [
        (("0", "2"), ("1", None)),
        (("0", "3"), ()),
        ((), ("6", "0")),
    ]
    for copy, source in cases:
        found, wanted = (pair.without(copy, source, engine) for engine in (on(spark), here()))
        assert found == wanted
    write_another_and_copy_on(pair)
    found, wanted = (pair.without(["0"], (), engine) for engine in (on(spark), here()))
    assert found == wanted
    assert found.first_difference == len(KEYS) + 1  # after a marker


def test_what_somebody_else_wrote_into_a_copy_differs(pair: Pair) -> None:
    write_another_and_copy_on(pair)
    found = pair.without(copy=["0"])
    assert found.differences
    marker = 1
    assert found.first_difference == len(KEYS) + marker


def write_another_and_copy_on(pair: Pair) -> None:
    """Write a record of nobody's into the copy, then one into the source, and copy that."""
    producer = Producer(pair.place.settings)
    producer.produce(pair.target, "not ours", "a", partition=0)
    assert producer.flush(60) == 0
    last = Producer({**pair.place.settings, "transactional.id": f"{pair.source}-last"})
    last.init_transactions(60)
    last.begin_transaction()
    last.produce(pair.source, "last", "a", partition=0)
    last.commit_transaction(60)
    sink = pair.place.sink(pair.target)
    copied(pair.place.open_log(pair.source), sink)
    pair.spans = sink.find_spans(pair.place.open_log(pair.source).read_bounds())


def test_of_a_topic_that_is_never_compacted_every_record_counts(place: Place) -> None:
    found = pair_of(place).without(copy=["0"])
    assert found.differences == ("records", "digest")
    assert found.first_difference == 1  # what comes after the one that is gone
