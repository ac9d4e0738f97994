"""Mount and unmount the topics of Mountings, and create topics from object storage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, assert_never

from reconciler.errors import UserError
from reconciler.lifecycles import BY_JOBS, MOUNT, UNMOUNT, MigrationState, TieringState, is_in_progress
from reconciler.planning.actions import (
    Action,
    Adopt,
    Create,
    Delete,
    Estimate,
    Forget,
    Reason,
    Risk,
    RunJob,
    Transition,
    Update,
    Value,
)
from reconciler.planning.diff.converge import (
    AddressView,
    Decision,
    compute_state_precondition,
    converge,
    find_platform_differences,
    plan_creation,
    plan_deletion,
)
from reconciler.planning.fields import READ_REPLICA, is_equal_value
from reconciler.planning.plan import UnfinishedTransition
from reconciler.planning.resolve.acting_configs import (
    RECOVERY,
    ActingConfigs,
    collect_set_configs,
    compute_mounted_configs,
)
from reconciler.planning.resolve.mount_sources import (
    find_held_state,
    has_own_topic,
    hides_locations,
    is_in_object_storage,
    is_other_topic,
    is_unmounted,
)
from reconciler.planning.situation import Situation, get_mounted_topic, is_recreated
from reconciler.resources.address import Address, cluster_of
from reconciler.resources.base import format_duration, format_size
from reconciler.resources.cluster_properties import ENABLED
from reconciler.resources.inventory import LiveTopic, Observed, RemoteRemains
from reconciler.resources.mount import MIGRATING, Mounting, MountSource, RecoverableTopic, RemountedTopic
from reconciler.resources.tiering_policy import Configs, read_switches, read_targets
from reconciler.resources.topic import Topic, TopicSpec
from reconciler.runtime.text import list_first, pluralize

_HINT_LONGER_RETENTION: Final = (
    "If it is to stay, raise retention.ms in the Topic's manifest, or retention in its TieringPolicy, before you apply."
)
DETACHED_AT: Final = "detached at "
MOUNTED_AS: Final = "mounted as "
"""Prefix of `HeldChange.current` for a topic that a command mounted elsewhere."""


def decide_mounted_topic(sides: AddressView, mounting: Mounting, situation: Situation, decision: Decision) -> None:
    """Add the changes of a topic after this plan mounts it."""
    under_way = situation.observed.get(mounting.address)
    source = situation.request.stored.mounts.get(mounting.address)
    if not situation.can_plan(mounting.address) or find_held_state(mounting, situation) is not None:
        return
    mounted: Observed | None = None
    if under_way is not None and is_in_progress(under_way.state):
        if hides_locations(mounting.cluster, situation):
            mounted = Observed(sides.wanted.resource)  # The continued mount sets the declared configs.
    elif isinstance(source, MountSource):
        mounted = _predict_mounted_topic(sides, source, situation)
    if mounted is None:
        return  # A later plan compares the topic.
    after_mount = Decision()
    converge(replace(sides, before=mounted), situation, after_mount)
    decision.actions += adapt_to_missing_topic(after_mount.actions)
    decision.errors += after_mount.errors
    decision.warnings += after_mount.warnings


def hold_detached_topic(sides: AddressView, situation: Situation, decision: Decision) -> None:
    """Keep the record of a topic that a command unmounted, so its name stays taken."""
    location = situation.request.stored.detached[sides.address]
    other, new = describe_other_topic(sides)
    decision.add_held_change(
        sides,
        f"{other}it was unmounted, and no Mounting declares it: it is detached at {location}",
        f"To have its records back declare a Mounting with state: mounted and source: {location}; to leave it there, "
        f"one with state: unmounted (reconciler drift --accept {sides.address}). {new}: reconciler state rm "
        f"{sides.address}",
        f"{DETACHED_AT}{location}",
    )
    _adopt_held(sides, decision)


def describe_other_topic(sides: AddressView) -> tuple[str, str]:
    """Return the start of a message about another topic, and the effect of forgetting the record."""
    if sides.before is None:
        return "", "To make a new and empty one"
    return "another topic has its name: ", "To keep the topic that has its name now"


def hold_remounted_topic(sides: AddressView, situation: Situation, decision: Decision) -> None:
    """Keep the record of a topic that a command mounted elsewhere."""
    new_place = situation.request.stored.mounted_elsewhere[sides.address]
    back = format_mount_back_commands(sides.address, new_place)
    keep = "" if new_place.topic is None else f"To leave it there: reconciler drift --accept {sides.address}. "
    other, new = describe_other_topic(sides)
    decision.add_held_change(
        sides,
        f"{other}it is mounted with its records as {new_place}, and no Mounting declares it",
        f"{back} {keep}{new}: reconciler state rm {sides.address}",
        f"{MOUNTED_AS}{new_place}",
    )
    _adopt_held(sides, decision)


def _adopt_held(sides: AddressView, decision: Decision) -> None:
    if sides.last is None:
        topic = sides.wanted.resource
        reasons = (Reason.ALREADY_EXISTS,)
        decision.actions.append(
            Adopt(address=sides.address, observed=topic, after=topic, reasons=reasons, source=sides.wanted.source)
        )


def format_mount_back_commands(address: Address, current: RemountedTopic) -> str:
    """Return the commands that mount a topic under its previous name."""
    cluster = cluster_of(address)
    away = "unmount it there" if current.topic is None else f"reconciler topic unmount {current.topic}"
    return f"To have it back: {away}, then reconciler topic mount topic/{cluster}/{current.location}."


def adapt_to_missing_topic(actions: Iterable[Action]) -> Iterator[Action]:
    """Yield the actions for a topic that does not exist yet: without drift and preconditions."""
    for action in actions:
        match action:
            case Update() | Transition():
                changes = tuple(replace(change, drift=False) for change in action.changes)
                reasons = (Reason.CHANGED if reason is Reason.DRIFTED else reason for reason in action.reasons)
                yield replace(action, changes=changes, reasons=tuple(dict.fromkeys(reasons)), precondition="")
            case Adopt():
                yield replace(action, precondition="")
            case Create() | Delete() | RunJob() | Forget():
                yield action
            case _:
                assert_never(action)


def _predict_mounted_topic(sides: AddressView, source: MountSource, situation: Situation) -> Observed | None:
    topic = sides.wanted.resource
    if not isinstance(topic, Topic):
        return None
    if source.recoverable is not None:
        stored = source.recoverable
        partitions, factor, initial = stored.partitions, stored.replication_factor, stored.initial
        own, all_set = stored.own, stored.configs
    elif source.is_content_unknown:
        return Observed(topic)  # The platform sets the declared configs after the mount.
    else:
        seen = _find_topic_to_detach(source, situation)
        if seen is None or not isinstance(seen.resource, Topic):
            return None
        spec = seen.resource.spec
        partitions, factor, initial = spec.partitions or 1, spec.replication_factor or 1, seen.topic.initial
        own, all_set = spec.configs, collect_set_configs(seen.resource, seen.topic.initial, situation)
    above = ActingConfigs(situation).above(topic.cluster, topic.metadata.namespace, initial)
    catalog = situation.find_capabilities(topic.cluster).configs
    spec = TopicSpec(
        partitions=partitions, replication_factor=factor, configs=compute_mounted_configs(own, all_set, above, catalog)
    )
    mounted_topic = topic.model_copy(update={"spec": spec})
    log = LiveTopic(initial, RemoteRemains(source.location, is_deleted=False))
    return Observed(mounted_topic, state=TieringState.ENABLED.value, topic=log)


def _find_topic_to_detach(source: MountSource, situation: Situation) -> Observed | None:
    detaching = situation.wanted.get(source.unmounts) if source.unmounts is not None else None
    if detaching is None or not isinstance(detaching.resource, Mounting):
        return None
    return situation.observed.get(get_mounted_topic(detaching.resource))


def decide_mounting(sides: AddressView, situation: Situation, decision: Decision, old: Address | None = None) -> None:
    """Add the actions of a Mounting, recorded at `old` if renamed."""
    mounting = sides.wanted.resource
    if not isinstance(mounting, Mounting):
        return
    topic = get_mounted_topic(mounting)
    seen = situation.observed.get(topic)
    is_other = seen is not None and is_other_topic(mounting, seen, situation)
    if old is not None:
        decision.settled.add(old)  # The record moves to the new name when the migration ends.
    if _decide_migration(sides, mounting, seen, situation, decision):
        return
    if old is not None:
        _follow_rename(sides, old, decision)
    if (now := find_held_state(mounting, situation)) is not None:
        message = f"it was {now} by a command, and the files still have {mounting.spec.state}"
        back = f"reconciler topic {UNMOUNT.name if now == 'mounted' else MOUNT.name} {topic}"
        hint = f"Write it into the files: reconciler drift --accept {sides.address}. To undo it: {back}"
        decision.add_held_change(sides, message, hint, now)
        return
    if is_other and is_in_object_storage(mounting, situation):
        seen = None  # The observed topic is another one with the Mounting's name.
    if (seen is not None) == (mounting.spec.state == "mounted"):
        is_same = sides.last is not None and sides.last.resource == mounting
        if old is None and not (is_same and not _is_location_new(sides, situation)):
            decision.actions.append(_adopt_mounting(sides, mounting, seen, situation))
    elif seen is not None:
        unmount = _plan_unmount(sides, mounting, seen, situation, decision)
        decision.actions.append(replace(unmount, reasons=(*unmount.reasons, Reason.RECREATED)) if is_other else unmount)
    elif not _is_moved_here(topic, situation):
        _plan_mount(sides, mounting, situation, decision)


def _is_location_new(sides: AddressView, situation: Situation) -> bool:
    is_unknown = is_unmounted(sides.last) and sides.last is not None and sides.last.physical_name is None
    return is_unknown and isinstance(situation.request.stored.mounts.get(sides.address), MountSource)


def is_migrating(seen: Observed | None) -> bool:
    """Return whether a topic is being mounted or unmounted."""
    return seen is not None and seen.state == MIGRATING


def _decide_migration(
    sides: AddressView, mounting: Mounting, seen: Observed | None, situation: Situation, decision: Decision
) -> bool:
    running = sides.before.state if sides.before is not None else None
    is_by_jobs = situation.find_capabilities(mounting.cluster).mountings_by_jobs
    if not is_in_progress(running):
        if is_migrating(seen):
            decision.waiting.append(UnfinishedTransition(sides.address, MIGRATING))
        return is_migrating(seen)
    migration = sides.before.resource if sides.before is not None else None
    if (
        isinstance(migration, Mounting)
        and migration.spec.state != mounting.spec.state
        and running in set(MigrationState)
    ):
        machine = MOUNT if migration.spec.state == "mounted" else UNMOUNT
        legal = ", ".join(machine.list_legal_verbs(MigrationState(running))) or "nothing"
        ends = "Wait until it is done, and plan again"
        if situation.find_capabilities(mounting.cluster).is_maintained_by_run:
            ends += " (`reconciler run` continues it)"
        if sides.before is not None and sides.before.is_by_hand:
            ends = f"To let it end: reconciler topic {machine.name} --finish {get_mounted_topic(migration)}"
        elif is_by_jobs:
            ends = f"To let it end: `state: {migration.spec.state}` in the Mounting, and reconciler apply"
        decision.refuse(
            sides.address,
            sides.wanted.source,
            f"a migration is in progress by which it is {migration.spec.state} ({running}), "
            f"and {mounting.spec.state} is wanted",
            f"{ends}. Legal from {running}: {legal}; see: reconciler mount status",
        )
    elif isinstance(migration, Mounting) and (is_by_jobs or hides_locations(mounting.cluster, situation)):
        location = migration.spec.source or mounting.metadata.name
        decision.actions.append(_plan_mount_transition(sides, mounting, None, location, situation, running))
    else:
        decision.waiting.append(UnfinishedTransition(sides.address, running or ""))
    return True


def _read_declared_configs(mounting: Mounting, situation: Situation) -> Mapping[str, str]:
    wanted = situation.wanted.get(get_mounted_topic(mounting))
    return wanted.resource.spec.configs if wanted is not None and isinstance(wanted.resource, Topic) else {}


def _read_declared_retention(mounting: Mounting, situation: Situation) -> dict[str, Value]:
    configs = _read_declared_configs(mounting, situation)
    retention = {key: value for key, value in configs.items() if key in {"retention.ms", "retention.bytes"}}
    return {"retention": retention} if retention else {}


def _read_configs_to_set(mounting: Mounting, situation: Situation) -> dict[str, Value]:
    configs = _read_declared_configs(mounting, situation)
    return {"configs": dict(configs)} if configs and hides_locations(mounting.cluster, situation) else {}


def _is_moved_here(topic: Address, situation: Situation) -> bool:
    wanted = situation.wanted.get(topic)
    old = wanted.moved_from if wanted is not None else None
    if old is None or (topic in situation.recorded and old not in situation.recorded):
        return False  # No move is planned, or an earlier apply moved the topic.
    return situation.exists_as_recorded(old) and situation.can_plan(topic)


def _plan_mount(sides: AddressView, mounting: Mounting, situation: Situation, decision: Decision) -> None:
    source = situation.request.stored.mounts.get(sides.address)
    if not isinstance(source, MountSource):
        return  # `check_mounting` reports the missing source.
    leaving = situation.observed.get(source.unmounts) if source.unmounts is not None else None
    if leaving is not None and is_in_progress(leaving.state):
        decision.waiting.append(UnfinishedTransition(sides.address, MIGRATING, after=source.unmounts))
        return
    decision.actions.append(_plan_mount_transition(sides, mounting, None, source.location, situation))
    if source.recoverable is not None:
        own = _read_declared_configs(mounting, situation)
        configs = {key: (value, "") for key, value in {**source.recoverable.configs, **own}.items()}
        message = describe_expiring_records(configs, source.recoverable, situation.request.now_ms)
        if message is not None:
            decision.warn(sides.address, sides.wanted.source, message, _HINT_LONGER_RETENTION)


def _plan_unmount(
    sides: AddressView, mounting: Mounting, seen: Observed, situation: Situation, decision: Decision
) -> Transition:
    location = seen.topic.legacy.location if seen.topic.legacy is not None else mounting.metadata.name
    if situation.find_capabilities(mounting.cluster).mountings_by_jobs:
        decision.warn(
            sides.address,
            sides.wanted.source,
            f"producers of topic {mounting.topic_name} are rejected once most of it is archived",
            "Stop them first, or let them find its records elsewhere. It is deleted only once all of it was compared. "
            "If the comparison fails, producers may write again.",
        )
    return _plan_mount_transition(sides, mounting, seen, location, situation)


def _plan_mount_transition(
    sides: AddressView,
    mounting: Mounting,
    topic: Observed | None,
    location: str,
    situation: Situation,
    running: str | None = None,
) -> Transition:
    """`running` is the state of a migration that it continues."""
    is_mount = mounting.spec.state == "mounted"
    machine = MOUNT if is_mount else UNMOUNT
    parameters: dict[str, Value] = {"source": location}
    if mounting.spec.as_ is not None:
        parameters["as"] = mounting.spec.as_
    if mounting.spec.timeout is not None:
        parameters["timeout_ms"] = mounting.spec.timeout
    if situation.find_capabilities(mounting.cluster).mountings_by_jobs:
        parameters["by"] = BY_JOBS
        if topic is not None:
            parameters["incarnation"] = topic.incarnation
        parameters |= _read_declared_retention(mounting, situation) if is_mount else {}
    elif is_mount:
        parameters |= _read_configs_to_set(mounting, situation)
    return Transition(
        address=sides.address,
        machine=machine.name,
        verb=machine.name,
        from_state=running or ("unmounted" if is_mount else "mounted"),
        to_state=mounting.spec.state,
        after=mounting,
        parameters=parameters,
        risk=Risk.NONE if is_mount else Risk.DISRUPTIVE,
        reasons=(Reason.ROLE_WANTED,),
        source=sides.wanted.source,
        precondition=compute_state_precondition(sides.address, topic) if topic else "",
    )


def _adopt_mounting(sides: AddressView, mounting: Mounting, seen: Observed | None, situation: Situation) -> Adopt:
    source = situation.request.stored.mounts.get(sides.address)
    location = source.location if isinstance(source, MountSource) else None
    if seen is not None:
        location = seen.topic.legacy.location if seen.topic.legacy is not None else None
    return Adopt(
        address=sides.address,
        observed=mounting,
        after=mounting,
        incarnation=seen.incarnation if seen is not None else None,
        physical_name=location,
        reasons=(Reason.ALREADY_EXISTS if sides.last is None else Reason.RECORD_ONLY,),
        source=sides.wanted.source,
    )


def _follow_rename(sides: AddressView, old: Address, decision: Decision) -> None:
    mounting = sides.wanted.resource
    moved = Adopt(
        address=sides.address,
        observed=mounting,
        after=mounting,
        moved_from=old,
        reasons=(Reason.MOVED,),
        source=sides.wanted.source,
    )
    decision.actions += [moved, Forget(address=old, reasons=(Reason.MOVED,))]


def decide_moved_mounting(sides: AddressView, old: Address, situation: Situation, decision: Decision) -> bool:
    """Decide about a renamed Mounting. Return `False` if its old name is unknown."""
    last = situation.recorded.get(old)
    mounting, source = sides.wanted.resource, sides.wanted.source
    if old == sides.address or last is None or not isinstance(mounting, Mounting):
        return False
    before = last.resource
    if old in situation.wanted:
        hint = "Remove movedFrom, or one of the two."
        decision.refuse(sides.address, source, f"{old}, which it is moved from, is declared too", hint)
    elif sides.last is not None:
        hint = f"Remove movedFrom: {old} is forgotten then, and its topic stays as it is."
        decision.refuse(sides.address, source, f"{old}, which it was moved from, is recorded too", hint)
    elif isinstance(before, Mounting) and _is_old_name_kept(before, mounting, situation):
        is_near = before.metadata.namespace == mounting.metadata.namespace
        message = f"its topic is called {before.topic_name} here, and would be {mounting.topic_name}"
        keep = f"Keep the name with `as: {before.spec.as_ or before.metadata.name}`, or let" if is_near else "Let"
        hint = f"{keep} it move, too: a Topic {mounting.topic_name} with movedFrom: {before.topic_name}"
        decision.settled.add(old)
        decision.refuse(sides.address, source, message, hint)
    else:
        decide_mounting(replace(sides, last=last), situation, decision, old)
    return True


def _is_old_name_kept(before: Mounting, mounting: Mounting, situation: Situation) -> bool:
    old, new = get_mounted_topic(before), get_mounted_topic(mounting)
    is_there = old != new and has_own_topic(before, situation) and new not in situation.observed
    wanted = situation.wanted.get(new)
    return is_there and (wanted is None or wanted.moved_from != old)


RECOVERING: Final = "RECOVERING"
"""State of a topic whose objects are still copied."""
_HELD_STATES: Final = frozenset({RECOVERING, MIGRATING})
_BYTES_A_SECOND: Final = 50 * 2**20


def is_in_transition_state(before: Observed | None) -> bool:
    """Return whether a topic is being recovered, mounted or unmounted."""
    return before is not None and before.state in _HELD_STATES


def wait_for_transition(sides: AddressView, situation: Situation, decision: Decision) -> None:
    """Keep a topic in transition, and reject changes unless the topic's Mounting causes the transition."""
    before = sides.before
    if before is None or before.state is None:
        return
    decision.waiting.append(UnfinishedTransition(sides.address, before.state))
    if before.state != MIGRATING or sides.address in situation.mountings_by_topic:
        return
    changes = find_platform_differences(sides, before, situation).changes
    if changes:
        paths = ", ".join(change.path.removeprefix("configs.") for change in changes)
        message = f"it is being mounted or unmounted ({MIGRATING}): {paths} cannot change until that is done"
        hint = "Plan again when it is done. How far it is, and what finishes it: reconciler mount status"
        decision.refuse(sides.address, sides.wanted.source, message, hint)


def create_recovered(sides: AddressView, topic: Topic, situation: Situation, decision: Decision) -> None:
    """Create a topic from its objects in object storage."""
    stored = situation.request.stored.recoveries.get(sides.address)
    if not isinstance(stored, RecoverableTopic):
        return  # `check_recovery` reports the missing source.
    if stored.is_content_unknown:
        _create_from_unknown(sides, topic, decision)
        return
    partitions = topic.spec.partitions or stored.partitions
    plan_creation(sides, decision, {"recoverFrom": stored.location, "partitions": partitions})
    made = decision.actions[-1]
    if isinstance(made, Create):
        seconds = 1 + stored.bytes // _BYTES_A_SECOND
        estimate = Estimate(stored.bytes, stored.records, seconds)
        decision.actions[-1] = replace(made, reasons=(*made.reasons, Reason.RECOVERED), estimate=estimate)
    configs = {key: (value, "") for key, value in {**stored.configs, **topic.spec.configs}.items()}
    _warn_of_switches(sides, configs, decision)
    _warn_of_age(sides, configs, stored, situation.request.now_ms, decision)
    _warn_of_groups(sides, stored, decision)


def _create_from_unknown(sides: AddressView, topic: Topic, decision: Decision) -> None:
    plan_creation(sides, decision, {RECOVERY: True})
    made = decision.actions[-1]
    if isinstance(made, Create):
        decision.actions[-1] = replace(made, reasons=(*made.reasons, Reason.RECOVERED))
    unknown = f"what the bucket of cluster {topic.cluster} has of it is unknown"
    message = f"{unknown}: if there is no topic {topic.full_name}, it is created empty"
    hint = "Its partitions come with it: declare as many as it had."
    decision.warn(sides.address, sides.wanted.source, message, hint)


def _warn_of_groups(sides: AddressView, stored: RecoverableTopic, decision: Decision) -> None:
    if stored.groups_error is not None:
        message = f"the offsets of its consumer groups do not come along: {stored.groups_error.message}"
        decision.warn(sides.address, sides.wanted.source, message, stored.groups_error.hint)
    clamped = stored.list_clamped_offsets()
    if clamped:
        named = [
            f"{offset.group}, partition {offset.partition}: {offset.committed} → {offset.offset}" for offset in clamped
        ]
        count = pluralize(len(clamped), "committed offset")
        message = f"{count} beyond what was uploaded will be set back to its end: {list_first(named)}"
        hint = "Those groups continue from that end. Later records were lost with the cluster."
        decision.warn(sides.address, sides.wanted.source, message, hint)


def _warn_of_age(
    sides: AddressView, configs: Configs, stored: RecoverableTopic, now_ms: int, decision: Decision
) -> None:
    message = describe_expiring_records(configs, stored, now_ms)
    if message is not None:
        decision.warn(sides.address, sides.wanted.source, message, "Raise retention.ms first, if it is to stay.")


def describe_expiring_records(configs: Configs, topic: RecoverableTopic, now_ms: int) -> str | None:
    """Describe the old records that the next `reconciler run` would delete, if any."""
    kept_ms, policy = read_targets(configs).total_ms, configs.get("cleanup.policy", ("delete", ""))[0]
    if kept_ms is None or "delete" not in policy.split(","):
        return None
    expiring = sum(stored for newest_ms, stored in topic.ages if newest_ms < now_ms - kept_ms)
    if not expiring:
        return None
    share = "all" if expiring == topic.bytes else f"about {format_size(expiring)}"
    return f"{share} of it is older than retention.ms ({format_duration(kept_ms)}), and expires with the next run"


def _warn_of_switches(sides: AddressView, configs: Configs, decision: Decision) -> None:
    switches = read_switches(configs)
    if switches.write and not switches.read:
        message = "it is write-only: what is recovered cannot be read as long as remote.read is off"
        decision.warn(sides.address, sides.wanted.source, message, "Set remote.read: true to read it.")
    elif not switches.write:
        message = "remote.write is off: what is recovered stays in object storage and is read there"
        hint = "Nothing new is uploaded, and a lost cluster loses it. Set remote.write: true to continue archiving."
        decision.warn(sides.address, sides.wanted.source, message, hint)


def is_replaced(topic: Topic, before: Observed) -> bool:
    """Return whether a topic must be replaced, because its source as a read replica changes."""
    source = before.resource.spec.read_replica_of if isinstance(before.resource, Topic) else None
    return not is_equal_value(READ_REPLICA, topic.spec.read_replica_of, source, {})


def create_replica(sides: AddressView, situation: Situation, decision: Decision) -> None:
    """Create a read replica of a topic in object storage."""
    stored = situation.request.stored.recoveries.get(sides.address)
    if isinstance(stored, RecoverableTopic):
        plan_creation(sides, decision, {READ_REPLICA: stored.location, "partitions": stored.partitions})


def replace_topic(sides: AddressView, topic: Topic, before: Observed, situation: Situation, decision: Decision) -> None:
    """Delete the observed topic and create the desired one."""
    source = before.resource.spec.read_replica_of if isinstance(before.resource, Topic) else None
    if sides.last is None or is_recreated(sides.last, before):
        what = "an ordinary topic" if source is None else f"a read replica of {source}"
        message = f"{what} of its name is there, which this workspace did not make, and readReplicaOf says otherwise"
        decision.refuse(sides.address, sides.wanted.source, message, "Delete it by hand, or choose another name.")
        return
    made = Decision()
    fresh = AddressView(sides.address, sides.wanted, None, None)
    if topic.spec.read_replica_of is not None:
        create_replica(fresh, situation, made)
    elif is_recovery(topic):
        create_recovered(fresh, topic, situation, made)
    else:
        plan_creation(fresh, made)
    if not made.actions:
        return  # Checks report the reason.
    decision.actions.append(plan_deletion(sides.address, before, Reason.REPLACED, source=sides.wanted.source))
    decision.warnings += made.warnings
    decision.actions += (
        replace(action, reasons=(Reason.REPLACED, *action.reasons[1:])) if isinstance(action, Create) else action
        for action in made.actions
    )


def check_replica(topic: Topic, situation: Situation, *, is_new: bool) -> Iterator[tuple[str, str]]:
    """Yield why a topic cannot be a read replica."""
    if topic.spec.read_replica_of is None or not situation.find_capabilities(topic.cluster).read_replicas:
        return
    cluster = situation.clusters.get(topic.cluster)
    if cluster is not None and cluster.spec.object_storage is None:
        yield (
            f"{READ_REPLICA}: cluster {topic.cluster} has no object storage",
            "Declare the objectStorage that its source is tiered into on the Cluster.",
        )
        return
    if ActingConfigs(situation).properties(topic.cluster).get(ENABLED) == "false":
        hint = f"Remove the property: with {ENABLED} off nothing of a read replica could be read."
        yield f"{READ_REPLICA}: tiering is off on cluster {topic.cluster}: {ENABLED} is false", hint
    mounting = situation.mountings_by_topic.get(topic.address)
    if mounting is not None:
        message = f"{READ_REPLICA}: {mounting.address} is about the same topic, and a read replica has nothing to mount"
        yield message, "Keep one of the two, or give the Mounting another name with `as`."
    if not is_new:
        return
    match situation.request.stored.recoveries.get(topic.address):
        case None:
            yield f"{READ_REPLICA}: object storage was not read", "Plan again."
        case UserError() as error:
            yield f"{READ_REPLICA}: {error.message}", error.hint
        case RecoverableTopic():
            pass


def is_recovery(topic: Topic) -> bool:
    """Return whether a topic is declared to be created from object storage."""
    return topic.spec.recover_from is not None or topic.spec.configs.get(RECOVERY) == "true"


def check_recovery(topic: Topic, situation: Situation) -> Iterator[tuple[str, str]]:
    """Yield why a new topic cannot be recovered."""
    if not (is_recovery(topic) and situation.find_capabilities(topic.cluster).recovery):
        return
    cluster = situation.clusters.get(topic.cluster)
    word = "recoverFrom" if topic.spec.recover_from is not None else RECOVERY
    if cluster is not None and cluster.spec.object_storage is None:
        yield f"{word}: cluster {topic.cluster} has no object storage", "Declare objectStorage on the Cluster."
        return
    platform = situation.find_capabilities(topic.cluster)
    if topic.spec.recover_from is not None and platform.object_storage:
        message = f"recoverFrom: a cluster of platform {platform.platform} recovers a topic by its name, not a location"
        yield message, f'Instead of recoverFrom, declare its partitions, and configs: {{{RECOVERY}: "true"}}.'
        return
    match situation.request.stored.recoveries.get(topic.address):
        case None:
            yield f"{word}: object storage was not read", "Plan again."
        case UserError() as error:
            yield f"{word}: {error.message}", error.hint
        case RecoverableTopic() as found:
            declared = topic.spec.partitions
            if declared is not None and declared < found.partitions:
                message = f"{word}: {found.location} has {found.partitions} partitions, and {declared} are declared"
                yield message, f"Declare {found.partitions} or more, or none: they come with the topic."
