"""The properties of brokers for tests: small, quick, with everything on that the reconciler has to do with."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.servers.ports import free_ports

_LOG4J: Final = """\
rootLogger.level=WARN
rootLogger.appenderRefs=out
rootLogger.appenderRef.out.ref=OUT
appender.out.type=Console
appender.out.name=OUT
appender.out.target=SYSTEM_ERR
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %c: %m%n
"""
_RELOAD4J: Final = """\
log4j.rootLogger=WARN, OUT
log4j.appender.OUT=org.apache.log4j.ConsoleAppender
log4j.appender.OUT.Target=System.err
log4j.appender.OUT.layout=org.apache.log4j.PatternLayout
log4j.appender.OUT.layout.ConversionPattern=%d %p %c: %m%n
"""


@dataclass(frozen=True)
class Node:
    """One node before it runs."""

    id: int
    version: str
    folder: Path
    protocols: Mapping[str, str]
    """By listener, without the controllers'."""
    ports: Mapping[str, int]
    """By listener."""


def new_nodes(version: str, count: int, listeners: Mapping[str, str]) -> list[Node]:
    """Return nodes with ports and folders of their own."""
    protocols = {"PLAINTEXT": "PLAINTEXT", **listeners}
    names = [*protocols, "CONTROLLER"]
    ports = free_ports(count * len(names))
    return [
        Node(
            number + 1,
            version,
            Path(tempfile.mkdtemp(prefix="kafka-")),
            protocols,
            dict(zip(names, ports[number * len(names) :], strict=False)),
        )
        for number in range(count)
    ]


def server_properties(node: Node, nodes: Sequence[Node], extra: Mapping[str, str]) -> str:
    """Return the text of a node's `server.properties`; `extra` wins."""
    properties = {**_identity(node, nodes), **_internal_topics(len(nodes)), **_tiering(nodes), **extra}
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def logging_settings(folder: Path) -> list[str]:
    """Return what makes Java write warnings to its errors, whichever of the two loggings a version has."""
    new, old = folder / "log4j2.properties", folder / "log4j.properties"
    if not old.exists():
        new.write_text(_LOG4J)
        old.write_text(_RELOAD4J)
    return [f"-Dlog4j2.configurationFile={new}", f"-Dlog4j.configuration=file:{old}"]


def _identity(node: Node, nodes: Sequence[Node]) -> dict[str, str]:
    addresses = [f"{name}://127.0.0.1:{port}" for name, port in node.ports.items()]
    protocols = {**node.protocols, "CONTROLLER": "PLAINTEXT"}
    controllers = {one.id: f"127.0.0.1:{one.ports['CONTROLLER']}" for one in nodes}
    if len(nodes) == 1:
        quorum = {"controller.quorum.bootstrap.servers": controllers[node.id]}
    else:
        quorum = {"controller.quorum.voters": ",".join(f"{number}@{at}" for number, at in controllers.items())}
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.id),
        **quorum,
        "listeners": ",".join(addresses),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "log.dirs": str(node.folder / "records"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
        "auto.create.topics.enable": "false",
        "controlled.shutdown.enable": str(len(nodes) > 1).lower(),
        # The default of 128 MiB is allocated at the start, and leaves the heap no room for the topics of many tests.
        "log.cleaner.dedupe.buffer.size": str(4 << 20),
    }


def _internal_topics(brokers: int) -> dict[str, str]:
    copies = str(min(brokers, 3))
    in_sync = "1" if brokers == 1 else "2"
    return {
        "num.partitions": "1",
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.num.partitions": "8",
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": "0",
    }


def _tiering(nodes: Sequence[Node]) -> dict[str, str]:
    remote = nodes[0].folder / "remote"  # one for all of them, as object storage would be
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": ("org.apache.kafka.server.log.remote.storage.LocalTieredStorage"),
        "remote.log.storage.manager.impl.prefix": "rsm.config.",
        "remote.log.metadata.manager.impl.prefix": "rlmm.config.",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rsm.config.dir": str(remote),
        "rsm.config.delete.on.close": "false",
        "rlmm.config.remote.log.metadata.topic.replication.factor": str(min(len(nodes), 3)),
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "rlmm.config.remote.log.metadata.topic.min.isr": "1",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
        "log.initial.task.delay.ms": "100",
    }
