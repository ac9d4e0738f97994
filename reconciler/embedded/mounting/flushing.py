"""Flushing: everything of a topic that object storage lacks is uploaded, the open segment too, whatever the interval.

What was compacted here since is uploaded once more: what is gone here would come back with the topic otherwise. Until
the cut clients go on writing, so what a flush leaves is what came meanwhile; after the cut nothing is left, and
`finished` lets each manifest end where its log ends.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reconciler.embedded.catalog.lookups import name_with_id, topic_with_id
from reconciler.embedded.keys import head_key
from reconciler.embedded.partition.entries import Entry
from reconciler.embedded.partition.head import read_heads
from reconciler.embedded.partition.headswaps import Partition
from reconciler.embedded.partition.pages import entries_within
from reconciler.embedded.remote.manifests.manifest import read_manifest
from reconciler.embedded.remote.manifests.swaps import ManifestSwap
from reconciler.embedded.remote.tier import remote_partition
from reconciler.embedded.remote.uploading.reupload import outdated
from reconciler.embedded.threads import side_by_side
from reconciler.embedded.upkeep.cleanup import cleanup_policy
from reconciler.embedded.upkeep.surveying import Lying
from reconciler.embedded.upkeep.tended import Tended
from reconciler.errors import RetryableError, UserError
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from reconciler.embedded.partition.head import Head
    from reconciler.embedded.remote.manifests.manifest import Manifest
    from reconciler.embedded.remote.tier import RemoteTier
    from reconciler.embedded.upkeep.chores import Chore
    from reconciler.embedded.upkeep.passes import Spread, Upkeep
    from reconciler.embedded.upkeep.uploads import Uploads
    from reconciler.objectstore.base import ObjectStore


@dataclass(frozen=True)
class Flush:
    """What one topic has that object storage lacks, and how it gets there."""

    upkeep: Upkeep
    """Whose `may_go_on` is asked between rounds; may raise, and whoever comes next goes on."""
    remote: RemoteTier
    full_name: str
    topic_id: str
    spread: Spread | None = None
    """Where there is much to do; `None`: here."""

    def upload(self, rounds: int | None = None) -> int:
        """Upload what is stable of every partition; return how many stored bytes that was.

        While clients write there is always more: after so many `rounds` the rest is left, `None`: once nothing is.

        Raises:
            UserError: A partition cannot be uploaded: its manifest is damaged, belongs to another cluster, or a part
                is missing.
            RetryableError: A store does not answer.
        """
        from reconciler.embedded.upkeep.uploads import Uploads  # noqa: PLC0415 - brings Arrow

        uploads = Uploads(self.upkeep.store, self.remote, self.upkeep.now_ms, takes_open=True)
        stored = 0
        for done in itertools.count():
            if done == rounds:
                break
            self.upkeep.may_go_on()
            tended, lying = Tended(), list(self._lying())
            if chores := _all_of(side_by_side(lambda one: uploads.due(*one)[0], lying, name="flush")):
                self.upkeep.upload_all(uploads, chores, tended, self.spread)
            elif chores := _all_of(side_by_side(lambda one: _outdated(uploads, *one), lying, name="flush")):
                self.upkeep.reupload_all(chores, tended, self.spread)
            else:
                break
            for error in tended.errors:
                raise error
            if not tended.partitions:
                message = f"topic {self.full_name}: nothing of {len(chores)} uploads was named"
                raise RetryableError(message, hint="Somebody else uploads it, or it was switched off: try again.")
            stored += tended.bytes
        return stored

    def finished(self) -> Mapping[int, Manifest]:
        """Let the manifest of every partition end where its log does, and return them: there is nothing after it.

        Only of a topic whose heads are sealed, and of which all is uploaded.

        Raises:
            UserError: A manifest lacks what its head has.
        """
        lying = list(self._lying())

        found = side_by_side(lambda one: self._finish(*one), lying, name="flush")
        return {one.partition.number: manifest for (one, _), manifest in zip(lying, found, strict=True)}

    def _finish(self, one: Lying, head: Head) -> Manifest:
        tiering = one.policy.tiering
        if tiering is None:
            raise _not_tiered(self.full_name)
        place = remote_partition(tiering.location, one.partition.number)
        swap = ManifestSwap(self.remote.storage, self.remote.cluster_id, tiering)

        def ended(manifest: Manifest) -> Manifest | None:
            rest = OffsetRange(max(manifest.end, head.local_start), head.end)
            missing = next(entries_within(self.upkeep.store, head, rest), None)
            if missing is not None:
                raise _incomplete(one.partition, missing)
            is_compacted = next(outdated(self.upkeep.store, self.remote.storage, head, manifest), None) is None
            after = replace(
                manifest,
                start=max(manifest.start, head.start),
                end=max(manifest.end, head.end),
                epochs=head.epochs,
                compacted_to=head.compacted_to if is_compacted else manifest.compacted_to,
            )
            return None if after == manifest else after

        manifest = swap(place, ended) or read_manifest(self.remote.storage, place)
        if manifest is None or manifest.end != head.end:
            # Under a newer tiered epoch than the catalog's a swap does nothing: nobody is to take that for the end.
            found = (
                "is not there" if manifest is None else f"ends at {manifest.end}, under a tiered epoch we do not know"
            )
            message = f"{one.partition}: the log ends at offset {head.end}, and {place.key} {found}"
            raise RetryableError(
                message, hint="Restore it from a copy or version of the bucket, or cancel the unmount."
            )
        return manifest

    def _lying(self) -> Iterator[tuple[Lying, Head]]:
        """Yield the partitions ever written, with their heads as they are now."""
        catalog = self.upkeep.catalog.read()
        if topic_with_id(catalog, self.topic_id, self.full_name) is None:
            raise RetryableError(f"topic {self.full_name} has gone meanwhile", hint="Somebody else unmounted it.")
        name = name_with_id(catalog, self.topic_id, self.full_name)
        policy = cleanup_policy(catalog, name, self.upkeep.cluster_id)
        if policy.tiering is None or not policy.tiering.uploads:
            raise _not_tiered(name)
        for number, head in sorted(read_heads(self.upkeep.store, self.topic_id).items()):
            partition = Partition(name, self.topic_id, number)
            yield Lying(partition, policy, head_key(self.topic_id, number), "", is_changed=True), head


def pending_bytes(store: ObjectStore, topic_id: str) -> int:
    """Return how many stored bytes of a topic object storage lacks; pages are not read, so it may be a little more."""
    return sum(map(_pending, read_heads(store, topic_id).values()))


def _outdated(uploads: Uploads, lying: Lying, head: Head) -> list[Chore] | None:
    return uploads.outdated(lying, head)[0] if uploads.reuploads(lying.policy) else None


def _all_of(found: Iterable[list[Chore] | None]) -> list[Chore]:
    return [chore for chores in found for chore in chores or ()]


def _pending(head: Head) -> int:
    pages = sum(page.bytes for page in head.pages if page.last >= head.uploaded_to)
    return pages + sum(entry.bytes for entry in head.entries if entry.last >= head.uploaded_to)


def _not_tiered(full_name: str) -> UserError:
    message = f"topic {full_name} cannot be flushed: uploads are switched off"
    return UserError(
        message, hint="Switch cloud_storage_enabled, cloud_storage_enable_segment_uploads and remote.write on."
    )


def _incomplete(partition: Partition, entry: Entry) -> RetryableError:
    message = f"{partition}: offsets {entry.base} to {entry.last} are not in object storage yet"
    return RetryableError(message, hint="Go on with: reconciler run --once --only migrations")
