"""What a platform can do, as data: compared with the plan by a pure guard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from reconciler.resources.configs import KAFKA_CONFIGS, ConfigKey

TieringWords: TypeAlias = Literal["directions", "kip-405"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Limits of one platform. Anything declared beyond them is an error at plan."""

    platform: str
    namespaces: bool = True
    namespaces_are_rules: bool = False
    """A namespace is the access rules on its prefix: deleting it takes ours away, whosever topics carry the prefix."""
    tiering: bool = False
    """On Kafka: KIP-405, switched on in the brokers and controllers."""
    untiering: bool = True
    """Whether the tiering of a topic can be switched off; on Kafka KIP-950: `remote.log.copy.disable` is known."""
    tiering_words: TieringWords = "directions"
    """How topic configs say tiering: `directions`, remote.write and remote.read apart, as the embedded cluster has it;
    `kip-405`, one switch `remote.storage.enable` with the two of KIP-950 beside it."""
    mountings: bool = False
    mountings_by_jobs: bool = False
    """The platform detaches nothing itself: topics are archived, compared and deleted, or restored, by jobs."""
    links: bool = False
    mirror_states: frozenset[str] = frozenset()
    link_features: frozenset[str] = frozenset()
    """What of a link goes beyond copying from the earliest record: `paused, source-mode, bidirectional, auto-create,
    consumer-offset-sync, acl-sync, topic-config-sync, start-offset, retry-timeout, metadata-interval`."""
    mirrors_read_only: bool = True
    """False: a mirror takes records of others, too; the plan warns of it once a cluster."""
    acls: bool = False
    acl_hosts_are_addresses: bool = False
    """Hosts of ACLs are compared with the address of a connection: a name, or a range, would never be met."""
    denies_are_final: bool = False
    """Any denial wins, whichever tier says it: none can be lifted below, and what a tier allows only they take away."""
    acl_operations: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Kind of thing → what there is to allow of it. Rules are then kept one for each kind and name.

    Empty: they are kept as they are written.
    """
    open_without_acls: bool = True
    """What no rule is about everyone may do; False: nobody but super users (`allow.everyone.if.no.acl.found`)."""
    quotas: bool = False
    """Namespaces may have quotas: every plan is checked against them."""
    keeps_quotas: bool = True
    """The platform remembers them, too; False: only the record has them, and nothing is compared."""
    encryption: bool = False
    cluster_properties: bool = False
    partition_growth: bool = True
    replication_change: bool = True
    replication_moves: bool = False
    """Another replication factor copies records from broker to broker, and takes its time."""
    topic_move: bool = False
    """Topics can be renamed."""
    copy_move: bool = False
    """Where they cannot: a move is planned as a new topic, a copy into it, its groups switched, and a delete."""
    recovery: bool = False
    inherits_configs: bool = False
    """True: namespace and topic keys are compared at their own addresses; False: topics get the effective value."""
    creates_cluster: bool = False
    max_partitions: int = 100_000
    max_replication_factor: int = 32_767
    """On Kafka: the brokers that are alive."""
    internal_topics: tuple[str, ...] = ()
    """Patterns (`*`) of names that the platform or its tools use for themselves: never declared, never managed."""
    server_ids: frozenset[str] = frozenset()
    """Kinds whose work the platform names itself: asked twice, it does it twice."""
    batch: int = 100
    """Actions one `apply` call takes."""
    may_hide: bool = False
    """Whoever acts does not see every topic, and what is hidden is not told apart from what is missing: that something
    is absent proves nothing. What is recorded and absent is then neither made again, deleted nor forgotten."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Why this very cluster lacks something: the name of a field that is off (`tiering`, `untiering`, `acls`,
    `may_hide` where it is on …) → what a message says after its colon, such as `no authorizer is configured`."""
    configs: Mapping[str, ConfigKey] = field(default_factory=lambda: KAFKA_CONFIGS)
    """Every topic config this platform and version knows, with the ranges it accepts."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Topic config → what a topic that does not set it has here: the brokers' defaults, as they are in effect now.

    Rules over several configs are judged with them. What is absent is not known, and then the catalog's default holds.
    """
    properties: Mapping[str, ConfigKey] = field(default_factory=dict)
    """Every cluster property it knows; empty: it does not say, and values are compared as they are written."""


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """Which cluster answered: the wrong-cluster guard compares it with what is declared and recorded."""

    provider: str
    cluster_id: str
    format: str | None = None
    """How it keeps records, where that matters to who copies them as they are; clusters of two formats do not mix."""
