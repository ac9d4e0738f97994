"""Turn a command's orders about mirrors into actions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from reconciler.errors import UserError
from reconciler.lifecycles import MIRROR, REVERSAL_SUSPENDED, TWO_SIDED_VERBS, MirrorStatus
from reconciler.planning.actions import Delete, Reason, Transition
from reconciler.planning.diff.converge import AddressView, plan_creation, plan_deletion
from reconciler.planning.diff.mirror_changes import (
    CATCH_UP,
    build_catch_up,
    build_transition,
    is_copied_by_jobs,
    is_kept_by_link,
)
from reconciler.planning.diff.topic_orders import warn_of_stored
from reconciler.planning.orders import CreateMirrorOrder, DeleteMirrorOrder, RoleOrder
from reconciler.planning.resolve.limits import check_configs, describe_unsupported
from reconciler.planning.resolve.mirror_sources import (
    BY_COMMAND,
    ENDS,
    NOT_DECLARED,
    RoleRefusal,
    Step,
    build_restore_step,
    check_role_swap,
    check_source_exists,
    check_source_mirrors,
    count_partitions,
    derive_peer,
    explain_unread,
    find_mirror_status,
    link_of,
    read_source_parameters,
)
from reconciler.planning.situation import WantedResource, as_mirror, as_topic, get_source_topic
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_address,
    cluster_of,
    full_name_of,
    join_name,
    kind_of,
    list_levels,
    split_name,
)
from reconciler.resources.configs import canonicalize_value
from reconciler.resources.mirror_link import SYNCED_BY_DEFAULT, MirrorLink, MirrorState, MirrorTopic
from reconciler.resources.mirrors import PROMOTE, RESTORE, REVERSALS
from reconciler.runtime.text import find_similar_spelling, format_suggestion, list_first

if TYPE_CHECKING:
    from reconciler.planning.actions import Action
    from reconciler.planning.diff.converge import Decision
    from reconciler.planning.situation import Situation
    from reconciler.resources.inventory import Inventory, Observed, Recorded
    from reconciler.resources.mirror_link import MirrorLinkSpec

MirrorOrder: TypeAlias = RoleOrder | CreateMirrorOrder | DeleteMirrorOrder

_M = MirrorStatus

_ROLE_BY_VERB: Final[Mapping[str, MirrorState]] = {
    "pause": "paused",
    "resume": "mirroring",
    "promote": "promoted",
    "failover": "failed-over",
    "reverse-and-start": "reversed",
    "reverse-and-pause": "reversed",
    "truncate-and-restore": "mirroring",
}
_ROLE_OF_PEER_BY_VERB: Final[Mapping[str, MirrorState]] = {
    **_ROLE_BY_VERB,
    "pause": "reversed",
    "resume": "reversed",
    "reverse-and-start": "mirroring",
    "reverse-and-pause": "paused",
    "truncate-and-restore": "reversed",
}
"""Role by verb of the declared mirror on the other cluster, if roles are swapped."""
_END_BY_VERB: Final[Mapping[str, MirrorStatus]] = {
    "pause": _M.PAUSED,
    "resume": _M.ACTIVE,
    "failover": _M.STOPPED,
    "promote": _M.STOPPED,
}
_COMMAND_BY_VERB: Final[Mapping[str, str]] = {
    "reverse-and-start": "mirror reverse",
    "reverse-and-pause": "mirror reverse --pause",
    "truncate-and-restore": "mirror restore",
    "delete": "mirror delete",
}
_IN_PROGRESS: Final = "What is in progress continues with: reconciler run --once --only mirror"
_MAX_NAMES: Final = 5


def list_mirror_scope(order: MirrorOrder, observed: Inventory, clusters: Collection[str]) -> Iterator[Address]:
    """Yield the addresses to observe for an order, given those already in `observed`.

    A restore searches all `clusters` for stopped mirrors.
    """
    address = order.mirror
    cluster, topic = cluster_of(address) or "", _to_topic_address(address)
    yield from (cluster_address(cluster), address, topic, _list_links_on(cluster))
    if cluster_address(cluster) not in observed:
        return
    seen = observed.get(address)
    mirror = seen.resource if seen is not None and isinstance(seen.resource, MirrorTopic) else None
    match order:
        case RoleOrder(verb="truncate-and-restore"):
            for other in sorted(set(clusters) - {cluster}):
                yield from (cluster_address(other), _list_links_on(other))
                yield from (
                    at for link in _find_links(observed, other) if (at := _find_mirror_over(link, address)) is not None
                )
        case CreateMirrorOrder():
            for link in _find_links(observed, cluster):
                if link.metadata.name == order.link:
                    source = order.source or _strip_prefix(full_name_of(address), link.spec.prefix) or ""
                    yield from _list_addresses_at_source(address_of("topic", link.spec.source, source))
                    levels = list_levels(split_name(source)[0])
                    yield from (address_of("namespace", link.spec.source, level) for level in levels)
        case RoleOrder() if mirror is not None and order.verb != "pause":
            yield from _list_addresses_at_source(get_source_topic(mirror))
        case RoleOrder() | DeleteMirrorOrder():
            if seen is None and topic not in observed:
                # If the mirror is unknown, the error suggests similar names.
                yield address_of("mirror", cluster, "*")
        case _:
            assert_never(order)


def list_needed_clusters(order: MirrorOrder, observed: Inventory) -> Iterator[str]:
    """Yield the clusters that an order needs."""
    cluster = cluster_of(order.mirror) or ""
    yield cluster
    seen = observed.get(order.mirror)
    match order:
        case RoleOrder(verb="truncate-and-restore"):
            yield from (link.spec.source for link in _find_links(observed, cluster) if _is_two_way(link.spec))
        case RoleOrder() if (
            order.verb in TWO_SIDED_VERBS and seen is not None and isinstance(seen.resource, MirrorTopic)
        ):
            yield seen.resource.source_cluster
        case CreateMirrorOrder():
            yield from (link.spec.source for link in _find_links(observed, cluster) if link.metadata.name == order.link)
        case RoleOrder() | DeleteMirrorOrder():
            return
        case _:
            assert_never(order)


def _is_two_way(link: MirrorLinkSpec) -> bool:
    return link.mode == "bidirectional" and not link.prefix


def _list_addresses_at_source(source: Address) -> Iterator[Address]:
    cluster = cluster_of(source) or ""
    yield from (cluster_address(cluster), source, as_mirror(source), _list_links_on(cluster))


def _list_links_on(cluster: str) -> Address:
    return address_of("link", cluster, "*")


def _to_topic_address(mirror: Address) -> Address:
    return address_of("topic", cluster_of(mirror) or "", full_name_of(mirror))


def _find_links(observed: Inventory, cluster: str) -> Iterator[MirrorLink]:
    for address, seen in sorted(observed.items()):
        if kind_of(address) == "link" and cluster_of(address) == cluster and isinstance(seen.resource, MirrorLink):
            yield seen.resource


def _find_mirror_over(link: MirrorLink, source: Address) -> Address | None:
    if link.spec.source != cluster_of(source):
        return None
    namespace, name = split_name(full_name_of(source))
    return address_of("mirror", link.cluster, join_name(namespace, link.spec.prefix + name))


def decide_mirror_order(order: MirrorOrder, situation: Situation, decision: Decision) -> None:
    """Add the actions of an order about a mirror, or an error."""
    try:
        match order:
            case RoleOrder():
                decision.actions += plan_role_actions(order, situation)
            case CreateMirrorOrder():
                _create_mirror(order, situation, decision)
            case DeleteMirrorOrder():
                decision.actions.append(_delete_mirror(order, situation))
            case _:
                assert_never(order)
    except UserError as error:
        decision.refuse(order.mirror, None, error.message, error.hint)


def refuse_competing_reversals(decision: Decision) -> None:
    """Reject reversals of several mirrors of one source."""
    rivals: dict[Address, list[Address]] = {}
    for action in decision.actions:
        if isinstance(action, Transition) and action.verb in REVERSALS and isinstance(action.after, MirrorTopic):
            rivals.setdefault(get_source_topic(action.after), []).append(action.address)
    for source, mirrors in rivals.items():
        if len(mirrors) == 1:
            continue
        message = f"{', '.join(mirrors)} have one source, {source}: it can become the mirror of only one of them"
        for mirror in mirrors:
            decision.refuse(mirror, None, message, f"Reverse one of them: reconciler mirror reverse {mirror}")
        decision.actions = [action for action in decision.actions if action.address not in mirrors]


def plan_role_actions(order: RoleOrder, situation: Situation) -> Iterator[Action]:
    """Yield the actions that apply a verb to a mirror.

    Raises:
        UserError: The verb is illegal.
    """
    address, verb = order.mirror, order.verb
    _check_platform(order, situation)
    seen = situation.observed.get(address)
    if verb == RESTORE:
        mirror, status = _find_mirror_to_restore(order, seen, situation)
        is_suspended = False
    else:
        mirror, status, is_suspended = _find_mirror_state(order, situation)
        if not order.is_named and status is _END_BY_VERB.get(verb):
            return
        _check_legal(order, mirror, status, situation, is_suspended=is_suspended)
    if verb in TWO_SIDED_VERBS and verb != RESTORE:
        _check_source(address, verb, mirror.source_cluster, situation)
        sides = (mirror.cluster, mirror.source_cluster)
        why = check_source_exists(mirror, status, (verb,), situation)
        if why is None and verb in REVERSALS:
            why = _check_halves(f"{address} cannot be reversed", mirror.link, sides, situation)
        why = why or check_source_mirrors(mirror, status, (verb,), situation)
        if why is not None:
            raise UserError(why.message, hint=why.hint)
    yield from _plan_verb(order, mirror, status, situation, is_suspended=is_suspended)


def _plan_verb(
    order: RoleOrder, mirror: MirrorTopic, status: MirrorStatus, situation: Situation, *, is_suspended: bool
) -> Iterator[Action]:
    verb, record = order.verb, situation.recorded
    before = situation.observed.get(mirror.address) or situation.observed.get(as_topic(mirror))
    last, peer = record.get(mirror.address), derive_peer(mirror).address
    entry = peer if last is None and peer in record else None
    ours = (as_topic(mirror), peer, link_of(mirror), link_of(derive_peer(mirror)))
    if (why := situation.explain_foreign_owner(mirror.address, *ours)) is not None:
        raise UserError(why[0], hint=why[1])
    role: MirrorState = "reversed" if is_suspended and verb == "resume" else _ROLE_BY_VERB[verb]
    after = _add_known_configs(mirror, last, before).model_copy(update={"state": role})
    condition = REVERSAL_SUSPENDED if is_suspended and verb == "resume" else ""
    step = Step(after, verb, status, ENDS.get(verb, MIRROR.apply_verb(status, verb, condition=condition)))
    of = derive_peer(mirror).model_copy(update={"state": _ROLE_OF_PEER_BY_VERB[verb]}) if entry is not None else after
    view = AddressView(of.address, WantedResource(of, None), last, before)
    catches_up = verb == PROMOTE and is_copied_by_jobs(mirror, situation)
    if catches_up:
        yield build_catch_up(view, after, situation, timeout_ms=order.timeout_ms)
    move = build_transition(step, view, of, before, situation)
    yield replace(
        move,
        parameters={**move.parameters, **({"diverged": "keep"} if order.keeps_diverged else {})},
        reasons=(Reason.BY_COMMAND,),
        depends_on=(f"{CATCH_UP}:{after.address}",) if catches_up else (),
    )


def _add_known_configs(mirror: MirrorTopic, last: Recorded | None, before: Observed | None) -> MirrorTopic:
    known = next((item.resource for item in (last, before) if item and isinstance(item.resource, MirrorTopic)), mirror)
    follows = {"link": mirror.link, "source_cluster": mirror.source_cluster, "source": mirror.source}
    return known.model_copy(update=follows)


def _find_mirror_state(
    order: RoleOrder | DeleteMirrorOrder, situation: Situation
) -> tuple[MirrorTopic, MirrorStatus, bool]:
    address, observed = order.mirror, situation.observed
    seen = observed.get(address)
    if seen is None or not isinstance(seen.resource, MirrorTopic):
        raise _no_mirror_error(address, situation)
    status = find_mirror_status(seen)
    if status is None:
        raise UserError(f"{address} is {seen.state}, which this version does not know", hint="Upgrade reconciler.")
    peer = observed.get(derive_peer(seen.resource).address)
    is_suspended = status is _M.PAUSED and peer is not None and peer.state == _M.PENDING_MIRROR
    return seen.resource, status, is_suspended


def _no_mirror_error(address: Address, situation: Situation) -> UserError:
    for at in (address, _to_topic_address(address)):
        if (hidden := situation.request.hidden.get(at)) is not None:
            return UserError(hidden.message, hint=hidden.hint)
    cluster, name = cluster_of(address) or "", full_name_of(address)
    listing = f"See the mirrors with: reconciler mirror list {cluster}"
    if _to_topic_address(address) in situation.observed:
        return UserError(f"{address}: topic {name} is not mirrored", hint=listing)
    near = find_similar_spelling(address, (at for at in situation.observed if kind_of(at) == "mirror"))
    return UserError(f"{address}: topic {name} does not exist", hint=format_suggestion(near, then=listing))


def _check_platform(order: RoleOrder, situation: Situation) -> None:
    capabilities = situation.find_capabilities(cluster_of(order.mirror) or "")
    if order.verb in find_lacking_verbs(capabilities.mirrors.roles):
        message, _ = describe_unsupported(capabilities, f"{order.verb} a mirror", "roles")
        hint = f"To end the copying: reconciler mirror failover {order.mirror}"
        raise UserError(f"{order.mirror}: {message}", hint=hint)
    if order.verb not in {*REVERSALS, RESTORE} or "reversed" in capabilities.mirrors.roles:
        return
    what = "restored" if order.verb == RESTORE else "reversed"
    platform = capabilities.platform.capitalize()
    why = capabilities.lacks.get("reversed", f"a {platform} cluster cannot make a topic read-only")
    message = f"{order.mirror} cannot be {what}: {why}"
    raise UserError(message, hint=f"{situation.name_ending(order.mirror).capitalize()}, and link the other way.")


def _check_legal(
    order: RoleOrder, mirror: MirrorTopic, status: MirrorStatus, situation: Situation, *, is_suspended: bool
) -> None:
    if is_suspended and order.verb == PROMOTE:
        message = f"{order.mirror} is PAUSED: cannot promote while a reversal is suspended"
        raise UserError(message, hint="Possible in this state: resume, failover.")
    _check_step(order.mirror, order.verb, status, mirror.link, situation, is_suspended=is_suspended)


def _check_step(
    address: Address, verb: str, status: MirrorStatus, link: str, situation: Situation, *, is_suspended: bool = False
) -> None:
    condition = REVERSAL_SUSPENDED if is_suspended and verb == "resume" else ""
    try:
        MIRROR.apply_verb(status, verb, condition=condition, subject=f"{address} is {status}")
    except UserError as error:
        cluster = cluster_of(address) or ""
        roles = situation.find_capabilities(cluster).mirrors.roles
        legal = describe_legal_verbs(status, find_legal_verbs(status, roles, _read_link_spec(link, cluster, situation)))
        hint = f"Possible in this state: {legal}." if legal else error.hint
        ending = "Its cluster finishes it." if situation.is_copied_by_cluster(address) else _IN_PROGRESS
        hint = f"{hint} {ending}" if status.startswith("PENDING_") else hint
        if status is _M.LINK_PAUSED:
            hint = f"Resume its link first: reconciler link resume {address_of('link', cluster, link)}. {hint}"
        error.hint = hint
        raise


_ROLES_BY_VERB: Final = {"pause": "paused", "resume": "paused", PROMOTE: "promoted"}


def find_lacking_verbs(roles: Iterable[str]) -> frozenset[str]:
    """Return the verbs to roles that a platform does not have."""
    known = frozenset(roles)
    return frozenset(verb for verb, role in _ROLES_BY_VERB.items() if role not in known)


def find_legal_verbs(status: MirrorStatus, roles: Iterable[str], link: MirrorLinkSpec | None) -> tuple[str, ...]:
    """Return the legal verbs in a state for a mirror with these roles and link."""
    can_swap = "reversed" in roles and (link is None or _is_two_way(link))
    lacking = find_lacking_verbs(roles) | (frozenset() if can_swap else TWO_SIDED_VERBS - {PROMOTE})
    return tuple(verb for verb in MIRROR.list_legal_verbs(status) if verb not in lacking)


def describe_legal_verbs(status: MirrorStatus, verbs: Iterable[str]) -> str:
    """List legal verbs, each with its command."""
    typed = {**_COMMAND_BY_VERB, "delete": "topic delete"} if status is _M.STOPPED else _COMMAND_BY_VERB
    return ", ".join(f"{verb} ({typed[verb]})" if verb in typed else verb for verb in verbs)


def _check_source(address: Address, verb: str, source: str, situation: Situation) -> None:
    if source in situation.trusted:
        return
    way = "Try again then." if verb == RESTORE else "Fail over: reconciler mirror failover works without it."
    is_unknown = situation.request.lost.get(source, NOT_DECLARED) == NOT_DECLARED
    hint = f"Declare it as a Cluster. {way}" if is_unknown else way
    message = f"{address}: {verb} needs both clusters, and {source} {explain_unread(source, situation)}"
    raise UserError(message, hint=hint)


def _check_halves(what: str, link: str, clusters: tuple[str, str], situation: Situation) -> RoleRefusal | None:
    side, other_side = ((name, _read_link_spec(link, name, situation)) for name in clusters)
    return check_role_swap(what, link, side, other_side)


def _read_link_spec(link: str, cluster: str, situation: Situation) -> MirrorLinkSpec | None:
    seen = situation.observed.get(address_of("link", cluster, link))
    return seen.resource.spec if seen is not None and isinstance(seen.resource, MirrorLink) else None


def _find_mirror_to_restore(
    order: RoleOrder, own: Observed | None, situation: Situation
) -> tuple[MirrorTopic, MirrorStatus]:
    address = order.mirror
    if own is None and _to_topic_address(address) not in situation.observed:
        raise _no_mirror_error(address, situation)
    was = own.resource if own is not None and isinstance(own.resource, MirrorTopic) else None
    status = _M.REGULAR if own is None else find_mirror_status(own) or _M.REGULAR
    try:
        _check_step(address, RESTORE, status, "" if was is None else was.link, situation)
    except UserError as error:
        if was is not None:
            other = as_mirror(get_source_topic(was))
            way = f"Once it has stopped, its original source is what can be restored: reconciler mirror restore {other}"
            error.hint = f"{error.hint} {way}"
        raise
    if (
        order.keeps_diverged
        and "keep-diverged" not in situation.find_capabilities(cluster_of(address) or "").mirrors.features
    ):
        message = f"{address}: --keep-diverged is for Kafka clusters: an embedded one cuts its log"
        raise UserError(message, hint="Copy what is shown to be cut off elsewhere first: reconciler topic consume.")
    return _find_restorable(order, was, situation), status


def _find_restorable(order: RoleOrder, was: MirrorTopic | None, situation: Situation) -> MirrorTopic:
    address = order.mirror
    cluster, topic = cluster_of(address) or "", _to_topic_address(address)
    stopped = [
        mirror
        for at, mirror in sorted(situation.observed_mirrors.items())
        if get_source_topic(mirror) == topic
        and situation.observed[at].state == _M.STOPPED
        and (not order.links or mirror.link in order.links)
    ]
    what = f"{address} cannot be restored"
    wrong = {
        stopped_mirror.address: _check_halves(what, stopped_mirror.link, (cluster, stopped_mirror.cluster), situation)
        for stopped_mirror in stopped
    }
    fitting = [stopped_mirror for stopped_mirror in stopped if wrong[stopped_mirror.address] is None]
    if not fitting:
        for link in _find_links(situation.observed, cluster):
            is_named = not order.links or link.metadata.name in order.links
            if is_named and _is_two_way(link.spec):
                _check_source(address, RESTORE, link.spec.source, situation)
        if was is not None and not stopped:
            wrong[was.address] = _check_halves(what, was.link, (cluster, was.source_cluster), situation)
        for why in wrong.values():
            if why is not None:
                raise UserError(why.message, hint=why.hint)
        raise _no_stopped_error(order, was)
    steps = [build_restore_step(derive_peer(stopped_mirror), _M.REGULAR, situation) for stopped_mirror in fitting]
    able = [step.mirror for step in steps if isinstance(step, Step)]
    match able, steps[0]:
        case [mirror], _:
            return mirror
        case [], RoleRefusal(message=message):
            more = f"Declare {as_topic(fitting[0])} with `partitions: {count_partitions(topic, situation)}`"
            raise UserError(message, hint=f"{more}, and apply that first.")
        case _:
            raise _ambiguous_error(address, [derive_peer(mirror) for mirror in able])


def _no_stopped_error(order: RoleOrder, was: MirrorTopic | None) -> UserError:
    via_links = f" over link {list_first(order.links, _MAX_NAMES, grouping='')}" if order.links else ""
    what = f"topic {full_name_of(order.mirror)} of cluster {cluster_of(order.mirror)} cannot be restored"
    hint = "Restore works on the original source of a stopped mirror, over a bidirectional link."
    if was is not None:
        other = as_mirror(get_source_topic(was))
        hint = f"{hint} {order.mirror} is the mirror that stopped: reconciler mirror restore {other}"
    return UserError(f"{what}: no stopped mirror of it is known{via_links}", hint=hint)


def _ambiguous_error(address: Address, stopped: list[MirrorTopic]) -> UserError:
    links = [link_of(stopped_mirror) for stopped_mirror in stopped]
    message = (
        f"topic {full_name_of(address)} of cluster {cluster_of(address)} can be restored from each of {len(stopped)} "
        f"stopped mirrors: {list_first([mirror.address for mirror in stopped], _MAX_NAMES, grouping='')}"
    )
    choose = f"Choose one by its link: reconciler mirror restore {address} --link {links[0]}"
    return UserError(message, hint=f"{choose}. The others: {list_first(links[1:], _MAX_NAMES, grouping='')}.")


def _create_mirror(order: CreateMirrorOrder, situation: Situation, decision: Decision) -> None:
    mirror = _make_ordered_mirror(order, situation)
    if order.mirror in situation.observed:
        return
    parameters = read_source_parameters(mirror, situation)
    mirror = mirror.model_copy(update={"partitions": parameters.get("partitions")})
    view = AddressView(order.mirror, WantedResource(mirror, None, BY_COMMAND), None, None)
    plan_creation(view, decision, parameters)
    warn_of_stored(as_topic(mirror), situation, decision)


def _make_ordered_mirror(order: CreateMirrorOrder, situation: Situation) -> MirrorTopic:
    address, observed = order.mirror, situation.observed
    cluster, name = cluster_of(address) or "", full_name_of(address)
    links = {link.metadata.name: link.spec for link in _find_links(observed, cluster)}
    if order.link not in links:
        otherwise = f"Links there: {', '.join(sorted(links)) or 'none'}. Declare one, and apply that first."
        addresses = (address_of("link", cluster, link) for link in links)
        near = find_similar_spelling(address_of("link", cluster, order.link), addresses)
        hint = format_suggestion([full_name_of(Address(link)) for link in near], otherwise=otherwise)
        raise UserError(f"{address}: there is no link {order.link!r} on cluster {cluster}", hint=hint)
    spec = links[order.link]
    seen = observed.get(address)
    if seen is None and any(
        at in observed or at in situation.request.hidden for at in (address, _to_topic_address(address))
    ):
        can_rename = "prefix" in situation.find_capabilities(cluster).mirrors.features
        prefix = ", or use a link with a prefix" if can_rename else ""
        hint = f"A mirror needs an unused name: delete that topic first{prefix}."
        raise UserError(f"{address}: topic {name} exists", hint=hint)
    source = _check_source_name(order, spec.prefix)
    synced = SYNCED_BY_DEFAULT if spec.topic_config_sync is None else spec.topic_config_sync.include
    for key in sorted(order.configs.keys() & set(synced)):
        message = f"{address}: Cannot set configuration {key} for mirror topic: it is synced from the source"
        raise UserError(message, hint="Set it on the source topic, or leave it out of topicConfigSync.include.")
    mirror = MirrorTopic(
        cluster=cluster,
        link=order.link,
        source_cluster=spec.source,
        source=source,
        name=name,
        configs=_canonicalize_configs(order, situation),
    )
    if seen is not None:
        _check_equals_existing_mirror(mirror, seen)
        return mirror
    if spec.source not in situation.trusted:
        message = f"{address}: its source {get_source_topic(mirror)}: cluster {spec.source} "
        message += explain_unread(spec.source, situation)
        raise UserError(message, hint=f"Declare it as a Cluster, and create the mirror when {spec.source} answers.")
    if not {get_source_topic(mirror), as_mirror(get_source_topic(mirror))} & observed.keys():
        hidden = situation.request.hidden.get(get_source_topic(mirror))
        why = f"topic {source} does not exist" if hidden is None else hidden.message
        hint = f"List the topics with: reconciler topic list {spec.source}" if hidden is None else hidden.hint
        raise UserError(f"{address}: its source {get_source_topic(mirror)}: {why}", hint=hint)
    return mirror


def _check_equals_existing_mirror(mirror: MirrorTopic, seen: Observed) -> None:
    own = seen.resource
    if not isinstance(own, MirrorTopic):
        return
    is_same = (own.link, get_source_topic(own)) == (mirror.link, get_source_topic(mirror)) and seen.state != _M.STOPPED
    if is_same and mirror.configs.items() <= own.configs.items():
        return
    message = f"{mirror.address} exists already: it is {seen.state}, over {link_of(own)} from {get_source_topic(own)}"
    raise UserError(message, hint=f"Look at it: reconciler mirror describe {mirror.address}")


def _strip_prefix(full_name: str, prefix: str) -> str | None:
    namespace, own = split_name(full_name)
    return join_name(namespace, own.removeprefix(prefix)) if own.startswith(prefix) and own != prefix else None


def _check_source_name(order: CreateMirrorOrder, prefix: str) -> str:
    name = full_name_of(order.mirror)
    expected = _strip_prefix(name, prefix)
    if expected is not None and order.source in {None, expected}:
        return expected
    source_name = order.source or name
    namespace, own = split_name(source_name)
    rule = f"the prefix {prefix} and the name of its source" if prefix else "the name of its source"
    message = f"{order.mirror}: over link {order.link} a mirror has {rule}, in the same namespace"
    called = address_of("mirror", cluster_of(order.mirror) or "", join_name(namespace, prefix + own))
    raise UserError(message, hint=f"The mirror of {source_name} is named {called}.")


def _canonicalize_configs(order: CreateMirrorOrder, situation: Situation) -> dict[str, str]:
    capabilities = situation.find_capabilities(cluster_of(order.mirror) or "")
    for message, hint in check_configs(order.configs, capabilities):
        raise UserError(f"{order.mirror}: {message}", hint=hint)
    configs: dict[str, str] = {}
    for key, value in sorted(order.configs.items()):
        try:
            configs[key] = canonicalize_value(key, value, capabilities.configs)
        except ValueError as error:
            hint = "Give it a value it can have."
            raise UserError(f"{order.mirror}: {key}={value}: {error}", hint=hint) from error
    return configs


def _delete_mirror(order: DeleteMirrorOrder, situation: Situation) -> Delete:
    address, seen = order.mirror, situation.observed.get(order.mirror)
    mirror, status, _ = _find_mirror_state(order, situation)
    if status is _M.STOPPED:
        hint = f"Delete the topic: reconciler topic delete {_to_topic_address(address)}"
        raise UserError(f"{address} is {status}, and an ordinary topic", hint=hint)
    _check_step(address, "delete", status, mirror.link, situation)
    if seen is None or is_kept_by_link(seen, situation):
        message = f"{address} cannot be deleted: autoCreate of {link_of(mirror)} would create it again"
        raise UserError(message, hint=f"Exclude {mirror.source!r} from its filters and apply that first.")
    return plan_deletion(address, seen, Reason.BY_COMMAND)
