"""Commands that act for somebody: what they show, what they refuse, and that nothing hidden is taken for missing."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import pytest

from reconciler.cli.json.inventory_json import SHOWN
from reconciler.cli.text.inventory_text import format_resource
from reconciler.cli.text.lines import to_plain_text
from reconciler.embedded.catalog.model import AclEntry
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import NotAuthorizedError, PartialError, UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.clusters.consume import ConsumeOptions, ProduceOptions, consume, produce
from reconciler.operations.clusters.namespaces import list_namespaces
from reconciler.operations.clusters.topics import describe_topic, list_topics
from reconciler.operations.drift import drift
from reconciler.operations.show import explain, show
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions
from tests.operations.stage import alter_topic, delete_namespace, move_topics

if TYPE_CHECKING:
    from conftest import Bench

ORDERS = "topic/west/shop:orders"
RULES = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec:
  embedded: {root: "file://.clusters/west"}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: shop, cluster: west}
spec:
  acls:
    - {principal: "User:owner", operations: [all], resources: [topics, groups]}
    - {principal: "User:viewer", operations: [describe], names: [payments]}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: payments, namespace: shop, cluster: west}
spec:
  partitions: 1
  acls:
    - {principal: "User:viewer", operations: [read], host: 10.0.0.7}
"""


@pytest.fixture
def ruled(bench: Bench) -> Bench:
    """Everything in `shop` is User:owner's; User:viewer may see payments, and read them from one host."""
    bench.write("manifests/west.yaml", RULES)
    assert bench.apply().verdict is None
    return bench


def cluster_of(bench: Bench) -> EmbeddedCluster:
    store = DirectoryStore(bench.folder / ".clusters/west")
    return EmbeddedCluster.open(store, now_ms=bench.invocation.now_ms, new_id=bench.invocation.new_id)


def as_(bench: Bench, name: str, host: str = "*") -> Bench:
    return bench.with_(principal=f"User:{name}", host=host)


def test_rules_are_applied_and_planned_no_second_time(ruled: Bench) -> None:
    assert ruled.plan().plan.is_empty
    cluster = cluster_of(ruled)
    assert cluster.topic("shop:payments").acls == (AclEntry("User:viewer", "allow", ("read",), "10.0.0.7"),)
    assert [rule.principal for rule in cluster.catalog.read().namespaces["shop"].acls] == ["User:owner", "User:viewer"]


@pytest.mark.fact("F-K-018")
def test_lists_show_what_somebody_may_describe(ruled: Bench) -> None:
    def listed(bench: Bench) -> tuple[list[str], list[str]]:
        topics, namespaces = (
            list_topics(SiteOptions(invocation=bench.invocation, select=Select()), None),
            list_namespaces(SiteOptions(invocation=bench.invocation, select=Select()), None),
        )
        return [row.address for row in topics], [row.address for row in namespaces]

    assert listed(ruled) == ([ORDERS, "topic/west/shop:payments"], ["namespace/west/shop"])
    assert listed(as_(ruled, "owner")) == listed(ruled)
    assert listed(as_(ruled, "viewer")) == (["topic/west/shop:payments"], [])
    assert listed(as_(ruled, "eve")) == ([], [])


def test_a_topic_is_described_to_who_may_with_the_rules_that_act(ruled: Bench) -> None:
    shown = describe_topic(SiteOptions(invocation=ruled.invocation, select=Select()), "topic/west/shop:payments")
    assert [(row.path, row.rule.operations, row.origin) for row in shown.acls] == [
        ("acls.allow User:owner on groups,topics", ("all",), "namespace/west/shop"),
        ("acls.allow User:viewer named payments", ("describe",), "namespace/west/shop"),
        ("acls.allow User:viewer from 10.0.0.7", ("read",), "topic/west/shop:payments"),
    ]
    viewer = as_(ruled, "viewer")
    assert describe_topic(
        SiteOptions(invocation=viewer.invocation, select=Select()), "topic/west/shop:payments"
    ).partitions
    for name in ("orders", "nothing"):
        with pytest.raises(NotAuthorizedError, match=f"may not describe topic shop:{name}"):
            describe_topic(SiteOptions(invocation=viewer.invocation, select=Select()), f"topic/west/shop:{name}")


def test_records_go_in_and_out_for_who_may(ruled: Bench) -> None:
    def fed(bench: Bench) -> int:
        options, stdin = ProduceOptions(input_format="jsonl"), io.BytesIO(b'{"a": 1}\n')
        address = "topic/west/shop:payments"
        return produce(
            SiteOptions(invocation=bench.invocation, select=Select()),
            address,
            options,
            stdin=stdin,
            report=lambda _r, _s: None,
        ).records

    def read(bench: Bench) -> int:
        address, out = "topic/west/shop:payments", io.BytesIO()
        return consume(
            SiteOptions(invocation=bench.invocation, select=Select()),
            address,
            ConsumeOptions(),
            stdout=out,
            stop=bench.stop,
        ).records

    assert fed(as_(ruled, "owner")) == 1
    with pytest.raises(NotAuthorizedError, match="may not write topic shop:payments"):
        fed(as_(ruled, "viewer", "10.0.0.7"))
    assert read(as_(ruled, "viewer", "10.0.0.7")) == 1
    for viewer in (as_(ruled, "viewer"), as_(ruled, "viewer", "10.0.0.8")):
        with pytest.raises(NotAuthorizedError, match="may not read topic shop:payments"):
            read(viewer)


def test_a_pattern_matches_what_somebody_may_see(ruled: Bench) -> None:
    viewer, out = as_(ruled, "viewer", "10.0.0.7"), io.BytesIO()
    options = ConsumeOptions(regex="shop:.*")
    read = consume(
        SiteOptions(invocation=viewer.invocation, select=Select()),
        "cluster/west",
        options,
        stdout=out,
        stop=viewer.stop,
    )
    assert read.records == 0
    with pytest.raises(NotAuthorizedError, match="may not read topic shop:payments"):
        consume(
            SiteOptions(invocation=as_(ruled, "viewer").invocation, select=Select()),
            "cluster/west",
            options,
            stdout=out,
            stop=viewer.stop,
        )


def test_what_is_hidden_is_an_error_of_the_plan_and_never_made_again(ruled: Bench) -> None:
    viewer = as_(ruled, "viewer")
    planned = viewer.plan().plan
    assert planned.is_empty
    assert [error.address for error in planned.errors] == ["namespace/west/shop", ORDERS]
    assert all("it is hidden: User:viewer may not describe" in error.message for error in planned.errors)
    with pytest.raises(UserError, match="the plan has 2 errors"):
        viewer.apply()
    found = drift(viewer.invocation, Select())
    assert found.findings == ()
    assert found.verdict is not None
    assert drift(ruled.invocation, Select()).verdict is None


def test_what_is_hidden_is_not_shown_as_missing(ruled: Bench) -> None:
    (shown,) = show(as_(ruled, "viewer").invocation, Select(), ORDERS)
    text = to_plain_text(format_resource(shown))
    assert "there, but hidden: User:viewer may not describe topic shop:orders" in text
    assert "not there" not in text
    assert "may not describe" in SHOWN.build_row(shown)["hidden"]
    (seen,) = show(ruled.invocation, Select(), ORDERS)
    assert seen.hidden is None


def test_what_is_hidden_and_no_file_declares_is_not_said_to_be_on_no_cluster(ruled: Bench) -> None:
    cluster_of(ruled).create_topic("shop:ledger")
    address, viewer = "topic/west/shop:ledger", as_(ruled, "viewer").invocation
    (shown,) = show(viewer, Select(), address)
    assert "there, but hidden" in to_plain_text(format_resource(shown))
    assert explain(viewer, Select(), address).shown.hidden is not None
    with pytest.raises(UserError, match="nor on a cluster"):
        show(viewer, Select(), "topic/west/shop:nothing")


def test_what_is_excluded_need_not_be_seen(ruled: Bench) -> None:
    seen = as_(ruled, "viewer").plan(Select(excludes=(ORDERS, "namespace/*"))).plan
    assert seen.errors == ()
    assert seen.is_empty


def test_what_is_hidden_and_no_longer_declared_is_not_forgotten(ruled: Bench) -> None:
    (ruled.folder / "manifests/orders.yaml").unlink()
    planned = as_(ruled, "viewer").plan().plan
    assert planned.is_empty
    assert ORDERS in [error.address for error in planned.errors]


def test_every_action_of_apply_is_held_to_the_rules(ruled: Bench) -> None:
    cluster_of(ruled).set_namespace_acls(
        "shop",
        [
            AclEntry("User:owner", "allow", ("all",), resources=("topics", "groups")),
            AclEntry("User:viewer", "allow", ("describe",), names=("payments",)),
            AclEntry("User:half", "allow", ("describe", "create", "alter-configs")),
        ],
    )
    new = RULES.replace("metadata: {name: payments", "metadata: {name: new").replace("partitions: 1", "partitions: 2")
    ruled.write("manifests/new.yaml", new.partition("---\n")[2].partition("---\n")[2])
    orders = ruled.folder / "manifests/orders.yaml"
    orders.write_text(orders.read_text().replace("retention.ms: 7d", "retention.ms: 8d"))
    half = as_(ruled, "half")
    done = half.apply()
    assert isinstance(done.verdict, PartialError)
    assert done.result is not None
    assert done.result.done == (f"update:{ORDERS}",)
    (failed,) = done.result.failed
    assert failed.id == "create:topic/west/shop:new"
    # Rules are part of what is made, and making a topic is no leave to say who may use it.
    assert "User:half may not alter topic shop:new" in failed.error.message
    assert "shop:new" not in cluster_of(ruled).topics()
    assert ruled.apply().verdict is None


def test_rules_changed_by_hand_are_drift_and_set_back(ruled: Bench) -> None:
    cluster = cluster_of(ruled)
    cluster.set_topic_acls(
        "shop:payments",
        [AclEntry("User:viewer", "allow", ("all",), "10.0.0.7"), AclEntry("User:eve", "allow", ("read",))],
    )
    (found,) = drift(ruled.invocation, Select()).findings
    assert (found.path, found.recorded, found.observed) == ("acls.allow User:viewer from 10.0.0.7", ("read",), ("all",))
    assert ruled.apply().verdict is None
    assert {rule.principal: rule.operations for rule in cluster.topic("shop:payments").acls} == {
        "User:eve": ("read",),
        "User:viewer": ("read",),
    }
    assert ruled.plan().plan.is_empty


def test_rules_that_no_file_names_any_more_are_taken_away(ruled: Bench) -> None:
    ruled.write("manifests/west.yaml", re.sub(r"  acls:\n( +- .*\n)+", "  acls: []\n", RULES))
    planned = ruled.plan().plan
    assert {change.path for action in planned.actions for change in action.changes} == {  # type: ignore[union-attr]  # all are updates
        "acls.allow User:owner on groups,topics",
        "acls.allow User:viewer named payments",
        "acls.allow User:viewer from 10.0.0.7",
    }
    assert ruled.apply().verdict is None
    assert ruled.plan().plan.is_empty
    assert cluster_of(ruled).catalog.read().namespaces["shop"].acls == ()


def test_explain_says_where_a_rule_comes_from(ruled: Bench) -> None:
    explained = explain(ruled.invocation, Select(), "topic/west/shop:payments")
    assert explained.origins["acls.allow User:viewer from 10.0.0.7"] == "manifests/west.yaml:21"
    assert [row.origin for row in explained.acls] == ["namespace/west/shop"] * 2 + ["topic/west/shop:payments"]


def test_an_alteration_by_hand_is_held_to_the_rules(ruled: Bench) -> None:
    viewer = as_(ruled, "viewer")
    with pytest.raises(NotAuthorizedError, match="may not alter-configs topic shop:payments"):
        alter_topic(viewer.acting(), "topic/west/shop:payments", {"retention.ms": "1d"})


def test_a_namespace_that_may_not_be_described_is_refused_be_it_there_or_not(ruled: Bench) -> None:
    cluster_of(ruled).create_namespace("shop:eu")
    eve, told = as_(ruled, "eve"), set()
    emergency = eve.acting()
    for name in ("shop:eu", "shop:zz"):
        for do in (
            lambda name=name: list_namespaces(SiteOptions(invocation=eve.invocation, select=Select()), "west", name),
            lambda name=name: delete_namespace(emergency, "west", name),
            lambda name=name: move_topics(emergency, "west", name, "", []),
        ):
            with pytest.raises(NotAuthorizedError) as refused:
                do()
            told.add(str(refused.value).replace(name, "it"))
    (said,) = told
    assert "User:eve may not describe namespace it: namespace shop has access rules" in said


@pytest.mark.parametrize("operations", [("describe",), ("delete",)])
def test_a_namespace_with_something_hidden_in_it_is_not_deleted(ruled: Bench, operations: tuple[str, ...]) -> None:
    cluster, half = cluster_of(ruled), as_(ruled, "half")
    cluster.set_namespace_acls("shop", [AclEntry("User:half", "allow", operations)])
    cluster.set_topic_acls("shop:payments", [AclEntry("User:half", "deny", ("describe",))])
    emergency = half.acting()
    with pytest.raises(UserError, match="may not describe topic shop:payments"):
        delete_namespace(emergency, "west", "shop")
    assert list(cluster.topics()) == ["shop:orders", "shop:payments"]


def test_only_the_super_user_makes_a_cluster(bench: Bench) -> None:
    done = as_(bench, "owner").apply()
    assert done.result is not None
    assert done.result.failed[0].id == "create:cluster/west"
    assert "needs rights on the whole cluster" in done.result.failed[0].error.message
