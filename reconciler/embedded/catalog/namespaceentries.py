"""What the catalog holds of a namespace: configs, access rules and limits. Rules are of a topic's entry, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reconciler.embedded.catalog.entries import Json


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
    def from_json(cls, kept: Json) -> AclEntry:
        """Read it back."""
        return cls(
            kept["principal"],
            kept["permission"],
            tuple(kept["operations"]),
            kept["host"],
            tuple(kept["resources"]),
            tuple(kept["names"]),
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
    def from_json(cls, kept: Json) -> QuotaEntry:
        """Read it back."""
        return cls(kept["topics"], kept["partitions"], kept["bytes"])


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
        kept: Json = {}
        if self.configs:
            kept["configs"] = dict(self.configs)
        if self.acls:
            kept["acls"] = [acl.to_json() for acl in self.acls]
        if self.quotas is not None:
            kept["quotas"] = self.quotas.to_json()
        if self.kms_key_id is not None:
            kept["kms_key_id"] = self.kms_key_id
        return kept

    @classmethod
    def from_json(cls, kept: Json) -> NamespaceEntry:
        """Read it back."""
        quotas = kept.get("quotas")
        return cls(
            kept.get("configs", {}),
            tuple(map(AclEntry.from_json, kept.get("acls", ()))),
            None if quotas is None else QuotaEntry.from_json(quotas),
            kept.get("kms_key_id"),
        )
