"""Whether what a mirror has is still what its source had: told by topic id, end and epochs. Pure.

A log is only ever appended to, or cut and then appended to under a later epoch. So two logs that have the same last
epoch below an offset, begun at the same place, are the same below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import SourceChangedError
from reconciler.resources.mirroring import SOURCE_TOPIC_ID_CHANGED, UNEXPECTED_TRUNCATION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from reconciler.embedded.partition.head import Head
    from reconciler.records.log import SourceSeen

Json = dict[str, Any]

_HINT: Final = "Nothing was copied. Fail over to keep what the mirror has, or delete it and make it again."


def check_followed(full_name: str, partition: int, head: Head, source: SourceSeen) -> None:
    """Return if a mirror's partition may go on where it ends.

    Raises:
        SourceChangedError: Its source was made anew, ends before it, or was cut and written again below its end.
    """
    kept = head.source or {}
    where = f"{full_name}, partition {partition}"
    if kept.get("topic_id") is not None and source.topic_id not in {None, kept["topic_id"]}:
        message = f"{where}: the source was deleted and made anew (its topic id changed)"
        raise SourceChangedError(message, code=SOURCE_TOPIC_ID_CHANGED, hint=_HINT)
    bounds = source.bounds.get(partition)
    if bounds is None:
        return
    if bounds.end < head.end:
        message = f"{where} ends at {head.end:,}, its source at {bounds.end:,}: the source was cut"
        raise SourceChangedError(message, code=UNEXPECTED_TRUNCATION, hint=_HINT)
    fetched: int = kept.get("fetched", 0)
    ours, theirs = _last_below(fetched, kept.get("epochs", ())), _last_below(fetched, bounds.epochs)
    if ours is not None and theirs is not None and ours != theirs:
        message = f"{where}: below offset {fetched:,}, to which it was copied, the source was cut and written again"
        raise SourceChangedError(message, code=UNEXPECTED_TRUNCATION, hint=_HINT)


def followed(source: SourceSeen, partition: int, end: int) -> Json | None:
    """Return what a head keeps of what it was copied from: all below `end` is that log, under those epochs."""
    bounds = source.bounds.get(partition)
    epochs = () if bounds is None else bounds.epochs
    return {"topic_id": source.topic_id, "epochs": [list(epoch) for epoch in epochs], "fetched": end}


def _last_below(offset: int, epochs: Iterable[Sequence[int]]) -> tuple[int, int] | None:
    """Return the last epoch that has offsets below one."""
    found = [(epoch, start) for epoch, start in epochs if start < offset]
    return found[-1] if found else None
