"""`topic consume` and `topic produce`."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from io import UnsupportedOperation
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TypeAlias

import pyarrow as pa

from reconciler.errors import UsageError, UserError
from reconciler.operations.clusters.groups import parse_cluster_name
from reconciler.operations.clusters.mounts import explain_unmounted
from reconciler.operations.steps.workspace import Site, get_address_provider, parse_topic_address
from reconciler.providers.protocol import Groups, Provider, Scope, require_groups
from reconciler.records.files import (
    INPUT_FORMATS,
    OUTPUT_FORMATS,
    Input,
    InputFormat,
    OutputFormat,
    detect_format,
    read_input,
    write_output,
)
from reconciler.records.json_lines import Fields
from reconciler.records.log import MAX_OFFSET, Bounds, Isolation, LostOffsets, OffsetRange, TopicLog, parse_isolation
from reconciler.records.schema import BadTimeError, match_names, to_milliseconds
from reconciler.resources.address import Address, address_of, cluster_address, cluster_of, full_name_of, kind_of
from reconciler.runtime.dataclass import dataclass, field, replace

if TYPE_CHECKING:
    from reconciler.operations.steps.invocation import Invocation
    from reconciler.operations.steps.runner import SiteOptions, Stop


_CHUNK_BYTES: Final = 1 << 16


@contextmanager
def open_output(cwd: Path, options: ConsumeOptions, stdout: BinaryIO) -> Iterator[BinaryIO]:
    """Open the output; lock it if it is a file."""
    if options.output is None:
        yield stdout
        return
    try:
        stream = _open_output(cwd / options.output, options)
    except OSError as error:
        raise UserError(
            f"cannot write {options.output}: {error.strerror or error}", hint="Name a file that can be written."
        ) from error
    try:
        with stream:
            yield stream
    except OSError as error:
        # A failed write's `OSError` does not name the file.
        error.filename = error.filename or str(options.output)
        raise


def _open_output(path: Path, options: ConsumeOptions) -> BinaryIO:
    if path.exists() and not path.is_file():
        return path.open("wb")
    stream = _open_locked(path, options)
    try:
        _prepare_output(stream, options)
    except BaseException:
        stream.close()
        raise
    return stream


def _open_locked(path: Path, options: ConsumeOptions) -> BinaryIO:
    """Take a kernel lock, which ends with the process."""
    is_read = options.group is not None
    descriptor = os.open(path, (os.O_RDWR if is_read else os.O_WRONLY) | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fdopen(descriptor, "r+b" if is_read else "wb")
    except BlockingIOError as error:
        os.close(descriptor)
        raise UserError(
            f"{options.output} is being written by another reader: each would overwrite what the other has read",
            hint="Name a separate file for each reader, or wait until the other has ended. Nothing was read.",
        ) from error
    except BaseException:
        os.close(descriptor)
        raise


def _prepare_output(stream: BinaryIO, options: ConsumeOptions) -> None:
    if options.group is None:
        stream.truncate(0)
        return
    if options.output_format == "parquet" and stream.seek(0, 2):
        raise UserError(
            f"{options.output} is there already, and overwriting it would lose the records that group {options.group} "
            "has already read",
            hint="Name another file: a group does not read again what it has committed.",
        )
    stream.truncate(_find_last_line_end(stream))
    stream.seek(0, 2)


def _find_last_line_end(stream: BinaryIO) -> int:
    at = stream.seek(0, 2)
    while at > 0:
        start = max(0, at - _CHUNK_BYTES)
        stream.seek(start)
        newline = stream.read(at - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        at = start
    return 0


_POLL_PAUSE_S: Final = 0.5
_COMMIT_INTERVAL_MS: Final = 5_000
"""Same as Kafka's `auto.commit.interval.ms`."""
_IDLE_COMMIT_INTERVAL_MS: Final = 3_600_000
"""Interval of commits without new records, which keep brokers from expiring the group."""

_NOT_SYNCABLE: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EROFS})

TopicPartition: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ReadMode:
    """Isolation level, and callback for lost offsets."""

    isolation: Isolation = "read_committed"
    on_missing: Callable[[LostOffsets], None] | None = None

    def open_log(self, provider: Provider, topic: Address) -> TopicLog:
        """Return a topic's log in this mode."""
        return provider.open_log(topic, isolation=self.isolation, on_missing=self.on_missing)


@dataclass(frozen=True, slots=True)
class NamedTopic:
    """One topic, named by address."""

    provider: Provider
    address: Address
    how: ReadMode
    is_one: bool = True

    def list_logs(self) -> dict[str, TopicLog]:
        """Return the log by full name of its topic."""
        return {full_name_of(self.address): self.how.open_log(self.provider, self.address)}


@dataclass(frozen=True, slots=True)
class MatchingTopics:
    """Topics of a cluster that match a regular expression, listed again in each poll."""

    provider: Provider
    cluster: str
    regex: str
    how: ReadMode
    is_one: bool = False
    _logs: dict[tuple[str, str | None], TopicLog] = field(default_factory=dict)

    @property
    def address(self) -> Address:
        """Address of the cluster."""
        return cluster_address(self.cluster)

    def list_logs(self) -> dict[str, TopicLog]:
        """Return the logs of matching topics by full name, sorted."""
        observed = self.provider.observe(Scope())
        incarnations = {
            full_name_of(address): topic.incarnation
            for address, topic in observed.items()
            if kind_of(address) in {"topic", "mirror"} and not topic.is_internal and topic.hidden is None
        }
        return {
            name: self._open_log(name, incarnations[name]) for name in match_names(self.regex, sorted(incarnations))
        }

    def _open_log(self, full_name: str, incarnation: str | None) -> TopicLog:
        which = (full_name, incarnation)
        if which not in self._logs:
            topic = address_of("topic", self.cluster, full_name)
            self._logs[which] = self.how.open_log(self.provider, topic)
        return self._logs[which]


Source: TypeAlias = NamedTopic | MatchingTopics


class OffsetTracker:
    """Tracks written and committed offsets by partition. Without a group, nothing is committed."""

    def __init__(
        self, groups: Groups | None, group: str, stream: BinaryIO, now_ms: Callable[[], int], *, is_whole: bool
    ) -> None:
        self._groups = groups
        self._group = group
        self._stream = stream
        self._now_ms = now_ms
        self._is_whole = is_whole
        self._written: dict[TopicPartition, int] = {}
        self._is_new = False
        self._committed_ms = now_ms()

    def read_committed(self, topic: str) -> Mapping[TopicPartition, int]:
        """Return the group's committed offsets of a topic."""
        return {} if self._groups is None else self._groups.read_committed_offsets(self._group, [topic])

    def record_written(self, place: TopicPartition, offset: int) -> None:
        """Note that all records below an offset were written. Commit at intervals."""
        self._is_new = self._is_new or self._written.get(place) != offset
        self._written[place] = offset
        since_ms = self._now_ms() - self._committed_ms
        if not self._is_whole and since_ms >= (_COMMIT_INTERVAL_MS if self._is_new else _IDLE_COMMIT_INTERVAL_MS):
            self._commit_written()

    def drop_topics(self, topics: Collection[str]) -> None:
        """Never commit offsets of these deleted or recreated topics."""
        self._written = {place: offset for place, offset in self._written.items() if place[0] not in topics}

    def commit_all(self) -> None:
        """Commit all offsets written so far."""
        self._commit_written()

    def _commit_written(self) -> None:
        if self._groups is None or not self._written:
            return
        _sync_to_disk(self._stream)
        self._groups.commit(self._group, self._written)
        self._is_new, self._committed_ms = False, self._now_ms()


@dataclass(frozen=True, slots=True)
class TopicReader:
    """Reads topics to their ends, or continuously."""

    source: Source
    options: ConsumeOptions
    progress: OffsetTracker
    stop: Stop
    warn: Callable[[str], None]

    def read_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield at most `max_records` records in batches. Several topics add a column `topic`."""
        left = self.options.max_records
        for topic, partition, batch in self._read_all() if left != 0 else ():
            taken = batch if left is None else batch.slice(0, left)
            yield taken if self.source.is_one else _add_topic_column(topic, taken)
            self.progress.record_written((topic, partition), taken.column("offset")[-1].as_py() + 1)
            left = None if left is None else left - taken.num_rows
            if left == 0:
                return

    def _read_all(self) -> Iterator[tuple[str, int, pa.RecordBatch]]:
        at: dict[TopicPartition, int] = {}
        ids: dict[str, str | None] = {}
        is_first = True
        while True:
            logs = self.source.list_logs()
            now = {topic: log.topic_id for topic, log in logs.items()}
            gone = {topic for topic, topic_id in ids.items() if topic not in now or now[topic] != topic_id}
            at, ids = {place: offset for place, offset in at.items() if place[0] not in gone}, now
            self.progress.drop_topics(gone)
            for topic, log in logs.items():
                bounds = self._read_bounds(log)
                at.update(self._choose_first_offsets(topic, log, bounds, at, is_first=is_first))
                for partition, offsets in sorted(bounds.items()):
                    place, end = (topic, partition), offsets.find_readable_end(self.options.isolation)
                    for batch in log.read(partition, OffsetRange(at[place], end)):
                        if self.stop.is_requested:
                            return
                        yield topic, partition, batch
                    at[place] = max(at[place], end)
                    # A group that has read uncommitted records keeps its offset.
                    self.progress.record_written(place, min(at[place], offsets.end))
            if not self.options.follow or self.stop.wait(_POLL_PAUSE_S):
                return
            is_first = False

    def _read_bounds(self, log: TopicLog) -> Mapping[int, Bounds]:
        bounds = log.read_bounds()
        wanted = self.options.partition
        if wanted is None:
            return bounds
        if wanted in bounds:
            return {wanted: bounds[wanted]}
        if not self.source.is_one:
            return {}
        raise UserError(
            f"partition {wanted}: the topic does not have it", hint=f"Its partitions are 0 to {len(bounds) - 1}."
        )

    def _choose_first_offsets(
        self,
        topic: str,
        log: TopicLog,
        bounds: Mapping[int, Bounds],
        at: Mapping[TopicPartition, int],
        *,
        is_first: bool,
    ) -> dict[TopicPartition, int]:
        new = [partition for partition in bounds if (topic, partition) not in at]
        committed = self.progress.read_committed(topic) if new else {}
        starts: dict[TopicPartition, int] = {}
        for partition in new:
            place, offsets = (topic, partition), bounds[partition]
            wanted = committed.get(place)
            if wanted is None and is_first:
                wanted = self._find_start_offset(log, partition, offsets)
            starts[place] = max(offsets.start, offsets.start if wanted is None else wanted)
            if wanted is not None:
                self._warn_out_of_range(place, wanted, offsets)
        return starts

    def _warn_out_of_range(self, place: TopicPartition, wanted: int, offsets: Bounds) -> None:
        where = f"partition {place[1]} of {place[0]}"
        if wanted < offsets.start:
            what = f"offsets {wanted} to {offsets.start - 1} were deleted, by retention or on request"
            self.warn(f"{where} begins at offset {offsets.start}: {what}")
        elif wanted > offsets.end:
            self.warn(f"{where} ends at offset {offsets.end}: there is no offset {wanted} yet")

    def _find_start_offset(self, log: TopicLog, partition: int, bounds: Bounds) -> int:
        start, end = self.options.start, bounds.find_readable_end(self.options.isolation)
        if start == "earliest":
            return bounds.start
        if start == "latest":
            return end
        if start.isdecimal():
            return _parse_offset(start)
        offset = log.find_offset_at(partition, _parse_time(start))
        return end if offset is None else offset


def check_start_option(text: str) -> None:
    """Validate the value of `--from`."""
    if text.isdecimal():
        _parse_offset(text)
    elif text not in {"earliest", "latest"}:
        _parse_time(text)


def _sync_to_disk(stream: BinaryIO) -> None:
    stream.flush()
    with suppress(UnsupportedOperation):
        try:
            os.fsync(stream.fileno())
        except OSError as error:
            if error.errno not in _NOT_SYNCABLE:
                raise


def _add_topic_column(topic: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    names = pa.repeat(pa.scalar(topic), batch.num_rows)
    return pa.RecordBatch.from_arrays([names, *batch.columns], ["topic", *batch.schema.names])


def _parse_offset(text: str) -> int:
    digits = text.lstrip("0")
    offset = int(digits or "0") if len(digits) <= len(str(MAX_OFFSET)) else None
    if offset is None or offset > MAX_OFFSET:
        raise UsageError(f"--from {text} is not an offset", hint=f"Offsets go from 0 to {MAX_OFFSET}.")
    return offset


def _parse_time(text: str) -> int:
    try:
        milliseconds = to_milliseconds([text])[0].as_py()
    except BadTimeError as error:
        if error.is_early:
            raise UsageError(f"--from {text!r} is before 1970", hint="Times of records begin with 1970.") from error
        raise UsageError(
            f"--from {text!r} is neither earliest, latest, an offset, nor a time",
            hint="Write a time as 2013-01-01T05:00:00Z.",
        ) from error
    return int(milliseconds)


@dataclass(frozen=True, slots=True)
class ConsumeResult:
    """Number of written records, and their source."""

    where: str
    records: int


def consume(
    reach: SiteOptions, address: str, options: ConsumeOptions, *, stdout: BinaryIO, stop: Stop
) -> ConsumeResult:
    """Write records up to the current end; with `follow`, until stopped.

    Offsets are committed after the write, so a crash repeats records but loses none.
    """
    check_start_option(options.start)
    form, options = _choose_output_format(options), replace(options, isolation=parse_isolation(options.isolation))
    site = reach.open_site()
    source, where = _open_source(reach, site, address, options)
    named = nullcontext() if options.regex is not None else explain_unmounted(site, source.address)
    with named, open_output(reach.invocation.cwd, options, stdout) as stream, stop.call_on_stop(lambda: None):
        progress = _open_tracker(reach, site, source, options, stream)
        reading = TopicReader(source, options, progress, stop, site.invocation.warn)
        records = write_output(reading.read_batches(), stream, form=form)
        progress.commit_all()
    return ConsumeResult(where, records)


def _open_source(reach: SiteOptions, site: Site, address: str, options: ConsumeOptions) -> tuple[Source, str]:
    if options.regex is None:
        topic = parse_topic_address(address)
        reach.check_answers(site, cluster_of(topic) or "")
        return NamedTopic(get_address_provider(site, topic), topic, _build_read_mode(site, options)), topic
    name = parse_cluster_name(address)
    if "/" in name:
        raise UserError(f"{address!r} is not the name of a cluster", hint="Write: topic consume west --regex 'shop:.*'")
    reach.check_answers(site, name)
    source = MatchingTopics(site.providers[name], name, options.regex, _build_read_mode(site, options))
    return source, f"{options.regex} on cluster {name}"


def _build_read_mode(site: Site, options: ConsumeOptions) -> ReadMode:
    if not options.skip_missing:
        return ReadMode(options.isolation)
    return ReadMode(options.isolation, lambda lost: site.invocation.warn(str(lost)))


def _open_tracker(
    reach: SiteOptions, site: Site, source: Source, options: ConsumeOptions, stream: BinaryIO
) -> OffsetTracker:
    if options.group is None:
        return OffsetTracker(None, "", stream, site.invocation.now_ms, is_whole=False)
    reach.check_writable(site, cluster_of(source.address) or "")
    groups = require_groups(source.provider)
    group = groups.find_platform_name(options.group)
    # Brokers reject an invalid group before records are written.
    groups.commit(group, {})
    is_whole = options.output_format == "parquet"
    return OffsetTracker(groups, group, stream, site.invocation.now_ms, is_whole=is_whole)


def _choose_output_format(options: ConsumeOptions) -> OutputFormat:
    for form in OUTPUT_FORMATS:
        if form == options.output_format:
            if form == "parquet" and options.follow:
                raise UserError(
                    "--follow never ends, so it cannot write a Parquet file",
                    hint="Use --output-format records or values.",
                )
            if form == "parquet" and options.regex is not None:
                raise UserError(
                    "a Parquet file has the records of one topic, and --regex reads several",
                    hint="Write records or values.",
                )
            return form  # type: ignore[return-value]  # the formats are exactly its literals
    raise UserError(
        f"there is no output format {options.output_format!r}", hint=f"Formats: {', '.join(OUTPUT_FORMATS)}."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions:
    """Options of `topic consume`. `output` defaults to standard output."""

    output: Path | None = None
    output_format: str = "records"
    partition: int | None = None
    start: str = "earliest"
    """`earliest`, `latest`, an offset or a time; used if `group` has no committed offset."""
    max_records: int | None = None
    isolation: Isolation = "read_committed"
    follow: bool = False
    group: str | None = None
    regex: str | None = None
    skip_missing: bool = False
    """Whether to only report lost offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceOptions:
    """Options of `topic produce`. `input` defaults to standard input, `input_format` to that of the file name."""

    input: Path | None = None
    input_format: str | None = None
    key_field: str | None = None
    timestamp_field: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class ProduceResult:
    """Appended records and bytes."""

    address: Address
    records: int
    bytes: int
    ranges: Mapping[int, OffsetRange]


def produce(
    reach: SiteOptions, address: str, options: ProduceOptions, *, stdin: BinaryIO, report: Callable[[int, int], None]
) -> ProduceResult:
    """Append all records of the input. `report` receives the records and bytes so far."""
    site = reach.open_site()
    topic = parse_topic_address(address)
    reach.check_writable(site, cluster_of(topic) or "")
    records = size = 0
    with explain_unmounted(site, topic):
        producer = get_address_provider(site, topic).open_producer(topic)
    with _open_input(reach.invocation, options, stdin) as records_input:
        for batch in read_input(records_input):
            producer.append(batch)
            records, size = records + batch.num_rows, size + batch.nbytes
            report(records, size)
        ranges = producer.flush()
    return ProduceResult(topic, records, size, ranges)


@contextmanager
def _open_input(invocation: Invocation, options: ProduceOptions, stdin: BinaryIO) -> Iterator[Input]:
    fields = Fields(options.key_field, options.timestamp_field)
    if options.input is None:
        yield Input(stdin, "-", _choose_input_format(options.input_format, "-"), fields, options.partition)
        return
    name = str(options.input)
    form = _choose_input_format(options.input_format, name)
    path = invocation.cwd / options.input
    try:
        stream = path.open("rb")
    except OSError as error:
        raise UserError(f"cannot read {name}: {error.strerror or error}", hint="Name a readable file.") from error
    with stream:
        yield Input(stream, name, form, fields, options.partition)


def _choose_input_format(wanted: str | None, name: str) -> InputFormat:
    if wanted is None:
        return detect_format(name)
    for form in INPUT_FORMATS:
        if form == wanted.lower():
            return form  # type: ignore[return-value]  # the formats are exactly its literals
    raise UsageError(f"there is no input format {wanted!r}", hint=f"Formats: {', '.join(INPUT_FORMATS)}.")
