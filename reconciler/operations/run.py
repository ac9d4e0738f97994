"""`run`: maintenance and mirrors, once or again and again, with the jobs of a pass in their order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from reconciler.applying.events import ActionDone, ActionFailed, ActionStarted, Event
from reconciler.errors import IncompleteError, ReconcilerError, RetryableError, UsageError, UserError
from reconciler.operations.mirrors.mirror_rounds import (
    JobOutcome,
    OtherLinks,
    Round,
    Rounds,
    Upkeep,
    sources_first,
)
from reconciler.operations.steps.jobs import SparkJobs
from reconciler.operations.steps.link_pass import LINK, LinkPass, bring_groups, sync_links
from reconciler.operations.steps.link_sides import LinkSynced, Pace
from reconciler.operations.steps.mount_jobs import progress_event
from reconciler.operations.steps.observe import observe
from reconciler.operations.steps.recorded import read_state
from reconciler.planning.checks.cluster_checks import moved_storage
from reconciler.providers.protocol import MaintenancePorts, Provider, Upkept, links_of
from reconciler.resources.address import Address, address_of, cluster_address, full_name_of, kind_of, matches
from reconciler.resources.mirrors import TASKS, MirrorSeen
from reconciler.resources.owners import ResourceOwner, owned_as
from reconciler.runtime.text import did_you_mean, nearest

if TYPE_CHECKING:
    from reconciler.jobs.progress import JobProgress
    from reconciler.operations.steps.runner import SiteOptions, Stop
    from reconciler.operations.steps.transitions import Driver
    from reconciler.operations.steps.workspace import Site
    from reconciler.resources.inventory import Inventory, Record
    from reconciler.state.snapshots import Snapshot


One = TypeVar("One")


def run_once(
    reach: SiteOptions,
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
    names = _chosen(only)
    site = _opened(reach)
    with SparkJobs(site.providers, site.spark, reach.invocation) as jobs, stop.ends(jobs.stop):
        return _Pass(reach, site, jobs, _mirrors(site, jobs, report), names, report, stop).done(is_asked=True)


def run_every(
    reach: SiteOptions,
    interval_s: float,
    *,
    only: Sequence[str] = (),
    report: Callable[[Event], None],
    stop: Stop,
) -> Iterator[Upkeep]:
    """Do passes until somebody asks to stop, `interval_s` from the end of one to the next, and yield what each did.

    The workspace, or the state that stands in for it, is opened once: it only says where clusters are.

    Raises:
        UsageError: `only` names a job there is not.
        UserError: The workspace cannot be opened, or a principal acts.
    """
    names = _chosen(only)
    site = _opened(reach)
    with SparkJobs(site.providers, site.spark, reach.invocation) as jobs, stop.ends(jobs.stop):
        mirrors = _mirrors(site, jobs, report)
        while not stop.is_requested:
            yield _Pass(reach, site, jobs, mirrors, names, report, stop).done(is_asked=bool(only))
            stop.wait(interval_s)


def _opened(reach: SiteOptions) -> Site:
    """Open the workspace for who may do upkeep: jobs delete and rewrite what topics hold, whoever may see them."""
    if reach.invocation.principal is not None:
        raise UserError("upkeep is done by the super user", hint="Leave --principal out.")
    return reach.site()


@dataclass(frozen=True)
class _Mirrors:
    """What keeps mirrors going: what one pass learned, the next one uses."""

    links: _Links
    rounds: Rounds


def _mirrors(site: Site, jobs: SparkJobs, report: Callable[[Event], None]) -> _Mirrors:
    now_ms = site.invocation.now_ms
    links = _Links(site.providers, jobs.driver(), now_ms, report, lambda: jobs.is_stopped)
    return _Mirrors(links, Rounds(jobs.copier(), now_ms))


@dataclass(frozen=True)
class _Pass:
    """One pass: links, the records of mirrors, groups that read them, then what each cluster does to itself."""

    reach: SiteOptions
    site: Site
    jobs: SparkJobs
    mirrors: _Mirrors
    names: Sequence[str]
    report: Callable[[Event], None]
    stop: Stop

    def done(self, *, is_asked: bool) -> Upkeep:
        now_ms = self.site.invocation.now_ms
        began_ms, before = now_ms(), self.jobs.tasks()
        found = _answering(self.site, is_stateless=self.reach.no_state)
        for lost in found.lost:
            for error in lost.errors:
                address = cluster_address(lost.cluster) if lost.cluster else Address(lost.name)
                self.report(ActionFailed(lost.name, address, error.message, error.hint))
        by_jobs = {
            name: inventory
            for name, inventory in found.inventories.items()
            if self.site.providers[name].capabilities.mirrors.by_jobs
        }
        begun = tuple(self._begun(sources_first(by_jobs), found.owners)) if MIRROR in self.names else ()
        left = {(one.over.cluster, each.link): each for one in begun for each in one.left}
        owned = {(cluster, name) for cluster, links in found.owners.items() for name in links}
        is_due = MIRROR in self.names and not self.stop.is_requested
        brought = Round((), {})
        if is_due:
            others = OtherLinks(owned, {place for place, each in left.items() if each.is_left})
            brought = _synced(self.mirrors.rounds, by_jobs, self._is_wanted, self.report, others)
        linked = [outcome for one in begun if (outcome := self.mirrors.links.ended(one))]
        failed = [JobOutcome(MIRROR, cluster, 0.0, None, error) for cluster, error in brought.failed.items()]
        done = tuple(self._tended(sorted(found.inventories), is_asked=is_asked))
        seconds = max(0, now_ms() - began_ms) / 1000
        ran = self.jobs.ran_since(before)
        return Upkeep(
            brought.synced,
            (*found.lost, *linked, *failed, *done),
            seconds,
            is_stopped=self.stop.is_requested,
            left=brought.left,
            ran=ran,
            others={
                address_of("link", cluster, name): (found.owners[cluster][name], each.left)
                for (cluster, name), each in sorted(left.items())
            },
        )

    def _begun(self, clusters: Iterable[str], owners: Mapping[str, LinkOwners]) -> Iterator[_Begun]:
        for name in self._until_stopped(clusters):
            yield self.mirrors.links.begun(name, self._is_wanted, owners[name])

    def _tended(self, clusters: Sequence[str], *, is_asked: bool) -> Iterator[JobOutcome]:
        is_named = tuple(self.names) != JOBS
        means = MaintenancePorts(self.jobs.spread, self._is_wanted, lambda: self.stop.is_requested, is_asked, is_named)
        jobs: dict[str, Mapping[str, Callable[[], Upkept]]] = {}
        last = [name for name in self.names if name == _REPLICAS]  # They follow what any cluster of the pass uploads.
        for names in ([name for name in self.names if name not in last], last):
            for cluster in self._until_stopped(clusters if names else ()):
                if cluster not in jobs:
                    begin = self.site.providers[cluster].maintenance
                    jobs[cluster] = {} if begin is None else begin(means)
                due = self._until_stopped(names)
                yield from _tended(cluster, jobs[cluster], due, now_ms=self.site.invocation.now_ms, report=self.report)

    def _until_stopped(self, given: Iterable[One]) -> Iterator[One]:
        for one in given:
            if self.stop.is_requested:
                return
            yield one

    def _is_wanted(self, address: Address) -> bool:
        targets, excludes = self.reach.select.targets, self.reach.select.excludes
        is_target = not targets or any(matches(pattern, address) for pattern in targets)
        return is_target and not any(matches(pattern, address) for pattern in excludes)


# The jobs of one pass. First all clusters are read; one that does not answer stops no other.


_OBSERVE: Final = "observe"
"""What an outcome calls the look that comes before all jobs."""
_STATE: Final = "state"
"""What it calls reading the state."""
_AT_ONCE: Final = 16

LinkOwners: TypeAlias = Mapping[str, ResourceOwner]
"""The other workspaces that own links of a cluster, by the name of the link."""


@dataclass(frozen=True, slots=True)
class _Answering:
    """The clusters that answered, by name, and why others did not."""

    inventories: Mapping[str, Inventory]
    lost: tuple[JobOutcome, ...]
    owners: Mapping[str, LinkOwners]
    """For each cluster that answered."""


def _answering(site: Site, *, is_stateless: bool) -> _Answering:
    """Read all clusters side by side. A cluster that is declared and not there yet is left out."""
    names, began_ms = site.to_read, site.invocation.now_ms()
    snapshot, lost = (None, []) if is_stateless else _recorded(site)
    recorded = snapshot.record if snapshot else {}
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="observe") as threads:
        answers = dict(zip(names, threads.map(lambda name: _asked(site, name, recorded), names), strict=True))
    found = {name: answer for name, answer in answers.items() if isinstance(answer, dict) and answer}
    errors = {name: answer for name, answer in answers.items() if isinstance(answer, ReconcilerError)}
    seconds = max(0, site.invocation.now_ms() - began_ms) / 1000
    lost += [JobOutcome(_OBSERVE, name, seconds, None, error) for name, error in sorted(errors.items())]
    me = site.me(snapshot.lineage if snapshot else "")
    ours = {address for address in (*site.desired, *recorded) if kind_of(address) == "link"}
    owners = {name: _owners(name, inventory, me, ours) for name, inventory in found.items()}
    return _Answering(found, tuple(lost), owners)


def _recorded(site: Site) -> tuple[Snapshot | None, list[JobOutcome]]:
    """Return what was applied: it tells a cluster that is lost from one that is not made yet."""
    try:
        return read_state(site), []
    except ReconcilerError as error:
        return None, [JobOutcome(_STATE, "", 0.0, None, error)]


def _owners(cluster: str, inventory: Inventory, me: ResourceOwner, ours: Collection[Address]) -> LinkOwners:
    """Return the other workspaces that own links of a cluster; what is declared or recorded here is ours to keep."""
    seen = inventory.get(cluster_address(cluster))
    owners = None if seen is None else seen.cluster.owners
    if owners is None:
        return {}
    links = {address for address in inventory if kind_of(address) == "link"} - set(ours)
    found = {full_name_of(address): owners.other(owned_as(address) or "", me) for address in sorted(links)}
    return {name: owner for name, owner in found.items() if owner is not None}


def _asked(site: Site, name: str, recorded: Record) -> Inventory | ReconcilerError:
    try:
        found = dict(observe(site.providers, [name], recorded, can_exclude=False).inventory)
    except ReconcilerError as error:
        return error
    seen = found.get(cluster_address(name))
    moved = None if seen is None else moved_storage(site.clusters[name], seen)
    if moved is not None:  # What was uploaded lies elsewhere: every job would go by half of what there is.
        return UserError(f"cluster {name}: {moved[0]}", hint=moved[1])
    return found


# The jobs of `run`, in the order in which a pass does them.


MIRROR: Final = "mirror"
_REPLICAS: Final = "replicas"
OF_CLUSTERS: Final = (
    "migrations",
    "deletions",
    "disablings",
    "recoveries",
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
    _REPLICAS,
)
"""What a platform does to itself; one that has no such job leaves it out. What was just uploaded may leave at once,
once a scrub has put again what object storage lost; what was unmounted is deleted here."""
JOBS: Final = (MIRROR, *OF_CLUSTERS)


def _chosen(only: Sequence[str]) -> tuple[str, ...]:
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


def _tended(
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


_LINK_JOB: Final = "link"
"""What an outcome calls it; it belongs to the job `mirror`."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """What came of the links of a cluster so far in a pass."""

    over: LinkPass
    changed: int = 0
    errors: tuple[ReconcilerError, ...] = ()
    due: frozenset[str] = frozenset()
    """Links whose groups are to be brought once records are copied."""
    seconds: float = 0.0
    failure: ReconcilerError | None = None
    left: tuple[LinkSynced, ...] = ()
    """Links of which something is left to their owners."""


@dataclass
class _Links:
    """The links of a workspace, pass after pass. What was done when is remembered as long as this is."""

    providers: Mapping[str, Provider]
    driver: Driver
    now_ms: Callable[[], int]
    report: Callable[[Event], None]
    is_stopped: Callable[[], bool]
    _pace: Pace = field(default_factory=Pace)

    def begun(self, cluster: str, is_wanted: Callable[[Address], bool], owners: LinkOwners) -> _Begun:
        """Do what comes before records are copied: whether sources are reached, mirrors made, shaped and driven on.

        What fails for one link, or one mirror of it, is said and stops no other.
        """

        def is_chosen(name: str) -> bool:
            return not self.is_stopped() and self._is_chosen(cluster, name, is_wanted)

        over = LinkPass(cluster, self.providers, self._pace, self.now_ms, owners)
        return self._with(_Begun(over), sync_links(over, self.driver, is_chosen))

    def ended(self, begun: _Begun) -> JobOutcome | None:
        """Bring groups to where their mirrors are by now, and return what came of it all; `None`: nothing was due."""
        links = bring_groups(begun.over, () if self.is_stopped() else begun.due)
        done = self._with(begun, links)
        if not (done.changed or done.errors or done.failure):
            return None
        upkept = Upkept("change", done.changed, failed=len(done.errors), errors=done.errors)
        return JobOutcome(_LINK_JOB, done.over.cluster, done.seconds, upkept, done.failure)

    def _with(self, begun: _Begun, links: Iterator[LinkSynced]) -> _Begun:
        """Go through links and add what came of them."""
        cluster, began_ms, failure = begun.over.cluster, self.now_ms(), begun.failure
        done: list[LinkSynced] = []
        try:
            done.extend(links)
        except ReconcilerError as error:
            failure = error
            self.report(ActionFailed(f"{_LINK_JOB}:{cluster}", cluster_address(cluster), error.message, error.hint))
        return replace(
            begun,
            changed=begun.changed + sum(sum(link.done.values()) + len(link.drove) for link in done),
            errors=(*begun.errors, *(error for link in done for error in self._told(link))),
            due=frozenset(link.link for link in done if link.are_groups_due),
            seconds=begun.seconds + max(0, self.now_ms() - began_ms) / 1000,
            failure=failure,
            left=(*begun.left, *(link for link in done if link.left)),
        )

    def _is_chosen(self, cluster: str, link: str, is_wanted: Callable[[Address], bool]) -> bool:
        """Tell whether a link was selected, or a mirror of it."""
        if is_wanted(address_of("link", cluster, link)):
            return True
        mirrors = links_of(self.providers[cluster]).mirrors(link)
        return any(is_wanted(address_of("mirror", cluster, mirror.name)) for mirror in mirrors)

    def _told(self, link: LinkSynced) -> Sequence[ReconcilerError]:
        """Say what a pass over a link came to; what it is about goes before each error."""
        whole = address_of("link", link.cluster, link.link)
        for name in link.drove:
            address = address_of("mirror", link.cluster, name)
            self.report(ActionDone(f"{_LINK_JOB}:{address}", address, 0.0))
        errors = []
        for what, error in link.errors.items():
            is_mirror = what != LINK and what not in TASKS
            address = address_of("mirror", link.cluster, what) if is_mirror else whole
            about = address if is_mirror or what == LINK else f"{address}, {what}"
            errors.append(self._of_pass(about, error))
            self.report(ActionFailed(f"{_LINK_JOB}:{address}", address, errors[-1].message, error.hint))
        return errors

    def _of_pass(self, about: str, error: ReconcilerError) -> ReconcilerError:
        """Return an error that says what it is about. What only cannot end yet is not what somebody stopped."""
        said = copy(error)
        if isinstance(error, IncompleteError) and not self.is_stopped():
            said = RetryableError(error.message, hint=error.hint)
        said.message = f"{about}: {error.message}"
        return said


# The job `mirror`: every live mirror is brought to its source's end as it was when the round began, side by side.


def _synced(
    rounds: Rounds,
    clusters: Iterable[str],
    is_wanted: Callable[[Address], bool],
    report: Callable[[Event], None],
    others: OtherLinks,
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

    done = rounds.once(clusters, is_wanted, started, others)
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
