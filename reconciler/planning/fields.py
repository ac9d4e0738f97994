"""Convert resources to flat fields: values by path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, assert_never

from reconciler.resources.acls import DENIED, build_denial_path, to_rule_fields
from reconciler.resources.cluster import Cluster
from reconciler.resources.configs import canonicalize_value
from reconciler.resources.inventory import Resource
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mount import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.tiering_policy import TieringPolicy
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from reconciler.planning.actions import Value
    from reconciler.resources.kafka_configs import ConfigKey


CONFIGS: Final = "configs."
PROPERTIES: Final = "properties."
QUOTAS: Final = "quotas."
READ_REPLICA: Final = "readReplicaOf"
PARTITIONS: Final = "partitions"
OBJECT_STORAGE: Final = "objectStorage.url"

_LINK_TASKS: Final = ("auto_create", "consumer_offset_sync", "acl_sync")
"""Fields of a link whose absence means the same as `enabled: false`."""
KEEP_DIVERGED: Final = "keep-diverged"
LINK_FEATURES: Final[Mapping[str, str]] = {
    "paused": "paused",
    "prefix": "prefix",
    "autoCreate": "auto-create",
    "consumerOffsetSync": "consumer-offset-sync",
    "aclSync": "acl-sync",
    "topicConfigSync": "topic-config-sync",
    "startOffset": "start-offset",
    "retryTimeout": "retry-timeout",
    "metadataInterval": "metadata-interval",
    "protect": "protect",
    "keepDiverged": KEEP_DIVERGED,
}
ALL_LINK_FEATURES: Final = frozenset({*LINK_FEATURES.values(), "start-time", "mirror-configs"})
"""Features of links that depend on neither mode nor direction."""


def list_fields(resource: Resource) -> dict[str, Value]:
    """Return the set fields that a platform stores, by path."""
    match resource:
        case Topic():
            return _list_topic_fields(resource)
        case Namespace():
            return _list_namespace_fields(resource)
        case MirrorLink():
            left_out: dict[str, object] = {"mirror_topics": (), "moved_from": None}
            tasks = {name: getattr(resource.spec, name) for name in _LINK_TASKS}
            left_out |= {name: None for name, task in tasks.items() if task is not None and not task.enabled}
            return dict(_flatten("", resource.spec.model_copy(update=left_out).to_json()))
        case MirrorTopic():
            configs: dict[str, Value] = {CONFIGS + key: value for key, value in resource.configs.items()}
            return {**configs, **{build_denial_path(principal): DENIED for principal in resource.denied}}
        case Cluster():
            return _list_cluster_fields(resource)
        case Mounting() | TieringPolicy():
            return {}
        case _:
            assert_never(resource)


def list_record_fields(resource: Resource) -> dict[str, Value]:
    """Return the fields that only the record stores, by path."""
    if isinstance(resource, Cluster):
        shown = resource.spec.to_json()
        shown.pop("properties", None)
        shown.get("objectStorage", {}).pop("url", None)
        return dict(_flatten("", shown))
    return {}


def is_equal_value(path: str, left: Value, right: Value, catalog: Mapping[str, ConfigKey]) -> bool:
    """Return whether two values of a field are equivalent."""
    if left == right:
        return True
    if path == READ_REPLICA:
        return is_same_location(left, right)
    if not path.startswith(CONFIGS) or left is None or right is None:
        return False
    key = path.removeprefix(CONFIGS)
    try:
        return canonicalize_value(key, left, catalog) == canonicalize_value(key, right, catalog)
    except ValueError:
        return False


def is_same_location(left: Value, right: Value) -> bool:
    """Return whether two object storage locations differ at most in the topic's name."""
    return None not in (left, right) and str(left).partition("/")[2] == str(right).partition("/")[2]


def canonicalize_field(path: str, value: Value, catalog: Mapping[str, ConfigKey]) -> Value:
    """Return a config value in canonical form, or any other value unchanged."""
    if not path.startswith(CONFIGS) or value is None:
        return value
    try:
        return canonicalize_value(path.removeprefix(CONFIGS), value, catalog)
    except ValueError:
        return value


def _list_topic_fields(topic: Topic) -> dict[str, Value]:
    spec = topic.spec
    fields: dict[str, Value] = {CONFIGS + key: value for key, value in spec.configs.items()}
    if spec.partitions is not None:
        fields[PARTITIONS] = spec.partitions
    if spec.replication_factor is not None:
        fields["replicationFactor"] = spec.replication_factor
    if spec.read_replica_of is not None:
        fields[READ_REPLICA] = spec.read_replica_of
    if spec.acls:
        fields.update(to_rule_fields(spec.acls))
    return fields


def _list_cluster_fields(cluster: Cluster) -> dict[str, Value]:
    spec = cluster.spec
    fields: dict[str, Value] = {PROPERTIES + key: value for key, value in spec.properties.items()}
    if spec.object_storage is not None:
        fields[OBJECT_STORAGE] = spec.object_storage.url
    return fields


def _list_namespace_fields(namespace: Namespace) -> dict[str, Value]:
    spec = namespace.spec
    fields: dict[str, Value] = {CONFIGS + key: value for key, value in spec.configs.items()}
    if spec.quotas is not None:
        fields.update(_flatten(QUOTAS, spec.quotas.to_json()))
    if spec.encryption is not None:
        fields["encryption.kmsKeyId"] = spec.encryption.kms_key_id
    if spec.acls:
        fields.update(to_rule_fields(spec.acls))
    return fields


def _flatten(prefix: str, value: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    for key, item in value.items():
        if isinstance(item, Mapping):
            yield from _flatten(f"{prefix}{key}.", item)
        else:
            yield prefix + key, item if not isinstance(item, list) else tuple(item)
