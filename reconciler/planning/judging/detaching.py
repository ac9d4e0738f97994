"""What mounting and unmounting move: what is to flush, for how long nobody writes, what comes back and from where."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.lifecycles.mounting import UNMOUNT
from reconciler.planning.actions import Estimate, Reason
from reconciler.planning.situation import mounted_by
from reconciler.resources.mountable import MountSource
from reconciler.resources.mounting import Mounting
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.planning.actions import Transition
    from reconciler.planning.situation import Situation
    from reconciler.resources.address import Address
    from reconciler.resources.measures import Measure

BYTES_A_SECOND: Final = 50 * 2**20
"""A cautious guess at what is copied."""

_PARTITIONS_A_SECOND: Final = 40
"""As cautious a guess at how many are sealed, looked at and handed over: a few requests each, sixteen at once."""

_AT_LEAST_SECONDS: Final = 2
"""The states themselves: a handful of commits, one after the other."""


def detached(action: Transition, situation: Situation, measure: Callable[[Address], Measure | None]) -> Transition:
    """Return a mount or unmount with what it moves; any other transition as it is."""
    if not isinstance(action.after, Mounting):
        return action
    if action.machine != UNMOUNT.name:
        return replace(action, estimate=_mount(action.address, situation, measure))
    topic = mounted_by(action.after)
    found, known = measure(topic), _known_of(topic, situation)
    if found is None:
        reasons = (*action.reasons, Reason.UNMEASURED)
        return replace(action, reasons=reasons, estimate=replace(known, groups=None))
    seconds = no_writes_seconds(known.partitions, found.local_only_bytes)
    estimate = replace(
        known,
        bytes=found.bytes,
        records=found.records,
        seconds=seconds + found.local_only_bytes // BYTES_A_SECOND,
        groups=found.groups,
        uploads=found.local_only_bytes,
        no_writes_seconds=seconds,
    )
    return replace(action, estimate=estimate)


def no_writes_seconds(partitions: int, unflushed: int) -> int:
    """Return for about how long nobody can write to a topic while it is unmounted.

    Everything is uploaded once while clients still write. What they write meanwhile is uploaded after the cut: it is
    taken to be as much again as there was to flush.
    """
    return _taking_over_seconds(partitions) + unflushed // BYTES_A_SECOND


def _taking_over_seconds(partitions: int) -> int:
    return _AT_LEAST_SECONDS + partitions // _PARTITIONS_A_SECOND


def _mount(mounting: Address, situation: Situation, measure: Callable[[Address], Measure | None]) -> Estimate:
    """Return what comes back, as its manifests say it; where this plan detaches it first, as it is now."""
    source = situation.given.mounts.get(mounting)
    if not isinstance(source, MountSource):
        return Estimate()
    if source.found is not None:
        size, records, partitions = source.found.bytes, source.found.records, source.found.partitions
    else:
        detaching = situation.wanted.get(source.unmounts) if source.unmounts is not None else None
        if detaching is None or not isinstance(detaching.resource, Mounting):
            return Estimate(location=source.location)
        topic = mounted_by(detaching.resource)
        measured = measure(topic)
        size, records = (measured.bytes, measured.records) if measured is not None else (0, 0)
        partitions = _known_of(topic, situation).partitions
    seconds = _taking_over_seconds(partitions)
    return Estimate(size, records, seconds, location=source.location, partitions=partitions)


def _known_of(topic: Address, situation: Situation) -> Estimate:
    """Return what is known of a topic that is there without measuring it."""
    seen = situation.observed.get(topic)
    if seen is None or not isinstance(seen.resource, Topic):
        return Estimate()
    location = seen.legacy.location if seen.legacy is not None else None
    return Estimate(location=location, partitions=seen.resource.spec.partitions or 0)
