"""The MirrorLink and MirrorTopic kinds, and the filters that select mirrored topics.

`*` matches every name. Exclusions win. Names without a match are excluded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Annotated, Final, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from reconciler.resources.acls import fold_case
from reconciler.resources.address import MAX_NAME, Address, address_of, join_name, split_name
from reconciler.resources.base import (
    KEPT,
    Count,
    DurationMs,
    FieldProblem,
    Flag,
    FullName,
    Many,
    Model,
    OnCluster,
    PlainName,
    build_refusal_error,
)
from reconciler.resources.configs import Configs
from reconciler.resources.kafka_configs import is_internal
from reconciler.runtime.text import pluralize

AUDIT_LOG: Final = "confluent-audit-log-events"
SCHEMAS: Final = "_schemas"
TIMESTAMPS: Final = "__consumer_timestamps"
_PLATFORM_PREFIXES: Final = ("_confluent", "__confluent", "_redpanda", "__redpanda")
_TOOL_PREFIXES: Final = ("__", "mm2-")
_TOOL_SUFFIXES: Final = (".heartbeats", ".checkpoints.internal")
"""Suffixes of MirrorMaker's topics, which also have the name `heartbeats`."""


def filters_include(filters: Iterable[NameFilter], name: str) -> bool:
    """Return whether filters include a topic or group of this full name."""
    matching = {name_filter.filter_type for name_filter in filters if matches_filter(name_filter, name)}
    return matching == {"include"}


def matches_filter(name_filter: NameFilter, name: str) -> bool:
    """Return whether a filter matches a name, to include or to exclude it."""
    if name_filter.pattern_type == "prefixed":
        return name.startswith(name_filter.name)
    return name_filter.name in {"*", name}


def is_never_mirrored(full_name: str) -> bool:
    """Return whether a topic is internal to the platform, or its audit log."""
    name = split_name(full_name)[1]
    return is_internal(name) or name.startswith(_PLATFORM_PREFIXES) or name in {AUDIT_LOG, TIMESTAMPS}


def is_never_auto_created(full_name: str) -> bool:
    """Return whether auto-create never mirrors a topic. Only a declared mirror copies schema topics."""
    return is_never_mirrored(full_name) or split_name(full_name)[1] == SCHEMAS


def is_auto_created(filters: Iterable[NameFilter], full_name: str) -> bool:
    """Return whether a link with these filters creates a mirror of a topic."""
    filters = tuple(filters)
    is_taken = filters_include(filters, full_name) and not is_never_auto_created(full_name)
    return is_taken and not is_excluded_by_default(filters, full_name)


def is_excluded_by_default(filters: Iterable[NameFilter], full_name: str) -> bool:
    """Return whether a topic has a name of MirrorMaker's topics, and only `*` includes it."""
    name = split_name(full_name)[1]
    if not (name.startswith(_TOOL_PREFIXES) or f".{name}".endswith(_TOOL_SUFFIXES)):
        return False
    return not any(
        name_filter.filter_type == "include" and name_filter.name != "*" and matches_filter(name_filter, full_name)
        for name_filter in filters
    )


ALWAYS_SYNCED: Final = (
    "cleanup.policy",
    "max.message.bytes",
    "message.timestamp.difference.max.ms",
    "message.timestamp.type",
)
"""Configs that every link syncs from the source."""

SYNCED_BY_DEFAULT: Final = (
    *ALWAYS_SYNCED,
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
)

NEVER_SYNCED: Final = (
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "redpanda.leaders.preference",
    "redpanda.storage.mode",
    "redpanda.storage.mode.impl",
    "redpanda.virtual.cluster.id",
    "replication.factor",
)
"""Configs of the destination, never synced."""

_TIER_PREFIXES: Final = (
    "confluent.placement.",
    "confluent.tier.",
    "initial.retention.local.",
    "local.retention.",
    "redpanda.remote.",
    "remote.",
    "retention.local.",
)


def is_never_synced(key: str) -> bool:
    """Return whether a config belongs to the destination, such as local retention."""
    return key in NEVER_SYNCED or key.startswith(_TIER_PREFIXES)


MirrorState = Annotated[
    Literal["mirroring", "paused", "promoted", "failed-over", "reversed"], BeforeValidator(fold_case)
]


class MirrorTopic(Model):
    """Read-only copy of a topic, derived from its declared link."""

    kind: Literal["MirrorTopic"] = "MirrorTopic"
    cluster: PlainName = Field(description="The destination cluster, on which it lives.")
    link: PlainName = Field(description="The link that makes it.")
    source_cluster: PlainName = Field(description="The cluster its records come from.")
    source: FullName = Field(description="Full name on the source cluster.")
    name: FullName = Field(description="Full name on the destination, prefix included.")
    state: MirrorState = Field(default="mirroring", description="The role wanted of it.")
    configs: Configs = Field(default_factory=dict, description="Its own configs, none of which is synced.")
    denied: Many[str] = Field(
        default=(), description="Principals that its link keeps from writing to it (`protect: acl`); never declared."
    )
    partitions: Count | None = Field(
        default=None, description="The source's, told to the destination when the mirror is made; never declared."
    )

    @property
    def full_name(self) -> str:
        """Full name on the destination."""
        return self.name

    @property
    def address(self) -> Address:
        """Address of the mirror, by cluster and full name."""
        return address_of("mirror", self.cluster, self.name)


SYNC_MS: Final = 5_000
"""Default interval in ms for syncing configs and access rules."""
_MIN_SYNC_MS: Final = 1_000


def _check_interval(interval_ms: int) -> int:
    if interval_ms < _MIN_SYNC_MS:
        message = f"{interval_ms} ms is less than the 1s between two syncs"
        raise ValueError(message)
    return interval_ms


class NameFilter(Model):
    """Filter that includes or excludes names."""

    name: str = Field(min_length=1, description="A name, a prefix, or `*` for all.", examples=["*", "shop:eu:"])
    pattern_type: Annotated[Literal["literal", "prefixed"], BeforeValidator(fold_case)] = Field(
        default="literal", description="Whether `name` is the whole name or its beginning.", examples=["prefixed"]
    )
    filter_type: Annotated[Literal["include", "exclude"], BeforeValidator(fold_case)] = Field(
        default="include", description="Take these names, or leave them; exclude wins.", examples=["include"]
    )


class AutoCreateSpec(Model):
    """Automatic creation of mirrors by the link."""

    enabled: Flag = Field(default=False, description="Make mirrors of topics that the filters take.", examples=[True])
    filters: Many[NameFilter] = Field(
        default=(),
        description="Which topics; required when enabled. `*` leaves out names of MirrorMaker's topics, such as "
        "`heartbeats`: name them, or a prefix of them.",
        examples=[[{"name": "*"}]],
    )

    @model_validator(mode="after")
    def _check_filters(self) -> AutoCreateSpec:
        _require_filters(is_enabled=self.enabled, filters=self.filters)
        return _clear_filters(self)


class ConsumerOffsetSyncSpec(Model):
    """Consumer groups whose offsets the link syncs."""

    enabled: Flag = Field(default=False, description="Copy committed offsets to the mirrors.", examples=[True])
    interval: DurationMs = Field(default=30_000, description="How often.", examples=["30s"])
    filters: Many[NameFilter] = Field(
        default=(), description="Which groups; required when enabled.", examples=[[{"name": "*"}]]
    )
    prefix_groups: Flag = Field(
        default=False, description="Put the link's prefix before group names, too.", examples=[False]
    )

    @model_validator(mode="after")
    def _check_filters(self) -> ConsumerOffsetSyncSpec:
        _require_filters(is_enabled=self.enabled, filters=self.filters)
        return _clear_filters(self)


class AclFilter(Model):
    """Filter of the ACLs to copy. An absent field matches anything."""

    resource_type: str = Field(default="any", description="Kind of resource.", examples=["topic"])
    resource_name: str = Field(default="*", description="Its name.", examples=["shop:eu:orders"])
    pattern_type: str = Field(default="any", description="How the ACL names it.", examples=["literal"])
    principal: str = Field(default="*", description="Whom it is about.", examples=["User:checkout"])
    host: str = Field(default="*", description="The host it holds for.", examples=["*"])
    operation: str = Field(default="any", description="What it is about.", examples=["read"])
    permission: str = Field(default="any", description="Whether it allows or denies.", examples=["allow"])


class AclSyncSpec(Model):
    """ACLs that the link syncs."""

    enabled: Flag = Field(default=False, description="Copy ACLs to this cluster.", examples=[True])
    interval: Annotated[DurationMs, AfterValidator(_check_interval)] = Field(
        default=SYNC_MS, description="How often; at least 1s.", examples=["5s"]
    )
    filters: Many[AclFilter] = Field(
        default=(), description="Which ACLs; required when enabled.", examples=[[{"resourceType": "topic"}]]
    )

    @model_validator(mode="after")
    def _check_filters(self, info: ValidationInfo) -> AclSyncSpec:
        # A link read from a cluster may lack filters; its task then reports MISCONFIGURATION_ERROR.
        if info.context != KEPT:
            _require_filters(is_enabled=self.enabled, filters=self.filters, everything="{resourceType: any}")
        return self


class TopicConfigSyncSpec(Model):
    """Configs that the link syncs, and at which interval."""

    interval: Annotated[DurationMs, AfterValidator(_check_interval)] = Field(
        default=SYNC_MS, description="How often; at least 1s.", examples=["5s"]
    )
    include: Many[str] = Field(
        default=SYNCED_BY_DEFAULT,
        validate_default=True,  # Sorts the default like a declared list, so both are equal.
        description="Every config that follows the source: what is left out is not synced.",
        examples=[list(SYNCED_BY_DEFAULT)],
    )

    @field_validator("include", mode="after")
    @classmethod
    def _check_include(cls, include: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        missing = [key for key in ALWAYS_SYNCED if key not in include]
        never = [key for key in include if is_never_synced(key)]
        if missing:
            raise build_refusal_error(
                FieldProblem(
                    f"leaves out what is always synced: {', '.join(missing)}",
                    hint="The list is complete: add them, or leave topicConfigSync out for the default list",
                )
            )
        if never and info.context != KEPT:
            raise build_refusal_error(
                FieldProblem(
                    f"names what is never synced: {', '.join(never)}", hint="Set it on the mirror's own configs"
                )
            )
        return tuple(sorted(set(include)))


S = TypeVar("S", AutoCreateSpec, ConsumerOffsetSyncSpec)


def _clear_filters(spec: S) -> S:
    """Clear the filters of a disabled task, which cause no change."""
    if not spec.enabled and spec.filters:
        object.__setattr__(spec, "filters", ())
    return spec


def _require_filters(*, is_enabled: bool, filters: tuple[object, ...], everything: str = '{name: "*"}') -> None:
    if is_enabled and not filters:
        raise build_refusal_error(
            FieldProblem(
                "are required where enabled is true",
                hint=f"To take everything, write `filters: [{everything}]`",
                at=("filters",),
            )
        )


_PREFIX: Final = re.compile(r"[a-zA-Z0-9._-]{0,12}")


def _check_prefix(prefix: str) -> str:
    if not _PREFIX.fullmatch(prefix):
        message = "not a prefix: up to 12 of [a-zA-Z0-9._-]"
        raise ValueError(message)
    return prefix


def _check_start(start: str) -> str:
    if start.lower() in {"earliest", "latest"}:
        return start.lower()
    try:
        datetime.fromisoformat(start)
    except ValueError as error:
        message = "not earliest, latest or a time such as 2026-01-31T00:00:00Z"
        raise ValueError(message) from error
    return start


class MirrorTopicSpec(Model):
    """Mirrored topic and its desired role."""

    source: FullName = Field(description="Full name on the source cluster.", examples=["shop:eu:orders"])
    state: MirrorState = Field(
        default="mirroring",
        description="The role wanted: the planner finds the legal verbs from what it observes.",
        examples=["mirroring"],
    )
    configs: Configs = Field(
        default_factory=dict, description="Only configs that are not synced.", examples=[{"min.insync.replicas": 2}]
    )


class MirrorLinkSpec(Model):
    """Declared settings of a link."""

    source: PlainName = Field(description="The Cluster records come from.", examples=["west"])
    mode: Annotated[Literal["destination", "source", "bidirectional"], BeforeValidator(fold_case)] = Field(
        default="destination",
        description="Which side drives it; `bidirectional` plans a half of the same name on both. Immutable.",
        examples=["destination"],
    )
    prefix: Annotated[str, AfterValidator(_check_prefix)] = Field(
        default="",
        description="Goes before each mirror's own name, the namespace stays. Immutable.",
        examples=["west."],
        json_schema_extra={"pattern": f"^{_PREFIX.pattern}$"},
    )
    paused: Flag = Field(default=False, description="Pause every mirror of the link.", examples=[False])
    start_offset: Annotated[str, AfterValidator(_check_start)] = Field(
        default="earliest",
        description="Where new mirrors begin: earliest, latest or an ISO 8601 time.",
        examples=["earliest", "2026-01-31T00:00:00Z"],
    )
    retry_timeout: DurationMs = Field(
        default=300_000, description="After this long without success a mirror is FAILED.", examples=["5m"]
    )
    auto_create: AutoCreateSpec | None = Field(
        default=None, description="Mirrors created by the link itself.", examples=[{"enabled": False}]
    )
    consumer_offset_sync: ConsumerOffsetSyncSpec | None = Field(
        default=None, description="Consumer groups that follow their topics.", examples=[{"enabled": False}]
    )
    acl_sync: AclSyncSpec | None = Field(
        default=None, description="ACLs that follow their topics.", examples=[{"enabled": False}]
    )
    topic_config_sync: TopicConfigSyncSpec | None = Field(
        default=None,
        description="Which configs follow the source; absent: the default list.",
        examples=[{"include": list(SYNCED_BY_DEFAULT)}],
    )
    protect: Annotated[Literal["acl", "warn"], BeforeValidator(fold_case)] = Field(
        default="warn",
        description="On platforms where producers can write to mirrors: `acl` denies WRITE on each mirror to everyone "
        "whom an access rule lets write, but the link; `warn` says in plans that they can.",
        examples=["acl"],
    )
    keep_diverged: Flag | None = Field(
        default=None,
        description="Whether records that a mirror never got are kept in a topic `NAME.diverged` when its original "
        "source is restored, not given up; Kafka only.",
        examples=[True],
    )
    metadata_interval: DurationMs = Field(
        default=300_000, description="How often the link looks for new topics and configs.", examples=["5m"]
    )
    mirror_topics: Many[MirrorTopicSpec] = Field(
        default=(), description="The topics mirrored by name.", examples=[[{"source": "shop:eu:orders"}]]
    )
    moved_from: PlainName | None = Field(
        default=None,
        description="The name it has in the record, where the link itself has this one already: no platform renames a "
        "link. May stay for ever.",
        examples=["from-old-west"],
    )

    @model_validator(mode="after")
    def _check_consistency(self) -> MirrorLinkSpec:
        wrong = [*self._find_clashes(), *self._find_repeated_mirrors()]
        for position, mirror in enumerate(self.mirror_topics):
            wrong += self._check_mirror(mirror, ("mirrorTopics", position))
        if wrong:
            raise build_refusal_error(*wrong)
        return self

    def _find_clashes(self) -> Iterator[FieldProblem]:
        if self.prefix and self.acl_sync is not None and self.acl_sync.enabled:
            yield FieldProblem(
                "a link with a prefix cannot sync ACLs: they would name other topics",
                hint="Leave out prefix or aclSync",
                at=("prefix",),
            )
        groups = self.consumer_offset_sync
        if self.mode == "bidirectional" and groups is not None and groups.prefix_groups:
            yield FieldProblem(
                "a bidirectional link cannot prefix groups",
                hint="Leave out prefixGroups, or use two links",
                at=("consumerOffsetSync", "prefixGroups"),
            )

    def _find_repeated_mirrors(self) -> Iterator[FieldProblem]:
        first: dict[str, int] = {}
        for position, mirror in enumerate(self.mirror_topics):
            if (earlier := first.setdefault(mirror.source, position)) != position:
                yield FieldProblem(
                    f"{mirror.source} is mirrored already, by mirrorTopics[{earlier}]",
                    hint="Keep one of the entries",
                    at=("mirrorTopics", position, "source"),
                )

    def _check_mirror(self, mirror: MirrorTopicSpec, at: tuple[str, int]) -> Iterator[FieldProblem]:
        yield from self._check_name(mirror.source, (*at, "source"))
        if mirror.state == "reversed" and self.prefix and self.mode == "bidirectional":
            yield FieldProblem(
                "a mirror of a link with a prefix cannot be reversed: its source has another name",
                hint="Leave the prefix out, or link the other way",
                at=(*at, "state"),
            )
        if mirror.state == "reversed" and self.mode != "bidirectional":
            yield FieldProblem(
                f"a mirror of a {self.mode} link cannot be reversed",
                hint="Link the other way, or, where the platform swaps roles, make the link with `mode: bidirectional`",
                at=(*at, "state"),
            )
        yield from self._check_configs(mirror, at)

    def _check_name(self, source: str, at: tuple[str, int, str]) -> Iterator[FieldProblem]:
        if is_never_mirrored(source):
            yield FieldProblem(
                f"{source} is the platform's own: it is never mirrored",
                hint="Remove the entry: each cluster manages such topics itself",
                at=at,
            )
        name = len(self.prefix) + len(source)
        if name > MAX_NAME:
            yield FieldProblem(
                f"with the prefix {self.prefix!r} its mirror would have a name of {name} characters, and {MAX_NAME} "
                "are the most",
                hint="Shorten the prefix, or mirror it over a link without one",
                at=at,
            )

    def _check_configs(self, mirror: MirrorTopicSpec, at: tuple[str, int]) -> Iterator[FieldProblem]:
        synced = SYNCED_BY_DEFAULT if self.topic_config_sync is None else self.topic_config_sync.include
        for key in sorted(mirror.configs.keys() & set(synced)):
            yield FieldProblem(
                "is synced from the source and cannot be set on the mirror",
                hint="Set it on the source topic, or leave it out of topicConfigSync.include",
                at=(*at, "configs", key),
            )


class MirrorLink(Model):
    """Link that mirrors topics of another cluster, declared at the destination."""

    api_version: Literal["reconciler/v1"] = Field(default="reconciler/v1", description="Form of this document.")
    kind: Literal["MirrorLink"] = Field(default="MirrorLink", description="What this document declares.")
    metadata: OnCluster = Field(description="Its name, and the cluster the mirrors live on.")
    spec: MirrorLinkSpec = Field(description="What it mirrors, and how.")

    @model_validator(mode="after")
    def _check_source(self) -> MirrorLink:
        if self.spec.source == self.metadata.cluster:
            raise build_refusal_error(
                FieldProblem(
                    f"a link cannot mirror cluster {self.spec.source} to itself",
                    hint="Name the cluster the records come from",
                    at=("spec", "source"),
                )
            )
        return self

    @property
    def address(self) -> Address:
        """Address of the link, by destination cluster and name."""
        return address_of("link", self.metadata.cluster, self.metadata.name)

    @property
    def cluster(self) -> str:
        """Destination cluster."""
        return self.metadata.cluster

    def mirrors(self) -> tuple[MirrorTopic, ...]:
        """Return the declared mirrors."""
        return tuple(self._make_mirror(entry) for entry in self.spec.mirror_topics)

    def _make_mirror(self, entry: MirrorTopicSpec) -> MirrorTopic:
        namespace, name = split_name(entry.source)
        return MirrorTopic(
            cluster=self.metadata.cluster,
            link=self.metadata.name,
            source_cluster=self.spec.source,
            source=entry.source,
            name=join_name(namespace, self.spec.prefix + name),
            state=entry.state,
            configs=entry.configs,
        )


def explain_fewer_partitions(topic: tuple[str, str], needed: int, mirror: tuple[str, str], has: int) -> str:
    """Explain why a topic (cluster, full name) cannot be restored: its mirror has fewer partitions."""
    what = f"topic {topic[1]} of cluster {topic[0]} cannot be restored from {mirror[1]} of cluster {mirror[0]}"
    return f"{what}: it has {pluralize(needed, 'partition')}, and {mirror[1]} {has:,}"
