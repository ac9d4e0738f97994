"""Where a topic of another platform lies in object storage, and in whose name it is written there.

The format is that of a detached topic, so whoever mounts it need not know which platform it came from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.embedded.catalog.tiering import Tiering
from reconciler.embedded.remote.manifests.swaps import ManifestSwap
from reconciler.embedded.remote.storagefile import check_storage
from reconciler.embedded.remote.tier import remote_partition
from reconciler.lifecycles.tiering import TieringState
from reconciler.resources.tierrules import RETAIN, Targets

if TYPE_CHECKING:
    from reconciler.embedded.catalog.tiering import TopicLocation
    from reconciler.embedded.remote.manifests.manifest import RemotePartition
    from reconciler.objectstore.base import ObjectStore

_SPILL_BYTES: Final = 64 * 1024
"""As the property `cloud_storage_spillover_manifest_size` has it where nobody sets it."""
_NO_TARGETS: Final = Targets(None, None, None, None, is_strict=False)


@dataclass(frozen=True, slots=True)
class Archive:
    """One topic in object storage. Picklable: an executor opens the storage anew."""

    storage: ObjectStore
    location: TopicLocation
    owner: str
    """Id (a UUID) of the cluster that writes it, and whose it is until it is detached."""
    storage_id: str | None = None
    """Which object storage it is; `None`: whoever asks does not know."""

    def partition(self, number: int) -> RemotePartition:
        """Return one partition's place."""
        return remote_partition(self.location, number)

    def check_shared(self) -> None:
        """Refuse a machine that does not see the object storage.

        Raises:
            UserError: What is found there is another storage, or none: to this machine a folder that is not shared.
        """
        check_storage(self.storage, self.storage_id)

    @property
    def swap(self) -> ManifestSwap:
        """What changes its manifests in its owner's name."""
        return ManifestSwap(self.storage, self.owner, self._tiering)

    @property
    def _tiering(self) -> Tiering:
        """Say what a manifest is swapped under: no catalog has this topic, and nobody else uploads it."""
        return Tiering(
            self.location,
            TieringState.ENABLED,
            1,
            RETAIN,
            uploads=True,
            serves=True,
            targets=_NO_TARGETS,
            max_interval_ms=None,
            spill_bytes=_SPILL_BYTES,
        )
