"""Kafka brokers for the tests of one worker process: started when the first of them asks, ended with the last.

`kafka_broker` runs the newest version, `kafka_39` the oldest that has KIP-950; tests share them and use names of their
own (`kafka_prefix`). A test that stops, pauses or fills a broker starts its own: `start_kafka(brokers=3, …)`.
"""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from examples.kafkajars import OLDER, KafkaMissingError
from reconciler.providers.brokers.client import KafkaClient
from reconciler.providers.brokers.records import record_log
from tests.servers.kafka import Kafka
from tests.servers.kafkasecured import Secured, secured


def _started(**options: Any) -> Kafka:
    try:
        return Kafka.start(**options)
    except KafkaMissingError as error:
        return pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[Kafka]:
    with _started() as kafka:
        yield kafka


@pytest.fixture(scope="session")
def kafka_39() -> Iterator[Kafka]:
    with _started(version=OLDER) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def kafka_secured() -> Iterator[Secured]:
    """Return a broker with a listener for every way to log in, and some that nobody should trust."""
    try:
        with secured() as found:
            yield found
    except KafkaMissingError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def start_kafka() -> Iterator[Callable[..., Kafka]]:
    """Start brokers that end with the test; the options are those of `Kafka.start`."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(_started(**options))


@pytest.fixture(scope="session", autouse=True)
def _opened() -> Iterator[weakref.WeakSet[KafkaClient]]:
    opened: weakref.WeakSet[KafkaClient] = weakref.WeakSet()
    begin = KafkaClient.__init__

    def noted(self: KafkaClient, *given: Any) -> None:
        begin(self, *given)
        opened.add(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KafkaClient, "__init__", noted)
        yield opened


@pytest.fixture(autouse=True)
def _no_connection_outlives_a_test(_opened: weakref.WeakSet[KafkaClient]) -> Iterator[None]:
    """Close what is still open: its thread would look for brokers that are gone beside other tests, at random."""
    yield
    for client in list(_opened):
        client.close()
    record_log._pool.close()


@pytest.fixture
def kafka_prefix() -> str:
    """What names of this test begin with, legal as a namespace: brokers are shared."""
    return f"t{secrets.token_hex(5)}"
