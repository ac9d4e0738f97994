"""Import kafka-gitops state files; their services and roles become access rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from reconciler.importers.base import (
    CLUSTER_NAME,
    EVERYTHING,
    OF_THE_TOOL,
    Document,
    Fields,
    ImportedTopic,
    SourceReading,
    SourceRule,
    SourceValue,
)

_KEYS: Final = frozenset({"settings", "topics", "services", "users", "customServiceAcls", "customUserAcls", "schemas"})
_STREAMS: Final = (
    "READ",
    "WRITE",
    "DESCRIBE",
    "DELETE",
    "CREATE",
    "ALTER",
    "ALTER_CONFIGS",
    "DESCRIBE_CONFIGS",
)
_NO_PRINCIPAL: Final = "it names no principal: with Confluent Cloud the other tool looks service accounts up"

RuleTuple = tuple[str, str, tuple[str, ...], bool]
"""Resource type, name, operations, and whether the name is a prefix."""

_ROLES: Final[Mapping[str, tuple[RuleTuple, ...]]] = {
    "writer": (("topic", EVERYTHING, ("WRITE",), False),),
    "reader": (("topic", EVERYTHING, ("READ",), False), ("group", EVERYTHING, ("READ",), False)),
    "operator": (
        ("cluster", CLUSTER_NAME, ("DESCRIBE",), False),
        ("topic", EVERYTHING, ("DESCRIBE", "DESCRIBE_CONFIGS"), False),
        ("group", EVERYTHING, ("READ", "DESCRIBE"), False),
    ),
}


def is_own_document(content: Any) -> bool:
    """Return whether a document is a kafka-gitops state."""
    if not isinstance(content, dict) or not content or not content.keys() <= _KEYS:
        return False
    return all(value is None or isinstance(value, dict) for value in content.values())


def import_documents(documents: tuple[Document, ...], reading: SourceReading) -> None:
    """Import state files; the settings of one file apply to all files."""
    states = [Fields(document.content, reading, document.locate) for document in documents]
    defaults = _Defaults()
    for state in states:
        defaults.read_settings(state)
    for state in states:
        for name, topic in state.iterate_named("topics"):
            topic.subject = f"topic {name}"
            _import_topic(topic, name, defaults)
        for name, service in state.iterate_named("services"):
            service.subject = f"service {name}"
            _import_service(service, name, describes=defaults.describes)
    principals = {name: principal for state in states for name, principal in _import_users(state)}
    for state in states:
        for key in ("customServiceAcls", "customUserAcls"):
            for name, entries in state.iterate_named(key):
                _import_custom_rules(entries, name, principals)
        state.report_inexpressible("schemas", "schemas are not managed here")
        state.report_unread()


class _Defaults:
    def __init__(self) -> None:
        self.partitions: int | None = None
        self.replication: int | None = None
        self.configs: dict[str, SourceValue] = {}
        self.describes = False

    def read_settings(self, state: Fields) -> None:
        settings = state.read_mapping("settings")
        if settings is None:
            return
        topics = settings.read_mapping("topics")
        if topics is not None:
            defaults = topics.read_mapping("defaults")
            if defaults is not None:
                self.partitions = defaults.read_number("partitions")
                self.replication = defaults.read_number("replication")
                self.configs = defaults.read_values("configs")
            hint = "Nothing that is not declared is ever deleted, so no list of exceptions is needed."
            topics.report_inexpressible("blacklist", "only what was applied from here is ever deleted", hint)
            topics.report_inexpressible("whitelist", "only what was applied from here is ever deleted", hint)
        services = settings.read_mapping("services")
        acls = services.read_mapping("acls") if services is not None else None
        self.describes = bool(acls.read_flag("describe-topic-enabled")) if acls is not None else False
        settings.report_inexpressible("confluent", OF_THE_TOOL)
        settings.report_inexpressible("ccloud", OF_THE_TOOL)
        settings.ignore_keys("files")
        settings.report_unread()


def _import_topic(topic: Fields, name: str, defaults: _Defaults) -> None:
    values = ImportedTopic(
        name=name,
        place=topic.place,
        partitions=topic.read_number("partitions") or defaults.partitions,
        replication_factor=topic.read_number("replication") or defaults.replication,
        configs={**defaults.configs, **topic.read_values("configs")},
    )
    topic.reading.topics.append(values)
    topic.report_unread()


def _import_service(service: Fields, name: str, *, describes: bool) -> None:
    principal = service.read_text("principal")
    rules = list(_list_service_rules(service, name, describes=describes))
    if principal is None:
        service.report_lost("principal", _NO_PRINCIPAL)
    else:
        _add_rules(service, principal, rules)
    service.report_unread()


def _list_service_rules(service: Fields, name: str, *, describes: bool) -> Iterator[RuleTuple]:
    kind = (service.read_text("type") or "").lower()
    produces, consumes = service.read_texts("produces"), service.read_texts("consumes")
    yield from _list_topic_rules(produces, consumes, describes=describes)
    group = service.read_text("group-id") or name
    match kind:
        case "application":
            if consumes:
                yield "group", group, ("READ",), False
        case "kafka-streams":
            application = service.read_text("application-id") or name
            yield "topic", application, _STREAMS, True
            yield "group", application, ("READ", "DESCRIBE", "DELETE"), False
            yield "cluster", CLUSTER_NAME, ("DESCRIBE_CONFIGS",), False
        case "kafka-connect":
            yield from _list_connect_rules(service, name, group, describes=describes)
        case _:
            service.report_lost(
                "type", f"{kind!r} is not a kind of service", "There are application, kafka-connect, kafka-streams."
            )


def _list_connect_rules(service: Fields, name: str, group: str, *, describes: bool) -> Iterator[RuleTuple]:
    stored = service.read_mapping("storage-topics")
    for what in ("config", "offset", "status"):
        topic = stored.read_text(what) if stored is not None else None
        yield (
            "topic",
            topic or f"connect-{what}{'' if what == 'status' else 's'}-{name}",
            ("READ", "WRITE"),
            False,
        )
    yield "group", group, ("READ",), False
    for connector, fields in service.iterate_named("connectors"):
        consumed = fields.read_texts("consumes")
        yield from _list_topic_rules(fields.read_texts("produces"), consumed, describes=describes)
        if consumed:
            yield "group", f"connect-{connector}", ("READ",), False
        fields.report_unread()


def _list_topic_rules(produces: Iterable[str], consumes: Iterable[str], *, describes: bool) -> Iterator[RuleTuple]:
    more = ("DESCRIBE",) if describes else ()
    for topic in produces:
        yield "topic", topic, ("WRITE", *more), False
    for topic in consumes:
        yield "topic", topic, ("READ", *more), False


def _import_users(state: Fields) -> Iterator[tuple[str, str]]:
    for name, user in state.iterate_named("users"):
        user.subject = f"user {name}"
        principal = user.read_text("principal")
        roles = user.read_texts("roles")
        if principal is None:
            user.report_lost("principal", _NO_PRINCIPAL)
            continue
        yield name, principal
        for role in roles:
            if role.lower() in _ROLES:
                _add_rules(user, principal, _ROLES[role.lower()])
            else:
                user.report_lost("roles", f"{role!r} is not a role", f"There are {', '.join(sorted(_ROLES))}.")
        user.report_unread()


def _import_custom_rules(entries: Fields, name: str, principals: Mapping[str, str]) -> None:
    for key in entries.content:
        entry = entries.read_mapping(key)
        if entry is None:
            continue
        entry.subject = f"access rule {key} of {name}"
        SourceRule(
            resource=entry.read_text("type"),
            name=entry.read_text("name"),
            pattern=entry.read_text("pattern"),
            principal=entry.read_text("principal") or principals.get(name),
            permission=entry.read_text("permission"),
            host=entry.read_text("host"),
            operations=entry.read_texts("operation"),
        ).add_to(entry)
        entry.report_unread()


def _add_rules(at: Fields, principal: str, rules: Iterable[RuleTuple]) -> None:
    for resource, name, operations, is_prefix in rules:
        pattern = "prefixed" if is_prefix else "literal"
        rule = SourceRule(resource=resource, name=name, pattern=pattern, principal=principal, operations=operations)
        rule.add_to(at)
