"""`run`: maintenance and mirrors, once or repeatedly."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from reconciler.applying.events import ActionDone, ActionFailed, ActionStarted, Event
from reconciler.errors import IncompleteError, ReconcilerError, RetryableError, UsageError, UserError
from reconciler.operations.mirrors.mirror_rounds import (
    JobOutcome,
    MirrorRounds,
    OtherLinks,
    PassResult,
    RoundResult,
    sort_sources_first,
)
from reconciler.operations.steps.jobs import SparkJobs
from reconciler.operations.steps.link_pass import LINK, LinkPass, sync_link_groups, sync_links
from reconciler.operations.steps.link_sides import LinkMemory, LinkOutcome
from reconciler.operations.steps.mount_jobs import build_progress_event
from reconciler.operations.steps.observe import observe
from reconciler.operations.steps.recorded import read_state
from reconciler.planning.checks.cluster_checks import explain_moved_storage
from reconciler.providers.protocol import MaintenanceJobResult, MaintenancePorts, Provider, require_links
from reconciler.resources.address import Address, address_of, cluster_address, full_name_of, kind_of, matches_pattern
from reconciler.resources.mirrors import TASKS, ObservedMirror
from reconciler.resources.owners import ResourceOwner, build_owner_key
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.text import find_similar, format_suggestion

if TYPE_CHECKING:
    from reconciler.jobs.progress import JobProgress
    from reconciler.operations.steps.runner import SiteOptions, Stop
    from reconciler.operations.steps.transitions import TransitionDriver
    from reconciler.operations.steps.workspace import Site
    from reconciler.resources.inventory import Inventory, Record
    from reconciler.state.snapshots import Snapshot


One = TypeVar("One")


def run_once(
    reach: SiteOptions, *, only: Sequence[str] = (), report: Callable[[Event], None], stop: Stop
) -> PassResult:
    """Run all jobs, or those in `only`, once on all clusters."""
    names = _select_jobs(only)
    site = _open_site(reach)
    with SparkJobs(site.providers, site.spark, reach.invocation) as jobs, stop.call_on_stop(jobs.stop):
        return _MaintenancePass(
            reach, site, jobs, _build_mirror_work(site, jobs, report), names, report, stop
        ).run_pass(is_asked=True)


def run_repeatedly(
    reach: SiteOptions, interval_s: float, *, only: Sequence[str] = (), report: Callable[[Event], None], stop: Stop
) -> Iterator[PassResult]:
    """Run a pass every `interval_s` seconds until stopped, and yield the results."""
    names = _select_jobs(only)
    site = _open_site(reach)
    with SparkJobs(site.providers, site.spark, reach.invocation) as jobs, stop.call_on_stop(jobs.stop):
        mirrors = _build_mirror_work(site, jobs, report)
        while not stop.is_requested:
            yield _MaintenancePass(reach, site, jobs, mirrors, names, report, stop).run_pass(is_asked=bool(only))
            stop.wait(interval_s)


def _open_site(reach: SiteOptions) -> Site:
    if reach.invocation.principal is not None:
        raise UserError("maintenance is done by the super user", hint="Leave --principal out.")
    return reach.open_site()


@dataclass(frozen=True)
class _MirrorWork:
    links: _LinkRunner
    rounds: MirrorRounds


def _build_mirror_work(site: Site, jobs: SparkJobs, report: Callable[[Event], None]) -> _MirrorWork:
    now_ms = site.invocation.now_ms
    links = _LinkRunner(site.providers, jobs.build_driver(), now_ms, report, lambda: jobs.is_stopped)
    return _MirrorWork(links, MirrorRounds(jobs.build_copier(), now_ms))


@dataclass(frozen=True)
class _MaintenancePass:
    reach: SiteOptions
    site: Site
    jobs: SparkJobs
    mirrors: _MirrorWork
    names: Sequence[str]
    report: Callable[[Event], None]
    stop: Stop

    def run_pass(self, *, is_asked: bool) -> PassResult:
        now_ms = self.site.invocation.now_ms
        began_ms, before = now_ms(), self.jobs.count_tasks()
        answers = _read_clusters(self.site, is_stateless=self.reach.no_state)
        for failure in answers.lost:
            for error in failure.errors:
                address = cluster_address(failure.cluster) if failure.cluster else Address(failure.name)
                self.report(ActionFailed(failure.name, address, error.message, error.hint))
        by_jobs = {
            name: inventory
            for name, inventory in answers.inventories.items()
            if self.site.providers[name].capabilities.mirrors.by_jobs
        }
        starts = tuple(self._start_links(sort_sources_first(by_jobs), answers.owners)) if MIRROR in self.names else ()
        left = {(start.link_pass.cluster, link.link): link for start in starts for link in start.left}
        owned = {(cluster, name) for cluster, links in answers.owners.items() for name in links}
        is_due = MIRROR in self.names and not self.stop.is_requested
        mirror_round = RoundResult((), {})
        if is_due:
            others = OtherLinks(owned, {place for place, link in left.items() if link.is_left})
            mirror_round = _copy_mirrors(self.mirrors.rounds, by_jobs, self._is_selected, self.report, others)
        linked = [outcome for start in starts if (outcome := self.mirrors.links.finish_links(start))]
        failed = [JobOutcome(MIRROR, cluster, 0.0, error=error) for cluster, error in mirror_round.failed.items()]
        done = tuple(self._run_jobs(sorted(answers.inventories), is_asked=is_asked))
        seconds = max(0, now_ms() - began_ms) / 1000
        ran = self.jobs.get_execution_since(before)
        return PassResult(
            mirror_round.synced,
            (*answers.lost, *linked, *failed, *done),
            seconds,
            is_stopped=self.stop.is_requested,
            left=mirror_round.left,
            ran=ran,
            others={
                address_of("link", cluster, name): (answers.owners[cluster][name], link.left)
                for (cluster, name), link in sorted(left.items())
            },
        )

    def _start_links(self, clusters: Iterable[str], owners: Mapping[str, LinkOwners]) -> Iterator[_LinkStart]:
        for name in self._yield_until_stop(clusters):
            yield self.mirrors.links.begin_links(name, self._is_selected, owners[name])

    def _run_jobs(self, clusters: Sequence[str], *, is_asked: bool) -> Iterator[JobOutcome]:
        is_named = tuple(self.names) != JOBS
        means = MaintenancePorts(
            self.jobs.run_distributed, self._is_selected, lambda: self.stop.is_requested, is_asked, is_named
        )
        jobs: dict[str, Mapping[str, Callable[[], MaintenanceJobResult]]] = {}
        # Replicas come last, because they copy this pass's uploads of all clusters.
        last = [name for name in self.names if name == _REPLICAS]
        for names in ([name for name in self.names if name not in last], last):
            for cluster in self._yield_until_stop(clusters if names else ()):
                if cluster not in jobs:
                    begin = self.site.providers[cluster].maintenance
                    jobs[cluster] = {} if begin is None else begin(means)
                due = self._yield_until_stop(names)
                yield from _run_jobs(
                    cluster, jobs[cluster], due, now_ms=self.site.invocation.now_ms, report=self.report
                )

    def _yield_until_stop(self, items: Iterable[One]) -> Iterator[One]:
        for item in items:
            if self.stop.is_requested:
                return
            yield item

    def _is_selected(self, address: Address) -> bool:
        targets, excludes = self.reach.select.targets, self.reach.select.excludes
        is_target = not targets or any(matches_pattern(pattern, address) for pattern in targets)
        return is_target and not any(matches_pattern(pattern, address) for pattern in excludes)


_OBSERVE: Final = "observe"
_STATE: Final = "state"
_AT_ONCE: Final = 16

LinkOwners: TypeAlias = Mapping[str, ResourceOwner]


@dataclass(frozen=True, slots=True)
class _ClusterReadings:
    inventories: Mapping[str, Inventory]
    lost: tuple[JobOutcome, ...]
    owners: Mapping[str, LinkOwners]


def _read_clusters(site: Site, *, is_stateless: bool) -> _ClusterReadings:
    names, began_ms = site.clusters_to_read, site.invocation.now_ms()
    snapshot, lost = (None, []) if is_stateless else _read_recorded(site)
    recorded = snapshot.record if snapshot else {}
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="observe") as threads:
        answers = dict(zip(names, threads.map(lambda name: _read_inventory(site, name, recorded), names), strict=True))
    inventories = {name: answer for name, answer in answers.items() if isinstance(answer, dict) and answer}
    errors = {name: answer for name, answer in answers.items() if isinstance(answer, ReconcilerError)}
    seconds = max(0, site.invocation.now_ms() - began_ms) / 1000
    lost += [JobOutcome(_OBSERVE, name, seconds, error=error) for name, error in sorted(errors.items())]
    me = site.make_owner(snapshot.lineage if snapshot else "")
    ours = {address for address in (*site.desired, *recorded) if kind_of(address) == "link"}
    owners = {name: _find_foreign_owners(name, inventory, me, ours) for name, inventory in inventories.items()}
    return _ClusterReadings(inventories, tuple(lost), owners)


def _read_recorded(site: Site) -> tuple[Snapshot | None, list[JobOutcome]]:
    try:
        return read_state(site), []
    except ReconcilerError as error:
        return None, [JobOutcome(_STATE, "", 0.0, error=error)]


def _find_foreign_owners(
    cluster: str, inventory: Inventory, me: ResourceOwner, ours: Collection[Address]
) -> LinkOwners:
    seen = inventory.get(cluster_address(cluster))
    owners = None if seen is None else seen.cluster.owners
    if owners is None:
        return {}
    links = {address for address in inventory if kind_of(address) == "link"} - set(ours)
    owner_by_name = {
        full_name_of(address): owners.find_other_owner(build_owner_key(address) or "", me) for address in sorted(links)
    }
    return {name: owner for name, owner in owner_by_name.items() if owner is not None}


def _read_inventory(site: Site, name: str, recorded: Record) -> Inventory | ReconcilerError:
    try:
        inventory = dict(observe(site.providers, [name], recorded, can_exclude=False).inventory)
    except ReconcilerError as error:
        return error
    seen = inventory.get(cluster_address(name))
    moved = None if seen is None else explain_moved_storage(site.clusters[name], seen)
    if moved is not None:
        return UserError(f"cluster {name}: {moved[0]}", hint=moved[1])
    return inventory


MIRROR: Final = "mirror"
_REPLICAS: Final = "replicas"
CLUSTER_JOBS: Final = (
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
"""Jobs in order: scrub restores lost objects before retention. Platforms skip unsupported jobs."""
JOBS: Final = (MIRROR, *CLUSTER_JOBS)


def _select_jobs(only: Sequence[str]) -> tuple[str, ...]:
    for name in only:
        if name not in JOBS:
            hint = format_suggestion(find_similar(name, JOBS), then=f"Jobs: {', '.join(JOBS)}.")
            raise UsageError(f"there is no job {name!r}", hint=hint)
    return tuple(name for name in JOBS if not only or name in only)


def _run_jobs(
    cluster: str,
    jobs: Mapping[str, Callable[[], MaintenanceJobResult]],
    names: Iterable[str],
    *,
    now_ms: Callable[[], int],
    report: Callable[[Event], None],
) -> Iterator[JobOutcome]:
    for name in names:
        if name in jobs:
            yield _run_job(name, cluster, jobs[name], now_ms, report)


def _run_job(
    name: str,
    cluster: str,
    do: Callable[[], MaintenanceJobResult],
    now_ms: Callable[[], int],
    report: Callable[[Event], None],
) -> JobOutcome:
    event, address, began_ms = f"{name}:{cluster}", cluster_address(cluster), now_ms()
    upkept = MaintenanceJobResult()
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
    if not outcome.errors:
        report(ActionDone(event, address, outcome.seconds, upkept.records, upkept.bytes))
    return outcome


# Links run before and after the copy, because groups need the records at their offsets.


_LINK_JOB: Final = "link"


@dataclass(frozen=True, slots=True)
class _LinkStart:
    link_pass: LinkPass
    changed: int = 0
    errors: tuple[ReconcilerError, ...] = ()
    due: frozenset[str] = frozenset()
    seconds: float = 0.0
    failure: ReconcilerError | None = None
    left: tuple[LinkOutcome, ...] = ()


@dataclass
class _LinkRunner:
    providers: Mapping[str, Provider]
    driver: TransitionDriver
    now_ms: Callable[[], int]
    report: Callable[[Event], None]
    is_stopped: Callable[[], bool]
    _pace: LinkMemory = field(default_factory=LinkMemory)

    def begin_links(self, cluster: str, is_wanted: Callable[[Address], bool], owners: LinkOwners) -> _LinkStart:
        def is_chosen(name: str) -> bool:
            return not self.is_stopped() and self._is_link_chosen(cluster, name, is_wanted)

        link_pass = LinkPass(cluster, self.providers, self._pace, self.now_ms, owners)
        return self._add_link_results(_LinkStart(link_pass), sync_links(link_pass, self.driver, is_chosen))

    def finish_links(self, start: _LinkStart) -> JobOutcome | None:
        links = sync_link_groups(start.link_pass, () if self.is_stopped() else start.due)
        done = self._add_link_results(start, links)
        if not (done.changed or done.errors or done.failure):
            return None
        upkept = MaintenanceJobResult("change", done.changed, failed=len(done.errors), errors=done.errors)
        return JobOutcome(_LINK_JOB, done.link_pass.cluster, done.seconds, upkept, done.failure)

    def _add_link_results(self, start: _LinkStart, links: Iterator[LinkOutcome]) -> _LinkStart:
        cluster, began_ms, failure = start.link_pass.cluster, self.now_ms(), start.failure
        done: list[LinkOutcome] = []
        try:
            done.extend(links)
        except ReconcilerError as error:
            failure = error
            self.report(ActionFailed(f"{_LINK_JOB}:{cluster}", cluster_address(cluster), error.message, error.hint))
        return replace(
            start,
            changed=start.changed + sum(sum(link.done.values()) + len(link.drove) for link in done),
            errors=(*start.errors, *(error for link in done for error in self._report_link(link))),
            due=frozenset(link.link for link in done if link.are_groups_due),
            seconds=start.seconds + max(0, self.now_ms() - began_ms) / 1000,
            failure=failure,
            left=(*start.left, *(link for link in done if link.left)),
        )

    def _is_link_chosen(self, cluster: str, link: str, is_wanted: Callable[[Address], bool]) -> bool:
        if is_wanted(address_of("link", cluster, link)):
            return True
        mirrors = require_links(self.providers[cluster]).list_mirrors(link)
        return any(is_wanted(address_of("mirror", cluster, mirror.name)) for mirror in mirrors)

    def _report_link(self, link: LinkOutcome) -> Sequence[ReconcilerError]:
        whole = address_of("link", link.cluster, link.link)
        for name in link.drove:
            address = address_of("mirror", link.cluster, name)
            self.report(ActionDone(f"{_LINK_JOB}:{address}", address, 0.0))
        errors = []
        for what, error in link.errors.items():
            is_mirror = what != LINK and what not in TASKS
            address = address_of("mirror", link.cluster, what) if is_mirror else whole
            about = address if is_mirror or what == LINK else f"{address}, {what}"
            errors.append(self._prefix_error(about, error))
            self.report(ActionFailed(f"{_LINK_JOB}:{address}", address, errors[-1].message, error.hint))
        return errors

    def _prefix_error(self, about: str, error: ReconcilerError) -> ReconcilerError:
        copied_error = copy(error)
        if isinstance(error, IncompleteError) and not self.is_stopped():
            copied_error = RetryableError(error.message, hint=error.hint)
        copied_error.message = f"{about}: {error.message}"
        return copied_error


def _copy_mirrors(
    rounds: MirrorRounds,
    clusters: Iterable[str],
    is_wanted: Callable[[Address], bool],
    report: Callable[[Event], None],
    others: OtherLinks,
) -> RoundResult:
    started_mirrors: set[str] = set()
    one_at_a_time = threading.Lock()

    def report_event(event: Event) -> None:
        with one_at_a_time:
            report(event)

    def start_mirror(mirror: ObservedMirror) -> Callable[[JobProgress], None]:
        address = address_of("mirror", mirror.cluster, mirror.name)
        started_mirrors.add(address)
        report_event(ActionStarted(_make_event_name(address), address))
        return lambda progress: report_event(build_progress_event(_make_event_name(address), progress))

    done = rounds.run_round(clusters, is_wanted, start_mirror, others)
    for outcome in done.synced:
        if outcome.error is not None:
            report_event(
                ActionFailed(
                    _make_event_name(outcome.address), outcome.address, outcome.error.message, outcome.error.hint
                )
            )
        elif outcome.address in started_mirrors:
            report_event(
                ActionDone(
                    _make_event_name(outcome.address), outcome.address, outcome.seconds, outcome.records, outcome.bytes
                )
            )
    for cluster, error in done.failed.items():
        report_event(ActionFailed(f"{MIRROR}:{cluster}", cluster_address(cluster), error.message, error.hint))
    return done


def _make_event_name(address: Address) -> str:
    return f"mirror:{address}"
