"""Copies compared: by the order of records where they are numbered anew, by offsets where they are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from reconciler.jobs.copy import mirror
from reconciler.jobs.ordered import verify_renumbered, whole_spans
from reconciler.jobs.verify import verify
from reconciler.operations.verify import renumbered
from reconciler.providers.kafka.records.copy_sink import Limits
from tests.jobs.doubles import TOPIC
from tests.jobs.kafka.copies import Place, copied, never, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reconciler.embedded.cluster import EmbeddedCluster


def test_a_kafka_topic_is_mirrored_to_an_embedded_cluster_at_the_same_offsets(
    place: Place, east: EmbeddedCluster
) -> None:
    source = place.create("orders", 2)
    produce(place, source, 200, partitions=2, each=30)
    east.create_topic(TOPIC, partitions=2)
    copy = mirror(never, place.log(source), east.sink(TOPIC), little_bytes=1 << 40)
    ends = {number: bounds.stable for number, bounds in place.log(source).bounds().items()}
    assert {number: bounds.end for number, bounds in east.log(TOPIC).bounds().items()} == ends
    comparison = verify(None, place.log(source), east.log(TOPIC), deep=True)
    assert comparison.is_equal
    assert sum(each.left.records for each in comparison.partitions if each.left) == copy.records
    assert verify(None, place.log(source), east.log(TOPIC)).is_equal


def test_a_copy_is_equal_though_markers_moved_its_records(place: Place) -> None:
    source, target = place.create("orders", 2), place.create("copy", 2)
    produce(place, source, 200, partitions=2, each=30)
    sink = place.sink(target, limits=Limits(records=50))
    copied(place.log(source), sink)
    bounds = place.log(source).bounds()
    comparison = verify_renumbered(None, place.log(target), place.log(source), sink.spans(bounds))
    assert comparison.is_equal
    assert [each.left.end for each in comparison.partitions if each.left] != [each.stable for each in bounds.values()]
    whole = whole_spans(place.log(target).bounds(), bounds)
    assert verify_renumbered(None, place.log(target), place.log(source), whole).is_equal


def test_of_a_copy_that_is_behind_it_is_told_how_far_its_source_goes(place: Place) -> None:
    source, target = place.create("orders", 1), place.create("copy", 1)
    sink = place.sink(target)
    produce(place, source, 5, partitions=1)
    bounds = place.log(source).bounds()
    (found,) = renumbered(None, (place.log(target), place.log(source)), sink.spans(bounds)).partitions
    assert found.differences == ("end",)
    assert found.left is not None
    assert found.right is not None
    assert (found.left.end, found.right.end) == (0, bounds[0].stable)


@pytest.mark.soak
def test_spark_reads_both_in_many_pieces_and_finds_the_same(place: Place, spark: SparkSession) -> None:
    source, target = place.create("orders", 3), place.create("copy", 3)
    produce(place, source, 300, partitions=3)
    sink = place.sink(target)
    copied(place.log(source), sink)
    logs = place.log(target), place.log(source)
    assert verify_renumbered(spark, *logs, sink.spans(logs[1].bounds())).is_equal


@pytest.mark.parametrize("partition", [0, 1])
def test_it_is_said_where_a_copy_begins_to_differ(place: Place, partition: int) -> None:
    source, target = place.create("orders", 2), place.create("copy", 2)
    produce(place, source, 40, partitions=2)
    sink = place.sink(target)
    copied(place.log(source), sink)
    producer = Producer(place.settings)
    producer.produce(target, "not ours", partition=partition)
    assert producer.flush(60) == 0
    produce(place, source, 80, partitions=2, start=40)
    copied(place.log(source), sink)
    spans = sink.spans(place.log(source).bounds())
    comparison = verify_renumbered(None, place.log(target), place.log(source), spans)
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
    copied(place.log(source), sink)
    copy = place.log(target)
    admin = AdminClient({"bootstrap.servers": place.settings["bootstrap.servers"]})
    for deleted in admin.delete_records([TopicPartition(target, 0, deleted_to)]).values():
        deleted.result()
    found = renumbered(None, (copy, place.log(source)), sink.spans(place.log(source).bounds()), begins=begins)
    assert [each.differences for each in found.partitions] == [differences]
