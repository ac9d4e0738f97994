"""The jobs of `run`, in the order of a pass."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from reconciler.applying.events import ActionDone, ActionFailed, ActionStarted, Event
from reconciler.errors import IncompleteError, ReconcilerError, RetryableError, UsageError, UserError
from reconciler.operations.mirrors.mirror_rounds import JobOutcome, Round, Rounds
from reconciler.operations.steps.link_pass import LINK, bring_groups, sync_links
from reconciler.operations.steps.link_sides import LinkSynced, Pace
from reconciler.operations.steps.mount_jobs import progress_event
from reconciler.operations.steps.observe import observe
from reconciler.operations.steps.recorded import read_state
from reconciler.planning.checks.cluster_checks import moved_storage
from reconciler.providers.protocol import Provider, Upkept
from reconciler.resources.address import Address, address_of, cluster_address
from reconciler.resources.mirrors import TASKS, MirrorSeen
from reconciler.runtime.text import did_you_mean, nearest

if TYPE_CHECKING:
    from reconciler.jobs.progress import JobProgress
    from reconciler.operations.steps.transitions import Driver
    from reconciler.operations.steps.workspace import Work
    from reconciler.resources.inventory import Inventory, Record


OBSERVE: Final = "observe"
"""What an outcome calls the look that comes before all jobs."""
STATE: Final = "state"
"""What it calls reading the state."""
_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Answering:
    """The clusters that answered, by name, and why others did not."""

    inventories: Mapping[str, Inventory]
    lost: tuple[JobOutcome, ...]


def answering(work: Work) -> Answering:
    """Read all clusters side by side. A cluster that is declared and not there yet is left out."""
    names, began_ms = work.to_read, work.invocation.now_ms()
    recorded, lost = _recorded(work)
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="observe") as threads:
        answers = dict(zip(names, threads.map(lambda name: _asked(work, name, recorded), names), strict=True))
    found = {name: answer for name, answer in answers.items() if isinstance(answer, dict) and answer}
    errors = {name: answer for name, answer in answers.items() if isinstance(answer, ReconcilerError)}
    seconds = max(0, work.invocation.now_ms() - began_ms) / 1000
    lost += [JobOutcome(OBSERVE, name, seconds, None, error) for name, error in sorted(errors.items())]
    return Answering(found, tuple(lost))


def _recorded(work: Work) -> tuple[Record, list[JobOutcome]]:
    """Return what was applied: it tells a cluster that is lost from one that is not made yet."""
    try:
        snapshot = read_state(work)
    except ReconcilerError as error:
        return {}, [JobOutcome(STATE, "", 0.0, None, error)]
    return snapshot.record if snapshot else {}, []


def _asked(work: Work, name: str, recorded: Record) -> Inventory | ReconcilerError:
    try:
        found = dict(observe(work.providers, [name], recorded, can_exclude=False).inventory)
    except ReconcilerError as error:
        return error
    seen = found.get(cluster_address(name))
    moved = None if seen is None else moved_storage(work.clusters[name], seen)
    if moved is not None:  # What was uploaded lies elsewhere: every job would go by half of what there is.
        return UserError(f"cluster {name}: {moved[0]}", hint=moved[1])
    return found


# The jobs of `run`, in the order in which a pass does them.


MIRROR: Final = "mirror"
OF_CLUSTERS: Final = (
    "migrations",
    "deletions",
    "disablings",
    "recoveries",
    "replicas",
    "rewrites",
    "transactions",
    "roll",
    "upload",
    "scrub",
    "retention",
    "compact",
    "merge",
    "metadata",
    "sweep",
)
"""What a platform does to itself; one that has no such job leaves it out. What was just uploaded may leave at once,
once a scrub has put again what object storage lost; what was unmounted is deleted here."""
JOBS: Final = (MIRROR, *OF_CLUSTERS)


def chosen(only: Sequence[str]) -> tuple[str, ...]:
    """Return the jobs to do, in order; nothing named is all of them.

    Raises:
        UsageError: There is no such job.
    """
    for name in only:
        if name not in JOBS:
            hint = did_you_mean(nearest(name, JOBS), then=f"Jobs: {', '.join(JOBS)}.")
            raise UsageError(f"there is no job {name!r}", hint=hint)
    return tuple(name for name in JOBS if not only or name in only)


# The jobs that clusters do to themselves, one after the other; one that fails does not stop the next.


def tended(
    cluster: str,
    jobs: Mapping[str, Callable[[], Upkept]],
    names: Iterable[str],
    *,
    now_ms: Callable[[], int],
    report: Callable[[Event], None],
) -> Iterator[JobOutcome]:
    """Do the named jobs of one cluster, those it has, and yield what came of each."""
    for name in names:
        if name in jobs:
            yield _done(name, cluster, jobs[name], now_ms, report)


def _done(
    name: str, cluster: str, do: Callable[[], Upkept], now_ms: Callable[[], int], report: Callable[[Event], None]
) -> JobOutcome:
    event, address, began_ms = f"{name}:{cluster}", cluster_address(cluster), now_ms()
    upkept: Upkept | None = None
    failure: ReconcilerError | None = None
    report(ActionStarted(event, address))
    try:
        upkept = do()
    except ReconcilerError as error:
        failure = error
    outcome = JobOutcome(name, cluster, max(0, now_ms() - began_ms) / 1000, upkept, failure)
    for first in outcome.errors[:1]:
        more = f" ({outcome.failed - 1} more failed)" if outcome.failed > 1 else ""
        report(ActionFailed(event, address, f"{first.message}{more}", first.hint))
    if upkept is not None and not outcome.errors:
        report(ActionDone(event, address, outcome.seconds, upkept.records, upkept.bytes))
    return outcome


# Links kept going by a pass of `run`: their tasks that are due, and transitions that somebody began, driven on.
#
# Groups come last, after the records that they go on from: `begun`, copy, `ended`.


JOB: Final = "link"
"""What an outcome calls it; it belongs to the job `mirror`."""


@dataclass(frozen=True, slots=True)
class Begun:
    """What came of the links of a cluster so far in a pass."""

    cluster: str
    changed: int = 0
    errors: tuple[ReconcilerError, ...] = ()
    due: frozenset[str] = frozenset()
    """Links whose groups are to be brought once records are copied."""
    seconds: float = 0.0
    failure: ReconcilerError | None = None


@dataclass
class Links:
    """The links of a workspace, pass after pass. What was done when is remembered as long as this is."""

    providers: Mapping[str, Provider]
    driver: Driver
    now_ms: Callable[[], int]
    report: Callable[[Event], None]
    is_stopped: Callable[[], bool]
    _pace: Pace = field(default_factory=Pace)

    def begun(self, cluster: str, is_wanted: Callable[[Address], bool]) -> Begun:
        """Do what comes before records are copied: whether sources are reached, mirrors made, shaped and driven on.

        What fails for one link, or one mirror of it, is said and stops no other.
        """
        return self._with(Begun(cluster), self._synced(cluster, is_wanted))

    def ended(self, begun: Begun) -> JobOutcome | None:
        """Bring groups to where their mirrors are by now, and return what came of it all; `None`: nothing was due."""
        due = () if self.is_stopped() else begun.due
        done = self._with(begun, bring_groups(begun.cluster, self.providers, self._pace, self.now_ms, due))
        if not (done.changed or done.errors or done.failure):
            return None
        upkept = Upkept("change", done.changed, failed=len(done.errors), errors=done.errors)
        return JobOutcome(JOB, done.cluster, done.seconds, upkept, done.failure)

    def _with(self, begun: Begun, links: Iterator[LinkSynced]) -> Begun:
        """Go through links and add what came of them."""
        cluster, began_ms, failure = begun.cluster, self.now_ms(), begun.failure
        done: list[LinkSynced] = []
        try:
            done.extend(links)
        except ReconcilerError as error:
            failure = error
            self.report(ActionFailed(f"{JOB}:{cluster}", cluster_address(cluster), error.message, error.hint))
        return Begun(
            cluster,
            begun.changed + sum(sum(link.done.values()) + len(link.drove) for link in done),
            (*begun.errors, *(error for link in done for error in self._told(link))),
            frozenset(link.link for link in done if link.are_groups_due),
            begun.seconds + max(0, self.now_ms() - began_ms) / 1000,
            failure,
        )

    def _synced(self, cluster: str, is_wanted: Callable[[Address], bool]) -> Iterator[LinkSynced]:
        def is_chosen(name: str) -> bool:
            return not self.is_stopped() and self._is_chosen(cluster, name, is_wanted)

        return sync_links(cluster, self.providers, self._pace, self.now_ms, driver=self.driver, is_wanted=is_chosen)

    def _is_chosen(self, cluster: str, link: str, is_wanted: Callable[[Address], bool]) -> bool:
        """Tell whether a link was selected, or a mirror of it."""
        if is_wanted(address_of("link", cluster, link)):
            return True
        mirrors = self.providers[cluster].links.mirrors(link)
        return any(is_wanted(address_of("mirror", cluster, mirror.name)) for mirror in mirrors)

    def _told(self, link: LinkSynced) -> Sequence[ReconcilerError]:
        """Say what a pass over a link came to; what it is about goes before each error."""
        whole = address_of("link", link.cluster, link.link)
        for name in link.drove:
            address = address_of("mirror", link.cluster, name)
            self.report(ActionDone(f"{JOB}:{address}", address, 0.0))
        errors = []
        for what, error in link.errors.items():
            is_mirror = what != LINK and what not in TASKS
            address = address_of("mirror", link.cluster, what) if is_mirror else whole
            about = address if is_mirror or what == LINK else f"{address}, {what}"
            errors.append(self._of_pass(about, error))
            self.report(ActionFailed(f"{JOB}:{address}", address, errors[-1].message, error.hint))
        return errors

    def _of_pass(self, about: str, error: ReconcilerError) -> ReconcilerError:
        """Return an error that says what it is about. What only cannot end yet is not what somebody stopped."""
        said = copy(error)
        if isinstance(error, IncompleteError) and not self.is_stopped():
            said = RetryableError(error.message, hint=error.hint)
        said.message = f"{about}: {error.message}"
        return said


# The job `mirror`: every live mirror is brought to its source's end as it was when the round began, side by side.


def synced(
    rounds: Rounds, clusters: Iterable[str], is_wanted: Callable[[Address], bool], report: Callable[[Event], None]
) -> Round:
    """Do one round and return what came of every mirror; told are those of which there was anything to copy."""
    told: set[str] = set()
    one_at_a_time = threading.Lock()

    def say(event: Event) -> None:
        with one_at_a_time:
            report(event)

    def started(mirror: MirrorSeen) -> Callable[[JobProgress], None]:
        address = address_of("mirror", mirror.cluster, mirror.name)
        told.add(address)
        say(ActionStarted(_name(address), address))
        return lambda found: say(progress_event(_name(address), found))

    done = rounds.once(clusters, is_wanted, started)
    for one in done.synced:
        if one.error is not None:
            say(ActionFailed(_name(one.address), one.address, one.error.message, one.error.hint))
        elif one.address in told:
            say(ActionDone(_name(one.address), one.address, one.seconds, one.records, one.bytes))
    for cluster, error in done.failed.items():
        say(ActionFailed(f"{MIRROR}:{cluster}", cluster_address(cluster), error.message, error.hint))
    return done


def _name(address: Address) -> str:
    return f"mirror:{address}"
