"""`run`: maintenance and mirrors, once or again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from reconciler.applying.events import ActionFailed, Event
from reconciler.errors import UserError
from reconciler.operations.mirrors.maintenance import JOBS, MIRROR, Begun, Links, answering, chosen, synced, tended
from reconciler.operations.mirrors.mirror_rounds import JobOutcome, Round, Rounds, Upkeep, sources_first
from reconciler.operations.steps.jobs import SparkJobs
from reconciler.operations.steps.workspace import Work, open_work
from reconciler.providers.protocol import MaintenancePorts
from reconciler.resources.address import Address, cluster_address, matches

if TYPE_CHECKING:
    from reconciler.operations.steps.invocation import Invocation, Select
    from reconciler.operations.steps.runner import Stop


One = TypeVar("One")


def run_once(
    invocation: Invocation,
    select: Select,
    *,
    only: Sequence[str] = (),
    report: Callable[[Event], None],
    stop: Stop,
) -> Upkeep:
    """Do every job, or those in `only`, on all clusters as they are when their turn comes.

    Raises:
        UsageError: `only` names a job there is not.
        UserError: The workspace cannot be opened, or a principal acts.
    """
    names = chosen(only)
    work = _opened(invocation, select)
    with SparkJobs(work.providers, work.loaded.workspace.spec.spark, invocation.environ) as jobs, stop.ends(jobs.stop):
        return _Pass(work, jobs, _mirrors(work, jobs, report), names, report, stop).done(is_asked=True)


def run_every(
    invocation: Invocation,
    select: Select,
    interval_s: float,
    *,
    only: Sequence[str] = (),
    report: Callable[[Event], None],
    stop: Stop,
) -> Iterator[Upkeep]:
    """Do passes until somebody asks to stop, `interval_s` from the end of one to the next, and yield what each did.

    The workspace is opened once: its manifests only say where clusters are.

    Raises:
        UsageError: `only` names a job there is not.
        UserError: The workspace cannot be opened, or a principal acts.
    """
    names = chosen(only)
    work = _opened(invocation, select)
    with SparkJobs(work.providers, work.loaded.workspace.spec.spark, invocation.environ) as jobs, stop.ends(jobs.stop):
        mirrors = _mirrors(work, jobs, report)
        while not stop.is_requested:
            yield _Pass(work, jobs, mirrors, names, report, stop).done(is_asked=bool(only))
            stop.wait(interval_s)


def _opened(invocation: Invocation, select: Select) -> Work:
    """Open the workspace for who may do upkeep: jobs delete and rewrite what topics hold, whoever may see them."""
    if invocation.principal is not None:
        raise UserError("upkeep is done by the super user", hint="Leave --principal out.")
    return open_work(invocation, select)


@dataclass(frozen=True)
class _Mirrors:
    """What keeps mirrors going: what one pass learned, the next one uses."""

    links: Links
    rounds: Rounds


def _mirrors(work: Work, jobs: SparkJobs, report: Callable[[Event], None]) -> _Mirrors:
    now_ms = work.invocation.now_ms
    links = Links(work.providers, jobs.driver(), now_ms, report, lambda: jobs.is_stopped)
    return _Mirrors(links, Rounds(jobs.copier(), now_ms))


@dataclass(frozen=True)
class _Pass:
    """One pass: links, the records of mirrors, groups that read them, then what each cluster does to itself."""

    work: Work
    jobs: SparkJobs
    mirrors: _Mirrors
    names: Sequence[str]
    report: Callable[[Event], None]
    stop: Stop

    def done(self, *, is_asked: bool) -> Upkeep:
        now_ms = self.work.invocation.now_ms
        began_ms, before = now_ms(), self.jobs.tasks()
        found = answering(self.work)
        for lost in found.lost:
            for error in lost.errors:
                address = cluster_address(lost.cluster) if lost.cluster else Address(lost.name)
                self.report(ActionFailed(lost.name, address, error.message, error.hint))
        begun = tuple(self._begun(sources_first(found.inventories))) if MIRROR in self.names else ()
        is_due = MIRROR in self.names and not self.stop.is_requested
        brought = (
            synced(self.mirrors.rounds, found.inventories, self._is_wanted, self.report) if is_due else Round((), {})
        )
        linked = [outcome for one in begun if (outcome := self.mirrors.links.ended(one))]
        failed = [JobOutcome(MIRROR, cluster, 0.0, None, error) for cluster, error in brought.failed.items()]
        done = tuple(
            outcome
            for name in self._until_stopped(sorted(found.inventories))
            for outcome in self._tended(name, is_asked=is_asked)
        )
        seconds = max(0, now_ms() - began_ms) / 1000
        ran = self.jobs.ran_since(before)
        return Upkeep(
            brought.synced,
            (*found.lost, *linked, *failed, *done),
            seconds,
            is_stopped=self.stop.is_requested,
            left=brought.left,
            ran=ran,
        )

    def _begun(self, clusters: Iterable[str]) -> Iterator[Begun]:
        for name in self._until_stopped(clusters):
            yield self.mirrors.links.begun(name, self._is_wanted)

    def _tended(self, cluster: str, *, is_asked: bool) -> Iterator[JobOutcome]:
        is_named = tuple(self.names) != JOBS
        means = MaintenancePorts(self.jobs.spread, self._is_wanted, lambda: self.stop.is_requested, is_asked, is_named)
        jobs = self.work.providers[cluster].upkeep(means)
        names = self._until_stopped(self.names)
        return tended(cluster, jobs, names, now_ms=self.work.invocation.now_ms, report=self.report)

    def _until_stopped(self, given: Iterable[One]) -> Iterator[One]:
        for one in given:
            if self.stop.is_requested:
                return
            yield one

    def _is_wanted(self, address: Address) -> bool:
        targets, excludes = self.work.select.targets, self.work.select.excludes
        is_target = not targets or any(matches(pattern, address) for pattern in targets)
        return is_target and not any(matches(pattern, address) for pattern in excludes)
