"""What clusters say of a run's ownership: keys it takes before it begins, and what its record owns at its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, assert_never

from reconciler.errors import ReconcilerError, RetryableError, StalePlanError, UnansweredError, UserError
from reconciler.planning.actions import Adopt, Create, Delete, Forget, RunJob, Transition, Update
from reconciler.planning.record import owned_keys
from reconciler.planning.situation import IMPLIED
from reconciler.resources.address import cluster_address, kind_of
from reconciler.resources.owners import OwnerChange, ResourceOwner, owned_as

if TYPE_CHECKING:
    from reconciler.applying.run import Basis, Decide, ToDo
    from reconciler.operations.steps.workspace import Site
    from reconciler.resources.inventory import Record


class Ownership:
    """Writes to clusters what a run owns."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._basis: Basis | None = None
        self._is_planned = False
        self._written: dict[str, frozenset[str]] = {}
        """The clusters that a run changes, each with the keys that it lists as ours."""
        self._warned: set[str] = set()

    def taking(self, decide: Decide) -> Decide:
        """Return a `decide` that also takes what the run of a plan changes.

        Raises:
            StalePlanError: Another workspace took some of it after it was planned.
            RetryableError: A cluster does not answer. Nothing was done, and what was taken is free again.
        """

        def decide_and_take(basis: Basis) -> ToDo:
            todo = decide(basis)
            record = basis.snapshot.record
            self._basis, self._is_planned = basis, todo.plan is not None
            clusters = sorted({action.cluster for action in todo.actions if action.cluster is not None})
            new = {
                action.cluster
                for action in todo.actions
                if isinstance(action, Create) and action.cluster is not None and kind_of(action.address) == "cluster"
            }
            self._written = {name: frozenset() if name in new else _recorded(record, name) for name in clusters}
            if todo.plan is not None:
                taken = {**{name: {} for name in new}, **_taken(todo)}
                try:  # New clusters come last: a refusal by another cluster comes before one is made.
                    for cluster, keys in sorted(taken.items(), key=lambda item: (item[0] in new, item[0])):
                        self._take(cluster, keys, record, makes=cluster in new)
                except ReconcilerError:
                    self.settle(record)
                    raise
            return todo

        return decide_and_take

    def settle(self, record: Record) -> None:
        """Let clusters list what is recorded as ours, and nothing else."""
        for cluster, written in self._written.items():
            keys = _recorded(record, cluster)
            if keys == written or cluster in self._warned:
                continue
            try:
                if self._is_planned or self._is_known(cluster):
                    self._own(cluster, {}, keys)
            except ReconcilerError as error:
                self._warn(cluster, error)

    def _take(self, cluster: str, keys: Mapping[str, ResourceOwner | None], record: Record, *, makes: bool) -> None:
        keep = _recorded(record, cluster)
        self._written[cluster] = keep | keys.keys()  # Also if the write gets no answer.
        try:
            refused = self._own(cluster, keys, keep, makes=makes)
        except UnansweredError:
            raise
        except RetryableError:
            self._written[cluster] = keep  # Nothing was written: `settle` does not wait for the cluster again.
            raise
        except UserError as error:
            if makes:  # The action that makes the cluster fails with the same error.
                self._written[cluster] = keep
            else:
                self._warn(cluster, error)
            return
        for key, owner in refused.items():
            kind, _, name = key.partition("/")
            raise StalePlanError(
                f"{kind}/{cluster}/{name} is owned by {owner} since this was planned",
                hint="Nothing was done. Look what is left to do with: reconciler plan",
            )

    def _own(
        self, cluster: str, take: Mapping[str, ResourceOwner | None], keep: frozenset[str], *, makes: bool = False
    ) -> Mapping[str, ResourceOwner]:
        lineage = "" if self._basis is None else self._basis.snapshot.lineage
        return self._site.providers[cluster].own(OwnerChange(self._site.me(lineage), take, keep, makes))

    def _is_known(self, cluster: str) -> bool:
        """Tell whether the cluster that answers is the recorded one."""
        last = None if self._basis is None else self._basis.snapshot.record.get(cluster_address(cluster))
        identity = None if last is None else self._site.providers[cluster].identify()
        return identity is not None and last is not None and last.incarnation == identity.cluster_id

    def _warn(self, cluster: str, error: ReconcilerError) -> None:
        if cluster not in self._warned:
            self._warned.add(cluster)
            self._site.invocation.warn(
                f"cluster {cluster} was not told what this workspace owns: {error.message}. "
                "Nothing else depends on it, but other workspaces do not see who owns it."
            )


def _recorded(record: Record, cluster: str) -> frozenset[str]:
    return frozenset(owned_keys(record, cluster))


def _taken(todo: ToDo) -> dict[str, dict[str, ResourceOwner | None]]:
    """Return what a plan changes, by cluster and key, each with the other owner from whom it may be taken."""
    taken: dict[str, dict[str, ResourceOwner | None]] = {cluster: {} for cluster in todo.unowned}
    for action in todo.actions:
        match action:
            case Create() | Update() | Adopt() | Transition():
                key = None if IMPLIED in action.origins else owned_as(action.address, action.after)
                if key is not None and action.cluster is not None:
                    taken.setdefault(action.cluster, {})[key] = action.owner
            case Delete() | Forget() | RunJob():
                pass
            case _:
                assert_never(action)
    return taken
