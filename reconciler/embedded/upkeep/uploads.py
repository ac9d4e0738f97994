"""The upload job of a pass: what each partition has to upload, and what was put named in its manifest, then its head.

A manifest is there before the first segment is put, so one that has gone tells of a deletion: nothing is named anew.
What the manifest names counts; `Head.uploaded_to` follows it, also where somebody died in between. Where the manifest
has gone or is an older one, or has other records than the head, nothing is uploaded and it is said.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from reconciler.embedded.partition.entries import STALE_MS
from reconciler.embedded.partition.headswaps import swap_head
from reconciler.embedded.partition.pages import entries_within
from reconciler.embedded.partition.rebuilding import Gain
from reconciler.embedded.remote.leaving.truncating import is_uncut, settle
from reconciler.embedded.remote.manifests.agreement import check_not_behind
from reconciler.embedded.remote.manifests.manifest import read_manifest
from reconciler.embedded.remote.manifests.owning import check_own
from reconciler.embedded.remote.manifests.swaps import ManifestSwap
from reconciler.embedded.remote.tier import remote_partition
from reconciler.embedded.remote.uploading.adopting import agreeing
from reconciler.embedded.remote.uploading.backlog import Controller, connections_of, error_of, free_bytes
from reconciler.embedded.remote.uploading.reupload import outdated, reuploads
from reconciler.embedded.remote.uploading.upload import to_upload
from reconciler.embedded.upkeep.chores import Chore
from reconciler.embedded.upkeep.segments import Segment
from reconciler.errors import OwnershipLostError
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from reconciler.embedded.catalog.tiering import Tiering
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.partition.headswaps import Partition
    from reconciler.embedded.remote.manifests.manifest import Manifest
    from reconciler.embedded.remote.tier import RemoteTier
    from reconciler.embedded.remote.uploading.upload import Uploaded
    from reconciler.embedded.upkeep.cleanup import CleanupPolicy
    from reconciler.embedded.upkeep.surveying import Lying
    from reconciler.objectstore.base import ObjectStore

_LEVELS: Final = {"backlog_size": "backlog", "error": "error", "shares": "shares"}
_CHORE_BYTES: Final = 128 * 1024 * 1024
_CHORE_SEGMENTS: Final = 128
"""What one task does at once of a partition: neighbouring segments, named together."""


@dataclass(frozen=True)
class Uploads:
    """Decides and publishes for one pass. Safe from any thread."""

    store: ObjectStore
    remote: RemoteTier
    now_ms: Callable[[], int]
    takes_open: bool = False
    """Whether what is stable of the open segment is uploaded whatever the interval."""

    def due(self, lying: Lying, head: Head) -> tuple[list[Chore] | None, int | None]:
        """Return what a partition has to upload, or when to look again although nothing was written.

        Raises:
            OwnershipLostError: Its remote part belongs to another cluster now.
            UserError: Its manifest lacks what was uploaded, or has other records than the head.
        """
        tiering = lying.policy.tiering
        both = None if tiering is None else self._both(lying.partition, tiering, head)
        if tiering is None or both is None:
            return None, None
        head, manifest = both
        self._follow(lying.partition, head, manifest, tiering)
        due_ms = None if tiering.max_interval_ms is None else manifest.uploaded_ms + tiering.max_interval_ms
        takes_open = self.takes_open or (due_ms is not None and due_ms <= self.now_ms())
        stable = head.bounds.stable
        entries = entries_within(self.store, head, OffsetRange(max(manifest.end, head.local_start), head.end))
        segments = to_upload(entries, lying.policy.limits, stable=stable, takes_open=takes_open)
        chores = list(_chores(lying.partition, segments, manifest.end))
        if chores:
            return chores, None
        has_new = due_ms is not None and not takes_open and max(manifest.end, head.local_start) < stable
        return None, due_ms if has_new else None

    def reuploads(self, policy: CleanupPolicy) -> bool:
        """Tell whether what is compacted of a topic is uploaded once more."""
        return reuploads(policy, self.remote)

    def outdated(self, lying: Lying, head: Head) -> tuple[list[Chore] | None, int | None]:
        """Return what of a partition was compacted since it was uploaded; `None`: nothing, until its head changes."""
        tiering = lying.policy.tiering
        if tiering is None or head.compacted_to <= head.local_start:
            return None, None
        place = remote_partition(tiering.location, lying.partition.number)
        manifest = read_manifest(self.remote.storage, place)
        if manifest is None:
            return None, None
        check_own(place, manifest, self.remote.cluster_id)
        check_not_behind(manifest, head, place, lying.partition)
        found = outdated(self.store, self.remote.storage, head, manifest)
        runs = (Segment(there, is_closed=True) for there, _ in found)
        return list(_chores(lying.partition, runs, head.local_start)) or None, None

    def share(self, notes: dict[str, Any], backlog_bytes: int) -> dict[str, float]:
        """Set the share of the connections that uploads have, anew once in a while; return what it is, and why."""
        controller = Controller.of(self.remote.properties)
        noted = notes.get("controller") or {"at_ms": 0, "backlog": 0, "error": 0.0, "shares": controller.min_shares}
        now_ms = self.now_ms()
        error = error_of(backlog_bytes, free_bytes(self.store))
        if (error or noted["error"]) and now_ms - noted["at_ms"] >= controller.interval_ms:
            shares = controller.shares(error, noted["error"])
            noted = {"at_ms": now_ms, "backlog": backlog_bytes, "error": error, "shares": shares}
            notes["controller"] = noted
        connections = self.remote.connections
        connections.share = connections_of(noted["shares"], connections.limit)
        return {f"upload_backlog_controller_{name}": noted[key] for name, key in _LEVELS.items()}

    def publish(self, uploads: Sequence[Uploaded], *, put_ms: int) -> Gain | None:
        """Name what was put of one partition, oldest first, by one swap; delete what cannot be named.

        `put_ms`: since when it may have lain there. `None`: nothing of it was named.

        Raises:
            OwnershipLostError: Its remote part belongs to another cluster now.
            UserError: The manifest is damaged.
            LostRaceError: Others were faster every time.
        """
        newest = uploads[-1]
        swap = ManifestSwap(self.remote.storage, self.remote.cluster_id, newest.tiering)
        named: list[Uploaded] = []

        def appended(manifest: Manifest) -> Manifest | None:
            named.clear()
            if self.now_ms() - put_ms > STALE_MS or not manifest.tiered_epoch:
                return None
            if newest.epochs[-1][0] < manifest.epochs[-1][0]:
                return None  # The log was cut since: its end may be another one.
            named.extend(_fitting(uploads, manifest.end))
            if not named:
                return None
            return replace(
                manifest,
                end=named[-1].offsets.stop,
                epochs=newest.epochs,
                uploaded_ms=self.now_ms(),
                entries=(*manifest.entries, *(entry for one in named for entry in one.entries)),
            )

        try:
            after = swap(newest.remote, appended)
        except OwnershipLostError:
            self._drop(uploads)
            raise
        if after is None:
            named.clear()
        self._drop([one for one in uploads if one not in named])
        if after is None:
            return None
        self._follow(newest.partition, None, after, newest.tiering)
        entries = [entry for one in named for entry in one.entries]
        stored = sum(entry.bytes for entry in entries)
        return Gain(sum(entry.digest.records for entry in entries), stored, len(entries))

    def _both(self, partition: Partition, tiering: Tiering, head: Head) -> tuple[Head, Manifest] | None:
        """Return head and manifest where they say the same; `None`: who knows more than we do was here already."""
        manifest = self._manifest(partition, tiering, head)
        if manifest is not None and is_uncut(manifest, head):
            swap = ManifestSwap(self.remote.storage, self.remote.cluster_id, tiering)
            manifest = settle(swap, remote_partition(tiering.location, partition.number), head)
        if manifest is None or manifest.end == head.uploaded_to:
            return None if manifest is None else (head, manifest)
        return agreeing(self.store, self.remote.storage, partition, tiering)

    def _manifest(self, partition: Partition, tiering: Tiering, head: Head) -> Manifest | None:
        """Return the manifest, made if it was never there; `None`: who knows more than we do was here already."""
        remote = remote_partition(tiering.location, partition.number)
        manifest = read_manifest(self.remote.storage, remote)
        if manifest is None:
            check_not_behind(None, head, remote, partition)
            swap = ManifestSwap(self.remote.storage, self.remote.cluster_id, tiering)

            def begun(found: Manifest) -> Manifest:
                start = head.local_start
                new = replace(found, start=start, end=start, epochs=head.epochs)
                return found if found.tiered_epoch else new

            manifest = swap(remote, begun)
        if manifest is not None:
            check_own(remote, manifest, self.remote.cluster_id)
        return None if manifest is None or manifest.tiered_epoch > tiering.epoch else manifest

    def _follow(self, partition: Partition, head: Head | None, manifest: Manifest, tiering: Tiering) -> None:
        """Let the head say what the manifest named under that tiering; a disabling since then has taken it back.

        Of a log that was cut since, the manifest may name what is not there any more.
        """

        def follow(found: Head) -> Head | None:
            if is_uncut(manifest, found):
                return None
            return found.uploaded(min(manifest.end, found.end), tiering.epoch)

        if head is None or follow(head) is not None:
            swap_head(self.store, partition, follow)

    def _drop(self, uploads: Iterable[Uploaded]) -> None:
        self.remote.storage.delete([key for one in uploads for key in one.keys])


def _fitting(uploads: Iterable[Uploaded], end: int) -> Iterator[Uploaded]:
    """Yield those that go on where the manifest ends, one after the other."""
    for one in uploads:
        if one.offsets.start != end:
            return
        yield one
        end = one.offsets.stop


def _chores(partition: Partition, segments: Iterable[Segment], start: int) -> Iterator[Chore]:
    """Yield neighbouring segments together, as many as one task does at once."""
    count = stored = 0
    stop = start
    for segment in segments:
        if count and (count == _CHORE_SEGMENTS or stored + segment.bytes > _CHORE_BYTES):
            yield Chore(partition, stored, OffsetRange(start, stop))
            start, count, stored = stop, 0, 0
        count += 1
        stored += segment.bytes
        stop = segment.last + 1
    if count:
        yield Chore(partition, stored, OffsetRange(start, stop))
