"""`run --once`: upkeep of what the clusters hold. Holds no lease: each swap of a partition is its own safety."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.applying.events import ActionDone, ActionFailed, ActionStarted
from reconciler.errors import IncompleteError, PartialError, ReconcilerError, UsageError
from reconciler.resources.address import Address, address_of, kind_of, matches, rank
from reconciler.resources.mirrorlink import MirrorTopic
from reconciler.workflow.jobs import SparkJobs
from reconciler.workflow.observing import observe
from reconciler.workflow.opening import open_work
from reconciler.workflow.reading import read_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from reconciler.applying.events import Event
    from reconciler.workflow.invocation import Invocation, Select
    from reconciler.workflow.opening import Work
    from reconciler.workflow.stopping import Stop

JOBS: Final = ("mirror",)
_LIVE: Final = "ACTIVE"


@dataclass(frozen=True, slots=True)
class Synced:
    """One mirror that was brought to its source's end, or the error that kept it from there."""

    address: Address
    records: int
    bytes: int
    seconds: float
    error: ReconcilerError | None = None


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Everything one pass did."""

    synced: tuple[Synced, ...]
    verdict: ReconcilerError | None


def run_once(
    invocation: Invocation,
    select: Select,
    *,
    only: Sequence[str] = (),
    report: Callable[[Event], None],
    stop: Stop,
) -> Upkeep:
    """Bring every mirror of the observed clusters to its source's end as it is when its turn comes.

    Raises:
        UsageError: `only` names a job there is not.
        RetryableError: A cluster cannot be read.
    """
    for name in only:
        if name not in JOBS:
            raise UsageError(f"there is no job {name!r}", hint=f"Jobs: {', '.join(JOBS)}.")
    work = open_work(invocation, select)
    mirrors = _live_mirrors(work)
    jobs = SparkJobs(work.providers, work.loaded.workspace.spec.spark, invocation.environ)
    with jobs, stop.ends(jobs.stop):
        synced = tuple(_sync(invocation, jobs, mirror, report) for mirror in _until(stop, mirrors))
    return Upkeep(synced, _verdict(synced, len(mirrors)))


def _until(stop: Stop, mirrors: Sequence[MirrorTopic]) -> Iterator[MirrorTopic]:
    for mirror in mirrors:
        if stop.is_requested:
            return
        yield mirror


def _live_mirrors(work: Work) -> list[MirrorTopic]:
    names = work.to_read
    snapshot = read_state(work)
    observed = observe(work.providers, names, snapshot.record if snapshot else {}).inventory
    return [
        found.resource
        for address, found in sorted(observed.items(), key=lambda item: rank(item[0]))
        if isinstance(found.resource, MirrorTopic) and found.state in {None, _LIVE} and _is_wanted(work, address)
    ]


def _is_wanted(work: Work, address: Address) -> bool:
    targets, excludes = work.select.targets, work.select.excludes
    is_target = not targets or any(matches(pattern, address) for pattern in targets)
    return kind_of(address) == "mirror" and is_target and not any(matches(pattern, address) for pattern in excludes)


def _sync(invocation: Invocation, jobs: SparkJobs, mirror: MirrorTopic, report: Callable[[Event], None]) -> Synced:
    name = f"mirror:{mirror.address}"
    source = address_of("topic", mirror.source_cluster, mirror.source)
    began_ms = invocation.now_ms()
    report(ActionStarted(name, mirror.address))
    try:
        moved = jobs.mirror(name, (source, mirror.address), report)
    except ReconcilerError as error:
        report(ActionFailed(name, mirror.address, error.message, error.hint))
        return Synced(mirror.address, 0, 0, _seconds(invocation, began_ms), error)
    seconds = _seconds(invocation, began_ms)
    report(ActionDone(name, mirror.address, seconds, moved.records, moved.bytes))
    return Synced(mirror.address, moved.records, moved.bytes, seconds)


def _seconds(invocation: Invocation, began_ms: int) -> float:
    return max(0, invocation.now_ms() - began_ms) / 1000


def _verdict(synced: Sequence[Synced], wanted: int) -> ReconcilerError | None:
    errors = [row.error for row in synced if row.error is not None]
    if len(synced) < wanted or any(isinstance(error, IncompleteError) for error in errors):
        return IncompleteError("stopped: not every mirror is at its source's end", hint="Run it again.")
    if errors:
        names = ", ".join(row.address for row in synced if row.error is not None)
        return PartialError(f"{len(errors)} of {wanted} mirrors failed: {names}", hint="Mend the cause and run again.")
    return None
