"""Rounds that copy all mirrors of a workspace."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeVar

from reconciler.applying.events import NO_EXECUTION, JobExecution
from reconciler.errors import IncompleteError, LostRaceError, PartialError, ReconcilerError, UserError
from reconciler.lifecycles import MirrorStatus
from reconciler.operations.steps.link_pass import FAILED_HINT
from reconciler.operations.steps.link_sides import register_full_names
from reconciler.operations.steps.mirror_copy import (
    Copier,
    MirrorToCopy,
    classify_trouble,
    is_source_denied,
    record_link_statuses,
    record_mirror_trouble,
)
from reconciler.providers.protocol import MaintenanceJobResult, require_job_links, require_links
from reconciler.providers.protocol_links import TopicMark
from reconciler.resources.address import Address, address_of
from reconciler.resources.mirror_link import MirrorLink
from reconciler.runtime.dataclass import dataclass, field
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.jobs.copy import FlowOutcome
    from reconciler.jobs.flows import PartitionProgress
    from reconciler.jobs.progress import JobProgress
    from reconciler.providers.protocol import Provider
    from reconciler.resources.inventory import Inventory
    from reconciler.resources.mirrors import ObservedLink, ObservedMirror, SourceTopic
    from reconciler.resources.owners import ResourceOwner


# A topic's mark changes with its records. A mirror is due if its own or its source's mark changed since the last copy.


JOB: Final = "mirror"
_FINGERPRINT_DIGITS: Final = 16

MarkRow = list[Any]
"""`[fingerprint of mirror and source, {partition: [source mark, own mark or null]}]`"""


@dataclass(frozen=True, slots=True)
class MirrorChange:
    """Partitions in which a mirror may lack records."""

    only: Collection[int]
    is_followed: bool


@dataclass(slots=True)
class CompleteMarks:
    """Marks of a cluster's mirrors and sources after the last complete copies."""

    rows: dict[str, MarkRow] = field(default_factory=dict)
    _new_rows: dict[str, MarkRow] = field(default_factory=dict)

    @classmethod
    def load(cls, provider: Provider) -> CompleteMarks:
        """Load the marks of the last round."""
        rows = require_job_links(provider).load_job_rows(JOB)
        return cls({name: row for name, row in rows.items() if _is_row(row)})

    def find_mirror_change(self, mirror: ObservedMirror, source: TopicMark, own: TopicMark | None) -> MirrorChange:
        """Return the partitions whose marks changed since the last copy. `own` is the mirror's mark, if any."""
        fingerprint, known = self.rows.get(mirror.name, ["", {}])
        is_followed = fingerprint == _compute_fingerprint(mirror, source.topic)
        if not is_followed:
            return MirrorChange(range(source.topic.partitions), is_followed=False)
        own_marks = {} if own is None else own.partitions
        only = [
            number
            for number, mark in source.partitions.items()
            if not _is_mark_known(known.get(str(number)), mark, own_marks.get(number))
        ]
        return MirrorChange(only, is_followed=True)

    def store(
        self,
        mirror: ObservedMirror,
        source: TopicMark,
        own: TopicMark | None,
        *,
        changed: Collection[int],
        is_complete: bool,
    ) -> None:
        """Store a mirror's marks; those of `changed` partitions only if `is_complete`."""
        fingerprint = _compute_fingerprint(mirror, source.topic)
        known = self.rows.get(mirror.name, ["", {}])
        before = known[1] if known[0] == fingerprint else {}
        if not is_complete and not before:
            return
        own_marks, copied = ({} if own is None else own.partitions), set(changed)
        marks: dict[str, list[str | None]] = {}
        for number, mark in source.partitions.items():
            if number not in copied:
                marks[str(number)] = [mark, own_marks.get(number)]
            elif is_complete:
                marks[str(number)] = [mark, None]
        self._new_rows[mirror.name] = [fingerprint, marks]

    def keep_unread_marks(self, mirror: ObservedMirror) -> None:
        """Keep the stored marks of a mirror that this round does not read."""
        if mirror.name in self.rows:
            self._new_rows[mirror.name] = self.rows[mirror.name]

    def save(self, provider: Provider) -> None:
        """Store the marks if they changed."""
        rows, self._new_rows = self._new_rows, {}
        if rows != self.rows:
            require_job_links(provider).store_job_rows(JOB, rows)
            self.rows = rows


def _is_mark_known(row: list[str | None] | None, mark: str, own: str | None) -> bool:
    return row is not None and row[0] == mark and row[1] in {None, own}


def _is_row(row: object) -> bool:
    return isinstance(row, list) and len(row) == len(["fingerprint", "marks"]) and isinstance(row[1], dict)


def _compute_fingerprint(mirror: ObservedMirror, source: SourceTopic) -> str:
    """Configs are excluded, because link passes sync them."""
    text = repr((mirror.topic_id, mirror.link, mirror.since_ms, source.incarnation, source.partitions))
    return hashlib.sha256(text.encode()).hexdigest()[:_FINGERPRINT_DIGITS]


_Node = TypeVar("_Node")


def group_by_distance(mirrors: Sequence[ObservedMirror]) -> Iterator[tuple[ObservedMirror, ...]]:
    """Yield groups of mirrors, sources before mirrors of them."""
    places = {(mirror.cluster, mirror.name): mirror for mirror in mirrors}
    follows = {place: [(mirror.source_cluster, mirror.source)] for place, mirror in places.items()}
    depths = _compute_depths(follows)

    def get_depth(mirror: ObservedMirror) -> int:
        return depths[mirror.cluster, mirror.name]

    for _, mirrors_at_distance in groupby(sorted(mirrors, key=get_depth), get_depth):
        yield tuple(mirrors_at_distance)


def sort_sources_first(inventories: Mapping[str, Inventory]) -> list[str]:
    """Return cluster names, with sources before their destinations."""
    follows = {name: list(_list_source_clusters(inventory)) for name, inventory in sorted(inventories.items())}
    depths = _compute_depths(follows)
    return sorted(follows, key=lambda name: (depths[name], name))


def _list_source_clusters(inventory: Inventory) -> Iterable[str]:
    return sorted({item.resource.spec.source for item in inventory.values() if isinstance(item.resource, MirrorLink)})


def _compute_depths(follows: Mapping[_Node, Sequence[_Node]]) -> dict[_Node, int]:
    depths: dict[_Node, int] = {}
    for start in follows:
        path: dict[_Node, Iterator[_Node]] = {}
        node: _Node | None = None if start in depths else start
        while node is not None:
            path.setdefault(node, iter(follows[node]))
            above = next((one for one in path[node] if one in follows and one not in path and one not in depths), None)
            if above is None:
                depths[node] = max((depths[one] + 1 for one in follows[node] if one in depths), default=0)
                del path[node]
                above = next(reversed(path), None)
            node = above
    return depths


_SHOWN_NAMES: Final = 5


@dataclass(frozen=True, slots=True)
class MirrorOutcome:
    """Result of copying one mirror."""

    address: Address
    records: int
    bytes: int
    seconds: float
    error: ReconcilerError | None = None
    partitions: Mapping[int, PartitionProgress] = field(default_factory=dict)
    """Copied records and lag of partitions that were read. Unread partitions were complete."""

    @property
    def lag(self) -> int:
        """Lag in offsets when the source was last read."""
        return sum(gained.lag for gained in self.partitions.values())

    @property
    def errors(self) -> tuple[ReconcilerError, ...]:
        """The error as a tuple, as in `JobOutcome`."""
        return () if self.error is None else (self.error,)

    @property
    def name(self) -> str:
        """Name for messages."""
        return self.address


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """Result of a maintenance job on one cluster."""

    job: str
    """Job of `run`; `link` for links; `observe` or `state` for an unreadable cluster or state."""
    cluster: str
    seconds: float
    upkept: MaintenanceJobResult = field(default_factory=MaintenanceJobResult)
    error: ReconcilerError | None = None

    @property
    def errors(self) -> tuple[ReconcilerError, ...]:
        """Up to a hundred errors of the job."""
        return self.upkept.errors if self.error is None else (*self.upkept.errors, self.error)

    @property
    def failed(self) -> int:
        """Number of failures."""
        return self.upkept.failed + (self.error is not None)

    @property
    def name(self) -> str:
        """Name for messages and progress events."""
        return f"{self.job}:{self.cluster}" if self.cluster else self.job


@dataclass(frozen=True, slots=True)
class PassResult:
    """Result of one pass of `run`."""

    synced: tuple[MirrorOutcome, ...]
    jobs: tuple[JobOutcome, ...]
    seconds: float
    is_stopped: bool = False
    left: Mapping[str, int] = field(default_factory=dict)
    """Number of mirrors that were not copied, by state."""
    ran: JobExecution = NO_EXECUTION
    others: Mapping[Address, tuple[ResourceOwner, str]] = field(default_factory=dict)
    """Links of other workspaces, with the owner, and the work left to the owner or the reason."""

    @property
    def outcomes(self) -> Sequence[MirrorOutcome | JobOutcome]:
        """Outcomes of mirrors, then jobs."""
        return (*self.synced, *self.jobs)

    @property
    def verdict(self) -> ReconcilerError | None:
        """Error for the exit code; `None` after success."""
        failed = [outcome for outcome in self.outcomes if outcome.errors]
        if self.is_stopped or any(isinstance(error, IncompleteError) for outcome in failed for error in outcome.errors):
            return IncompleteError("stopped: not everything was done", hint="Run it again.")
        if not failed:
            return None
        names = ", ".join(outcome.name for outcome in failed[:_SHOWN_NAMES]) + (" …" if failed[_SHOWN_NAMES:] else "")
        what = f"{len(failed)} of {len(self.outcomes)} failed: {names}"
        if all(isinstance(error, LostRaceError) for outcome in failed for error in outcome.errors):
            return PartialError(what, hint="Nothing is lost: other processes continue with these. Run it again later.")
        return PartialError(what, hint="Fix what is shown for each of them, then run it again.")


FOLLOWING: Final = frozenset({MirrorStatus.ACTIVE, MirrorStatus.SOURCE_UNAVAILABLE})
"""States in which rounds copy a mirror."""
_RETRY_MS: Final = 300_000


def _ignore_progress(_mirror: ObservedMirror) -> Callable[[JobProgress], None] | None:
    return None


@dataclass(frozen=True, slots=True)
class MirrorView:
    """A mirror as listed at a round's start."""

    mirror: ObservedMirror
    source: TopicMark | None
    own: TopicMark | None
    change: MirrorChange | None
    error: ReconcilerError | None = None
    is_gone: bool = False
    """Whether the source cluster answered and lacks the topic."""

    @property
    def is_due(self) -> bool:
        """Whether the source may have records to copy."""
        return self.change is not None and (not self.change.is_followed or len(self.change.only) > 0)


@dataclass(frozen=True, slots=True)
class RoundResult:
    """Results of mirrors, and errors by cluster."""

    synced: tuple[MirrorOutcome, ...]
    failed: Mapping[str, ReconcilerError]
    left: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OtherLinks:
    """Links of other workspaces, as (cluster, name). This process does not copy links in `left`.

    Only owners record mirror errors, because others may not reach all clusters.
    """

    owned: Collection[tuple[str, str]] = ()
    left: Collection[tuple[str, str]] = ()

    def owns(self, mirror: ObservedMirror) -> bool:
        """Return whether another workspace owns a mirror's link."""
        return (mirror.cluster, mirror.link) in self.owned


_NO_OTHERS: Final = OtherLinks()


def _make_key(view: MirrorView) -> tuple[str, str]:
    return view.mirror.cluster, view.mirror.name


@dataclass
class MirrorRounds:
    """Copies mirrors in rounds, each for marks that changed since the previous one."""

    copier: Copier
    now_ms: Callable[[], int]
    _marks_by_cluster: dict[str, CompleteMarks] = field(default_factory=dict)

    def run_round(
        self,
        clusters: Iterable[str],
        is_wanted: Callable[[Address], bool] = lambda _address: True,
        started: Callable[[ObservedMirror], Callable[[JobProgress], None] | None] = _ignore_progress,
        others: OtherLinks = _NO_OTHERS,
    ) -> RoundResult:
        """Copy missing records of these clusters' mirrors once. Return outcomes by address.

        Mirrors of mirrors come last, so they receive this round's records too. `started` returns a progress callback.
        """
        failed: dict[str, ReconcilerError] = {}
        looks: dict[str, _ClusterMirrors] = {}
        for name in sorted(clusters):
            with _collect_errors(failed, name):
                looks[name] = self._read_mirrors(name, is_wanted, others)
        mirrors_to_copy = [mirror for look in looks.values() for mirror in look.mirrors]
        register_full_names(self.copier.providers, mirrors_to_copy)
        lost: dict[str, ReconcilerError] = {}
        marks: dict[str, Mapping[str, TopicMark]] = {}
        results: dict[tuple[str, str], tuple[MirrorView, MirrorOutcome]] = {}
        for mirrors in group_by_distance(mirrors_to_copy):
            self._list_marks({name for view in mirrors for name in (view.cluster, view.source_cluster)}, marks, lost)
            views = [self._build_view(mirror, marks, lost) for mirror in mirrors]
            due_views = [view for view in views if view.is_due]
            began_ms = self.now_ms()
            outcomes = dict(zip(map(_make_key, due_views), self._copy_due_mirrors(due_views, started), strict=True))
            seconds = max(0, self.now_ms() - began_ms) / 1000
            for view in views:
                results[_make_key(view)] = view, self._finish_mirror(view, outcomes.get(_make_key(view)), seconds)
            for cluster, _ in outcomes:
                marks.pop(cluster, None)
        seen = [results[mirror.cluster, mirror.name] for mirror in mirrors_to_copy]
        ordered = [(view, synced) for view, synced in seen if not (view.is_gone and others.owns(view.mirror))]
        for view, synced in ordered:
            if others.owns(view.mirror):
                continue
            with _collect_errors(failed, view.mirror.cluster):
                self._record_trouble(view, synced.error, looks[view.mirror.cluster])
        for name, look in looks.items():
            with _collect_errors(failed, name):
                if look.mirrors:
                    known = {
                        link: seen
                        for link, seen in look.links.items()
                        if seen.declared.spec.source in self.copier.providers and (name, link) not in others.owned
                    }
                    record_link_statuses(require_job_links(self._get_provider(name)), known, lost, self.now_ms())
                    self._marks_by_cluster[name].save(self._get_provider(name))
        left = Counter(status for look in looks.values() for status in look.left)
        if len(seen) > len(ordered):
            left[MirrorStatus.SOURCE_UNAVAILABLE] += len(seen) - len(ordered)
        hidden_outcomes = [outcome for name, look in looks.items() for outcome in look.list_hidden_outcomes(name)]
        return RoundResult((*(synced for _, synced in ordered), *hidden_outcomes), failed, dict(sorted(left.items())))

    def _read_mirrors(self, name: str, is_wanted: Callable[[Address], bool], others: OtherLinks) -> _ClusterMirrors:
        provider = self._get_provider(name)
        mirrors = require_links(provider).list_mirrors()
        idle = (mirror for mirror in mirrors if mirror.status not in FOLLOWING)
        left = tuple(
            mirror_seen.status for mirror_seen in idle if is_wanted(address_of("mirror", name, mirror_seen.name))
        )
        failed = {
            mirror_seen.name: UserError(mirror_seen.trouble.message, hint=FAILED_HINT)
            for mirror_seen in mirrors
            if mirror_seen.status is MirrorStatus.FAILED
            and mirror_seen.trouble is not None
            and not others.owns(mirror_seen)
        }
        hidden = {
            mirror_name: error
            for mirror_name, error in {
                **failed,
                **require_links(provider).find_hidden_mirrors({mirror_seen.name for mirror_seen in mirrors}),
            }.items()
            if is_wanted(address_of("mirror", name, mirror_name))
        }
        if not any(mirror.status in FOLLOWING for mirror in mirrors):
            return _ClusterMirrors((), {}, left, hidden)
        if name not in self._marks_by_cluster:
            self._marks_by_cluster[name] = CompleteMarks.load(provider)
        chosen = []
        for mirror in mirrors:
            is_due = (
                mirror.status in FOLLOWING and not is_source_denied(mirror) and (name, mirror.link) not in others.left
            )
            if is_due and is_wanted(address_of("mirror", name, mirror.name)):
                chosen.append(mirror)
            else:
                self._marks_by_cluster[name].keep_unread_marks(mirror)
        links = {link.name: link for link in require_links(provider).list_links()}
        used = sorted({mirror_seen.link for mirror_seen in chosen} & links.keys())
        return _ClusterMirrors(tuple(chosen), {name: links[name] for name in used}, left, hidden)

    def _list_marks(
        self, names: set[str], marks: dict[str, Mapping[str, TopicMark]], lost: dict[str, ReconcilerError]
    ) -> None:
        def list_marks(name: str) -> Mapping[str, TopicMark] | ReconcilerError:
            try:
                return require_job_links(self._get_provider(name)).list_topic_marks()
            except ReconcilerError as error:
                return error

        unknown = sorted(names - marks.keys() - lost.keys())
        for name, answer in zip(unknown, map_in_parallel(list_marks, unknown, name="marks"), strict=True):
            if isinstance(answer, ReconcilerError):
                lost[name] = answer
            else:
                marks[name] = answer

    def _build_view(
        self, mirror: ObservedMirror, marks: Mapping[str, Mapping[str, TopicMark]], lost: Mapping[str, ReconcilerError]
    ) -> MirrorView:
        own = marks.get(mirror.cluster, {}).get(mirror.name)
        if mirror.source_cluster in lost:
            return MirrorView(mirror, None, own, None, lost[mirror.source_cluster])
        source = marks[mirror.source_cluster].get(mirror.source)
        if source is None:
            message = (
                f"mirror {mirror.name}: its source {mirror.source} no longer exists on cluster {mirror.source_cluster}"
            )
            hint = "Fail over to keep what the mirror has; it is FAILED once its link has waited for it long enough."
            return MirrorView(mirror, None, own, None, UserError(message, hint=hint), is_gone=True)
        change = self._marks_by_cluster[mirror.cluster].find_mirror_change(mirror, source, own)
        return MirrorView(mirror, source, own, change)

    def _copy_due_mirrors(
        self, due: Sequence[MirrorView], started: Callable[[ObservedMirror], Callable[[JobProgress], None] | None]
    ) -> Iterable[FlowOutcome]:
        if not due:
            return []
        copies = []
        for view in due:
            change = view.change
            only = None if change is None or not change.is_followed else change.only
            is_followed = change is not None and change.is_followed
            copies.append(MirrorToCopy(view.mirror, only, None, is_followed, started(view.mirror)))
        return self.copier.copy_all(copies)

    def _finish_mirror(self, view: MirrorView, outcome: FlowOutcome | None, seconds: float) -> MirrorOutcome:
        mirror, remembered = view.mirror, self._marks_by_cluster[view.mirror.cluster]
        error = view.error if outcome is None else outcome.error
        if view.source is None or view.change is None:
            remembered.keep_unread_marks(mirror)
        else:
            is_complete = outcome is None or (outcome.error is None and outcome.copy.is_whole)
            remembered.store(mirror, view.source, view.own, changed=view.change.only, is_complete=is_complete)
        address = address_of("mirror", mirror.cluster, mirror.name)
        if outcome is None:
            return MirrorOutcome(address, 0, 0, 0.0, error)
        copy = outcome.copy
        return MirrorOutcome(address, copy.records, copy.bytes, min(seconds, copy.seconds), error, copy.partitions)

    def _record_trouble(self, view: MirrorView, error: ReconcilerError | None, look: _ClusterMirrors) -> None:
        is_lost = view.source is None and not view.is_gone
        if is_lost or isinstance(error, IncompleteError):
            return
        link = look.links.get(view.mirror.link)
        trouble = None if error is None else classify_trouble(error, self.now_ms(), is_gone=view.is_gone)
        if error is None or trouble is not None:
            retry_ms = _RETRY_MS if link is None else link.declared.spec.retry_timeout
            links = require_job_links(self._get_provider(view.mirror.cluster))
            record_mirror_trouble(links, view.mirror, trouble, retry_ms=retry_ms, now_ms=self.now_ms())

    def _get_provider(self, name: str) -> Provider:
        return self.copier.providers[name]


@contextmanager
def _collect_errors(failed: dict[str, ReconcilerError], cluster: str) -> Iterator[None]:
    try:
        yield
    except ReconcilerError as error:
        failed.setdefault(cluster, error)


@dataclass(frozen=True, slots=True)
class _ClusterMirrors:
    mirrors: tuple[ObservedMirror, ...]
    links: Mapping[str, ObservedLink]
    left: tuple[MirrorStatus, ...]
    hidden: Mapping[str, ReconcilerError]

    def list_hidden_outcomes(self, cluster: str) -> Iterator[MirrorOutcome]:
        for name, error in sorted(self.hidden.items()):
            yield MirrorOutcome(address_of("mirror", cluster, name), 0, 0, 0.0, error)
