"""The cluster as a whole: made, bound to its object storage, its properties set; and what is seen of that."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from reconciler.embedded.catalog.cluster import alter_cluster, bind_storage, tiered_topics
from reconciler.embedded.clusterfile import create_cluster, read_cluster_id
from reconciler.embedded.remote.placing import check_place
from reconciler.embedded.remote.storagefile import (
    check_not_lost,
    read_storage_id,
)
from reconciler.errors import UserError
from reconciler.planning.actions import Create, Update
from reconciler.planning.fields import OBJECT_STORAGE, PROPERTIES
from reconciler.providers.changes import check_unmoved
from reconciler.resources.cluster import Cluster
from reconciler.resources.inventory import Observed, SeenStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reconciler.embedded.catalog.tables import Catalog, Draft
    from reconciler.objectstore.base import ObjectStore
    from reconciler.planning.actions import Value
    from reconciler.resources.kinds import Resource


def seen_storage(catalog: Catalog, storage: ObjectStore | None, root: str) -> SeenStorage:
    """Return what the catalog and the declared object storage say of each other: one GET, LISTs where it is new.

    `root`: the URL of the cluster.
    """
    bound, tiered = catalog.cluster.storage_id, tuple(tiered_topics(catalog))
    if storage is None:
        return SeenStorage(bound, None, tiered)
    try:
        found = read_storage_id(storage)
        if found is None and bound is not None:
            check_not_lost(storage, bound)
        if found is None or found != bound:
            check_place(storage, root)  # Whoever may not list cannot tier there, and learns it in the plan.
    except UserError as error:
        return SeenStorage(bound, None, tiered, error)
    return SeenStorage(bound, found, tiered)


def observed_cluster(
    declared: Cluster, cluster_id: str, catalog: Catalog, storage: ObjectStore | None, *, root: str
) -> Observed:
    """Return the cluster as it is: its properties, and its object storage where it is bound to the declared one."""
    seen = seen_storage(catalog, storage, root)
    is_bound = seen.found is not None and seen.found == seen.bound
    changed = {
        "cluster_id": cluster_id,
        "properties": dict(catalog.cluster.properties),
        "tiering": None,
        "object_storage": declared.spec.object_storage if is_bound else None,
    }
    found = declared.model_copy(update={"spec": declared.spec.model_copy(update=changed)})
    return Observed(found, cluster_id, storage=seen)


def check_places(store: ObjectStore, storage: ObjectStore) -> None:
    """Refuse, before anything is written, a root or an object storage that a new cluster could not have.

    Raises:
        UserError: One of them is something else, or they do not lie apart.
    """
    read_cluster_id(store)
    try:
        check_place(storage, store.url)
        if read_storage_id(storage) is None:
            check_not_lost(storage, None)
    except UserError as error:
        raise UserError(f"its objectStorage cannot be used: {error.message}", hint=error.hint) from error


def make_cluster(store: ObjectStore, wanted: Resource, new_id: Callable[[], str]) -> None:
    """Make a cluster in a store, or find it made.

    Raises:
        UserError: Another one lies there.
    """
    cluster_id = wanted.spec.cluster_id if isinstance(wanted, Cluster) else None
    found = create_cluster(store, cluster_id or new_id())
    if cluster_id not in {None, found}:
        message = f"{store.url} is cluster {found}, not {cluster_id}"
        raise UserError(message, hint="Correct spec.clusterId, or the root.")


def set_up(action: Create | Update, storage_id: str | None) -> Callable[[Draft], None]:
    """Return the commit that does what an action asks of the cluster as a whole; doing it twice does it once."""
    wanted = dict(_properties_asked(action))

    def decide(draft: Draft) -> None:
        if isinstance(action, Update):
            properties = [change for change in action.changes if change.path.startswith(PROPERTIES)]
            check_unmoved(action.address, properties, _fields_of(draft))
        alter_cluster(draft, wanted)
        if storage_id is not None:
            bind_storage(draft, storage_id)

    return decide


def is_binding(action: Create | Update) -> bool:
    """Tell whether an action binds the cluster to the object storage that is declared."""
    match action:
        case Create():
            return isinstance(action.after, Cluster) and action.after.spec.object_storage is not None
        case Update():
            return any(change.path == OBJECT_STORAGE and change.after is not None for change in action.changes)
        case _:
            assert_never(action)


def _properties_asked(action: Create | Update) -> Iterator[tuple[str, str | None]]:
    match action:
        case Create():
            if isinstance(action.after, Cluster):
                yield from action.after.spec.properties.items()
        case Update():
            for change in action.changes:
                if change.path.startswith(PROPERTIES):
                    yield change.path.removeprefix(PROPERTIES), None if change.after is None else str(change.after)
        case _:
            assert_never(action)


def _fields_of(draft: Draft) -> dict[str, Value]:
    return {PROPERTIES + name: value for name, value in draft.cluster.properties.items()}
