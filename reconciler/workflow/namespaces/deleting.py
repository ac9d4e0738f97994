"""`namespace delete`: what goes is shown first, then marked in one commit; `run` finishes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.errors import BlockedError, StalePlanError
from reconciler.lifecycles.tiering import TieringState
from reconciler.planning.actions import Delete, Reason, Risk
from reconciler.planning.deciding.decision import precondition
from reconciler.resources.address import Address, address_of, full_name_of, kind_of, rank
from reconciler.resources.topic import Topic
from reconciler.workflow.looking.underneath import observe_below
from reconciler.workflow.running.emergencies import require_confirmation

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.providers.base import Provider
    from reconciler.resources.inventory import Inventory, Observed, Record
    from reconciler.resources.measures import Measure
    from reconciler.workflow.running.emergencies import Emergency


@dataclass(frozen=True, slots=True)
class Leaving:
    """A topic that goes with its namespace; `measure` is `None` where it was not measured."""

    address: Address
    measure: Measure | None


@dataclass(frozen=True, slots=True)
class NamespaceDeletion:
    """What goes: a namespace, those below it, and their topics."""

    cluster: str
    namespace: str
    topics: tuple[Leaving, ...]
    nested: tuple[Address, ...]
    detachable: tuple[Address, ...] = ()
    """The topics that could be unmounted instead, which keeps their records in object storage."""

    @property
    def addresses(self) -> frozenset[Address]:
        """All that goes."""
        namespace = address_of("namespace", self.cluster, self.namespace)
        return frozenset({namespace, *self.nested, *(topic.address for topic in self.topics)})


def delete_namespace(
    emergency: Emergency,
    cluster: str,
    name: str,
    *,
    recursive: bool,
    confirm: Callable[[NamespaceDeletion], bool],
) -> NamespaceDeletion:
    """Delete a namespace with its topics, marked in one commit; `confirm` is asked with all that goes.

    Raises:
        InvalidNamespaceError: It does not exist.
        BlockedError: It holds namespaces and `recursive` is not set, or something in it is protected.
        StalePlanError: More would go than what was confirmed; nothing was done.
    """
    site = emergency.site(cluster)
    provider = site.providers[cluster]
    observed = observe_below(provider, cluster, name)
    deletion = _deletion(observed, cluster, name, provider)
    if deletion.nested and not recursive:
        nested = ", ".join(full_name_of(address) for address in deletion.nested[:5])
        message = f"namespace {name} holds namespaces: {nested}{' …' if deletion.nested[5:] else ''}"
        raise BlockedError(f"{message}; nothing was deleted", hint="Delete those first, or all of it: --recursive")
    require_confirmation(confirm(deletion))

    def decide(again: Provider, record: Record | None) -> list[Delete]:
        found = observe_below(again, cluster, name)
        more = sorted(found.keys() - deletion.addresses)
        if more:
            message = f"{more[0]} was made in namespace {name} since it was looked at"
            raise StalePlanError(message, hint="Nothing was deleted. Look again.")
        return [_delete(address, found, record) for address in sorted(found, key=rank, reverse=True)]

    emergency.carry_out(site, cluster, decide)
    return deletion


def _deletion(observed: Inventory, cluster: str, name: str, provider: Provider) -> NamespaceDeletion:
    topics = [address for address in sorted(observed, key=rank) if kind_of(address) != "namespace"]
    measures = provider.measure(topics)
    itself = address_of("namespace", cluster, name)
    nested = [address for address in sorted(observed) if kind_of(address) == "namespace" and address != itself]
    leaving = tuple(Leaving(address, measures.get(address)) for address in topics)
    can_unmount = provider.capabilities.mountings
    detachable = tuple(address for address in topics if can_unmount and _is_tiered(observed[address]))
    return NamespaceDeletion(cluster, name, leaving, tuple(nested), detachable)


def _is_tiered(seen: Observed) -> bool:
    return isinstance(seen.resource, Topic) and seen.legacy is not None and seen.state == TieringState.ENABLED


def _delete(address: Address, observed: Inventory, record: Record | None) -> Delete:
    last, before = (record or {}).get(address), observed[address]
    if last is not None and last.protect:
        raise BlockedError(f"{address} is protected", hint="Apply once with protect: false; nothing was deleted.")
    return Delete(
        address=address,
        before=before.resource,
        incarnation=before.incarnation,
        risk=Risk.NONE if kind_of(address) == "namespace" else Risk.DATA_LOSS,
        reasons=(Reason.DESTROYED,),
        precondition=precondition(address, before),
    )
