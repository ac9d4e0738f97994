"""Sinks that do something between what a sink does, and topics to copy."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import UserError
from reconciler.jobs.copy import copy_log
from reconciler.objectstore.directory import DirectoryStore
from reconciler.records.log import ObservedSource, OffsetRange, SinkPosition, StagedRecords, StagedSink, TopicLog
from tests.engines import on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reconciler.jobs.flows import CopyResult

TOPIC = "orders"


@dataclass
class Wrapped:
    """A sink that is another one, until a test says otherwise."""

    sink: StagedSink

    def check_shared(self) -> None:
        self.sink.check_shared()

    def follow_source(self, source: ObservedSource) -> StagedSink:
        self.sink = self.sink.follow_source(source)
        return self

    def read_ends(self) -> Mapping[int, int]:
        return self.sink.read_ends()

    def read_positions(self, only: Collection[int] | None = None) -> Mapping[int, SinkPosition]:
        return self.sink.read_positions(only)

    def stage(self, partition: int, batches: Any, *, at: OffsetRange | None) -> StagedRecords:
        return self.sink.stage(partition, batches, at=at)

    def stage_copy(self, partition: int, source: TopicLog, offsets: OffsetRange) -> StagedRecords:
        return self.sink.stage_copy(partition, source, offsets)

    def publish(self, staged: Sequence[StagedRecords]) -> Mapping[int, OffsetRange]:
        return self.sink.publish(staged)

    def mark_complete(self) -> None:
        self.sink.mark_complete()


@dataclass
class Unshared(Wrapped):
    """A sink that no executor sees."""

    def check_shared(self) -> None:
        raise UserError("file:///data is not visible to the executor on worker-7", hint="Share it.")


@dataclass
class Broken(Wrapped):
    """A sink with a bug that shows in one partition."""

    def stage_copy(self, partition: int, source: TopicLog, offsets: OffsetRange) -> StagedRecords:
        if partition == 1:
            raise ZeroDivisionError("division by zero in partition 1")
        return super().stage_copy(partition, source, offsets)


@dataclass
class Refusing(Wrapped):
    """A sink that refuses one partition."""

    def stage_copy(self, partition: int, source: TopicLog, offsets: OffsetRange) -> StagedRecords:
        if partition == 1:
            raise UserError("no space left for partition 1", hint="Free some.")
        return super().stage_copy(partition, source, offsets)


@dataclass
class Interrupted(Wrapped):
    """A sink before whose first publishing something else happens."""

    before: Callable[[], object] | None

    def publish(self, staged: Sequence[StagedRecords]) -> Mapping[int, OffsetRange]:
        before, self.before = self.before, None
        if before is not None:
            before()
        return super().publish(staged)

    def __reduce__(self) -> tuple[type[Wrapped], tuple[StagedSink]]:
        return Wrapped, (self.sink,)


@dataclass
class Unlucky(Wrapped):
    """A sink where somebody else is always faster."""

    def publish(self, staged: Sequence[StagedRecords]) -> Mapping[int, OffsetRange]:
        return super().publish(staged[:0])


def in_spark(spark: SparkSession, source: TopicLog, sink: StagedSink, **options: Any) -> CopyResult:
    """Mirror in Spark, however little there is to copy."""
    how = {name: options.pop(name) for name in ("is_stopped", "clock") if name in options}
    return copy_log(on(spark, **how), source, sink, **options)


def fill(cluster: EmbeddedCluster, *, partitions: int = 3, count: int = 40, parts: int = 2) -> None:
    """Make a topic and give every partition some parts of records of every shape."""
    cluster.create_topic(TOPIC, partitions=partitions)
    append(cluster, partitions=partitions, count=count, parts=parts)


def append(cluster: EmbeddedCluster, *, partitions: int = 3, count: int = 40, parts: int = 1) -> None:
    for part in range(parts):
        with cluster.producer() as producer:
            for partition in range(partitions):
                for number in range(count):
                    producer.send(
                        TOPIC,
                        None if number % 7 == 0 else f"{part}-{number}",
                        key="" if number % 5 == 0 else (None if number % 3 == 0 else f"k{number}"),
                        headers={"n": None, "m": str(number)} if number % 2 else None,
                        partition=partition,
                        timestamp_ms=1_700_000_000_000 + number,
                    )


@dataclass
class Halting(Wrapped):
    """A sink that does half of its work and then waits to be killed, having said so in a file with its process id."""

    where: str
    said: Path

    def stage_copy(self, partition: int, source: TopicLog, offsets: OffsetRange) -> StagedRecords:
        staged = super().stage_copy(partition, source, offsets)
        if self.where == "staging" and partition > 0:
            self._halt()
        return staged

    def publish(self, staged: Sequence[StagedRecords]) -> Mapping[int, OffsetRange]:
        super().publish(staged[:1])
        self._halt()
        raise AssertionError("it was not killed")

    def _halt(self) -> None:
        self.said.with_suffix(".new").write_text(str(os.getpid()))
        self.said.with_suffix(".new").rename(self.said)
        threading.Event().wait()


# Mishaps of executors, on the first read or write of one of them. The driver is left alone.


@dataclass(frozen=True)
class Mishap:
    """Something that befalls one of the executors; files in a folder that all share say how far it is."""

    folder: Path
    driver: int = field(default_factory=os.getpid)

    @property
    def has_begun(self) -> Path:
        """There once it begins; holds the folder of the executor that it befalls."""
        return self.folder / "begun"

    @property
    def is_over(self) -> Path:
        return self.folder / "over"

    @property
    def gave_up(self) -> Path:
        """There once a task has waited in vain."""
        return self.folder / "gave-up"

    def touch(self) -> None:
        """Be told of a read or a write."""
        from pyspark import TaskContext  # noqa: PLC0415 - where the executor has it

        # Spark plans a data source in a process of its own beside the driver: nothing befalls that one.
        if os.getpid() != self.driver and TaskContext.get() is not None:
            self.befall()

    def befall(self) -> None:
        raise NotImplementedError

    def _is_first(self, says: str) -> bool:
        mine = self.folder / f"{os.getpid()}-{threading.get_ident()}"
        mine.write_text(says)
        try:
            os.link(mine, self.has_begun)  # whole at once, and once
        except FileExistsError:
            return False
        finally:
            mine.unlink()
        return True

    def _wait(self) -> None:
        for _ in range(12_000):
            if self.is_over.exists():
                return
            threading.Event().wait(0.01)
        self.gave_up.touch()
        raise TimeoutError("what this task waited for did not come")


@dataclass(frozen=True)
class LostTask(Mishap):
    """The process of the first task kills itself."""

    def befall(self) -> None:
        if not self.has_begun.exists() and self._is_first(str(Path.cwd())):
            self.is_over.touch()
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class LostExecutor(Mishap):
    """The first task kills the JVM of its executor."""

    def befall(self) -> None:
        if not self.has_begun.exists() and self._is_first(str(Path.cwd())):
            # The task is a fork of PySpark's daemon, which the JVM has started.
            executor = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
            self.is_over.touch()
            os.kill(executor, signal.SIGKILL)


@dataclass(frozen=True)
class LostWorker(Mishap):
    """All tasks wait until a test has killed the worker of the first one. Those of the dead worker go on unseen."""

    def befall(self) -> None:
        if not self.is_over.exists():
            self._is_first(str(Path.cwd()))
            self._wait()


@dataclass(frozen=True)
class SlowTask(Mishap):
    """The first task waits until another attempt at the same has come as far, and goes on beside it."""

    def befall(self) -> None:
        from pyspark import TaskContext  # noqa: PLC0415 - where the executor has it

        if self.is_over.exists():
            return
        task: Any = TaskContext.get()
        which, attempt = f"{task.stageId()}.{task.partitionId()}", f"{task.taskAttemptId()}"
        if self._is_first(f"{which} {attempt}"):
            self._wait()
            return
        slow, first = self.has_begun.read_text().split()
        if slow == which and first != attempt:
            self.is_over.touch()


@dataclass
class WithMishap:
    """A store or a log whose every read and write a mishap is told of."""

    inner: Any
    mishap: Mishap

    def __reduce__(self) -> tuple[type[WithMishap], tuple[Any, Mishap]]:
        return type(self), (self.inner, self.mishap)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@dataclass
class MishapStore(WithMishap):
    """An object store."""

    def get(self, key: str) -> Any:
        self.mishap.touch()
        return self.inner.get(key)

    def get_range(self, key: str, start: int, length: int) -> Any:
        self.mishap.touch()
        return self.inner.get_range(key, start, length)

    def copy_from(self, key: str, source: Any, source_key: str, *, kms_key_id: str | None = None) -> None:
        self.mishap.touch()
        self.inner.copy_from(key, source, source_key, kms_key_id=kms_key_id)


@dataclass
class MishapWrites(WithMishap):
    """A store that tells its mishap only of what was written, once it is there."""

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        self.inner.put(key, body, kms_key_id=kms_key_id)
        self.mishap.touch()


@dataclass
class MishapLog(WithMishap):
    """A topic's log: tasks look for it before they read."""

    def check_shared(self) -> None:
        self.mishap.touch()
        self.inner.check_shared()


def tiered_west(folder: Path, storage: Any, *, partitions: int, parts: int, now_ms: int) -> EmbeddedCluster:
    """Return a cluster with object storage and a tiered topic of tiny segments, some of them closed."""
    numbers = iter(range(1, 1 << 32))  # since Python 3.14 a count cannot be pickled
    cluster = EmbeddedCluster.create(
        DirectoryStore(folder),
        now_ms=lambda: now_ms,
        new_id=lambda: f"00000000-0000-4000-8000-{next(numbers):012}",
        storage=storage,
    )
    cluster.alter_cluster({"cloud_storage_enabled": "true"})
    configs = {"remote.write": "true", "remote.read": "true", "segment.bytes": "4500"}
    cluster.create_topic(TOPIC, partitions=partitions, configs=configs)
    append(cluster, partitions=partitions, count=2, parts=parts)
    return cluster


@dataclass
class Metered:
    """A store that writes down how many bytes were fetched from it, in whichever process."""

    inner: Any
    said: Path

    def __reduce__(self) -> tuple[type[Metered], tuple[Any, Path]]:
        return Metered, (self.inner, self.said)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def get(self, key: str) -> Any:
        found = self.inner.get(key)
        return found if found is None else self._counted(found, len(found.body))

    def get_range(self, key: str, start: int, length: int) -> Any:
        found = self.inner.get_range(key, start, length)
        return self._counted(found, len(found))

    def taken(self) -> int:
        found = sum(map(int, self.said.read_text().split())) if self.said.exists() else 0
        self.said.write_text("")
        return found

    def _counted(self, found: Any, size: int) -> Any:
        with self.said.open("a") as file:
            file.write(f"{size}\n")
        return found
