"""Quotas that are used up at once: brokers hold back their answers, and a plan and a mirror take longer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from tests.cli.conftest import Call
from tests.cli.kafka.mirrored import RECORDS, Pair
from tests.servers.kafka import Kafka

pytestmark = pytest.mark.soak  # minutes: brokers are started, killed and asked by whole commands

BYTES_PER_SECOND: Final = 1_000_000
MEGABYTES: Final = RECORDS * 600 // 1_000_000
"""What the mirror has to write."""


@contextmanager
def limited(kafka: Kafka, **rates: float) -> Iterator[None]:
    """Let everybody have only so much."""
    whom = ("--entity-type", "users", "--entity-name", "ANONYMOUS")
    tool = ("kafka.admin.ConfigCommand", "--bootstrap-server", kafka.bootstrap(), "--alter", *whom)
    kafka.tool(*tool, "--add-config", ",".join(f"{name}={rate}" for name, rate in rates.items()))
    yield
    kafka.tool(*tool, "--delete-config", ",".join(rates))


@pytest.mark.fact("F-K-084")
def test_a_plan_and_a_mirror_that_are_throttled_take_longer_and_lose_nothing(
    typed: Call, start_kafka: Callable[..., Kafka], kafka_broker: Kafka, kafka_prefix: str
) -> None:
    pair = Pair(typed, kafka_broker, start_kafka(), kafka_prefix)
    pair.begin()
    with limited(pair.east, producer_byte_rate=BYTES_PER_SECOND, request_percentage=5):
        planned = typed("plan", "--detailed-exitcode")
        assert planned.code == 0, planned.out + planned.err
        begun = time.monotonic()
        mirrored = pair.mirror()
        assert mirrored.code == 0, mirrored.out + mirrored.err
        assert time.monotonic() - begun > MEGABYTES / 3
    pair.assert_mirrored()
