"""`cluster check`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from reconciler.archives.keys import CLUSTER
from reconciler.errors import ReconcilerError, RetryableError, UserError
from reconciler.objectstore.open import open_store
from reconciler.objectstore.register import MEND
from reconciler.operations.steps.observe import reject_other_cluster
from reconciler.operations.steps.recorded import read_state
from reconciler.operations.steps.workspace import build_store_settings
from reconciler.providers.secrets import open_object_storage
from reconciler.resources.address import Address, cluster_address
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import pluralize

if TYPE_CHECKING:
    from reconciler.embedded.check.damage import CheckResult, RepairResult
    from reconciler.objectstore.base import ObjectStore
    from reconciler.operations.steps.runner import SiteOptions
    from reconciler.operations.steps.workspace import Site
    from reconciler.state.snapshots import Snapshot


_MAX_ROUNDS: Final = 3

# ruff: noqa: PLC0415


@dataclass(frozen=True, slots=True)
class CheckedCluster:
    """Result of a cluster check, after repairs."""

    address: Address
    url: str
    checked: CheckResult
    mended: tuple[RepairResult, ...]
    verdict: ReconcilerError | None


def run_cluster_check(reach: SiteOptions, name: str, *, repair: bool, deep: bool) -> CheckedCluster:
    """Check an embedded cluster. `repair` fixes problems without data loss, then checks again."""
    if reach.invocation.principal is not None:
        raise UserError("a cluster is checked by the super user", hint="Leave --principal out.")
    site = reach.open_site()
    try:
        return _check_and_repair(site, name, repair=repair, deep=deep)
    except UserError as error:
        if MEND not in (error.hint or ""):
            raise
        hint = error.hint.replace(MEND, f"reconciler cluster check {name} --repair")
        if repair:
            hint = "Nothing was changed. The store keeps no earlier version of it: restore it from a copy of the store."
        raise UserError(error.message, hint=hint) from error


def _check_and_repair(site: Site, name: str, *, repair: bool, deep: bool) -> CheckedCluster:
    from reconciler.embedded.check.check import check_cluster

    store = _open_root(site, name)
    snapshot = _read_state_if_possible(site, is_needed=repair)
    _check_not_empty(store, name, snapshot)
    storage = open_object_storage(site.clusters[name], site.edge)
    checked = check_cluster(store, deep=deep, storage=storage)
    mended: tuple[RepairResult, ...] = ()
    if repair:
        reject_another = partial(reject_other_cluster, site, name, snapshot)
        check_again = partial(check_cluster, store, deep=deep, storage=storage)
        mended, checked = _restore_cut_off_objects((store, storage), checked, check_again, reject_another)
        more = _repair_cluster(site, (store, storage), checked)
        mended, checked = (*mended, *more), check_again() if more else checked
    return CheckedCluster(
        cluster_address(name), store.url, checked, mended, _choose_verdict(name, checked, is_repaired=repair)
    )


def _restore_cut_off_objects(
    stores: tuple[ObjectStore, ObjectStore | None],
    checked: CheckResult,
    check_again: Callable[[], CheckResult],
    reject_another: Callable[[], None],
) -> tuple[tuple[RepairResult, ...], CheckResult]:
    from reconciler.embedded.check.mend import restore_truncated_registers

    store, storage = stores
    mended: tuple[RepairResult, ...] = ()
    if checked.cluster_id is None:
        mended = tuple(restore_truncated_registers(store, None, checked))
        checked = check_again() if mended else checked
    reject_another()
    for _ in range(_MAX_ROUNDS):
        more = restore_truncated_registers(store, storage, checked)
        if not more:
            break
        mended, checked = (*mended, *more), check_again()
    return mended, checked


def _repair_cluster(
    site: Site, stores: tuple[ObjectStore, ObjectStore | None], checked: CheckResult
) -> tuple[RepairResult, ...]:
    from reconciler.embedded.check.mend import repair_findings
    from reconciler.embedded.cluster import EmbeddedCluster

    if checked.cluster_id is None:
        return ()
    store, storage = stores
    cluster = EmbeddedCluster(
        store, checked.cluster_id, now_ms=site.edge.now_ms, new_id=site.edge.new_id, storage=storage
    )
    return tuple(repair_findings(cluster, checked))


def _open_root(site: Site, name: str) -> ObjectStore:
    declared = site.clusters.get(name)
    if declared is None:
        known = ", ".join(sorted(site.clusters)) or "none"
        raise UserError(f"there is no cluster {name!r} in this workspace", hint=f"Clusters here: {known}.")
    root = declared.spec.root
    if root is None:
        message = f"cluster {name} is not an embedded one"
        raise UserError(message, hint=f"Use its own tools to check a {declared.spec.provider} cluster.")
    site.check_trusted(declared)
    return open_store(build_store_settings(root, site.edge.folder))


def _read_state_if_possible(site: Site, *, is_needed: bool) -> Snapshot | None:
    try:
        return read_state(site)
    except ReconcilerError as error:
        if is_needed:
            raise
        site.invocation.warn(
            f"the state cannot be read, so which cluster is expected here is not known: {error.message}"
        )
        return None


def _check_not_empty(store: ObjectStore, name: str, snapshot: Snapshot | None) -> None:
    if next((stored for stored in store.list("") if stored.key != CLUSTER or stored.size), None) is not None:
        return
    if snapshot is not None and cluster_address(name) in snapshot.record:
        message = f"cluster {name} is recorded, but nothing is at {store.url}"
        raise RetryableError(
            message, hint="Check that its root is mounted and that the location in its manifest is right."
        )
    raise UserError(f"there is no cluster at {store.url} yet", hint="Create it with: reconciler apply")


def _choose_verdict(name: str, checked: CheckResult, *, is_repaired: bool) -> ReconcilerError | None:
    if not checked.errors:
        return None
    errors = pluralize(checked.errors, "error")
    hint = (
        "The findings above have the remedies; nothing was hidden"
        if is_repaired
        else "The findings above have the remedies"
    )
    return UserError(f"cluster {name} is not consistent: {errors}", hint=f"{hint}.")
