"""The upload job of a pass, and topic descriptions (`topic.json`).

A manifest is created before the first segment, so a missing one was deleted. `Head.uploaded_to` follows the manifest.
Nothing is uploaded if the manifest is missing, older than the head, or has other records.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson

from reconciler.archives.entries import STALE_MS
from reconciler.archives.keys import build_location_prefix
from reconciler.archives.location import TopicTiering
from reconciler.archives.manifest import Manifest, ManifestSwap, check_manifest_owner, read_manifest, remote_partition
from reconciler.archives.pages import iter_entries_within
from reconciler.archives.topic_manifest import TopicManifest, write_topic_manifest
from reconciler.embedded.catalog.tables import Catalog, is_served
from reconciler.embedded.catalog.tiering_state import build_topic_manifest, find_tiering
from reconciler.embedded.maintenance.chores import Chore
from reconciler.embedded.objects import check_writes_visible
from reconciler.embedded.segments.head import Head, Partition, swap_head
from reconciler.embedded.segments.retention import CleanupPolicy, Segment
from reconciler.embedded.segments.rewrites import WorkTotals
from reconciler.embedded.tiered.remote_retention import must_truncate, truncate_manifest
from reconciler.embedded.tiered.remote_tier import RemoteTier, check_has_uploaded_records
from reconciler.embedded.tiered.upload import (
    BacklogController,
    UploadBatch,
    compute_backlog_error,
    compute_connections,
    iter_outdated_stretches,
    iter_segments_to_upload,
    read_agreeing_tiers,
    read_free_bytes,
    uploads_again,
)
from reconciler.errors import OwnershipLostError, ReconcilerError
from reconciler.lifecycles import TieringState
from reconciler.records.log import OffsetRange
from reconciler.runtime.dataclass import dataclass, replace

if TYPE_CHECKING:
    from reconciler.embedded.maintenance.survey import SurveyedPartition
    from reconciler.objectstore.base import ObjectStore


_LEVELS: Final = {"backlog_size": "backlog", "error": "error", "shares": "shares"}
_CHORE_BYTES: Final = 128 * 1024 * 1024
_CHORE_SEGMENTS: Final = 128


@dataclass(frozen=True)
class UploadJob:
    """Decides what one pass uploads, and publishes the uploads. Thread-safe."""

    store: ObjectStore
    remote: RemoteTier
    now_ms: Callable[[], int]
    takes_open: bool = False
    """Also upload the open segment's stable records, regardless of the interval."""

    def find_due_chores(self, surveyed: SurveyedPartition, head: Head) -> tuple[list[Chore] | None, int | None]:
        """Return a partition's segments to upload, or when to check again."""
        tiering = surveyed.policy.tiering
        both = None if tiering is None else self._read_agreeing_tiers(surveyed.partition, tiering, head)
        if tiering is None or both is None:
            return None, None
        head, manifest = both
        self._update_head(surveyed.partition, head, manifest, tiering)
        due_ms = None if tiering.max_interval_ms is None else manifest.uploaded_ms + tiering.max_interval_ms
        takes_open = self.takes_open or (due_ms is not None and due_ms <= self.now_ms())
        stable = head.bounds.stable
        entries = iter_entries_within(self.store, head, OffsetRange(max(manifest.end, head.local_start), head.end))
        segments = iter_segments_to_upload(entries, surveyed.policy.limits, stable=stable, takes_open=takes_open)
        chores = list(_group_segments(surveyed.partition, segments, manifest.end))
        if chores:
            return chores, None
        has_new = due_ms is not None and not takes_open and max(manifest.end, head.local_start) < stable
        return None, due_ms if has_new else None

    def uploads_compacted_again(self, policy: CleanupPolicy) -> bool:
        """Whether segments are uploaded again after compaction."""
        return uploads_again(policy, self.remote)

    def find_outdated_chores(self, surveyed: SurveyedPartition, head: Head) -> tuple[list[Chore] | None, int | None]:
        """Return segments to upload again after compaction; `None` if none."""
        tiering = surveyed.policy.tiering
        if tiering is None or head.compacted_to <= head.local_start:
            return None, None
        place = remote_partition(tiering.location, surveyed.partition.number)
        manifest = read_manifest(self.remote.storage, place)
        if manifest is None:
            return None, None
        check_manifest_owner(place, manifest, self.remote.cluster_id)
        check_has_uploaded_records(manifest, head, place, surveyed.partition)
        outdated_stretches = iter_outdated_stretches(self.store, self.remote.storage, head, manifest)
        runs = (Segment(remote_run, is_closed=True) for remote_run, _ in outdated_stretches)
        return list(_group_segments(surveyed.partition, runs, head.local_start)) or None, None

    def update_connection_share(self, notes: dict[str, Any], backlog_bytes: int) -> dict[str, float]:
        """Set the uploads' share of connections, once per interval; return gauges by name."""
        controller = BacklogController.of(self.remote.properties)
        noted = notes.get("controller") or {"at_ms": 0, "backlog": 0, "error": 0.0, "shares": controller.min_shares}
        now_ms = self.now_ms()
        error = compute_backlog_error(backlog_bytes, read_free_bytes(self.store))
        if (error or noted["error"]) and now_ms - noted["at_ms"] >= controller.interval_ms:
            shares = controller.compute_shares(error, noted["error"])
            noted = {"at_ms": now_ms, "backlog": backlog_bytes, "error": error, "shares": shares}
            notes["controller"] = noted
        connections = self.remote.connections
        connections.share = compute_connections(noted["shares"], connections.limit)
        return {f"upload_backlog_controller_{name}": noted[key] for name, key in _LEVELS.items()}

    def publish_uploads(self, uploads: Sequence[UploadBatch], *, put_ms: int) -> WorkTotals | None:
        """Publish a partition's uploads in one swap, oldest first; delete unpublished ones.

        The first was written at `put_ms`. Return `None` if nothing was published.

        Raises:
            OwnershipLostError: Another cluster owns the partition.
        """
        newest = max(uploads, key=lambda one: one.epochs[-1][0])
        # A truncation may have removed records of uploads with older epochs.
        current = [one for one in uploads if one.epochs[-1][0] == newest.epochs[-1][0] and one.offsets.length]
        for one in uploads:
            check_writes_visible(self.remote.storage, one.keys, by=one.uploaded_by)
        swap = ManifestSwap(self.remote.storage, self.remote.cluster_id, newest.tiering)
        named: list[UploadBatch] = []

        def append(manifest: Manifest) -> Manifest | None:
            named.clear()
            if self.now_ms() - put_ms > STALE_MS or not manifest.tiered_epoch:
                return None
            known = manifest.epochs[-1][0]
            if newest.epochs[-1][0] < known or any(
                epoch > known and first < manifest.end for epoch, first in newest.epochs
            ):
                return None  # The log was truncated after the upload.
            named.extend(_iter_contiguous(current, manifest.end))
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
            after = swap(newest.remote, append)
        except OwnershipLostError:
            self._delete_uploads(uploads)
            raise
        if after is None:
            named.clear()
        self._delete_uploads([one for one in uploads if one not in named])
        if after is None:
            return None
        self._update_head(newest.partition, None, after, newest.tiering)
        entries = [entry for one in named for entry in one.entries]
        stored = sum(entry.bytes for entry in entries)
        return WorkTotals(sum(entry.digest.records for entry in entries), stored, len(entries))

    def _read_agreeing_tiers(
        self, partition: Partition, tiering: TopicTiering, head: Head
    ) -> tuple[Head, Manifest] | None:
        manifest = self._read_or_create_manifest(partition, tiering, head)
        if manifest is not None and must_truncate(manifest, head):
            swap = ManifestSwap(self.remote.storage, self.remote.cluster_id, tiering)
            manifest = truncate_manifest(swap, remote_partition(tiering.location, partition.number), head)
        if manifest is None or manifest.end == head.uploaded_to:
            return None if manifest is None else (head, manifest)
        return read_agreeing_tiers(self.store, self.remote.storage, partition, tiering)

    def _read_or_create_manifest(self, partition: Partition, tiering: TopicTiering, head: Head) -> Manifest | None:
        """Return `None` under a newer tiered epoch."""
        remote = remote_partition(tiering.location, partition.number)
        manifest = read_manifest(self.remote.storage, remote)
        if manifest is None:
            check_has_uploaded_records(None, head, remote, partition)
            swap = ManifestSwap(self.remote.storage, self.remote.cluster_id, tiering)

            def begin(manifest_before: Manifest) -> Manifest:
                start = head.local_start
                new = replace(manifest_before, start=start, end=start, epochs=head.epochs)
                return manifest_before if manifest_before.tiered_epoch else new

            manifest = swap(remote, begin)
        if manifest is not None:
            check_manifest_owner(remote, manifest, self.remote.cluster_id)
        return None if manifest is None or manifest.tiered_epoch > tiering.epoch else manifest

    def _update_head(self, partition: Partition, head: Head | None, manifest: Manifest, tiering: TopicTiering) -> None:
        def set_uploaded(current: Head) -> Head | None:
            if must_truncate(manifest, current):
                return None
            return current.with_uploaded(min(manifest.end, current.end), tiering.epoch)

        if head is None or set_uploaded(head) is not None:
            swap_head(self.store, partition, set_uploaded)

    def _delete_uploads(self, uploads: Iterable[UploadBatch]) -> None:
        self.remote.storage.delete([key for one in uploads for key in one.keys])


def _iter_contiguous(uploads: Iterable[UploadBatch], end: int) -> Iterator[UploadBatch]:
    for one in uploads:
        if one.offsets.start != end:
            return
        yield one
        end = one.offsets.stop


def _group_segments(partition: Partition, segments: Iterable[Segment], start: int) -> Iterator[Chore]:
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


_DIGEST: Final = 16


def iter_changed_descriptions(
    remote: RemoteTier, catalog: Catalog, is_wanted: Callable[[str], bool], known: dict[str, Any]
) -> Iterator[tuple[TopicManifest, bool]]:
    """Yield changed topic descriptions, and whether a missing one is created.

    `known` maps topic ids to the `fingerprint_description` of the last write.
    """
    for full_name, topic in catalog.topics.items():
        tiering = find_tiering(catalog, full_name, remote.cluster_id)
        if tiering is None or not is_served(topic) or not is_wanted(full_name):
            continue
        manifest = build_topic_manifest(catalog, full_name, remote.cluster_id)
        if known.get(topic.id) != fingerprint_description(manifest, creates=tiering.uploads):
            yield manifest, tiering.uploads


def fingerprint_description(manifest: TopicManifest, *, creates: bool) -> str:
    """Fingerprint a topic's description."""
    content = orjson.dumps([{**manifest.to_json(), "serial": 0}, creates], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(content).hexdigest()[:_DIGEST]


def write_changed_descriptions(
    remote: RemoteTier, catalog: Catalog, is_wanted: Callable[[str], bool], known: dict[str, Any]
) -> Iterator[tuple[str, ReconcilerError]]:
    """Write changed topic descriptions and update `known`; yield failed topics and their errors."""
    names = {entry.id: name for name, entry in catalog.topics.items()}
    for gone in [topic_id for topic_id in known if topic_id not in names]:
        del known[gone]
    for manifest, creates in iter_changed_descriptions(remote, catalog, is_wanted, known):
        topic_id = catalog.topics[manifest.name].id
        try:
            write_topic_manifest(remote.storage, manifest, creates=creates)
        except ReconcilerError as error:
            known.pop(topic_id, None)
            yield manifest.name, error
        else:
            known[topic_id] = fingerprint_description(manifest, creates=creates)


def refresh_description(remote: RemoteTier, catalog: Catalog, full_name: str) -> bool:
    """Write a topic's description if it changed; return whether it was written.

    A topic with remote records gets one even without uploads.
    """
    tiering = find_tiering(catalog, full_name, remote.cluster_id)
    if tiering is None or not is_served(catalog.topics[full_name]):
        return False
    location = tiering.location
    is_kept = tiering.state is TieringState.ENABLED or tiering.policy == "retain"
    prefix = build_location_prefix(location.cluster_id, location.revision)
    creates = tiering.uploads or (is_kept and next(iter(remote.storage.list(prefix)), None) is not None)
    return write_topic_manifest(
        remote.storage, build_topic_manifest(catalog, full_name, remote.cluster_id), creates=creates
    )
