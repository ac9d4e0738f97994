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
    Reading,
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


def claims(content: Any) -> bool:
    """Return whether a document is a Jikkou resource."""
    if not isinstance(content, dict):
        return False
    version = content.get("apiVersion")
    return isinstance(version, str) and _GROUP in version


def read(documents: tuple[Document, ...], reading: Reading) -> None:
    """Read the documents."""
    resources = [item for document in documents for item in _resources(document, reading)]
    configs = {_name(fields): fields.said("data") for kind, fields in resources if kind == "ConfigMap"}
    roles = {_name(fields): fields for kind, fields in resources if kind == "KafkaPrincipalRole"}
    for kind, fields in resources:
        match kind:
            case "KafkaTopic":
                _import_topic(fields, configs)
            case "KafkaPrincipalAuthorization":
                _import_principal(fields, roles)
            case "ConfigMap" | "KafkaPrincipalRole":
                pass  # read where they are used
            case "KafkaClientQuota" | "KafkaQuota":
                fields.unsaid("", NO_CLIENT_QUOTA)
            case "KafkaUser":
                fields.unsaid("", NO_CREDENTIALS)
            case _:
                fields.unsaid("", f"{kind or 'a resource without a kind'}: {NOT_KAFKA}")


def _resources(document: Document, reading: Reading) -> Iterator[tuple[str, Fields]]:
    kind = document.content.get("kind")
    kind = kind if isinstance(kind, str) else ""
    whole = Fields(document.content, reading, document.locate, subject=kind)
    if kind.endswith(_LIST) and "items" in document.content:
        _report_metadata(whole)
        for item in whole.each("items"):
            yield _name_and_spec(item, kind.removesuffix(_LIST))
    else:
        yield _name_and_spec(whole, kind)


def _report_metadata(whole: Fields) -> None:
    metadata = whole.inside("metadata")
    annotations = metadata.inside("annotations") if metadata is not None else None
    for fields, known in ((annotations, _BOOKKEEPING), (metadata, ("name",))):
        if fields is not None:
            fields.ignore_keys(*known)
            fields.rest(_OF_LIST, is_left_out=False)


def _name_and_spec(fields: Fields, kind: str) -> tuple[str, Fields]:
    fields.ignore_keys("apiVersion", "kind")
    fields.subject = f"{kind} {_name(fields)}".strip()
    return kind, fields


def _name(fields: Fields) -> str:
    metadata = fields.content.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if type(name) is str else ""


def _import_topic(fields: Fields, known: Mapping[str, Mapping[str, SourceValue]]) -> None:
    labels = _labels(fields)
    if labels is None or not fields.is_named("metadata"):
        return
    spec = fields.inside("spec")
    if spec is None:
        fields.lost("spec", "a topic without a spec has no settings")
        return
    configs: dict[str, SourceValue] = {}
    for name in spec.texts("configMapRefs"):
        if name not in known:
            spec.lost("configMapRefs", f"no ConfigMap {name} is in these files")
        configs.update(known.get(name, {}))
    own = spec.said("configs")
    topic = ImportedTopic(
        name=_name(fields),
        place=fields.place,
        partitions=spec.number("partitions"),
        replication_factor=spec.number("replicas"),
        configs={**configs, **own},
        labels=labels,
    )
    fields.reading.topics.append(topic)
    spec.rest()
    fields.rest()


def _labels(fields: Fields) -> dict[str, str] | None:
    """Read the metadata; `None` if the resource is ignored or deleted."""
    metadata = fields.inside("metadata")
    if metadata is None:
        return {}
    annotations = metadata.inside("annotations")
    if annotations is not None:
        annotations.ignore_keys(*_BOOKKEEPING)
        for key in _IGNORED:
            if annotations.flag(key):
                fields.unsaid("", f"it is marked {key}, so it is not to be there")
                return None
        annotations.rest(NO_TEXT, is_left_out=False)
    labels = metadata.labels("labels")
    metadata.ignore_keys("name")
    metadata.rest(NO_TEXT, is_left_out=False)
    return labels


def _import_principal(fields: Fields, roles: Mapping[str, Fields]) -> None:
    if _labels(fields) is None:
        return
    spec = fields.inside("spec")
    if spec is None:
        return
    principal = _name(fields)
    for entry in spec.each("acls"):
        read_resource_rule(entry, principal, name="pattern")
    for name in spec.texts("roles"):
        role = roles.get(name)
        of_role = role.inside("spec") if role is not None else None
        if of_role is None:
            spec.lost("roles", f"no KafkaPrincipalRole {name} is in these files")
            continue
        for entry in of_role.each("acls"):
            entry.subject = f"{fields.subject} by role {name}"
            read_resource_rule(entry, principal, name="pattern")
    spec.rest()
    fields.rest()
