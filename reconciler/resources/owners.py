"""Who owns what on a cluster: workspaces, what they own, and how one takes or lets go of it. Pure.

Every platform keeps the same: the key of each owned resource with the lineage of the state that owns it, and for each
lineage the workspace. Keys leave out the cluster, which each workspace may call otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from reconciler.resources.address import Address, full_name_of, kind_of
from reconciler.resources.mount import Mounting

_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@]*@")


@dataclass(frozen=True, slots=True)
class ResourceOwner:
    """A workspace in one environment, and the state that says what it owns."""

    workspace: str
    environment: str | None
    lineage: str
    """The lifelong id of the state; empty before there is one."""
    state: str
    """Where the state lies, without credentials."""

    @classmethod
    def of(cls, workspace: str, environment: str | None, lineage: str, location: str) -> ResourceOwner:
        """Return the owner whose state lies at a location; what might be secret in it is left out."""
        return cls(workspace, environment, lineage, _CREDENTIALS.sub("", location.partition("?")[0]))

    def is_same(self, other: ResourceOwner) -> bool:
        """Tell whether both are one: by the id of the state, or by name and place where a state was made anew."""
        if self.lineage and self.lineage == other.lineage:
            return True
        mine, theirs = ((owner.workspace, owner.environment, owner.state) for owner in (self, other))
        return mine == theirs

    def __str__(self) -> str:
        """Say it as people do."""
        where = f" in environment {self.environment!r}" if self.environment is not None else ""
        return f"workspace {self.workspace!r}{where} (state {self.state})"

    def to_json(self) -> dict[str, Any]:
        """Return what documents and clusters say of it."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> ResourceOwner:
        """Read it back."""
        return cls(stored["workspace"], stored["environment"], stored["lineage"], stored["state"])


def owned_as(address: Address, resource: object = None) -> str | None:
    """Return the key under which a cluster says who owns a resource; `None`: such things are shared.

    A topic, its mirror and its mounting are one thing. Every workspace declares the clusters it uses, so nobody owns
    a cluster.
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
    """Who owns what on one cluster."""

    who: Mapping[str, ResourceOwner] = field(default_factory=dict)
    """Workspaces, by the lineages of their states."""
    what: Mapping[str, str] = field(default_factory=dict)
    """Key → lineage."""
    unknown: str | None = None
    """Why this cluster does not say who owns what; `None`: it does."""

    def of(self, key: str) -> ResourceOwner | None:
        """Return who owns something; `None`: nobody, or that is not known."""
        lineage = self.what.get(key)
        return None if lineage is None else self.who.get(lineage)

    def other(self, key: str, me: ResourceOwner | None) -> ResourceOwner | None:
        """Return who owns something where that is somebody else."""
        owner = self.of(key)
        return None if owner is None or (me is not None and owner.is_same(me)) else owner


NOBODY: Final = Owners()
"""Of a cluster on which nothing is owned yet."""


@dataclass(frozen=True, slots=True)
class OwnerChange:
    """All that one workspace owns from now on; the rest of what it owned becomes free. Nothing or all is written."""

    me: ResourceOwner
    take: Mapping[str, ResourceOwner | None] = field(default_factory=dict)
    """Key → the other owner from whom it may be taken; `None`: it must be free."""
    keep: Collection[str] = ()
    """What else is ours; what another owns of it stays the other's."""
    makes_cluster: bool = False
    """The cluster is made first, empty, if there is none yet: of several that make it, one owns what they all want."""

    def on(self, held: Owners) -> tuple[dict[str, str | None], dict[str, ResourceOwner]]:
        """Return what changes (`None`: it becomes free), and what of `take` is another's; then nothing changes."""
        refused = dict(self._find_refused(held))
        if refused:
            return {}, refused
        lineage = self.me.lineage
        ours = {*self.take, *(key for key in self.keep if held.other(key, self.me) is None)}
        changes: dict[str, str | None] = {key: lineage for key in sorted(ours) if held.what.get(key) != lineage}
        mine = {owner_lineage for owner_lineage, owner in held.who.items() if owner.is_same(self.me)}
        changes |= {key: None for key, owner in sorted(held.what.items()) if owner in mine and key not in ours}
        return changes, {}

    def _find_refused(self, held: Owners) -> Iterable[tuple[str, ResourceOwner]]:
        for key, other in sorted(self.take.items()):
            holder = held.other(key, self.me)
            if holder is not None and (other is None or not holder.is_same(other)):
                yield key, holder

    def workspaces_on(self, held: Owners, changes: Mapping[str, str | None]) -> dict[str, ResourceOwner | None]:
        """Return what changes of who there is: we say where our state lies, and who owns nothing more is left out."""
        what = {**held.what, **changes}
        used = {lineage for lineage in what.values() if lineage is not None}
        gone: dict[str, ResourceOwner | None] = {lineage: None for lineage in held.who if lineage not in used}
        is_news = self.me.lineage in used and held.who.get(self.me.lineage) != self.me
        return {**gone, self.me.lineage: self.me} if is_news else gone
