"""What a round found wrong with mirrors and links, kept where `mirror errors` shows it; and that it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import NotAuthorizedError, ProducerFencedError, SourceChangedError, UserError
from reconciler.lifecycles.mirror import LinkStatus
from reconciler.resources.mirroring import RECORDS_REFUSED, SOURCE_TOPIC_MAY_BE_DELETED, Trouble
from reconciler.workflow.linking.following.reaching import TIMEOUT
from reconciler.workflow.linking.following.waiting import NOT_READABLE, judged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.errors import ReconcilerError
    from reconciler.providers.base import LinksOfCluster
    from reconciler.resources.mirroring import LinkSeen, MirrorSeen


def trouble_of(error: ReconcilerError, now_ms: int, *, is_gone: bool) -> Trouble | None:
    """Return what an error says of a mirror; `None`: nothing that would stay. `is_gone`: there is no source."""
    match error:
        case SourceChangedError():
            return Trouble(error.code, error.message, now_ms)
        case NotAuthorizedError():
            return Trouble(NOT_READABLE, error.message, now_ms)
        case _ if is_gone:
            return Trouble(SOURCE_TOPIC_MAY_BE_DELETED, error.message, now_ms)
        case ProducerFencedError():
            return None  # Somebody else copies it.
        case UserError():
            return Trouble(RECORDS_REFUSED, error.message, now_ms)
        case _:
            return None


def note_refused(links: LinksOfCluster, mirror: MirrorSeen, error: ReconcilerError, now_ms: int = 0) -> None:
    """Keep that a copy is refused, whoever copied; all else is judged by rounds, which know how long it was waited."""
    trouble = trouble_of(error, now_ms, is_gone=False)
    if trouble is not None and trouble.code == RECORDS_REFUSED and mirror.trouble is None:
        links.trouble(mirror.name, trouble)


def is_denied(mirror: MirrorSeen) -> bool:
    """Tell whether its link may not read its source: nothing is copied until the pass over its link finds it may."""
    return mirror.trouble is not None and mirror.trouble.code == NOT_READABLE


def note_mirror(
    links: LinksOfCluster, mirror: MirrorSeen, trouble: Trouble | None, *, retry_ms: int, now_ms: int
) -> None:
    """Keep what is wrong with a mirror; it is FAILED at once where nothing can mend it, else after the time-out."""
    if trouble is None:
        if mirror.trouble is not None and not is_denied(mirror):
            links.trouble(mirror.name, None)
        return
    found = judged(mirror.trouble, trouble, retry_ms=retry_ms, now_ms=now_ms)
    if found.is_news:
        links.trouble(mirror.name, trouble, fails=found.fails)


def note_links(
    links: LinksOfCluster, seen: Mapping[str, LinkSeen], lost: Mapping[str, ReconcilerError], now_ms: int
) -> None:
    """Keep which links reach their sources: `lost` are clusters that do not answer. A link that is broken stays so."""
    for name, link in seen.items():
        error = lost.get(link.declared.spec.source)
        if error is not None and link.status is LinkStatus.ACTIVE:
            links.link_trouble(name, LinkStatus.UNAVAILABLE, Trouble(TIMEOUT, error.message, now_ms))
        elif error is None and link.status is LinkStatus.UNAVAILABLE:
            links.link_trouble(name, LinkStatus.ACTIVE, None)
