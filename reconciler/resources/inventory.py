"""Inventories of desired, recorded and observed resources, and capabilities of platforms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, assert_never, get_args

from reconciler.errors import NotAuthorizedError, ReconcilerError, UserError
from reconciler.resources.acls import AccessBinding, NamespaceAcl
from reconciler.resources.address import Address
from reconciler.resources.cluster import Cluster
from reconciler.resources.kafka_configs import KAFKA_CONFIGS, ConfigKey
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mount import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.owners import Owners
from reconciler.resources.tiering_policy import TieringPolicy
from reconciler.resources.topic import Topic
from reconciler.resources.workspace import Workspace
from reconciler.runtime.dataclass import dataclass, field

if TYPE_CHECKING:
    from reconciler.resources.mirrors import MirrorEntry


TieringWords: TypeAlias = Literal["directions", "kip-405"]


NATIVE_LINKS: Final = "native_links"
"""Key of `Capabilities.lacks`: why jobs copy mirrors on a platform that could copy them itself."""


@dataclass(frozen=True, slots=True)
class MirrorSupport:
    """Supported features of links and mirrors."""

    by_jobs: bool = False
    """Whether jobs instead of the platform copy mirrors and change their roles."""
    roles: frozenset[str] = frozenset()
    """Possible roles of mirrors; empty if the platform has no links."""
    features: frozenset[str] = frozenset()
    """Supported features of links: `paused, source-mode, bidirectional, auto-create, consumer-offset-sync, acl-sync,
    topic-config-sync, start-offset, start-time, retry-timeout, metadata-interval, prefix, mirror-configs,
    force-delete`.
    """
    max_links: int | None = None
    """How many links the cluster can have; `None` without a limit."""
    read_only: bool = True
    """Whether the platform rejects other producers' writes to mirrors."""


@dataclass(frozen=True, slots=True)
class AccessControl:
    """Access control of a platform."""

    write_rules: frozenset[AccessBinding] = frozenset()
    """Current rules about writes to topics, for the protection of mirrors."""
    principal: str | None = None
    """Principal of reconciler's client; `None` if unknown."""
    hosts_are_addresses: bool = False
    """Whether brokers compare ACL hosts with IP addresses, so host names and ranges never match."""
    denies_are_final: bool = False
    """Whether a denial at any level of namespaces overrides every allowance."""
    operations: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Valid operations by resource kind, if rules are stored per kind and name. If empty, rules are stored as declared.
    """
    is_open: bool = True
    """Whether principals without a matching rule are allowed (`allow.everyone.if.no.acl.found`)."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Features and limits of a cluster's platform."""

    platform: str
    namespaces: bool = True
    namespaces_are_rules: bool = False
    """Whether a namespace is only access rules on a name prefix, so its deletion keeps the topics."""
    tiering: bool = False
    """Whether tiered storage is available; on Kafka, if brokers and controllers enable KIP-405."""
    untiering: bool = True
    """Whether tiered storage of a topic can be disabled, on Kafka by `remote.log.copy.disable` (KIP-950)."""
    tiering_words: TieringWords = "directions"
    """Configs of tiered storage: `directions` for remote.write and remote.read, `kip-405` for `remote.storage.enable`.
    """
    mountings: bool = False
    mountings_by_jobs: bool = False
    """Whether jobs instead of the platform mount and unmount topics."""
    mirrors: MirrorSupport = MirrorSupport()
    acls: bool = False
    access: AccessControl = AccessControl()
    quotas: bool = False
    keeps_quotas: bool = True
    """Whether the platform stores quotas. Otherwise, only the state stores them."""
    encryption: bool = False
    cluster_properties: bool = False
    partition_growth: bool = True
    replication_change: bool = True
    replication_moves: bool = False
    """Whether brokers copy records to change the replication factor."""
    topic_move: bool = False
    copy_move: bool = False
    """Whether a move copies the topic and deletes the old one, because the platform cannot rename topics."""
    recovery: bool = False
    read_replicas: bool = False
    inherits_configs: bool = False
    """Whether topics inherit configs of namespaces. Otherwise, topics store effective values."""
    creates_cluster: bool = False
    max_partitions: int = 100_000
    replication_factors: Sequence[int] = range(1, 32_768)
    """Replication factors that a topic may have, in ascending order."""
    internal_topics: tuple[str, ...] = ()
    """Names reserved for the platform."""
    server_ids: frozenset[str] = frozenset()
    """Kinds whose ids the platform chooses, so a repeated call repeats its work."""
    batch: int = 100
    may_hide: bool = False
    """Whether missing topics may exist but be hidden. Plans then leave missing recorded topics unchanged."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Field that is off, or `may_hide` → reason, such as `no authorizer is configured`."""
    configs: Mapping[str, ConfigKey] = field(default_factory=lambda: KAFKA_CONFIGS)
    object_storage: str = ""
    """Object storage that the cluster itself configures, such as `s3://topics`; empty if files declare it. Such a
    cluster does not report the locations of its topics.
    """
    tells_own: bool = True
    """Whether the platform distinguishes set configs from defaults."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Current broker default by topic config, if it may differ from the catalog."""
    properties: Mapping[str, ConfigKey] = field(default_factory=dict)
    """Known cluster properties. If empty, values are compared as written."""

    @property
    def links(self) -> bool:
        """Whether topics can be mirrored over links."""
        return bool(self.mirrors.roles)

    @property
    def is_maintained_by_run(self) -> bool:
        """Whether `reconciler run` uploads records and continues mounts; otherwise brokers or jobs do."""
        return self.creates_cluster


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """Identity of a reached cluster, which must equal the declared and recorded identity."""

    provider: str
    cluster_id: str
    format: str | None = None
    """Storage format of records, which linked clusters must share; `None` if links accept any."""


Declarable: TypeAlias = Cluster | Namespace | Topic | TieringPolicy | Mounting | MirrorLink

Resource: TypeAlias = Declarable | MirrorTopic

RESOURCE_KINDS: Final[dict[str, type[Resource]]] = {kind.__name__: kind for kind in get_args(Resource)}


def read_resource(document: Mapping[str, Any], *, context: str | None = None) -> Resource:
    """Return the resource of a JSON document. `context` is `KEPT` for a stored one.

    Raises:
        KeyError: The document has no kind, or an unknown one.
        ValidationError: A field is invalid.
    """
    return RESOURCE_KINDS[document["kind"]].model_validate(document, context=context)


def read_own_configs(resource: Resource) -> Mapping[str, str]:
    """Return the configs that a resource sets itself."""
    match resource:
        case Topic() | Namespace():
            return resource.spec.configs
        case MirrorTopic():
            return resource.configs
        case Cluster() | TieringPolicy() | Mounting() | MirrorLink():
            return {}
        case _:
            assert_never(resource)


MANIFEST_KINDS: Final[dict[str, type[Workspace | Declarable]]] = {
    "Workspace": Workspace,
    "Cluster": Cluster,
    "Namespace": Namespace,
    "Topic": Topic,
    "TieringPolicy": TieringPolicy,
    "Mounting": Mounting,
    "MirrorLink": MirrorLink,
}


_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

Ownership: TypeAlias = Literal["created", "adopted"]


@dataclass(frozen=True, slots=True)
class DeclaredResource:
    """Declared resource with its location, such as `manifests/topics.yaml:88`."""

    resource: Resource
    source: str
    origins: Mapping[str, str] | None = None
    """Origins of values, if the resource stays as previously applied."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Resource as last applied: canonical and effective, with references instead of secrets."""

    resource: Resource
    incarnation: str | None = None
    """Id that changes if the resource is recreated, such as a topic id."""
    physical_name: str | None = None
    ownership: Ownership = "created"
    protect: bool = False
    run: str = ""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Address or file that declares a value, by field path, if not the resource itself."""


@dataclass(frozen=True, slots=True)
class ObservedStorage:
    """Object storages of a cluster: bound and declared."""

    bound: str | None = None
    """Id of the storage to which its topics are tiered."""
    declared: str | None = None
    """Id of the declared storage; `None` if none is declared or it has no tiered data."""
    tiered: tuple[str, ...] = ()
    """Topics that may have records in the bound storage."""
    problem: ReconcilerError | None = None
    """Why the declared storage is unusable, if known."""


@dataclass(frozen=True, slots=True)
class RemoteRemains:
    """Fate of a topic's remote objects if it is deleted now."""

    location: str
    """`<topic>/<cluster uuid>/<initial revision>`, from which the topic can be recovered."""
    is_deleted: bool
    is_lost: bool = False
    """Whether the location was released and no longer belongs to this cluster."""


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """A cluster's report about itself."""

    storage: ObservedStorage | None = None
    """`None` if the cluster has no object storage."""
    owners: Owners | None = None
    """`None` if no resource has an owner."""
    overrides: tuple[tuple[str, int, str], ...] = ()
    """Declared properties that a broker overrides: key, broker, value."""


@dataclass(frozen=True, slots=True)
class LiveTopic:
    """The platform's report about the log of a topic or mirror."""

    initial: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    """Cluster defaults copied at the topic's creation, which configs of the topic and its namespaces override."""
    legacy: RemoteRemains | None = None
    """`None` if the topic was never tiered."""
    is_moving: bool = False
    is_sealed: bool = False
    """Whether the topic is sealed, so brokers reject all records."""
    filled: Mapping[str, str] | None = None
    """Own configs of the topic after a move has filled it; `None` without a move."""


@dataclass(frozen=True, slots=True)
class LiveMirror:
    """The platform's report about a mirror."""

    first_copy_done: bool = True
    """Whether the first copy has reached the end that the source had when the copy began."""
    is_automatic: bool = False
    since_ms: int = 0
    """Time in ms of entry into the current state."""
    stopped_by: str | None = None
    """Lifecycle verb that stopped the mirror, if reported."""
    topic_if_stopped: Resource | None = None
    """The ordinary topic that the mirror would become if it stopped now."""

    @classmethod
    def from_entry(cls, entry: MirrorEntry, becomes: Resource | None) -> LiveMirror:
        """Return the report for a mirror's entry. `becomes` is `topic_if_stopped`."""
        return cls(entry.first_copy_done, entry.is_automatic, entry.since_ms, entry.stopped_by, becomes)


@dataclass(frozen=True, slots=True)
class Observed:
    """A resource as the platform reports it."""

    resource: Resource
    incarnation: str | None = None
    physical_name: str | None = None
    state: str | None = None
    """Lifecycle state, such as `ACTIVE`; `None` for kinds without a lifecycle."""
    is_internal: bool = False
    """Whether the resource is internal to the platform, and so not managed."""
    hidden: NotAuthorizedError | None = None
    """Why reconciler may not read the resource; `None` if it may."""
    undeclarable: tuple[NamespaceAcl, ...] = ()
    """Access rules that files cannot declare. They are only displayed."""
    is_by_hand: bool = False
    """Whether a command started this mounting, so only a command finishes it."""
    cluster: LiveCluster = LiveCluster()
    topic: LiveTopic = LiveTopic()
    mirror: LiveMirror = LiveMirror()


Desired: TypeAlias = Mapping[Address, DeclaredResource]
Record: TypeAlias = Mapping[Address, Recorded]
Inventory: TypeAlias = Mapping[Address, Observed]


@dataclass(frozen=True, slots=True)
class MetadataPart:
    """Topics, namespaces with rules and quotas, links, groups, or properties of a cluster."""

    name: str
    entries: int
    bytes: int
    written_ms: int
    """Time in ms of the last write."""
    error: UserError | None = None
    """Why the part is unusable; `None` if it is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """Metadata in object storage from which a lost cluster is restored."""

    cluster_id: str
    parts: tuple[MetadataPart, ...] = ()
    error: UserError | None = None
    """Why all metadata is unusable; `None` if at most some parts are."""
    revision: int = 0
    """Initial revision of the newest topic in the metadata."""
    inventory: Inventory = field(default_factory=dict)
    left_out: tuple[tuple[str, UserError], ...] = ()
    """Stored addresses that cannot be declared, with errors."""
    places: Mapping[str, Address] = field(default_factory=dict)
    """Topic or mirror by key of its `topic.json`, even if that object does not exist."""
    recovering: Mapping[Address, str] = field(default_factory=dict)
    """Source location by topic, for topics whose restore was unfinished."""
    groups: Mapping[str, Mapping[str, Mapping[int, int]]] = field(default_factory=dict)
    """Next offsets to read, by group, key of a `topic.json`, and partition."""
    properties: Mapping[str, str] = field(default_factory=dict)

    def has_part(self, part: str) -> bool:
        """Return whether a part of the metadata is complete."""
        return any(entry.name == part and entry.error is None for entry in self.parts)


class FollowedSource(NamedTuple):
    """Source and state of a mirror."""

    state: str
    link: str
    source: str
    """`<cluster>/<full name>`."""


class TopicShown(NamedTuple):
    """Listed topic or mirror."""

    address: Address
    partitions: int
    replication_factor: int | None
    """`None` if unknown or equal to the source's."""
    records: int | None = None
    """Null if not measured."""
    bytes: int | None = None
    """Null if not measured."""
    following: FollowedSource | None = None
    """`None` for an ordinary topic."""


@dataclass(frozen=True, slots=True)
class Overview:
    """Sorted names and shapes of a cluster's resources."""

    topics: Sequence[TopicShown] = ()
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Own configs by full name of a namespace."""
    quotas: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict)
    """Quotas that the platform stores, by full name."""
