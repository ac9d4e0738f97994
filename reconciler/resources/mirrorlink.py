"""MirrorLink: keeps topics of its cluster equal to those of another; mirror topics are derived from it."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from reconciler.resources.acls import folded
from reconciler.resources.address import Address, address_of, join_name, split_name
from reconciler.resources.base import Complaint, DurationMs, Flag, Many, Model, refusal
from reconciler.resources.configs import Configs
from reconciler.resources.linksyncs import AclSyncSpec, AutoCreateSpec, ConsumerOffsetSyncSpec, TopicConfigSyncSpec
from reconciler.resources.metadata import OnCluster
from reconciler.resources.mirrortopic import MirrorState, MirrorTopic
from reconciler.resources.namefilters import is_never_mirrored
from reconciler.resources.names import MAX_NAME, FullName, PlainName
from reconciler.resources.syncedconfigs import SYNCED_BY_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MirrorLink", "MirrorLinkSpec", "MirrorState", "MirrorTopic", "MirrorTopicSpec"]

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
    """One topic the link mirrors, and the role wanted of it."""

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
    """What is declared of a link."""

    source: PlainName = Field(description="The Cluster records come from.", examples=["west"])
    mode: Annotated[Literal["destination", "source", "bidirectional"], BeforeValidator(folded)] = Field(
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
        default=None, description="Mirrors made by the link itself.", examples=[{"enabled": False}]
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
    metadata_interval: DurationMs = Field(
        default=300_000, description="How often the link looks for new topics and configs.", examples=["5m"]
    )
    mirror_topics: Many[MirrorTopicSpec] = Field(
        default=(), description="The topics mirrored by name.", examples=[[{"source": "shop:eu:orders"}]]
    )
    moved_from: PlainName | None = Field(
        default=None, description="The name it had before; may stay for ever.", examples=["from-old-west"]
    )

    @model_validator(mode="after")
    def _consistent(self) -> MirrorLinkSpec:
        wrong = [*self._clashes(), *self._repeated_mirrors()]
        for position, mirror in enumerate(self.mirror_topics):
            wrong += self._mirror_complaints(mirror, ("mirrorTopics", position))
        if wrong:
            raise refusal(*wrong)
        return self

    def _clashes(self) -> Iterator[Complaint]:
        if self.prefix and self.acl_sync is not None and self.acl_sync.enabled:
            yield Complaint(
                "a link with a prefix cannot sync ACLs: they would name other topics",
                hint="Leave out prefix or aclSync",
                at=("prefix",),
            )
        groups = self.consumer_offset_sync
        if self.mode == "bidirectional" and groups is not None and groups.prefix_groups:
            yield Complaint(
                "a bidirectional link cannot prefix groups",
                hint="Leave out prefixGroups, or use two links",
                at=("consumerOffsetSync", "prefixGroups"),
            )

    def _repeated_mirrors(self) -> Iterator[Complaint]:
        first: dict[str, int] = {}
        for position, mirror in enumerate(self.mirror_topics):
            if (earlier := first.setdefault(mirror.source, position)) != position:
                yield Complaint(
                    f"{mirror.source} is mirrored already, by mirrorTopics[{earlier}]",
                    hint="Keep one of the entries",
                    at=("mirrorTopics", position, "source"),
                )

    def _mirror_complaints(self, mirror: MirrorTopicSpec, at: tuple[str, int]) -> Iterator[Complaint]:
        yield from self._name_complaints(mirror.source, (*at, "source"))
        if mirror.state == "reversed" and self.prefix and self.mode == "bidirectional":
            yield Complaint(
                "a mirror of a link with a prefix cannot be reversed: its source has another name",
                hint="Leave the prefix out, or link the other way",
                at=(*at, "state"),
            )
        if mirror.state == "reversed" and self.mode != "bidirectional":
            yield Complaint(
                f"a mirror of a {self.mode} link cannot be reversed",
                hint="Make the link with `mode: bidirectional`, or link the other way",
                at=(*at, "state"),
            )
        yield from self._config_complaints(mirror, at)

    def _name_complaints(self, source: str, at: tuple[str, int, str]) -> Iterator[Complaint]:
        if is_never_mirrored(source):
            yield Complaint(
                f"{source} is the platform's own: it is never mirrored",
                hint="Remove the entry: each cluster keeps such topics for itself",
                at=at,
            )
        name = len(self.prefix) + len(source)
        if name > MAX_NAME:
            yield Complaint(
                f"with the prefix {self.prefix!r} its mirror would have a name of {name} characters, and {MAX_NAME} "
                "are the most",
                hint="Shorten the prefix, or mirror it over a link without one",
                at=at,
            )

    def _config_complaints(self, mirror: MirrorTopicSpec, at: tuple[str, int]) -> Iterator[Complaint]:
        synced = SYNCED_BY_DEFAULT if self.topic_config_sync is None else self.topic_config_sync.include
        for key in sorted(mirror.configs.keys() & set(synced)):
            yield Complaint(
                "is synced from the source and cannot be set on the mirror",
                hint="Set it on the source topic, or leave it out of topicConfigSync.include",
                at=(*at, "configs", key),
            )


class MirrorLink(Model):
    """A link that keeps topics of its cluster equal to those of another. Lives on its destination cluster."""

    api_version: Literal["reconciler/v1"] = Field(default="reconciler/v1", description="Form of this document.")
    kind: Literal["MirrorLink"] = Field(default="MirrorLink", description="What this document declares.")
    metadata: OnCluster = Field(description="Its name, and the cluster the mirrors live on.")
    spec: MirrorLinkSpec = Field(description="What it mirrors, and how.")

    @model_validator(mode="after")
    def _two_clusters(self) -> MirrorLink:
        if self.spec.source == self.metadata.cluster:
            raise refusal(
                Complaint(
                    f"a link cannot mirror cluster {self.spec.source} to itself",
                    hint="Name the cluster the records come from",
                    at=("spec", "source"),
                )
            )
        return self

    @property
    def address(self) -> Address:
        """Its lifelong name."""
        return address_of("link", self.metadata.cluster, self.metadata.name)

    @property
    def cluster(self) -> str:
        """The destination cluster, on which it lives."""
        return self.metadata.cluster

    def mirrors(self) -> tuple[MirrorTopic, ...]:
        """Return the mirror topics its entries stand for, in the order of the entries."""
        return tuple(self._mirror(entry) for entry in self.spec.mirror_topics)

    def _mirror(self, entry: MirrorTopicSpec) -> MirrorTopic:
        namespace, name = split_name(entry.source)
        return MirrorTopic(
            cluster=self.metadata.cluster,
            link=self.metadata.name,
            source_cluster=self.spec.source,
            source=entry.source,
            # The prefix goes before the topic's own name, the namespace stays.
            name=join_name(namespace, self.spec.prefix + name),
            state=entry.state,
            configs=entry.configs,
        )
