"""Streaming queries of topics: positions, batches, and lost offsets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from reconciler.errors import SourceChangedError, UserError
from reconciler.jobs.progress import shorten_worker_errors
from reconciler.jobs.scan import (
    NAME,
    STARTS,
    LossHandling,
    TaskRange,
    TopicRows,
    check_version,
    describe_removed,
    describe_start_beyond_end,
    parse_offset_option,
    parse_whole_number,
)
from reconciler.records.log import Bounds, OffsetRange
from reconciler.resources.mirrors import SOURCE_TOPIC_ID_CHANGED
from reconciler.runtime.threads import read_monotonic_s

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # These classes exist since PySpark 4.2.
    SupportsTriggerAvailableNow = object  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit

HAS_LIMITS: Final = hasattr(DataSourceStreamReader, "getDefaultReadLimit")
"""Whether PySpark is 4.2 or newer."""
_LIST_EVERY_S: Final = 60
"""Seconds between searches for new topics that a pattern matches."""
Offsets: TypeAlias = dict[str, dict[int, int]]
K = TypeVar("K")


class TopicLogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics from one position to the next. `list_topics` returns the topics, or those that match a pattern."""

    def __init__(
        self,
        list_topics: Callable[[], Iterable[str]],
        open_rows: Callable[[str], TopicRows],
        options: Mapping[str, str],
    ) -> None:
        self._list_topics, self._open_rows, self._options = list_topics, open_rows, options
        self._rows = {topic: open_rows(topic) for topic in list_topics()}
        self._listed_at = read_monotonic_s()
        names = ("start", "startingOffsets")
        self._starts = {
            topic: parse_offset_option(options, names, STARTS, "latest", topic=topic, topics=self._rows)
            for topic in self._rows
        }
        self._has_pattern = "subscribepattern" in options
        self._max_offsets = parse_whole_number(options, "maxOffsetsPerTrigger", least=1)
        if self._max_offsets is not None:
            check_version(f"option maxOffsetsPerTrigger of {NAME}", "4.2", is_supported=HAS_LIMITS)
        self._available_now: Mapping[str, Mapping[int, int]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Spark's tasks read everything from `TaskRange.rows`.

    @shorten_worker_errors()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as those below
        """Return the start position of a query without a checkpoint."""
        return self._to_position({topic: self._find_start(topic, rows) for topic, rows in self._rows.items()})

    def _find_start(self, topic: str, rows: TopicRows) -> dict[int, int]:
        bounds = rows.log.read_bounds()
        begins = self._starts[topic].resolve(bounds)
        beyond = [number for number, begin in begins.items() if begin > bounds[number].end]
        rows.losses.report([describe_start_beyond_end(number, begins[number], bounds[number].end) for number in beyond])
        return {partition: min(begin, bounds[partition].end) for partition, begin in begins.items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a batch: `maxOffsetsPerTrigger`."""
        return ReadAllAvailable() if self._max_offsets is None else ReadMaxRows(self._max_offsets)

    @shorten_worker_errors()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """End the stream at the current ends of its topics."""
        self._available_now = {
            topic: {partition: bounds.stable for partition, bounds in rows.log.read_bounds().items()}
            for topic, rows in self._rows.items()
        }

    @shorten_worker_errors()
    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch. `start` is missing before PySpark 4.2."""
        self._find_new_topics()
        begins = {} if start is None else self._parse_position(start)
        if start is not None and self._losses_are_errors:
            self._report_deleted(begins)
        ranges: dict[tuple[str, int], OffsetRange] = {}
        for topic, rows in self._rows.items():
            bounds = rows.log.read_bounds()
            begins.setdefault(topic, _find_start_offsets(bounds))
            readable, lost = _find_readable_ranges(begins[topic], self._find_ends(topic, bounds), bounds)
            # If lost offsets are not errors, `partitions` logs and skips them.
            if self._losses_are_errors:
                rows.losses.report(lost)
            ranges.update({(topic, partition): offsets for partition, offsets in readable.items()})
        if (max_rows := getattr(limit, "max_rows", None)) is not None:
            ranges = _limit_ranges(ranges, max_rows)
        ends = {topic: dict(begins[topic]) for topic in self._rows}
        for (topic, partition), offsets in ranges.items():
            ends[topic][partition] = offsets.stop
        return self._to_position(ends)

    def _find_ends(self, topic: str, bounds: Mapping[int, Bounds]) -> dict[int, int]:
        if self._available_now is None:
            return {partition: partition_bounds.stable for partition, partition_bounds in bounds.items()}
        limits = self._available_now.get(topic, {})
        return {
            partition: min(bounds[partition].stable, limits[partition]) for partition in bounds if partition in limits
        }

    @shorten_worker_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks between two positions, and report lost offsets."""
        begins, ends = self._parse_position(start), self._parse_position(end)
        self._report_deleted({**begins, **ends})
        tasks: list[InputPartition] = []
        for topic, rows in self._rows.items():
            if topic not in ends:
                continue
            bounds = rows.log.read_bounds()
            begin = begins.get(topic) or _find_start_offsets(bounds)
            ranges, lost = _find_readable_ranges(begin, ends[topic], bounds)
            rows.losses.report(lost)
            tasks += [replace(task, rows=rows) for task in rows.plan(ranges)]
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        with shorten_worker_errors():
            if isinstance(partition, TaskRange) and partition.rows is not None:
                yield from partition.rows.read(partition)

    @property
    def _losses_are_errors(self) -> bool:
        return LossHandling.from_options("", self._options).is_error

    def _find_new_topics(self) -> None:
        if (
            not self._has_pattern
            or self._available_now is not None
            or read_monotonic_s() - self._listed_at < _LIST_EVERY_S
        ):
            return
        topics, self._listed_at = self._list_topics(), read_monotonic_s()
        self._rows = {topic: self._rows.get(topic) or self._open_rows(topic) for topic in topics}

    def _report_deleted(self, offsets: Iterable[str]) -> None:
        for topic in sorted(set(offsets) - self._rows.keys()):
            losses = LossHandling.from_options(topic, self._options)
            losses.report(["the checkpoint has offsets in it, and it was deleted or is not subscribed to"])

    def _to_position(self, offsets: Mapping[str, Mapping[int, int]]) -> dict[str, Any]:
        entries = [
            {
                "topic": topic,
                "topic_id": self._rows[topic].log.topic_id,
                "offsets": {str(partition): offset for partition, offset in sorted(by_partition.items())},
            }
            for topic, by_partition in sorted(offsets.items())
        ]
        return {"topics": entries} if self._has_pattern or len(self._rows) != 1 else entries[0]

    def _parse_position(self, position: dict[str, Any]) -> Offsets:
        try:
            entries = position.get("topics", [position])
            offsets = {
                entry["topic"]: {int(partition): int(offset) for partition, offset in entry["offsets"].items()}
                for entry in entries
            }
            topic_ids = {entry["topic"]: entry["topic_id"] for entry in entries}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            message = f"the checkpoint has no valid position in a topic of {NAME}: {position}"
            raise UserError(message, hint="Use another checkpointLocation.") from error
        if len(offsets) == len(self._rows) == 1 and not self._has_pattern:
            # The query's only topic may have a new name.
            (topic,), (own_topic,) = offsets, self._rows
            self._check_same_topic(topic, topic_ids[topic], own_topic, offsets[topic])
            return {own_topic: offsets[topic]}
        for topic in offsets.keys() & self._rows.keys():
            self._check_same_topic(topic, topic_ids[topic], topic, offsets[topic])
        return offsets

    def _check_same_topic(self, topic: str, topic_id: str | None, own_topic: str, offsets: Mapping[int, int]) -> None:
        own_id = self._rows[own_topic].log.topic_id
        if topic_id != own_id if topic_id is not None and own_id is not None else topic != own_topic:
            message = f"the checkpoint is of topic {topic} with id {topic_id}, and {own_topic} has id {own_id}"
            at = json.dumps({own_topic: {str(partition): offset for partition, offset in sorted(offsets.items())}})
            hint = (
                "The topic is another one, or was created or mounted again. Use another checkpointLocation. A topic "
                "that was mounted, or is the mirror of the other, has the same offsets: continue with "
                f"startingOffsets {at}"
            )
            raise SourceChangedError(message, code=SOURCE_TOPIC_ID_CHANGED, hint=hint)


def _find_start_offsets(bounds: Mapping[int, Bounds]) -> dict[int, int]:
    return {partition: partition_bounds.start for partition, partition_bounds in bounds.items()}


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


def _limit_ranges(ranges: Mapping[K, OffsetRange], most: int) -> dict[K, OffsetRange]:
    total = sum(offsets.length for offsets in ranges.values())
    if total <= most:
        return dict(ranges)
    return {
        partition: OffsetRange(
            offsets.start, offsets.start + min(offsets.length, max(1, most * offsets.length // total))
        )
        for partition, offsets in ranges.items()
    }
