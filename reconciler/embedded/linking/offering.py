"""The topics of a cluster as a link to another cluster sees them: what is mirrored of each, and whether it may be read.

Links act for the super user of the other cluster, so they may read everything, but for what a rule denies to them.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from reconciler.embedded.access.operations import Kind, Operation
from reconciler.embedded.access.permissions import ALLOW, Permissions
from reconciler.embedded.catalog.links import source_topic
from reconciler.resources.syncs import Offered

if TYPE_CHECKING:
    from collections.abc import Collection

    from reconciler.embedded.catalog.tables import Catalog


def offered_in(catalog: Catalog, principal: str, only: Collection[str] | None = None) -> dict[str, Offered]:
    """Return the topics of a catalog by full name, or of `only` some, as `principal` sees them."""
    who = Permissions.of(principal) if _denies_anything(catalog) else None
    names = catalog.topics if only is None else [name for name in only if name in catalog.topics]
    return {
        name: Offered(
            source_topic(catalog, name),
            is_mirror=catalog.topics[name].follows is not None,
            is_readable=who is None or _may_read(who, catalog, name),
        )
        for name in names
    }


def _denies_anything(catalog: Catalog) -> bool:
    """Tell whether there is a rule to be asked about at all: with ten thousand topics it is not asked in vain."""
    namespaces = (rule for entry in catalog.namespaces.values() for rule in entry.acls)
    topics = (rule for entry in catalog.topics.values() for rule in entry.acls)
    return any(rule.permission != ALLOW for rule in chain(namespaces, topics))


def _may_read(who: Permissions, catalog: Catalog, full_name: str) -> bool:
    verdict = who.verdict(catalog, Operation.READ, Kind.TOPIC, full_name)
    return verdict.is_allowed or verdict.rule is None  # Without a rule it only lacks one that allows.
