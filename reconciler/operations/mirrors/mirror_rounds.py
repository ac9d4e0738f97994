"""Rounds over all mirrors of a workspace."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeVar

from reconciler.applying.events import NOWHERE, Ran
from reconciler.errors import IncompleteError, LostRaceError, PartialError, ReconcilerError, UserError
from reconciler.lifecycles import MirrorStatus
from reconciler.operations.steps.link_pass import FAILED_HINT
from reconciler.operations.steps.link_sides import learn_names
from reconciler.operations.steps.mirror_copy import Copier, MirrorToCopy, is_denied, note_links, note_mirror, trouble_of
from reconciler.providers.protocol import links_by_jobs, links_of
from reconciler.providers.protocol_links import Marked
from reconciler.resources.address import Address, address_of
from reconciler.resources.mirror_link import MirrorLink
from reconciler.runtime.threads import side_by_side

if TYPE_CHECKING:
    from reconciler.jobs.copy import Outcome
    from reconciler.jobs.flows import Gained
    from reconciler.jobs.progress import JobProgress
    from reconciler.providers.protocol import Provider, Upkept
    from reconciler.resources.inventory import Inventory
    from reconciler.resources.mirrors import LinkSeen, MirrorSeen, SourceTopic
    from reconciler.resources.owners import ResourceOwner


# Which partitions of which mirrors may lack something, without looking at each.
#
# Every topic of a cluster is marked by one listing. What a mirror was complete as of is remembered: the marks of its
# source's partitions, and its own. Only where one of them is another now, or was never seen, is there anything to do.


JOB: Final = "mirror"
_FINGERPRINT: Final = 16

Row = list[Any]
"""`[fingerprint of the mirror and of what it follows, {partition: [mark of the source, own mark or null]}]`."""


@dataclass(frozen=True, slots=True)
class Change:
    """What there is to do for one mirror."""

    only: Collection[int]
    """The partitions to look at."""
    is_followed: bool
    """Whether the mirror and the shape of its source are as they were when it was last complete."""


@dataclass(slots=True)
class Remembered:
    """What the mirrors of one cluster were complete as of. Losing it costs one look at every partition."""

    rows: dict[str, Row] = field(default_factory=dict)
    _kept: dict[str, Row] = field(default_factory=dict)

    @classmethod
    def of(cls, provider: Provider) -> Remembered:
        """Return what the last round left."""
        rows = links_by_jobs(provider).remembered(JOB)
        return cls({name: row for name, row in rows.items() if _is_row(row)})

    def change(self, mirror: MirrorSeen, source: Marked, own: Marked | None) -> Change:
        """Return what may be missing of a mirror whose source looks like this, and itself like that."""
        fingerprint, known = self.rows.get(mirror.name, ["", {}])
        is_followed = fingerprint == _fingerprint(mirror, source.topic)
        if not is_followed:
            return Change(range(source.topic.partitions), is_followed=False)
        own_marks = {} if own is None else own.partitions
        only = [
            number
            for number, mark in source.partitions.items()
            if not _is_known(known.get(str(number)), mark, own_marks.get(number))
        ]
        return Change(only, is_followed=True)

    def keep(
        self, mirror: MirrorSeen, source: Marked, own: Marked | None, *, changed: Collection[int], is_complete: bool
    ) -> None:
        """Remember what a mirror has now: all as it was listed; what was `changed` only where that `is_complete`."""
        fingerprint = _fingerprint(mirror, source.topic)
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
                marks[str(number)] = [mark, None]  # What it is listed as once it was copied to, the next round sees.
        self._kept[mirror.name] = [fingerprint, marks]

    def leave(self, mirror: MirrorSeen) -> None:
        """Remember of a mirror that is not looked at this time what was remembered before."""
        if mirror.name in self.rows:
            self._kept[mirror.name] = self.rows[mirror.name]

    def end(self, provider: Provider) -> None:
        """Keep it for the next round, where it is another."""
        kept, self._kept = self._kept, {}
        if kept != self.rows:
            links_by_jobs(provider).remember(JOB, kept)
            self.rows = kept


def _is_known(row: list[str | None] | None, mark: str, own: str | None) -> bool:
    return row is not None and row[0] == mark and row[1] in {None, own}


def _is_row(row: object) -> bool:
    return isinstance(row, list) and len(row) == len(["fingerprint", "marks"]) and isinstance(row[1], dict)


def _fingerprint(mirror: MirrorSeen, source: SourceTopic) -> str:
    """Return what changes where a mirror is another, follows another topic, or one of more partitions.

    Configs are synced by the pass over its link, as often as that says.
    """
    text = repr((mirror.topic_id, mirror.link, mirror.since_ms, source.incarnation, source.partitions))
    return hashlib.sha256(text.encode()).hexdigest()[:_FINGERPRINT]


# Sources before what follows them, so that one pass brings a mirror of a mirror all the way.
#
# Clusters may follow each other over links that go both ways. Nothing waits for itself: a circle is cut where it
# closes.


_Node = TypeVar("_Node")


def by_distance(mirrors: Sequence[MirrorSeen]) -> Iterator[tuple[MirrorSeen, ...]]:
    """Yield mirrors of what is none of them, then mirrors of those, and so on; each time in the order given."""
    places = {(one.cluster, one.name): one for one in mirrors}
    follows = {place: [(one.source_cluster, one.source)] for place, one in places.items()}
    depths = _depths(follows)

    def distance(one: MirrorSeen) -> int:
        return depths[one.cluster, one.name]

    for _, alike in groupby(sorted(mirrors, key=distance), distance):
        yield tuple(alike)


def sources_first(inventories: Mapping[str, Inventory]) -> list[str]:
    """Return clusters, those that the links of others lead from before these."""
    follows = {name: list(_sources(found)) for name, found in sorted(inventories.items())}
    depths = _depths(follows)
    return sorted(follows, key=lambda name: (depths[name], name))


def _sources(inventory: Inventory) -> Iterable[str]:
    return sorted({item.resource.spec.source for item in inventory.values() if isinstance(item.resource, MirrorLink)})


def _depths(follows: Mapping[_Node, Sequence[_Node]]) -> dict[_Node, int]:
    """Return how many of these lie before each one, at most; what is not among them counts for nothing."""
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


# What a pass of `run` did: every mirror, every job of every cluster, and what the exit code says of it.


_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Synced:
    """One mirror that was brought to its source's end, or the error that kept it from there."""

    address: Address
    records: int
    bytes: int
    seconds: float
    error: ReconcilerError | None = None
    partitions: Mapping[int, Gained] = field(default_factory=dict)
    """What those that were looked at got, and how far they are behind; the others have all that their source has."""

    @property
    def lag(self) -> int:
        """How many offsets it is behind, as last seen."""
        return sum(gained.lag for gained in self.partitions.values())

    @property
    def errors(self) -> tuple[ReconcilerError, ...]:
        """Return its error, as jobs have theirs."""
        return () if self.error is None else (self.error,)

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return self.address


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """One job on one cluster, or a look without which none can be done.

    `upkept` is what it did, `None` where nothing could be done; then there is an error.
    """

    job: str
    cluster: str
    seconds: float
    upkept: Upkept | None
    error: ReconcilerError | None = None

    @property
    def errors(self) -> tuple[ReconcilerError, ...]:
        """Return what failed, some of it where it is much."""
        found = () if self.upkept is None else self.upkept.errors
        return found if self.error is None else (*found, self.error)

    @property
    def failed(self) -> int:
        """Return how much failed."""
        return (0 if self.upkept is None else self.upkept.failed) + (self.error is not None)

    @property
    def name(self) -> str:
        """What it is called in messages, and in the events of its progress."""
        return f"{self.job}:{self.cluster}" if self.cluster else self.job


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Everything one pass did."""

    synced: tuple[Synced, ...]
    jobs: tuple[JobOutcome, ...]
    seconds: float
    is_stopped: bool = False
    """Whether it was asked to stop before it had finished."""
    left: Mapping[str, int] = field(default_factory=dict)
    """How many mirrors are in states in which nothing is copied, by state."""
    ran: Ran = NOWHERE
    others: Mapping[Address, tuple[ResourceOwner, str]] = field(default_factory=dict)
    """Links of which something was left to the workspaces that own them: what, or why all of it."""

    @property
    def outcomes(self) -> Sequence[Synced | JobOutcome]:
        """Return all of it, mirrors first."""
        return (*self.synced, *self.jobs)

    @property
    def verdict(self) -> ReconcilerError | None:
        """Return what the exit code says: all of it was done where there is none."""
        failed = [one for one in self.outcomes if one.errors]
        if self.is_stopped or any(isinstance(error, IncompleteError) for one in failed for error in one.errors):
            return IncompleteError("stopped: not everything was done", hint="Run it again.")
        if not failed:
            return None
        names = ", ".join(one.name for one in failed[:_NAMED]) + (" …" if failed[_NAMED:] else "")
        what = f"{len(failed)} of {len(self.outcomes)} failed: {names}"
        if all(isinstance(error, LostRaceError) for one in failed for error in one.errors):
            return PartialError(what, hint="Nothing is lost: other processes go on with these. Run it again later.")
        return PartialError(what, hint="Fix what is shown for each of them, then run it again.")


FOLLOWING: Final = frozenset({MirrorStatus.ACTIVE, MirrorStatus.SOURCE_UNAVAILABLE})
"""States in which a mirror is kept at its source's end; what a transition needs is copied by whoever drives it."""
_RETRY_MS: Final = 300_000


def _unheard(_mirror: MirrorSeen) -> Callable[[JobProgress], None] | None:
    """Tell nobody how far a copy is."""
    return None


@dataclass(frozen=True, slots=True)
class Sighted:
    """One mirror, and what a round found of it before anything was copied."""

    mirror: MirrorSeen
    source: Marked | None
    """`None`: there is no such topic."""
    own: Marked | None
    change: Change | None
    """`None`: its source cannot be looked at."""
    error: ReconcilerError | None = None
    is_gone: bool = False
    """Whether its source's cluster answers, and has no such topic."""

    @property
    def is_due(self) -> bool:
        """Whether there may be something to copy."""
        return self.change is not None and (not self.change.is_followed or len(self.change.only) > 0)


@dataclass(frozen=True, slots=True)
class Round:
    """What came of every mirror, and which clusters it could not read or write beside them."""

    synced: tuple[Synced, ...]
    failed: Mapping[str, ReconcilerError]
    left: Mapping[str, int] = field(default_factory=dict)
    """How many of the mirrors that were asked for are in states in which nothing is copied, by state."""


@dataclass(frozen=True, slots=True)
class OtherLinks:
    """Links that other workspaces own, as (cluster, name), and those of them of which nothing is copied here.

    What is wrong with their mirrors is not written down: who owns them may see more, and calls clusters otherwise.
    """

    owned: Collection[tuple[str, str]] = ()
    left: Collection[tuple[str, str]] = ()

    def owns(self, mirror: MirrorSeen) -> bool:
        """Tell whether a mirror belongs to one of them."""
        return (mirror.cluster, mirror.link) in self.owned


def _place(one: Sighted) -> tuple[str, str]:
    return one.mirror.cluster, one.mirror.name


@dataclass
class Rounds:
    """Brings mirrors to their sources' ends again and again. What one round learned, the next one uses."""

    copier: Copier
    now_ms: Callable[[], int]
    _remembered: dict[str, Remembered] = field(default_factory=dict)

    def once(
        self,
        clusters: Iterable[str],
        is_wanted: Callable[[Address], bool] = lambda _address: True,
        started: Callable[[MirrorSeen], Callable[[JobProgress], None] | None] = _unheard,
        others: OtherLinks = OtherLinks(),
    ) -> Round:
        """Look at the mirrors of some clusters once, copy what they lack, and return what came of each, by address.

        Mirrors of mirrors come after those: what those got in this round, they get, too.

        `started` is called for each mirror of which there may be something to copy, and returns who is told how far.
        A cluster whose catalog cannot be read or written is among those that failed; it keeps no other from its turn.
        """
        failed: dict[str, ReconcilerError] = {}
        here: dict[str, _Look] = {}
        for name in sorted(clusters):
            with _failing(failed, name):
                here[name] = self._looked_up(name, is_wanted, others)
        asked = [mirror for look in here.values() for mirror in look.mirrors]
        learn_names(self.copier.providers, asked)
        lost: dict[str, ReconcilerError] = {}
        marks: dict[str, Mapping[str, Marked]] = {}
        brought: dict[tuple[str, str], tuple[Sighted, Synced]] = {}
        for mirrors in by_distance(asked):
            self._mark({name for one in mirrors for name in (one.cluster, one.source_cluster)}, marks, lost)
            sighted = [self._sighted(mirror, marks, lost) for mirror in mirrors]
            due = [one for one in sighted if one.is_due]
            began_ms = self.now_ms()
            outcomes = dict(zip(map(_place, due), self._copied(due, started), strict=True))
            seconds = max(0, self.now_ms() - began_ms) / 1000
            for one in sighted:
                brought[_place(one)] = one, self._done(one, outcomes.get(_place(one)), seconds)
            for cluster, _ in outcomes:
                marks.pop(cluster, None)  # What was written there is news to the mirrors of these mirrors.
        seen = [brought[mirror.cluster, mirror.name] for mirror in asked]
        ordered = [(one, synced) for one, synced in seen if not (one.is_gone and others.owns(one.mirror))]
        for one, synced in ordered:
            if others.owns(one.mirror):
                continue
            with _failing(failed, one.mirror.cluster):
                self._note(one, synced.error, here[one.mirror.cluster])
        for name, look in here.items():
            with _failing(failed, name):
                if look.mirrors:
                    # Of a cluster that it does not declare a workspace cannot say whether it answers.
                    known = {
                        link: seen
                        for link, seen in look.links.items()
                        if seen.declared.spec.source in self.copier.providers and (name, link) not in others.owned
                    }
                    note_links(links_by_jobs(self._provider(name)), known, lost, self.now_ms())
                    self._remembered[name].end(self._provider(name))
        left = Counter(status for look in here.values() for status in look.left)
        if len(seen) > len(ordered):
            left[MirrorStatus.SOURCE_UNAVAILABLE] += len(seen) - len(ordered)
        unseen = [each for name, look in here.items() for each in look.unseen(name)]
        return Round((*(synced for _, synced in ordered), *unseen), failed, dict(sorted(left.items())))

    def _looked_up(self, name: str, is_wanted: Callable[[Address], bool], others: OtherLinks) -> _Look:
        """Return the mirrors of a cluster that are to be copied, and the links they belong to."""
        provider = self._provider(name)
        mirrors = links_of(provider).mirrors()
        idle = (mirror for mirror in mirrors if mirror.status not in FOLLOWING)
        left = tuple(one.status for one in idle if is_wanted(address_of("mirror", name, one.name)))
        failed = {
            one.name: UserError(one.trouble.message, hint=FAILED_HINT)
            for one in mirrors
            if one.status is MirrorStatus.FAILED and one.trouble is not None and not others.owns(one)
        }
        hidden = {
            each: error
            for each, error in {**failed, **links_of(provider).hidden({one.name for one in mirrors})}.items()
            if is_wanted(address_of("mirror", name, each))
        }
        if not any(mirror.status in FOLLOWING for mirror in mirrors):
            return _Look((), {}, left, hidden)
        if name not in self._remembered:
            self._remembered[name] = Remembered.of(provider)
        chosen = []
        for mirror in mirrors:
            is_due = mirror.status in FOLLOWING and not is_denied(mirror) and (name, mirror.link) not in others.left
            if is_due and is_wanted(address_of("mirror", name, mirror.name)):
                chosen.append(mirror)
            else:
                self._remembered[name].leave(mirror)
        links = {link.name: link for link in links_of(provider).links()}
        used = sorted({one.link for one in chosen} & links.keys())
        return _Look(tuple(chosen), {name: links[name] for name in used}, left, hidden)

    def _mark(self, names: set[str], marks: dict[str, Mapping[str, Marked]], lost: dict[str, ReconcilerError]) -> None:
        """Add the topics of clusters that are not known yet, and why some cannot be looked at."""

        def look(name: str) -> Mapping[str, Marked] | ReconcilerError:
            try:
                return links_by_jobs(self._provider(name)).marks()
            except ReconcilerError as error:
                return error

        unknown = sorted(names - marks.keys() - lost.keys())
        for name, found in zip(unknown, side_by_side(look, unknown, name="marks"), strict=True):
            if isinstance(found, ReconcilerError):
                lost[name] = found
            else:
                marks[name] = found

    def _sighted(
        self, mirror: MirrorSeen, marks: Mapping[str, Mapping[str, Marked]], lost: Mapping[str, ReconcilerError]
    ) -> Sighted:
        own = marks.get(mirror.cluster, {}).get(mirror.name)
        if mirror.source_cluster in lost:
            return Sighted(mirror, None, own, None, lost[mirror.source_cluster])
        source = marks[mirror.source_cluster].get(mirror.source)
        if source is None:
            message = f"mirror {mirror.name}: its source {mirror.source} is gone from cluster {mirror.source_cluster}"
            hint = "Fail over to keep what the mirror has; it is FAILED once its link has waited for it long enough."
            return Sighted(mirror, None, own, None, UserError(message, hint=hint), is_gone=True)
        change = self._remembered[mirror.cluster].change(mirror, source, own)
        return Sighted(mirror, source, own, change)

    def _copied(
        self, due: Sequence[Sighted], started: Callable[[MirrorSeen], Callable[[JobProgress], None] | None]
    ) -> Iterable[Outcome]:
        if not due:
            return []  # Nothing that copies is imported.
        wanted = []
        for one in due:
            change = one.change
            only = None if change is None or not change.is_followed else change.only
            is_followed = change is not None and change.is_followed
            wanted.append(MirrorToCopy(one.mirror, only, None, is_followed, started(one.mirror)))
        return self.copier.copies(wanted)

    def _done(self, one: Sighted, outcome: Outcome | None, seconds: float) -> Synced:
        mirror, remembered = one.mirror, self._remembered[one.mirror.cluster]
        error = one.error if outcome is None else outcome.error
        if one.source is None or one.change is None:
            remembered.leave(mirror)
        else:
            is_complete = outcome is None or (outcome.error is None and outcome.copy.is_whole)
            remembered.keep(mirror, one.source, one.own, changed=one.change.only, is_complete=is_complete)
        address = address_of("mirror", mirror.cluster, mirror.name)
        if outcome is None:
            return Synced(address, 0, 0, 0.0, error)
        copy = outcome.copy
        return Synced(address, copy.records, copy.bytes, min(seconds, copy.seconds), error, copy.partitions)

    def _note(self, one: Sighted, error: ReconcilerError | None, look: _Look) -> None:
        """Keep what is wrong with a mirror, unless it is its link, or that somebody asked to stop."""
        is_lost = one.source is None and not one.is_gone
        if is_lost or isinstance(error, IncompleteError):
            return
        link = look.links.get(one.mirror.link)
        trouble = None if error is None else trouble_of(error, self.now_ms(), is_gone=one.is_gone)
        if error is None or trouble is not None:
            retry_ms = _RETRY_MS if link is None else link.declared.spec.retry_timeout
            links = links_by_jobs(self._provider(one.mirror.cluster))
            note_mirror(links, one.mirror, trouble, retry_ms=retry_ms, now_ms=self.now_ms())

    def _provider(self, name: str) -> Provider:
        return self.copier.providers[name]


@contextmanager
def _failing(failed: dict[str, ReconcilerError], cluster: str) -> Iterator[None]:
    """Take note of what fails on one cluster, and go on."""
    try:
        yield
    except ReconcilerError as error:
        failed.setdefault(cluster, error)


@dataclass(frozen=True, slots=True)
class _Look:
    """The mirrors of one cluster that are to be copied, and their links."""

    mirrors: tuple[MirrorSeen, ...]
    links: Mapping[str, LinkSeen]
    left: tuple[MirrorStatus, ...]
    """The states of those in which nothing is copied."""
    hidden: Mapping[str, ReconcilerError]
    """Why some that are to be copied do not show, or have failed for good."""

    def unseen(self, cluster: str) -> Iterator[Synced]:
        """Yield what came of those."""
        for name, error in sorted(self.hidden.items()):
            yield Synced(address_of("mirror", cluster, name), 0, 0, 0.0, error)
