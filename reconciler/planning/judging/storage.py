"""Object storage a cluster is declared with, against the one it is bound to: topics do not move between storages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.resources.cluster import Cluster
    from reconciler.resources.inventory import Observed


def check_storage(cluster: Cluster, seen: Observed | None) -> Iterator[tuple[str, str]]:
    """Yield why the object storage that is declared cannot be the cluster's."""
    if seen is None or seen.storage is None:
        return
    problem = seen.storage.problem
    if problem is not None:
        yield f"its objectStorage cannot be used: {problem.message}", problem.hint
        return
    moved = moved_storage(cluster, seen)
    if moved is not None:
        yield moved


def moved_storage(cluster: Cluster, seen: Observed) -> tuple[str, str] | None:
    """Return why nothing may be done with a cluster's remote tier: its topics have their records in another one."""
    storage, declared = seen.storage, cluster.spec.object_storage
    if storage is None or storage.problem is not None or not storage.tiered:
        return None
    if storage.bound is None or storage.found == storage.bound:
        return None
    first, *others = storage.tiered
    named = f"topic {first}" + (f" and {len(others)} more" if others else "")
    if declared is None:
        what = "it has no objectStorage any more"
    elif storage.found is None:
        what = f"{declared.url} holds nothing of it"
    else:
        what = f"{declared.url} is object storage {storage.found}"
    return (
        f"{what}, and {named} has records in object storage {storage.bound}",
        "Set objectStorage back: topics do not move between buckets.",
    )
