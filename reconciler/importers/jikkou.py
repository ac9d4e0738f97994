"""Import Jikkou resources (`kafka.jikkou.io`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from reconciler.importers.base import (
    NO_CLIENT_QUOTA,
    NO_CREDENTIALS,
    NO_TEXT,
    NOT_KAFKA,
    Document,
    Fields,
    ImportedTopic,
    SourceReading,
    SourceValue,
    read_resource_rule,
)

_GROUP: Final = "jikkou.io/"
_LIST: Final = "List"
_IGNORED: Final = ("jikkou.io/ignore", "jikkou.io/delete")
_OF_LIST: Final = "it is set on the list; only settings of items are read"
_BOOKKEEPING: Final = (
    "jikkou.io/resource-location",
    "jikkou.io/items-count",
    "kafka.jikkou.io/cluster-id",
    "jikkou.io/created",
)


def is_own_document(content: Any) -> bool:
    """Return whether a document is a Jikkou resource or list."""
    if not isinstance(content, dict):
        return False
    version = content.get("apiVersion")
    return isinstance(version, str) and _GROUP in version


def import_documents(documents: tuple[Document, ...], reading: SourceReading) -> None:
    """Import the topics and access rules of Jikkou resources."""
    resources = [item for document in documents for item in _list_resources(document, reading)]
    configs = {_read_name(fields): fields.read_values("data") for kind, fields in resources if kind == "ConfigMap"}
    roles = {_read_name(fields): fields for kind, fields in resources if kind == "KafkaPrincipalRole"}
    for kind, fields in resources:
        match kind:
            case "KafkaTopic":
                _import_topic(fields, configs)
            case "KafkaPrincipalAuthorization":
                _import_principal(fields, roles)
            case "ConfigMap" | "KafkaPrincipalRole":
                pass  # `import_documents` has read these kinds before.
            case "KafkaClientQuota" | "KafkaQuota":
                fields.report_inexpressible("", NO_CLIENT_QUOTA)
            case "KafkaUser":
                fields.report_inexpressible("", NO_CREDENTIALS)
            case _:
                fields.report_inexpressible("", f"{kind or 'a resource without a kind'}: {NOT_KAFKA}")


def _list_resources(document: Document, reading: SourceReading) -> Iterator[tuple[str, Fields]]:
    kind = document.content.get("kind")
    kind = kind if isinstance(kind, str) else ""
    whole = Fields(document.content, reading, document.locate, subject=kind)
    if kind.endswith(_LIST) and "items" in document.content:
        _report_metadata(whole)
        for item in whole.iterate_mappings("items"):
            yield _prepare_resource(item, kind.removesuffix(_LIST))
    else:
        yield _prepare_resource(whole, kind)


def _report_metadata(whole: Fields) -> None:
    metadata = whole.read_mapping("metadata")
    annotations = metadata.read_mapping("annotations") if metadata is not None else None
    for fields, known in ((annotations, _BOOKKEEPING), (metadata, ("name",))):
        if fields is not None:
            fields.ignore_keys(*known)
            fields.report_unread(_OF_LIST, is_expressible=False)


def _prepare_resource(fields: Fields, kind: str) -> tuple[str, Fields]:
    fields.ignore_keys("apiVersion", "kind")
    fields.subject = f"{kind} {_read_name(fields)}".strip()
    return kind, fields


def _read_name(fields: Fields) -> str:
    metadata = fields.content.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if type(name) is str else ""


def _import_topic(fields: Fields, known: Mapping[str, Mapping[str, SourceValue]]) -> None:
    labels = _read_labels(fields)
    if labels is None or not fields.has_text_name("metadata"):
        return
    spec = fields.read_mapping("spec")
    if spec is None:
        fields.report_lost("spec", "a topic without a spec has no settings")
        return
    configs: dict[str, SourceValue] = {}
    for name in spec.read_texts("configMapRefs"):
        if name not in known:
            spec.report_lost("configMapRefs", f"no ConfigMap {name} is in these files")
        configs.update(known.get(name, {}))
    own = spec.read_values("configs")
    topic = ImportedTopic(
        name=_read_name(fields),
        place=fields.place,
        partitions=spec.read_number("partitions"),
        replication_factor=spec.read_number("replicas"),
        configs={**configs, **own},
        labels=labels,
    )
    fields.reading.topics.append(topic)
    spec.report_unread()
    fields.report_unread()


def _read_labels(fields: Fields) -> dict[str, str] | None:
    metadata = fields.read_mapping("metadata")
    if metadata is None:
        return {}
    annotations = metadata.read_mapping("annotations")
    if annotations is not None:
        annotations.ignore_keys(*_BOOKKEEPING)
        for key in _IGNORED:
            if annotations.read_flag(key):
                fields.report_inexpressible("", f"it is marked {key}, so it is not to be there")
                return None
        annotations.report_unread(NO_TEXT, is_expressible=False)
    labels = metadata.read_labels("labels")
    metadata.ignore_keys("name")
    metadata.report_unread(NO_TEXT, is_expressible=False)
    return labels


def _import_principal(fields: Fields, roles: Mapping[str, Fields]) -> None:
    if _read_labels(fields) is None:
        return
    spec = fields.read_mapping("spec")
    if spec is None:
        return
    principal = _read_name(fields)
    for entry in spec.iterate_mappings("acls"):
        read_resource_rule(entry, principal, name="pattern")
    for name in spec.read_texts("roles"):
        role = roles.get(name)
        of_role = role.read_mapping("spec") if role is not None else None
        if of_role is None:
            spec.report_lost("roles", f"no KafkaPrincipalRole {name} is in these files")
            continue
        for entry in of_role.iterate_mappings("acls"):
            entry.subject = f"{fields.subject} by role {name}"
            read_resource_rule(entry, principal, name="pattern")
    spec.report_unread()
    fields.report_unread()
