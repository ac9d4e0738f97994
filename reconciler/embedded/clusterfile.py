"""`cluster.json`: which cluster a root holds. Written once, never changed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

import orjson

from reconciler.embedded.jsonobjects import damaged, parsed
from reconciler.embedded.keys import CLUSTER, STORAGE
from reconciler.errors import LostRaceError, UserError
from reconciler.objectstore.cutoff import create, is_cut_off
from reconciler.objectstore.probing import PROBE

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore

_NAME: Final = "reconciler.cluster"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """What a root says of its cluster."""

    id: str
    format: str
    """The major version of how the cluster keeps what it has."""


def read_cluster_id(store: ObjectStore) -> str | None:
    """Return the id of the cluster in a store; `None` where the store is empty.

    Raises:
        UserError: The root holds something else, is damaged, or was written by a newer version.
    """
    found = read_cluster_file(store)
    return None if found is None else found.id


def read_cluster_file(store: ObjectStore) -> ClusterFile | None:
    """Return what a root says of its cluster, by one GET; `None` where the store is empty.

    Raises:
        UserError: The root holds something else, is damaged, or was written by a newer version.
    """
    stored = store.get(CLUSTER)
    if stored is not None and not is_cut_off(stored.body):
        return _read(store, stored.body)
    there = (listed for listed in store.list("") if not listed.key.startswith(PROBE))
    found = list(islice(there, 2))
    if not found:
        return None
    # The cluster may have been created between the two looks.
    stored = store.get(CLUSTER)
    stranger = next((listed for listed in found if listed.key != CLUSTER), None)
    if stored is not None and not (stranger is None and is_cut_off(stored.body)):
        return _read(store, stored.body)
    if stranger is None:
        return None
    if store.get(STORAGE) is not None:
        message = f"{store.url} is an object storage, not an embedded cluster: it holds {STORAGE}"
        raise UserError(message, hint="Name another root: a cluster and object storage never share a location.")
    message = f"{store.url} is not an embedded cluster: it has no {CLUSTER}, but holds {stranger.key}"
    raise UserError(message, hint="Name the root of a cluster, or an empty folder in which one may be created.")


def create_cluster(store: ObjectStore, cluster_id: str) -> str:
    """Make the root a cluster, if it is none yet, and return the id it has: that of whoever came first.

    Raises:
        UserError: The root holds something else, or its store does not honour conditional writes.
    """
    found = read_cluster_id(store)
    if found is not None:
        return found
    problems = store.probe()
    if problems:
        message = f"{store.url} cannot hold a cluster: {'; '.join(problems)}"
        raise UserError(message, hint="Name another root: a local disk, or a bucket with conditional writes.")
    body = orjson.dumps({"format": f"{_NAME}/{_VERSION}", "id": cluster_id}, option=orjson.OPT_APPEND_NEWLINE)
    try:
        create(store, CLUSTER, body)
    except LostRaceError:
        return read_cluster_id(store) or cluster_id
    return cluster_id


def check_shared(store: ObjectStore, full_name: str, *, is_found: bool) -> None:
    """Refuse a machine that does not see the cluster: to it, a folder that is not shared looks like an empty log.

    Raises:
        UserError: The topic is not found from here.
    """
    if not is_found:
        message = f"{store.url} is not shared with this executor: topic {full_name} is not in what it finds there"
        hint = "Put the cluster on storage that every executor sees, or run the job with spark.master local[*]."
        raise UserError(message, hint=hint)


def _read(store: ObjectStore, body: bytes) -> ClusterFile:
    content = parsed(store, CLUSTER, body)
    name, _, version = str(content.get("format")).partition("/")
    if name != _NAME or not version.isdecimal():
        message = f"{store.url}: {CLUSTER} is not that of an embedded cluster"
        raise UserError(message, hint="Name the root of a cluster, or an empty folder in which one may be created.")
    if int(version) > _VERSION:
        message = f"{store.url} is a cluster of a newer format ({name}/{version}) than this reconciler knows"
        raise UserError(message, hint="Upgrade: pip install --upgrade stream-reconciler.")
    cluster_id = content.get("id")
    if not isinstance(cluster_id, str) or not cluster_id:
        raise damaged(store, CLUSTER, "it has no id")
    return ClusterFile(cluster_id, version)
