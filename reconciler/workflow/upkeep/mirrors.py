"""The job `mirror`: every live mirror is brought to its source's end as it is when its turn comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.applying.events import ActionDone, ActionFailed, ActionStarted
from reconciler.errors import ReconcilerError
from reconciler.resources.address import address_of, rank
from reconciler.resources.mirrorlink import MirrorTopic
from reconciler.workflow.upkeep.outcomes import Synced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from reconciler.applying.events import Event
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Inventory
    from reconciler.workflow.running.jobs import SparkJobs

_LIVE: Final = "ACTIVE"


def live_mirrors(inventories: Iterable[Inventory], is_wanted: Callable[[Address], bool]) -> list[MirrorTopic]:
    """Return the mirrors that follow their sources, in a lasting order."""
    observed = {address: found for inventory in inventories for address, found in inventory.items()}
    return [
        found.resource
        for address, found in sorted(observed.items(), key=lambda item: rank(item[0]))
        if isinstance(found.resource, MirrorTopic) and found.state in {None, _LIVE} and is_wanted(address)
    ]


def synced(
    jobs: SparkJobs, mirrors: Iterable[MirrorTopic], *, now_ms: Callable[[], int], report: Callable[[Event], None]
) -> Iterator[Synced]:
    """Bring mirrors to their sources' ends, one after the other, and yield what came of each."""
    for mirror in mirrors:
        name = f"mirror:{mirror.address}"
        source = address_of("topic", mirror.source_cluster, mirror.source)
        began_ms = now_ms()
        report(ActionStarted(name, mirror.address))
        try:
            moved = jobs.mirror(name, (source, mirror.address), report)
        except ReconcilerError as error:
            report(ActionFailed(name, mirror.address, error.message, error.hint))
            yield Synced(mirror.address, 0, 0, max(0, now_ms() - began_ms) / 1000, error)
        else:
            seconds = max(0, now_ms() - began_ms) / 1000
            report(ActionDone(name, mirror.address, seconds, moved.records, moved.bytes))
            yield Synced(mirror.address, moved.records, moved.bytes, seconds)
