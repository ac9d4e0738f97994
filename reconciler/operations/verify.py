"""`verify`: compare two topics, or every mirror of a link with its source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from reconciler.errors import NotFoundError, ReconcilerError, RetryableError, SourceChangedError, UsageError, UserError
from reconciler.lifecycles import MirrorStatus
from reconciler.operations.mirrors.mirror_views import find_mirror, parse_mirror_address
from reconciler.operations.steps.jobs import SparkJobs
from reconciler.operations.steps.mount_jobs import build_progress_event
from reconciler.operations.steps.runner import SiteOptions, Stop, stop_jobs_on_request
from reconciler.operations.steps.workspace import Site, get_address_provider, parse_topic_address
from reconciler.providers.protocol import require_job_links, require_links
from reconciler.resources.address import Address, address_of, cluster_of, full_name_of
from reconciler.resources.mirrors import SOURCE_TOPIC_ID_CHANGED, ForeignRecords, ObservedLink, ObservedMirror
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.text import find_similar_spelling, format_suggestion, list_first, pluralize

if TYPE_CHECKING:
    from reconciler.applying.events import Event
    from reconciler.jobs.comparison import Comparison, Difference, PartitionComparison, PartitionSide
    from reconciler.jobs.progress import JobProgress
    from reconciler.jobs.stage import Engine
    from reconciler.providers.protocol_links import Links
    from reconciler.records.log import Bounds, Spans, TopicLog


_SHOWN_NAMES: Final = 5
_LAG_DIFFERENCES: Final = frozenset({"end", "partition"})
_RETENTION: Final = frozenset({"retention.bytes", "retention.ms"})


@dataclass(frozen=True, slots=True)
class TopicComparison:
    """Result of comparing two topics."""

    left: Address
    right: Address
    comparison: Comparison
    verdict: ReconcilerError | None
    foreign: tuple[ForeignRecords, ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether both logs have the same records."""
        return self.comparison.is_equal and not self.foreign


@dataclass(frozen=True, slots=True)
class NotCompared:
    """A mirror that could not be compared."""

    mirror: Address
    error: ReconcilerError


@dataclass(frozen=True, slots=True)
class StoppedMirror:
    """A stopped mirror. It is an ordinary topic, and not compared."""

    mirror: Address
    by: str | None


@dataclass(frozen=True, slots=True)
class LinkComparison:
    """Comparisons of a link's mirrors with their sources."""

    link: Address
    mirrors: tuple[TopicComparison, ...]
    failed: tuple[NotCompared, ...]
    stopped: tuple[StoppedMirror, ...]

    @property
    def is_equal(self) -> bool:
        """Whether mirrors were compared, and all are equal."""
        return bool(self.mirrors) and not self.failed and all(mirror.is_equal for mirror in self.mirrors)

    @property
    def verdict(self) -> ReconcilerError | None:
        """Error that names the differences, or `None`."""
        if self.is_equal:
            return None
        if not self.mirrors and not self.failed:
            hint = "See the state of its mirrors: reconciler mirror list"
            return UserError(f"{self.link}: nothing was compared, because no mirror follows its source", hint=hint)
        problems: list[str] = []
        hints: list[str] = []
        different = [mirror for mirror in self.mirrors if not mirror.is_equal]
        if different:
            named = list_first([str(mirror.left) for mirror in different], _SHOWN_NAMES)
            problems.append(f"{pluralize(len(different), 'mirror differs', 'mirrors differ')} ({named})")
            hints += [mirror.verdict.hint for mirror in different if mirror.verdict is not None]
            hints.append("See the partitions of one with: reconciler verify MIRROR")
        if self.failed:
            named = list_first([str(mirror.mirror) for mirror in self.failed], _SHOWN_NAMES)
            reasons = {mirror.error.message for mirror in self.failed}
            why = f": {reasons.pop()}" if len(reasons) == 1 else ""
            problems.append(f"{pluralize(len(self.failed), 'mirror')} could not be compared ({named}){why}")
            hints += [mirror.error.hint for mirror in self.failed]
        hint = ". ".join(list(dict.fromkeys(text.rstrip(".") for text in hints))[:_SHOWN_NAMES])
        return UserError(f"{self.link}: {', and '.join(problems)}", hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """Options of a comparison. `deep` reads records instead of stored digests."""

    deep: bool
    report: Callable[[Event], None]
    stop: Stop


def verify(reach: SiteOptions, left: str, right: str | None, how: VerifyOptions) -> TopicComparison:
    """Compare two topics, or a mirror with its source. A mirror may start at a later offset."""
    site = reach.open_site()
    try:
        ours = parse_topic_address(left)
    except UsageError as error:
        if right is None:
            error.message = f"{left!r} is not the address of a mirror or a link"
            error.hint = "Write it as mirror/east/shop:eu:orders or link/east/from-west; two topics are compared too."
        raise
    mirror = None if right is not None else _find_mirror(site, ours)
    with SparkJobs(site.providers, site.spark, reach.invocation) as jobs, stop_jobs_on_request(jobs, how.stop):
        return _LogComparer(site, jobs.build_engine(), how).compare_logs(ours, right, mirror)


def verify_link(reach: SiteOptions, link: Address, how: VerifyOptions) -> LinkComparison:
    """Compare a link's mirrors with their sources, except stopped ones. Failures do not stop other comparisons."""
    site = reach.open_site()
    links, name = require_links(get_address_provider(site, link)), full_name_of(link)
    seen = links.list_links()
    if name not in {link_seen.name for link_seen in seen}:
        near = find_similar_spelling(
            link, (address_of("link", cluster_of(link) or "", link_seen.name) for link_seen in seen)
        )
        hint = format_suggestion(near, then="See the links with: reconciler link list")
        raise NotFoundError(f"{link}: there is no such link", hint=hint)
    mirrors = links.list_mirrors(name)
    active = [mirror for mirror in mirrors if mirror.status is not MirrorStatus.STOPPED]
    stopped = [
        StoppedMirror(_make_mirror_address(mirror), mirror.stopped_by)
        for mirror in mirrors
        if mirror.status is MirrorStatus.STOPPED
    ]
    verified: list[TopicComparison] = []
    failed = [_report_missing_topic(link, mirror_name) for mirror_name in links.list_lost_mirrors(name)]
    hidden, cluster = links.find_hidden_mirrors({mirror.name for mirror in mirrors}, name), cluster_of(link) or ""
    failed += [
        NotCompared(address_of("mirror", cluster, mirror_name), error) for mirror_name, error in sorted(hidden.items())
    ]
    lost: dict[str, ReconcilerError] = {}
    with SparkJobs(site.providers, site.spark, reach.invocation) as jobs, stop_jobs_on_request(jobs, how.stop):
        verifying = _LogComparer(site, jobs.build_engine(), how, seen, _read_foreign(links, active))
        for mirror in active:
            error = lost.get(mirror.source_cluster)
            if error is None:
                try:
                    verified.append(verifying.compare_logs(_make_mirror_address(mirror), None, mirror))
                    continue
                except (UserError, RetryableError) as raised:
                    error = raised
                    lost |= _find_unreachable_error(site, mirror.source_cluster)
            failed.append(NotCompared(_make_mirror_address(mirror), error))
    return LinkComparison(link, tuple(verified), tuple(failed), tuple(stopped))


@dataclass(frozen=True, slots=True)
class _LogComparer:
    site: Site
    engine: Engine
    how: VerifyOptions
    links: Sequence[ObservedLink] | None = None
    foreign: Mapping[str, Sequence[ForeignRecords]] | None = None

    def compare_logs(self, ours: Address, right: str | None, mirror: ObservedMirror | None) -> TopicComparison:
        from reconciler.jobs.verify import compare_logs  # noqa: PLC0415 - loads numpy

        site, engine = self.site, self.engine
        theirs = _find_source_address(site, mirror) if mirror is not None else parse_topic_address(right or "")
        logs = get_address_provider(site, ours).open_log(ours), _open_source_log(site, theirs, mirror)
        spans = _find_spans(site, (ours, theirs), logs, mirror)
        if spans is None:
            comparison = compare_logs(
                engine,
                *logs,
                deep=self.how.deep,
                progress=lambda job_progress: self._report_progress(ours, job_progress),
            )
        else:
            begins = None if mirror is None else mirror.begins
            comparison = compare_renumbered(
                engine,
                logs,
                spans,
                begins=begins,
                progress=lambda job_progress: self._report_progress(ours, job_progress),
            )
        if mirror is not None and spans is None:
            links = require_links(get_address_provider(site, ours)).list_links() if self.links is None else self.links
            comparison = _drop_expected_differences(comparison, mirror, links)
        named = ours if mirror is None else _make_mirror_address(mirror)
        foreign: Sequence[ForeignRecords] = ()
        if mirror is not None and spans is not None:
            foreign_by_name = self.foreign
            if foreign_by_name is None:
                foreign_by_name = require_job_links(get_address_provider(site, ours)).find_foreign_records(
                    [mirror.name]
                )
            foreign = foreign_by_name.get(mirror.name, ())
        verdict = _foreign_error(named, theirs, foreign) or _choose_verdict(named, theirs, comparison, mirror)
        return TopicComparison(named, theirs, comparison, verdict, tuple(foreign))

    def _report_progress(self, ours: Address, progress: JobProgress) -> None:
        self.how.report(build_progress_event(f"verify:{ours}", progress))


def _open_source_log(site: Site, theirs: Address, mirror: ObservedMirror | None) -> TopicLog:
    try:
        log = get_address_provider(site, theirs).open_log(theirs)
        topic_id = None if mirror is None else log.topic_id
    except UserError as error:
        if mirror is not None:
            error.add_subject(theirs, "its source")
        raise
    known = None if mirror is None else mirror.source_topic_id
    if known is not None and topic_id is not None and topic_id != known:
        message = f"{theirs} was created again: it has id {topic_id}, and the mirror was created from {known}"
        hint = "The mirror has no records of the new topic. To mirror the new one, delete the mirror, and apply"
        raise SourceChangedError(message, code=SOURCE_TOPIC_ID_CHANGED, hint=hint)
    return log


def _find_spans(
    site: Site, ends: tuple[Address, Address], logs: tuple[TopicLog, TopicLog], mirror: ObservedMirror | None
) -> Mapping[int, Spans] | None:
    from reconciler.jobs.ordered import make_whole_spans  # noqa: PLC0415 - loads record code
    from reconciler.records.log import TransactionalSink  # noqa: PLC0415 - as above

    ours, theirs = ends
    if mirror is not None:
        provider = get_address_provider(site, ours)
        if require_links(provider).job_steps is None:
            return None  # The platform itself copies mirrors at their sources' offsets.
        sink = provider.open_sink(_make_mirror_address(mirror))
        return sink.find_spans(logs[1].read_bounds()) if isinstance(sink, TransactionalSink) else None
    if any(site.clusters[cluster_of(end) or ""].spec.root is not None for end in (ours, theirs)):
        return None
    return make_whole_spans(logs[0].read_bounds(), logs[1].read_bounds())


def compare_renumbered(
    engine: Engine,
    logs: tuple[TopicLog, TopicLog],
    spans: Mapping[int, Spans],
    *,
    begins: Mapping[int, int] | None = None,
    progress: Callable[[JobProgress], None] = lambda _progress: None,
) -> Comparison:
    """Compare logs record by record, ignoring offsets.

    The end differs if the right log continues after its span. The start differs if the left log deleted all records of
    the right one since `begins`.
    """
    from reconciler.jobs.ordered import verify_renumbered  # noqa: PLC0415 - with the rest of what reads records

    left, right = (log.read_bounds() for log in logs)
    comparison = verify_renumbered(engine, *logs, spans, progress=progress)

    def add_missing(row: PartitionComparison) -> PartitionComparison:
        bounds, left_bounds, span = (right.get(row.partition), left.get(row.partition), spans[row.partition])
        if bounds is None:
            return row
        if left_bounds is None:
            return replace(row, left=None, right=_set_bounds(row.right, bounds), differences=("partition",))
        first = max(bounds.start, (begins or {}).get(row.partition, 0))
        is_gone = not span.right.length and left_bounds.start > 0 and first < bounds.stable
        lacks: list[Difference] = (
            ["start"] if is_gone or (span.left.length and left_bounds.start > span.left.start) else []
        )
        copied = bounds.stable if span.offsets is None else span.offsets.through
        lacks += ["end"] if span.right.stop < bounds.stable or copied > bounds.stable else []
        if not lacks and row.is_equal:
            return row
        sides = _set_bounds(row.left, left_bounds), _set_bounds(row.right, bounds)
        return replace(row, left=sides[0], right=sides[1], differences=(*row.differences, *lacks))

    return replace(comparison, partitions=tuple(map(add_missing, comparison.partitions)))


def _read_foreign(links: Links, mirrors: Sequence[ObservedMirror]) -> Mapping[str, Sequence[ForeignRecords]] | None:
    if links.job_steps is None:
        return {}
    try:
        return links.job_steps.find_foreign_records([mirror.name for mirror in mirrors])
    except (UserError, RetryableError):
        return None


def _report_missing_topic(link: Address, name: str) -> NotCompared:
    address = address_of("mirror", cluster_of(link) or "", name)
    message = f"its topic was deleted from cluster {cluster_of(link)}, or another one has its name"
    return NotCompared(
        address, UserError(message, hint="See it with: reconciler drift. Make it again: reconciler apply")
    )


def _make_mirror_address(mirror: ObservedMirror) -> Address:
    return address_of("mirror", mirror.cluster, mirror.name)


def _find_unreachable_error(site: Site, cluster: str) -> dict[str, ReconcilerError]:
    try:
        site.providers[cluster].identify()
    except RetryableError as error:
        return {cluster: error}
    except UserError:
        pass  # Each comparison reports this error.
    return {}


def _set_bounds(side: PartitionSide | None, bounds: Bounds) -> PartitionSide | None:
    return side and replace(side, start=bounds.start, end=bounds.stable)


def _find_mirror(site: Site, topic: Address) -> ObservedMirror:
    named = parse_mirror_address(topic)
    try:
        return find_mirror(require_links(get_address_provider(site, topic)), named)
    except UserError as error:
        error.hint = f"{error.hint.removesuffix('.')}. Two logs are compared by two addresses"
        raise


def _find_source_address(site: Site, mirror: ObservedMirror) -> Address:
    if mirror.source_cluster not in site.clusters:
        message = f"cluster {mirror.source_cluster}, from which {mirror.name} is mirrored, is not in this workspace"
        raise UserError(message, hint="Declare it as a Cluster.")
    return address_of("topic", mirror.source_cluster, mirror.source)


def _drop_expected_differences(
    comparison: Comparison, mirror: ObservedMirror, links: Sequence[ObservedLink]
) -> Comparison:
    synced = next((link.declared.spec.topic_config_sync for link in links if link.name == mirror.link), None)
    is_own = synced is not None and not set(synced.include) >= _RETENTION

    def drop_expected(partition: PartitionComparison) -> PartitionComparison:
        begins = (mirror.begins or {}).get(partition.partition, 0)
        is_meant = partition.left is not None and (is_own or 0 < begins <= partition.left.start)
        rest = tuple(difference for difference in partition.differences if not (is_meant and difference == "start"))
        return replace(partition, differences=rest)

    return replace(comparison, partitions=tuple(map(drop_expected, comparison.partitions)))


def _choose_verdict(
    left: Address, right: Address, comparison: Comparison, mirror: ObservedMirror | None
) -> ReconcilerError | None:
    if comparison.is_equal:
        return None
    differences = {difference for partition in comparison.differing for difference in partition.differences}
    if mirror is None:
        hint = "Read both where they differ: reconciler topic consume TOPIC --partition N --from OFFSET"
    elif mirror.status is not MirrorStatus.ACTIVE:
        hint = f"The mirror is {mirror.status}: nothing is copied to it while it is"
    elif differences <= _LAG_DIFFERENCES:
        hint = "A mirror that is only behind is brought up to date by: reconciler run --once"
    else:
        hint = "More copying does not repair the difference. To copy everything again, delete the mirror, and apply"
    return UserError(f"{left} and {right} differ in {describe_differences(comparison.differing)}", hint=hint)


def _foreign_error(mirror: Address, source: Address, foreign: Sequence[ForeignRecords]) -> ReconcilerError | None:
    if not foreign:
        return None
    message = f"{mirror} has {describe_foreign(foreign)} that {source} does not have: another producer wrote them"
    return UserError(message, hint=STAYS)


STAYS: Final = (
    "Keep others out (`protect: acl` in the link). The records stay until the mirror is created again: delete it, and "
    "apply."
)


def describe_foreign(foreign: Sequence[ForeignRecords]) -> str:
    """Describe number and offsets of foreign records."""
    count = sum(foreign_range.records for foreign_range in foreign)
    named = list_first([str(foreign_range) for foreign_range in foreign], _SHOWN_NAMES, grouping="")
    return f"{pluralize(count, 'record')} ({named})"


def describe_differences(differing: tuple[PartitionComparison, ...]) -> str:
    """Describe how partitions differ."""
    named = [f"partition {partition.partition} ({', '.join(partition.differences)})" for partition in differing]
    return list_first(named, _SHOWN_NAMES, grouping="")
