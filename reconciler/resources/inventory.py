"""Inventories: address to resource, as desired, recorded or observed; capabilities of platforms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple, TypeAlias, assert_never

from pydantic import ConfigDict, Field, TypeAdapter

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

if TYPE_CHECKING:
    from reconciler.resources.mirrors import MirrorEntry


TieringWords: TypeAlias = Literal["directions", "kip-405"]


@dataclass(frozen=True, slots=True)
class MirrorSupport:
    """What a platform supports of links and mirrors."""

    by_jobs: bool = False
    """Jobs copy the records of mirrors and change their roles; the platform mirrors nothing itself."""
    roles: frozenset[str] = frozenset()
    """Roles that a mirror can have; empty if the platform has no links."""
    features: frozenset[str] = frozenset()
    """Supported features of links, apart from copying from the earliest record: `paused, source-mode, bidirectional,
    auto-create, consumer-offset-sync, acl-sync, topic-config-sync, start-offset, retry-timeout, metadata-interval`.
    """
    read_only: bool = True
    """False: other producers can write to mirrors; the plan warns of it once per cluster."""


@dataclass(frozen=True, slots=True)
class AccessControl:
    """How a platform controls access."""

    write_rules: frozenset[AccessBinding] = frozenset()
    """Present rules about writes to topics, from which mirrors are protected."""
    principal: str | None = None
    """Our principal on the platform; `None` if unknown."""
    hosts_are_addresses: bool = False
    """Hosts of ACLs are compared with the address of a connection, so that names and ranges never match."""
    denies_are_final: bool = False
    """A denial on any tier wins over all allowances; only the tier that denies can remove it."""
    operations: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Resource kind → its operations. Rules are then stored per kind and name. Empty: they are stored as written."""
    is_open: bool = True
    """Whether operations without a rule are allowed to all; False: only to super users
    (`allow.everyone.if.no.acl.found`).
    """


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Features and limits of one platform; a plan that exceeds them is rejected."""

    platform: str
    namespaces: bool = True
    namespaces_are_rules: bool = False
    """A namespace exists only as access rules on its prefix: deleting it removes our rules, not the topics."""
    tiering: bool = False
    """On Kafka: KIP-405, enabled on brokers and controllers."""
    untiering: bool = True
    """Whether tiering of a topic can be switched off; on Kafka this needs `remote.log.copy.disable` (KIP-950)."""
    tiering_words: TieringWords = "directions"
    """How configs express tiering: `directions` with remote.write and remote.read, as on the embedded cluster;
    `kip-405` with one switch `remote.storage.enable` and the two configs of KIP-950.
    """
    mountings: bool = False
    mountings_by_jobs: bool = False
    """Jobs archive, compare and delete, or restore topics; the platform cannot detach them."""
    mirrors: MirrorSupport = MirrorSupport()
    acls: bool = False
    access: AccessControl = AccessControl()
    quotas: bool = False
    """Namespaces may have quotas, which every plan checks."""
    keeps_quotas: bool = True
    """The platform stores quotas. False: only the record does, and they have no drift."""
    encryption: bool = False
    cluster_properties: bool = False
    partition_growth: bool = True
    replication_change: bool = True
    replication_moves: bool = False
    """A change of the replication factor moves records between brokers, which takes time."""
    topic_move: bool = False
    """Topics can be renamed."""
    copy_move: bool = False
    """If topics cannot be renamed: a move creates a new topic, copies, switches the groups, and deletes."""
    recovery: bool = False
    read_replicas: bool = False
    """Topics can follow the remote tier of another cluster's topic."""
    inherits_configs: bool = False
    """True: namespaces and topics store configs separately. False: topics store effective values."""
    creates_cluster: bool = False
    max_partitions: int = 100_000
    max_replication_factor: int = 32_767
    """On Kafka: the number of live brokers."""
    internal_topics: tuple[str, ...] = ()
    """Names reserved for the platform: never declared or managed."""
    server_ids: frozenset[str] = frozenset()
    """Kinds whose ids the platform chooses: repeating a call repeats its work."""
    batch: int = 100
    """Number of actions per `apply` call."""
    may_hide: bool = False
    """Hidden topics look like missing ones. So recorded resources that are absent are not recreated, deleted or
    forgotten.
    """
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Why this cluster lacks a feature: field that is off (or `may_hide`) → text after the colon of a message, such as
    `no authorizer is configured`.
    """
    configs: Mapping[str, ConfigKey] = field(default_factory=lambda: KAFKA_CONFIGS)
    """Topic configs of this platform and version, with the accepted ranges."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Topic config → the brokers' present default. Rules over several configs use them; for absent keys, the catalog's.
    """
    properties: Mapping[str, ConfigKey] = field(default_factory=dict)
    """Known cluster properties; empty if the platform reports none: values are then compared as written."""

    @property
    def links(self) -> bool:
        """Whether topics can be mirrored over links."""
        return bool(self.mirrors.roles)


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """The cluster that answered; it must be the declared and recorded one."""

    provider: str
    cluster_id: str
    format: str | None = None
    """Storage format of records, if copies depend on it; clusters with different formats cannot be mixed."""


Resource: TypeAlias = Cluster | Namespace | Topic | TieringPolicy | Mounting | MirrorLink | MirrorTopic

AnyResource: TypeAlias = Annotated[Resource, Field(discriminator="kind")]

RESOURCE: Final[TypeAdapter[Resource]] = TypeAdapter(AnyResource, config=ConfigDict(defer_build=True))
"""Validates one resource of any kind from Python or JSON values."""


def configs_of(resource: Resource) -> Mapping[str, str]:
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


MANIFEST_KINDS: Final[dict[str, type[Workspace | Resource]]] = {
    "Workspace": Workspace,
    "Cluster": Cluster,
    "Namespace": Namespace,
    "Topic": Topic,
    "TieringPolicy": TieringPolicy,
    "Mounting": Mounting,
    "MirrorLink": MirrorLink,
}
"""Kinds of manifests."""


_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

Ownership: TypeAlias = Literal["created", "adopted"]


@dataclass(frozen=True, slots=True)
class DeclaredResource:
    """A declared resource and its location (`manifests/topics.yaml:88`, relative to the workspace)."""

    resource: Resource
    source: str
    origins: Mapping[str, str] | None = None
    """Origins of its values, for a resource that stays as it was applied before; it is effective already."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A resource as last applied: canonical and effective, with references instead of secrets."""

    resource: Resource
    incarnation: str | None = None
    """Id that distinguishes it from earlier ones with its name: a topic id, a cluster id."""
    physical_name: str | None = None
    ownership: Ownership = "created"
    protect: bool = False
    run: str = ""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Field path → address or file of its value, unless that is the resource itself."""


@dataclass(frozen=True, slots=True)
class ObservedStorage:
    """The object storages of a cluster: bound and declared."""

    bound: str | None = None
    """Id of the storage into which its topics are tiered."""
    declared: str | None = None
    """Id of the declared storage; `None` if none is declared, or no cluster has tiered into it."""
    tiered: tuple[str, ...] = ()
    """Topics that have or may have records in the bound storage; they cannot move between storages."""
    problem: ReconcilerError | None = None
    """Why the declared storage cannot be used, if that is visible without writing."""


@dataclass(frozen=True, slots=True)
class RemoteRemains:
    """The fate of a topic's remote objects if it is deleted now."""

    location: str
    """`<topic>/<cluster uuid>/<initial revision>`: from there it can be recovered while the objects exist."""
    is_deleted: bool
    is_lost: bool = False
    """Whether the location was released and no longer belongs to this cluster."""


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """A cluster's report of itself."""

    storage: ObservedStorage | None = None
    """`None` if it has no object storage."""
    owners: Owners | None = None
    """Owners of its resources; `None` if there are none."""
    overrides: tuple[tuple[str, int, str], ...] = ()
    """Declared properties that a broker overrides: key, broker, value."""


@dataclass(frozen=True, slots=True)
class LiveTopic:
    """A platform's report of the log of a topic or mirror."""

    initial: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    """Defaults of the cluster that the topic got at creation; values of the topic or a tier win."""
    legacy: RemoteRemains | None = None
    """Fate of its remote objects; `None` if it was never tiered."""
    is_moving: bool = False
    """Whether the platform still moves its replicas."""
    is_sealed: bool = False
    """Whether its brokers reject all records before it is deleted."""
    filled: Mapping[str, str] | None = None
    """Configs that a topic sets itself when a move has filled it; `None` without a move."""


@dataclass(frozen=True, slots=True)
class LiveMirror:
    """A platform's report of a mirror."""

    first_copy_done: bool = True
    """Whether the first copy reached the end that the source had at its begin."""
    is_automatic: bool = False
    """Created by its link, because the filters match."""
    since_ms: int = 0
    """When it came into its state; shows which side of a link stopped last."""
    stopped_by: str | None = None
    """The verb that stopped it, if reported."""
    becomes: Resource | None = None
    """The ordinary topic that a live mirror would be if it stopped now."""

    @classmethod
    def of(cls, entry: MirrorEntry, becomes: Resource | None) -> LiveMirror:
        """Return the report from a mirror's entry."""
        return cls(entry.first_copy_done, entry.is_automatic, entry.since_ms, entry.stopped_by, becomes)


@dataclass(frozen=True, slots=True)
class Observed:
    """A resource as the platform reports it."""

    resource: Resource
    incarnation: str | None = None
    physical_name: str | None = None
    state: str | None = None
    """State in a lifecycle, such as `ACTIVE`, `DELETING`; `None` without one."""
    is_internal: bool = False
    """Created by the platform for itself: neither managed nor reported as drift."""
    hidden: NotAuthorizedError | None = None
    """Why the principal may not see it; a hidden resource is not missing, and never shown."""
    undeclarable: tuple[NamespaceAcl, ...] = ()
    """Access rules that files cannot declare, such as those with newer operations: shown, never managed."""
    is_by_hand: bool = False
    """Whether a command started this mounting; then only a command finishes it."""
    cluster: LiveCluster = LiveCluster()
    topic: LiveTopic = LiveTopic()
    mirror: LiveMirror = LiveMirror()


Desired: TypeAlias = Mapping[Address, DeclaredResource]
Record: TypeAlias = Mapping[Address, Recorded]
Inventory: TypeAlias = Mapping[Address, Observed]


@dataclass(frozen=True, slots=True)
class MetadataPart:
    """One part of the metadata of a cluster: topics, namespaces with rules and quotas, links, groups, or properties."""

    name: str
    entries: int
    bytes: int
    written_ms: int
    """When it was written; unchanged parts are not written again."""
    error: UserError | None = None
    """Why it is unusable; `None` if it is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """Metadata of a cluster in object storage, from which a lost cluster is restored."""

    cluster_id: str
    parts: tuple[MetadataPart, ...] = ()
    error: UserError | None = None
    """Why all of it is unusable; `None`: see the parts."""
    revision: int = 0
    """Initial revision of the newest topic; topics with a higher one are newer."""
    inventory: Inventory = field(default_factory=dict)
    """Namespaces, topics, links and live mirrors."""
    left_out: tuple[tuple[str, UserError], ...] = ()
    """Stored addresses that cannot be declared, and why."""
    places: Mapping[str, Address] = field(default_factory=dict)
    """Key of `topic.json`, existing or not → topic or mirror."""
    recovering: Mapping[Address, str] = field(default_factory=dict)
    """Topics that were being restored → the source location."""
    groups: Mapping[str, Mapping[str, Mapping[int, int]]] = field(default_factory=dict)
    """Group → key of a `topic.json` → partition → next offset to read."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties of the cluster."""

    def has(self, part: str) -> bool:
        """Return whether a part is complete."""
        return any(entry.name == part and entry.error is None for entry in self.parts)


class FollowedSource(NamedTuple):
    """Source of a mirror, and the state of the mirror."""

    state: str
    link: str
    source: str
    """`<cluster>/<full name>`."""


class TopicShown(NamedTuple):
    """One topic or mirror."""

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
    """Names and shapes of a cluster's resources, sorted; light enough for tens of thousands of topics."""

    topics: Sequence[TopicShown] = ()
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Full name → its own configs."""
    quotas: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict)
    """Full name → quotas that the platform stores."""
