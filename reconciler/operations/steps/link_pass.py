"""One pass over a link: mirrors, configs, groups and access rules.

Copy records between `sync_links` and `sync_link_groups`, because group offsets must not exceed a mirror's end. Several
processes may run passes, because each step is atomic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from reconciler.errors import NotAuthorizedError, ReconcilerError, UserError
from reconciler.lifecycles import LinkStatus, MirrorStatus
from reconciler.operations.steps.link_sides import (
    LIVE_STATES,
    MISCONFIGURATION,
    NOT_READABLE,
    PASSING_TROUBLES,
    LinkMemory,
    LinkOutcome,
    LinkSource,
    LinkView,
    TaskResult,
    choose_link_status,
    explain_left_to_owner,
    get_provider,
    judge_trouble,
    make_link_principal,
    probe_source,
    record_task_trouble,
    register_full_names,
    summarize_task,
)
from reconciler.operations.steps.transitions import UNDER_WAY, TransitionDriver
from reconciler.providers.protocol import require_job_links, require_links
from reconciler.resources.address import join_name, split_name
from reconciler.resources.mirror_link import SYNC_MS, MirrorLinkSpec, filters_include, is_auto_created
from reconciler.resources.mirrors import (
    ACL_SYNC,
    AUTO_CREATE_MIRROR,
    CONSUMER_OFFSET_SYNC,
    SOURCE_TOPIC_ID_CHANGED,
    SOURCE_TOPIC_MAY_BE_DELETED,
    TOPIC_CONFIGS_SYNC,
    GroupOffsets,
    GroupOffsetsResult,
    ObservedLink,
    ObservedMirror,
    OfferedTopic,
    Trouble,
    filter_rules,
)
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.text import list_first

if TYPE_CHECKING:
    from reconciler.providers.protocol import Provider
    from reconciler.providers.protocol_links import SyncsByJobs
    from reconciler.resources.owners import ResourceOwner


IN_USE: Final = "CONSUMER_GROUP_IN_USE_ERROR"


def sync_groups(sides: LinkView, pace: LinkMemory) -> TaskResult:
    """Sync groups with commits since the last sync."""
    mirrors, spec = sides.live, sides.spec
    above, below = require_job_links(sides.source).syncs, require_job_links(sides.destination).syncs
    versions, refused = _read_group_versions(above, spec)
    rests_on = (
        spec.prefix,
        spec.consumer_offset_sync,
        tuple((mirror.source, mirror.name, mirror.topic_id) for mirror in mirrors),
    )
    settled = pace.get_group_versions(sides.link.id, rests_on)
    news = [name for name, version in sorted(versions.items()) if settled.get(name) != version]
    offsets = above.read_group_offsets(news) if news else {}
    return write_offsets(spec, mirrors, (offsets, below), refused, settled=(settled, versions))


def _read_group_versions(above: SyncsByJobs, spec: MirrorLinkSpec) -> tuple[dict[str, str], dict[str, ReconcilerError]]:
    versions = above.list_group_versions(lambda name: is_group_synced(spec, name))
    refused = {name: version for name, version in versions.items() if isinstance(version, ReconcilerError)}
    return {name: version for name, version in versions.items() if not isinstance(version, ReconcilerError)}, refused


def is_group_synced(spec: MirrorLinkSpec, group: str) -> bool:
    """Return whether a link's settings select a group for offset sync."""
    sync = spec.consumer_offset_sync
    return sync is not None and sync.enabled and filters_include(sync.filters, group)


def write_offsets(
    spec: MirrorLinkSpec,
    mirrors: Iterable[ObservedMirror],
    ends: tuple[Mapping[str, GroupOffsets], SyncsByJobs],
    refused: Mapping[str, ReconcilerError],
    *,
    settled: tuple[dict[str, str], Mapping[str, str]] | None = None,
) -> TaskResult:
    """Write offsets of source groups to the destination, and record synced groups in `settled`."""
    offsets, below = ends
    names = {mirror.source: mirror.name for mirror in mirrors}
    of_mirrors = {name: _rename_topics(group_offsets, names) for name, group_offsets in offsets.items()}
    wanted = {_make_destination_group(spec, name): renamed for name, renamed in of_mirrors.items() if renamed}
    outcomes = below.sync_group_offsets(wanted) if wanted else {}
    errors = {f"group {name}": error for name, error in refused.items()}
    in_use: dict[str, ReconcilerError] = {}
    count = 0
    for name in offsets:
        outcome = outcomes.get(_make_destination_group(spec, name), GroupOffsetsResult())
        if isinstance(outcome, ReconcilerError):
            errors[f"group {name}"] = outcome
            continue
        if outcome.reading:
            in_use[f"group {name}"] = _in_use_error(outcome.reading)
            continue
        count += outcome.is_changed
        if outcome.own:
            in_use[f"group {name}"] = _own_offsets_error(outcome.own)
            # Each pass retries the group until its own topic is deleted.
            continue
        if settled is not None and not outcome.is_clamped:
            settled[0][name] = settled[1][name]
    if errors or not in_use:
        return summarize_task(count, errors)
    return replace(summarize_task(count, in_use), code=IN_USE)


def _rename_topics(offsets: GroupOffsets, names: Mapping[str, str]) -> GroupOffsets:
    return {(names[topic], part): offset for (topic, part), offset in offsets.items() if topic in names}


def _make_destination_group(spec: MirrorLinkSpec, group: str) -> str:
    sync = spec.consumer_offset_sync
    if sync is None or not sync.prefix_groups:
        return group
    namespace, own = split_name(group)
    return join_name(namespace, spec.prefix + own)


def _in_use_error(topics: Collection[str]) -> UserError:
    message = f"it reads {', '.join(sorted(topics)[:3])} on the destination itself: it committed within 24 hours"
    return UserError(message, hint="Exclude it from consumerOffsetSync.filters, or stop it there.")


def _own_offsets_error(topics: Collection[str]) -> UserError:
    message = f"it committed offsets of {', '.join(sorted(topics)[:3])} on the destination itself, or was reset there"
    hint = "Exclude it from consumerOffsetSync.filters, or let the link sync it: reconciler group delete, with --topic."
    return UserError(message, hint=hint)


@dataclass
class GroupOffsetCache:
    """Caches committed offsets by cluster and version of a group."""

    _known: dict[tuple[str, str], tuple[str, GroupOffsets]] = field(default_factory=dict)

    def read_link_groups(
        self, cluster: str, spec: MirrorLinkSpec, above: SyncsByJobs
    ) -> tuple[dict[str, GroupOffsets], dict[str, ReconcilerError]]:
        """Return offsets and errors by group."""
        versions, refused = _read_group_versions(above, spec)
        news = [name for name, version in versions.items() if self._known.get((cluster, name), ("",))[0] != version]
        if news:
            for name, offsets in above.read_group_offsets(sorted(news)).items():
                self._known[cluster, name] = versions[name], offsets
        known_groups = (name for name in sorted(versions) if (cluster, name) in self._known)
        return {name: self._known[cluster, name][1] for name in known_groups}, refused


TAKEN: Final = "TOPIC_EXISTS_ERROR"


def auto_create_mirrors(sides: LinkView, offered: Mapping[str, OfferedTopic]) -> TaskResult:
    """Create missing mirrors, and report name conflicts with other topics.

    With a prefix, mirrors are skipped: two opposite links would create mirrors forever.
    """
    auto_create = sides.spec.auto_create
    filters = () if auto_create is None or not auto_create.enabled else auto_create.filters
    mirrored = {mirror.source for mirror in sides.mirrors}
    wanted = {
        name: seen.topic
        for name, seen in offered.items()
        if name not in mirrored and is_auto_created(filters, name)
        if seen.is_readable and not (sides.spec.prefix and seen.is_mirror)
    }
    if not wanted:
        return TaskResult()
    outcomes = require_job_links(sides.destination).syncs.create_mirrors(sides.link.name, wanted)
    errors = {name: error for name, error in outcomes.items() if error is not None}
    done = summarize_task(len(outcomes) - len(errors), errors)
    of_link = (
        {}
        if errors
        else _find_name_conflicts(
            sides, [source for source in wanted if _make_mirror_name(sides, source) not in outcomes]
        )
    )
    return _report_name_conflicts(sides, of_link, done) if of_link else done


def _make_mirror_name(sides: LinkView, source: str) -> str:
    namespace, own = split_name(source)
    return join_name(namespace, sides.spec.prefix + own)


def _find_name_conflicts(sides: LinkView, sources: Collection[str]) -> dict[str, str]:
    if not sources:
        return {}
    below, above = sides.link.declared.metadata.cluster, sides.spec.source
    own_mirrors = {mirror.name: mirror for mirror in require_links(sides.destination).list_mirrors()}
    source_mirrors = {mirror.name: mirror for mirror in require_links(sides.source).list_mirrors()}
    of_link: dict[str, str] = {}
    for source in sources:
        name = _make_mirror_name(sides, source)
        own, back = own_mirrors.get(name), source_mirrors.get(source)
        is_own = own is not None and own.link == sides.link.name
        is_same = own is not None and own.status in LIVE_STATES and (own.source_cluster, own.source) == (above, source)
        is_back = back is not None and (back.source_cluster, back.source) == (below, name)
        if not (is_own or is_same or is_back):
            of_link[source] = name
    return of_link


def _report_name_conflicts(sides: LinkView, of_link: Mapping[str, str], done: TaskResult) -> TaskResult:
    sources, cluster = sorted(of_link), sides.link.declared.metadata.cluster
    topics, of = list_first([of_link[source] for source in sources]), list_first(sources)
    is_one = len(of_link) == 1
    subject = f"topic {topics} of cluster {cluster} is" if is_one else f"topics {topics} of cluster {cluster} are"
    error = UserError(
        f"{subject} in use already, so autoCreate cannot make {'a mirror' if is_one else 'mirrors'} of {of}",
        hint=f"Exclude {of} by autoCreate.filters, move the existing topic, or make the link with another prefix.",
    )
    return replace(done, error=error, code=TAKEN, note=f"{error.message}. {error.hint}")


def sync_access_rules(sides: LinkView) -> TaskResult:
    """Sync access rules from the source to mirrors and namespaces."""
    sync, name = sides.spec.acl_sync, sides.link.name
    below = require_job_links(sides.destination).syncs
    if sync is None or not sync.enabled or sides.spec.prefix:
        return TaskResult(below.protect_mirrors(name))
    if not sync.filters:
        error = UserError(f"link {name}: acl.filters is not set", hint="List in aclSync.filters the rules to copy.")
        return TaskResult(below.protect_mirrors(name), error, MISCONFIGURATION)
    rules = filter_rules(sync.filters, require_job_links(sides.source).syncs.list_access_rules())
    return TaskResult(below.sync_rules(name, rules) + below.protect_mirrors(name))


# A mirror tolerates an unreadable source for the link's time-out, but no source with another id or fewer partitions.


PARTITIONS_DECREASED: Final = "SOURCE_PARTITIONS_DECREASED"


def sync_topics(sides: LinkView, offered: Mapping[str, OfferedTopic]) -> TaskResult:
    """Sync partitions and configs from sources to mirrors."""
    healthy = {
        mirror.name: offered[mirror.source].topic
        for mirror in sides.live
        if mirror.status is not MirrorStatus.PAUSED
        and _find_source_trouble(sides, mirror, offered.get(mirror.source)) is None
    }
    return summarize_task(0, require_job_links(sides.destination).syncs.update_mirrors(healthy))


def record_source_troubles(sides: LinkView, offered: Mapping[str, OfferedTopic]) -> dict[str, ReconcilerError]:
    """Record lost and recovered sources; return errors of mirrors that became FAILED."""
    news: dict[str, Trouble | None] = {}
    ended: dict[str, ReconcilerError] = {}
    for mirror in sides.live:
        trouble, known = _find_source_trouble(sides, mirror, offered.get(mirror.source)), mirror.trouble
        if trouble is None:
            if known is not None and known.code in PASSING_TROUBLES:
                news[mirror.name] = None
            continue
        judgement = judge_trouble(known, trouble, retry_ms=sides.spec.retry_timeout, now_ms=sides.now_ms)
        if judgement.is_news:
            news[mirror.name] = trouble
        if judgement.fails:
            ended[mirror.name] = UserError(trouble.message, hint=FAILED_HINT)
    if news:
        require_job_links(sides.destination).syncs.record_troubles(news, list(ended))
    return ended


FAILED_HINT: Final = (
    "The mirror is FAILED, and nothing is copied to it. Fail over to keep what it has, or delete it, and apply: it is "
    "created again"
)


def _find_source_trouble(sides: LinkView, mirror: ObservedMirror, seen: OfferedTopic | None) -> Trouble | None:
    where, now_ms = f"{mirror.source} of cluster {sides.spec.source}", sides.now_ms
    if seen is None:
        return Trouble(SOURCE_TOPIC_MAY_BE_DELETED, f"its source {where} no longer exists", now_ms)
    if mirror.source_topic_id is not None and seen.topic.incarnation not in {None, mirror.source_topic_id}:
        message = f"its source {where} was deleted and created again (its topic id changed)"
        return Trouble(SOURCE_TOPIC_ID_CHANGED, message, now_ms)
    if not seen.is_readable:
        return Trouble(NOT_READABLE, f"an access rule denies reading {where} to {sides.principal}", now_ms)
    if seen.topic.partitions < mirror.partitions:
        message = f"its source {where} has {seen.topic.partitions} partitions, and the mirror {mirror.partitions}"
        return Trouble(PARTITIONS_DECREASED, message, now_ms)
    return None


LINK = "link"


@dataclass(frozen=True)
class LinkPass:
    """Syncs the links of one destination cluster."""

    cluster: str
    providers: Mapping[str, Provider]
    pace: LinkMemory
    now_ms: Callable[[], int]
    owners: Mapping[str, ResourceOwner] = field(default_factory=dict)

    def build_view(self, link: ObservedLink, mirrors: Iterable[ObservedMirror]) -> LinkView | None:
        """Return a link with both clusters and its mirrors; `None` if the source cluster is unknown."""
        source = link.declared.spec.source
        if source not in self.providers:
            return None
        own, owner = tuple(mirror for mirror in mirrors if mirror.link == link.name), self.owners.get(link.name)
        return LinkView(link, own, self.providers[self.cluster], self.providers[source], self.now_ms(), owner)


def sync_links(
    link_pass: LinkPass, driver: TransitionDriver | None = None, is_wanted: Callable[[str], bool] = lambda _name: True
) -> Iterator[LinkOutcome]:
    """Sync selected links except groups, and yield the results. `driver` continues transitions."""
    links = require_job_links(link_pass.providers[link_pass.cluster])
    every, version = links.list_links(), ""
    mirrors: Sequence[ObservedMirror] | None = None
    for link in every:
        if not is_wanted(link.name):
            continue
        if mirrors is None:
            # The version is read before the mirrors, so the next pass notices concurrent changes.
            version = (
                links.syncs.read_metadata_version()
                if any(every_link.status is not LinkStatus.PAUSED for every_link in every)
                else ""
            )
            mirrors = links.list_mirrors()
            register_full_names(link_pass.providers, mirrors)
        sides = link_pass.build_view(link, mirrors)
        if sides is None:
            yield _unknown_source_outcome(link_pass.cluster, link, link_pass.owners.get(link.name))
        elif left := explain_left_to_owner(sides):
            yield LinkOutcome(link_pass.cluster, link.name, link.status, left=left, is_left=True)
        else:
            yield sync_link(sides, version, link_pass.pace, driver)


def sync_link_groups(link_pass: LinkPass, names: Collection[str]) -> Iterator[LinkOutcome]:
    """Sync groups up to the current ends of mirrors, and yield the results."""
    if not names:
        return
    links, pace = require_links(link_pass.providers[link_pass.cluster]), link_pass.pace
    mirrors = links.list_mirrors()
    for link in links.list_links():
        sides = link_pass.build_view(link, mirrors) if link.name in names else None
        if sides is None:
            continue
        if link.status is not LinkStatus.ACTIVE:
            pace.make_due(link.id, CONSUMER_OFFSET_SYNC)
            continue
        task_done = _run_task(sides, pace, CONSUMER_OFFSET_SYNC, partial(sync_groups, sides, pace))
        errors = {} if task_done.error is None else {CONSUMER_OFFSET_SYNC: task_done.error}
        yield LinkOutcome(
            link_pass.cluster, link.name, link.status, {CONSUMER_OFFSET_SYNC: task_done.count}, errors=errors
        )


def sync_link(sides: LinkView, version: str, pace: LinkMemory, driver: TransitionDriver | None = None) -> LinkOutcome:
    """Sync a link except groups. A failed task does not stop the others.

    `version` of the destination was read before its mirrors.
    """
    cluster, name = sides.link.declared.metadata.cluster, sides.link.name
    if sides.link.status is LinkStatus.PAUSED:
        drove, errors = _drive_transitions(sides, driver)
        return LinkOutcome(cluster, name, LinkStatus.PAUSED, drove=drove, errors=errors)
    if sides.spec.paused:
        tried = probe_source(sides, lambda _version: False)
        if isinstance(tried, ReconcilerError):
            return LinkOutcome(cluster, name, choose_link_status(tried), errors={LINK: tried})
        return LinkOutcome(cluster, name, LinkStatus.PAUSED)
    tasks = _LinkTasks(sides, pace, version)
    source = probe_source(sides, tasks.needs_offers)
    if isinstance(source, ReconcilerError):
        tasks.make_all_due()
        return LinkOutcome(cluster, name, choose_link_status(source), errors={LINK: source})
    failed, done = tasks.run_tasks(source)
    drove, errors = _drive_transitions(sides, driver)
    errors |= {**failed, **{task: outcome.error for task, outcome in done.items() if outcome.error is not None}}
    counts = {task: outcome.count for task, outcome in done.items()}
    return LinkOutcome(
        *(cluster, name, LinkStatus.ACTIVE, counts, tuple(failed), drove, errors),
        are_groups_due=tasks.brings,
        left=tasks.left,
    )


@dataclass
class _LinkTasks:
    """Tasks of a link in one pass, each run once per pair of cluster versions."""

    sides: LinkView
    pace: LinkMemory
    destination_version: str
    _due: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        spec = self.sides.spec
        auto, groups, rules = spec.auto_create, spec.consumer_offset_sync, spec.acl_sync
        self.makes = self._check_enabled(
            AUTO_CREATE_MIRROR, is_enabled=auto is not None and auto.enabled
        ) and self._is_due(AUTO_CREATE_MIRROR, spec.metadata_interval)
        self.brings = (
            self._check_enabled(CONSUMER_OFFSET_SYNC, is_enabled=groups is not None and groups.enabled)
            and groups is not None
            and self._is_due(CONSUMER_OFFSET_SYNC, groups.interval)
        )
        configs = spec.topic_config_sync
        self.follows = self._is_due(TOPIC_CONFIGS_SYNC, SYNC_MS if configs is None else configs.interval)
        is_synced = rules is not None and rules.enabled
        are_protected = spec.protect == "acl" or not self.sides.destination.capabilities.mirrors.read_only
        has_rules = self._check_enabled(ACL_SYNC, is_enabled=are_protected or is_synced)
        are_due = self._is_due(ACL_SYNC, rules.interval if rules is not None and is_synced else 0)
        self.rules = has_rules and are_due
        self.is_all_due = self.follows and (are_due or not has_rules)

    def make_all_due(self) -> None:
        for task in self._due:
            self.pace.make_due(self.sides.link.id, task)

    def needs_offers(self, version: str) -> bool:
        return self._must_create_mirrors(version) or self._must_sync_topics(version)

    def run_tasks(self, source: LinkSource) -> tuple[dict[str, ReconcilerError], dict[str, TaskResult]]:
        failed: dict[str, ReconcilerError] = {}
        done: dict[str, TaskResult] = {}
        offered, version = source.offered or {}, source.version
        shapes = self._must_sync_topics(version)
        if shapes and self.sides.owner is None:
            failed = record_source_troubles(self.sides, offered)
        if self._must_create_mirrors(version):
            done[AUTO_CREATE_MIRROR] = self._create_mirrors(offered, version)
            if done[AUTO_CREATE_MIRROR].count:
                mirrors = require_links(self.sides.destination).list_mirrors(self.sides.link.name)
                self.sides = replace(self.sides, mirrors=tuple(mirrors))
        if shapes:
            if self.follows:
                done[TOPIC_CONFIGS_SYNC] = self._run(TOPIC_CONFIGS_SYNC, lambda: sync_topics(self.sides, offered))
            if self.rules and self._has_owner_names():
                done[ACL_SYNC] = self._run(ACL_SYNC, lambda: sync_access_rules(self.sides))
            waits = any(mirror.trouble is not None for mirror in self.sides.live)
            errors = [task for task in (TOPIC_CONFIGS_SYNC, ACL_SYNC) if task in done and done[task].error is not None]
            self._record_done(TOPIC_CONFIGS_SYNC, version, is_done=self.is_all_due and not waits and not errors)
        return failed, done

    def _create_mirrors(self, offered: Mapping[str, OfferedTopic], version: str) -> TaskResult:
        task_done, link = (
            self._run(AUTO_CREATE_MIRROR, lambda: auto_create_mirrors(self.sides, offered)),
            self.sides.link.id,
        )
        is_taken = task_done.code == TAKEN
        self._record_done(AUTO_CREATE_MIRROR, version, is_done=task_done.error is None or is_taken)
        is_news = self.pace.is_new_message(
            link, AUTO_CREATE_MIRROR, "" if task_done.error is None else task_done.error.message
        )
        return replace(task_done, error=None) if is_taken and not is_news else task_done

    def _must_create_mirrors(self, version: str) -> bool:
        is_settled = self.pace.is_settled(self.sides.link.id, AUTO_CREATE_MIRROR, (version, self.destination_version))
        return self.makes and not is_settled and self._has_owner_names()

    @property
    def left(self) -> str:
        spec = self.sides.spec
        switches = {
            "autoCreate": spec.auto_create is not None and spec.auto_create.enabled,
            "aclSync": spec.acl_sync is not None and spec.acl_sync.enabled,
            "protect": spec.protect == "acl",
        }
        return "" if self._has_owner_names() else " and ".join(name for name, is_on in switches.items() if is_on)

    def _has_owner_names(self) -> bool:
        """Declared namespaces change full names, so filters may select other topics."""
        ends = (self.sides.source, self.sides.destination)
        return self.sides.owner is None or not any(end.capabilities.namespaces_are_rules for end in ends)

    def _must_sync_topics(self, version: str) -> bool:
        return not self.pace.is_settled(self.sides.link.id, TOPIC_CONFIGS_SYNC, (version, self.destination_version))

    def _record_done(self, task: str, version: str, *, is_done: bool) -> None:
        if is_done:
            self.pace.record_settled(self.sides.link.id, task, (version, self.destination_version))

    def _check_enabled(self, task: str, *, is_enabled: bool) -> bool:
        if not is_enabled:
            record_task_trouble(self.sides, task, TaskResult())
        return is_enabled

    def _is_due(self, task: str, interval_ms: int) -> bool:
        is_due = self.pace.is_due(self.sides.link.id, task, interval_ms, self.sides.now_ms)
        self._due += [task] if is_due else []
        return is_due

    def _run(self, task: str, do: Callable[[], TaskResult]) -> TaskResult:
        return _run_task(self.sides, self.pace, task, do)


def _run_task(sides: LinkView, pace: LinkMemory, task: str, do: Callable[[], TaskResult]) -> TaskResult:
    try:
        task_done = do()
    except ReconcilerError as error:
        pace.make_due(sides.link.id, task)
        task_done = TaskResult(0, error)
    record_task_trouble(sides, task, task_done)
    return task_done


def _drive_transitions(
    sides: LinkView, driver: TransitionDriver | None
) -> tuple[tuple[str, ...], dict[str, ReconcilerError]]:
    ended: list[str] = []
    errors: dict[str, ReconcilerError] = {}
    for mirror in sides.mirrors if driver is not None else ():
        if mirror.status in UNDER_WAY and driver is not None:
            try:
                after = driver.drive(mirror.cluster, mirror.name)
            except ReconcilerError as error:
                errors[mirror.name] = error
            else:
                ended += [] if after.status in UNDER_WAY else [mirror.name]
    return tuple(ended), errors


def _unknown_source_outcome(cluster: str, link: ObservedLink, owner: ResourceOwner | None) -> LinkOutcome:
    source = link.declared.spec.source
    if owner is not None:
        return LinkOutcome(cluster, link.name, link.status, left=f"cluster {source} is not declared here", is_left=True)
    message = f"link {link.name} of cluster {cluster}: its source, cluster {source}, is not known here"
    error = UserError(message, hint="Declare it as a Cluster, or name a state that has it with --state.")
    return LinkOutcome(cluster, link.name, link.status, errors={LINK: error})


@dataclass(frozen=True)
class FinalSync:
    """Syncs groups and configs of mirrors before a promotion, reversal or restore ends.

    Errors keep the transition open, except for groups that already read the mirror.
    """

    providers: Mapping[str, Provider]
    _groups: GroupOffsetCache = field(default_factory=GroupOffsetCache)

    def __call__(self, mirror: ObservedMirror) -> None:
        """Sync a mirror's configs and groups."""
        links = require_job_links(get_provider(self.providers, mirror.cluster))
        source = get_provider(self.providers, mirror.source_cluster)
        register_full_names(self.providers, [mirror])
        above, where = require_job_links(source).syncs, f"{mirror.source} of cluster {mirror.source_cluster}"
        seen = above.list_offered_topics(make_link_principal(mirror.link), [mirror.source]).get(mirror.source)
        if seen is None:
            hint = "Fail over to keep what the mirror has: that needs no source."
            raise UserError(f"the source {where} no longer exists", hint=hint)
        if not seen.is_readable:
            message = f"an access rule denies reading {where} to {make_link_principal(mirror.link)}"
            raise NotAuthorizedError(message, hint="Remove the rule there; what is in progress then continues.")
        for error in links.syncs.update_mirrors({mirror.name: seen.topic}).values():
            raise error
        link = next((link for link in links.list_links() if link.name == mirror.link), None)
        if link is None:
            return
        spec = link.declared.spec
        offsets, refused = self._groups.read_link_groups(mirror.source_cluster, spec, above)
        done = write_offsets(spec, [mirror], (offsets, links.syncs), refused)
        if done.error is not None and done.code != IN_USE:
            raise done.error
