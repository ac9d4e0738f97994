"""Topics in the catalog: made, changed, moved and marked for deletion, each within one commit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from reconciler.embedded.catalog.configs import changed_configs, checked_configs
from reconciler.embedded.catalog.encryption import keys_of, mark_rewrites
from reconciler.embedded.catalog.entries import AclEntry, DeletionEntry, TopicEntry
from reconciler.embedded.catalog.holding import check_unheld, check_unreserved
from reconciler.embedded.catalog.leavingmirrors import check_deletable
from reconciler.embedded.catalog.lookups import check_free, topic_named
from reconciler.embedded.catalog.quotas import Usage, check_quotas
from reconciler.embedded.catalog.syncing import check_not_synced
from reconciler.embedded.catalog.tiering import check_not_disabling, doomed_location, retier
from reconciler.errors import StalePlanError, UserError
from reconciler.resources.address import split_name
from reconciler.resources.clusterproperties import CREATION_DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.embedded.catalog.tables import Draft

MAX_PARTITIONS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicShape:
    """What is asked of a new topic."""

    partitions: int
    replication_factor: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)
    acls: tuple[AclEntry, ...] = ()


def create_topic(draft: Draft, full_name: str, shape: TopicShape, *, topic_id: str) -> None:
    """Make a topic; partitions that are never written to cost nothing.

    Raises:
        InvalidNamespaceError: Its namespace does not exist.
        UserError: The name is taken, name, partitions or configs cannot be, or a namespace would hold too many.
    """
    check_free(draft, full_name)
    check_unreserved(draft, full_name, topic_id)
    _check_partitions(full_name, shape.partitions)
    check_quotas(draft.namespaces, draft.usage_below, full_name, Usage(1, shape.partitions))
    entry = TopicEntry(
        topic_id,
        shape.partitions,
        draft.next_revision(),
        shape.replication_factor,
        checked_configs(f"topic {full_name}", shape.configs),
        acls=shape.acls,
        initial=initial_configs(draft),
    )
    draft.put_topic(full_name, entry)
    retier(draft, [full_name], or_else=lambda: draft.put_topic(full_name, None))


def initial_configs(draft: Draft) -> dict[str, str]:
    """Return what the cluster's defaults give a new topic: later they touch no topic that is there (F-R-004)."""
    properties = draft.cluster.properties
    return {config: "true" for name, config in CREATION_DEFAULTS.items() if properties.get(name) == "true"}


def alter_topic(
    draft: Draft,
    full_name: str,
    changes: Mapping[str, str | None],
    *,
    partitions: int | None = None,
    replication_factor: int | None = None,
) -> None:
    """Set configs, or (`None`) let them inherit again; add partitions.

    Raises:
        UserError: It does not exist, partitions would shrink or be too many, or a config cannot be.
    """
    entry = topic_named(draft, full_name)
    check_unheld(full_name, entry, "to change it")
    if entry.follows is not None:
        keys = (*changes, "partitions") if partitions is not None else tuple(changes)
        check_not_synced(full_name, entry.follows, keys, draft)
    check_not_disabling(full_name, entry, changes)
    if partitions is not None:
        check_growth(full_name, entry.partitions, partitions)
        check_quotas(draft.namespaces, draft.usage_below, full_name, Usage(0, partitions - entry.partitions))
    draft.put_topic(
        full_name,
        replace(
            entry,
            configs=changed_configs(f"topic {full_name}", entry.configs, changes),
            partitions=entry.partitions if partitions is None else partitions,
            replication_factor=entry.replication_factor if replication_factor is None else replication_factor,
        ),
    )
    if changes:
        retier(draft, [full_name], or_else=lambda: draft.put_topic(full_name, entry))


def move_topic(draft: Draft, old: str, new: str, *, cluster_id: str) -> None:
    """Rename a topic, also into another namespace: records, offsets, id and location stay (F-K-014).

    Where that has another key its objects are marked to be written anew.

    Raises:
        InvalidNamespaceError: The new namespace does not exist.
        UserError: There is no such topic, the new name cannot be, the new namespace would hold too many, or would
            switch tiering on again that is being switched off.
    """
    entry = topic_named(draft, old)
    if old == new:
        return
    check_unheld(old, entry, "to move it")
    check_free(draft, new)
    check_unreserved(draft, new)
    check_quotas(draft.namespaces, draft.usage_below, new, Usage.of(entry), leaving=split_name(old)[0])
    before = keys_of(draft, [old])
    draft.put_topic(old, None)
    draft.put_topic(new, replace(entry, origin=entry.origin or (old, cluster_id)))

    def stay() -> None:
        draft.put_topic(new, None)
        draft.put_topic(old, entry)

    retier(draft, [new], or_else=stay)
    mark_rewrites(draft, [new], before)


def delete_topic(draft: Draft, full_name: str, *, cluster_id: str, topic_id: str | None = None) -> bool:
    """Mark a topic of the cluster `cluster_id` for deletion and free its name; say whether it was there.

    Raises:
        StalePlanError: The name now belongs to another topic than `topic_id`.
        UserError: It is being mounted or unmounted, or promoted, reversed or restored as a mirror.
        BlockedError: It is a mirror that its link would make again.
    """
    entry = draft.topics.get(full_name)
    if entry is None:
        return False
    if topic_id is not None and entry.id != topic_id:
        message = f"topic {full_name} was deleted and made anew since it was looked at"
        raise StalePlanError(message, hint="Plan again.")
    check_unheld(full_name, entry, "to delete it")
    check_deletable(draft, full_name, entry)
    location = doomed_location(draft, full_name, cluster_id)
    draft.put_topic(full_name, None)
    if entry.id in draft.rewrites:
        draft.put_rewrite(entry.id, None)
    draft.put_deletion(entry.id, DeletionEntry(full_name, location))
    return True


def check_growth(full_name: str, before: int, after: int) -> None:
    """Refuse fewer partitions than there are.

    Raises:
        UserError: Partitions only grow in place.
    """
    _check_partitions(full_name, after)
    if after < before:
        message = f"topic {full_name} has {before} partitions; {after} would be fewer"
        raise UserError(message, hint="Partitions only grow in place: copy into a new topic to have fewer.")


def _check_partitions(full_name: str, partitions: int) -> None:
    if not 1 <= partitions <= MAX_PARTITIONS:
        message = f"topic {full_name}: {partitions} partitions"
        raise UserError(message, hint=f"A topic has 1 to {MAX_PARTITIONS:,} partitions.")
