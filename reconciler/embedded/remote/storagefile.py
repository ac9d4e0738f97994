"""`storage.json`: which object storage this is. Written once, by whoever binds the first cluster to it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import orjson

from reconciler.embedded.jsonobjects import damaged, parsed
from reconciler.embedded.keys import REMOTE_TOPICS, STORAGE
from reconciler.embedded.remote.placing import check_place
from reconciler.errors import LostRaceError, UserError
from reconciler.objectstore.cutoff import create, is_cut_off

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.objectstore.base import ObjectStore

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
