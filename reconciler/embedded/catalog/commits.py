"""Commits of the catalog: a register with a snapshot and a tail.

`catalog/head.json` holds `serial, id, revision, snapshot {id, key, sha256} | null, tail [commit, …]`. A commit
stands in the tail as it is, or, above 16 KiB, as `{serial, id, key, sha256}` of an object of its own. The commit that
would make the tail longer than 64 writes a snapshot and empties it in the same swap.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

from reconciler.archives.objects import RESTORE_HINT, damaged, decoded, get_gzipped, put_gzipped
from reconciler.embedded.catalog.model import COMMIT, HEAD
from reconciler.embedded.catalog.tables import Catalog, Draft
from reconciler.embedded.keys import CATALOG, GROUPS, HEADS, PAGES, TRANSACTIONS, catalog_key, serial_of_catalog_key
from reconciler.errors import MissingObjectError, ReconcilerError, UserError
from reconciler.objectstore.base import ObjectStore, check_shape
from reconciler.objectstore.register import ReadRegister, Register, fresh_mark
from reconciler.runtime.effects import note

# A catalog that is not there: a new cluster has none yet, and one whose objects tell of a catalog has lost it.


_MADE_AFTER: Final = (HEADS, GROUPS, PAGES)
"""Nothing lies there before a topic does."""


def lost_catalog(store: ObjectStore, trace: str) -> UserError:
    """Return the error for a catalog that is gone, as `trace` tells."""
    return UserError(f"{store.url}: {lost_text(trace)}", hint=RESTORE_HINT)


def lost_text(trace: str) -> str:
    """Say that the catalog is gone, and how that is known."""
    return f"the catalog is lost: {CATALOG} is not there, and {trace}"


def trace_of_catalog(store: ObjectStore) -> str | None:
    """Return what tells that there was a catalog, `None`: nothing. A few listings, each to the first that tells."""
    return next(_traces(store), None)


def _is_new(store: ObjectStore) -> bool:
    """Tell whether a head that is cut off was never whole: nothing was made after it, and no commit lies beside it."""
    commits = store.list(CATALOG.rpartition("/")[0] + "/")
    return trace_of_catalog(store) is None and not any(serial_of_catalog_key(listed.key) for listed in commits)


def _traces(store: ObjectStore) -> Iterator[str]:
    for prefix in _MADE_AFTER:
        for listed in store.list(prefix):
            yield f"{listed.key} is"
    for listed in store.list(CATALOG.rpartition("/")[0] + "/"):
        # A large first commit that died before its swap leaves one of serial 1.
        if (serial_of_catalog_key(listed.key) or 0) > 1:
            yield f"{listed.key} is"
    for listed in store.list(TRANSACTIONS):
        if _has_written(store, listed.key):
            yield f"{listed.key} is open"


def _has_written(store: ObjectStore, key: str) -> bool:
    """Tell whether a transaction is not empty: a producer may claim its id before there is any topic."""
    stored = store.get(key)
    try:
        return stored is not None and orjson.loads(stored.body)["state"] != "empty"
    except (ValueError, KeyError, TypeError):
        return True


Json = dict[str, Any]

_LOGGER: Final = logging.getLogger("reconciler.catalog")

INLINE_BYTES: Final = 16 * 1024
TAIL: Final = 64


def catalog_register(store: ObjectStore) -> Register:
    """Return the register of a cluster's catalog: its head, not what it names."""
    return Register(store, CATALOG, format="reconciler.catalog/6", shape=HEAD, is_new=_is_new)


def named_by(store: ObjectStore, held: ReadRegister) -> list[str]:
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

        def change(held: ReadRegister | None) -> Json | None:
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
        # Any try may have landed: one without an answer may have been on its way while the next was made.
        named = set(named_by(self._store, held)) if written and held is not None else set()
        self._store.delete([key for key in written if key not in named])
        note(_LOGGER, "committed", serial=after.serial, changes=changes, attempts=attempts)
        is_known = held is None or (attempts == 1 and held.value["id"] == after.id)
        return self._remember(after) if is_known else self._folded(held)

    def _next(self, held: ReadRegister | None, draft: Draft, after: Catalog, written: list[str]) -> Json:
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

    def _folded(self, held: ReadRegister | None) -> Catalog:
        catalog = held or self._appeared()
        if catalog is None:
            return Catalog()
        return self._remember(decoded(self._store, CATALOG, catalog.value, self._fold))

    def _appeared(self) -> ReadRegister | None:
        """Look again where there was none; `None`: the cluster is new.

        Raises:
            UserError: There was one, and it is gone: to go on would make everything anew over what is there.
        """
        if self._cached.serial:
            trace: str | None = f"commit {self._cached.serial} of it was read before"
        else:
            trace = trace_of_catalog(self._store)
        # Read after the trace: whoever made the first topic meanwhile has left one.
        held = None if trace is None else self._register.read()
        if trace is not None and held is None:
            raise lost_catalog(self._store, trace)
        return held

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


# Commits of many threads that come together are one swap: a hundred migrations side by side do not race each other.


class GroupedCatalog(CatalogRegister):
    """The catalog for threads that commit much: whoever comes while a swap is under way goes with the next one.

    Each commit is whole or not there, whatever becomes of those it goes with.
    """

    def __init__(self, store: ObjectStore, catalog: CatalogRegister) -> None:
        """Commit through `catalog`, which knows what was read."""
        super().__init__(store)
        self._through = catalog
        self._turn = threading.Lock()
        self._waiting: deque[_Commit] = deque()

    @property
    def waiting(self) -> int:
        """How many commits wait for the next swap."""
        return len(self._waiting)

    def read(self) -> Catalog:
        """Return the catalog as it is now."""
        return self._through.read()

    def known(self) -> Catalog:
        """Return the catalog as it was last read or committed."""
        return self._through.known()

    def commit(self, decide: Callable[[Draft], object], *, may_go_on: Callable[[], None] = lambda: None) -> Catalog:
        """Commit as the register does, alone or with others."""
        ours = _Commit(decide, may_go_on)
        self._waiting.append(ours)
        with self._turn:
            if ours.after is None and ours.error is None:
                self._commit_waiting()
        if ours.error is not None:
            raise ours.error
        assert ours.after is not None  # noqa: S101 - it came with a group, and did not fail
        return ours.after

    def _commit_waiting(self) -> None:
        group: list[_Commit] = []
        while self._waiting:
            group.append(self._waiting.popleft())
        try:
            self._commit_group(group)
        except BaseException as error:
            for one in group:
                one.error = one.error or error
            raise

    def _commit_group(self, group: list[_Commit]) -> None:
        try:
            after = self._through.commit(lambda draft: _decide(group, draft), may_go_on=lambda: _check(group))
        except _OneMayNotGoOnError:
            left = [one for one in group if not one.is_stopped]
            if left:
                self._commit_group(left)
            return
        for one in group:
            one.after = after


@dataclass(slots=True, eq=False)
class _Commit:
    """What one thread wants, and what came of it."""

    decide: Callable[[Draft], object]
    may_go_on: Callable[[], None]
    after: Catalog | None = None
    error: BaseException | None = None
    is_stopped: bool = False
    """Whether it may not go on: the others go on without it."""


class _OneMayNotGoOnError(Exception):
    """One of a group may not; what it decided is in the draft already, so the others decide anew."""


def _decide(group: list[_Commit], draft: Draft) -> None:
    for one in group:
        one.error = None
        try:
            draft.attempt(one.decide)
        except ReconcilerError as error:
            one.error = error


def _check(group: list[_Commit]) -> None:
    for one in group:
        if one.error is None:
            try:
                one.may_go_on()
            except ReconcilerError as error:
                one.error, one.is_stopped = error, True
    if any(one.is_stopped for one in group):
        raise _OneMayNotGoOnError
