"""The manifest: the register of a partition in object storage. It names every remote segment, and whose they are.

It is to the remote tier what the head is to the local one, and keeps its segments in the same way: the newest itself,
the older ones in pages. Segments never overlap; offsets between them that no segment has are gaps (aborted or
compacted records). What is in `garbage` is not readable any more and waits to be deleted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from reconciler.embedded.jsonobjects import damaged
from reconciler.embedded.keys import manifest_key
from reconciler.embedded.partition.entries import Entry, PageRef
from reconciler.objectstore.register import Register

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def manifest_register(storage: ObjectStore, partition: RemotePartition) -> Register:
    """Return the register of a partition in object storage."""
    return Register(storage, partition.key, format="reconciler.manifest/1", shape=_SHAPE)


def parse_manifest(storage: ObjectStore, key: str, kept: Json) -> Manifest:
    """Read a manifest back.

    Raises:
        UserError: It is damaged, or contradicts itself: records would be missed, or offsets come twice.
    """
    try:
        manifest = Manifest.from_json(kept)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(storage, key, f"{type(error).__name__}: {error}") from error
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
    last = -1
    named: list[PageRef | Entry] = [*manifest.pages, *manifest.entries]
    for each in named:
        if not last < each.base <= each.last:
            yield f"{each.key} has offsets {each.base} to {each.last}, after offset {last}"
        last = each.last
    if last >= manifest.end:
        yield f"it ends at {manifest.end} and names offset {last}"
