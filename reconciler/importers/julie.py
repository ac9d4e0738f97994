"""Import JulieOps topologies, with their naming rules and roles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from reconciler.errors import UserError
from reconciler.importers.base import (
    CLUSTER_NAME,
    EVERYTHING,
    NO_TEXT,
    NOT_KAFKA,
    Document,
    Fields,
    ImportedCluster,
    ImportedTopic,
    SourcePlace,
    SourceReading,
    SourceRule,
    SourceValue,
    read_text,
)
from reconciler.manifests.files import build_label
from reconciler.runtime.dataclass import dataclass

_STORES: Final = {
    "status_topic": "connect-status",
    "offset_topic": "connect-offsets",
    "configs_topic": "connect-configs",
}
_CONNECT_GROUP: Final = "connect-cluster"


@dataclass(frozen=True, slots=True)
class TopicRole:
    """Operations of a principal on topics."""

    principal: str
    operations: tuple[str, ...]

    def add_to(self, at: Fields, topic: str) -> None:
        """Add the access rules for a topic."""
        _add_rule(at, self.principal, "topic", topic, self.operations)


def read_topic_roles(fields: Fields) -> tuple[TopicRole, ...]:
    """Return consumers and producers; import their rules for groups, transactional ids and the cluster."""
    return (*_read_consumers(fields), *_read_producers(fields))


def import_streams_and_connectors(project: Fields, prefix: str) -> None:
    """Import the access rules of streams and connectors."""
    for stream in project.iterate_mappings("streams"):
        principal = stream.read_text("principal")
        _add_topic_rules(stream, principal)
        inner = stream.read_text("applicationId") or prefix
        _add_rule(stream, principal, "topic", inner, ("ALL",), is_prefix=True)
        _add_rule(stream, principal, "group", inner, ("READ",), is_prefix=True)
        _report_unread(stream, "exactlyOnce")
    for connector in _list_connectors(project):
        principal = connector.read_text("principal")
        for key, usual in _STORES.items():
            _add_rule(connector, principal, "topic", connector.read_text(key) or usual, ("READ", "WRITE"))
        _add_rule(connector, principal, "cluster", CLUSTER_NAME, ("CREATE",))
        _add_rule(connector, principal, "group", connector.read_text("group") or _CONNECT_GROUP, ("READ",))
        _add_topic_rules(connector, principal)
        _report_unread(connector, "connectors")


def _read_consumers(fields: Fields) -> Iterator[TopicRole]:
    for consumer in fields.iterate_mappings("consumers"):
        principal = consumer.read_text("principal")
        group = consumer.read_text("group") or EVERYTHING
        name, is_prefix = _parse_pattern(group)
        _add_rule(consumer, principal, "group", name, ("READ",), is_prefix=is_prefix)
        _report_unread(consumer)
        if principal is not None:
            yield TopicRole(principal, ("READ", "DESCRIBE"))


def _read_producers(fields: Fields) -> Iterator[TopicRole]:
    for producer in fields.iterate_mappings("producers"):
        principal = producer.read_text("principal")
        transaction = producer.read_text("transactionId")
        if transaction is not None:
            name, is_prefix = _parse_pattern(transaction)
            _add_rule(producer, principal, "transactional-id", name, ("WRITE", "DESCRIBE"), is_prefix=is_prefix)
        if producer.read_flag("idempotence") or transaction is not None:
            _add_rule(producer, principal, "cluster", CLUSTER_NAME, ("IDEMPOTENT_WRITE",))
        _report_unread(producer)
        if principal is not None:
            yield TopicRole(principal, ("WRITE", "DESCRIBE"))


def _list_connectors(project: Fields) -> Iterator[Fields]:
    if isinstance(project.content.get("connectors"), dict):
        inner = project.read_mapping("connectors")
        if inner is not None:
            yield from inner.iterate_mappings("access_control")
            inner.report_inexpressible("artefacts", NOT_KAFKA)
            inner.report_unread()
    else:
        yield from project.iterate_mappings("connectors")


def _add_topic_rules(at: Fields, principal: str | None) -> None:
    topics = at.read_mapping("topics")
    if topics is not None:
        for key, operation in (("read", "READ"), ("write", "WRITE")):
            for topic in topics.read_texts(key):
                _add_rule(at, principal, "topic", topic, (operation,))


def _parse_pattern(text: str) -> tuple[str, bool]:
    is_prefix = text.endswith(EVERYTHING) and text != EVERYTHING
    return (text[:-1] if is_prefix else text), is_prefix


def _report_unread(at: Fields, *passed_over: str) -> None:
    at.report_inexpressible("metadata", NO_TEXT)
    at.ignore_keys(*passed_over)
    at.report_unread()


def _add_rule(
    at: Fields, principal: str | None, resource: str, name: str, operations: Iterable[str], *, is_prefix: bool = False
) -> None:
    pattern = "prefixed" if is_prefix else "literal"
    rule = SourceRule(resource=resource, name=name, pattern=pattern, principal=principal, operations=operations)
    rule.add_to(at)


_NOT_IN_NAMES: Final = frozenset({"context", "projects", "platform", "special_topics"})
_PARTITIONS: Final = "num.partitions"
_REPLICATION: Final = "replication.factor"
_PLANS: Final = "plans"


def is_own_document(content: Any) -> bool:
    """Return whether a document is a topology or a list of plans."""
    return isinstance(content, dict) and (
        ("context" in content and isinstance(content.get("projects"), list))
        or (content.keys() == {_PLANS} and isinstance(content[_PLANS], dict))
    )


def import_documents(documents: tuple[Document, ...], reading: SourceReading, names: NamingRules) -> None:
    """Import topologies; plans from any document apply to all topologies."""
    whole = [Fields(document.content, reading, document.locate) for document in documents]
    plans = {name: plan.read_values("config") for item in whole for name, plan in _list_plans(item)}
    for topology in whole:
        if "projects" in topology.content:
            _import_topology(topology, names, plans)


def _list_plans(document: Fields) -> Iterable[tuple[str, Fields]]:
    return document.iterate_named(_PLANS) if _PLANS in document.content else ()


def _import_topology(topology: Fields, names: NamingRules, plans: Mapping[str, Mapping[str, SourceValue]]) -> None:
    context = {"context": topology.read_text("context") or ""}
    for key in topology.content:
        if key not in _NOT_IN_NAMES:
            context[key] = topology.read_text(key) or ""
    for project in topology.iterate_mappings("projects"):
        name = project.read_text("name") or ""
        project.subject = f"project {name}"
        _import_project(project, {**context, "project": name}, names, plans)
    for topic in topology.iterate_mappings("special_topics"):
        full_name = topic.read_text("name") or ""
        topic.subject = f"topic {full_name}"
        _import_topic(topic, full_name, plans, ())
    topology.report_inexpressible("platform", f"rules for platform components: {NOT_KAFKA}")
    topology.report_unread()


def _import_project(
    project: Fields, context: Mapping[str, str], names: NamingRules, plans: Mapping[str, Mapping[str, SourceValue]]
) -> None:
    roles = read_topic_roles(project)
    for topic in project.iterate_mappings("topics"):
        name = {"topic": topic.read_text("name") or "", "dataType": topic.read_text("dataType") or ""}
        full_name = names.build_topic_name({**context, **name})
        topic.subject = f"topic {full_name}"
        _import_topic(topic, full_name, plans, roles)
    import_streams_and_connectors(project, names.build_project_prefix(context))
    for key in ("schemas", "rbac", "ksql"):
        project.report_inexpressible(key, NOT_KAFKA)
    project.report_unread()


def _import_topic(
    topic: Fields, name: str, plans: Mapping[str, Mapping[str, SourceValue]], roles: Iterable[TopicRole]
) -> None:
    configs = topic.read_values("config")
    plan = topic.read_text("plan")
    if plan is not None and plan not in plans:
        topic.report_lost(
            "plan", f"no plan {plan} is in these files", "Import the folder that holds the file of plans, too."
        )
    configs |= plans.get(plan or "", {})  # The configs of a topic's plan override its own configs.
    counts = Fields(
        {key: setting.value for key, setting in configs.items()}, topic.reading, lambda _: topic.locate_key("config")
    )
    counts.subject = topic.subject
    imported = ImportedTopic(
        name=name,
        place=topic.place,
        partitions=counts.read_number(_PARTITIONS),
        replication_factor=counts.read_number(_REPLICATION),
        configs={key: setting for key, setting in configs.items() if key not in {_PARTITIONS, _REPLICATION}},
    )
    topic.reading.topics.append(imported)
    for role in (*roles, *read_topic_roles(topic)):
        role.add_to(topic, name)
    topic.report_inexpressible("metadata", NO_TEXT)
    for key in ("schemas", "subject.name.strategy"):
        topic.report_inexpressible(key, NOT_KAFKA)
    topic.report_unread()


_FIELD: Final = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_.]*)\s*\}\}")
_FORMAT: Final = "topology.topic.prefix.format"
_PROJECT_FORMAT: Final = "topology.project.prefix.format"
_SEPARATOR: Final = "topology.topic.prefix.separator"
_DEFAULT: Final = "default"
SERVERS: Final = "bootstrap.servers"


@dataclass(frozen=True, slots=True)
class NamingRules:
    """Naming rules of topics and projects; without a format, parts are joined in order."""

    separator: str = "."
    topic_format: str | None = None
    project_format: str | None = None

    def build_topic_name(self, parts: Mapping[str, str]) -> str:
        """Return the full name of a topic."""
        if self.topic_format is not None:
            return _fill_format(self.topic_format, parts)
        rest = [parts[key] for key in ("topic", "dataType") if parts.get(key)]
        return self.separator.join([self.build_project_prefix(parts), *rest])

    def build_project_prefix(self, parts: Mapping[str, str]) -> str:
        """Return the common prefix of a project's topics."""
        if self.project_format is not None:
            return _fill_format(self.project_format, parts)
        above = [parts[key] for key in parts if key not in {"topic", "dataType", "project"}]
        return self.separator.join([*above, parts["project"]])


def parse_naming_rules(properties: Mapping[str, str]) -> NamingRules:
    """Parse the naming rules in JulieOps properties.

    Raises:
        ValueError: A format has an expression that is not a plain name.
    """
    topic, project = properties.get(_FORMAT, _DEFAULT), properties.get(_PROJECT_FORMAT, _DEFAULT)
    for pattern in (topic, project):
        if "{" in _FIELD.sub("", pattern):
            message = f"{pattern!r} has more than names in curly brackets"
            raise ValueError(message)
    return NamingRules(
        separator=properties.get(_SEPARATOR, "."),
        topic_format=None if topic == _DEFAULT else topic,
        project_format=None if project == _DEFAULT else project,
    )


def parse_properties(text: str) -> dict[str, str]:
    """Return the keys of a properties file that concern names and brokers."""
    wanted = {_FORMAT, _PROJECT_FORMAT, _SEPARATOR, SERVERS}
    properties: dict[str, str] = {}
    for line in text.splitlines():
        key, sign, value = line.partition("=")
        if sign and key.strip() in wanted:
            properties[key.strip()] = value.strip().strip('"')
    return properties


def _fill_format(pattern: str, parts: Mapping[str, str]) -> str:
    return _FIELD.sub(lambda field: parts.get(field[1], ""), pattern)


_CLUSTER = "kafka"


def import_julie(
    documents: tuple[Document, ...], properties: Iterable[Path], cwd: Path, reading: SourceReading
) -> None:
    """Import topologies, with the naming rules and brokers of properties files."""
    settings: dict[str, tuple[str, str]] = {}
    for file in properties:
        label = build_label(file, cwd)
        for key, value in parse_properties(read_text(file, cwd).decode(errors="replace")).items():
            before = settings.setdefault(key, (value, label))
            if before[0] != value:
                message = f"{key} is {before[0]!r} in {before[1]} and {value!r} in {label}"
                raise UserError(message, hint="Import a folder that contains only the properties file that applies.")
        reading.unread = [other for other in reading.unread if other != label]
    try:
        names = parse_naming_rules({key: value for key, (value, _) in settings.items()})
    except ValueError as error:
        hint = "Write the format with names only, such as {{context}}.{{project}}.{{topic}}."
        raise UserError(f"the naming rule of topics cannot be read: {error}", hint=hint) from error
    if SERVERS in settings:
        servers, label = settings[SERVERS]
        addresses = tuple(server.strip() for server in servers.split(",") if server.strip())
        reading.clusters.append(ImportedCluster(name=_CLUSTER, place=SourcePlace(label), bootstrap_servers=addresses))
    import_documents(documents, reading, names)
