"""`spark.read.format("topic-log")`: a topic as a DataFrame.

Options: `cluster`, `topic` (full name), `start` (`earliest`, `latest` or an offset) and `end` (`stable`, the last
stable offset as it is when the read is planned, or an offset); what names the log is up to who registered the source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from reconciler.errors import UserError
from reconciler.jobs.flows import pieces_of
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from reconciler.records.log import Bounds, TopicLog


Session: TypeAlias = SparkSession
NAME: Final = "topic-log"
OPTIONS: Final = ("cluster", "topic", "start", "end")
SCHEMA: Final = (
    "partition int not null, offset bigint not null, timestamp_ms bigint not null, timestamp_type tinyint not null, "
    "key binary, value binary, headers array<struct<key: string not null, value: binary>> not null"
)
"""`RECORD_SCHEMA` in Spark's words."""


def register(session: Session, open_log: Callable[[Mapping[str, str]], TopicLog]) -> None:
    """Make `topic-log` known to a session. `open_log` gets a read's options and is pickled, with all it holds.

    It runs on the driver and the log it returns is pickled to the executors: what it resolves (secrets, connections)
    never appears in options, columns or Spark's configuration.
    """

    class TopicLogSource(_TopicLogSource):
        opener = staticmethod(open_log)

    session.dataSource.register(TopicLogSource)


@dataclass(frozen=True)
class _Range(InputPartition):
    """One task's share: an `InputPartition` is what Spark pickles."""

    partition: int
    offsets: OffsetRange

    def __post_init__(self) -> None:
        """Spark asks nothing of `value`, which its constructor would set."""


class _TopicLogSource(DataSource):
    """Opens the log that options name; `opener` is bound by `register`."""

    opener: Callable[[Mapping[str, str]], TopicLog]

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType | str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        options: dict[str, str] = dict(self.options)
        return _TopicLogReader(type(self).opener(options), options)


class _TopicLogReader(DataSourceReader):
    """Plans a task for each run of stored parts and reads it as Arrow batches."""

    def __init__(self, log: TopicLog, options: Mapping[str, str]) -> None:
        self._log = log
        self._start = _offset(options, "start", {"earliest", "latest"}, "earliest")
        self._end = _offset(options, "end", {"stable"}, "stable")

    def partitions(self) -> Sequence[InputPartition]:
        return [
            _Range(partition, piece.offsets)
            for partition, bounds in sorted(self._log.bounds().items())
            for offsets in [self._wanted(bounds)]
            if offsets.length
            for piece in pieces_of(partition, offsets, self._log.extents(partition, offsets))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, _Range):  # no range of ours: an empty topic is planned as one task with nothing
            return
        self._log.check_shared()
        yield from self._log.read(partition.partition, partition.offsets)

    def _wanted(self, bounds: Bounds) -> OffsetRange:
        start = {"earliest": bounds.start, "latest": bounds.stable}.get(str(self._start), self._start)
        stop = bounds.stable if self._end == "stable" else self._end
        return OffsetRange(max(int(start), bounds.start), min(int(stop), bounds.stable))


def _offset(options: Mapping[str, str], name: str, words: set[str], default: str) -> str | int:
    given = options.get(name, default)
    if given in words:
        return given
    if given.isdecimal():
        return int(given)
    hint = f"Write {', '.join(sorted(words))}, or an offset."
    raise UserError(f"option {name} of {NAME}: {given!r} is not a place in a topic", hint=hint)
