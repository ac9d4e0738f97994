"""What a plan asks of a cluster as a whole, each once: who answers, its access rules, what its brokers are set to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from reconciler.errors import NotAuthorizedError
from reconciler.providers.kafka.acls import read_bindings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.providers.kafka.client import KafkaClient
    from reconciler.providers.kafka.metadata import ClusterSeen, ConfigSeen
    from reconciler.resources.bindings import Binding


@dataclass(frozen=True)
class Look:
    """One look. What was asked is kept as long as the look lasts: identifying, limits and observing share it."""

    client: KafkaClient

    @cached_property
    def cluster(self) -> ClusterSeen:
        """Who answers, and which brokers are alive."""
        return self.client.cluster()

    @cached_property
    def bindings(self) -> tuple[list[Binding], int]:
        """Every access rule, or the code of why they cannot be read."""
        return read_bindings(self.client)

    @cached_property
    def configs(self) -> tuple[Mapping[str, ConfigSeen], Mapping[str, ConfigSeen]] | NotAuthorizedError:
        """What one broker says of itself, and what was set for all while they ran; why it may not be seen."""
        try:
            return self.client.both_broker_configs(self.cluster.brokers[0])
        except NotAuthorizedError as error:
            return error
