"""Version, licence and properties of a cluster, read once from its Admin API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import RetryableError, UserError
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.providers.redpanda.client import AdminClient, Node, NodeConfig

FLOOR: Final = (25, 3)
"""The first version whose Kafka API has what the brokers' client needs (redpanda.md, R4)."""
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)")
_TIERED_STORAGE: Final = "cloud_storage_enabled"
SHADOW_LINKING: Final = "enable_shadow_linking"
_LICENSED: Final = frozenset({"valid", "unknown"})


@dataclass(frozen=True)
class AdminFacts:
    """Facts about a cluster from its Admin API, read once and shared."""

    admin: AdminClient

    @cached_property
    def nodes(self) -> Sequence[Node]:
        """All brokers."""
        return self.admin.list_nodes()

    @cached_property
    def outage(self) -> str | None:
        """Why the Admin API does not respond; `None` if it does."""
        try:
            _ = self.nodes
        except RetryableError as error:
            return error.message
        return None

    @cached_property
    def version(self) -> tuple[int, int]:
        """The oldest version among the brokers; the oldest supported one in an outage.

        Raises:
            UserError: It is not supported, or not reported.
        """
        if self.outage is not None:
            return FLOOR
        matches = {node.version: _VERSION.search(node.version) for node in self.nodes}
        numbers = {text: (int(match[1]), int(match[2])) for text, match in matches.items() if match is not None}
        if not numbers:
            message = f"cluster {self.admin.name}: its Admin API does not tell the version of the brokers"
            raise UserError(message, hint="Check adminUrls: Redpanda 25.3 or later answers GET /v1/brokers with it.")
        text, oldest = min(numbers.items(), key=lambda entry: entry[1])
        if oldest < FLOOR:
            message = f"cluster {self.admin.name} runs Redpanda {text.split()[0]}, and reconciler needs 25.3 or later"
            raise UserError(message, hint="Upgrade its brokers, or leave the cluster out with --exclude.")
        return oldest

    @cached_property
    def properties(self) -> Mapping[str, Any]:
        """All cluster properties; empty during an outage."""
        return {} if self.outage is not None else self.admin.read_properties()

    @cached_property
    def config_status(self) -> Sequence[NodeConfig]:
        """Version of the properties on each broker."""
        return self.admin.list_node_configs()

    @cached_property
    def license_status(self) -> str:
        """`valid`, `expired`, `not_present` or `unknown`."""
        return self.admin.read_license_status()

    def object_storage(self) -> str:
        """Return the URL of the bucket or container; empty without one."""
        container = self.properties.get("cloud_storage_azure_container")
        bucket = self.properties.get("cloud_storage_bucket")
        endpoint = str(self.properties.get("cloud_storage_api_endpoint") or "")
        if container:
            return f"az://{container}"
        return f"{'gs' if endpoint.endswith('googleapis.com') else 's3'}://{bucket}" if bucket else ""

    def explain_missing_tiering(self) -> str | None:
        """Return why topics cannot be tiered; `None` if they can (redpanda.md, 17)."""
        if self.outage is not None:
            return self.outage
        if self.properties.get(_TIERED_STORAGE) is not True:
            return f"{_TIERED_STORAGE} is not true on it"
        return self._explain_unready()

    @property
    def wants_shadow_links(self) -> bool:
        """Whether shadow links are switched on."""
        return self.properties.get(SHADOW_LINKING) is True

    def has_shadow_links(self) -> bool:
        """Return whether shadow links exist. Only a creation needs the licence: these copy and fail over without it."""
        if not self.wants_shadow_links:
            return False
        try:
            return bool(self.admin.call_shadow_links("ListShadowLinks", {}).get("shadowLinks"))
        except UserError:  # the caller has the reason
            return False

    def explain_missing_shadow_links(self) -> str | None:
        """Return why the cluster cannot copy topics itself; `None` if it can (redpanda.md, R10)."""
        if self.outage is not None:
            return self.outage
        return self._explain_unready() if self.wants_shadow_links else f"{SHADOW_LINKING} is not true on it"

    def _explain_unready(self) -> str | None:
        """Return what licensed features wait for."""
        if waiting := [str(node.id) for node in self.config_status if node.needs_restart]:
            return f"brokers {', '.join(waiting)} wait for a restart that activates changed properties"
        if self.license_status not in _LICENSED:
            return f"its licence is {self.license_status.replace('_', ' ')}"
        return None
