"""One partition made from object storage: its objects copied there, then a manifest that names the copies, then a head.

A copy has the same name whoever makes it, and manifest and head are made only where there is none: each step may be
repeated, and two that recover the same topic get in nobody's way. The source is only read. It may change meanwhile:
where an object is gone, its manifest is read again.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.embedded.keys import copied_segment_key, index_key, part_key
from reconciler.embedded.partition.head import read_head
from reconciler.embedded.partition.pages import all_entries
from reconciler.embedded.remote.manifests.manifest import Manifest, read_manifest
from reconciler.embedded.remote.manifests.segmentfiles import footer_of
from reconciler.embedded.remote.manifests.swaps import ManifestSwap
from reconciler.embedded.remote.recovery.heads import make_head
from reconciler.embedded.remote.recovery.wholeness import check_named
from reconciler.embedded.remote.tier import remote_partition
from reconciler.embedded.threads import SideBySide
from reconciler.errors import MissingObjectError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reconciler.embedded.catalog.tiering import Tiering, TopicLocation
    from reconciler.embedded.partition.entries import Entry
    from reconciler.embedded.remote.manifests.manifest import RemotePartition
    from reconciler.objectstore.base import ObjectStore

COPIES: Final = 4
"""Objects of one partition copied side by side: the store does the copying, we wait for it."""
_WAITING: Final = 64


@dataclass(frozen=True, slots=True)
class Fetch:
    """How much of a partition is brought into the local tier at once; `None`: no limit of that kind."""

    since_ms: int | None = None
    bytes: int | None = None

    def newest(self, entries: list[Entry]) -> list[Entry]:
        """Return the newest segments within both limits, oldest first; nothing where neither is set."""
        taken: list[Entry] = []
        room = self.bytes
        for entry in reversed(entries if self != Fetch() else []):
            room = None if room is None else room - entry.bytes
            if (room is not None and room < 0) or (self.since_ms is not None and entry.max_ts < self.since_ms):
                break
            taken.insert(0, entry)
        return taken


@dataclass(frozen=True, slots=True)
class Recovery:
    """One topic that is being made, and what it is made from."""

    store: ObjectStore
    storage: ObjectStore
    cluster_id: str
    full_name: str
    topic_id: str
    source: TopicLocation
    tiering: Tiering
    fetch: Fetch
    kms_key_id: str | None
    """The key that objects of the new topic lie under."""
    may_go_on: Callable[[], None]
    """Asked before each copy, from any thread; may raise."""
    copied: Callable[[Entry], object] = lambda _segment: None
    """Told, from any thread, of each segment that was copied."""

    def recover(self, number: int) -> None:
        """Make one partition, as far as that was not done before.

        Raises:
            MissingObjectError: The source names an object that is not there.
            UserError: A manifest of the source is damaged, or not there while segments are.
        """
        if read_head(self.store, self.topic_id, number) is not None:
            return
        own = remote_partition(self.tiering.location, number)
        manifest = read_manifest(self.storage, own) or self._copied(number, own)
        if manifest is not None:
            self._make_head(number, manifest)

    def _copied(self, number: int, own: RemotePartition) -> Manifest | None:
        """Copy what the source has and name the copies; `None`: nothing of it was ever uploaded."""
        present = {listed.key for listed in self.storage.list(f"{own.place}/")}
        missed: set[str] = set()
        while True:
            found = read_manifest(self.storage, remote_partition(self.source, number))
            if found is None:
                source = remote_partition(self.source, number)
                check_named(self.storage, source, (listed.key for listed in self.storage.list(f"{source.place}/")))
                return None
            try:
                entries = list(self._copies(found, own, present))
            except MissingObjectError as error:
                # Retention or merging of the source may have been there: its manifest tells. Where that still names
                # what was missing, it is lost.
                if error.message in missed:
                    raise self._lost(number, error) from error
                missed.add(error.message)
            else:
                return self._named(own, found, entries, present)

    def _lost(self, number: int, error: MissingObjectError) -> MissingObjectError:
        offsets = "" if error.offsets is None else f"offsets {error.offsets[0]} to {error.offsets[1]} are lost: "
        message = f"{self.full_name}, partition {number}: {offsets}{error.message}"
        hint = (
            f"{self.source} names it. Restore it from a version or copy of the bucket, then: "
            "reconciler run --once --only recoveries. Or delete the topic that recovers."
        )
        lost = MissingObjectError(message, hint=hint)
        lost.key, lost.url, lost.offsets = error.key, error.url, error.offsets
        return lost

    def _copies(self, found: Manifest, own: RemotePartition, present: set[str]) -> Iterator[Entry]:
        live = (entry for entry in all_entries(self.storage, found) if entry.last >= found.start)

        def copied(entry: Entry) -> Entry:
            key = copied_segment_key(
                own.place, (entry.base, entry.last), entry.bytes, entry.epoch, of=f"{self.topic_id} {entry.key}"
            )
            if key not in present:
                self.may_go_on()
                self._segment(entry, key)
                present.add(key)
                self.copied(entry)
            if index_key(key) not in present:
                self.may_go_on()
                self._index(entry, key)
                present.add(index_key(key))
            return replace(entry, key=key, kms_key_id=self.kms_key_id)

        with ThreadPoolExecutor(COPIES, thread_name_prefix="recover") as threads:
            yield from SideBySide(threads, _WAITING).over(copied, live)

    def _segment(self, entry: Entry, key: str) -> None:
        try:
            self.storage.copy_in(key, self.storage, entry.key, kms_key_id=self.kms_key_id)
        except MissingObjectError as error:
            error.key, error.url, error.offsets = entry.key, self.storage.url, (entry.base, entry.last)
            raise

    def _index(self, entry: Entry, key: str) -> None:
        """Copy the index of a segment; one that is gone is found again in the copy of the segment itself."""
        try:
            self.storage.copy_in(index_key(key), self.storage, index_key(entry.key), kms_key_id=self.kms_key_id)
        except MissingObjectError:
            footer = footer_of(self.storage, key, entry.bytes)
            self.storage.put(index_key(key), footer, kms_key_id=self.kms_key_id)

    def _named(self, own: RemotePartition, found: Manifest, entries: list[Entry], present: set[str]) -> Manifest | None:
        """Name the copies, unless somebody else was faster; drop those that nobody names."""
        made = Manifest(
            self.cluster_id,
            start=found.start,
            end=found.end,
            epochs=found.epochs,
            uploaded_ms=found.uploaded_ms,
            compacted_to=found.compacted_to,
            learned=found.learned,
            entries=tuple(entries),
        )
        self.may_go_on()
        swap = ManifestSwap(self.storage, self.cluster_id, self.tiering)
        swap(own, lambda held: made if held == Manifest(self.cluster_id) else None)
        after = read_manifest(self.storage, own)
        if after is not None:
            named = {name for entry in all_entries(self.storage, after) for name in (entry.key, index_key(entry.key))}
            named |= {page.key for page in after.pages} | {own.key}
            self.storage.delete(sorted(present - named))
        return after

    def _make_head(self, number: int, manifest: Manifest) -> None:
        fetched = self._fetched(number, manifest)
        self.may_go_on()
        make_head(self.store, (self.topic_id, number), manifest, self.kms_key_id, fetched)

    def _fetched(self, number: int, manifest: Manifest) -> list[Entry]:
        """Bring the newest segments into the local tier, as far as that was asked for."""
        brought: list[Entry] = []
        try:
            for entry in self.fetch.newest(list(all_entries(self.storage, manifest))):
                self.may_go_on()
                key = part_key(self.full_name, number)
                self.store.copy_in(key, self.storage, entry.key, kms_key_id=self.kms_key_id)
                brought.append(replace(entry, key=key, kms_key_id=self.kms_key_id))
        except BaseException:
            with suppress(Exception):  # What is left is swept.
                self.store.delete([entry.key for entry in brought])
            raise
        return brought
