"""Sources before what follows them, so that one pass brings a mirror of a mirror all the way.

Clusters may follow each other over links that go both ways. Nothing waits for itself: a circle is cut where it closes.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from reconciler.resources.mirrorlink import MirrorLink

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from reconciler.resources.inventory import Inventory
    from reconciler.resources.mirroring import MirrorSeen

_Node = TypeVar("_Node")


def by_distance(mirrors: Sequence[MirrorSeen]) -> Iterator[tuple[MirrorSeen, ...]]:
    """Yield mirrors of what is none of them, then mirrors of those, and so on; each time in the order given."""
    places = {(one.cluster, one.name): one for one in mirrors}
    follows = {place: [(one.source_cluster, one.source)] for place, one in places.items()}
    depths = _depths(follows)

    def distance(one: MirrorSeen) -> int:
        return depths[one.cluster, one.name]

    for _, alike in groupby(sorted(mirrors, key=distance), distance):
        yield tuple(alike)


def sources_first(inventories: Mapping[str, Inventory]) -> list[str]:
    """Return clusters, those that the links of others lead from before these."""
    follows = {name: list(_sources(found)) for name, found in sorted(inventories.items())}
    depths = _depths(follows)
    return sorted(follows, key=lambda name: (depths[name], name))


def _sources(inventory: Inventory) -> Iterable[str]:
    return sorted({item.resource.spec.source for item in inventory.values() if isinstance(item.resource, MirrorLink)})


def _depths(follows: Mapping[_Node, Sequence[_Node]]) -> dict[_Node, int]:
    """Return how many of these lie before each one, at most; what is not among them counts for nothing."""
    depths: dict[_Node, int] = {}
    for start in follows:
        path: dict[_Node, Iterator[_Node]] = {}
        node: _Node | None = None if start in depths else start
        while node is not None:
            path.setdefault(node, iter(follows[node]))
            above = next((one for one in path[node] if one in follows and one not in path and one not in depths), None)
            if above is None:
                depths[node] = max((depths[one] + 1 for one in follows[node] if one in depths), default=0)
                del path[node]
                above = next(reversed(path), None)
            node = above
    return depths
