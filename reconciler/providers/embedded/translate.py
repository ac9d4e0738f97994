"""Pure conversion of catalog entries to resources, and of actions to catalog changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from reconciler.embedded.acl import to_acl_entries, to_namespace_acls, to_topic_acls
from reconciler.embedded.catalog.migration_tables import INBOUND
from reconciler.embedded.catalog.model import MigrantEntry, NamespaceEntry, QuotaEntry, TopicEntry
from reconciler.embedded.catalog.tiering_state import find_location_to_delete, get_topic_location
from reconciler.embedded.catalog.topics import TopicShape
from reconciler.errors import UserError
from reconciler.planning.diff.mount_changes import RECOVERING
from reconciler.planning.fields import READ_REPLICA
from reconciler.providers.models import CONFIGS, ENCRYPTION, QUOTAS, to_declared_link, to_declared_mirror
from reconciler.resources.acls import to_rule_fields
from reconciler.resources.address import Address, address_of, split_name
from reconciler.resources.base import InNamespace, OfNamespace
from reconciler.resources.inventory import LiveMirror, LiveTopic, Observed, RemoteRemains
from reconciler.resources.mirrors import compute_link_status, compute_mirror_status
from reconciler.resources.mount import MIGRATING, Mounting, MountingSpec
from reconciler.resources.namespace import Encryption, Namespace, NamespaceSpec, Quotas
from reconciler.resources.topic import FOLLOWING, Topic, TopicSpec

if TYPE_CHECKING:
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.planning.actions import Value


class TopicModels:
    """Factory of topics, which are copies of a validated model and share equal specs."""

    def __init__(self, cluster: str) -> None:
        self._pattern = Topic(metadata=InNamespace(name="t", cluster=cluster), spec=TopicSpec(partitions=1))
        self._specs: dict[object, TopicSpec] = {}

    def build_topic(self, full_name: str, entry: TopicEntry) -> Topic:
        """Return a topic with its own configs only."""
        namespace, name = split_name(full_name)
        replica_of = None if entry.replica is None else entry.replica.location
        alike = entry.partitions, entry.replication_factor, entry.acls, replica_of, *entry.configs.items()
        spec = self._specs.get(alike)
        if spec is None:
            shape = {
                "partitions": entry.partitions,
                "replication_factor": entry.replication_factor,
                "configs": dict(entry.configs),
                "acls": to_topic_acls(entry.acls),
                "read_replica_of": replica_of,
            }
            spec = self._specs[alike] = self._pattern.spec.model_copy(update=shape)
        metadata = self._pattern.metadata.copy_with(name=name, namespace=namespace)
        return self._pattern.copy_with(metadata=metadata, spec=spec)


def find_remote_remains(catalog: Catalog, cluster_id: str) -> Mapping[str, RemoteRemains]:
    """Return what becomes of deleted topics' remote objects, by full name."""
    return {
        name: RemoteRemains(
            str(get_topic_location(name, entry, cluster_id)),
            is_deleted=find_location_to_delete(catalog, name, cluster_id) is not None,
        )
        for name, entry in catalog.topics.items()
        if entry.tiering is not None
    }


def list_observed(
    catalog: Catalog, cluster: str, is_wanted: Callable[[str], bool] | None = None, *, cluster_id: str = ""
) -> Iterator[tuple[Address, Observed]]:
    """Yield the catalog's entries as resources with their own configs."""
    legacies = find_remote_remains(catalog, cluster_id)
    if is_wanted is not None:
        catalog = _filter_catalog(catalog, cluster, is_wanted)
    for name, namespace in catalog.namespaces.items():
        yield address_of("namespace", cluster, name), Observed(_to_namespace(name, cluster, namespace))
    models = TopicModels(cluster)
    yield from _list_topics(catalog, cluster, legacies, models)
    links = {entry.id: (name, entry) for name, entry in catalog.links.items()}
    for name, link in links.values():
        yield (
            address_of("link", cluster, name),
            Observed(to_declared_link(name, cluster, link), link.id, state=compute_link_status(link)),
        )
    for full_name, topic in catalog.topics.items():
        if topic.mirror is not None and topic.mirror.link_id in links:
            resource = to_declared_mirror(
                cluster, full_name, topic.mirror, links[topic.mirror.link_id], topic.configs, topic.partitions
            )
            yield (
                resource.address,
                Observed(
                    resource,
                    topic.id,
                    state=compute_mirror_status(topic.mirror, links[topic.mirror.link_id][1]),
                    topic=LiveTopic(legacy=legacies.get(full_name)),
                    mirror=LiveMirror.from_entry(
                        topic.mirror, None if topic.active_mirror is None else models.build_topic(full_name, topic)
                    ),
                ),
            )


def _filter_catalog(catalog: Catalog, cluster: str, is_wanted: Callable[[str], bool]) -> Catalog:
    namespaces = {name: entry for name, entry in catalog.namespaces.items() if is_wanted(f"namespace/{cluster}/{name}")}
    topics = {
        name: entry
        for name, entry in catalog.topics.items()
        if any(is_wanted(f"{kind}/{cluster}/{name}") for kind in _list_kinds(entry))
    }
    return replace(catalog, namespaces=namespaces, topics=topics)


def _list_kinds(entry: TopicEntry) -> tuple[str, ...]:
    mirror, topic = entry.mirror is not None, entry.active_mirror is None
    return (*(["mirror"] if mirror else []), *(["topic"] if topic else []))


def _list_topics(
    catalog: Catalog, cluster: str, legacies: Mapping[str, RemoteRemains], models: TopicModels
) -> Iterator[tuple[Address, Observed]]:
    for full_name, entry in catalog.topics.items():
        if entry.active_mirror is None:
            log = LiveTopic(entry.initial, legacies.get(full_name))
            seen = Observed(models.build_topic(full_name, entry), entry.id, state=_find_state(entry), topic=log)
            yield Address(f"topic/{cluster}/{full_name}"), seen


def _find_state(entry: TopicEntry) -> str | None:
    if entry.recovering is not None:
        return RECOVERING
    if entry.hold is not None:
        return MIGRATING
    if entry.replica is not None:
        return FOLLOWING if entry.replica.trouble is None else entry.replica.trouble.code
    return None if entry.tiering is None else entry.tiering.state


def _to_namespace(name: str, cluster: str, entry: NamespaceEntry) -> Namespace:
    quotas, key = entry.quotas, entry.kms_key_id
    spec = NamespaceSpec(
        configs=dict(entry.configs),
        quotas=None
        if quotas is None
        else Quotas(topics=quotas.topics, partitions=quotas.partitions, bytes=quotas.bytes),
        encryption=None if key is None else Encryption(kms_key_id=key),
        acls=to_namespace_acls(entry.acls),
    )
    return Namespace(metadata=OfNamespace(name=name, cluster=cluster), spec=spec)


def to_namespace_entry(namespace: Namespace) -> NamespaceEntry:
    """Return a namespace's catalog entry."""
    spec = namespace.spec
    return NamespaceEntry(
        spec.configs,
        quotas=None
        if spec.quotas is None
        else QuotaEntry(spec.quotas.topics, spec.quotas.partitions, spec.quotas.bytes),
        kms_key_id=None if spec.encryption is None else spec.encryption.kms_key_id,
        acls=to_acl_entries(spec.acls),
    )


def to_topic_shape(topic: Topic) -> TopicShape:
    """Return the shape of a new topic with declared partitions."""
    if topic.spec.partitions is None:
        raise UserError(f"{topic.address}: spec.partitions is missing", hint="Set spec.partitions.")
    return TopicShape(
        partitions=topic.spec.partitions,
        replication_factor=topic.spec.replication_factor or 1,
        configs=topic.spec.configs,
        acls=to_acl_entries(topic.spec.acls),
    )


def read_fields(entry: TopicEntry | NamespaceEntry) -> dict[str, Value]:
    """Return an entry's fields by the paths of changes."""
    fields: dict[str, Value] = {CONFIGS + key: value for key, value in entry.configs.items()}
    fields.update(to_rule_fields(to_namespace_acls(entry.acls)))
    match entry:
        case TopicEntry():
            replica = {} if entry.replica is None else {READ_REPLICA: entry.replica.location}
            return {**fields, **replica, "partitions": entry.partitions, "replicationFactor": entry.replication_factor}
        case NamespaceEntry():
            return {**fields, **dict(_list_limits(entry))}
        case _:
            assert_never(entry)


def _list_limits(entry: NamespaceEntry) -> Iterator[tuple[str, str | int]]:
    limits = {} if entry.quotas is None else entry.quotas.to_json()
    yield from ((QUOTAS + word, limit) for word, limit in limits.items() if limit is not None)
    if entry.kms_key_id is not None:
        yield ENCRYPTION, entry.kms_key_id


def list_mountings(
    catalog: Catalog, cluster: str, is_wanted: Callable[[str], bool] | None = None
) -> dict[Address, Observed]:
    """Return the newest migration by address of its mounting or topic."""
    mountings: dict[Address, Observed] = {}
    for number in sorted(map(int, catalog.migrations)):
        migration = catalog.migrations[str(number)]
        for migrant in migration.topics:
            address = address_of("mounting", cluster, migrant.mounting or migrant.name)
            if is_wanted is None or is_wanted(address):
                state = "mounted" if migration.direction == INBOUND else "unmounted"
                mounting = _to_mounting(cluster, migrant, state)
                mountings[address] = Observed(mounting, state=migration.state, is_by_hand=not migration.is_automatic)
    return mountings


def _to_mounting(cluster: str, migrant: MigrantEntry, state: str) -> Mounting:
    namespace, name = split_name(migrant.mounting or migrant.name)
    topic = split_name(migrant.name)[1]
    spec = {"state": state, "source": migrant.location, "as": None if topic == name else topic}
    return Mounting(
        metadata=InNamespace(name=name, namespace=namespace, cluster=cluster), spec=MountingSpec.model_validate(spec)
    )
