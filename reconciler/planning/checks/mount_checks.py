"""Checks of mounts and unmounts, which yield (message, hint)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import permutations
from typing import TYPE_CHECKING, Final, TypeVar

from reconciler.errors import UserError
from reconciler.lifecycles import BY_JOBS, UNMOUNT, TieringState, is_in_progress
from reconciler.planning.actions import Estimate, Reason, RunJob, Transition, Unreadable
from reconciler.planning.plan import PlanFinding
from reconciler.planning.resolve.acting_configs import ActingConfigs, read_present_switches
from reconciler.planning.resolve.limits import describe_unsupported
from reconciler.planning.resolve.mount_sources import (
    are_equal_locations,
    find_held_state,
    get_remote_location,
    get_source_location,
    has_own_topic,
    hides_locations,
    is_in_object_storage,
    is_location,
    is_other_topic,
    matches_source,
)
from reconciler.planning.situation import Review, Situation, WantedResource, as_mirror, get_mounted_topic, is_replica
from reconciler.resources.address import Address, cluster_address, cluster_of
from reconciler.resources.cluster import Cluster
from reconciler.resources.cluster_properties import ENABLED, UPLOADS
from reconciler.resources.measures import Measure
from reconciler.resources.mount import MIGRATING, Mounting, MountSource
from reconciler.resources.topic import Topic
from reconciler.runtime.text import pluralize

if TYPE_CHECKING:
    from reconciler.resources.inventory import Inventory, Observed


BYTES_A_SECOND: Final = 50 * 2**20
"""Assumed copy rate in bytes per second, chosen low."""

_PARTITIONS_A_SECOND: Final = 40

Migrating = TypeVar("Migrating", Transition, RunJob)

_MIN_SECONDS: Final = 2


def add_mount_estimate(
    action: Transition, situation: Situation, measure: Callable[[Address], Measure | None]
) -> Transition:
    """Return a transition, with an estimate if it is a mount or unmount."""
    if not isinstance(action.after, Mounting):
        return action
    if action.machine != UNMOUNT.name:
        return _add_engine(replace(action, estimate=_estimate_mount(action.address, situation, measure)), situation)
    return add_unmount_estimate(action, get_mounted_topic(action.after), situation, measure)


def add_unmount_estimate(
    action: Migrating, topic: Address, situation: Situation, measure: Callable[[Address], Measure | None]
) -> Migrating:
    """Return an unmount with its estimate."""
    measured, known = measure(topic), _estimate_without_measure(topic, situation)
    known = replace(known, location=known.location or action.estimate.location)
    if measured is None:
        reasons = (*action.reasons, Reason.UNMEASURED)
        return replace(action, reasons=reasons, estimate=replace(known, groups=None))
    seconds = estimate_no_writes_seconds(known.partitions, measured.local_only_bytes)
    estimate = replace(
        known,
        bytes=measured.bytes,
        records=measured.records,
        seconds=seconds + measured.local_only_bytes // BYTES_A_SECOND,
        groups=measured.groups,
        uploads=measured.local_only_bytes,
        no_writes_seconds=0 if action.parameters.get("phase") == "prepare" else seconds,
    )
    return _add_engine(replace(action, estimate=estimate), situation)


def _add_engine(action: Migrating, situation: Situation) -> Migrating:
    if action.parameters.get("by") != BY_JOBS:
        return action
    engine = situation.request.spark.choose_engine(action.estimate.bytes)
    return replace(action, estimate=replace(action.estimate, engine=engine))


def warnings_of_sealed(review: Review) -> Iterator[PlanFinding]:
    """Warn about sealed topics."""
    yield from find_sealed_topics(review.situation.observed)


def find_sealed_topics(observed: Inventory) -> Iterator[PlanFinding]:
    """Yield each topic that rejects all records because of an unfinished move or unmount."""
    for address, seen in sorted(observed.items()):
        if seen.topic.is_sealed:
            message = "it is sealed: its brokers refuse every record, because it is being moved or unmounted"
            hint = (
                "`reconciler apply` continues where it was interrupted, or lets producers write again if the files no "
                "longer declare it. If a command began it, finish it with the same command and --finish; an unmount "
                "can be cancelled. See: reconciler mount status"
            )
            yield PlanFinding(address, None, message, hint)


def estimate_no_writes_seconds(partitions: int, unflushed: int) -> int:
    """Estimate for how many seconds an unmounted topic rejects writes."""
    return _estimate_handover_s(partitions) + unflushed // BYTES_A_SECOND


def _estimate_handover_s(partitions: int) -> int:
    return _MIN_SECONDS + partitions // _PARTITIONS_A_SECOND


def find_planned_source(topic: Address, situation: Situation) -> MountSource | None:
    """Return the source that this plan mounts as a missing topic."""
    mounting = situation.mountings_by_topic.get(topic)
    if mounting is None or mounting.spec.state != "mounted" or topic in situation.observed:
        return None
    source = situation.request.stored.mounts.get(mounting.address)
    return source if isinstance(source, MountSource) else None


def measure_source(
    source: MountSource, situation: Situation, measure: Callable[[Address], Measure | None]
) -> Measure | None:
    """Return the size of the topic to mount, on a cluster or in object storage; `None` if unknown."""
    if source.recoverable is not None:
        return Measure(source.recoverable.bytes, source.recoverable.records, ages=source.recoverable.ages)
    leaving = _find_topic_to_detach(source, situation)
    measured = measure(leaving) if leaving is not None else None
    return None if measured is None else Measure(measured.bytes, measured.records, ages=measured.ages)


def find_unreadable(source: MountSource, topic: Address) -> tuple[Unreadable, ...]:
    """Return the offsets that become unreadable without a mounted topic's remote objects; empty if unknown."""
    if source.recoverable is None:
        return ()
    ends = {number: (start, stop) for number, (start, stop) in source.recoverable.ends.items() if start < stop}
    offsets = sum(stop - start for start, stop in ends.values())
    return tuple(
        Unreadable(topic, number, start, stop, source.recoverable.bytes * (stop - start) // offsets)
        for number, (start, stop) in sorted(ends.items())
    )


def _estimate_mount(mounting: Address, situation: Situation, measure: Callable[[Address], Measure | None]) -> Estimate:
    source = situation.request.stored.mounts.get(mounting)
    if not isinstance(source, MountSource):
        return Estimate()
    leaving = _find_topic_to_detach(source, situation)
    measured = measure_source(source, situation, measure) or Measure(0, 0)
    partitions = (
        source.recoverable.partitions
        if source.recoverable
        else _estimate_without_measure(leaving, situation).partitions
        if leaving
        else 0
    )
    seconds = _estimate_handover_s(partitions)
    return Estimate(measured.bytes, measured.records, seconds, location=source.location, partitions=partitions)


def _find_topic_to_detach(source: MountSource, situation: Situation) -> Address | None:
    detaching = situation.wanted.get(source.unmounts) if source.unmounts is not None else None
    resource = detaching.resource if detaching is not None else None
    return get_mounted_topic(resource) if isinstance(resource, Mounting) else None


def _estimate_without_measure(topic: Address, situation: Situation) -> Estimate:
    seen = situation.observed.get(topic)
    if seen is None or not isinstance(seen.resource, Topic):
        return Estimate()
    location = seen.topic.legacy.location if seen.topic.legacy is not None else None
    return Estimate(location=location, partitions=seen.resource.spec.partitions or 0)


def warnings_of_strangers(review: Review) -> Iterator[PlanFinding]:
    """Warn about topics that have the name of another topic to mount or unmount."""
    situation = review.situation
    recreated = {action.address for action in review.actions if Reason.RECREATED in action.reasons}
    for topic, mounting in sorted(situation.mountings_by_topic.items()):
        address, seen = mounting.address, situation.observed.get(topic)
        under_way = situation.observed.get(address)
        is_moving = under_way is not None and is_in_progress(under_way.state)
        if seen is None or is_moving or not situation.can_plan(address):
            continue
        if not is_other_topic(mounting, seen, situation):
            continue
        if is_in_object_storage(mounting, situation):
            location = situation.unmounted_locations.get(address) or _find_source_location(address, situation)
            yield _report_other_topic(address, topic, _suggest_for_other_topic(topic, location, situation), review)
        elif mounting.spec.state == "mounted":
            yield _report_other_topic(address, topic, "Look at its records before you delete it.", review)
        elif address in recreated:
            yield _report_other_topic(address, topic, "The unmount archives that topic once it is allowed.", review)
    for topic, location in sorted(situation.request.stored.detached.items()):
        if topic in situation.observed:
            yield _report_other_topic(topic, topic, _suggest_for_other_topic(topic, location, situation), review)


def _report_other_topic(address: Address, topic: Address, hint: str, review: Review) -> PlanFinding:
    held = review.measure(topic, is_wish=True)
    what = "its records could not be counted" if held is None else pluralize(held.records, "record")
    if held is not None and held.newest_ms is not None:
        what += f", the newest of {_format_utc(held.newest_ms)}"
    wanted = review.situation.wanted.get(address)
    message = f"another topic has its name on cluster {cluster_of(topic)}: {what}"
    return PlanFinding(address, wanted.source if wanted is not None else None, message, hint, concerns_drift=True)


def _suggest_for_other_topic(topic: Address, location: str | None, situation: Situation) -> str:
    where = "Its own topic is in object storage" if location is None else f"Its own topic is at {location}"
    is_tiered = situation.observed[topic].topic.legacy is not None
    can_leave = is_tiered or situation.find_capabilities(cluster_of(topic) or "").mountings_by_jobs
    if topic in situation.wanted and topic in situation.recorded and situation.exists_as_recorded(topic):
        declared = situation.wanted[topic].source
        return f"{where}. The other one is declared at {declared}: choose another name for the mount with `as`."
    archive = f", or archive it: reconciler topic unmount {topic}" if can_leave else ""
    return f"{where}. The other one is neither archived nor deleted. Stop its producer and delete it{archive}"


def _find_source_location(mounting: Address, situation: Situation) -> str | None:
    source = situation.request.stored.mounts.get(mounting)
    return source.location if isinstance(source, MountSource) else None


def _format_utc(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000, UTC).isoformat().replace("+00:00", "Z")


def check_mounted(mounting: Mounting, seen: Observed, situation: Situation) -> Iterator[tuple[str, str]]:
    """Yield a problem if another topic has the name of the topic to mount."""
    location, meant = get_remote_location(seen), get_source_location(mounting, situation)
    mount_source = situation.request.stored.mounts.get(mounting.address)
    is_hidden = location is None and hides_locations(mounting.cluster, situation)
    if is_hidden and not is_other_topic(mounting, seen, situation):
        return
    if location is not None and matches_source(location, meant):
        if (
            not isinstance(mount_source, MountSource)
            or is_location(meant)
            or are_equal_locations(mount_source.location, location)
        ):
            return
        meant = mount_source.location
    what = "another topic of that name" if is_hidden else "a topic of that name that was never tiered"
    if location is not None:
        what = f"a topic of that name that is at {location}"
    instead = f"not at {meant}" if is_location(meant) else f"not one from object storage that was created as {meant}"
    other = (
        f"If you mean that one, write source: {location}." if location else "What only stays here needs no Mounting."
    )
    yield (
        f"the name is taken: cluster {mounting.cluster} has {what}, {instead}",
        f"Choose another name with `as`, or unmount or delete the existing topic first. {other}",
    )


def check_leaving(mounting: Mounting, seen: Observed, situation: Situation) -> Iterator[tuple[str, str]]:
    """Yield a problem if another topic has the name of the topic to unmount."""
    location, meant = get_remote_location(seen), get_source_location(mounting, situation)
    is_named = mounting.spec.source is None and mounting.spec.as_ is None and not is_location(meant)
    if location is None or is_named or matches_source(location, meant):
        return
    instead = f"not at {meant}" if is_location(meant) else f"and was not created as {meant}"
    yield (
        f"the topic {mounting.topic_name} that is here is at {location}, {instead}",
        f"Write source: {location} where that one is meant, or correct source or `as`.",
    )


_FREE_STATES: Final = frozenset({None, TieringState.ENABLED.value, TieringState.DISABLED.value})


def _suggest_tiering(mounting: Mounting, situation: Situation) -> str:
    is_by_run = situation.find_capabilities(mounting.cluster).is_maintained_by_run
    then = (
        "let `reconciler run` upload" if is_by_run else "plan again: its brokers upload the rest while they unmount it"
    )
    return f"Switch remote.write on (or give it a TieringPolicy), apply that, and {then}."


def check_mounting(mounting: Mounting, situation: Situation) -> Iterator[tuple[str, str]]:
    """Yield why a topic cannot be mounted or unmounted."""
    capabilities, topic = situation.find_capabilities(mounting.cluster), get_mounted_topic(mounting)
    under_way, seen = situation.observed.get(mounting.address), situation.observed.get(topic)
    if not capabilities.mountings:
        last = situation.recorded.get(mounting.address)
        is_applied = last is not None and last.resource == mounting
        if not is_applied or (seen is not None) is not (mounting.spec.state == "mounted"):
            yield describe_unsupported(capabilities, "mount or unmount topics", "mountings")
        return
    if (under_way is not None and is_in_progress(under_way.state)) or find_held_state(mounting, situation) is not None:
        return
    hidden = situation.request.hidden.get(topic) or situation.request.hidden.get(as_mirror(topic))
    if hidden is not None:
        yield hidden.message, hidden.hint
    elif mounting.spec.state == "mounted":
        if seen is None:
            yield from _check_mount(mounting, situation)
        elif seen.state != MIGRATING:
            yield from check_mounted(mounting, seen, situation)
    elif seen is None or (is_other_topic(mounting, seen, situation) and is_in_object_storage(mounting, situation)):
        yield from _check_detached(mounting, situation)
    else:
        yield from _check_unmount(mounting, topic, seen, situation)


def check_competing_mountings(situation: Situation) -> Iterator[PlanFinding]:
    """Yield an error for each topic with two Mountings."""
    named: dict[str, list[WantedResource]] = {}
    for address in sorted(situation.wanted):
        wanted = situation.wanted[address]
        if isinstance(wanted.resource, Mounting):
            named.setdefault(get_mounted_topic(wanted.resource), []).append(wanted)
            taken = _find_taken_location(wanted.resource, situation)
            if taken is not None:
                named.setdefault(taken, []).append(wanted)
    for what, rivals in named.items():
        for one, other in permutations(rivals, 2):
            yield from _report_rivals(what, one, other, situation)


def _report_rivals(
    what: str, one: WantedResource, other: WantedResource, situation: Situation
) -> Iterator[PlanFinding]:
    mine, theirs = one.resource, other.resource
    if not (isinstance(mine, Mounting) and isinstance(theirs, Mounting)) or not situation.can_plan(mine.address):
        return
    if what == get_mounted_topic(mine):
        message = f"{theirs.address}, at {other.source}, is about topic {mine.topic_name} of this cluster too"
        hint = "Keep one of the two, or give one another name with `as`."
        yield PlanFinding(mine.address, one.source, message, hint)
    elif get_mounted_topic(mine) != get_mounted_topic(theirs):
        message = f"{what} is taken by {theirs.address} too, at {other.source}"
        hint = "A topic can be mounted once: keep one mounting, and mirror the topic for the other."
        yield PlanFinding(mine.address, one.source, message, hint)


def _find_taken_location(mounting: Mounting, situation: Situation) -> str | None:
    source = situation.request.stored.mounts.get(mounting.address)
    is_mount = mounting.spec.state == "mounted" and isinstance(source, MountSource)
    return source.location if is_mount and isinstance(source, MountSource) else None


def _check_mount(mounting: Mounting, situation: Situation) -> Iterator[tuple[str, str]]:
    if not _declares_object_storage(mounting, situation):
        yield _explain_missing_storage(mounting)
        return
    mirror = as_mirror(get_mounted_topic(mounting))
    seen, wanted = situation.observed.get(mirror), situation.wanted.get(mirror)
    if seen is not None or wanted is not None:
        at = f", at {wanted.source}" if wanted is not None else ""
        yield f"the name is taken: there is {mirror}{at}", "Choose another name with `as`, or remove the mirror first."
    if ActingConfigs(situation).properties(mounting.cluster).get(ENABLED) == "false":
        hint = f"Remove the property: with {ENABLED} off nothing of a mounted topic could be read."
        yield f"tiering is off on cluster {mounting.cluster}: {ENABLED} is false", hint
    if _is_awaiting_rename(mounting, situation):
        return  # Until a planned rename, the topic has its old name.
    source = situation.request.stored.mounts.get(mounting.address)
    match source:
        case None:
            yield "object storage was not read", "Plan again."
        case UserError() as error:
            yield error.message, error.hint
        case MountSource():
            yield from _check_detachable(source, situation)


def _check_detachable(source: MountSource, situation: Situation) -> Iterator[tuple[str, str]]:
    if source.unmounts is not None and not situation.can_plan(source.unmounts):
        message = f"{source.location} is still attached: {source.unmounts}, which detaches it, is not part of this plan"
        yield message, f"Plan it too, for example with --target {source.unmounts}, or unmount it first."


def _check_detached(mounting: Mounting, situation: Situation) -> Iterator[tuple[str, str]]:
    mirror = as_mirror(get_mounted_topic(mounting))
    seen = situation.observed.get(mirror)
    if seen is not None:
        yield f"{mirror} is a mirror: its records belong to its source", _suggest_ending(mirror, situation)
        return
    if mounting.address in situation.recorded or _is_awaiting_rename(mounting, situation):
        return
    if not _declares_object_storage(mounting, situation):
        yield _explain_missing_storage(mounting)
    mount_source = situation.request.stored.mounts.get(mounting.address)
    if isinstance(mount_source, UserError):
        yield mount_source.message, mount_source.hint


def _check_unmount(
    mounting: Mounting, topic: Address, seen: Observed, situation: Situation
) -> Iterator[tuple[str, str]]:
    if seen.state == MIGRATING:
        return
    if is_replica(seen):
        message = f"topic {mounting.topic_name} is a read replica: what it shows belongs to its source"
        yield message, "Remove the Mounting; delete the read replica, or unmount its source where that is."
        return
    if seen.topic.legacy is not None and seen.topic.legacy.is_lost:
        yield _explain_lost(mounting, seen.topic.legacy.location)
        return
    if seen.state not in _FREE_STATES:
        message = f"topic {mounting.topic_name} is {seen.state}: it cannot be unmounted until that is done"
        yield message, "`reconciler run` finishes it; then plan again."
        return
    if not _declares_object_storage(mounting, situation):
        yield _explain_missing_storage(mounting)
        return
    yield from check_leaving(mounting, seen, situation)
    if not situation.find_capabilities(mounting.cluster).mountings_by_jobs:
        yield from _check_tiered(mounting, seen, situation)
    readers = [mirror for mirror in situation.mirrors_by_source.get(topic, ()) if _is_mirror_kept(mirror, situation)]
    if readers:
        some = ", ".join(readers)
        yield f"{some} mirrors it, and would have no source", _suggest_ending(readers[0], situation)
    if _is_protected(topic, situation):
        yield "it is protected, and unmounting takes it off the cluster", "Set protect: false on the Topic."


def _explain_lost(mounting: Mounting, location: str) -> tuple[str, str]:
    where = f"{location} was released, and the topic here outlived that"
    hint = (
        "Nothing of it can be uploaded any more. Delete it here; what is in object storage stays: take its Topic and "
        "its Mounting out of the files together. Whose it is: reconciler mount list"
    )
    return f"it is not cluster {mounting.cluster}'s any more: {where}", hint


def _check_tiered(mounting: Mounting, seen: Observed, situation: Situation) -> Iterator[tuple[str, str]]:
    properties = _read_properties(mounting.cluster, situation)
    if properties.get(ENABLED) != "true":
        message = f"tiering is off on cluster {mounting.cluster}: {ENABLED} is {properties.get(ENABLED, 'unset')}"
        yield message, "Declare objectStorage on the Cluster, do not switch tiering off, and apply that first."
    elif properties.get(UPLOADS) == "false":
        yield f"uploads are off on cluster {mounting.cluster}: {UPLOADS} is false", "Remove the property, and apply."
    elif (
        isinstance(seen.resource, Topic)
        and not read_present_switches(seen.resource, seen.topic.initial, situation).write
    ):
        yield (f"topic {mounting.topic_name} is not tiered: remote.write is off", _suggest_tiering(mounting, situation))
    elif (
        isinstance(seen.resource, Topic)
        and not read_present_switches(seen.resource, seen.topic.initial, situation).read
    ):
        yield (
            f"topic {mounting.topic_name} only uploads: with remote.read off none of it is readable once mounted",
            "Switch remote.read on, and apply that.",
        )
    elif seen.state == TieringState.DISABLED.value or (
        seen.topic.legacy is None and not hides_locations(mounting.cluster, situation)
    ):
        yield (
            f"topic {mounting.topic_name} is not tiered: nothing of it is in object storage",
            _suggest_tiering(mounting, situation),
        )


def _is_mirror_kept(mirror: Address, situation: Situation) -> bool:
    is_leaving = mirror in situation.recorded and mirror not in situation.wanted and situation.can_plan(mirror)
    return not is_leaving


def _is_protected(topic: Address, situation: Situation) -> bool:
    wanted, last = situation.wanted.get(topic), situation.recorded.get(topic)
    declared = wanted.resource.spec.protect if wanted is not None and isinstance(wanted.resource, Topic) else None
    return declared if declared is not None else last is not None and last.protect


def _is_awaiting_rename(mounting: Mounting, situation: Situation) -> bool:
    topic = situation.wanted.get(get_mounted_topic(mounting))
    if topic is not None and topic.moved_from is not None and situation.exists_as_recorded(topic.moved_from):
        return True
    old = situation.wanted[mounting.address].moved_from
    before = situation.recorded.get(old) if old is not None else None
    resource = before.resource if before is not None else None
    return isinstance(resource, Mounting) and has_own_topic(resource, situation)


def _declares_object_storage(mounting: Mounting, situation: Situation) -> bool:
    return situation.clusters[mounting.cluster].spec.object_storage is not None


def _explain_missing_storage(mounting: Mounting) -> tuple[str, str]:
    return f"cluster {mounting.cluster} has no object storage", "Declare objectStorage on the Cluster."


def _read_properties(cluster: str, situation: Situation) -> dict[str, str]:
    seen = situation.observed.get(cluster_address(cluster))
    return dict(seen.resource.spec.properties) if seen is not None and isinstance(seen.resource, Cluster) else {}


def _suggest_ending(mirror: Address, situation: Situation) -> str:
    return f"{situation.name_ending(mirror).capitalize()} or remove {mirror} first, and apply that."
