"""The data source `topic-log`: topics read and written as DataFrames and as streams.

What names the log (`cluster`, `topic`) is up to who registered the source.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from reconciler.errors import ProducerFencedError, SourceChangedError, UserError
from reconciler.jobs.scan import (
    COLUMNS,
    NAME,
    STARTS,
    Losses,
    PushingReader,
    Range,
    Rows,
    TopicLogReader,
    check_schema,
    ddl_of,
    places_of,
    removed,
    starts_beyond,
    topics_of,
    truth_of,
    whole_of,
)
from reconciler.records.log import AppendSink, Bounds, NumberedBatch, OffsetRange, StagedAppend, TopicLog
from reconciler.resources.mirrors import SOURCE_TOPIC_ID_CHANGED
from reconciler.runtime.text import did_you_mean, nearest_spelling

if TYPE_CHECKING:
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
WRITE_OPTIONS: Final = ("cluster", "topic", "checkpointLocation", "queryName")
"""Spark hands a stream's own settings on, too."""


def _cannot_write(_options: Mapping[str, str]) -> NoReturn:
    message = f"{NAME} was registered for reading only"
    raise UserError(message, hint="Hand register a function that opens what is written to.")


def register(
    session: Session,
    open_log: Callable[[Mapping[str, str]], TopicLog],
    open_appends: Callable[[Mapping[str, str]], AppendSink] = _cannot_write,
) -> None:
    """Make `topic-log` known to a session. `open_log` gets a read's options and is pickled, with all it holds.

    It runs on the driver and the log it returns is pickled to the executors: what it resolves (secrets, connections)
    never appears in options, columns or Spark's configuration. Names of options are in lower case, as Spark has them.
    `open_appends` does the same for a write.
    """

    class TopicLogSource(_TopicLogSource):
        opener = staticmethod(open_log)
        append_opener = staticmethod(open_appends)

    session.dataSource.register(TopicLogSource)


class _TopicLogSource(DataSource):
    """Opens what options name; both openers are bound by `register`."""

    opener: Callable[[Mapping[str, str]], TopicLog]
    append_opener: Callable[[Mapping[str, str]], AppendSink]

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType | str:
        return ddl_of(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        kind = PushingReader if truth_of(self.options, "pushFilters", otherwise=False) else TopicLogReader
        options, topics = self._read_options(schema, _STREAM_ONLY, "streams")
        return kind({topic: self._rows(topic, options, schema) for topic in topics}, options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        try:
            return self._stream(schema)
        except Exception as error:  # noqa: BLE001 - an opener is the user's own
            return _RefusedStream(error)

    def _stream(self, schema: StructType) -> DataSourceStreamReader:
        options, topics = self._read_options(schema, _BATCH_ONLY, "batch reads")
        if len(topics) > 1:
            message = f"a stream of {NAME} reads one topic, not {len(topics)}"
            raise UserError(message, hint="Load a stream for each topic, and join them by union().")
        return _TopicLogStream(self._rows(topics[0], options, schema), topics[0], options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's, as below
        return BatchWriter(self._target(schema, overwrites=overwrite)[0])

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802, FBT001
        return StreamWriter(*self._target(schema, overwrites=overwrite))

    def _target(self, schema: StructType, *, overwrites: bool) -> tuple[AppendSink, str]:
        if overwrites:
            message = f"{NAME} only appends: a topic cannot be overwritten"
            raise UserError(message, hint='Use mode("append"), or outputMode("append").')
        check_rows(schema)
        options: dict[str, str] = dict(self.options)
        return type(self).append_opener(options), options.get("topic", "")

    def _read_options(
        self, schema: StructType, others: Sequence[str], where: str
    ) -> tuple[Mapping[str, str], Sequence[str]]:
        """Return the options of a read, and the topics that they name."""
        for name in others:
            if name in self.options:
                raise UserError(f"option {name} of {NAME} is for {where} only", hint="Leave it out.")
        check_schema(schema)
        options: dict[str, str] = dict(self.options)
        return options, topics_of(options)

    def _rows(self, topic: str, options: Mapping[str, str], schema: StructType) -> Rows:
        """Open one topic, as if it was the only one that is named."""
        named = {name: given for name, given in options.items() if name not in {"topic", "subscribe"}}
        log = type(self).opener({**named, "topic": topic} if topic else named)
        return Rows(log, schema, Losses.of(topic, options))


# Streams: a position is an offset in each partition of one topic, by its id. Spark keeps it in the checkpoint.


class _TopicLogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Goes on from a position to where the topic ends, however it grew, was trimmed or gained partitions meanwhile."""

    def __init__(self, rows: Rows, topic: str, options: Mapping[str, str]) -> None:
        self._rows = rows
        self._topic = topic
        self._start = places_of(options, ("start", "startingOffsets"), STARTS, "latest", topic=topic)
        self._most = whole_of(options, "maxOffsetsPerTrigger", least=1)
        self._target: Mapping[int, int] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as those below
        bounds = self._rows.log.bounds()
        begins = self._start.resolve(bounds)
        beyond = [number for number, begin in begins.items() if begin > bounds[number].end]
        self._rows.losses.report([starts_beyond(number, begins[number], bounds[number].end) for number in beyond])
        return self._position({partition: min(begin, bounds[partition].end) for partition, begin in begins.items()})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self._most is None else ReadMaxRows(self._most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = {partition: each.stable for partition, each in self._rows.log.bounds().items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begins, bounds = self._offsets_in(start), self._rows.log.bounds()
        ends = {
            partition: each.stable if self._target is None else min(each.stable, self._target[partition])
            for partition, each in bounds.items()
            if self._target is None or partition in self._target
        }
        # What the log cannot give any more is no part of the limit; `partitions` says so, and passes it over.
        ranges, lost = _readable(begins, ends, bounds)
        if self._rows.losses.is_error:
            self._rows.losses.report(lost)
        if isinstance(limit, ReadMaxRows):
            ranges = _limited(ranges, limit.max_rows)
        return self._position({**begins, **{partition: offsets.stop for partition, offsets in ranges.items()}})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges, lost = _readable(self._offsets_in(start), self._offsets_in(end), self._rows.log.bounds())
        self._rows.losses.report(lost)
        return self._rows.planned(ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Range):
            yield from self._rows.read(partition)

    def _position(self, offsets: Mapping[int, int]) -> dict[str, Any]:
        kept = {str(partition): offset for partition, offset in sorted(offsets.items())}
        return {"topic": self._topic, "topic_id": self._rows.log.topic_id, "offsets": kept}

    def _offsets_in(self, position: dict[str, Any]) -> dict[int, int]:
        """Return the offsets of a position.

        Raises:
            SourceChangedError: It is one of another topic, or of one of the same name that was deleted since.
        """
        try:
            topic, topic_id = position["topic"], position["topic_id"]
            offsets = {int(partition): int(offset) for partition, offset in position["offsets"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            message = f"the checkpoint holds no position in a topic of {NAME}: {position}"
            raise UserError(message, hint="Use another checkpointLocation.") from error
        found = self._rows.log.topic_id
        if topic_id != found if topic_id is not None and found is not None else topic != self._topic:
            message = f"the checkpoint is of topic {topic} with id {topic_id}, and {self._topic} has id {found}"
            at = json.dumps({self._topic: {str(partition): offset for partition, offset in sorted(offsets.items())}})
            hint = (
                "It is another topic, or was created or mounted again. Use another checkpointLocation. A topic that "
                f"was mounted, or is the mirror of the other, has the same offsets: go on with startingOffsets {at}"
            )
            raise SourceChangedError(message, code=SOURCE_TOPIC_ID_CHANGED, hint=hint)
        return offsets


class _RefusedStream(DataSourceStreamReader):
    """Raises what is wrong with a stream once Spark asks it something.

    An error that `streamReader` raises is buried: Spark 4.3.0 ends with an `UnboundLocalError` of its own worker.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802 - Spark's name, as those below
        raise self._error

    def latestOffset(self, _start: dict[str, Any], _limit: ReadLimit) -> NoReturn:  # noqa: N802
        raise self._error

    def getDefaultReadLimit(self) -> NoReturn:  # noqa: N802
        raise self._error

    def partitions(self, _start: dict[str, Any], _end: dict[str, Any]) -> NoReturn:
        raise self._error

    def read(self, _partition: InputPartition) -> NoReturn:
        raise self._error


def _readable(
    begins: Mapping[int, int], ends: Mapping[int, int], bounds: Mapping[int, Bounds]
) -> tuple[dict[int, OffsetRange], list[str]]:
    """Return what can be read between two positions, and what cannot any more. A new partition begins at offset 0."""
    ranges: dict[int, OffsetRange] = {}
    lost: list[str] = []
    for partition, end in sorted(ends.items()):
        begin, found = begins.get(partition, 0), bounds.get(partition)
        if found is None:
            lost.append(f"partition {partition}: it is gone, with all offsets from {begin}")
            continue
        if found.end < max(begin, end):
            lost.append(f"partition {partition}: offsets {found.end} to {max(begin, end) - 1} were cut off its end")
            ranges[partition] = OffsetRange(min(begin, found.end), min(end, found.end))
        elif begin < min(found.start, end):
            stop = min(found.start, end)
            lost.append(removed(partition, begin, stop))
            ranges[partition] = OffsetRange(stop, end)
        else:
            ranges[partition] = OffsetRange(begin, max(begin, end))
    return ranges, lost


def _limited(ranges: Mapping[int, OffsetRange], most: int) -> dict[int, OffsetRange]:
    """Return the beginning of each range, so many offsets in all, in proportion, and at least one of each."""
    total = sum(offsets.length for offsets in ranges.values())
    if total <= most:
        return dict(ranges)
    return {
        partition: OffsetRange(
            offsets.start, offsets.start + min(offsets.length, max(1, most * offsets.length // total))
        )
        for partition, offsets in ranges.items()
    }


# Writes: rows become new records of a topic, all of a batch or none.
#
# Tasks stage, the driver publishes once. A batch of a stream is published under the id of its query and its own number,
# so that one that Spark runs again after a crash is not written again.


# Columns: those of a read, without those whose values the topic assigns when a record is written.


_FIELDS: Final = {
    "value": "value",
    "key": "key",
    "headers": "headers",
    "timestamp": "timestamp_ms",
    "partition": "partition",
}
"""What becomes of a column."""
_TEXT: Final = frozenset({"value", "key"})
"""Columns that may be text, which is written as UTF-8."""


def check_rows(schema: StructType) -> None:
    """Refuse rows that lack a value, or have columns of other names or types than records have.

    Raises:
        UserError: Says which.
    """
    for each in schema:
        if each.name not in COLUMNS:
            known = f"Rename it, or leave it out; a record is written from {', '.join(_FIELDS)}."
            hint = did_you_mean(nearest_spelling(each.name, _FIELDS), then=known)
            raise UserError(f"{NAME} writes no column {each.name!r}", hint=hint)
        takes = [COLUMNS[each.name].type, *(["string"] if each.name in _TEXT else [])]
        found = each.dataType.simpleString()
        if found not in takes:
            message = f"{NAME} writes column {each.name} of type {' or '.join(takes)}, not {found}"
            is_time = each.name == "timestamp"
            cast = "cast(timestamp as timestamp_ltz)" if is_time else "for example with to_json or a cast"
            raise UserError(message, hint=f"Cast it first, {cast}.")
    if "value" not in schema.names:
        message = f"{NAME} writes rows with a column value, and these have {', '.join(schema.names) or 'no column'}"
        raise UserError(message, hint="Select what is to be written as value; of null values it makes tombstones.")


def _as_records(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows as a producer takes records: the option names the topic, whatever a column `topic` says."""
    kept = [name for name in rows.schema.names if name in _FIELDS]
    return pa.RecordBatch.from_arrays([rows.column(name) for name in kept], [_FIELDS[name] for name in kept])


# Writers: Spark pickles each with what it opened on the driver, calls `write` in tasks, and `commit` on the driver.
#
# There is nothing to do in `abort`: what is staged is named by nobody, and swept. To delete it would even be wrong
# where `commit` failed: its transaction may have been decided all the same.


@dataclass(frozen=True)
class StagedRows(WriterCommitMessage):
    """What one task staged."""

    append: StagedAppend


@dataclass(frozen=True)
class StagedBatch(StagedRows):
    """What one task staged of a batch of a query."""

    stream: str


class BatchWriter(DataSourceArrowWriter):
    """Writes the rows of one `save`."""

    def __init__(self, sink: AppendSink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        return StagedRows(_stage(self._sink, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make the rows of all tasks readable."""
        self._sink.publish([each.append for each in _all_of(messages, StagedRows)])


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream, each once."""

    def __init__(self, sink: AppendSink, topic: str) -> None:
        self._sink = sink
        self._topic = topic

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        # Spark tells a Python writer nothing of the query; its tasks have this property of the JVM's thread.
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        if query is None:
            message = "Spark does not say which query this is"
            raise UserError(message, hint="Streams into topic-log need PySpark 4.2 or newer.")
        return StagedBatch(_stage(self._sink, iterator), query)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Make the rows of all tasks readable, unless this batch was written before."""
        found = _all_of(messages, StagedBatch)
        if not found:
            return
        stream = found[0].stream
        try:
            self._sink.publish([each.append for each in found], NumberedBatch(stream, batchId))
        except ProducerFencedError as error:
            message = (
                f"another run of query {stream} writes to {self._topic}: batch {batchId} was not written by this one"
            )
            hint = "One checkpoint is for one query: stop one of them, and give each its own checkpointLocation."
            raise UserError(message, hint=hint) from error


def _stage(sink: AppendSink, rows: Iterator[pa.RecordBatch]) -> StagedAppend:
    sink.check_shared()
    context = TaskContext.get()
    task = 0 if context is None else context.partitionId()
    return sink.stage((_as_records(each) for each in rows), task=task)


S = TypeVar("S", bound=StagedRows)


def _all_of(messages: Sequence[WriterCommitMessage | None], kind: type[S]) -> list[S]:
    """Return what every task staged.

    Raises:
        UserError: A task did not say it, so its rows would be lost; executors may run another version of this package.
    """
    found = [each for each in messages if isinstance(each, kind)]
    if len(found) < len(messages):
        left = len(messages) - len(found)
        message = f"{left} of {len(messages)} tasks did not say what they staged, so nothing was written"
        hint = "Executors may run another version of reconciler: send them the package of the driver, then try again."
        raise UserError(message, hint=hint)
    return found
