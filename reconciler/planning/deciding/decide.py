"""What is wanted against what is there: one address after the other, each with what it leans on before it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from reconciler.planning.deciding.cluster import decide_cluster
from reconciler.planning.deciding.converge import converge
from reconciler.planning.deciding.decision import Sides
from reconciler.planning.deciding.differences import is_unchanged
from reconciler.planning.deciding.mirrored import decide_freed, was_mirror
from reconciler.planning.deciding.mirrors import decide_mirror
from reconciler.planning.deciding.mounted import decide_mounted, lies_detached
from reconciler.planning.deciding.mountings import decide_mounting, decide_moved_mounting
from reconciler.planning.deciding.moved import decide_moved, hand_over, readdressed
from reconciler.planning.deciding.movednamespaces import implied_moves, is_namespace_refused
from reconciler.planning.deciding.recovered import is_held, recover, wait_for
from reconciler.planning.deciding.together import is_spoken_for
from reconciler.planning.judging.recovering import is_recovery
from reconciler.planning.situation import STOPPED, Situation, mirror_at
from reconciler.planning.wanted.ways import is_two_way
from reconciler.resources.address import Address, rank
from reconciler.resources.cluster import Cluster
from reconciler.resources.mirrorlink import MirrorLink, MirrorTopic
from reconciler.resources.mounting import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.tieringpolicy import TieringPolicy
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from reconciler.planning.deciding.decision import Decision


def decide_wanted(situation: Situation, refused: frozenset[Address], decision: Decision) -> None:
    """Decide about everything that is wanted, except what was refused already."""
    renamed = readdressed(situation)
    speaking, implied = _speakers(situation), implied_moves(situation)
    for address in sorted(situation.wanted, key=rank):
        if not situation.is_decidable(address) or address in refused:
            continue
        wanted = situation.wanted[address]
        if isinstance(wanted.resource, MirrorLink) and any(link in refused for link, _ in wanted.marks):
            continue  # the half of a link that was refused
        last, before = situation.recorded.get(address), situation.observed.get(address)
        old = wanted.moved_from or implied.get(address)
        is_simple = old is None and address not in speaking and not is_held(before)
        # Equality first: in the common case, nothing changed, this comparison is all that is paid.
        if is_simple and last is not None and before is not None and is_unchanged(wanted, last, before):
            continue
        sides = Sides(address, wanted, last, before)
        if is_held(before):
            wait_for(sides, situation, decision)
            continue
        if old is not None and _is_decided_by_name(sides, old, situation, decision):
            continue
        _decide_one(sides, renamed, speaking, situation, decision)


def _is_decided_by_name(sides: Sides, old: Address, situation: Situation, decision: Decision) -> bool:
    if isinstance(sides.wanted.resource, Namespace):
        return is_namespace_refused(sides, old, situation, decision)
    if isinstance(sides.wanted.resource, Mounting):
        return decide_moved_mounting(sides, old, situation, decision)
    return decide_moved(sides, old, situation, decision)


def _decide_one(
    sides: Sides,
    renamed: Mapping[Address, Address],
    speaking: AbstractSet[Address],
    situation: Situation,
    decision: Decision,
) -> None:
    resource = sides.wanted.resource
    match resource:
        case Cluster():
            decide_cluster(sides, situation, decision)
        case Topic():
            if sides.address not in speaking or not is_spoken_for(sides, situation, decision):
                _decide_topic(sides, renamed, speaking, situation, decision)
        case MirrorTopic():
            decide_mirror(sides, situation, decision)
        case Mounting():
            decide_mounting(sides, situation, decision)
        case Namespace() | MirrorLink():
            converge(sides, situation, decision)
        case TieringPolicy():
            pass
        case _:
            assert_never(resource)


def _decide_topic(
    sides: Sides,
    renamed: Mapping[Address, Address],
    speaking: AbstractSet[Address],
    situation: Situation,
    decision: Decision,
) -> None:
    old = renamed.get(sides.address) or _stopped_mirror(sides, situation)
    before = sides.before or (situation.observed.get(old) if old else None)
    topic, mounting = sides.wanted.resource, situation.mountings.get(sides.address)
    if before is None and mounting is not None:
        decide_mounted(sides, mounting, situation, decision)
    elif old is not None and before is not None:
        hand_over(replace(sides, before=before), old, situation, decision)
    elif before is None and isinstance(topic, Topic) and is_recovery(topic):
        recover(sides, topic, situation, decision)
    elif sides.address in speaking and (there := was_mirror(replace(sides, before=before), situation)) is not None:
        decide_freed(sides, there, situation, decision)
    elif before is None and sides.address in situation.given.detached:
        lies_detached(sides, situation, decision)
    else:
        converge(sides, situation, decision)


def _stopped_mirror(sides: Sides, situation: Situation) -> Address | None:
    """Return the recorded mirror this topic used to be, once its mirroring is over and its entry is gone."""
    mirror = mirror_at(sides.address)
    seen = situation.observed.get(mirror)
    is_left = mirror in situation.recorded and mirror not in situation.wanted
    return mirror if is_left and sides.last is None and seen is not None and seen.state == STOPPED else None


def _speakers(situation: Situation) -> frozenset[Address]:
    """Return the topics that a mounting or a mirror may speak for."""
    recorded = (address for address in situation.recorded if address.startswith(("mounting/", "mirror/")))
    named = {*situation.mirrors, *situation.entries, *recorded}
    topics = (Address("topic/" + name.partition("/")[2]) for name in named)
    swapped = (
        source
        for source, entries in situation.entries_of.items()
        if any(is_two_way(entry, situation) for entry in entries)
    )
    return frozenset({*topics, *situation.mountings, *swapped})
