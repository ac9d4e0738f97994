"""Whether a manifest has what its head says is uploaded: an older copy that was put back has not, nor has none at all.

Of such a partition nothing is uploaded, merged or compacted in object storage, and nothing leaves or expires that only
the right manifest names: every object stays as it is until that is back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import UserError

if TYPE_CHECKING:
    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.remote.manifests.manifest import Manifest, RemotePartition


def is_behind(manifest: Manifest | None, head: Head) -> bool:
    """Tell whether it lacks what is uploaded. A head that was read before its manifest never shows so by chance.

    What lies below the log's start is missed by nobody: a disabling that deletes counts all of it as uploaded.
    """
    return max(0 if manifest is None else manifest.end, head.start) < head.uploaded_to


def check_not_behind(manifest: Manifest | None, head: Head, partition: RemotePartition, where: object) -> None:
    """Refuse to act on a manifest that lacks what is uploaded; `where` says of which topic and partition.

    Raises:
        UserError: It does.
    """
    if not is_behind(manifest, head):
        return
    found = "is not there" if manifest is None else f"ends at offset {manifest.end}: it is an older copy"
    message = f"{where}: {partition.key} {found}, and everything below offset {head.uploaded_to} was uploaded"
    hint = (
        "Restore the manifest from a copy or version of the bucket; nothing was changed. Where there is none: "
        "switching the topic's tiering off with remote.log.disable.policy=delete gives up what is remote alone."
    )
    raise UserError(message, hint=hint)
