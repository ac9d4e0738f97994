"""Whose a remote part is: another cluster's, or nobody's, is left alone in every way, and said once with what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.embedded.remote.manifests.manifest import NOBODY
from reconciler.errors import OwnershipLostError

if TYPE_CHECKING:
    from reconciler.embedded.remote.manifests.manifest import Manifest


def check_own(what: object, manifest: Manifest, cluster_id: str) -> None:
    """Refuse to act on what a manifest names, where that is not the cluster's; `what` says of which partition it is.

    Raises:
        OwnershipLostError: It is not.
    """
    if manifest.owner != cluster_id:
        raise ownership_lost(what, manifest.owner)


def ownership_lost(what: object, owner: str) -> OwnershipLostError:
    """Return the error for something in object storage that is `owner`'s, and not ours any more."""
    whose = "nobody now: it was released" if owner == NOBODY else f"cluster {owner} now"
    hint = (
        "Nothing was changed; see who has it: reconciler mount list. What was written here since is here alone: copy "
        "it if it matters, then delete the topic here. Its objects stay."
    )
    return OwnershipLostError(f"{what} belongs to {whose}", hint=hint)
