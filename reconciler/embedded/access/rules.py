"""Access rules of topics and namespaces in the catalog: made whole, in one form, and changed one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from reconciler.embedded.catalog.entries import AclEntry
from reconciler.embedded.catalog.lookups import topic_named, unknown_namespace
from reconciler.errors import UserError
from reconciler.resources.aclpaths import rule_at, rule_fields
from reconciler.resources.acls import NamespaceAcl, TopicAcl

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from reconciler.embedded.catalog.tables import Draft

_OF_TOPICS: Final = ("principal", "permission", "operations", "host")


def entries_of(rules: Iterable[TopicAcl]) -> tuple[AclEntry, ...]:
    """Return what the catalog keeps of rules: those alike but for their operations are one; in order of their paths."""
    return _entries(rule_fields(rules))


def topic_rules(entries: Iterable[AclEntry]) -> tuple[TopicAcl, ...]:
    """Return a topic's rules as manifests have them."""
    return tuple(TopicAcl.model_construct(**_shape(entry, *_OF_TOPICS)) for entry in entries)


def namespace_rules(entries: Iterable[AclEntry]) -> tuple[NamespaceAcl, ...]:
    """Return a namespace's rules as manifests have them."""
    return tuple(NamespaceAcl.model_construct(**_shape(entry, *_OF_TOPICS, "resources", "names")) for entry in entries)


def changed_rules(entries: Iterable[AclEntry], changes: Mapping[str, tuple[str, ...] | None]) -> tuple[AclEntry, ...]:
    """Return rules with some set, by their paths, and some (`None`) taken away."""
    merged: dict[str, tuple[str, ...] | None] = {**rule_fields(namespace_rules(entries)), **changes}
    return _entries({path: operations for path, operations in merged.items() if operations is not None})


def set_topic_acls(draft: Draft, full_name: str, entries: Iterable[AclEntry]) -> None:
    """Give a topic these rules and no others.

    Raises:
        UserError: It does not exist, or a rule cannot be.
    """
    topic = topic_named(draft, full_name)
    checked = [_checked(f"topic {full_name}", entry) for entry in entries]
    for rule in checked:
        if (rule.resources, rule.names) != (("topics",), ("*",)):
            message = f"topic {full_name}: a rule of a topic is about that topic, not about {', '.join(rule.names)}"
            raise UserError(message, hint="Leave out resources and names, or set the rule on its namespace.")
    draft.put_topic(full_name, replace(topic, acls=entries_of(checked)))


def set_namespace_acls(draft: Draft, name: str, entries: Iterable[AclEntry]) -> None:
    """Give a namespace these rules and no others.

    Raises:
        InvalidNamespaceError: It does not exist.
        UserError: A rule cannot be.
    """
    namespace = draft.namespaces.get(name)
    if namespace is None:
        raise unknown_namespace(name)
    checked = [_checked(f"namespace {name}", entry) for entry in entries]
    draft.put_namespace(name, replace(namespace, acls=entries_of(checked)))


def _shape(entry: AclEntry, *names: str) -> dict[str, Any]:
    # What the catalog keeps was checked when it was written.
    return {name: getattr(entry, name) for name in names}


def _checked(where: str, entry: AclEntry) -> NamespaceAcl:
    try:
        return NamespaceAcl.model_validate(entry.to_json())
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        message = f"{where}: access rule of {entry.principal}: {field}: {first['msg']}"
        raise UserError(message, hint="Correct the rule; nothing was changed.") from error


def _entries(fields: Mapping[str, tuple[str, ...]]) -> tuple[AclEntry, ...]:
    rules = (rule_at(path, fields[path]) for path in sorted(fields))
    return tuple(
        AclEntry(rule.principal, rule.permission, rule.operations, rule.host, rule.resources, rule.names)
        for rule in rules
    )
