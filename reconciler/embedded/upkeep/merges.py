"""The merge job of a pass: which partitions have small neighbours in object storage, and in which of their offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.embedded.partition.pages import entries_within
from reconciler.embedded.remote.manifest import read_manifest
from reconciler.embedded.remote.manifestswaps import ManifestSwap
from reconciler.embedded.remote.merging import merges
from reconciler.embedded.remote.purging import purge
from reconciler.embedded.remote.runs import MergeLimits, merge_limits, runs_to_merge
from reconciler.embedded.remote.tier import remote_partition
from reconciler.embedded.upkeep.chores import Chore
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reconciler.embedded.partition.entries import Entry
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.partition.headswaps import Partition
    from reconciler.embedded.remote.tier import RemoteTier
    from reconciler.embedded.upkeep.cleanup import CleanupPolicy
    from reconciler.embedded.upkeep.surveying import Lying, Survey

_CHORE_BYTES: Final = 512 * 1024 * 1024
_CHORE_RUNS: Final = 64
"""What one task does at once of a partition: neighbouring runs, named together."""
_ANY_SEGMENT: Final = 1 << 30
"""In the place of a topic's own `segment.bytes`, which its policy tells."""


@dataclass(frozen=True)
class Merges:
    """Decides for one pass. Safe from any thread."""

    remote: RemoteTier

    def begin(self, survey: Survey) -> None:
        """Look at everything once more where it is judged otherwise than in the last pass."""
        judged = repr(merge_limits(self.remote.properties, _ANY_SEGMENT))
        if survey.notes.get("limits") != judged:
            survey.rows.clear()
            survey.notes["limits"] = judged

    def asks(self, policy: CleanupPolicy) -> bool:
        """Tell whether anything of a topic may be merged."""
        return merges(policy, self.remote)

    def due(self, lying: Lying, _head: Head) -> tuple[list[Chore] | None, int | None]:
        """Return what of a partition is to be merged; `None`: nothing, until more is uploaded.

        What a merge that died has left as garbage is deleted.

        Raises:
            OwnershipLostError: Its remote part belongs to another cluster now.
        """
        tiering = lying.policy.tiering
        if tiering is None or not merges(lying.policy, self.remote):
            return None, None
        place = remote_partition(tiering.location, lying.partition.number)
        manifest = read_manifest(self.remote.storage, place)
        if manifest is None:
            return None, None
        purge(ManifestSwap(self.remote.storage, self.remote.cluster_id, tiering), place, manifest.garbage)
        limits = merge_limits(self.remote.properties, lying.policy.limits.bytes)
        entries = entries_within(self.remote.storage, manifest, OffsetRange(manifest.start, manifest.end))
        return list(_chores(lying.partition, entries, limits)) or None, None


def _chores(partition: Partition, entries: Iterable[Entry], limits: MergeLimits) -> Iterator[Chore]:
    """Yield neighbouring runs together, as many as one task does at once."""
    runs = stored = start = stop = 0
    for run in runs_to_merge(entries, limits):
        size = sum(entry.bytes for entry in run)
        if runs and (runs == _CHORE_RUNS or stored + size > _CHORE_BYTES):
            yield Chore(partition, stored, OffsetRange(start, stop))
            runs = stored = 0
        start = start if runs else run[0].base
        runs, stored, stop = runs + 1, stored + size, run[-1].last + 1
    if runs:
        yield Chore(partition, stored, OffsetRange(start, stop))
