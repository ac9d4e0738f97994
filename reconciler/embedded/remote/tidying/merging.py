"""Merging: small neighbours in object storage become one segment, with the same records, offsets, times and digest.

What is written has its index beside it and is named by one swap of the manifest, in the place of the run; the run's
objects are deleted after it. Rows flow from one file into the next, a row group at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.embedded.keys import index_key
from reconciler.embedded.partition.pages import entries_within
from reconciler.embedded.partition.rebuilding import Replacement
from reconciler.embedded.partition.replacing import Rewritten
from reconciler.embedded.remote.manifests.manifest import read_manifest
from reconciler.embedded.remote.manifests.rewrites import RemoteRewrite, whole_or_deleted
from reconciler.embedded.remote.manifests.segmentfiles import SegmentWriter
from reconciler.embedded.remote.tidying.runs import merge_limits, runs_to_merge
from reconciler.embedded.remote.tier import remote_partition
from reconciler.embedded.upkeep.rolling import merged_digest, records_of
from reconciler.errors import UserError
from reconciler.records.log import OffsetRange
from reconciler.resources.clusterproperties import property_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.embedded.partition.entries import Entry
    from reconciler.embedded.partition.headswaps import Partition
    from reconciler.embedded.producing.admission import Rules
    from reconciler.embedded.remote.manifests.manifest import RemotePartition
    from reconciler.embedded.remote.tier import RemoteTier
    from reconciler.embedded.upkeep.cleanup import CleanupPolicy

_MERGES: Final = "cloud_storage_enable_segment_merging"


def merges(policy: CleanupPolicy, remote: RemoteTier) -> bool:
    """Tell whether a topic's remote segments are merged at all (F-R-064, F-R-065).

    Those of a compacted topic are written anew as they are compacted; where nothing is uploaded, nothing is merged.
    """
    is_on = property_of(remote.properties, _MERGES) == "true"
    return is_on and not policy.compacts and policy.tiering is not None and policy.tiering.uploads


@dataclass(frozen=True)
class Merge:
    """Merges of one partition. Nothing of what it writes is named yet."""

    remote: RemoteTier
    partition: Partition
    policy: CleanupPolicy
    rules: Rules

    def written(self, offsets: OffsetRange) -> Rewritten | None:
        """Write one object for each run that begins in a range, where a run begins too; `None`: there is none now.

        Raises:
            MissingObjectError: A segment or page is not there.
            UserError: A segment is damaged.
        """
        tiering = self.policy.tiering
        if tiering is None or not merges(self.policy, self.remote):
            return None
        place = remote_partition(tiering.location, self.partition.number)
        with whole_or_deleted(self.remote.storage) as done:
            for run in self._runs(place, offsets):
                done.append(Replacement.of(run, [self._one_object(run, place)]))
        if not done:
            return None
        return Rewritten(self.partition, (), remote=RemoteRewrite(place, self.remote.cluster_id, tiering, tuple(done)))

    def _runs(self, place: RemotePartition, offsets: OffsetRange) -> Iterator[tuple[Entry, ...]]:
        manifest = read_manifest(self.remote.storage, place)
        if manifest is None:
            return
        limits = merge_limits(self.remote.properties, self.policy.limits.bytes)
        there = OffsetRange(max(offsets.start, manifest.start), max(offsets.start, manifest.start, manifest.end))
        for run in runs_to_merge(entries_within(self.remote.storage, manifest, there), limits):
            if run[0].base >= offsets.stop:
                return
            yield run

    def _one_object(self, run: tuple[Entry, ...], place: RemotePartition) -> Entry:
        storage = self.remote.storage
        writer = SegmentWriter.under(storage, self.rules, place, run[0].epoch)
        written = writer.write_one(records_of(storage, run, self.partition.number))
        is_same = written is not None and (written.base, written.last) == (run[0].base, run[-1].last)
        if written is None or not is_same or written.digest != merged_digest(run):
            storage.delete([] if written is None else [written.key, index_key(written.key)])
            offsets = f"{self.partition}, offsets {run[0].base} to {run[-1].last}"
            message = f"{storage.url}: {offsets}: its records are not those whose digest the manifest keeps"
            raise UserError(message, hint="`reconciler run --only scrub` says what is wrong; nothing was changed.")
        horizons = [entry.horizon_ms for entry in run if entry.horizon_ms is not None]
        return replace(written, epoch=run[0].epoch, is_segment=True, horizon_ms=max(horizons) if horizons else None)
