"""Protocol of all platforms.

Provider folders share file names: `provider.py` (this protocol), `client.py` (requests), `translate.py` (pure
conversion), `faults.py` (errors).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeVar

from reconciler.errors import ReconcilerError, UserError
from reconciler.resources.address import Address, matches_pattern
from reconciler.resources.measures import NO_CUTS, Cuts, Measures, TopicStorage, Vitals
from reconciler.resources.mount import MountableTopic, RecoverableTopic, Recoveries
from reconciler.runtime.dataclass import dataclass, field
from reconciler.runtime.retry import skip_check

if TYPE_CHECKING:
    from reconciler.planning.actions import ControlAction
    from reconciler.providers.protocol_links import Links, LinksByJobs
    from reconciler.providers.protocol_moves import Migrations
    from reconciler.records.log import (
        AppendSink,
        Bounds,
        Isolation,
        LostOffsets,
        StagedSink,
        TopicLog,
        TopicProducer,
        TransactionalSink,
    )
    from reconciler.resources.acls import AccessBinding
    from reconciler.resources.cluster import Cluster
    from reconciler.resources.groups import ConsumerGroup, OffsetMove, Reset
    from reconciler.resources.inventory import Capabilities, ClusterIdentity, ClusterMetadata, Inventory, Overview
    from reconciler.resources.mirrors import SourceTopic
    from reconciler.resources.owners import OwnerChange, ResourceOwner


NO_REPLICAS: Mapping[Address, str] = MappingProxyType({})
TopicAddress: TypeAlias = Address
"""Address of kind `topic`. Mirrors are read as topics too."""


def ignore_line(_text: str) -> None:
    """Discard a progress message."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Clock, ids and environment of providers, which do not read them directly."""

    folder: Path
    """Folder of `reconciler.yaml`, the base of relative locations."""
    environ: Mapping[str, str]
    new_id: Callable[[], str]
    """Returns a UUID4 for clusters and topics."""
    now_ms: Callable[[], int]
    principal: str | None = None
    """Principal on an embedded cluster; `None` means the super user."""
    host: str = "*"
    """Host of the principal. `*` means unknown, so only rules for all hosts apply."""
    declared: frozenset[Address] = frozenset()
    """Declared or recorded addresses, whose namespaces determine how flat names are read."""
    clusters: Mapping[str, Cluster] = field(default_factory=dict)
    """Declared clusters by name, which links read from."""
    is_reader: bool = False
    """Whether providers open read-only."""
    warn: Callable[[str], None] = ignore_line
    """Prints what a call is waiting for."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Address patterns to observe; empty means all."""

    patterns: tuple[str, ...] = ()
    recorded: frozenset[Address] = frozenset()
    """Addresses applied before, whose namespaces exist even if empty."""


@dataclass(frozen=True, slots=True)
class CompletedAction:
    """Completed and durable action."""

    id: str
    incarnation: str | None = None
    physical_name: str | None = None


@dataclass(frozen=True, slots=True)
class FailedAction:
    """Action that the platform rejected. Other actions of its batch still run."""

    id: str
    error: ReconcilerError
    created: CompletedAction | None = None
    """Result of a `Create` whose access rules were rejected. The resource exists without them."""


Outcome: TypeAlias = CompletedAction | FailedAction


class ReplicaPlacement(NamedTuple):
    """Brokers of a partition by id; a leader of -1 means none."""

    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicSizes:
    """Offsets and sizes of a topic; `None` if not reported by the platform."""

    bounds: Mapping[int, Bounds]
    records: int | None
    bytes: int | None
    """Size in bytes. Records in both storage tiers count once."""
    storage: TopicStorage | None = None
    """Size by storage tier; `None` without tiered storage."""
    placements: Mapping[int, ReplicaPlacement] = field(default_factory=dict)
    """Brokers by partition, if the platform has brokers."""


class Provider(Protocol):
    """Provider of one cluster."""

    @property
    def capabilities(self) -> Capabilities:
        """Limits of this platform and version."""
        ...

    def identify(self) -> ClusterIdentity | None:
        """Return the cluster's identity; `None` if it does not exist yet (embedded only).

        Raises:
            RetryableError: The cluster cannot be reached.
        """
        ...

    def observe(self, scope: Scope) -> Inventory:
        """Return the resources with a few bulk requests. Read-only."""
        ...

    def list_unplaced_rules(self) -> Sequence[AccessBinding]:
        """Return access rules of no topic or known namespace, which `observe` omits."""
        ...

    def check_visible(self, address: Address) -> None:
        """Check that the caller may know whether a namespace or topic exists.

        Raises:
            NotAuthorizedError: The caller may not know.
        """
        ...

    def read_overview(self) -> Overview:
        """Return names, partitions and replicas at the lowest cost. Read-only."""
        ...

    def apply(
        self, actions: Sequence[ControlAction], *, may_go_on: Callable[[], None] = skip_check
    ) -> Iterator[Outcome]:
        """Run a batch of independent, idempotent actions and yield one outcome each.

        `may_go_on` is called before every change.

        Raises:
            LeaseError: Raised by `may_go_on`; nothing was changed since its last call.
        """
        ...

    def record_owners(self, change: OwnerChange) -> Mapping[str, ResourceOwner]:
        """Record which workspace owns resources, or return those of `change.take` that others own and write nothing.

        Raises:
            NotAuthorizedError: The caller may not write the marks.
            UnansweredError: The marks may have been written.
            RetryableError: The cluster does not respond; nothing was written.
        """
        ...

    def measure_topics(self, addresses: Sequence[Address], cuts: Cuts = NO_CUTS) -> Measures:
        """Return sizes of topics without Spark. Unmeasured topics are absent."""
        ...

    @property
    def groups(self) -> Groups | None:
        """Consumer groups; `None` if the platform has none."""
        ...

    @property
    def archives(self) -> Archives | None:
        """Topics in object storage; `None` if the platform cannot restore topics."""
        ...

    @property
    def migrations(self) -> Migrations | None:
        """Mounts and unmounts; `None` if the platform has none."""
        ...

    @property
    def links(self) -> Links | None:
        """Links into this cluster and their mirrors; `None` if the platform has none."""
        ...

    def describe_topic(self, topic: TopicAddress) -> TopicSizes:
        """Return a topic's offsets and sizes, with one request per partition."""
        ...

    def list_topic_storages(self, topics: Sequence[TopicAddress]) -> Iterator[TopicStorage]:
        """Yield sizes of topics and mirrors by storage tier, in order, without reading records."""
        ...

    def read_vitals(self) -> Vitals:
        """Return a bounded number of metrics, without reading records."""
        ...

    def learn_names(self, addresses: Iterable[Address]) -> None:
        """Store full names, by which platforms without namespaces split flat names into namespace and topic."""
        ...

    def read_source_topic(self, topic: TopicAddress) -> SourceTopic:
        """Return a topic's partitions and configs, which its mirrors follow."""
        ...

    def open_log(
        self,
        topic: TopicAddress,
        *,
        isolation: Isolation = "read_committed",
        on_missing: Callable[[LostOffsets], None] | None = None,
    ) -> TopicLog:
        """Return a topic's log.

        `on_missing` receives lost offsets, and reading continues. Without it, reading fails.
        """
        ...

    def open_producer(self, topic: TopicAddress) -> TopicProducer:
        """Return a producer for a topic. Mirrors are rejected."""
        ...

    def open_append_sink(self, topic: TopicAddress) -> AppendSink | None:
        """Return a sink for records that many tasks stage and that become readable together; `None` if unsupported.

        Mirrors are rejected.
        """
        ...

    def open_sink(self, topic: TopicAddress) -> StagedSink | TransactionalSink:
        """Return a sink for a topic's records."""
        ...

    @property
    def maintenance(self) -> Callable[[MaintenancePorts], Mapping[str, Callable[[], MaintenanceJobResult]]] | None:
        """Maintenance jobs of one pass by name; `None` if the platform has none."""
        ...


Part = TypeVar("Part")


def require_part(provider: Provider, part: Part | None, what: str) -> Part:
    """Return `part`; raise if the platform lacks it (`None`). `what` names it in the error."""
    if part is None:
        message = f"a {provider.capabilities.platform} cluster has no {what}"
        raise UserError(message, hint="Name a cluster of another platform.")
    return part


def require_groups(provider: Provider) -> Groups:
    """Return the groups; raise if the platform has none."""
    return require_part(provider, provider.groups, "consumer groups")


def require_links(provider: Provider) -> Links:
    """Return the links; raise if the platform has none."""
    return require_part(provider, provider.links, "links")


def require_job_links(provider: Provider) -> LinksByJobs:
    """Return the links for jobs; raise if the platform has none."""
    return require_part(provider, require_links(provider).job_steps, "links that jobs copy")


def require_migrations(provider: Provider) -> Migrations:
    """Return the mounts; raise if the platform has none."""
    return require_part(provider, provider.migrations, "mounts")


@dataclass(frozen=True, slots=True)
class StoredCluster:
    """Contents of object storage for one cluster, which may be lost."""

    topics: Iterator[tuple[str, RecoverableTopic | UserError]]
    """Topics that the cluster created, by key, or errors of unusable topics."""
    metadata: ClusterMetadata | None
    """Metadata next to the segments, even if damaged; `None` if missing or the cluster is unknown."""


class Archives(Protocol):
    """Topics in a cluster's object storage. Methods raise `RetryableError` if unreachable."""

    def find_recovery_sources(
        self, topics: Mapping[TopicAddress, str | None], replicas: Mapping[TopicAddress, str] = NO_REPLICAS
    ) -> Recoveries:
        """Return sources, or errors, for new topics by location; `None` means by name.

        The cluster need not exist. `replicas` maps new read replicas to their sources' locations.
        """
        ...

    def read_stored_cluster(self, cluster_id: str | None = None) -> StoredCluster | None:
        """Return object storage's contents for a whole cluster; `None` if the platform stores none.

        Without an id, the only cluster with topics there is used; several are rejected.
        """
        ...

    def list_mountable_topics(self) -> Sequence[MountableTopic]:
        """Return all topics ever detached into this object storage, sorted."""
        ...


def require_archives(provider: Provider) -> Archives:
    """Return the archives; raise if the platform has none."""
    if provider.archives is None:
        message = f"a {provider.capabilities.platform} cluster makes no topics from object storage"
        raise UserError(message, hint="Take the topics from their source: mirror them, or copy their records.")
    return provider.archives


class Groups(Protocol):
    """Consumer groups of one cluster. Offsets are keyed by (full topic name, partition)."""

    def list_names(self) -> Sequence[str]:
        """Return all group names, sorted, in one bulk call."""
        ...

    def find_platform_name(self, group: str) -> str:
        """Return the platform's name of a group, which need not exist."""
        ...

    def describe(self, group: str) -> ConsumerGroup:
        """Return a group's committed offsets, lag, and whether it is reading."""
        ...

    def list_for_topic(self, full_name: str) -> Sequence[ConsumerGroup] | None:
        """Return a topic's groups with their offsets in it; `None` if there are too many groups."""
        ...

    def find_topic_readers(self) -> Mapping[str, Sequence[str]] | None:
        """Return the reading groups by topic; `None` if there are too many groups."""
        ...

    def read_committed_offsets(self, group: str, topics: Iterable[str]) -> Mapping[tuple[str, int], int]:
        """Return committed offsets. Partitions without a commit are absent."""
        ...

    def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets for a group."""
        ...

    def plan_reset(
        self, group: str, reset: Reset, *, topic: str | None = None, partition: int | None = None
    ) -> Sequence[OffsetMove]:
        """Return what a reset would change, by default in all the group's topics. Read-only."""
        ...

    def reset_offsets(self, group: str, moves: Sequence[OffsetMove], *, force: bool = False) -> None:
        """Set a group's offsets.

        Raises:
            BlockedError: The group is reading one of the topics, and `force` is not set.
        """
        ...

    def delete(self, group: str, topic: str | None = None, *, force: bool = False) -> bool:
        """Delete a group, or its offsets of one topic; return whether any existed.

        Raises:
            BlockedError: The group is reading, and `force` is not set.
        """
        ...


W = TypeVar("W", bound="Costly")
R = TypeVar("R")


class Costly(Protocol):
    """Work with estimated costs."""

    @property
    def cost(self) -> int:
        """Estimated cost in bytes."""
        ...

    @property
    def bytes(self) -> int:
        """Stored size in bytes that the work reads."""
        ...


class WorkRunner(Protocol):
    """Runner of work in threads or on executors, which yields results in rounds."""

    def __call__(self, work: Sequence[W], do: Callable[[Sequence[W]], Iterable[R]]) -> Iterator[Sequence[R]]:
        """Run all work, and yield rounds of results, which the caller publishes. `do` and the work are pickled.

        Raises:
            ReconcilerError: The work cannot continue; yielded results remain valid.
        """
        ...


@dataclass(frozen=True, slots=True)
class MaintenancePorts:
    """Inputs of a cluster's maintenance jobs."""

    spread: WorkRunner
    is_wanted: Callable[[Address], bool]
    is_stopped: Callable[[], bool]
    is_requested: bool = True
    """Whether a user waits. Otherwise expensive searches run less often."""
    are_jobs_named: bool = False
    """Whether the user named the jobs, so daily jobs run at once."""


@dataclass(frozen=True, slots=True)
class MaintenanceJobResult:
    """Result of one maintenance job on one cluster."""

    unit: str = ""
    """Unit of `done` and `failed`: partition, topic, transaction or object. Empty if there was no work."""
    done: int = 0
    records: int = 0
    """Records that retention or compaction removed or a roll rewrote."""
    bytes: int = 0
    """Stored bytes of `records`; for a sweep, deleted bytes."""
    failed: int = 0
    errors: tuple[ReconcilerError, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    """Counters of object storage by name (`vitals.COUNTER_HELP`)."""
    levels: Mapping[str, float] = field(default_factory=dict)
    """Gauges after the job by name (`vitals.LEVELS`)."""
    notes: tuple[str, ...] = ()
    """Work that no number shows, one sentence each."""


def build_scope_filter(scope: Scope) -> Callable[[str], bool] | None:
    """Return a predicate on addresses in scope; `None` for everything."""
    if not scope.patterns:
        return None
    names = frozenset(pattern for pattern in scope.patterns if "*" not in pattern)
    patterns = [pattern for pattern in scope.patterns if "*" in pattern]
    return lambda address: address in names or any(matches_pattern(pattern, address) for pattern in patterns)
