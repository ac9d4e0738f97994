"""Rounds over all mirrors of a workspace: what changed is found by bulk listings, and copied side by side."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from reconciler.embedded.threads import side_by_side
from reconciler.errors import IncompleteError, ReconcilerError, UserError
from reconciler.lifecycles.mirror import MirrorStatus
from reconciler.resources.address import address_of
from reconciler.workflow.linking.copying import Wanted
from reconciler.workflow.upkeep.changes import Change, Remembered
from reconciler.workflow.upkeep.health import is_denied, note_links, note_mirror, trouble_of
from reconciler.workflow.upkeep.ordering import by_distance
from reconciler.workflow.upkeep.outcomes import Synced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from reconciler.jobs.mirror import Outcome
    from reconciler.jobs.progress import JobProgress
    from reconciler.providers.base import Marked, Provider
    from reconciler.resources.address import Address
    from reconciler.resources.mirroring import LinkSeen, MirrorSeen
    from reconciler.workflow.linking.copying import Copier

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
                here[name] = self._looked_up(name, is_wanted)
        asked = [mirror for look in here.values() for mirror in look.mirrors]
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
        ordered = [brought[mirror.cluster, mirror.name] for mirror in asked]
        for one, synced in ordered:
            with _failing(failed, one.mirror.cluster):
                self._note(one, synced.error, here[one.mirror.cluster])
        for name, look in here.items():
            with _failing(failed, name):
                if look.mirrors:
                    note_links(self._provider(name).links, look.links, lost, self.now_ms())
                    self._remembered[name].end(self._provider(name))
        left = Counter(status for look in here.values() for status in look.left)
        return Round(tuple(synced for _, synced in ordered), failed, dict(sorted(left.items())))

    def _looked_up(self, name: str, is_wanted: Callable[[Address], bool]) -> _Look:
        """Return the mirrors of a cluster that are to be copied, and the links they belong to."""
        provider = self._provider(name)
        mirrors = provider.links.mirrors()
        others = (mirror for mirror in mirrors if mirror.status not in FOLLOWING)
        left = tuple(one.status for one in others if is_wanted(address_of("mirror", name, one.name)))
        if not any(mirror.status in FOLLOWING for mirror in mirrors):
            return _Look((), {}, left)
        if name not in self._remembered:
            self._remembered[name] = Remembered.of(provider)
        chosen = []
        for mirror in mirrors:
            is_due = mirror.status in FOLLOWING and not is_denied(mirror)
            if is_due and is_wanted(address_of("mirror", name, mirror.name)):
                chosen.append(mirror)
            else:
                self._remembered[name].leave(mirror)
        links = {link.name: link for link in provider.links.links()}
        used = sorted({one.link for one in chosen} & links.keys())
        return _Look(tuple(chosen), {name: links[name] for name in used}, left)

    def _mark(self, names: set[str], marks: dict[str, Mapping[str, Marked]], lost: dict[str, ReconcilerError]) -> None:
        """Add the topics of clusters that are not known yet, and why some cannot be looked at."""

        def look(name: str) -> Mapping[str, Marked] | ReconcilerError:
            try:
                return self._provider(name).marks()
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
            wanted.append(Wanted(one.mirror, only, None, is_followed, started(one.mirror)))
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
            links = self._provider(one.mirror.cluster).links
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
