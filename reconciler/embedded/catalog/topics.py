"""Topics and namespaces in the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from reconciler.archives.topic_manifest import MAX_PARTITIONS
from reconciler.embedded.catalog.mirror_moves import check_mirror_deletable
from reconciler.embedded.catalog.model import (
    AclEntry,
    DeletionEntry,
    NamespaceEntry,
    QuotaEntry,
    ReplicaEntry,
    TieringEntry,
    TopicEntry,
)
from reconciler.embedded.catalog.tables import (
    Catalog,
    Draft,
    TopicCounts,
    check_name_free,
    check_name_unreserved,
    check_not_migrating,
    check_not_replica,
    check_quotas,
    get_topic,
    unknown_namespace_error,
)
from reconciler.embedded.catalog.tiering_state import check_not_disabling, find_location_to_delete, update_tiering
from reconciler.embedded.catalog.topic_configs import (
    check_not_synced,
    find_explicit_configs,
    find_topic_kms_keys,
    mark_key_rewrites,
    merge_configs,
    validate_configs,
)
from reconciler.errors import BlockedError, StalePlanError, UserError
from reconciler.lifecycles import TieringState
from reconciler.resources.address import check_namespace, list_levels, split_name
from reconciler.resources.cluster_properties import CREATION_DEFAULTS
from reconciler.resources.tiering_policy import SWITCHES
from reconciler.runtime.dataclass import dataclass, field, replace

if TYPE_CHECKING:
    from reconciler.resources.mirrors import Trouble


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicShape:
    """Declaration of a new topic."""

    partitions: int
    replication_factor: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)
    acls: tuple[AclEntry, ...] = ()


def create_topic(draft: Draft, full_name: str, shape: TopicShape, *, topic_id: str) -> None:
    """Create a topic; its partitions have no objects until records are written."""
    check_name_free(draft, full_name)
    check_name_unreserved(draft, full_name, topic_id)
    _check_partitions(full_name, shape.partitions)
    check_quotas(draft.namespaces, draft.count_below, full_name, TopicCounts(1, shape.partitions))
    entry = TopicEntry(
        topic_id,
        shape.partitions,
        draft.assign_revision(),
        shape.replication_factor,
        validate_configs(f"topic {full_name}", shape.configs),
        acls=shape.acls,
        initial=list_initial_configs(draft),
    )
    draft.put_topic(full_name, entry)
    update_tiering(draft, [full_name], or_else=lambda: draft.put_topic(full_name, None))


def list_initial_configs(draft: Draft) -> dict[str, str]:
    """Return the cluster defaults that new topics copy (F-R-004)."""
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
    """Set configs (`None` resets one), and add partitions."""
    entry = get_topic(draft, full_name)
    if changes or partitions is not None or replication_factor is not None:
        check_not_replica(full_name, entry, "to change it")
    check_not_migrating(full_name, entry, "to change it")
    if entry.active_mirror is not None:
        keys = (*changes, "partitions") if partitions is not None else tuple(changes)
        check_not_synced(full_name, entry.active_mirror, keys, draft)
    check_not_disabling(full_name, entry, changes)
    if partitions is not None:
        check_partition_growth(full_name, entry.partitions, partitions)
        check_quotas(draft.namespaces, draft.count_below, full_name, TopicCounts(0, partitions - entry.partitions))
    draft.put_topic(
        full_name,
        replace(
            entry,
            configs=merge_configs(f"topic {full_name}", entry.configs, changes),
            partitions=entry.partitions if partitions is None else partitions,
            replication_factor=entry.replication_factor if replication_factor is None else replication_factor,
        ),
    )
    if changes:
        update_tiering(draft, [full_name], or_else=lambda: draft.put_topic(full_name, entry))


def move_topic(draft: Draft, old: str, new: str, *, cluster_id: str) -> None:
    """Rename a topic; records, offsets, id and location stay (F-K-014).

    Under another KMS key, its objects are marked for a rewrite.
    """
    entry = get_topic(draft, old)
    if old == new:
        return
    check_not_migrating(old, entry, "to move it")
    check_name_free(draft, new)
    check_name_unreserved(draft, new)
    check_quotas(draft.namespaces, draft.count_below, new, TopicCounts.of(entry), leaving=split_name(old)[0])
    before = find_topic_kms_keys(draft, [old])
    draft.put_topic(old, None)
    draft.put_topic(new, replace(entry, origin=entry.origin or (old, cluster_id)))

    def undo_move() -> None:
        draft.put_topic(new, None)
        draft.put_topic(old, entry)

    update_tiering(draft, [new], or_else=undo_move)
    mark_key_rewrites(draft, [new], before)


def delete_topic(draft: Draft, full_name: str, *, cluster_id: str, topic_id: str | None = None) -> bool:
    """Mark a topic for deletion and free its name; return whether it existed.

    Raises:
        StalePlanError: The name belongs to another topic than `topic_id`.
        BlockedError: The mirror's link would create it again.
    """
    entry = draft.topics.get(full_name)
    if entry is None:
        return False
    if topic_id is not None and entry.id != topic_id:
        message = f"topic {full_name} was deleted and created again after it was read"
        raise StalePlanError(message, hint="Plan again.")
    check_not_migrating(full_name, entry, "to delete it")
    check_mirror_deletable(draft, full_name, entry)
    location = find_location_to_delete(draft, full_name, cluster_id)
    draft.put_topic(full_name, None)
    if entry.id in draft.rewrites:
        draft.put_rewrite(entry.id, None)
    draft.put_deletion(entry.id, DeletionEntry(full_name, location))
    return True


def check_partition_growth(full_name: str, before: int, after: int) -> None:
    """Reject fewer partitions, or more than the limit."""
    _check_partitions(full_name, after)
    if after < before:
        message = f"topic {full_name} has {before} partitions; {after} would be fewer"
        raise UserError(message, hint="Partitions only grow in place: copy into a new topic to have fewer.")


def _check_partitions(full_name: str, partitions: int) -> None:
    if not 1 <= partitions <= MAX_PARTITIONS:
        message = f"topic {full_name}: {partitions} partitions"
        raise UserError(message, hint=f"A topic has 1 to {MAX_PARTITIONS:,} partitions.")


_ONLY_AT_CREATION: Final = "remote.recovery"


def recover_topic(
    draft: Draft, full_name: str, shape: TopicShape, *, topic_id: str, location: str, original: Mapping[str, str]
) -> None:
    """Create a topic to fill from a location; `original` are its configs there.

    Declared and inherited configs take precedence. If remote reads and writes are off, tiering is disabled and remote
    data stays.
    """
    if draft.cluster.storage_id is None:
        message = f"topic {full_name} cannot be recovered: its cluster is bound to no object storage"
        raise UserError(message, hint="Declare objectStorage on the Cluster, and apply that first.")
    inherited = {key: value for key, (value, _) in find_explicit_configs(draft, full_name).items()}
    own = {key: value for key, value in original.items() if key != _ONLY_AT_CREATION and inherited.get(key) != value}
    create_topic(draft, full_name, replace(shape, configs={**own, **shape.configs}), topic_id=topic_id)
    topic = draft.topics[full_name]
    off = TieringEntry(str(TieringState.DISABLED), 1)
    draft.put_topic(full_name, replace(topic, tiering=topic.tiering or off, recovering=location))


def finish_recovery(draft: Draft, topic_id: str) -> None:
    """Mark a topic's recovery as complete, if the topic exists."""
    for full_name, topic in draft.topics.items():
        if topic.id == topic_id and topic.recovering is not None:
            draft.put_topic(full_name, replace(topic, recovering=None))
            return


def create_replica(
    draft: Draft, full_name: str, partitions: int, *, topic_id: str, location: str, acls: tuple[AclEntry, ...] = ()
) -> None:
    """Create a read replica of a location."""
    if draft.cluster.storage_id is None:
        message = f"topic {full_name} cannot be a read replica: its cluster is bound to no object storage"
        raise UserError(message, hint="Declare the objectStorage of its source on the Cluster, and apply that first.")
    check_name_free(draft, full_name)
    check_name_unreserved(draft, full_name, topic_id)
    _check_partitions(full_name, partitions)
    check_quotas(draft.namespaces, draft.count_below, full_name, TopicCounts(1, partitions))
    entry = TopicEntry(topic_id, partitions, draft.assign_revision(), acls=acls, replica=ReplicaEntry(location))
    draft.put_topic(full_name, entry)


def record_replica_state(draft: Draft, topic_id: str, partitions: int, trouble: Trouble | None) -> None:
    """Record the partition count and the problem of a read replica's source.

    Partitions never decrease. A persisting problem keeps its start time.
    """
    full_name = next((name for name, topic in draft.topics.items() if topic.id == topic_id), None)
    if full_name is None:
        return
    entry = draft.topics[full_name]
    if entry.replica is None:
        return
    known = entry.replica.trouble
    if trouble is not None and known is not None and known.code == trouble.code:
        trouble = known
    more = max(0, partitions - entry.partitions)
    if more:
        check_quotas(draft.namespaces, draft.count_below, full_name, TopicCounts(0, more))
    after = replace(entry, partitions=entry.partitions + more, replica=replace(entry.replica, trouble=trouble))
    if after != entry:
        draft.put_topic(full_name, after)


def create_namespace(draft: Draft, name: str, wanted: NamespaceEntry) -> None:
    """Create a namespace and its missing parents; an equal one may exist."""
    try:
        tiers = list_levels(check_namespace(name))
    except ValueError as error:
        raise UserError(f"{name!r} is {error}", hint="Example: shop:eu.") from error
    if not tiers:
        raise UserError("the default namespace '' always exists", hint="Name a namespace, such as shop:eu.")
    entry = replace(
        wanted, configs=validate_configs(f"namespace {name}", wanted.configs), quotas=_normalize_quotas(wanted.quotas)
    )
    existing = draft.namespaces.get(name)
    if existing is not None and existing != entry:
        raise _namespace_differs_error(name, existing, entry)
    for tier in tiers[:-1]:
        if tier not in draft.namespaces:
            draft.put_namespace(tier, NamespaceEntry())
    draft.put_namespace(name, entry)


def alter_namespace(draft: Draft, name: str, changes: Mapping[str, str | None]) -> None:
    """Set a namespace's configs; `None` removes one."""
    entry = _get_namespace(draft, name)
    topics = list_topics_under(draft, name) if SWITCHES.intersection(changes) else []
    for topic in topics:
        check_not_disabling(topic, draft.topics[topic], changes)
    draft.put_namespace(name, replace(entry, configs=merge_configs(f"namespace {name}", entry.configs, changes)))
    update_tiering(draft, topics, or_else=lambda: draft.put_namespace(name, entry))


def limit_namespace(draft: Draft, name: str, quotas: QuotaEntry | None) -> None:
    """Set a namespace's quotas (`None` removes them); usage above them cannot grow."""
    draft.put_namespace(name, replace(_get_namespace(draft, name), quotas=_normalize_quotas(quotas)))


def encrypt_namespace(draft: Draft, name: str, kms_key_id: str | None) -> None:
    """Set a namespace's KMS key (`None` removes it), and mark its topics for a rewrite."""
    entry, topics = _get_namespace(draft, name), list_topics_under(draft, name)
    before = find_topic_kms_keys(draft, topics)
    draft.put_namespace(name, replace(entry, kms_key_id=kms_key_id))
    mark_key_rewrites(draft, topics, before)


def delete_namespace(draft: Draft, name: str, *, cluster_id: str, recursive: bool) -> bool:
    """Delete a namespace and mark its topics for deletion; return whether it existed.

    Raises:
        BlockedError: It contains namespaces, and `recursive` is not set.
    """
    if name not in draft.namespaces:
        return False
    nested = list_namespaces_under(draft, name)
    if nested and not recursive:
        message = f"namespace {name} holds namespaces: {', '.join(nested[:5])}{' …' if nested[5:] else ''}"
        raise BlockedError(message, hint="Delete those first, or delete recursively.")
    for topic in list_topics_under(draft, name):
        delete_topic(draft, topic, cluster_id=cluster_id)
    for namespace in (*nested, name):
        draft.put_namespace(namespace, None)
    return True


def list_namespaces_under(catalog: Catalog | Draft, name: str) -> list[str]:
    """Return the namespaces below `name` (all if it is empty), sorted."""
    prefix = f"{name}:" if name else ""
    return sorted(namespace for namespace in catalog.namespaces if namespace.startswith(prefix))


def list_topics_under(catalog: Catalog | Draft, name: str) -> list[str]:
    """Return the topics in and below a namespace, sorted."""
    prefix = f"{name}:" if name else ""
    return sorted(topic for topic in catalog.topics if topic.startswith(prefix))


def _get_namespace(draft: Draft, name: str) -> NamespaceEntry:
    entry = draft.namespaces.get(name)
    if entry is None:
        raise unknown_namespace_error(name)
    return entry


def _normalize_quotas(quotas: QuotaEntry | None) -> QuotaEntry | None:
    return None if quotas == QuotaEntry() else quotas


def _namespace_differs_error(name: str, existing: NamespaceEntry, namespace: NamespaceEntry) -> UserError:
    existing_json, wanted_json = existing.to_json(), namespace.to_json()
    keys = [key for key in sorted({*existing_json, *wanted_json}) if existing_json.get(key) != wanted_json.get(key)]
    differing = "; ".join(f"{key.replace('kms_key_id', 'key')}: {existing_json.get(key, 'none')}" for key in keys)
    return UserError(f"namespace {name} exists with other {differing}", hint="Change it instead of creating it.")
