"""The clusters of which topics are mounted or unmounted: found by files or by a state alone, and asked side by side."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from reconciler.errors import ReconcilerError, RetryableError, UserError
from reconciler.resources.address import cluster_address
from reconciler.workflow.beginning.identity import refuse_another_cluster
from reconciler.workflow.beginning.opening import open_site, open_work, settings_of
from reconciler.workflow.looking.observing import AT_ONCE, unreachable
from reconciler.workflow.looking.overviews import recorded_clusters
from reconciler.workflow.looking.reading import read_state

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from reconciler.resources.address import Address
    from reconciler.state.snapshots import Snapshot
    from reconciler.workflow.beginning.invocation import Invocation, Select
    from reconciler.workflow.beginning.opening import Site

A = TypeVar("A")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How a command gets at clusters: by the files of a workspace or, where those are gone, by what a state recorded.

    Nothing that is done to a migration is in any state: a migration is the cluster's own, and whoever drives it may
    hold the lease while somebody else stops it.
    """

    invocation: Invocation
    select: Select
    state_url: str | None = None
    no_state: bool = False
    """Whether to go on without the state that says which cluster each should be."""

    def site(self, *, is_reader: bool = False) -> Site:
        """Open where it happens; touches no cluster.

        Raises:
            UserError: There is no workspace here, or no state there.
        """
        if self.state_url is None:
            try:
                return open_work(self.invocation, self.select, is_reader=is_reader)
            except UserError as error:
                error.hint = (
                    f"{error.hint.removesuffix('.')}. To go on without the files: --state URL, as `spec.state` has it"
                )
                raise
        return open_site(self.invocation, self.state_url, is_reader=is_reader)

    def recorded(self, site: Site) -> Mapping[Address, str | None]:
        """Return which clusters these should be."""
        return {} if self.no_state else recorded_clusters(site)

    def check_writable(self, site: Site, cluster: str) -> None:
        """Return if the cluster of that name may be written to.

        Raises:
            UserError: Another one answers in its place, or the state that says which it is cannot be read.
            RetryableError: It is recorded, and nothing is there.
        """
        refuse_another_cluster(site, cluster, None if self.no_state else self._state(site))

    @staticmethod
    def _state(site: Site) -> Snapshot | None:
        try:
            return read_state(site)
        except ReconcilerError as error:
            error.hint = f"{error.hint.removesuffix('.')}. To go on without the state: --no-state"
            raise


def clusters_named(site: Site, names: Sequence[str]) -> tuple[str, ...]:
    """Return the clusters that were named, by default all that have object storage, sorted.

    Raises:
        UserError: One is not in this workspace.
    """
    if not names:
        return tuple(name for name in sorted(site.clusters) if site.clusters[name].spec.object_storage is not None)
    given = tuple(sorted({name.removeprefix("cluster/") for name in names}))
    for name in given:
        site.providers[name]  # says which there are
    return given


def storage_of(site: Site, cluster: str) -> str:
    """Return where the object storage of a cluster is; clusters that say the same share it.

    Raises:
        UserError: It has none.
    """
    declared = site.clusters[cluster].spec.object_storage
    if declared is None:
        hint = "Declare its objectStorage: topics are mounted from it."
        raise UserError(f"{cluster_address(cluster)} has no object storage", hint=hint)
    return settings_of(declared, site.edge.folder).url


def ask_each(names: Sequence[str], call: Callable[[str], A]) -> tuple[dict[str, A], dict[str, ReconcilerError]]:
    """Return what `call` says of each, and why it says nothing of the others; all at once."""
    found: dict[str, A] = {}
    lost: dict[str, ReconcilerError] = {}
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="mounts") as threads:
        for name, future in {name: threads.submit(call, name) for name in names}.items():
            try:
                found[name] = future.result()
            except ReconcilerError as error:
                lost[name] = error
    return found, lost


def verdict_on(lost: Mapping[str, ReconcilerError]) -> ReconcilerError | None:
    """Return the error to end with where some clusters said nothing."""
    if not lost:
        return None
    for name in sorted(lost):
        if not isinstance(lost[name], RetryableError):
            return lost[name]
    return unreachable(lost, can_exclude=False)
