"""`topic create` and `topic delete`: for emergencies, without the files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from reconciler.errors import BlockedError, ReconcilerError, StalePlanError, UsageError, UserError
from reconciler.operations.clusters.topics import wanted_configs
from reconciler.operations.steps.observe import refuse_another_cluster
from reconciler.operations.steps.orders import plan_orders
from reconciler.operations.steps.runner import Emergency, require_confirmation, verdict_on_each
from reconciler.operations.steps.workspace import Site, check_allowance, provider_of, topic_address
from reconciler.planning.orders import CreateTopicOrder, DeleteTopicOrder
from reconciler.planning.situation import mirror_at
from reconciler.providers.protocol import Scope
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_address,
    cluster_of,
    full_name_of,
    split_name,
    tiers_of,
)

if TYPE_CHECKING:
    from reconciler.planning.actions import Action
    from reconciler.planning.plan import Plan
    from reconciler.resources.inventory import Inventory, Observed, Record
    from reconciler.state.snapshots import Snapshot


TopicOrder: TypeAlias = CreateTopicOrder | DeleteTopicOrder


@dataclass(frozen=True, slots=True)
class TopicOrderResult:
    """The plan of orders about topics, and why some were not carried out."""

    verb: str
    topics: tuple[Address, ...]
    plan: Plan
    failed: Mapping[Address, ReconcilerError]
    is_rehearsal: bool = False
    """Nothing was changed."""

    @property
    def verdict(self) -> ReconcilerError | None:
        """The error to end with, where an order was not carried out."""
        errors = [self.failed.get(topic) for topic in self.topics]
        return verdict_on_each(self.verb, errors, "topics", is_rehearsal=self.is_rehearsal)


def create_topic(
    emergency: Emergency,
    address: str,
    configs: Mapping[str, str],
    *,
    partitions: int,
    replication_factor: int | None = None,
    is_rehearsal: bool = False,
) -> TopicOrderResult:
    """Create a topic; no record says that it is ours, so the next plan lists it as unmanaged.

    Raises:
        UserError: A config is not one of the platform, or another cluster answers.
        LeaseError: Someone else is applying.
    """
    topic = topic_address(address)
    site = emergency.open()
    wanted = wanted_configs(provider_of(site, topic).capabilities, configs, (), topic)
    order = CreateTopicOrder(
        topic=topic,
        partitions=partitions,
        replication_factor=replication_factor,
        configs={key: value for key, value in wanted.items() if value is not None},
    )
    acting = _Orders(emergency=emergency, site=site, verb="topic create", orders=[order], is_rehearsal=is_rehearsal)
    return acting.carry_out()


def delete_topics(
    emergency: Emergency,
    addresses: Sequence[str],
    *,
    confirm: Callable[[Plan], bool],
    allow: Sequence[str] = (),
    is_rehearsal: bool = False,
) -> TopicOrderResult:
    """Delete topics with their records, and continue with the rest if one fails.

    The state still lists deleted topics, so the next plan shows them as missing. `allow`: `delete:ADDR` overrides
    deletionProtection.

    Raises:
        UsageError: An address is a pattern.
        UserError: It was not confirmed, or another cluster answers.
        LeaseError: Someone else is applying.
    """
    for address in addresses:
        if "*" in address:
            message = f"{address} may name more than one topic, and a delete takes no patterns"
            raise UsageError(message, hint="Name each topic. List them with: reconciler topic list")
    orders = [DeleteTopicOrder(topic) for topic in dict.fromkeys(map(topic_address, addresses))]
    return _Orders(
        emergency=emergency,
        site=emergency.open(),
        verb="topic delete",
        orders=orders,
        allow=tuple(map(check_allowance, allow)),
        confirm=confirm,
        is_rehearsal=is_rehearsal,
    ).carry_out()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Orders:
    """Orders about topics, and how they are carried out."""

    emergency: Emergency
    site: Site
    verb: str
    orders: Sequence[TopicOrder]
    allow: Sequence[str] = ()
    confirm: Callable[[Plan], bool] | None = None
    is_rehearsal: bool

    @property
    def topics(self) -> tuple[Address, ...]:
        return tuple(order.topic for order in self.orders)

    def carry_out(self) -> TopicOrderResult:
        emergency, site = self.emergency, self.site
        clusters = sorted({cluster_of(topic) or "" for topic in self.topics})
        for topic in self.topics:
            provider_of(site, topic)
        failed: dict[Address, ReconcilerError] = {}
        for cluster in clusters:
            try:
                emergency.check(site, cluster)
            except ReconcilerError as error:
                failed |= {topic: error for topic in self.topics if cluster_of(topic) == cluster}
        answering = frozenset(clusters) - {cluster_of(topic) for topic in failed}
        if not answering:
            raise failed[self.topics[0]]
        plan = self._plan(emergency.recorded(site), answering)
        failed.update(_refused(plan))
        ready = {action.id: action for action in plan.actions if action.address not in failed}
        if self.is_rehearsal or not ready:
            return TopicOrderResult(self.verb, self.topics, plan, failed, is_rehearsal=self.is_rehearsal)
        require_confirmation(self.confirm is None or self.confirm(plan))

        def decide(snapshot: Snapshot | None) -> list[Action]:
            for cluster in sorted(answering):
                refuse_another_cluster(site, cluster, snapshot)
            again = self._plan(None if snapshot is None else snapshot.record, answering)
            failed.update((topic, error) for topic, error in _refused(again) if topic not in failed)
            failed.update((topic, error) for topic, error in _topics_recreated(again, ready) if topic not in failed)
            return [action for action in again.actions if action.address not in failed]

        undone = emergency.carry_out_each(site, answering, decide)
        failed.update({ready[name].address: error for name, error in undone.items()})
        return TopicOrderResult(self.verb, self.topics, plan, failed)

    def _plan(self, record: Record | None, clusters: AbstractSet[str]) -> Plan:
        orders = [order for order in self.orders if cluster_of(order.topic) in clusters]
        observed = _observe(self.site, [order.topic for order in orders])
        return plan_orders(self.site, orders, record, observed, self.allow)


def _topics_recreated(again: Plan, shown: Mapping[str, Action]) -> Iterator[tuple[Address, ReconcilerError]]:
    """Yield topics that were recreated after the plan was shown."""
    for action in again.actions:
        if action.id not in shown or shown[action.id].precondition != action.precondition:
            message = f"{action.address} was created or deleted by another process after it was shown"
            yield action.address, StalePlanError(message, hint="Nothing was done. Give the command again.")


def _refused(plan: Plan) -> Iterator[tuple[Address, ReconcilerError]]:
    for action in plan.blocked:
        if action.blocked is not None:
            allow = action.blocked.allow
            hint = f"Allow it once with: --allow {allow}" if allow else "Apply once with protect: false."
            yield action.address, BlockedError(f"{action.address}: {action.blocked.message}", hint=hint)
    for error in plan.errors:
        if error.address is not None:
            yield error.address, UserError(error.message, hint=error.hint)


def _observe(site: Site, topics: Sequence[Address]) -> Inventory:
    """Observe topics, what has their names, and the namespaces and clusters that they are in."""
    scopes: dict[str, dict[Address, None]] = {}
    for topic in topics:
        cluster = cluster_of(topic) or ""
        levels = (address_of("namespace", cluster, level) for level in tiers_of(split_name(full_name_of(topic))[0]))
        near = (cluster_address(cluster), topic, mirror_at(topic), *levels)
        scopes.setdefault(cluster, {}).update(dict.fromkeys(near))
    observed: dict[Address, Observed] = {}
    for cluster, addresses in sorted(scopes.items()):
        observed |= site.providers[cluster].observe(Scope(tuple(addresses)))
    return observed
