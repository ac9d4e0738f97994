"""From the role wanted of a mirror to the verbs, as both of its clusters are observed.

After a reversal the mirror lives on the other cluster, under the half of its link there. That one is looked for before
anything is decided: the verbs are then asked of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, assert_never

from reconciler.lifecycles.mirror import MIRROR, REVERSAL_SUSPENDED, MirrorStatus
from reconciler.lifecycles.roles import Ask, Held, Refuse, Role, Wait, towards
from reconciler.planning.situation import is_live, mirror_at, source_of, topic_of
from reconciler.planning.wanted.commandmarks import PEER, STATE
from reconciler.resources.address import address_of
from reconciler.resources.mirrorlink import MirrorLink, MirrorTopic

if TYPE_CHECKING:
    from reconciler.lifecycles.roles import Verdict
    from reconciler.planning.situation import Situation
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Observed

ENDS: Final = {
    "promote": MirrorStatus.STOPPED,
    "reverse-and-start": MirrorStatus.STOPPED,
    "reverse-and-pause": MirrorStatus.STOPPED,
    "truncate-and-restore": MirrorStatus.ACTIVE,
}
"""Where a verb ends that takes more than one step; the others end where the table says."""

_REVERSALS: Final = frozenset({"reverse-and-start", "reverse-and-pause"})
_COPYING: Final = frozenset({"promote", *_REVERSALS})
_ROLE_OF_PEER: Final[dict[Role, Role]] = {"reversed": "mirroring", "mirroring": "reversed", "paused": "reversed"}
"""What is wanted of the mirror on the other cluster, once the roles were swapped."""


@dataclass(frozen=True, slots=True)
class Step:
    """One verb: whom it is asked of, with the role it has after it, and where that leads."""

    mirror: MirrorTopic
    verb: str
    from_state: MirrorStatus
    to_state: MirrorStatus


@dataclass(frozen=True, slots=True)
class Asked:
    """These verbs lead there; none: it is there already."""

    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Waited:
    """It is on its way there, or in a state this version has no word for."""

    address: Address
    state: str


@dataclass(frozen=True, slots=True)
class Refused:
    """No legal way leads there."""

    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Whether a way leads there cannot be told, or not gone, as long as a cluster is not read."""

    message: str
    hint: str


Way = Asked | Waited | Refused | LeftOut


def peer_of(mirror: MirrorTopic) -> MirrorTopic:
    """Return the mirror that the source of a mirror is once the roles are swapped."""
    return MirrorTopic(
        cluster=mirror.source_cluster,
        link=mirror.link,
        source_cluster=mirror.cluster,
        source=mirror.name,
        name=mirror.source,
        partitions=mirror.partitions,
    )


def status_of(seen: Observed) -> MirrorStatus | None:
    """Return the state of an observed mirror; `None` where this version has no word for it."""
    try:
        return MirrorStatus(seen.state or MirrorStatus.ACTIVE)
    except ValueError:
        return None


def is_two_way(mirror: MirrorTopic, situation: Situation) -> bool:
    """Tell whether the roles of a mirror and its source can be swapped: its link is, or is to be, bidirectional."""
    address = address_of("link", mirror.cluster, mirror.link)
    item = situation.wanted.get(address) or situation.observed.get(address)
    return item is not None and isinstance(item.resource, MirrorLink) and item.resource.spec.mode == "bidirectional"


def mirrored_back(mirror: MirrorTopic, situation: Situation) -> Observed | None:
    """Return the live mirror on the other cluster that follows what this one is, or was: their roles are swapped."""
    peer = peer_of(mirror)
    seen = situation.observed.get(peer.address)
    if seen is None or not is_live(seen) or not isinstance(seen.resource, MirrorTopic):
        return None
    there = seen.resource
    is_it = (there.link, there.source_cluster, there.source) == (peer.link, peer.source_cluster, peer.source)
    return seen if is_it else None


def way_of(mirror: MirrorTopic, situation: Situation) -> Way | None:
    """Return how a mirror gets the role wanted of it; `None`: there is none to begin with, on neither cluster.

    Nothing is asked of one that has its role by a command.
    """
    way = _way_of(mirror, situation)
    item = situation.wanted.get(mirror.address)
    is_by_command = item is not None and STATE in item.origins
    return Asked() if is_by_command and isinstance(way, Asked) else way


def _way_of(mirror: MirrorTopic, situation: Situation) -> Way | None:
    seen = situation.observed.get(mirror.address)
    back = None if is_live(seen) else mirrored_back(mirror, situation)
    if back is not None and mirror.state in _ROLE_OF_PEER:
        return _of_peer(mirror, back, situation)
    if seen is None:
        return None
    status = status_of(seen)
    if status is None:
        return Waited(mirror.address, seen.state or "")
    if status is MirrorStatus.STOPPED and mirror.state in _ROLE_OF_PEER:
        return _of_stopped(mirror, seen, situation)
    return _of_live(mirror, status, situation)


def frees(way: Way | None) -> frozenset[Address]:
    """Return the topics that take records of their own once a way is gone."""
    steps = way.steps if isinstance(way, Asked) else ()
    return frozenset(topic_of(step.mirror) for step in steps if step.to_state is MirrorStatus.STOPPED)


def takes(way: Way | None) -> frozenset[Address]:
    """Return the ordinary topics that are mirrors once a way is gone."""
    steps = way.steps if isinstance(way, Asked) else ()
    swapped = (source_of(step.mirror) for step in steps if step.verb in _REVERSALS)
    return frozenset((*swapped, *(topic_of(step.mirror) for step in steps if step.verb == "truncate-and-restore")))


def _of_live(mirror: MirrorTopic, status: MirrorStatus, situation: Situation) -> Way:
    peer = situation.observed.get(peer_of(mirror).address)
    is_suspended = status is MirrorStatus.PAUSED and peer is not None and peer.state == MirrorStatus.PENDING_MIRROR
    verdict = towards(mirror.state, status, is_suspended=is_suspended)
    is_for_both = isinstance(verdict, Ask) and mirror.state in {"promoted", "reversed"}
    if is_for_both and mirror.source_cluster not in situation.trusted:
        return LeftOut(
            f"it cannot become {mirror.state}: its source, cluster {mirror.source_cluster}, was not read",
            "Plan again with both clusters. Where the source is lost for good, state failed-over works without it.",
        )
    return _source_gone(mirror, status, verdict, situation) or _way(mirror, status, verdict, is_suspended=is_suspended)


def _source_gone(mirror: MirrorTopic, status: MirrorStatus, verdict: Verdict, situation: Situation) -> Refused | None:
    """Refuse what copies from a topic that is not on its cluster any more."""
    if not isinstance(verdict, Ask) or not _COPYING.intersection(verdict.verbs):
        return None
    source = source_of(mirror)
    if source in situation.observed or mirror_at(source) in situation.observed:
        return None
    return Refused(
        f"{mirror.address} is {status}, and its source {source} is gone: it can neither be promoted nor reversed",
        "To keep what it has: state failed-over, or `reconciler mirror failover`.",
    )


def _of_peer(mirror: MirrorTopic, back: Observed, situation: Situation) -> Way:
    """Ask of the mirror on the other cluster what leads to the role wanted of this one."""
    peer = peer_of(mirror)
    status = status_of(back)
    if status is None:
        return Waited(peer.address, back.state or "")
    seen = situation.observed.get(mirror.address)
    role = _ROLE_OF_PEER[mirror.state]
    is_suspended = seen is not None and seen.state == MirrorStatus.PENDING_MIRROR
    item = situation.wanted.get(mirror.address)
    if status is MirrorStatus.PAUSED and not is_suspended and item is not None and PEER in item.origins:
        return Asked()
    verdict = towards(role, status, is_suspended=is_suspended)
    if isinstance(verdict, Ask) and mirror.state == "paused":
        verdict = Ask(tuple("reverse-and-pause" if verb in _REVERSALS else verb for verb in verdict.verbs))
    if isinstance(verdict, Refuse):
        legal = ", ".join(MIRROR.legal(status)) or "none"
        return Refused(
            f"{peer.address} mirrors it since their roles were swapped, is {status} and cannot become {role}",
            f"{verdict.hint} Legal from there: {legal}.",
        )
    after = peer.model_copy(update={"state": role})
    return _source_gone(after, status, verdict, situation) or _way(after, status, verdict, is_suspended=is_suspended)


def _of_stopped(mirror: MirrorTopic, seen: Observed, situation: Situation) -> Way:
    """A stopped mirror goes on where it is the original source of the other's stopped mirror, and the reverse."""
    if not is_two_way(mirror, situation):
        return _way(mirror, MirrorStatus.STOPPED, _refusal(mirror))
    if mirror.source_cluster not in situation.trusted:
        return LeftOut(
            f"it is STOPPED, and whether its source mirrors it cannot be told: cluster {mirror.source_cluster} "
            "was not read",
            "Plan again with both clusters.",
        )
    peer = peer_of(mirror)
    there = situation.observed.get(peer.address)
    is_other_last = there is not None and there.since_ms > seen.since_ms
    if mirror.state == "mirroring" and is_other_last:
        return _restore(mirror, MirrorStatus.STOPPED)
    if mirror.state != "reversed":
        return _way(mirror, MirrorStatus.STOPPED, _refusal(mirror))
    if is_other_last:
        return Refused(
            f"it is STOPPED and cannot become reversed: {peer.address} stopped after it, so that this one is the "
            "original source",
            "What can be restored is this side: state mirroring cuts it to where the other stopped, and mirrors it.",
        )
    if there is None and source_of(mirror) not in situation.observed:
        return Refused(
            f"it is STOPPED and cannot become reversed: {source_of(mirror)} is gone, so there is nothing to restore",
            f"Mirror it afresh over a link on cluster {mirror.source_cluster}, and remove this entry.",
        )
    return _restore(peer, MirrorStatus.REGULAR if there is None else MirrorStatus.STOPPED)


def _refusal(mirror: MirrorTopic) -> Verdict:
    return towards(mirror.state if mirror.state != "reversed" else "mirroring", MirrorStatus.STOPPED)


def _restore(mirror: MirrorTopic, state: MirrorStatus) -> Asked:
    verb = "truncate-and-restore"
    return Asked((Step(mirror, verb, state, ENDS[verb]),))


def _way(mirror: MirrorTopic, status: MirrorStatus, verdict: Verdict, *, is_suspended: bool = False) -> Way:
    match verdict:
        case Held():
            return Asked()
        case Wait():
            return Waited(mirror.address, status.value)
        case Refuse():
            legal = ", ".join(MIRROR.legal(status)) or "none"
            return Refused(
                f"it is {status} and cannot become {mirror.state}", f"{verdict.hint} Legal from there: {legal}."
            )
        case Ask():
            return Asked(tuple(_steps(mirror, status, verdict.verbs, is_suspended=is_suspended)))
        case _:
            assert_never(verdict)


def _steps(mirror: MirrorTopic, status: MirrorStatus, verbs: tuple[str, ...], *, is_suspended: bool) -> list[Step]:
    steps: list[Step] = []
    for verb in verbs:
        condition = REVERSAL_SUSPENDED if is_suspended and verb == "resume" else ""
        reached = MIRROR.step(status, verb, condition=condition)
        steps.append(Step(mirror, verb, status, ENDS.get(verb, reached)))
        status = steps[-1].to_state
    return steps


def entry_behind(topic: Address, situation: Situation) -> tuple[MirrorTopic, Observed | None] | None:
    """Return the entry whose reversal or restore makes, or made, a topic a mirror; and that mirror, if it lives."""
    live = situation.observed.get(mirror_at(topic))
    for entry in situation.entries_of.get(topic, ()):
        back = mirrored_back(entry, situation)
        if back is not None and live is back:
            return entry, back
        if is_two_way(entry, situation) and topic in takes(way_of(entry, situation)):
            return entry, None
    return None
