"""Whether the topic that has a mounting's name on its cluster is the one that the mounting means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.planning.wanted.mountsources import is_same_place
from reconciler.resources.address import join_name
from reconciler.resources.mountable import MountSource
from reconciler.resources.mounting import Mounting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.planning.situation import Situation
    from reconciler.resources.inventory import Observed, Recorded


def check_mounted(mounting: Mounting, seen: Observed, situation: Situation) -> Iterator[tuple[str, str]]:
    """Refuse to take a topic for the one that is to be mounted, because it has its name."""
    there, meant = _location(seen), _meant(mounting, situation)
    lying = situation.given.mounts.get(mounting.address)
    if there is not None and _is_at(there, meant):
        if not isinstance(lying, MountSource) or _is_explicit(meant) or is_same_place(lying.location, there):
            return
        meant = lying.location
    what = f"a topic of that name that lies at {there}" if there else "a topic of that name that was never tiered"
    instead = f"not at {meant}" if _is_explicit(meant) else f"not one of object storage that was made as {meant}"
    other = f"Where that one is meant write source: {there}." if there else "What only stays here needs no Mounting."
    yield (
        f"the name is taken: cluster {mounting.cluster} has {what}, {instead}",
        f"Choose another name with `as`, or unmount or delete the topic that is there first. {other}",
    )


def check_leaving(mounting: Mounting, seen: Observed, situation: Situation) -> Iterator[tuple[str, str]]:
    """Refuse to unmount another topic than the one that is meant; without `source` and `as` a name is enough."""
    there, meant = _location(seen), _meant(mounting, situation)
    is_named = mounting.spec.source is None and mounting.spec.as_ is None and not _is_explicit(meant)
    if there is None or is_named or _is_at(there, meant):
        return
    instead = f"not at {meant}" if _is_explicit(meant) else f"and was not made as {meant}"
    yield (
        f"the topic {mounting.topic_name} that is here lies at {there}, {instead}",
        f"Write source: {there} where that one is meant, or correct source or `as`.",
    )


def _meant(mounting: Mounting, situation: Situation) -> str:
    """Return the location that a mounting means or, where it says and knows none, the name its topic was made with."""
    source = mounting.spec.source
    if source is not None and _is_explicit(source):
        return source
    last = _last(mounting, situation)
    known = last.resource.spec if last is not None and isinstance(last.resource, Mounting) else None
    if last is not None and last.physical_name is not None and known is not None and source in {None, known.source}:
        return last.physical_name
    return join_name(mounting.metadata.namespace, source or mounting.metadata.name)


def _last(mounting: Mounting, situation: Situation) -> Recorded | None:
    """Return what is remembered of a mounting, be it under the name it had before."""
    last, old = situation.recorded.get(mounting.address), situation.wanted[mounting.address].moved_from
    return situation.recorded.get(old) if last is None and old is not None else last


def _location(seen: Observed) -> str | None:
    return seen.legacy.location if seen.legacy is not None else None


def _is_at(there: str, meant: str) -> bool:
    return is_same_place(meant, there) if _is_explicit(meant) else there.rsplit("/", 2)[0] == meant


def _is_explicit(source: str) -> bool:
    return "/" in source
