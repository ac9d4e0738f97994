"""Topics made from object storage: created from where the plan found them; while that goes on they are left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.planning.actions import Create, Reason
from reconciler.planning.deciding.converge import compare, create
from reconciler.planning.estimates import Estimate
from reconciler.planning.plan import Waiting
from reconciler.resources.mountable import MIGRATING
from reconciler.resources.quantities import format_duration, format_size
from reconciler.resources.recoverable import Recoverable
from reconciler.resources.tierrules import switches_in, targets_in

if TYPE_CHECKING:
    from reconciler.planning.deciding.decision import Decision, Sides
    from reconciler.planning.situation import Situation
    from reconciler.resources.inventory import Observed
    from reconciler.resources.tierrules import Configs
    from reconciler.resources.topic import Topic

RECOVERING: Final = "RECOVERING"
"""What a cluster says of a topic whose objects are still being copied."""
_HELD: Final = frozenset({RECOVERING, MIGRATING})
_BYTES_A_SECOND: Final = 50 * 2**20


def is_held(before: Observed | None) -> bool:
    """Tell whether a topic is in other hands: still being made, mounted or unmounted."""
    return before is not None and before.state in _HELD


def wait_for(sides: Sides, situation: Situation, decision: Decision) -> None:
    """Leave a topic alone that is in other hands; what its Mounting does is waited for, anything else is refused."""
    before = sides.before
    if before is None or before.state is None:
        return
    decision.waiting.append(Waiting(sides.address, before.state))
    if before.state != MIGRATING or sides.address in situation.mountings:
        return
    changes = compare(sides, before, situation).changes
    if changes:
        paths = ", ".join(change.path.removeprefix("configs.") for change in changes)
        message = f"it is being mounted or unmounted ({MIGRATING}): {paths} cannot change until that is done"
        hint = "Plan again once `run` has finished it, or whoever is to tell it. How far it is: reconciler mount status"
        decision.refuse(sides.address, sides.wanted.source, message, hint)


def recover(sides: Sides, topic: Topic, situation: Situation, decision: Decision) -> None:
    """Make a topic from what the plan found of it."""
    found = situation.given.recoveries.get(sides.address)
    if not isinstance(found, Recoverable):
        return  # said by the checks
    partitions = topic.spec.partitions or found.partitions
    create(sides, decision, {"recoverFrom": found.location, "partitions": partitions})
    made = decision.actions[-1]
    if isinstance(made, Create):
        seconds = 1 + found.bytes // _BYTES_A_SECOND
        estimate = Estimate(found.bytes, found.records, seconds)
        decision.actions[-1] = replace(made, reasons=(*made.reasons, Reason.RECOVERED), estimate=estimate)
    configs = {key: (value, "") for key, value in {**found.configs, **topic.spec.configs}.items()}
    _warn_of_switches(sides, configs, decision)
    _warn_of_age(sides, configs, found, situation.given.now_ms, decision)


def _warn_of_age(sides: Sides, configs: Configs, found: Recoverable, now_ms: int, decision: Decision) -> None:
    """Say what of it `run` will delete soon: time went on while nobody kept it."""
    kept_ms, policy = targets_in(configs).total_ms, configs.get("cleanup.policy", ("delete", ""))[0]
    if kept_ms is None or "delete" not in policy.split(","):
        return
    expiring = sum(stored for newest_ms, stored in found.ages if newest_ms < now_ms - kept_ms)
    if expiring:
        share = "all" if expiring == found.bytes else f"about {format_size(expiring)}"
        message = (
            f"{share} of it is older than retention.ms ({format_duration(kept_ms)}), and expires with the next run"
        )
        decision.warn(sides.address, sides.wanted.source, message, "Raise retention.ms first, if it is to stay.")


def _warn_of_switches(sides: Sides, configs: Configs, decision: Decision) -> None:
    """Say what the new topic's own words on tiering make of what is recovered."""
    switches = switches_in(configs)
    if switches.write and not switches.read:
        message = "it is write-only: what is recovered cannot be read as long as remote.read is off"
        decision.warn(sides.address, sides.wanted.source, message, "Set remote.read: true to read it.")
    elif not switches.write:
        message = "remote.write is off: what is recovered stays in object storage and is read there"
        hint = "Nothing new is uploaded, and a lost cluster loses it. Set remote.write: true to go on archiving."
        decision.warn(sides.address, sides.wanted.source, message, hint)
