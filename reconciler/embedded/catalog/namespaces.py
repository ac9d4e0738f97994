"""Namespaces (KIP-37): hierarchical homes of topics, made with all their tiers, never implicitly."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.embedded.catalog.configs import changed_configs, checked_configs
from reconciler.embedded.catalog.encryption import keys_of, mark_rewrites
from reconciler.embedded.catalog.entries import NamespaceEntry, QuotaEntry
from reconciler.embedded.catalog.lookups import unknown_namespace
from reconciler.embedded.catalog.tiering import check_not_disabling, retier
from reconciler.embedded.catalog.topics import delete_topic
from reconciler.errors import BlockedError, UserError
from reconciler.resources.address import tiers_of
from reconciler.resources.names import check_namespace
from reconciler.resources.tierrules import SWITCHES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.embedded.catalog.tables import Catalog, Draft


def create_namespace(draft: Draft, name: str, asked: NamespaceEntry) -> None:
    """Make a namespace and every tier above it. One that is there and asks for the same is left alone.

    Raises:
        UserError: The name or a config cannot be, or it is there and differs.
    """
    try:
        tiers = tiers_of(check_namespace(name))
    except ValueError as error:
        raise UserError(f"{name!r} is {error}", hint="Example: shop:eu.") from error
    if not tiers:
        raise UserError("the default namespace '' always exists", hint="Name a namespace, such as shop:eu.")
    entry = replace(asked, configs=checked_configs(f"namespace {name}", asked.configs), quotas=_limits(asked.quotas))
    existing = draft.namespaces.get(name)
    if existing is not None and existing != entry:
        raise _differs(name, existing, entry)
    for tier in tiers[:-1]:
        if tier not in draft.namespaces:
            draft.put_namespace(tier, NamespaceEntry())
    draft.put_namespace(name, entry)


def alter_namespace(draft: Draft, name: str, changes: Mapping[str, str | None]) -> None:
    """Set configs, or (`None`) remove them; every topic below that does not override them changes with it.

    Raises:
        InvalidNamespaceError: It does not exist.
    """
    entry = _namespace_named(draft, name)
    topics = topics_under(draft, name) if SWITCHES.intersection(changes) else []
    for topic in topics:
        check_not_disabling(topic, draft.topics[topic], changes)
    draft.put_namespace(name, replace(entry, configs=changed_configs(f"namespace {name}", entry.configs, changes)))
    retier(draft, topics, or_else=lambda: draft.put_namespace(name, entry))


def limit_namespace(draft: Draft, name: str, quotas: QuotaEntry | None) -> None:
    """Set or (`None`) lift the quotas of a namespace; what is there already may be more, and then only not grow.

    Raises:
        InvalidNamespaceError: It does not exist.
    """
    draft.put_namespace(name, replace(_namespace_named(draft, name), quotas=_limits(quotas)))


def encrypt_namespace(draft: Draft, name: str, kms_key_id: str | None) -> None:
    """Set or (`None`) remove the key of a namespace, and mark the topics below that had another by now.

    Raises:
        InvalidNamespaceError: It does not exist.
    """
    entry, topics = _namespace_named(draft, name), topics_under(draft, name)
    before = keys_of(draft, topics)
    draft.put_namespace(name, replace(entry, kms_key_id=kms_key_id))
    mark_rewrites(draft, topics, before)


def delete_namespace(draft: Draft, name: str, *, cluster_id: str, recursive: bool) -> bool:
    """Remove a namespace of the cluster `cluster_id` and mark its topics for deletion; say whether it was there.

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
        delete_topic(draft, topic, cluster_id=cluster_id)
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


def _namespace_named(draft: Draft, name: str) -> NamespaceEntry:
    entry = draft.namespaces.get(name)
    if entry is None:
        raise unknown_namespace(name)
    return entry


def _limits(quotas: QuotaEntry | None) -> QuotaEntry | None:
    """Return quotas in their one form: those that limit nothing are none."""
    return None if quotas == QuotaEntry() else quotas


def _differs(name: str, existing: NamespaceEntry, asked: NamespaceEntry) -> UserError:
    there, wanted = existing.to_json(), asked.to_json()
    keys = [key for key in sorted({*there, *wanted}) if there.get(key) != wanted.get(key)]
    differing = "; ".join(f"{key.replace('kms_key_id', 'key')}: {there.get(key, 'none')}" for key in keys)
    return UserError(f"namespace {name} exists with other {differing}", hint="Change it instead of creating it.")
