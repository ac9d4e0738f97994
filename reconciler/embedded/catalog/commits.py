"""The catalog as a register: a snapshot and a tail of commits, changed by one swap each.

`catalog/head.json` holds `serial, id, revision, snapshot {id, key, sha256} | null, tail [commit, …]`. A commit
stands in the tail as it is, or, above 16 KiB, as `{serial, id, key, sha256}` of an object of its own. The commit that
would make the tail longer than 64 writes a snapshot and empties it in the same swap.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import orjson

from reconciler.embedded.catalog.absence import lost_catalog, trace_of_catalog
from reconciler.embedded.catalog.shapes import COMMIT, HEAD
from reconciler.embedded.catalog.tables import Catalog, Draft
from reconciler.embedded.jsonobjects import damaged, get_gzipped, put_gzipped
from reconciler.embedded.keys import CATALOG, catalog_key, fresh_mark
from reconciler.errors import MissingObjectError
from reconciler.noting import note
from reconciler.objectstore.register import Register
from reconciler.objectstore.shapes import check_shape

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.register import Held

Json = dict[str, Any]

_LOGGER: Final = logging.getLogger("reconciler.catalog")

INLINE_BYTES: Final = 16 * 1024
TAIL: Final = 64


def catalog_register(store: ObjectStore) -> Register:
    """Return the register of a cluster's catalog: its head, not what it names."""
    return Register(store, CATALOG, format="reconciler.catalog/5", shape=HEAD)


def named_by(store: ObjectStore, held: Held) -> list[str]:
    """Return the keys of the objects that the register names.

    Raises:
        UserError: It is damaged.
    """
    try:
        check_shape(held.value["tail"], [COMMIT])
    except TypeError as error:
        raise damaged(store, CATALOG, str(error)) from error
    pieces = [held.value["snapshot"], *held.value["tail"]]
    return [piece["key"] for piece in pieces if piece is not None and "key" in piece]


def _go_on() -> None:
    """Go on: there is no lease that could be lost."""


class CatalogRegister:
    """Reads and commits the catalog of one cluster. Safe to share between threads."""

    def __init__(self, store: ObjectStore) -> None:
        """Name the register; nothing is read yet."""
        self._store = store
        self._register = catalog_register(store)
        self._cached = Catalog()

    def __reduce__(self) -> tuple[type[CatalogRegister], tuple[ObjectStore]]:
        """Travel without what was read."""
        return CatalogRegister, (self._store,)

    def read(self) -> Catalog:
        """Return the catalog as it is now: one GET, and what has not been read before.

        Raises:
            UserError: It is damaged, or lost.
        """
        try:
            return self._folded(self._register.read())
        except MissingObjectError:
            # What the head named may have been folded into a newer snapshot and swept since: look again, once.
            return self._folded(self._register.read())

    def known(self) -> Catalog:
        """Return the catalog as it was last read or committed here; reads it where it never was."""
        return self._cached if self._cached.serial else self.read()

    def commit(self, decide: Callable[[Draft], object], *, may_go_on: Callable[[], None] = _go_on) -> Catalog:
        """Let `decide` change a draft, commit it by one swap, and return the catalog that holds then.

        `decide` checks what it needs and raises to refuse; it runs again on the newer catalog when another commit was
        faster, at most 20 times. A draft that is left as it was commits nothing. `may_go_on` is asked right before
        every swap, and may raise: what was decided, and written beside the head, may have taken long.

        Raises:
            LostRaceError: Others were faster every time.
            UserError: It is damaged, or lost; nothing was written.
        """
        commit_id = fresh_mark()
        written: list[str] = []
        after, attempts = self._cached, 0
        changes: dict[str, int] = {}

        def change(held: Held | None) -> Json | None:
            nonlocal after, attempts, changes
            attempts += 1
            before = self._folded(held)
            draft = Draft(before)
            decide(draft)
            changes = draft.counts()
            if not draft.is_changed:
                after = before
                return None
            after = draft.committed(commit_id)
            following = self._next(held, draft, after, written)
            may_go_on()
            return following

        held = self._register.update(change, mark=commit_id)
        # Only the last try can have landed: what the tries before it wrote is named by nobody.
        self._store.delete(written[:-1])
        note(_LOGGER, "committed", serial=after.serial, changes=changes, attempts=attempts)
        return self._remember(after if held is None or held.value["id"] == after.id else self._folded(held))

    def _next(self, held: Held | None, draft: Draft, after: Catalog, written: list[str]) -> Json:
        """Return what the register shall hold, having written what does not fit into it."""
        tail: list[Json] = [] if held is None else held.value["tail"]
        snapshot: Json | None = None if held is None else held.value["snapshot"]
        frame: Json = {"serial": after.serial, "id": after.id, "revision": after.revision}
        if len(tail) >= TAIL:
            snapshot, tail = {"id": after.id} | self._put(after.serial, after.to_json(), written), []
        else:
            commit = frame | {"tables": draft.tables()}
            if len(orjson.dumps(commit)) > INLINE_BYTES:
                commit = frame | self._put(after.serial, commit, written)
            tail = [*tail, commit]
        return frame | {"snapshot": snapshot, "tail": tail}

    def _put(self, serial: int, value: Json, written: list[str]) -> Json:
        key = catalog_key(serial)
        written.append(key)
        return {"key": key, "sha256": put_gzipped(self._store, key, value)}

    def _folded(self, held: Held | None) -> Catalog:
        found = held or self._appeared()
        if found is None:
            return Catalog()
        try:
            return self._remember(self._fold(found.value))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise damaged(self._store, CATALOG, f"{type(error).__name__}: {error}") from error

    def _appeared(self) -> Held | None:
        """Look again where there was none; `None`: the cluster is new.

        Raises:
            UserError: There was one, and it is gone: to go on would make everything anew over what is there.
        """
        if self._cached.serial:
            trace: str | None = f"commit {self._cached.serial} of it was read before"
        else:
            trace = trace_of_catalog(self._store)
        # Read after the trace: whoever made the first topic meanwhile has left one.
        found = None if trace is None else self._register.read()
        if trace is not None and found is None:
            raise lost_catalog(self._store, trace)
        return found

    def _fold(self, value: Json) -> Catalog:
        """Fold what is new onto what is cached, or onto the snapshot where the cached lies before it."""
        tail: list[Json] = value["tail"]
        cached, snapshot = self._cached, value["snapshot"]
        known = [commit["id"] for commit in tail]
        if cached.id in known:
            catalog, tail = cached, tail[known.index(cached.id) + 1 :]
        elif snapshot is None:
            catalog = Catalog()
        elif cached.id == snapshot["id"]:
            catalog = cached
        else:
            catalog = Catalog.from_json(get_gzipped(self._store, snapshot["key"], snapshot["sha256"]))
        for commit in tail:
            catalog = catalog.after(self._whole(commit))
        return catalog

    def _whole(self, commit: Json) -> Json:
        """Return a commit with its tables; those in an object of their own are known by its sha256."""
        check_shape(commit, COMMIT)
        return get_gzipped(self._store, commit["key"], commit["sha256"]) if "key" in commit else commit

    def _remember(self, catalog: Catalog) -> Catalog:
        if catalog.serial >= self._cached.serial:
            self._cached = catalog
        return catalog
