"""`cluster.json`, and checks that this machine sees the cluster's store."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

import orjson

from reconciler.archives.keys import CLUSTER, STORAGE
from reconciler.archives.objects import damaged_error, parse_object
from reconciler.errors import LostRaceError, MissingObjectError, UserError
from reconciler.objectstore.base import PROBE, ObjectStore
from reconciler.objectstore.register import create_object, is_truncated_json
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.effects import build_process_id, read_host_name

_NAME: Final = "reconciler.cluster"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """Content of `cluster.json`."""

    id: str
    format: str


def read_cluster_id(store: ObjectStore) -> str | None:
    """Return the cluster's id; `None` if the store is empty."""
    file = read_cluster_file(store)
    return None if file is None else file.id


def read_cluster_file(store: ObjectStore) -> ClusterFile | None:
    """Read `cluster.json` by one GET; `None` if the store is empty."""
    stored = store.get(CLUSTER)
    if stored is not None and not is_truncated_json(stored.body):
        return _parse_cluster_file(store, stored.body)
    objects = (listed for listed in store.list("") if not listed.key.startswith(PROBE))
    first_objects = list(islice(objects, 2))
    if not first_objects:
        return None
    # Another process may have created the cluster after the first GET.
    stored = store.get(CLUSTER)
    stranger = next((listed for listed in first_objects if listed.key != CLUSTER), None)
    if stored is not None and not (stranger is None and is_truncated_json(stored.body)):
        return _parse_cluster_file(store, stored.body)
    if stranger is None:
        return None
    if store.get(STORAGE) is not None:
        message = f"{store.url} is an object storage, not an embedded cluster: it holds {STORAGE}"
        raise UserError(message, hint="Name another root: a cluster and object storage never share a location.")
    message = f"{store.url} is not an embedded cluster: it has no {CLUSTER}, but holds {stranger.key}"
    raise UserError(message, hint="Name the root of a cluster, or an empty folder in which one may be created.")


def create_cluster(store: ObjectStore, cluster_id: str) -> str:
    """Create a cluster in an empty store; return the cluster's id."""
    existing_id = read_cluster_id(store)
    if existing_id is not None:
        return existing_id
    problems = store.find_violated_conditions()
    if problems:
        message = f"{store.url} cannot hold a cluster: {'; '.join(problems)}"
        raise UserError(message, hint="Name another root: a local disk, or a bucket with conditional writes.")
    body = orjson.dumps({"format": f"{_NAME}/{_VERSION}", "id": cluster_id}, option=orjson.OPT_APPEND_NEWLINE)
    try:
        create_object(store, CLUSTER, body)
    except LostRaceError:
        return read_cluster_id(store) or cluster_id
    return cluster_id


_SHARE: Final = "Put the cluster on storage that every executor sees, or run the job with spark.master local[*]."


def check_cluster_visible(store: ObjectStore, full_name: str, *, is_found: bool) -> None:
    """Reject a machine that does not see the cluster (`is_found` is false)."""
    if not is_found:
        host = read_host_name()
        message = f"{store.url} is not visible to the executor on {host}: it does not find topic {full_name} there"
        raise UserError(message, hint=_SHARE)


def check_topic_visible(store: ObjectStore, full_name: str, *, is_found: bool) -> None:
    """Reject a missing topic, or a machine on which the cluster's folder is not visible."""
    if not is_found and read_cluster_id(store) is not None:
        message = f"topic {full_name} is not in the cluster at {store.url} any more: it was deleted or unmounted"
        raise UserError(
            message,
            hint=f"If it is there, the executor on {read_host_name()} sees another cluster under that URL. {_SHARE}",
        )
    check_cluster_visible(store, full_name, is_found=is_found)


def check_writes_visible(store: ObjectStore, keys: Iterable[str], *, by: str) -> None:
    """Reject objects that this machine does not see: another process wrote them to its own copy of the folder.

    Only the first and the last key are checked.
    """
    if by == build_process_id():
        return
    written = list(keys)
    for key in dict.fromkeys(written[:1] + written[-1:]):
        try:
            store.get_range(key, 0, 1)
        except MissingObjectError as error:
            message = f"{store.url} is not visible to the executor on {by.partition(':')[0]}: it wrote {key}"
            hint = f"The object is missing here, and no metadata refers to it. {_SHARE}"
            raise UserError(message, hint=hint) from error


def _parse_cluster_file(store: ObjectStore, body: bytes) -> ClusterFile:
    content = parse_object(store, CLUSTER, body)
    name, _, version = str(content.get("format")).partition("/")
    if name != _NAME or not version.isdecimal():
        message = f"{store.url}: {CLUSTER} does not describe an embedded cluster"
        raise UserError(message, hint="Name the root of a cluster, or an empty folder in which one may be created.")
    if int(version) > _VERSION:
        message = f"{store.url} is a cluster of a newer format ({name}/{version}) than this reconciler knows"
        raise UserError(message, hint="Upgrade: pip install --upgrade stream-reconciler.")
    cluster_id = content.get("id")
    if not isinstance(cluster_id, str) or not cluster_id:
        raise damaged_error(store, CLUSTER, "it has no id")
    return ClusterFile(cluster_id, version)
