"""Object storage: its id (`storage.json`), and that it is apart from roots of clusters, since a sweep deletes there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from reconciler.archives.keys import CLUSTER, REMOTE_TOPICS, STORAGE
from reconciler.archives.objects import damaged, parsed
from reconciler.errors import LostRaceError, ReconcilerError, UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.register import create, is_cut_off
from reconciler.resources.cluster import is_overlapping
from reconciler.runtime.effects import this_host

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore


APART: Final = "Give objectStorage a location of its own, beside the roots of clusters, never in or around one."
_FOLDER: Final = "file://"
_MARK: Final = b'"reconciler.cluster/'
_LOOKED_AT: Final = 1000
"""One page of a listing."""


def check_place(storage: ObjectStore, root: str | None = None) -> None:
    """Refuse as object storage what is, lies in or holds the root of a cluster, as far as that can be told.

    `root`: the URL of the cluster that is to tier there. A GET, and one page of a LIST.

    Raises:
        UserError: It is one, or cannot be read.
    """
    if root is not None and root.startswith(_FOLDER) and is_overlapping(root, storage.url):
        raise UserError(
            f"{storage.url} and the root of the cluster, {root}, are one place or lie in each other", hint=APART
        )
    if storage.get(CLUSTER) is not None:
        raise UserError(f"{storage.url} is the root of a cluster: it holds {CLUSTER}", hint=APART)
    for listed in islice(storage.list(""), _LOOKED_AT):
        if listed.key.endswith(f"/{CLUSTER}") and _is_cluster(storage, listed.key):
            raise UserError(f"{storage.url} holds the root of a cluster: {listed.key}", hint=APART)
    above = next(_roots_above(storage), None)
    if above is not None:
        raise UserError(f"{storage.url} lies in the root of a cluster, {above.url}", hint=APART)


def _roots_above(storage: ObjectStore) -> Iterator[ObjectStore]:
    """Yield the roots that a folder lies in; of a bucket only what the plan is told can be known."""
    if storage.url.startswith(_FOLDER):
        for folder in Path(storage.url.removeprefix(_FOLDER)).parents:
            with suppress(ReconcilerError):  # Who may not look there cannot tell.
                if _is_cluster(DirectoryStore(folder), CLUSTER):
                    yield DirectoryStore(folder)


def _is_cluster(store: ObjectStore, key: str) -> bool:
    found = store.get(key)  # Others may have files of that name.
    return found is not None and _MARK in found.body


_FORMAT: Final = "reconciler.object-storage/1"


def read_storage_id(storage: ObjectStore) -> str | None:
    """Return the id of an object storage; `None`: nobody has tiered into it yet.

    Raises:
        UserError: The file is damaged, or of a newer format.
    """
    stored = storage.get(STORAGE)
    if stored is None or is_cut_off(stored.body):
        return None
    content = parsed(storage, STORAGE, stored.body)
    found = content.get("id")
    if content.get("format") != _FORMAT or not isinstance(found, str) or not found:
        raise damaged(storage, STORAGE, f"its format is {content.get('format')!r}, not {_FORMAT!r}")
    return found


def create_storage(storage: ObjectStore, new_id: Callable[[], str]) -> str:
    """Make it an object storage, if it is none yet, and return its id: that of whoever came first.

    Raises:
        UserError: It does not honour conditional writes, we may not write, list or delete there, a cluster lies there,
            or it was one and has lost its id.
    """
    found = read_storage_id(storage)
    if found is not None:
        return found
    check_place(storage)
    check_not_lost(storage, None)  # Under another id, clusters that are bound to it would find theirs no more.
    check_usable(storage)
    body = orjson.dumps({"format": _FORMAT, "id": new_id()}, option=orjson.OPT_APPEND_NEWLINE)
    with suppress(LostRaceError):  # Somebody else was faster: theirs holds.
        create(storage, STORAGE, body)
    return read_storage_id(storage) or ""


def check_usable(storage: ObjectStore) -> None:
    """Write, change and delete an object, as a remote tier does all the time.

    Raises:
        UserError: It does not honour conditional writes, or we may not write or delete there.
    """
    problems = storage.probe()
    if problems:
        message = f"{storage.url} cannot hold a remote tier: {'; '.join(problems)}"
        raise UserError(message, hint="Name another location: a local disk, or a bucket with conditional writes.")


def check_storage(storage: ObjectStore, expected: str | None) -> None:
    """Refuse another storage than the cluster was bound to: its topics' records are not there (F-R-013).

    Raises:
        UserError: It is another one.
    """
    found = read_storage_id(storage)
    if expected is not None and found is None:
        check_not_lost(storage, expected)
    if expected is not None and found != expected:
        what = "holds nothing of it" if found is None else f"is object storage {found}"
        message = f"{storage.url} {what}: this cluster's topics lie in object storage {expected}"
        raise UserError(message, hint="Set objectStorage back: topics do not move between buckets.")


def check_storage_shared(storage: ObjectStore, expected: str | None) -> None:
    """Refuse another storage where an executor looks: perhaps it is only this machine that does not see the right one.

    Raises:
        UserError: It is another one.
    """
    try:
        check_storage(storage, expected)
    except UserError as error:
        seen = f"If {storage.url} is as it was, the executor on {this_host()} does not see it"
        error.hint = f"{seen}: put it on storage that every executor sees. Otherwise: {error.hint}"
        raise


def check_not_lost(storage: ObjectStore, expected: str | None) -> None:
    """Tell an object storage that lost its `storage.json` from a place where nothing is: one LIST.

    Raises:
        UserError: Remote objects of topics lie there.
    """
    if _holds_topics(storage):
        raise _lost(storage, expected)


def check_given(storage: ObjectStore | None, bound: str | None) -> None:
    """Refuse to go on without the object storage that a cluster is bound to.

    Raises:
        UserError: It is bound to one, and none was given.
    """
    if storage is None and bound is not None:
        message = f"what is remote lies in object storage {bound}, and the cluster is opened without one"
        raise UserError(message, hint="Declare objectStorage of the cluster as it was.")


def _holds_topics(storage: ObjectStore) -> bool:
    return next(iter(storage.list(REMOTE_TOPICS)), None) is not None


def _lost(storage: ObjectStore, expected: str | None) -> UserError:
    """Return the error for an object storage without its id; `expected` is what a cluster that is bound to it knows."""
    bound = "" if expected is None else f": this cluster's topics lie in object storage {expected}"
    content = orjson.dumps({"format": _FORMAT, "id": expected or "ID"}).decode()
    if expected is None:
        more = "with the ID that plans of the clusters bound to it name; where none is left, any new one"
    else:
        more = "if that is it; otherwise set objectStorage back"
    return UserError(
        f"{storage.url} has no {STORAGE}, though remote objects of topics lie there{bound}",
        hint=f"Restore {STORAGE}, or write {content} there, {more}.",
    )
