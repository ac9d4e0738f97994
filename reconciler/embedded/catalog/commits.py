"""Catalog commits: a register with a snapshot and a tail.

`catalog/head.json` holds `serial, id, revision, snapshot {id, key, sha256} | null, tail [commit, …]`. A commit above 16
KiB becomes an object, referenced as `{serial, id, key, sha256}`. After 64 commits, the next one replaces the tail by a
snapshot.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import orjson

from reconciler.archives.objects import RESTORE_HINT, decode_object, get_gzipped, put_gzipped, retry_if_missing
from reconciler.embedded.catalog.model import COMMIT, HEAD
from reconciler.embedded.catalog.tables import Catalog, Draft
from reconciler.embedded.keys import CATALOG, GROUPS, HEADS, PAGES, TRANSACTIONS, catalog_key, parse_catalog_serial
from reconciler.errors import ReconcilerError, UserError
from reconciler.objectstore.base import ObjectStore, check_shape
from reconciler.objectstore.register import Register, RegisterSnapshot, create_mark
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.effects import log_debug

_LATER_FOLDERS: Final = (HEADS, GROUPS, PAGES)
"""Folders that stay empty until the first topic exists."""


def lost_catalog_error(store: ObjectStore, trace: str) -> UserError:
    """Return the error for a lost catalog; `trace` is evidence that one existed."""
    return UserError(f"{store.url}: {lost_catalog_message(trace)}", hint=RESTORE_HINT)


def lost_catalog_message(trace: str) -> str:
    """Return the message for a lost catalog."""
    return f"the catalog is lost: {CATALOG} is missing, and {trace}"


def find_catalog_trace(store: ObjectStore) -> str | None:
    """Return evidence that a catalog existed, or `None`."""
    return next(_find_traces(store), None)


def _is_new_store(store: ObjectStore) -> bool:
    commits = store.list(CATALOG.rpartition("/")[0] + "/")
    return find_catalog_trace(store) is None and not any(parse_catalog_serial(listed.key) for listed in commits)


def _find_traces(store: ObjectStore) -> Iterator[str]:
    for prefix in _LATER_FOLDERS:
        for listed in store.list(prefix):
            yield f"{listed.key} is"
    for listed in store.list(CATALOG.rpartition("/")[0] + "/"):
        # An object of serial 1 proves nothing: the first commit may have failed after it stored its object.
        if (parse_catalog_serial(listed.key) or 0) > 1:
            yield f"{listed.key} is"
    for listed in store.list(TRANSACTIONS):
        if _began_transaction(store, listed.key):
            yield f"{listed.key} is open"


def _began_transaction(store: ObjectStore, key: str) -> bool:
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
    """Return the register of the catalog's head."""
    return Register(store, CATALOG, format="reconciler.catalog/6", shape=HEAD, is_new=_is_new_store)


def find_new_commits(known: Catalog, head: Json) -> tuple[Catalog, list[Json]]:
    """Return the known catalog and the commits after it; if `head` lacks it, an empty catalog and all commits.

    A snapshot counts as a commit.
    """
    commits = [commit for commit in (head["snapshot"], *head["tail"]) if commit is not None]
    ids = [commit["id"] for commit in commits]
    base, left = (known, commits[ids.index(known.id) + 1 :]) if known.id in ids else (Catalog(), commits)
    check_shape([commit for commit in left if commit is not head["snapshot"]], [COMMIT])
    return base, left


def read_commit(store: ObjectStore, commit: Json) -> Json:
    """Return a commit with its tables; verify the sha256 of one stored as an object."""
    return get_gzipped(store, commit["key"], commit["sha256"]) if "key" in commit else commit


def list_referenced_keys(store: ObjectStore, held: RegisterSnapshot) -> list[str]:
    """Return the keys of referenced objects."""
    _, commits = decode_object(store, CATALOG, held.value, lambda head: find_new_commits(Catalog(), head))
    return [commit["key"] for commit in commits if "key" in commit]


def _do_nothing() -> None:
    pass


class CatalogRegister:
    """Reads and commits one cluster's catalog. Thread-safe."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._register = catalog_register(store)
        self._cached = Catalog()

    def __reduce__(self) -> tuple[type[CatalogRegister], tuple[ObjectStore]]:
        return CatalogRegister, (self._store,)

    def read(self) -> Catalog:
        """Return the current catalog by one GET, plus one per uncached object."""
        # Objects are missing if a newer snapshot replaced them and a sweep deleted them.
        return retry_if_missing(lambda: self._read_catalog(self._register.read()))

    def get_cached(self) -> Catalog:
        """Return the cached catalog, or read it."""
        return self._cached if self._cached.serial else self.read()

    def commit(self, decide: Callable[[Draft], object], *, may_go_on: Callable[[], None] = _do_nothing) -> Catalog:
        """Apply `decide` to a draft, commit it in one swap, and return the new catalog.

        After a lost race `decide` runs again, at most 20 times. `may_go_on` runs before every swap; both may raise.

        Raises:
            LostRaceError: Every attempt lost the race.
        """
        commit_id = create_mark()
        written: list[str] = []
        after, attempts = self._cached, 0
        changes: dict[str, int] = {}

        def change(held: RegisterSnapshot | None) -> Json | None:
            nonlocal after, attempts, changes
            attempts += 1
            before = self._read_catalog(held)
            draft = Draft(before)
            decide(draft)
            changes = draft.count_changes()
            if not draft.is_changed:
                after = before
                return None
            after = draft.to_catalog(commit_id)
            following = self._build_head(held, draft, after, written)
            may_go_on()
            return following

        held = self._register.update(change, mark=commit_id)
        # An attempt without an answer may have succeeded; then the head references its objects.
        named = set(list_referenced_keys(self._store, held)) if written and held is not None else set()
        self._store.delete([key for key in written if key not in named])
        log_debug(_LOGGER, "committed", serial=after.serial, changes=changes, attempts=attempts)
        is_known = held is None or (attempts == 1 and held.value["id"] == after.id)
        return self._cache_if_newer(after) if is_known else self._read_catalog(held)

    def _build_head(self, held: RegisterSnapshot | None, draft: Draft, after: Catalog, written: list[str]) -> Json:
        tail: list[Json] = [] if held is None else held.value["tail"]
        snapshot: Json | None = None if held is None else held.value["snapshot"]
        frame: Json = {"serial": after.serial, "id": after.id, "revision": after.revision}
        if len(tail) >= TAIL:
            snapshot, tail = {"id": after.id} | self._put_object(after.serial, after.to_json(), written), []
        else:
            commit = frame | {"tables": draft.changes_to_json()}
            if len(orjson.dumps(commit)) > INLINE_BYTES:
                commit = frame | self._put_object(after.serial, commit, written)
            tail = [*tail, commit]
        return frame | {"snapshot": snapshot, "tail": tail}

    def _put_object(self, serial: int, value: Json, written: list[str]) -> Json:
        key = catalog_key(serial)
        written.append(key)
        return {"key": key, "sha256": put_gzipped(self._store, key, value)}

    def _read_catalog(self, held: RegisterSnapshot | None) -> Catalog:
        catalog = held or self._read_missing_head()
        if catalog is None:
            return Catalog()
        return self._cache_if_newer(decode_object(self._store, CATALOG, catalog.value, self._apply_commits))

    def _read_missing_head(self) -> RegisterSnapshot | None:
        if self._cached.serial:
            trace: str | None = f"commit {self._cached.serial} of it was read before"
        else:
            trace = find_catalog_trace(self._store)
        # Another process may have created the catalog after the first read.
        held = None if trace is None else self._register.read()
        if trace is not None and held is None:
            raise lost_catalog_error(self._store, trace)
        return held

    def _apply_commits(self, value: Json) -> Catalog:
        catalog, commits = find_new_commits(self._cached, value)
        for commit in commits:
            catalog = catalog.apply_commit(read_commit(self._store, commit))
        return catalog

    def _cache_if_newer(self, catalog: Catalog) -> Catalog:
        if catalog.serial >= self._cached.serial:
            self._cached = catalog
        return catalog


class GroupedCatalog(CatalogRegister):
    """A catalog for threads that commit often: commits made during a swap share the next one.

    Each commit succeeds or fails on its own.
    """

    def __init__(self, store: ObjectStore, catalog: CatalogRegister) -> None:
        super().__init__(store)
        self._through = catalog
        self._turn = threading.Lock()
        self._waiting: deque[_Commit] = deque()

    @property
    def waiting_commits(self) -> int:
        """Number of commits waiting for the next swap."""
        return len(self._waiting)

    def read(self) -> Catalog:
        """Return the current catalog."""
        return self._through.read()

    def get_cached(self) -> Catalog:
        """Return the cached catalog."""
        return self._through.get_cached()

    def commit(self, decide: Callable[[Draft], object], *, may_go_on: Callable[[], None] = lambda: None) -> Catalog:
        """Commit like `CatalogRegister.commit`, alone or in a group."""
        ours = _Commit(decide, may_go_on)
        self._waiting.append(ours)
        with self._turn:
            if ours.after is None and ours.error is None:
                self._commit_waiting()
        if ours.error is not None:
            raise ours.error
        assert ours.after is not None  # noqa: S101 - its group has committed it without an error
        return ours.after

    def _commit_waiting(self) -> None:
        group: list[_Commit] = []
        while self._waiting:
            group.append(self._waiting.popleft())
        try:
            self._commit_group(group)
        except BaseException as error:
            for waiting in group:
                waiting.error = waiting.error or error
            raise

    def _commit_group(self, group: list[_Commit]) -> None:
        try:
            after = self._through.commit(
                lambda draft: _decide_all(group, draft), may_go_on=lambda: _check_may_go_on(group)
            )
        except _CommitStoppedError:
            remaining = [commit for commit in group if not commit.is_stopped]
            if remaining:
                self._commit_group(remaining)
            return
        for commit in group:
            commit.after = after


@dataclass(slots=True, eq=False)
class _Commit:
    decide: Callable[[Draft], object]
    may_go_on: Callable[[], None]
    after: Catalog | None = None
    error: BaseException | None = None
    is_stopped: bool = False


class _CommitStoppedError(Exception):
    """A commit failed after it changed the shared draft; the others must decide again."""


def _decide_all(group: list[_Commit], draft: Draft) -> None:
    for commit in group:
        commit.error = None
        try:
            draft.run_or_undo(commit.decide)
        except ReconcilerError as error:
            commit.error = error


def _check_may_go_on(group: list[_Commit]) -> None:
    for commit in group:
        if commit.error is None:
            try:
                commit.may_go_on()
            except ReconcilerError as error:
                commit.error, commit.is_stopped = error, True
    if any(commit.is_stopped for commit in group):
        raise _CommitStoppedError
