"""How long a mirror waits for its source, whoever finds what is wrong with it: a pass over its link, or a round.

What may come back (a topic, the right to read it) is given up once it was gone for longer than the link says; what the
destination refuses is never given up, for the source still has it; nothing else is waited for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.resources.mirroring import RECORDS_REFUSED, SOURCE_TOPIC_MAY_BE_DELETED
from reconciler.workflow.linking.following.pacing import INFINITE

if TYPE_CHECKING:
    from reconciler.resources.mirroring import Trouble

NOT_READABLE: Final = "AUTHORIZATION_ERROR"
WAITED_FOR: Final = frozenset({SOURCE_TOPIC_MAY_BE_DELETED, NOT_READABLE})
"""What a mirror waits for, and what is over once the source is there again and may be read."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What to make of a trouble: whether the mirror is FAILED by it, and whether there is anything to write down."""

    fails: bool
    is_news: bool


def judged(known: Trouble | None, trouble: Trouble, *, retry_ms: int, now_ms: int) -> Judged:
    """Judge a trouble of a mirror by the one that is `known` of it: however it is put, it is written once."""
    is_known = known is not None and known.code == trouble.code
    since_ms = known.since_ms if known is not None and is_known else now_ms
    if trouble.code == RECORDS_REFUSED:
        return Judged(fails=False, is_news=not is_known)
    is_over = retry_ms != INFINITE and now_ms - since_ms > retry_ms
    fails = trouble.code not in WAITED_FOR or is_over
    return Judged(fails, is_news=fails or not is_known)
