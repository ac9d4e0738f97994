"""`cluster recover`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from reconciler.errors import UserError
from reconciler.operations.steps.runner import require_confirmation
from reconciler.planning.resolve.limits import describe_unsupported
from reconciler.providers.registry import open_recovery
from reconciler.resources.address import Address, cluster_address
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.text import list_first, pluralize

if TYPE_CHECKING:
    from reconciler.operations.steps.runner import EmergencyRun
    from reconciler.operations.steps.workspace import Site
    from reconciler.planning.actions import Action
    from reconciler.resources.cluster import Cluster
    from reconciler.state.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class RecoveredCluster:
    """A cluster that its platform has recovered."""

    address: Address
    topics: int


def recover_cluster(
    emergency: EmergencyRun,
    name: str,
    cluster_id: str | None,
    *,
    confirm: Callable[[], bool],
    tell: Callable[[str], None],
) -> RecoveredCluster:
    """Recover in an empty cluster what a lost one left in its bucket, or follow such a recovery.

    `tell` receives each stage. The lease is held until the end, so that no apply creates topics.
    """
    site = emergency.open_site()
    provider = site.providers[name]
    site.check_trusted(site.clusters[name])
    recovery = open_recovery(site.clusters[name], site.edge)
    if recovery is None:
        raise _unsupported_error(site.clusters[name])
    emergency.check_answers(site, name)
    capabilities = provider.capabilities
    if not capabilities.recovery:
        message, _ = describe_unsupported(capabilities, "be recovered from object storage", "recovery")
        raise UserError(f"{cluster_address(name)}: {message}", hint="Correct that first, then run it again.")
    is_active = recovery.is_active()
    if not is_active:
        _check_empty(site, name, is_retry=recovery.has_failed())
        require_confirmation(confirm())

    def recover(_: Snapshot | None) -> tuple[Action, ...]:
        if not recovery.is_active():
            if is_active:
                return ()  # It has ended since.
            _check_empty(site, name, is_retry=recovery.has_failed())
            recovery.start(cluster_id)
        recovery.follow(tell, emergency.stop.wait)
        return ()

    replace(emergency, report=lambda _: None).run_actions(site, {name}, recover)
    return RecoveredCluster(cluster_address(name), len(provider.read_overview().topics))


def _check_empty(site: Site, name: str, *, is_retry: bool) -> None:
    """Reject a cluster with topics, unless its last recovery failed and may have left them."""
    topics = [topic.address for topic in site.providers[name].read_overview().topics]
    if topics and not is_retry:
        message = f"cluster {name} has {pluralize(len(topics), 'topic')} and is not recovered: {list_first(topics)}"
        hint = 'Recover into a new cluster, or single topics: configs: {remote.recovery: "true"}'
        raise UserError(message, hint=hint)


def _unsupported_error(cluster: Cluster) -> UserError:
    name, platform = cluster.metadata.name, cluster.spec.provider
    message = f"{cluster.address}: a cluster of platform {platform} does not recover itself from object storage"
    hint = "Bring its topics back from a mirror or a copy."
    if cluster.spec.root is not None:
        hint = f"Export what can be recovered, and apply it: reconciler export {name} --from-object-storage"
    return UserError(message, hint=hint)
