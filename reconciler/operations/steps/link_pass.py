"""One pass over a link: mirrors, configs, groups and access rules.

Records are not copied here: who does passes copies them after `sync_links` and before `bring_groups`, for no group is
brought to where its mirror has not come yet. Any process may do a pass, and any number of them at once: each step is
whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from reconciler.errors import NotAuthorizedError, ReconcilerError, UserError
from reconciler.lifecycles import LinkStatus, MirrorStatus
from reconciler.operations.steps.link_sides import (
    LIVE,
    MISCONFIGURATION,
    NOT_READABLE,
    WAITED_FOR,
    LinkSource,
    LinkSynced,
    LinkView,
    Pace,
    TaskDone,
    failed,
    judged,
    learn_names,
    link_status_of,
    note_task,
    principal_of,
    provider_named,
    reached,
    why_left,
)
from reconciler.operations.steps.transitions import UNDER_WAY, Driver
from reconciler.providers.protocol import links_by_jobs, links_of
from reconciler.resources.address import join_name, split_name
from reconciler.resources.mirror_link import SYNC_MS, MirrorLinkSpec, is_auto_created, takes_name
from reconciler.resources.mirrors import (
    ACL_SYNC,
    AUTO_CREATE_MIRROR,
    CONSUMER_OFFSET_SYNC,
    SOURCE_TOPIC_ID_CHANGED,
    SOURCE_TOPIC_MAY_BE_DELETED,
    TOPIC_CONFIGS_SYNC,
    GroupOffsets,
    GroupOffsetsResult,
    LinkSeen,
    MirrorSeen,
    Offered,
    Trouble,
    taken_rules,
)
from reconciler.runtime.text import first_few

if TYPE_CHECKING:
    from reconciler.providers.protocol import Provider
    from reconciler.providers.protocol_links import SyncsByJobs
    from reconciler.resources.owners import ResourceOwner


# Groups that follow their topics: where they go on reading at the source is where they would go on reading mirrors.


IN_USE: Final = "CONSUMER_GROUP_IN_USE_ERROR"


def bring(sides: LinkView, pace: Pace) -> TaskDone:
    """Bring the groups that a link takes, of all its mirrors: one listing, and those that committed since the last."""
    mirrors, spec = sides.live, sides.spec
    above, below = links_by_jobs(sides.source).syncs, links_by_jobs(sides.destination).syncs
    versions, refused = _versions(above, spec)
    rests_on = (spec.prefix, spec.consumer_offset_sync, tuple((one.source, one.name, one.topic_id) for one in mirrors))
    settled = pace.groups(sides.link.id, rests_on)
    news = [name for name, version in sorted(versions.items()) if settled.get(name) != version]
    offsets = above.group_offsets(news) if news else {}
    return brought(spec, mirrors, (offsets, below), refused, settled=(settled, versions))


def _versions(above: SyncsByJobs, spec: MirrorLinkSpec) -> tuple[dict[str, str], dict[str, ReconcilerError]]:
    """Return the versions of the groups that a link takes, and why some may not be read."""
    found = above.group_versions(lambda name: is_taken(spec, name))
    refused = {name: version for name, version in found.items() if isinstance(version, ReconcilerError)}
    return {name: version for name, version in found.items() if not isinstance(version, ReconcilerError)}, refused


def is_taken(spec: MirrorLinkSpec, group: str) -> bool:
    """Tell whether a link brings the offsets of a group."""
    asked = spec.consumer_offset_sync
    return asked is not None and asked.enabled and takes_name(asked.filters, group)


def brought(
    spec: MirrorLinkSpec,
    mirrors: Iterable[MirrorSeen],
    ends: tuple[Mapping[str, GroupOffsets], SyncsByJobs],
    refused: Mapping[str, ReconcilerError],
    *,
    settled: tuple[dict[str, str], Mapping[str, str]] | None = None,
) -> TaskDone:
    """Bring offsets of groups to the cluster of some mirrors, and note which are settled by that.

    `refused` says why other groups could not be read.
    """
    offsets, below = ends
    names = {mirror.source: mirror.name for mirror in mirrors}
    of_mirrors = {name: _renamed(found, names) for name, found in offsets.items()}
    asked = {_called(spec, name): found for name, found in of_mirrors.items() if found}
    outcomes = below.bring_offsets(asked) if asked else {}
    errors = {f"group {name}": error for name, error in refused.items()}
    in_use: dict[str, ReconcilerError] = {}
    count = 0
    for name in offsets:
        outcome = outcomes.get(_called(spec, name), GroupOffsetsResult())
        if isinstance(outcome, ReconcilerError):
            errors[f"group {name}"] = outcome
            continue
        if outcome.reading:
            in_use[f"group {name}"] = _in_use(outcome.reading)
            continue
        count += outcome.is_changed
        if outcome.own:
            in_use[f"group {name}"] = _has_its_own(outcome.own)
            continue  # Until that is gone it is looked at again.
        if settled is not None and not outcome.is_clamped:
            settled[0][name] = settled[1][name]
    if errors or not in_use:
        return failed(count, errors)
    return replace(failed(count, in_use), code=IN_USE)


def _renamed(offsets: GroupOffsets, names: Mapping[str, str]) -> GroupOffsets:
    return {(names[topic], part): each for (topic, part), each in offsets.items() if topic in names}


def _called(spec: MirrorLinkSpec, group: str) -> str:
    """Return what a group is called at the destination: the same, unless the link's prefix is for groups, too."""
    asked = spec.consumer_offset_sync
    if asked is None or not asked.prefix_groups:
        return group
    namespace, own = split_name(group)
    return join_name(namespace, spec.prefix + own)


def _in_use(topics: Collection[str]) -> UserError:
    message = f"it reads {', '.join(sorted(topics)[:3])} on the destination itself: it committed within 24 hours"
    return UserError(message, hint="Exclude it from consumerOffsetSync.filters, or stop it there.")


def _has_its_own(topics: Collection[str]) -> UserError:
    message = f"it committed offsets of {', '.join(sorted(topics)[:3])} on the destination itself, or was reset there"
    hint = "Exclude it from consumerOffsetSync.filters, or let the link go on: reconciler group delete, with --topic."
    return UserError(message, hint=hint)


@dataclass
class GroupsRead:
    """Offsets of the groups of clusters, each read once for each of its versions."""

    _known: dict[tuple[str, str], tuple[str, GroupOffsets]] = field(default_factory=dict)

    def taken(
        self, cluster: str, spec: MirrorLinkSpec, above: SyncsByJobs
    ) -> tuple[dict[str, GroupOffsets], dict[str, ReconcilerError]]:
        """Return the offsets of all groups that a link takes, and why some may not be read."""
        versions, refused = _versions(above, spec)
        news = [name for name, version in versions.items() if self._known.get((cluster, name), ("",))[0] != version]
        if news:
            for name, offsets in above.group_offsets(sorted(news)).items():
                self._known[cluster, name] = versions[name], offsets
        there = (name for name in sorted(versions) if (cluster, name) in self._known)
        return {name: self._known[cluster, name][1] for name in there}, refused


# Mirrors that a link makes by itself: of topics that its filters take, that it may read, and whose name is free here.
#
# With a prefix none is made of a topic that is a mirror itself: links in both directions would make mirrors for ever.


TAKEN: Final = "TOPIC_EXISTS_ERROR"


def make(sides: LinkView, offered: Mapping[str, Offered]) -> TaskDone:
    """Make the mirrors that are missing, and tell of those whose names other topics have."""
    asked = sides.spec.auto_create
    filters = () if asked is None or not asked.enabled else asked.filters
    there = {mirror.source for mirror in sides.mirrors}
    wanted = {
        name: seen.topic
        for name, seen in offered.items()
        if name not in there and is_auto_created(filters, name)
        if seen.is_readable and not (sides.spec.prefix and seen.is_mirror)
    }
    if not wanted:
        return TaskDone()
    found = links_by_jobs(sides.destination).syncs.make_mirrors(sides.link.name, wanted)
    errors = {name: error for name, error in found.items() if error is not None}
    done = failed(len(found) - len(errors), errors)
    taken = {} if errors else _taken(sides, [source for source in wanted if _mirror_name(sides, source) not in found])
    return _in_the_way(sides, taken, done) if taken else done


def _mirror_name(sides: LinkView, source: str) -> str:
    namespace, own = split_name(source)
    return join_name(namespace, sides.spec.prefix + own)


def _taken(sides: LinkView, sources: Collection[str]) -> dict[str, str]:
    """Return the topics that are in the way of mirrors, by the sources of these.

    None is a mirror of the same source, nor what that source itself mirrors, or did before roles were swapped.
    """
    if not sources:
        return {}
    below, above = sides.link.declared.metadata.cluster, sides.spec.source
    here = {mirror.name: mirror for mirror in links_of(sides.destination).mirrors()}
    there = {mirror.name: mirror for mirror in links_of(sides.source).mirrors()}
    taken: dict[str, str] = {}
    for source in sources:
        name = _mirror_name(sides, source)
        own, back = here.get(name), there.get(source)
        is_own = own is not None and own.link == sides.link.name
        is_same = own is not None and own.status in LIVE and (own.source_cluster, own.source) == (above, source)
        is_back = back is not None and (back.source_cluster, back.source) == (below, name)
        if not (is_own or is_same or is_back):
            taken[source] = name
    return taken


def _in_the_way(sides: LinkView, taken: Mapping[str, str], done: TaskDone) -> TaskDone:
    sources, cluster = sorted(taken), sides.link.declared.metadata.cluster
    topics, of = first_few([taken[source] for source in sources]), first_few(sources)
    is_one = len(taken) == 1
    said = f"topic {topics} of cluster {cluster} is" if is_one else f"topics {topics} of cluster {cluster} are"
    error = UserError(
        f"{said} in the way of {'a mirror' if is_one else 'mirrors'} of {of}",
        hint=f"Exclude {of} by autoCreate.filters, move what is there, or make the link with another prefix.",
    )
    return replace(done, error=error, code=TAKEN, note=f"{error.message}. {error.hint}")


# Access rules that follow their topics: what a link's filters take of them, and nothing else.


def rule(sides: LinkView) -> TaskDone:
    """Bring the access rules of a source to the mirrors and namespaces of a destination."""
    asked, name = sides.spec.acl_sync, sides.link.name
    below = links_by_jobs(sides.destination).syncs
    if asked is None or not asked.enabled or sides.spec.prefix:  # With a prefix they would be about other topics.
        return TaskDone(below.protect(name))
    if not asked.filters:
        error = UserError(f"link {name}: acl.filters is not set", hint="Say in aclSync.filters which rules it brings.")
        return TaskDone(below.protect(name), error, MISCONFIGURATION)
    rules = taken_rules(asked.filters, links_by_jobs(sides.source).syncs.rules())
    return TaskDone(below.bring_rules(name, rules) + below.protect(name))


# Mirrors and their sources, all of a link at once: partitions and configs follow, and a source that is lost is told.
#
# What may come back (a topic, the right to read it) is waited for as long as the link says; a topic that is another one
# by its id, or has fewer partitions, never is what was mirrored again.


PARTITIONS_DECREASED: Final = "SOURCE_PARTITIONS_DECREASED"


def follow(sides: LinkView, offered: Mapping[str, Offered]) -> TaskDone:
    """Bring the mirrors of a link to the shape of their sources."""
    healthy = {
        mirror.name: offered[mirror.source].topic
        for mirror in sides.live
        if mirror.status is not MirrorStatus.PAUSED and _wrong(sides, mirror, offered.get(mirror.source)) is None
    }
    return failed(0, links_by_jobs(sides.destination).syncs.follow(healthy))


def note_sources(sides: LinkView, offered: Mapping[str, Offered]) -> dict[str, ReconcilerError]:
    """Note which mirrors have lost their sources, and which have them again; return why some are FAILED from now on."""
    news: dict[str, Trouble | None] = {}
    ended: dict[str, ReconcilerError] = {}
    for mirror in sides.live:
        trouble, known = _wrong(sides, mirror, offered.get(mirror.source)), mirror.trouble
        if trouble is None:
            if known is not None and known.code in WAITED_FOR:
                news[mirror.name] = None
            continue
        found = judged(known, trouble, retry_ms=sides.spec.retry_timeout, now_ms=sides.now_ms)
        if found.is_news:
            news[mirror.name] = trouble
        if found.fails:
            ended[mirror.name] = UserError(trouble.message, hint=FAILED_HINT)
    if news:
        links_by_jobs(sides.destination).syncs.note(news, list(ended))
    return ended


FAILED_HINT: Final = (
    "The mirror is FAILED, and nothing is copied to it. Fail over to keep what it has, or delete it, and apply: it is "
    "made anew"
)


def _wrong(sides: LinkView, mirror: MirrorSeen, seen: Offered | None) -> Trouble | None:
    """Return what is wrong with the source of a mirror; `None`: nothing."""
    where, now_ms = f"{mirror.source} of cluster {sides.spec.source}", sides.now_ms
    if seen is None:
        return Trouble(SOURCE_TOPIC_MAY_BE_DELETED, f"its source {where} is gone", now_ms)
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
"""What an outcome calls what is wrong with the link itself."""


@dataclass(frozen=True)
class LinkPass:
    """A pass over the links of a destination: what all of it needs."""

    cluster: str
    providers: Mapping[str, Provider]
    pace: Pace
    now_ms: Callable[[], int]
    owners: Mapping[str, ResourceOwner] = field(default_factory=dict)
    """The other workspaces that own some of the links, by name: what only these can know, or mend, is left to them."""

    def view(self, link: LinkSeen, mirrors: Iterable[MirrorSeen]) -> LinkView | None:
        """Return a link with both its clusters and its own mirrors; `None`: its source is not known."""
        source = link.declared.spec.source
        if source not in self.providers:
            return None
        own, owner = tuple(mirror for mirror in mirrors if mirror.link == link.name), self.owners.get(link.name)
        return LinkView(link, own, self.providers[self.cluster], self.providers[source], self.now_ms(), owner)


def sync_links(
    over: LinkPass, driver: Driver | None = None, is_wanted: Callable[[str], bool] = lambda _name: True
) -> Iterator[LinkSynced]:
    """Do a pass over the links of a destination, those that are wanted by name, and yield what it did for each.

    What is left to do are groups, of those links whose groups are due: `bring_groups`, once records are copied.

    Raises:
        RetryableError: The destination does not answer.
    """
    links = links_by_jobs(over.providers[over.cluster])
    every, here = links.links(), ""
    mirrors: Sequence[MirrorSeen] | None = None
    for link in every:
        if not is_wanted(link.name):
            continue
        if mirrors is None:
            # Before its mirrors: what is changed while links are gone over is met by the next pass.
            here = links.syncs.version() if any(each.status is not LinkStatus.PAUSED for each in every) else ""
            mirrors = links.mirrors()
            learn_names(over.providers, mirrors)
        sides = over.view(link, mirrors)
        if sides is None:
            yield _unknown(over.cluster, link, over.owners.get(link.name))
        elif left := why_left(sides):
            yield LinkSynced(over.cluster, link.name, link.status, left=left, is_left=True)
        else:
            yield sync_link(sides, here, over.pace, driver)


def bring_groups(over: LinkPass, names: Collection[str]) -> Iterator[LinkSynced]:
    """Bring groups over some links of a destination, as its mirrors are by now, and yield what came of each link.

    Raises:
        RetryableError: The destination does not answer.
    """
    if not names:
        return
    links, pace = links_of(over.providers[over.cluster]), over.pace
    mirrors = links.mirrors()
    for link in links.links():
        sides = over.view(link, mirrors) if link.name in names else None
        if sides is None:
            continue
        if link.status is not LinkStatus.ACTIVE:  # Since its other tasks were done: it is not too late next time.
            pace.again(link.id, CONSUMER_OFFSET_SYNC)
            continue
        found = _attempted(sides, pace, CONSUMER_OFFSET_SYNC, partial(bring, sides, pace))
        errors = {} if found.error is None else {CONSUMER_OFFSET_SYNC: found.error}
        yield LinkSynced(over.cluster, link.name, link.status, {CONSUMER_OFFSET_SYNC: found.count}, errors=errors)


def sync_link(sides: LinkView, here: str, pace: Pace, driver: Driver | None = None) -> LinkSynced:
    """Do a pass over one link, but for its groups; what fails in one task does not stop the others.

    `here` is the version of its destination before that was looked at. A paused link does nothing by itself;
    transitions that were asked for are gone on with.

    Raises:
        RetryableError: The destination does not answer.
    """
    cluster, name = sides.link.declared.metadata.cluster, sides.link.name
    if sides.link.status is LinkStatus.PAUSED:
        drove, errors = _driven(sides, driver)
        return LinkSynced(cluster, name, LinkStatus.PAUSED, drove=drove, errors=errors)
    if sides.spec.paused:  # And broken: it may have been mended.
        tried = reached(sides, lambda _version: False)
        if isinstance(tried, ReconcilerError):
            return LinkSynced(cluster, name, link_status_of(tried), errors={LINK: tried})
        return LinkSynced(cluster, name, LinkStatus.PAUSED)
    tasks = _Tasks(sides, pace, here)
    found = reached(sides, tasks.needs_offers)
    if isinstance(found, ReconcilerError):
        tasks.put_off()
        return LinkSynced(cluster, name, link_status_of(found), errors={LINK: found})
    failed, done = tasks.done(found)
    drove, errors = _driven(sides, driver)
    errors |= {**failed, **{task: each.error for task, each in done.items() if each.error is not None}}
    counts = {task: each.count for task, each in done.items()}
    return LinkSynced(
        *(cluster, name, LinkStatus.ACTIVE, counts, tuple(failed), drove, errors),
        are_groups_due=tasks.brings,
        left=tasks.left,
    )


@dataclass
class _Tasks:
    """The tasks of a link in one pass; `here` is the version of its destination before that was looked at.

    What rests on the versions of both clusters alone is done once for each pair of them: ten thousand mirrors that are
    well are not looked at every few seconds.
    """

    sides: LinkView
    pace: Pace
    here: str
    _due: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """See what is due."""
        spec = self.sides.spec
        auto, groups, rules = spec.auto_create, spec.consumer_offset_sync, spec.acl_sync
        self.makes = self._is_on(AUTO_CREATE_MIRROR, is_enabled=auto is not None and auto.enabled) and self._is_due(
            AUTO_CREATE_MIRROR, spec.metadata_interval
        )
        self.brings = (
            self._is_on(CONSUMER_OFFSET_SYNC, is_enabled=groups is not None and groups.enabled)
            and groups is not None
            and self._is_due(CONSUMER_OFFSET_SYNC, groups.interval)
        )
        configs = spec.topic_config_sync
        self.follows = self._is_due(TOPIC_CONFIGS_SYNC, SYNC_MS if configs is None else configs.interval)
        is_synced = rules is not None and rules.enabled
        are_protected = spec.protect == "acl" or not self.sides.destination.capabilities.mirrors.read_only
        has_rules = self._is_on(ACL_SYNC, is_enabled=are_protected or is_synced)
        are_due = self._is_due(ACL_SYNC, rules.interval if rules is not None and is_synced else 0)
        self.rules = has_rules and are_due
        self.is_all_due = self.follows and (are_due or not has_rules)

    def put_off(self) -> None:
        """Let what is due be due at once again: the source does not answer, so nothing of it was done."""
        for task in self._due:
            self.pace.again(self.sides.link.id, task)

    def needs_offers(self, version: str) -> bool:
        """Tell whether anything is to be done about topics, where the source has this version."""
        return self._makes(version) or self._shapes(version)

    def done(self, found: LinkSource) -> tuple[dict[str, ReconcilerError], dict[str, TaskDone]]:
        """Do what is due, in the order in which one rests on the other; return what failed for good, and the rest."""
        failed: dict[str, ReconcilerError] = {}
        done: dict[str, TaskDone] = {}
        offered, version = found.offered or {}, found.version
        shapes = self._shapes(version)
        if shapes and self.sides.owner is None:
            failed = note_sources(self.sides, offered)
        if self._makes(version):
            done[AUTO_CREATE_MIRROR] = self._made(offered, version)
            if done[AUTO_CREATE_MIRROR].count:  # Rules are of those that were just made, too.
                mirrors = links_of(self.sides.destination).mirrors(self.sides.link.name)
                self.sides = replace(self.sides, mirrors=tuple(mirrors))
        if shapes:
            if self.follows:
                done[TOPIC_CONFIGS_SYNC] = self._done(TOPIC_CONFIGS_SYNC, lambda: follow(self.sides, offered))
            if self.rules and self._knows_names():
                done[ACL_SYNC] = self._done(ACL_SYNC, lambda: rule(self.sides))
            waits = any(mirror.trouble is not None for mirror in self.sides.live)
            errors = [task for task in (TOPIC_CONFIGS_SYNC, ACL_SYNC) if task in done and done[task].error is not None]
            self._settle(TOPIC_CONFIGS_SYNC, version, is_done=self.is_all_due and not waits and not errors)
        return failed, done

    def _made(self, offered: Mapping[str, Offered], version: str) -> TaskDone:
        """Make mirrors; that names are taken is no reason to look again, and is said once."""
        found, link = self._done(AUTO_CREATE_MIRROR, lambda: make(self.sides, offered)), self.sides.link.id
        is_taken = found.code == TAKEN
        self._settle(AUTO_CREATE_MIRROR, version, is_done=found.error is None or is_taken)
        is_news = self.pace.is_news(link, AUTO_CREATE_MIRROR, "" if found.error is None else found.error.message)
        return replace(found, error=None) if is_taken and not is_news else found

    def _makes(self, version: str) -> bool:
        is_settled = self.pace.is_settled(self.sides.link.id, AUTO_CREATE_MIRROR, (version, self.here))
        return self.makes and not is_settled and self._knows_names()

    @property
    def left(self) -> str:
        """What of the link is left to its owner, by the words of its manifest."""
        spec = self.sides.spec
        said = {
            "autoCreate": spec.auto_create is not None and spec.auto_create.enabled,
            "aclSync": spec.acl_sync is not None and spec.acl_sync.enabled,
            "protect": spec.protect == "acl",
        }
        return "" if self._knows_names() else " and ".join(name for name, is_on in said.items() if is_on)

    def _knows_names(self) -> bool:
        """Tell whether filters and rules take here what the owner of the link means.

        Where a platform has no namespaces, a workspace reads its flat names by the namespaces that it declares.
        """
        ends = (self.sides.source, self.sides.destination)
        return self.sides.owner is None or not any(each.capabilities.namespaces_are_rules for each in ends)

    def _shapes(self, version: str) -> bool:
        return not self.pace.is_settled(self.sides.link.id, TOPIC_CONFIGS_SYNC, (version, self.here))

    def _settle(self, task: str, version: str, *, is_done: bool) -> None:
        if is_done:  # Where this pass itself has committed something, the next one looks once more.
            self.pace.settle(self.sides.link.id, task, (version, self.here))

    def _is_on(self, task: str, *, is_enabled: bool) -> bool:
        """Tell whether the link does it at all; what was wrong with it when it did is over."""
        if not is_enabled:
            note_task(self.sides, task, TaskDone())
        return is_enabled

    def _is_due(self, task: str, interval_ms: int) -> bool:
        is_due = self.pace.is_due(self.sides.link.id, task, interval_ms, self.sides.now_ms)
        self._due += [task] if is_due else []
        return is_due

    def _done(self, task: str, do: Callable[[], TaskDone]) -> TaskDone:
        return _attempted(self.sides, self.pace, task, do)


def _attempted(sides: LinkView, pace: Pace, task: str, do: Callable[[], TaskDone]) -> TaskDone:
    """Do a task and note what came of it; what could not be done is due again at once."""
    try:
        found = do()
    except ReconcilerError as error:
        pace.again(sides.link.id, task)
        found = TaskDone(0, error)
    note_task(sides, task, found)
    return found


def _driven(sides: LinkView, driver: Driver | None) -> tuple[tuple[str, ...], dict[str, ReconcilerError]]:
    """Go on with transitions that are under way, whoever began them."""
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


def _unknown(cluster: str, link: LinkSeen, owner: ResourceOwner | None) -> LinkSynced:
    source = link.declared.spec.source
    if owner is not None:
        return LinkSynced(cluster, link.name, link.status, left=f"cluster {source} is not declared here", is_left=True)
    message = f"link {link.name} of cluster {cluster}: its source, cluster {source}, is not known here"
    error = UserError(message, hint="Declare it as a Cluster, or name a state that has it with --state.")
    return LinkSynced(cluster, link.name, link.status, errors={LINK: error})


# The last sync of a mirror that is promoted, reversed or restored: configs and groups, all of them, whatever is due.
#
# It is what `Driver.sync` is. What it cannot bring keeps the transition from ending, and is told as its error; only a
# group that reads the mirror itself is left alone: what it committed here wins anyway.


@dataclass(frozen=True)
class FinalSync:
    """Syncs one mirror after another; groups that many have in common are read once."""

    providers: Mapping[str, Provider]
    _groups: GroupsRead = field(default_factory=GroupsRead)

    def __call__(self, mirror: MirrorSeen) -> None:
        """Bring configs and groups of a mirror to what its source has, for the last time.

        Raises:
            NotAuthorizedError: The link may not read the source.
            SourceChangedError: The source was deleted and created again.
            UserError: The source is gone, or something cannot be brought: says what.
            RetryableError: One of the two clusters does not answer.
        """
        links = links_by_jobs(provider_named(self.providers, mirror.cluster))
        source = provider_named(self.providers, mirror.source_cluster)
        learn_names(self.providers, [mirror])
        above, where = links_by_jobs(source).syncs, f"{mirror.source} of cluster {mirror.source_cluster}"
        seen = above.offered(principal_of(mirror.link), [mirror.source]).get(mirror.source)
        if seen is None:
            hint = "Fail over to keep what the mirror has: that needs no source."
            raise UserError(f"the source {where} is gone", hint=hint)
        if not seen.is_readable:
            message = f"an access rule denies reading {where} to {principal_of(mirror.link)}"
            raise NotAuthorizedError(message, hint="Remove the rule there; what is under way goes on then.")
        for error in links.syncs.follow({mirror.name: seen.topic}).values():
            raise error
        link = next((link for link in links.links() if link.name == mirror.link), None)
        if link is None:
            return
        spec = link.declared.spec
        offsets, refused = self._groups.taken(mirror.source_cluster, spec, above)
        done = brought(spec, [mirror], (offsets, links.syncs), refused)
        if done.error is not None and done.code != IN_USE:
            raise done.error
