"""Swaps of a manifest: by its owner alone, under the tiered epoch the catalog has, at no time naming what is not there.

Objects are put before the swap that names them, and deleted after the swap that names them no more. A swap whose
answer was lost is recognised by its mark.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from reconciler.embedded.keys import fresh_mark
from reconciler.embedded.remote.manifests.manifest import Manifest, manifest_register, parse_manifest
from reconciler.embedded.remote.manifests.owning import check_own
from reconciler.embedded.remote.manifests.spilling import ManifestSpill

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.embedded.catalog.tiering import Tiering
    from reconciler.embedded.remote.manifests.manifest import RemotePartition
    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.register import Held


@dataclass(frozen=True, slots=True)
class ManifestSwap:
    """Who swaps: the cluster that holds the topic, and the tiering it acts under."""

    storage: ObjectStore
    cluster_id: str
    tiering: Tiering

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

        def changed(held: Held | None) -> dict[str, Any] | None:
            nonlocal after
            after = None
            before = (
                Manifest(self.cluster_id) if held is None else parse_manifest(self.storage, register.key, held.value)
            )
            check_own(partition, before, self.cluster_id)
            if before.tiered_epoch > self.tiering.epoch:
                return None
            decided = change(before)
            if decided is None:
                return None
            after = spill.spilled(replace(decided, tiered_epoch=self.tiering.epoch))
            return after.to_json()

        register.update(changed, mark=mark or fresh_mark())
        self.storage.delete(spill.superfluous(after))
        return after
