"""Which clusters a pass tends: all that answer; what does not answer is said, and keeps no other from its turn."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.errors import ReconcilerError, UserError
from reconciler.planning.judging.storage import moved_storage
from reconciler.resources.address import cluster_address
from reconciler.workflow.looking.observing import observe
from reconciler.workflow.looking.reading import read_state
from reconciler.workflow.upkeep.outcomes import JobOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.resources.inventory import Inventory, Record
    from reconciler.workflow.beginning.opening import Work

OBSERVE: Final = "observe"
"""What an outcome calls the look that comes before all jobs."""
STATE: Final = "state"
"""What it calls reading the state."""
_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Answering:
    """The clusters that answered, by name, and why others did not."""

    inventories: Mapping[str, Inventory]
    lost: tuple[JobOutcome, ...]


def answering(work: Work) -> Answering:
    """Read all clusters side by side. A cluster that is declared and not there yet is left out."""
    names, began_ms = work.to_read, work.invocation.now_ms()
    recorded, lost = _recorded(work)
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="observe") as threads:
        answers = dict(zip(names, threads.map(lambda name: _asked(work, name, recorded), names), strict=True))
    found = {name: answer for name, answer in answers.items() if isinstance(answer, dict) and answer}
    errors = {name: answer for name, answer in answers.items() if isinstance(answer, ReconcilerError)}
    seconds = max(0, work.invocation.now_ms() - began_ms) / 1000
    lost += [JobOutcome(OBSERVE, name, seconds, None, error) for name, error in sorted(errors.items())]
    return Answering(found, tuple(lost))


def _recorded(work: Work) -> tuple[Record, list[JobOutcome]]:
    """Return what was applied: it tells a cluster that is lost from one that is not made yet."""
    try:
        snapshot = read_state(work)
    except ReconcilerError as error:
        return {}, [JobOutcome(STATE, "", 0.0, None, error)]
    return snapshot.record if snapshot else {}, []


def _asked(work: Work, name: str, recorded: Record) -> Inventory | ReconcilerError:
    try:
        found = dict(observe(work.providers, [name], recorded, can_exclude=False).inventory)
    except ReconcilerError as error:
        return error
    seen = found.get(cluster_address(name))
    moved = None if seen is None else moved_storage(work.clusters[name], seen)
    if moved is not None:  # What was uploaded lies elsewhere: every job would go by half of what there is.
        return UserError(f"cluster {name}: {moved[0]}", hint=moved[1])
    return found
