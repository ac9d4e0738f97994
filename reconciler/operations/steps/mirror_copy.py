"""Copy mirrors between two platforms, and keep what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.errors import NotAuthorizedError, ProducerFencedError, ReconcilerError, SourceChangedError, UserError
from reconciler.lifecycles import LinkStatus, MirrorStatus
from reconciler.operations.steps.link_sides import NOT_READABLE, TIMEOUT, judged, provider_named
from reconciler.providers.protocol import links_by_jobs, links_of
from reconciler.resources.address import address_of
from reconciler.resources.mirrors import RECORDS_REFUSED, SOURCE_TOPIC_MAY_BE_DELETED, LinkSeen, MirrorSeen, Trouble
from reconciler.runtime.threads import side_by_side

if TYPE_CHECKING:
    from reconciler.jobs.copy import Outcome
    from reconciler.jobs.flows import Copy, Flow
    from reconciler.jobs.progress import JobProgress
    from reconciler.jobs.stage import Engine
    from reconciler.providers.protocol import Provider
    from reconciler.providers.protocol_links import LinksByJobs
    from reconciler.records.log import TopicLog


_M = MirrorStatus

FETCHING: Final = frozenset({_M.ACTIVE, _M.SOURCE_UNAVAILABLE, _M.PENDING_SYNCHRONIZE, _M.PENDING_STOPPED})
"""States in which a mirror takes what its source has."""

# Arrow is heavy: a command without data actions never imports it.
# ruff: noqa: PLC0415


@dataclass(frozen=True, slots=True)
class MirrorToCopy:
    """A mirror that is to be copied, and how much of it."""

    mirror: MirrorSeen
    only: Collection[int] | None = None
    """The partitions that are looked at; `None`: all."""
    until: Mapping[int, int] | None = None
    """Ends beyond which nothing is copied; `None`: those of the source."""
    is_followed: bool = False
    """Whether partitions and configs are known to be its source's."""
    progress: Callable[[JobProgress], None] | None = None


@dataclass(frozen=True)
class Copier:
    """Copies mirrors of the clusters it knows. Safe to share between threads."""

    providers: Mapping[str, Provider]
    engine: Engine

    def copy(
        self,
        mirror: MirrorSeen,
        until: Mapping[int, int] | None = None,
        progress: Callable[[JobProgress], None] | None = None,
    ) -> Copy:
        """Bring one mirror to its source's ends as they are now, or to given ones at most.

        Raises:
            SourceChangedError: The source is not the log that was copied; nothing was copied.
            IncompleteError: It was stopped; what is published stays.
        """
        (outcome,) = self.copies([MirrorToCopy(mirror, None, until, progress=progress)])
        if outcome.error is not None:
            raise outcome.error
        return outcome.copy

    def copies(self, wanted: Sequence[MirrorToCopy]) -> list[Outcome]:
        """Copy many side by side and return what came of each; what fails for one does not stop the others.

        What their sources have deleted is deleted from them then (F-C-054).
        """
        from reconciler.jobs.copy import Outcome, mirrors
        from reconciler.jobs.flows import Copy, Flow

        flows = list(side_by_side(self._flow, wanted, name="open"))
        ready = [flow for flow in flows if isinstance(flow, Flow)]
        copied = iter(mirrors(ready, self.engine))
        found = [next(copied) if isinstance(flow, Flow) else Outcome(Copy(is_whole=False), flow) for flow in flows]
        return list(side_by_side(self._shortened, list(zip(wanted, found, strict=True)), name="starts"))

    def _shortened(self, done: tuple[MirrorToCopy, Outcome]) -> Outcome:
        """Delete from a mirror what its source has deleted, and return the outcome with what kept it from that."""
        mirror, outcome = done[0].mirror, done[1]
        starts = {number: gained.source_start for number, gained in outcome.copy.partitions.items()}
        if outcome.error is not None or not any(starts.values()):
            return outcome
        try:
            links_by_jobs(provider_named(self.providers, mirror.cluster)).follow_starts(mirror.name, starts)
        except NotAuthorizedError as error:  # It is no trouble of the source, and copying goes on.
            return replace(outcome, error=UserError(error.message, hint=error.hint))
        except ReconcilerError as error:
            return replace(outcome, error=error)
        return outcome

    def _flow(self, wanted: MirrorToCopy) -> Flow | ReconcilerError:
        try:
            return self._opened(wanted)
        except ReconcilerError as error:
            return error

    def _opened(self, wanted: MirrorToCopy) -> Flow:
        from reconciler.jobs.flows import Flow
        from reconciler.jobs.progress import unseen

        mirror = wanted.mirror
        above = provider_named(self.providers, mirror.source_cluster)
        below = provider_named(self.providers, mirror.cluster)
        source = address_of("topic", mirror.source_cluster, mirror.source)
        target = address_of("mirror", mirror.cluster, mirror.name)
        if not wanted.is_followed:
            follow = links_by_jobs(below).syncs.follow({mirror.name: above.source_topic(source)})
            for error in follow.values():
                raise error
        log = above.log(source)
        if not mirror.first_copy_done and mirror.begins is None:
            self._begin(below, mirror, log)
        return Flow(
            log,
            below.sink(target),
            wanted.only,
            wanted.until,
            lambda: is_still(below, mirror),
            wanted.progress or unseen,
        )

    def _begin(self, provider: Provider, mirror: MirrorSeen, log: TopicLog) -> None:
        """Let a new mirror begin where its link says; what was begun before stays."""
        link = next((link for link in links_of(provider).links() if link.name == mirror.link), None)
        start = "earliest" if link is None else link.declared.spec.start_offset
        if start != "earliest":
            links_by_jobs(provider).begin(mirror.name, starts(log, start))


def is_still(provider: Provider, mirror: MirrorSeen) -> bool:
    """Tell whether a mirror is to be copied as it was when that began: not where it was paused or stopped meanwhile.

    One that was paused before is copied by who asks for that by name: it is to be promoted.
    """
    now = links_of(provider).mirror(mirror.name)
    is_wanted = now.status in FETCHING or now.status is mirror.status is _M.PAUSED
    same = (now.topic_id, now.link, None if now.operation is None else now.operation.id)
    return is_wanted and same == (
        mirror.topic_id,
        mirror.link,
        None if mirror.operation is None else mirror.operation.id,
    )


def starts(log: TopicLog, start_offset: str) -> dict[int, int]:
    """Return where the partitions of a new mirror begin that does not begin where its source does."""
    from reconciler.records.schema import ms_of

    bounds = log.bounds()
    if start_offset == "latest":
        return {number: found.stable for number, found in bounds.items()}
    since = {number: log.offset_for_time(number, ms_of(start_offset)) for number in bounds}
    return {number: bounds[number].stable if offset is None else offset for number, offset in since.items()}


# What a round found wrong with mirrors and links, kept where `mirror errors` shows it; and that it is over.


def trouble_of(error: ReconcilerError, now_ms: int, *, is_gone: bool) -> Trouble | None:
    """Return what an error says of a mirror; `None`: nothing that would stay. `is_gone`: there is no source."""
    match error:
        case SourceChangedError():
            return Trouble(error.code, error.message, now_ms)
        case NotAuthorizedError():
            return Trouble(NOT_READABLE, error.message, now_ms)
        case _ if is_gone:
            return Trouble(SOURCE_TOPIC_MAY_BE_DELETED, error.message, now_ms)
        case ProducerFencedError():
            return None  # Somebody else copies it.
        case UserError():
            return Trouble(RECORDS_REFUSED, error.message, now_ms)
        case _:
            return None


def note_refused(links: LinksByJobs, mirror: MirrorSeen, error: ReconcilerError) -> None:
    """Keep that a copy is refused, whoever copied; all else is judged by rounds, which know how long it was waited."""
    trouble = trouble_of(error, 0, is_gone=False)
    if trouble is not None and trouble.code == RECORDS_REFUSED and mirror.trouble is None:
        links.trouble(mirror.name, trouble)


def is_denied(mirror: MirrorSeen) -> bool:
    """Tell whether its link may not read its source: nothing is copied until the pass over its link finds it may."""
    return mirror.trouble is not None and mirror.trouble.code == NOT_READABLE


def note_mirror(links: LinksByJobs, mirror: MirrorSeen, trouble: Trouble | None, *, retry_ms: int, now_ms: int) -> None:
    """Keep what is wrong with a mirror; it is FAILED at once where nothing can mend it, else after the time-out."""
    if trouble is None:
        if mirror.trouble is not None and not is_denied(mirror):
            links.trouble(mirror.name, None)
        return
    found = judged(mirror.trouble, trouble, retry_ms=retry_ms, now_ms=now_ms)
    if found.is_news:
        links.trouble(mirror.name, trouble, fails=found.fails)


def note_links(
    links: LinksByJobs, seen: Mapping[str, LinkSeen], lost: Mapping[str, ReconcilerError], now_ms: int
) -> None:
    """Keep which links reach their sources: `lost` are clusters that do not answer. A link that is broken stays so."""
    for name, link in seen.items():
        error = lost.get(link.declared.spec.source)
        if error is not None and link.status is LinkStatus.ACTIVE:
            links.link_trouble(name, LinkStatus.UNAVAILABLE, Trouble(TIMEOUT, error.message, now_ms))
        elif error is None and link.status is LinkStatus.UNAVAILABLE:
            links.link_trouble(name, LinkStatus.ACTIVE, None)
