"""The Spark data source `topic-log`: topics as DataFrames and streams."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)

from reconciler.errors import ProducerFencedError, UserError
from reconciler.jobs.progress import shorten_worker_errors
from reconciler.jobs.scan import (
    COLUMNS,
    NAME,
    LossHandling,
    PushingReader,
    TopicLogReader,
    TopicRows,
    build_ddl,
    check_schema,
    check_version,
    parse_boolean,
    parse_topics,
)
from reconciler.jobs.stream import HAS_LIMITS, TopicLogStream
from reconciler.records.log import AppendSink, NumberedBatch, StagedAppend, TopicLog
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import find_similar_spelling, format_suggestion

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # PySpark 4.0 cannot write streams of Arrow data.
    DataSourceStreamArrowWriter = DataSourceStreamWriter  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


Session: TypeAlias = SparkSession
_BATCH_ONLY: Final = ("partitions", "end", "endingOffsets", "startingTimestamp", "endingTimestamp", "pushFilters")
_STREAM_ONLY: Final = ("maxOffsetsPerTrigger",)
_READ: Final = (
    "cluster",
    "topic",
    "subscribe",
    "subscribePattern",
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
"""Command that PySpark runs unless `PYSPARK_PYTHON` is set."""
WRITE_OPTIONS: Final = ("cluster", "topic", "checkpointLocation", "queryName")
"""Options of a write, including stream settings that Spark adds."""


def _refuse_writes(_options: Mapping[str, str]) -> NoReturn:
    message = f"{NAME} was registered for reading only"
    raise UserError(message, hint="Pass a function to register that opens the topic for writing.")


def _refuse_patterns(_options: Mapping[str, str]) -> NoReturn:
    message = f"{NAME} was registered without a list of topics, which option subscribePattern needs"
    raise UserError(message, hint="Hand register a function that lists topics, or name them in option subscribe.")


def register(
    session: Session,
    open_log: Callable[[Mapping[str, str]], TopicLog],
    open_appends: Callable[[Mapping[str, str]], AppendSink] = _refuse_writes,
    list_topics: Callable[[Mapping[str, str]], Iterable[str]] = _refuse_patterns,
) -> None:
    """Register `topic-log` in a session. `open_log` receives a read's options with lower-case names.

    Functions are pickled and run on the driver; executors read the log. So Spark's options need no secrets.
    `list_topics` returns the names that `subscribePattern` may match.
    """

    class TopicLogSource(_TopicLogSource):
        opener = staticmethod(open_log)
        append_opener = staticmethod(open_appends)
        lister = staticmethod(list_topics)

    _set_worker_python(session)
    session.dataSource.register(TopicLogSource)


def _set_worker_python(session: Session) -> None:
    context: Any = getattr(session, "sparkContext", None)
    if context is not None and context.master.startswith("local") and context.pythonExec == _DEFAULT_PYTHON:
        context.pythonExec = context.getConf().get("spark.pyspark.python") or sys.executable


class _TopicLogSource(DataSource):
    opener: Callable[[Mapping[str, str]], TopicLog]
    append_opener: Callable[[Mapping[str, str]], AppendSink]
    lister: Callable[[Mapping[str, str]], Iterable[str]]

    @classmethod
    def name(cls) -> str:
        return NAME

    @shorten_worker_errors()
    def schema(self) -> StructType | str:
        return build_ddl(self.options)

    @shorten_worker_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        pushes = parse_boolean(self.options, "pushFilters", otherwise=False)
        if pushes:
            is_supported = hasattr(DataSourceReader, "pushFilters")
            check_version(f"option pushFilters of {NAME}", "4.1", is_supported=is_supported)
        options = self._read_options(schema, _STREAM_ONLY, "streams")
        kind = PushingReader if pushes else TopicLogReader
        return kind({topic: self._open_rows(topic, options, schema) for topic in self._find_topics(options)}, options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        try:
            options = self._read_options(schema, _BATCH_ONLY, "batch reads")
            return TopicLogStream(
                lambda: self._find_topics(options), lambda topic: self._open_rows(topic, options, schema), options
            )
        except Exception as error:  # noqa: BLE001 - `open_log` may raise anything
            return _RefusedStream(error)

    @shorten_worker_errors()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's, as below
        return BatchWriter(self._open_appends(schema, overwrites=overwrite)[0])

    @shorten_worker_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802, FBT001
        check_version(f"writing streams to {NAME}", "4.2", is_supported=HAS_LIMITS)
        return StreamWriter(*self._open_appends(schema, overwrites=overwrite))

    def _open_appends(self, schema: StructType, *, overwrites: bool) -> tuple[AppendSink, str]:
        if overwrites:
            message = f"{NAME} only appends: a topic cannot be overwritten"
            raise UserError(message, hint='Use mode("append"), or outputMode("append").')
        check_rows(schema)
        options: dict[str, str] = dict(self.options)
        return type(self).append_opener(options), options.get("topic", "")

    def _read_options(self, schema: StructType, others: Sequence[str], where: str) -> Mapping[str, str]:
        for name in others:
            if name in self.options:
                raise UserError(f"option {name} of {NAME} is for {where} only", hint="Leave it out.")
        check_schema(schema)
        return dict(self.options)

    def _find_topics(self, options: Mapping[str, str]) -> Sequence[str]:
        return parse_topics(options, lambda: type(self).lister(_remove_topic_options(options)))

    def _open_rows(self, topic: str, options: Mapping[str, str], schema: StructType) -> TopicRows:
        cluster = _remove_topic_options(options)
        log = type(self).opener({**cluster, "topic": topic} if topic else cluster)
        return TopicRows(log, schema, LossHandling.from_options(topic, options))


def _remove_topic_options(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if name not in {"topic", "subscribe", "subscribepattern"}}


class _RefusedStream(DataSourceStreamReader):
    """Raises an error of `streamReader`, which Spark 4.3.0 would hide, at Spark's first call."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    @shorten_worker_errors()
    def _refuse(self, *_arguments: object) -> NoReturn:
        raise self._error

    initialOffset = latestOffset = getDefaultReadLimit = partitions = read = _refuse  # type: ignore[assignment]  # noqa: N815 - Spark's


# Tasks stage rows, and the driver publishes a batch completely or not at all.


_FIELDS: Final = {
    "value": "value",
    "key": "key",
    "headers": "headers",
    "timestamp": "timestamp_ms",
    "partition": "partition",
}
_TEXT: Final = frozenset({"value", "key"})


def check_rows(schema: StructType) -> None:
    """Reject rows without a value, or with columns or types that records do not have."""
    for column in schema:
        if column.name not in COLUMNS:
            known = f"Rename it, or leave it out; a record is written from {', '.join(_FIELDS)}."
            hint = format_suggestion(find_similar_spelling(column.name, _FIELDS), then=known)
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


@dataclass(frozen=True)
class StagedRows(WriterCommitMessage):
    """Rows that one task staged."""

    append: StagedAppend


@dataclass(frozen=True)
class StagedBatch(StagedRows):
    """Rows that one task staged for a batch of a streaming query."""

    stream: str


class BatchWriter(DataSourceArrowWriter):
    """Writes the rows of a batch query. `abort` does nothing, because a failed `commit` may have published them."""

    def __init__(self, sink: AppendSink) -> None:
        self._sink = sink

    @shorten_worker_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        return StagedRows(_stage_rows(self._sink, iterator))

    @shorten_worker_errors()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish the rows of all tasks."""
        self._sink.publish([staged.append for staged in _require_all(messages, StagedRows)])


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes each batch of a streaming query once."""

    def __init__(self, sink: AppendSink, topic: str) -> None:
        self._sink = sink
        self._topic = topic

    @shorten_worker_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        # Spark passes the query's id to tasks only in this property.
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        if query is None:
            message = "Spark does not name the query"
            raise UserError(message, hint="Streams into topic-log need PySpark 4.2 or newer.")
        return StagedBatch(_stage_rows(self._sink, iterator), query)

    @shorten_worker_errors()
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


def _stage_rows(sink: AppendSink, rows: Iterator[pa.RecordBatch]) -> StagedAppend:
    sink.check_shared()
    context = TaskContext.get()
    task = 0 if context is None else context.partitionId()
    return sink.stage((_to_records(batch) for batch in rows), task=task)


S = TypeVar("S", bound=StagedRows)


def _require_all(messages: Sequence[WriterCommitMessage | None], kind: type[S]) -> list[S]:
    """Reject missing results, because rows would be lost."""
    staged = [item for item in messages if isinstance(item, kind)]
    if len(staged) < len(messages):
        left = len(messages) - len(staged)
        message = f"{left} of {len(messages)} tasks did not report what they staged, so nothing was written"
        hint = "Executors may run another version of reconciler: send them the package of the driver, then try again."
        raise UserError(message, hint=hint)
    return staged
