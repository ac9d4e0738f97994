"""Registers and pages edited by hand, and input that cannot be: a sentence, a way on, and nothing lost."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa
import pytest

from reconciler.embedded.catalog import commits
from reconciler.embedded.catalog.model import AclEntry
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.segments import head as head_module
from reconciler.embedded.tiered.usage import measure_topic
from reconciler.errors import BrokenInvariantError, MissingObjectError, ReconcilerError, UserError
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.deaths import opened
from tests.embedded.model import observe
from tests.embedded.samples import BODIES, NOW, WRONG, cluster_in, contents_of, edits, kinds, stored, values

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster

Act = "Callable[[EmbeddedCluster], object]"


@pytest.fixture(autouse=True)
def _small_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few appends are enough for pages of pages, a few commits for a snapshot."""
    monkeypatch.setattr(head_module, "TAIL", 2)
    monkeypatch.setattr(head_module, "BRANCHES", 2)
    monkeypatch.setattr(commits, "TAIL", 5)


def busy() -> dict[str, bytes]:
    """Return the objects of a cluster with something of everything in it."""
    store = MemoryStore()
    cluster = cluster_in(store)
    cluster.create_namespace("shop", {"retention.ms": "1d"})
    cluster.create_topic("shop:orders", configs={"max.message.bytes": "1000"})
    for retention in ("2d", "3d", "4d", None):
        cluster.alter_topic("shop:orders", {"retention.ms": retention})
    cluster.create_topic("clicks", partitions=2)
    cluster.set_topic_acls("clicks", [AclEntry("User:alice", "allow", ("read",))])
    for value in range(13):
        with cluster.producer() as producer:
            producer.send("shop:orders", b"%d" % value)
    cluster.groups.commit("readers", {("shop:orders", 0): 2})
    writer = cluster.producer("checkout")
    writer.init_transactions()
    writer.begin()
    writer.send("clicks", b"open", partition=0)
    writer.send_offsets("readers", {("shop:orders", 0): 3})
    writer.flush()
    return contents_of(store)


# -- what is done with a damaged cluster


def send(cluster: EmbeddedCluster, topic: str) -> None:
    with cluster.producer() as producer:
        producer.send(topic, b"more", partition=0)


READS: dict[str, Act] = {
    "observe": observe,
    "look by time": lambda cluster: cluster.log("shop:orders").find_offset_at(0, NOW),
    "describe a group": lambda cluster: cluster.groups.describe("readers"),
    "measure": lambda cluster: measure_topic(cluster.store, cluster.topic("shop:orders").id),
    "check": lambda cluster: check_cluster(cluster.store, deep=True),
}
WRITES: dict[str, Act] = {
    "append": lambda cluster: send(cluster, "shop:orders"),
    "append beside a transaction": lambda cluster: send(cluster, "clicks"),
    "commit offsets": lambda cluster: cluster.groups.commit("readers", {("shop:orders", 0): 4}),
    "take a transaction over": lambda cluster: cluster.producer("checkout").init_transactions(),
    "finish transactions": lambda cluster: cluster.finish_transactions(),
    "create": lambda cluster: cluster.create_topic("new"),
    "move": lambda cluster: cluster.move_topic("shop:orders", "moved"),
    "retain": lambda cluster: cluster.upkeep().retain(),
    "roll": lambda cluster: cluster.upkeep().roll(),
    "compact": lambda cluster: cluster.upkeep().compact(),
    "sweep": lambda cluster: cluster.sweep(),
}


def refused(objects: dict[str, bytes], key: str, body: bytes, act: Act) -> bool:
    """Do something with a damaged cluster and tell whether that was refused; nothing may be lost then."""
    store = stored({**objects, key: body})
    told: ReconcilerError | None = None
    try:
        act(opened(store))
    except ReconcilerError as error:
        told = error
    if told is None:
        return False
    assert told.message
    assert told.hint
    assert not isinstance(told, BrokenInvariantError)
    after = contents_of(store)
    assert after[key] == body
    assert [name for name in objects if name not in after] == []
    return True


KINDS = (
    "cluster file",
    "catalog",
    "snapshot",
    "head with a transaction",
    "head with pages",
    "page",
    "page of pages",
    "group",
    "transaction",
)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_edited_by_hand_is_read_or_refused_in_a_sentence(kind: str) -> None:
    objects = busy()
    key = kinds(objects)[kind]
    acts, turn = [*READS.values(), *WRITES.values()], count()
    wrong = lambda: [WRONG[next(turn) % len(WRONG)] for _ in range(2)]  # noqa: E731 - it counts
    refusals = [
        refused(objects, key, body, acts[(next(turn) + number) % len(acts)])
        for body in edits(objects[key], wrong)
        for number in (0, 7)
    ]
    assert any(refusals)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_was_edited_by_hand_is_read_or_refused_whatever_is_done(kind: str) -> None:
    objects = busy()
    key = kinds(objects)[kind]
    for body in edits(objects[key], lambda: list(WRONG)):
        for act in (*READS.values(), *WRITES.values()):
            refused(objects, key, body, act)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_truncated_or_something_else_is_refused_by_its_name(kind: str) -> None:
    objects = busy()
    key = kinds(objects)[kind]
    for body in (*BODIES, objects[key][: len(objects[key]) // 2]):
        acts = [READS["observe"], WRITES["take a transaction over"], WRITES["append beside a transaction"]]
        assert True in [refused(objects, key, body, act) for act in acts]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "snapshot"])
def test_a_newer_format_is_refused(kind: str) -> None:
    objects = busy()
    key = kinds(objects)[kind]
    value = orjson.loads(objects[key])
    name, _, version = value["format"].partition("/")
    newer = orjson.dumps({**value, "format": f"{name}/{int(version) + 1}"})
    acts = [READS["observe"], WRITES["take a transaction over"]]
    assert True in [refused(objects, key, newer, act) for act in acts]


def test_what_is_gone_behind_our_back_is_said_with_the_offsets_that_lay_in_it() -> None:
    objects = busy()
    for key in (key for key in objects if key.startswith(("topics/shop", "pages/"))):
        store = stored({name: body for name, body in objects.items() if name != key})
        with pytest.raises(
            MissingObjectError, match=r"shop:orders, partition 0: the records at offsets \d+ to \d+"
        ) as it:
            observe(opened(store))
        assert key in it.value.message
        assert it.value.hint
        assert contents_of(store) == {name: body for name, body in objects.items() if name != key}


# -- input that cannot be

FORBIDDEN = (
    "",
    ".",
    "..",
    "a/b",
    "a b",
    "ä",
    "a\0",
    "a\n",
    "a" * 250,
    "a::b",
    ":a",
    "a:",
    "a:..",
    "no:such",
    "../a",
    "a*",
)
UNNAMEABLE = ("", "a" * 250, "\udc80", "no:such")
"""Of groups and transactional ids, which may have any characters."""
INPUTS: dict[str, Act] = {
    **{f"topic {name!r}": lambda cluster, name=name: cluster.create_topic(name) for name in FORBIDDEN},
    **{f"moved to {name!r}": lambda cluster, name=name: cluster.move_topic("clicks", name) for name in FORBIDDEN},
    **{
        f"namespace {name!r}": lambda cluster, name=name: cluster.create_namespace(name)
        for name in FORBIDDEN
        if name != "no:such"
    },
    **{
        f"group {name!r}": lambda cluster, name=name: cluster.groups.commit(name, {("clicks", 0): 1})
        for name in UNNAMEABLE
    },
    **{
        f"transactional id {name!r}": lambda cluster, name=name: cluster.producer(name).init_transactions()
        for name in UNNAMEABLE
    },
    "a record that is too large": lambda cluster: cluster.sequenced_producer("p").append(
        "shop:orders", 0, values(b"x" * 1_001), sequence=0
    ),
    "a time too far ahead": lambda cluster: cluster.sequenced_producer("p").append(
        "clicks", 1, values(b"x", timestamp_ms=pa.array([NOW + 3_600_001])), sequence=0
    ),
    "a negative sequence number": lambda cluster: cluster.sequenced_producer("p").append(
        "clicks", 1, values(b"x"), sequence=-1
    ),
    "a sequence number that is too large": lambda cluster: cluster.sequenced_producer("p").append(
        "clicks", 1, values(b"x"), sequence=1 << 31
    ),
    "a partition that is not there": lambda cluster: cluster.sequenced_producer("p").append(
        "clicks", 7, values(b"x"), sequence=0
    ),
    "an offset that cannot be": lambda cluster: cluster.groups.commit("readers", {("clicks", 0): -1}),
    "no partitions": lambda cluster: cluster.create_topic("new", partitions=0),
    "a config that is none": lambda cluster: cluster.create_topic("new", configs={"retention": "1d"}),
    "a value that is none": lambda cluster: cluster.create_topic("new", configs={"retention.ms": "soon"}),
}


@pytest.mark.parametrize("act", INPUTS.values(), ids=[ascii(name)[:60] for name in INPUTS])
def test_input_that_cannot_be_is_refused_in_a_sentence_and_nothing_is_written(act: Act) -> None:
    objects = busy()
    store = stored(objects)
    with pytest.raises(UserError) as refused:
        act(opened(store))
    assert refused.value.message
    assert refused.value.hint
    assert contents_of(store) == objects
