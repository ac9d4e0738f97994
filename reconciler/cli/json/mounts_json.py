"""JSON of the mount commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.cli.json.base import Form, document
from reconciler.operations.clusters.mounts import (
    ClusterMigration,
    DamagedRegister,
    MountList,
    MountRow,
    MountStatus,
    Release,
)
from reconciler.resources.address import split_name
from reconciler.resources.mount import Migrant

if TYPE_CHECKING:
    from reconciler.operations.mirrors.link_views import LinkList
    from reconciler.operations.mirrors.mirror_views import MirrorErrors, MirrorList


@dataclass(frozen=True, slots=True)
class Unread:
    """A cluster that could not be read."""

    cluster: str
    problem: str


def unread(answer: MountList | MountStatus | MirrorList | MirrorErrors | LinkList) -> tuple[Unread, ...]:
    """Return the clusters that could not be read, sorted."""
    return tuple(Unread(name, answer.lost[name].message) for name in sorted(answer.lost))


def _namespace_of_row(row: MountRow) -> str:
    """Namespace in the topic's name. Empty: the default namespace."""
    return split_name(row.name)[0]


def _namespace(topic: Migrant) -> str:
    """Namespace in the topic's name. Empty: the default namespace."""
    return split_name(topic.full_name)[0]


_MOUNT: Final = Form(
    MountRow,
    (
        "location",
        "name",
        ("namespace", _namespace_of_row),
        "state",
        "owner",
        "owner_cluster=owner_name",
        "partitions",
        "records",
        "bytes",
        "since_ms",
        "storage",
        "clusters",
        ("migrations", Form(ClusterMigration, ("cluster", "migration.id", "state"))),
    ),
)
_TOPIC: Final = Form(Migrant, ("name=full_name", ("namespace", _namespace), "location", "mounting", "partitions"))
_MIGRATION: Final = Form(
    ClusterMigration,
    (
        "cluster",
        "migration.id",
        "migration.direction",
        "state",
        ("migration.topics", _TOPIC),
        "migration.created_ms",
        "migration.completed_ms",
        "migration.bytes_left",
        "migration.is_automatic",
        "migration.waits",
        "legal",
    ),
)
MOUNTS: Final = document(
    "reconciler.mounts/1",
    MountList,
    ("topics=rows", _MOUNT),
    ("damaged", Form(DamagedRegister, ("storage", "key", "problem=error"))),
    ("unread", unread),
)
MOUNT_STATUS: Final = document("reconciler.mount-status/1", MountStatus, ("migrations", _MIGRATION), ("unread", unread))
MIGRATION: Final = document("reconciler.migration/1", ClusterMigration, ("migration=.", _MIGRATION))
MOUNT_RELEASE: Final = document(
    "reconciler.mount-release/1",
    Release,
    "topic.location",
    "topic.name",
    "owner",
    "topic.partitions",
    "topic.records",
    "topic.bytes",
    "clusters",
)
