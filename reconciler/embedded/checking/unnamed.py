"""What nobody names: parts, pages and pieces of the catalog whose writer is about to name them, or has died."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.embedded.checking.findings import Finding, Kind, Place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reconciler.embedded.checking.headless import Heads
    from reconciler.embedded.checking.stored import Stored
    from reconciler.objectstore.base import Listed, ObjectStore

_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000


@dataclass(slots=True)
class _Folder:
    """What nobody names of one folder."""

    first: str
    objects: int
    bytes: int
    oldest_ms: int


def unnamed_findings(
    store: ObjectStore, stored: Stored, prefixes: Sequence[str], heads: Heads | None
) -> Iterator[Finding]:
    """Yield one finding for each folder with objects that nobody names: lists again only where there are any.

    What is left of partitions that have no head is told apart, where topics are known.
    """
    if stored.is_all_named:
        return
    now_ms = store.clock_ms()
    folders: dict[str, _Folder] = {}
    for prefix in prefixes:
        for listed in stored.unnamed(store.list(prefix)):
            if heads is None or not heads.take(listed):
                _count(folders, listed)
    yield from () if heads is None else heads.findings(now_ms)
    for folder, found in sorted(folders.items()):
        age_ms = max(0, now_ms - found.oldest_ms)
        what = f"{found.objects:,} in {folder} that nobody names, the oldest {age_text(age_ms)} old"
        yield Finding(Kind.UNNAMED, what, Place(found.first), (), found.objects, found.bytes, age_ms)


def age_text(age_ms: int) -> str:
    """Return an age in hours, or in minutes below two of them."""
    return f"{age_ms // _HOUR_MS} h" if age_ms >= 2 * _HOUR_MS else f"{age_ms // _MINUTE_MS} min"


def _count(folders: dict[str, _Folder], listed: Listed) -> None:
    folder = listed.key.rpartition("/")[0] + "/"
    found = folders.setdefault(folder, _Folder(listed.key, 0, 0, listed.modified_ms))
    found.objects += 1
    found.bytes += listed.size
    found.oldest_ms = min(found.oldest_ms, listed.modified_ms)
