"""Every point at which an operation can die, and the cluster as the next one opens it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.samples import NOW, cluster_in, ids
from tests.embedded.watched import DiedError, dying

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reconciler.objectstore.base import ObjectStore


def opened(store: ObjectStore) -> EmbeddedCluster:
    new_id = ids()
    return EmbeddedCluster.open(store, now_ms=lambda: NOW, new_id=lambda: "again-" + new_id())


def crashes(
    prepare: Callable[[EmbeddedCluster], object], operation: Callable[[EmbeddedCluster], object]
) -> Iterator[ObjectStore]:
    """Yield a store for every point at which the operation can die, as it is left behind."""
    for done in (False, True):
        for at in itertools.count():
            inner = MemoryStore()
            prepare(cluster_in(inner))
            try:
                operation(opened(dying(inner, at, done=done)))
            except DiedError:
                yield inner
            else:
                assert at > 0
                break
