"""The partition manifest: the register that references all remote segments of a partition.

It references the newest segments, and pages with older ones. Offsets between segments are gaps (aborted or compacted
records). Objects are stored before a swap references them, and deleted after a swap moves them to `garbage`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import orjson

from reconciler.archives.entries import Entry, PageRef
from reconciler.archives.keys import build_index_key, build_manifest_key, create_manifest_page_key
from reconciler.archives.location import TopicLocation
from reconciler.archives.objects import damaged_error, decode_object
from reconciler.archives.pages import encode_entries_page, read_page
from reconciler.errors import LostRaceError, MissingObjectError, OwnershipLostError, RetryableError, UnansweredError
from reconciler.objectstore.register import Register, RegisterSnapshot, create_mark
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.archives.location import TopicTiering
    from reconciler.objectstore.base import ObjectStore


Json = dict[str, Any]

_SHAPE: Final = {
    "owner": str,
    "owner_epoch": int,
    "tiered_epoch": int,
    "start": int,
    "end": int,
    "epochs": [[int]],
    "uploaded_ms": int,
    "compacted_to?": int,
    "learned?": [int],
    "pages": list,
    "entries": list,
    "garbage?": {"pages": list, "entries": list},
}


NOBODY: Final = "nobody"


@dataclass(frozen=True, slots=True)
class Garbage:
    """Unreferenced objects to delete (KIP-405: DELETE_SEGMENT_STARTED)."""

    pages: tuple[PageRef, ...] = ()
    entries: tuple[Entry, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pages or self.entries)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A partition in object storage. Offsets below `start` are deleted; `end` is the next to upload."""

    owner: str
    owner_epoch: int = 0
    """Increases with each change of owner, and fences earlier writers."""
    tiered_epoch: int = 0
    """Tiering epoch of the last writer; swaps under an earlier one change nothing."""
    start: int = 0
    end: int = 0
    epochs: tuple[tuple[int, int], ...] = ((0, 0),)
    """Leader epochs and their first offsets, oldest first."""
    uploaded_ms: int = 0
    compacted_to: int = 0
    """Offset below which every key occurs only once."""
    learned: tuple[int, int] = (0, 0)
    """Leader epoch of the last compaction, and end of the offsets that it searched for superseding records."""
    pages: tuple[PageRef, ...] = ()
    entries: tuple[Entry, ...] = ()
    garbage: Garbage = field(default_factory=Garbage)

    @property
    def stored_bytes(self) -> int:
        """Size of the manifest's segments, without garbage."""
        return sum(page.bytes for page in self.pages) + sum(entry.bytes for entry in self.entries)

    @property
    def segments(self) -> int:
        """Number of remote segments."""
        return sum(page.entries for page in self.pages) + len(self.entries)

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(page.records for page in self.pages) + sum(entry.digest.records for entry in self.entries)

    def to_json(self) -> Json:
        """Convert to JSON."""
        values: Json = {
            "owner": self.owner,
            "owner_epoch": self.owner_epoch,
            "tiered_epoch": self.tiered_epoch,
            "start": self.start,
            "end": self.end,
            "epochs": self.epochs,
            "uploaded_ms": self.uploaded_ms,
            "pages": [page.to_json() for page in self.pages],
            "entries": [entry.to_json() for entry in self.entries],
        }
        if self.compacted_to:
            values["compacted_to"] = self.compacted_to
        if self.learned[1]:
            values["learned"] = self.learned
        if self.garbage:
            values["garbage"] = {
                "pages": [page.to_json() for page in self.garbage.pages],
                "entries": [entry.to_json() for entry in self.garbage.entries],
            }
        return values

    @classmethod
    def from_json(cls, values: Json) -> Manifest:
        """Parse JSON."""
        garbage = values.get("garbage") or {"pages": (), "entries": ()}
        learned_in, learned_to = values.get("learned", (0, 0))
        return cls(
            owner=values["owner"],
            owner_epoch=values["owner_epoch"],
            tiered_epoch=values["tiered_epoch"],
            start=values["start"],
            end=values["end"],
            epochs=tuple((epoch, start) for epoch, start in values["epochs"]),
            uploaded_ms=values["uploaded_ms"],
            compacted_to=values.get("compacted_to", 0),
            learned=(learned_in, learned_to),
            pages=tuple(map(PageRef.from_json, values["pages"])),
            entries=tuple(map(Entry.from_json, values["entries"])),
            garbage=Garbage(
                tuple(map(PageRef.from_json, garbage["pages"])), tuple(map(Entry.from_json, garbage["entries"]))
            ),
        )


@dataclass(frozen=True, slots=True, order=True)
class RemotePartition:
    """A partition in the remote tier; its location does not depend on the owner."""

    cluster_id: str
    revision: int
    number: int

    @property
    def key(self) -> str:
        """Key of its manifest."""
        return build_manifest_key(self.cluster_id, self.revision, self.number)

    @property
    def key_prefix(self) -> str:
        """Prefix of its objects' keys, without trailing slash."""
        return self.key.rpartition("/")[0]

    def __str__(self) -> str:
        return f"remote partition {self.number} of {self.cluster_id}/{self.revision}"


def remote_partition(location: TopicLocation, number: int) -> RemotePartition:
    """Return a partition at a location."""
    return RemotePartition(location.cluster_id, location.revision, number)


def manifest_register(storage: ObjectStore, partition: RemotePartition) -> Register:
    """Return a partition's register."""
    return Register(storage, partition.key, format="reconciler.manifest/1", shape=_SHAPE)


def parse_manifest(storage: ObjectStore, key: str, values: Json) -> Manifest:
    """Parse a manifest; reject contradictions."""
    manifest = decode_object(storage, key, values, Manifest.from_json)
    contradiction = next(_find_contradictions(manifest), None)
    if contradiction is not None:
        raise damaged_error(storage, key, f"the manifest contradicts itself: {contradiction}")
    return manifest


def read_manifest(storage: ObjectStore, partition: RemotePartition) -> Manifest | None:
    """Return a partition's manifest; `None` if nothing was uploaded."""
    held = manifest_register(storage, partition).read()
    return None if held is None else parse_manifest(storage, partition.key, held.value)


def _find_contradictions(manifest: Manifest) -> Iterator[str]:
    if not 0 <= manifest.start <= manifest.end:
        yield f"it begins at offset {manifest.start} and ends at {manifest.end}"
    if not manifest.epochs:
        yield "it has no epoch"
    last = -1
    named: list[PageRef | Entry] = [*manifest.pages, *manifest.entries]
    for item in named:
        if not last < item.base <= item.last:
            yield f"{item.key} has offsets {item.base} to {item.last}, after offset {last}"
        last = item.last
    if last >= manifest.end:
        yield f"it ends at {manifest.end} and names offset {last}"


def check_manifest_owner(what: object, manifest: Manifest, cluster_id: str) -> None:
    """Raise `OwnershipLostError` if another cluster owns a manifest, which `what` names."""
    if manifest.owner != cluster_id:
        raise ownership_lost_error(what, manifest.owner)


def ownership_lost_error(what: object, owner: str) -> OwnershipLostError:
    """Return the error for an object that belongs to `owner`."""
    whose = "no cluster now: it was released" if owner == NOBODY else f"cluster {owner} now"
    hint = (
        "Nothing was changed; list topics with their owners: reconciler mount list. Records written here since then "
        "are only in this topic: copy them if you need them, then delete the topic here. Its objects stay."
    )
    return OwnershipLostError(f"{what} belongs to {whose}", hint=hint)


PAGES_PER_MERGE: Final = 8
"""Number of adjacent pages of similar size to merge."""
_LARGEST: Final = 8 * 1024 * 1024
_ENTRY: Final = 300


class ManifestSpill:
    """Writes pages of a manifest for one change; retries after a lost race reuse them.

    All pages contain entries, so a read needs one page.
    """

    def __init__(self, storage: ObjectStore, partition: RemotePartition, page_bytes: int) -> None:
        self._storage = storage
        self._partition = partition
        self._page_bytes = page_bytes
        self._written: dict[bytes, PageRef] = {}
        self._joined: dict[str, None] = {}

    def spill(self, manifest: Manifest) -> Manifest:
        """Return the manifest, with older entries moved to pages until at most two pages' size remains."""
        self._joined.clear()
        sizes = [len(orjson.dumps(entry.to_json())) for entry in manifest.entries]
        if sum(sizes) <= 2 * self._page_bytes:
            return manifest
        entries, pages = list(manifest.entries), list(manifest.pages)
        while sum(sizes) > 2 * self._page_bytes and len(entries) > 1:
            count, taken = 0, 0
            while taken < self._page_bytes and count < len(entries) - 1:
                taken += sizes[count]
                count += 1
            pages.append(self.write_page(entries[:count]))
            del entries[:count], sizes[:count]
        return replace(manifest, pages=tuple(self._merge_pages(pages)), entries=tuple(entries))

    def write_page(self, entries: Sequence[Entry]) -> PageRef:
        """Write a page unless one with the same content was written."""
        body = encode_entries_page(entries)
        page = self._written.get(body)
        if page is None:
            partition = self._partition
            key = create_manifest_page_key(partition.cluster_id, partition.revision, partition.number)
            page = self._written[body] = PageRef.from_entries(key, entries)
            self._storage.put(page.key, body)
        return page

    def list_superfluous_pages(self, held: Manifest | None) -> list[str]:
        """Return the keys of pages that the manifest `held` does not need; `None` means an unchanged manifest."""
        named = set() if held is None else {page.key for page in held.pages} | {page.key for page in held.garbage.pages}
        gone = [] if held is None else list(self._joined)
        return [*gone, *(page.key for page in self._written.values() if page.key not in named)]

    def _merge_pages(self, pages: list[PageRef]) -> list[PageRef]:
        while (run := self._find_mergeable_pages(pages)) is not None:
            entries = [entry for page in pages[run] for entry in self._read_entries(page)]
            self._joined.update(dict.fromkeys(page.key for page in pages[run]))
            pages[run] = [self.write_page(entries)]
        return pages

    def _find_mergeable_pages(self, pages: Sequence[PageRef]) -> slice | None:
        for at in range(len(pages) - PAGES_PER_MERGE, -1, -1):
            sizes = {self._size_class(page) for page in pages[at : at + PAGES_PER_MERGE]}
            if len(sizes) == 1 and sum(page.entries for page in pages[at : at + PAGES_PER_MERGE]) * _ENTRY <= _LARGEST:
                return slice(at, at + PAGES_PER_MERGE)
        return None

    def _size_class(self, page: PageRef) -> int:
        size, limit = 0, 2 * self._page_bytes
        while page.entries * _ENTRY > limit:
            size, limit = size + 1, limit * PAGES_PER_MERGE
        return size

    def _read_entries(self, page: PageRef) -> Sequence[Entry]:
        return read_page(self._storage, page)


@dataclass(frozen=True, slots=True)
class ManifestSwap:
    """Changes manifests as the owning cluster, under its tiering epoch."""

    storage: ObjectStore
    cluster_id: str
    tiering: TopicTiering
    keeps_epoch: bool = False
    """Whether to ignore the tiered epoch, because no catalog has the topic."""

    def __call__(
        self, partition: RemotePartition, change: Callable[[Manifest], Manifest | None], *, mark: str | None = None
    ) -> Manifest | None:
        """Change a manifest with one swap, once per `mark`; return the new one, or `None` if it did not change.

        `change` gets the manifest, or an empty one, and may run again. A later tiered epoch prevents the change.

        Raises:
            OwnershipLostError: Another cluster owns the partition.
            LostRaceError: Other writers were always first.
        """
        register = manifest_register(self.storage, partition)
        spill = ManifestSpill(self.storage, partition, self.tiering.spill_bytes)
        after: Manifest | None = None

        def change_value(held: RegisterSnapshot | None) -> dict[str, Any] | None:
            nonlocal after
            after = None
            before = (
                Manifest(self.cluster_id) if held is None else parse_manifest(self.storage, register.key, held.value)
            )
            check_manifest_owner(partition, before, self.cluster_id)
            if before.tiered_epoch > self.tiering.epoch and not self.keeps_epoch:
                return None
            decided = change(before)
            if decided is None:
                return None
            after = spill.spill(replace(decided, tiered_epoch=max(before.tiered_epoch, self.tiering.epoch)))
            return after.to_json()

        register.update(change_value, mark=mark or create_mark())
        self.storage.delete(spill.list_superfluous_pages(after))
        return after


N = TypeVar("N", Entry, PageRef)


def delete_manifest_garbage(swap: ManifestSwap, partition: RemotePartition, garbage: Garbage) -> bool:
    """Delete a manifest's garbage; return whether it had any.

    Raises:
        OwnershipLostError: Another cluster owns the partition; the garbage is deleted all the same.
    """
    if not garbage:
        return False
    delete_garbage(swap.storage, garbage)
    keys = {page.key for page in garbage.pages} | {entry.key for entry in garbage.entries}

    def forget_garbage(manifest: Manifest) -> Manifest | None:
        left = Garbage(_drop_keys(manifest.garbage.pages, keys), _drop_keys(manifest.garbage.entries, keys))
        return None if left == manifest.garbage else replace(manifest, garbage=left)

    swap(partition, forget_garbage)
    return True


def delete_garbage(storage: ObjectStore, garbage: Garbage) -> None:
    """Delete segments with their indexes; delete each page after its segments."""
    storage.delete(iter_object_keys(garbage.entries))
    for page in garbage.pages:
        try:
            entries = read_page(storage, page)
        except MissingObjectError:
            continue
        storage.delete(iter_object_keys(entries))
        storage.delete([page.key])


def iter_object_keys(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the keys of segments, each with its index."""
    for entry in entries:
        yield entry.key
        yield build_index_key(entry.key)


def _drop_keys(named: Iterable[N], keys: set[str]) -> tuple[N, ...]:
    return tuple(item for item in named if item.key not in keys)


Change = Callable[[Manifest], Manifest | None]
_ROUNDS: Final = 20


@dataclass(frozen=True, slots=True)
class ManifestHandover:
    """Changes the owner in all manifests of a topic; `check` runs before each swap and may raise."""

    storage: ObjectStore
    location: TopicLocation
    check: Callable[[], None]
    may_go_on: Callable[[], None] = lambda: None
    """Called before every write, from any thread; may raise."""

    def __call__(self, partitions: Iterable[int], change: Change) -> dict[int, Manifest]:
        """Change the manifests that exist; return them by partition. Repeatable."""
        done: dict[int, Manifest] = {}
        waiting = list(partitions)
        for _ in range(_ROUNDS):
            pairs = list(map_in_parallel(self._read, waiting, name="hand over"))
            self.check()
            after = map_in_parallel(lambda one: self._swap(*one, change), pairs, name="hand over")
            retries = []
            for (number, held), manifest in zip(pairs, after, strict=True):
                if manifest is not None:
                    done[number] = manifest
                elif held is not None:
                    retries.append(number)
            waiting = retries
            if not waiting:
                return done
        message = f"{len(waiting)} manifests of {self.location} keep changing, so they could not be updated"
        raise RetryableError(message, hint="Try again.")

    def _read(self, number: int) -> tuple[int, RegisterSnapshot | None]:
        return number, manifest_register(self.storage, remote_partition(self.location, number)).read()

    def _swap(self, number: int, held: RegisterSnapshot | None, change: Change) -> Manifest | None:
        if held is None:
            return None
        register = manifest_register(self.storage, remote_partition(self.location, number))
        current = parse_manifest(self.storage, register.key, held.value)
        after = change(current)
        if after is None:
            return current
        self.may_go_on()
        try:
            register.swap(held, after.to_json())
        except (LostRaceError, UnansweredError):
            return None
        return after
