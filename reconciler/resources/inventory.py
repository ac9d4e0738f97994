"""Inventories: address to resource, as desired, recorded or observed; all kinds; capabilities of platforms."""

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


# What a platform can do, as data: compared with the plan by a pure guard.


TieringWords: TypeAlias = Literal["directions", "kip-405"]


@dataclass(frozen=True, slots=True)
class MirrorSupport:
    """What a platform can do of links and mirrors."""

    by_jobs: bool = False
    """The platform mirrors nothing itself: jobs copy the records of mirrors and change their roles."""
    roles: frozenset[str] = frozenset()
    """The roles that a mirror can have; none: the platform has no links."""
    features: frozenset[str] = frozenset()
    """What of a link goes beyond copying from the earliest record: `paused, source-mode, bidirectional, auto-create,
    consumer-offset-sync, acl-sync, topic-config-sync, start-offset, retry-timeout, metadata-interval`."""
    read_only: bool = True
    """False: a mirror takes records of others, too; the plan warns of it once a cluster."""


@dataclass(frozen=True, slots=True)
class AccessControl:
    """How a platform decides who may do what."""

    write_rules: frozenset[AccessBinding] = frozenset()
    """The rules about writing to topics, as they were when this was asked: from whom mirrors can be protected."""
    principal: str | None = None
    """As whom the platform knows whoever acts; `None`: that cannot be told."""
    hosts_are_addresses: bool = False
    """Hosts of ACLs are compared with the address of a connection: a name, or a range, would never be met."""
    denies_are_final: bool = False
    """Any denial wins, whichever tier says it: none can be lifted below, and what a tier allows only they take away."""
    operations: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Kind of thing → what there is to allow of it. Rules are then kept one for each kind and name.

    Empty: they are kept as they are written.
    """
    is_open: bool = True
    """What no rule is about everyone may do; False: nobody but super users (`allow.everyone.if.no.acl.found`)."""


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
    mirrors: MirrorSupport = MirrorSupport()
    acls: bool = False
    access: AccessControl = AccessControl()
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
    read_replicas: bool = False
    """Topics can follow the remote tier of a topic of another cluster."""
    inherits_configs: bool = False
    """True: namespace and topic keys are compared at their own addresses; False: topics get the effective value."""
    creates_cluster: bool = False
    max_partitions: int = 100_000
    max_replication_factor: int = 32_767
    """On Kafka: the brokers that are alive."""
    internal_topics: tuple[str, ...] = ()
    """Names that the platform uses for itself: never declared, never managed."""
    server_ids: frozenset[str] = frozenset()
    """Kinds whose work the platform names itself: asked twice, it does it twice."""
    batch: int = 100
    """Actions one `apply` call takes."""
    may_hide: bool = False
    """The principal does not see every topic, and what is hidden is not told apart from what is missing: that something
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

    @property
    def links(self) -> bool:
        """Whether topics can be mirrored over links."""
        return bool(self.mirrors.roles)


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """Which cluster answered: the wrong-cluster guard compares it with what is declared and recorded."""

    provider: str
    cluster_id: str
    format: str | None = None
    """How it keeps records, where that matters to who copies them as they are; clusters of two formats do not mix."""


# The closed union of what can be declared.


Resource: TypeAlias = Cluster | Namespace | Topic | TieringPolicy | Mounting | MirrorLink | MirrorTopic

AnyResource: TypeAlias = Annotated[Resource, Field(discriminator="kind")]

RESOURCE: Final[TypeAdapter[Resource]] = TypeAdapter(AnyResource, config=ConfigDict(defer_build=True))
"""Reads one resource of any kind from Python or JSON values."""


def configs_of(resource: Resource) -> Mapping[str, str]:
    """Return the configs a resource has of its own."""
    match resource:
        case Topic() | Namespace():
            return resource.spec.configs
        case MirrorTopic():
            return resource.configs
        case Cluster() | TieringPolicy() | Mounting() | MirrorLink():
            return {}
        case _:
            assert_never(resource)


WRITABLE: Final[dict[str, type[Workspace | Resource]]] = {
    "Workspace": Workspace,
    "Cluster": Cluster,
    "Namespace": Namespace,
    "Topic": Topic,
    "TieringPolicy": TieringPolicy,
    "Mounting": Mounting,
    "MirrorLink": MirrorLink,
}
"""What may stand as a `kind` in a manifest."""


_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

Ownership: TypeAlias = Literal["created", "adopted"]


@dataclass(frozen=True, slots=True)
class DeclaredResource:
    """A resource of the files, and where it stands (`manifests/topics.yaml:88`, relative to the workspace)."""

    resource: Resource
    source: str
    origins: Mapping[str, str] | None = None
    """Of what was applied before, and is wanted as it was: where its values came from. It is effective already."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A resource as we last applied it: canonical and effective, secrets as references."""

    resource: Resource
    incarnation: str | None = None
    """What tells this one from an earlier one of the same name: a topic id, a cluster id."""
    physical_name: str | None = None
    ownership: Ownership = "created"
    protect: bool = False
    run: str = ""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Field path → the address or file it came from, where that is not the resource itself."""


@dataclass(frozen=True, slots=True)
class SeenStorage:
    """What a cluster says of object storage: which one it is bound to, and which one it is declared with."""

    bound: str | None = None
    """The id of the storage its topics are tiered into."""
    found: str | None = None
    """The id of the one that is declared; `None`: none is, or nobody has tiered into it yet."""
    tiered: tuple[str, ...] = ()
    """Topics with records there, or that may have some: they do not move between storages."""
    problem: ReconcilerError | None = None
    """Why the declared one cannot be used, as far as that is seen without writing."""


@dataclass(frozen=True, slots=True)
class RemoteLegacy:
    """What becomes of what a topic has in object storage when it is deleted as it is now."""

    location: str
    """`<topic>/<cluster uuid>/<initial revision>`: it can be recovered from there as long as it is kept."""
    is_deleted: bool
    is_lost: bool = False
    """Whether that belongs to nobody or to another cluster by now: it was released."""


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """What a cluster says of itself."""

    storage: SeenStorage | None = None
    """What it says of its object storage; `None` where it has none to speak of."""
    owners: Owners | None = None
    """Which workspace owns what on it; `None`: nothing is owned there."""
    overrides: tuple[tuple[str, int, str], ...] = ()
    """Declared properties that a broker sets for itself alone: key, broker, value."""


@dataclass(frozen=True, slots=True)
class LiveTopic:
    """What a platform says of the log of a topic, or of a mirror."""

    initial: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    """Configs that the cluster's defaults gave it when it was made; what it or a tier says itself goes before them."""
    legacy: RemoteLegacy | None = None
    """What becomes of its remote objects when it is deleted; `None` where it was never tiered."""
    is_moving: bool = False
    """Whether the platform still moves its replicas to what was asked for."""
    is_sealed: bool = False
    """Whether its brokers refuse every record, since it is about to be deleted."""
    filled: Mapping[str, str] | None = None
    """If a move fills it: the configs that it sets itself once it is whole."""


@dataclass(frozen=True, slots=True)
class LiveMirror:
    """What a platform says of a mirror."""

    first_copy_done: bool = True
    """Whether the first copy has reached the end that the source had when it began."""
    is_automatic: bool = False
    """Made by its link, whose filters take its name."""
    since_ms: int = 0
    """When it came into the state it keeps; tells which side of a link stopped last."""
    stopped_by: str | None = None
    """The verb that stopped it, if its cluster reports one."""
    becomes: Resource | None = None
    """Of a live one: the ordinary topic it would be, were it stopped as it is now."""

    @classmethod
    def of(cls, entry: MirrorEntry, becomes: Resource | None) -> LiveMirror:
        """Return what the entry of a mirror says of it."""
        return cls(entry.first_copy_done, entry.is_automatic, entry.since_ms, entry.stopped_by, becomes)


@dataclass(frozen=True, slots=True)
class Observed:
    """A resource as the platform says it is."""

    resource: Resource
    incarnation: str | None = None
    physical_name: str | None = None
    state: str | None = None
    """Where a lifecycle has it: `ACTIVE`, `DELETING`, a migration's state; `None` where there is none."""
    is_internal: bool = False
    """Made by the platform for itself: never managed, drift or unmanaged."""
    hidden: NotAuthorizedError | None = None
    """Why whoever acts may not see it; what is hidden is told apart from what is missing, and shown to nobody."""
    undeclarable: tuple[NamespaceAcl, ...] = ()
    """Access rules that no file can declare, such as those on an operation of a later version: shown, never managed."""
    is_by_hand: bool = False
    """Of a mounting: whether a command began it, and only a command finishes it."""
    cluster: LiveCluster = LiveCluster()
    topic: LiveTopic = LiveTopic()
    mirror: LiveMirror = LiveMirror()


Desired: TypeAlias = Mapping[Address, DeclaredResource]
Record: TypeAlias = Mapping[Address, Recorded]
Inventory: TypeAlias = Mapping[Address, Observed]


# What object storage keeps of a cluster beside segments, so that a lost one comes back whole.


@dataclass(frozen=True, slots=True)
class MetadataPart:
    """One part of it: topics, namespaces with access rules and quotas, links, groups, the cluster's properties."""

    name: str
    entries: int
    bytes: int
    written_ms: int
    """When it was written; a part that does not change is not written again."""
    error: UserError | None = None
    """Why it is no use; `None`: it is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """What is kept of one cluster, as far as it is whole."""

    cluster_id: str
    parts: tuple[MetadataPart, ...] = ()
    error: UserError | None = None
    """Why none of it is of use; `None`: each part says it of itself."""
    revision: int = 0
    """The initial revision that the last new topic had: one with a higher revision was made later."""
    inventory: Inventory = field(default_factory=dict)
    """Namespaces, topics, links and live mirrors."""
    left_out: tuple[tuple[str, UserError], ...] = ()
    """Addresses of what was kept and cannot be declared, and why."""
    places: Mapping[str, Address] = field(default_factory=dict)
    """By the key of its `topic.json`, be it there or not: a topic or mirror."""
    recovering: Mapping[Address, str] = field(default_factory=dict)
    """Topics that were being made themselves, and the location they were made from."""
    groups: Mapping[str, Mapping[str, Mapping[int, int]]] = field(default_factory=dict)
    """Group → key of a `topic.json` → partition → the next offset it wants to read."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Of the cluster."""

    def has(self, part: str) -> bool:
        """Tell whether a part is whole."""
        return any(entry.name == part and entry.error is None for entry in self.parts)


# What a cluster has, at a glance: names and shapes, light enough for tens of thousands of topics.


class FollowedSource(NamedTuple):
    """What a mirror follows, and the state it is in."""

    state: str
    link: str
    source: str
    """`<cluster>/<full name>`."""


class TopicShown(NamedTuple):
    """One topic or mirror."""

    address: Address
    partitions: int
    replication_factor: int | None
    """`None`: the platform does not say, or it is its source's."""
    records: int | None = None
    """Null: not measured."""
    bytes: int | None = None
    """Null: not measured."""
    following: FollowedSource | None = None
    """`None`: it is an ordinary topic."""


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything of one cluster that may be described, sorted; without what topics hold."""

    topics: Sequence[TopicShown] = ()
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Full name → its own configs."""
    quotas: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict)
    """Full name → the quotas that the platform keeps of it."""
