"""Access rules as they act on a topic, mirror or namespace: those of its tiers, outermost first, then its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.resources.aclpaths import rule_at, rule_fields
from reconciler.resources.address import Address, address_of, cluster_of, full_name_of, kind_of, split_name, tiers_of
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reconciler.resources.acls import NamespaceAcl
    from reconciler.resources.inventory import Inventory
    from reconciler.resources.kinds import Resource


@dataclass(frozen=True, slots=True)
class AclRow:
    """A rule that is asked. `path` names it as plans do, `origin` is the address of what it lies on."""

    path: str
    rule: NamespaceAcl
    origin: Address


def acting_acls(address: Address, observed: Inventory) -> tuple[AclRow, ...]:
    """Return every rule that is asked about an address, in the order in which they are."""
    rows: list[AclRow] = []
    for place in _levels(address):
        found = observed.get(place)
        fields = rules_of(found.resource) if found is not None and found.hidden is None else {}
        rows += (AclRow(path, rule_at(path, fields[path]), place) for path in sorted(fields))
    return tuple(rows)


def rules_of(resource: Resource) -> Mapping[str, tuple[str, ...]]:
    """Return the access rules a resource has as its own: path → operations."""
    return rule_fields(resource.spec.acls) if isinstance(resource, Topic | Namespace) else {}


def _levels(address: Address) -> Iterator[Address]:
    cluster, name = cluster_of(address) or "", full_name_of(address)
    is_namespace = kind_of(address) == "namespace"
    for tier in tiers_of(name if is_namespace else split_name(name)[0]):
        yield address_of("namespace", cluster, tier)
    if not is_namespace:
        yield address
