"""A log that follows another: what it lacks, cut into ranges and rounds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeVar, cast

from reconciler.errors import ReconcilerError, RetryableError, UserError
from reconciler.jobs.progress import JobProgress, Report, unseen
from reconciler.records.log import (
    Bounds,
    Extent,
    OffsetRange,
    SinkPosition,
    SourceSeen,
    StagedSink,
    TopicLog,
    TransactionalSink,
    check_followed,
)

# What a copy has to move, cut along what is stored, and dealt out to rounds and tasks. Pure.


MIB: Final = 1 << 20
PIECE_BYTES: Final = 32 * MIB
"""Neighbouring extents become one piece up to here."""
PIECE_COST: Final = 4 * MIB
"""What a piece costs beside its bytes, in bytes: requests, and a swap of its head."""
_TASKS_A_CORE: Final = 3
_ROUND_S: Final = 10.0
"""How long a round should take: what is published in between is what a crash does not lose."""
_TASK_COST: Final = 16 * MIB
"""Work smaller than this is not worth a task of its own."""


class Costly(Protocol):
    """A piece of work that says how much of a round it takes, in bytes."""

    @property
    def cost(self) -> int:
        """Return it."""
        ...


C = TypeVar("C", bound=Costly)


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of one partition that one task copies."""

    partition: int
    offsets: OffsetRange
    records: int
    stored_bytes: int

    @property
    def cost(self) -> int:
        """How much of a round it takes."""
        return self.stored_bytes + PIECE_COST


def missing(
    bounds: Mapping[int, Bounds], ends: Mapping[int, int], until: Mapping[int, int] | None = None
) -> dict[int, OffsetRange]:
    """Return what a sink lacks of its source, up to the last stable offsets.

    `until` are offsets beyond which nothing is wanted; of a partition that is not among them, nothing at all.

    Raises:
        UserError: The sink has no such partition, or goes on where its source ends.
    """
    ranges: dict[int, OffsetRange] = {}
    for partition, source in sorted(bounds.items()):
        if partition not in ends:
            hint = "Plan and apply again: the partitions of a mirror follow its source."
            raise UserError(f"partition {partition} is on the source only", hint=hint)
        if ends[partition] > source.end:
            message = f"partition {partition} ends at {ends[partition]:,}, its source at {source.end:,}"
            raise UserError(
                message, hint="It is not a copy of this source: `reconciler verify` shows where they differ."
            )
        stop = source.stable if until is None else min(source.stable, until.get(partition, 0))
        if ends[partition] < stop:
            ranges[partition] = OffsetRange(ends[partition], stop)
    return ranges


def pieces_of(partition: int, offsets: OffsetRange, extents: Iterable[Extent]) -> Iterator[Piece]:
    """Yield pieces that cover `offsets` without a gap, each a run of whole extents."""
    at = offsets.start
    stop, records, stored = at, 0, 0
    for extent in extents:
        if stored and stored + extent.stored_bytes > PIECE_BYTES:
            yield Piece(partition, OffsetRange(at, stop), records, stored)
            at, records, stored = stop, 0, 0
        stop = extent.offsets.stop
        records += extent.records
        stored += extent.stored_bytes
    # The last piece reaches the end also where the last offsets hold nothing (aborted, compacted).
    yield Piece(partition, OffsetRange(at, offsets.stop), records, stored)


def next_piece(pieces: Iterable[Piece], most_bytes: int) -> Piece:
    """Return the first of neighbouring pieces of a partition as one, so many bytes at most, always at least one."""
    taken: list[Piece] = []
    for piece in pieces:
        if taken and sum(each.stored_bytes for each in taken) + piece.stored_bytes > most_bytes:
            break
        taken.append(piece)
    (whole,) = joined(taken)
    return whole


def rounds(pieces: Sequence[C], budget: Budget) -> Iterator[list[C]]:
    """Yield pieces in order, as many at a time as the budget allows at that moment, always at least one."""
    taken: list[C] = []
    cost = 0
    for piece in pieces:
        if taken and cost + piece.cost > budget.cost:
            yield taken
            taken, cost = [], 0
        taken.append(piece)
        cost += piece.cost
    if taken:
        yield taken


def tasks_of(pieces: Sequence[C], cores: int) -> list[tuple[C, ...]]:
    """Deal a round's pieces out in order: a few tasks a core, tiny pieces bundled."""
    share = max(sum(piece.cost for piece in pieces) / (cores * _TASKS_A_CORE), _TASK_COST)
    tasks: list[list[C]] = []
    left = 0.0
    for piece in pieces:
        if left <= 0:
            tasks.append([])
            left += share
        tasks[-1].append(piece)
        left -= piece.cost
    return [tuple(task) for task in tasks]


def joined(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield the same ranges, neighbours of one partition as one."""
    held: Piece | None = None
    for piece in pieces:
        if held is None:
            held = piece
        elif held.partition == piece.partition and held.offsets.stop == piece.offsets.start:
            offsets = OffsetRange(held.offsets.start, piece.offsets.stop)
            held = Piece(held.partition, offsets, held.records + piece.records, held.stored_bytes + piece.stored_bytes)
        else:
            yield held
            held = piece
    if held is not None:
        yield held


class Budget:
    """How much a round may cost, in bytes; learns from the rounds before to end each in due time."""

    def __init__(self, cores: int) -> None:
        """Begin with less than may be: nothing is known of the stores yet."""
        self.cost = 768 * MIB * cores

    def learn(self, pieces: Sequence[Costly], seconds: float, *, cores: int) -> None:
        """Fit the next round to how long this one took; never more than 1 GiB a core."""
        rate = sum(piece.cost for piece in pieces) / max(seconds, 0.001)
        self.cost = max(PIECE_COST, min(1024 * MIB * cores, int(rate * _ROUND_S)))


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
    """What one partition got, where it ends now, how many offsets it is behind its source, and where that begins."""

    records: int = 0
    bytes: int = 0
    offsets: int = 0
    end: int = 0
    lag: int = 0
    source_start: int = 0
    """The first offset that its source has, as last seen."""


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
            raise RetryableError(
                "another writer kept advancing this mirror; nothing was published after several passes", hint=hint
            )

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
        nowhere = Bounds(0, 0, 0, 0)
        partitions = {
            partition: replace(gained, lag=max(0, seen.end - gained.end), source_start=seen.start)
            for partition, gained in self._gained.items()
            for seen in (self._seen.get(partition, nowhere),)
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

    def _look_at_both(self) -> Mapping[int, SinkPosition]:
        """Return where the sink ends: seen before its source is, which cannot seem to end below it then."""
        reached = self.flow.sink.reached(self.flow.only)
        self._look()
        seen = SourceSeen(self.flow.source.topic_id, self._seen)
        for partition, one in reached.items():
            check_followed("the mirror", partition, one, seen)
        return reached

    def _lacks(self, reached: Mapping[int, SinkPosition]) -> None:
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
                partitions_done=sum(map(self._has_all_of, self._goal)),
                partitions=len(self._goal),
            )
        )

    def _has_all_of(self, partition: int) -> bool:
        wanted, gained = self._wanted.get(partition), self._gained.get(partition)
        return wanted is None or (gained is not None and gained.end >= wanted.stop)
