"""Copy mirrors between clusters, and record their errors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from reconciler.errors import NotAuthorizedError, ProducerFencedError, ReconcilerError, SourceChangedError, UserError
from reconciler.lifecycles import LinkStatus, MirrorStatus
from reconciler.operations.steps.link_sides import NOT_READABLE, TIMEOUT, get_provider, judge_trouble
from reconciler.providers.protocol import require_job_links, require_links
from reconciler.resources.address import address_of
from reconciler.resources.mirrors import (
    RECORDS_REFUSED,
    SOURCE_TOPIC_MAY_BE_DELETED,
    ObservedLink,
    ObservedMirror,
    Trouble,
)
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.jobs.copy import FlowOutcome
    from reconciler.jobs.flows import CopyResult, Flow
    from reconciler.jobs.progress import JobProgress
    from reconciler.jobs.stage import Engine
    from reconciler.providers.protocol import Provider
    from reconciler.providers.protocol_links import LinksByJobs
    from reconciler.records.log import TopicLog


_M = MirrorStatus

FETCHING: Final = frozenset({_M.ACTIVE, _M.SOURCE_UNAVAILABLE, _M.PENDING_SYNCHRONIZE, _M.PENDING_STOPPED})

# ruff: noqa: PLC0415


@dataclass(frozen=True, slots=True)
class MirrorToCopy:
    """A mirror, with partitions and end offsets to copy."""

    mirror: ObservedMirror
    only: Collection[int] | None = None
    until: Mapping[int, int] | None = None
    is_followed: bool = False
    progress: Callable[[JobProgress], None] | None = None


@dataclass(frozen=True)
class Copier:
    """Copies records into the mirrors of the given clusters. Thread-safe."""

    providers: Mapping[str, Provider]
    engine: Engine

    def copy(
        self,
        mirror: ObservedMirror,
        until: Mapping[int, int] | None = None,
        progress: Callable[[JobProgress], None] | None = None,
    ) -> CopyResult:
        """Copy a mirror up to `until`, by default the source's ends.

        Raises:
            SourceChangedError: The source was recreated.
            IncompleteError: The copy was stopped. Copied records remain.
        """
        (outcome,) = self.copy_all([MirrorToCopy(mirror, None, until, progress=progress)])
        if outcome.error is not None:
            raise outcome.error
        return outcome.copy

    def copy_all(self, wanted: Sequence[MirrorToCopy]) -> list[FlowOutcome]:
        """Copy mirrors in parallel, then delete records that their sources deleted (F-C-054)."""
        from reconciler.jobs.copy import FlowOutcome, copy_flows
        from reconciler.jobs.flows import CopyResult, Flow

        flows = list(map_in_parallel(self._try_open_flow, wanted, name="open"))
        ready = [flow for flow in flows if isinstance(flow, Flow)]
        copied = iter(copy_flows(ready, self.engine))
        outcomes = [
            next(copied) if isinstance(flow, Flow) else FlowOutcome(CopyResult(is_whole=False), flow) for flow in flows
        ]
        return list(map_in_parallel(self._delete_old_records, list(zip(wanted, outcomes, strict=True)), name="starts"))

    def _delete_old_records(self, done: tuple[MirrorToCopy, FlowOutcome]) -> FlowOutcome:
        mirror, outcome = done[0].mirror, done[1]
        start_offsets = {number: gained.source_start for number, gained in outcome.copy.partitions.items()}
        if outcome.error is not None or not any(start_offsets.values()):
            return outcome
        try:
            require_job_links(get_provider(self.providers, mirror.cluster)).delete_below_starts(
                mirror.name, start_offsets
            )
        except NotAuthorizedError as error:
            return replace(outcome, error=UserError(error.message, hint=error.hint))
        except ReconcilerError as error:
            return replace(outcome, error=error)
        return outcome

    def _try_open_flow(self, wanted: MirrorToCopy) -> Flow | ReconcilerError:
        try:
            return self._open_flow(wanted)
        except ReconcilerError as error:
            return error

    def _open_flow(self, wanted: MirrorToCopy) -> Flow:
        from reconciler.jobs.flows import Flow
        from reconciler.jobs.progress import ignore_progress

        mirror = wanted.mirror
        above = get_provider(self.providers, mirror.source_cluster)
        below = get_provider(self.providers, mirror.cluster)
        source = address_of("topic", mirror.source_cluster, mirror.source)
        target = address_of("mirror", mirror.cluster, mirror.name)
        if not wanted.is_followed:
            follow = require_job_links(below).syncs.update_mirrors({mirror.name: above.read_source_topic(source)})
            for error in follow.values():
                raise error
        log = above.open_log(source)
        if not mirror.first_copy_done and mirror.begins is None:
            self._set_start_offsets(below, mirror, log)
        return Flow(
            log,
            below.open_sink(target),
            wanted.only,
            wanted.until,
            lambda: is_still_followed(below, mirror),
            wanted.progress or ignore_progress,
        )

    def _set_start_offsets(self, provider: Provider, mirror: ObservedMirror, log: TopicLog) -> None:
        link = next((link for link in require_links(provider).list_links() if link.name == mirror.link), None)
        start = "earliest" if link is None else link.declared.spec.start_offset
        if start != "earliest":
            require_job_links(provider).record_start_offsets(mirror.name, choose_start_offsets(log, start))


def is_still_followed(provider: Provider, mirror: ObservedMirror) -> bool:
    """Return whether a mirror was not paused or stopped during the copy."""
    now = require_links(provider).read_mirror(mirror.name)
    is_wanted = now.status in FETCHING or now.status is mirror.status is _M.PAUSED
    same = (now.topic_id, now.link, None if now.operation is None else now.operation.id)
    return is_wanted and same == (
        mirror.topic_id,
        mirror.link,
        None if mirror.operation is None else mirror.operation.id,
    )


def choose_start_offsets(log: TopicLog, start_offset: str) -> dict[int, int]:
    """Return the start offsets of a new mirror; `start_offset` is `latest` or a time."""
    from reconciler.records.schema import parse_time_ms

    bounds = log.read_bounds()
    if start_offset == "latest":
        return {number: partition_bounds.stable for number, partition_bounds in bounds.items()}
    since = {number: log.find_offset_at(number, parse_time_ms(start_offset)) for number in bounds}
    return {number: bounds[number].stable if offset is None else offset for number, offset in since.items()}


def classify_trouble(error: ReconcilerError, now_ms: int, *, is_gone: bool) -> Trouble | None:
    """Return the mirror's error to record; `None` if it may disappear by itself.

    `is_gone`: the source does not exist.
    """
    match error:
        case SourceChangedError():
            return Trouble(error.code, error.message, now_ms)
        case NotAuthorizedError():
            return Trouble(NOT_READABLE, error.message, now_ms)
        case _ if is_gone:
            return Trouble(SOURCE_TOPIC_MAY_BE_DELETED, error.message, now_ms)
        case ProducerFencedError():
            # A fenced producer means that another process copies the mirror.
            return None
        case UserError():
            return Trouble(RECORDS_REFUSED, error.message, now_ms)
        case _:
            return None


def record_refused_copy(links: LinksByJobs, mirror: ObservedMirror, error: ReconcilerError) -> None:
    """Record that the destination rejected a copy. Rounds record other errors."""
    trouble = classify_trouble(error, 0, is_gone=False)
    if trouble is not None and trouble.code == RECORDS_REFUSED and mirror.trouble is None:
        links.record_trouble(mirror.name, trouble)


def is_source_denied(mirror: ObservedMirror) -> bool:
    """Return whether the link may not read the mirror's source."""
    return mirror.trouble is not None and mirror.trouble.code == NOT_READABLE


def record_mirror_trouble(
    links: LinksByJobs, mirror: ObservedMirror, trouble: Trouble | None, *, retry_ms: int, now_ms: int
) -> None:
    """Record a mirror's error, or clear it (`None`). A permanent one, or `retry_ms`, makes the mirror FAILED."""
    if trouble is None:
        if mirror.trouble is not None and not is_source_denied(mirror):
            links.record_trouble(mirror.name, None)
        return
    judgement = judge_trouble(mirror.trouble, trouble, retry_ms=retry_ms, now_ms=now_ms)
    if judgement.is_news:
        links.record_trouble(mirror.name, trouble, fails=judgement.fails)


def record_link_statuses(
    links: LinksByJobs, seen: Mapping[str, ObservedLink], lost: Mapping[str, ReconcilerError], now_ms: int
) -> None:
    """Record which links reach their sources. FAILED links stay FAILED."""
    for name, link in seen.items():
        error = lost.get(link.declared.spec.source)
        if error is not None and link.status is LinkStatus.ACTIVE:
            links.record_link_trouble(name, LinkStatus.UNAVAILABLE, Trouble(TIMEOUT, error.message, now_ms))
        elif error is None and link.status is LinkStatus.UNAVAILABLE:
            links.record_link_trouble(name, LinkStatus.ACTIVE, None)
