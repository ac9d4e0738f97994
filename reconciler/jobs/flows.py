"""Flows: copies of a source to a sink in rounds. A piece is an offset range that one task copies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar, cast

from reconciler.errors import ReconcilerError, RetryableError, UserError
from reconciler.jobs.progress import JobProgress, Report, ignore_progress
from reconciler.records.log import (
    Bounds,
    Extent,
    ObservedSource,
    OffsetRange,
    SinkPosition,
    StagedSink,
    TopicLog,
    TransactionalSink,
    check_source_unchanged,
)
from reconciler.runtime.dataclass import dataclass, field, replace

MIB: Final = 1 << 20
PIECE_BYTES: Final = 32 * MIB
"""Maximum stored bytes of a piece of several extents."""
PIECE_COST: Final = 4 * MIB
"""Fixed cost of a piece (requests, a commit), in bytes."""
_TASKS_A_CORE: Final = 3
_ROUND_S: Final = 10.0
"""Target duration of a round. A crash loses only the current round."""
_TASK_COST: Final = 16 * MIB
"""Minimum cost of a task, in bytes."""


class Costly(Protocol):
    """Work with a cost in bytes."""

    @property
    def cost(self) -> int:
        """Cost in bytes."""
        ...


C = TypeVar("C", bound=Costly)


@dataclass(frozen=True, slots=True)
class Piece:
    """An offset range of one partition that one task copies."""

    partition: int
    offsets: OffsetRange
    records: int
    stored_bytes: int

    @property
    def cost(self) -> int:
        """Cost in bytes."""
        return self.stored_bytes + PIECE_COST


def find_missing_ranges(
    bounds: Mapping[int, Bounds], ends: Mapping[int, int], until: Mapping[int, int] | None = None
) -> dict[int, OffsetRange]:
    """Return the ranges that a sink lacks, up to the source's last stable offsets or `until`.

    Raises:
        UserError: The sink lacks a partition or is ahead of the source.
    """
    ranges: dict[int, OffsetRange] = {}
    for partition, source in sorted(bounds.items()):
        if partition not in ends:
            hint = "Plan and apply again: the partitions of a mirror follow its source."
            raise UserError(f"partition {partition} is on the source only", hint=hint)
        if ends[partition] > source.end:
            message = f"partition {partition} ends at {ends[partition]:,}, its source at {source.end:,}"
            raise UserError(
                message, hint="The partition is not a copy of its source's; see where they differ: reconciler verify"
            )
        stop = source.stable if until is None else min(source.stable, until.get(partition, 0))
        if ends[partition] < stop:
            ranges[partition] = OffsetRange(ends[partition], stop)
    return ranges


def iter_pieces(partition: int, offsets: OffsetRange, extents: Iterable[Extent]) -> Iterator[Piece]:
    """Yield pieces of whole extents that together cover `offsets`."""
    at = offsets.start
    stop, records, stored = at, 0, 0
    for extent in extents:
        if stored and stored + extent.stored_bytes > PIECE_BYTES:
            yield Piece(partition, OffsetRange(at, stop), records, stored)
            at, records, stored = stop, 0, 0
        stop = extent.offsets.stop
        records += extent.records
        stored += extent.stored_bytes
    # The last offsets may be in no extent, but belong to the last piece.
    yield Piece(partition, OffsetRange(at, offsets.stop), records, stored)


def join_first_pieces(pieces: Iterable[Piece], most_bytes: int) -> Piece:
    """Join a partition's first piece with the following pieces, up to `most_bytes`."""
    taken: list[Piece] = []
    for piece in pieces:
        if taken and sum(item.stored_bytes for item in taken) + piece.stored_bytes > most_bytes:
            break
        taken.append(piece)
    (whole,) = join_pieces(taken)
    return whole


def iter_rounds(pieces: Sequence[C], budget: Budget) -> Iterator[list[C]]:
    """Yield rounds of at least one piece within the current budget."""
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


def deal_to_tasks(pieces: Sequence[C], cores: int) -> list[tuple[C, ...]]:
    """Assign pieces to a few tasks per core, in order. Tiny pieces share a task."""
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


def join_pieces(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Join adjacent pieces of a partition."""
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
    """Cost limit of a round in bytes, adapted to the measured rate."""

    def __init__(self, cores: int) -> None:
        self.cost = 768 * MIB * cores

    def adapt(self, pieces: Sequence[Costly], seconds: float, *, cores: int) -> None:
        """Adapt the limit to the last round's rate."""
        rate = sum(piece.cost for piece in pieces) / max(seconds, 0.001)
        self.cost = max(PIECE_COST, min(1024 * MIB * cores, int(rate * _ROUND_S)))


_FRUITLESS_PASSES: Final = 3


def is_always_wanted() -> bool:
    """Return true, which never stops the copy."""
    return True


@dataclass(frozen=True, slots=True)
class Flow:
    """A source, its sink, and the limits of the copy."""

    source: TopicLog
    sink: StagedSink | TransactionalSink
    only: Collection[int] | None = None
    until: Mapping[int, int] | None = None
    """End offsets by partition; other partitions are not copied. `None` copies everything."""
    is_wanted: Callable[[], bool] = is_always_wanted
    """Called before each publication; false stops the copy, for example of a paused mirror."""
    progress: Report = ignore_progress


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """Records, bytes and offsets copied to a partition, its end and lag, and the source's start offset."""

    records: int = 0
    bytes: int = 0
    offsets: int = 0
    end: int = 0
    lag: int = 0
    source_start: int = 0


@dataclass(frozen=True, slots=True)
class CopyResult:
    """Result of a flow. `offsets` includes offsets without records."""

    records: int = 0
    bytes: int = 0
    offsets: int = 0
    seconds: float = 0.0
    partitions: Mapping[int, PartitionProgress] = field(default_factory=dict)
    is_whole: bool = True
    """Whether the copy reached its goal, the source's end at the start."""

    @property
    def lag(self) -> int:
        """Total lag in offsets at the last read of the source."""
        return sum(gained.lag for gained in self.partitions.values())


class FlowRun:
    """State of a flow during a job. Not thread-safe."""

    def __init__(self, number: int, flow: Flow, clock: Callable[[], float]) -> None:
        self.number, self.flow = number, flow
        self.error: ReconcilerError | None = None
        self.is_fresh = False
        """Whether the source was read after the last round."""
        self._is_halted = False
        self._clock, self._began = clock, clock()
        self._sink = flow.sink
        self._goal: Mapping[int, Bounds] = {}
        self._seen: Mapping[int, Bounds] = {}
        self._missing: dict[int, OffsetRange] = {}
        self._gained: dict[int, PartitionProgress] = {}
        self._total = CopyResult()
        self._passes_without_gain = 0
        self._before = 0

    @property
    def ends(self) -> tuple[TopicLog, StagedSink | TransactionalSink]:
        """The log that tasks read, and the sink that they write."""
        return self.flow.source, self.flow.sink

    @property
    def is_open(self) -> bool:
        """Whether records may be missing."""
        return self.error is None and not self._is_halted and bool(self._missing)

    def fail(self, error: ReconcilerError) -> None:
        """End the flow with its first error."""
        self.error = self.error or error

    def fail_unless_complete(self, error: ReconcilerError) -> None:
        """End the flow with the job's error, unless the flow is complete."""
        if not self._is_complete:
            self.fail(error)

    def read_both_ends(self) -> None:
        """Read source and sink, and make the source's current end the goal."""
        reached = self._read_both_ends()
        self._goal = self._seen
        self._set_missing(reached)

    def plan_pieces(self, budget_bytes: int) -> list[Piece]:  # noqa: ARG002 - `CommitFlowRun` uses it
        """Return the missing ranges as pieces. `budget_bytes` is a round's cost limit."""
        pieces = [
            piece for partition, offsets in self._missing.items() for piece in self._plan_pieces(partition, offsets)
        ]
        self._add_expected(pieces)
        return pieces

    def _add_expected(self, pieces: Sequence[Piece]) -> None:
        records, stored = sum(piece.records for piece in pieces), sum(piece.stored_bytes for piece in pieces)
        done = self.build_result()
        self._before, self._total = done.offsets, CopyResult(done.records + records, done.bytes + stored)
        self._report_progress({})

    def publish(self, staged: Sequence[Any]) -> None:
        """Publish staged records, unless the copy is no longer wanted."""
        if not self.flow.is_wanted():
            self._is_halted = True
            return
        gained = cast("StagedSink", self._sink).publish(staged)
        for one in staged:
            if one.at is not None and one.partition in gained and gained[one.partition].contains(one.at):
                had = self._gained[one.partition]
                self._gained[one.partition] = replace(
                    had,
                    records=had.records + one.records,
                    bytes=had.bytes + one.stored_bytes,
                    offsets=had.offsets + one.at.length,
                    end=max(had.end, one.at.stop),
                )
        self._report_progress(gained)

    def update_missing_ranges(self) -> None:
        """Recompute missing ranges."""
        if self._is_complete:
            self._missing = {}
            return
        self._check_progress()
        self._set_missing(self._read_both_ends())

    def _check_progress(self) -> None:
        done = self.build_result().offsets
        self._passes_without_gain = self._passes_without_gain + 1 if done == self._before else 0
        if self._passes_without_gain == _FRUITLESS_PASSES:
            hint = "See whether another `apply` or `run` copies it, then run the same command again."
            raise RetryableError(
                "another process kept writing to this mirror; nothing was copied in several passes", hint=hint
            )

    def reread_source(self) -> None:
        """Read the source again, unless it was read after the last round."""
        if not self.is_fresh:
            self._read_source()

    def finish(self) -> None:
        """Mark the sink complete if everything was copied."""
        if self.error is None and not self._is_halted and self.flow.until is None:
            self.flow.sink.mark_complete()

    def build_result(self) -> CopyResult:
        """Return the flow's result so far."""
        nowhere = Bounds(0, 0, 0, 0)
        partitions = {
            partition: replace(gained, lag=max(0, seen.end - gained.end), source_start=seen.start)
            for partition, gained in self._gained.items()
            for seen in (self._seen.get(partition, nowhere),)
        }
        return CopyResult(
            sum(gained.records for gained in partitions.values()),
            sum(gained.bytes for gained in partitions.values()),
            sum(gained.offsets for gained in partitions.values()),
            self._clock() - self._began,
            partitions,
            is_whole=self.error is None and not self._is_halted,
        )

    @property
    def _is_complete(self) -> bool:
        wanted = sum(offsets.length for offsets in self._missing.values())
        return sum(gained.offsets for gained in self._gained.values()) - self._before == wanted

    def _read_source(self) -> None:
        source = self.flow.source
        self.is_fresh = True
        self._seen = source.read_bounds(self.flow.only)
        self._sink = self.flow.sink.follow_source(ObservedSource(source.topic_id, self._seen))

    def _read_both_ends(self) -> Mapping[int, SinkPosition]:
        reached = self.flow.sink.read_positions(self.flow.only)
        self._read_source()
        seen = ObservedSource(self.flow.source.topic_id, self._seen)
        for partition, one in reached.items():
            check_source_unchanged("the mirror", partition, one, seen)
        return reached

    def _set_missing(self, reached: Mapping[int, SinkPosition]) -> None:
        ends = {partition: one.end for partition, one in reached.items()}
        until = self.flow.until
        goal = {
            partition: bounds.stable if until is None else min(bounds.stable, until.get(partition, 0))
            for partition, bounds in self._goal.items()
        }
        self._missing = find_missing_ranges(
            {partition: self._seen.get(partition, self._goal[partition]) for partition in goal}, ends, goal
        )
        for partition in goal:
            if partition in ends:
                self._gained[partition] = replace(self._gained.get(partition, PartitionProgress()), end=ends[partition])

    def _plan_pieces(self, partition: int, offsets: OffsetRange) -> Iterator[Piece]:
        return iter_pieces(partition, offsets, self.flow.source.list_extents(partition, offsets))

    def _report_progress(self, gained: Mapping[int, OffsetRange]) -> None:
        if self.flow.progress is ignore_progress:
            return
        done = self.build_result()
        self.flow.progress(
            JobProgress(
                records=done.records,
                records_total=max(self._total.records, done.records),
                bytes=done.bytes,
                bytes_total=max(self._total.bytes, done.bytes),
                seconds=done.seconds,
                ends={partition: offsets.stop for partition, offsets in sorted(gained.items())},
                partitions_done=sum(map(self._is_partition_complete, self._goal)),
                partitions=len(self._goal),
            )
        )

    def _is_partition_complete(self, partition: int) -> bool:
        wanted, gained = self._missing.get(partition), self._gained.get(partition)
        return wanted is None or (gained is not None and gained.end >= wanted.stop)
