"""Jobs that publish ranges by compare-and-swap, as the real ones do, into a ledger that shows what was published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, cast

import orjson

from reconciler.applying.events import Progress
from reconciler.applying.ports import DataAction, JobResult
from reconciler.errors import IncompleteError, LostRaceError, RetryableError, UnansweredError
from reconciler.objectstore.base import ObjectStore, StoredObject, create_nonce
from reconciler.operations.steps.transitions import TransitionDriver, drive_transition
from reconciler.planning.actions import Action, RunJob, Transition
from reconciler.providers.protocol import Provider, require_job_links
from reconciler.resources.address import full_name_of
from reconciler.runtime.retry import skip_check

if TYPE_CHECKING:
    from reconciler.records.log import StagedSink

RECORDS = 40
"""What every source holds."""
ROUND = 10
_TRIES = 5


class Foreman(Protocol):
    """Whoever is asked before a job begins."""

    def begins(self, job: DataAction) -> None: ...


class LedgerJobs:
    """Copies in rounds: what is missing is worked out anew each time, and published at the end of each round."""

    def __init__(self, ledger: ObjectStore, providers: Mapping[str, Provider], foreman: Foreman) -> None:
        self._ledger, self._providers, self._foreman = ledger, providers, foreman
        self._is_stopped = False

    def check(self, actions: Iterable[Action]) -> None:
        """Nothing is needed."""

    def stop(self) -> None:
        self._is_stopped = True

    def run(
        self, job: DataAction, progress: Callable[[Progress], None], may_go_on: Callable[[], None] = skip_check
    ) -> JobResult:
        self._foreman.begins(job)
        if isinstance(job, Transition):
            return self._drive(job, may_go_on)
        source, below = self._providers["west"], self._providers["east"]
        require_job_links(below).syncs.update_mirrors({full_name_of(job.sink): source.read_source_topic(job.source)})
        moved = 0
        while (end := end_of(self._ledger.get(job.sink))) < RECORDS:
            if self._is_stopped:
                raise IncompleteError("stopped", hint="Run it again.")
            moved += self._round(job, end)
            progress(Progress(job.id, moved, RECORDS, moved, RECORDS, 1.0))
        cast("StagedSink", below.open_sink(job.sink)).mark_complete()
        return JobResult(moved, moved)

    def _drive(self, action: Transition, may_go_on: Callable[[], None]) -> JobResult:
        """Drive a transition as jobs do; that records are copied is what the ledger shows, and no matter here."""

        def nothing(*_given: object) -> None:
            return

        driver = TransitionDriver(self._providers, copy=nothing, sync=nothing, new_id=create_nonce, may_go_on=may_go_on)
        return JobResult(incarnation=drive_transition(driver, action).topic_id)

    def _round(self, job: RunJob, start: int) -> int:
        stop = min(start + ROUND, RECORDS)
        for _ in range(_TRIES):
            found = self._ledger.get(job.sink)
            if end_of(found) != start:
                return 0  # somebody else published it, or we did and were not told
            ranges = [*ranges_of(found), [start, stop]]
            try:
                self._ledger.swap(job.sink, orjson.dumps(ranges), expected=found.version if found else None)
            except (LostRaceError, UnansweredError):
                continue
            return stop - start
        raise RetryableError("the ledger does not answer", hint="Run it again.")


def ranges_of(found: StoredObject | None) -> list[list[int]]:
    """Return every range that was published, in that order."""
    ranges: list[list[int]] = orjson.loads(found.body) if found else []
    return ranges


def end_of(found: StoredObject | None) -> int:
    ranges = ranges_of(found)
    return ranges[-1][1] if ranges else 0
