"""What a cluster's brokers say of the cluster itself, read once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from reconciler.errors import NotAuthorizedError, RetryableError
from reconciler.providers.brokers.client import KafkaClient, read_bindings
from reconciler.providers.brokers.translate import ClusterDescription, ConfigState
from reconciler.resources.acls import AccessBinding

_DYNAMIC_BROKER: Final = 2
"""Config source: set for one broker at run time."""


@dataclass(frozen=True)
class ClusterFacts:
    """Facts of a cluster, read from its brokers once and shared."""

    client: KafkaClient

    @cached_property
    def cluster(self) -> ClusterDescription:
        """The cluster and its live brokers."""
        return self.client.cluster()

    @cached_property
    def bindings(self) -> tuple[list[AccessBinding], int]:
        """All access rules, and the error code."""
        return read_bindings(self.client)

    @cached_property
    def configs(self) -> tuple[Mapping[str, ConfigState], Mapping[str, ConfigState]] | NotAuthorizedError:
        """Configs of one broker, and cluster-wide ones; or why they are hidden."""
        first, *others = self.cluster.brokers
        try:
            return self._configs_of(first, others)
        except NotAuthorizedError as error:
            return error

    def overrides(self, keys: AbstractSet[str]) -> Iterator[tuple[str, int, str]]:
        """Yield values of `keys` that single brokers override, with one request per broker."""
        if not keys or isinstance(self.configs, NotAuthorizedError):
            return
        first = self.configs[0]
        number = first["node.id"].value if "node.id" in first else None
        for broker in self.cluster.brokers:
            with suppress(RetryableError):  # a dead broker serves nothing
                own = first if str(broker) == number else self.client.own_broker_configs(broker)
                for key in sorted(keys & own.keys()):
                    value = own[key].value
                    if own[key].source == _DYNAMIC_BROKER and value is not None:
                        yield key, broker, value

    def _configs_of(
        self, broker: int, others: Sequence[int]
    ) -> tuple[Mapping[str, ConfigState], Mapping[str, ConfigState]]:
        """The next broker is queried if one has just died."""
        try:
            return self.client.both_broker_configs(broker, is_only_once=bool(others))
        except RetryableError:
            if not others:
                raise
            return self._configs_of(others[0], others[1:])
