"""A certificate of the brokers that expires under a command: what is open lives on, and what is new is told why not."""

from __future__ import annotations

import datetime as dt
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.cli.conftest import Call, Said
from tests.cli.kafka.mirrored import RECORDS, Pair
from tests.servers.certificates import Authority
from tests.servers.kafka import Kafka
from tests.servers.relay import Relay

pytestmark = pytest.mark.soak  # minutes: brokers are started, killed and asked by whole commands


STORE: Final = "listener.name.tls.ssl.keystore.location"
EXPIRED: Final = "is not trusted: its certificate has expired"
RENEW: Final = "Renew the certificate of the broker."
SOON_SECONDS, BOUND_SECONDS = 60, 120


@dataclass
class Certified:
    """Brokers with TLS behind a relay, and two certificates: one that lasts, and one that has expired."""

    kafka: Kafka
    relay: Relay
    ca: Path
    good: Path
    expired: Path

    @property
    def reached(self) -> dict[str, Any]:
        return {"bootstrapServers": [self.relay.address], "security": {"protocol": "SSL", "caFile": str(self.ca)}}

    def expire(self, *, after: int) -> None:
        """Let the certificate have expired once so many bytes have passed, and every connection end."""
        self.relay.cut(after=after, then=lambda: self.show(self.expired))

    def show(self, store: Path) -> None:
        """Let the brokers show another certificate from now on, while they run, and wait until they do."""
        entry = ConfigEntry(STORE, str(store), incremental_operation=AlterConfigOpType.SET)
        asked = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap()})
        admin.incremental_alter_configs([asked])[asked].result(30)
        until, address = time.monotonic() + 30, ("127.0.0.1", self.kafka.brokers[0].node.ports["TLS"])
        while ssl.get_server_certificate(address) not in store.read_text():
            assert time.monotonic() < until


@pytest.fixture
def certified(tmp_path_factory: pytest.TempPathFactory, start_kafka: Callable[..., Kafka]) -> Iterator[Certified]:
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    later = Authority(tmp_path_factory.mktemp("expired"), key=authority.key)
    good, expired = authority.keystore("broker"), later.keystore("broker", lasts=-dt.timedelta(hours=1))
    extra = {
        STORE: str(good),
        "listener.name.tls.ssl.keystore.type": "PEM",
        "listener.name.tls.ssl.truststore.type": "PEM",
        "listener.name.tls.ssl.truststore.location": str(authority.ca),
        "num.network.threads": "1",  # They change their certificates one after the other.
    }
    with Relay() as relay:

        def lead(kafka: Kafka) -> None:
            ports = kafka.brokers[0].node.ports
            relay.lead_to(ports["TLS"])
            plain = f"PLAINTEXT://127.0.0.1:{ports['PLAINTEXT']}"
            extra["advertised.listeners"] = f"{plain},TLS://{relay.address}"

        kafka = start_kafka(listeners={"TLS": "SSL"}, extra=extra, before=lead)
        yield Certified(kafka, relay, authority.ca, good, expired)


def assert_told(certified: Certified, said: Said) -> None:
    assert not certified.relay.is_cutting
    assert said.code != 0
    assert f"{certified.relay.address} {EXPIRED}" in said.err, said.out + said.err
    assert "Traceback" not in said.out + said.err


def test_in_the_middle_of_a_plan(certified: Certified, kafka_broker: Kafka, typed: Call, kafka_prefix: str) -> None:
    Pair(typed, kafka_broker, certified.kafka, kafka_prefix).declare(east=certified.reached)
    size = bytes_of_a_plan(certified, typed)
    certified.expire(after=size // 2)
    begun = time.monotonic()
    failed = typed("plan")
    assert time.monotonic() - begun < SOON_SECONDS
    assert_told(certified, failed)
    assert RENEW in failed.err
    certified.show(certified.good)
    assert typed("plan").code == 0


def test_in_the_middle_of_an_apply(certified: Certified, kafka_broker: Kafka, typed: Call, kafka_prefix: str) -> None:
    pair = Pair(typed, kafka_broker, certified.kafka, kafka_prefix)
    pair.declare(east=certified.reached)
    certified.expire(after=bytes_of_a_plan(certified, typed) + 8_000)
    failed = typed("apply", "--yes")
    assert_told(certified, failed)
    certified.show(certified.good)
    done = typed("apply", "--yes")
    assert done.code == 0, done.out + done.err
    pair.produce()
    pair.assert_mirrored()


def bytes_of_a_plan(certified: Certified, typed: Call) -> int:
    before = certified.relay.passed
    assert typed("plan").code == 0
    return certified.relay.passed - before


@pytest.mark.fact("F-K-090")
@pytest.mark.parametrize("where", ["west", "east"], ids=["read from", "written to"])
def test_in_the_middle_of_a_mirror(
    certified: Certified, start_kafka: Callable[..., Kafka], typed: Call, kafka_prefix: str, where: str
) -> None:
    both = {"west": certified.kafka, "east": certified.kafka} | {"east" if where == "west" else "west": start_kafka()}
    pair = Pair(typed, both["west"], both["east"], kafka_prefix)
    pair.begin(**{where: certified.reached})
    certified.expire(after=3 << 20)
    begun = time.monotonic()
    failed = pair.mirror()
    assert time.monotonic() - begun < BOUND_SECONDS
    assert_told(certified, failed)
    certified.show(certified.good)
    pair.assert_mirrored()


# A disk that fills up under a mirror: it ends in bounded time and says why, and the same command again goes on.


FULL_BYTES: Final = 2 << 20
"""Of a file: less than a partition of the mirror takes, more than any other file of the brokers."""
SMALL_INDEXES: Final = {"log.index.size.max.bytes": "1048576"}
DISK_BOUND_SECONDS: Final = 120
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
    assert time.monotonic() - begun < DISK_BOUND_SECONDS
    assert failed.code == 8, failed.out + failed.err
    assert f"{east.bootstrap()} refuses connections: nothing listens on that port" in failed.err
    east.brokers[0].wait_until_ended()  # It has one log directory, and ends without it.
    east.restart()
    pair.assert_mirrored()


# Quotas that are used up at once: brokers hold back their answers, and a plan and a mirror take longer.


BYTES_PER_SECOND: Final = 300_000
MEGABYTES: Final = RECORDS * 600 // 1_000_000
"""What the mirror has to write."""


@pytest.mark.fact("F-K-084")
def test_a_plan_and_a_mirror_that_are_throttled_take_longer_and_lose_nothing(
    typed: Call, start_kafka: Callable[..., Kafka], kafka_broker: Kafka, kafka_prefix: str
) -> None:
    pair = Pair(typed, kafka_broker, start_kafka(), kafka_prefix)
    pair.begin()
    with pair.east.limited(producer_byte_rate=BYTES_PER_SECOND, request_percentage=5):
        planned = typed("plan", "--detailed-exitcode")
        assert planned.code == 0, planned.out + planned.err
        begun = time.monotonic()
        mirrored = pair.mirror()
        assert mirrored.code == 0, mirrored.out + mirrored.err
        assert time.monotonic() - begun > MEGABYTES / 3
    pair.assert_mirrored()
