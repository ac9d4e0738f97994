"""Checking a cluster: everything that can be wrong with it is found, said with its offsets, and mended where safe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from reconciler.archives.keys import CLUSTER
from reconciler.embedded.catalog.model import DeletionEntry, RewriteEntry, TopicEntry
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.check.damage import CheckFinding, CheckResult, Kind, Severity
from reconciler.embedded.check.mend import repair_findings
from reconciler.embedded.check.sweep import SweepResult
from reconciler.embedded.clients.transactions import TransactionState
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.keys import CATALOG, group_key, head_key, part_key, transaction_key
from reconciler.embedded.segments import head as head_module
from reconciler.embedded.segments.groups import commit_offsets
from reconciler.embedded.segments.head import replace_writer
from reconciler.errors import MendFirstError, StoreRefusedError, UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.objectstore.wrappers import WrappedStore
from reconciler.records.log import OffsetRange
from reconciler.resources.mirrors import MirrorEntry
from tests.embedded.samples import NOW, cluster_in, numbered, values
from tests.embedded.stores import WatchedStore

if TYPE_CHECKING:
    from reconciler.embedded.catalog.tables import Draft
    from reconciler.objectstore.base import ObjectStore, StoredObject

ORDERS, CLICKS, GROUP, CHECKOUT = "shop:eu:orders", "clicks", "shop:billing", "checkout"
ERROR, WARNING, NOTE = Severity


@pytest.fixture
def busy(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> EmbeddedCluster:
    """A cluster with a topic in pages of pages, one of several partitions, and a group that reads."""
    monkeypatch.setattr(head_module, "TAIL", 4)
    monkeypatch.setattr(head_module, "BRANCHES", 2)
    cluster.create_namespace("shop:eu")
    cluster.create_topic(ORDERS)
    cluster.create_topic(CLICKS, partitions=4)
    sink = cluster.sink(ORDERS)
    for start in range(0, 40, 2):
        sink.publish([sink.stage(0, [numbered(start, 2)], at=OffsetRange(start, start + 2))])
    with cluster.producer() as producer:
        producer.append(CLICKS, values("a", "b", "c", partition=[0, 0, 1]))
    producer = cluster.producer(CHECKOUT)
    producer.init_transactions()
    with producer.transaction():
        producer.send(CLICKS, "committed", partition=1)
    place = cluster.topic(ORDERS).id, 0
    commit_offsets(cluster.store, cluster.catalog, GROUP, {place: 20}, mark="m", now_ms=NOW)
    return cluster


# -- damage, done by hand


@dataclass(frozen=True)
class Damage:
    """What is done to a cluster, what is found then, and what it means."""

    do: Callable[[EmbeddedCluster], None]
    finds: tuple[Kind, ...]
    gone: tuple[OffsetRange, ...] = ()
    says: str = ""
    is_mended: bool = False


def edit(store: ObjectStore, key: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Change an object as somebody with an editor would."""
    found = store.get(key)
    assert found is not None
    value = orjson.loads(found.body)
    change(value)
    store.swap(key, orjson.dumps(value), expected=found.version)


def overwrite(store: ObjectStore, key: str, body: bytes) -> None:
    found = store.get(key)
    store.swap(key, body, expected=None if found is None else found.version)


def head_of(cluster: EmbeddedCluster, topic: str, partition: int = 0) -> str:
    return head_key(cluster.topic(topic).id, partition)


def on_head(change: Callable[[dict[str, Any]], object], topic: str = CLICKS) -> Callable[[EmbeddedCluster], None]:
    return lambda cluster: edit(cluster.store, head_of(cluster, topic), change)


def on_catalog(change: Callable[[Draft], object]) -> Callable[[EmbeddedCluster], None]:
    def do(cluster: EmbeddedCluster) -> None:
        cluster.catalog.commit(change)

    return do


def keys(store: ObjectStore, prefix: str) -> list[str]:
    return [listed.key for listed in store.list(prefix)]


def parts_of(cluster: EmbeddedCluster, topic: str) -> list[str]:
    log = cluster.log(topic)
    head = log.read_head(0)
    assert head is not None
    return [entry.key for entry in log.iter_local_entries(head, OffsetRange(0, head.end))]


def delete_parts(*numbers: int) -> Callable[[EmbeddedCluster], None]:
    def do(cluster: EmbeddedCluster) -> None:
        named = parts_of(cluster, ORDERS)
        cluster.store.delete([named[number] for number in numbers])

    return do


def cut_part(cluster: EmbeddedCluster) -> None:
    key = parts_of(cluster, ORDERS)[3]
    found = cluster.store.get(key)
    assert found is not None
    overwrite(cluster.store, key, found.body[:-10])


def page_of_pages(cluster: EmbeddedCluster) -> str:
    head = cluster.log(ORDERS).read_head(0)
    assert head is not None
    assert head.pages[0].level > 0
    return head.pages[0].key


def leaf_page(cluster: EmbeddedCluster) -> str:
    return next(
        key for key in keys(cluster.store, "pages/") if b'"entries":[' in (cluster.store.get(key) or _none()).body
    )


def _none() -> Any:
    raise AssertionError


def move_and_lose_head(cluster: EmbeddedCluster) -> None:
    cluster.move_topic(ORDERS, "moved")
    cluster.store.delete([head_of(cluster, "moved")])


def lose_root_page(cluster: EmbeddedCluster) -> None:
    cluster.store.delete([page_of_pages(cluster)])


def hide_a_page(cluster: EmbeddedCluster) -> None:
    edit(cluster.store, page_of_pages(cluster), lambda page: page["pages"].pop())


def spoil_leaf(cluster: EmbeddedCluster) -> None:
    edit(cluster.store, leaf_page(cluster), lambda page: page["entries"][0].update(bytes="many"))


def name_twice(cluster: EmbeddedCluster) -> None:
    key = parts_of(cluster, ORDERS)[0]
    size = len((cluster.store.get(key) or _none()).body)
    edit(cluster.store, head_of(cluster, CLICKS), lambda head: head["entries"][0].update(key=key, bytes=size))


def make_snapshot(cluster: EmbeddedCluster) -> str:
    for number in range(70):
        cluster.create_topic(f"made-{number}")
    snapshot: str = orjson.loads((cluster.store.get(CATALOG) or _none()).body)["snapshot"]["key"]
    return snapshot


def lose_snapshot(cluster: EmbeddedCluster) -> None:
    cluster.store.delete([make_snapshot(cluster)])


def change_snapshot(cluster: EmbeddedCluster) -> None:
    overwrite(cluster.store, make_snapshot(cluster), b"something else")


def on_group(change: Callable[[dict[str, Any]], object]) -> Callable[[EmbeddedCluster], None]:
    return lambda cluster: edit(cluster.store, group_key(GROUP), change)


def move_group(offset: int) -> Callable[[EmbeddedCluster], None]:
    def change(group: dict[str, Any]) -> None:
        for partitions in group["offsets"].values():
            partitions["0"]["offset"] = offset

    return on_group(change)


def orphan(cluster: EmbeddedCluster) -> None:
    cluster.store.put(part_key(CLICKS, 0), b"nobody names me")


def mark_deletion(cluster: EmbeddedCluster) -> None:
    """A deletion that died after its first step."""
    topic = cluster.topic(CLICKS)

    def mark(draft: Draft) -> None:
        draft.put_deletion(topic.id, DeletionEntry(CLICKS))
        draft.put_topic(CLICKS, None)

    cluster.catalog.commit(mark)


def forget_topic(cluster: EmbeddedCluster) -> None:
    cluster.catalog.commit(lambda draft: draft.put_topic(ORDERS, None))


def append_once_and_forget(cluster: EmbeddedCluster) -> str:
    """An older catalog over a topic that was loaded once; return the key of its head."""
    cluster.create_topic("short")
    with cluster.producer() as producer:
        producer.append("short", values("a"))
    key = head_of(cluster, "short")
    cluster.catalog.commit(lambda draft: draft.put_topic("short", None))
    return key


def forget_handed_over(cluster: EmbeddedCluster) -> None:
    """An older catalog over a topic that another writer took over and has not written to yet."""
    replace_writer(cluster.store, (cluster.topic(ORDERS).id, 0), "link:other", makes=False)
    forget_topic(cluster)


def leave_first_append(cluster: EmbeddedCluster) -> None:
    """A writer that died after it had made the head of a topic that was deleted in the meantime."""
    edit(cluster.store, append_once_and_forget(cluster), lambda head: head.update(is_settled=False))


def leave_sealed(cluster: EmbeddedCluster) -> None:
    """A deletion that sealed a head, died, and whose mark somebody took away."""
    edit(cluster.store, head_of(cluster, ORDERS), lambda head: head.update(writer="nobody"))
    forget_topic(cluster)


def leave_open(cluster: EmbeddedCluster) -> None:
    producer = cluster.producer(CHECKOUT)
    producer.init_transactions()
    producer.begin()
    producer.send(CLICKS, "in a transaction", partition=0)
    producer.flush()


def decide_and_leave(state: TransactionState) -> Callable[[EmbeddedCluster], None]:
    def do(cluster: EmbeddedCluster) -> None:
        leave_open(cluster)
        edit(
            cluster.store, transaction_key(CHECKOUT), lambda found: found.update(state=state, epoch=found["epoch"] + 1)
        )

    return do


def forget_transaction(cluster: EmbeddedCluster) -> None:
    leave_open(cluster)
    cluster.store.delete([transaction_key(CHECKOUT)])


def make_mirror(link_id: str) -> Callable[[Draft], None]:
    def change(draft: Draft) -> None:
        draft.put_topic("m", TopicEntry("mirror-id", 1, draft.assign_revision(), mirror=MirrorEntry(link_id, "orders")))

    return change


DAMAGES = {
    "cluster file lost": Damage(lambda c: c.store.delete([CLUSTER]), (Kind.CLUSTER_FILE,)),
    "cluster file of something else": Damage(
        lambda c: overwrite(c.store, CLUSTER, b"{}"), (Kind.CLUSTER_FILE,), says="does not describe an embedded cluster"
    ),
    "catalog lost": Damage(
        lambda c: c.store.delete([CATALOG]), (Kind.CATALOG_LOST,), says="catalog/head.json is missing, and heads/"
    ),
    "catalog cut short": Damage(
        lambda c: overwrite(c.store, CATALOG, (c.store.get(CATALOG) or _none()).body[:-20]), (Kind.CATALOG_DAMAGED,)
    ),
    "catalog of a newer format": Damage(
        lambda c: edit(c.store, CATALOG, lambda head: head.update(format="reconciler.catalog/99")),
        (Kind.CATALOG_DAMAGED,),
        says="newer version",
    ),
    "catalog without a field": Damage(
        lambda c: edit(c.store, CATALOG, lambda head: head.pop("tail")), (Kind.CATALOG_DAMAGED,)
    ),
    "snapshot lost": Damage(lose_snapshot, (Kind.CATALOG_DAMAGED,), says="catalog/0000000"),
    "snapshot changed": Damage(change_snapshot, (Kind.CATALOG_DAMAGED,), says="sha256"),
    "serial edited": Damage(
        lambda c: edit(c.store, CATALOG, lambda head: head.update(serial=99)),
        (Kind.CATALOG_CONTRADICTION,),
        says="serial 99",
    ),
    "two topics of one id": Damage(
        on_catalog(lambda draft: draft.put_topic("twin", draft.topics[CLICKS])),
        (
            Kind.CATALOG_CONTRADICTION,
            Kind.CATALOG_CONTRADICTION,
            Kind.CATALOG_CONTRADICTION,
            Kind.CATALOG_CONTRADICTION,
        ),
        says="another topic has",
    ),
    "a name that cannot be": Damage(
        on_catalog(lambda draft: draft.put_topic("a b", TopicEntry("x", 1, draft.assign_revision()))),
        (Kind.CATALOG_CONTRADICTION,),
    ),
    "parent namespace lost": Damage(
        on_catalog(lambda draft: draft.put_namespace("shop", None)),
        (Kind.NAMESPACE_MISSING,),
        says="namespace shop is missing",
        is_mended=True,
    ),
    "topic without its namespace": Damage(
        on_catalog(lambda draft: draft.put_namespace("shop:eu", None)),
        (Kind.NAMESPACE_MISSING,),
        says="shop:eu:orders is in it",
        is_mended=True,
    ),
    "mirror without its link": Damage(on_catalog(make_mirror("nowhere")), (Kind.LINK_MISSING,)),
    "head lost": Damage(
        lambda c: c.store.delete([head_of(c, ORDERS)]), (Kind.HEAD_LOST, Kind.GROUP_BEYOND), says="has pages"
    ),
    "head lost of a topic with a new name": Damage(
        move_and_lose_head, (Kind.HEAD_LOST, Kind.GROUP_BEYOND), says="a group has read from it"
    ),
    "head lost of a topic that was written once": Damage(
        lambda c: c.store.delete([head_of(c, CLICKS)]), (Kind.PARTS_WITHOUT_HEAD,), says="1 object and no heads/"
    ),
    "a first append that was never published": Damage(
        lambda c: c.store.put(part_key(CLICKS, 3), b"x"), (Kind.PARTS_WITHOUT_HEAD,), says="00003.json"
    ),
    "head cut short": Damage(
        lambda c: overwrite(c.store, head_of(c, CLICKS), b'{"format": "rec'), (Kind.HEAD_DAMAGED,)
    ),
    "head of a newer format": Damage(
        on_head(lambda head: head.update(format="reconciler.head/9")), (Kind.HEAD_DAMAGED,)
    ),
    "head without a field": Damage(on_head(lambda head: head.pop("entries")), (Kind.HEAD_DAMAGED,)),
    "head with a word for a number": Damage(on_head(lambda head: head.update(end="two")), (Kind.HEAD_DAMAGED,)),
    "head ends before its parts": Damage(
        on_head(lambda head: head.update(end=1)), (Kind.HEAD_CONTRADICTION,), says="beyond the end 1"
    ),
    "head begins after its end": Damage(
        on_head(lambda head: head.update(start=9)), (Kind.HEAD_CONTRADICTION, Kind.HEAD_CONTRADICTION)
    ),
    "epochs go back": Damage(
        on_head(lambda head: head.update(epochs=[[3, 0], [2, 1]])), (Kind.HEAD_CONTRADICTION,) * 3
    ),
    "parts overlap": Damage(
        on_head(lambda head: head.update(entries=[*head["entries"], {**head["entries"][0], "key": "topics/x"}])),
        (Kind.HEAD_CONTRADICTION, Kind.PART_MISSING),
        gone=(OffsetRange(0, 2),),
        says="within",
    ),
    "more records than offsets": Damage(
        on_head(lambda head: head["entries"][0]["digest"].__setitem__(0, 7)), (Kind.HEAD_CONTRADICTION,)
    ),
    "a part of a transaction that is not open": Damage(
        on_head(lambda head: head["entries"][0].update(txn="t/0")), (Kind.HEAD_CONTRADICTION,), says="not open"
    ),
    "another writer": Damage(
        on_head(lambda head: head.update(writer="somebody")),
        (Kind.HEAD_WRITER,),
        says="producers according to the catalog",
    ),
    "a handing over that died": Damage(
        on_head(lambda head: head.update(writer="link:other")),
        (Kind.HANDOVER_UNFINISHED,),
        says="link:other may append according to the head, producers according to the catalog",
        is_mended=True,
    ),
    "cut beyond the end": Damage(
        on_head(lambda head: head.update(truncated={"operation": "o", "offset": 99, "epoch": 0, "records": 1})),
        (Kind.HEAD_CONTRADICTION,),
        says="it was cut at offset 99 and ends at",
    ),
    "copied beyond the end": Damage(
        on_head(lambda head: head.update(source={"topic_id": "x", "epochs": [], "fetched": 99})),
        (Kind.HEAD_CONTRADICTION,),
        says="copied to offset 99, and ends at",
    ),
    "partition beyond the topic": Damage(
        lambda c: c.store.copy_from(head_key(c.topic(CLICKS).id, 7), c.store, head_of(c, CLICKS, 1)),
        (Kind.HEAD_BEYOND, Kind.PART_SHARED, Kind.PART_SHARED),
        gone=(OffsetRange(0, 2),),
    ),
    "an older catalog": Damage(
        forget_topic, (Kind.HEAD_UNKNOWN, Kind.GROUP_LEFT_OVER), says="40 records of a topic that does not exist"
    ),
    "an older catalog, of one append": Damage(append_once_and_forget, (Kind.HEAD_UNKNOWN,)),
    "an older catalog, handed over": Damage(forget_handed_over, (Kind.HEAD_UNKNOWN, Kind.GROUP_LEFT_OVER)),
    "a first append that died": Damage(leave_first_append, (Kind.HEAD_LEFT_OVER,), is_mended=True),
    "a deletion that died": Damage(leave_sealed, (Kind.HEAD_LEFT_OVER, Kind.GROUP_LEFT_OVER), is_mended=True),
    "transaction cut short": Damage(
        lambda c: overwrite(c.store, transaction_key(CHECKOUT), b"{"), (Kind.TRANSACTION_DAMAGED,)
    ),
    "transaction in no state": Damage(
        lambda c: edit(c.store, transaction_key(CHECKOUT), lambda found: found.update(state="bored")),
        (Kind.TRANSACTION_DAMAGED,),
    ),
    "transaction committed and left": Damage(
        decide_and_leave(TransactionState.COMMITTING),
        (Kind.TRANSACTION_UNFINISHED,),
        says="checkout is committing",
        is_mended=True,
    ),
    "transaction aborted and left": Damage(
        decide_and_leave(TransactionState.ABORTING),
        (Kind.TRANSACTION_UNFINISHED,),
        says="checkout is aborting",
        is_mended=True,
    ),
    "transaction open for too long": Damage(leave_open, (Kind.TRANSACTION_OVERDUE,), says="longer than its"),
    "transaction nobody knows": Damage(forget_transaction, (Kind.TRANSACTION_UNKNOWN,)),
    "a transaction's name that is none": Damage(
        lambda c: c.store.put("transactions/%%.json", b"{}"), (Kind.FOREIGN,), says="belongs to no transactional id"
    ),
    "page lost": Damage(lose_root_page, (Kind.PAGE_MISSING,)),
    "page that hides a page": Damage(hide_a_page, (Kind.PAGE_DAMAGED,) * 5),
    "page with a word for a number": Damage(spoil_leaf, (Kind.PAGE_DAMAGED,)),
    "part lost": Damage(delete_parts(3), (Kind.PART_MISSING,), gone=(OffsetRange(6, 8),)),
    "neighbours lost": Damage(
        delete_parts(1, 2, 10), (Kind.PART_MISSING, Kind.PART_MISSING), gone=(OffsetRange(2, 6), OffsetRange(20, 22))
    ),
    "part cut short": Damage(cut_part, (Kind.PART_DIFFERS,), gone=(OffsetRange(6, 8),), says="bytes, not"),
    "part named twice": Damage(name_twice, (Kind.PART_SHARED, Kind.UNNAMED)),
    "group cut short": Damage(lambda c: overwrite(c.store, group_key(GROUP), b"{"), (Kind.GROUP_DAMAGED,)),
    "group without a field": Damage(on_group(lambda group: group.pop("offsets")), (Kind.GROUP_DAMAGED,)),
    "group beyond the end": Damage(move_group(41), (Kind.GROUP_BEYOND,), says="at offset 41, the log ends at 40"),
    "a group's name that is none": Damage(
        lambda c: c.store.put("groups/%%.json", b"{}"), (Kind.FOREIGN,), says="belongs to no group"
    ),
    "deletion left half-way": Damage(mark_deletion, (Kind.DELETION_UNFINISHED,), is_mended=True),
    "rewrite of a topic": Damage(
        on_catalog(lambda draft: draft.put_rewrite(draft.topics[CLICKS].id, RewriteEntry(CLICKS))),
        (Kind.REWRITE_UNFINISHED,),
        is_mended=True,
    ),
    "an orphan": Damage(orphan, (Kind.UNNAMED,), says="no metadata refers to"),
    "another's folder": Damage(
        lambda c: c.store.put("photos/cat.jpg", b"x"), (Kind.FOREIGN,), says="not part of a cluster"
    ),
    "another's file at the root": Damage(lambda c: c.store.put("notes.txt", b"x"), (Kind.FOREIGN,)),
    "another's file among heads": Damage(lambda c: c.store.put("heads/notes.txt", b"x"), (Kind.FOREIGN,)),
}


class DenyingStore(WrappedStore):
    """Refuses to return some objects."""

    def __init__(self, inner: ObjectStore, folder: str) -> None:
        super().__init__(inner)
        self.folder = folder

    def get(self, key: str) -> StoredObject | None:
        self.check(key)
        return super().get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.check(key)
        return super().get_range(key, start, length)

    def check(self, key: str) -> None:
        if key.startswith(self.folder):
            raise StoreRefusedError(f"cannot read {key}: access denied", hint="Allow s3:GetObject.")


FOLDERS = ["cluster.json", "catalog/", "catalog/0", "heads/", "pages/", "topics/", "groups/", "transactions/"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_a_store_refuses_to_return_is_no_damage(busy: EmbeddedCluster, folder: str) -> None:
    for number in range(70):
        busy.create_namespace(f"n{number}")
    with pytest.raises(MendFirstError, match="access denied"):
        check_cluster(DenyingStore(busy.store, folder), deep=True)


PAGES = {Kind.PAGE_MISSING, Kind.PAGE_DAMAGED}


def found_in(checked: CheckResult) -> list[Kind]:
    return sorted(finding.kind for finding in checked.findings)


def test_a_cluster_at_work_is_consistent(busy: EmbeddedCluster) -> None:
    for deep in (False, True):
        checked = check_cluster(busy.store, deep=deep)
        assert checked.findings == []
        assert (checked.namespaces, checked.topics, checked.partitions) == (2, 2, 3)
        assert (checked.groups, checked.transactions) == (1, 1)
        assert (checked.parts, checked.records) == (23, 44)
        assert checked.pages == len(keys(busy.store, "pages/"))
        assert checked.cluster_id == busy.cluster_id


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_what_is_wrong_is_found_and_mended_only_where_nothing_is_lost(busy: EmbeddedCluster, damage: Damage) -> None:
    damage.do(busy)
    checked = check_cluster(busy.store)
    assert found_in(checked) == sorted(damage.finds)
    assert not damage.says or any(damage.says in finding.what for finding in checked.findings)
    gone = [offsets for finding in checked.findings for offsets in finding.gone if finding.kind not in PAGES]
    assert tuple(gone) == damage.gone

    stored = set(keys(busy.store, "topics/"))
    mended = repair_findings(busy, checked)
    after = check_cluster(busy.store)
    if damage.is_mended:
        assert after.findings == []
        assert {each.kind for each in mended} == set(damage.finds)
    else:
        assert found_in(after) == found_in(checked)
        assert mended == []
        assert set(keys(busy.store, "topics/")) == stored
    assert repair_findings(busy, after) == []


REMOTE = {
    Kind.MANIFEST_MISSING,
    Kind.MANIFEST_DAMAGED,
    Kind.MANIFEST_FOREIGN,
    Kind.MANIFEST_SHORT,
    Kind.MANIFEST_AHEAD,
    Kind.CUT_UNFINISHED,
    Kind.SEGMENT_MISSING,
    Kind.SEGMENT_DIFFERS,
    Kind.INDEX_MISSING,
    Kind.INDEX_DIFFERS,
    Kind.GARBAGE_LEFT,
}
"""Damages of object storage: `test_checking_remote` has them."""
MIGRATING = {
    Kind.MIGRATION_UNDER_WAY,
    Kind.MIGRATION_WAITS,
    Kind.MIGRATION_CONTRADICTION,
    Kind.HOLD_STALE,
    Kind.SEAL_LEFT,
    Kind.CLAIM_LEFT,
    Kind.OWNERSHIP_LOST,
    Kind.OWNERSHIP_DAMAGED,
    Kind.OWNED_WITHOUT_TOPIC,
}
"""What migrations are doing, and have left: `test_checking_migrations` has them."""
MIRRORING = {Kind.MIRROR_LEFT_OVER, Kind.MIRROR_SOURCE, Kind.TRANSITION_UNDER_WAY}
"""What mirrors are doing, and have left: `test_checking_mirrors` has them."""


def test_every_kind_is_found_by_some_damage() -> None:
    shown = {kind for damage in DAMAGES.values() for kind in damage.finds}
    assert shown | REMOTE | MIGRATING | MIRRORING == set(Kind)


# -- records


def test_a_part_whose_records_changed_is_found_by_reading_it(busy: EmbeddedCluster) -> None:
    named = parts_of(busy, ORDERS)
    bodies = [(busy.store.get(key) or _none()).body for key in named]
    other = next(
        (left, right)
        for left in range(len(named))
        for right in range(len(named))
        if left != right and len(bodies[left]) == len(bodies[right])
    )
    overwrite(busy.store, named[other[0]], bodies[other[1]])
    assert check_cluster(busy.store).findings == []
    (finding,) = check_cluster(busy.store, deep=True).findings
    assert finding.kind is Kind.PART_DIFFERS
    assert "digest" in finding.what
    assert finding.gone == (OffsetRange(2 * other[0], 2 * other[0] + 2),)


def test_a_part_that_is_no_part_is_found_by_reading_it(busy: EmbeddedCluster) -> None:
    key = parts_of(busy, ORDERS)[5]
    size = len((busy.store.get(key) or _none()).body)
    overwrite(busy.store, key, b"x" * size)
    (finding,) = check_cluster(busy.store, deep=True).findings
    assert (finding.kind, finding.gone) == (Kind.PART_DIFFERS, (OffsetRange(10, 12),))


def test_offsets_that_are_gone_stay_said_after_a_repair(busy: EmbeddedCluster) -> None:
    delete_parts(1, 2)(busy)
    mark_deletion(busy)
    mended = repair_findings(busy, check_cluster(busy.store))
    assert [each.kind for each in mended] == [Kind.DELETION_UNFINISHED]
    (finding,) = check_cluster(busy.store).findings
    assert finding.gone == (OffsetRange(2, 6),)
    assert finding.place.topic == ORDERS


# -- others at work


class Busy(WatchedStore):
    """A store in which somebody writes as soon as it has been listed."""

    def __init__(self, inner: ObjectStore, work: Callable[[], None]) -> None:
        super().__init__(inner)
        self._work: Callable[[], None] | None = work

    def list(self, prefix: str) -> Any:
        found = list(self.inner.list(prefix))
        work, self._work = self._work, None
        if work is not None:
            work()
        return iter(found)


def produce_more(cluster: EmbeddedCluster) -> None:
    with cluster.producer() as producer:
        producer.append(CLICKS, values("d", "e", partition=[0, 3]))


def make_another(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("late")
    with cluster.producer() as producer:
        producer.append("late", values("d"))
    place = cluster.topic("late").id, 0
    commit_offsets(cluster.store, cluster.catalog, GROUP, {place: 1}, mark="late", now_ms=NOW)


@pytest.mark.parametrize(
    "work",
    [produce_more, make_another, lambda cluster: cluster.delete_topic(CLICKS), make_snapshot],
    ids=["append", "create", "delete", "snapshot"],
)
def test_what_others_do_meanwhile_is_no_fault(busy: EmbeddedCluster, work: Callable[[EmbeddedCluster], Any]) -> None:
    store = Busy(busy.store, lambda: work(busy))
    assert [finding for finding in check_cluster(store).findings if finding.severity is not NOTE] == []
    assert check_cluster(busy.store).errors == 0


def test_looking_changes_nothing(busy: EmbeddedCluster) -> None:
    store = WatchedStore(busy.store)
    mark_deletion(busy)
    check_cluster(store, deep=True)
    assert {what for what, _ in store.calls} <= {"get", "get_range", "list"}


def test_only_partitions_that_were_written_cost_a_request() -> None:
    cluster = cluster_in(MemoryStore())

    def make(draft: Draft) -> None:
        for number in range(10_000):
            draft.put_topic(f"t{number}", TopicEntry(f"id-{number}", 50, draft.assign_revision()))

    cluster.catalog.commit(make)
    with cluster.producer() as producer:
        producer.append("t5", values("a"))
    store = WatchedStore(cluster.store)
    checked = check_cluster(store)
    assert (checked.topics, checked.partitions, checked.findings) == (10_000, 1, [])
    assert len(store.calls) < 10


def test_a_transaction_that_goes_on_is_no_fault(busy: EmbeddedCluster) -> None:
    leave_open(busy)
    edit(busy.store, transaction_key(CHECKOUT), lambda found: found.update(began_ms=busy.store.read_clock_ms()))
    assert check_cluster(busy.store).findings == []


def test_a_catalog_that_went_back_since_the_check_mends_nothing(busy: EmbeddedCluster) -> None:
    leave_first_append(busy)
    found = busy.store.get(CATALOG) or _none()
    busy.create_topic("later")
    checked = check_cluster(busy.store)
    overwrite(busy.store, CATALOG, found.body)
    with pytest.raises(UserError, match="the catalog was at commit"):
        repair_findings(busy, checked)


def test_the_sweep_deletes_nothing_of_what_an_older_catalog_does_not_know(busy: EmbeddedCluster) -> None:
    forget_topic(busy)
    append_once_and_forget(busy)
    store = Aged(busy.store)
    assert opened(store).sweep() == SweepResult()
    assert len(keys(busy.store, "topics/short_0/")) == 1
    assert len(keys(busy.store, "topics/shop/eu/orders_0/")) == 20
    busy.store.delete([CATALOG])
    with pytest.raises(UserError, match="the catalog is lost"):
        opened(store).sweep()
    assert len(keys(busy.store, "topics/shop/eu/orders_0/")) == 20


def test_where_a_head_is_lost_neither_sweep_nor_repair_deletes_what_it_named(busy: EmbeddedCluster) -> None:
    kept = {head_of(busy, topic, number): None for topic, number in ((ORDERS, 0), (CLICKS, 0), (CLICKS, 1))}
    bodies = {key: (busy.store.get(key) or _none()).body for key in kept}
    busy.move_topic(ORDERS, "shop:eu:moved")
    before = keys(busy.store, "topics/"), keys(busy.store, "pages/")
    busy.store.delete(bodies)
    store = Aged(busy.store)
    assert opened(store).sweep().objects == 0
    checked = check_cluster(store)
    assert [finding.kind for finding in checked.findings if finding.severity is ERROR] == [Kind.HEAD_LOST]
    assert repair_findings(opened(store), checked) == []
    assert (keys(busy.store, "topics/"), keys(busy.store, "pages/")) == before
    for key, body in bodies.items():
        overwrite(busy.store, key, body)
    assert check_cluster(busy.store, deep=True).findings == []
    orphan(busy)
    assert opened(store).sweep().objects == 1


class Slow(WatchedStore):
    """A store whose parts were written eleven minutes apart."""

    def list(self, prefix: str) -> Any:
        found = list(self.inner.list(prefix))
        return iter(replace(each, modified_ms=NOW + number * 11 * 60_000) for number, each in enumerate(found))


def test_parts_that_were_not_written_at_once_had_a_head(busy: EmbeddedCluster) -> None:
    produce_more(busy)
    busy.store.delete([head_of(busy, CLICKS)])
    (finding,) = check_cluster(Slow(busy.store)).findings
    assert (finding.kind, finding.place.topic, finding.place.partition) == (Kind.HEAD_LOST, CLICKS, 0)
    assert finding.what.endswith("they were not written at once")


def test_a_lost_head_is_found_beside_other_damage(busy: EmbeddedCluster) -> None:
    busy.store.delete([head_of(busy, CLICKS)])
    lose_root_page(busy)
    assert {Kind.PAGE_MISSING, Kind.PARTS_WITHOUT_HEAD} <= set(found_in(check_cluster(busy.store)))


def test_what_nobody_names_is_swept_once_it_is_a_day_old(busy: EmbeddedCluster) -> None:
    orphan(busy)
    checked = check_cluster(busy.store)
    assert repair_findings(busy, checked) == []
    store = Aged(busy.store)
    (finding,) = check_cluster(store).findings
    assert finding.age_ms is not None
    assert finding.age_ms > 24 * 3_600_000
    (mended,) = repair_findings(opened(store), check_cluster(store))
    assert mended.what == "deleted 1 object of 15 bytes that nothing referred to for a day"
    assert check_cluster(store).findings == []


class Aged(WatchedStore):
    """A store two days on."""

    def read_clock_ms(self) -> int:
        return self.inner.read_clock_ms() + 2 * 24 * 3_600_000


def opened(store: ObjectStore) -> EmbeddedCluster:
    return EmbeddedCluster.open(store, now_ms=lambda: NOW, new_id=lambda: "unused")


def test_more_findings_than_fit_are_counted(busy: EmbeddedCluster) -> None:
    checked = check_cluster(busy.store)
    finding = next(iter(_one_finding(busy)))
    checked.add([finding] * 10_005)
    assert (len(checked.findings), checked.left_out, checked.errors) == (10_000, 5, 10_005)


def test_an_older_catalog_mends_nothing_also_where_other_findings_leave_no_room_to_say_so(
    busy: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_topic(busy)
    busy.catalog.commit(lambda draft: draft.put_namespace("shop", None))
    monkeypatch.setattr("reconciler.embedded.check.damage.MAX_FINDINGS", 1)
    checked = check_cluster(busy.store)
    assert [finding.kind for finding in checked.findings] == [Kind.NAMESPACE_MISSING]
    assert repair_findings(busy, checked) == []
    assert "shop" not in busy.catalog.read().namespaces


def _one_finding(cluster: EmbeddedCluster) -> list[CheckFinding]:
    delete_parts(0)(cluster)
    return check_cluster(cluster.store).findings
