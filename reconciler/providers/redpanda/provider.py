"""Provider of Redpanda clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from reconciler.errors import UserError
from reconciler.providers.brokers.provider import BrokersProvider
from reconciler.providers.redpanda.admin_facts import AdminFacts
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
from reconciler.resources.inventory import ClusterIdentity, Observed
from reconciler.runtime.retry import skip_check

if TYPE_CHECKING:
    from reconciler.planning.actions import ControlAction, Update
    from reconciler.providers.brokers.cluster_facts import ClusterFacts
    from reconciler.providers.brokers.translate import ConfigState
    from reconciler.providers.protocol import Edge, Outcome
    from reconciler.resources.address import Address
    from reconciler.resources.cluster import Cluster
    from reconciler.resources.inventory import Capabilities


class RedpandaProvider(BrokersProvider):
    """Provider of one Redpanda cluster: brokers for topics, the Admin API for properties and mounts."""

    def __init__(self, declared: Cluster, edge: Edge) -> None:
        super().__init__(declared, edge, DIALECT)
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
        """Apply a batch: mounts and unmounts by the Admin API, the rest by the brokers."""
        moves, others = split_moves(actions, self._naming)
        try:
            if others:
                yield from super().apply(others, may_go_on=may_go_on)
            if moves:
                yield from TopicMover(self._admin, self._client, may_go_on).run(moves)
        finally:
            self._facts = AdminFacts(self._admin)  # outdated now

    def _observe_cluster(self, look: ClusterFacts) -> Observed:
        if self._facts.outage is not None:
            return Observed(self._declared, look.cluster.id)
        return observe_properties(self._declared, look.cluster.id, self._admin)

    def _change_cluster(self, action: Update, may_go_on: Callable[[], None]) -> Outcome:
        return change_properties(action, self._client.describe_cluster().id, self._admin, may_go_on)

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

    @property
    def archives(self) -> RedpandaArchives:
        """Detached topics in the object storage."""
        return RedpandaArchives(self._admin, self._naming)

    @property
    def migrations(self) -> RedpandaMigrations:
        """Mounts and unmounts by the cluster itself."""
        return RedpandaMigrations(self._admin, self._client, self._naming, self._job_migrations.job_steps)

    def _read_capabilities(self) -> Capabilities:
        from reconciler.providers.brokers.security import find_principal  # noqa: PLC0415 - imported on use

        return read_capabilities(self._look, self._facts, self._sample_configs(), find_principal(self._declared))

    def _sample_configs(self) -> Mapping[str, ConfigState]:
        """Return the configs that brokers report for one of the topics; empty if there is none."""
        names = [name for name, topic in self._client.read_topics().items() if not topic.error][:1]
        for _, configs in self._client.read_configs(names) if names else ():
            if not isinstance(configs, int):
                return configs
        return {}
