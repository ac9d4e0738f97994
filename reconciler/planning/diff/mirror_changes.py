"""Create mirrors, change their roles, copy them, or release them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, assert_never

from reconciler.lifecycles import BY_PLATFORM, MIRROR, MirrorStatus
from reconciler.planning.actions import Change, Delete, Forget, Reason, Risk, RunJob, Transition, Update, Value
from reconciler.planning.allowances import collect_allowances, find_grant
from reconciler.planning.diff.converge import (
    AddressView,
    Decision,
    compute_precondition,
    compute_state_precondition,
    converge,
    plan_adoption,
    plan_creation,
    plan_deletion,
)
from reconciler.planning.diff.field_differences import Differences, build_drift_finding
from reconciler.planning.diff.mount_changes import adapt_to_missing_topic
from reconciler.planning.plan import UnfinishedTransition
from reconciler.planning.resolve.mirror_sources import (
    NOTHING,
    STATE,
    RoleDeferral,
    RoleInProgress,
    RoleRefusal,
    Step,
    VerbsToRole,
    Way,
    derive_peer,
    find_auto_created,
    find_denied_principals,
    find_mirror_claiming_topic,
    find_mirror_status,
    find_released_topics,
    find_way_to_role,
    follows_other_source,
    is_kept_for_command,
    is_link_paused,
    link_of,
    parse_role_mark,
    predict_resumed_status,
    read_source_parameters,
)
from reconciler.planning.selection import format_required_option
from reconciler.planning.situation import (
    COPYING,
    Situation,
    WantedResource,
    as_mirror,
    as_topic,
    get_source_topic,
    is_mirroring,
    is_recreated,
)
from reconciler.resources.acls import DENIED, build_denial_path
from reconciler.resources.inventory import Observed, Recorded
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic, is_auto_created
from reconciler.resources.topic import Topic
from reconciler.runtime.text import list_first, to_json_types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.resources.address import Address


CATCH_UP: Final = "catch-up"
"""Job that copies a mirror's lag before a promotion."""

_COPYING_STATES = frozenset({MirrorStatus.ACTIVE, MirrorStatus.SOURCE_UNAVAILABLE})
_RISK_BY_VERB = {
    "resume": Risk.NONE,
    "promote": Risk.IRREVERSIBLE,
    "failover": Risk.DATA_LOSS,
    "truncate-and-restore": Risk.DATA_LOSS,
}
"""Risk by verb. Other verbs are disruptive."""


def decide_mirror(sides: AddressView, situation: Situation, decision: Decision) -> None:
    """Add the actions that give a mirror its declared state."""
    mirror = sides.wanted.resource
    if not isinstance(mirror, MirrorTopic) or not situation.find_capabilities(mirror.cluster).links:
        return  # `check_link` rejects the link.
    way = find_way_to_role(mirror, situation)
    # In a chain, the observed mirror may belong to another link.
    if follows_other_source(mirror, sides.before):
        sides = replace(sides, before=None)
    if way is None:
        _plan_new_mirror(sides, mirror, situation, decision)
    elif _is_failed(sides, mirror) and sides.before is not None:
        _recreate_failed(sides, mirror, sides.before, situation, decision)
    else:
        _follow_way(sides, mirror, way, situation, decision)


def _plan_new_mirror(sides: AddressView, mirror: MirrorTopic, situation: Situation, decision: Decision) -> None:
    topic = as_topic(mirror)
    topic_seen = situation.observed.get(topic)
    if mirror.state not in COPYING:
        _check_existing_topic(sides, mirror, topic_seen, situation, decision)
        return
    if mirror.source_cluster not in situation.trusted:
        message = f"it is left out: its source, cluster {mirror.source_cluster}, was not read"
        _warn(sides, message, "Plan again with both clusters.", decision)
        return
    if topic_seen is not None and not _is_deleted(topic, topic_seen, situation):
        can_rename = "prefix" in situation.find_capabilities(mirror.cluster).mirrors.features
        prefix = ", or give the link a prefix" if can_rename else ""
        hint = f"Delete that topic first{prefix}: a mirror is never made over an existing topic."
        _refuse(sides, f"{topic} exists", _suggest_selection(topic, situation) or hint, decision)
        return
    _create_mirror(sides, mirror, situation, decision)


def _is_deleted(address: Address, current: Observed, situation: Situation) -> bool:
    last = situation.recorded.get(address)
    if last is None or address in situation.wanted or is_recreated(last, current) or not situation.can_plan(address):
        return False
    return not (is_kept_for_command(address, situation) or is_kept_by_link(current, situation))


def _suggest_selection(address: Address, situation: Situation) -> str | None:
    is_out = address in situation.recorded and address not in situation.wanted and not situation.is_chosen(address)
    way = format_required_option([address], situation.request.selection)
    return f"Its delete is not part of this plan: {way}." if is_out else None


def _check_existing_topic(
    sides: AddressView, mirror: MirrorTopic, topic_seen: Observed | None, situation: Situation, decision: Decision
) -> None:
    topic = as_topic(mirror)
    # A mount changes the topic's id, so the recorded id may differ.
    is_ours = topic in situation.mountings_by_topic or (
        topic in situation.recorded and situation.exists_as_recorded(topic)
    )
    if topic_seen is None:
        hint = "Begin with state mirroring, or remove the entry."
        _refuse(sides, f"it does not exist, so it cannot become {mirror.state}", hint, decision)
    elif sides.last is not None and is_recreated(sides.last, topic_seen) and not is_ours:
        message = f"{topic} was deleted and created again outside reconciler"
        hint = f"To keep that topic and forget the mirror: reconciler state rm {sides.address}"
        _refuse(sides, f"{message}: it is not the mirror that was applied", hint, decision)
    elif mirror.state == "reversed":
        message = (
            f"it is an ordinary topic by now, without a record of what it mirrored: it cannot become {mirror.state}"
        )
        hint = "Mirror it over a link on the other cluster, under a name that is free there, and remove the entry."
        _refuse(sides, message, hint, decision)


def _create_mirror(sides: AddressView, mirror: MirrorTopic, situation: Situation, decision: Decision) -> None:
    parameters = read_source_parameters(mirror, situation)
    partitions = parameters.get("partitions")
    made = mirror.model_copy(update={"partitions": partitions}) if isinstance(partitions, int) else mirror
    denied = find_denied_principals(mirror, (), situation)
    made = made.model_copy(update={"denied": denied}) if denied else made
    wanted = WantedResource(made, sides.wanted.source, sides.wanted.origins)
    plan_creation(AddressView(sides.address, wanted, sides.last, None), decision, parameters)
    if is_link_paused(mirror, situation):
        # The plan that resumes the paused link pauses or copies the mirror.
        return
    if mirror.state == "paused":
        state = MirrorStatus.ACTIVE
        pause = Step(mirror, "pause", state, MIRROR.apply_verb(state, "pause"))
        decision.actions.append(build_transition(pause, sides, mirror, None, situation))
    elif is_copied_by_jobs(mirror, situation):
        decision.actions.append(build_first_copy(sides, mirror))


def _is_failed(sides: AddressView, mirror: MirrorTopic) -> bool:
    return mirror.state == "mirroring" and sides.before is not None and sides.before.state == MirrorStatus.FAILED


def _recreate_failed(
    sides: AddressView, mirror: MirrorTopic, before: Observed, situation: Situation, decision: Decision
) -> None:
    delete = plan_deletion(sides.address, before, Reason.RECREATED, source=sides.wanted.source)
    legal = ", ".join(MIRROR.list_legal_verbs(MirrorStatus.FAILED))
    if (
        sides.last is None
        or find_grant(delete, collect_allowances(situation.request.guards, situation.request.selection)) is None
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
    _create_mirror(AddressView(sides.address, sides.wanted, None, None), mirror, situation, decision)


def _follow_way(sides: AddressView, mirror: MirrorTopic, way: Way, situation: Situation, decision: Decision) -> None:
    match way:
        case RoleInProgress():
            decision.waiting.append(_build_unfinished(way.address, way.state, situation))
        case RoleRefusal():
            _refuse(sides, way.message, way.hint, decision)
        case RoleDeferral():
            _warn(sides, way.message, way.hint, decision)
        case VerbsToRole():
            _plan_verbs(sides, mirror, way, situation, decision)
        case _:
            assert_never(way)


def _plan_verbs(
    sides: AddressView, mirror: MirrorTopic, way: VerbsToRole, situation: Situation, decision: Decision
) -> None:
    before = sides.before
    if before is not None:
        owned = _use_observed_role(before, sides, mirror) if way.steps else sides
        _converge_mirror(owned, mirror, before, situation, decision)
        _update_denials(owned, mirror, before, situation, decision)
        if not way.steps:
            _record_role(sides, mirror, before, decision)
    for step in way.steps:
        if step.verb == "promote" and is_copied_by_jobs(mirror, situation):
            decision.actions.append(build_catch_up(sides, mirror, situation))
        seen = situation.observed.get(step.mirror.address) or situation.observed.get(as_topic(step.mirror))
        move = build_transition(step, sides, mirror, seen, situation)
        if len(way.steps) > 1 or not _revert_pause(move, sides, mirror, situation, decision):
            decision.actions.append(move)
    if (
        before is not None
        and _needs_first_copy(mirror, before, way, situation)
        and mirror.source_cluster in situation.trusted
    ):
        decision.actions.append(build_first_copy(sides, mirror))


_PAUSE_ROLES: Final = {"pause": ("mirroring", "paused"), "resume": ("paused", "mirroring")}


def _revert_pause(
    move: Transition, sides: AddressView, mirror: MirrorTopic, situation: Situation, decision: Decision
) -> bool:
    last = sides.last.resource if sides.last is not None else None
    if move.verb not in _PAUSE_ROLES or not isinstance(last, MirrorTopic) or last.state != mirror.state:
        return False
    before, after = _PAUSE_ROLES[move.verb]
    rule = situation.find_ignore_rule(move.address, STATE)
    decision.drift.append(replace(build_drift_finding(move.address, STATE, after, before), ignored=rule))
    if rule is None:
        changes = (Change(STATE, before, after, drift=True),)
        decision.actions.append(replace(move, changes=changes, reasons=(*move.reasons, Reason.DRIFTED)))
    return True


def _use_observed_role(before: Observed, sides: AddressView, mirror: MirrorTopic) -> AddressView:
    seen = before.resource
    if not isinstance(seen, MirrorTopic):
        return sides
    return replace(sides, wanted=replace(sides.wanted, resource=mirror.model_copy(update={"state": seen.state})))


def _converge_mirror(
    sides: AddressView, mirror: MirrorTopic, before: Observed, situation: Situation, decision: Decision
) -> None:
    if is_mirroring(before) or as_topic(mirror) not in situation.wanted:
        converge(sides, situation, decision)
    elif sides.last is None:
        decision.actions.append(plan_adoption(sides, before, Differences(), Reason.ALREADY_EXISTS))


def _update_denials(
    sides: AddressView, mirror: MirrorTopic, before: Observed, situation: Situation, decision: Decision
) -> None:
    seen = before.resource
    if not isinstance(seen, MirrorTopic) or not is_mirroring(before) or mirror.state not in COPYING:
        return
    wanted = find_denied_principals(mirror, seen.denied, situation)
    denials = [
        Change(build_denial_path(principal), DENIED, None) for principal in seen.denied if principal not in wanted
    ]
    denials += [
        Change(build_denial_path(principal), None, DENIED) for principal in wanted if principal not in seen.denied
    ]
    if not denials:
        return
    changes = tuple(sorted(denials, key=lambda change: change.path))
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
            precondition=compute_precondition(sides.address, before),
        )
    )


def _record_role(sides: AddressView, mirror: MirrorTopic, before: Observed, decision: Decision) -> None:
    last = sides.last.resource if sides.last is not None else None
    if sides.last is None or not isinstance(last, MirrorTopic) or STATE in sides.wanted.origins:
        return
    # Older versions recorded the current role, with the declared one in `origins`.
    declared = parse_role_mark(sides.last.origins.get(STATE, ""))
    is_learnt = declared is None and last.state == mirror.state
    if is_learnt or any(action.address == sides.address for action in decision.actions):
        return
    was = last.state if declared in {None, mirror.state} else declared
    change = Change(STATE, None if was == NOTHING else was, mirror.state)
    decision.actions.append(plan_adoption(sides, before, Differences(record_changes=(change,)), Reason.RECORD_ONLY))


def _needs_first_copy(mirror: MirrorTopic, before: Observed, way: VerbsToRole, situation: Situation) -> bool:
    status = find_mirror_status(before)
    is_resumed = any(step.verb == "resume" and step.mirror is mirror for step in way.steps)
    is_active = status is not None and predict_resumed_status(mirror, status, situation) in _COPYING_STATES
    is_copying = is_resumed or (not way.steps and is_active)
    is_lacking = is_copying and not before.mirror.first_copy_done
    return mirror.state == "mirroring" and is_lacking and is_copied_by_jobs(mirror, situation)


def is_copied_by_jobs(mirror: MirrorTopic, situation: Situation) -> bool:
    """Return whether jobs, instead of the platform, copy a mirror."""
    return situation.find_capabilities(mirror.cluster).mirrors.by_jobs


def build_transition(
    step: Step, sides: AddressView, mirror: MirrorTopic, seen: Observed | None, situation: Situation
) -> Transition:
    """Build the action for a verb. `mirror` is declared, `seen` observed."""
    address = step.mirror.address
    parameters: dict[str, Value] = {} if is_copied_by_jobs(step.mirror, situation) else {"by": BY_PLATFORM}
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
        risk=_RISK_BY_VERB.get(step.verb, Risk.DISRUPTIVE),
        reasons=(Reason.ROLE_WANTED,),
        source=sides.wanted.source,
        precondition=compute_state_precondition(address, seen) if seen is not None else "",
    )


def build_catch_up(
    sides: AddressView, mirror: MirrorTopic, situation: Situation, *, timeout_ms: int | None = None
) -> RunJob:
    """Build the job that copies the lag before a promotion. It fails after `timeout_ms` without progress."""
    patience_ms = _read_lag_timeout(mirror, situation) if timeout_ms is None else timeout_ms
    return RunJob(
        address=mirror.address,
        job=CATCH_UP,
        source=get_source_topic(mirror),
        sink=as_topic(mirror),
        parameters={} if patience_ms is None else {"timeout_ms": patience_ms},
        reasons=(Reason.ROLE_WANTED,),
        declared_at=sides.wanted.source,
        precondition=compute_precondition(sides.address, sides.before),
    )


def _read_lag_timeout(mirror: MirrorTopic, situation: Situation) -> int | None:
    link = link_of(mirror)
    item = situation.wanted.get(link) or situation.observed.get(link)
    return item.resource.spec.retry_timeout if item and isinstance(item.resource, MirrorLink) else None


def build_first_copy(sides: AddressView, mirror: MirrorTopic) -> RunJob:
    """Build the job that copies a mirror up to its source's current end."""
    return RunJob(
        address=sides.address,
        job="mirror",
        source=get_source_topic(mirror),
        sink=as_topic(mirror),
        reasons=(Reason.FIRST_COPY,),
        declared_at=sides.wanted.source,
        precondition=compute_precondition(sides.address, sides.before),
    )


def _refuse(sides: AddressView, message: str, hint: str, decision: Decision) -> None:
    decision.refuse(sides.address, sides.wanted.source, message, hint, marks=sides.wanted.marks)


def _warn(sides: AddressView, message: str, hint: str, decision: Decision) -> None:
    decision.warn(sides.address, sides.wanted.source, message, hint, marks=sides.wanted.marks)


_ENDED_STATES: Final = frozenset({"FAILED", "STOPPED"})
"""States in which a mirror can be deleted even if the link's filters match its source."""


def is_kept_by_link(seen: Observed, situation: Situation) -> bool:
    """Return whether the link would create a deleted mirror again, by its planned filters."""
    mirror = seen.resource
    if not isinstance(mirror, MirrorTopic) or seen.state in _ENDED_STATES:
        return False
    at = link_of(mirror)
    is_by_files = situation.can_plan(at) and not situation.request.orders
    link = situation.wanted.get(at) if is_by_files else situation.observed.get(at)
    if link is None or not isinstance(link.resource, MirrorLink):
        return False
    making = link.resource.spec.auto_create
    return making is not None and making.enabled and is_auto_created(making.filters, mirror.source)


def forget_kept_mirror(address: Address, seen: Observed, situation: Situation, decision: Decision) -> None:
    """Forget a mirror that its link would create again after a deletion."""
    mirror = seen.resource
    link = link_of(mirror) if isinstance(mirror, MirrorTopic) else address
    wanted = situation.wanted.get(link)
    source = wanted.source if wanted is not None else None
    delete = Delete(address=address, before=seen.resource)
    if isinstance(mirror, MirrorTopic) and find_grant(
        delete, collect_allowances(situation.request.guards, situation.request.selection)
    ):
        _refuse_auto_created(address, mirror, source, decision)
        return
    decision.actions.append(Forget(address=address, reasons=(Reason.NO_LONGER_DECLARED,)))
    message = f"its entry was removed, and it continues: the autoCreate filters of {link} take its source"
    decision.warn(address, source, message, "Exclude the name there first, if it is to be deleted.")


def _refuse_auto_created(address: Address, mirror: MirrorTopic, source: str | None, decision: Decision) -> None:
    link = link_of(mirror)
    decision.refuse(
        address,
        source,
        f"it cannot be deleted: the autoCreate filters of {link} take its source, so that it would be made again",
        f"Exclude {mirror.source!r} from the filters and apply that first, or switch autoCreate off; or fail it over.",
        marks=((link, ("spec", "autoCreate", "filters")),),
    )


def decide_auto_created_mirrors(situation: Situation, decision: Decision) -> None:
    """Delete mirrors that links created and no longer match, if allowances name them exactly, or warn."""
    allowed = collect_allowances(situation.request.guards, situation.request.selection)
    ordered = {allowance.pattern for allowance in allowed if allowance.verb == "delete"}
    excluded: dict[Address, list[Address]] = {}
    for address, mirror in sorted(situation.observed_mirrors.items()):
        seen, link = situation.observed[address], link_of(mirror)
        is_named = address in situation.wanted or address in situation.recorded or address in decision.settled
        is_ours = seen.mirror.is_automatic and link in situation.wanted and link in situation.recorded
        if (
            is_named
            or not is_ours
            or not is_mirroring(seen)
            or is_in_transition(seen)
            or not situation.can_plan(address)
        ):
            continue
        if address not in ordered:
            if seen.state not in _ENDED_STATES and not is_kept_by_link(seen, situation):
                excluded.setdefault(link, []).append(address)
        elif is_kept_by_link(seen, situation):
            _refuse_auto_created(address, mirror, situation.wanted[link].source, decision)
        else:
            decision.actions.append(plan_deletion(address, seen, Reason.NO_LONGER_DECLARED))
    for at, mirrors in excluded.items():
        names, hint = list_first(mirrors, grouping=""), f"To delete one with its records: --allow delete:{mirrors[0]}"
        message = f"its filters no longer select {names}, which autoCreate made and the link still mirrors"
        decision.warn(at, situation.wanted[at].source, message, hint)


def is_in_transition(seen: Observed) -> bool:
    """Return whether a mirror is in a transition that prevents its deletion."""
    status = find_mirror_status(seen) if isinstance(seen.resource, MirrorTopic) else None
    return status is not None and "delete" not in MIRROR.list_legal_verbs(status)


def _build_unfinished(mirror: Address, state: str, situation: Situation) -> UnfinishedTransition:
    return UnfinishedTransition(mirror, state, is_by_cluster=situation.is_copied_by_cluster(mirror))


def refuse_until_settled(address: Address, seen: Observed, situation: Situation, decision: Decision) -> None:
    """Reject the deletion of a mirror during a transition."""
    driver = "its cluster" if situation.is_copied_by_cluster(address) else "`reconciler run`"
    decision.waiting.append(_build_unfinished(address, seen.state or "", situation))
    decision.refuse(
        address,
        None,
        f"its entry was removed while it is {seen.state}: it cannot be deleted in this state",
        f"Wait until it has ended ({driver} continues it); or declare it again, failed-over.",
    )


def find_mirror_to_destroy(topic: Address, last: Recorded, situation: Situation) -> Observed | None:
    """Return the mirror that a recorded topic has become, and that a deletion must delete instead."""
    seen = situation.observed.get(as_mirror(topic))
    is_it = seen is not None and last.incarnation is not None and seen.incarnation == last.incarnation
    return seen if situation.request.options.is_destroy and is_it and is_mirroring(seen) else None


_ENDING_VERBS: Final = frozenset({"failover", "promote"})
"""Verbs that stop a mirror so that a reversal cannot finish."""


def report_transitions(situation: Situation, decision: Decision) -> None:
    """Add restores and reversals in progress, including those of undeclared mirrors."""
    if situation.request.options.is_destroy:
        return
    reported = _list_reported(decision)
    for address, mirror in sorted(situation.observed_mirrors.items()):
        seen = situation.observed[address]
        is_ours = link_of(mirror) in situation.wanted and situation.can_plan(address)
        if not is_ours or not is_in_transition(seen):
            continue
        if is_reversal_stuck(address, situation):
            peer = derive_peer(mirror).address
            decision.warn(
                address,
                situation.wanted[link_of(mirror)].source,
                f"it is {seen.state} and takes no records: its reversal was interrupted when {peer} was stopped",
                f"Let it take records again with: reconciler mirror failover {address}",
            )
        elif not {address, derive_peer(mirror).address} & reported:
            decision.waiting.append(_build_unfinished(address, seen.state or "", situation))


def is_reversal_stuck(address: Address, situation: Situation) -> bool:
    """Return whether a mirror waits for a reversal that cannot finish."""
    seen = situation.observed.get(address)
    if seen is None or not isinstance(seen.resource, MirrorTopic) or seen.state != MirrorStatus.PENDING_MIRROR:
        return False
    peer = situation.observed.get(derive_peer(seen.resource).address)
    return peer is not None and not is_mirroring(peer) and peer.mirror.stopped_by in _ENDING_VERBS


def _list_reported(decision: Decision) -> frozenset[Address | None]:
    acted = {action.address for action in decision.actions}
    waiting = {item.address for item in decision.waiting}
    return frozenset({*acted, *waiting, *(item.address for item in decision.errors)})


def skip_mirrored_topic(sides: AddressView, situation: Situation, decision: Decision) -> bool:
    """Return whether a Topic manifest is skipped because its topic is or becomes a mirror; add why."""
    address = as_mirror(sides.address)
    entry, seen = situation.desired_mirrors.get(address), situation.observed.get(address)
    if entry is not None and entry.state in COPYING:
        _refuse_topic_and_mirror(sides, entry, situation, decision)
        return True
    if becomes_ordinary_topic(sides.address, situation):
        return False  # When the mirror has become an ordinary topic, its manifest applies.
    if (behind := find_mirror_claiming_topic(sides.address, situation)) is not None:
        _warn_mirrored(sides.address, sides.wanted.source, behind[0], situation, decision)
        return True
    if entry is not None:
        return is_mirroring(seen)
    if seen is not None and is_mirroring(seen) and not _is_deleted(address, seen, situation):
        if not _warn_became_mirror(sides, seen, situation, decision):
            _refuse_unknown_mirror(sides, seen, situation, decision)
        return True
    return False


def becomes_ordinary_topic(topic: Address, situation: Situation) -> bool:
    """Return whether this plan turns a mirror into an ordinary topic."""
    if not is_mirroring(situation.observed.get(as_mirror(topic))):
        return False
    own = situation.desired_mirrors.get(as_mirror(topic))
    entries = (*((own,) if own is not None else ()), *situation.desired_mirrors_by_source.get(topic, ()))
    return any(
        topic in find_released_topics(find_way_to_role(entry, situation))
        for entry in entries
        if situation.can_plan(entry.address)
    )


def describe_released_topic(sides: AddressView, situation: Situation) -> Observed | None:
    """Return the topic that a mirror becomes when mirroring ends."""
    seen = situation.observed.get(as_mirror(sides.address))
    if (
        seen is None
        or sides.before is not None
        or (is_mirroring(seen) and not becomes_ordinary_topic(sides.address, situation))
    ):
        return None
    topic, mirror = sides.wanted.resource, seen.resource
    if not isinstance(topic, Topic) or not isinstance(mirror, MirrorTopic):
        return None
    stopped = seen.mirror.topic_if_stopped or _make_topic(topic, mirror, situation)
    return replace(seen, resource=stopped, state=None, mirror=replace(seen.mirror, topic_if_stopped=None))


def decide_released_topic(sides: AddressView, stopped: Observed, situation: Situation, decision: Decision) -> None:
    """Adopt the topic that a mirror becomes, and update it as declared."""
    after_stop = Decision()
    converge(replace(sides, before=stopped), situation, after_stop)
    decision.actions += adapt_to_missing_topic(after_stop.actions)
    decision.errors += after_stop.errors
    decision.warnings += after_stop.warnings


def is_still_declared_mirror(topic: Address, situation: Situation) -> bool:
    """Return whether a former mirror is still declared as a mirror."""
    entry = situation.desired_mirrors.get(as_mirror(topic))
    return entry is not None and (entry.state not in COPYING or find_way_to_role(entry, situation) is not None)


def find_remaining_mirrors(topic: Address, situation: Situation) -> tuple[Address, ...]:
    """Return the mirrors of a missing topic. A new empty topic would make them FAILED."""
    if topic in situation.observed or topic not in situation.recorded:
        return ()
    mirrors = (mirror for mirror in situation.mirrors_by_source.get(topic, ()) if mirror in situation.observed_mirrors)
    entries = ((mirror, situation.desired_mirrors.get(mirror)) for mirror in mirrors)
    return tuple(mirror for mirror, entry in entries if entry is None or entry.state in COPYING)


def refuse_empty_topic(sides: AddressView, mirrors: Sequence[Address], decision: Decision) -> None:
    """Reject the creation of an empty topic whose records only mirrors have."""
    if sides.last is not None:
        decision.drift.append(
            build_drift_finding(sides.address, "", to_json_types(sides.last.resource.to_json()), None)
        )
    decision.refuse(
        sides.address,
        sides.wanted.source,
        f"it is deleted from the cluster, and {list_first(mirrors, grouping='')} has what was copied of it: a new and "
        "empty one makes that mirror FAILED",
        f"To keep that: reconciler mirror failover {' '.join(mirrors)}, then apply, which creates this one again. To "
        f"make it at once: reconciler state rm {sides.address}",
    )


def warn_if_mirror_now(address: Address, situation: Situation, decision: Decision) -> bool:
    """Return whether an undeclared topic is now a mirror, and warn that it stays."""
    behind, seen = find_mirror_claiming_topic(address, situation), situation.observed.get(as_mirror(address))
    if behind is not None:
        source = as_topic(behind[0])
        hint = "It is planned for deletion once it is a topic again."
    elif seen is not None and isinstance(seen.resource, MirrorTopic) and _warn_of_new_mirror(address, seen, situation):
        source = get_source_topic(seen.resource)
        hint = f"It is planned for deletion once it is a topic again. {_suggest_stop(seen.resource, seen, situation)}"
    else:
        return False
    message = f"it was removed from the files while it mirrors {source}: it is neither deleted nor forgotten now"
    decision.warn(address, None, message, hint)
    return True


def _warn_of_new_mirror(topic: Address, mirror: Observed, situation: Situation) -> bool:
    is_same = not is_recreated(situation.recorded[topic], mirror)
    is_staying = is_mirroring(mirror) and not _is_deleted(as_mirror(topic), mirror, situation)
    return is_same and is_staying and not situation.request.options.is_destroy


def _warn_mirrored(
    topic: Address, source: str | None, entry: MirrorTopic, situation: Situation, decision: Decision
) -> None:
    is_now = is_mirroring(situation.observed.get(as_mirror(topic)))
    now = "is a mirror of" if is_now else "becomes a mirror of"
    message = f"it {now} {as_topic(entry)}: its manifest is ignored until it is a topic again"
    decision.warn(topic, source, message, _suggest_swap_back(entry, situation))


def _suggest_swap_back(entry: MirrorTopic, situation: Situation) -> str:
    at, back = situation.wanted[entry.address], as_mirror(get_source_topic(entry))
    if is_reversal_stuck(back, situation):
        return f"Its reversal was interrupted: reconciler mirror failover {back}"
    declared_then = parse_role_mark(at.origins.get(STATE, ""))
    if declared_then is not None:
        files = "do not name it" if declared_then == NOTHING else f"say {declared_then}"
        made = f"{entry.address} was made {entry.state} by a command, and the files {files}"
        return f"{made}. To swap the roles back: reconciler mirror reverse {back}"
    declared = f"{entry.address} ({at.source}) is declared {entry.state}"
    if entry.state in COPYING:
        return f"{declared}: it mirrors again once {back} has come to that."
    return f"{declared}; state mirroring swaps the roles back."


def _warn_became_mirror(sides: AddressView, seen: Observed, situation: Situation, decision: Decision) -> bool:
    mirror = seen.resource
    is_it = sides.address in situation.recorded and _warn_of_new_mirror(sides.address, seen, situation)
    if not is_it or not isinstance(mirror, MirrorTopic):
        return False
    message = f"it is a mirror of {get_source_topic(mirror)}: its manifest is ignored until it is a topic again"
    decision.warn(sides.address, sides.wanted.source, message, _suggest_stop(mirror, seen, situation))
    return True


def _suggest_stop(mirror: MirrorTopic, seen: Observed, situation: Situation) -> str:
    address, peer = mirror.address, derive_peer(mirror)
    peer_seen = situation.observed.get(peer.address)
    if is_reversal_stuck(address, situation):
        return f"Its reversal was interrupted: reconciler mirror failover {address}"
    if is_in_transition(seen):
        driver = "its cluster" if situation.is_copied_by_cluster(address) else "reconciler run"
        return f"It is {seen.state}: {driver} finishes that."
    if mirror.source_cluster not in situation.trusted:
        lost = f"What only cluster {mirror.source_cluster} has is lost then."
        return f"To take records now: reconciler mirror failover {address}. {lost}"
    if peer_seen is None or is_mirroring(peer_seen):
        return f"To make it a topic again: {_format_ending(address, situation)}"
    return (
        f"To swap the roles back: reconciler mirror reverse {address}. To keep them so: name {mirror.name} in "
        f"mirrorTopics of {link_of(peer)}, with state reversed."
    )


def _format_ending(mirror: Address, situation: Situation) -> str:
    return f"reconciler mirror {situation.name_ending(mirror).replace(' ', '')} {mirror}"


def _refuse_topic_and_mirror(sides: AddressView, entry: MirrorTopic, situation: Situation, decision: Decision) -> None:
    wanted = situation.wanted[entry.address]
    decision.refuse(
        sides.address,
        sides.wanted.source,
        f"it is declared as a topic and, at {wanted.source}, as a mirror that is {entry.state}",
        "Remove one of the two: a live mirror takes its configs from its source.",
        marks=wanted.marks,
    )


def _refuse_unknown_mirror(sides: AddressView, seen: Observed, situation: Situation, decision: Decision) -> None:
    mirror = seen.resource
    link = mirror.link if isinstance(mirror, MirrorTopic) else "a link"
    message = f"a mirror of that name was made by link/{sides.address.split('/')[1]}/{link}"
    hint = "Exclude the name from the link's autoCreate filters and delete the mirror, or remove the Topic."
    if isinstance(mirror, MirrorTopic) and find_auto_created(mirror.cluster, mirror.name, situation) is None:
        hint = f"Make it a topic again ({_format_ending(mirror.address, situation)}), or remove the Topic."
    hint = _suggest_selection(as_mirror(sides.address), situation) or hint
    decision.refuse(sides.address, sides.wanted.source, message, hint)


def _make_topic(topic: Topic, mirror: MirrorTopic, situation: Situation) -> Topic:
    synced = read_source_parameters(mirror, situation).get("configs")
    taken = {key: str(value) for key, value in synced.items()} if isinstance(synced, dict) else {}
    changed = {"partitions": mirror.partitions, "configs": {**taken, **mirror.configs}, "acls": ()}
    return topic.model_copy(update={"spec": topic.spec.model_copy(update=changed)})
