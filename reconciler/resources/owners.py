"""Owners of a cluster's resources, and how a workspace takes or releases keys.

Platforms store by key the lineage of the owner's state, and by lineage the workspace.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from typing import Any, Final

from reconciler.resources.address import Address, full_name_of, kind_of
from reconciler.resources.mount import Mounting
from reconciler.runtime.dataclass import dataclass, field

_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@]*@")


@dataclass(frozen=True, slots=True)
class ResourceOwner:
    """Workspace in one environment, with the state that records its resources."""

    workspace: str
    environment: str | None
    lineage: str
    """Permanent id of the state; empty before it exists."""
    state: str
    """Location of the state, without credentials."""

    @classmethod
    def create(cls, workspace: str, environment: str | None, lineage: str, location: str) -> ResourceOwner:
        """Return the owner, without credentials and query parameters in its location."""
        return cls(workspace, environment, lineage, _CREDENTIALS.sub("", location.partition("?")[0]))

    def is_same(self, other: ResourceOwner) -> bool:
        """Return whether both have the same lineage, or the same name and location of a recreated state."""
        if self.lineage and self.lineage == other.lineage:
            return True
        mine, theirs = ((owner.workspace, owner.environment, owner.state) for owner in (self, other))
        return mine == theirs

    def __str__(self) -> str:
        where = f" in environment {self.environment!r}" if self.environment is not None else ""
        return f"workspace {self.workspace!r}{where} (state {self.state})"

    def to_json(self) -> dict[str, Any]:
        """Return the stored JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> ResourceOwner:
        """Parse the stored JSON."""
        return cls(stored["workspace"], stored["environment"], stored["lineage"], stored["state"])


def build_owner_key(address: Address, resource: object = None) -> str | None:
    """Return the key under which a cluster stores a resource's owner; `None` if it stores none.

    A topic, its mirror and its mounting share a key. Clusters have no owner.
    """
    kind = kind_of(address)
    match kind:
        case "mounting" if isinstance(resource, Mounting):
            return f"topic/{resource.topic_name}"
        case "topic" | "mirror" | "mounting":
            return f"topic/{full_name_of(address)}"
        case "namespace" | "link":
            return f"{kind}/{full_name_of(address)}"
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Owners:
    """Owners of the resources of one cluster."""

    workspaces: Mapping[str, ResourceOwner] = field(default_factory=dict)
    lineages_by_key: Mapping[str, str] = field(default_factory=dict)
    unsupported_reason: str | None = None
    """Why this cluster cannot store owners; `None` if it can."""

    def find_owner(self, key: str) -> ResourceOwner | None:
        """Return a key's owner, if known."""
        lineage = self.lineages_by_key.get(key)
        return None if lineage is None else self.workspaces.get(lineage)

    def find_other_owner(self, key: str, me: ResourceOwner | None) -> ResourceOwner | None:
        """Return a key's owner unless it is the workspace `me`."""
        owner = self.find_owner(key)
        return None if owner is None or (me is not None and owner.is_same(me)) else owner


NOBODY: Final = Owners()


@dataclass(frozen=True, slots=True)
class OwnerChange:
    """All keys that a workspace owns afterwards; its other keys become free. Applied completely or not at all."""

    me: ResourceOwner
    take: Mapping[str, ResourceOwner | None] = field(default_factory=dict)
    """Key to take → owner that may lose it; `None` if the key must be free."""
    keep: Collection[str] = ()
    """Keys that the workspace continues to own unless another workspace took them."""
    makes_cluster: bool = False
    """Whether to create the cluster first."""

    def compute_changes(self, held: Owners) -> tuple[dict[str, str | None], dict[str, ResourceOwner]]:
        """Return the new lineage of each changed key (`None` frees it), and the keys of `take` that others own.

        If others own a key of `take`, nothing changes.
        """
        refused = dict(self._find_refused(held))
        if refused:
            return {}, refused
        lineage = self.me.lineage
        ours = {*self.take, *(key for key in self.keep if held.find_other_owner(key, self.me) is None)}
        changes: dict[str, str | None] = {
            key: lineage for key in sorted(ours) if held.lineages_by_key.get(key) != lineage
        }
        mine = {owner_lineage for owner_lineage, owner in held.workspaces.items() if owner.is_same(self.me)}
        changes |= {
            key: None for key, owner in sorted(held.lineages_by_key.items()) if owner in mine and key not in ours
        }
        return changes, {}

    def _find_refused(self, held: Owners) -> Iterable[tuple[str, ResourceOwner]]:
        for key, other in sorted(self.take.items()):
            holder = held.find_other_owner(key, self.me)
            if holder is not None and (other is None or not holder.is_same(other)):
                yield key, holder

    def find_changed_workspaces(
        self, held: Owners, changes: Mapping[str, str | None]
    ) -> dict[str, ResourceOwner | None]:
        """Return the workspaces to write by lineage; `None` removes one that no longer owns keys."""
        what = {**held.lineages_by_key, **changes}
        used = {lineage for lineage in what.values() if lineage is not None}
        gone: dict[str, ResourceOwner | None] = {lineage: None for lineage in held.workspaces if lineage not in used}
        is_news = self.me.lineage in used and held.workspaces.get(self.me.lineage) != self.me
        return {**gone, self.me.lineage: self.me} if is_news else gone
