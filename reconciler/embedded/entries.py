"""What the catalog holds of each namespace, topic and link, and how it is written down.

A key that is absent has its default, so what comes later (ACLs, quotas, tiering, migrations) reads what is written now.
Whoever adds one raises the catalog's format: an older writer would drop it, and refuses a newer format instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Json = dict[str, Any]

ACTIVE: Final = "ACTIVE"


@dataclass(frozen=True, slots=True)
class NamespaceEntry:
    """A namespace and what everything in it inherits."""

    configs: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> Json:
        """Return what the catalog keeps."""
        return {"configs": dict(self.configs)} if self.configs else {}

    @classmethod
    def from_json(cls, kept: Json) -> NamespaceEntry:
        """Read it back."""
        return cls(kept.get("configs", {}))


@dataclass(frozen=True, slots=True)
class MirrorEntry:
    """What makes a topic a mirror: its link, its source, known by id from the first look at it, and its state."""

    link_id: str
    source: str
    source_topic_id: str | None = None
    state: str = ACTIVE
    first_copy_done: bool = False

    def to_json(self) -> Json:
        """Return what the catalog keeps."""
        return {
            "link_id": self.link_id,
            "source": self.source,
            "source_topic_id": self.source_topic_id,
            "state": self.state,
            "first_copy_done": self.first_copy_done,
        }

    @classmethod
    def from_json(cls, kept: Json) -> MirrorEntry:
        """Read it back."""
        return cls(
            link_id=kept["link_id"],
            source=kept["source"],
            source_topic_id=kept["source_topic_id"],
            state=kept["state"],
            first_copy_done=kept["first_copy_done"],
        )


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """A topic: its id, its initial revision, and its own configs.

    `origin` is (name, cluster id) it was made with, where they are no longer those it has: its location in object
    storage, `<topic>/<cluster uuid>/<revision>`, stays for life.
    """

    id: str
    partitions: int
    revision: int
    replication_factor: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)
    mirror: MirrorEntry | None = None
    origin: tuple[str, str] | None = None

    def to_json(self) -> Json:
        """Return what the catalog keeps."""
        kept: Json = {"id": self.id, "partitions": self.partitions, "revision": self.revision}
        if self.replication_factor != 1:
            kept["replication_factor"] = self.replication_factor
        if self.configs:
            kept["configs"] = dict(self.configs)
        if self.mirror is not None:
            kept["mirror"] = self.mirror.to_json()
        if self.origin is not None:
            kept["origin"] = list(self.origin)
        return kept

    @classmethod
    def from_json(cls, kept: Json) -> TopicEntry:
        """Read it back."""
        mirror, origin = kept.get("mirror"), kept.get("origin")
        return cls(
            kept["id"],
            kept["partitions"],
            kept["revision"],
            kept.get("replication_factor", 1),
            kept.get("configs", {}),
            None if mirror is None else MirrorEntry.from_json(mirror),
            None if origin is None else (origin[0], origin[1]),
        )


@dataclass(frozen=True, slots=True)
class LinkEntry:
    """A link on its destination: where records come from. `declared` is the rest of what was asked for, as given."""

    id: str
    source_cluster: str
    declared: Json = field(default_factory=dict)

    def to_json(self) -> Json:
        """Return what the catalog keeps."""
        return {"id": self.id, "source_cluster": self.source_cluster, "declared": self.declared}

    @classmethod
    def from_json(cls, kept: Json) -> LinkEntry:
        """Read it back."""
        return cls(kept["id"], kept["source_cluster"], kept["declared"])


@dataclass(frozen=True, slots=True)
class DeletionEntry:
    """A topic that is marked for deletion, by its id: its name is free again, its objects are still there."""

    name: str

    def to_json(self) -> Json:
        """Return what the catalog keeps."""
        return {"name": self.name}

    @classmethod
    def from_json(cls, kept: Json) -> DeletionEntry:
        """Read it back."""
        return cls(kept["name"])
