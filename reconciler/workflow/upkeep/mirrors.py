"""The job `mirror`: every live mirror is brought to its source's end as it was when the round began, side by side."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from reconciler.applying.events import ActionDone, ActionFailed, ActionStarted
from reconciler.resources.address import address_of, cluster_address
from reconciler.workflow.running.moving import progress_event
from reconciler.workflow.upkeep.registry import MIRROR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from reconciler.applying.events import Event
    from reconciler.jobs.progress import JobProgress
    from reconciler.resources.address import Address
    from reconciler.resources.mirroring import MirrorSeen
    from reconciler.workflow.upkeep.rounds import Round, Rounds


def synced(
    rounds: Rounds, clusters: Iterable[str], is_wanted: Callable[[Address], bool], report: Callable[[Event], None]
) -> Round:
    """Do one round and return what came of every mirror; told are those of which there was anything to copy."""
    told: set[str] = set()
    one_at_a_time = threading.Lock()

    def say(event: Event) -> None:
        with one_at_a_time:
            report(event)

    def started(mirror: MirrorSeen) -> Callable[[JobProgress], None]:
        address = address_of("mirror", mirror.cluster, mirror.name)
        told.add(address)
        say(ActionStarted(_name(address), address))
        return lambda found: say(progress_event(_name(address), found))

    done = rounds.once(clusters, is_wanted, started)
    for one in done.synced:
        if one.error is not None:
            say(ActionFailed(_name(one.address), one.address, one.error.message, one.error.hint))
        elif one.address in told:
            say(ActionDone(_name(one.address), one.address, one.seconds, one.records, one.bytes))
    for cluster, error in done.failed.items():
        say(ActionFailed(f"{MIRROR}:{cluster}", cluster_address(cluster), error.message, error.hint))
    return done


def _name(address: Address) -> str:
    return f"mirror:{address}"
