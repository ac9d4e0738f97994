"""Namespaces (KIP-37): hierarchical homes of topics, made with all their tiers, never implicitly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.embedded.configs import changed_configs, checked_configs
from reconciler.embedded.entries import NamespaceEntry
from reconciler.embedded.lookups import unknown_namespace
from reconciler.embedded.topics import delete_topic
from reconciler.errors import BlockedError, UserError
from reconciler.resources.address import tiers_of
from reconciler.resources.names import check_namespace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.embedded.catalog import Catalog, Draft


def create_namespace(draft: Draft, name: str, configs: Mapping[str, str]) -> None:
    """Make a namespace and every tier above it. One that is there with the same configs is left alone.

    Raises:
        UserError: The name or a config cannot be, or it is there with other configs.
    """
    try:
        tiers = tiers_of(check_namespace(name))
    except ValueError as error:
        raise UserError(f"{name!r} is {error}", hint="Example: shop:eu.") from error
    if not tiers:
        raise UserError("the default namespace '' always exists", hint="Name a namespace, such as shop:eu.")
    entry = NamespaceEntry(checked_configs(f"namespace {name}", configs))
    existing = draft.namespaces.get(name)
    if existing is not None and existing != entry:
        message = f"namespace {name} exists with other configs: {dict(existing.configs)}"
        raise UserError(message, hint="Change its configs instead of creating it.")
    for tier in tiers[:-1]:
        if tier not in draft.namespaces:
            draft.put_namespace(tier, NamespaceEntry())
    draft.put_namespace(name, entry)


def alter_namespace(draft: Draft, name: str, changes: Mapping[str, str | None]) -> None:
    """Set configs, or (`None`) remove them; every topic below that does not override them changes with it.

    Raises:
        InvalidNamespaceError: It does not exist.
    """
    entry = draft.namespaces.get(name)
    if entry is None:
        raise unknown_namespace(name)
    draft.put_namespace(name, NamespaceEntry(changed_configs(f"namespace {name}", entry.configs, changes)))


def delete_namespace(draft: Draft, name: str, *, recursive: bool) -> bool:
    """Remove a namespace and mark its topics for deletion; say whether it was there.

    Raises:
        BlockedError: It holds namespaces and the deletion is not recursive; nothing is deleted.
    """
    if name not in draft.namespaces:
        return False
    nested = namespaces_under(draft, name)
    if nested and not recursive:
        message = f"namespace {name} holds namespaces: {', '.join(nested[:5])}{' …' if nested[5:] else ''}"
        raise BlockedError(message, hint="Delete those first, or delete recursively.")
    for topic in topics_under(draft, name):
        delete_topic(draft, topic)
    for namespace in (*nested, name):
        draft.put_namespace(namespace, None)
    return True


def namespaces_under(catalog: Catalog | Draft, name: str) -> list[str]:
    """Return all namespaces below one, sorted; below the default one lie all."""
    prefix = f"{name}:" if name else ""
    return sorted(namespace for namespace in catalog.namespaces if namespace.startswith(prefix))


def topics_under(catalog: Catalog | Draft, name: str) -> list[str]:
    """Return the full names of all topics in a namespace and below it, sorted."""
    prefix = f"{name}:" if name else ""
    return sorted(topic for topic in catalog.topics if topic.startswith(prefix))
