"""Provider of Confluent clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from reconciler.errors import NotAuthorizedError, UserError
from reconciler.providers.brokers.provider import BrokersProvider
from reconciler.providers.confluent.capabilities import DIALECT, check_kind, read_capabilities
from reconciler.providers.confluent.client import RestClient
from reconciler.providers.confluent.kafka_over_rest import RestKafkaClient
from reconciler.providers.confluent.kinds import find_kind
from reconciler.providers.protocol import CompletedAction
from reconciler.resources.address import cluster_of, kind_of
from reconciler.resources.inventory import MirrorSupport, Observed
from reconciler.resources.kafka_configs import LEDGER
from reconciler.resources.measures import NO_CUTS, Cuts, Measures
from reconciler.resources.owners import OwnerChange, ResourceOwner
from reconciler.runtime.retry import skip_check

if TYPE_CHECKING:
    from reconciler.planning.actions import ControlAction
    from reconciler.providers.brokers.cluster_facts import ClusterFacts
    from reconciler.providers.brokers.groups import KafkaGroups
    from reconciler.providers.brokers.ledger import Entries
    from reconciler.providers.brokers.translate import TopicMetadata
    from reconciler.providers.confluent.links import ConfluentSite
    from reconciler.providers.protocol import Edge, Outcome, Scope
    from reconciler.providers.protocol_links import Links
    from reconciler.resources.address import Address
    from reconciler.resources.cluster import Cluster, ConfluentConnection
    from reconciler.resources.inventory import Capabilities, Inventory

# ruff: noqa: PLC0415 - only clusters with links need these


_WITH_TOPIC_ID: Final = frozenset({"topic", "mirror"})


class ConfluentProvider(BrokersProvider):
    """Provider of one Confluent cluster: REST for topics, rules and links, brokers for records and groups."""

    def __init__(self, declared: Cluster, edge: Edge) -> None:
        self._rest = RestClient(declared, edge)
        self._rest_kafka = RestKafkaClient(declared, edge, DIALECT, self._rest)
        super().__init__(declared, edge, self._rest_kafka)

    def _read_capabilities(self) -> Capabilities:
        connection = cast("ConfluentConnection", self._declared.spec.connection)
        kind = find_kind(connection)
        has_links = any(kind_of(address) == "link" for address in self._known_here())
        if has_links and connection.type == "cloud":
            kind = check_kind(kind, self._rest, connection.kind)
        capabilities = read_capabilities(self._rest_kafka, self._look, kind)
        why = self._find_reason_against_jobs() if has_links and capabilities.mirrors.by_jobs else None
        if why is None:
            return capabilities
        return replace(capabilities, mirrors=MirrorSupport(), lacks={**capabilities.lacks, "links": why})

    def _find_reason_against_jobs(self) -> str | None:
        """Return why jobs cannot copy mirrors into the cluster, or `None`."""
        if not self._client.has_brokers:
            return "jobs copy into clusters of its kind, and they need bootstrapServers of the Cluster"
        from reconciler.providers.brokers.links.link_site import create_ledger_topic

        try:
            create_ledger_topic(self._client, is_trial=True)
        except (NotAuthorizedError, UserError) as error:
            return f"jobs copy into clusters of its kind, and the cluster refuses their topic {LEDGER}: {error.message}"
        return None

    def _known_here(self) -> Iterator[Address]:
        return (address for address in self._known if cluster_of(address) == self._client.name)

    def observe(self, scope: Scope) -> Inventory:
        """Return the cluster's resources. Topics have no incarnation without brokers, which report their ids."""
        inventory = super().observe(scope)
        if self._client.has_brokers:
            return inventory
        return {
            address: replace(seen, incarnation=None) if kind_of(address) in _WITH_TOPIC_ID else seen
            for address, seen in inventory.items()
        }

    def apply(
        self, actions: Sequence[ControlAction], *, may_go_on: Callable[[], None] = skip_check
    ) -> Iterator[Outcome]:
        """Apply a batch. Topics have no incarnation without brokers."""
        unknown = {action.id for action in actions if kind_of(action.address) in _WITH_TOPIC_ID}
        for outcome in super().apply(actions, may_go_on=may_go_on):
            if self._client.has_brokers or outcome.id not in unknown:
                yield outcome
            elif isinstance(outcome, CompletedAction):
                yield replace(outcome, incarnation=None)
            else:
                created = outcome.created
                yield replace(outcome, created=created and replace(created, incarnation=None))

    def record_owners(self, change: OwnerChange) -> Mapping[str, ResourceOwner]:
        """Record owners in the ledger; raise without brokers."""
        if not self._client.has_brokers:
            raise self._rest_kafka.build_missing_brokers_error()
        return super().record_owners(change)

    def measure_topics(self, addresses: Sequence[Address], cuts: Cuts = NO_CUTS) -> Measures:
        """Measure by offsets; without brokers nothing is measured."""
        return super().measure_topics(addresses, cuts) if self._client.has_brokers else {}

    @property
    def groups(self) -> KafkaGroups:
        """Consumer groups; without brokers they can be listed and described."""
        if self._client.has_brokers:
            return super().groups
        from reconciler.providers.confluent.groups_over_rest import RestGroups

        return RestGroups(self._rest_kafka, self._naming)

    def _observe_cluster(self, look: ClusterFacts) -> Observed:
        cluster_id = look.cluster.id
        spec = self._declared.spec.model_copy(update={"cluster_id": cluster_id, "properties": {}})
        return Observed(self._declared.model_copy(update={"spec": spec}), cluster_id)

    def _read_native_links(self, topics: Mapping[str, TopicMetadata]) -> Entries:
        return self._open_confluent_site().reader.read_entries(topics) if self._has_native_links() else {}

    def _apply_links(self, actions: Sequence[ControlAction], may_go_on: Callable[[], None]) -> Iterator[Outcome]:
        if not self._has_native_links():
            return super()._apply_links(actions, may_go_on)
        from reconciler.providers.confluent.mirrors import LinkBatch

        return LinkBatch(self._open_confluent_site(), may_go_on).apply(actions)

    def _has_native_links(self) -> bool:
        return not self.capabilities.mirrors.by_jobs

    @property
    def links(self) -> Links:
        """Links into this cluster, copied by the cluster itself or by jobs."""
        if not self._has_native_links():
            return super().links
        from reconciler.providers.confluent.links import ConfluentLinks

        return ConfluentLinks(self._open_confluent_site())

    def _open_confluent_site(self) -> ConfluentSite:
        from reconciler.providers.confluent.link_options import LinkOptions
        from reconciler.providers.confluent.links import ConfluentSite, LinkReader

        options = LinkOptions(self._client.name, self._naming, self._edge)
        reader = LinkReader(self._rest, options, self._known | self._edge.declared)
        return ConfluentSite(**vars(self._open_site()), read_entries=reader.read_entries, reader=reader)
