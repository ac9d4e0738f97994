"""`namespace create|list|move|delete`: ordinary runs, which the next plan and drift compare with the files."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.catalog.model import QuotaEntry
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import BlockedError, StalePlanError, UsageError, UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.steps.invocation import Select
from reconciler.planning.plan_rows import list_changes
from tests.operations.stage import create_namespace, delete_namespace, move_topics

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.operations.steps.orders import OrderResult
    from reconciler.planning.plan import Plan


ALLOWED = "delete:topic/west/*"
"""The cluster of these tests has deletionProtection."""


@dataclass
class Answers:
    """Answers every question alike, and remembers the plans it was about."""

    answer: bool = True
    asked: list[Plan] = field(default_factory=list)

    def __call__(self, plan: Plan) -> bool:
        self.asked.append(plan)
        return self.answer


def cluster(bench: Bench) -> EmbeddedCluster:
    store = DirectoryStore(bench.folder / ".clusters/west")
    return EmbeddedCluster.open(store, now_ms=bench.invocation.now_ms, new_id=bench.invocation.new_id)


def produce(bench: Bench, topic: str, *values: str) -> None:
    with cluster(bench).producer() as producer:
        for value in values:
            producer.send(topic, value)


def move(bench: Bench, source: str, target: str, topics: Sequence[str] = (), *, no_state: bool = False) -> OrderResult:
    return move_topics(bench.acting(no_state=no_state), "west", source, target, topics)


def delete(bench: Bench, name: str, answers: Answers, *, recursive: bool = False) -> OrderResult:
    return delete_namespace(bench.acting(), "west", name, recursive=recursive, confirm=answers, allow=[ALLOWED])


@pytest.mark.fact("F-K-014")
def test_moving_takes_records_and_the_record_along(applied: Bench) -> None:
    produce(applied, "shop:orders", "a", "b")
    topic_id = cluster(applied).topic("shop:orders").id
    create_namespace(applied.acting(), "west", "bar", {})
    moved = move(applied, "shop", "bar")
    assert moved.addresses == ("topic/west/bar:orders",)
    assert cluster(applied).topic("bar:orders").id == topic_id
    assert [record.value for record in cluster(applied).consume("bar:orders")] == [b"a", b"b"]
    orders = (applied.folder / "manifests/orders.yaml").read_text()
    applied.write("manifests/orders.yaml", orders.replace("namespace: shop", "namespace: bar"))
    bar = "apiVersion: reconciler/v1\nkind: Namespace\nmetadata: {name: bar, cluster: west}\n"
    applied.write("manifests/bar.yaml", bar)
    assert [action.id for action in applied.plan().plan.actions] == ["adopt:namespace/west/bar"]


@pytest.mark.parametrize("no_state", [False, True])
def test_what_was_moved_is_made_nowhere_anew_until_the_files_say_where_it_is(
    applied: Bench,
    no_state: bool,  # noqa: FBT001 - a case
) -> None:
    create_namespace(applied.acting(), "west", "bar", {})
    move(applied, "shop", "bar", no_state=no_state)
    planned = applied.plan().plan
    assert (planned.actions, planned.unmanaged) == ((), ("namespace/west/bar",))
    (held,) = planned.held
    assert held.current == "moved to topic/west/bar:orders"
    back = shlex.split(held.hint.partition("To have it back: ")[2].partition(". ")[0])
    assert back[:6] == ["reconciler", "namespace", "move", "west", "bar", "shop"]
    move(applied, "bar", "shop", back[7:8], no_state="--no-state" in back)
    assert (applied.plan().plan.errors, applied.plan().plan.held) == ((), ())


def test_moving_keeps_tiers_below_and_needs_them_there(applied: Bench) -> None:
    create_namespace(applied.acting(), "west", "shop:eu", {})
    create_namespace(applied.acting(), "west", "bar", {})
    cluster(applied).create_topic("shop:eu:refunds")
    with pytest.raises(UserError, match="namespaces that do not exist on cluster west: bar:eu") as error:
        move(applied, "shop", "bar", no_state=True)
    assert "namespace create west bar:eu" in error.value.hint
    create_namespace(applied.acting(), "west", "bar:eu", {})
    assert len(move(applied, "shop", "bar").addresses) == 2
    assert "topic/west/bar:eu:refunds" in applied.plan().plan.unmanaged
    assert sorted(cluster(applied).topics()) == ["bar:eu:refunds", "bar:orders"]


def test_moving_one_topic_leaves_the_others(applied: Bench) -> None:
    cluster(applied).create_topic("plain")
    cluster(applied).create_topic("other")
    assert move(applied, "", "shop", ["plain"], no_state=True).addresses == ("topic/west/shop:plain",)
    assert move(applied, "", "shop", no_state=True).addresses == ("topic/west/shop:other",)
    assert move(applied, "", "shop", no_state=True).plan.actions == ()


DAY_MS = 86_400_000


def test_a_move_by_which_records_expire_is_refused_and_the_files_do_it(applied: Bench) -> None:
    create_namespace(applied.acting(), "west", "short", {"retention.ms": "1h"})
    west = (applied.folder / "manifests/west.yaml").read_text()
    applied.write("manifests/west.yaml", f"{west}spec: {{configs: {{retention.ms: infinite}}}}\n")
    orders = (
        (applied.folder / "manifests/orders.yaml").read_text().replace("configs: {retention.ms: 7d}", "configs: {}")
    )
    applied.write("manifests/orders.yaml", orders)
    assert applied.apply().verdict is None
    with cluster(applied).producer() as producer:
        producer.send("shop:orders", "x", timestamp_ms=applied.invocation.now_ms() - 10 * DAY_MS)
    for no_state in (False, True):
        with pytest.raises(BlockedError, match="would be deleted by what it inherits there") as error:
            move(applied, "shop", "short", no_state=no_state)
        assert list(cluster(applied).topics()) == ["shop:orders"]
    assert "--allow move:topic/west/short:orders" in error.value.hint
    moved = orders.replace("namespace: shop", 'namespace: "short"').replace(
        "{partitions", '{movedFrom: "shop:orders", partitions'
    )
    applied.write("manifests/orders.yaml", moved)
    (action,) = applied.plan().plan.blocked
    assert (action.id, action.blocked and action.blocked.guard) == ("move:topic/west/short:orders", "data_loss")
    assert applied.apply(Select(allow=("move:topic/west/short:orders",))).verdict is None
    assert list(cluster(applied).topics()) == ["short:orders"]


def test_a_move_by_which_nothing_expires_goes_on(applied: Bench) -> None:
    create_namespace(applied.acting(), "west", "short", {"retention.ms": "1h"})
    produce(applied, "shop:orders", "own retention wins")
    assert len(move(applied, "shop", "short").plan.actions) == 1


@pytest.mark.parametrize("no_state", [False, True])
def test_a_tiered_topic_is_not_moved_to_where_nothing_says_whether_it_is_tiered(
    applied: Bench, *, no_state: bool
) -> None:
    on = {"remote.write": "true", "remote.read": "true"}
    for name, configs in {"tiered": on, "bare": {}, "off": dict.fromkeys(on, "false")}.items():
        create_namespace(applied.acting(), "west", name, configs)
    move(applied, "shop", "tiered", no_state=no_state)
    with pytest.raises(UserError, match="topic/west/tiered:orders: its tiered storage would be unmanaged") as error:
        move(applied, "tiered", "bare", no_state=no_state)
    assert "Give it or a namespace above it a tieringPolicy" in error.value.hint
    assert list(cluster(applied).topics()) == ["tiered:orders"]
    moved = move(applied, "tiered", "off", no_state=no_state)
    inherited = {change.path: change.after for change in list_changes(moved.plan.actions[0])}
    assert inherited == {f"configs.{key}": "false" for key in on}


@pytest.mark.fact("F-K-011", "F-K-013")
def test_deleting_shows_what_goes_marks_it_and_leaves_the_rest_to_the_background(applied: Bench) -> None:
    produce(applied, "shop:orders", *"abcdef")
    answers = Answers()
    before = cluster(applied).catalog.read().serial
    delete(applied, "shop", answers)
    (asked,) = answers.asked
    assert [(action.address, action.estimate.records) for action in asked.actions] == [
        ("topic/west/shop:orders", 6),
        ("namespace/west/shop", 0),
    ]
    after = cluster(applied).catalog.read()
    assert (dict(after.topics), dict(after.namespaces), len(after.deletions)) == ({}, {}, 1)
    assert after.serial == before + 1, "one commit deletes all of it"
    parts = list((applied.folder / ".clusters/west/topics").rglob("*.parquet"))
    assert parts
    assert applied.apply().verdict is None
    produce(applied, "shop:orders", "new")
    assert cluster(applied).finish_deletions() == 1
    assert not any(part.exists() for part in parts)
    assert [record.value for record in cluster(applied).consume("shop:orders")] == [b"new"]


def test_what_was_made_while_somebody_was_asked_is_not_deleted(applied: Bench) -> None:
    def confirm(_plan: Plan) -> bool:
        cluster(applied).create_topic("shop:late")
        return True

    with pytest.raises(StalePlanError, match="topic/west/shop:late was created, changed or deleted by another process"):
        delete_namespace(applied.acting(), "west", "shop", confirm=confirm, allow=[ALLOWED])
    assert sorted(cluster(applied).topics()) == ["shop:late", "shop:orders"]


def test_deletion_protection_of_the_cluster_is_lifted_by_address_or_in_its_manifest(applied: Bench) -> None:
    answers = Answers()

    def attempt(*allow: str) -> None:
        delete_namespace(applied.acting(), "west", "shop", confirm=answers, allow=allow)

    for allow in ((), ("delete:topic/west/shop:refunds",), ("alter:topic/west/shop:orders",)):
        with pytest.raises(BlockedError, match="topic/west/shop:orders: cluster west has deletionProtection") as no:
            attempt(*allow)
    assert no.value.hint == "Allow it once with: --allow delete:topic/west/shop:orders"
    with pytest.raises(UsageError, match="is not VERB:ADDR"):
        attempt("everything")
    assert answers.asked == []
    attempt("delete:topic/west/shop:*")
    assert cluster(applied).namespaces() == []
    assert applied.apply().verdict is None
    west = (applied.folder / "manifests/west.yaml").read_text()
    applied.write("manifests/west.yaml", west.replace("spec:\n", "spec:\n  deletionProtection: false\n", 1))
    attempt()
    assert cluster(applied).namespaces() == []


def test_an_empty_namespace_is_deleted_in_spite_of_deletion_protection(applied: Bench) -> None:
    create_namespace(applied.acting(), "west", "empty", {})
    delete_namespace(applied.acting(), "west", "empty", confirm=Answers())
    assert "empty" not in cluster(applied).namespaces()


# Quotas and keys of namespaces through plan and apply.


SHOP = """\
apiVersion: reconciler/v1
kind: Namespace
metadata: {{name: shop, cluster: west}}
spec: {spec}
"""


def namespace(bench: Bench, spec: str) -> None:
    west = (bench.folder / "manifests/west.yaml").read_text().partition("---")[0]
    bench.write("manifests/west.yaml", west)
    bench.write("manifests/shop.yaml", SHOP.format(spec=spec))


def quotas(bench: Bench) -> QuotaEntry | None:
    store = DirectoryStore(bench.folder / ".clusters/west")
    cluster = EmbeddedCluster.open(store, now_ms=bench.invocation.now_ms, new_id=bench.invocation.new_id)
    return cluster.catalog.read().namespaces["shop"].quotas


def topic(bench: Bench, name: str) -> None:
    orders = (bench.folder / "manifests/orders.yaml").read_text()
    bench.write(f"manifests/{name}.yaml", orders.replace("name: orders", f"name: {name}"))


def test_quotas_are_set_changed_and_taken_away_and_every_second_plan_is_empty(applied: Bench) -> None:
    for spec, expected in (
        ("{quotas: {topics: 1, bytes: 1GiB}}", QuotaEntry(1, None, 1 << 30)),
        ("{quotas: {topics: 2, partitions: 6}}", QuotaEntry(2, 6, None)),
        ("{}", None),
    ):
        namespace(applied, spec)
        assert [action.id for action in applied.plan().plan.actions] == ["update:namespace/west/shop"]
        assert applied.apply().verdict is None
        assert quotas(applied) == expected
        assert applied.plan().plan.is_empty


def test_bytes_are_measured_where_something_is_made(applied: Bench) -> None:
    store = DirectoryStore(applied.folder / ".clusters/west")
    cluster = EmbeddedCluster.open(store, now_ms=applied.invocation.now_ms, new_id=applied.invocation.new_id)
    namespace(applied, "{quotas: {bytes: 100}}")
    assert applied.apply().verdict is None
    with cluster.producer() as producer:
        producer.send("shop:orders", "x" * 1_000)
    topic(applied, "refunds")
    (error,) = applied.plan().plan.errors
    assert error.message.startswith("quotas.bytes is 100, and it holds ")
    namespace(applied, "{quotas: {bytes: 1MiB}}")
    assert applied.plan().plan.errors == ()


@pytest.mark.parametrize("kind", ["new", "there"])
def test_a_key_is_refused_at_plan_where_the_store_cannot_encrypt(bench: Bench, kind: str) -> None:
    if kind == "there":
        assert bench.apply().verdict is None
    namespace(bench, "{encryption: {kmsKeyId: alias/shop}}")
    (error,) = bench.plan().plan.errors
    assert "cannot encrypt a namespace with its own key (encryption)" in error.message
