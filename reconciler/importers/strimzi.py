"""Import Strimzi custom resources (`kafka.strimzi.io`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from reconciler.importers.base import (
    NO_CLIENT_QUOTA,
    NO_CREDENTIALS,
    NO_TEXT,
    NOT_KAFKA,
    Document,
    Fields,
    FoundCluster,
    FoundTopic,
    Reading,
    take_rule_of_resource,
)

_GROUP: Final = "kafka.strimzi.io/"
_CLUSTER: Final = "strimzi.io/cluster"
_MANAGED: Final = "strimzi.io/managed"
_BY_CERTIFICATE: Final = frozenset({"tls", "tls-external"})
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


def claims(content: Any) -> bool:
    """Tell whether a document is one of Strimzi's, or a list that holds one."""
    return any(_is_strimzi(each) for each in (_items(content) or [content]))


def read(documents: tuple[Document, ...], reading: Reading) -> None:
    """Take what the documents say into a reading."""
    for document in documents:
        whole = Fields(document.content, reading, document.locate)
        for fields in _resources(whole):
            if _is_strimzi(fields.content):
                _take(fields)


def _items(content: Any) -> list[Any] | None:
    items = content.get("items") if isinstance(content, dict) else None
    kind = content.get("kind") if isinstance(content, dict) else None
    return items if isinstance(items, list) and isinstance(kind, str) and kind.endswith("List") else None


def _is_strimzi(content: Any) -> bool:
    version = content.get("apiVersion") if isinstance(content, dict) else None
    return isinstance(version, str) and version.startswith(_GROUP)


def _resources(whole: Fields) -> Iterator[Fields]:
    if _items(whole.content) is None:
        yield whole
    else:
        yield from whole.each("items")


def _take(fields: Fields) -> None:
    kind = fields.text("kind") or ""
    metadata = fields.inside("metadata")
    name = metadata.text("name") if metadata is not None else None
    fields.subject = f"{kind} {name or ''}".strip()
    fields.pass_over("apiVersion", "status")
    spec = fields.inside("spec")
    if metadata is None or not name or spec is None:
        fields.lost("", "it has no name, or no spec")
        return
    metadata.subject = spec.subject = fields.subject
    match kind:
        case "KafkaTopic":
            _take_topic(fields, metadata, spec, name)
        case "KafkaUser":
            _take_user(metadata, spec, name)
        case "Kafka":
            _take_cluster(fields, metadata, spec, name)
        case _:
            fields.unsaid("", f"{kind}: {NOT_KAFKA}")
            return
    fields.rest()


def _take_labels(metadata: Fields) -> tuple[str, dict[str, str]]:
    """Take the cluster's name and the labels that are the author's own."""
    labels = metadata.labels("labels")
    cluster = labels.pop(_CLUSTER, "")
    annotations = metadata.inside("annotations")
    if annotations is not None:
        annotations.pass_over(_MANAGED, "kubectl.kubernetes.io/last-applied-configuration")
        annotations.rest(NO_TEXT, is_left_out=False)
    metadata.pass_over(*_BOOKKEEPING)
    metadata.rest(NO_TEXT, is_left_out=False)
    return cluster, labels


def _is_unmanaged(metadata: Fields) -> bool:
    annotations = metadata.content.get("annotations")
    return isinstance(annotations, dict) and str(annotations.get(_MANAGED)).lower() == "false"


def _take_topic(fields: Fields, metadata: Fields, spec: Fields, name: str) -> None:
    if _is_unmanaged(metadata):
        fields.unsaid("", f"it is marked {_MANAGED}: false, so it is not managed")
        return
    cluster, labels = _take_labels(metadata)
    topic = FoundTopic(
        name=spec.text("topicName") or name,
        place=fields.place,
        cluster=cluster,
        partitions=spec.number("partitions"),
        replication_factor=spec.number("replicas"),
        configs=spec.said("config"),
        labels=labels,
    )
    fields.reading.topics.append(topic)
    spec.rest()


def _take_user(metadata: Fields, spec: Fields, name: str) -> None:
    cluster, _ = _take_labels(metadata)
    authentication = spec.inside("authentication")
    kind = authentication.text("type") if authentication is not None else None
    principal = f"User:CN={name}" if kind in _BY_CERTIFICATE else f"User:{name}"
    if authentication is not None and kind != "tls-external":
        spec.unsaid("authentication", NO_CREDENTIALS)
    spec.unsaid("quotas", NO_CLIENT_QUOTA)
    spec.unsaid("template", NO_TEXT)
    authorization = spec.inside("authorization")
    if authorization is not None:
        authorization.text("type")
        for entry in authorization.each("acls"):
            take_rule_of_resource(
                entry, principal, name="name", operations=("operations", "operation"), cluster=cluster
            )
        authorization.rest()
    spec.rest()


def _take_cluster(fields: Fields, metadata: Fields, spec: Fields, name: str) -> None:
    """Take where a cluster is reached; how its brokers run is the operator's."""
    namespace = metadata.text("namespace")
    metadata.pass_over("labels", "annotations")
    host = f"{name}-kafka-bootstrap" + (f".{namespace}.svc" if namespace else "")
    kafka = spec.inside("kafka")
    listeners = list(kafka.each("listeners")) if kafka is not None else []
    if kafka is not None:
        kafka.unsaid("config", "how brokers are set up stays with the operator")
    plain = next((each for each in listeners if not each.flag("tls") and "authentication" not in each.content), None)
    chosen = plain or (listeners[0] if listeners else None)
    if chosen is not None and chosen is not plain:
        hint = "Write spec.kafka.security of the Cluster by hand."
        chosen.lost("", "how to log in, and whom to trust, lies in Kubernetes secrets", hint)
    port = (chosen.number("port") if chosen is not None else None) or 9092
    cluster = FoundCluster(name=name, place=fields.place, bootstrap_servers=(f"{host}:{port}",))
    fields.reading.clusters.append(cluster)
