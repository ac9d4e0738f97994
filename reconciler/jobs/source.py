"""The data source `topic-log`: topics as DataFrames and streams.

The process that registers it defines the options that name a log (`cluster`, `topic`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, TypeVar

import pyarrow as pa
import pyspark
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)

from reconciler.errors import ProducerFencedError, SourceChangedError, UserError
from reconciler.jobs.scan import (
    COLUMNS,
    NAME,
    STARTS,
    LossHandling,
    PushingReader,
    Range,
    Rows,
    TopicLogReader,
    build_ddl,
    check_schema,
    describe_removed,
    describe_start_beyond_end,
    parse_places,
    parse_topics,
    parse_truth,
    parse_whole_number,
)
from reconciler.records.log import AppendSink, Bounds, NumberedBatch, OffsetRange, StagedAppend, TopicLog
from reconciler.resources.mirrors import SOURCE_TOPIC_ID_CHANGED
from reconciler.runtime.text import did_you_mean, nearest_spelling

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # before PySpark 4.2, streams have no limits and are not written
    DataSourceStreamArrowWriter, SupportsTriggerAvailableNow = DataSourceStreamWriter, object  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType


Session: TypeAlias = SparkSession
_BATCH_ONLY: Final = ("partitions", "end", "endingOffsets", "startingTimestamp", "endingTimestamp", "pushFilters")
_STREAM_ONLY: Final = ("maxOffsetsPerTrigger",)
_READ: Final = (
    "cluster",
    "topic",
    "subscribe",
    "columns",
    "includeHeaders",
    "start",
    "startingOffsets",
    "failOnDataLoss",
)
OPTIONS: Final = (*_READ, *_BATCH_ONLY, *_STREAM_ONLY)
OPTIONS_TEXT: Final = (
    f"{', '.join(_READ)}; of batch reads also {', '.join(_BATCH_ONLY)}; of streams also {', '.join(_STREAM_ONLY)}"
)
_DEFAULT_PYTHON: Final = "python3"
"""What PySpark runs unless `PYSPARK_PYTHON` is set."""
WRITE_OPTIONS: Final = ("cluster", "topic", "checkpointLocation", "queryName")
"""Includes the stream settings that Spark passes on."""


def _cannot_write(_options: Mapping[str, str]) -> NoReturn:
    message = f"{NAME} was registered for reading only"
    raise UserError(message, hint="Pass a function to register that opens the topic for writing.")


def register(
    session: Session,
    open_log: Callable[[Mapping[str, str]], TopicLog],
    open_appends: Callable[[Mapping[str, str]], AppendSink] = _cannot_write,
) -> None:
    """Register `topic-log` in a session. `open_log` gets a read's options (names in lower case) and is pickled.

    It runs on the driver and its log in executors, so Spark's options, columns and configuration contain no secrets.
    `open_appends` does the same for writes. Workers of a local session use this interpreter by default.
    """

    class TopicLogSource(_TopicLogSource):
        opener = staticmethod(open_log)
        append_opener = staticmethod(open_appends)

    _set_worker_python(session)
    session.dataSource.register(TopicLogSource)


def _set_worker_python(session: Session) -> None:
    context: Any = getattr(session, "sparkContext", None)  # Spark Connect has none
    if context is not None and context.master.startswith("local") and context.pythonExec == _DEFAULT_PYTHON:
        context.pythonExec = context.getConf().get("spark.pyspark.python") or sys.executable


def _check_version(what: str, oldest: str, *, is_supported: bool) -> None:
    if not is_supported:
        message = f"{what} needs PySpark {oldest} or newer, and this is {pyspark.__version__}"
        raise UserError(message, hint=f"Install it: pip install 'pyspark>={oldest}'.")


class _TopicLogSource(DataSource):
    opener: Callable[[Mapping[str, str]], TopicLog]
    append_opener: Callable[[Mapping[str, str]], AppendSink]

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType | str:
        return build_ddl(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        pushes = parse_truth(self.options, "pushFilters", otherwise=False)
        if pushes:
            _check_version(
                f"option pushFilters of {NAME}", "4.1", is_supported=hasattr(DataSourceReader, "pushFilters")
            )
        kind = PushingReader if pushes else TopicLogReader
        options, topics = self._read_options(schema, _STREAM_ONLY, "streams")
        return kind({topic: self._build_rows(topic, options, schema) for topic in topics}, options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        try:
            return self._open_stream(schema)
        except Exception as error:  # noqa: BLE001 - an opener is the user's own
            return _RefusedStream(error)

    def _open_stream(self, schema: StructType) -> DataSourceStreamReader:
        options, topics = self._read_options(schema, _BATCH_ONLY, "batch reads")
        if len(topics) > 1:
            message = f"a stream of {NAME} reads one topic, not {len(topics)}"
            raise UserError(message, hint="Load a stream for each topic, and join them by union().")
        return _TopicLogStream(self._build_rows(topics[0], options, schema), topics[0], options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's, as below
        return BatchWriter(self._open_appends(schema, overwrites=overwrite)[0])

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802, FBT001
        is_supported = hasattr(DataSourceStreamReader, "getDefaultReadLimit")
        _check_version(f"writing streams to {NAME}", "4.2", is_supported=is_supported)
        return StreamWriter(*self._open_appends(schema, overwrites=overwrite))

    def _open_appends(self, schema: StructType, *, overwrites: bool) -> tuple[AppendSink, str]:
        if overwrites:
            message = f"{NAME} only appends: a topic cannot be overwritten"
            raise UserError(message, hint='Use mode("append"), or outputMode("append").')
        check_rows(schema)
        options: dict[str, str] = dict(self.options)
        return type(self).append_opener(options), options.get("topic", "")

    def _read_options(
        self, schema: StructType, others: Sequence[str], where: str
    ) -> tuple[Mapping[str, str], Sequence[str]]:
        for name in others:
            if name in self.options:
                raise UserError(f"option {name} of {NAME} is for {where} only", hint="Leave it out.")
        check_schema(schema)
        options: dict[str, str] = dict(self.options)
        return options, parse_topics(options)

    def _build_rows(self, topic: str, options: Mapping[str, str], schema: StructType) -> Rows:
        named = {name: value for name, value in options.items() if name not in {"topic", "subscribe"}}
        log = type(self).opener({**named, "topic": topic} if topic else named)
        return Rows(log, schema, LossHandling.of(topic, options))


class _TopicLogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, rows: Rows, topic: str, options: Mapping[str, str]) -> None:
        self._build_rows = rows
        self._topic = topic
        self._start = parse_places(options, ("start", "startingOffsets"), STARTS, "latest", topic=topic)
        self._max_offsets = parse_whole_number(options, "maxOffsetsPerTrigger", least=1)
        if self._max_offsets is not None:
            is_supported = hasattr(DataSourceStreamReader, "getDefaultReadLimit")
            _check_version(f"option maxOffsetsPerTrigger of {NAME}", "4.2", is_supported=is_supported)
        self._available_now: Mapping[int, int] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as those below
        bounds = self._build_rows.log.bounds()
        begins = self._start.resolve(bounds)
        beyond = [number for number, begin in begins.items() if begin > bounds[number].end]
        self._build_rows.losses.report(
            [describe_start_beyond_end(number, begins[number], bounds[number].end) for number in beyond]
        )
        return self._to_position({partition: min(begin, bounds[partition].end) for partition, begin in begins.items()})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self._max_offsets is None else ReadMaxRows(self._max_offsets)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._available_now = {partition: bounds.stable for partition, bounds in self._build_rows.log.bounds().items()}

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:  # noqa: N802
        bounds = self._build_rows.log.bounds()
        if start is None:  # before PySpark 4.2; `partitions` then reports what is lost
            begins = {partition: partition_bounds.start for partition, partition_bounds in bounds.items()}
        else:
            begins = self._parse_position(start)
        ends = {
            partition: partition_bounds.stable
            if self._available_now is None
            else min(partition_bounds.stable, self._available_now[partition])
            for partition, partition_bounds in bounds.items()
            if self._available_now is None or partition in self._available_now
        }
        # Lost offsets do not count; `partitions` reports and skips them.
        ranges, lost = _find_readable_ranges(begins, ends, bounds)
        if self._build_rows.losses.is_error:
            self._build_rows.losses.report(lost)
        if (max_rows := getattr(limit, "max_rows", None)) is not None:
            ranges = _limit_ranges(ranges, max_rows)
        return self._to_position({**begins, **{partition: offsets.stop for partition, offsets in ranges.items()}})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges, lost = _find_readable_ranges(
            self._parse_position(start), self._parse_position(end), self._build_rows.log.bounds()
        )
        self._build_rows.losses.report(lost)
        return self._build_rows.plan(ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Range):
            yield from self._build_rows.read(partition)

    def _to_position(self, offsets: Mapping[int, int]) -> dict[str, Any]:
        by_partition = {str(partition): offset for partition, offset in sorted(offsets.items())}
        return {"topic": self._topic, "topic_id": self._build_rows.log.topic_id, "offsets": by_partition}

    def _parse_position(self, position: dict[str, Any]) -> dict[int, int]:
        try:
            topic, topic_id = position["topic"], position["topic_id"]
            offsets = {int(partition): int(offset) for partition, offset in position["offsets"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            message = f"the checkpoint has no valid position in a topic of {NAME}: {position}"
            raise UserError(message, hint="Use another checkpointLocation.") from error
        own_id = self._build_rows.log.topic_id
        if topic_id != own_id if topic_id is not None and own_id is not None else topic != self._topic:
            message = f"the checkpoint is of topic {topic} with id {topic_id}, and {self._topic} has id {own_id}"
            at = json.dumps({self._topic: {str(partition): offset for partition, offset in sorted(offsets.items())}})
            hint = (
                "The topic is another one, or was created or mounted again. Use another checkpointLocation. A topic "
                "that was mounted, or is the mirror of the other, has the same offsets: continue with "
                f"startingOffsets {at}"
            )
            raise SourceChangedError(message, code=SOURCE_TOPIC_ID_CHANGED, hint=hint)
        return offsets


class _RefusedStream(DataSourceStreamReader):
    """Raises a stream's error at Spark's first call: Spark 4.3.0 hides errors of `streamReader`."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802 - Spark's name, as those below
        raise self._error

    def latestOffset(self, _start: dict[str, Any] | None = None, _limit: ReadLimit | None = None) -> NoReturn:  # noqa: N802
        raise self._error

    def getDefaultReadLimit(self) -> NoReturn:  # noqa: N802
        raise self._error

    def partitions(self, _start: dict[str, Any], _end: dict[str, Any]) -> NoReturn:
        raise self._error

    def read(self, _partition: InputPartition) -> NoReturn:
        raise self._error


def _find_readable_ranges(
    begins: Mapping[int, int], ends: Mapping[int, int], bounds: Mapping[int, Bounds]
) -> tuple[dict[int, OffsetRange], list[str]]:
    ranges: dict[int, OffsetRange] = {}
    lost: list[str] = []
    for partition, end in sorted({**begins, **ends}.items()):
        begin, partition_bounds = begins.get(partition, 0), bounds.get(partition)
        if partition_bounds is None:
            lost.append(f"partition {partition}: it was deleted, with all offsets from {begin}")
            continue
        if partition_bounds.end < max(begin, end):
            lost.append(
                f"partition {partition}: offsets {partition_bounds.end} to {max(begin, end) - 1} were cut off its end"
            )
            ranges[partition] = OffsetRange(min(begin, partition_bounds.end), min(end, partition_bounds.end))
        elif begin < min(partition_bounds.start, end):
            stop = min(partition_bounds.start, end)
            lost.append(describe_removed(partition, begin, stop))
            ranges[partition] = OffsetRange(stop, end)
        else:
            ranges[partition] = OffsetRange(begin, max(begin, end))
    return ranges, lost


def _limit_ranges(ranges: Mapping[int, OffsetRange], most: int) -> dict[int, OffsetRange]:
    total = sum(offsets.length for offsets in ranges.values())
    if total <= most:
        return dict(ranges)
    return {
        partition: OffsetRange(
            offsets.start, offsets.start + min(offsets.length, max(1, most * offsets.length // total))
        )
        for partition, offsets in ranges.items()
    }


# Tasks stage rows; the driver publishes a batch completely or not at all. Its query id and number prevent a second
# publication after a crash.


_FIELDS: Final = {
    "value": "value",
    "key": "key",
    "headers": "headers",
    "timestamp": "timestamp_ms",
    "partition": "partition",
}
_TEXT: Final = frozenset({"value", "key"})


def check_rows(schema: StructType) -> None:
    """Reject rows without a value, or with columns or types that records lack."""
    for column in schema:
        if column.name not in COLUMNS:
            known = f"Rename it, or leave it out; a record is written from {', '.join(_FIELDS)}."
            hint = did_you_mean(nearest_spelling(column.name, _FIELDS), then=known)
            raise UserError(f"{NAME} writes no column {column.name!r}", hint=hint)
        takes = [COLUMNS[column.name].type, *(["string"] if column.name in _TEXT else [])]
        type_name = column.dataType.simpleString()
        if type_name not in takes:
            message = f"{NAME} writes column {column.name} of type {' or '.join(takes)}, not {type_name}"
            is_time = column.name == "timestamp"
            cast = "cast(timestamp as timestamp_ltz)" if is_time else "for example with to_json or a cast"
            raise UserError(message, hint=f"Cast it first, {cast}.")
    if "value" not in schema.names:
        message = f"{NAME} writes rows with a column value, and these have {', '.join(schema.names) or 'no column'}"
        raise UserError(message, hint="Select the column to write as value; null values become tombstones.")


def _to_records(rows: pa.RecordBatch) -> pa.RecordBatch:
    names = [name for name in rows.schema.names if name in _FIELDS]
    return pa.RecordBatch.from_arrays([rows.column(name) for name in names], [_FIELDS[name] for name in names])


# Spark pickles writers, calls `write` in tasks and `commit` on the driver. `abort` does nothing: a failed `commit` may
# have decided its transaction.


@dataclass(frozen=True)
class StagedRows(WriterCommitMessage):
    """Rows that one task staged."""

    append: StagedAppend


@dataclass(frozen=True)
class StagedBatch(StagedRows):
    """Rows that one task staged for a batch of a query."""

    stream: str


class BatchWriter(DataSourceArrowWriter):
    """Writes the rows of one `save`."""

    def __init__(self, sink: AppendSink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        return StagedRows(_stage(self._sink, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish the rows of all tasks."""
        self._sink.publish([staged.append for staged in _require_all(messages, StagedRows)])


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes each batch of a stream once."""

    def __init__(self, sink: AppendSink, topic: str) -> None:
        self._sink = sink
        self._topic = topic

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        # Python writers get the query only from this property of the JVM's thread.
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        if query is None:
            message = "Spark does not name the query"
            raise UserError(message, hint="Streams into topic-log need PySpark 4.2 or newer.")
        return StagedBatch(_stage(self._sink, iterator), query)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Publish the rows of all tasks, once per batch."""
        staged = _require_all(messages, StagedBatch)
        if not staged:
            return
        stream = staged[0].stream
        try:
            self._sink.publish([rows.append for rows in staged], NumberedBatch(stream, batchId))
        except ProducerFencedError as error:
            message = (
                f"another run of query {stream} writes to {self._topic}: batch {batchId} was not written by this query"
            )
            hint = "One checkpoint is for one query: stop one of them, and give each its own checkpointLocation."
            raise UserError(message, hint=hint) from error


def _stage(sink: AppendSink, rows: Iterator[pa.RecordBatch]) -> StagedAppend:
    sink.check_shared()
    context = TaskContext.get()
    task = 0 if context is None else context.partitionId()
    return sink.stage((_to_records(batch) for batch in rows), task=task)


S = TypeVar("S", bound=StagedRows)


def _require_all(messages: Sequence[WriterCommitMessage | None], kind: type[S]) -> list[S]:
    """Reject a missing report of a task: its rows would be lost. Executors may run another version."""
    staged = [item for item in messages if isinstance(item, kind)]
    if len(staged) < len(messages):
        left = len(messages) - len(staged)
        message = f"{left} of {len(messages)} tasks did not report what they staged, so nothing was written"
        hint = "Executors may run another version of reconciler: send them the package of the driver, then try again."
        raise UserError(message, hint=hint)
    return staged
