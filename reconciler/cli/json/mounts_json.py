"""JSON of the mount commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from reconciler.cli.json.base import Document, Part
from reconciler.lifecycles import MigrationState
from reconciler.operations.clusters.mounts import (
    DamagedRegister,
    MountableState,
    MountList,
    MountRow,
    MountStatus,
    Release,
    Underway,
)
from reconciler.resources.address import split_name
from reconciler.resources.mount import Direction, Migrant

if TYPE_CHECKING:
    from reconciler.errors import ReconcilerError


_NAMESPACE = "That of its name. Empty: the default namespace."
_LOCATION = "<topic>/<cluster uuid>/<initial revision>, for life."
_UNKNOWN = "When it was detached last. Null: it never was."


class MovingPart(Part):
    """A migration that has a topic."""

    cluster: str
    id: int
    state: MigrationState

    @classmethod
    def of(cls, underway: Underway) -> MovingPart:
        """Say which."""
        return cls.from_record(underway, id=underway.migration.id)


class MountPart(Part):
    """One location in object storage."""

    location: str = Field(description=_LOCATION)
    name: str = Field(description="What its owner calls it; of a mountable one, the name it was made with.")
    namespace: str = Field(description=_NAMESPACE)
    state: MountableState
    owner: str | None = Field(description="Id of the cluster that owns it or is mounting it. Null: no cluster owns it.")
    owner_cluster: str | None = Field(description="What the workspace calls the owner. Null: it is not one of it.")
    partitions: int | None = Field(description="Null: not known.")
    records: int | None = Field(description=_UNKNOWN)
    bytes: int | None = Field(description=_UNKNOWN)
    since_ms: int | None = Field(description="Null: since it was made.")
    storage: str
    clusters: tuple[str, ...] = Field(description="Those of the workspace that share the object storage.")
    migrations: tuple[MovingPart, ...]

    @classmethod
    def of(cls, row: MountRow) -> MountPart:
        """Say all of it."""
        return cls.from_record(
            row,
            namespace=split_name(row.name)[0],
            owner_cluster=row.owner_name,
            migrations=tuple(map(MovingPart.of, row.migrations)),
        )


class DamagedPart(Part):
    """A register that does not say who owns a topic."""

    storage: str
    key: str
    problem: str

    @classmethod
    def of(cls, damaged: DamagedRegister) -> DamagedPart:
        """Say which, and why."""
        return cls.from_record(damaged, problem=damaged.error.message)


class UnreadPart(Part):
    """A cluster of which nothing is known."""

    cluster: str
    problem: str


class MountsDocument(Document):
    """What can be mounted, is mounted, or is on its way, by location."""

    format: Literal["reconciler.mounts/1"] = "reconciler.mounts/1"
    topics: tuple[MountPart, ...]
    damaged: tuple[DamagedPart, ...]
    unread: tuple[UnreadPart, ...]

    @classmethod
    def of(cls, found: MountList) -> MountsDocument:
        """Say everything."""
        return cls(
            topics=tuple(map(MountPart.of, found.rows)),
            damaged=tuple(map(DamagedPart.of, found.damaged)),
            unread=unread_parts(found.lost),
        )


class MigrantPart(Part):
    """One topic of a migration."""

    name: str = Field(validation_alias="full_name")
    namespace: str = Field(description=_NAMESPACE)
    location: str = Field(description=_LOCATION)
    mounting: str | None = Field(description="The Mounting that asked for it. Null: it was asked for by hand.")
    partitions: int | None = Field(description="Null: it is not on the cluster.")

    @classmethod
    def of(cls, topic: Migrant) -> MigrantPart:
        """Say which."""
        return cls.from_record(topic, namespace=split_name(topic.full_name)[0])


class MigrationPart(Part):
    """One migration."""

    cluster: str
    id: int = Field(description="Of that cluster: another one counts its own.")
    direction: Direction = Field(description="inbound: a mount; outbound: an unmount.")
    state: MigrationState
    topics: tuple[MigrantPart, ...]
    created_ms: int
    completed_ms: int | None = Field(description="Null: it has not come to an end.")
    bytes_left: int | None = Field(description="Stored bytes still to be uploaded. Null: nothing is.")
    automatic: bool = Field(
        validation_alias="is_automatic", description="Whether it continues by itself from state to state."
    )
    waits: tuple[str, ...] = Field(description="What keeps it from going on, as far as a look tells.")
    legal: tuple[str, ...] = Field(description="The verbs that may be asked for in its state.")

    @classmethod
    def of(cls, underway: Underway) -> MigrationPart:
        """Say all of it."""
        found = underway.migration
        return cls.from_record(
            found,
            cluster=underway.cluster,
            state=underway.state,
            topics=tuple(map(MigrantPart.of, found.topics)),
            legal=underway.legal,
        )


class MountStatusDocument(Document):
    """The migrations there is a record of; one that is done has none."""

    format: Literal["reconciler.mount-status/1"] = "reconciler.mount-status/1"
    migrations: tuple[MigrationPart, ...]
    unread: tuple[UnreadPart, ...]

    @classmethod
    def of(cls, found: MountStatus) -> MountStatusDocument:
        """Say everything."""
        return cls(migrations=tuple(map(MigrationPart.of, found.migrations)), unread=unread_parts(found.lost))


class MigrationDocument(Document):
    """A migration that was cancelled or deleted, as it is after that."""

    format: Literal["reconciler.migration/1"] = "reconciler.migration/1"
    migration: MigrationPart

    @classmethod
    def of(cls, underway: Underway) -> MigrationDocument:
        """Say all of it."""
        return cls(migration=MigrationPart.of(underway))


class MountReleaseDocument(Document):
    """A topic that was taken from its owner, and is mountable now."""

    format: Literal["reconciler.mount-release/1"] = "reconciler.mount-release/1"
    location: str = Field(description=_LOCATION)
    name: str = Field(description="What its owner called it.")
    owner: str = Field(description="Id of the cluster that had it.")
    partitions: int
    records: int = Field(description="In object storage; what its owner had not uploaded is lost.")
    bytes: int
    clusters: tuple[str, ...] = Field(description="Those of the workspace that share the object storage.")

    @classmethod
    def of(cls, release: Release) -> MountReleaseDocument:
        """Say what there is."""
        return cls.from_record(release.topic, owner=release.owner, clusters=release.clusters)


def unread_parts(lost: Mapping[str, ReconcilerError]) -> tuple[UnreadPart, ...]:
    """Say what is not known, by cluster."""
    return tuple(UnreadPart(cluster=name, problem=lost[name].message) for name in sorted(lost))
