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
    """Jobs, not the platform, copy the records of mirrors and change their roles."""
    roles: frozenset[str] = frozenset()
    """Possible roles of mirrors; empty if the platform has no links."""
    features: frozenset[str] = frozenset()
    """Supported features of links: `paused, source-mode, bidirectional, auto-create, consumer-offset-sync, acl-sync,
    topic-config-sync, start-offset, retry-timeout, metadata-interval`.
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
    """Hosts of ACLs are compared with addresses of connections, so names and ranges never match."""
    denies_are_final: bool = False
    """A denial on any tier wins; only the tier that denies can remove it."""
    operations: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Resource kind → its operations. Rules are then stored per kind and name. Empty: they are stored as written."""
    is_open: bool = True
    """Whether everyone may do what no rule covers; otherwise only super users (`allow.everyone.if.no.acl.found`)."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Features and limits of one platform; a plan that exceeds them is rejected."""

    platform: str
    namespaces: bool = True
    namespaces_are_rules: bool = False
    """A namespace is only access rules on a prefix: deleting it keeps the topics."""
    tiering: bool = False
    """On Kafka: KIP-405, enabled on brokers and controllers."""
    untiering: bool = True
    """Whether tiering of a topic can be switched off; on Kafka by `remote.log.copy.disable` (KIP-950)."""
    tiering_words: TieringWords = "directions"
    """Configs of tiering: `directions`: remote.write and remote.read, as on the embedded cluster; `kip-405`: one switch
    `remote.storage.enable`, and the configs of KIP-950.
    """
    mountings: bool = False
    mountings_by_jobs: bool = False
    """Jobs, not the platform, archive, compare, delete and restore topics."""
    mirrors: MirrorSupport = MirrorSupport()
    acls: bool = False
    access: AccessControl = AccessControl()
    quotas: bool = False
    """Namespaces may have quotas; every plan checks them."""
    keeps_quotas: bool = True
    """Whether the platform, and not only the record, stores quotas."""
    encryption: bool = False
    cluster_properties: bool = False
    partition_growth: bool = True
    replication_change: bool = True
    replication_moves: bool = False
    """A change of the replication factor takes time, because brokers move records."""
    topic_move: bool = False
    copy_move: bool = False
    """Without renames, a move creates a new topic, copies, switches the groups, and deletes."""
    recovery: bool = False
    read_replicas: bool = False
    inherits_configs: bool = False
    """Whether namespaces and topics store configs separately; otherwise topics store effective values."""
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
    """Missing topics may be hidden, so recorded ones are not recreated, deleted or forgotten."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Why this cluster lacks a feature: field that is off (or `may_hide`) → end of a message, such as `no authorizer is
    configured`.
    """
    configs: Mapping[str, ConfigKey] = field(default_factory=lambda: KAFKA_CONFIGS)
    """Topic configs of this platform and version."""
    object_storage: str = ""
    """Object storage that the cluster's own properties name, such as `s3://topics`; empty: the files declare it."""
    tells_own: bool = True
    """Whether the platform tells configs that were set from defaults; if not, a value equal to the default counts as
    set.
    """
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Topic config → the brokers' present default, for rules over several configs; otherwise the catalog's."""
    properties: Mapping[str, ConfigKey] = field(default_factory=dict)
    """Known cluster properties; if empty, values are compared as written."""

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
    """Storage format of records; clusters with different formats cannot be mixed. `None` if copies do not depend on it.
    """


Resource: TypeAlias = Cluster | Namespace | Topic | TieringPolicy | Mounting | MirrorLink | MirrorTopic

AnyResource: TypeAlias = Annotated[Resource, Field(discriminator="kind")]

RESOURCE: Final[TypeAdapter[Resource]] = TypeAdapter(AnyResource, config=ConfigDict(defer_build=True))


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


MANIFEST_KINDS: Final[dict[str, type[Workspace | Resource]]] = {
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
    """A declared resource and its location (`manifests/topics.yaml:88`, relative to the workspace)."""

    resource: Resource
    source: str
    origins: Mapping[str, str] | None = None
    """Origins of its values, for a resource that stays as applied before."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A resource as last applied: canonical and effective, with references instead of secrets."""

    resource: Resource
    incarnation: str | None = None
    """Id that distinguishes it from earlier ones with its name, such as a topic id."""
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
    """Id of the declared storage; `None` if none is declared or nothing was tiered into it."""
    tiered: tuple[str, ...] = ()
    """Topics that may have records in the bound storage, and cannot move between storages."""
    problem: ReconcilerError | None = None
    """Why the declared storage cannot be used, if known without writing."""


@dataclass(frozen=True, slots=True)
class RemoteRemains:
    """What happens to a topic's remote objects if it is deleted now."""

    location: str
    """`<topic>/<cluster uuid>/<initial revision>`, from which it can be recovered."""
    is_deleted: bool
    is_lost: bool = False
    """Whether the location was released and no longer belongs to this cluster."""


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """A cluster's report of itself."""

    storage: ObservedStorage | None = None
    """`None` if it has no object storage."""
    owners: Owners | None = None
    """`None` if no resource has an owner."""
    overrides: tuple[tuple[str, int, str], ...] = ()
    """Declared properties that a broker overrides: key, broker, value."""


@dataclass(frozen=True, slots=True)
class LiveTopic:
    """A platform's report of the log of a topic or mirror."""

    initial: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    """Defaults of the cluster at its creation; values of the topic or a tier win."""
    legacy: RemoteRemains | None = None
    """What happens to its remote objects if it is deleted now; `None` if it was never tiered."""
    is_moving: bool = False
    is_sealed: bool = False
    """Whether its brokers reject all records before its deletion."""
    filled: Mapping[str, str] | None = None
    """Configs that a topic sets itself after a move has filled it; `None` without a move."""


@dataclass(frozen=True, slots=True)
class LiveMirror:
    """A platform's report of a mirror."""

    first_copy_done: bool = True
    """Whether the first copy reached the source's end as of its begin."""
    is_automatic: bool = False
    since_ms: int = 0
    """When it came into its state, in ms; shows which side of a link stopped last."""
    stopped_by: str | None = None
    """The lifecycle verb that stopped it, if reported."""
    topic_if_stopped: Resource | None = None
    """The ordinary topic that a live mirror would be if it stopped now."""

    @classmethod
    def from_entry(cls, entry: MirrorEntry, becomes: Resource | None) -> LiveMirror:
        """Return the report from a mirror's entry."""
        return cls(entry.first_copy_done, entry.is_automatic, entry.since_ms, entry.stopped_by, becomes)


@dataclass(frozen=True, slots=True)
class Observed:
    """A resource as the platform reports it."""

    resource: Resource
    incarnation: str | None = None
    physical_name: str | None = None
    state: str | None = None
    """State in a lifecycle, such as `ACTIVE`; `None` without one."""
    is_internal: bool = False
    """Created by the platform for itself: not managed."""
    hidden: NotAuthorizedError | None = None
    """Why the principal may not see it; then it is never shown."""
    undeclarable: tuple[NamespaceAcl, ...] = ()
    """Access rules that files cannot declare: shown, never managed."""
    is_by_hand: bool = False
    """Whether a command started this mounting, so that only a command finishes it."""
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
    """Unchanged parts are not written again."""
    error: UserError | None = None
    """Why it is unusable; `None` if complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """Metadata in object storage from which a lost cluster is restored."""

    cluster_id: str
    parts: tuple[MetadataPart, ...] = ()
    error: UserError | None = None
    """Why all of it is unusable; `None`: see the parts."""
    revision: int = 0
    """Initial revision of the newest topic; topics with a higher one are newer."""
    inventory: Inventory = field(default_factory=dict)
    left_out: tuple[tuple[str, UserError], ...] = ()
    """Stored addresses that cannot be declared, and why."""
    places: Mapping[str, Address] = field(default_factory=dict)
    """Key of `topic.json`, existing or not → topic or mirror."""
    recovering: Mapping[Address, str] = field(default_factory=dict)
    """Topics that were being restored → the source location."""
    groups: Mapping[str, Mapping[str, Mapping[int, int]]] = field(default_factory=dict)
    """Group → key of a `topic.json` → partition → next offset to read."""
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
