"""What is in the catalog under a name, or the error that says it is not."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from reconciler.errors import InvalidNamespaceError, UserError
from reconciler.resources.address import split_name
from reconciler.resources.names import check_full_name

if TYPE_CHECKING:
    from collections.abc import Collection

    from reconciler.embedded.catalog.entries import TopicEntry
    from reconciler.embedded.catalog.tables import Catalog, Draft
    from reconciler.resources.linkentries import LinkEntry


def topic_named(catalog: Catalog | Draft, full_name: str, *, known: Collection[str] | None = None) -> TopicEntry:
    """Return a topic. Where it is not there, what is nearly called so is named, of all topics or of those `known`.

    Raises:
        InvalidNamespaceError: Its namespace does not exist.
        UserError: It does not exist.
    """
    entry = catalog.topics.get(full_name)
    if entry is not None:
        return entry
    check_namespace_of(catalog, full_name)
    near = get_close_matches(full_name, catalog.topics if known is None else known, n=1)
    raise UserError(
        f"topic {full_name} does not exist", hint=f"Did you mean {near[0]}?" if near else "Create it first."
    )


def topic_with_id(catalog: Catalog, topic_id: str, full_name: str) -> TopicEntry | None:
    """Return a topic by its id, wherever it has moved; `full_name` is where it was last. `None`: it is gone."""
    entry = catalog.topics.get(full_name)
    if entry is not None and entry.id == topic_id:
        return entry
    return next((entry for entry in catalog.topics.values() if entry.id == topic_id), None)


def name_with_id(catalog: Catalog, topic_id: str, full_name: str) -> str:
    """Return the name of a topic by its id, wherever it has moved; `full_name`, where it was last, if it is gone."""
    entry = catalog.topics.get(full_name)
    if entry is not None and entry.id == topic_id:
        return full_name
    return next((name for name, entry in catalog.topics.items() if entry.id == topic_id), full_name)


def names_by_id(catalog: Catalog | Draft, topic_ids: Collection[str]) -> dict[str, str]:
    """Return what topics are called now, by id; those that are gone are absent."""
    return {entry.id: name for name, entry in catalog.topics.items() if entry.id in topic_ids}


def link_named(catalog: Catalog | Draft, name: str) -> LinkEntry:
    """Return a link.

    Raises:
        UserError: It does not exist.
    """
    entry = catalog.links.get(name)
    if entry is None:
        raise UserError(f"link {name} does not exist", hint="Create it first.")
    return entry


def check_free(catalog: Catalog | Draft, full_name: str) -> None:
    """Refuse a name that no new topic can have.

    Raises:
        UserError: It is not a name, or taken.
        InvalidNamespaceError: Its namespace does not exist; namespaces are never made implicitly.
    """
    try:
        check_full_name(full_name)
    except ValueError as error:
        raise UserError(f"{full_name!r} is {error}", hint="Example: shop:eu:orders.") from error
    check_namespace_of(catalog, full_name)
    if full_name in catalog.topics:
        raise UserError(f"topic {full_name} exists", hint="Change it instead, or choose another name.")


def check_namespace_of(catalog: Catalog | Draft, full_name: str) -> None:
    """Refuse a topic whose namespace does not exist.

    Raises:
        InvalidNamespaceError: It does not exist.
    """
    namespace, _ = split_name(full_name)
    if namespace and namespace not in catalog.namespaces:
        raise unknown_namespace(namespace)


def unknown_namespace(name: str) -> InvalidNamespaceError:
    """Return the error for a namespace that does not exist."""
    return InvalidNamespaceError(f"namespace {name} does not exist", hint="Create it first; none is made implicitly.")
