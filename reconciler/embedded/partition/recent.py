"""Heads as their writer left them: whoever writes alone swaps again without reading first."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from reconciler.embedded.partition.head import Head
    from reconciler.objectstore.register import Held

_KEPT: Final = 128


@dataclass(frozen=True, slots=True)
class Recent:
    """A head after our own swap; what stands there now, only another swap tells."""

    held: Held
    head: Head


class RecentHeads:
    """The heads one writer swapped last, by their keys. Threads share it as long as each has partitions of its own."""

    def __init__(self) -> None:
        """Know none yet."""
        self._heads: OrderedDict[str, Recent] = OrderedDict()

    def __reduce__(self) -> tuple[type[RecentHeads], tuple[()]]:
        """Travel without what is known: elsewhere others have swapped since."""
        return RecentHeads, ()

    def get(self, key: str) -> Recent | None:
        """Return what is known of a head."""
        return self._heads.get(key)

    def put(self, key: str, recent: Recent | None) -> None:
        """Keep or (`None`) forget one; of too many the oldest is forgotten."""
        self._heads.pop(key, None)
        if recent is not None:
            self._heads[key] = recent
        if len(self._heads) > _KEPT:
            self._heads.popitem(last=False)
