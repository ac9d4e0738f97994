"""Checks of links and mirrors, and costs of role changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.planning.actions import Action, Estimate, Reason, Risk, RoleCost, RunJob, Transition
from reconciler.planning.checks.mount_checks import BYTES_A_SECOND
from reconciler.planning.diff.mirror_changes import CATCH_UP
from reconciler.planning.plan import PlanFinding
from reconciler.planning.resolve.limits import describe_unsupported, explain_unprotectable, find_unsupported_features
from reconciler.planning.resolve.mirror_sources import (
    explain_unread,
    find_denied_principals,
    find_mirror_back,
    link_of,
    list_cluster_topics,
)
from reconciler.planning.selection import build_other_half_address, has_two_halves
from reconciler.planning.situation import (
    Review,
    Situation,
    WantedResource,
    as_mirror,
    as_topic,
    get_source_topic,
    is_mirroring,
)
from reconciler.resources.address import Address, address_of, cluster_of, full_name_of, kind_of
from reconciler.resources.inventory import NATIVE_LINKS
from reconciler.resources.measures import (
    find_agreed_ends,
    find_missing_offsets,
    list_last_fetched,
    list_truncated_ranges,
)
from reconciler.resources.mirror_link import (
    MirrorLink,
    MirrorTopic,
    NameFilter,
    filters_include,
    is_auto_created,
    is_excluded_by_default,
    is_never_auto_created,
    is_never_mirrored,
    matches_filter,
)
from reconciler.resources.mirrors import (
    FAILOVER,
    PROMOTE,
    RESTORE,
    REVERSALS,
    DivergedPartition,
    OffsetStretch,
    Positions,
    WithDiverged,
    build_side_topic_name,
    count_offsets,
)
from reconciler.runtime.text import find_similar, format_suggestion, list_first

if TYPE_CHECKING:
    from reconciler.resources.inventory import ClusterIdentity
    from reconciler.resources.measures import Measure


_NOT_MEASURED: Final = "it was not measured: a plan looks at 1,000 partitions of a cluster at most"


def _estimate_failover(mirror: Positions, source: Positions, source_id: str | None, name: str) -> RoleCost:
    lost = find_missing_offsets(mirror, source, source_id)
    if lost is None:
        return _make_unknown_cost(mirror, f"{name} was deleted and created again")
    return RoleCost(lost=lost)


def _estimate_catch_up(
    mirror: Positions, source: Positions, source_id: str | None, name: str, timeout_ms: int | None = None
) -> RoleCost:
    behind = find_missing_offsets(mirror, source, source_id)
    if behind is None:
        return replace(_make_unknown_cost(mirror, f"{name} was deleted and created again"), timeout_ms=timeout_ms)
    return RoleCost(behind=behind, timeout_ms=timeout_ms)


def _estimate_restore(lost: tuple[OffsetStretch, ...], committed: Mapping[str, Mapping[int, int]] | None) -> RoleCost:
    begins = {stretch.partition: stretch.start for stretch in lost}
    if committed is None:
        return RoleCost(lost=lost, groups_set_back=None if lost else ())
    beyond = {
        group
        for group, offsets in committed.items()
        if any(offset > begins.get(partition, offset) for partition, offset in offsets.items())
    }
    return RoleCost(lost=lost, groups_set_back=tuple(sorted(beyond)))


def _estimate_failback(
    diverged: Sequence[DivergedPartition], committed: Mapping[str, Mapping[int, int]] | None, name: str, *, keeps: bool
) -> RoleCost:
    beyond = tuple(OffsetStretch(stretch.partition, stretch.start, stretch.stop) for stretch in diverged)
    starts = {stretch.partition: stretch.start for stretch in beyond}
    groups = {
        group
        for group, offsets in (committed or {}).items()
        if any(offset > starts[number] for number, offset in offsets.items() if number in starts)
    }
    return RoleCost(
        lost=() if keeps else beyond,
        kept=beyond if keeps else (),
        kept_in=build_side_topic_name(name) if keeps and beyond else None,
        records=sum(stretch.records for stretch in diverged),
        since_ms=min((stretch.since_ms for stretch in diverged if stretch.since_ms is not None), default=None),
        copied_afresh=tuple(sorted(starts)),
        groups_set_back=None if committed is None and beyond else tuple(sorted(groups)),
    )


def keeps_diverged(mirror: MirrorTopic, situation: Situation) -> bool:
    """Return whether a restore keeps records that only the original source has."""
    item = situation.wanted.get(link_of(mirror)) or situation.observed.get(link_of(mirror))
    return item is not None and isinstance(item.resource, MirrorLink) and bool(item.resource.spec.keep_diverged)


def _make_unknown_cost(mirror: Positions, why: str) -> RoleCost:
    return RoleCost(unknown=why, fetched=list_last_fetched(mirror))


def find_truncated_topics(actions: Iterable[Action]) -> frozenset[Address]:
    """Return the topics that restores truncate."""
    return frozenset(
        as_topic(mirror)
        for action in actions
        if action.verb == RESTORE and (mirror := find_role_swap(action)) is not None
    )


def add_role_cost(action: Transition, situation: Situation, measure: Callable[[Address], Measure | None]) -> Transition:
    """Return a transition, with its cost if it is a role change."""
    if not isinstance(action.after, MirrorTopic) or action.verb not in {FAILOVER, RESTORE, *REVERSALS}:
        return action
    mirror = action.after
    mirror_measure, source_measure = measure(as_topic(mirror)), measure(get_source_topic(mirror))
    keeps = action.parameters.get("diverged") == "keep" or keeps_diverged(mirror, situation)
    if action.verb == FAILOVER:
        cost, moved = _compute_failover_cost(mirror, mirror_measure, source_measure, situation), source_measure
    elif mirror_measure is None or source_measure is None:
        cost, moved = RoleCost(unknown=_NOT_MEASURED), None
    elif mirror_measure.refusal is not None:
        cost, moved = RoleCost(unknown=mirror_measure.refusal.message), None
    elif action.verb == RESTORE and mirror_measure.truncated is not None:
        cost, moved = _estimate_restore(mirror_measure.truncated, mirror_measure.committed), mirror_measure
    elif action.verb == RESTORE and mirror_measure.diverged is not None:
        return _add_failback_cost(action, mirror_measure, keeps=keeps)
    elif action.verb == RESTORE:
        ids = (_find_incarnation(as_topic(mirror), situation), _find_incarnation(get_source_topic(mirror), situation))
        at = find_agreed_ends(mirror_measure.positions, ids[0], source_measure.positions, ids[1])
        lost = list_truncated_ranges(mirror_measure.positions, at)
        cost, moved = _estimate_restore(lost, mirror_measure.committed), mirror_measure
    else:
        of = (_find_incarnation(get_source_topic(mirror), situation), _format_source_name(get_source_topic(mirror)))
        cost, moved = _estimate_catch_up(mirror_measure.positions, source_measure.positions, *of), source_measure
    reasons = action.reasons if cost.unknown is None else (*action.reasons, Reason.UNMEASURED)
    return replace(action, reasons=reasons, estimate=_make_estimate(cost, moved))


def _add_failback_cost(action: Transition, measure: Measure, *, keeps: bool) -> Transition:
    cost = _estimate_failback(measure.diverged or (), measure.committed, full_name_of(action.address), keeps=keeps)
    diverged: WithDiverged = "refuse" if not measure.diverged else "keep" if keeps else "drop"
    return replace(
        action,
        parameters={**action.parameters, "diverged": diverged},
        risk=action.risk if cost.lost else Risk.DISRUPTIVE,
        estimate=_make_estimate(cost, measure),
    )


def find_role_swap(action: Action) -> MirrorTopic | None:
    """Return the mirror that an action reverses or restores; `None` for other actions."""
    if not isinstance(action, Transition) or action.verb not in {RESTORE, *REVERSALS}:
        return None
    return action.after if isinstance(action.after, MirrorTopic) else None


def check_role_swaps(review: Review) -> Iterator[PlanFinding]:
    """Yield an error for each topic that the platform refuses to restore or reverse."""
    for action in review.actions:
        mirror = find_role_swap(action)
        measure = None if mirror is None else review.measure(as_topic(mirror))
        if measure is not None and measure.refusal is not None:
            yield PlanFinding(action.address, action.source, measure.refusal.message, measure.refusal.hint)


def warnings_of_restores(review: Review) -> Iterator[PlanFinding]:
    """Warn about other mirrors of a truncated topic, which keep records that the topic loses."""
    for action in review.actions:
        if not (isinstance(action, Transition) and isinstance(action.after, MirrorTopic) and action.verb == RESTORE):
            continue
        cost = action.estimate.role
        if cost is None or not (cost.lost or cost.unknown is not None or cost.kept):
            continue
        topic = as_topic(action.after)
        for address, mirror in sorted(review.situation.observed_mirrors.items()):
            seen = review.situation.observed[address]
            if get_source_topic(mirror) == topic and is_mirroring(seen) and seen.state != "FAILED":
                yield PlanFinding(
                    address,
                    action.source,
                    f"its source {topic} is truncated by {action.id}: it becomes FAILED if it has copied the "
                    "truncated records",
                    f"To keep what it has, fail it over first: reconciler mirror failover {address}. Else create it "
                    f"again afterwards: reconciler apply --allow delete:{address}",
                )


def is_catch_up(action: RunJob) -> bool:
    """Return whether a job is the catch-up before a promotion."""
    return action.job == CATCH_UP


def add_lag_estimate(action: RunJob, situation: Situation, measure: Callable[[Address], Measure | None]) -> RunJob:
    """Return a catch-up job with its estimate."""
    mirror_measure, source_measure = measure(action.sink), measure(action.source)
    wait = action.parameters.get("timeout_ms")
    timeout_ms = wait if isinstance(wait, int) else None
    if mirror_measure is None or source_measure is None:
        cost = RoleCost(unknown=_NOT_MEASURED, timeout_ms=timeout_ms)
    else:
        of = (_find_incarnation(action.source, situation), _format_source_name(action.source))
        cost = _estimate_catch_up(mirror_measure.positions, source_measure.positions, *of, timeout_ms)
    return replace(action, estimate=_make_estimate(cost, source_measure))


def _compute_failover_cost(
    mirror: MirrorTopic, mirror_measure: Measure | None, source_measure: Measure | None, situation: Situation
) -> RoleCost:
    source, positions = get_source_topic(mirror), {} if mirror_measure is None else mirror_measure.positions
    if mirror.source_cluster not in situation.trusted:
        return _make_unknown_cost(
            positions, f"{mirror.source_cluster} {explain_unread(mirror.source_cluster, situation)}"
        )
    name = _format_source_name(source)
    if source not in situation.observed and as_mirror(source) not in situation.observed:
        return _make_unknown_cost(positions, f"there is no {name} any more")
    if mirror_measure is None or source_measure is None:
        return _make_unknown_cost(positions, _NOT_MEASURED)
    cost = _estimate_failover(positions, source_measure.positions, _find_incarnation(source, situation), name)
    is_dated = bool(cost.lost) and mirror_measure.newest_ms is not None and source_measure.newest_ms is not None
    return (
        replace(cost, lost_ms=max(0, (source_measure.newest_ms or 0) - (mirror_measure.newest_ms or 0)))
        if is_dated
        else cost
    )


def _format_source_name(source: Address) -> str:
    return f"{full_name_of(source)} on {cluster_of(source)}"


def _find_incarnation(topic: Address, situation: Situation) -> str | None:
    seen = situation.observed.get(topic) or situation.observed.get(as_mirror(topic))
    return None if seen is None else seen.incarnation


def _make_estimate(cost: RoleCost, measure: Measure | None) -> Estimate:
    offsets = count_offsets((*cost.lost, *cost.behind))
    size = 0 if measure is None else _estimate_bytes(measure, (*cost.lost, *cost.behind))
    seconds = max(1, size // BYTES_A_SECOND) if cost.behind else 1
    return Estimate(bytes=size, records=offsets, seconds=seconds, role=cost)


def _estimate_bytes(measure: Measure, of: Iterable[OffsetStretch]) -> int:
    spans = sum(max(0, at.end - at.start) for at in measure.positions.values())
    return measure.bytes * min(count_offsets(of), spans) // spans if spans else 0


_ENDS: Final = frozenset({PROMOTE, FAILOVER})
_MAX_NAMES: Final = 3
_TOPIC_FILTERS: Final = ("spec", "autoCreate", "filters")
_GROUP_FILTERS: Final = ("spec", "consumerOffsetSync", "filters")


def warnings_of_links(review: Review) -> Iterator[PlanFinding]:
    """Warn about filters without matches, mirrors that a prefix excludes, and mirrors open to other writers."""
    situation = review.situation
    yield from _find_open_mirrors(situation)
    yield from _find_syncs_of_ended(review)
    for address, entry in sorted(situation.desired_mirrors.items()):
        if entry.state == "reversed" and situation.can_plan(address):
            yield from _find_unprotected_peer(situation.wanted[address], entry, situation)
    for address, wanted in sorted(situation.wanted.items()):
        link = wanted.resource
        if not isinstance(link, MirrorLink) or not situation.can_plan(address):
            continue
        if wanted.marks:
            for message, hint in explain_unprotectable(link, situation.find_capabilities(link.cluster)):
                yield PlanFinding(address, wanted.source, message, hint, wanted.marks)
            continue
        why = situation.find_capabilities(link.cluster).lacks.get(NATIVE_LINKS)
        if why is not None and address not in situation.observed and address not in situation.recorded:
            hint = "`reconciler run` copies them. To let the cluster do it, change that before the link is made."
            message = f"jobs copy its mirrors, because cluster {link.cluster} cannot do it itself: {why}"
            yield PlanFinding(address, wanted.source, message, hint)
        if link.spec.source in situation.trusted:
            yield from _check_topic_filters(address, wanted, link, situation)
            yield from _check_group_filters(address, wanted, link, situation)


def _find_syncs_of_ended(review: Review) -> Iterator[PlanFinding]:
    """Warn about offset sync by a platform while mirrors are promoted or failed over.

    Jobs leave groups alone that have moved.
    """
    situation, ended = review.situation, dict[Address, list[Address]]()
    for action in review.actions:
        if isinstance(action, Transition) and isinstance(action.after, MirrorTopic) and action.verb in _ENDS:
            ended.setdefault(link_of(action.after), []).append(action.address)
    for address, mirrors in sorted(ended.items()):
        wanted = situation.wanted.get(address)
        link = None if wanted is None else wanted.resource
        if wanted is None or not isinstance(link, MirrorLink):
            continue
        syncing = link.spec.consumer_offset_sync
        if syncing is None or not syncing.enabled or situation.find_capabilities(link.cluster).mirrors.by_jobs:
            continue
        yield PlanFinding(
            address,
            wanted.source,
            f"its offset sync runs until {list_first(mirrors, _MAX_NAMES, grouping='')} stops being a mirror, and "
            f"overwrites the offsets of groups that already read on cluster {link.cluster}",
            "Set consumerOffsetSync.enabled: false in the same change, which ends it first; or exclude the groups that "
            "move.",
            ((address, _GROUP_FILTERS),),
        )


def _find_open_mirrors(situation: Situation) -> Iterator[PlanFinding]:
    links = sorted(address for address, item in situation.wanted.items() if isinstance(item.resource, MirrorLink))
    known_clusters = {cluster_of(address) for address in situation.recorded if kind_of(address) == "link"}
    for address in links:
        cluster = cluster_of(address) or ""
        if cluster in known_clusters or not situation.can_plan(address):
            continue
        known_clusters.add(cluster)
        link = situation.wanted[address].resource
        is_open = not situation.find_capabilities(cluster).mirrors.read_only
        if is_open and isinstance(link, MirrorLink) and link.spec.protect == "acl":
            if situation.find_capabilities(cluster).access.is_open:
                yield PlanFinding(
                    address,
                    situation.wanted[address].source,
                    f"a mirror on cluster {cluster} without any access rule accepts records of every producer: "
                    "`protect: acl` only denies principals that an access rule allows to write",
                    "Let a rule allow WRITE on it, or set allow.everyone.if.no.acl.found=false at the brokers.",
                )
        elif is_open:
            yield PlanFinding(
                address,
                situation.wanted[address].source,
                f"other producers can write to mirrors on cluster {cluster}: it does not enforce read-only mirrors, "
                "and records written to one are not in its source",
                "Set `protect: acl` in the link, or allow only its principal to write there.",
            )


def _find_unprotected_peer(wanted: WantedResource, entry: MirrorTopic, situation: Situation) -> Iterator[PlanFinding]:
    back = find_mirror_back(entry, situation)
    if back is None or not isinstance(mirror := back.resource, MirrorTopic):
        return
    writers = [who for who in find_denied_principals(mirror, mirror.denied, situation) if who not in mirror.denied]
    if writers:
        yield PlanFinding(
            mirror.address,
            wanted.source,
            f"a rule lets {list_first(writers, _MAX_NAMES, grouping='')} write to it, and its link has `protect: acl`",
            "The next pass denies it: reconciler run --once --only mirror",
            wanted.marks,
        )


def _check_topic_filters(
    address: Address, wanted: WantedResource, link: MirrorLink, situation: Situation
) -> Iterator[PlanFinding]:
    making = link.spec.auto_create
    if making is None or not making.enabled:
        return
    known = list_cluster_topics(link.spec.source, situation)
    yield from _find_unmatched_filters(
        (address, wanted), _TOPIC_FILTERS, making.filters, known, f"no topic of cluster {link.spec.source}"
    )
    entries = {entry.source for entry in situation.desired_mirrors.values() if link_of(entry) == address}
    yield from _find_left_by_default((address, wanted), making.filters, [name for name in known if name not in entries])
    yield from _find_never_created((address, wanted), making.filters, {*known} - entries)
    mirrors = [name for name in known if _is_mirror(link.spec.source, name, situation)] if link.spec.prefix else []
    left = [name for name in mirrors if is_auto_created(making.filters, name)]
    if left:
        yield PlanFinding(
            address,
            wanted.source,
            f"{list_first(left, _MAX_NAMES, grouping='')} of cluster {link.spec.source}, which the filters match, "
            "is a mirror itself: a link with a prefix makes no mirrors of mirrors",
            "Name it in mirrorTopics to mirror it on, or exclude it from the filters.",
            ((address, _TOPIC_FILTERS),),
        )


def _find_never_created(
    of: tuple[Address, WantedResource], filters: Sequence[NameFilter], known: Iterable[str]
) -> Iterator[PlanFinding]:
    address, wanted = of
    naming = [
        name_filter for name_filter in filters if name_filter.filter_type == "include" and name_filter.name != "*"
    ]
    named = {
        name
        for name in known
        if is_never_auto_created(name) and any(matches_filter(name_filter, name) for name_filter in naming)
    }
    for names, hint in (
        ({name for name in named if not is_never_mirrored(name)}, "Name it in mirrorTopics: only an entry mirrors it."),
        ({name for name in named if is_never_mirrored(name)}, "Take it out of the filters: it belongs to its cluster."),
    ):
        if names:
            message = (
                f"autoCreate never mirrors {list_first(sorted(names), _MAX_NAMES, grouping='')}, which its filters name"
            )
            yield PlanFinding(address, wanted.source, message, hint, ((address, _TOPIC_FILTERS),))


def _find_left_by_default(
    of: tuple[Address, WantedResource], filters: Sequence[NameFilter], known: Iterable[str]
) -> Iterator[PlanFinding]:
    address, wanted = of
    left = [
        name
        for name in known
        if filters_include(filters, name) and is_excluded_by_default(filters, name) and not is_never_auto_created(name)
    ]
    if left:
        yield PlanFinding(
            address,
            wanted.source,
            f"autoCreate leaves out {list_first(left, _MAX_NAMES, grouping='')}: MirrorMaker or another tool uses such "
            "names for its own topics, and only the filter '*' matches them",
            "Name it, or a prefix of it, in a filter: include to mirror it, exclude to leave it without this warning.",
            ((address, _TOPIC_FILTERS),),
        )


def _check_group_filters(
    address: Address, wanted: WantedResource, link: MirrorLink, situation: Situation
) -> Iterator[PlanFinding]:
    syncing, known = link.spec.consumer_offset_sync, situation.request.groups.get(link.spec.source)
    if syncing is not None and syncing.enabled and known is not None:
        what = f"no group of cluster {link.spec.source}"
        yield from _find_unmatched_filters((address, wanted), _GROUP_FILTERS, syncing.filters, known, what)


def _find_unmatched_filters(
    of: tuple[Address, WantedResource],
    at: tuple[str, ...],
    filters: Sequence[NameFilter],
    known: Iterable[str],
    nothing: str,
) -> Iterator[PlanFinding]:
    address, wanted = of
    names = sorted(known)
    for place, rule in enumerate(filters):
        if rule.filter_type == "exclude" or rule.name == "*" or any(matches_filter(rule, name) for name in names):
            continue
        yield PlanFinding(
            address,
            wanted.source,
            f"{at[1]} filter {rule.name!r} ({rule.pattern_type}) takes {nothing} that is there",
            format_suggestion(
                find_similar(rule.name, names, most=_MAX_NAMES), then="It takes effect if and when there is one."
            ),
            ((address, (*at, place)),),
        )


def _is_mirror(cluster: str, name: str, situation: Situation) -> bool:
    address = address_of("mirror", cluster, name)
    return is_mirroring(situation.observed.get(address)) or address in situation.desired_mirrors


_PREFIX: Final = ("spec", "prefix")


def check_link(link: MirrorLink, situation: Situation) -> Iterator[tuple[str, str]]:
    """Yield unsupported features of a link, and sources that the link cannot mirror."""
    capabilities = situation.find_capabilities(link.cluster)
    spec = link.spec
    if not capabilities.links:
        yield describe_unsupported(capabilities, "mirror topics over a link", "links")
        return
    if spec.source not in situation.clusters:
        declare = f"Declare a Cluster named {spec.source}."
        near = format_suggestion(find_similar(spec.source, situation.clusters), otherwise=declare)
        yield f"its source, cluster {spec.source}, is not declared", near
    cluster, source = (situation.clusters.get(name) for name in (link.cluster, spec.source))
    if spec.mode == "bidirectional" and cluster and source and cluster.spec.provider != source.spec.provider:
        platforms = f"{link.cluster} is of platform {cluster.spec.provider} and {spec.source} of {source.spec.provider}"
        yield f"{platforms}: roles are swapped between clusters of one platform", "Use `mode: destination`."
    is_derived = bool(situation.wanted[link.address].marks)
    other = situation.wanted.get(build_other_half_address(link))
    if spec.mode == "source" and not (is_derived or capabilities.mirrors.by_jobs or other is None or other.marks):
        message = f"{other.resource.address} is declared too, and a link of mode source is declared at its destination"
        yield message, "Leave out the half on the source's cluster: it is derived."
    yield from find_unsupported_features(link, capabilities, is_derived=is_derived)
    if not capabilities.mirrors.by_jobs:
        yield from _check_native_filters(link, situation)


_LEGAL_NAME: Final = re.compile(r"[A-Za-z0-9._:-]+")


def _check_native_filters(link: MirrorLink, situation: Situation) -> Iterator[tuple[str, str]]:
    """Yield topics and filters that a platform refuses, or that contradict each other."""
    making = link.spec.auto_create
    filters, internal = (
        making.filters if making is not None else (),
        situation.find_capabilities(link.cluster).internal_topics,
    )
    entries = {mirror.source for mirror in situation.desired_mirrors.values() if link_of(mirror) == link.address}
    for name in sorted(entries.intersection(internal)):
        yield f"mirrorTopics has {name}, which is internal", "Remove the entry: each cluster manages it itself."
    for name_filter in filters:
        what = f"the autoCreate filter {name_filter.name!r}"
        is_all = name_filter.name == "*" and name_filter.pattern_type == "literal"
        if not is_all and not _LEGAL_NAME.fullmatch(name_filter.name):
            yield (
                f"{what} is no name of a topic, and no prefix",
                "Write a name, a prefix, or '*' with patternType: literal.",
            )
        elif name_filter.filter_type == "exclude":
            for name in sorted(entry for entry in entries if matches_filter(name_filter, entry)):
                yield f"{what} excludes {name}, which mirrorTopics has", "Remove one of the two."
        elif name_filter.name in entries and name_filter.pattern_type == "literal":
            yield f"{what} selects a topic of mirrorTopics", "Remove the filter: the entry is one already."
        elif not is_all:
            for name in [name for name in internal if matches_filter(name_filter, name)][:1]:
                yield f"{what} selects {name}, which is internal", "Remove the filter: each cluster manages it itself."


def check_links(situation: Situation) -> Iterator[PlanFinding]:
    """Yield links whose prefixes, clusters or formats conflict, or whose declarations on both clusters differ."""
    links = {
        address: (wanted, wanted.resource)
        for address, wanted in sorted(situation.wanted.items())
        if isinstance(wanted.resource, MirrorLink) and situation.can_plan(address)
    }
    for address, (wanted, link) in links.items():
        yield from _check_ends(address, wanted, link, situation)
        yield from _check_half(address, wanted, link, situation)
        yield from _check_prefix(address, wanted, link, situation)
        yield from _check_number(address, wanted, link, situation)


def _check_number(
    address: Address, wanted: WantedResource, link: MirrorLink, situation: Situation
) -> Iterator[PlanFinding]:
    most = situation.find_capabilities(link.cluster).mirrors.max_links
    known = {*situation.observed, *situation.wanted}
    others = sorted(
        other for other in known if kind_of(other) == "link" and cluster_of(other) == link.cluster and other != address
    )
    if most is None or len(others) < most or address in situation.observed:
        return
    left = [other for other in others if other not in situation.wanted and other in situation.recorded]
    hint = "Declare the topics of both in one MirrorLink, or leave one of them out."
    if left:
        hint = f"Apply the removal of {left[0]} first, then declare this one."
    named = list_first(others, grouping="")
    message = f"cluster {link.cluster} can have {most} link, and {named} exists or is declared"
    yield PlanFinding(address, wanted.source, message, hint)


def _check_ends(
    address: Address, wanted: WantedResource, link: MirrorLink, situation: Situation
) -> Iterator[PlanFinding]:
    identity, source_identity = (situation.request.identities.get(name) for name in (link.cluster, link.spec.source))
    if identity is None or source_identity is None:
        return
    if (wrong := explain_unlinkable(link, identity, source_identity)) is not None:
        message, hint = wrong
        yield PlanFinding(address, wanted.source, message, hint, ((address, ("spec", "source")), *wanted.marks))


def explain_unlinkable(link: MirrorLink, own: ClusterIdentity, source: ClusterIdentity) -> tuple[str, str] | None:
    """Return message and hint if no link can connect the clusters, or `None`."""
    if own.cluster_id == source.cluster_id:
        message = f"{link.spec.source} and {link.cluster} are one cluster ({own.cluster_id}): no link leads to itself"
        return message, "Name the cluster the records come from."
    if None not in (own.format, source.format) and own.format != source.format:
        message = (
            f"{link.cluster} is of format {own.format} and {link.spec.source} of {source.format}: records are copied "
            "unchanged, so both need the same format"
        )
        return message, "Upgrade the older of the two first."
    return None


def _check_half(
    address: Address, wanted: WantedResource, link: MirrorLink, situation: Situation
) -> Iterator[PlanFinding]:
    other = situation.wanted.get(build_other_half_address(link))
    if other is None or not has_two_halves(link) or not isinstance(other.resource, MirrorLink):
        return
    half = other.resource.spec
    if (half.source, half.mode) != (link.cluster, link.spec.mode):
        yield PlanFinding(
            address,
            wanted.source,
            f"its half {build_other_half_address(link)} is "
            f"{f'declared at {other.source}' if other.source else 'ordered'} as {half.mode} from {half.source}, "
            f"and not as {link.spec.mode} from {link.cluster}",
            "Both halves of a link have one name and one mode: correct it, or leave it out, and it is derived.",
            ((address, ("spec", "mode")),),
        )


def _check_prefix(
    address: Address, wanted: WantedResource, link: MirrorLink, situation: Situation
) -> Iterator[PlanFinding]:
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
        yield PlanFinding(
            address,
            wanted.source,
            f"{other} ({where}) has the prefix {link.spec.prefix!r}, too: each link of a cluster needs its own",
            "Choose another prefix for one of the two.",
            ((address, _PREFIX),),
        )
        return
