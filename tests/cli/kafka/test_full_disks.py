"""A disk that fills up under a mirror: it ends in bounded time and says why, and the same command again goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import pytest

from tests.cli.conftest import Call
from tests.cli.kafka.mirrored import Pair
from tests.servers.kafka import Kafka

pytestmark = pytest.mark.soak  # minutes: brokers are started, killed and asked by whole commands

FULL_BYTES: Final = 2 << 20
"""Of a file: less than a partition of the mirror takes, more than any other file of the brokers."""
SMALL_INDEXES: Final = {"log.index.size.max.bytes": "1048576"}
BOUND_SECONDS: Final = 120
"""Records are given up after sixty, and their transaction after ten more; a busy machine is slower."""


@pytest.mark.fact("F-K-090")
def test_a_mirror_whose_disk_fills_up_goes_on_when_there_is_room(
    typed: Call, kafka_broker: Kafka, start_kafka: Callable[..., Kafka], kafka_prefix: str
) -> None:
    east = start_kafka(extra=SMALL_INDEXES)
    pair = Pair(typed, kafka_broker, east, kafka_prefix)
    pair.begin()
    east.brokers[0].fill(FULL_BYTES)
    begun = time.monotonic()
    failed = pair.mirror()
    assert time.monotonic() - begun < BOUND_SECONDS
    assert failed.code == 8, failed.out + failed.err
    assert f"{east.bootstrap()} refuses connections: nobody listens there" in failed.err
    east.brokers[0].wait_until_ended()  # It has one log directory, and ends without it.
    east.restart()
    pair.assert_mirrored()
