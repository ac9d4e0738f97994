"""Delete topics that are marked for deletion, and turn tiering off, partition by partition.

What a deleted topic has in object storage goes after it, where the mark says so: by then nobody can upload to it any
more.

Every step may be repeated: a run that died is finished by the next process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from reconciler.archives.location import Tiering, TopicLocation
from reconciler.archives.manifest import Garbage, Manifest, ManifestSwap, remote_partition
from reconciler.archives.storage import check_storage
from reconciler.embedded.catalog.tiering_state import disabled, disabling, tiering_of
from reconciler.embedded.keys import partition_of_head
from reconciler.embedded.segments.gate import remove_partition
from reconciler.embedded.segments.head import Head, Partition, list_heads, swap_head
from reconciler.embedded.tiered.remote_sweep import RemoteDeletion
from reconciler.errors import ReconcilerError, UserError
from reconciler.runtime.threads import side_by_side

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.tables import Catalog, Draft
    from reconciler.objectstore.base import ObjectStore


Failure: TypeAlias = ReconcilerError | None

_MANY: Final = 100
"""From here on one listing of all heads is cheaper than one for each topic."""


def finish_deletions(store: ObjectStore, catalog: CatalogRegister, remote: RemoteDeletion | None = None) -> int:
    """Delete the objects of every topic that is marked, then the marks by one commit; return how many are done.

    `remote` deletes what lies in object storage.

    Raises:
        UserError: A head or manifest cannot be read, or object storage is not at hand; the topics without such are
            done.
    """
    read = catalog.read()
    marked = read.deletions
    if not marked:
        return 0

    def removed(head: tuple[str, int]) -> bool:
        remove_partition(store, *head)
        return True

    failed = each_head(removed, heads_of(store, marked))
    for topic_id, entry in marked.items():
        if entry.location is not None and topic_id not in failed:
            error = _failure(remote or RemoteDeletion(None, ""), entry.location, read.cluster.storage_id)
            if error is not None:
                failed[topic_id] = error
    done = [topic_id for topic_id in marked if topic_id not in failed]

    def unmark(draft: Draft) -> None:
        for topic_id in done:
            if topic_id in draft.deletions:
                draft.put_deletion(topic_id, None)

    catalog.commit(unmark)
    raise_first(failed)
    return len(done)


def _failure(remote: RemoteDeletion, location: str, storage_id: str | None) -> Failure:
    try:
        remote.delete(TopicLocation.parse(location), storage_id)
    except ReconcilerError as error:
        return error
    return None


def each_head(tend: Callable[[tuple[str, int]], bool], heads: Iterable[tuple[str, int]]) -> dict[str, Failure]:
    """Tend many heads side by side; return the topics of those that are not done, with what went wrong if anything."""

    def tended(head: tuple[str, int]) -> tuple[str, bool, Failure]:
        try:
            return head[0], tend(head), None
        except ReconcilerError as error:
            return head[0], False, error

    failed: dict[str, Failure] = {}
    for topic_id, is_done, error in side_by_side(tended, heads, name="tend"):
        if not is_done:
            failed[topic_id] = failed.get(topic_id) or error
    return failed


def raise_first(failed: Mapping[str, Failure]) -> None:
    """Raise what went wrong first, once all the others are done."""
    for error in failed.values():
        if error is not None:
            raise error


def heads_of(store: ObjectStore, topic_ids: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield topic id and partition of every head of some topics: one listing for each, or one for all."""
    wanted = set(topic_ids)
    listings: list[str | None] = [None] if len(wanted) > _MANY else [*sorted(wanted)]
    for of_topic in listings:
        for listed in list(list_heads(store, of_topic)):
            topic_id, partition = partition_of_head(listed.key)
            if topic_id in wanted:
                yield topic_id, partition


# Turn tiering off (KIP-950): drive a topic from DISABLING to DISABLED.
#
# The catalog says so first: state, policy and the next tiered epoch are one commit with the configs. Under that epoch
# every partition that was ever written to is gone through, its head before its manifest. Then the catalog says that it
# is done, and raises the epoch again. A manifest keeps the epoch of its last change: after DISABLED, of DISABLING,
# until retention or an upload changes it. Each step may be repeated, and a run that died anywhere is continued by the
# next (F-K-063).
#
# `retain` leaves all as it is. The manifest takes the epoch, so that an upload begun before publishes nothing
# (F-K-056); where there is no manifest yet, an empty one is made that says so.
#
# `delete` begins the log at its local start (F-K-061) and leaves the manifest empty, all that it named in `garbage`
# (F-K-062); the bytes go in `run`. What is local stays readable, whether it was uploaded or not. The head takes
# `uploaded_to` back to the local start in the same swap, so that nothing local counts as uploaded any more, and keeps
# the epoch there, so that an uploader that slept since before does not raise it again: local records would be evicted
# that no manifest names. The emptied manifest begins and ends at that local start. When tiering is on again, uploads go
# on where the manifest ends: from the earliest local offset of then (F-R-011), for what has expired in between is gone
# from the log, and the manifest begins where the log does. Keys are fresh each time, so an object that waits in the
# garbage is never one that is uploaded anew. Offsets between an old `uploaded_to` and a later local start were never
# uploaded and are gone: the gap that a plan names before it switches tiering on again (F-R-012).


def _go_on() -> None:
    """Go on: there is no lease that could be lost."""


def finish_disablings(
    store: ObjectStore,
    catalog: CatalogRegister,
    storage: ObjectStore | None,
    cluster_id: str,
    *,
    may_go_on: Callable[[], None] = _go_on,
) -> int:
    """Drive every topic that is DISABLING to DISABLED; return how many are done.

    `storage` is the cluster's object storage. `may_go_on` is asked before each partition and each swap of the catalog.

    Raises:
        UserError: The object storage is not the one that the cluster is bound to, or cannot be reached from here.
        ReconcilerError: A partition cannot be gone through; the topics without such a one are done.
    """
    found = catalog.read()
    begun = _begun(found, cluster_id)
    if not begun:
        return 0
    bound = found.cluster.storage_id
    if bound is not None:
        if storage is None:
            names = ", ".join(sorted(partition.full_name for partition in begun.values())[:5])
            message = f"the tiering of {names} cannot be switched off: the cluster has no object storage any more"
            raise UserError(message, hint="Declare objectStorage of the cluster as it was, then `run` finishes it.")
        check_storage(storage, bound)
    # Where the cluster was never bound to an object storage, no manifest can be there.
    failed = (
        {}
        if bound is None or storage is None
        else each_head(
            lambda head: begun[head[0]].gone_through(store, storage, head[1], may_go_on), heads_of(store, begun)
        )
    )
    done = {topic_id: each.tiering.epoch for topic_id, each in begun.items() if topic_id not in failed}

    def say(draft: Draft) -> None:
        for topic_id, epoch in done.items():
            disabled(draft, topic_id, epoch)

    catalog.commit(say, may_go_on=may_go_on)
    raise_first(failed)
    return len(done)


def _begun(catalog: Catalog, cluster_id: str) -> Mapping[str, _Disabling]:
    """Return what is being switched off, by topic id."""
    found: dict[str, _Disabling] = {}
    for full_name in disabling(catalog):
        tiering = tiering_of(catalog, full_name, cluster_id)
        if tiering is not None:
            topic_id = catalog.topics[full_name].id
            found[topic_id] = _Disabling(full_name, topic_id, tiering, cluster_id)
    return found


@dataclass(frozen=True, slots=True)
class _Disabling:
    """One topic that is being switched off, and the tiering it has since then."""

    full_name: str
    topic_id: str
    tiering: Tiering
    cluster_id: str

    def gone_through(
        self, store: ObjectStore, storage: ObjectStore, number: int, may_go_on: Callable[[], None]
    ) -> bool:
        """Bring one partition under the epoch; say whether that is done."""
        may_go_on()
        swap = ManifestSwap(storage, self.cluster_id, self.tiering)
        remote = remote_partition(self.tiering.location, number)
        if self.tiering.policy != "delete":
            swap(remote, self._fenced)
            return True
        head = self._cut(store, number)
        if head is None:
            return False  # The topic is being deleted, or its records are on their way elsewhere.
        swap(remote, lambda manifest: self._emptied(manifest, head.start))
        return True

    def _fenced(self, manifest: Manifest) -> Manifest | None:
        return None if manifest.tiered_epoch == self.tiering.epoch else manifest

    def _cut(self, store: ObjectStore, number: int) -> Head | None:
        """Begin a partition at its local start; return its head as it is then, `None` where it is gone or sealed."""
        cut: Head | None = None

        def change(head: Head) -> Head | None:
            nonlocal cut
            cut = head
            if head.tiered_epoch >= self.tiering.epoch:
                return None
            local = head.local_start
            cut = replace(head, start=local, uploaded_to=local, tiered_epoch=self.tiering.epoch)
            return cut

        swap_head(store, Partition(self.full_name, self.topic_id, number), change)
        return cut

    def _emptied(self, manifest: Manifest, start: int) -> Manifest | None:
        if manifest.tiered_epoch == self.tiering.epoch and not (manifest.pages or manifest.entries):
            return None
        waiting = manifest.garbage
        return replace(
            manifest,
            start=start,
            end=start,
            compacted_to=0,
            pages=(),
            entries=(),
            garbage=Garbage((*waiting.pages, *manifest.pages), (*waiting.entries, *manifest.entries)),
        )
