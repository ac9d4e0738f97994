"""The id of an object storage (`storage.json`), and checks before its use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from reconciler.archives.keys import CLUSTER, REMOTE_TOPICS, STORAGE
from reconciler.archives.objects import damaged_error, parse_object
from reconciler.errors import LostRaceError, ReconcilerError, UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.register import create_object, is_truncated_json
from reconciler.resources.cluster import urls_overlap
from reconciler.runtime.effects import read_host_name

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore


APART: Final = "Give objectStorage its own location, outside every cluster's root and not above one."
_FOLDER: Final = "file://"
_MARK: Final = b'"reconciler.cluster/'
_LISTED_KEYS: Final = 1000


def check_storage_place(storage: ObjectStore, root: str | None = None) -> None:
    """Reject an object storage that visibly overlaps `root`, the URL of a cluster that tiers to it."""
    if root is not None and root.startswith(_FOLDER) and urls_overlap(root, storage.url):
        raise UserError(
            f"{storage.url} and the root of the cluster, {root}, are the same location or one contains the other",
            hint=APART,
        )
    if storage.get(CLUSTER) is not None:
        raise UserError(f"{storage.url} is the root of a cluster: it holds {CLUSTER}", hint=APART)
    for listed in islice(storage.list(""), _LISTED_KEYS):
        if listed.key.endswith(f"/{CLUSTER}") and _is_cluster(storage, listed.key):
            raise UserError(f"{storage.url} holds the root of a cluster: {listed.key}", hint=APART)
    above = next(_find_roots_above(storage), None)
    if above is not None:
        raise UserError(f"{storage.url} lies in the root of a cluster, {above.url}", hint=APART)


def _find_roots_above(storage: ObjectStore) -> Iterator[ObjectStore]:
    if storage.url.startswith(_FOLDER):
        for folder in Path(storage.url.removeprefix(_FOLDER)).parents:
            with suppress(ReconcilerError):
                if _is_cluster(DirectoryStore(folder), CLUSTER):
                    yield DirectoryStore(folder)


def _is_cluster(store: ObjectStore, key: str) -> bool:
    stored = store.get(key)
    return stored is not None and _MARK in stored.body


_FORMAT: Final = "reconciler.object-storage/1"


def read_storage_id(storage: ObjectStore) -> str | None:
    """Return an object storage's id; `None` if no cluster has tiered to it."""
    stored = storage.get(STORAGE)
    if stored is None or is_truncated_json(stored.body):
        return None
    content = parse_object(storage, STORAGE, stored.body)
    storage_id = content.get("id")
    if content.get("format") != _FORMAT or not isinstance(storage_id, str) or not storage_id:
        raise damaged_error(storage, STORAGE, f"its format is {content.get('format')!r}, not {_FORMAT!r}")
    return storage_id


def create_storage(storage: ObjectStore, new_id: Callable[[], str]) -> str:
    """Return the storage's id; create it if needed."""
    existing_id = read_storage_id(storage)
    if existing_id is not None:
        return existing_id
    check_storage_place(storage)
    check_not_lost(storage, None)  # A new id would lock out clusters bound to a lost one.
    check_usable(storage)
    body = orjson.dumps({"format": _FORMAT, "id": new_id()}, option=orjson.OPT_APPEND_NEWLINE)
    with suppress(LostRaceError):
        create_object(storage, STORAGE, body)
    return read_storage_id(storage) or ""


def check_usable(storage: ObjectStore) -> None:
    """Reject an object storage without the right to write, swap or delete."""
    problems = storage.find_violated_conditions()
    if problems:
        message = f"{storage.url} cannot hold a remote tier: {'; '.join(problems)}"
        raise UserError(message, hint="Name another location: a local disk, or a bucket with conditional writes.")


def check_storage(storage: ObjectStore, expected: str | None) -> None:
    """Reject an object storage to which the cluster is not bound (F-R-013)."""
    storage_id = read_storage_id(storage)
    if expected is not None and storage_id is None:
        check_not_lost(storage, expected)
    if expected is not None and storage_id != expected:
        what = "holds nothing of it" if storage_id is None else f"is object storage {storage_id}"
        message = f"{storage.url} {what}: this cluster's topics are stored in object storage {expected}"
        raise UserError(message, hint="Set objectStorage back: topics do not move between buckets.")


def check_storage_shared(storage: ObjectStore, expected: str | None) -> None:
    """Reject an executor that does not see the cluster's object storage."""
    try:
        check_storage(storage, expected)
    except UserError as error:
        seen = f"If {storage.url} is as it was, the executor on {read_host_name()} does not see it"
        error.hint = f"{seen}: put it on storage that every executor sees. Otherwise: {error.hint}"
        raise


def check_not_lost(storage: ObjectStore, expected: str | None) -> None:
    """Reject an object storage with topics but no `storage.json`; one LIST."""
    if _holds_topics(storage):
        raise _lost_error(storage, expected)


def check_storage_given(storage: ObjectStore | None, bound: str | None) -> None:
    """Reject a missing object storage if the cluster is bound to one."""
    if storage is None and bound is not None:
        message = f"remote segments are in object storage {bound}, and the cluster is opened without one"
        raise UserError(message, hint="Declare objectStorage of the cluster as it was.")


def _holds_topics(storage: ObjectStore) -> bool:
    return next(iter(storage.list(REMOTE_TOPICS)), None) is not None


def _lost_error(storage: ObjectStore, expected: str | None) -> UserError:
    bound = "" if expected is None else f": this cluster's topics are stored in object storage {expected}"
    content = orjson.dumps({"format": _FORMAT, "id": expected or "ID"}).decode()
    if expected is None:
        more = "with the ID that plans of the clusters bound to it name; where none is left, any new one"
    else:
        more = "if that is it; otherwise set objectStorage back"
    return UserError(
        f"{storage.url} has no {STORAGE}, though remote objects of topics are there{bound}",
        hint=f"Restore {STORAGE}, or write {content} there, {more}.",
    )
