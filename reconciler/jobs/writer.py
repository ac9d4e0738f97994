"""`write` and `writeStream` with format `topic-log`: rows become new records of a topic, all of a batch or none.

Tasks stage, the driver publishes once. A batch of a stream is published under the id of its query and its own number,
so that one that Spark runs again after a crash is not written again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from reconciler.errors import ProducerFencedError, UserError
from reconciler.jobs.scan import COLUMNS, NAME
from reconciler.records.log import AppendSink, NumberedBatch, StagedAppend
from reconciler.runtime.text import did_you_mean, nearest

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


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
            hint = did_you_mean(nearest(each.name, _FIELDS), then=known)
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


def _as_records(rows: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    """Return rows as a producer takes records."""
    if "topic" in rows.schema.names:
        others = pc.fill_null(pc.not_equal(rows.column("topic"), topic), fill_value=False)
        if pc.any(others).as_py():
            other = rows.column("topic").filter(others)[0].as_py()
            message = f"a row names the topic {other}, and what is written to is {topic}"
            raise UserError(message, hint="Drop the column topic, or write the rows of each topic on their own.")
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

    def __init__(self, sink: AppendSink, topic: str) -> None:
        self._sink = sink
        self._topic = topic

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        return StagedRows(_stage(self._sink, self._topic, iterator))

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
        return StagedBatch(_stage(self._sink, self._topic, iterator), query)

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


def _stage(sink: AppendSink, topic: str, rows: Iterator[pa.RecordBatch]) -> StagedAppend:
    sink.check_shared()
    context = TaskContext.get()
    task = 0 if context is None else context.partitionId()
    return sink.stage((_as_records(each, topic) for each in rows), task=task)


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
