"""The cluster as a whole in the catalog: its properties, and the object storage it is bound to."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from reconciler.errors import UserError
from reconciler.resources.clusterproperties import ALIASES, EMBEDDED_PROPERTIES
from reconciler.resources.configs import DEFAULT, canonical_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.embedded.catalog.tables import Catalog, Draft


def alter_cluster(draft: Draft, changes: Mapping[str, str | None]) -> None:
    """Set properties; `None` or `default` puts one back to its default (F-R-014).

    Raises:
        UserError: A name or value cannot be; an empty value is no way to reset one.
    """
    kept: dict[str, str | None] = dict(draft.cluster.properties)
    for name, value in changes.items():
        kept[name] = None if value is None or value == DEFAULT else _checked(name, value)
    properties = {name: value for name, value in sorted(kept.items()) if value is not None}
    told = {properties[name] for name in ALIASES if name in properties}
    if len(told) > 1:
        message = f"{' and '.join(ALIASES)} are one property by two names, and differ"
        raise UserError(message, hint="Set one of the two.")
    draft.put_cluster(replace(draft.cluster, properties=properties))


def bind_storage(draft: Draft, storage_id: str) -> None:
    """Bind the cluster to an object storage, once.

    Raises:
        UserError: It is bound to another one, and topics lie there (F-R-013).
    """
    bound = draft.cluster.storage_id
    if bound == storage_id:
        return
    tiered = tiered_topics(draft)
    if bound is not None and tiered:
        message = f"the cluster is bound to object storage {bound}, and {tiered[0]} is or was tiered into it"
        raise UserError(message, hint="Set objectStorage back: topics do not move between buckets.")
    draft.put_cluster(replace(draft.cluster, storage_id=storage_id))


def tiered_topics(catalog: Catalog | Draft) -> list[str]:
    """Return the topics that are or were tiered, sorted, and those whose remote objects are still to be deleted."""
    here = (name for name, topic in catalog.topics.items() if topic.tiering is not None)
    going = (entry.name for entry in catalog.deletions.values() if entry.location is not None)
    return sorted({*here, *going})


def _checked(name: str, value: str) -> str:
    if name not in EMBEDDED_PROPERTIES:
        near = get_close_matches(name, EMBEDDED_PROPERTIES, n=1)
        hint = f"Did you mean {near[0]}?" if near else "Correct its name: properties have Redpanda's names."
        raise UserError(f"there is no cluster property {name!r}", hint=hint)
    if not value.strip():
        message = f"cluster property {name} is empty: that is no way to reset it"
        raise UserError(message, hint="Leave it out, or write default.")
    try:
        return canonical_value(name, value, EMBEDDED_PROPERTIES)
    except ValueError as error:
        raise UserError(f"cluster property {name}: {error}", hint="Leave it out, or write default.") from error
