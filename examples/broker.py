"""A Kafka broker of our own, for a story that was given none: one node, in a folder, gone with the story."""

from __future__ import annotations

import base64
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kafkajars import classpath, java

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/records
auto.create.topics.enable=false
controlled.shutdown.enable=false
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
"""
READY_SECONDS = 90
SMALL = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx320m")


class NoBrokerError(Exception):
    """It ended, or did not get ready; the message ends with its log."""


@contextmanager
def broker() -> Iterator[str]:
    """Start a broker and return where it listens; it ends with the block."""
    with tempfile.TemporaryDirectory(prefix="kafka-", ignore_cleanup_errors=True) as folder:
        port, controller = _free_ports()
        settings = Path(folder, "server.properties")
        settings.write_text(PROPERTIES.format(port=port, controller=controller, folder=folder), encoding="utf-8")
        run = (java(), *SMALL, "-cp", classpath())
        cluster = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=").replace("-", "a")
        formatting = (*run, "kafka.tools.StorageTool", "format", "--standalone", "-t", cluster, "-c", str(settings))
        subprocess.run(formatting, check=True, capture_output=True)
        with Path(folder, "log").open("w", encoding="utf-8") as log:
            server = subprocess.Popen((*run, "kafka.Kafka", str(settings)), stdout=log, stderr=log, cwd=folder)
        try:
            _wait_until_ready(port, server, Path(folder, "log"))
            yield f"127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()


def _wait_until_ready(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    from confluent_kafka import KafkaException  # noqa: PLC0415 - only who starts a broker needs it
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - as above

    settings = {"bootstrap.servers": f"127.0.0.1:{port}", "reconnect.backoff.max.ms": 100, "log_level": 0}
    asked = AdminClient({**settings, "error_cb": lambda _: None})
    deadline = time.monotonic() + READY_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        with suppress(KafkaException):
            if asked.list_topics(timeout=0.5).brokers:
                return
    raise NoBrokerError(log.read_text(encoding="utf-8", errors="replace")[-2000:])


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        for free in (one, other):
            free.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]
