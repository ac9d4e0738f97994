"""Import Strimzi custom resources (`kafka.strimzi.io`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from reconciler.importers.base import (
    NO_CLIENT_QUOTA,
    NO_CREDENTIALS,
    NO_TEXT,
    NOT_KAFKA,
    SECURITY,
    Document,
    Fields,
    ImportedCluster,
    ImportedTopic,
    SourceReading,
    read_resource_rule,
)
from reconciler.runtime.text import list_choices

_GROUP: Final = "kafka.strimzi.io/"
_CLUSTER: Final = "strimzi.io/cluster"
_MANAGED: Final = "strimzi.io/managed"
_BY_CERTIFICATE: Final = frozenset({"tls", "tls-external"})
_BY_STATUS: Final = frozenset({"route", "loadbalancer", "nodeport", "ingress", "cluster-ip"})
_WHERE: Final = "Add --bootstrap-server HOST:PORT, or read what this writes: kubectl get kafka -o yaml"
_BOOKKEEPING: Final = (
    "name",
    "namespace",
    "creationTimestamp",
    "finalizers",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
)


def is_own_document(content: Any) -> bool:
    """Return whether a document is a Strimzi resource or a list with one."""
    return any(_is_strimzi(item) for item in (_list_items(content) or [content]))


def import_documents(documents: tuple[Document, ...], reading: SourceReading) -> None:
    """Import the topics, users and clusters of Strimzi resources."""
    wholes = (Fields(document.content, reading, document.locate) for document in documents)
    resources = [fields for whole in wholes for fields in _list_resources(whole) if _is_strimzi(fields.content)]
    homes = _find_homes(resources)
    for fields in resources:
        _import_resource(fields, homes)


# Cluster names are unique only within a Kubernetes namespace. An ambiguous name becomes NAMESPACE/NAME.


KubernetesNamespaces: TypeAlias = Mapping[str, set[str]]


def _find_homes(resources: list[Fields]) -> KubernetesNamespaces:
    kafkas: defaultdict[str, set[str]] = defaultdict(set)
    topics: defaultdict[str, set[str]] = defaultdict(set)
    for fields in resources:
        metadata, kind = fields.content.get("metadata"), fields.content.get("kind")
        if not isinstance(metadata, dict):
            continue
        home, labels = str(metadata.get("namespace") or ""), metadata.get("labels")
        if kind == "Kafka":
            kafkas[str(metadata.get("name"))].add(home)
        elif kind == "KafkaTopic" and isinstance(labels, dict) and home:
            topics[str(labels.get(_CLUSTER))].add(home)
    several = {name: homes | kafkas[name] for name, homes in topics.items() if len(homes) > 1}
    return {**several, **{name: homes for name, homes in kafkas.items() if len(homes) > 1}}


def _find_cluster_name(metadata: Fields, name: str, homes: KubernetesNamespaces) -> str | None:
    home = metadata.read_text("namespace") or ""
    if name not in homes:
        return name
    if home not in homes[name]:
        metadata.report_lost("namespace", f"clusters named {name} are in {list_choices(homes[name])}, and none is here")
        return None
    return f"{home}/{name}" if home else name


def _list_items(content: Any) -> list[Any] | None:
    items = content.get("items") if isinstance(content, dict) else None
    kind = content.get("kind") if isinstance(content, dict) else None
    return items if isinstance(items, list) and isinstance(kind, str) and kind.endswith("List") else None


def _is_strimzi(content: Any) -> bool:
    version = content.get("apiVersion") if isinstance(content, dict) else None
    return isinstance(version, str) and version.startswith(_GROUP)


def _list_resources(whole: Fields) -> Iterator[Fields]:
    if _list_items(whole.content) is None:
        yield whole
    else:
        yield from whole.iterate_mappings("items")


def _import_resource(fields: Fields, homes: KubernetesNamespaces) -> None:
    kind = fields.read_text("kind") or ""
    metadata = fields.read_mapping("metadata")
    name = metadata.read_text("name") if metadata is not None else None
    fields.subject = f"{kind} {name or ''}".strip()
    fields.ignore_keys("apiVersion")
    spec = fields.read_mapping("spec")
    if metadata is None or not name or spec is None:
        fields.report_lost("", "it has no name, or no spec")
        return
    metadata.subject = spec.subject = fields.subject
    match kind:
        case "KafkaTopic":
            _import_topic(fields, metadata, spec, name, homes)
        case "KafkaUser":
            _import_user(metadata, spec, name, homes)
        case "Kafka":
            _import_cluster(fields, metadata, spec, name, homes)
        case _:
            fields.report_inexpressible("", f"{kind}: {NOT_KAFKA}")
            return
    fields.ignore_keys("status")
    fields.report_unread()


def _read_labels(metadata: Fields, homes: KubernetesNamespaces) -> tuple[str | None, dict[str, str]]:
    labels = metadata.read_labels("labels")
    cluster = _find_cluster_name(metadata, labels.pop(_CLUSTER, ""), homes)
    annotations = metadata.read_mapping("annotations")
    if annotations is not None:
        annotations.ignore_keys(_MANAGED, "kubectl.kubernetes.io/last-applied-configuration")
        annotations.report_unread(NO_TEXT, is_expressible=False)
    metadata.ignore_keys(*_BOOKKEEPING)
    metadata.report_unread(NO_TEXT, is_expressible=False)
    return cluster, labels


def _is_unmanaged(metadata: Fields) -> bool:
    annotations = metadata.content.get("annotations")
    return isinstance(annotations, dict) and str(annotations.get(_MANAGED)).lower() == "false"


def _import_topic(fields: Fields, metadata: Fields, spec: Fields, name: str, homes: KubernetesNamespaces) -> None:
    if _is_unmanaged(metadata):
        fields.report_inexpressible("", f"it is marked {_MANAGED}: false, so it is not managed")
        return
    cluster, labels = _read_labels(metadata, homes)
    if cluster is None:
        return
    topic = ImportedTopic(
        name=spec.read_text("topicName") or name,
        place=fields.place,
        cluster=cluster,
        partitions=spec.read_number("partitions"),
        replication_factor=spec.read_number("replicas"),
        configs=spec.read_values("config"),
        labels=labels,
    )
    fields.reading.topics.append(topic)
    spec.report_unread()


def _import_user(metadata: Fields, spec: Fields, name: str, homes: KubernetesNamespaces) -> None:
    cluster, _ = _read_labels(metadata, homes)
    if cluster is None:
        return
    authentication = spec.read_mapping("authentication")
    kind = authentication.read_text("type") if authentication is not None else None
    principal = f"User:CN={name}" if kind in _BY_CERTIFICATE else f"User:{name}"
    if authentication is not None and kind != "tls-external":
        spec.report_inexpressible("authentication", NO_CREDENTIALS)
    spec.report_inexpressible("quotas", NO_CLIENT_QUOTA)
    spec.report_inexpressible("template", NO_TEXT)
    authorization = spec.read_mapping("authorization")
    if authorization is not None:
        authorization.read_text("type")
        for entry in authorization.iterate_mappings("acls"):
            read_resource_rule(entry, principal, name="name", operations=("operations", "operation"), cluster=cluster)
        authorization.report_unread()
    spec.report_unread()


def _import_cluster(fields: Fields, metadata: Fields, spec: Fields, name: str, homes: KubernetesNamespaces) -> None:
    """Import the connection only; the operator manages the broker settings."""
    cluster = _find_cluster_name(metadata, name, homes) or name
    metadata.ignore_keys("labels", "annotations")
    kafka = spec.read_mapping("kafka")
    listeners = list(kafka.iterate_mappings("listeners")) if kafka is not None else []
    if kafka is not None:
        kafka.report_inexpressible("config", "how brokers are set up stays with the operator")
    plain = next(
        (
            listener
            for listener in listeners
            if not listener.read_flag("tls") and "authentication" not in listener.content
        ),
        None,
    )
    chosen = plain or (listeners[0] if listeners else None)
    if chosen is not None and chosen is not plain:
        hint = f"Write {SECURITY} of the Cluster by hand."
        chosen.report_lost("", "how to log in, and which authority to trust, is in Kubernetes secrets", hint)
    address, cluster_id = _read_status(fields, chosen)
    if address is None and chosen is not None and chosen.read_text("type") in _BY_STATUS:
        chosen.report_inexpressible("type", "its address is only in the status, which is missing here", _WHERE)
        return
    if address is None:
        home = metadata.read_text("namespace")
        port = (chosen.read_number("port") if chosen is not None else None) or 9092
        address = f"{name}-kafka-bootstrap{f'.{home}.svc' if home else ''}:{port}"
    imported = ImportedCluster(
        name=cluster, place=fields.place, bootstrap_servers=tuple(address.split(",")), cluster_id=cluster_id
    )
    fields.reading.clusters.append(imported)


def _read_status(fields: Fields, listener: Fields | None) -> tuple[str | None, str | None]:
    status = fields.read_mapping("status")
    if status is None:
        return None, None
    name = listener.read_text("name") if listener is not None else None
    known = {
        item.read_text("name") or item.read_text("type"): item.read_text("bootstrapServers")
        for item in status.iterate_mappings("listeners")
    }
    return known.get(name) if name else None, status.read_text("clusterId")
