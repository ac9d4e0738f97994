"""Real Kafka brokers on this machine, from the jars of `examples/kafkajars.py`: KRaft, with tiering, ACLs, KIP-950.

    with Kafka.start() as kafka:
        kafka.bootstrap()  # 127.0.0.1:…, metadata answers
        kafka.tool("org.apache.kafka.tools.TopicCommand", "--list", "--bootstrap-server", kafka.bootstrap())

It needs no pytest (fixtures are in `tests/servers/kafkafixtures.py`) and ends with whoever started it, also when that
is killed. Nothing is created by being named; a user without credentials is a super user on the listener `PLAINTEXT`,
which is always there.
"""

from __future__ import annotations

import base64
import gc
import os
import resource
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from examples.kafkajars import NEWEST, classpath, java
from tests.servers.kafkasettings import Node, logging_settings, new_nodes, server_properties

_READY_SECONDS: Final = 90.0
_STOP_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.05
_STARTS: Final = 3
"""Between looking for a free port and using it somebody else may take it."""
_TOOL_SECONDS: Final = 120.0
_LOG_CHARACTERS: Final = 3000
_SMALL: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError")
"""Starts sooner, takes less memory, and exits where its heap is full instead of hanging."""


class StartError(Exception):
    """A broker ended instead of getting ready; the message ends with its log."""


@dataclass
class Broker:
    """One node: broker and controller in one process, in a folder of its own."""

    node: Node
    guards: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.node.folder

    @property
    def classes(self) -> Path:
        """Where classes of its own may be, before it is launched."""
        return self.folder / "classes"

    @property
    def pid(self) -> int:
        return int((self.folder / "pid").read_text())

    @property
    def has_ended(self) -> bool:
        return (self.folder / "ended").exists()

    def count_known(self) -> int:
        """Return how many brokers this one lists; 0 if it does not answer."""
        from confluent_kafka import KafkaException  # noqa: PLC0415 - only who starts a broker pays
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - as above

        # A new client each time: one that has listed several brokers may ask another of them next.
        address = {"bootstrap.servers": f"127.0.0.1:{self.node.ports['PLAINTEXT']}"}
        client = AdminClient({**address, "reconnect.backoff.max.ms": 100, "log_level": 0, "error_cb": lambda _: None})
        with suppress(KafkaException):
            return len(client.list_topics(timeout=0.5).brokers)
        return 0

    def log(self) -> str:
        """Return what it wrote to its log so far."""
        return (self.folder / "log").read_text(errors="replace")

    def launch(self, *, heap: str) -> None:
        """Start its process, for the first time or again on what it kept."""
        for name in ("pid", "ended"):
            (self.folder / name).unlink(missing_ok=True)
        command = [
            *(java(), *_SMALL, f"-Xms{heap}", f"-Xmx{heap}", *logging_settings(self.folder)),
            *("-cp", f"{classpath(self.node.version)}:{self.classes}"),
            *("kafka.Kafka", str(self.folder / "server.properties")),
        ]
        guard = [sys.executable, "-S", str(Path(__file__).with_name("guard.py")), "--stay", str(self.folder)]
        self.guards.append(subprocess.Popen([*guard, *command], stdin=subprocess.PIPE, start_new_session=True))
        self._wait_for("pid")

    def stop(self) -> None:
        """End it as an operator would, and wait; it can be launched again."""
        self._signal(signal.SIGCONT, signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power failure would; it can be launched again."""
        self._signal(signal.SIGKILL)

    def pause(self) -> None:
        """Let it hang: it holds its connections and answers nobody."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def fill(self, file_bytes: int = 1) -> None:
        """Let no file of it grow beyond a size, until it is launched again: writing beyond fails as on a full disk."""
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (file_bytes, resource.RLIM_INFINITY))

    def wait_until_ended(self) -> None:
        """Wait until it has ended by itself."""
        self._wait_for("ended")

    def remove(self) -> None:
        """End it and remove what it kept."""
        for guard in self.guards:
            if guard.stdin is not None:
                guard.stdin.close()
            guard.wait()

    def _signal(self, *signals: signal.Signals) -> None:
        for one in signals:
            with suppress(ProcessLookupError):
                os.kill(self.pid, one)
        self._wait_for("ended")

    def _wait_for(self, name: str) -> None:
        deadline = time.monotonic() + _STOP_SECONDS
        while not (self.folder / name).exists() or not (self.folder / name).read_text():
            if time.monotonic() > deadline:
                message = f"broker {self.node.id} did not get to {name!r}: {self.log()[-_LOG_CHARACTERS:]}"
                raise StartError(message)
            time.sleep(_LOOK_SECONDS)


@dataclass
class Kafka:
    """A running cluster of one or more brokers."""

    version: str
    brokers: list[Broker]
    heap: str

    @classmethod
    def start(  # noqa: PLR0913 - all of them by name
        cls,
        *,
        version: str = NEWEST,
        brokers: int = 1,
        listeners: Mapping[str, str] | Sequence[str] = (),
        extra: Mapping[str, str] | None = None,
        scram: Mapping[str, str] | None = None,
        racks: Sequence[str] = (),
        heap: str = "320m",
        before: Callable[[Kafka], None] = lambda _kafka: None,
    ) -> Kafka:
        """Start one and wait until metadata answers.

        `listeners`: names, or names with their protocols, beside `PLAINTEXT`. `extra`: broker properties, which win.
        `scram`: users of SCRAM-SHA-256 and SCRAM-SHA-512 with their passwords. `racks`: where each broker stands.
        `before` is told of the brokers when their ports are known and nothing runs.
        """
        named = listeners if isinstance(listeners, Mapping) else {name: name for name in listeners}
        for attempt in range(_STARTS):
            kafka = cls(version, [Broker(node) for node in new_nodes(version, brokers, named)], heap)
            try:
                before(kafka)
                kafka._format(dict(extra or {}), dict(scram or {}), racks)
                for broker in kafka.brokers:
                    broker.launch(heap=heap)
                kafka.wait_until_ready()
            except StartError as error:
                kafka.close()
                if attempt == _STARTS - 1 or "already in use" not in str(error):
                    raise
            except BaseException:
                kafka.close()
                raise
            else:
                return kafka
        raise AssertionError

    def bootstrap(self, listener: str = "PLAINTEXT") -> str:
        """Return the addresses of all brokers on one listener, separated by commas."""
        return ",".join(f"127.0.0.1:{broker.node.ports[listener]}" for broker in self.brokers)

    def stop(self, *which: int) -> None:
        """End brokers as an operator would: all of them, or those of these positions."""
        for broker in self._those(which):
            broker.stop()

    def kill(self, *which: int) -> None:
        """End brokers as a power failure would."""
        for broker in self._those(which):
            broker.kill()

    def pause(self, *which: int) -> None:
        """Let brokers hang (SIGSTOP)."""
        for broker in self._those(which):
            broker.pause()

    def resume(self, *which: int) -> None:
        """Let paused brokers go on."""
        for broker in self._those(which):
            broker.resume()

    def restart(self, *which: int) -> None:
        """Start brokers that were stopped or killed, on what they kept, and wait until metadata answers."""
        for broker in self._those(which):
            broker.launch(heap=self.heap)
        self.wait_until_ready()

    def tool(self, name: str, *arguments: str, given: str | None = None, fails: bool = False) -> str:
        """Run a class of Kafka's own tools, as `kafka-topics.sh` and its like do, and return what it printed.

        Raises:
            AssertionError: It failed (unless `fails`, which returns what it said).
        """
        command = [
            *(java(), *_SMALL, "-Xmx256m", *logging_settings(self.brokers[0].folder)),
            *("-cp", classpath(self.version), name, *arguments),
        ]
        ended = subprocess.run(command, input=given, capture_output=True, text=True, timeout=_TOOL_SECONDS, check=False)
        if fails:
            return ended.stdout + ended.stderr
        assert ended.returncode == 0, f"{name} {arguments}: {ended.stdout}{ended.stderr}"
        return ended.stdout

    @contextmanager
    def limited(self, **rates: float) -> Iterator[None]:
        """Let everybody have only so much, such as `consumer_byte_rate`."""
        whom = ("--entity-type", "users", "--entity-name", "ANONYMOUS")
        command = ("kafka.admin.ConfigCommand", "--bootstrap-server", self.bootstrap(), "--alter", *whom)
        self.tool(*command, "--add-config", ",".join(f"{name}={rate}" for name, rate in rates.items()))
        try:
            yield
        finally:
            self.tool(*command, "--delete-config", ",".join(rates))

    def topics(self, *arguments: str) -> str:
        """Run `kafka-topics.sh` here."""
        return self.tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.bootstrap(), *arguments)

    def names(self) -> set[str]:
        """Return which topics there are, without the second that `kafka-topics.sh --list` takes to say so."""
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - only who asks pays

        return set(AdminClient({"bootstrap.servers": self.bootstrap(), "log_level": 0}).list_topics(timeout=30).topics)

    def consumed(self, topic: str, count: int, *properties: str) -> list[str]:
        """Return what the console consumer prints of a topic's first `count` committed records."""
        shown = ("timestamp", "partition", "offset", "headers", "key", "value", *properties)
        printed = [part for name in shown for part in (_PROPERTY[self.version[0]], f"print.{name}=true")]
        return self.tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", self.bootstrap(), "--topic", topic, "--from-beginning"),
            *("--isolation-level", "read_committed"),
            *("--max-messages", str(count), "--timeout-ms", "20000", *printed),
        ).splitlines()

    def wait_until_ready(self) -> None:
        """Wait until every broker is in the metadata that the others give.

        Raises:
            StartError: One ended, or it took too long.
        """
        deadline = time.monotonic() + _READY_SECONDS
        for asked in self.brokers:
            while asked.count_known() != len(self.brokers):
                ended = [broker for broker in self.brokers if broker.has_ended]
                if ended or time.monotonic() > deadline:
                    log = (ended or [asked])[0].log()[-_LOG_CHARACTERS:]
                    raise StartError(f"Kafka {self.version} did not get ready: {log}")
                time.sleep(_LOOK_SECONDS)

    def close(self) -> None:
        """End all and remove what they kept."""
        # Clients in reference cycles try to reconnect until they are collected: a hundred of them use a whole core.
        gc.collect()
        for broker in self.brokers:
            broker.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _those(self, which: tuple[int, ...]) -> list[Broker]:
        return [self.brokers[position] for position in which] if which else self.brokers

    def _format(self, extra: Mapping[str, str], scram: Mapping[str, str], racks: Sequence[str]) -> None:
        cluster = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=").replace("-", "a")
        users = [
            part
            for name, password in scram.items()
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for part in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
        ]
        for number, broker in enumerate(self.brokers):
            properties = broker.folder / "server.properties"
            own = {**extra, "broker.rack": racks[number]} if racks else extra
            properties.write_text(server_properties(broker.node, [one.node for one in self.brokers], own))
            alone = ["--standalone"] if len(self.brokers) == 1 else []
            self.tool("kafka.tools.StorageTool", "format", *alone, "-t", cluster, "-c", str(properties), *users)


_PROPERTY: Final = {"3": "--property", "4": "--formatter-property"}
