"""JSON of the mount commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.cli.json.base import JsonForm, define_document
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
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.operations.mirrors.link_views import LinkList
    from reconciler.operations.mirrors.mirror_views import MirrorErrors, MirrorList


@dataclass(frozen=True, slots=True)
class Unread:
    """A cluster that could not be read."""

    cluster: str
    problem: str


def list_unread(answer: MountList | MountStatus | MirrorList | MirrorErrors | LinkList) -> tuple[Unread, ...]:
    """Return the clusters that could not be read, sorted."""
    return tuple(Unread(name, answer.lost[name].message) for name in sorted(answer.lost))


def _read_row_namespace(row: MountRow) -> str:
    """Namespace in the topic's name; empty for the default namespace."""
    return split_name(row.name)[0]


def _read_namespace(topic: Migrant) -> str:
    """Namespace in the topic's name; empty for the default namespace."""
    return split_name(topic.full_name)[0]


_MOUNT: Final = JsonForm(
    MountRow,
    (
        "location",
        "name",
        ("namespace", _read_row_namespace),
        "state",
        "owner",
        "owner_cluster=owner_name",
        "partitions",
        "records",
        "bytes",
        "since_ms",
        "storage",
        "clusters",
        ("migrations", JsonForm(ClusterMigration, ("cluster", "migration.id", "state"))),
    ),
)
_TOPIC: Final = JsonForm(
    Migrant, ("name=full_name", ("namespace", _read_namespace), "location", "mounting", "partitions")
)
_MIGRATION: Final = JsonForm(
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
MOUNTS: Final = define_document(
    "reconciler.mounts/1",
    MountList,
    ("topics=rows", _MOUNT),
    ("damaged", JsonForm(DamagedRegister, ("storage", "key", "problem=error"))),
    ("unread", list_unread),
)
MOUNT_STATUS: Final = define_document(
    "reconciler.mount-status/1", MountStatus, ("migrations", _MIGRATION), ("unread", list_unread)
)
MIGRATION: Final = define_document("reconciler.migration/1", ClusterMigration, ("migration=.", _MIGRATION))
MOUNT_RELEASE: Final = define_document(
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
