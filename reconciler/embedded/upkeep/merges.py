"""The merge job of a pass: which partitions have small neighbours in object storage, and in which of their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.embedded.partition.pages import entries_within
from reconciler.embedded.remote.manifests.agreement import check_not_behind
from reconciler.embedded.remote.manifests.manifest import read_manifest
from reconciler.embedded.remote.manifests.owning import check_own
from reconciler.embedded.remote.manifests.purging import purge
from reconciler.embedded.remote.manifests.swaps import ManifestSwap
from reconciler.embedded.remote.tidying.merging import merges
from reconciler.embedded.remote.tidying.runs import merge_limits, runs_of
from reconciler.embedded.remote.tier import remote_partition
from reconciler.embedded.upkeep.chores import Chore
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.partition.headswaps import Partition
    from reconciler.embedded.remote.tidying.runs import MergeLimits, Run
    from reconciler.embedded.remote.tier import RemoteTier
    from reconciler.embedded.upkeep.cleanup import CleanupPolicy
    from reconciler.embedded.upkeep.surveying import Lying, Survey

_CHORE_BYTES: Final = 512 * 1024 * 1024
_CHORE_RUNS: Final = 64
"""What one task does at once of a partition: neighbouring runs, named together."""
_ANY_SEGMENT: Final = 1 << 30
"""In the place of a topic's own `segment.bytes`, which its policy tells."""


class Merges:
    """Decides for one pass. Safe from any thread.

    What lies before the first run of which anything may become is not looked at again while the limits stay: however
    long a partition's history is, its end alone is read.
    """

    def __init__(self, remote: RemoteTier) -> None:
        """Say where the remote tier is."""
        self._remote = remote
        self._before: dict[str, list[int]] = {}
        self._settled: dict[str, list[int]] = {}
        """By key of a head: high and low, and the offset before which nothing is merged under these."""

    def begin(self, survey: Survey) -> None:
        """Go by what the last pass remembered; look at everything where it is judged otherwise now."""
        judged = repr(merge_limits(self._remote.properties, _ANY_SEGMENT))
        if survey.notes.get("limits") != judged:
            survey.rows.clear()
        self._before = survey.notes.get("settled", {})
        # Of what is neither remembered nor looked at now, the topic is gone.
        self._settled = {key: settled for key, settled in self._before.items() if key in survey.rows}
        survey.notes.update(limits=judged, settled=self._settled)

    def asks(self, policy: CleanupPolicy) -> bool:
        """Tell whether anything of a topic may be merged."""
        return merges(policy, self._remote)

    def due(self, lying: Lying, head: Head) -> tuple[list[Chore] | None, int | None]:
        """Return what of a partition is to be merged; `None`: nothing, until more is uploaded.

        What a merge that died has left as garbage is deleted.

        Raises:
            OwnershipLostError: Its remote part belongs to another cluster now.
            UserError: Its manifest lacks what was uploaded: the right one names what merging would delete.
        """
        tiering, storage = lying.policy.tiering, self._remote.storage
        if tiering is None or not merges(lying.policy, self._remote):
            return None, None
        place = remote_partition(tiering.location, lying.partition.number)
        manifest = read_manifest(storage, place)
        if manifest is None:
            return None, None
        check_own(place, manifest, self._remote.cluster_id)
        check_not_behind(manifest, head, place, lying.partition)
        purge(ManifestSwap(storage, self._remote.cluster_id, tiering), place, manifest.garbage)
        limits = merge_limits(self._remote.properties, lying.policy.limits.bytes)
        high, low, settled = self._before.get(lying.key, [0, 0, 0])
        start = max(manifest.start, settled if (high, low) == (limits.high, limits.low) else 0)
        entries = entries_within(storage, manifest, OffsetRange(start, max(start, manifest.end)))
        found = [run for run in runs_of(entries, limits) if run.is_open]
        self._settled[lying.key] = [limits.high, limits.low, found[0].entries[0].base if found else manifest.end]
        return list(_chores(lying.partition, found, limits)) or None, None


def _chores(partition: Partition, found: Iterable[Run], limits: MergeLimits) -> Iterator[Chore]:
    """Yield neighbouring runs together, as many as one task does at once."""
    runs = stored = start = stop = 0
    for run in found:
        if not run.is_worth(limits):
            continue
        if runs and (runs == _CHORE_RUNS or stored + run.bytes > _CHORE_BYTES):
            yield Chore(partition, stored, OffsetRange(start, stop))
            runs = stored = 0
        start = start if runs else run.entries[0].base
        runs, stored, stop = runs + 1, stored + run.bytes, run.entries[-1].last + 1
    if runs:
        yield Chore(partition, stored, OffsetRange(start, stop))
