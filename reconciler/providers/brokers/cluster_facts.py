"""Facts of a cluster, read once from its brokers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import cached_property
from typing import Final

from reconciler.errors import NotAuthorizedError, RetryableError
from reconciler.planning.fields import ALL_LINK_FEATURES, KEEP_DIVERGED
from reconciler.providers.brokers.client import KafkaClient, read_bindings
from reconciler.providers.brokers.faults import SECURITY_DISABLED
from reconciler.providers.brokers.translate import ClusterDescription, ConfigState
from reconciler.resources.acls import AccessBinding, is_about_writing
from reconciler.resources.inventory import Capabilities, MirrorSupport
from reconciler.runtime.dataclass import dataclass, replace

BY_JOBS: Final = MirrorSupport(
    by_jobs=True,
    roles=frozenset({"mirroring", "paused", "promoted", "failed-over"}),
    features=ALL_LINK_FEATURES - {KEEP_DIVERGED},
    read_only=False,
)
"""Mirrors that jobs copy to any brokers. Swapping roles also needs brokers that can seal a topic (see `seal.py`)."""

_DYNAMIC_BROKER: Final = 2
"""Source of a dynamic config of one broker."""


@dataclass(frozen=True)
class ClusterFacts:
    """Facts of a cluster, shared by several callers; each is read once."""

    client: KafkaClient

    @cached_property
    def cluster(self) -> ClusterDescription:
        """Description of the cluster with its live brokers."""
        return self.client.describe_cluster()

    @cached_property
    def bindings(self) -> tuple[list[AccessBinding], int]:
        """All access rules, and Kafka's error code."""
        return read_bindings(self.client)

    @cached_property
    def configs(self) -> tuple[Mapping[str, ConfigState], Mapping[str, ConfigState]] | NotAuthorizedError:
        """Configs of one broker, and cluster-wide dynamic configs; an error if they may not be described."""
        first, *others = self.cluster.brokers
        try:
            return self._read_configs(first, others)
        except NotAuthorizedError as error:
            return error

    def add_to(self, base: Capabilities, principal: str | None, *, is_open: bool) -> Capabilities:
        """Add the capabilities that brokers determine: access rules, and the number of replicas.

        `principal` and `is_open` are described in `AccessControl`.
        """
        bindings, code = self.bindings
        brokers = len(self.cluster.brokers)
        lacks = {"replication_factors": "one broker is alive" if brokers == 1 else f"{brokers} brokers are alive"}
        if code:
            lacks["acls"] = (
                "no authorizer is configured"
                if code == SECURITY_DISABLED
                else "the principal of reconciler may not see its access rules: it needs DESCRIBE on the cluster"
            )
        access = replace(
            base.access,
            write_rules=frozenset(entry for entry in bindings if is_about_writing(entry)),
            principal=principal,
            is_open=is_open or code == SECURITY_DISABLED,
        )
        factors = range(1, max(brokers, 1) + 1)
        return replace(base, acls=not code, access=access, replication_factors=factors, lacks=lacks)

    def find_overrides(self, keys: AbstractSet[str]) -> Iterator[tuple[str, int, str]]:
        """Yield (config, broker, value) for configs in `keys` that single brokers override.

        Sends one request per broker. Yields nothing without the right to describe configs.
        """
        if not keys or isinstance(self.configs, NotAuthorizedError):
            return
        for broker in self.cluster.brokers:
            with suppress(RetryableError):  # A broker that died since `cluster` was read is skipped.
                own = self.read_broker_configs(broker)
                for key in sorted(keys & own.keys()):
                    value = own[key].value
                    if own[key].source == _DYNAMIC_BROKER and value is not None:
                        yield key, broker, value

    def read_broker_configs(self, broker: int) -> Mapping[str, ConfigState]:
        """Return one broker's configs, with its own dynamic ones; those in `configs` are not read again."""
        if not isinstance(self.configs, NotAuthorizedError):
            first = self.configs[0]
            if "node.id" in first and first["node.id"].value == str(broker):
                return first
        return self.client.read_broker_configs(broker)

    def _read_configs(
        self, broker: int, others: Sequence[int]
    ) -> tuple[Mapping[str, ConfigState], Mapping[str, ConfigState]]:
        try:
            return self.client.read_both_broker_configs(broker, is_only_once=bool(others))
        except RetryableError:
            if not others:
                raise
            return self._read_configs(others[0], others[1:])
