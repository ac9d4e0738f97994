"""Copies of compacted topics compared: both brokers compact when they like, and the newest of each key must be in both.

What a broker compacted is written here as it leaves it: a log without the records that it took.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from reconciler.jobs.ordered import verify_renumbered
from reconciler.providers.kafka.records.record_log import KafkaLog
from reconciler.records.log import OffsetRange, Spans
from tests.jobs.kafka.copies import Place, copied

KEYS = ["a", "b", "a", "c", "b", "a", "d", "e"]
VALUES = ["0", "1", "2", "3", None, "5", "6", "7"]


@dataclass(frozen=True)
class Thinned(KafkaLog):
    """A log as its broker leaves it that took some records away: by key and value, which are told apart here."""

    taken: frozenset[str | None] = frozenset()

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

    def without(self, copy: Sequence[str | None] = (), source: Sequence[str | None] = ()) -> Any:
        """Return what comes of comparing them, without records that were taken from either."""
        logs = (self._thinned(self.target, copy), self._thinned(self.source, source))
        (found,) = verify_renumbered(None, *logs, self.spans).partitions
        return found

    def _thinned(self, topic: str, taken: Sequence[str | None]) -> Thinned:
        log = self.place.log(topic)
        return Thinned(log.topic, log.settings, log.admin, log.cluster, taken=frozenset(taken))


def pair_of(place: Place, **configs: str) -> Pair:
    source, target = place.create("state", **configs), place.create("copy", **configs)
    producer = Producer({**place.settings, "transactional.id": source})
    producer.init_transactions(60)
    for key, value in zip(KEYS, VALUES, strict=True):
        producer.begin_transaction()
        producer.produce(source, value, key, partition=0)
        producer.commit_transaction(60)
    sink = place.sink(target)
    copied(place.log(source), sink)
    return Pair(place, source, target, sink.spans(place.log(source).bounds()))


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


def test_what_somebody_else_wrote_into_a_copy_differs(pair: Pair) -> None:
    producer = Producer(pair.place.settings)
    producer.produce(pair.target, "not ours", "a", partition=0)
    assert producer.flush(60) == 0
    last = Producer({**pair.place.settings, "transactional.id": f"{pair.source}-last"})
    last.init_transactions(60)
    last.begin_transaction()
    last.produce(pair.source, "last", "a", partition=0)
    last.commit_transaction(60)
    sink = pair.place.sink(pair.target)
    copied(pair.place.log(pair.source), sink)
    pair.spans = sink.spans(pair.place.log(pair.source).bounds())
    found = pair.without(copy=["0"])
    assert found.differences
    marker = 1
    assert found.first_difference == len(KEYS) + marker


def test_of_a_topic_that_is_never_compacted_every_record_counts(place: Place) -> None:
    found = pair_of(place).without(copy=["0"])
    assert found.differences == ("records", "digest")
    assert found.first_difference == 1  # what comes after the one that is gone
