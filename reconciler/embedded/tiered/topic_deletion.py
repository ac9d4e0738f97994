"""Delete marked topics, and disable tiering. Every step can be repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from reconciler.archives.location import TopicLocation, TopicTiering
from reconciler.archives.manifest import Garbage, Manifest, ManifestSwap, remote_partition
from reconciler.archives.storage import check_storage
from reconciler.embedded.catalog.tiering_state import find_tiering, finish_disabling, list_disabling_topics
from reconciler.embedded.keys import parse_head_key
from reconciler.embedded.segments.gate import remove_partition
from reconciler.embedded.segments.head import Head, Partition, list_heads, swap_head
from reconciler.embedded.tiered.remote_sweep import RemoteDeletion
from reconciler.errors import ReconcilerError, UserError
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.tables import Catalog, Draft
    from reconciler.objectstore.base import ObjectStore


Failure: TypeAlias = ReconcilerError | None

_MAX_LISTINGS: Final = 100
"""Maximum topics to list one by one; beyond it, one listing reads all heads."""


def finish_deletions(store: ObjectStore, catalog: CatalogRegister, remote: RemoteDeletion | None = None) -> int:
    """Delete the objects of marked topics, then the marks; return how many topics."""
    read = catalog.read()
    marked = read.deletions
    if not marked:
        return 0

    def remove(head: tuple[str, int]) -> bool:
        remove_partition(store, *head)
        return True

    failed = for_each_head(remove, iter_topic_heads(store, marked))
    for topic_id, entry in marked.items():
        if entry.location is not None and topic_id not in failed:
            error = _delete_remote(remote or RemoteDeletion(None, ""), entry.location, read.cluster.storage_id)
            if error is not None:
                failed[topic_id] = error
    done = [topic_id for topic_id in marked if topic_id not in failed]

    def unmark(draft: Draft) -> None:
        for topic_id in done:
            if topic_id in draft.deletions:
                draft.put_deletion(topic_id, None)

    catalog.commit(unmark)
    raise_first_error(failed)
    return len(done)


def _delete_remote(remote: RemoteDeletion, location: str, storage_id: str | None) -> Failure:
    try:
        remote.delete_location(TopicLocation.parse(location), storage_id)
    except ReconcilerError as error:
        return error
    return None


def for_each_head(process: Callable[[tuple[str, int]], bool], heads: Iterable[tuple[str, int]]) -> dict[str, Failure]:
    """Call `process` for heads in parallel; it returns whether a head is done. Return other topics, with any error."""

    def run(head: tuple[str, int]) -> tuple[str, bool, Failure]:
        try:
            return head[0], process(head), None
        except ReconcilerError as error:
            return head[0], False, error

    failed: dict[str, Failure] = {}
    for topic_id, is_done, error in map_in_parallel(run, heads, name="tend"):
        if not is_done:
            failed[topic_id] = failed.get(topic_id) or error
    return failed


def raise_first_error(failed: Mapping[str, Failure]) -> None:
    """Raise the first error, if any."""
    for error in failed.values():
        if error is not None:
            raise error


def iter_topic_heads(store: ObjectStore, topic_ids: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield topic id and partition."""
    wanted = set(topic_ids)
    listings: list[str | None] = [None] if len(wanted) > _MAX_LISTINGS else [*sorted(wanted)]
    for of_topic in listings:
        for listed in list(list_heads(store, of_topic)):
            topic_id, partition = parse_head_key(listed.key)
            if topic_id in wanted:
                yield topic_id, partition


def _never_stop() -> None:
    pass


def finish_disablings(
    store: ObjectStore,
    catalog: CatalogRegister,
    storage: ObjectStore | None,
    cluster_id: str,
    *,
    may_go_on: Callable[[], None] = _never_stop,
) -> int:
    """Finish disabling the tiering of topics; return how many (KIP-950).

    Each partition's head, then its manifest, change under the committed tiered epoch. Then the catalog commits DISABLED
    and a higher epoch. Each step is repeatable (F-K-063).

    `retain` only raises the manifest's epoch, which prevents earlier uploads from publishing (F-K-056). `delete` raises
    the log start to the local start (F-K-061) and makes remote segments garbage (F-K-062). The same swap lowers the
    head's `uploaded_to`; otherwise a late upload could cause evictions of records that no manifest references. Later
    uploads start at the earliest local offset (F-R-011); the plan shows this gap (F-R-012).
    """
    current = catalog.read()
    begun = _find_disabling_topics(current, cluster_id)
    if not begun:
        return 0
    bound = current.cluster.storage_id
    if bound is not None:
        if storage is None:
            names = ", ".join(sorted(partition.full_name for partition in begun.values())[:5])
            message = f"the tiering of {names} cannot be switched off: the cluster has no object storage any more"
            raise UserError(message, hint="Declare objectStorage of the cluster as it was, then `run` finishes it.")
        check_storage(storage, bound)
    failed = (
        {}
        if bound is None or storage is None
        else for_each_head(
            lambda head: begun[head[0]].disable_partition(store, storage, head[1], may_go_on),
            iter_topic_heads(store, begun),
        )
    )
    done = {topic_id: topic.tiering.epoch for topic_id, topic in begun.items() if topic_id not in failed}

    def commit_disabled(draft: Draft) -> None:
        for topic_id, epoch in done.items():
            finish_disabling(draft, topic_id, epoch)

    catalog.commit(commit_disabled, may_go_on=may_go_on)
    raise_first_error(failed)
    return len(done)


def _find_disabling_topics(catalog: Catalog, cluster_id: str) -> Mapping[str, _TopicDisablement]:
    topics: dict[str, _TopicDisablement] = {}
    for full_name in list_disabling_topics(catalog):
        tiering = find_tiering(catalog, full_name, cluster_id)
        if tiering is not None:
            topic_id = catalog.topics[full_name].id
            topics[topic_id] = _TopicDisablement(full_name, topic_id, tiering, cluster_id)
    return topics


@dataclass(frozen=True, slots=True)
class _TopicDisablement:
    full_name: str
    topic_id: str
    tiering: TopicTiering
    cluster_id: str

    def disable_partition(
        self, store: ObjectStore, storage: ObjectStore, number: int, may_go_on: Callable[[], None]
    ) -> bool:
        may_go_on()
        swap = ManifestSwap(storage, self.cluster_id, self.tiering)
        remote = remote_partition(self.tiering.location, number)
        if self.tiering.policy != "delete":
            swap(remote, self._raise_manifest_epoch)
            return True
        head = self._raise_start(store, number)
        if head is None:
            return False  # The head is missing or sealed, so a later pass disables the partition.
        swap(remote, lambda manifest: self._empty_manifest(manifest, head.start))
        return True

    def _raise_manifest_epoch(self, manifest: Manifest) -> Manifest | None:
        return None if manifest.tiered_epoch == self.tiering.epoch else manifest

    def _raise_start(self, store: ObjectStore, number: int) -> Head | None:
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

    def _empty_manifest(self, manifest: Manifest, start: int) -> Manifest | None:
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
