"""What a cluster has now, as the resources that declare it."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from reconciler.errors import RetryableError, UserError
from reconciler.planning.deciding.recovered import RECOVERING
from reconciler.providers.base import Scope
from reconciler.resources.address import Address, cluster_address, full_name_of
from reconciler.workflow.exporting.archives import LeftOut
from reconciler.workflow.exporting.factoring import Factored, Found, factored

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reconciler.providers.base import Provider
    from reconciler.resources.cluster import Cluster
    from reconciler.resources.inventory import Inventory
    from reconciler.resources.tieringpolicy import TieringPolicy

_FLAT_SEPARATOR: Final = "."
NO_POLICIES: Final[Mapping[str, TieringPolicy]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Live:
    """What there is, factored; what it was made from; and what is left out until it is whole."""

    factored: Factored
    inventory: Inventory
    cluster_id: str
    left_out: tuple[LeftOut, ...]


def look(
    cluster: Cluster, provider: Provider, at_least: int, *, policies: Mapping[str, TieringPolicy] = NO_POLICIES
) -> Live:
    """Read a cluster and factor what it has; what the platform made for itself is left out.

    `policies` are declared already.

    Raises:
        RetryableError: It is not there, or cannot be reached.
    """
    name = cluster.metadata.name
    identity = provider.identify()
    if identity is None:
        raise RetryableError(
            f"cluster {name} is not there", hint="From what its object storage has of it: --from-object-storage"
        )
    inventory = {
        address: found
        for address, found in provider.observe(Scope()).items()
        if found.hidden is None and not found.is_internal and address != cluster_address(name)
    }
    left_out = tuple(
        LeftOut(address, UserError("it is still being recovered", hint="Export again when that is done."))
        for address, found in sorted(inventory.items())
        if found.state == RECOVERING
    )
    gone = {each.place for each in left_out}
    kept = {address: found for address, found in inventory.items() if address not in gone}
    made = factored(_found(cluster, provider, kept), policies=policies, at_least=at_least)
    unsaid = (*made.unsaid, *_unseen(name, provider))
    return Live(Factored(made.resources, unsaid), kept, identity.cluster_id, left_out)


def _found(cluster: Cluster, provider: Provider, inventory: Inventory) -> Found:
    separator = _separator(cluster)
    mirrors = [address for address in inventory if address.startswith("mirror/")]
    return Found(
        cluster=cluster.metadata.name,
        resources=[found.resource for address, found in inventory.items() if address not in mirrors],
        capabilities=provider.capabilities,
        separator=separator,
        bindings=provider.unplaced(),
        taken=[full_name_of(address).replace(":", separator or ":") for address in mirrors],
    )


def _separator(cluster: Cluster) -> str | None:
    """Return what stands for `:` in the names of a cluster; `None`: it has namespaces itself."""
    if cluster.spec.provider == "embedded":
        return None
    return cluster.spec.kafka.namespace_separator if cluster.spec.kafka else _FLAT_SEPARATOR


def _unseen(name: str, provider: Provider) -> Iterator[LeftOut]:
    """Yield what may be there and was not shown to whoever acts."""
    capabilities = provider.capabilities
    address: Address = cluster_address(name)
    if not capabilities.acls and "acls" in capabilities.lacks:
        why = UserError(f"no access rules: {capabilities.lacks['acls']}", hint="Topics are exported without them.")
        yield LeftOut(address, why)
    if capabilities.may_hide:
        why = UserError(
            f"topics that whoever acts may not describe are not among these: {capabilities.lacks.get('may_hide', '')}",
            hint="Export as somebody who may describe all topics.",
        )
        yield LeftOut(address, why)
