"""Sources and roles of mirrors, and the verbs that lead to a role."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final, assert_never

from reconciler.lifecycles import (
    MIRROR,
    REVERSAL_SUSPENDED,
    MirrorStatus,
    Role,
    RolePending,
    RoleReached,
    RoleVerdict,
    UnreachableRole,
    VerbRequest,
    plan_role_change,
)
from reconciler.planning.plan import HeldChange
from reconciler.planning.resolve.limits import check_configs, describe_unsupported
from reconciler.planning.resolve.physical_names import build_name_prefix, build_physical_name, has_flat_names
from reconciler.planning.situation import (
    COPYING,
    Situation,
    WantedResource,
    as_mirror,
    as_topic,
    get_mounted_topic,
    get_source_topic,
    is_mirroring,
    is_recreated,
    is_replica,
)
from reconciler.resources.acls import EVERYONE, AccessBinding, expand_namespace_rules, find_denied_writers
from reconciler.resources.address import Address, address_of, full_name_of, join_name, kind_of, split_name
from reconciler.resources.mirror_link import (
    SYNCED_BY_DEFAULT,
    MirrorLink,
    MirrorLinkSpec,
    MirrorTopic,
    explain_fewer_partitions,
    is_auto_created,
)
from reconciler.resources.mirrors import UNTOLD_VERB
from reconciler.resources.mount import Mounting, MountSource, RecoverableTopic
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.text import find_similar, format_suggestion

if TYPE_CHECKING:
    from reconciler.planning.actions import Value
    from reconciler.resources.cluster import Cluster
    from reconciler.resources.inventory import Inventory, Observed, Record, Recorded


STATE: Final = "state"
PEER: Final = "peer"
"""Key in `origins`, set if a command paused the mirror of this topic on the other cluster."""
NOTHING: Final = "nothing"
_MARK_PREFIX: Final = "a command, while the files said "

BY_COMMAND: Final = {STATE: f"{_MARK_PREFIX}{NOTHING}"}
"""Origins of a mirror that only a command created."""


def drop_command_marks(last: Recorded | None) -> dict[str, str]:
    """Return a record's origins without the marks of commands."""
    return {path: origin for path, origin in (last.origins if last else {}).items() if path not in {STATE, PEER}}


def mark_commanded_role(last: Recorded, role: str) -> Recorded:
    """Return a record with a mark that a command changed its role to `role`."""
    mirror = last.resource
    if not isinstance(mirror, MirrorTopic) or is_made_by_command(last):
        return last
    declared = parse_role_mark(last.origins.get(STATE, "")) or mirror.state
    marks = {} if declared == role else {STATE: f"a command set it to {role}"}
    return replace(
        last, resource=mirror.model_copy(update={"state": declared}), origins={**drop_command_marks(last), **marks}
    )


def make_role_mark(declared: str) -> str:
    """Return the mark in `origins` for a declared role that a command changed."""
    return f"{_MARK_PREFIX}{declared}"


def parse_role_mark(origin: str) -> str | None:
    """Return the declared role in a mark; `None` for other origins."""
    return origin.removeprefix(_MARK_PREFIX) if origin.startswith(_MARK_PREFIX) else None


def is_made_by_command(last: Recorded | None) -> bool:
    """Return whether a command created an undeclared mirror."""
    return last is not None and last.origins.get(STATE) == make_role_mark(NOTHING)


ENDS: Final = {
    "promote": MirrorStatus.STOPPED,
    "reverse-and-start": MirrorStatus.STOPPED,
    "reverse-and-pause": MirrorStatus.STOPPED,
    "truncate-and-restore": MirrorStatus.ACTIVE,
}
"""Final status by verb, for verbs with several steps."""

_REVERSALS: Final = frozenset({"reverse-and-start", "reverse-and-pause"})
_COPYING: Final = frozenset({"promote", *_REVERSALS})
_ROLE_OF_PEER: Final[dict[Role, Role]] = {"reversed": "mirroring", "mirroring": "reversed", "paused": "reversed"}
"""Role of the mirror on the other cluster after a role swap."""


@dataclass(frozen=True, slots=True)
class Step:
    """A verb with the mirror in its resulting role, and the mirror's states before and after."""

    mirror: MirrorTopic
    verb: str
    from_state: MirrorStatus
    to_state: MirrorStatus


@dataclass(frozen=True, slots=True)
class VerbsToRole:
    """Verbs that lead to the desired role; empty if the mirror has this role."""

    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class RoleInProgress:
    """A role change in progress, or a state that this version does not know."""

    address: Address
    state: str


@dataclass(frozen=True, slots=True)
class RoleRefusal:
    """Why no legal verbs lead to the desired role."""

    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class RoleDeferral:
    """Why the role cannot change until another cluster is read or another plan is applied."""

    message: str
    hint: str


Way = VerbsToRole | RoleInProgress | RoleRefusal | RoleDeferral


def derive_peer(mirror: MirrorTopic) -> MirrorTopic:
    """Return the mirror that the source becomes in a role swap."""
    return MirrorTopic(
        cluster=mirror.source_cluster,
        link=mirror.link,
        source_cluster=mirror.cluster,
        source=mirror.name,
        name=mirror.source,
        partitions=mirror.partitions,
    )


def find_mirror_status(seen: Observed) -> MirrorStatus | None:
    """Return the state of an observed mirror; `None` if this version does not know it."""
    try:
        return MirrorStatus(seen.state or MirrorStatus.ACTIVE)
    except ValueError:
        return None


def is_two_way(mirror: MirrorTopic, situation: Situation) -> bool:
    """Return whether roles can be swapped, because the link is bidirectional after this plan."""
    address = address_of("link", mirror.cluster, mirror.link)
    item = situation.wanted.get(address) or situation.observed.get(address)
    return item is not None and isinstance(item.resource, MirrorLink) and item.resource.spec.mode == "bidirectional"


def find_mirror_back(mirror: MirrorTopic, situation: Situation) -> Observed | None:
    """Return the mirror on the other cluster that copies from this topic; `None` if roles are not swapped."""
    return _find_mirror_back(mirror, situation.observed)


def _find_mirror_back(mirror: MirrorTopic, observed: Inventory) -> Observed | None:
    peer = derive_peer(mirror)
    seen = observed.get(peer.address)
    if seen is None or not is_mirroring(seen) or not isinstance(seen.resource, MirrorTopic):
        return None
    mirror_back = seen.resource
    is_it = (mirror_back.link, mirror_back.source_cluster, mirror_back.source) == (
        peer.link,
        peer.source_cluster,
        peer.source,
    )
    return seen if is_it else None


def find_way_to_role(mirror: MirrorTopic, situation: Situation) -> Way | None:
    """Return the verbs that give a mirror its desired role, or why it cannot have this role.

    `None` if neither cluster has the mirror.
    """
    way, item = _find_way(mirror, situation), situation.wanted.get(mirror.address)
    is_held = item is not None and STATE in item.origins
    return VerbsToRole() if is_held and isinstance(way, VerbsToRole | RoleRefusal | RoleDeferral) else way


def follows_other_source(mirror: MirrorTopic, seen: Observed | None) -> bool:
    """Return whether the observed mirror has another source, as in chains."""
    observed_mirror = seen.resource if seen is not None else None
    return isinstance(observed_mirror, MirrorTopic) and (mirror.link, mirror.source_cluster, mirror.source) != (
        observed_mirror.link,
        observed_mirror.source_cluster,
        observed_mirror.source,
    )


def check_role_swap(
    what: str, link: str, side: tuple[str, MirrorLinkSpec | None], other_side: tuple[str, MirrorLinkSpec | None]
) -> RoleRefusal | None:
    """Return why a role change is impossible: the link is one-way or has a prefix on a cluster (F-C-073).

    A side is (cluster, declared link). `what` names the change in the message.
    """
    way_out = "Promote or fail over, and link the other way."
    for (cluster, spec), (other, of_other) in ((side, other_side), (other_side, side)):
        if spec is None or spec.source != other:
            mode = "" if of_other is None else f", its mode on cluster {other} is {of_other.mode}"
            message = f"{what}: link {link} has no half on cluster {cluster}{mode}"
            return RoleRefusal(message, "Declare the link with `mode: bidirectional`, and apply that first.")
        if spec.mode != "bidirectional":
            return RoleRefusal(f"{what}: link {link} of cluster {cluster} is not bidirectional", way_out)
        if spec.prefix:
            return RoleRefusal(f"{what}: link {link} of cluster {cluster} has the prefix {spec.prefix}", way_out)
    return None


def has_swapped_role(mirror: MirrorTopic, situation: Situation) -> bool:
    """Return whether roles are swapped, so the other cluster's mirror determines the role."""
    return mirror.state in _ROLE_OF_PEER and find_mirror_back(mirror, situation) is not None


def _refuse_in_chain(mirror: MirrorTopic, observed: Observed, situation: Situation) -> RoleRefusal | RoleDeferral:
    name = observed.resource.address if isinstance(observed.resource, MirrorTopic) else mirror.address
    source = get_source_topic(observed.resource) if isinstance(observed.resource, MirrorTopic) else ""
    message = f"it cannot become {mirror.state}: it mirrors {source} since the roles of that link were swapped"
    behind = [
        entry
        for entry in situation.desired_mirrors.values()
        if entry.address != mirror.address
        and derive_peer(entry).address == name
        and not follows_other_source(derive_peer(entry), observed)
    ]
    if any(as_topic(mirror) in find_released_topics(_find_way(entry, situation)) for entry in behind):
        return RoleDeferral(f"{message}, and this plan swaps them back", "Apply this plan, then plan again.")
    entries = ", ".join(str(entry.address) for entry in behind)
    first = f"Say state mirroring for {entries} and apply that." if entries else f"Fail {name} over."
    return RoleRefusal(message, f"{first} Until then declare reversed here.")


def _find_way(mirror: MirrorTopic, situation: Situation) -> Way | None:
    seen = situation.observed.get(mirror.address)
    if seen is not None and follows_other_source(mirror, seen):
        back = find_mirror_back(mirror, situation)
        if back is not None and mirror.state in _ROLE_OF_PEER:
            is_taken = is_mirroring(seen) and mirror.state != "reversed"
            return _refuse_in_chain(mirror, seen, situation) if is_taken else _find_way_of_peer(mirror, back, situation)
    back = None if is_mirroring(seen) else find_mirror_back(mirror, situation)
    if back is not None and mirror.state in _ROLE_OF_PEER:
        return _find_way_of_peer(mirror, back, situation)
    if seen is None:
        return None
    status = find_mirror_status(seen)
    if status is None:
        return RoleInProgress(mirror.address, seen.state or "")
    if status is MirrorStatus.STOPPED and mirror.state in _ROLE_OF_PEER:
        return _find_way_of_stopped(mirror, seen, situation)
    return _find_way_of_live(mirror, status, situation)


def find_released_topics(way: Way | None) -> frozenset[Address]:
    """Return the mirrors that the verbs turn into writable topics."""
    steps = way.steps if isinstance(way, VerbsToRole) else ()
    return frozenset(as_topic(step.mirror) for step in steps if step.to_state is MirrorStatus.STOPPED)


def find_topics_to_mirror(way: Way | None) -> frozenset[Address]:
    """Return the writable topics that the verbs turn into mirrors."""
    steps = way.steps if isinstance(way, VerbsToRole) else ()
    swapped = (get_source_topic(step.mirror) for step in steps if step.verb in _REVERSALS)
    return frozenset((*swapped, *(as_topic(step.mirror) for step in steps if step.verb == "truncate-and-restore")))


def map_role_changes(situation: Situation) -> Mapping[Address, frozenset[Address]]:
    """Map declared mirrors to mirrors and topics that their role changes affect."""
    ways = {address: find_way_to_role(entry, situation) for address, entry in situation.desired_mirrors.items()}
    changed: dict[Address, frozenset[Address]] = {}
    for address, way in ways.items():
        steps = way.steps if isinstance(way, VerbsToRole) else ()
        topics = {*(as_topic(step.mirror) for step in steps), *find_released_topics(way), *find_topics_to_mirror(way)}
        if topics:
            changed[address] = frozenset({*topics, *map(as_mirror, topics)})
    return changed


def _find_way_of_live(mirror: MirrorTopic, status: MirrorStatus, situation: Situation) -> Way:
    peer = situation.observed.get(derive_peer(mirror).address)
    is_suspended = status is MirrorStatus.PAUSED and peer is not None and peer.state == MirrorStatus.PENDING_MIRROR
    status = predict_resumed_status(mirror, status, situation)
    verdict = plan_role_change(mirror.state, status, is_suspended=is_suspended)
    is_for_both = isinstance(verdict, VerbRequest) and mirror.state in {"promoted", "reversed"}
    if is_for_both and mirror.source_cluster not in situation.trusted:
        return RoleDeferral(
            f"it cannot become {mirror.state}: its source, cluster {mirror.source_cluster}, was not read",
            "Plan again with both clusters. Where the source is lost permanently, state failed-over works without it.",
        )
    verbs = verdict.verbs if isinstance(verdict, VerbRequest) else ()
    refused = check_source_exists(mirror, status, verbs, situation) or check_source_mirrors(
        mirror, status, verbs, situation
    )
    return refused or _find_way_by_verdict(mirror, status, verdict, is_suspended=is_suspended)


def predict_resumed_status(mirror: MirrorTopic, status: MirrorStatus, situation: Situation) -> MirrorStatus:
    """Return a mirror's status after this plan resumes its link; clusters report only the pause."""
    seen = situation.observed.get(link := link_of(mirror))
    was_paused = seen is not None and isinstance(seen.resource, MirrorLink) and seen.resource.spec.paused
    is_resumed = was_paused and not is_link_paused(mirror, situation) and link in situation.wanted
    if status is not MirrorStatus.LINK_PAUSED or mirror.state not in {*COPYING, "promoted"} or not is_resumed:
        return status
    last = situation.recorded.get(mirror.address)
    is_kept = last is not None and isinstance(last.resource, MirrorTopic) and last.resource.state == "paused"
    return MirrorStatus.PAUSED if is_kept and mirror.state == "mirroring" else MirrorStatus.ACTIVE


def is_link_paused(mirror: MirrorTopic, situation: Situation) -> bool:
    """Return whether the link is paused after this plan."""
    link = link_of(mirror)
    item = situation.wanted.get(link) if situation.can_plan(link) else situation.observed.get(link)
    return item is not None and isinstance(item.resource, MirrorLink) and item.resource.spec.paused


def check_source_mirrors(
    mirror: MirrorTopic, status: MirrorStatus, verbs: Collection[str], situation: Situation
) -> RoleRefusal | None:
    """Reject the reversal of a mirror whose source remains a mirror."""
    if not _REVERSALS.intersection(verbs):
        return None
    source = get_source_topic(mirror)
    source_mirror, entry = (situation.observed.get(as_mirror(source)), situation.desired_mirrors.get(as_mirror(source)))
    is_freed = entry is not None and entry.state not in COPYING
    if (
        is_freed
        or source_mirror is None
        or not is_mirroring(source_mirror)
        or not isinstance(source_mirror.resource, MirrorTopic)
    ):
        return None
    return RoleRefusal(
        f"it is {status} and cannot become reversed: its source {source} is itself a mirror of "
        f"{get_source_topic(source_mirror.resource)} ({source_mirror.state})",
        f"Leave it mirroring until {source} is a topic again, and apply that first.",
    )


def check_source_exists(
    mirror: MirrorTopic, status: MirrorStatus, verbs: Collection[str], situation: Situation
) -> RoleRefusal | None:
    """Reject verbs that copy from a missing source."""
    if not _COPYING.intersection(verbs):
        return None
    source = get_source_topic(mirror)
    if source in situation.observed or as_mirror(source) in situation.observed:
        return None
    return RoleRefusal(
        f"{mirror.address} is {status}, and its source {source} is gone: it can neither be promoted nor reversed",
        "To keep what it has: state failed-over, or `reconciler mirror failover`.",
    )


def _find_way_of_peer(mirror: MirrorTopic, back: Observed, situation: Situation) -> Way:
    peer = derive_peer(mirror)
    status = find_mirror_status(back)
    if status is None:
        return RoleInProgress(peer.address, back.state or "")
    seen = situation.observed.get(mirror.address)
    role = _ROLE_OF_PEER[mirror.state]
    is_own = seen is not None and not follows_other_source(mirror, seen)
    is_suspended = is_own and seen is not None and seen.state == MirrorStatus.PENDING_MIRROR
    item = situation.wanted.get(mirror.address)
    if status is MirrorStatus.PAUSED and not is_suspended and item is not None and PEER in item.origins:
        return VerbsToRole()
    verdict = plan_role_change(role, status, is_suspended=is_suspended)
    if isinstance(verdict, VerbRequest) and mirror.state == "paused":
        verdict = VerbRequest(tuple("reverse-and-pause" if verb in _REVERSALS else verb for verb in verdict.verbs))
    if isinstance(verdict, UnreachableRole):
        legal = ", ".join(MIRROR.list_legal_verbs(status)) or "none"
        return RoleRefusal(
            f"{peer.address} mirrors it since their roles were swapped, is {status} and cannot become {role}",
            f"{verdict.hint} Legal from there: {legal}.",
        )
    after = peer.model_copy(update={"state": role})
    verbs = verdict.verbs if isinstance(verdict, VerbRequest) else ()
    return check_source_exists(after, status, verbs, situation) or _find_way_by_verdict(
        after, status, verdict, is_suspended=is_suspended
    )


def _find_way_of_stopped(mirror: MirrorTopic, seen: Observed, situation: Situation) -> Way:
    if not is_two_way(mirror, situation):
        way = _find_way_by_verdict(mirror, MirrorStatus.STOPPED, _assess_stopped(mirror))
        if isinstance(way, RoleRefusal) and "reversed" not in situation.find_capabilities(mirror.cluster).mirrors.roles:
            return replace(way, hint=f"Delete it and mirror again: reconciler topic delete {as_topic(mirror)}")
        return way
    if mirror.source_cluster not in situation.trusted:
        return RoleDeferral(
            f"it is STOPPED, and it is unknown whether its source mirrors it: cluster {mirror.source_cluster} "
            "was not read",
            "Plan again with both clusters.",
        )
    peer = derive_peer(mirror)
    other_side = situation.observed.get(peer.address)
    is_other_last = other_side is not None and other_side.mirror.since_ms > seen.mirror.since_ms
    if mirror.state == "mirroring" and is_other_last:
        return _find_way_to_restore(mirror, MirrorStatus.STOPPED, situation)
    if mirror.state != "reversed":
        return _find_way_by_verdict(mirror, MirrorStatus.STOPPED, _assess_stopped(mirror))
    if other_side is not None and is_mirroring(other_side) and isinstance(other_side.resource, MirrorTopic):
        return RoleRefusal(
            f"it is STOPPED and cannot become reversed: {get_source_topic(mirror)} is a mirror of "
            f"{get_source_topic(other_side.resource)} ({other_side.state})",
            "To leave it so: state failed-over. To mirror this one instead: "
            f"reconciler mirror failover {peer.address}, "
            f"then reconciler mirror restore {peer.address} --link {link_of(mirror)}",
        )
    if is_other_last:
        return RoleRefusal(
            f"it is STOPPED and cannot become reversed: {peer.address} stopped after it, so that this one is the "
            "original source",
            "What can be restored is this side: state mirroring cuts it to where the other stopped, and mirrors it.",
        )
    if other_side is None and get_source_topic(mirror) not in situation.observed:
        return RoleRefusal(
            f"it is STOPPED and cannot become reversed: {get_source_topic(mirror)} is gone, "
            "so there is nothing to restore",
            f"Mirror it again over a link on cluster {mirror.source_cluster}, and remove this entry.",
        )
    return _find_way_to_restore(peer, MirrorStatus.REGULAR if other_side is None else MirrorStatus.STOPPED, situation)


def _assess_stopped(mirror: MirrorTopic) -> RoleVerdict:
    return plan_role_change(mirror.state if mirror.state != "reversed" else "mirroring", MirrorStatus.STOPPED)


def _find_way_to_restore(mirror: MirrorTopic, state: MirrorStatus, situation: Situation) -> VerbsToRole | RoleRefusal:
    step = build_restore_step(mirror, state, situation)
    return VerbsToRole((step,)) if isinstance(step, Step) else step


def build_restore_step(mirror: MirrorTopic, state: MirrorStatus, situation: Situation) -> Step | RoleRefusal:
    """Return the step that restores a stopped mirror's original source, or why it cannot."""
    verb = "truncate-and-restore"
    topic, source = as_topic(mirror), get_source_topic(mirror)
    needed, has = count_partitions(topic, situation), count_partitions(source, situation)
    wanted = situation.wanted.get(source)
    if wanted is not None and isinstance(wanted.resource, Topic) and situation.is_chosen(source):
        has = max(has, wanted.resource.spec.partitions or 0)
    if needed > has > 0:
        return RoleRefusal(
            explain_fewer_partitions(
                (mirror.cluster, mirror.name), needed, (mirror.source_cluster, mirror.source), has
            ),
            f"Declare {source} with `partitions: {needed}`: the same plan adds them first.",
        )
    return Step(mirror, verb, state, ENDS[verb])


def count_partitions(topic: Address, situation: Situation) -> int:
    """Return the partition count of a topic or mirror; 0 if unknown."""
    counts = [0]
    for item in (situation.observed.get(topic), situation.observed.get(as_mirror(topic))):
        if item is not None and isinstance(item.resource, Topic):
            counts.append(item.resource.spec.partitions or 0)
        elif item is not None and isinstance(item.resource, MirrorTopic):
            counts.append(item.resource.partitions or 0)
    return max(counts)


def _find_way_by_verdict(
    mirror: MirrorTopic, status: MirrorStatus, verdict: RoleVerdict, *, is_suspended: bool = False
) -> Way:
    match verdict:
        case RoleReached():
            return VerbsToRole()
        case RolePending():
            return RoleInProgress(mirror.address, status.value)
        case UnreachableRole():
            legal = ", ".join(MIRROR.list_legal_verbs(status)) or "none"
            return RoleRefusal(
                f"it is {status} and cannot become {mirror.state}", f"{verdict.hint} Legal from there: {legal}."
            )
        case VerbRequest():
            return VerbsToRole(tuple(_plan_steps(mirror, status, verdict.verbs, is_suspended=is_suspended)))
        case _:
            assert_never(verdict)


def _plan_steps(mirror: MirrorTopic, status: MirrorStatus, verbs: tuple[str, ...], *, is_suspended: bool) -> list[Step]:
    steps: list[Step] = []
    for verb in verbs:
        condition = REVERSAL_SUSPENDED if is_suspended and verb == "resume" else ""
        reached = MIRROR.apply_verb(status, verb, condition=condition)
        steps.append(Step(mirror, verb, status, ENDS.get(verb, reached)))
        status = steps[-1].to_state
    return steps


def find_mirror_claiming_topic(topic: Address, situation: Situation) -> tuple[MirrorTopic, Observed | None] | None:
    """Return the declared mirror whose role change turns a topic into a mirror, as declared and observed."""
    live = situation.observed.get(as_mirror(topic))
    for entry in situation.desired_mirrors_by_source.get(topic, ()):
        back = find_mirror_back(entry, situation)
        if back is not None and live is back:
            return entry, back
        is_planned = situation.can_plan(entry.address)
        if (
            is_planned
            and is_two_way(entry, situation)
            and topic in find_topics_to_mirror(find_way_to_role(entry, situation))
        ):
            return entry, None
    return None


_MAX_SUGGESTIONS: Final = 3


def check_mirror(mirror: MirrorTopic, situation: Situation) -> Iterator[tuple[str, str]]:
    """Yield why a declared mirror is impossible."""
    capabilities = situation.find_capabilities(mirror.cluster)
    if not capabilities.links:
        return  # `check_link` rejects the link.
    if mirror.state not in capabilities.mirrors.roles:
        field = mirror.state if mirror.state in capabilities.lacks else "roles"
        message, _ = describe_unsupported(capabilities, f"bring a mirror into state {mirror.state}", field)
        hint = f"Declare one of: {', '.join(sorted(capabilities.mirrors.roles))}."
        if mirror.state == "reversed":
            ending = "promote it" if situation.name_ending(mirror.address) == "promote" else "fail it over"
            can_rename = "prefix" in capabilities.mirrors.features
            name = "a name of its own" if can_rename else "its name, once that is free there"
            hint = (
                f"To swap roles {ending}, let its users write here, and declare a MirrorLink on cluster "
                f"{mirror.source_cluster} with source: {mirror.cluster} that mirrors it back under {name}."
            )
        yield message, hint
        return
    yield from check_configs(mirror.configs, capabilities)
    if mirror.configs and "mirror-configs" not in capabilities.mirrors.features:
        yield describe_unsupported(capabilities, "give a mirror configs of its own", "mirror-configs")
    yield from _check_source(mirror, situation)
    yield from _check_rivals(mirror, situation)
    yield from _check_protection(mirror, situation)
    seen = situation.observed.get(mirror.address)
    if seen is None or not isinstance(seen.resource, MirrorTopic):
        return
    if follows_other_source(mirror, seen) and not has_swapped_role(mirror, situation):
        another = f"remove the entry, apply that with --allow delete:{mirror.address}, and declare it again"
        yield (
            f"it mirrors {get_source_topic(seen.resource)} over link {seen.resource.link}, which never changes",
            f"Set it back. To follow another: {another}.",
        )


def find_denied_principals(mirror: MirrorTopic, denied: Collection[str], situation: Situation) -> tuple[str, ...]:
    """Return the principals to which `protect: acl` denies writes. `denied` are those denied already."""
    link, capabilities = situation.wanted.get(link_of(mirror)), situation.find_capabilities(mirror.cluster)
    spec = link.resource.spec if link is not None and isinstance(link.resource, MirrorLink) else None
    if spec is None or spec.protect != "acl" or capabilities.mirrors.read_only or not capabilities.access.principal:
        return ()
    cluster = situation.clusters[mirror.cluster]
    rules = capabilities.access.write_rules | frozenset(_list_namespace_bindings(cluster, situation))
    return find_denied_writers(
        rules, build_physical_name(cluster, mirror.name), own=capabilities.access.principal, denied=denied
    )


def _list_namespace_bindings(cluster: Cluster, situation: Situation) -> Iterator[AccessBinding]:
    for item in situation.wanted.values():
        namespace = item.resource
        if not isinstance(namespace, Namespace) or namespace.cluster != cluster.metadata.name:
            continue
        every = expand_namespace_rules(build_name_prefix(cluster, namespace.metadata.name), namespace.spec.acls)
        yield from (binding for binding in every if binding.resource == "topics")


def _check_protection(mirror: MirrorTopic, situation: Situation) -> Iterator[tuple[str, str]]:
    if mirror.state in COPYING and EVERYONE in find_denied_principals(mirror, (), situation):
        yield (
            f"it cannot be protected (protect: acl): an access rule lets {EVERYONE} write to it",
            "Name principals in that rule: a rule that denies everyone would keep the link out, too.",
        )


def _check_source(mirror: MirrorTopic, situation: Situation) -> Iterator[tuple[str, str]]:
    if mirror.source_cluster not in situation.trusted or mirror.state not in COPYING:
        return
    if find_mirror_back(mirror, situation) is not None:
        # After a role swap, the source copies from this topic.
        return
    if is_replica(situation.wanted.get(get_source_topic(mirror)) or situation.observed.get(get_source_topic(mirror))):
        source = get_source_topic(mirror)
        yield (
            f"its source {source} is a read replica, and only shows what another cluster uploaded",
            "Mirror the topic that it reads, from the cluster that has it.",
        )
    elif _is_circular(mirror, situation):
        yield "it mirrors itself in a circle", "A topic is mirrored in one direction only: remove one of the entries."
    elif not has_source(mirror, situation) and is_mirroring(situation.observed.get(mirror.address)):
        keep = f"To keep that: state failed-over, or `reconciler mirror failover {mirror.address}`."
        yield (
            f"its source {get_source_topic(mirror)} no longer exists: the mirror has the records copied until then",
            f"{keep} A new topic of that name has another id, and makes this mirror FAILED.",
        )
    elif not has_source(mirror, situation):
        near = find_similar(mirror.source, list_cluster_topics(mirror.source_cluster, situation), most=_MAX_SUGGESTIONS)
        yield (
            f"its source {get_source_topic(mirror)} is neither there nor declared",
            format_suggestion(
                near, then=f"Declare {_choose_resource_to_declare(mirror, situation)}, or correct mirrorTopics.source."
            ),
        )


def _check_rivals(mirror: MirrorTopic, situation: Situation) -> Iterator[tuple[str, str]]:
    if mirror.state != "reversed" or STATE in situation.wanted[mirror.address].origins:
        return
    source = get_source_topic(mirror)
    for other in situation.desired_mirrors_by_source.get(source, ()):
        # A state with an origin was set by a command.
        is_declared = STATE not in situation.wanted[other.address].origins
        if other.state == "reversed" and is_declared and other.address != mirror.address:
            where = situation.wanted[other.address].source
            message = f"it and {other.address} ({where}) are both to be reversed"
            hint = "Leave one of them reversed, and give the other another state."
            yield f"{message}: their source {source} can become the mirror of only one of them", hint
            return


def _choose_resource_to_declare(mirror: MirrorTopic, situation: Situation) -> str:
    namespace, _ = split_name(mirror.source)
    cluster = situation.clusters.get(mirror.source_cluster)
    what = f"Namespace {namespace} or the Topic" if namespace and cluster and has_flat_names(cluster) else "the Topic"
    return f"{what} on cluster {mirror.source_cluster}"


def list_cluster_topics(cluster: str, situation: Situation) -> list[str]:
    """Return the names of existing and declared topics and mirrors of a cluster."""
    names = {
        full_name_of(address)
        for address in (*situation.observed, *situation.wanted, *situation.mountings_by_topic)
        if kind_of(address) in {"topic", "mirror"} and address.split("/", 2)[1] == cluster
    }
    return sorted(names)


def has_source(mirror: MirrorTopic, situation: Situation) -> bool:
    """Return whether the source exists before the mirror is created."""
    source = get_source_topic(mirror)
    if any(address in situation.observed for address in (source, as_mirror(source))):
        return True
    wanted = situation.wanted.get(source)
    mounting = situation.mountings_by_topic.get(source)
    is_mounted = mounting is not None and mounting.spec.state == "mounted" and situation.is_chosen(mounting.address)
    is_planned = wanted is not None and situation.is_chosen(source)
    return (
        is_planned or is_mounted or (as_mirror(source) in situation.wanted and situation.is_chosen(as_mirror(source)))
    )


def _is_circular(mirror: MirrorTopic, situation: Situation) -> bool:
    seen: set[Address] = {mirror.address}
    current = _find_source_mirror(mirror, situation)
    while current is not None and current.address not in seen:
        seen.add(current.address)
        current = _find_source_mirror(current, situation)
    return current is not None


def _find_source_mirror(mirror: MirrorTopic, situation: Situation) -> MirrorTopic | None:
    source = get_source_topic(mirror)
    entry = situation.desired_mirrors.get(as_mirror(source))
    if entry is not None:
        return entry if entry.state in COPYING else None
    observed_mirror = situation.observed_mirrors.get(as_mirror(source))
    if observed_mirror is not None:
        is_peer = (observed_mirror.link, get_source_topic(observed_mirror)) == (
            mirror.link,
            as_topic(mirror),
        )
        return observed_mirror if is_mirroring(situation.observed[observed_mirror.address]) and not is_peer else None
    is_topic = source in situation.observed or source in situation.wanted
    return None if is_topic else find_auto_created(mirror.source_cluster, mirror.source, situation)


def find_auto_created(cluster: str, full_name: str, situation: Situation) -> MirrorTopic | None:
    """Return the mirror that a link's auto-create filters would create under a name."""
    namespace, name = split_name(full_name)
    for address, wanted in sorted(situation.wanted.items()):
        link = wanted.resource
        if not isinstance(link, MirrorLink) or link.cluster != cluster or not name.startswith(link.spec.prefix):
            continue
        making, source = link.spec.auto_create, join_name(namespace, name.removeprefix(link.spec.prefix))
        if making is not None and making.enabled and is_auto_created(making.filters, source):
            return MirrorTopic(
                cluster=cluster,
                link=full_name_of(address),
                source_cluster=link.spec.source,
                source=source,
                name=full_name,
            )
    return None


def read_source_parameters(mirror: MirrorTopic, situation: Situation) -> dict[str, Value]:
    """Return a new mirror's parameters: `partitions`, synced `configs` and `incarnation` of its source."""
    source = get_source_topic(mirror)
    chain = _list_config_chain(source, situation)
    configs: dict[str, object] = {}
    for key in _pick_synced_configs(mirror, situation):
        value = next((layer[key] for layer in chain if key in layer), None)
        if value is not None:
            configs[key] = value
    parameters: dict[str, Value] = {"configs": configs}
    partitions = _plan_partitions(source, situation)
    if partitions is not None:
        parameters["partitions"] = partitions
    seen = situation.observed.get(source) or situation.observed.get(as_mirror(source))
    if seen is not None and seen.incarnation is not None:
        parameters["incarnation"] = seen.incarnation
    return parameters


def _plan_partitions(source: Address, situation: Situation) -> int | None:
    wanted, seen = situation.wanted.get(source), situation.observed.get(source)
    for item in (wanted, seen):
        if item is not None and isinstance(item.resource, Topic) and item.resource.spec.partitions is not None:
            return item.resource.spec.partitions
    above = situation.observed.get(as_mirror(source))
    if above is not None and isinstance(above.resource, MirrorTopic) and above.resource.partitions is not None:
        return above.resource.partitions
    chained = situation.wanted.get(as_mirror(source))
    if chained is not None and isinstance(chained.resource, MirrorTopic):
        return _plan_partitions(get_source_topic(chained.resource), situation)
    match _find_mounted_source(source, situation):
        case RecoverableTopic() as found:
            return found.partitions
        case Mounting() as leaving:
            return _plan_partitions(get_mounted_topic(leaving), situation)
        case None:
            return None


def _find_mounted_source(source: Address, situation: Situation) -> RecoverableTopic | Mounting | None:
    mounting = situation.mountings_by_topic.get(source)
    mount_source = situation.request.stored.mounts.get(mounting.address) if mounting is not None else None
    if not isinstance(mount_source, MountSource) or source in situation.observed:
        return None
    leaving = situation.wanted.get(mount_source.unmounts) if mount_source.unmounts is not None else None
    return leaving.resource if leaving and isinstance(leaving.resource, Mounting) else mount_source.recoverable


def _list_config_chain(source: Address, situation: Situation) -> list[Mapping[str, str]]:
    _, cluster, _ = source.split("/", 2)
    topic = situation.wanted.get(source) or situation.observed.get(source)
    if topic is None or not isinstance(topic.resource, Topic):
        chained = situation.wanted.get(as_mirror(source))
        if chained is not None and isinstance(chained.resource, MirrorTopic):
            return _list_config_chain(get_source_topic(chained.resource), situation)
        match _find_mounted_source(source, situation):
            case RecoverableTopic() as recoverable:
                return [recoverable.configs]
            case Mounting() as leaving:
                return _list_config_chain(get_mounted_topic(leaving), situation)
            case None:
                return []
    tiers = situation.list_nearest_namespaces(cluster, topic.resource.metadata.namespace)
    items = (
        inventory.get(address) for address in (source, *tiers) for inventory in (situation.wanted, situation.observed)
    )
    return [item.resource.spec.configs for item in items if item and isinstance(item.resource, Topic | Namespace)]


def _pick_synced_configs(mirror: MirrorTopic, situation: Situation) -> tuple[str, ...]:
    link = situation.wanted.get(link_of(mirror)) or situation.observed.get(link_of(mirror))
    if link is not None and isinstance(link.resource, MirrorLink) and link.resource.spec.topic_config_sync is not None:
        return link.resource.spec.topic_config_sync.include
    return SYNCED_BY_DEFAULT


NOT_DECLARED: Final = "is not declared here"
"""Reason in `PlanInput.lost` for a cluster without a manifest."""


def explain_unread(cluster: str, situation: Situation) -> str:
    """Return why a cluster was not read, such as `does not answer`."""
    why = situation.request.lost.get(cluster)
    if why is None:
        return "was not read"
    return why if situation.request.orders else "does not answer"


def link_of(mirror: MirrorTopic) -> Address:
    """Return the address of a mirror's link."""
    return address_of("link", mirror.cluster, mirror.link)


# Mirror records store the declared role. Older versions stored the current role, with a mark.


ROLE_BY_VERB: Final[Mapping[str, Role]] = {
    "failover": "failed-over",
    "promote": "promoted",
    UNTOLD_VERB: "failed-over",  # It equals "promoted"; a reversal is known by the mirror on the other cluster.
    **dict.fromkeys(_REVERSALS, "reversed"),
}
_STOPPED_ROLES: Final = frozenset({"promoted", "failed-over"})


def replace_held_roles(
    wanted: dict[Address, WantedResource], recorded: Record, observed: Inventory
) -> dict[Address, WantedResource]:
    """Give mirrors the desired role that a command set, if plans keep it."""
    for address, item in wanted.items():
        mirror = item.resource
        if not isinstance(mirror, MirrorTopic):
            continue
        role, last = find_held_role(mirror, recorded.get(address), observed), recorded.get(address)
        marks = {} if role is None else {STATE: make_role_mark(mirror.state)}
        if (role or mirror.state) == "reversed" and last is not None and PEER in last.origins:
            marks[PEER] = last.origins[PEER]
        if marks:
            held = mirror.model_copy(update={"state": role or mirror.state})
            wanted[address] = replace(item, resource=held, origins={**item.origins, **marks})
    return wanted


def is_kept_for_command(address: Address, situation: Situation) -> bool:
    """Return whether an undeclared mirror is kept because a command created it."""
    last = situation.recorded[address]
    if situation.request.options.is_destroy or not isinstance(last.resource, MirrorTopic):
        return False
    link = link_of(last.resource)
    return is_made_by_command(last) and (link in situation.wanted or link not in situation.recorded)


def find_held_mirrors(situation: Situation) -> Iterator[HeldChange]:
    """Yield mirrors that keep the role that a command set."""
    for address, item in sorted(situation.wanted.items()):
        mirror = item.resource
        if not isinstance(mirror, MirrorTopic) or not situation.can_plan(address):
            continue
        declared = parse_role_mark(item.origins.get(STATE, ""))
        if declared is not None:
            message = f"it was made {mirror.state} by a command, and the files still have {declared}"
            hint = f"Write it into the files: reconciler drift --accept {address}"
            yield HeldChange(address, item.source, message, hint, mirror.state, item.marks)
        if PEER in item.origins:
            peer = derive_peer(mirror).address
            message = f"{peer}, which mirrors it since their roles were swapped, was paused by a command"
            yield HeldChange(
                address, item.source, message, f"To resume it: reconciler mirror resume {peer}", "", item.marks
            )
    for address, mirror in sorted(situation.observed_mirrors.items()):
        if address in situation.wanted or not situation.can_plan(address):
            continue
        link, role = link_of(mirror), find_current_role(mirror, situation.observed) or "mirroring"
        if _is_made_by_command(address, mirror, situation):
            message = "it was created by a command, and the files do not name it"
        elif _is_stopped_by_command(address, mirror, role, situation):
            message = f"it was made {role} by a command, and no longer follows its source: no file declares that"
        else:
            continue
        written = address if link in situation.wanted else link
        hint = f"Write it into the files: reconciler drift --accept {written}"
        last = situation.recorded.get(address)
        known = last.resource if last is not None and isinstance(last.resource, MirrorTopic) else mirror
        yield HeldChange(address, None, message, hint, role, mirror=known.model_copy(update={"state": role}))


def _is_made_by_command(address: Address, mirror: MirrorTopic, situation: Situation) -> bool:
    if address in situation.recorded:
        return is_kept_for_command(address, situation)
    seen, topic, peer = situation.observed[address], as_topic(mirror), derive_peer(mirror).address
    known = (situation.wanted, situation.recorded, situation.observed)
    is_reversed = topic in situation.recorded or any(peer in inventory for inventory in known)
    is_automatic = seen.mirror.is_automatic or find_auto_created(mirror.cluster, mirror.name, situation) is not None
    return link_of(mirror) in situation.wanted and is_mirroring(seen) and not (is_reversed or is_automatic)


def _is_stopped_by_command(address: Address, mirror: MirrorTopic, role: Role, situation: Situation) -> bool:
    made = find_auto_created(mirror.cluster, mirror.name, situation)
    is_named = address in situation.recorded or as_topic(mirror) in situation.wanted
    return role in _STOPPED_ROLES and made is not None and link_of(made) == link_of(mirror) and not is_named


def find_held_role(mirror: MirrorTopic, last: Recorded | None, observed: Inventory) -> Role | None:
    """Return the role that a command set, unless the declared role changed since the last apply."""
    role, was = find_current_role(mirror, observed), last.resource if last is not None else None
    if last is not None and isinstance(was, MirrorTopic):
        if last.origins.get(STATE) == make_role_mark(mirror.state):
            if role in {None, was.state}:
                return was.state
        elif was.state != mirror.state:
            return None
        topic = observed.get(as_topic(mirror))
        if role is None and mirror.address not in observed and topic is not None and not is_recreated(last, topic):
            role = "failed-over"  # The topic lost its mirror status with the deleted link.
    elif mirror.state not in COPYING:
        return None  # The stopped role was never applied, so the files request it now.
    is_same = (
        role is None or role == mirror.state or any({role, mirror.state} <= equal_roles for equal_roles in _EQUAL_ROLES)
    )
    return None if is_same else role


_EQUAL_ROLES: Final = (COPYING, _STOPPED_ROLES)
"""Groups of roles that count as equal."""


def find_current_role(mirror: MirrorTopic, observed: Inventory) -> Role | None:
    """Return the role that the clusters report for a mirror, or `None` during a change."""
    seen, peer = observed.get(mirror.address), observed.get(derive_peer(mirror).address)
    if follows_other_source(mirror, seen):
        seen = None
    back = _find_mirror_back(mirror, observed)
    if back is not None and not is_mirroring(seen) and _is_settled(back):
        return "reversed"
    if seen is None or not isinstance(seen.resource, MirrorTopic) or not _is_settled(seen):
        return None
    if is_mirroring(seen):
        return "paused" if seen.state == MirrorStatus.PAUSED else "mirroring"
    if peer is not None and not is_mirroring(peer) and peer.mirror.since_ms > seen.mirror.since_ms:
        role = ROLE_BY_VERB.get(peer.mirror.stopped_by or "")
        return None if role == "reversed" else role
    return ROLE_BY_VERB.get(seen.mirror.stopped_by or "")


def _is_settled(seen: Observed) -> bool:
    status = find_mirror_status(seen)
    return status not in {None, MirrorStatus.FAILED} and not str(status).startswith("PENDING_")
