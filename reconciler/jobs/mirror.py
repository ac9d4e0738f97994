"""Bringing logs to the ends of others: same offsets, timestamps, keys, headers, bytes.

The driver plans ranges, tasks stage them under fresh names, the driver publishes each round by compare-and-swap. A
job keeps nothing of its own: what is left to do is source minus sink, computed anew, so one that was killed is simply
started again, two at once only waste work, and nothing is ever published twice.

Many flows are copied side by side, in the same rounds; what fails for one does not stop the others.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from reconciler.embedded.threads import side_by_side
from reconciler.errors import IncompleteError, LostRaceError, ReconcilerError, RetryableError
from reconciler.jobs import tasks
from reconciler.jobs.committing import Committing, committed
from reconciler.jobs.flows import Copy, Flow, Following, always
from reconciler.jobs.progress import unseen
from reconciler.jobs.ranges import joined, rounds
from reconciler.jobs.tasks import Tasks
from reconciler.records.log import TransactionalSink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from reconciler.jobs.progress import Report
    from reconciler.jobs.ranges import Piece
    from reconciler.records.log import Copied, Staged, StagedSink, TopicLog

_WORDS: Final = "reconciler: mirror"


@dataclass(frozen=True, slots=True)
class Copying:
    """How a job copies: where Spark comes from, who may stop it, and when it does without."""

    session: Callable[[], SparkSession]
    is_stopped: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.monotonic
    little_bytes: int = field(default_factory=lambda: tasks.LITTLE_BYTES)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one flow: what it got, and why it did not get all where there is an error."""

    copy: Copy
    error: ReconcilerError | None = None


def mirror(  # noqa: PLR0913 - each is an option of a copy, and has a default
    session: Callable[[], SparkSession],
    source: TopicLog,
    sink: StagedSink | TransactionalSink,
    *,
    until: Mapping[int, int] | None = None,
    is_wanted: Callable[[], bool] = always,
    progress: Report = unseen,
    is_stopped: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
    little_bytes: int | None = None,
) -> Copy:
    """Copy what `sink` lacks of `source`, up to its end as it is now, and mark the first copy as complete.

    `until` are offsets beyond which nothing is copied; then no first copy is complete. `session` is called only where
    more than `little_bytes` (64 MiB) are missing. `is_wanted` is asked before each publishing; a copy that is not
    wanted any more ends there, and says that it is not whole.

    Raises:
        UserError: The sink is no copy of the source, or an executor does not see one of them.
        IncompleteError: It was stopped; what is published stays.
        RetryableError: Spark gave up, or somebody else kept publishing.
    """
    flow = Flow(source, sink, None, until, is_wanted, progress)
    little = tasks.LITTLE_BYTES if little_bytes is None else little_bytes
    (outcome,) = mirrors([flow], Copying(session, is_stopped, clock, little))
    if outcome.error is not None:
        raise outcome.error
    return outcome.copy


def mirrors(flows: Sequence[Flow], how: Copying) -> list[Outcome]:
    """Copy what each sink lacks of its source, as `mirror` does, all side by side; return what came of each."""
    return _Job([_following(number, flow, how.clock) for number, flow in enumerate(flows)], how).run()


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


class _Job:
    """Passes over what is missing, each in rounds, until nothing is."""

    def __init__(self, flows: list[Following], how: Copying) -> None:
        self._flows, self._how = flows, how
        self._tasks = Tasks(how.session, how.is_stopped, how.little_bytes)

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
            with self._tasks.over(sum(one.piece.stored_bytes for one in work), _WORDS):
                for taken in rounds(work, self._tasks.budget):
                    began = self._how.clock()
                    self._round(taken)
                    self._tasks.budget.learn(taken, self._how.clock() - began, cores=self._tasks.cores)
        except ReconcilerError as error:
            for flow in active:
                flow.cut_short(error)
        self._each(lambda flow: flow.end_pass(), active)

    def _round(self, taken: Sequence[_Work]) -> None:
        if self._how.is_stopped():
            raise _stopped()
        flows = [self._flows[number] for number in dict.fromkeys(one.flow for one in taken)]
        self._each(lambda flow: flow.look_again(), flows)
        staged = self._staged([one for one in taken if self._flows[one.flow].is_open])
        got: dict[int, list[Any]] = {flow.number: [] for flow in flows}
        for one in staged:
            if one.staged is not None:
                got[one.flow].append(one.staged)
        # What other tasks staged is good even where one failed: it need not be copied again.
        self._each(lambda flow: flow.publish(got[flow.number]), [flow for flow in flows if got[flow.number]])
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
        try:
            staged, error = self._tasks.run(work, do, what="copying records")
        except RetryableError as failure:
            # A cancelled round looks like a failed one.
            raise (_stopped() if self._how.is_stopped() else failure) from failure
        if error is not None:
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
    return IncompleteError("the copy was stopped; what is published stays", hint="`apply` goes on with it.")
