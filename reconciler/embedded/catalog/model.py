"""Entries of the catalog.

A missing JSON key means the default. New keys need a new format version, since older writers drop them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reconciler.resources.mirrors import MirrorEntry, Trouble
from reconciler.runtime.dataclass import dataclass, field

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ClusterEntry:
    """Cluster properties, and the id of the cluster's object storage."""

    properties: Mapping[str, str] = field(default_factory=dict)
    storage_id: str | None = None

    def to_json(self) -> Json:
        """Convert to JSON."""
        document: Json = {}
        if self.properties:
            document["properties"] = dict(self.properties)
        if self.storage_id is not None:
            document["storage_id"] = self.storage_id
        return document

    @classmethod
    def from_json(cls, document: Json) -> ClusterEntry:
        """Parse JSON."""
        return cls(document.get("properties", {}), document.get("storage_id"))


@dataclass(frozen=True, slots=True)
class AclEntry:
    """An access rule of a topic or namespace.

    Namespace rules also have `resources` (`topics`, `groups`, `transactional-ids`) and `names` (literal or `prefix*`,
    relative to the namespace).
    """

    principal: str
    permission: str
    operations: tuple[str, ...]
    host: str = "*"
    resources: tuple[str, ...] = ("topics",)
    names: tuple[str, ...] = ("*",)

    def to_json(self) -> Json:
        """Convert to JSON."""
        return {
            "principal": self.principal,
            "permission": self.permission,
            "operations": list(self.operations),
            "host": self.host,
            "resources": list(self.resources),
            "names": list(self.names),
        }

    @classmethod
    def from_json(cls, document: Json) -> AclEntry:
        """Parse JSON."""
        return cls(
            document["principal"],
            document["permission"],
            tuple(document["operations"]),
            document["host"],
            tuple(document["resources"]),
            tuple(document["names"]),
        )


@dataclass(frozen=True, slots=True)
class QuotaEntry:
    """Limits of a namespace; `None` means no limit."""

    topics: int | None = None
    partitions: int | None = None
    bytes: int | None = None

    def to_json(self) -> Json:
        """Convert to JSON."""
        return {"topics": self.topics, "partitions": self.partitions, "bytes": self.bytes}

    @classmethod
    def from_json(cls, document: Json) -> QuotaEntry:
        """Parse JSON."""
        return cls(document["topics"], document["partitions"], document["bytes"])


@dataclass(frozen=True, slots=True)
class NamespaceEntry:
    """A namespace with its quotas, and the configs, rules and KMS key that its contents inherit."""

    configs: Mapping[str, str] = field(default_factory=dict)
    acls: tuple[AclEntry, ...] = ()
    quotas: QuotaEntry | None = None
    kms_key_id: str | None = None
    """KMS key of new objects; inner namespaces may override it."""

    def to_json(self) -> Json:
        """Convert to JSON."""
        document: Json = {}
        if self.configs:
            document["configs"] = dict(self.configs)
        if self.acls:
            document["acls"] = [acl.to_json() for acl in self.acls]
        if self.quotas is not None:
            document["quotas"] = self.quotas.to_json()
        if self.kms_key_id is not None:
            document["kms_key_id"] = self.kms_key_id
        return document

    @classmethod
    def from_json(cls, document: Json) -> NamespaceEntry:
        """Parse JSON."""
        quotas = document.get("quotas")
        return cls(
            document.get("configs", {}),
            tuple(map(AclEntry.from_json, document.get("acls", ()))),
            None if quotas is None else QuotaEntry.from_json(quotas),
            document.get("kms_key_id"),
        )


@dataclass(frozen=True, slots=True)
class TieringEntry:
    """A topic's tiering state (`reconciler/lifecycles.py`).

    Every transition increases `epoch`. `policy` decides whether the last disabling kept or deleted remote data.
    """

    state: str
    epoch: int
    policy: str = "retain"

    def to_json(self) -> Json:
        """Convert to JSON."""
        return {"state": self.state, "epoch": self.epoch, "policy": self.policy}

    @classmethod
    def from_json(cls, document: Json) -> TieringEntry:
        """Parse JSON."""
        return cls(document["state"], document["epoch"], document["policy"])


@dataclass(frozen=True, slots=True)
class HoldEntry:
    """The migration that a topic is part of; `is_closed` stops reads and writes."""

    migration: int
    is_closed: bool = False

    def to_json(self) -> Json:
        """Convert to JSON."""
        return {"migration": self.migration, "is_closed": self.is_closed}

    @classmethod
    def from_json(cls, document: Json) -> HoldEntry:
        """Parse JSON."""
        return cls(document["migration"], document["is_closed"])


@dataclass(frozen=True, slots=True)
class ReplicaEntry:
    """A read replica's source location, and its last problem."""

    location: str
    trouble: Trouble | None = None

    def to_json(self) -> Json:
        """Convert to JSON."""
        document: Json = {"location": self.location}
        return document if self.trouble is None else {**document, "trouble": self.trouble.to_json()}

    @classmethod
    def from_json(cls, document: Json) -> ReplicaEntry:
        """Parse JSON."""
        trouble = document.get("trouble")
        return cls(document["location"], None if trouble is None else Trouble.from_json(trouble))


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """A topic: its id, initial revision and own configs.

    `origin` is its first name and cluster id, if they changed; its location `<topic>/<cluster uuid>/<revision>` never
    changes. `initial` are cluster defaults at creation, which namespaces and the topic override. `recovering` is the
    location that is copied while the topic is closed. `hold` is a mount or unmount in progress.
    """

    id: str
    partitions: int
    revision: int
    replication_factor: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)
    mirror: MirrorEntry | None = None
    origin: tuple[str, str] | None = None
    acls: tuple[AclEntry, ...] = ()
    initial: Mapping[str, str] = field(default_factory=dict)
    tiering: TieringEntry | None = None
    recovering: str | None = None
    hold: HoldEntry | None = None
    replica: ReplicaEntry | None = None

    @property
    def active_mirror(self) -> MirrorEntry | None:
        """The mirror entry while mirroring is active, else `None`."""
        return None if self.mirror is None or self.mirror.is_stopped else self.mirror

    def to_json(self) -> Json:
        """Convert to JSON."""
        document: Json = {"id": self.id, "partitions": self.partitions, "revision": self.revision}
        if self.replication_factor != 1:
            document["replication_factor"] = self.replication_factor
        if self.configs:
            document["configs"] = dict(self.configs)
        if self.mirror is not None:
            document["mirror"] = self.mirror.to_json()
        if self.origin is not None:
            document["origin"] = list(self.origin)
        if self.acls:
            document["acls"] = [acl.to_json() for acl in self.acls]
        if self.initial:
            document["initial"] = dict(self.initial)
        if self.tiering is not None:
            document["tiering"] = self.tiering.to_json()
        if self.recovering is not None:
            document["recovering"] = self.recovering
        if self.hold is not None:
            document["hold"] = self.hold.to_json()
        if self.replica is not None:
            document["replica"] = self.replica.to_json()
        return document

    @classmethod
    def from_json(cls, document: Json) -> TopicEntry:
        """Parse JSON."""
        mirror, origin, tiering, hold = (document.get(key) for key in ("mirror", "origin", "tiering", "hold"))
        replica = document.get("replica")
        return cls(
            document["id"],
            document["partitions"],
            document["revision"],
            document.get("replication_factor", 1),
            document.get("configs", {}),
            None if mirror is None else MirrorEntry.from_json(mirror),
            None if origin is None else (origin[0], origin[1]),
            tuple(map(AclEntry.from_json, document.get("acls", ()))),
            document.get("initial", {}),
            None if tiering is None else TieringEntry.from_json(tiering),
            document.get("recovering"),
            None if hold is None else HoldEntry.from_json(hold),
            None if replica is None else ReplicaEntry.from_json(replica),
        )


@dataclass(frozen=True, slots=True)
class DeletionEntry:
    """A deleted topic whose objects still exist; its name is free again.

    `location` is where object storage has objects to delete, or `None`.
    """

    name: str
    location: str | None = None

    def to_json(self) -> Json:
        """Convert to JSON."""
        return {"name": self.name} if self.location is None else {"name": self.name, "location": self.location}

    @classmethod
    def from_json(cls, document: Json) -> DeletionEntry:
        """Parse JSON."""
        return cls(document["name"], document.get("location"))


@dataclass(frozen=True, slots=True)
class RewriteEntry:
    """A topic to rewrite under another KMS key."""

    name: str

    def to_json(self) -> Json:
        """Convert to JSON."""
        return {"name": self.name}

    @classmethod
    def from_json(cls, document: Json) -> RewriteEntry:
        """Parse JSON."""
        return cls(document["name"])


@dataclass(frozen=True, slots=True)
class MigrantEntry:
    """A topic in a migration, and the Mounting that requested it."""

    name: str
    topic_id: str
    location: str
    mounting: str | None = None

    def to_json(self) -> Json:
        """Convert to JSON."""
        document: Json = {"name": self.name, "topic_id": self.topic_id, "location": self.location}
        return document if self.mounting is None else {**document, "mounting": self.mounting}

    @classmethod
    def from_json(cls, document: Json) -> MigrantEntry:
        """Parse JSON."""
        return cls(document["name"], document["topic_id"], document["location"], document.get("mounting"))


@dataclass(frozen=True, slots=True)
class MigrationEntry:
    """Topics that move into (`outbound`) or out of (`inbound`) object storage (`reconciler/lifecycles.py`).

    `claim` marks the migration in registers of object storage. Unless `is_automatic`, it waits for requests in the
    states planned, prepared and executed.
    """

    direction: str
    state: str
    topics: tuple[MigrantEntry, ...]
    claim: str
    created_ms: int
    completed_ms: int | None = None
    is_automatic: bool = True

    def to_json(self) -> Json:
        """Convert to JSON."""
        return {
            "direction": self.direction,
            "state": self.state,
            "topics": [topic.to_json() for topic in self.topics],
            "claim": self.claim,
            "created_ms": self.created_ms,
            "completed_ms": self.completed_ms,
            "is_automatic": self.is_automatic,
        }

    @classmethod
    def from_json(cls, document: Json) -> MigrationEntry:
        """Parse JSON."""
        return cls(
            document["direction"],
            document["state"],
            tuple(map(MigrantEntry.from_json, document["topics"])),
            document["claim"],
            document["created_ms"],
            document["completed_ms"],
            document["is_automatic"],
        )


# These shapes validate the register's JSON; snapshots are verified by sha256 instead.


_CONFIGS: Final = {str: str}
_ACL: Final = {
    "principal": str,
    "permission": str,
    "operations": [str],
    "host": str,
    "resources": [str],
    "names": [str],
}
_QUOTAS: Final = {"topics": (None, int), "partitions": (None, int), "bytes": (None, int)}
_NAMESPACE: Final = {"configs?": _CONFIGS, "acls?": [_ACL], "quotas?": _QUOTAS, "kms_key_id?": str}
_TROUBLE: Final = {"code": str, "message": str, "since_ms": int}
_OFFSETS: Final = {str: int}
_STRETCH: Final = {"partition": int, "start": int, "stop": int}
_RULES: Final = {str: [str]}
_MIRROR: Final = {
    "link_id": str,
    "source": str,
    "source_topic_id": (None, str),
    "state": str,
    "first_copy_done": bool,
    "since_ms?": int,
    "operation?": {"id": str, "verb": str, "ends": (None, _OFFSETS), "approved?": [_STRETCH]},
    "trouble?": _TROUBLE,
    "stopped_by?": str,
    "is_automatic?": bool,
    "begins?": _OFFSETS,
    "rules?": _RULES,
    "ended?": [str],
    "is_untouched?": bool,
}
_TOPIC: Final = {
    "id": str,
    "partitions": int,
    "revision": int,
    "replication_factor?": int,
    "configs?": _CONFIGS,
    "mirror?": _MIRROR,
    "origin?": [str],
    "acls?": [_ACL],
    "initial?": _CONFIGS,
    "tiering?": {"state": str, "epoch": int, "policy": str},
    "recovering?": str,
    "hold?": {"migration": int, "is_closed": bool},
    "replica?": {"location": str, "trouble?": _TROUBLE},
}
_MIGRATION: Final = {
    "direction": str,
    "state": str,
    "topics": [{"name": str, "topic_id": str, "location": str, "mounting?": str}],
    "claim": str,
    "created_ms": int,
    "completed_ms": (None, int),
    "is_automatic": bool,
}
_LINK: Final = {
    "id": str,
    "source_cluster": str,
    "declared": dict,
    "status?": str,
    "trouble?": _TROUBLE,
    "tasks?": {str: _TROUBLE},
    "source_cluster_id?": str,
    "rules?": {str: _RULES},
}
_NAMED: Final = {"name": str}
_WORKSPACE: Final = {"workspace": str, "environment": (None, str), "lineage": str, "state": str}
_DELETION: Final = {"name": str, "location?": str}
_CLUSTER: Final = {"properties?": _CONFIGS, "storage_id?": str}

COMMIT: Final = {
    "serial": int,
    "id": str,
    "revision": int,
    "tables?": {
        "namespaces?": {str: (None, _NAMESPACE)},
        "topics?": {str: (None, _TOPIC)},
        "links?": {str: (None, _LINK)},
        "deletions?": {str: (None, _DELETION)},
        "rewrites?": {str: (None, _NAMED)},
        "clusters?": {str: (None, _CLUSTER)},
        "migrations?": {str: (None, _MIGRATION)},
        "owners?": {str: (None, str)},
        "workspaces?": {str: (None, _WORKSPACE)},
    },
    "key?": str,
    "sha256?": str,
}

HEAD: Final = {
    "serial": int,
    "id": str,
    "revision": int,
    "snapshot": (None, {"id": str, "key": str, "sha256": str}),
    "tail": list,
}
"""Shape of the catalog's register; commits are checked separately."""
