"""Checks of links and mirrors, and what a role change costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.planning.actions import Action, Estimate, Reason, Risk, RoleCost, RunJob, Transition
from reconciler.planning.checks.mount_checks import BYTES_A_SECOND
from reconciler.planning.diff.mirror_changes import CATCH_UP
from reconciler.planning.plan import Finding
from reconciler.planning.resolve.limits import beyond, beyond_platform, beyond_protection
from reconciler.planning.resolve.mirror_sources import link_of, mirrored_back, protected_from, topics_on, why_unread
from reconciler.planning.selection import half_at, has_two_halves
from reconciler.planning.situation import Review, Situation, WantedResource, is_live, mirror_at, source_of, topic_of
from reconciler.resources.address import Address, address_of, cluster_of, full_name_of, kind_of
from reconciler.resources.measures import agreed_ends, cut_off, lacking, last_fetched
from reconciler.resources.mirror_link import (
    MirrorLink,
    MirrorTopic,
    NameFilter,
    is_about,
    is_auto_created,
    is_left_by_default,
    is_never_made,
    is_never_mirrored,
    takes_name,
)
from reconciler.resources.mirrors import (
    FAILOVER,
    RESTORE,
    REVERSALS,
    Diverged,
    Positions,
    Stretch,
    WithDiverged,
    length_of,
    side_topic,
)
from reconciler.runtime.text import did_you_mean, first_few, nearest

if TYPE_CHECKING:
    from reconciler.resources.inventory import ClusterIdentity
    from reconciler.resources.measures import Measure


_NOT_MEASURED: Final = "it was not measured: a plan looks at 1,000 partitions of a cluster at most"


def _cost_of_failover(mirror: Positions, source: Positions, source_id: str | None, name: str) -> RoleCost:
    """Return what a mirror lacks that fails over; `name`: of its source, and where that is."""
    lost = lacking(mirror, source, source_id)
    if lost is None:
        return _away(mirror, f"{name} was deleted and created again")
    return RoleCost(lost=lost)


def _cost_of_catching_up(
    mirror: Positions, source: Positions, source_id: str | None, name: str, timeout_ms: int | None = None
) -> RoleCost:
    """Return what a mirror lacks that is promoted or reversed, and that is copied first."""
    behind = lacking(mirror, source, source_id)
    if behind is None:
        return replace(_away(mirror, f"{name} was deleted and created again"), timeout_ms=timeout_ms)
    return RoleCost(behind=behind, timeout_ms=timeout_ms)


def _cost_of_restore(
    topic: Positions, at: Mapping[int, int], committed: Mapping[str, Mapping[int, int]] | None
) -> RoleCost:
    """Return what is cut off a topic at these offsets, and which groups have read beyond them."""
    lost = cut_off(topic, at)
    begins = {each.partition: each.start for each in lost}
    if committed is None:
        return RoleCost(lost=lost, groups_set_back=None if lost else ())
    beyond = {
        group
        for group, offsets in committed.items()
        if any(offset > begins.get(partition, offset) for partition, offset in offsets.items())
    }
    return RoleCost(lost=lost, groups_set_back=tuple(sorted(beyond)))


def _cost_of_failback(
    found: Sequence[Diverged], committed: Mapping[str, Mapping[int, int]] | None, name: str, *, keeps: bool
) -> RoleCost:
    """Return what becomes of what only a topic has, on a platform that copies its partitions anew; `name`: its own."""
    beyond = tuple(Stretch(each.partition, each.start, each.stop) for each in found)
    starts = {each.partition: each.start for each in beyond}
    groups = {
        group
        for group, offsets in (committed or {}).items()
        if any(offset > starts[number] for number, offset in offsets.items() if number in starts)
    }
    return RoleCost(
        lost=() if keeps else beyond,
        kept=beyond if keeps else (),
        kept_in=side_topic(name) if keeps and beyond else None,
        records=sum(each.records for each in found),
        since_ms=min((each.since_ms for each in found if each.since_ms is not None), default=None),
        copied_afresh=tuple(sorted(starts)),
        groups_set_back=None if committed is None and beyond else tuple(sorted(groups)),
    )


def keeps_diverged(mirror: MirrorTopic, situation: Situation) -> bool:
    """Tell whether the link of a mirror keeps what only its original source has."""
    item = situation.wanted.get(link_of(mirror)) or situation.observed.get(link_of(mirror))
    return item is not None and isinstance(item.resource, MirrorLink) and bool(item.resource.spec.keep_diverged)


def _away(mirror: Positions, why: str) -> RoleCost:
    """Return all that is known of a failover whose source cannot be asked."""
    return RoleCost(unknown=why, fetched=last_fetched(mirror))


def topics_cut(actions: Iterable[Action]) -> frozenset[Address]:
    """Return the topics that are cut, so that it matters who reads them."""
    return frozenset(
        topic_of(action.after)
        for action in actions
        if isinstance(action, Transition) and isinstance(action.after, MirrorTopic) and action.verb == RESTORE
    )


def with_cost(action: Transition, situation: Situation, measure: Callable[[Address], Measure | None]) -> Transition:
    """Return what is asked of a mirror with what it costs; any other transition as it is."""
    if not isinstance(action.after, MirrorTopic) or action.verb not in {FAILOVER, RESTORE, *REVERSALS}:
        return action
    mirror = action.after
    here, there = measure(topic_of(mirror)), measure(source_of(mirror))
    keeps = action.parameters.get("diverged") == "keep" or keeps_diverged(mirror, situation)
    if action.verb == FAILOVER:
        cost, moved = _failover(mirror, here, there, situation), there
    elif here is None or there is None:
        cost, moved = RoleCost(unknown=_NOT_MEASURED), None
    elif action.verb == RESTORE and here.undeletable is not None:
        cost, moved = RoleCost(unknown=here.undeletable.message), None
    elif action.verb == RESTORE and here.diverged is not None:
        return _failback(action, here, keeps=keeps)
    elif action.verb == RESTORE:
        ids = (_incarnation(topic_of(mirror), situation), _incarnation(source_of(mirror), situation))
        at = agreed_ends(here.positions, ids[0], there.positions, ids[1])
        cost, moved = _cost_of_restore(here.positions, at, here.committed), here
    else:
        of = (_incarnation(source_of(mirror), situation), _name_of(source_of(mirror)))
        cost, moved = _cost_of_catching_up(here.positions, there.positions, *of), there
    reasons = action.reasons if cost.unknown is None else (*action.reasons, Reason.UNMEASURED)
    return replace(action, reasons=reasons, estimate=_estimate_of(cost, moved))


def _failback(action: Transition, here: Measure, *, keeps: bool) -> Transition:
    """Return a restore that loses nothing but what it names: what it finds beside that ends it."""
    cost = _cost_of_failback(here.diverged or (), here.committed, full_name_of(action.address), keeps=keeps)
    asked: WithDiverged = "refuse" if not here.diverged else "keep" if keeps else "drop"
    return replace(
        action,
        parameters={**action.parameters, "diverged": asked},
        risk=action.risk if cost.lost else Risk.DISRUPTIVE,
        estimate=_estimate_of(cost, here),
    )


def check_restores(review: Review) -> Iterator[Finding]:
    """Yield the topics that cannot be restored, as brokers delete no records of them."""
    for action in review.actions:
        for here in map(review.measure, topics_cut([action])):
            if here is not None and here.undeletable is not None:
                yield Finding(action.address, action.source, here.undeletable.message, here.undeletable.hint)


def warnings_of_restores(review: Review) -> Iterator[Finding]:
    """Yield the other mirrors of a topic that is cut: they have copied what its new source does not have."""
    for action in review.actions:
        if not (isinstance(action, Transition) and isinstance(action.after, MirrorTopic) and action.verb == RESTORE):
            continue
        cost = action.estimate.role
        if cost is None or not (cost.lost or cost.unknown is not None or cost.kept):
            continue
        topic = topic_of(action.after)
        for address, mirror in sorted(review.situation.mirrors.items()):
            seen = review.situation.observed[address]
            if source_of(mirror) == topic and is_live(seen) and seen.state != "FAILED":
                yield Finding(
                    address,
                    action.source,
                    f"its source {topic} is cut back by {action.id}: it becomes FAILED if it has copied what is cut",
                    f"To keep what it has, fail it over first: reconciler mirror failover {address}. Else make it "
                    f"afresh afterwards: reconciler apply --allow delete:{address}",
                )


def is_wait(action: RunJob) -> bool:
    """Tell whether a job is the wait before a promotion."""
    return action.job == CATCH_UP


def with_lag(action: RunJob, situation: Situation, measure: Callable[[Address], Measure | None]) -> RunJob:
    """Return the wait before a promotion with what it has to copy."""
    here, there = measure(action.sink), measure(action.source)
    wait = action.parameters.get("timeout_ms")
    timeout_ms = wait if isinstance(wait, int) else None
    if here is None or there is None:
        cost = RoleCost(unknown=_NOT_MEASURED, timeout_ms=timeout_ms)
    else:
        of = (_incarnation(action.source, situation), _name_of(action.source))
        cost = _cost_of_catching_up(here.positions, there.positions, *of, timeout_ms)
    return replace(action, estimate=_estimate_of(cost, there))


def _failover(mirror: MirrorTopic, here: Measure | None, there: Measure | None, situation: Situation) -> RoleCost:
    source, positions = source_of(mirror), {} if here is None else here.positions
    if mirror.source_cluster not in situation.trusted:
        return _away(positions, f"{mirror.source_cluster} {why_unread(mirror.source_cluster, situation)}")
    name = _name_of(source)
    if source not in situation.observed and mirror_at(source) not in situation.observed:
        return _away(positions, f"there is no {name} any more")
    if here is None or there is None:
        return _away(positions, _NOT_MEASURED)
    cost = _cost_of_failover(positions, there.positions, _incarnation(source, situation), name)
    is_dated = bool(cost.lost) and here.newest_ms is not None and there.newest_ms is not None
    return replace(cost, lost_ms=max(0, (there.newest_ms or 0) - (here.newest_ms or 0))) if is_dated else cost


def _name_of(source: Address) -> str:
    return f"{full_name_of(source)} on {cluster_of(source)}"


def _incarnation(topic: Address, situation: Situation) -> str | None:
    seen = situation.observed.get(topic) or situation.observed.get(mirror_at(topic))
    return None if seen is None else seen.incarnation


def _estimate_of(cost: RoleCost, measure: Measure | None) -> Estimate:
    """Return what a cost is in offsets, bytes and time; `measure`: of the topic that has what is lost or copied."""
    offsets = length_of((*cost.lost, *cost.behind))
    size = 0 if measure is None else _share(measure, (*cost.lost, *cost.behind))
    seconds = max(1, size // BYTES_A_SECOND) if cost.behind else 1
    return Estimate(bytes=size, records=offsets, seconds=seconds, role=cost)


def _share(measure: Measure, of: Iterable[Stretch]) -> int:
    """Return about how many bytes stretches of a topic are: as many as others of it that are as long."""
    spans = sum(max(0, at.end - at.start) for at in measure.positions.values())
    return measure.bytes * min(length_of(of), spans) // spans if spans else 0


# Filters of links against what their sources have: what matches nothing, and what auto-create leaves out.


_FEW: Final = 3
_TOPICS: Final = ("spec", "autoCreate", "filters")
_GROUPS: Final = ("spec", "consumerOffsetSync", "filters")


def warnings_of_links(review: Review) -> Iterator[Finding]:
    """Yield filters that match nothing of what was read of the source, and mirrors that a prefix leaves out.

    And once, with the first link of a cluster, that its mirrors take records of others where they do.
    """
    situation = review.situation
    yield from _open_mirrors(situation)
    for address, entry in sorted(situation.entries.items()):
        if entry.state == "reversed" and situation.is_decidable(address):
            yield from _of_swapped(situation.wanted[address], entry, situation)
    for address, wanted in sorted(situation.wanted.items()):
        link = wanted.resource
        if not isinstance(link, MirrorLink) or not situation.is_decidable(address):
            continue
        if wanted.marks:
            for message, hint in beyond_protection(link, situation.capabilities(link.cluster)):
                yield Finding(address, wanted.source, message, hint, wanted.marks)
            continue
        if link.spec.source in situation.trusted:
            yield from _of_topics(address, wanted, link, situation)
            yield from _of_groups(address, wanted, link, situation)


def _open_mirrors(situation: Situation) -> Iterator[Finding]:
    links = sorted(address for address, item in situation.wanted.items() if isinstance(item.resource, MirrorLink))
    told = {cluster_of(address) for address in situation.recorded if kind_of(address) == "link"}
    for address in links:
        cluster = cluster_of(address) or ""
        if cluster in told or not situation.is_decidable(address):
            continue
        told.add(cluster)
        link = situation.wanted[address].resource
        is_open = not situation.capabilities(cluster).mirrors.read_only
        if is_open and isinstance(link, MirrorLink) and link.spec.protect == "acl":
            if situation.capabilities(cluster).access.is_open:
                yield Finding(
                    address,
                    situation.wanted[address].source,
                    f"a mirror on cluster {cluster} that no access rule is about is open to every producer: "
                    "`protect: acl` denies those whom a rule lets write",
                    "Let a rule allow WRITE on it, or set allow.everyone.if.no.acl.found=false at the brokers.",
                )
        elif is_open:
            yield Finding(
                address,
                situation.wanted[address].source,
                f"other producers can write to mirrors on cluster {cluster}: nothing there keeps them read-only, and "
                "what is written to one is not in its source",
                "Say `protect: acl` in the link, or allow only its principal to write there.",
            )


def _of_swapped(wanted: WantedResource, entry: MirrorTopic, situation: Situation) -> Iterator[Finding]:
    """Yield who may write to the mirror that follows this topic now: no entry of its own plans its protection."""
    back = mirrored_back(entry, situation)
    if back is None or not isinstance(mirror := back.resource, MirrorTopic):
        return
    writers = [who for who in protected_from(mirror, mirror.denied, situation) if who not in mirror.denied]
    if writers:
        yield Finding(
            mirror.address,
            wanted.source,
            f"a rule lets {first_few(writers, _FEW, grouping='')} write to it, and its link says `protect: acl`",
            "The next pass denies it: reconciler run --once --only mirror",
            wanted.marks,
        )


def _of_topics(address: Address, wanted: WantedResource, link: MirrorLink, situation: Situation) -> Iterator[Finding]:
    making = link.spec.auto_create
    if making is None or not making.enabled:
        return
    known = topics_on(link.spec.source, situation)
    yield from _unmatched((address, wanted), _TOPICS, making.filters, known, f"no topic of cluster {link.spec.source}")
    entries = {entry.source for entry in situation.entries.values() if link_of(entry) == address}
    yield from _left_by_default((address, wanted), making.filters, [name for name in known if name not in entries])
    yield from _never_made((address, wanted), making.filters, {*known} - entries)
    mirrors = [name for name in known if _is_mirror(link.spec.source, name, situation)] if link.spec.prefix else []
    left = [name for name in mirrors if is_auto_created(making.filters, name)]
    if left:
        yield Finding(
            address,
            wanted.source,
            f"{first_few(left, _FEW, grouping='')} of cluster {link.spec.source}, which the filters take, "
            "is a mirror itself: a link with a prefix makes no mirrors of mirrors",
            "Name it in mirrorTopics to mirror it on, or exclude it from the filters.",
            ((address, _TOPICS),),
        )


def _never_made(
    of: tuple[Address, WantedResource], filters: Sequence[NameFilter], known: Iterable[str]
) -> Iterator[Finding]:
    """Yield the topics that a filter names and that no link takes by itself."""
    address, wanted = of
    naming = [each for each in filters if each.filter_type == "include" and each.name != "*"]
    named = {name for name in known if is_never_made(name) and any(is_about(each, name) for each in naming)}
    for names, hint in (
        ({name for name in named if not is_never_mirrored(name)}, "Name it in mirrorTopics: only an entry mirrors it."),
        ({name for name in named if is_never_mirrored(name)}, "Take it out of the filters: it belongs to its cluster."),
    ):
        if names:
            message = f"autoCreate never mirrors {first_few(sorted(names), _FEW, grouping='')}, which its filters name"
            yield Finding(address, wanted.source, message, hint, ((address, _TOPICS),))


def _left_by_default(
    of: tuple[Address, WantedResource], filters: Sequence[NameFilter], known: Iterable[str]
) -> Iterator[Finding]:
    address, wanted = of
    left = [
        name
        for name in known
        if takes_name(filters, name) and is_left_by_default(filters, name) and not is_never_made(name)
    ]
    if left:
        yield Finding(
            address,
            wanted.source,
            f"autoCreate leaves out {first_few(left, _FEW, grouping='')}: MirrorMaker or another tool names its own "
            "topics so, and only the filter '*' takes the name",
            "Name it, or a prefix of it, in a filter: include to mirror it, exclude to leave it without this warning.",
            ((address, _TOPICS),),
        )


def _of_groups(address: Address, wanted: WantedResource, link: MirrorLink, situation: Situation) -> Iterator[Finding]:
    syncing, known = link.spec.consumer_offset_sync, situation.request.groups.get(link.spec.source)
    if syncing is not None and syncing.enabled and known is not None:
        what = f"no group of cluster {link.spec.source}"
        yield from _unmatched((address, wanted), _GROUPS, syncing.filters, known, what)


def _unmatched(
    of: tuple[Address, WantedResource],
    at: tuple[str, ...],
    filters: Sequence[NameFilter],
    known: Iterable[str],
    nothing: str,
) -> Iterator[Finding]:
    address, wanted = of
    names = sorted(known)
    for place, each in enumerate(filters):
        if each.filter_type == "exclude" or each.name == "*" or any(is_about(each, name) for name in names):
            continue
        yield Finding(
            address,
            wanted.source,
            f"{at[1]} filter {each.name!r} ({each.pattern_type}) takes {nothing} that is there",
            did_you_mean(nearest(each.name, names, most=_FEW), then="It takes effect if and when there is one."),
            ((address, (*at, place)),),
        )


def _is_mirror(cluster: str, name: str, situation: Situation) -> bool:
    address = address_of("mirror", cluster, name)
    return is_live(situation.observed.get(address)) or address in situation.entries


# What is wrong with a link, beside its mirrors: as its platform, its other half and its neighbours say.


_PREFIX: Final = ("spec", "prefix")


def check_link(link: MirrorLink, situation: Situation) -> Iterator[tuple[str, str]]:
    """Yield what of a link is beyond its platform, and the cluster it cannot mirror."""
    capabilities = situation.capabilities(link.cluster)
    spec = link.spec
    if not capabilities.links:
        yield beyond(capabilities, "mirror topics over a link")
        return
    if spec.source not in situation.clusters:
        declare = f"Declare a Cluster named {spec.source}."
        near = did_you_mean(nearest(spec.source, situation.clusters), otherwise=declare)
        yield f"its source, cluster {spec.source}, is not declared", near
    here, there = (situation.clusters.get(name) for name in (link.cluster, spec.source))
    if spec.mode == "bidirectional" and here and there and here.spec.provider != there.spec.provider:
        platforms = f"{link.cluster} is of platform {here.spec.provider} and {spec.source} of {there.spec.provider}"
        yield f"{platforms}: roles are swapped between clusters of one platform", "Use `mode: destination`."
    is_derived = bool(situation.wanted[link.address].marks)
    yield from beyond_platform(link, capabilities, is_derived=is_derived)


def check_links(situation: Situation) -> Iterator[Finding]:
    """Yield links of one prefix, links from a cluster to itself, between formats, and halves that are none."""
    links = {
        address: (wanted, wanted.resource)
        for address, wanted in sorted(situation.wanted.items())
        if isinstance(wanted.resource, MirrorLink) and situation.is_decidable(address)
    }
    for address, (wanted, link) in links.items():
        yield from _check_ends(address, wanted, link, situation)
        yield from _check_half(address, wanted, link, situation)
        yield from _check_prefix(address, wanted, link, situation)


def _check_ends(address: Address, wanted: WantedResource, link: MirrorLink, situation: Situation) -> Iterator[Finding]:
    here, there = (situation.request.identities.get(name) for name in (link.cluster, link.spec.source))
    if here is None or there is None:
        return
    if (wrong := between(link, here, there)) is not None:
        message, hint = wrong
        yield Finding(address, wanted.source, message, hint, ((address, ("spec", "source")), *wanted.marks))


def between(link: MirrorLink, here: ClusterIdentity, there: ClusterIdentity) -> tuple[str, str] | None:
    """Return why no link leads from one cluster to the other, and what to do; `None`: one can."""
    if here.cluster_id == there.cluster_id:
        message = f"{link.spec.source} and {link.cluster} are one cluster ({here.cluster_id}): no link leads to itself"
        return message, "Name the cluster the records come from."
    if None not in (here.format, there.format) and here.format != there.format:
        message = (
            f"{link.cluster} is of format {here.format} and {link.spec.source} of {there.format}: records are copied "
            "as they are, so both have to be of one"
        )
        return message, "Upgrade the older of the two first."
    return None


def _check_half(address: Address, wanted: WantedResource, link: MirrorLink, situation: Situation) -> Iterator[Finding]:
    other = situation.wanted.get(half_at(link))
    if other is None or not has_two_halves(link) or not isinstance(other.resource, MirrorLink):
        return
    half = other.resource.spec
    if (half.source, half.mode) != (link.cluster, link.spec.mode):
        yield Finding(
            address,
            wanted.source,
            f"its half {half_at(link)} is {f'declared at {other.source}' if other.source else 'ordered'} "
            f"as {half.mode} from {half.source}, "
            f"and not as {link.spec.mode} from {link.cluster}",
            "Both halves of a link have one name and one mode: correct it, or leave it out, and it is derived.",
            ((address, ("spec", "mode")),),
        )


def _check_prefix(
    address: Address, wanted: WantedResource, link: MirrorLink, situation: Situation
) -> Iterator[Finding]:
    if not link.spec.prefix:
        return
    for other in sorted({*situation.observed, *situation.wanted}):
        item = situation.wanted.get(other) or situation.observed[other]
        is_gone = not situation.request.orders and other not in situation.wanted and other in situation.recorded
        if other == address or is_gone or not isinstance(item.resource, MirrorLink):
            continue
        if (item.resource.cluster, item.resource.spec.prefix) != (link.cluster, link.spec.prefix):
            continue
        source = situation.wanted[other].source if other in situation.wanted else None
        where = source or ("ordered, too" if other not in situation.observed else "on the cluster")
        yield Finding(
            address,
            wanted.source,
            f"{other} ({where}) has the prefix {link.spec.prefix!r}, too: each link of a cluster has one of its own",
            "Choose another prefix for one of the two.",
            ((address, _PREFIX),),
        )
        return
