"""A server that answers as Redpanda does: the Kafka API before a real broker, and the Admin API.

    with Redpanda.start(versions=["25.3.1"] * 3) as redpanda:
        redpanda.kafka  # 127.0.0.1:…,127.0.0.1:…
        redpanda.admin  # ["http://127.0.0.1:…", …]
        redpanda.faults.add("lost", "POST", "/v1/topics/mount")

It is written from the documented contract. Two servers with one `bucket` are two clusters that share a bucket.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self

from tests.servers.emulation.faults import Faults
from tests.servers.kafka import Kafka
from tests.servers.redpanda.admin import Admin
from tests.servers.redpanda.bucket import Bucket
from tests.servers.redpanda.cluster import Cluster
from tests.servers.redpanda.kafka_api import RedpandaFront
from tests.servers.redpanda.migrations import Migrations
from tests.servers.redpanda.recoveries import Recoveries
from tests.servers.redpanda.shadow_links import ShadowLinks
from tests.servers.redpanda.topics import TopicStore

VERSIONS: Final = ("25.3.1",) * 3
_PROPERTIES: Final = {
    "cloud_storage_enabled": True,
    "cloud_storage_region": "local",
    "cloud_storage_bucket": "tests",
    "cloud_storage_access_key": "access",
    "cloud_storage_secret_key": "secret",
}
_BROKER: Final = {
    "log.segment.bytes": "134217728",
    "log.roll.ms": "1209600000",
    "message.max.bytes": "1048576",
    "remote.log.storage.system.enable": "false",
    "log.message.timestamp.after.max.ms": str((1 << 63) - 1),
}
"""Redpanda's defaults, no internal topic of Kafka's tiering, and no limit for timestamps that are written back."""


class Redpanda(AbstractContextManager["Redpanda"]):
    """The emulated cluster; its nodes have the ids 1, 2, …, and its records are at one broker."""

    def __init__(  # noqa: PLR0913 - all options by name
        self,
        broker_port: int,
        bucket: Path,
        *,
        versions: Sequence[str] = VERSIONS,
        properties: dict[str, Any] | None = None,
        license_status: str = "valid",
        words: str | None = None,
        certificate: tuple[Path, Path] | None = None,
        client_ca: Path | None = None,
    ) -> None:
        """Serve before a broker that runs already; `start` has the options."""
        self.user, self.password = "admin", "admin-password"
        self.broker_port, self.bucket = broker_port, bucket
        self.words = words
        self.faults = Faults()
        self.cluster = Cluster(list(versions), {**_PROPERTIES, **(properties or {})}, license_status)
        self.topics = TopicStore(self.cluster)
        self.front = RedpandaFront(broker_port, self.cluster, self.topics, self.faults)
        self.migrations = Migrations(broker_port, Bucket(bucket), self.topics, self.front, self.faults)
        self.links = ShadowLinks(broker_port, self.topics, self.front, self.faults)
        self.recoveries = Recoveries(broker_port, Bucket(bucket), self.topics, self.front, self.faults)
        self._admin = Admin(self, certificate, client_ca)
        self._stack, self._outlives = ExitStack(), False
        for part in (self.front, self.migrations, self.links, self._admin):
            part.start()

    @classmethod
    def start(cls, *, bucket: Path | None = None, extra: dict[str, str] | None = None, **options: Any) -> Self:
        """Start a broker and serve before it.

        `bucket`: a folder, a new one by default; one that is given gets what a new cluster restores at the end.
        `extra`: properties of the broker. `versions`: one for each node.
        `properties`: cluster properties; object storage is on by default. `license_status`: `valid`, `expired` or
        `not_present`. `words`: `old` answers with the statuses of 24.3, `new` with today's; the version decides by
        default. `certificate`: certificate and key of the Admin API; `client_ca`: clients need a certificate.
        """
        with ExitStack() as stack:
            is_given = bucket is not None
            kafka = stack.enter_context(Kafka.start(extra={**_BROKER, **(extra or {})}))
            if bucket is None:
                bucket = Path(tempfile.mkdtemp(prefix="redpanda-bucket-"))
                stack.callback(shutil.rmtree, bucket, ignore_errors=True)
            server = cls(kafka.brokers[0].node.ports["PLAINTEXT"], bucket, **options)
            server._outlives = is_given
            server._stack = stack.pop_all()
        return server

    @property
    def kafka(self) -> str:
        """Addresses of the Kafka API, separated by commas."""
        return ",".join(f"127.0.0.1:{port}" for port in self.front.ports)

    def bootstrap(self) -> str:
        """Return the addresses, as a Kafka cluster of the tests does."""
        return self.kafka

    @property
    def admin(self) -> list[str]:
        """URLs of the Admin API, one for each node."""
        return self._admin.urls

    @property
    def requests(self) -> list[tuple[int, str, str]]:
        """Node, method and path of every request to the Admin API."""
        return self._admin.requests

    @property
    def log(self) -> list[str]:
        """Why migrations do not move on, topics are not copied, or came back without some records."""
        return [*self.migrations.log, *self.links.log, *self.recoveries.log]

    def advance(self, migration: int | None = None, steps: int = 1) -> None:
        """Move migrations on by a number of states; for `faults.pace = "told"`."""
        self.migrations.advance(migration, steps)

    def restart(self, node: int | None = None, seconds: float = 0.0) -> None:
        """Restart one node or all: pending properties take effect; nodes do not answer for some seconds."""
        for each in self.cluster.nodes:
            if node in {None, each.id}:
                self.cluster.restart(each, seconds)

    def lag(self, node: int, polls: int) -> None:
        """Let a node report the config version of now until the config status was read so many times."""
        self.cluster.nodes[node - 1].lag_polls = polls

    def close(self) -> None:
        for part in (self._admin, self.links, self.migrations, self.recoveries, self.front):
            part.close()
        if self._outlives:
            with suppress(OSError):  # the broker is gone
                self.recoveries.upload()
        self._stack.close()

    def __exit__(self, *_: object) -> None:
        self.close()
