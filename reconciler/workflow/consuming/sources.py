"""Reading topics for `topic consume`: which they are, where each partition begins, and what a group has of them."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from dataclasses import dataclass, field
from io import UnsupportedOperation
from typing import TYPE_CHECKING, BinaryIO, Final, TypeAlias

import pyarrow as pa

from reconciler.errors import UsageError, UserError
from reconciler.providers.base import Scope
from reconciler.records.log import MAX_OFFSET, OffsetRange
from reconciler.records.patterns import matching
from reconciler.records.times import BadTimeError, to_milliseconds
from reconciler.resources.address import Address, address_of, cluster_address, full_name_of, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from reconciler.providers.base import Provider
    from reconciler.providers.groups import GroupsOfCluster
    from reconciler.records.log import Bounds, Isolation, Lost, TopicLog
    from reconciler.workflow.consuming.options import ConsumeOptions
    from reconciler.workflow.running.stopping import Stop

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
    on_missing: Callable[[Lost], None] | None = None

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
    _logs: dict[str, TopicLog] = field(default_factory=dict)

    @property
    def address(self) -> Address:
        """The cluster's address."""
        return cluster_address(self.cluster)

    def topics(self) -> dict[str, TopicLog]:
        """Return them by full name, sorted.

        Raises:
            UserError: It is no regular expression.
        """
        observed = self.provider.observe(Scope())
        names = [
            full_name_of(address)
            for address, each in observed.items()
            if kind_of(address) in {"topic", "mirror"} and not each.is_internal and each.hidden is None
        ]
        return {name: self._log(name) for name in matching(self.regex, sorted(names))}

    def _log(self, full_name: str) -> TopicLog:
        if full_name not in self._logs:
            topic = address_of("topic", self.cluster, full_name)
            self._logs[full_name] = self.how.log(self.provider, topic)
        return self._logs[full_name]


Source: TypeAlias = OneTopic | Matching


class Progress:
    """How far each partition was written, and what of that a group has committed; without a group nothing is."""

    def __init__(
        self,
        groups: GroupsOfCluster | None,
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
        is_first = True
        while True:
            for topic, log in self.source.topics().items():
                bounds = self._bounds(log)
                at.update(self._starts(topic, log, bounds, at, is_first=is_first))
                for partition, found in sorted(bounds.items()):
                    place, end = (topic, partition), found.readable_end(self.options.isolation)
                    for batch in log.read(partition, OffsetRange(at[place], end)):
                        if self.stop.is_requested:
                            return
                        yield topic, partition, batch
                    at[place] = max(at[place], end)
                    self.progress.wrote(place, end)
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
            if place in committed:
                starts[place] = committed[place]
            else:
                starts[place] = self._start(log, partition, found) if is_first else found.start
        return starts

    def _start(self, log: TopicLog, partition: int, bounds: Bounds) -> int:
        start, end = self.options.start, bounds.readable_end(self.options.isolation)
        if start == "earliest":
            return bounds.start
        if start == "latest":
            return end
        if start.isdecimal():
            return max(_offset(start), bounds.start)
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
        raise UsageError(f"--from {text} is no offset", hint=f"Offsets go from 0 to {MAX_OFFSET}.")
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
