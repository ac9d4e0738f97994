"""`namespace list`: the hierarchy as it is on the clusters."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.resources.address import Address, address_of, cluster_of, full_name_of, kind_of, rank, split_name
from reconciler.resources.namespace import Namespace
from reconciler.workflow.observing import observe
from reconciler.workflow.opening import open_work

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.workflow.invocation import Invocation, Select


@dataclass(frozen=True, slots=True)
class NamespaceRow:
    """One namespace, how many topics lie in it itself, and what they inherit from it."""

    address: Address
    topics: int
    configs: Mapping[str, str]


def list_namespaces(invocation: Invocation, select: Select, cluster: str | None) -> tuple[NamespaceRow, ...]:
    """Return the namespaces of one cluster, or of all."""
    work = open_work(invocation, select)
    names = work.to_read if cluster is None else [cluster]
    observed = observe(work.providers, names, {}).inventory
    topics = Counter(
        address_of("namespace", cluster_of(address) or "", split_name(full_name_of(address))[0])
        for address in observed
        if kind_of(address) in {"topic", "mirror"}
    )
    return tuple(
        NamespaceRow(address, topics[address], resource.spec.configs)
        for address in sorted(observed, key=rank)
        if isinstance(resource := observed[address].resource, Namespace)
    )
