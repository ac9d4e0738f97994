"""Keys: objects of a namespace are written under its own, the nearest tier's wins (SSE-KMS; foreseen by KIP-37)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.embedded.catalog.entries import RewriteEntry
from reconciler.resources.address import split_name, tiers_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from reconciler.embedded.catalog.tables import Catalog, Draft


def key_of(catalog: Catalog | Draft, full_name: str) -> str | None:
    """Return the key the objects of a topic are written under; `None`: the store's own."""
    return key_in(catalog, split_name(full_name)[0])


def key_in(catalog: Catalog | Draft, namespace: str) -> str | None:
    """Return the key of a namespace, or of the nearest tier above it that has one."""
    for tier in reversed(tiers_of(namespace)):
        entry = catalog.namespaces.get(tier)
        if entry is not None and entry.kms_key_id is not None:
            return entry.kms_key_id
    return None


def keys_of(catalog: Catalog | Draft, full_names: Iterable[str]) -> dict[str, str | None]:
    """Return the key of each of many topics, by topic id."""
    return {catalog.topics[name].id: key_of(catalog, name) for name in full_names}


def mark_rewrites(draft: Draft, full_names: Iterable[str], before: Mapping[str, str | None]) -> None:
    """Mark the topics whose key is no longer the one in `before`, in the commit that changes it."""
    for name in full_names:
        topic_id = draft.topics[name].id
        if key_of(draft, name) != before[topic_id]:
            draft.put_rewrite(topic_id, RewriteEntry(name))
