"""`namespace create`: for emergencies; the next plan and drift show what the files do not say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.planning.actions import Create, Reason
from reconciler.planning.situation import IMPLIED
from reconciler.resources.address import Address, address_of, tiers_of
from reconciler.resources.metadata import OfNamespace
from reconciler.resources.names import check_namespace
from reconciler.resources.namespace import Namespace, NamespaceSpec
from reconciler.workflow.altering import wanted_configs
from reconciler.workflow.looking.underneath import check_name, observe_on

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.providers.base import Provider
    from reconciler.resources.inventory import Record
    from reconciler.workflow.running.emergencies import Emergency


@dataclass(frozen=True, slots=True)
class Made:
    """The namespaces that were made, upper tiers first; none where they were there."""

    cluster: str
    namespace: str
    created: tuple[Address, ...]


def create_namespace(emergency: Emergency, cluster: str, name: str, configs: Mapping[str, str]) -> Made:
    """Make a namespace and the tiers above it that are missing.

    Raises:
        UserError: The name or a config cannot be.
    """
    check_name(check_namespace, name, "shop:eu")
    site = emergency.site(cluster)
    wanted = wanted_configs(site.providers[cluster].capabilities, configs, ())
    address = address_of("namespace", cluster, name)
    spec = NamespaceSpec(configs={key: value for key, value in sorted(wanted.items()) if value is not None})

    def decide(provider: Provider, _record: Record | None) -> list[Create]:
        tiers = tiers_of(name)
        there = observe_on(provider, cluster, *(f"namespace/{cluster}/{tier}" for tier in tiers))
        missing = [tier for tier in tiers if address_of("namespace", cluster, tier) not in there]
        return [
            Create(
                address=address_of("namespace", cluster, tier),
                after=Namespace(
                    metadata=OfNamespace(name=tier, cluster=cluster), spec=spec if tier == name else NamespaceSpec()
                ),
                reasons=(Reason.DECLARED if tier == name else Reason.IMPLIED_BY_TIER,),
                origins={} if tier == name else {IMPLIED: address},
            )
            for tier in missing
        ]

    actions = emergency.carry_out(site, cluster, decide)
    return Made(cluster, name, tuple(action.address for action in actions))
