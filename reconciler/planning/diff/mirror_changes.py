"""Decide for mirrors: create, change role, copy, release."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, assert_never

from reconciler.lifecycles import BY_PLATFORM, MIRROR, MirrorStatus
from reconciler.planning.actions import Change, Delete, Forget, Reason, Risk, RunJob, Transition, Update, Value
from reconciler.planning.allowances import allowances, granted_by
from reconciler.planning.diff.converge import (
    AddressView,
    Decision,
    adopt,
    converge,
    create,
    deletion,
    precondition,
    state_precondition,
)
from reconciler.planning.diff.field_differences import Differences, drifted
from reconciler.planning.diff.mount_changes import not_there_yet
from reconciler.planning.plan import Waiting
from reconciler.planning.resolve.mirror_sources import (
    NOTHING,
    STATE,
    LeftOut,
    Refused,
    Step,
    VerbsToRole,
    Waited,
    Way,
    entry_behind,
    frees,
    is_anothers,
    is_left,
    is_link_paused,
    link_of,
    made_by_link,
    peer_of,
    protected_from,
    said_then,
    status_of,
    status_once_resumed,
    taken_from_source,
    way_of,
)
from reconciler.planning.selection import way_in
from reconciler.planning.situation import (
    COPYING,
    Situation,
    WantedResource,
    is_another,
    is_live,
    mirror_at,
    source_of,
    topic_of,
)
from reconciler.resources.acls import DENIED, denial_path
from reconciler.resources.inventory import Observed, Recorded
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic, is_auto_created
from reconciler.resources.topic import Topic
from reconciler.runtime.text import first_few, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.resources.address import Address


CATCH_UP: Final = "catch-up"
"""The job that goes before a promotion: it copies until nothing lags behind, for as long as that makes progress."""

_COPIES = frozenset({MirrorStatus.ACTIVE, MirrorStatus.SOURCE_UNAVAILABLE})
_RISKS = {
    "resume": Risk.NONE,
    "promote": Risk.IRREVERSIBLE,
    "failover": Risk.DATA_LOSS,
    "truncate-and-restore": Risk.DATA_LOSS,
}
"""What a verb may cost; the rest interrupt something."""


def decide_mirror(sides: AddressView, situation: Situation, decision: Decision) -> None:
    """Decide about one mirror."""
    mirror = sides.wanted.resource
    if not isinstance(mirror, MirrorTopic) or not situation.capabilities(mirror.cluster).links:
        return  # without links, the link itself was refused
    way = way_of(mirror, situation)
    if is_anothers(mirror, sides.before):  # the half of another link in a chain, which its own entry decides about
        sides = replace(sides, before=None)
    if way is None:
        _make(sides, mirror, situation, decision)
    elif _is_failed(sides, mirror) and sides.before is not None:
        _make_afresh(sides, mirror, sides.before, situation, decision)
    else:
        _go(sides, mirror, way, situation, decision)


def _make(sides: AddressView, mirror: MirrorTopic, situation: Situation, decision: Decision) -> None:
    topic = topic_of(mirror)
    there = situation.observed.get(topic)
    if mirror.state not in COPYING:
        _look_at_topic(sides, mirror, there, situation, decision)
        return
    if mirror.source_cluster not in situation.trusted:
        message = f"it is left out: its source, cluster {mirror.source_cluster}, was not read"
        _warn(sides, message, "Plan again with both clusters.", decision)
        return
    if there is not None and not _is_deleted(topic, there, situation):
        hint = "Delete that topic first, or give the link a prefix: a mirror is never made over an existing topic."
        _refuse(sides, f"{topic} exists", _left_out(topic, situation) or hint, decision)
        return
    _create(sides, mirror, situation, decision)


def _is_deleted(address: Address, there: Observed, situation: Situation) -> bool:
    """Tell whether this plan deletes what has the name of something new: it is ours, and has left the files."""
    last = situation.recorded.get(address)
    if last is None or address in situation.wanted or is_another(last, there) or not situation.is_decidable(address):
        return False
    return not (is_left(address, situation) or is_kept_by_link(there, situation))


def _left_out(address: Address, situation: Situation) -> str | None:
    """Return what to do about what has left the files and was not selected; `None`: that is not why it stays."""
    is_out = address in situation.recorded and address not in situation.wanted and not situation.is_chosen(address)
    way = way_in([address], situation.request.selection)
    return f"Its delete is not part of this plan: {way}." if is_out else None


def _look_at_topic(
    sides: AddressView, mirror: MirrorTopic, there: Observed | None, situation: Situation, decision: Decision
) -> None:
    """Decide about a mirror whose name an ordinary topic has: a stopped mirror, or a topic that never was one."""
    topic = topic_of(mirror)
    # A topic that was unmounted and mounted since has another id.
    is_ours = topic in situation.mountings or (topic in situation.recorded and situation.is_there(topic))
    if there is None:
        hint = "Begin with state mirroring, or remove the entry."
        _refuse(sides, f"it is not there, so it cannot become {mirror.state}", hint, decision)
    elif sides.last is not None and is_another(sides.last, there) and not is_ours:
        message = f"{topic} was deleted and created again outside reconciler"
        hint = f"To keep that topic and forget the mirror: reconciler state rm {sides.address}"
        _refuse(sides, f"{message}: it is not the mirror that was applied", hint, decision)
    elif mirror.state == "reversed":
        message = (
            f"it is an ordinary topic by now, without a record of what it mirrored: it cannot become {mirror.state}"
        )
        hint = "Mirror it over a link on the other cluster, under a name that is free there, and remove the entry."
        _refuse(sides, message, hint, decision)


def _create(sides: AddressView, mirror: MirrorTopic, situation: Situation, decision: Decision) -> None:
    parameters = taken_from_source(mirror, situation)
    partitions = parameters.get("partitions")
    made = mirror.model_copy(update={"partitions": partitions}) if isinstance(partitions, int) else mirror
    denied = protected_from(mirror, (), situation)
    made = made.model_copy(update={"denied": denied}) if denied else made
    wanted = WantedResource(made, sides.wanted.source, sides.wanted.origins)
    create(AddressView(sides.address, wanted, sides.last, None), decision, parameters)
    if is_link_paused(mirror, situation):
        return  # Nothing is copied; the plan that resumes the link pauses the mirror, or copies it.
    if mirror.state == "paused":
        state = MirrorStatus.ACTIVE
        pause = Step(mirror, "pause", state, MIRROR.step(state, "pause"))
        decision.actions.append(transition(pause, sides, mirror, None, situation))
    elif is_by_jobs(mirror, situation):
        decision.actions.append(first_copy(sides, mirror))


def _is_failed(sides: AddressView, mirror: MirrorTopic) -> bool:
    return mirror.state == "mirroring" and sides.before is not None and sides.before.state == MirrorStatus.FAILED


def _make_afresh(
    sides: AddressView, mirror: MirrorTopic, before: Observed, situation: Situation, decision: Decision
) -> None:
    """A mirror that failed for good is deleted and made again, if somebody allowed that; nothing else mends it."""
    delete = deletion(sides.address, before, Reason.RECREATED, source=sides.wanted.source)
    legal = ", ".join(MIRROR.legal(MirrorStatus.FAILED))
    if (
        sides.last is None
        or granted_by(delete, allowances(situation.request.guards, situation.request.selection)) is None
    ):
        owned = "" if sides.last is not None else "It is not ours yet: declare it failed-over, or delete it by hand. "
        hint = (
            f"{owned}It will not recover by itself: --allow delete:{sides.address} deletes it with its records, and "
            "copies what its source has now. "
            f"To keep the topic with what it has: state failed-over. Legal from there: {legal}."
        )
        _refuse(sides, f"it is {MirrorStatus.FAILED} and cannot become {mirror.state}", hint, decision)
        return
    if mirror.source_cluster not in situation.trusted:
        message = f"it is left as it is, FAILED: its source, cluster {mirror.source_cluster}, was not read"
        _warn(sides, message, "Plan again with both clusters.", decision)
        return
    decision.actions.append(delete)
    _create(AddressView(sides.address, sides.wanted, None, None), mirror, situation, decision)


def _go(sides: AddressView, mirror: MirrorTopic, way: Way, situation: Situation, decision: Decision) -> None:
    match way:
        case Waited():
            decision.waiting.append(Waiting(way.address, way.state))
        case Refused():
            _refuse(sides, way.message, way.hint, decision)
        case LeftOut():
            _warn(sides, way.message, way.hint, decision)
        case VerbsToRole():
            _ask(sides, mirror, way, situation, decision)
        case _:
            assert_never(way)


def _ask(sides: AddressView, mirror: MirrorTopic, way: VerbsToRole, situation: Situation, decision: Decision) -> None:
    before = sides.before
    if before is not None:
        owned = _with_role_of(before, sides, mirror) if way.steps else sides
        _own(owned, mirror, before, situation, decision)
        _protect(owned, mirror, before, situation, decision)
        if not way.steps:
            _remember(sides, mirror, before, decision)
    for step in way.steps:
        if step.verb == "promote" and is_by_jobs(mirror, situation):
            decision.actions.append(catch_up(sides, mirror, situation))
        seen = situation.observed.get(step.mirror.address) or situation.observed.get(topic_of(step.mirror))
        asked = transition(step, sides, mirror, seen, situation)
        if len(way.steps) > 1 or not _is_pause_set_back(asked, sides, mirror, situation, decision):
            decision.actions.append(asked)
    if (
        before is not None
        and _is_to_be_copied(mirror, before, way, situation)
        and mirror.source_cluster in situation.trusted
    ):
        decision.actions.append(first_copy(sides, mirror))


_PAUSES: Final = {"pause": ("mirroring", "paused"), "resume": ("paused", "mirroring")}
"""The verbs that change a value of a mirror: what it is before and after."""


def _is_pause_set_back(
    asked: Transition, sides: AddressView, mirror: MirrorTopic, situation: Situation, decision: Decision
) -> bool:
    """Set a pause back as drift, unless a rule ignores it; `False`: the files ask for it."""
    last = sides.last.resource if sides.last is not None else None
    if asked.verb not in _PAUSES or not isinstance(last, MirrorTopic) or last.state != mirror.state:
        return False
    before, after = _PAUSES[asked.verb]
    rule = situation.ignored(asked.address, STATE)
    decision.drift.append(replace(drifted(asked.address, STATE, after, before), ignored=rule))
    if rule is None:
        changes = (Change(STATE, before, after, drift=True),)
        decision.actions.append(replace(asked, changes=changes, reasons=(*asked.reasons, Reason.DRIFTED)))
    return True


def _with_role_of(before: Observed, sides: AddressView, mirror: MirrorTopic) -> AddressView:
    """Return a view with the role that the cluster reports. Only the transition records another: it may be blocked."""
    seen = before.resource
    if not isinstance(seen, MirrorTopic):
        return sides
    return replace(sides, wanted=replace(sides.wanted, resource=mirror.model_copy(update={"state": seen.state})))


def _own(sides: AddressView, mirror: MirrorTopic, before: Observed, situation: Situation, decision: Decision) -> None:
    """Own and change what is there; of a stopped mirror with a Topic manifest, that one says the configs."""
    if is_live(before) or topic_of(mirror) not in situation.wanted:
        converge(sides, situation, decision)
    elif sides.last is None:
        decision.actions.append(adopt(sides, before, Differences(), Reason.ALREADY_EXISTS))


def _protect(
    sides: AddressView, mirror: MirrorTopic, before: Observed, situation: Situation, decision: Decision
) -> None:
    """Deny writing to whom rules let write by now, and to nobody else; the end of mirroring takes it back itself."""
    seen = before.resource
    if not isinstance(seen, MirrorTopic) or not is_live(before) or mirror.state not in COPYING:
        return
    wanted = protected_from(mirror, seen.denied, situation)
    found = [Change(denial_path(each), DENIED, None) for each in seen.denied if each not in wanted]
    found += [Change(denial_path(each), None, DENIED) for each in wanted if each not in seen.denied]
    if not found:
        return
    changes = tuple(sorted(found, key=lambda change: change.path))
    for at, action in enumerate(decision.actions):
        if isinstance(action, Update) and action.address == sides.address:
            decision.actions[at] = replace(action, changes=(*action.changes, *changes))
            return
    decision.actions.append(
        Update(
            address=sides.address,
            before=seen,
            after=sides.wanted.resource,
            changes=changes,
            reasons=(Reason.CHANGED,),
            source=sides.wanted.source,
            precondition=precondition(sides.address, before),
        )
    )


def _remember(sides: AddressView, mirror: MirrorTopic, before: Observed, decision: Decision) -> None:
    """Let the record learn of a role that a command gave, once the files name it."""
    last = sides.last.resource if sides.last is not None else None
    if sides.last is None or not isinstance(last, MirrorTopic) or STATE in sides.wanted.origins:
        return
    declared = said_then(sides.last.origins.get(STATE, ""))  # Older versions recorded the role that a command gave.
    is_learnt = declared is None and last.state == mirror.state
    if is_learnt or any(action.address == sides.address for action in decision.actions):
        return
    was = last.state if declared in {None, mirror.state} else declared
    change = Change(STATE, None if was == NOTHING else was, mirror.state)
    decision.actions.append(adopt(sides, before, Differences(record_changes=(change,)), Reason.RECORD_ONLY))


def _is_to_be_copied(mirror: MirrorTopic, before: Observed, way: VerbsToRole, situation: Situation) -> bool:
    status = status_of(before)
    is_resumed = any(step.verb == "resume" and step.mirror is mirror for step in way.steps)
    is_active = status is not None and status_once_resumed(mirror, status, situation) in _COPIES
    is_copying = is_resumed or (not way.steps and is_active)
    is_lacking = is_copying and not before.mirror.first_copy_done
    return mirror.state == "mirroring" and is_lacking and is_by_jobs(mirror, situation)


def is_by_jobs(mirror: MirrorTopic, situation: Situation) -> bool:
    """Tell whether jobs copy a mirror and change its role; otherwise its platform does both."""
    return situation.capabilities(mirror.cluster).mirrors.by_jobs


def transition(
    step: Step, sides: AddressView, mirror: MirrorTopic, seen: Observed | None, situation: Situation
) -> Transition:
    """Return the action of a step; `mirror`: the entry that wants it, `seen`: the mirror of the step as observed."""
    address = step.mirror.address
    parameters: dict[str, Value] = {} if is_by_jobs(step.mirror, situation) else {"by": BY_PLATFORM}
    if address != sides.address:
        parameters |= {"entry": sides.address, "role": mirror.state}
    return Transition(
        address=address,
        machine=MIRROR.name,
        verb=step.verb,
        from_state=step.from_state.value,
        to_state=step.to_state.value,
        after=step.mirror,
        parameters=parameters,
        risk=_RISKS.get(step.verb, Risk.DISRUPTIVE),
        reasons=(Reason.ROLE_WANTED,),
        source=sides.wanted.source,
        precondition=state_precondition(address, seen) if seen is not None else "",
    )


def catch_up(sides: AddressView, mirror: MirrorTopic, situation: Situation, *, timeout_ms: int | None = None) -> RunJob:
    """Return the wait before a promotion; `timeout_ms`: how long the lag may not shrink, `None`: as the link says."""
    patience_ms = _patience_of(mirror, situation) if timeout_ms is None else timeout_ms
    return RunJob(
        address=mirror.address,
        job=CATCH_UP,
        source=source_of(mirror),
        sink=topic_of(mirror),
        parameters={} if patience_ms is None else {"timeout_ms": patience_ms},
        reasons=(Reason.ROLE_WANTED,),
        declared_at=sides.wanted.source,
        precondition=precondition(sides.address, sides.before),
    )


def _patience_of(mirror: MirrorTopic, situation: Situation) -> int | None:
    """Return for how long the lag may not shrink before a promotion: as the link says once this plan is applied."""
    link = link_of(mirror)
    item = situation.wanted.get(link) or situation.observed.get(link)
    return item.resource.spec.retry_timeout if item and isinstance(item.resource, MirrorLink) else None


def first_copy(sides: AddressView, mirror: MirrorTopic) -> RunJob:
    """Return the job that brings a mirror to where its source is now; keeping up afterwards is no action."""
    return RunJob(
        address=sides.address,
        job="mirror",
        source=source_of(mirror),
        sink=topic_of(mirror),
        reasons=(Reason.FIRST_COPY,),
        declared_at=sides.wanted.source,
        precondition=precondition(sides.address, sides.before),
    )


def _refuse(sides: AddressView, message: str, hint: str, decision: Decision) -> None:
    decision.refuse(sides.address, sides.wanted.source, message, hint, marks=sides.wanted.marks)


def _warn(sides: AddressView, message: str, hint: str, decision: Decision) -> None:
    decision.warn(sides.address, sides.wanted.source, message, hint, marks=sides.wanted.marks)


# Mirrors whose entry left the files, and that are not simply deleted: their link keeps them, or they are on a way.


_OVER: Final = frozenset({"FAILED", "STOPPED"})
"""States in which a mirror can be deleted whatever the filters of its link say."""


def is_kept_by_link(seen: Observed, situation: Situation) -> bool:
    """Tell whether the filters of its link, as this plan leaves them, would have a mirror made again."""
    mirror = seen.resource
    if not isinstance(mirror, MirrorTopic) or seen.state in _OVER:
        return False
    at = link_of(mirror)
    is_by_files = situation.is_decidable(at) and not situation.request.orders
    link = situation.wanted.get(at) if is_by_files else situation.observed.get(at)
    if link is None or not isinstance(link.resource, MirrorLink):
        return False
    making = link.resource.spec.auto_create
    return making is not None and making.enabled and is_auto_created(making.filters, mirror.source)


def leave_to_link(address: Address, seen: Observed, situation: Situation, decision: Decision) -> None:
    """Forget a mirror that goes on without its entry. Who wants it deleted has to keep it from being made again."""
    mirror = seen.resource
    link = link_of(mirror) if isinstance(mirror, MirrorTopic) else address
    wanted = situation.wanted.get(link)
    source = wanted.source if wanted is not None else None
    delete = Delete(address=address, before=seen.resource)
    if isinstance(mirror, MirrorTopic) and granted_by(
        delete, allowances(situation.request.guards, situation.request.selection)
    ):
        _refuse_taken(address, mirror, source, decision)
        return
    decision.actions.append(Forget(address=address, reasons=(Reason.NO_LONGER_DECLARED,)))
    message = f"its entry is gone, and it goes on: the autoCreate filters of {link} take its source"
    decision.warn(address, source, message, "Exclude the name there first, if it is to be deleted.")


def _refuse_taken(address: Address, mirror: MirrorTopic, source: str | None, decision: Decision) -> None:
    link = link_of(mirror)
    decision.refuse(
        address,
        source,
        f"it cannot be deleted: the autoCreate filters of {link} take its source, so that it would be made again",
        f"Exclude {mirror.source!r} from the filters and apply that first, or switch autoCreate off; or fail it over.",
        marks=((link, ("spec", "autoCreate", "filters")),),
    )


def decide_automatic(situation: Situation, decision: Decision) -> None:
    """Delete mirrors that our links made and no longer take, if an allowance names their exact address.

    A pattern lifts blocks, and orders no delete. The mirrors that could be deleted are named, once for each link.
    """
    allowed = allowances(situation.request.guards, situation.request.selection)
    ordered = {allowance.pattern for allowance in allowed if allowance.verb == "delete"}
    excluded: dict[Address, list[Address]] = {}
    for address, mirror in sorted(situation.mirrors.items()):
        seen, link = situation.observed[address], link_of(mirror)
        is_named = address in situation.wanted or address in situation.recorded or address in decision.settled
        is_ours = seen.mirror.is_automatic and link in situation.wanted and link in situation.recorded
        if is_named or not is_ours or not is_live(seen) or is_on_its_way(seen) or not situation.is_decidable(address):
            continue
        if address not in ordered:
            if seen.state not in _OVER and not is_kept_by_link(seen, situation):
                excluded.setdefault(link, []).append(address)
        elif is_kept_by_link(seen, situation):
            _refuse_taken(address, mirror, situation.wanted[link].source, decision)
        else:
            decision.actions.append(deletion(address, seen, Reason.NO_LONGER_DECLARED))
    for at, mirrors in excluded.items():
        names, hint = first_few(mirrors, grouping=""), f"To delete one with its records: --allow delete:{mirrors[0]}"
        message = f"autoCreate made {names}, which its filters no longer take: they are still mirrored"
        decision.warn(at, situation.wanted[at].source, message, hint)


def is_on_its_way(seen: Observed) -> bool:
    """Tell whether a mirror is half-way through a move of its life, where it cannot be deleted."""
    status = status_of(seen) if isinstance(seen.resource, MirrorTopic) else None
    return status is not None and "delete" not in MIRROR.legal(status)


def wait_for_end(address: Address, seen: Observed, decision: Decision) -> None:
    """Refuse to delete a mirror on its way."""
    decision.waiting.append(Waiting(address, seen.state or ""))
    decision.refuse(
        address,
        None,
        f"its entry is gone, and it is {seen.state}: it cannot be deleted on its way",
        "Wait until it has come to its end (`reconciler run` goes on with it); or declare it again, failed-over.",
    )


def destroyed_as_mirror(topic: Address, last: Recorded, situation: Situation) -> Observed | None:
    """Return what is to be destroyed of a topic of ours that mirrors another one now: it is still that topic."""
    seen = situation.observed.get(mirror_at(topic))
    is_it = seen is not None and last.incarnation is not None and seen.incarnation == last.incarnation
    return seen if situation.request.options.is_destroy and is_it and is_live(seen) else None


# Mirrors found half-way through a move that nothing of a plan is about: they take no records, and somebody is told.


_OTHERWISE: Final = frozenset({"failover", "promote"})
"""What stops a mirror so that no reversal of it can end any more."""


def say_under_way(situation: Situation, decision: Decision) -> None:
    """Tell of restores and reversals under way, also those that no entry of the files waits for."""
    if situation.request.options.is_destroy:
        return
    told = _told(decision)
    for address, mirror in sorted(situation.mirrors.items()):
        seen = situation.observed[address]
        is_ours = link_of(mirror) in situation.wanted and situation.is_decidable(address)
        if not is_ours or not is_on_its_way(seen):
            continue
        if is_broken_off(address, situation):
            peer = peer_of(mirror).address
            decision.warn(
                address,
                situation.wanted[link_of(mirror)].source,
                f"it is {seen.state} and takes no records: its reversal was broken off when {peer} was stopped",
                f"Let it take records again with: reconciler mirror failover {address}",
            )
        elif not {address, peer_of(mirror).address} & told:
            decision.waiting.append(Waiting(address, seen.state or ""))


def is_broken_off(address: Address, situation: Situation) -> bool:
    """Tell whether a mirror waits for the end of a reversal whose other side somebody stopped otherwise."""
    seen = situation.observed.get(address)
    if seen is None or not isinstance(seen.resource, MirrorTopic) or seen.state != MirrorStatus.PENDING_MIRROR:
        return False
    peer = situation.observed.get(peer_of(seen.resource).address)
    return peer is not None and not is_live(peer) and peer.mirror.stopped_by in _OTHERWISE


def _told(decision: Decision) -> frozenset[Address | None]:
    acted = {action.address for action in decision.actions}
    waiting = {each.address for each in decision.waiting}
    return frozenset({*acted, *waiting, *(each.address for each in decision.errors)})


# Topics that are mirrors, or were: whether their manifest or a mirror entry speaks for them, and what they become.


def is_mirror(sides: AddressView, situation: Situation, decision: Decision) -> bool:
    """Tell whether a Topic manifest is left alone now, because its topic is a mirror, or becomes one by this plan."""
    address = mirror_at(sides.address)
    entry, seen = situation.entries.get(address), situation.observed.get(address)
    if entry is not None and entry.state in COPYING:
        _refuse_both(sides, entry, situation, decision)
        return True
    if is_freed(sides.address, situation):
        return False  # the transition comes first; afterwards the topic owns its configs
    if (behind := entry_behind(sides.address, situation)) is not None:
        _say_mirrored(sides.address, sides.wanted.source, behind[0], situation, decision)
        return True
    if entry is not None:
        return is_live(seen)
    if seen is not None and is_live(seen) and not _is_deleted(address, seen, situation):
        if not _say_became_mirror(sides, seen, situation, decision):
            _refuse_strange(sides, seen, situation, decision)
        return True
    return False


def is_freed(topic: Address, situation: Situation) -> bool:
    """Tell whether a topic is a live mirror that this plan makes an ordinary one."""
    if not is_live(situation.observed.get(mirror_at(topic))):
        return False
    own = situation.entries.get(mirror_at(topic))
    entries = (*((own,) if own is not None else ()), *situation.entries_of.get(topic, ()))
    return any(topic in frees(way_of(entry, situation)) for entry in entries if situation.is_decidable(entry.address))


def was_mirror(sides: AddressView, situation: Situation) -> Observed | None:
    """Return a topic as it is once its mirroring is over, where it is seen as a mirror alone."""
    seen = situation.observed.get(mirror_at(sides.address))
    if seen is None or sides.before is not None or (is_live(seen) and not is_freed(sides.address, situation)):
        return None
    topic, mirror = sides.wanted.resource, seen.resource
    if not isinstance(topic, Topic) or not isinstance(mirror, MirrorTopic):
        return None
    stopped = seen.mirror.becomes or _as_topic(topic, mirror, situation)
    return replace(seen, resource=stopped, state=None, mirror=replace(seen.mirror, becomes=None))


def decide_freed(sides: AddressView, there: Observed, situation: Situation, decision: Decision) -> None:
    """Own a topic, and change it to what its manifest says, once its mirroring is over."""
    found = Decision()
    converge(replace(sides, before=there), situation, found)
    decision.actions += not_there_yet(found.actions)
    decision.errors += found.errors
    decision.warnings += found.warnings


def belongs_to_entry(topic: Address, situation: Situation) -> bool:
    """Tell whether a topic is what an entry's mirror became: not one that is in the way of a new mirror."""
    entry = situation.entries.get(mirror_at(topic))
    return entry is not None and (entry.state not in COPYING or way_of(entry, situation) is not None)


def copies_left(topic: Address, situation: Situation) -> tuple[Address, ...]:
    """Return the mirrors that still have what a topic held that is gone: a new one of its name makes them fail."""
    if topic in situation.observed or topic not in situation.recorded:
        return ()
    mirrors = (each for each in situation.mirrored.get(topic, ()) if each in situation.mirrors)
    entries = ((each, situation.entries.get(each)) for each in mirrors)
    return tuple(each for each, entry in entries if entry is None or entry.state in COPYING)


def keep_copies(sides: AddressView, mirrors: Sequence[Address], decision: Decision) -> None:
    """Refuse to make a topic anew, and empty, whose records only its mirrors have."""
    if sides.last is not None:
        decision.drift.append(drifted(sides.address, "", plain(sides.last.resource.to_json()), None))
    decision.refuse(
        sides.address,
        sides.wanted.source,
        f"it is gone from the cluster, and {first_few(mirrors, grouping='')} has what was copied of it: a new and "
        "empty one makes that mirror FAILED",
        f"To keep that: reconciler mirror failover {' '.join(mirrors)}, then apply, which makes this one anew. To make "
        f"it at once: reconciler state rm {sides.address}",
    )


def say_kept(address: Address, situation: Situation, decision: Decision) -> bool:
    """Tell whether a topic that left the files is a mirror for now, so that it is neither deleted nor forgotten."""
    behind, seen = entry_behind(address, situation), situation.observed.get(mirror_at(address))
    if behind is not None:
        source = topic_of(behind[0])
        hint = "It is planned for deletion once it is a topic again."
    elif seen is not None and isinstance(seen.resource, MirrorTopic) and _became_mirror(address, seen, situation):
        source = source_of(seen.resource)
        hint = f"It is planned for deletion once it is a topic again. {_way_out(seen.resource, seen, situation)}"
    else:
        return False
    message = f"it left the files while it mirrors {source}: it is neither deleted nor forgotten now"
    decision.warn(address, None, message, hint)
    return True


def _became_mirror(topic: Address, mirror: Observed, situation: Situation) -> bool:
    """Tell whether a mirror that stays is the very topic that is recorded, made one by a command or an entry."""
    is_same = not is_another(situation.recorded[topic], mirror)
    is_staying = is_live(mirror) and not _is_deleted(mirror_at(topic), mirror, situation)
    return is_same and is_staying and not situation.request.options.is_destroy


def _say_mirrored(
    topic: Address, source: str | None, entry: MirrorTopic, situation: Situation, decision: Decision
) -> None:
    is_now = is_live(situation.observed.get(mirror_at(topic)))
    now = "is a mirror of" if is_now else "becomes a mirror of"
    message = f"it {now} {topic_of(entry)}: its manifest is left alone until it is a topic again"
    decision.warn(topic, source, message, _way_back(entry, situation))


def _way_back(entry: MirrorTopic, situation: Situation) -> str:
    """Return who swapped the roles of an entry and its source, and what swaps them back."""
    at, back = situation.wanted[entry.address], mirror_at(source_of(entry))
    if is_broken_off(back, situation):
        return f"Its reversal was broken off: reconciler mirror failover {back}"
    said = said_then(at.origins.get(STATE, ""))
    if said is not None:
        files = "do not name it" if said == NOTHING else f"say {said}"
        made = f"{entry.address} was made {entry.state} by a command, and the files {files}"
        return f"{made}. To swap the roles back: reconciler mirror reverse {back}"
    declared = f"{entry.address} ({at.source}) is declared {entry.state}"
    if entry.state in COPYING:
        return f"{declared}: it mirrors again once {back} has come to that."
    return f"{declared}; state mirroring swaps the roles back."


def _say_became_mirror(sides: AddressView, seen: Observed, situation: Situation, decision: Decision) -> bool:
    """Tell whether a topic that is recorded has become a mirror, by a command: no file names that mirror."""
    mirror = seen.resource
    is_it = sides.address in situation.recorded and _became_mirror(sides.address, seen, situation)
    if not is_it or not isinstance(mirror, MirrorTopic):
        return False
    message = f"it is a mirror of {source_of(mirror)}: its manifest is left alone until it is a topic again"
    decision.warn(sides.address, sides.wanted.source, message, _way_out(mirror, seen, situation))
    return True


def _way_out(mirror: MirrorTopic, seen: Observed, situation: Situation) -> str:
    """Return what makes a topic again of one that became a mirror by a command, as far as that is legal."""
    address, peer = mirror.address, peer_of(mirror)
    there = situation.observed.get(peer.address)
    if is_broken_off(address, situation):
        return f"Its reversal was broken off: reconciler mirror failover {address}"
    if is_on_its_way(seen):
        return f"It is {seen.state}: reconciler run finishes that."
    if mirror.source_cluster not in situation.trusted:
        lost = f"What only cluster {mirror.source_cluster} has is lost then."
        return f"To take records now: reconciler mirror failover {address}. {lost}"
    if there is None or is_live(there):  # The other topic was never its mirror, or that is forgotten.
        return f"To make it a topic again: reconciler mirror promote {address}"
    return (
        f"To swap the roles back: reconciler mirror reverse {address}. To keep them so: name {mirror.name} in "
        f"mirrorTopics of {link_of(peer)}, with state reversed."
    )


def _refuse_both(sides: AddressView, entry: MirrorTopic, situation: Situation, decision: Decision) -> None:
    wanted = situation.wanted[entry.address]
    decision.refuse(
        sides.address,
        sides.wanted.source,
        f"it is declared as a topic and, at {wanted.source}, as a mirror that is {entry.state}",
        "Remove one of the two: a live mirror takes its configs from its source.",
        marks=wanted.marks,
    )


def _refuse_strange(sides: AddressView, seen: Observed, situation: Situation, decision: Decision) -> None:
    mirror = seen.resource
    link = mirror.link if isinstance(mirror, MirrorTopic) else "a link"
    message = f"a mirror of that name was made by link/{sides.address.split('/')[1]}/{link}"
    hint = "Exclude the name from the link's autoCreate filters and delete the mirror, or remove the Topic."
    if isinstance(mirror, MirrorTopic) and made_by_link(mirror.cluster, mirror.name, situation) is None:
        hint = f"Make it a topic again (reconciler mirror promote {mirror.address}), or remove the Topic."
    hint = _left_out(mirror_at(sides.address), situation) or hint
    decision.refuse(sides.address, sides.wanted.source, message, hint)


def _as_topic(topic: Topic, mirror: MirrorTopic, situation: Situation) -> Topic:
    """Return what a mirror is without its link, as far as it can be told: its own configs, and its source's."""
    synced = taken_from_source(mirror, situation).get("configs")
    taken = {key: str(value) for key, value in synced.items()} if isinstance(synced, dict) else {}
    changed = {"partitions": mirror.partitions, "configs": {**taken, **mirror.configs}, "acls": ()}
    return topic.model_copy(update={"spec": topic.spec.model_copy(update=changed)})
