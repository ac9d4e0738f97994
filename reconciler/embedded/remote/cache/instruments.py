"""What the caches tell a monitoring system: what this process asked of them, and what they take on this machine."""

from __future__ import annotations

from collections import Counter
from threading import Lock
from typing import TYPE_CHECKING, Final

from reconciler.embedded.remote.cache.folder import usable_folder
from reconciler.embedded.remote.cache.trimming import usage_of, walk

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOCK: Final = Lock()
_COUNTS: Final[Counter[str]] = Counter()
"""Of this process: the caches of a machine are one for everybody, as `machine` has them."""


def count_of_cache(name: str) -> None:
    """Count what a cache did, by the names of `resources.vitals.COUNTED`. Safe from any thread."""
    with _LOCK:
        _COUNTS[name] += 1


def taken_of_caches() -> Mapping[str, int]:
    """Return what was counted since this was last asked."""
    with _LOCK:
        counts = dict(_COUNTS)
        _COUNTS.clear()
    return counts


def cache_levels(properties: Mapping[str, str], default_folder: str | None) -> Mapping[str, float]:
    """Return what the cache takes on this machine, by the names of `resources.vitals.LEVELS`: one walk of its folder.

    Raises:
        UserError: The properties declare no full path.
    """
    folder = usable_folder(properties, default_folder)
    if folder is None:
        return {}
    lying = walk(str(folder))
    used = usage_of(lying)
    segments = {each.segment for each in lying}
    return {"active_segments": len(segments), "cache_space_size_bytes": used.bytes, "cache_space_files": used.objects}
