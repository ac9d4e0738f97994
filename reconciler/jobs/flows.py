"""One log that follows another, while a job copies: what it lacks, what it got, and how far it is behind."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

from reconciler.errors import ReconcilerError, RetryableError
from reconciler.jobs.progress import JobProgress, unseen
from reconciler.jobs.ranges import missing, pieces_of
from reconciler.records.following import check_followed
from reconciler.records.log import SourceSeen

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from reconciler.jobs.progress import Report
    from reconciler.jobs.ranges import Piece
    from reconciler.records.log import Bounds, OffsetRange, Reached, StagedSink, TopicLog, TransactionalSink

_FRUITLESS_PASSES: Final = 3


def always() -> bool:
    """Go on: nobody pauses or stops what is copied."""
    return True


@dataclass(frozen=True, slots=True)
class Flow:
    """What is to be copied where."""

    source: TopicLog
    sink: StagedSink | TransactionalSink
    only: Collection[int] | None = None
    """The partitions that are looked at; `None`: all."""
    until: Mapping[int, int] | None = None
    """Offsets beyond which nothing is copied, and of what is not among them nothing; `None`: to the source's ends."""
    is_wanted: Callable[[], bool] = always
    """Asked before each publishing: a mirror that was paused or stopped meanwhile gets nothing more."""
    progress: Report = unseen


@dataclass(frozen=True, slots=True)
class Gained:
    """What one partition got, where it ends now, and how many offsets it is behind its source."""

    records: int = 0
    bytes: int = 0
    offsets: int = 0
    end: int = 0
    lag: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """What one flow got, over all partitions; `offsets` counts those without records too."""

    records: int = 0
    bytes: int = 0
    offsets: int = 0
    seconds: float = 0.0
    partitions: Mapping[int, Gained] = field(default_factory=dict)
    """Those that were looked at."""
    is_whole: bool = True
    """Whether it got all that its source had when the job began; not where it is not wanted any more."""

    @property
    def lag(self) -> int:
        """How many offsets all of them are behind, as last seen."""
        return sum(gained.lag for gained in self.partitions.values())


class Following:
    """A flow while a job copies it. Of one flow nothing runs side by side but its tasks."""

    def __init__(self, number: int, flow: Flow, clock: Callable[[], float]) -> None:
        """Look at nothing yet."""
        self.number, self.flow = number, flow
        self.error: ReconcilerError | None = None
        self.is_fresh = False
        """Whether nothing was copied since both ends were looked at."""
        self._is_halted = False
        self._clock, self._began = clock, clock()
        self._sink = flow.sink
        self._goal: Mapping[int, Bounds] = {}
        self._seen: Mapping[int, Bounds] = {}
        self._wanted: dict[int, OffsetRange] = {}
        self._gained: dict[int, Gained] = {}
        self._total = Copy()
        self._fruitless = 0
        self._before = 0

    @property
    def ends(self) -> tuple[TopicLog, StagedSink | TransactionalSink]:
        """What tasks read from, and where they write."""
        return self.flow.source, self.flow.sink

    @property
    def is_open(self) -> bool:
        """Whether there may be more to do for it."""
        return self.error is None and not self._is_halted and bool(self._wanted)

    def refuse(self, error: ReconcilerError) -> None:
        """Take note of what ended it; the first counts."""
        self.error = self.error or error

    def cut_short(self, error: ReconcilerError) -> None:
        """Take note of what ended the whole job, unless it has all already."""
        if not self._has_all:
            self.refuse(error)

    def begin(self) -> None:
        """Look how far both are: what the source has now is what is copied.

        Raises:
            UserError: The sink is no copy of the source.
        """
        reached = self._look_at_both()
        self._goal = self._seen
        self._lacks(reached)

    def pieces(self, budget: int) -> list[Piece]:  # noqa: ARG002 - where tasks commit, it bounds what is taken
        """Return what is missing, cut along what is stored; `budget` is what a round may cost."""
        pieces = [piece for partition, offsets in self._wanted.items() for piece in self._pieces(partition, offsets)]
        self._expect(pieces)
        return pieces

    def _expect(self, pieces: Sequence[Piece]) -> None:
        """Take note of what is about to be copied."""
        records, stored = sum(piece.records for piece in pieces), sum(piece.stored_bytes for piece in pieces)
        done = self.copy()
        self._before, self._total = done.offsets, Copy(done.records + records, done.bytes + stored)
        self._tell({})

    def publish(self, staged: Sequence[Any]) -> None:
        """Make readable what tasks staged, unless nobody wants it any more."""
        if not self.flow.is_wanted():
            self._is_halted = True
            return
        gained = cast("StagedSink", self._sink).publish(staged)
        for one in staged:
            if one.at is not None and one.partition in gained and gained[one.partition].holds(one.at):
                had = self._gained[one.partition]
                self._gained[one.partition] = replace(
                    had,
                    records=had.records + one.records,
                    bytes=had.bytes + one.stored_bytes,
                    offsets=had.offsets + one.at.length,
                    end=max(had.end, one.at.stop),
                )
        self._tell(gained)

    def end_pass(self) -> None:
        """Look whether all of it was published, and what is missing still where it was not.

        Raises:
            RetryableError: Somebody else kept publishing.
        """
        if self._has_all:
            self._wanted = {}
            return
        self._check_fruitful()
        self._lacks(self._look_at_both())

    def _check_fruitful(self) -> None:
        done = self.copy().offsets
        self._fruitless = self._fruitless + 1 if done == self._before else 0
        if self._fruitless == _FRUITLESS_PASSES:
            hint = "See whether another `apply` or `run` copies it, then run the same command again."
            raise RetryableError("what was copied never fitted onto the mirror's end", hint=hint)

    def look_again(self) -> None:
        """See the source as it is before a round: what is staged from now on is published as that."""
        if not self.is_fresh:
            self._look()

    def end(self) -> None:
        """Say that all is there that was to be."""
        if self.error is None and not self._is_halted and self.flow.until is None:
            self.flow.sink.complete()

    def copy(self) -> Copy:
        """Return what it got so far."""
        ends = {partition: bounds.end for partition, bounds in self._seen.items()}
        partitions = {
            partition: replace(gained, lag=max(0, ends.get(partition, 0) - gained.end))
            for partition, gained in self._gained.items()
        }
        return Copy(
            sum(gained.records for gained in partitions.values()),
            sum(gained.bytes for gained in partitions.values()),
            sum(gained.offsets for gained in partitions.values()),
            self._clock() - self._began,
            partitions,
            is_whole=self.error is None and not self._is_halted,
        )

    @property
    def _has_all(self) -> bool:
        wanted = sum(offsets.length for offsets in self._wanted.values())
        return sum(gained.offsets for gained in self._gained.values()) - self._before == wanted

    def _look(self) -> None:
        source = self.flow.source
        self.is_fresh = True
        self._seen = source.bounds(self.flow.only)
        self._sink = self.flow.sink.following(SourceSeen(source.topic_id, self._seen))

    def _look_at_both(self) -> Mapping[int, Reached]:
        """Return where the sink ends: seen before its source is, which cannot seem to end below it then."""
        reached = self.flow.sink.reached(self.flow.only)
        self._look()
        seen = SourceSeen(self.flow.source.topic_id, self._seen)
        for partition, one in reached.items():
            check_followed("the mirror", partition, one, seen)
        return reached

    def _lacks(self, reached: Mapping[int, Reached]) -> None:
        ends = {partition: one.end for partition, one in reached.items()}
        until = self.flow.until
        goal = {
            partition: bounds.stable if until is None else min(bounds.stable, until.get(partition, 0))
            for partition, bounds in self._goal.items()
        }
        self._wanted = missing(
            {partition: self._seen.get(partition, self._goal[partition]) for partition in goal}, ends, goal
        )
        for partition in goal:
            if partition in ends:
                self._gained[partition] = replace(self._gained.get(partition, Gained()), end=ends[partition])

    def _pieces(self, partition: int, offsets: OffsetRange) -> Iterator[Piece]:
        return pieces_of(partition, offsets, self.flow.source.extents(partition, offsets))

    def _tell(self, gained: Mapping[int, OffsetRange]) -> None:
        if self.flow.progress is unseen:
            return
        done = self.copy()
        self.flow.progress(
            JobProgress(
                records=done.records,
                records_total=max(self._total.records, done.records),
                bytes=done.bytes,
                bytes_total=max(self._total.bytes, done.bytes),
                seconds=done.seconds,
                ends={partition: offsets.stop for partition, offsets in sorted(gained.items())},
            )
        )
