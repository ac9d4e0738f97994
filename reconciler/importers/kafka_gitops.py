"""Import kafka-gitops state files; services and roles are expanded as in its documentation and code."""

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
    Reading,
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

Rule = tuple[str, str, tuple[str, ...], bool]
"""Kind, name, operations, is a prefix."""

_ROLES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "writer": (("topic", EVERYTHING, ("WRITE",), False),),
    "reader": (("topic", EVERYTHING, ("READ",), False), ("group", EVERYTHING, ("READ",), False)),
    "operator": (
        ("cluster", CLUSTER_NAME, ("DESCRIBE",), False),
        ("topic", EVERYTHING, ("DESCRIBE", "DESCRIBE_CONFIGS"), False),
        ("group", EVERYTHING, ("READ", "DESCRIBE"), False),
    ),
}


def claims(content: Any) -> bool:
    """Return whether a document is a kafka-gitops state."""
    if not isinstance(content, dict) or not content or not content.keys() <= _KEYS:
        return False
    return all(value is None or isinstance(value, dict) for value in content.values())


def read(documents: tuple[Document, ...], reading: Reading) -> None:
    """Read the documents; settings of one apply to all."""
    states = [Fields(document.content, reading, document.locate) for document in documents]
    defaults = _Defaults()
    for state in states:
        defaults.take(state)
    for state in states:
        for name, topic in state.named("topics"):
            topic.subject = f"topic {name}"
            _import_topic(topic, name, defaults)
        for name, service in state.named("services"):
            service.subject = f"service {name}"
            _import_service(service, name, describes=defaults.describes)
    principals = {name: principal for state in states for name, principal in _import_users(state)}
    for state in states:
        for key in ("customServiceAcls", "customUserAcls"):
            for name, entries in state.named(key):
                _import_custom(entries, name, principals)
        state.unsaid("schemas", "schemas are not managed here")
        state.rest()


class _Defaults:
    def __init__(self) -> None:
        self.partitions: int | None = None
        self.replication: int | None = None
        self.configs: dict[str, SourceValue] = {}
        self.describes = False

    def take(self, state: Fields) -> None:
        settings = state.inside("settings")
        if settings is None:
            return
        topics = settings.inside("topics")
        if topics is not None:
            defaults = topics.inside("defaults")
            if defaults is not None:
                self.partitions = defaults.number("partitions")
                self.replication = defaults.number("replication")
                self.configs = defaults.said("configs")
            hint = "Nothing that is not declared is ever deleted, so no list of exceptions is needed."
            topics.unsaid("blacklist", "only what was applied from here is ever deleted", hint)
            topics.unsaid("whitelist", "only what was applied from here is ever deleted", hint)
        services = settings.inside("services")
        acls = services.inside("acls") if services is not None else None
        self.describes = bool(acls.flag("describe-topic-enabled")) if acls is not None else False
        settings.unsaid("confluent", OF_THE_TOOL)
        settings.unsaid("ccloud", OF_THE_TOOL)
        settings.ignore_keys("files")
        settings.rest()


def _import_topic(topic: Fields, name: str, defaults: _Defaults) -> None:
    values = ImportedTopic(
        name=name,
        place=topic.place,
        partitions=topic.number("partitions") or defaults.partitions,
        replication_factor=topic.number("replication") or defaults.replication,
        configs={**defaults.configs, **topic.said("configs")},
    )
    topic.reading.topics.append(values)
    topic.rest()


def _import_service(service: Fields, name: str, *, describes: bool) -> None:
    principal = service.text("principal")
    rules = list(_of_service(service, name, describes=describes))
    if principal is None:
        service.lost("principal", _NO_PRINCIPAL)
    else:
        _add(service, principal, rules)
    service.rest()


def _of_service(service: Fields, name: str, *, describes: bool) -> Iterator[Rule]:
    kind = (service.text("type") or "").lower()
    produces, consumes = service.texts("produces"), service.texts("consumes")
    yield from _topic_rules(produces, consumes, describes=describes)
    group = service.text("group-id") or name
    match kind:
        case "application":
            if consumes:
                yield "group", group, ("READ",), False
        case "kafka-streams":
            application = service.text("application-id") or name
            yield "topic", application, _STREAMS, True
            yield "group", application, ("READ", "DESCRIBE", "DELETE"), False
            yield "cluster", CLUSTER_NAME, ("DESCRIBE_CONFIGS",), False
        case "kafka-connect":
            yield from _connect_rules(service, name, group, describes=describes)
        case _:
            service.lost(
                "type", f"{kind!r} is not a kind of service", "There are application, kafka-connect, kafka-streams."
            )


def _connect_rules(service: Fields, name: str, group: str, *, describes: bool) -> Iterator[Rule]:
    stored = service.inside("storage-topics")
    for what in ("config", "offset", "status"):
        topic = stored.text(what) if stored is not None else None
        yield (
            "topic",
            topic or f"connect-{what}{'' if what == 'status' else 's'}-{name}",
            ("READ", "WRITE"),
            False,
        )
    yield "group", group, ("READ",), False
    for connector, fields in service.named("connectors"):
        consumed = fields.texts("consumes")
        yield from _topic_rules(fields.texts("produces"), consumed, describes=describes)
        if consumed:
            yield "group", f"connect-{connector}", ("READ",), False
        fields.rest()


def _topic_rules(produces: Iterable[str], consumes: Iterable[str], *, describes: bool) -> Iterator[Rule]:
    more = ("DESCRIBE",) if describes else ()
    for topic in produces:
        yield "topic", topic, ("WRITE", *more), False
    for topic in consumes:
        yield "topic", topic, ("READ", *more), False


def _import_users(state: Fields) -> Iterator[tuple[str, str]]:
    """Read users' roles; yield each user with its principal, for its own rules."""
    for name, user in state.named("users"):
        user.subject = f"user {name}"
        principal = user.text("principal")
        roles = user.texts("roles")
        if principal is None:
            user.lost("principal", _NO_PRINCIPAL)
            continue
        yield name, principal
        for role in roles:
            if role.lower() in _ROLES:
                _add(user, principal, _ROLES[role.lower()])
            else:
                user.lost("roles", f"{role!r} is not a role", f"There are {', '.join(sorted(_ROLES))}.")
        user.rest()


def _import_custom(entries: Fields, name: str, principals: Mapping[str, str]) -> None:
    for key in entries.content:
        entry = entries.inside(key)
        if entry is None:
            continue
        entry.subject = f"access rule {key} of {name}"
        SourceRule(
            resource=entry.text("type"),
            name=entry.text("name"),
            pattern=entry.text("pattern"),
            principal=entry.text("principal") or principals.get(name),
            permission=entry.text("permission"),
            host=entry.text("host"),
            operations=entry.texts("operation"),
        ).add_to(entry)
        entry.rest()


def _add(at: Fields, principal: str, rules: Iterable[Rule]) -> None:
    for resource, name, operations, is_prefix in rules:
        pattern = "prefixed" if is_prefix else "literal"
        rule = SourceRule(resource=resource, name=name, pattern=pattern, principal=principal, operations=operations)
        rule.add_to(at)
