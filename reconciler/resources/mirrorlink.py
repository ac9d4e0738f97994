"""MirrorLink, and the MirrorTopic derived from each entry of its `mirrorTopics`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from reconciler.resources.acls import folded
from reconciler.resources.address import Address, address_of, join_name, split_name
from reconciler.resources.base import Count, DurationMs, Flag, Many, Model
from reconciler.resources.configs import Configs
from reconciler.resources.metadata import OnCluster
from reconciler.resources.names import FullName, PlainName

MirrorState = Annotated[Literal["mirroring", "paused", "promoted", "failed-over", "reversed"], BeforeValidator(folded)]


class NameFilter(Model):
    """Which names a link takes or leaves; exclude wins."""

    name: str
    pattern_type: Annotated[Literal["literal", "prefixed"], BeforeValidator(folded)] = "literal"
    filter_type: Annotated[Literal["include", "exclude"], BeforeValidator(folded)] = "include"


class AutoCreateSpec(Model):
    """Mirrors made by the link itself."""

    enabled: Flag = False
    filters: Many[NameFilter] = ()


class ConsumerOffsetSyncSpec(Model):
    """Consumer groups that follow their topics."""

    enabled: Flag = False
    interval: DurationMs = 30_000
    filters: Many[NameFilter] = ()
    prefix_groups: Flag = False


class AclFilter(Model):
    """Which ACLs a link copies."""

    resource_type: str = "any"
    resource_name: str = "*"
    pattern_type: str = "any"
    principal: str = "*"
    host: str = "*"
    operation: str = "any"
    permission: str = "any"


class AclSyncSpec(Model):
    """ACLs that follow their topics."""

    enabled: Flag = False
    filters: Many[AclFilter] = ()


class TopicConfigSyncSpec(Model):
    """The complete list of synced configs; absent: the platform's default list."""

    include: Many[str]


class MirrorTopicSpec(Model):
    """One topic the link mirrors, and the role wanted of it."""

    source: FullName = Field(description="Full name on the source cluster.", examples=["shop:eu:orders"])
    state: MirrorState = "mirroring"
    configs: Configs = Field(default_factory=dict, description="Only configs that are not synced.")


class MirrorLinkSpec(Model):
    """What is declared of a link."""

    source: PlainName = Field(description="The Cluster records come from.", examples=["west"])
    mode: Annotated[Literal["destination", "source", "bidirectional"], BeforeValidator(folded)] = "destination"
    prefix: str = Field(default="", pattern=r"^[a-zA-Z0-9._-]{0,12}$", description="Before each mirror's own name.")
    paused: Flag = False
    start_offset: str = Field(default="earliest", description="earliest, latest or an ISO 8601 time.")
    retry_timeout: DurationMs = 300_000
    auto_create: AutoCreateSpec | None = None
    consumer_offset_sync: ConsumerOffsetSyncSpec | None = None
    acl_sync: AclSyncSpec | None = None
    topic_config_sync: TopicConfigSyncSpec | None = None
    metadata_interval: DurationMs = 300_000
    mirror_topics: Many[MirrorTopicSpec] = ()
    moved_from: PlainName | None = None

    @field_validator("mirror_topics", mode="after")
    @classmethod
    def _each_once(cls, mirrors: tuple[MirrorTopicSpec, ...]) -> tuple[MirrorTopicSpec, ...]:
        sources = [mirror.source for mirror in mirrors]
        twice = sorted({source for source in sources if sources.count(source) > 1})
        if twice:
            message = f"named twice: {', '.join(twice)}"
            raise ValueError(message)
        return mirrors


class MirrorLink(Model):
    """A link that keeps topics of its cluster equal to those of another."""

    api_version: Literal["reconciler/v1"] = "reconciler/v1"
    kind: Literal["MirrorLink"] = "MirrorLink"
    metadata: OnCluster
    spec: MirrorLinkSpec

    @property
    def address(self) -> Address:
        """Its lifelong name."""
        return address_of("link", self.metadata.cluster, self.metadata.name)

    @property
    def cluster(self) -> str:
        """The destination cluster, on which it lives."""
        return self.metadata.cluster

    def mirrors(self) -> tuple[MirrorTopic, ...]:
        """Return the mirror topics its entries stand for."""
        return tuple(MirrorTopic.of(self, entry) for entry in self.spec.mirror_topics)


class MirrorTopic(Model):
    """A read-only copy of a topic, made by a link; derived, never a manifest of its own."""

    kind: Literal["MirrorTopic"] = "MirrorTopic"
    cluster: PlainName
    link: PlainName
    source_cluster: PlainName
    source: FullName
    name: FullName = Field(description="Full name on the destination, prefix included.")
    state: MirrorState = "mirroring"
    configs: Configs = Field(default_factory=dict)
    partitions: Count | None = Field(
        default=None, description="The source's, told to the destination when the mirror is made; never declared."
    )

    @classmethod
    def of(cls, link: MirrorLink, entry: MirrorTopicSpec) -> MirrorTopic:
        """Derive it from an entry: the prefix goes before the topic's own name, the namespace stays."""
        namespace, name = split_name(entry.source)
        return cls(
            cluster=link.metadata.cluster,
            link=link.metadata.name,
            source_cluster=link.spec.source,
            source=entry.source,
            name=join_name(namespace, link.spec.prefix + name),
            state=entry.state,
            configs=entry.configs,
        )

    @property
    def full_name(self) -> str:
        """Full name on the destination."""
        return self.name

    @property
    def address(self) -> Address:
        """Its lifelong name."""
        return address_of("mirror", self.cluster, self.name)
