"""Records that librdkafka cannot read or write as they are: copied once each, in their order, as they were."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.jobs.copy import mirror
from reconciler.providers.kafka.records.copy_sink import Limits
from reconciler.providers.kafka.records.rekey_copy import KeyedSink
from tests.jobs.doubles import TOPIC
from tests.jobs.kafka.copies import Place, copied, never
from tests.servers.rawrecords import NOW, ODD, Raw, read_raw, write_raw

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster


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
@pytest.mark.parametrize("limits", [Limits(), Limits(records=50)], ids=["large", "small"])
def test_every_record_is_copied_once_as_it_was(place: Place, records: list[Raw], limits: Limits) -> None:
    source, target = filled(place, records), place.create("copy")
    copy = copied(place.log(source), place.sink(target, limits=limits))
    assert copy.records == len(records)
    assert read_raw(place.kafka, target) == records


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_a_topic_keeps_them_whatever_it_is_compressed_with(place: Place, codec: str) -> None:
    configs = {} if codec == "none" else {"compression_type": codec}
    source, target = filled(place, ODD), place.create("copy", **configs)
    copied(place.log(source), place.sink(target))
    again = place.create("again")
    copied(place.log(target), place.sink(again))
    assert read_raw(place.kafka, again) == ODD


def test_they_go_to_an_embedded_cluster_and_back(place: Place, records: list[Raw], west: EmbeddedCluster) -> None:
    west.create_topic(TOPIC, partitions=1)
    mirror(never, place.log(filled(place, records)), west.sink(TOPIC), little_bytes=1 << 40)
    target = place.create("copy")
    copied(west.log(TOPIC), place.sink(target))
    assert read_raw(place.kafka, target) == records


def test_they_go_where_their_keys_say(place: Place, records: list[Raw]) -> None:
    target = place.create("copy", 3)
    sink = place.sink(target, limits=Limits(records=1000))
    keyed = KeyedSink(replace(sink.target, partitions=1), into=3)
    copied(place.log(filled(place, records)), keyed)
    found: list[Any] = [each for number in range(3) for each in read_raw(place.kafka, target, number)]
    assert sorted(map(repr, found)) == sorted(map(repr, records))
