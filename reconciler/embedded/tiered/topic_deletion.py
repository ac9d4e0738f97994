"""Delete topics that are marked for deletion, partition by partition.

What lies in object storage goes after it, where the mark says so: by then nobody can upload to it any more.

Every step may be repeated: a run that died is finished by the next process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from reconciler.embedded.catalog.tiering_state import TopicLocation
from reconciler.embedded.keys import HEADS, heads_prefix, partition_of_head
from reconciler.embedded.segments.gate import remove_partition
from reconciler.embedded.tiered.remote_sweep import RemoteDeletion
from reconciler.errors import ReconcilerError
from reconciler.runtime.threads import side_by_side

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.tables import Draft
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
    prefixes = [HEADS] if len(wanted) > _MANY else [heads_prefix(topic_id) for topic_id in sorted(wanted)]
    for prefix in prefixes:
        for listed in list(store.list(prefix)):
            topic_id, partition = partition_of_head(listed.key)
            if topic_id in wanted:
                yield topic_id, partition
