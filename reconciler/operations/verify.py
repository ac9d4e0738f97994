"""`verify`: compare two topics, or every mirror of a link with its source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.errors import NotFoundError, ReconcilerError, RetryableError, SourceChangedError, UsageError, UserError
from reconciler.jobs.verify import verify as compare_logs
from reconciler.lifecycles import MirrorStatus
from reconciler.operations.mirrors.mirror_views import find_mirror, mirror_named
from reconciler.operations.steps.jobs import SparkJobs
from reconciler.operations.steps.mount_jobs import progress_event
from reconciler.operations.steps.runner import SiteOptions, Stop, reading
from reconciler.operations.steps.workspace import Site, provider_of, topic_address
from reconciler.providers.protocol import links_by_jobs, links_of
from reconciler.resources.address import Address, address_of, cluster_of, full_name_of
from reconciler.resources.mirrors import SOURCE_TOPIC_ID_CHANGED, ForeignRecords, LinkSeen, MirrorSeen
from reconciler.runtime.text import counted, did_you_mean, first_few, nearest_spelling

if TYPE_CHECKING:
    from reconciler.applying.events import Event
    from reconciler.jobs.comparison import Comparison, Difference, PartitionComparison, Side
    from reconciler.jobs.progress import JobProgress
    from reconciler.jobs.stage import Engine
    from reconciler.providers.protocol_links import Links
    from reconciler.records.log import Bounds, Spans, TopicLog


_NAMED: Final = 5
_BEHIND: Final = frozenset({"end", "partition"})
"""How a mirror differs from its source that has not got all of it yet."""
_RETENTION: Final = frozenset({"retention.bytes", "retention.ms"})
"""Configs that, where they are synced, let a mirror begin where its source does."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What came of comparing two logs."""

    left: Address
    right: Address
    comparison: Comparison
    verdict: ReconcilerError | None
    foreign: tuple[ForeignRecords, ...] = ()
    """Records in a mirror that other producers wrote: they are not in its source."""

    @property
    def is_equal(self) -> bool:
        """Whether both have the same records, and no others."""
        return self.comparison.is_equal and not self.foreign


@dataclass(frozen=True, slots=True)
class NotCompared:
    """A mirror that could not be compared, and why."""

    mirror: Address
    error: ReconcilerError


@dataclass(frozen=True, slots=True)
class Stopped:
    """What was a mirror, and is a topic of its own: it is not compared."""

    mirror: Address
    by: str | None
    """The verb that stopped it, as `MirrorSeen.stopped_by`."""


@dataclass(frozen=True, slots=True)
class LinkVerified:
    """Every mirror of a link, compared with its source."""

    link: Address
    mirrors: tuple[Verified, ...]
    failed: tuple[NotCompared, ...]
    stopped: tuple[Stopped, ...]

    @property
    def is_equal(self) -> bool:
        """Whether there are mirrors, every one could be compared, and has the records of its source."""
        return bool(self.mirrors) and not self.failed and all(each.is_equal for each in self.mirrors)

    @property
    def verdict(self) -> ReconcilerError | None:
        """What is wrong, in a sentence; `None`: nothing is."""
        if self.is_equal:
            return None
        if not self.mirrors and not self.failed:
            hint = "See what became of its mirrors: reconciler mirror list"
            return UserError(f"{self.link}: nothing was compared, for no mirror follows its source", hint=hint)
        said: list[str] = []
        hints: list[str] = []
        different = [each for each in self.mirrors if not each.is_equal]
        if different:
            named = first_few([str(each.left) for each in different], _NAMED)
            said.append(f"{counted(len(different), 'mirror differs', 'mirrors differ')} ({named})")
            hints += [each.verdict.hint for each in different if each.verdict is not None]
            hints.append("See the partitions of one with: reconciler verify MIRROR")
        if self.failed:
            named = first_few([str(each.mirror) for each in self.failed], _NAMED)
            reasons = {each.error.message for each in self.failed}
            why = f": {reasons.pop()}" if len(reasons) == 1 else ""
            said.append(f"{counted(len(self.failed), 'mirror')} could not be compared ({named}){why}")
            hints += [each.error.hint for each in self.failed]
        hint = ". ".join(list(dict.fromkeys(each.rstrip(".") for each in hints))[:_NAMED])
        return UserError(f"{self.link}: {', and '.join(said)}", hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparing:
    """How logs are compared. With `deep` every record is read again; `stop` ends the comparison."""

    deep: bool
    report: Callable[[Event], None]
    stop: Stop


def verify(reach: SiteOptions, left: str, right: str | None, how: Comparing) -> Verified:
    """Compare two logs by the digests they keep; with `deep` every record is read anew.

    One address alone is a mirror, which is compared with its source: that it began later is no difference.

    Raises:
        UserError: One of them is not there, or `deep` finds no Java.
        InterruptedRunError: Somebody asked to stop.
    """
    site = reach.site()
    try:
        ours = topic_address(left)
    except UsageError as error:
        if right is None:
            error.message = f"{left!r} is not the address of a mirror or a link"
            error.hint = "Write it as mirror/east/shop:eu:orders or link/east/from-west; two topics are compared too."
        raise
    mirror = None if right is not None else _mirror(site, ours)
    with SparkJobs(site.providers, site.spark, reach.invocation) as jobs, reading(jobs, how.stop):
        return _Verifying(site, jobs.engine(), how).logs(ours, right, mirror)


def verify_link(reach: SiteOptions, link: Address, how: Comparing) -> LinkVerified:
    """Compare every mirror of a link with its source; one that cannot be compared keeps no other from it.

    What was promoted is a mirror no longer, and is left out.

    Raises:
        UserError: There is no such link, or `deep` finds no Java.
        InterruptedRunError: Somebody asked to stop.
    """
    site = reach.site()
    links, name = links_of(provider_of(site, link)), full_name_of(link)
    seen = links.links()
    if name not in {each.name for each in seen}:
        near = nearest_spelling(link, (address_of("link", cluster_of(link) or "", each.name) for each in seen))
        hint = did_you_mean(near, then="See the links with: reconciler link list")
        raise NotFoundError(f"{link}: there is no such link", hint=hint)
    mirrors = links.mirrors(name)
    active = [each for each in mirrors if each.status is not MirrorStatus.STOPPED]
    stopped = [Stopped(_address(each), each.stopped_by) for each in mirrors if each.status is MirrorStatus.STOPPED]
    verified: list[Verified] = []
    failed = [_lost(link, each) for each in links.lost(name)]
    hidden, cluster = links.hidden({each.name for each in mirrors}, name), cluster_of(link) or ""
    failed += [NotCompared(address_of("mirror", cluster, each), error) for each, error in sorted(hidden.items())]
    lost: dict[str, ReconcilerError] = {}
    with SparkJobs(site.providers, site.spark, reach.invocation) as jobs, reading(jobs, how.stop):
        verifying = _Verifying(site, jobs.engine(), how, seen, _all_foreign(links, active))
        for mirror in active:
            error = lost.get(mirror.source_cluster)
            if error is None:
                try:
                    verified.append(verifying.logs(_address(mirror), None, mirror))
                    continue
                except (UserError, RetryableError) as raised:
                    error = raised
                    lost |= _silence_of(site, mirror.source_cluster)
            failed.append(NotCompared(_address(mirror), error))
    return LinkVerified(link, tuple(verified), tuple(failed), tuple(stopped))


@dataclass(frozen=True, slots=True)
class _Verifying:
    """What compares logs of one workspace."""

    site: Site
    engine: Engine
    how: Comparing
    links: Sequence[LinkSeen] | None = None
    foreign: Mapping[str, Sequence[ForeignRecords]] | None = None
    """What was asked for all mirrors of a link at once; `None`: it is asked for when it is needed."""

    def logs(self, ours: Address, right: str | None, mirror: MirrorSeen | None) -> Verified:
        """Compare two logs; a mirror with its source."""
        site, engine = self.site, self.engine
        theirs = _source(site, mirror) if mirror is not None else topic_address(right or "")
        logs = provider_of(site, ours).log(ours), _log_of_source(site, theirs, mirror)
        spans = _spans(site, (ours, theirs), logs, mirror)
        if spans is None:
            comparison = compare_logs(engine, *logs, deep=self.how.deep, progress=lambda found: self._tell(ours, found))
        else:
            begins = None if mirror is None else mirror.begins
            comparison = renumbered(engine, logs, spans, begins=begins, progress=lambda found: self._tell(ours, found))
        if mirror is not None and spans is None:
            links = links_of(provider_of(site, ours)).links() if self.links is None else self.links
            comparison = _without_starts(comparison, mirror, links)
        named = ours if mirror is None else _address(mirror)
        foreign: Sequence[ForeignRecords] = ()
        if mirror is not None and spans is not None:
            asked = self.foreign
            if asked is None:
                asked = links_by_jobs(provider_of(site, ours)).foreign([mirror.name])
            foreign = asked.get(mirror.name, ())
        verdict = _foreign(named, theirs, foreign) or _verdict(named, theirs, comparison, mirror)
        return Verified(named, theirs, comparison, verdict, tuple(foreign))

    def _tell(self, ours: Address, found: JobProgress) -> None:
        self.how.report(progress_event(f"verify:{ours}", found))


def _log_of_source(site: Site, theirs: Address, mirror: MirrorSeen | None) -> TopicLog:
    """Return what a log is compared with; what a mirror was made from must be that very topic.

    Raises:
        UserError: It is gone, or was created again.
    """
    try:
        log = provider_of(site, theirs).log(theirs)
        topic_id = None if mirror is None else log.topic_id
    except UserError as error:
        if mirror is not None:
            error.about(theirs, "its source")
        raise
    known = None if mirror is None else mirror.source_topic_id
    if known is not None and topic_id is not None and topic_id != known:
        message = f"{theirs} was created again: it has id {topic_id}, and the mirror was made from {known}"
        hint = "Nothing of the two is mixed. To mirror the new one, delete the mirror, and apply"
        raise SourceChangedError(message, code=SOURCE_TOPIC_ID_CHANGED, hint=hint)
    return log


def _spans(
    site: Site, ends: tuple[Address, Address], logs: tuple[TopicLog, TopicLog], mirror: MirrorSeen | None
) -> Mapping[int, Spans] | None:
    """Return what is compared of logs that number their records differently; `None`: their offsets are the same.

    A mirror on a Kafka cluster keeps a map; two topics of Kafka clusters are compared whole, in the order of records.
    """
    from reconciler.jobs.ordered import whole_spans  # noqa: PLC0415 - with the rest of what reads records
    from reconciler.records.log import TransactionalSink  # noqa: PLC0415 - as above

    ours, theirs = ends
    if mirror is not None:
        sink = provider_of(site, ours).sink(_address(mirror))
        return sink.spans(logs[1].bounds()) if isinstance(sink, TransactionalSink) else None
    if any(site.clusters[cluster_of(end) or ""].spec.root is not None for end in (ours, theirs)):
        return None
    return whole_spans(logs[0].bounds(), logs[1].bounds())


def renumbered(
    engine: Engine,
    logs: tuple[TopicLog, TopicLog],
    spans: Mapping[int, Spans],
    *,
    begins: Mapping[int, int] | None = None,
    progress: Callable[[JobProgress], None] = lambda _found: None,
) -> Comparison:
    """Compare logs by the order of their records; where the right one goes on behind that, its end differs.

    Its start differs where the left one let go of all that the right one still has, from where a mirror `begins` on:
    each lets go of old records in its own time, but nothing is not the same as something.
    """
    from reconciler.jobs.ordered import verify_renumbered  # noqa: PLC0415 - with the rest of what reads records

    left, right = (log.bounds() for log in logs)
    comparison = verify_renumbered(engine, *logs, spans, progress=progress)

    def behind(each: PartitionComparison) -> PartitionComparison:
        bounds, here, span = right.get(each.partition), left.get(each.partition), spans[each.partition]
        if bounds is None:
            return each
        if here is None:
            return replace(each, left=None, right=_as_far(each.right, bounds), differences=("partition",))
        first = max(bounds.start, (begins or {}).get(each.partition, 0))
        is_gone = not span.right.length and here.start > 0 and first < bounds.stable
        lacks: list[Difference] = ["start"] if is_gone or (span.left.length and here.start > span.left.start) else []
        copied = bounds.stable if span.offsets is None else span.offsets.through
        lacks += ["end"] if span.right.stop < bounds.stable or copied > bounds.stable else []
        if not lacks and each.is_equal:
            return each
        # As far as they go, not as far as both do: else a mirror that is behind shows no difference in its row.
        sides = _as_far(each.left, here), _as_far(each.right, bounds)
        return replace(each, left=sides[0], right=sides[1], differences=(*each.differences, *lacks))

    return replace(comparison, partitions=tuple(map(behind, comparison.partitions)))


def _all_foreign(links: Links, mirrors: Sequence[MirrorSeen]) -> Mapping[str, Sequence[ForeignRecords]] | None:
    """Return the records of others in mirrors; `None`: of one they cannot be had, so each is asked for alone."""
    if links.by_jobs is None:
        return {}
    try:
        return links.by_jobs.foreign([each.name for each in mirrors])
    except (UserError, RetryableError):
        return None


def _lost(link: Address, name: str) -> NotCompared:
    """Return that the topic of a mirror is gone."""
    address = address_of("mirror", cluster_of(link) or "", name)
    message = f"its topic is gone from cluster {cluster_of(link)}, or another one has its name"
    return NotCompared(
        address, UserError(message, hint="See it with: reconciler drift. Make it again: reconciler apply")
    )


def _address(mirror: MirrorSeen) -> Address:
    return address_of("mirror", mirror.cluster, mirror.name)


def _silence_of(site: Site, cluster: str) -> dict[str, ReconcilerError]:
    """Return why a cluster does not answer; empty where it does. It is waited for once, not for every mirror."""
    try:
        site.providers[cluster].identify()
    except RetryableError as error:
        return {cluster: error}
    except UserError:
        pass  # Each mirror says so itself.
    return {}


def _as_far(side: Side | None, bounds: Bounds) -> Side | None:
    """Return a side with the bounds of its log."""
    return side and replace(side, start=bounds.start, end=bounds.stable)


def _mirror(site: Site, topic: Address) -> MirrorSeen:
    named = mirror_named(topic)
    try:
        return find_mirror(links_of(provider_of(site, topic)), named)
    except UserError as error:
        error.hint = f"{error.hint.removesuffix('.')}. Two logs are compared by two addresses"
        raise


def _source(site: Site, mirror: MirrorSeen) -> Address:
    if mirror.source_cluster not in site.clusters:
        message = f"cluster {mirror.source_cluster}, from which {mirror.name} is mirrored, is not in this workspace"
        raise UserError(message, hint="Declare it as a Cluster.")
    return address_of("topic", mirror.source_cluster, mirror.source)


def _without_starts(comparison: Comparison, mirror: MirrorSeen, links: Sequence[LinkSeen]) -> Comparison:
    """Return a comparison without what is meant: a mirror may begin later, and delete what is old by itself."""
    synced = next((link.declared.spec.topic_config_sync for link in links if link.name == mirror.link), None)
    is_own = synced is not None and not set(synced.include) >= _RETENTION

    def meant(each: PartitionComparison) -> PartitionComparison:
        begins = (mirror.begins or {}).get(each.partition, 0)
        is_meant = each.left is not None and (is_own or 0 < begins <= each.left.start)
        rest = tuple(one for one in each.differences if not (is_meant and one == "start"))
        return replace(each, differences=rest)

    return replace(comparison, partitions=tuple(map(meant, comparison.partitions)))


def _verdict(
    left: Address, right: Address, comparison: Comparison, mirror: MirrorSeen | None
) -> ReconcilerError | None:
    if comparison.is_equal:
        return None
    found = {one for each in comparison.differing for one in each.differences}
    if mirror is None:
        hint = "Read both where they differ: reconciler topic consume TOPIC --partition N --from OFFSET"
    elif mirror.status is not MirrorStatus.ACTIVE:
        hint = f"The mirror is {mirror.status}: nothing is copied to it while it is"
    elif found <= _BEHIND:
        hint = "A mirror that is only behind is brought up to date by: reconciler run --once"
    else:
        hint = "Copying what comes next does not mend that. To copy all of it again, delete the mirror, and apply"
    return UserError(f"{left} and {right} differ in {described(comparison.differing)}", hint=hint)


def _foreign(mirror: Address, source: Address, foreign: Sequence[ForeignRecords]) -> ReconcilerError | None:
    """Return that other producers wrote to a mirror; `None`: they did not."""
    if not foreign:
        return None
    message = f"{mirror} has {told_of(foreign)} that {source} does not have: another producer wrote them"
    return UserError(message, hint=STAYS)


STAYS: Final = (
    "Keep others out (`protect: acl` in the link). The records stay until the mirror is made anew: "
    "delete it, and apply."
)


def told_of(foreign: Sequence[ForeignRecords]) -> str:
    """Return how many records of others there are, and where, in a few words."""
    count = sum(each.records for each in foreign)
    named = first_few([str(each) for each in foreign], _NAMED, grouping="")
    return f"{counted(count, 'record')} ({named})"


def described(differing: tuple[PartitionComparison, ...]) -> str:
    """Return which partitions differ in what, in a few words."""
    named = [f"partition {each.partition} ({', '.join(each.differences)})" for each in differing]
    return first_few(named, _NAMED, grouping="")
