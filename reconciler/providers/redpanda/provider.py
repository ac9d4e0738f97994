"""Provider of Redpanda clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from reconciler.errors import RetryableError, UserError
from reconciler.planning.fields import PROPERTIES
from reconciler.providers.brokers.client import ABSENT, KafkaClient
from reconciler.providers.brokers.links.link_states import parse_states
from reconciler.providers.brokers.provider import BrokersProvider
from reconciler.providers.protocol import FailedAction
from reconciler.providers.redpanda.admin_facts import SHADOW_LINKING, AdminFacts
from reconciler.providers.redpanda.bucket import check_recovered, find_recovered
from reconciler.providers.redpanda.capabilities import DIALECT, read_capabilities
from reconciler.providers.redpanda.client import AdminClient
from reconciler.providers.redpanda.mounts import (
    ID_PREFIX,
    RedpandaArchives,
    RedpandaMigrations,
    TopicMover,
    add_mountings,
    split_moves,
)
from reconciler.providers.redpanda.properties import change_properties, observe_properties
from reconciler.resources.address import cluster_of, full_name_of, kind_of
from reconciler.resources.inventory import ClusterIdentity, Observed
from reconciler.resources.kafka_configs import LEDGER
from reconciler.resources.measures import NO_CUTS, Cuts, Measures, TopicStorage
from reconciler.runtime.retry import skip_check

if TYPE_CHECKING:
    from reconciler.planning.actions import ControlAction, Update
    from reconciler.providers.brokers.cluster_facts import ClusterFacts
    from reconciler.providers.brokers.ledger import Entries
    from reconciler.providers.brokers.translate import ConfigState, TopicMetadata
    from reconciler.providers.protocol import Edge, Outcome, TopicAddress
    from reconciler.providers.protocol_links import Links
    from reconciler.providers.redpanda.shadow_links import ShadowSite
    from reconciler.providers.redpanda.storage import TieredStorage
    from reconciler.resources.address import Address
    from reconciler.resources.cluster import Cluster
    from reconciler.resources.inventory import Capabilities

# ruff: noqa: PLC0415 - few commands need these


class RedpandaProvider(BrokersProvider):
    """Provider of one Redpanda cluster: brokers for topics, the Admin API for properties and mounts."""

    def __init__(self, declared: Cluster, edge: Edge) -> None:
        super().__init__(declared, edge, KafkaClient.for_cluster(declared, edge, DIALECT))
        self._admin = AdminClient(declared, edge)
        self._facts = AdminFacts(self._admin)
        self._warned_outage: str | None = None

    def identify(self) -> ClusterIdentity:
        """Check the version, and that both APIs belong to one cluster; return its identity.

        Raises:
            UserError: The version is not supported, or the clusters differ.
        """
        self._facts = AdminFacts(self._admin)
        _ = self._facts.version
        identity = super().identify()
        if self._facts.outage is not None:
            if self._facts.outage != self._warned_outage:
                self._edge.warn(f"{self._facts.outage}. Topics are planned without it; properties and mounts need it.")
            self._warned_outage = self._facts.outage
            return identity
        uuid = self._admin.read_uuid()
        if identity.cluster_id.removeprefix(ID_PREFIX) != uuid:
            theirs = f"the Admin API is that of {ID_PREFIX}{uuid}"
            message = f"cluster {self._admin.name}: the brokers are those of {identity.cluster_id}, and {theirs}"
            raise UserError(message, hint="Correct bootstrapServers or adminUrls of the Cluster.")
        return identity

    def apply(
        self, actions: Sequence[ControlAction], *, may_go_on: Callable[[], None] = skip_check
    ) -> Iterator[Outcome]:
        """Apply mounts and unmounts by the Admin API, the rest by the brokers."""
        moves, others = split_moves(actions, self._naming)
        try:
            if others:
                outcomes = super().apply(others, may_go_on=may_go_on)
                yield from check_recovered(self._client, find_recovered(others), outcomes, self._edge.warn)
            if moves:
                yield from TopicMover(self._admin, self._client, may_go_on).run(moves)
        finally:
            self._facts = AdminFacts(self._admin)  # outdated now

    def _observe_cluster(self, look: ClusterFacts) -> Observed:
        if self._facts.outage is not None:
            return Observed(self._declared, look.cluster.id)
        return observe_properties(self._declared, look.cluster.id, self._admin)

    def _change_cluster(self, action: Update, may_go_on: Callable[[], None]) -> Outcome:
        is_off = any(
            change.path == PROPERTIES + SHADOW_LINKING and str(change.after) != "true" for change in action.changes
        )
        if is_off and self._has_shadow_links() and (links := self._open_shadow_site().reader.list_links()):
            message = f"cluster {self._admin.name}: {SHADOW_LINKING} stays on, because it has link {links[0].name}"
            hint = f"Delete it first: reconciler link delete link/{self._admin.name}/{links[0].name}"
            return FailedAction(action.id, UserError(message, hint=hint))
        return change_properties(action, self._client.describe_cluster().id, self._admin, may_go_on)

    def _read_native_links(self, topics: Mapping[str, TopicMetadata]) -> Entries:
        return self._open_shadow_site().reader.read_entries(topics) if self._has_shadow_links() else {}

    def _apply_links(self, actions: Sequence[ControlAction], may_go_on: Callable[[], None]) -> Iterator[Outcome]:
        if not self._has_shadow_links():
            return super()._apply_links(actions, may_go_on)
        from reconciler.providers.redpanda.shadow_links import ShadowBatch

        return ShadowBatch(self._open_shadow_site(), may_go_on).apply(actions)

    def _has_shadow_links(self) -> bool:
        mirrors = self.capabilities.mirrors
        return bool(mirrors.roles) and not mirrors.by_jobs

    def _open_shadow_site(self) -> ShadowSite:
        from reconciler.providers.redpanda.link_options import LinkOptions
        from reconciler.providers.redpanda.shadow_links import ShadowReader, ShadowSite

        name = self._client.name
        mirrors = {
            full_name_of(address)
            for address in self._known
            if kind_of(address) == "mirror" and cluster_of(address) == name
        }
        reader = ShadowReader(self._admin, LinkOptions(name, self._naming, mirrors, self._edge))
        return ShadowSite(**vars(self._open_site()), read_entries=reader.read_entries, reader=reader)

    @property
    def links(self) -> Links:
        """Links into this cluster, copied by the cluster itself or by jobs."""
        if self._facts.outage is not None and not self.capabilities.links:
            raise RetryableError(self._facts.outage, hint="See whether its nodes are alive, then run it again.")
        if not self._has_shadow_links():
            return super().links
        from reconciler.providers.redpanda.shadow_links import RedpandaLinks

        return RedpandaLinks(self._open_shadow_site())

    def _add_mountings(
        self, inventory: dict[Address, Observed], is_wanted: Callable[[str], bool] | None
    ) -> Mapping[Address, Observed]:
        if self._facts.outage is not None:
            return inventory
        try:
            tasks = self._admin.list_tasks()
        except UserError:  # without a licence or tiered storage, newer versions refuse the list (redpanda.md, R17)
            if self._facts.explain_missing_tiering() is None:
                raise
            return inventory
        return add_mountings(inventory, tasks, self._naming, self._admin.name, is_wanted)

    def measure_topics(self, addresses: Sequence[Address], cuts: Cuts = NO_CUTS) -> Measures:
        """Measure as all brokers do; tiered partitions take another request each."""
        measures = super().measure_topics(addresses, cuts)
        return self._open_storage().add_to_measures(measures, self._name_topics(measures)) if measures else measures

    def list_topic_storages(self, topics: Sequence[TopicAddress]) -> Iterator[TopicStorage]:
        """Yield the use of disks, and of object storage by tiered topics."""
        storages = list(super().list_topic_storages(topics))
        return self._open_storage().add_to_storages(storages, self._name_topics(topics))

    def _open_storage(self) -> TieredStorage:
        from reconciler.providers.redpanda.storage import TieredStorage

        return TieredStorage(self._facts, self._client, self._edge.now_ms)

    def _name_topics(self, topics: Iterable[Address]) -> dict[Address, str]:
        return {topic: self._naming.to_physical(full_name_of(topic)) for topic in topics}

    @property
    def archives(self) -> RedpandaArchives:
        """Detached topics in the object storage."""
        return RedpandaArchives(self._admin, self._naming)

    @property
    def migrations(self) -> RedpandaMigrations:
        """Mounts and unmounts by the cluster itself."""
        return RedpandaMigrations(self._admin, self._client, self._naming, self._job_migrations.job_steps)

    def _read_capabilities(self) -> Capabilities:
        from reconciler.providers.brokers.security import find_principal

        principal = find_principal(self._declared)
        return read_capabilities(self._look, self._facts, self._sample_configs(), principal, self._has_job_links)

    def _has_job_links(self) -> bool:
        is_there = self._client.read_topics([LEDGER])[LEDGER].error not in ABSENT
        return is_there and bool(parse_states(self._read_visible_ledger() or {}).links)

    def _sample_configs(self) -> Mapping[str, ConfigState]:
        """Return what brokers report for one topic; empty without topics."""
        names = [name for name, topic in self._client.read_topics().items() if not topic.error][:1]
        for _, configs in self._client.read_configs(names) if names else ():
            if not isinstance(configs, int):
                return configs
        return {}
