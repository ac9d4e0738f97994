"""What was imported, factored as what is exported is: namespaces, what topics share, policies, rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from reconciler.manifests.importing.found import Lost
from reconciler.manifests.importing.permissions import OPERATIONS
from reconciler.resources.address import full_name_of, kind_of
from reconciler.resources.capabilities import Capabilities
from reconciler.resources.namespace import Namespace
from reconciler.resources.tieringpolicy import TieringPolicy
from reconciler.workflow.exporting.factoring import Found, factored

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from reconciler.manifests.importing.compose import Flat
    from reconciler.manifests.importing.found import Place
    from reconciler.manifests.importing.targets import Target
    from reconciler.resources.address import Address
    from reconciler.resources.bindings import Binding
    from reconciler.resources.kinds import Resource

_STAYS: Final = "It stays on the cluster as it is."


@dataclass(slots=True)
class Gathered:
    """Resources of all clusters, where each was written, and what was not carried over."""

    resources: dict[Address, Resource] = field(default_factory=dict)
    places: dict[Address, Place] = field(default_factory=dict)
    lost: list[Lost] = field(default_factory=list)


def gather(
    flat: Mapping[str, Flat], targets: Iterable[Target], policies: Mapping[str, TieringPolicy], at_least: int
) -> Gathered:
    """Factor what was found, cluster by cluster; `policies` are declared already."""
    gathered = Gathered()
    taken = dict(policies)
    for target in {target.name: target for target in targets}.values():
        found = Found(
            cluster=target.name,
            resources=[*flat[target.name].topics.values(), *_namespaces(target)],
            capabilities=_capabilities(target),
            separator=target.separator,
            bindings=sorted(flat[target.name].bindings),
        )
        made = factored(found, policies=taken, at_least=at_least)
        for address, resource in made.resources.items():
            _add(gathered, address, resource, target, flat[target.name])
            if isinstance(resource, TieringPolicy):
                taken[resource.metadata.name] = resource
        places = {str(binding): (binding, place) for binding, place in flat[target.name].bindings.items()}
        for left in made.unsaid:
            gathered.lost.append(_unsaid(left.place, left.error.message, places, target))
    return gathered


def _add(gathered: Gathered, address: Address, resource: Resource, target: Target, flat: Flat) -> None:
    name = full_name_of(address).replace(":", target.separator)
    place = flat.places.get(name) if kind_of(address) == "topic" else None
    declared = target.declared.get(address)
    if declared is None:
        gathered.resources[address] = resource
        if place is not None:
            gathered.places[address] = place
    elif place is not None:
        why = f"{address} is declared already, at {declared.source}"
        gathered.lost.append(Lost(place, f"topic {name}", "", why, "Keep one of the two."))
    elif resource != declared.resource:
        why = f"{address} is declared already, at {declared.source}, and says other things"
        hint = "Import into a folder of its own without a workspace, and compare."
        first = next(iter(flat.places.values()), None) or next(iter(flat.bindings.values()))
        gathered.lost.append(Lost(first, f"namespace {full_name_of(address)}", "", why, hint))


def _namespaces(target: Target) -> list[Namespace]:
    found = (declared.resource for declared in target.declared.values())
    return [resource for resource in found if isinstance(resource, Namespace)]


def _capabilities(target: Target) -> Capabilities:
    """Return what is known of a cluster that nobody asks: how its platform says things."""
    if target.provider == "embedded":
        return Capabilities(platform=target.provider, tiering=True, acls=True, inherits_configs=True)
    return Capabilities(
        platform=target.provider, tiering=True, tiering_words="kip-405", acls=True, acl_operations=OPERATIONS
    )


def _unsaid(about: str, why: str, places: Mapping[str, tuple[Binding, Place]], target: Target) -> Lost:
    binding, place = places[about]
    return Lost(place, about, "", _why(binding, target) or why, _STAYS, is_left_out=False)


def _why(binding: Binding, target: Target) -> str | None:
    """Say why nothing carries a rule, where more is known than that nothing does."""
    if binding.name == "*" and not binding.is_prefix:
        return f"a rule for all {binding.resource} of a cluster has no place: rules stand at topics and namespaces"
    if binding.is_prefix and target.separator not in binding.name:
        return f"the prefix does not end with the separator {target.separator!r}, so it is no namespace"
    if binding.resource in {"groups", "transactional-ids"} and not binding.is_prefix:
        return f"rules for {binding.resource} stand at a namespace, and this name is in none"
    return None
