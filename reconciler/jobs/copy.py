"""Copy logs: to the end of others as they are, or into another topic of the same platform.

The driver plans ranges, tasks stage them under fresh names, the driver publishes each round by compare-and-swap. A
job keeps nothing of its own: what is left to do is source minus sink, computed anew, so one that was killed is simply
started again, two at once only waste work, and nothing is ever published twice.

Many flows are copied side by side, in the same rounds; what fails for one does not stop the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, Final, cast

from reconciler.archives.entries import STALE_REWRITE_MS
from reconciler.errors import IncompleteError, LostRaceError, ReconcilerError, UserError
from reconciler.jobs.flows import Copy, Flow, Following, Gained, Piece, always, joined, next_piece, rounds
from reconciler.jobs.ordered import digest_in, verify_renumbered
from reconciler.jobs.progress import Report, unseen
from reconciler.jobs.rekey import rekey
from reconciler.jobs.stage import Engine, Tasks
from reconciler.records.log import Copied, OffsetRange, RekeySink, Staged, StagedSink, TopicLog, TransactionalSink
from reconciler.runtime.threads import side_by_side

# A flow whose sink commits by itself, while a job copies it: one task a partition, records under offsets of their own.
#
# What a task committed stays whatever becomes of the task, the round or the driver; the sink says how far it is. A pass
# takes the next piece of every partition, so that all of them go on side by side and each round ends in due time.


_SHARES: Final = 6
"""Into how many pieces at most the budget of a round is cut for partitions side by side."""


class Committing(Following):
    """A flow into a `TransactionalSink`."""

    _left: LostRaceError | None = None
    _lost: frozenset[int] = frozenset()

    @property
    def ends(self) -> tuple[TopicLog, TransactionalSink]:
        """What tasks read from, and where they write: the sink that knows how far it is, and of which source."""
        return self.flow.source, cast("TransactionalSink", self._sink)

    def pieces(self, budget: int) -> list[Piece]:
        """Return the next piece of every partition, unless nobody wants the copy any more."""
        # What is asked here is asked after the sink was: tasks see for themselves what was changed since.
        if not self.flow.is_wanted():
            self._is_halted = True
            return []
        share = budget // max(1, min(len(self._wanted), _SHARES))
        pieces = [next_piece(self._pieces(partition, offsets), share) for partition, offsets in self._wanted.items()]
        self._expect(pieces)
        return pieces

    def publish(self, staged: Sequence[Any]) -> None:
        """Count what tasks have committed."""
        ends: dict[int, OffsetRange] = {}
        for one in staged:
            had = self._gained.get(one.partition, Gained())
            ends[one.partition] = OffsetRange(had.end, one.through)
            self._gained[one.partition] = replace(
                had,
                records=had.records + one.records,
                bytes=had.bytes + one.stored_bytes,
                offsets=had.offsets + max(0, one.through - had.end),
                end=max(had.end, one.through),
            )
        self._tell(ends)

    def leave(self, partition: int, error: LostRaceError) -> None:
        """Leave a partition to who copies it now, until somebody asks anew."""
        self._lost |= {partition}
        self._left = self._left or error

    def end_pass(self) -> None:
        """Look what is missing still; where others copied, too."""
        self._check_fruitful()
        reached = self._look_at_both()
        self._lacks(reached)
        self._wanted = {number: offsets for number, offsets in self._wanted.items() if number not in self._lost}

    def end(self) -> None:
        """Say that all is there that was to be; what was left to others may be, too.

        Raises:
            LostRaceError: Others copy partitions that are not there yet.
        """
        if self._left is not None and self.error is None and not self._is_halted:
            self._lacks(self._look_at_both())
            if self._wanted:
                raise self._left
        super().end()

    @property
    def _has_all(self) -> bool:
        return not self._wanted


def committed(
    source: TopicLog, sink: TransactionalSink, pieces: Iterator[Piece]
) -> Iterator[tuple[int, Copied | LostRaceError]]:
    """Do pieces of one flow, wherever it runs; a partition that another process took leaves the others alone."""
    for piece in pieces:
        try:
            for copied in sink.copy_range(piece.partition, source, piece.offsets):
                yield piece.partition, copied
        except LostRaceError as error:
            yield piece.partition, error


_WORDS: Final = "reconciler: mirror"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one flow: what it got, and why it did not get all where there is an error."""

    copy: Copy
    error: ReconcilerError | None = None


def mirror(
    engine: Engine,
    source: TopicLog,
    sink: StagedSink | TransactionalSink,
    *,
    until: Mapping[int, int] | None = None,
    is_wanted: Callable[[], bool] = always,
    progress: Report = unseen,
) -> Copy:
    """Copy what `sink` lacks of `source`, up to its end as it is now, and mark the first copy as complete.

    `until` are offsets beyond which nothing is copied; then no first copy is complete. `is_wanted` is asked before
    each publishing; a copy that is not wanted any more ends there, and says that it is not whole.

    Raises:
        UserError: The sink is no copy of the source, or an executor does not see one of them.
        IncompleteError: It was stopped; what is published stays.
        RetryableError: Spark gave up, or another process kept publishing.
    """
    flow = Flow(source, sink, None, until, is_wanted, progress)
    (outcome,) = mirrors([flow], engine)
    if outcome.error is not None:
        raise outcome.error
    return outcome.copy


def mirrors(flows: Sequence[Flow], engine: Engine) -> list[Outcome]:
    """Copy what each sink lacks of its source, as `mirror` does, all side by side; return what came of each."""
    return _Job([_following(number, flow, engine.clock) for number, flow in enumerate(flows)], engine).run()


def _following(number: int, flow: Flow, clock: Callable[[], float]) -> Following:
    kind = Committing if isinstance(flow.sink, TransactionalSink) else Following
    return kind(number, flow, clock)


@dataclass(frozen=True, slots=True)
class _Work:
    """A piece of one of the flows."""

    flow: int
    piece: Piece

    @property
    def cost(self) -> int:
        return self.piece.cost


@dataclass(frozen=True, slots=True)
class _Staged:
    """What a task staged or committed for one of the flows, or why it could not."""

    flow: int
    staged: Staged | Copied | None
    error: ReconcilerError | None = None
    lost: int | None = None
    """The partition that somebody else copies now: of this alone the error is."""


_STALE_S: Final = STALE_REWRITE_MS / 1000
"""What was staged in a round that took longer, on a machine that slept, is copied again: a sweep deletes after a day
what nothing names."""


class _Job:
    """Passes over what is missing, each in rounds, until nothing is."""

    def __init__(self, flows: list[Following], engine: Engine) -> None:
        self._flows, self._engine = flows, engine
        self._tasks = Tasks(engine)

    def run(self) -> list[Outcome]:
        self._each(lambda flow: flow.begin(), self._flows)
        while active := [flow for flow in self._flows if flow.is_open]:
            self._pass(active)
        self._each(lambda flow: flow.end(), self._flows)
        return [Outcome(flow.copy(), flow.error) for flow in self._flows]

    def _each(self, do: Callable[[Following], object], flows: Iterable[Following]) -> None:
        """Do something with flows side by side; what it raises ends the flow it is about."""

        def tried(flow: Following) -> None:
            try:
                do(flow)
            except ReconcilerError as error:
                flow.refuse(error)

        asked = [flow for flow in flows if flow.error is None]
        if len(asked) == 1:
            tried(asked[0])
        else:
            for _ in side_by_side(tried, asked, name="flows"):
                pass

    def _pass(self, active: Sequence[Following]) -> None:
        """Go over what is missing once."""
        found: dict[int, list[Piece]] = {}

        def cut(flow: Following) -> None:
            found[flow.number] = flow.pieces(self._tasks.budget.cost)

        self._each(cut, active)
        work = [_Work(number, piece) for number in sorted(found) for piece in found[number]]
        try:
            if work:
                self._rounds(work)
        except ReconcilerError as error:
            for flow in active:
                flow.cut_short(error)
        self._each(lambda flow: flow.end_pass(), active)

    def _rounds(self, work: Sequence[_Work]) -> None:
        with self._tasks.over(sum(one.piece.stored_bytes for one in work), _WORDS):
            for taken in rounds(work, self._tasks.budget):
                began = self._engine.clock()
                self._round(taken)
                self._tasks.budget.learn(taken, self._engine.clock() - began, cores=self._tasks.cores)

    def _round(self, taken: Sequence[_Work]) -> None:
        if self._engine.is_stopped():
            raise _stopped()
        flows = [self._flows[number] for number in dict.fromkeys(one.flow for one in taken)]
        self._each(lambda flow: flow.look_again(), flows)
        began = self._engine.clock()
        staged = self._staged([one for one in taken if self._flows[one.flow].is_open])
        is_stale = self._engine.clock() - began > _STALE_S
        got: dict[int, list[Any]] = {flow.number: [] for flow in flows}
        for one in staged:
            if one.staged is not None:
                got[one.flow].append(one.staged)
        # What other tasks staged is good even where one failed: it need not be copied again.
        publishing = [flow for flow in flows if got[flow.number] and (isinstance(flow, Committing) or not is_stale)]
        self._each(lambda flow: flow.publish(got[flow.number]), publishing)
        for one in staged:
            self._blame(one)
        for flow in self._flows:
            flow.is_fresh = False

    def _blame(self, one: _Staged) -> None:
        flow = self._flows[one.flow]
        match one.error:
            case None:
                pass
            case LostRaceError() as error if one.lost is not None and isinstance(flow, Committing):
                flow.leave(one.lost, error)
            case error:
                flow.refuse(error)

    def _staged(self, work: Sequence[_Work]) -> list[_Staged]:
        if not work:
            return []
        ends = {one.flow: self._flows[one.flow].ends for one in work}
        do = partial(_stage, ends, is_shared=self._tasks.is_here)
        staged, error = self._tasks.run(work, do, what="copying records")
        # What was staged before it was stopped is published; the next round says that it was stopped.
        if error is not None and not isinstance(error, IncompleteError):
            raise error
        return staged


def _stage(
    ends: Mapping[int, tuple[TopicLog, StagedSink | TransactionalSink]], task: Sequence[_Work], *, is_shared: bool
) -> Iterator[_Staged]:
    """Do one task, wherever it runs; what fails for one flow leaves the others alone."""
    for number, work in groupby(task, key=lambda one: one.flow):
        source, sink = ends[number]
        try:
            if not is_shared:
                source.check_shared()
                sink.check_shared()
            pieces = joined(one.piece for one in work)
            if isinstance(sink, TransactionalSink):
                for partition, done in committed(source, sink, pieces):
                    if isinstance(done, LostRaceError):
                        yield _Staged(number, None, done, partition)
                    else:
                        yield _Staged(number, done)
            else:
                for piece in pieces:
                    yield _Staged(number, sink.stage_copy(piece.partition, source, piece.offsets))
        except ReconcilerError as error:
            yield _Staged(number, None, error)


def _stopped() -> IncompleteError:
    return IncompleteError("the copy was stopped; what is published stays", hint="`apply` continues it.")


# Moving: a topic copied into another one of the same platform, exactly once, and compared.
#
# `fill` brings the target to the source's end as it is now, while producers go on. For `settle` they are shut out,
# and it brings the rest.


@dataclass(frozen=True)
class Moving:
    """One topic on its way: where from, where to, and how what is there is read back."""

    name: str
    source: TopicLog
    sink: TransactionalSink | RekeySink
    """By key where it is a `RekeySink`, else partition by partition."""
    copy: TopicLog
    engine: Engine
    progress: Report = unseen


def fill(job: Moving) -> Copy:
    """Copy what is missing up to the source's end as it is now, and compare all there is.

    Raises:
        UserError: The copy differs, or another process has written to it.
        RetryableError: Spark gave up, or brokers do not answer.
        IncompleteError: It was stopped; what is committed stays.
    """
    copied = _brought(job, {number: bounds.stable for number, bounds in job.source.bounds().items()})
    _compare(job)
    return copied


def settle(job: Moving, ends: Mapping[int, int]) -> Copy:
    """Copy what came since up to `ends`, where no process writes any more, and compare.

    Raises:
        As of `fill`.
    """
    copied = _brought(job, ends)
    _compare(job)
    return copied


def _brought(job: Moving, ends: Mapping[int, int]) -> Copy:
    if isinstance(job.sink, RekeySink):
        return rekey(job.engine, job.source, job.sink, until=ends, progress=job.progress)
    return mirror(job.engine, job.source, job.sink, until=ends, progress=job.progress)


def _compare(job: Moving) -> None:
    if job.engine.is_stopped():
        raise IncompleteError("stopped before all was compared", hint="Run the same command again: it goes on.")
    wrong = _unlike(job, job.sink) if isinstance(job.sink, RekeySink) else _differing(job, job.sink)
    if wrong:
        message = f"{job.name}: the copy differs from it in {wrong}"
        hint = (
            "Nothing was deleted. A producer may have written to the new topic: delete the new topic, and apply again."
        )
        raise UserError(message, hint=hint)


def _differing(job: Moving, sink: TransactionalSink) -> str:
    spans = sink.spans(job.source.bounds())
    wrong = [each.partition for each in verify_renumbered(job.engine, job.copy, job.source, spans).differing]
    return f"partitions {', '.join(map(str, wrong))}" if wrong else ""


def _unlike(job: Moving, sink: RekeySink) -> str:
    """Compare what is there with what was written: where each record went only its key says."""
    whole = {
        number: OffsetRange(bounds.start, bounds.stable)
        for number, bounds in job.copy.bounds().items()
        if bounds.start < bounds.stable
    }
    found, written = digest_in(job.engine, job.copy, whole), sink.written()
    if (found.records, found.total) == (written.records, written.total):
        return ""
    return f"its records: {written.records:,} were written, and {found.records:,} are there, or others"
