"""Copies into Kafka: every record once, as it was, in its order, and a map that says where each went."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_END, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from reconciler.errors import ReconcilerError, SourceChangedError
from reconciler.jobs.copy import copy_log
from reconciler.jobs.rekey import copy_by_key
from reconciler.providers.brokers.ledger import (
    MAP,
    PROGRESS,
    Changes,
    Entries,
    Ledger,
    build_writer_id,
    map_key,
    mirror_key,
    progress_key,
)
from reconciler.providers.brokers.records import copy_sink
from reconciler.providers.brokers.records.copy_sink import CopyLimits, CopySink
from reconciler.providers.brokers.records.rekey_copy import KafkaRekeySink
from reconciler.records.log import ObservedSource, OffsetRange
from reconciler.records.offset_map import Chunk, Piece, parse_chunk
from tests.engines import here, on
from tests.jobs.doubles import TOPIC, fill
from tests.jobs.kafka.copies import Place, assert_copied, copied, produce
from tests.servers.kafkatopics import forget_links
from tests.servers.rawrecords import NOW, ODD, Raw, read_raw, write_raw

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reconciler.embedded.cluster import EmbeddedCluster

pytestmark = pytest.mark.thorough


SMALL = CopyLimits(records=50)
WHOLE = CopyLimits(records=50, whole=1)
"""Copies batches as they are, as far as it can."""
WAYS = pytest.mark.parametrize("limits", [SMALL, WHOLE], ids=["one-by-one", "whole-batches"])


@pytest.mark.fact("F-K-090")
@WAYS
def test_a_copy_has_every_record_once_as_it_was(place: Place, limits: CopyLimits) -> None:
    source, target = place.create("orders", 3), place.create("copy", 3)
    produce(place, source, 500, partitions=3)
    copy = copied(place.open_log(source), place.sink(target, limits=limits))
    assert copy.is_whole
    assert copy.records == 1500
    assert assert_copied(place, source, target) == 1500
    assert place.told(target) == place.read(target), "the broker's own consumer reads the same"


@pytest.mark.fact("F-K-091")
@WAYS
def test_what_was_aborted_is_not_copied_and_the_map_jumps_over_gaps_on_both_sides(
    place: Place, limits: CopyLimits
) -> None:
    source, target = place.create("orders"), place.create("copy")
    produce(place, source, 400, each=30)
    copy = copied(place.open_log(source), place.sink(target, limits=limits))
    assert copy.records == assert_copied(place, source, target) < 400
    bounds = place.open_log(source).read_bounds()[0]
    offsets = place.map(target, 0)
    kept = [offset for offset, _ in place.read(source)[0]]
    for offset in range(bounds.end + 1):
        following = next((one for one in kept if one >= offset), None)
        expected = offsets.find_target(kept[-1]) + 1 if following is None else offsets.find_target(following)
        assert offsets.find_target(offset) == expected


@WAYS
def test_only_what_is_new_is_copied_next_time(place: Place, limits: CopyLimits) -> None:
    source, target = place.create("orders", 2), place.create("copy", 2)
    for start, expected in ((0, 200), (100, 200), (200, 200)):
        produce(place, source, 100, partitions=2, start=start)
        assert copied(place.open_log(source), place.sink(target, limits=limits)).records == expected
        assert copied(place.open_log(source), place.sink(target, limits=limits)).records == 0
    assert assert_copied(place, source, target) == 600


def test_records_that_others_write_into_the_copy_move_the_rest_and_the_map_knows(place: Place) -> None:
    source, target = place.create("orders"), place.create("copy")
    produce(place, source, 120)
    copied(place.open_log(source), place.sink(target), until={0: 70})
    producer = Producer(place.settings)
    producer.produce(target, "not ours", partition=0)
    assert producer.flush(30) == 0
    copied(place.open_log(source), place.sink(target))
    offsets = place.map(target, 0)
    there = dict(place.read(target)[0])
    assert [there[offsets.find_target(offset)] for offset, _ in place.read(source)[0]] == [
        text for _, text in place.read(source)[0]
    ]
    assert len(there) == 121


def test_a_topic_of_an_embedded_cluster_is_copied_to_kafka(place: Place, west: EmbeddedCluster) -> None:
    fill(west, partitions=2, count=40, parts=3)
    target = place.create("copy", 2)
    copy = copied(west.log(TOPIC), place.sink(target, limits=SMALL))
    assert copy.records == 240
    batches = {number: list(west.log(TOPIC).read(number, found)) for number, found in ranges(west).items()}
    for number, printed in place.read(target).items():
        rows = [row for batch in batches[number] for row in batch.to_pylist()]
        assert [text for _, text in printed] == [text_of(row) for row in rows]
        told = [place.map(target, number).find_target(row["offset"]) for row in rows]
        assert told == [offset for offset, _ in printed]


def test_spark_copies_as_threads_do(place: Place, spark: SparkSession) -> None:
    source, target = place.create("orders", 3), place.create("copy", 3)
    produce(place, source, 300, partitions=3)
    sink = place.sink(target, limits=CopyLimits(records=120))
    copy = copy_log(on(spark), place.open_log(source), sink)
    assert copy.records == 900
    assert assert_copied(place, source, target) == 900


@WAYS
def test_a_copy_ends_where_it_was_told_to(place: Place, limits: CopyLimits) -> None:
    source, target = place.create("orders", 2), place.create("copy", 2)
    produce(place, source, 100, partitions=2)
    copied(place.open_log(source), place.sink(target, limits=limits), until={0: 30})
    assert {number: len(found) for number, found in place.read(target).items()} == {0: 30}


def test_nobody_copies_what_is_not_wanted_any_more(place: Place) -> None:
    source, target = place.create("orders"), place.create("copy")
    produce(place, source, 10)
    copy = copied(place.open_log(source), place.sink(target), is_wanted=lambda: False)
    assert not copy.is_whole
    assert place.read(target) == {}


def test_a_task_does_not_begin_where_a_state_was_written_since_the_driver_looked(place: Place) -> None:
    source, target = place.create("orders"), place.create("copy")
    produce(place, source, 10)
    wanted = iter([True, False])

    def paused_meanwhile() -> bool:
        ledger = Ledger(place.settings, "east")
        ledger.change(build_writer_id("link"), lambda entries: {mirror_key(target): {"nth": len(entries)}})
        return next(wanted)

    copy = copied(place.open_log(source), place.sink(target), is_wanted=paused_meanwhile)
    forget_links(place.kafka)
    assert not copy.is_whole
    assert place.read(target) == {}


@pytest.mark.fact("F-C-094")
@WAYS
@pytest.mark.parametrize(
    ("count", "is_known", "refusal"),
    [
        pytest.param(400, True, "deleted and created again", id="another topic that is longer"),
        pytest.param(50, True, "deleted and created again", id="another topic that is shorter"),
        pytest.param(50, False, "the source changed while it was read", id="a log that is shorter"),
    ],
)
def test_what_takes_the_place_of_the_source_while_it_is_copied_is_not_mixed_with_it(
    place: Place, limits: CopyLimits, count: int, refusal: str, *, is_known: bool
) -> None:
    source, target = place.create("orders"), place.create("copy")
    produce(place, source, 200)
    log = place.open_log(source)
    log = replace(log, id=log.topic_id if is_known else None)
    looked = place.sink(target, limits=limits)
    looked.read_positions()
    sink = looked.follow_source(ObservedSource(log.topic_id, log.read_bounds()))
    going = sink.copy_range(0, log, OffsetRange(0, 100))
    assert sum(copied.records for copied in going) == 100
    before = place.read(target)
    place.delete(source)
    produce(place, place.create("orders"), count, start=1000)
    with pytest.raises(ReconcilerError, match=refusal):
        list(sink.copy_range(0, log, OffsetRange(100, 200)))
    assert place.read(target) == before
    assert looked.read_positions()[0].end == 100


def test_a_source_that_was_made_anew_is_not_copied_on(place: Place) -> None:
    source, target = place.create("orders"), place.create("copy")
    produce(place, source, 10)
    copied(place.open_log(source), place.sink(target))
    place.delete(source)
    place.create("orders")
    produce(place, source, 20)
    with pytest.raises(SourceChangedError, match="created again"):
        copied(place.open_log(source), place.sink(target))
    assert len(place.read(target)[0]) == 10


def test_a_copy_that_was_deleted_and_made_anew_begins_anew(place: Place) -> None:
    source, target = place.create("orders"), place.create("copy")
    produce(place, source, 10)
    copied(place.open_log(source), place.sink(target))
    place.delete(target)
    place.create("copy")
    copied(place.open_log(source), place.sink(target))
    assert assert_copied(place, source, target) == 10


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge the end of a copy by the first look at it."""
    monkeypatch.setattr(copy_sink, "_TRUNCATION_WAIT_S", 0.0)


def ahead(place: Place, topic: str, by: int) -> None:
    """Let the ledger say that more was written than is there: as if brokers had lost the end of a log."""

    def decide(entries: Entries) -> Changes:
        chunk = parse_chunk(0, entries[map_key(topic, 0, 0)])
        last = chunk.pieces[-1]
        pieces = (*chunk.pieces[:-1], Piece(last.source, last.target, last.length + by))
        progress = entries[progress_key(topic, 0)]
        return {
            map_key(topic, 0, 0): Chunk(0, pieces).to_document(),
            progress_key(topic, 0): {**progress, "through": progress["through"] + by},
        }

    Ledger(place.settings, "east").change(build_writer_id("link"), decide, PROGRESS, MAP)


@pytest.mark.usefixtures("at_once")
@pytest.mark.fact("F-K-090")
@WAYS
def test_nothing_is_copied_behind_a_hole_that_brokers_left_in_the_copy(place: Place, limits: CopyLimits) -> None:
    source, target = place.create("orders"), place.create("copy")
    produce(place, source, 10)
    copied(place.open_log(source), place.sink(target, limits=limits))
    produce(place, source, 20, start=10)
    ahead(place, target, by=5)
    with pytest.raises(SourceChangedError, match="ends at 11, and was written up to 15") as caught:
        copied(place.open_log(source), place.sink(target, limits=limits))
    assert caught.value.code == "MIRROR_TRUNCATED"
    assert len(place.read(target)[0]) == 10


@pytest.mark.usefixtures("at_once")
@WAYS
def test_a_copier_looks_for_a_hole_once_it_has_shut_out_the_others(place: Place, limits: CopyLimits) -> None:
    source, target = place.create("orders"), place.create("copy")
    produce(place, source, 10)
    copied(place.open_log(source), place.sink(target, limits=limits))
    produce(place, source, 20, start=10)
    log, sink = place.open_log(source), place.sink(target, limits=limits)
    start = sink.read_positions()[0].end
    ahead(place, target, by=5)
    with pytest.raises(SourceChangedError, match="its brokers lost records"):
        list(sink.copy_range(0, log, OffsetRange(start, log.read_bounds()[0].stable)))
    assert len(place.read(target)[0]) == 10


@WAYS
def test_a_copy_that_is_cut_while_it_is_copied_gets_nothing_more(
    place: Place, limits: CopyLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = place.create("orders"), place.create("copy")
    produce(place, source, 10)
    copied(place.open_log(source), place.sink(target, limits=limits))
    produce(place, source, 20, start=10)
    ahead(place, target, by=5)
    monkeypatch.setattr(CopySink, "_check_not_truncated", lambda *_: None)  # It was whole when it was checked.
    with pytest.raises(SourceChangedError, match="its brokers lost records"):
        copied(place.open_log(source), place.sink(target, limits=limits))
    assert len(place.read(target)[0]) == 10


@pytest.mark.usefixtures("at_once")
@WAYS
def test_a_copy_whose_records_were_all_deleted_is_whole(place: Place, limits: CopyLimits) -> None:
    source, target = place.create("orders"), place.create("copy")
    produce(place, source, 10)
    copied(place.open_log(source), place.sink(target, limits=limits))
    at = TopicPartition(target, 0, OFFSET_END)
    admin = AdminClient(place.settings)  # Its requests end with it.
    admin.delete_records([at])[at].result(30)
    produce(place, source, 20, start=10)
    assert copied(place.open_log(source), place.sink(target, limits=limits)).records == 20


def test_records_that_together_are_larger_than_the_queue_of_the_client_wait_for_room(place: Place) -> None:
    source, target = place.create("orders"), place.create("copy")
    producer = Producer(place.settings)
    for number in range(40):
        producer.produce(source, f"{number}".encode() * 50_000, partition=0)
    assert producer.flush(60) == 0
    assert (
        copied(
            place.open_log(source), place.sink(target, producer_settings={"queue.buffering.max.kbytes": 1024})
        ).records
        == 40
    )
    assert assert_copied(place, source, target) == 40


def ranges(west: EmbeddedCluster) -> dict[int, OffsetRange]:
    return {number: OffsetRange(found.start, found.end) for number, found in west.log(TOPIC).read_bounds().items()}


def text_of(row: dict[str, Any]) -> str:
    """Return a record as the console consumer prints it."""
    headers = ",".join(f"{one['key']}:{shown(one['value'])}" for one in row["headers"]) or "NO_HEADERS"
    return f"CreateTime:{row['timestamp_ms']}\t{headers}\t{shown(row['key'])}\t{shown(row['value'])}"


def shown(content: bytes | None) -> str:
    return "<null>" if content is None else content.decode()


# Records that librdkafka cannot read or write as they are: copied once each, in their order, as they were.


def usual(count: int, start: int = 0) -> list[Raw]:
    return [Raw(NOW + n, b"%d" % n, b"value %d" % n, ((b"h", b"1"),) * (n % 2)) for n in range(start, start + count)]


MIXED = {
    "only odd ones": ODD,
    "odd ones first": [*ODD, *usual(300)],
    "odd ones last": [*usual(300), *ODD],
    "odd ones here and there": [each for n in range(6) for each in (*usual(700, n * 700), *ODD)],
    "one in the middle": [*usual(3000), ODD[0], *usual(6000, 3000)],
}


@pytest.fixture(params=MIXED)
def records(request: pytest.FixtureRequest) -> list[Raw]:
    return MIXED[request.param]


def filled(place: Place, records: list[Raw]) -> str:
    source = place.create("orders")
    for start in range(0, len(records), 400):
        write_raw(place.kafka, source, records[start : start + 400])
    return source


@pytest.mark.fact("F-K-090")
@pytest.mark.parametrize("limits", [CopyLimits(), SMALL, WHOLE], ids=["large", "small", "whole"])
def test_every_record_is_copied_once_as_it_was(place: Place, records: list[Raw], limits: CopyLimits) -> None:
    source, target = filled(place, records), place.create("copy")
    copy = copied(place.open_log(source), place.sink(target, limits=limits))
    assert copy.records == len(records)
    assert read_raw(place.kafka, target) == records


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_a_topic_keeps_them_whatever_it_is_compressed_with(place: Place, codec: str) -> None:
    configs = {} if codec == "none" else {"compression_type": codec}
    source, target = filled(place, ODD), place.create("copy", **configs)
    copied(place.open_log(source), place.sink(target))
    again = place.create("again")
    copied(place.open_log(target), place.sink(again))
    assert read_raw(place.kafka, again) == ODD


def test_they_go_to_an_embedded_cluster_and_back(place: Place, records: list[Raw], west: EmbeddedCluster) -> None:
    west.create_topic(TOPIC, partitions=1)
    copy_log(here(), place.open_log(filled(place, records)), west.sink(TOPIC))
    target = place.create("copy")
    copied(west.log(TOPIC), place.sink(target))
    assert read_raw(place.kafka, target) == records


def test_they_go_where_their_keys_say(place: Place, records: list[Raw]) -> None:
    target = place.create("copy", 3)
    sink = place.sink(target, limits=CopyLimits(records=1000))
    source = place.open_log(filled(place, records))
    keyed = KafkaRekeySink(sink.target, source.topic_id)
    until = {number: bounds.stable for number, bounds in source.read_bounds().items()}
    assert copy_by_key(here(), source, keyed, until=until).records == len(records)
    found: list[Any] = [each for number in range(3) for each in read_raw(place.kafka, target, number)]
    assert sorted(map(repr, found)) == sorted(map(repr, records))
