"""Mirrors and their sources, all of a link at once: partitions and configs follow, and a source that is lost is told.

What may come back (a topic, the right to read it) is waited for as long as the link says; a topic that is another one
by its id, or has fewer partitions, never is what was mirrored again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.lifecycles.mirror import MirrorStatus
from reconciler.resources.mirroring import SOURCE_TOPIC_ID_CHANGED, SOURCE_TOPIC_MAY_BE_DELETED, Trouble
from reconciler.workflow.linking.following.telling import TaskDone, failed
from reconciler.workflow.linking.following.waiting import NOT_READABLE, WAITED_FOR, judged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.resources.mirroring import MirrorSeen
    from reconciler.resources.syncs import Offered
    from reconciler.workflow.linking.following.sides import Sides

PARTITIONS_DECREASED: Final = "SOURCE_PARTITIONS_DECREASED"


def follow(sides: Sides, offered: Mapping[str, Offered]) -> TaskDone:
    """Bring the mirrors of a link to the shape of their sources."""
    healthy = {
        mirror.name: offered[mirror.source].topic
        for mirror in sides.live
        if mirror.status is not MirrorStatus.PAUSED and _wrong(sides, mirror, offered.get(mirror.source)) is None
    }
    return failed(0, sides.destination.links.syncs.follow(healthy))


def note_sources(sides: Sides, offered: Mapping[str, Offered]) -> tuple[str, ...]:
    """Note which mirrors have lost their sources, and which have them again; return those that are FAILED by it."""
    news: dict[str, Trouble | None] = {}
    ended: list[str] = []
    for mirror in sides.live:
        trouble, known = _wrong(sides, mirror, offered.get(mirror.source)), mirror.trouble
        if trouble is None:
            if known is not None and known.code in WAITED_FOR:
                news[mirror.name] = None
            continue
        found = judged(known, trouble, retry_ms=sides.spec.retry_timeout, now_ms=sides.now_ms)
        if found.is_news:
            news[mirror.name] = trouble
        if found.fails:
            ended.append(mirror.name)
    if news:
        sides.destination.links.syncs.note(news, ended)
    return tuple(ended)


def _wrong(sides: Sides, mirror: MirrorSeen, seen: Offered | None) -> Trouble | None:
    """Return what is wrong with the source of a mirror; `None`: nothing."""
    where, now_ms = f"{mirror.source} of cluster {sides.spec.source}", sides.now_ms
    if seen is None:
        return Trouble(SOURCE_TOPIC_MAY_BE_DELETED, f"its source {where} is gone", now_ms)
    if mirror.source_topic_id is not None and seen.topic.incarnation not in {None, mirror.source_topic_id}:
        message = f"its source {where} was deleted and made anew (its topic id changed)"
        return Trouble(SOURCE_TOPIC_ID_CHANGED, message, now_ms)
    if not seen.is_readable:
        return Trouble(NOT_READABLE, f"an access rule denies reading {where} to {sides.principal}", now_ms)
    if seen.topic.partitions < mirror.partitions:
        message = f"its source {where} has {seen.topic.partitions} partitions, and the mirror {mirror.partitions}"
        return Trouble(PARTITIONS_DECREASED, message, now_ms)
    return None
