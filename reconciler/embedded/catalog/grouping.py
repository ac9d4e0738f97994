"""Commits of many threads that come together are one swap: a hundred migrations side by side do not race each other."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.embedded.catalog.commits import CatalogRegister
from reconciler.errors import ReconcilerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.embedded.catalog.tables import Catalog, Draft
    from reconciler.objectstore.base import ObjectStore


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
