"""What a platform can do, as data: compared with the plan by a pure guard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.resources.configs import KAFKA_CONFIGS, ConfigKey


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Limits of one platform. Anything declared beyond them is an error at plan."""

    platform: str
    namespaces: bool = True
    tiering: bool = False
    mountings: bool = False
    links: bool = False
    mirror_states: frozenset[str] = frozenset()
    link_features: frozenset[str] = frozenset()
    """What of a link goes beyond copying from the earliest record: `paused, source-mode, bidirectional, auto-create,
    consumer-offset-sync, acl-sync, topic-config-sync, start-offset, retry-timeout, metadata-interval`."""
    acls: bool = False
    quotas: bool = False
    encryption: bool = False
    cluster_properties: bool = False
    partition_growth: bool = True
    replication_change: bool = True
    topic_move: bool = False
    recovery: bool = False
    inherits_configs: bool = False
    """True: namespace and topic keys are compared at their own addresses; False: topics get the effective value."""
    creates_cluster: bool = False
    max_partitions: int = 100_000
    max_replication_factor: int = 32_767
    server_ids: frozenset[str] = frozenset()
    """Kinds whose work the platform names itself: asked twice, it does it twice."""
    batch: int = 100
    """Actions one `apply` call takes."""
    configs: Mapping[str, ConfigKey] = field(default_factory=lambda: KAFKA_CONFIGS)
    """Every topic config this platform knows."""
    properties: Mapping[str, ConfigKey] = field(default_factory=dict)
    """Every cluster property it knows; empty: it does not say, and values are compared as they are written."""


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """Which cluster answered: the wrong-cluster guard compares it with what is declared and recorded."""

    provider: str
    cluster_id: str
    format: str | None = None
    """How it keeps records, where that matters to who copies them as they are; clusters of two formats do not mix."""
