"""Two embedded clusters as providers on one object storage, and what a plan would ask of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.errors import LeaseError, ReconcilerError
from reconciler.lifecycles import MOUNT, UNMOUNT
from reconciler.planning.actions import ControlAction, Transition
from reconciler.providers.embedded.provider import EmbeddedProvider
from reconciler.providers.protocol import (
    CompletedAction,
    Edge,
    FailedAction,
    MaintenanceJobResult,
    MaintenancePorts,
    Outcome,
    Scope,
)
from reconciler.resources.cluster import Cluster
from reconciler.resources.mount import Mounting
from reconciler.runtime.retry import skip_check
from tests.embedded.mounts.shared_bucket import CLICKS, Bucket

if TYPE_CHECKING:
    from reconciler.embedded.catalog.model import MigrationEntry
    from reconciler.objectstore.base import ObjectStore
    from reconciler.resources.inventory import Inventory


@dataclass
class World:
    """`west` with topics, `east` without; every call comes from a process of its own."""

    bucket: Bucket = field(default_factory=Bucket)

    def provider(
        self, name: str, *, principal: str | None = None, store: ObjectStore | None = None
    ) -> EmbeddedProvider:
        """Open a cluster as another process would, maybe through a store that watches."""
        self.bucket.cluster(name)
        return self._opened(name, store or self.bucket.stores[name], self.bucket.storage, principal)

    def bare(self, name: str) -> EmbeddedProvider:
        """Open a cluster that is declared without object storage."""
        self.bucket.cluster(name)
        return self._opened(name, self.bucket.stores[name], None, None)

    def _opened(
        self, name: str, store: ObjectStore, storage: ObjectStore | None, principal: str | None
    ) -> EmbeddedProvider:
        spec = {"embedded": {"root": f"memory://{name}"}}
        declared = Cluster.model_validate({"metadata": {"name": name}, "spec": spec})
        edge = Edge(Path(), {}, self.bucket.new_id, self.bucket.clock, principal)
        return EmbeddedProvider(declared, store, edge, storage)

    def apply(
        self,
        name: str,
        *actions: ControlAction,
        may_go_on: Callable[[], None] = skip_check,
        principal: str | None = None,
    ) -> list[Outcome]:
        """Carry out a batch, and see that there is one outcome for each action."""
        outcomes = list(self.provider(name, principal=principal).apply(actions, may_go_on=may_go_on))
        assert sorted(outcome.id for outcome in outcomes) == sorted(action.id for action in actions)
        return outcomes

    def done(self, name: str, action: ControlAction, may_go_on: Callable[[], None] = skip_check) -> CompletedAction:
        (outcome,) = self.apply(name, action, may_go_on=may_go_on)
        assert isinstance(outcome, CompletedAction), outcome
        return outcome

    def refused(self, name: str, action: ControlAction, may_go_on: Callable[[], None] = skip_check) -> ReconcilerError:
        (outcome,) = self.apply(name, action, may_go_on=may_go_on)
        assert isinstance(outcome, FailedAction), outcome
        return outcome.error

    def observed(self, name: str, *patterns: str) -> Inventory:
        return self.provider(name).observe(Scope(patterns))

    def states(self, name: str = "west") -> list[str]:
        """Return the states of the migrations there is a record of."""
        return [migration.state for migration in self.migrations(name)]

    def migrations(self, name: str = "west") -> list[MigrationEntry]:
        return list(self.bucket.cluster(name).mounts.list_unfinished().values())

    def finish(
        self, name: str, *, is_stopped: Callable[[], bool] = lambda: False, spread: Any = None
    ) -> MaintenanceJobResult:
        """Do the job of `run` that goes on with migrations."""
        here = spread or (lambda work, do: iter([list(do(work))]))
        means = MaintenancePorts(here, lambda _address: True, is_stopped)
        return self.provider(name).maintenance(means)["migrations"]()


def mounting(state: str, cluster: str, full_name: str = CLICKS, **spec: Any) -> Mounting:
    namespace, _, name = full_name.rpartition(":")
    metadata = {"name": name, "namespace": namespace, "cluster": cluster}
    return Mounting.model_validate({"metadata": metadata, "spec": {"state": state, **spec}})


def unmount(full_name: str = CLICKS, cluster: str = "west", *, source: str | None = None, **more: Any) -> Transition:
    after = mounting("unmounted", cluster, full_name)
    return Transition(
        address=after.address,
        machine=UNMOUNT.name,
        verb=UNMOUNT.name,
        from_state="mounted",
        to_state="unmounted",
        after=after,
        parameters={"source": source or after.metadata.name, **more},
    )


def mount(
    location: str, full_name: str = CLICKS, cluster: str = "east", alias: str | None = None, **more: Any
) -> Transition:
    spec = {"source": location} if alias is None else {"source": location, "as": alias}
    after = mounting("mounted", cluster, full_name, **spec)
    return Transition(
        address=after.address,
        machine=MOUNT.name,
        verb=MOUNT.name,
        from_state="unmounted",
        to_state="mounted",
        after=after,
        parameters={**spec, **more},
    )


class Lease:
    """Is lost at the time of asking so many times."""

    def __init__(self, at: int) -> None:
        self.at, self.asked = at, 0

    def __call__(self) -> None:
        self.asked += 1
        if self.asked > self.at:
            raise LeaseError("another run took over", hint="Let it end.")


def errors(outcomes: Sequence[Outcome]) -> list[str]:
    return [outcome.error.message for outcome in outcomes if isinstance(outcome, FailedAction)]
