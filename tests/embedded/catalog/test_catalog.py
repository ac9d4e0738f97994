"""The catalog: one register, a snapshot and a tail; one swap a commit, however large."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from reconciler.embedded.catalog.commits import INLINE_BYTES, TAIL, CatalogRegister, GroupedCatalog
from reconciler.embedded.catalog.model import NamespaceEntry
from reconciler.embedded.catalog.topics import TopicShape, create_namespace, create_topic
from reconciler.errors import LeaseError, LostRaceError, MissingObjectError, RetryableError, UserError
from reconciler.objectstore import register
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from tests.contracts.lossy import LossyStore
from tests.embedded.samples import cluster_in, ids
from tests.embedded.stores import LateStore, WatchedStore

if TYPE_CHECKING:
    from reconciler.embedded.catalog.tables import Catalog, Draft
    from reconciler.objectstore.base import ObjectStore


HEAD = "catalog/head.json"


def head_of(store: ObjectStore) -> dict[str, Any]:
    stored = store.get(HEAD)
    assert stored is not None
    value: dict[str, Any] = orjson.loads(stored.body)
    return value


def overwrite(store: ObjectStore, key: str, body: bytes) -> None:
    store.delete([key])
    store.swap(key, body, expected=None)


def many(count: int, new_id: Any) -> Any:
    def decide(draft: Draft) -> None:
        for number in range(count):
            create_topic(draft, f"t{number}", TopicShape(partitions=12), topic_id=new_id())

    return decide


def test_ten_thousand_topics_are_one_object_and_one_swap() -> None:
    store = WatchedStore(MemoryStore())
    CatalogRegister(store).commit(many(10_000, ids()))
    assert store.count("swap") == 1
    assert store.count("put") == 1
    assert len(list(store.list(""))) == 2
    assert len(CatalogRegister(store).read().topics) == 10_000


def test_a_small_commit_stands_in_the_head_itself() -> None:
    store = WatchedStore(MemoryStore())
    cluster_in(store).create_topic("orders")
    assert store.count("put") == 0
    (commit,) = head_of(store)["tail"]
    assert commit["tables"]["topics"]["orders"]["partitions"] == 1


def test_a_commit_of_more_than_16_kib_is_an_object_of_its_own() -> None:
    store = MemoryStore()
    CatalogRegister(store).commit(many(500, ids()))
    (commit,) = head_of(store)["tail"]
    assert sorted(commit) == ["id", "key", "revision", "serial", "sha256"]
    stored = store.get(commit["key"])
    assert stored is not None
    assert len(gzip.decompress(stored.body)) > INLINE_BYTES


def test_the_tail_becomes_a_snapshot_after_64_commits(store: ObjectStore) -> None:
    cluster = cluster_in(store)
    for number in range(TAIL):
        cluster.create_topic(f"t{number}")
    assert head_of(store)["snapshot"] is None
    assert len(head_of(store)["tail"]) == TAIL
    cluster.create_topic("last")
    assert head_of(store)["tail"] == []
    assert head_of(store)["snapshot"]["key"].startswith("catalog/000000000065-")
    cluster.create_topic("after")
    assert len(CatalogRegister(store).read().topics) == TAIL + 2
    assert CatalogRegister(store).read().serial == TAIL + 2


def test_what_was_read_is_not_read_again() -> None:
    store = WatchedStore(MemoryStore())
    cluster = cluster_in(store)
    cluster.catalog.commit(many(1_000, ids()))
    reader = CatalogRegister(store)
    reader.read()
    store.calls.clear()
    assert len(reader.read().topics) == 1_000
    cluster.create_topic("one-more")
    store.calls.clear()
    assert len(reader.read().topics) == 1_001
    assert store.calls == [("get", HEAD)]


def test_a_reader_that_fell_behind_a_snapshot_catches_up() -> None:
    store = MemoryStore()
    cluster, reader = cluster_in(store), CatalogRegister(store)
    cluster.create_topic("first")
    reader.read()
    for number in range(2 * TAIL):
        cluster.create_topic(f"t{number}")
    assert reader.read() == CatalogRegister(store).read()


def test_a_commit_that_lost_a_race_decides_again_on_what_it_finds() -> None:
    inner = MemoryStore()
    other = cluster_in(inner)
    seen: list[int] = []

    def intrude(what: str, key: str) -> None:
        if (what, key) == ("swap", HEAD) and len(seen) < 3:
            other.create_topic(f"other-{len(seen)}")

    def decide(draft: Draft) -> None:
        seen.append(len(draft.topics))
        create_topic(draft, "mine", TopicShape(partitions=1), topic_id="mine")

    after = CatalogRegister(WatchedStore(inner, before=intrude)).commit(decide)
    assert seen == [0, 1, 2]
    assert sorted(after.topics) == ["mine", "other-1", "other-2"]


def test_what_lost_tries_wrote_is_removed() -> None:
    inner = MemoryStore()
    other, new_id, tries = cluster_in(inner), ids(), 0

    def intrude(what: str, key: str) -> None:
        nonlocal tries
        if (what, key) == ("swap", HEAD):
            tries += 1
            if tries <= 2:
                other.create_topic(f"other-{tries}")

    CatalogRegister(WatchedStore(inner, before=intrude)).commit(many(500, new_id))
    assert tries == 3
    assert len(list(inner.list("catalog/"))) == 2


def test_a_commit_that_always_loses_gives_up_when_its_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register, "PATIENCE_S", 0.2)
    inner = MemoryStore()
    other, tries = cluster_in(inner), 0

    def intrude(what: str, key: str) -> None:
        nonlocal tries
        if (what, key) == ("swap", HEAD):
            tries += 1
            other.create_topic(f"other-{tries}")

    with pytest.raises(LostRaceError):
        cluster_in(WatchedStore(inner, before=intrude)).create_topic("mine")
    assert tries > 2
    assert "mine" not in other.catalog.read().topics


def test_a_commit_whose_answer_was_lost_and_that_was_built_upon_is_not_made_twice() -> None:
    inner = MemoryStore()
    other = cluster_in(inner)
    register = CatalogRegister(LossyStore(inner, meanwhile=lambda: other.create_topic("theirs")))
    after = register.commit(many(2, ids()))
    assert sorted(after.topics) == ["t0", "t1", "theirs"]
    assert after.serial == 2
    assert after.revision == 3


def test_a_commit_whose_first_try_lands_late_keeps_what_that_wrote() -> None:
    store, new_id = LateStore(HEAD), ids()
    mine = CatalogRegister(store)
    mine.commit(many(500, new_id))
    assert store.is_over
    found = CatalogRegister(store).read()
    assert len(found.topics) == 500
    assert mine.get_cached() == found  # Not what the second try decided.
    assert len(list(store.list("catalog/"))) == 2


def test_a_refused_commit_changes_nothing(store: ObjectStore) -> None:
    cluster = cluster_in(store)
    cluster.create_topic("orders")
    before = store.get(HEAD)
    with pytest.raises(UserError, match="orders exists"):
        cluster.create_topic("orders")
    cluster.alter_topic("orders", {"retention.ms": None})
    assert store.get(HEAD) == before


def test_initial_revisions_are_never_given_twice(store: ObjectStore) -> None:
    cluster = cluster_in(store)
    for number in range(3):
        cluster.create_topic("orders")
        assert cluster.topic("orders").revision == number + 1
        cluster.delete_topic("orders")


def test_threads_that_commit_at_once_lose_nothing(store: ObjectStore) -> None:
    cluster = cluster_in(store)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: cluster.create_topic(f"t{number}"), range(24)))
    assert len(cluster.topics()) == 24
    assert sorted(topic.revision for topic in cluster.topics().values()) == list(range(1, 25))


def commit_some(root: Path, runner: int) -> None:
    cluster = cluster_in(DirectoryStore(root))
    for number in range(10):
        cluster.create_topic(f"runner-{runner}-{number}")


@pytest.mark.thorough
def test_processes_that_commit_at_once_lose_nothing(tmp_path: Path) -> None:
    with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as processes:
        list(processes.map(commit_some, [tmp_path] * 3, range(3)))
    catalog = CatalogRegister(DirectoryStore(tmp_path)).read()
    assert (len(catalog.topics), catalog.serial, catalog.revision) == (30, 30, 30)


# -- damage


@pytest.fixture
def large(store: ObjectStore) -> str:
    """A catalog whose only commit is an object; its key."""
    cluster_in(store).catalog.commit(many(500, ids()))
    key: str = head_of(store)["tail"][0]["key"]
    return key


@pytest.mark.parametrize("cut", [0, 1, 100])
def test_a_truncated_head_is_said_by_name(store: ObjectStore, large: str, cut: int) -> None:
    stored = store.get(HEAD)
    assert stored is not None
    assert large
    overwrite(store, HEAD, stored.body[:cut])
    with pytest.raises(UserError, match=r"catalog/head\.json cannot be read") as error:
        CatalogRegister(store).read()
    assert "Restore it" in error.value.hint


def test_a_truncated_commit_is_said_by_name(store: ObjectStore, large: str) -> None:
    stored = store.get(large)
    assert stored is not None
    overwrite(store, large, stored.body[:-20])
    with pytest.raises(UserError, match=rf"{large} cannot be read: its sha256 is"):
        CatalogRegister(store).read()


def test_a_commit_that_is_gone_is_said_by_name(store: ObjectStore, large: str) -> None:
    store.delete([large])
    with pytest.raises(MissingObjectError, match=rf"the catalog cannot be read: .* has no object {large}"):
        CatalogRegister(store).read()


def test_a_reader_overtaken_by_a_snapshot_and_a_sweep_looks_again() -> None:
    inner = MemoryStore()
    cluster = cluster_in(inner)
    cluster.catalog.commit(many(500, ids()))
    key = head_of(inner)["tail"][0]["key"]

    class Overtaken(WatchedStore):
        def get(self, key: str) -> Any:
            found = super().get(key)
            if len(self.calls) == 1:
                for number in range(TAIL):
                    cluster.create_topic(f"later-{number}")
                inner.delete([swept])
            return found

    swept = key
    assert len(CatalogRegister(Overtaken(inner)).read().topics) == 500 + TAIL


def test_a_head_without_its_fields_is_damaged_not_a_traceback(store: ObjectStore, large: str) -> None:
    value = head_of(store)
    assert large
    for field in ("tail", "snapshot"):
        overwrite(store, HEAD, orjson.dumps({key: kept for key, kept in value.items() if key != field}))
        with pytest.raises(UserError, match="cannot be read"):
            CatalogRegister(store).read()


def test_a_newer_format_is_refused_with_the_way_out(store: ObjectStore, large: str) -> None:
    assert large
    overwrite(store, HEAD, orjson.dumps(head_of(store) | {"format": "reconciler.catalog/99"}))
    with pytest.raises(UserError, match="newer version of reconciler") as error:
        cluster_in(store).create_topic("orders")
    assert "pip install --upgrade" in error.value.hint


# -- loss


def lose(store: ObjectStore) -> None:
    store.delete([HEAD])


def leave_page(store: ObjectStore) -> None:
    store.put("pages/some-id/00000/0123.json", b"x")


def leave_group(store: ObjectStore) -> None:
    store.put("groups/shop.json", b"x")


def leave_second_commit(store: ObjectStore) -> None:
    store.put("catalog/000000000002-01234567.json.gz", b"x")


def leave_open_transaction(store: ObjectStore) -> None:
    store.put("transactions/checkout.json", b'{"state": "ongoing"}')


def leave_head(store: ObjectStore) -> None:
    store.put("heads/some-id/00000.json", b"x")


LEFT = [leave_head, leave_group, leave_page, leave_second_commit, leave_open_transaction]


@pytest.mark.parametrize("leave", LEFT, ids=lambda leave: str(leave.__name__))
def test_a_lost_catalog_is_not_an_empty_one(store: ObjectStore, leave: Any) -> None:
    cluster_in(store)
    leave(store)
    before = [listed.key for listed in store.list("")]
    for act in (lambda c: c.catalog.read(), lambda c: c.create_topic("orders"), lambda c: c.sweep()):
        with pytest.raises(UserError, match=r"the catalog is lost: catalog/head\.json is missing, and ") as error:
            act(cluster_in(store))
        assert "Restore it from a copy" in error.value.hint
    assert [listed.key for listed in store.list("")] == before


def test_who_has_read_a_catalog_knows_that_it_is_lost(store: ObjectStore) -> None:
    cluster = cluster_in(store)
    cluster.create_topic("orders")
    lose(store)
    for act in (cluster.catalog.read, lambda: cluster.create_topic("clicks")):
        with pytest.raises(UserError, match="commit 1 of it was read before"):
            act()
    assert store.get(HEAD) is None


def test_what_lies_in_a_new_cluster_before_its_first_topic_is_no_sign_of_a_catalog(store: ObjectStore) -> None:
    cluster = cluster_in(store)
    store.put("catalog/000000000001-01234567.json.gz", b"a large first commit that died")
    cluster.producer("checkout").init_transactions()
    cluster_in(store).create_topic("orders")
    assert list(cluster.topics()) == ["orders"]


def test_a_first_topic_made_while_we_look_is_no_loss() -> None:
    inner = MemoryStore()
    others = cluster_in(inner)

    class Overtaken(WatchedStore):
        """A store in which somebody else makes the first topic after each first look at the catalog."""

        def get(self, key: str) -> Any:
            found = super().get(key)
            if key == HEAD and "orders" not in others.topics():
                others.create_topic("orders")
                with others.producer() as producer:
                    producer.send("orders", "a")
            return found

    assert list(cluster_in(Overtaken(inner)).topics()) == ["orders"]
    inner = MemoryStore()
    others = cluster_in(inner)
    late = cluster_in(Overtaken(inner))
    late.create_topic("clicks")
    assert sorted(late.topics()) == ["clicks", "orders"]


def test_the_look_ends_at_the_first_sign(store: ObjectStore) -> None:
    for number in range(50):
        store.put(f"heads/some-id/{number:05}.json", b"x")
    watched = WatchedStore(store)
    with pytest.raises(UserError, match=r"heads/some-id/00000\.json is"):
        CatalogRegister(watched).read()
    assert watched.count("list") == 1


# Commits of many threads that come together: one swap, and each is whole or not there.


def made(name: str) -> Callable[[Draft], object]:
    return lambda draft: create_namespace(draft, name, NamespaceEntry())


def refused(draft: Draft) -> None:
    create_namespace(draft, "half", NamespaceEntry())
    raise UserError("no", hint="Never.")


class Gathering:
    """Commits that come while the swap of a first one is in progress, each from a thread of its own."""

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
        with ThreadPoolExecutor(len(commits) + 1) as threads:
            first = threads.submit(self.catalog.commit, made("first"))
            assert self.is_under_way.wait(10)
            others = [threads.submit(self.catalog.commit, decide, may_go_on=check) for decide, check in commits]
            while self.catalog.waiting_commits < len(commits):
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
    assert gathering.catalog.get_cached().serial == after.serial
