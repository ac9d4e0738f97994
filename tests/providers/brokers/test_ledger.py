"""The ledger of one process that many threads read at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from time import monotonic
from typing import Final

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient
from kafka.errors import TransactionalIdNotFoundError

from reconciler.errors import UserError
from reconciler.providers.brokers.ledger import (
    TOPIC,
    Ledger,
    LedgerReader,
    encode_entry,
    map_key,
    mirror_key,
    parse_key,
)
from reconciler.providers.brokers.links.link_states import parse_states
from tests.servers.kafka import Kafka
from tests.servers.kafkatopics import build_record_settings, make_topic

pytestmark = pytest.mark.thorough

THREADS, WRITES = 8, 5
FORGETFUL: Final = {
    "transactional.id.expiration.ms": "1000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
}


def test_threads_share_readings_and_none_misses_what_was_there_when_it_asked(
    start_kafka: Callable[..., Kafka], monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = start_kafka()
    make_topic(kafka, TOPIC)
    ours, theirs = Ledger(build_record_settings(kafka), "west"), Ledger(build_record_settings(kafka), "west")
    readings: list[LedgerReader] = []
    real = LedgerReader.read_new

    def counted(tail: LedgerReader, forget: Callable[[], None]) -> Iterator[tuple[bytes, bytes | None]]:
        readings.append(tail)
        return real(tail, forget)

    def write_and_read(thread: int) -> None:
        for number in range(WRITES):
            theirs.change(f"tests.{thread}", lambda _, number=number: {("count", f"{thread}"): {"n": number}}, "count")
            assert ours.read("count")["count", f"{thread}"]["n"] >= number

    ours.read("count")
    monkeypatch.setattr(LedgerReader, "read_new", counted)
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(write_and_read, range(THREADS)))
        readings.clear()
        list(threads.map(lambda _: ours.read("count"), range(200)))
    assert len(readings) < 200
    ours.close()
    theirs.close()


def test_what_others_wrote_into_the_ledger_is_passed_over_or_removed_as_the_hint_says(
    start_kafka: Callable[..., Kafka],
) -> None:
    kafka = start_kafka()
    make_topic(kafka, TOPIC)
    producer = Producer({"bootstrap.servers": kafka.bootstrap()})
    kept, _ = encode_entry(mirror_key("orders"), None)

    def write(key: bytes, value: bytes | None) -> None:
        producer.produce(TOPIC, key=key, value=value, partition=0)
        assert producer.flush(30) == 0

    write(b"hello", b"world")
    write(b"['mirror', 'orders']", None)
    write(kept, b'{"not": "ours"}')
    ledger = Ledger(build_record_settings(kafka), "west")
    with pytest.raises(UserError, match="reconciler did not write") as refused:
        parse_states(ledger.read())
    said = re.search(r"with the key (.*) and no value", refused.value.hint or "")
    assert said is not None
    assert said[1].encode() == kept, "compaction removes what has the very same key"
    write(said[1].encode(), None)
    assert not parse_states(ledger.read()).mirrors


def test_a_value_that_is_no_json_is_refused_at_each_read_until_a_record_removes_it(
    start_kafka: Callable[..., Kafka],
) -> None:
    kafka = start_kafka()
    make_topic(kafka, TOPIC)
    producer = Producer({"bootstrap.servers": kafka.bootstrap()})
    spoilt, _ = encode_entry(mirror_key("orders"), None)

    def write(*records: tuple[bytes, bytes | None]) -> None:
        for key, value in records:
            producer.produce(TOPIC, key=key, value=value, partition=0)
        assert producer.flush(30) == 0

    write((spoilt, b"no JSON"), encode_entry(mirror_key("bills"), {"state": "ACTIVE"}))
    ledger = Ledger(build_record_settings(kafka), "west")
    for _ in range(2):
        with pytest.raises(UserError, match="reconciler did not write"):
            ledger.read()
    write((spoilt, None))
    assert ledger.read() == {mirror_key("bills"): {"state": "ACTIVE"}}
    ledger.close()


@pytest.mark.parametrize(
    ("key", "is_ours"),
    [
        (encode_entry(mirror_key("orders"), None)[0], True),
        (encode_entry(map_key('größe "\x01\t\x7f\u2028\\/', 0, 12), None)[0], True),
        (b'["mirror", "orders"]', False),
        (b'["mirror","\\u006frders"]', False),
        (b'["mirror"]', False),
        (b'[["mirror"],"orders"]', False),
        (b"[]", False),
        (b"", False),
    ],
)
def test_only_a_key_as_the_ledger_writes_it_names_an_entry(key: bytes, *, is_ours: bool) -> None:
    assert (parse_key(key) is not None) is is_ours


def test_who_wrote_nothing_for_so_long_that_brokers_forgot_its_id_writes_all_the_same(
    start_kafka: Callable[..., Kafka],
) -> None:
    kafka = start_kafka(extra=FORGETFUL)
    make_topic(kafka, TOPIC)
    ledger = Ledger(build_record_settings(kafka), "west")
    ledger.change("tests.idle", lambda _: {("count", "a"): {"n": 1}}, "count")
    with closing(KafkaAdminClient(bootstrap_servers=[kafka.bootstrap()])) as admin:
        deadline = monotonic() + 60
        while _is_known(admin, "tests.idle"):
            assert monotonic() < deadline, "the id does not expire"
    ledger.change("tests.idle", lambda _: {("count", "a"): {"n": 2}}, "count")
    assert ledger.read("count")["count", "a"] == {"n": 2}
    ledger.close()


def _is_known(admin: KafkaAdminClient, transactional_id: str) -> bool:
    try:
        return bool(admin.describe_transactions([transactional_id]))
    except TransactionalIdNotFoundError:
        return False
