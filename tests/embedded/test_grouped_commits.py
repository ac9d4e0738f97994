"""Commits of many threads that come together: one swap, and each is whole or not there."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.catalog.commits import CatalogRegister, GroupedCatalog
from reconciler.embedded.catalog.model import NamespaceEntry
from reconciler.embedded.catalog.topics import create_namespace
from reconciler.errors import LeaseError, RetryableError, UserError
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.watched import WatchedStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from reconciler.embedded.catalog.tables import Catalog, Draft


def made(name: str) -> Callable[[Draft], object]:
    return lambda draft: create_namespace(draft, name, NamespaceEntry())


def refused(draft: Draft) -> None:
    """Change something, then refuse."""
    create_namespace(draft, "half", NamespaceEntry())
    raise UserError("no", hint="Never.")


class Gathering:
    """Commits that come while the swap of a first one is under way, each from a thread of its own."""

    def __init__(self, *, fails_at: int | None = None) -> None:
        self.swaps = 0
        self.fails_at = fails_at
        self.is_under_way, self.may_end = threading.Event(), threading.Event()
        self.store = WatchedStore(MemoryStore(), before=self._before)
        self.catalog = GroupedCatalog(self.store, CatalogRegister(self.store))

    def _before(self, what: str, _key: str) -> None:
        if what != "swap":
            return
        self.swaps += 1
        if self.swaps == self.fails_at:
            raise RetryableError("the store is away", hint="Try again.")
        self.is_under_way.set()
        assert self.may_end.wait(10)

    def commit(self, commits: Sequence[tuple[Callable[[Draft], object], Callable[[], None]]]) -> list[Future[Catalog]]:
        """Return what came of each."""
        with ThreadPoolExecutor(len(commits) + 1) as threads:
            first = threads.submit(self.catalog.commit, made("first"))
            assert self.is_under_way.wait(10)
            others = [threads.submit(self.catalog.commit, decide, may_go_on=check) for decide, check in commits]
            while self.catalog.waiting < len(commits):
                assert not any(each.done() for each in others)
            self.may_end.set()
        assert first.exception() is None
        return others


def go_on() -> None:
    """Go on."""


def stop() -> None:
    raise LeaseError("another run took over", hint="Let it end.")


def test_what_comes_while_a_swap_is_under_way_goes_together_with_the_next() -> None:
    gathering = Gathering()
    names = [f"n{number}" for number in range(20)]
    found = gathering.commit([(made(name), go_on) for name in names])
    assert gathering.swaps == 2
    assert sorted(gathering.catalog.read().namespaces) == sorted(["first", *names])
    assert {each.result().serial for each in found} == {2}


def test_one_that_refuses_leaves_nothing_behind_and_keeps_no_other() -> None:
    gathering = Gathering()
    before, ours, after = gathering.commit([(made("a"), go_on), (refused, go_on), (made("b"), go_on)])
    with pytest.raises(UserError, match="no"):
        ours.result()
    assert (before.exception(), after.exception()) == (None, None)
    assert sorted(gathering.catalog.read().namespaces) == ["a", "b", "first"]


def test_one_that_may_not_go_on_commits_nothing_and_keeps_no_other() -> None:
    gathering = Gathering()
    before, ours, after = gathering.commit([(made("a"), go_on), (made("c"), stop), (made("b"), go_on)])
    with pytest.raises(LeaseError):
        ours.result()
    assert (before.exception(), after.exception()) == (None, None)
    assert sorted(gathering.catalog.read().namespaces) == ["a", "b", "first"]


def test_where_the_store_fails_all_that_went_together_fail_and_the_next_go_on() -> None:
    gathering = Gathering(fails_at=2)
    found = gathering.commit([(made("a"), go_on), (made("b"), go_on)])
    assert [type(each.exception()) for each in found] == [RetryableError, RetryableError]
    gathering.catalog.commit(made("c"))
    assert sorted(gathering.catalog.read().namespaces) == ["c", "first"]


def test_what_others_committed_meanwhile_is_seen() -> None:
    gathering = Gathering()
    gathering.may_end.set()
    other = CatalogRegister(gathering.store)
    gathering.catalog.commit(made("a"))
    other.commit(made("b"))
    after = gathering.catalog.commit(lambda draft: create_namespace(draft, "a:c", NamespaceEntry()))
    assert sorted(after.namespaces) == ["a", "a:c", "b"]
    assert gathering.catalog.known().serial == after.serial
