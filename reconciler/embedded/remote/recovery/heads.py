"""The head of a partition whose records lie in object storage: it begins where the manifest ends, under its own epoch.

What comes now is not what came there before: who asks for an epoch is told apart by that (Kafka's leader epochs).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.embedded.partition.head import PRODUCERS, Head, head_register
from reconciler.embedded.partition.spilling import Spill
from reconciler.errors import LostRaceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.embedded.partition.entries import Entry
    from reconciler.embedded.remote.manifests.manifest import Manifest
    from reconciler.objectstore.base import ObjectStore


def make_head(
    store: ObjectStore,
    of: tuple[str, int],
    manifest: Manifest,
    kms_key_id: str | None,
    fetched: Sequence[Entry] = (),
) -> None:
    """Make the head of a partition, by topic id and number, where there is none: all of it is remote.

    `fetched` are its newest segments, oldest first, that were copied into the local tier, too; where somebody else was
    faster they are deleted.
    """
    topic_id, number = of
    epoch, end = manifest.epochs[-1][0] + 1, manifest.end
    head = Head(
        PRODUCERS,
        start=manifest.start,
        local_start=max(manifest.start, fetched[0].base) if fetched else end,
        end=end,
        epochs=(*manifest.epochs, (epoch, end)),
        entries=tuple(fetched),
        compacted_to=min(manifest.compacted_to, end),
        kms_key_id=kms_key_id,
        uploaded_to=end,
    )
    spill = Spill(store, topic_id, number)
    try:
        head_register(store, topic_id, number).swap(None, spill.spilled(head).to_json(), epoch=epoch)
    except LostRaceError:  # Somebody else makes it too, and was faster.
        store.delete([*(entry.key for entry in fetched), *spill.keys])
