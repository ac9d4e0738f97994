"""Provider of Redpanda clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.errors import UserError
from reconciler.providers.brokers.dialect import Dialect
from reconciler.providers.brokers.provider import BrokersProvider
from reconciler.providers.redpanda.admin_facts import AdminFacts
from reconciler.providers.redpanda.capabilities import read_capabilities
from reconciler.providers.redpanda.client import AdminClient
from reconciler.resources.inventory import ClusterIdentity
from reconciler.resources.redpanda_configs import STORAGE_MODE, WIRE_NAMES

if TYPE_CHECKING:
    from reconciler.providers.protocol import Edge
    from reconciler.resources.cluster import Cluster
    from reconciler.resources.inventory import Capabilities

DIALECT: Final = Dialect(
    "redpanda",
    tells_own=False,
    replication="config",
    records_at_once=None,
    config_names=WIRE_NAMES,
    fixed_at_creation=frozenset({"remote.read", "remote.write", STORAGE_MODE}),
)
_ID_PREFIX: Final = "redpanda."


class RedpandaProvider(BrokersProvider):
    """Provider of one Redpanda cluster: brokers for topics, the Admin API for properties and mounts."""

    def __init__(self, declared: Cluster, edge: Edge) -> None:
        super().__init__(declared, edge, DIALECT)
        self._admin = AdminClient(declared, edge)
        self._facts = AdminFacts(self._admin)

    def identify(self) -> ClusterIdentity:
        """Return the cluster's identity, after its version and that both APIs are of one cluster were checked.

        Raises:
            UserError: The version is not supported, or the two APIs belong to different clusters.
        """
        self._facts = AdminFacts(self._admin)
        _ = self._facts.version
        identity = super().identify()
        uuid = self._admin.uuid()
        if identity.cluster_id.removeprefix(_ID_PREFIX) != uuid:
            theirs = f"the Admin API is that of {_ID_PREFIX}{uuid}"
            message = f"cluster {self._admin.name}: the brokers are those of {identity.cluster_id}, and {theirs}"
            raise UserError(message, hint="Correct bootstrapServers or adminUrls of the Cluster.")
        return identity

    def _read_capabilities(self) -> Capabilities:
        from reconciler.providers.brokers.security import find_principal  # noqa: PLC0415 - imported on use

        return read_capabilities(self._look, self._facts, self._sample_configs(), find_principal(self._declared))

    def _sample_configs(self) -> dict[str, str]:
        """Return the configs that brokers report for one of the topics; empty if there is none."""
        names = [name for name, topic in self._client.read_topics().items() if not topic.error][:1]
        for _, configs in self._client.read_configs(names) if names else ():
            if not isinstance(configs, int):
                return {key: state.value or "" for key, state in configs.items()}
        return {}
