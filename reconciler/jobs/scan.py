"""Topics as rows: columns, offset ranges, filters and the batch reader."""

from __future__ import annotations

import datetime as dt
import json
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyspark
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, StructField, StructType

from reconciler.errors import UserError
from reconciler.jobs.flows import iter_pieces
from reconciler.jobs.progress import shorten_worker_errors
from reconciler.records.log import MAX_OFFSET, Bounds, OffsetRange, Selection, SelectiveLog, TopicLog
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.text import find_similar, format_suggestion

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter  # PySpark has `Filter` since 4.1.

NAME: Final = "topic-log"
_UTC: Final[Mapping[str, Any]] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
"""Before PySpark 4.2, Arrow schemas are always in UTC."""
_LOGGER: Final = logging.getLogger("reconciler.jobs")

# The columns are those of Spark's Kafka source.


@dataclass(frozen=True)
class Column:
    """A column's Spark type and field in `RECORD_SCHEMA`."""

    type: str
    field: str | None
    is_never_null: bool = False

    @property
    def sql(self) -> str:
        """Spark type in a SQL schema."""
        return "timestamp_ltz" if self.type == "timestamp" else self.type

    @property
    def ddl(self) -> str:
        """Spark type and nullability in a SQL schema."""
        return f"{self.sql} not null" if self.is_never_null else self.sql


COLUMNS: Final = {
    "key": Column("binary", "key"),
    "value": Column("binary", "value"),
    "topic": Column("string", None, is_never_null=True),
    "partition": Column("int", "partition", is_never_null=True),
    "offset": Column("bigint", "offset", is_never_null=True),
    "timestamp": Column("timestamp", "timestamp_ms", is_never_null=True),
    "timestampType": Column("int", "timestamp_type", is_never_null=True),
    "headers": Column("array<struct<key:string,value:binary>>", "headers"),
}


def build_ddl(options: Mapping[str, str]) -> str:
    """Return the Spark schema of the option `columns`, or of all columns."""
    listed = options.get("columns")
    names = list(COLUMNS) if listed is None else [name.strip() for name in listed.split(",")]
    if listed is None and not parse_boolean(options, "includeHeaders", otherwise=True):
        names.remove("headers")
    _check_columns(names)
    return ", ".join(f"{name} {COLUMNS[name].ddl}" for name in names)


def _check_columns(names: Sequence[str]) -> None:
    for index, name in enumerate(names):
        if name not in COLUMNS:
            hint = format_suggestion(find_similar(name, COLUMNS), otherwise=f"Columns: {', '.join(COLUMNS)}.")
            raise UserError(f"{NAME} has no column {name!r}", hint=hint)
        if name in names[:index]:
            raise UserError(f"column {name} is requested twice", hint="Name each column once.")


def check_schema(schema: StructType) -> None:
    """Reject a user's schema with other columns or types, or with `not null` for a nullable column."""
    _check_columns(schema.names)
    for wanted in schema:
        column = COLUMNS[wanted.name]
        type_name = wanted.dataType.simpleString()
        if type_name != column.type:
            message = f"column {wanted.name} of {NAME} is of type {column.type}, not {type_name}"
            hint = f"Write {wanted.name} {column.sql} in .schema(…), or cast the column after loading."
            raise UserError(message, hint=hint)
        if not column.is_never_null and not _may_be_null(wanted):
            message = f"column {wanted.name} of {NAME} may hold nulls, and the schema declares it not null"
            hint = (
                f"Write {wanted.name} {column.sql} in .schema(…); of another frame, .schema(frame.schema.toNullable())."
            )
            raise UserError(message, hint=hint)


def _may_be_null(column: StructField) -> bool:
    if isinstance(column.dataType, ArrayType) and isinstance(column.dataType.elementType, StructType):
        return column.nullable and column.dataType.elementType["value"].nullable
    return column.nullable


def _to_columns(batch: pa.RecordBatch, schema: pa.Schema, topic: str) -> pa.RecordBatch:
    arrays = [_column_values(batch, column, topic) for column in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column_values(batch: pa.RecordBatch, wanted: pa.Field[Any], topic: str) -> pa.Array[Any]:
    name = COLUMNS[wanted.name].field
    if name is None:
        return pa.repeat(pa.scalar(topic, wanted.type), batch.num_rows)
    values = batch.column(name)
    if name == "timestamp_ms":
        return _clamp_times(values).cast(pa.timestamp("ms", tz="UTC")).cast(wanted.type)
    if name == "headers":
        return _null_if_empty(values).cast(wanted.type)
    return values.cast(wanted.type)


_MAX_MS: Final = ((1 << 63) - 1) // 1000
"""Spark stores microseconds in 64 bits."""


def _clamp_times(ms: pa.Array[Any]) -> pa.Array[Any]:
    """Clamp timestamps to Spark's range, since brokers accept any 64-bit value."""
    ends = pc.min_max(ms).as_py()
    if ends["min"] is None or -_MAX_MS <= ends["min"] <= ends["max"] <= _MAX_MS:
        return ms
    return pc.max_element_wise(pc.min_element_wise(ms, _MAX_MS), -_MAX_MS)


def _null_if_empty(headers: pa.ListArray[Any]) -> pa.ListArray[Any]:
    borders = np.array(headers.offsets)
    is_empty = pa.array(borders[1:] == borders[:-1])
    return pa.ListArray.from_arrays(pa.array(borders), headers.values, type=headers.type, mask=is_empty)


_EARLIEST, _LATEST = -2, -1
"""Kafka's numbers for the earliest and latest offset in JSON."""
STARTS: Final = {"earliest": _EARLIEST, "latest": _LATEST}
ENDS: Final = {"stable": _LATEST, "latest": _LATEST}


@dataclass(frozen=True)
class OffsetOption:
    """Start or end offsets from an option. `everywhere` is for all partitions."""

    option: str
    everywhere: int | None
    by_partition: Mapping[int, int] = field(default_factory=dict)

    def find_offset(self, partition: int) -> int | None:
        """Return a partition's offset; `None` for `earliest` or `latest`."""
        offset = self.by_partition.get(partition) if self.everywhere is None else self.everywhere
        return None if offset is None or offset < 0 else offset

    def resolve(self, all_bounds: Mapping[int, Bounds]) -> dict[int, int]:
        """Return each partition's offset."""
        if self.everywhere is None and (others := sorted(all_bounds.keys() ^ self.by_partition.keys())):
            lacks = others[0] in all_bounds
            problem = "names no offset for" if lacks else "names an offset for"
            what = f"partition {others[0]}" if lacks else f"partition {others[0]}, which the topic does not have"
            hint = f"Give every partition an offset, {_EARLIEST} for its start or {_LATEST} for its end."
            raise UserError(f"option {self.option} of {NAME} {problem} {what}", hint=hint)
        offsets = {}
        for partition, bounds in sorted(all_bounds.items()):
            offset = self.by_partition[partition] if self.everywhere is None else self.everywhere
            offsets[partition] = {_EARLIEST: bounds.start, _LATEST: bounds.stable}.get(offset, offset)
        return offsets


def parse_topics(options: Mapping[str, str], list_topics: Callable[[], Iterable[str]]) -> Sequence[str]:
    """Return the topics of the option `topic`, `subscribe` or `subscribePattern`."""
    names = [name for name in ("topic", "subscribe", "subscribePattern") if options.get(name.lower()) is not None]
    if len(names) > 1:
        message = f"options {' and '.join(names)} of {NAME} both name topics"
        raise UserError(message, hint="Leave one of them out.")
    pattern, listed = options.get("subscribepattern"), options.get("subscribe")
    if pattern is not None:
        return _match_topics(pattern, list_topics)
    if listed is None:
        return [options.get("topic", "")]
    topics = [name.strip() for name in listed.split(",")]
    if not all(topics):
        message = f"option subscribe of {NAME}: {listed!r} has a name that is empty"
        raise UserError(message, hint="Write the full names of topics: orders, payments.")
    return list(dict.fromkeys(topics))


def _match_topics(pattern: str, list_topics: Callable[[], Iterable[str]]) -> Sequence[str]:
    hint = "Write a regular expression for whole names of topics: shop:eu:.*"
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        message = f"option subscribePattern of {NAME}: {pattern!r} is no regular expression: {error}"
        raise UserError(message, hint=hint) from error
    topics = sorted(filter(compiled.fullmatch, list_topics()))
    if not topics:
        raise UserError(f"option subscribePattern of {NAME}: {pattern!r} matches no topic", hint=hint)
    return topics


def parse_offset_option(
    options: Mapping[str, str],
    names: Sequence[str],
    words: Mapping[str, int],
    default: str,
    *,
    topic: str,
    topics: Collection[str],
) -> OffsetOption:
    """Parse start or end offsets from this source's or Spark's Kafka option (`names`). JSON may name all `topics`."""
    ours, kafkas = names
    if options.get(ours) is not None and options.get(kafkas.lower()) is not None:
        message = f"options {ours} and {kafkas} of {NAME} mean the same, and both are given"
        raise UserError(message, hint="Leave one of them out.")
    option = kafkas if options.get(kafkas.lower()) is not None else ours
    text = options.get(option.lower(), default).strip()
    if text.lower() in words:
        return OffsetOption(option, words[text.lower()])
    if text.isdecimal():
        return OffsetOption(option, int(text))
    try:
        parsed = json.loads(text)
        if set(parsed) == set(topics):
            parsed = parsed[topic]
        by_partition = {int(partition): offset for partition, offset in parsed.items()}
    except (ValueError, AttributeError, TypeError):
        by_partition = {}
    if not by_partition or not all(type(offset) is int and offset >= _EARLIEST for offset in by_partition.values()):
        hint = f'Write {", ".join(sorted(words))}, an offset, or JSON by partition: {{"0": 23, "1": {_EARLIEST}}}.'
        raise UserError(f"option {option} of {NAME}: {text!r} is not a place in a topic", hint=hint)
    return OffsetOption(option, None, by_partition)


def parse_whole_number(options: Mapping[str, str], name: str, *, least: int = 0) -> int | None:
    """Return an option's 64-bit whole number; `None` if the option is not set."""
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < least:
        message = f"option {name} of {NAME} takes a whole number of at least {least}, not {text!r}"
        is_time = name.endswith("Timestamp")
        raise UserError(message, hint="Write milliseconds since 1970." if is_time else "Correct it, or leave it out.")
    return min(int(text), MAX_OFFSET)


def parse_boolean(options: Mapping[str, str], name: str, *, otherwise: bool) -> bool:
    """Return whether an option is true."""
    text = options.get(name.lower(), str(otherwise)).lower()
    if text not in {"true", "false"}:
        raise UserError(f"option {name} of {NAME} is true or false, not {text!r}", hint="Write true or false.")
    return text == "true"


def check_version(what: str, oldest: str, *, is_supported: bool) -> None:
    """Raise `UserError` unless this PySpark supports a feature."""
    if not is_supported:
        message = f"{what} needs PySpark {oldest} or newer, and this is {pyspark.__version__}"
        raise UserError(message, hint=f"Install it: pip install 'pyspark>={oldest}'.")


def _parse_numbers(options: Mapping[str, str], name: str) -> _NumberRange:
    text = options.get(name)
    if text is None:
        return _NumberRange()
    if not all(number.strip().isdecimal() for number in text.split(",")):
        raise UserError(f"option {name} of {NAME} takes numbers, not {text!r}", hint="Write them as 0, 3, 4.")
    return _NumberRange(among=frozenset(map(int, text.split(","))))


_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)


@dataclass(frozen=True)
class _NumberRange:
    least: int = -MAX_OFFSET
    most: int = MAX_OFFSET
    among: frozenset[int] | None = None

    def contains(self, number: int) -> bool:
        return self.least <= number <= self.most and (self.among is None or number in self.among)

    def narrow_by(self, condition: Filter) -> _NumberRange | None:
        match condition:
            case datasource.EqualTo(value=value) | datasource.EqualNullSafe(value=value):
                return self._narrow_to(value, value, 0, 0)
            case datasource.GreaterThan(value=value):
                return self._narrow_to(value, None, 1, 0)
            case datasource.GreaterThanOrEqual(value=value):
                return self._narrow_to(value, None, 0, 0)
            case datasource.LessThan(value=value):
                return self._narrow_to(None, value, 0, -1)
            case datasource.LessThanOrEqual(value=value):
                return self._narrow_to(None, value, 0, 0)
            case datasource.In(value=values):
                numbers = [_parse_number(value) for value in values]
                known = frozenset(number for number in numbers if number is not None)
                if len(known) != len(set(numbers)) or not known:
                    return None
                among = known if self.among is None else self.among & known
                return _NumberRange(max(self.least, min(known)), min(self.most, max(known)), among)
            case _:
                return None

    def _narrow_to(self, least: object, most: object, up: int, down: int) -> _NumberRange | None:
        low = self.least if least is None else _parse_number(least)
        high = self.most if most is None else _parse_number(most)
        if low is None or high is None:
            return None
        return replace(self, least=max(self.least, low + up), most=min(self.most, high + down))


def _parse_number(value: object) -> int | None:
    if isinstance(value, dt.datetime):
        return None if value.tzinfo is None else (value - _EPOCH) // _MICROSECOND
    return value if type(value) is int else None


@dataclass(frozen=True)
class _QueryFilter:
    partition: _NumberRange = _NumberRange()
    offset: _NumberRange = _NumberRange()
    timestamp: _NumberRange = _NumberRange()
    """Range in microseconds."""

    def narrow_by(self, condition: Filter) -> _QueryFilter | None:
        (name, *deeper) = getattr(condition, "attribute", ("",))
        if deeper or name not in {"partition", "offset", "timestamp"}:
            return None
        numbers = getattr(self, name).narrow_by(condition)
        return None if numbers is None else replace(self, **{name: numbers})

    @property
    def since_ms(self) -> int | None:
        return None if self.timestamp.least == -MAX_OFFSET else -(-self.timestamp.least // 1000)

    @property
    def until_ms(self) -> int | None:
        return None if self.timestamp.most == MAX_OFFSET else self.timestamp.most // 1000


def _is_exact(condition: Filter) -> bool:
    (name, *deeper) = getattr(condition, "attribute", ("",))
    if isinstance(condition, datasource.IsNotNull):
        return not deeper and name in COLUMNS and COLUMNS[name].is_never_null
    return name == "partition" or (name == "offset" and not isinstance(condition, datasource.In))


@dataclass(frozen=True)
class TaskRange(InputPartition):
    """The range of one task. Spark pickles it."""

    topic: str
    partition: int
    offsets: OffsetRange
    rows: TopicRows | None = None
    """Reader of the range; `None` stands for the reader that planned the task."""

    def __post_init__(self) -> None:
        pass


@dataclass(frozen=True)
class LossHandling:
    """Whether a query fails for lost offsets or logs them."""

    topic: str
    is_error: bool

    @classmethod
    def from_options(cls, topic: str, options: Mapping[str, str]) -> LossHandling:
        """Read the option `failOnDataLoss`."""
        return cls(topic, parse_boolean(options, "failOnDataLoss", otherwise=True))

    def report(self, lost: Sequence[str]) -> None:
        """Log lost offsets, or raise `UserError` for them."""
        if lost and self.is_error:
            hint = "To read the rest anyway, set the option failOnDataLoss to false."
            raise UserError(f"{self.topic}, {'; '.join(lost)}", hint=hint)
        for text in lost:
            _LOGGER.warning("%s, %s; the rest is read (failOnDataLoss is false)", self.topic, text)


def describe_start_beyond_end(partition: int, start: int, end: int) -> str:
    """Return a text for a start offset beyond the partition's end."""
    return f"partition {partition}: it ends at offset {end}, before the start {start} that was requested"


def describe_removed(partition: int, begin: int, stop: int) -> str:
    """Return a text for records that retention removed."""
    return f"partition {partition}: offsets {begin} to {stop - 1} were removed before they were read"


class TopicRows:
    """Reads ranges of a topic as Arrow batches with selected columns."""

    def __init__(self, log: TopicLog, schema: StructType, losses: LossHandling) -> None:
        self.log = log
        self.losses = losses
        self._schema = schema

    def plan(self, wanted: Mapping[int, OffsetRange]) -> list[TaskRange]:
        """Return a task for each piece of the ranges."""
        return [
            TaskRange(self.losses.topic, partition, piece.offsets)
            for partition, offsets in sorted(wanted.items())
            if offsets.length
            for piece in iter_pieces(partition, offsets, self.log.list_extents(partition, offsets))
        ]

    def read(
        self, share: TaskRange, *, since_ms: int | None = None, until_ms: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a task, and report records that retention removed."""
        self.log.check_shared()
        schema = to_arrow_schema(self._schema, **_UTC)
        if isinstance(self.log, SelectiveLog):
            fields = frozenset(
                record_field for name in schema.names if (record_field := COLUMNS[name].field) is not None
            )
            batches = self.log.read_selected(share.partition, share.offsets, Selection(fields, since_ms, until_ms))
        else:
            batches = self.log.read(share.partition, share.offsets)
        at, leaves_out = share.offsets.start, since_ms is not None or until_ms is not None
        if leaves_out:
            self._check_hole(share.partition, share.offsets)
        for batch in batches:
            if not batch.num_rows:
                continue
            first = batch.column("offset")[0].as_py()
            if first > at and not leaves_out:
                self._check_hole(share.partition, OffsetRange(at, first))
            at = batch.column("offset")[-1].as_py() + 1
            yield _to_columns(batch, schema, self.losses.topic)
        if at < share.offsets.stop and not leaves_out:
            self._check_hole(share.partition, OffsetRange(at, share.offsets.stop))

    def _check_hole(self, partition: int, hole: OffsetRange) -> None:
        begin = self.log.read_bounds([partition])[partition].start
        if hole.start < begin:
            self.losses.report([describe_removed(partition, hole.start, min(begin, hole.stop))])


class TopicLogReader(DataSourceReader):
    """Plans and reads a batch query of topics."""

    def __init__(self, rows: Mapping[str, TopicRows], options: Mapping[str, str]) -> None:
        self._rows = rows
        self._starts = self._parse_offset_options(options, ("start", "startingOffsets"), STARTS, "earliest")
        self._ends = self._parse_offset_options(options, ("end", "endingOffsets"), ENDS, "stable")
        self._since_ms = parse_whole_number(options, "startingTimestamp")
        self._until_ms = parse_whole_number(options, "endingTimestamp")
        self._wanted = _QueryFilter(_parse_numbers(options, "partitions"))
        self._listed_partitions = self._wanted.partition.among or frozenset()

    @shorten_worker_errors()
    def partitions(self) -> Sequence[InputPartition]:
        """Return a task for each piece that may have matching records."""
        bounds = {topic: rows.log.read_bounds() for topic, rows in self._rows.items()}
        if missing := sorted(self._listed_partitions.difference(*bounds.values())):
            message = f"option partitions of {NAME} names partition {missing[0]}, which the topic does not have"
            raise UserError(message, hint="Correct it, or leave it out.")
        return [
            task
            for topic, rows in self._rows.items()
            for task in rows.plan(self._select_ranges(topic, rows, bounds[topic]))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        if isinstance(partition, TaskRange):  # Without a range to read, Spark runs one task with an empty partition.
            wanted, rows = self._wanted, self._rows[partition.topic]
            with shorten_worker_errors():
                yield from rows.read(partition, since_ms=wanted.since_ms, until_ms=wanted.until_ms)

    def _parse_offset_options(
        self, options: Mapping[str, str], names: Sequence[str], words: Mapping[str, int], default: str
    ) -> dict[str, OffsetOption]:
        return {
            topic: parse_offset_option(options, names, words, default, topic=topic, topics=self._rows)
            for topic in self._rows
        }

    def _select_ranges(self, topic: str, rows: TopicRows, bounds: Mapping[int, Bounds]) -> dict[int, OffsetRange]:
        starts, ends = self._starts[topic].resolve(bounds), self._ends[topic].resolve(bounds)
        requested = {
            partition: OffsetRange(starts[partition], max(starts[partition], ends[partition]))
            for partition in bounds
            if self._wanted.partition.contains(partition)
        }
        for partition in requested:
            self._check_order(topic, partition)
        rows.losses.report(
            [text for partition in requested for text in self._find_lost_offsets(topic, partition, bounds[partition])]
        )
        return {
            partition: self._select_range(rows.log, partition, bounds[partition], offsets)
            for partition, offsets in requested.items()
        }

    def _check_order(self, topic: str, partition: int) -> None:
        starts, ends = self._starts[topic], self._ends[topic]
        start, end = starts.find_offset(partition), ends.find_offset(partition)
        if start is not None and end is not None and start > end:
            message = (
                f"{topic}, partition {partition}: option {starts.option} of {NAME} is offset {start}, "
                f"and option {ends.option} is offset {end}, which comes before it"
            )
            raise UserError(message, hint="Give a start that is not after the end.")

    def _find_lost_offsets(self, topic: str, partition: int, bounds: Bounds) -> Iterator[str]:
        start, end = self._starts[topic].find_offset(partition), self._ends[topic].by_partition.get(partition, -1)
        if start is not None and start < bounds.start:
            yield describe_removed(partition, start, bounds.start)
        if start is not None and start > bounds.end:
            yield describe_start_beyond_end(partition, start, bounds.end)
        elif end > bounds.stable:
            yield f"partition {partition}: offsets {max(bounds.stable, start or 0)} to {end - 1} are not there"

    def _select_range(self, log: TopicLog, partition: int, bounds: Bounds, requested: OffsetRange) -> OffsetRange:
        offset = self._wanted.offset
        start, stop = (
            max(requested.start, bounds.start, offset.least),
            min(requested.stop, bounds.stable, offset.most + 1),
        )
        for since_ms in (self._since_ms, self._wanted.since_ms):
            if since_ms is not None and start < stop:
                first = log.find_offset_at(partition, since_ms)
                start = stop if first is None else max(start, first)
        if self._until_ms is not None:
            first = log.find_offset_at(partition, self._until_ms)
            stop = stop if first is None else min(stop, first)
        return OffsetRange(start, stop)


class PushingReader(TopicLogReader):
    """Applies Spark's filters while reading, if the option `pushFilters` is set.

    Spark 4.3.0 applies one scan's filters to all scans of a frame, so a self-join would lack rows.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Store supported filters, and yield filters that Spark must apply."""
        for condition in filters:
            narrow = self._wanted.narrow_by(condition)
            self._wanted = narrow or self._wanted
            is_never_null = isinstance(condition, datasource.IsNotNull) and _is_exact(condition)
            if not is_never_null and (narrow is None or not _is_exact(condition)):
                yield condition
