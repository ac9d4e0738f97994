"""The roles of JulieOps as the access rules they stand for, as its documentation lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.manifests.importing.rules import CLUSTER_NAME, EVERYTHING, SaidRule
from reconciler.manifests.importing.wording import NO_TEXT, NOT_KAFKA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reconciler.manifests.importing.fields import Fields

_STORES: Final = {
    "status_topic": "connect-status",
    "offset_topic": "connect-offsets",
    "configs_topic": "connect-configs",
}
_CONNECT_GROUP: Final = "connect-cluster"


@dataclass(frozen=True, slots=True)
class Role:
    """What somebody may do with every topic of a project, or with one."""

    principal: str
    operations: tuple[str, ...]

    def add_to(self, at: Fields, topic: str) -> None:
        """Add the rules for one topic."""
        _add(at, self.principal, "topic", topic, self.operations)


def take_users(fields: Fields) -> tuple[Role, ...]:
    """Take the consumers and producers of a project or topic; what is not about topics is added at once."""
    return (*_consumers(fields), *_producers(fields))


def take_roles(project: Fields, prefix: str) -> None:
    """Take the streams and connectors of a project, whose topics are named in full."""
    for stream in project.each("streams"):
        principal = stream.text("principal")
        _add_topics(stream, principal)
        inner = stream.text("applicationId") or prefix
        _add(stream, principal, "topic", inner, ("ALL",), is_prefix=True)
        _add(stream, principal, "group", inner, ("READ",), is_prefix=True)
        _leave(stream, "exactlyOnce")
    for connector in _connectors(project):
        principal = connector.text("principal")
        for key, usual in _STORES.items():
            _add(connector, principal, "topic", connector.text(key) or usual, ("READ", "WRITE"))
        _add(connector, principal, "cluster", CLUSTER_NAME, ("CREATE",))
        _add(connector, principal, "group", connector.text("group") or _CONNECT_GROUP, ("READ",))
        _add_topics(connector, principal)
        _leave(connector, "connectors")


def _consumers(fields: Fields) -> Iterator[Role]:
    for consumer in fields.each("consumers"):
        principal = consumer.text("principal")
        group = consumer.text("group") or EVERYTHING
        name, is_prefix = _pattern(group)
        _add(consumer, principal, "group", name, ("READ",), is_prefix=is_prefix)
        _leave(consumer)
        if principal is not None:
            yield Role(principal, ("READ", "DESCRIBE"))


def _producers(fields: Fields) -> Iterator[Role]:
    for producer in fields.each("producers"):
        principal = producer.text("principal")
        transaction = producer.text("transactionId")
        if transaction is not None:
            name, is_prefix = _pattern(transaction)
            _add(producer, principal, "transactional-id", name, ("WRITE", "DESCRIBE"), is_prefix=is_prefix)
        if producer.flag("idempotence") or transaction is not None:
            _add(producer, principal, "cluster", CLUSTER_NAME, ("IDEMPOTENT_WRITE",))
        _leave(producer)
        if principal is not None:
            yield Role(principal, ("WRITE", "DESCRIBE"))


def _connectors(project: Fields) -> Iterator[Fields]:
    """Yield who may act for connectors: a list, or the part of a mapping that is about access."""
    if isinstance(project.content.get("connectors"), dict):
        inner = project.inside("connectors")
        if inner is not None:
            yield from inner.each("access_control")
            inner.unsaid("artefacts", NOT_KAFKA)
            inner.rest()
    else:
        yield from project.each("connectors")


def _add_topics(at: Fields, principal: str | None) -> None:
    topics = at.inside("topics")
    if topics is not None:
        for key, operation in (("read", "READ"), ("write", "WRITE")):
            for topic in topics.texts(key):
                _add(at, principal, "topic", topic, (operation,))


def _pattern(text: str) -> tuple[str, bool]:
    """Return a name, and whether it is a prefix: longer than a star that ends it."""
    is_prefix = text.endswith(EVERYTHING) and text != EVERYTHING
    return (text[:-1] if is_prefix else text), is_prefix


def _leave(at: Fields, *passed_over: str) -> None:
    at.unsaid("metadata", NO_TEXT)
    at.pass_over(*passed_over)
    at.rest()


def _add(
    at: Fields, principal: str | None, resource: str, name: str, operations: Iterable[str], *, is_prefix: bool = False
) -> None:
    pattern = "prefixed" if is_prefix else "literal"
    rule = SaidRule(resource=resource, name=name, pattern=pattern, principal=principal, operations=operations)
    rule.add_to(at)
