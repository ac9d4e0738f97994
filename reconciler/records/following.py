"""Whether what a mirror has is still what its source had: told by topic id, end and epochs. Pure.

A log is only ever appended to, or cut and then appended to under a later epoch. So two logs that have the same last
epoch below an offset, begun at the same place, are the same below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.errors import RetryableError, SourceChangedError
from reconciler.resources.mirroring import SOURCE_TOPIC_ID_CHANGED, UNEXPECTED_TRUNCATION

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reconciler.records.log import Reached, SourceSeen

_HINT: Final = "Nothing was copied. Fail over to keep what the mirror has, or delete it and make it again."


def check_followed(name: str, partition: int, reached: Reached, source: SourceSeen) -> None:
    """Return if a partition of a mirror may go on where it was seen to end, before its source was looked at.

    In that order: another runner may bring it beyond what was seen of the source, and that is no contradiction.

    Raises:
        SourceChangedError: Its source was made anew, ends before it, or was cut and written again below its end.
    """
    where = f"{name}, partition {partition}"
    if reached.topic_id is not None and source.topic_id not in {None, reached.topic_id}:
        message = f"{where}: the source was deleted and made anew (its topic id changed)"
        raise SourceChangedError(message, code=SOURCE_TOPIC_ID_CHANGED, hint=_HINT)
    bounds = source.bounds.get(partition)
    if bounds is None:
        return
    if reached.topic_id is not None and bounds.end < reached.end:
        message = f"{where} ends at {reached.end:,}, its source at {bounds.end:,}: the source was cut"
        raise SourceChangedError(message, code=UNEXPECTED_TRUNCATION, hint=_HINT)
    ours, theirs = _last_below(reached.fetched, reached.epochs), _last_below(reached.fetched, bounds.epochs)
    if ours is not None and theirs is not None and ours != theirs:
        message = f"{where}: below {reached.fetched:,}, to which it was copied, the source was cut and written again"
        raise SourceChangedError(message, code=UNEXPECTED_TRUNCATION, hint=_HINT)


def check_current(name: str, partition: int, reached: Reached, source: SourceSeen) -> None:
    """Return if what was staged of a source was seen no earlier than what its copy knows of it.

    A mirror may have stopped and become one again since: what was staged of its source may have been cut there.

    Raises:
        RetryableError: Epochs have begun at the source that were not seen yet.
    """
    bounds = source.bounds.get(partition)
    if bounds is None or reached.topic_id is None or reached.topic_id != source.topic_id:
        return
    if max((epoch for epoch, _ in reached.epochs), default=0) > max((epoch for epoch, _ in bounds.epochs), default=0):
        message = f"{name}, partition {partition}: its source was looked at before it changed hands; nothing was copied"
        raise RetryableError(message, hint="Look at it again.")


def _last_below(offset: int, epochs: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the last epoch that has offsets below one."""
    found = [(epoch, start) for epoch, start in epochs if start < offset]
    return found[-1] if found else None
