"""`topic consume` and `topic produce`."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from io import UnsupportedOperation
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TypeAlias

import pyarrow as pa

from reconciler.errors import UsageError, UserError
from reconciler.operations.clusters.groups import cluster_named
from reconciler.operations.clusters.mounts import told_unmounted
from reconciler.operations.steps.workspace import Site, provider_of, topic_address
from reconciler.providers.protocol import Groups, Provider, Scope, groups_of
from reconciler.records.files import (
    INPUT_FORMATS,
    OUTPUT_FORMATS,
    Input,
    InputFormat,
    OutputFormat,
    format_of,
    read_input,
    write_output,
)
from reconciler.records.json_lines import Fields
from reconciler.records.log import MAX_OFFSET, Bounds, Isolation, LostOffsets, OffsetRange, TopicLog, isolation_of
from reconciler.records.schema import BadTimeError, matching, to_milliseconds
from reconciler.resources.address import Address, address_of, cluster_address, cluster_of, full_name_of, kind_of

if TYPE_CHECKING:
    from reconciler.operations.steps.invocation import Invocation
    from reconciler.operations.steps.runner import SiteOptions, Stop


# The file that `topic consume` writes: one reader at a time, and for a group it grows.


_CHUNK: Final = 1 << 16


@contextmanager
def opened(cwd: Path, options: ConsumeOptions, stdout: BinaryIO) -> Iterator[BinaryIO]:
    """Open where records go, and keep every other reader out of it until the block ends.

    Raises:
        UserError: It cannot be written, another reader writes it, or what a group has read would go with it.
    """
    if options.output is None:
        yield stdout
        return
    try:
        stream = _file(cwd / options.output, options)
    except OSError as error:
        raise UserError(
            f"cannot write {options.output}: {error.strerror or error}", hint="Name a file that can be written."
        ) from error
    try:
        with stream:
            yield stream
    except OSError as error:
        # A write that fails, on a full disk say, does not name its file by itself.
        error.filename = error.filename or str(options.output)
        raise


def _file(path: Path, options: ConsumeOptions) -> BinaryIO:
    if path.exists() and not path.is_file():
        return path.open("wb")  # a pipe or a device has no content that two could spoil
    stream = _locked(path, options)
    try:
        _prepare(stream, options)
    except BaseException:
        stream.close()
        raise
    return stream


def _locked(path: Path, options: ConsumeOptions) -> BinaryIO:
    """Open a file as it is and hold it until it is closed; the kernel lets go of it where a reader is killed."""
    is_read = options.group is not None
    descriptor = os.open(path, (os.O_RDWR if is_read else os.O_WRONLY) | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fdopen(descriptor, "r+b" if is_read else "wb")
    except BlockingIOError as error:
        os.close(descriptor)
        raise UserError(
            f"{options.output} is being written by another reader: each would overwrite what the other has read",
            hint="Name a file of its own for each reader, or wait until the other has ended. Nothing was read.",
        ) from error
    except BaseException:
        os.close(descriptor)
        raise


def _prepare(stream: BinaryIO, options: ConsumeOptions) -> None:
    """Make room for what comes; a group goes on where it left off, so what it wrote before stays."""
    if options.group is None:
        stream.truncate(0)
        return
    if options.output_format == "parquet" and stream.seek(0, 2):
        raise UserError(
            f"{options.output} is there already, and what group {options.group} has read would go with it",
            hint="Name another file: a group does not read again what it has committed.",
        )
    stream.truncate(_whole_lines(stream))
    stream.seek(0, 2)


def _whole_lines(stream: BinaryIO) -> int:
    """Return where the last whole line ends: what a run that died had begun behind it was never committed."""
    at = stream.seek(0, 2)
    while at > 0:
        start = max(0, at - _CHUNK)
        stream.seek(start)
        found = stream.read(at - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        at = start
    return 0


# Reading topics for `topic consume`: which they are, where each partition begins, and what a group has of them.


_BETWEEN_LOOKS_S: Final = 0.5
_BETWEEN_COMMITS_MS: Final = 5_000
"""As Kafka's `auto.commit.interval.ms`."""
_STILL_READING_MS: Final = 3_600_000
"""Who waits for records commits now and then what it has, for a group that does not is taken for idle."""

_KEEPS_NOTHING: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EROFS})
"""A pipe or a terminal has nothing that could be synced."""

Place: TypeAlias = tuple[str, int]
"""Full name of a topic, and partition."""


@dataclass(frozen=True, slots=True)
class How:
    """How logs are read: what of open transactions is seen, and who is told of offsets that are gone."""

    isolation: Isolation = "read_committed"
    on_missing: Callable[[LostOffsets], None] | None = None

    def log(self, provider: Provider, topic: Address) -> TopicLog:
        """Return the records of a topic, to be read so."""
        return provider.log(topic, isolation=self.isolation, on_missing=self.on_missing)


@dataclass(frozen=True, slots=True)
class OneTopic:
    """A topic that was named."""

    provider: Provider
    address: Address
    how: How
    is_one: bool = True

    def topics(self) -> dict[str, TopicLog]:
        """Return it."""
        return {full_name_of(self.address): self.how.log(self.provider, self.address)}


@dataclass(frozen=True, slots=True)
class Matching:
    """All topics of a cluster whose full name matches a regular expression, as they are at each look."""

    provider: Provider
    cluster: str
    regex: str
    how: How
    is_one: bool = False
    _logs: dict[tuple[str, str | None], TopicLog] = field(default_factory=dict)
    """By full name and incarnation: one that is created again is another log."""

    @property
    def address(self) -> Address:
        """The cluster's address."""
        return cluster_address(self.cluster)

    def topics(self) -> dict[str, TopicLog]:
        """Return them by full name, sorted.

        Raises:
            UserError: It is not a regular expression.
        """
        observed = self.provider.observe(Scope())
        found = {
            full_name_of(address): each.incarnation
            for address, each in observed.items()
            if kind_of(address) in {"topic", "mirror"} and not each.is_internal and each.hidden is None
        }
        return {name: self._log(name, found[name]) for name in matching(self.regex, sorted(found))}

    def _log(self, full_name: str, incarnation: str | None) -> TopicLog:
        which = (full_name, incarnation)
        if which not in self._logs:
            topic = address_of("topic", self.cluster, full_name)
            self._logs[which] = self.how.log(self.provider, topic)
        return self._logs[which]


Source: TypeAlias = OneTopic | Matching


class Progress:
    """How far each partition was written, and what of that a group has committed; without a group nothing is."""

    def __init__(
        self,
        groups: Groups | None,
        group: str,
        stream: BinaryIO,
        now_ms: Callable[[], int],
        *,
        is_whole: bool,
    ) -> None:
        """Keep where commits go. `is_whole`: the output is worth nothing before it is complete."""
        self._groups = groups
        self._group = group
        self._stream = stream
        self._now_ms = now_ms
        self._is_whole = is_whole
        self._written: dict[Place, int] = {}
        self._is_new = False
        self._committed_ms = now_ms()

    def committed(self, topic: str) -> Mapping[Place, int]:
        """Return where the group goes on reading a topic."""
        return {} if self._groups is None else self._groups.committed(self._group, [topic])

    def wrote(self, place: Place, offset: int) -> None:
        """Take note that everything below an offset has been handed to the output and flushed."""
        self._is_new = self._is_new or self._written.get(place) != offset
        self._written[place] = offset
        since_ms = self._now_ms() - self._committed_ms
        if not self._is_whole and since_ms >= (_BETWEEN_COMMITS_MS if self._is_new else _STILL_READING_MS):
            self._commit()

    def forget(self, topics: Collection[str]) -> None:
        """Commit nothing of topics that are gone, nor of those of the same name that were created since."""
        self._written = {place: offset for place, offset in self._written.items() if place[0] not in topics}

    def finish(self) -> None:
        """Commit all that was written."""
        self._commit()

    def _commit(self) -> None:
        if self._groups is None or not self._written:
            return
        _make_durable(self._stream)
        self._groups.commit(self._group, self._written)
        self._is_new, self._committed_ms = False, self._now_ms()


@dataclass(frozen=True, slots=True)
class Reading:
    """One pass over topics, or an endless one."""

    source: Source
    options: ConsumeOptions
    progress: Progress
    stop: Stop
    warn: Callable[[str], None]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield what is asked for, at most as many records as asked for; of many topics, each record names its own."""
        left = self.options.max_records
        for topic, partition, batch in self._all() if left != 0 else ():
            taken = batch if left is None else batch.slice(0, left)
            yield taken if self.source.is_one else _named(topic, taken)
            self.progress.wrote((topic, partition), taken.column("offset")[-1].as_py() + 1)
            left = None if left is None else left - taken.num_rows
            if left == 0:
                return

    def _all(self) -> Iterator[tuple[str, int, pa.RecordBatch]]:
        at: dict[Place, int] = {}
        ids: dict[str, str | None] = {}
        is_first = True
        while True:
            logs = self.source.topics()
            now = {topic: log.topic_id for topic, log in logs.items()}
            gone = {topic for topic, topic_id in ids.items() if topic not in now or now[topic] != topic_id}
            at, ids = {place: offset for place, offset in at.items() if place[0] not in gone}, now
            self.progress.forget(gone)
            for topic, log in logs.items():
                bounds = self._bounds(log)
                at.update(self._starts(topic, log, bounds, at, is_first=is_first))
                for partition, found in sorted(bounds.items()):
                    place, end = (topic, partition), found.readable_end(self.options.isolation)
                    for batch in log.read(partition, OffsetRange(at[place], end)):
                        if self.stop.is_requested:
                            return
                        yield topic, partition, batch
                    at[place] = max(at[place], end)
                    # A group that saw an open transaction is beyond the last stable offset, and stays there.
                    self.progress.wrote(place, min(at[place], found.end))
            if not self.options.follow or self.stop.wait(_BETWEEN_LOOKS_S):
                return
            is_first = False

    def _bounds(self, log: TopicLog) -> Mapping[int, Bounds]:
        bounds = log.bounds()
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

    def _starts(
        self, topic: str, log: TopicLog, bounds: Mapping[int, Bounds], at: Mapping[Place, int], *, is_first: bool
    ) -> dict[Place, int]:
        """Return where partitions begin that were not read before; what joins later is read from its beginning."""
        new = [partition for partition in bounds if (topic, partition) not in at]
        committed = self.progress.committed(topic) if new else {}
        starts: dict[Place, int] = {}
        for partition in new:
            place, found = (topic, partition), bounds[partition]
            wanted = committed.get(place)
            if wanted is None and is_first:
                wanted = self._start(log, partition, found)
            starts[place] = max(found.start, found.start if wanted is None else wanted)
            if wanted is not None:
                self._check_there(place, wanted, found)
        return starts

    def _check_there(self, place: Place, wanted: int, found: Bounds) -> None:
        """Warn of an offset that the partition no longer has, or does not have yet."""
        where = f"partition {place[1]} of {place[0]}"
        if wanted < found.start:
            what = f"offsets {wanted} to {found.start - 1} are gone, by retention or by a delete"
            self.warn(f"{where} begins at offset {found.start}: {what}")
        elif wanted > found.end:
            self.warn(f"{where} ends at offset {found.end}: there is no offset {wanted} yet")

    def _start(self, log: TopicLog, partition: int, bounds: Bounds) -> int:
        start, end = self.options.start, bounds.readable_end(self.options.isolation)
        if start == "earliest":
            return bounds.start
        if start == "latest":
            return end
        if start.isdecimal():
            return _offset(start)
        found = log.offset_for_time(partition, _time(start))
        return end if found is None else found


def check_start(text: str) -> None:
    """Refuse where nothing can begin, before any output is touched.

    Raises:
        UsageError: It is neither `earliest`, `latest`, an offset, nor a time since 1970.
    """
    if text.isdecimal():
        _offset(text)
    elif text not in {"earliest", "latest"}:
        _time(text)


def _make_durable(stream: BinaryIO) -> None:
    stream.flush()
    with suppress(UnsupportedOperation):  # no file at all
        try:
            os.fsync(stream.fileno())
        except OSError as error:
            if error.errno not in _KEEPS_NOTHING:
                raise


def _named(topic: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    names = pa.repeat(pa.scalar(topic), batch.num_rows)
    return pa.RecordBatch.from_arrays([names, *batch.columns], ["topic", *batch.schema.names])


def _offset(text: str) -> int:
    digits = text.lstrip("0")
    offset = int(digits or "0") if len(digits) <= len(str(MAX_OFFSET)) else None
    if offset is None or offset > MAX_OFFSET:
        raise UsageError(f"--from {text} is not an offset", hint=f"Offsets go from 0 to {MAX_OFFSET}.")
    return offset


def _time(text: str) -> int:
    try:
        found = to_milliseconds([text])[0].as_py()
    except BadTimeError as error:
        if error.is_early:
            raise UsageError(f"--from {text!r} is before 1970", hint="Times of records begin with 1970.") from error
        raise UsageError(
            f"--from {text!r} is neither earliest, latest, an offset, nor a time",
            hint="Write a time as 2013-01-01T05:00:00Z.",
        ) from error
    return int(found)


@dataclass(frozen=True, slots=True)
class Consumed:
    """What was read, and from where."""

    where: str
    records: int


def consume(reach: SiteOptions, address: str, options: ConsumeOptions, *, stdout: BinaryIO, stop: Stop) -> Consumed:
    """Write records up to the end as it is now; with `follow` until somebody stops it.

    With a group, offsets are committed after what lies before them is written and flushed: a crash repeats records
    rather than lose them.

    Raises:
        UserError: The topic or partition is not there, another reader writes the file, or an option makes no sense.
    """
    check_start(options.start)
    form, options = _form(options), replace(options, isolation=isolation_of(options.isolation))
    site = reach.site()
    source, where = _source(reach, site, address, options)
    named = nullcontext() if options.regex is not None else told_unmounted(site, source.address)
    with named, opened(reach.invocation.cwd, options, stdout) as stream, stop.ends(lambda: None):
        progress = _progress(reach, site, source, options, stream)
        reading = Reading(source, options, progress, stop, site.invocation.warn)
        records = write_output(reading.batches(), stream, form=form)
        progress.finish()
    return Consumed(where, records)


def _source(reach: SiteOptions, site: Site, address: str, options: ConsumeOptions) -> tuple[Source, str]:
    if options.regex is None:
        topic = topic_address(address)
        reach.check_answers(site, cluster_of(topic) or "")
        return OneTopic(provider_of(site, topic), topic, _how(site, options)), topic
    name = cluster_named(address)
    if "/" in name:
        raise UserError(f"{address!r} is not the name of a cluster", hint="Write: topic consume west --regex 'shop:.*'")
    reach.check_answers(site, name)
    source = Matching(site.providers[name], name, options.regex, _how(site, options))
    return source, f"{options.regex} on cluster {name}"


def _how(site: Site, options: ConsumeOptions) -> How:
    if not options.skip_missing:
        return How(options.isolation)
    return How(options.isolation, lambda lost: site.invocation.warn(str(lost)))


def _progress(reach: SiteOptions, site: Site, source: Source, options: ConsumeOptions, stream: BinaryIO) -> Progress:
    if options.group is None:
        return Progress(None, "", stream, site.invocation.now_ms, is_whole=False)
    reach.check_writable(site, cluster_of(source.address) or "")
    groups = groups_of(source.provider)
    group = groups.called(options.group)
    groups.commit(group, {})  # a group that cannot be is told before anything is written
    is_whole = options.output_format == "parquet"
    return Progress(groups, group, stream, site.invocation.now_ms, is_whole=is_whole)


def _form(options: ConsumeOptions) -> OutputFormat:
    for form in OUTPUT_FORMATS:
        if form == options.output_format:
            if form == "parquet" and options.follow:
                raise UserError("a Parquet file has an end, --follow has none", hint="Follow with records or values.")
            if form == "parquet" and options.regex is not None:
                raise UserError("a Parquet file is of one topic, --regex of many", hint="Write records or values.")
            return form  # type: ignore[return-value]  # the formats are exactly its literals
    raise UserError(
        f"there is no output format {options.output_format!r}", hint=f"Formats: {', '.join(OUTPUT_FORMATS)}."
    )


# What is read, and where it goes.


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions:
    """What is read and where it goes; `None` as `output` is standard output."""

    output: Path | None = None
    output_format: str = "records"
    partition: int | None = None
    start: str = "earliest"
    """`earliest`, `latest`, an offset, or a time; with a group, of what it never committed."""
    max_records: int | None = None
    isolation: Isolation = "read_committed"
    follow: bool = False
    group: str | None = None
    """Where it left off is where reading begins; what was written is committed."""
    regex: str | None = None
    """Read all topics of a cluster whose full name matches, in place of one."""
    skip_missing: bool = False
    """Go on after offsets whose object is gone, and say which they are; otherwise they are an error."""


# `topic produce`: a file or standard input, streamed into a topic.


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceOptions:
    """What is produced; `None` as `input` is standard input, as `input_format` whatever the name says."""

    input: Path | None = None
    input_format: str | None = None
    key_field: str | None = None
    timestamp_field: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Produced:
    """What a topic gained."""

    address: Address
    records: int
    bytes: int
    ranges: Mapping[int, OffsetRange]


def produce(
    reach: SiteOptions,
    address: str,
    options: ProduceOptions,
    *,
    stdin: BinaryIO,
    report: Callable[[int, int], None],
) -> Produced:
    """Write every record of the input; `report` gets records and bytes so far.

    Raises:
        UserError: The topic is not there or is a mirror, or something in the input cannot be a record.
    """
    site = reach.site()
    topic = topic_address(address)
    reach.check_writable(site, cluster_of(topic) or "")
    records = size = 0
    with told_unmounted(site, topic):
        producer = provider_of(site, topic).producer(topic)
    with _opened(reach.invocation, options, stdin) as given:
        for batch in read_input(given):
            producer.append(batch)
            records, size = records + batch.num_rows, size + batch.nbytes
            report(records, size)
        ranges = producer.flush()
    return Produced(topic, records, size, ranges)


@contextmanager
def _opened(invocation: Invocation, options: ProduceOptions, stdin: BinaryIO) -> Iterator[Input]:
    fields = Fields(options.key_field, options.timestamp_field)
    if options.input is None:
        yield Input(stdin, "-", _input_form(options.input_format, "-"), fields, options.partition)
        return
    name = str(options.input)
    form = _input_form(options.input_format, name)
    path = invocation.cwd / options.input
    try:
        stream = path.open("rb")
    except OSError as error:
        raise UserError(f"cannot read {name}: {error.strerror or error}", hint="Name a readable file.") from error
    with stream:
        yield Input(stream, name, form, fields, options.partition)


def _input_form(wanted: str | None, name: str) -> InputFormat:
    if wanted is None:
        return format_of(name)
    for form in INPUT_FORMATS:
        if form == wanted.lower():
            return form  # type: ignore[return-value]  # the formats are exactly its literals
    raise UsageError(f"there is no input format {wanted!r}", hint=f"Formats: {', '.join(INPUT_FORMATS)}.")
