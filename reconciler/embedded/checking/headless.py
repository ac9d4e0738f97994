"""Partitions of topics that have objects and no head: a first append has died, or somebody removed the head."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from reconciler.embedded.checking.findings import Finding, Kind, Place
from reconciler.embedded.keys import PAGES, head_key, partition_of_page, partition_of_part

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from typing import TypeAlias

    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.objectstore.base import Listed

    Partition: TypeAlias = tuple[str, int]

_APART_MS: Final = 10 * 60_000
"""Parts further apart were not written by one first append."""


@dataclass(frozen=True, slots=True)
class Headless:
    """Tells of an object whether it lies in a folder of a partition without head. `heads` are the keys of those there.

    A topic's parts lie under the name it has, and under the one it was made with.
    """

    ids: Mapping[str, Collection[str]]
    """Of topics that are there, by either name."""
    names: Mapping[str, str]
    heads: Collection[str]

    @classmethod
    def of(cls, catalog: Catalog, heads: Iterable[str]) -> Headless:
        """Turn a catalog around."""
        ids: defaultdict[str, set[str]] = defaultdict(set)
        for name, entry in catalog.topics.items():
            ids[name].add(entry.id)
            if entry.origin is not None:
                ids[entry.origin[0]].add(entry.id)
        names = {entry.id: name for name, entry in catalog.topics.items()}
        return cls(dict(ids), names, frozenset(heads))

    def partitions(self, key: str) -> list[Partition]:
        """Return the partitions without head whose pages or parts may be the object with this key."""
        if key.startswith(PAGES):
            page = partition_of_page(key)
            places = [] if page is None or page[0] not in self.names else [page]
        else:
            part = partition_of_part(key)
            places = [] if part is None else [(topic_id, part[1]) for topic_id in sorted(self.ids.get(part[0], ()))]
        return [place for place in places if head_key(*place) not in self.heads]

    def is_shared(self, key: str) -> bool:
        """Tell whether a part may as well be of another topic that has, or had, the same name."""
        part = partition_of_part(key)
        return part is not None and len(self.ids.get(part[0], ())) > 1


@dataclass(slots=True)
class _Left:
    first: str
    first_ms: int
    last_ms: int
    objects: int = 0
    bytes: int = 0
    has_pages: bool = False
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class Heads:
    """What partitions without head have left; `committed` are those that a group has read from."""

    headless: Headless
    committed: Collection[Partition]
    left: dict[Partition, _Left] = field(default_factory=dict)

    def take(self, listed: Listed) -> bool:
        """Count an object that nobody names; say whether it is of a partition without head."""
        places = self.headless.partitions(listed.key)
        for place in places:
            left = self.left.setdefault(place, _Left(listed.key, listed.modified_ms, listed.modified_ms))
            left.objects += 1
            left.bytes += listed.size
            left.first_ms, left.last_ms = min(left.first_ms, listed.modified_ms), max(left.last_ms, listed.modified_ms)
            left.has_pages |= listed.key.startswith(PAGES)
            left.is_shared |= self.headless.is_shared(listed.key)
        return bool(places)

    def findings(self, now_ms: int) -> Iterator[Finding]:
        """Yield one finding for each partition."""
        for (topic_id, partition), left in sorted(self.left.items()):
            signs = [
                (left.has_pages, "it has pages"),
                ((topic_id, partition) in self.committed, "a group has read from it"),
                (not left.is_shared and left.last_ms - left.first_ms > _APART_MS, "they were not written at once"),
            ]
            known_by = [why for is_so, why in signs if is_so]
            objects = "1 object" if left.objects == 1 else f"{left.objects:,} objects"
            what = ", ".join([f"{objects} and no {head_key(topic_id, partition)}", *known_by])
            place = Place(left.first, self.headless.names[topic_id], partition)
            kind = Kind.HEAD_LOST if known_by else Kind.PARTS_WITHOUT_HEAD
            yield Finding(kind, what, place, (), left.objects, left.bytes, max(0, now_ms - left.first_ms))
