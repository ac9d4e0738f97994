"""`topic consume`: the records of a topic, streamed to a file or standard output."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final

from reconciler.errors import UserError
from reconciler.records.log import OffsetRange
from reconciler.records.outputs import OUTPUT_FORMATS, OutputFormat, write_output
from reconciler.records.times import BadTimeError, to_milliseconds
from reconciler.workflow.opening import open_work
from reconciler.workflow.topicaddress import provider_of, topic_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from reconciler.records.log import Bounds, Isolation, TopicLog
    from reconciler.resources.address import Address
    from reconciler.workflow.invocation import Invocation, Select
    from reconciler.workflow.stopping import Stop

ISOLATIONS: Final = ("read_committed", "read_uncommitted")
_BETWEEN_LOOKS_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions:
    """What is read and where it goes; `None` as `output` is standard output."""

    output: Path | None = None
    output_format: str = "records"
    partition: int | None = None
    start: str = "earliest"
    """`earliest`, an offset, or a time."""
    max_records: int | None = None
    isolation: Isolation = "read_committed"
    follow: bool = False


@dataclass(frozen=True, slots=True)
class Consumed:
    """What was read."""

    address: Address
    records: int


def consume(
    invocation: Invocation, select: Select, address: str, options: ConsumeOptions, *, stdout: BinaryIO, stop: Stop
) -> Consumed:
    """Write the records of a topic, up to the end as it is now; with `follow` until somebody stops it.

    Raises:
        UserError: The topic or partition is not there, or an option makes no sense.
    """
    form = _form(options)
    work = open_work(invocation, select)
    topic = topic_address(address)
    log = provider_of(work, topic).log(topic, isolation=options.isolation)
    reading = _Reading(log, options, stop)
    with _opened(invocation, options, stdout) as stream, stop.ends(lambda: None):
        return Consumed(topic, write_output(reading.batches(), stream, form=form))


@dataclass(frozen=True, slots=True)
class _Reading:
    """One pass over a topic, or an endless one."""

    log: TopicLog
    options: ConsumeOptions
    stop: Stop

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield what is asked for, at most as many records as asked for."""
        left = self.options.max_records
        for batch in self._all():
            if left is not None and batch.num_rows >= left:
                if left:
                    yield batch.slice(0, left)
                return
            left = None if left is None else left - batch.num_rows
            yield batch

    def _all(self) -> Iterator[pa.RecordBatch]:
        bounds = self._bounds()
        at = {partition: self._start(partition, found) for partition, found in bounds.items()}
        while True:
            for partition, found in sorted(bounds.items()):
                end = self._end(found)
                for batch in self.log.read(partition, OffsetRange(at.get(partition, found.start), end)):
                    if self.stop.is_requested:
                        return
                    yield batch
                at[partition] = max(at.get(partition, 0), end)
            if not self.options.follow or self.stop.wait(_BETWEEN_LOOKS_S):
                return
            bounds = self._bounds()

    def _bounds(self) -> Mapping[int, Bounds]:
        bounds = self.log.bounds()
        wanted = self.options.partition
        if wanted is None:
            return bounds
        if wanted not in bounds:
            raise UserError(
                f"partition {wanted}: the topic does not have it", hint=f"Its partitions are 0 to {len(bounds) - 1}."
            )
        return {wanted: bounds[wanted]}

    def _start(self, partition: int, bounds: Bounds) -> int:
        start = self.options.start
        if start == "earliest":
            return bounds.start
        if start.isdecimal():
            return max(int(start), bounds.start)
        found = self.log.offset_for_time(partition, _time(start))
        return self._end(bounds) if found is None else found

    def _end(self, bounds: Bounds) -> int:
        return bounds.readable_end(self.options.isolation)


def _time(text: str) -> int:
    try:
        found = to_milliseconds([text])[0].as_py()
    except BadTimeError as error:
        raise UserError(
            f"--from {text!r} is neither earliest, nor an offset, nor a time",
            hint="Write a time as 2013-01-01T05:00:00Z.",
        ) from error
    return int(found)


def _form(options: ConsumeOptions) -> OutputFormat:
    if options.isolation not in ISOLATIONS:
        raise UserError(f"there is no isolation {options.isolation!r}", hint=f"Isolations: {', '.join(ISOLATIONS)}.")
    for form in OUTPUT_FORMATS:
        if form == options.output_format:
            if form == "parquet" and options.follow:
                raise UserError("a Parquet file has an end, --follow has none", hint="Follow with records or values.")
            return form  # type: ignore[return-value]  # the formats are exactly its literals
    raise UserError(
        f"there is no output format {options.output_format!r}", hint=f"Formats: {', '.join(OUTPUT_FORMATS)}."
    )


@contextmanager
def _opened(invocation: Invocation, options: ConsumeOptions, stdout: BinaryIO) -> Iterator[BinaryIO]:
    if options.output is None:
        yield stdout
        return
    try:
        stream = (invocation.cwd / options.output).open("wb")
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
