"""The entries of the catalog: namespaces, topics, links and migrations.

A key that is absent has its default, so what comes later (tiering, migrations) reads what is written now.
A process that adds one raises the catalog's format: an older writer would drop it, and refuses a newer format instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from reconciler.resources.mirrors import MirrorEntry, Trouble

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ClusterEntry:
    """What belongs to the cluster as a whole: its properties, and the object storage it was bound to.

    `storage_id` is the id of that storage (`storage.json`), whatever URL it is reached at.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    storage_id: str | None = None

    def to_json(self) -> Json:
        """Return what the catalog keeps."""
        document: Json = {}
        if self.properties:
            document["properties"] = dict(self.properties)
        if self.storage_id is not None:
            document["storage_id"] = self.storage_id
        return document

    @classmethod
    def from_json(cls, document: Json) -> ClusterEntry:
        """Read it back."""
        return cls(document.get("properties", {}), document.get("storage_id"))


@dataclass(frozen=True, slots=True)
class AclEntry:
    """One access rule, of a topic or of everything in a namespace.

    `resources` (`topics`, `groups`, `transactional-ids`) and `names` (literal, or a prefix that ends in `*`; counted
    from below the namespace) are of a namespace's rules; a topic's rules have the topic alone.
    """

    principal: str
    permission: str
    operations: tuple[str, ...]
    host: str = "*"
    resources: tuple[str, ...] = ("topics",)
    names: tuple[str, ...] = ("*",)

    def to_json(self) -> Json:
        """Return what the catalog keeps."""
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
        """Read it back."""
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
    """Limits of a namespace and all below it; `None` is no limit."""

    topics: int | None = None
    partitions: int | None = None
    bytes: int | None = None

    def to_json(self) -> Json:
        """Return what the catalog keeps."""
        return {"topics": self.topics, "partitions": self.partitions, "bytes": self.bytes}

    @classmethod
    def from_json(cls, document: Json) -> QuotaEntry:
        """Read it back."""
        return cls(document["topics"], document["partitions"], document["bytes"])


@dataclass(frozen=True, slots=True)
class NamespaceEntry:
    """A namespace, what everything in it inherits, and the limits of all below it."""

    configs: Mapping[str, str] = field(default_factory=dict)
    acls: tuple[AclEntry, ...] = ()
    quotas: QuotaEntry | None = None
    kms_key_id: str | None = None
    """What is written below it is encrypted under this key; the nearest tier's wins."""

    def to_json(self) -> Json:
        """Return what the catalog keeps."""
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
        """Read it back."""
        quotas = document.get("quotas")
        return cls(
            document.get("configs", {}),
            tuple(map(AclEntry.from_json, document.get("acls", ()))),
            None if quotas is None else QuotaEntry.from_json(quotas),
            document.get("kms_key_id"),
        )


@dataclass(frozen=True, slots=True)
class TieringEntry:
    """Where the tiering of a topic is (`reconciler/lifecycles.py`); a topic that was never tiered has none.

    `epoch` rises with every transition. `policy` is that of the last disabling: what became of the remote data.
    """

    state: str
    epoch: int
    policy: str = "retain"

    def to_json(self) -> Json:
        """Return what the catalog keeps."""
        return {"state": self.state, "epoch": self.epoch, "policy": self.policy}

    @classmethod
    def from_json(cls, document: Json) -> TieringEntry:
        """Read it back."""
        return cls(document["state"], document["epoch"], document["policy"])


@dataclass(frozen=True, slots=True)
class HoldEntry:
    """The migration that has a topic in its hands. `is_closed`: it takes and gives no records."""

    migration: int
    is_closed: bool = False

    def to_json(self) -> Json:
        """Return what the catalog keeps."""
        return {"migration": self.migration, "is_closed": self.is_closed}

    @classmethod
    def from_json(cls, document: Json) -> HoldEntry:
        """Read it back."""
        return cls(document["migration"], document["is_closed"])


@dataclass(frozen=True, slots=True)
class ReplicaEntry:
    """What a read replica reads: the location of its source in object storage, and what is wrong with that."""

    location: str
    trouble: Trouble | None = None

    def to_json(self) -> Json:
        """Return what the catalog keeps."""
        document: Json = {"location": self.location}
        return document if self.trouble is None else {**document, "trouble": self.trouble.to_json()}

    @classmethod
    def from_json(cls, document: Json) -> ReplicaEntry:
        """Read it back."""
        trouble = document.get("trouble")
        return cls(document["location"], None if trouble is None else Trouble.from_json(trouble))


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """A topic: its id, its initial revision, and its own configs.

    `origin` is (name, cluster id) it was made with, where they are no longer those it has: its location in object
    storage, `<topic>/<cluster uuid>/<revision>`, stays for life. `initial` are the configs that the cluster's defaults
    gave it when it was made: they hold where neither it nor its tiers say otherwise. `recovering` is the location
    whose objects it is being made from; it takes and gives no records until that is done. `hold`: it is being mounted
    or unmounted. `replica`: it is read from another topic's objects, and nothing is ever written to it.
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
    def follows(self) -> MirrorEntry | None:
        """What makes it read-only; `None` for an ordinary topic, one whose mirroring is over included."""
        return None if self.mirror is None or self.mirror.is_stopped else self.mirror

    def to_json(self) -> Json:
        """Return what the catalog keeps."""
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
        """Read it back."""
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
    """A topic that is marked for deletion, by its id: its name is free again, its objects are still there.

    `location` is that of its remote objects, `<topic>/<cluster uuid>/<revision>`, where they go with it.
    """

    name: str
    location: str | None = None

    def to_json(self) -> Json:
        """Return what the catalog keeps."""
        return {"name": self.name} if self.location is None else {"name": self.name, "location": self.location}

    @classmethod
    def from_json(cls, document: Json) -> DeletionEntry:
        """Read it back."""
        return cls(document["name"], document.get("location"))


@dataclass(frozen=True, slots=True)
class RewriteEntry:
    """A topic, by its id, whose objects are to be written anew under the key of the namespace it is in now."""

    name: str

    def to_json(self) -> Json:
        """Return what the catalog keeps."""
        return {"name": self.name}

    @classmethod
    def from_json(cls, document: Json) -> RewriteEntry:
        """Read it back."""
        return cls(document["name"])


# What the catalog holds of a migration: topics that are being mounted or unmounted.


@dataclass(frozen=True, slots=True)
class MigrantEntry:
    """One topic of a migration: what it is called here, its id here, and where its remote objects lie for life.

    `mounting` is the full name of the Mounting that asked for it, where one did.
    """

    name: str
    topic_id: str
    location: str
    mounting: str | None = None

    def to_json(self) -> Json:
        """Return what the catalog keeps."""
        document: Json = {"name": self.name, "topic_id": self.topic_id, "location": self.location}
        return document if self.mounting is None else {**document, "mounting": self.mounting}

    @classmethod
    def from_json(cls, document: Json) -> MigrantEntry:
        """Read it back."""
        return cls(document["name"], document["topic_id"], document["location"], document.get("mounting"))


@dataclass(frozen=True, slots=True)
class MigrationEntry:
    """Topics on their way into object storage (`outbound`) or from there (`inbound`): `reconciler/lifecycles.py`.

    `claim` is a mark of its own, by which what it wrote elsewhere is known again. Without `is_automatic` it moves on
    from planned, prepared and executed only when it is told to.
    """

    direction: str
    state: str
    topics: tuple[MigrantEntry, ...]
    claim: str
    created_ms: int
    completed_ms: int | None = None
    is_automatic: bool = True

    def to_json(self) -> Json:
        """Return what the catalog keeps."""
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
        """Read it back."""
        return cls(
            document["direction"],
            document["state"],
            tuple(map(MigrantEntry.from_json, document["topics"])),
            document["claim"],
            document["created_ms"],
            document["completed_ms"],
            document["is_automatic"],
        )


# What the catalog's register is written like, for who reads it. A snapshot needs none: it is known by its sha256.


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
"""A commit of the tail: as it is, or where its object lies."""

HEAD: Final = {
    "serial": int,
    "id": str,
    "revision": int,
    "snapshot": (None, {"id": str, "key": str, "sha256": str}),
    "tail": list,
}
"""The register; its tail is looked at commit by commit, as far as it is new."""
