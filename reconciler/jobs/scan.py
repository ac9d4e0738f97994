"""Topics as rows: columns, where a read begins and ends, what filters leave of it, and the batch reader."""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, StructField, StructType

from reconciler.errors import UserError
from reconciler.jobs.flows import pieces_of
from reconciler.records.log import MAX_OFFSET, Bounds, OffsetRange, Selection, SelectiveLog, TopicLog
from reconciler.runtime.text import did_you_mean, nearest

NAME: Final = "topic-log"
_LOGGER: Final = logging.getLogger("reconciler.jobs")

# Columns: those of Spark's Kafka source, each made of one field of a record.


@dataclass(frozen=True)
class Column:
    """A column: its type as Spark says it, and the field of `RECORD_SCHEMA` that it is made of."""

    type: str
    field: str | None
    is_never_null: bool = False

    @property
    def sql(self) -> str:
        """Its type in a schema that is written: there, what `timestamp` means is up to a setting of Spark."""
        return "timestamp_ltz" if self.type == "timestamp" else self.type

    @property
    def ddl(self) -> str:
        """That, and whether it may be null."""
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


def ddl_of(options: Mapping[str, str]) -> str:
    """Return the columns that the option `columns` names, or all of them; headers may be left out as Kafka's may."""
    given = options.get("columns")
    names = list(COLUMNS) if given is None else [name.strip() for name in given.split(",")]
    if given is None and not truth_of(options, "includeHeaders", otherwise=True):
        names.remove("headers")
    _check_columns(names)
    return ", ".join(f"{name} {COLUMNS[name].ddl}" for name in names)


def _check_columns(names: Sequence[str]) -> None:
    for index, name in enumerate(names):
        if name not in COLUMNS:
            hint = did_you_mean(nearest(name, COLUMNS), otherwise=f"Columns: {', '.join(COLUMNS)}.")
            raise UserError(f"{NAME} has no column {name!r}", hint=hint)
        if name in names[:index]:
            raise UserError(f"column {name} is asked for twice", hint="Name each column once.")


def check_schema(schema: StructType) -> None:
    """Refuse a schema of the user's own that names other columns or types, or says `not null` of what may be null."""
    _check_columns(schema.names)
    for each in schema:
        column = COLUMNS[each.name]
        found = each.dataType.simpleString()
        if found != column.type:
            message = f"column {each.name} of {NAME} is of type {column.type}, not {found}"
            hint = f"Write {each.name} {column.sql} in .schema(…), or cast the column after loading."
            raise UserError(message, hint=hint)
        if not column.is_never_null and not _may_be_null(each):
            message = f"column {each.name} of {NAME} may hold nulls, and the schema that is given says not null"
            hint = (
                f"Write {each.name} {column.sql} in .schema(…); of another frame, .schema(frame.schema.toNullable())."
            )
            raise UserError(message, hint=hint)


def _may_be_null(column: StructField) -> bool:
    """Tell whether a schema allows what records have: no value, or a header without one. A header has a name."""
    if isinstance(column.dataType, ArrayType) and isinstance(column.dataType.elementType, StructType):
        return column.nullable and column.dataType.elementType["value"].nullable
    return column.nullable


def _as_columns(batch: pa.RecordBatch, schema: pa.Schema, topic: str) -> pa.RecordBatch:
    """Return records as the columns of a schema."""
    arrays = [_array(batch, each, topic) for each in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(batch: pa.RecordBatch, wanted: pa.Field[Any], topic: str) -> pa.Array[Any]:
    name = COLUMNS[wanted.name].field
    if name is None:
        return pa.repeat(pa.scalar(topic, wanted.type), batch.num_rows)
    found = batch.column(name)
    if name == "timestamp_ms":
        return _times(found).cast(pa.timestamp("ms", tz="UTC")).cast(wanted.type)
    if name == "headers":
        return _none_if_empty(found).cast(wanted.type)
    return found.cast(wanted.type)


_MOST_MS: Final = ((1 << 63) - 1) // 1000
"""The furthest time that Spark's microseconds can say."""


def _times(ms: pa.Array[Any]) -> pa.Array[Any]:
    """Return times, those that Spark's type cannot hold as the nearest that it can: brokers take any 64 bits."""
    ends = pc.min_max(ms).as_py()
    if ends["min"] is None or -_MOST_MS <= ends["min"] <= ends["max"] <= _MOST_MS:
        return ms
    return pc.max_element_wise(pc.min_element_wise(ms, _MOST_MS), -_MOST_MS)


def _none_if_empty(headers: pa.ListArray[Any]) -> pa.ListArray[Any]:
    """Return null for a record without headers, as Spark's Kafka source does."""
    borders = np.array(headers.offsets)
    is_empty = pa.array(borders[1:] == borders[:-1])
    return pa.ListArray.from_arrays(pa.array(borders), headers.values, type=headers.type, mask=is_empty)


# Places: where a read begins and ends, by words, a number, or JSON by partition.


_EARLIEST, _LATEST = -2, -1
"""Kafka's numbers for the two ends, in JSON."""
STARTS: Final = {"earliest": _EARLIEST, "latest": _LATEST}
ENDS: Final = {"stable": _LATEST, "latest": _LATEST}


@dataclass(frozen=True)
class Places:
    """One offset in each partition: the same in all of them, or each its own."""

    option: str
    everywhere: int | None
    by_partition: Mapping[int, int] = field(default_factory=dict)

    def offset_in(self, partition: int) -> int | None:
        """Return the offset that is given for a partition by its number; `None`: a word says the place."""
        given = self.by_partition.get(partition) if self.everywhere is None else self.everywhere
        return None if given is None or given < 0 else given

    def resolve(self, all_bounds: Mapping[int, Bounds]) -> dict[int, int]:
        """Return an offset for each partition that there is.

        Raises:
            UserError: Some are missing, or are none of the topic.
        """
        if self.everywhere is None and (others := sorted(all_bounds.keys() ^ self.by_partition.keys())):
            lacks = others[0] in all_bounds
            said = "names no offset for" if lacks else "names an offset for"
            what = f"partition {others[0]}" if lacks else f"partition {others[0]}, which the topic does not have"
            hint = f"Give every partition an offset, {_EARLIEST} for its start or {_LATEST} for its end."
            raise UserError(f"option {self.option} of {NAME} {said} {what}", hint=hint)
        found = {}
        for partition, bounds in sorted(all_bounds.items()):
            given = self.by_partition[partition] if self.everywhere is None else self.everywhere
            found[partition] = {_EARLIEST: bounds.start, _LATEST: bounds.stable}.get(given, given)
        return found


def topics_of(options: Mapping[str, str]) -> list[str]:
    """Return the topics that a read names by `topic`, or by `subscribe` as Spark's Kafka source has it."""
    given = options.get("subscribe")
    if given is None:
        return [options.get("topic", "")]
    if options.get("topic") is not None:
        message = f"options topic and subscribe of {NAME} both name topics"
        raise UserError(message, hint="Leave one of them out.")
    names = [name.strip() for name in given.split(",")]
    if not all(names):
        message = f"option subscribe of {NAME}: {given!r} has a name that is empty"
        raise UserError(message, hint="Write the full names of topics: orders, payments.")
    return list(dict.fromkeys(names))


def places_of(
    options: Mapping[str, str], names: Sequence[str], words: Mapping[str, int], default: str, *, topic: str
) -> Places:
    """Return what one of two options says that mean the same: ours, and that of Spark's Kafka source.

    JSON may be by topic and partition, as Kafka's source has it: then every topic has its own.
    """
    ours, kafkas = names
    if options.get(ours) is not None and options.get(kafkas.lower()) is not None:
        message = f"options {ours} and {kafkas} of {NAME} mean the same, and both are given"
        raise UserError(message, hint="Leave one of them out.")
    option = kafkas if options.get(kafkas.lower()) is not None else ours
    given = options.get(option.lower(), default).strip()
    if given.lower() in words:
        return Places(option, words[given.lower()])
    if given.isdecimal():
        return Places(option, int(given))
    try:
        found = json.loads(given)
        if set(found) == set(topics_of(options)):
            found = found[topic]
        by_partition = {int(partition): offset for partition, offset in found.items()}
    except (ValueError, AttributeError, TypeError):
        by_partition = {}
    if not by_partition or not all(type(offset) is int and offset >= _EARLIEST for offset in by_partition.values()):
        hint = f'Write {", ".join(sorted(words))}, an offset, or JSON by partition: {{"0": 23, "1": {_EARLIEST}}}.'
        raise UserError(f"option {option} of {NAME}: {given!r} is not a place in a topic", hint=hint)
    return Places(option, None, by_partition)


def whole_of(options: Mapping[str, str], name: str, *, least: int = 0) -> int | None:
    """Return a whole number that an option gives, at most the largest of 64 bits, or `None`."""
    given = options.get(name.lower())
    if given is None:
        return None
    if not given.strip().isdecimal() or int(given) < least:
        message = f"option {name} of {NAME} takes a whole number of at least {least}, not {given!r}"
        is_time = name.endswith("Timestamp")
        raise UserError(message, hint="Write milliseconds since 1970." if is_time else "Correct it, or leave it out.")
    return min(int(given), MAX_OFFSET)


def truth_of(options: Mapping[str, str], name: str, *, otherwise: bool) -> bool:
    """Return whether an option is true."""
    given = options.get(name.lower(), str(otherwise)).lower()
    if given not in {"true", "false"}:
        raise UserError(f"option {name} of {NAME} is true or false, not {given!r}", hint="Write true or false.")
    return given == "true"


def _listed(options: Mapping[str, str], name: str) -> _Numbers:
    """Return the numbers that an option lists, or all there are."""
    given = options.get(name)
    if given is None:
        return _Numbers()
    if not all(each.strip().isdecimal() for each in given.split(",")):
        raise UserError(f"option {name} of {NAME} takes numbers, not {given!r}", hint="Write them as 0, 3, 4.")
    return _Numbers(among=frozenset(map(int, given.split(","))))


# Filters: what a query wants of partition, offset and timestamp decides what is planned and fetched at all.


_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)


@dataclass(frozen=True)
class _Numbers:
    """Numbers from `least` to `most`, and among `among` where that is given."""

    least: int = -MAX_OFFSET
    most: int = MAX_OFFSET
    among: frozenset[int] | None = None

    def holds(self, number: int) -> bool:
        return self.least <= number <= self.most and (self.among is None or number in self.among)

    def narrowed(self, condition: Filter) -> _Numbers | None:
        """Return those that a filter leaves; `None`: it is none of those that are understood."""
        match condition:
            case EqualTo(value=value) | EqualNullSafe(value=value):
                return self._within(value, value, 0, 0)
            case GreaterThan(value=value):
                return self._within(value, None, 1, 0)
            case GreaterThanOrEqual(value=value):
                return self._within(value, None, 0, 0)
            case LessThan(value=value):
                return self._within(None, value, 0, -1)
            case LessThanOrEqual(value=value):
                return self._within(None, value, 0, 0)
            case In(value=values):
                numbers = [_number(value) for value in values]
                known = frozenset(number for number in numbers if number is not None)
                if len(known) != len(set(numbers)) or not known:
                    return None
                among = known if self.among is None else self.among & known
                return _Numbers(max(self.least, min(known)), min(self.most, max(known)), among)
            case _:
                return None

    def _within(self, least: object, most: object, up: int, down: int) -> _Numbers | None:
        low = self.least if least is None else _number(least)
        high = self.most if most is None else _number(most)
        if low is None or high is None:
            return None
        return replace(self, least=max(self.least, low + up), most=min(self.most, high + down))


def _number(value: object) -> int | None:
    """Return what a filter compares with: a time in microseconds, as Spark has it; `None`: no such thing."""
    if isinstance(value, dt.datetime):
        return None if value.tzinfo is None else (value - _EPOCH) // _MICROSECOND
    return value if type(value) is int else None


@dataclass(frozen=True)
class _Wanted:
    """What a query asks for, as far as its filters say."""

    partition: _Numbers = _Numbers()
    offset: _Numbers = _Numbers()
    timestamp: _Numbers = _Numbers()
    """In microseconds."""

    def narrowed(self, condition: Filter) -> _Wanted | None:
        """Return what a filter leaves; `None`: it does not help."""
        (name, *deeper) = getattr(condition, "attribute", ("",))
        if deeper or name not in {"partition", "offset", "timestamp"}:
            return None
        numbers = getattr(self, name).narrowed(condition)
        return None if numbers is None else replace(self, **{name: numbers})

    @property
    def since_ms(self) -> int | None:
        return None if self.timestamp.least == -MAX_OFFSET else -(-self.timestamp.least // 1000)

    @property
    def until_ms(self) -> int | None:
        return None if self.timestamp.most == MAX_OFFSET else self.timestamp.most // 1000


def _is_whole(condition: Filter) -> bool:
    """Tell whether a filter is kept to row by row here, so that Spark need not look again."""
    (name, *deeper) = getattr(condition, "attribute", ("",))
    if isinstance(condition, IsNotNull):
        return not deeper and name in COLUMNS and COLUMNS[name].is_never_null
    return name == "partition" or (name == "offset" and not isinstance(condition, In))


# Reading.


@dataclass(frozen=True)
class Range(InputPartition):
    """One task's share: an `InputPartition` is what Spark pickles."""

    topic: str
    partition: int
    offsets: OffsetRange

    def __post_init__(self) -> None:
        """Spark asks nothing of `value`, which its constructor would set."""


@dataclass(frozen=True)
class Losses:
    """What is done about offsets of a topic that cannot be read any more: they are an error, or a warning."""

    topic: str
    is_error: bool

    @classmethod
    def of(cls, topic: str, options: Mapping[str, str]) -> Losses:
        """Return what the options ask for."""
        return cls(topic, truth_of(options, "failOnDataLoss", otherwise=True))

    def report(self, lost: Sequence[str]) -> None:
        """Fail for what cannot be read, or log it and go on.

        Raises:
            UserError: There is something, and the options do not say to go on.
        """
        if lost and self.is_error:
            hint = "To read the rest all the same, set the option failOnDataLoss to false."
            raise UserError(f"{self.topic}, {'; '.join(lost)}", hint=hint)
        for each in lost:
            _LOGGER.warning("%s, %s; the rest is read (failOnDataLoss is false)", self.topic, each)


def starts_beyond(partition: int, start: int, end: int) -> str:
    """Say that a start that is asked for is not written yet."""
    return f"partition {partition}: it ends at offset {end}, before the start {start} that is asked for"


def removed(partition: int, begin: int, stop: int) -> str:
    """Say that retention was faster."""
    return f"partition {partition}: offsets {begin} to {stop - 1} were removed before they were read"


class Rows:
    """Reads ranges of a log as Arrow batches of some columns."""

    def __init__(self, log: TopicLog, schema: StructType, losses: Losses) -> None:
        self.log = log
        self.losses = losses
        self._schema = schema

    def planned(self, wanted: Mapping[int, OffsetRange]) -> list[InputPartition]:
        """Return a task for each run of stored parts."""
        return [
            Range(self.losses.topic, partition, piece.offsets)
            for partition, offsets in sorted(wanted.items())
            if offsets.length
            for piece in pieces_of(partition, offsets, self.log.extents(partition, offsets))
        ]

    def read(
        self, share: Range, *, since_ms: int | None = None, until_ms: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches of a range in the wanted columns; what retention removed meanwhile is reported.

        Between times, offsets are left out on purpose: only the beginning of the range is looked at then.
        """
        self.log.check_shared()
        schema = to_arrow_schema(self._schema, timezone="UTC")
        if isinstance(self.log, SelectiveLog):
            fields = frozenset(found for name in schema.names if (found := COLUMNS[name].field) is not None)
            batches = self.log.select(share.partition, share.offsets, Selection(fields, since_ms, until_ms))
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
            yield _as_columns(batch, schema, self.losses.topic)
        if at < share.offsets.stop and not leaves_out:
            self._check_hole(share.partition, OffsetRange(at, share.offsets.stop))

    def _check_hole(self, partition: int, hole: OffsetRange) -> None:
        """Report offsets without records, if retention has come this far; they are nothing special otherwise.

        That is asked where the hole is found: later, retention may have passed what was read by then.
        """
        begin = self.log.bounds([partition])[partition].start
        if hole.start < begin:
            self.losses.report([removed(partition, hole.start, min(begin, hole.stop))])


class TopicLogReader(DataSourceReader):
    """Plans and reads what a query wants of some topics."""

    def __init__(self, rows: Mapping[str, Rows], options: Mapping[str, str]) -> None:
        self._rows = rows
        self._starts = self._places(options, ("start", "startingOffsets"), STARTS, "earliest")
        self._ends = self._places(options, ("end", "endingOffsets"), ENDS, "stable")
        self._since_ms = whole_of(options, "startingTimestamp")
        self._until_ms = whole_of(options, "endingTimestamp")
        self._wanted = _Wanted(_listed(options, "partitions"))
        self._named = self._wanted.partition.among or frozenset()

    def partitions(self) -> Sequence[InputPartition]:
        """Return a task for each run of stored parts that may hold what is wanted."""
        bounds = {topic: rows.log.bounds() for topic, rows in self._rows.items()}
        if missing := sorted(self._named.difference(*bounds.values())):
            message = f"option partitions of {NAME} names partition {missing[0]}, which the topic does not have"
            raise UserError(message, hint="Correct it, or leave it out.")
        return [
            each
            for topic, rows in self._rows.items()
            for each in rows.planned(self._ranges(topic, rows, bounds[topic]))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        if isinstance(partition, Range):  # Spark plans an empty topic as one task without a range
            wanted, rows = self._wanted, self._rows[partition.topic]
            yield from rows.read(partition, since_ms=wanted.since_ms, until_ms=wanted.until_ms)

    def _places(
        self, options: Mapping[str, str], names: Sequence[str], words: Mapping[str, int], default: str
    ) -> dict[str, Places]:
        return {topic: places_of(options, names, words, default, topic=topic) for topic in self._rows}

    def _ranges(self, topic: str, rows: Rows, bounds: Mapping[int, Bounds]) -> dict[int, OffsetRange]:
        starts, ends = self._starts[topic].resolve(bounds), self._ends[topic].resolve(bounds)
        given = {
            partition: OffsetRange(starts[partition], max(starts[partition], ends[partition]))
            for partition in bounds
            if self._wanted.partition.holds(partition)
        }
        for partition in given:
            self._check_order(topic, partition)
        rows.losses.report([said for partition in given for said in self._lost(topic, partition, bounds[partition])])
        return {
            partition: self._range(rows.log, partition, bounds[partition], offsets)
            for partition, offsets in given.items()
        }

    def _check_order(self, topic: str, partition: int) -> None:
        """Refuse a start after the end, where options give both by offset."""
        starts, ends = self._starts[topic], self._ends[topic]
        start, end = starts.offset_in(partition), ends.offset_in(partition)
        if start is not None and end is not None and start > end:
            message = (
                f"{topic}, partition {partition}: option {starts.option} of {NAME} is offset {start}, "
                f"and option {ends.option} is offset {end}, which comes before it"
            )
            raise UserError(message, hint="Give a start that is not after the end.")

    def _lost(self, topic: str, partition: int, bounds: Bounds) -> Iterator[str]:
        """Yield what options name of a partition by offset and cannot be read.

        The start is there if it is the partition's end: what comes next is not written yet. An end that is one number
        for every partition is at most that.
        """
        start, end = self._starts[topic].offset_in(partition), self._ends[topic].by_partition.get(partition, -1)
        if start is not None and start < bounds.start:
            yield removed(partition, start, bounds.start)
        if start is not None and start > bounds.end:
            yield starts_beyond(partition, start, bounds.end)
        elif end > bounds.stable:
            yield f"partition {partition}: offsets {max(bounds.stable, start or 0)} to {end - 1} are not there"

    def _range(self, log: TopicLog, partition: int, bounds: Bounds, given: OffsetRange) -> OffsetRange:
        """Return what of a partition is wanted: below the first record of a time there is nothing at or after it."""
        offset = self._wanted.offset
        start, stop = max(given.start, bounds.start, offset.least), min(given.stop, bounds.stable, offset.most + 1)
        for since_ms in (self._since_ms, self._wanted.since_ms):
            if since_ms is not None and start < stop:
                first = log.offset_for_time(partition, since_ms)
                start = stop if first is None else max(start, first)
        if self._until_ms is not None:
            first = log.offset_for_time(partition, self._until_ms)
            stop = stop if first is None else min(stop, first)
        return OffsetRange(start, stop)


class PushingReader(TopicLogReader):
    """Takes filters from Spark, which is right for a frame that is scanned once.

    Spark 4.3.0 keeps what was planned with one scan's filters for all scans of a frame: a second query on it, or the
    other side of a self-join, lacks rows. So filters are pushed only where `pushFilters` is set.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Keep what is understood, and yield what Spark still has to look at."""
        for condition in filters:
            narrowed = self._wanted.narrowed(condition)
            self._wanted = narrowed or self._wanted
            is_never_null = isinstance(condition, IsNotNull) and _is_whole(condition)
            if not is_never_null and (narrowed is None or not _is_whole(condition)):
                yield condition
