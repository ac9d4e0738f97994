"""What mounting and unmounting move: what is to flush, for how long nobody writes, what comes back and from where."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.lifecycles.mounting import UNMOUNT
from reconciler.planning.actions import Reason
from reconciler.planning.estimates import Estimate, Unreadable
from reconciler.planning.finding import Finding
from reconciler.planning.situation import mounted_by
from reconciler.resources.measures import Measure
from reconciler.resources.mountable import MountSource
from reconciler.resources.mounting import Mounting
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reconciler.planning.actions import Transition
    from reconciler.planning.review import Review
    from reconciler.planning.situation import Situation
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Inventory

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


def warnings_of_sealed(review: Review) -> Iterator[Finding]:
    """Yield the topics that take no records."""
    yield from sealed(review.situation.observed)


def sealed(observed: Inventory) -> Iterator[Finding]:
    """Yield the topics that take no records, since somebody was about to delete them once they were copied."""
    for address, there in sorted(observed.items()):
        if there.is_sealed:
            message = "it is sealed: its brokers refuse every record, since it is being moved or unmounted"
            hint = (
                "`reconciler apply` goes on where that was broken off. To let producers in again instead, cancel the "
                "unmount (reconciler mount status, reconciler mount cancel)."
            )
            yield Finding(address, None, message, hint)


def no_writes_seconds(partitions: int, unflushed: int) -> int:
    """Return for about how long nobody can write to a topic while it is unmounted.

    Everything is uploaded once while clients still write. What they write meanwhile is uploaded after the cut: it is
    taken to be as much again as there was to flush.
    """
    return _taking_over_seconds(partitions) + unflushed // BYTES_A_SECOND


def _taking_over_seconds(partitions: int) -> int:
    return _AT_LEAST_SECONDS + partitions // _PARTITIONS_A_SECOND


def brought_by(topic: Address, situation: Situation) -> MountSource | None:
    """Return what a topic is made from that is not there yet, and is mounted by this plan."""
    mounting = situation.mountings.get(topic)
    if mounting is None or mounting.spec.state != "mounted" or topic in situation.observed:
        return None
    source = situation.given.mounts.get(mounting.address)
    return source if isinstance(source, MountSource) else None


def size_of(source: MountSource, situation: Situation, measure: Callable[[Address], Measure | None]) -> Measure | None:
    """Return what a mount brings: all of it lies in object storage. Where this plan detaches it first, as it is now."""
    if source.found is not None:
        return Measure(source.found.bytes, source.found.records, ages=source.found.ages)
    leaving = _left_by(source, situation)
    found = measure(leaving) if leaving is not None else None
    return None if found is None else Measure(found.bytes, found.records, ages=found.ages)


def unreadable_of(source: MountSource, topic: Address) -> tuple[Unreadable, ...]:
    """Return all that a topic would lose whose objects are deleted once it is mounted; nothing where nobody can tell.

    Objects are counted for the whole topic: each partition has its share by its offsets.
    """
    if source.found is None:
        return ()
    ends = {number: (start, stop) for number, (start, stop) in source.found.ends.items() if start < stop}
    offsets = sum(stop - start for start, stop in ends.values())
    return tuple(
        Unreadable(topic, number, start, stop, source.found.bytes * (stop - start) // offsets)
        for number, (start, stop) in sorted(ends.items())
    )


def _mount(mounting: Address, situation: Situation, measure: Callable[[Address], Measure | None]) -> Estimate:
    source = situation.given.mounts.get(mounting)
    if not isinstance(source, MountSource):
        return Estimate()
    leaving = _left_by(source, situation)
    found = size_of(source, situation, measure) or Measure(0, 0)
    partitions = source.found.partitions if source.found else _known_of(leaving, situation).partitions if leaving else 0
    seconds = _taking_over_seconds(partitions)
    return Estimate(found.bytes, found.records, seconds, location=source.location, partitions=partitions)


def _left_by(source: MountSource, situation: Situation) -> Address | None:
    """Return the topic that this plan detaches before it is mounted elsewhere."""
    detaching = situation.wanted.get(source.unmounts) if source.unmounts is not None else None
    resource = detaching.resource if detaching is not None else None
    return mounted_by(resource) if isinstance(resource, Mounting) else None


def _known_of(topic: Address, situation: Situation) -> Estimate:
    """Return what is known of a topic that is there without measuring it."""
    seen = situation.observed.get(topic)
    if seen is None or not isinstance(seen.resource, Topic):
        return Estimate()
    location = seen.legacy.location if seen.legacy is not None else None
    return Estimate(location=location, partitions=seen.resource.spec.partitions or 0)
