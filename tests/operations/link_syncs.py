"""Passes over the links of clusters in memory, by one process that remembers, and a source that can be lost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from reconciler.embedded.catalog.model import AclEntry
from reconciler.errors import ReconcilerError, RetryableError
from reconciler.operations.steps.link_pass import FinalSync, LinkPass, bring_groups, sync_links
from reconciler.operations.steps.link_sides import LinkSynced, Pace
from reconciler.operations.steps.transitions import Driver
from reconciler.providers.embedded.provider import EmbeddedProvider
from reconciler.providers.protocol import Edge
from reconciler.resources.cluster import Cluster
from reconciler.resources.mirror_link import SYNC_MS
from tests.embedded.links.linked import LINK, ORDERS, Linked

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from reconciler.resources.mirrors import LinkSeen
    from reconciler.resources.owners import ResourceOwner

ALL = [{"name": "*"}]
MINUTE = 60_000
READER = f"User:link-{LINK}"


class Refusing:
    """A store that says one thing, whatever it is asked."""

    url = "memory://west"
    encrypts = False

    def __init__(self, error: ReconcilerError | None = None) -> None:
        self.error = error or RetryableError("memory://west does not answer", hint="Try again.")

    def __getattr__(self, name: str) -> Any:
        def refuse(*_given: Any, **_named: Any) -> Any:
            raise self.error

        return refuse


class Counting:
    """A store that counts what is asked of it, by the kind of call."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not callable(found):
            return found

        def call(*given: Any, **named: Any) -> Any:
            self.calls[name] += 1
            return found(*given, **named)

        return call


@dataclass
class Runner:
    """Does passes over `linked`, as one long-running process does; `over` are other stores for some clusters."""

    linked: Linked
    pace: Pace = field(default_factory=Pace)
    over: dict[str, Any] = field(default_factory=dict)
    interval_ms: int = SYNC_MS
    """How much time goes by before each pass: by default so much that all tasks are due that say nothing else."""
    owners: dict[str, ResourceOwner] = field(default_factory=dict)
    """Other workspaces that own links, by the name of the link."""

    def __call__(self, cluster: str = "east") -> LinkSynced:
        """Do a pass over the one link of a cluster."""
        (done,) = self.all(cluster)
        return done

    def all(self, cluster: str = "east") -> list[LinkSynced]:
        """Do a pass over all links of a cluster, without copying anything in between."""
        self.later(self.interval_ms)
        driver, clock = self.driver(), self.linked.clock
        over = LinkPass(cluster, driver.providers, self.pace, clock, self.owners)
        done = list(sync_links(over, driver))
        due = {one.link for one in done if one.are_groups_due}
        late = {one.link: one for one in bring_groups(over, due)}
        return [_with(one, late.get(one.link)) for one in done]

    def driver(self) -> Driver:
        """Return what drives transitions, with the last sync as it is in earnest."""
        providers = {name: self.provider(name) for name in self.linked.stores}
        return Driver(providers, self.linked.copy, FinalSync(providers), self.linked.new_id)

    def provider(self, name: str) -> EmbeddedProvider:
        """Open a cluster as commands do."""
        if name not in self.over:
            return self.linked.provider(name)
        declared = Cluster.model_validate(
            {"metadata": {"name": name}, "spec": {"embedded": {"root": f"memory://{name}"}}}
        )
        edge = Edge(Path(), {}, self.linked.new_id, self.linked.clock)
        return EmbeddedProvider(declared, cast("ObjectStore", self.over[name]), edge)

    def link(self, cluster: str = "east", name: str = LINK) -> LinkSeen:
        """Return a link as its destination has it."""
        return next(link for link in self.linked.provider(cluster).links.links() if link.name == name)

    def later(self, ms: int) -> None:
        """Let time go by."""
        self.linked.clock.now_ms += ms

    def serial(self, cluster: str = "east") -> int:
        """Return how many commits a cluster's catalog has seen."""
        return self.linked.cluster(cluster).catalog.read().serial


def _with(one: LinkSynced, late: LinkSynced | None) -> LinkSynced:
    if late is None:
        return one
    return replace(one, done={**one.done, **late.done}, errors={**one.errors, **late.errors})


def runner(**spec: Any) -> Runner:
    """Return `west` with topic `shop:orders` and a link to `east`, as it is declared; nothing is mirrored yet."""
    linked = Linked()
    linked.west.create_topic(ORDERS)
    linked.cluster("east")
    linked.link("east", "west", **{"mode": "destination", **spec})
    return Runner(linked)


def denied(operation: str = "read", principal: str = READER) -> AclEntry:
    """Return a rule that denies something to the link."""
    return AclEntry(principal, "deny", (operation,))
