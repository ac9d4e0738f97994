"""The partition manifest: the register that names every remote segment.

It names the newest segments itself, and the older ones in pages. Segments never overlap; offsets between them that no
segment has are gaps (aborted or compacted records). Objects are put before the swap that names them, and deleted after
the swap that names them no more: what is in `garbage` is not readable, and waits to be deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import orjson

from reconciler.archives.entries import Entry, PageRef
from reconciler.archives.keys import index_key, manifest_key, manifest_page_key
from reconciler.archives.location import TopicLocation
from reconciler.archives.objects import damaged, decoded
from reconciler.archives.pages import entries_page, read_page
from reconciler.errors import LostRaceError, MissingObjectError, OwnershipLostError, RetryableError, UnansweredError
from reconciler.objectstore.register import ReadRegister, Register, fresh_mark
from reconciler.runtime.threads import side_by_side

if TYPE_CHECKING:
    from reconciler.archives.location import Tiering
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
"""The owner of what lies detached, or was taken from its owner: whoever mounts it is the next."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """What a manifest named once: marked, and to be deleted (KIP-405: DELETE_SEGMENT_STARTED)."""

    pages: tuple[PageRef, ...] = ()
    """With all that they name."""
    entries: tuple[Entry, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether anything waits."""
        return bool(self.pages or self.entries)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A partition as object storage has it. Offsets below `start` are gone; `end` is the next to be uploaded."""

    owner: str
    """Id of the cluster whose topic it is; `NOBODY`: it lies detached."""
    owner_epoch: int = 0
    """Rises with every change of owner; a writer that knows an older one is refused."""
    tiered_epoch: int = 0
    """Of the topic's tiering, as the last writer knew it; a swap under an older one is dropped."""
    start: int = 0
    end: int = 0
    epochs: tuple[tuple[int, int], ...] = ((0, 0),)
    """(epoch, first offset) of the log, oldest first, as the head had them."""
    uploaded_ms: int = 0
    """When a segment was uploaded last, by the clock of records."""
    compacted_to: int = 0
    """As the head's: below it no key comes twice."""
    learned: tuple[int, int] = (0, 0)
    """(epoch, offset): what superseded records that compactions removed here lies below it, learned in that epoch."""
    pages: tuple[PageRef, ...] = ()
    entries: tuple[Entry, ...] = ()
    garbage: Garbage = field(default_factory=Garbage)

    @property
    def stored_bytes(self) -> int:
        """What its segments take in object storage; garbage does not count."""
        return sum(page.bytes for page in self.pages) + sum(entry.bytes for entry in self.entries)

    @property
    def segments(self) -> int:
        """How many segments it names."""
        return sum(page.entries for page in self.pages) + len(self.entries)

    @property
    def records(self) -> int:
        """How many records they hold."""
        return sum(page.records for page in self.pages) + sum(entry.digest.records for entry in self.entries)

    def to_json(self) -> Json:
        """Return what the register keeps."""
        kept: Json = {
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
            kept["compacted_to"] = self.compacted_to
        if self.learned[1]:
            kept["learned"] = self.learned
        if self.garbage:
            kept["garbage"] = {
                "pages": [page.to_json() for page in self.garbage.pages],
                "entries": [entry.to_json() for entry in self.garbage.entries],
            }
        return kept

    @classmethod
    def from_json(cls, kept: Json) -> Manifest:
        """Read it back."""
        garbage = kept.get("garbage") or {"pages": (), "entries": ()}
        learned_in, learned_to = kept.get("learned", (0, 0))
        return cls(
            owner=kept["owner"],
            owner_epoch=kept["owner_epoch"],
            tiered_epoch=kept["tiered_epoch"],
            start=kept["start"],
            end=kept["end"],
            epochs=tuple((epoch, start) for epoch, start in kept["epochs"]),
            uploaded_ms=kept["uploaded_ms"],
            compacted_to=kept.get("compacted_to", 0),
            learned=(learned_in, learned_to),
            pages=tuple(map(PageRef.from_json, kept["pages"])),
            entries=tuple(map(Entry.from_json, kept["entries"])),
            garbage=Garbage(
                tuple(map(PageRef.from_json, garbage["pages"])), tuple(map(Entry.from_json, garbage["entries"]))
            ),
        )


@dataclass(frozen=True, slots=True, order=True)
class RemotePartition:
    """One partition of the remote tier: of which cluster's which topic. Its location stays, whoever owns it."""

    cluster_id: str
    revision: int
    number: int

    @property
    def key(self) -> str:
        """The key of its manifest."""
        return manifest_key(self.cluster_id, self.revision, self.number)

    @property
    def place(self) -> str:
        """What the keys of its objects begin with, up to the `/`."""
        return self.key.rpartition("/")[0]

    def __str__(self) -> str:
        """Say which, in sentences."""
        return f"remote partition {self.number} of {self.cluster_id}/{self.revision}"


def remote_partition(location: TopicLocation, number: int) -> RemotePartition:
    """Return one partition of what lies at a location."""
    return RemotePartition(location.cluster_id, location.revision, number)


def manifest_register(storage: ObjectStore, partition: RemotePartition) -> Register:
    """Return the register of a partition in object storage."""
    return Register(storage, partition.key, format="reconciler.manifest/1", shape=_SHAPE)


def parse_manifest(storage: ObjectStore, key: str, kept: Json) -> Manifest:
    """Read a manifest back.

    Raises:
        UserError: It is damaged, or contradicts itself: records would be missed, or offsets come twice.
    """
    manifest = decoded(storage, key, kept, Manifest.from_json)
    wrong = next(_contradictions(manifest), None)
    if wrong is not None:
        raise damaged(storage, key, f"the manifest contradicts itself: {wrong}")
    return manifest


def read_manifest(storage: ObjectStore, partition: RemotePartition) -> Manifest | None:
    """Return a partition's manifest: one GET; `None` where nothing was ever uploaded."""
    held = manifest_register(storage, partition).read()
    return None if held is None else parse_manifest(storage, partition.key, held.value)


def _contradictions(manifest: Manifest) -> Iterator[str]:
    if not 0 <= manifest.start <= manifest.end:
        yield f"it begins at offset {manifest.start} and ends at {manifest.end}"
    if not manifest.epochs:
        yield "it has no epoch"
    last = -1
    named: list[PageRef | Entry] = [*manifest.pages, *manifest.entries]
    for each in named:
        if not last < each.base <= each.last:
            yield f"{each.key} has offsets {each.base} to {each.last}, after offset {last}"
        last = each.last
    if last >= manifest.end:
        yield f"it ends at {manifest.end} and names offset {last}"


def check_own(what: object, manifest: Manifest, cluster_id: str) -> None:
    """Refuse to act on what a manifest names, where that is not the cluster's; `what` says of which partition it is.

    Raises:
        OwnershipLostError: It is not.
    """
    if manifest.owner != cluster_id:
        raise ownership_lost(what, manifest.owner)


def ownership_lost(what: object, owner: str) -> OwnershipLostError:
    """Return the error for something in object storage that is `owner`'s, and not ours any more."""
    whose = "no cluster now: it was released" if owner == NOBODY else f"cluster {owner} now"
    hint = (
        "Nothing was changed; see who has it: reconciler mount list. What was written here since is here alone: copy "
        "it if it matters, then delete the topic here. Its objects stay."
    )
    return OwnershipLostError(f"{what} belongs to {whose}", hint=hint)


JOINED: Final = 8
"""Neighbouring pages of one size that become one."""
_LARGEST: Final = 8 * 1024 * 1024
"""Bytes of a page that is joined no more: it is read whole for one offset."""
_ENTRY: Final = 300
"""About what an entry takes, in bytes."""


class ManifestSpill:
    """Writes pages of one manifest. One for each change of it: a lost race reuses what it wrote.

    A root names pages of entries only, so any offset takes the root and one page. Eight pages of one size become one of
    the next.
    """

    def __init__(self, storage: ObjectStore, partition: RemotePartition, page_bytes: int) -> None:
        """Name the partition; nothing is written yet."""
        self._storage = storage
        self._partition = partition
        self._page_bytes = page_bytes
        self._written: dict[bytes, PageRef] = {}
        self._joined: dict[str, None] = {}
        """Pages that were there and are no more in what was made last."""

    def spilled(self, manifest: Manifest) -> Manifest:
        """Return the manifest with at most twice a page's bytes of entries, the older ones in pages."""
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
            pages.append(self.page(entries[:count]))
            del entries[:count], sizes[:count]
        return replace(manifest, pages=tuple(self._packed(pages)), entries=tuple(entries))

    def page(self, entries: Sequence[Entry]) -> PageRef:
        """Write a page."""
        body = entries_page(entries)
        page = self._written.get(body)
        if page is None:
            partition = self._partition
            key = manifest_page_key(partition.cluster_id, partition.revision, partition.number)
            page = self._written[body] = PageRef.of(key, entries)
            self._storage.put(page.key, body)
        return page

    def superfluous(self, held: Manifest | None) -> list[str]:
        """Return what no process names, once `held` is the manifest (`None`: it stayed as it was): to be deleted."""
        named = set() if held is None else {page.key for page in held.pages} | {page.key for page in held.garbage.pages}
        gone = [] if held is None else list(self._joined)
        return [*gone, *(page.key for page in self._written.values() if page.key not in named)]

    def _packed(self, pages: list[PageRef]) -> list[PageRef]:
        """Join runs of pages of one size, the newest first to be looked at, until none is long enough."""
        while (run := self._run(pages)) is not None:
            entries = [entry for page in pages[run] for entry in self._entries(page)]
            self._joined.update(dict.fromkeys(page.key for page in pages[run]))
            pages[run] = [self.page(entries)]
        return pages

    def _run(self, pages: Sequence[PageRef]) -> slice | None:
        for at in range(len(pages) - JOINED, -1, -1):
            sizes = {self._size(page) for page in pages[at : at + JOINED]}
            if len(sizes) == 1 and sum(page.entries for page in pages[at : at + JOINED]) * _ENTRY <= _LARGEST:
                return slice(at, at + JOINED)
        return None

    def _size(self, page: PageRef) -> int:
        """Return of which size a page is: 0 as it was spilled, 1 as eight of those, and so on."""
        size, limit = 0, 2 * self._page_bytes
        while page.entries * _ENTRY > limit:
            size, limit = size + 1, limit * JOINED
        return size

    def _entries(self, page: PageRef) -> Sequence[Entry]:
        return read_page(self._storage, page)


@dataclass(frozen=True, slots=True)
class ManifestSwap:
    """Who swaps: the cluster that holds the topic, and the tiering it acts under."""

    storage: ObjectStore
    cluster_id: str
    tiering: Tiering
    keeps_epoch: bool = False
    """Whether no catalog has the topic: the tiered epoch that its manifests got while one had it stays."""

    def __call__(
        self, partition: RemotePartition, change: Callable[[Manifest], Manifest | None], *, mark: str | None = None
    ) -> Manifest | None:
        """Change a manifest by one swap; return it as it is then, `None` where nothing was changed.

        `change` gets the manifest, or one that holds nothing, and returns what it shall become, `None` for no change;
        it runs again after a lost race: what it decided last is what holds. Under a newer tiered epoch than ours
        nothing is changed. What has become too large is spilled.

        Raises:
            OwnershipLostError: The partition belongs to another cluster now.
            UserError: The manifest is damaged.
            LostRaceError: Others were faster every time.
        """
        register = manifest_register(self.storage, partition)
        spill = ManifestSpill(self.storage, partition, self.tiering.spill_bytes)
        after: Manifest | None = None

        def changed(held: ReadRegister | None) -> dict[str, Any] | None:
            nonlocal after
            after = None
            before = (
                Manifest(self.cluster_id) if held is None else parse_manifest(self.storage, register.key, held.value)
            )
            check_own(partition, before, self.cluster_id)
            if before.tiered_epoch > self.tiering.epoch and not self.keeps_epoch:
                return None
            decided = change(before)
            if decided is None:
                return None
            after = spill.spilled(replace(decided, tiered_epoch=max(before.tiered_epoch, self.tiering.epoch)))
            return after.to_json()

        register.update(changed, mark=mark or fresh_mark())
        self.storage.delete(spill.superfluous(after))
        return after


N = TypeVar("N", Entry, PageRef)


def purge(swap: ManifestSwap, partition: RemotePartition, garbage: Garbage) -> bool:
    """Delete what a manifest has as garbage, and take it from there; say whether there was any.

    Raises:
        OwnershipLostError: The partition belongs to another cluster now; its garbage is gone nevertheless.
        UserError: The manifest or one of its pages is damaged.
    """
    if not garbage:
        return False
    delete_garbage(swap.storage, garbage)
    keys = {page.key for page in garbage.pages} | {entry.key for entry in garbage.entries}

    def forgotten(manifest: Manifest) -> Manifest | None:
        left = Garbage(_without(manifest.garbage.pages, keys), _without(manifest.garbage.entries, keys))
        return None if left == manifest.garbage else replace(manifest, garbage=left)

    swap(partition, forgotten)
    return True


def delete_garbage(storage: ObjectStore, garbage: Garbage) -> None:
    """Delete the objects of garbage: segments with their indexes, and pages after all that they name."""
    storage.delete(objects_of(garbage.entries))
    for page in garbage.pages:
        try:
            entries = read_page(storage, page)
        except MissingObjectError:
            continue  # All that it named went before it.
        storage.delete(objects_of(entries))
        storage.delete([page.key])


def objects_of(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the keys of segments, each with its index."""
    for entry in entries:
        yield entry.key
        yield index_key(entry.key)


def _without(named: Iterable[N], keys: set[str]) -> tuple[N, ...]:
    return tuple(each for each in named if each.key not in keys)


Change = Callable[[Manifest], Manifest | None]
"""Returns what a manifest shall become, `None` for no change; may raise where it is in wrong hands."""
_ROUNDS: Final = 20


@dataclass(frozen=True, slots=True)
class Handing:
    """The manifests of one topic, which change owner together.

    Each swap is of a manifest that was read before `check` allowed it: a process that was late reads it and asks again.
    """

    storage: ObjectStore
    location: TopicLocation
    check: Callable[[], None]
    """Raises where we may not, or may not any more; asked after each reading of what is swapped then."""
    may_go_on: Callable[[], None] = lambda: None
    """Asked before every write, from any thread; may raise."""

    def __call__(self, partitions: Iterable[int], change: Change) -> dict[int, Manifest]:
        """Change the manifests there are; return them as they are then. May be repeated.

        Raises:
            UserError: One is damaged.
            RetryableError: Others were faster every time, or the store does not answer.
        """
        done: dict[int, Manifest] = {}
        waiting = list(partitions)
        for _ in range(_ROUNDS):
            found = list(side_by_side(self._read, waiting, name="hand over"))
            self.check()
            after = side_by_side(lambda one: self._swapped(*one, change), found, name="hand over")
            again = []
            for (number, held), manifest in zip(found, after, strict=True):
                if manifest is not None:
                    done[number] = manifest
                elif held is not None:
                    again.append(number)
            waiting = again
            if not waiting:
                return done
        message = f"{len(waiting)} manifests of {self.location} are being changed all the time"
        raise RetryableError(message, hint="Try again.")

    def _read(self, number: int) -> tuple[int, ReadRegister | None]:
        return number, manifest_register(self.storage, remote_partition(self.location, number)).read()

    def _swapped(self, number: int, held: ReadRegister | None, change: Change) -> Manifest | None:
        """Return the manifest as it is then; `None`: there is none, or it has to be read again."""
        if held is None:
            return None
        register = manifest_register(self.storage, remote_partition(self.location, number))
        found = parse_manifest(self.storage, register.key, held.value)
        after = change(found)
        if after is None:
            return found
        self.may_go_on()
        try:
            register.swap(held, after.to_json())
        except (LostRaceError, UnansweredError):
            return None
        return after
