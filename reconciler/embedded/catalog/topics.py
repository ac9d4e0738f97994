"""Topics and namespaces in the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from reconciler.archives.topic_manifest import MAX_PARTITIONS
from reconciler.embedded.catalog.mirror_moves import check_deletable
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
    check_free,
    check_no_replica,
    check_quotas,
    check_unheld,
    check_unreserved,
    topic_named,
    unknown_namespace_error,
)
from reconciler.embedded.catalog.tiering_state import check_not_disabling, location_to_delete, update_tiering
from reconciler.embedded.catalog.topic_configs import (
    check_not_synced,
    find_set_configs,
    kms_keys_of_topics,
    mark_rewrites,
    merge_configs,
    validate_configs,
)
from reconciler.errors import BlockedError, StalePlanError, UserError
from reconciler.lifecycles import TieringState
from reconciler.resources.address import check_namespace, split_name, tiers_of
from reconciler.resources.cluster_properties import CREATION_DEFAULTS
from reconciler.resources.tiering_policy import SWITCHES

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
    """Create a topic; empty partitions cost nothing."""
    check_free(draft, full_name)
    check_unreserved(draft, full_name, topic_id)
    _check_partitions(full_name, shape.partitions)
    check_quotas(draft.namespaces, draft.usage_below, full_name, TopicCounts(1, shape.partitions))
    entry = TopicEntry(
        topic_id,
        shape.partitions,
        draft.next_revision(),
        shape.replication_factor,
        validate_configs(f"topic {full_name}", shape.configs),
        acls=shape.acls,
        initial=initial_configs(draft),
    )
    draft.put_topic(full_name, entry)
    update_tiering(draft, [full_name], or_else=lambda: draft.put_topic(full_name, None))


def initial_configs(draft: Draft) -> dict[str, str]:
    """Return the configs that cluster defaults give a new topic; they keep them (F-R-004)."""
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
    """Set or (`None`) reset configs; add partitions."""
    entry = topic_named(draft, full_name)
    if changes or partitions is not None or replication_factor is not None:
        check_no_replica(full_name, entry, "to change it")
    check_unheld(full_name, entry, "to change it")
    if entry.follows is not None:
        keys = (*changes, "partitions") if partitions is not None else tuple(changes)
        check_not_synced(full_name, entry.follows, keys, draft)
    check_not_disabling(full_name, entry, changes)
    if partitions is not None:
        check_growth(full_name, entry.partitions, partitions)
        check_quotas(draft.namespaces, draft.usage_below, full_name, TopicCounts(0, partitions - entry.partitions))
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

    Under another encryption key, its objects are marked for a rewrite.
    """
    entry = topic_named(draft, old)
    if old == new:
        return
    check_unheld(old, entry, "to move it")
    check_free(draft, new)
    check_unreserved(draft, new)
    check_quotas(draft.namespaces, draft.usage_below, new, TopicCounts.of(entry), leaving=split_name(old)[0])
    before = kms_keys_of_topics(draft, [old])
    draft.put_topic(old, None)
    draft.put_topic(new, replace(entry, origin=entry.origin or (old, cluster_id)))

    def stay() -> None:
        draft.put_topic(new, None)
        draft.put_topic(old, entry)

    update_tiering(draft, [new], or_else=stay)
    mark_rewrites(draft, [new], before)


def delete_topic(draft: Draft, full_name: str, *, cluster_id: str, topic_id: str | None = None) -> bool:
    """Mark a topic for deletion and free its name; return whether it existed.

    Raises:
        StalePlanError: The name now belongs to another topic than `topic_id`.
        BlockedError: Its link would create the mirror again.
    """
    entry = draft.topics.get(full_name)
    if entry is None:
        return False
    if topic_id is not None and entry.id != topic_id:
        message = f"topic {full_name} was deleted and created again after it was read"
        raise StalePlanError(message, hint="Plan again.")
    check_unheld(full_name, entry, "to delete it")
    check_deletable(draft, full_name, entry)
    location = location_to_delete(draft, full_name, cluster_id)
    draft.put_topic(full_name, None)
    if entry.id in draft.rewrites:
        draft.put_rewrite(entry.id, None)
    draft.put_deletion(entry.id, DeletionEntry(full_name, location))
    return True


def check_growth(full_name: str, before: int, after: int) -> None:
    """Refuse to decrease a topic's partitions, or to exceed the limit."""
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
    """Create a topic to be filled from a location, where it had the configs `original`.

    Declared and inherited configs win. Without remote reads and writes, tiering is disabled and remote data kept.
    """
    if draft.cluster.storage_id is None:
        message = f"topic {full_name} cannot be recovered: its cluster is bound to no object storage"
        raise UserError(message, hint="Declare objectStorage on the Cluster, and apply that first.")
    inherited = {key: value for key, (value, _) in find_set_configs(draft, full_name).items()}
    own = {key: value for key, value in original.items() if key != _ONLY_AT_CREATION and inherited.get(key) != value}
    create_topic(draft, full_name, replace(shape, configs={**own, **shape.configs}), topic_id=topic_id)
    topic = draft.topics[full_name]
    off = TieringEntry(str(TieringState.DISABLED), 1)
    draft.put_topic(full_name, replace(topic, tiering=topic.tiering or off, recovering=location))


def finish_recovery(draft: Draft, topic_id: str) -> None:
    """Mark a topic's recovery as complete, unless the topic is gone."""
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
    check_free(draft, full_name)
    check_unreserved(draft, full_name, topic_id)
    _check_partitions(full_name, partitions)
    check_quotas(draft.namespaces, draft.usage_below, full_name, TopicCounts(1, partitions))
    entry = TopicEntry(topic_id, partitions, draft.next_revision(), acls=acls, replica=ReplicaEntry(location))
    draft.put_topic(full_name, entry)


def follow_replica(draft: Draft, topic_id: str, partitions: int, trouble: Trouble | None) -> None:
    """Record the source's partitions and problem of a read replica.

    Partitions never decrease. A persisting problem keeps its start time.

    Raises:
        QuotaExceededError: A namespace quota would be exceeded.
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
        check_quotas(draft.namespaces, draft.usage_below, full_name, TopicCounts(0, more))
    after = replace(entry, partitions=entry.partitions + more, replica=replace(entry.replica, trouble=trouble))
    if after != entry:
        draft.put_topic(full_name, after)


def create_namespace(draft: Draft, name: str, wanted: NamespaceEntry) -> None:
    """Create a namespace with missing parents, unless an equal one exists."""
    try:
        tiers = tiers_of(check_namespace(name))
    except ValueError as error:
        raise UserError(f"{name!r} is {error}", hint="Example: shop:eu.") from error
    if not tiers:
        raise UserError("the default namespace '' always exists", hint="Name a namespace, such as shop:eu.")
    entry = replace(
        wanted, configs=validate_configs(f"namespace {name}", wanted.configs), quotas=_normalize_quotas(wanted.quotas)
    )
    existing = draft.namespaces.get(name)
    if existing is not None and existing != entry:
        raise _difference_error(name, existing, entry)
    for tier in tiers[:-1]:
        if tier not in draft.namespaces:
            draft.put_namespace(tier, NamespaceEntry())
    draft.put_namespace(name, entry)


def alter_namespace(draft: Draft, name: str, changes: Mapping[str, str | None]) -> None:
    """Set or (`None`) remove configs; topics below inherit them."""
    entry = _namespace_named(draft, name)
    topics = topics_under(draft, name) if SWITCHES.intersection(changes) else []
    for topic in topics:
        check_not_disabling(topic, draft.topics[topic], changes)
    draft.put_namespace(name, replace(entry, configs=merge_configs(f"namespace {name}", entry.configs, changes)))
    update_tiering(draft, topics, or_else=lambda: draft.put_namespace(name, entry))


def limit_namespace(draft: Draft, name: str, quotas: QuotaEntry | None) -> None:
    """Set or (`None`) remove quotas; usage above them stays but cannot grow."""
    draft.put_namespace(name, replace(_namespace_named(draft, name), quotas=_normalize_quotas(quotas)))


def encrypt_namespace(draft: Draft, name: str, kms_key_id: str | None) -> None:
    """Set or (`None`) remove a namespace's key, and mark its topics for a rewrite."""
    entry, topics = _namespace_named(draft, name), topics_under(draft, name)
    before = kms_keys_of_topics(draft, topics)
    draft.put_namespace(name, replace(entry, kms_key_id=kms_key_id))
    mark_rewrites(draft, topics, before)


def delete_namespace(draft: Draft, name: str, *, cluster_id: str, recursive: bool) -> bool:
    """Delete a namespace and mark its topics for deletion; return whether it existed.

    Raises:
        BlockedError: It contains namespaces and the deletion is not recursive.
    """
    if name not in draft.namespaces:
        return False
    nested = namespaces_under(draft, name)
    if nested and not recursive:
        message = f"namespace {name} holds namespaces: {', '.join(nested[:5])}{' …' if nested[5:] else ''}"
        raise BlockedError(message, hint="Delete those first, or delete recursively.")
    for topic in topics_under(draft, name):
        delete_topic(draft, topic, cluster_id=cluster_id)
    for namespace in (*nested, name):
        draft.put_namespace(namespace, None)
    return True


def namespaces_under(catalog: Catalog | Draft, name: str) -> list[str]:
    """Return the namespaces below one, or all, sorted."""
    prefix = f"{name}:" if name else ""
    return sorted(namespace for namespace in catalog.namespaces if namespace.startswith(prefix))


def topics_under(catalog: Catalog | Draft, name: str) -> list[str]:
    """Return the topics in and below a namespace, sorted."""
    prefix = f"{name}:" if name else ""
    return sorted(topic for topic in catalog.topics if topic.startswith(prefix))


def _namespace_named(draft: Draft, name: str) -> NamespaceEntry:
    entry = draft.namespaces.get(name)
    if entry is None:
        raise unknown_namespace_error(name)
    return entry


def _normalize_quotas(quotas: QuotaEntry | None) -> QuotaEntry | None:
    return None if quotas == QuotaEntry() else quotas


def _difference_error(name: str, existing: NamespaceEntry, namespace: NamespaceEntry) -> UserError:
    existing_json, wanted_json = existing.to_json(), namespace.to_json()
    keys = [key for key in sorted({*existing_json, *wanted_json}) if existing_json.get(key) != wanted_json.get(key)]
    differing = "; ".join(f"{key.replace('kms_key_id', 'key')}: {existing_json.get(key, 'none')}" for key in keys)
    return UserError(f"namespace {name} exists with other {differing}", hint="Change it instead of creating it.")
