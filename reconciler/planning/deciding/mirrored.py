"""Topics that are mirrors, or were: whether their manifest or a mirror entry speaks for them, and what they become."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.planning.deciding.converge import converge
from reconciler.planning.deciding.decision import Decision
from reconciler.planning.deciding.mounted import not_there_yet
from reconciler.planning.deciding.underway import is_broken_off
from reconciler.planning.situation import COPYING, is_live, mirror_at, source_of, topic_of
from reconciler.planning.wanted.commandmarks import NOTHING, STATE, said_then
from reconciler.planning.wanted.sources import taken_from_source
from reconciler.planning.wanted.ways import entry_behind, frees, way_of
from reconciler.resources.inventory import Observed
from reconciler.resources.mirrorlink import MirrorTopic
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from reconciler.planning.deciding.decision import Sides
    from reconciler.planning.situation import Situation
    from reconciler.resources.address import Address


def is_mirror(sides: Sides, situation: Situation, decision: Decision) -> bool:
    """Tell whether a Topic manifest is left alone now, because its topic is a mirror, or becomes one by this plan."""
    address = mirror_at(sides.address)
    entry, seen = situation.entries.get(address), situation.observed.get(address)
    if entry is not None and entry.state in COPYING:
        _refuse_both(sides, entry, situation, decision)
        return True
    if is_freed(sides.address, situation):
        return False  # the transition comes first; afterwards the topic owns its configs
    if (behind := entry_behind(sides.address, situation)) is not None:
        _say_mirrored(sides.address, sides.wanted.source, behind[0], situation, decision)
        return True
    if entry is not None:
        return is_live(seen)
    if seen is not None and is_live(seen) and address not in situation.recorded:
        _refuse_strange(sides, seen, decision)
        return True
    return False


def is_freed(topic: Address, situation: Situation) -> bool:
    """Tell whether a topic is a live mirror that this plan makes an ordinary one."""
    if not is_live(situation.observed.get(mirror_at(topic))):
        return False
    own = situation.entries.get(mirror_at(topic))
    entries = (*((own,) if own is not None else ()), *situation.entries_of.get(topic, ()))
    return any(topic in frees(way_of(entry, situation)) for entry in entries if situation.is_decidable(entry.address))


def was_mirror(sides: Sides, situation: Situation) -> Observed | None:
    """Return a topic as it is once its mirroring is over, where it is seen as a mirror alone."""
    seen = situation.observed.get(mirror_at(sides.address))
    if seen is None or sides.before is not None or (is_live(seen) and not is_freed(sides.address, situation)):
        return None
    topic, mirror = sides.wanted.resource, seen.resource
    if not isinstance(topic, Topic) or not isinstance(mirror, MirrorTopic):
        return None
    return replace(seen, resource=seen.becomes or _as_topic(topic, mirror, situation), state=None, becomes=None)


def decide_freed(sides: Sides, there: Observed, situation: Situation, decision: Decision) -> None:
    """Own a topic, and change it to what its manifest says, once its mirroring is over."""
    found = Decision()
    converge(replace(sides, before=there), situation, found)
    decision.actions += not_there_yet(found.actions)
    decision.errors += found.errors
    decision.warnings += found.warnings


def belongs_to_entry(topic: Address, situation: Situation) -> bool:
    """Tell whether a topic is what an entry's mirror became: not one that is in the way of a new mirror."""
    entry = situation.entries.get(mirror_at(topic))
    return entry is not None and (entry.state not in COPYING or way_of(entry, situation) is not None)


def say_kept(address: Address, situation: Situation, decision: Decision) -> bool:
    """Tell whether a topic that left the files is a mirror for now, so that it is neither deleted nor forgotten."""
    behind = entry_behind(address, situation)
    if behind is None:
        return False
    decision.warn(
        address,
        None,
        f"it left the files while it mirrors {topic_of(behind[0])}: it is neither deleted nor forgotten now",
        "It is planned for deletion once it is a topic again, or when the link's entry is gone, too.",
    )
    return True


def _say_mirrored(
    topic: Address, source: str | None, entry: MirrorTopic, situation: Situation, decision: Decision
) -> None:
    is_now = is_live(situation.observed.get(mirror_at(topic)))
    now = "is a mirror of" if is_now else "becomes a mirror of"
    message = f"it {now} {topic_of(entry)}: its manifest is left alone until it is a topic again"
    decision.warn(topic, source, message, _way_back(entry, situation))


def _way_back(entry: MirrorTopic, situation: Situation) -> str:
    """Return who swapped the roles of an entry and its source, and what swaps them back."""
    at, back = situation.wanted[entry.address], mirror_at(source_of(entry))
    if is_broken_off(back, situation):
        return f"Its reversal was broken off: reconciler mirror failover {back}"
    said = said_then(at.origins.get(STATE, ""))
    if said is not None:
        files = "do not name it" if said == NOTHING else f"say {said}"
        made = f"{entry.address} was made {entry.state} by a command, and the files {files}"
        return f"{made}. To swap the roles back: reconciler mirror reverse {back}"
    declared = f"{entry.address} ({at.source}) is declared {entry.state}"
    if entry.state in COPYING:
        return f"{declared}: it mirrors again once {back} has come to that."
    return f"{declared}; state mirroring swaps the roles back."


def _refuse_both(sides: Sides, entry: MirrorTopic, situation: Situation, decision: Decision) -> None:
    wanted = situation.wanted[entry.address]
    decision.refuse(
        sides.address,
        sides.wanted.source,
        f"it is declared as a topic and, at {wanted.source}, as a mirror that is {entry.state}",
        "Remove one of the two: a live mirror takes its configs from its source.",
        marks=wanted.marks,
    )


def _refuse_strange(sides: Sides, seen: Observed, decision: Decision) -> None:
    mirror = seen.resource
    link = mirror.link if isinstance(mirror, MirrorTopic) else "a link"
    message = f"a mirror of that name was made by link/{sides.address.split('/')[1]}/{link}"
    hint = "Exclude the name from the link's autoCreate filters and delete the mirror, or remove the Topic."
    if isinstance(mirror, MirrorTopic) and not seen.is_automatic:
        hint = f"Name {mirror.source} in the link's mirrorTopics, with state promoted or failed-over; or: {hint}"
    decision.refuse(sides.address, sides.wanted.source, message, hint)


def _as_topic(topic: Topic, mirror: MirrorTopic, situation: Situation) -> Topic:
    """Return what a mirror is without its link, as far as it can be told: its own configs, and its source's."""
    synced = taken_from_source(mirror, situation).get("configs")
    taken = {key: str(value) for key, value in synced.items()} if isinstance(synced, dict) else {}
    changed = {"partitions": mirror.partitions, "configs": {**taken, **mirror.configs}, "acls": ()}
    return topic.model_copy(update={"spec": topic.spec.model_copy(update=changed)})
