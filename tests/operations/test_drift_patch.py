"""`drift --accept`: after its patch was applied, by git itself, nothing is planned any more for what was found."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.apply import ApplyOptions, Hooks, apply
from reconciler.operations.drift import drift
from reconciler.operations.drift_patch import AcceptResult, accept
from reconciler.operations.manifest_fields import ElsewhereError, FieldEditError, Manifests, accept_field, format_config
from reconciler.operations.state_edit import RecordEdit, state_rm
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import Stop
from reconciler.operations.steps.workspace import open_work
from reconciler.planning.actions import Adopt, Forget
from reconciler.resources.acls import OPERATIONS, NamespaceAcl, split_namespace_rules, to_rule_fields
from reconciler.resources.address import Address

if TYPE_CHECKING:
    from conftest import Bench


HEAD = "apiVersion: reconciler/v1\n"
ORDERS = "topic/west/shop:orders"
UNSAFE = "(its layout allows no safe patch)"


def topic(spec: str, name: str = "orders") -> str:
    return f"{HEAD}kind: Topic\nmetadata: {{name: {name}, namespace: shop, cluster: west}}\nspec:\n{spec}"


def namespace(spec: str) -> str:
    return f"{HEAD}kind: Namespace\nmetadata: {{name: shop, cluster: west}}\nspec:\n{spec}"


def west(bench: Bench) -> EmbeddedCluster:
    store = DirectoryStore(bench.folder / ".clusters/west")
    return EmbeddedCluster.open(store, now_ms=bench.invocation.now_ms, new_id=bench.invocation.new_id)


def somebody_else(bench: Bench, *documents: str, allow: tuple[str, ...] = ()) -> None:
    """Change the cluster as another team with another workspace would, and let go of it again."""
    other = bench.folder / ".other"
    (other / "manifests").mkdir(parents=True, exist_ok=True)
    cluster = (
        f"{HEAD}kind: Cluster\nmetadata: {{name: west}}\nspec: {{embedded: {{root: 'file://../.clusters/west'}}}}\n"
    )
    (other / "reconciler.yaml").write_text(f"{HEAD}kind: Workspace\nmetadata: {{name: other}}\n")
    (other / "manifests/all.yaml").write_text("---\n".join([cluster, *documents]))
    there = bench.with_(workspace=other).invocation
    done = apply(
        there,
        Select(allow=("update:*", "adopt:*", *allow)),
        ApplyOptions(yes=True),
        Hooks(lambda _planned: True, lambda _event: None, Stop()),
    )
    assert done.verdict is None
    surgery = RecordEdit(invocation=there, select=Select(), command="state rm", lock_timeout_s=5.0, stop=Stop())
    state_rm(surgery, ("*",), recursive=True, confirm=lambda _rows: True)


def git_apply(folder: Path, patch: str) -> None:
    subprocess.run(["git", "apply", "-"], input=patch.encode(), cwd=folder, check=True, capture_output=True)


def accepted(bench: Bench, *patterns: str, select: Select | None = None) -> AcceptResult:
    """Accept, apply the patch with git, and check that only records are left to learn."""
    before = {path: path.read_bytes() for path in bench.folder.rglob("*") if path.is_file()}
    found = accept(bench.invocation, select or Select(), patterns)
    assert {path: path.read_bytes() for path in bench.folder.rglob("*") if path.is_file()} == before
    if found.patch:
        git_apply(bench.folder, found.patch)
    return found


def check_agreed(bench: Bench, select: Select | None = None) -> None:
    planned = bench.plan(select).plan
    assert not planned.errors
    assert [action.id for action in planned.actions if not isinstance(action, Adopt | Forget)] == []
    assert drift(bench.invocation, select or Select()).verdict is None
    assert bench.apply(select).verdict is None
    assert bench.plan(select).plan.is_empty
    assert drift(bench.invocation, select or Select()).findings == ()


FIELDS = {
    "a quantity": (
        "  partitions: 3\n  configs: {retention.ms: 7d}\n",
        "  partitions: 3\n  configs: {retention.ms: 2d}\n",
    ),
    "a raw number": (
        "  partitions: 3\n  configs:\n    retention.ms: 604800000 # a week\n    max.message.bytes: 1MiB\n",
        "  partitions: 3\n  configs: {retention.ms: 2d, max.message.bytes: 1000}\n",
    ),
    "a quoted one": (
        "  partitions: 3\n  configs:\n    'retention.ms': '7d'\n    \"max.message.bytes\": \"1MiB\"\n",
        "  partitions: 3\n  configs: {retention.ms: 36h, max.message.bytes: 3MiB}\n",
    ),
    "a list": (
        "  partitions: 3\n  configs: {cleanup.policy: [delete]}\n",
        "  partitions: 3\n  configs: {cleanup.policy: [delete, compact]}\n",
    ),
    "a list in lines": (
        "  partitions: 3\n  configs:\n    cleanup.policy:\n      - compact\n      - delete\n",
        "  partitions: 3\n  configs: {cleanup.policy: delete}\n",
    ),
    "an endless one": (
        "  partitions: 3\n  configs: {retention.ms: 7d, retention.bytes: 1GiB}\n",
        "  partitions: 3\n  configs: {retention.ms: -1, retention.bytes: unlimited}\n",
    ),
    "a boolean": (
        "  partitions: 3\n  configs: {unclean.leader.election.enable: true}\n",
        "  partitions: 3\n  configs: {unclean.leader.election.enable: false}\n",
    ),
    "the only config, reset": (
        "  partitions: 3\n  configs:\n    # for the audit\n    retention.ms: 7d\n",
        "  partitions: 3\n  configs: {retention.ms: default}\n",
    ),
    "one of several, reset": (
        "  partitions: 3\n  configs: {retention.ms: 7d, segment.ms: 1d, max.message.bytes: 7}\n",
        "  partitions: 3\n  configs: {segment.ms: default}\n",
    ),
    "what was declared as default": (
        "  partitions: 3\n  configs: {retention.ms: default}\n",
        "  partitions: 3\n  configs: {retention.ms: 2d}\n",
    ),
    "partitions": ("  configs: {retention.ms: 7d}\n  partitions: 3   # three\n", "  partitions: 6\n"),
    "replication": ("  {partitions: 3, replicationFactor: 1}\n", "  {partitions: 3, replicationFactor: 3}\n"),
    "a rule with more operations": (
        (
            "  partitions: 3\n  acls:\n    - {principal: User:a, operations: [read]}\n"
            "    - principal: User:b\n      operations:\n        - read\n"
        ),
        (
            "  partitions: 3\n  acls:\n    - {principal: User:a, operations: [read, write]}\n"
            "    - {principal: User:b, operations: [write]}\n"
        ),
    ),
    "a rule written twice": (
        (
            "  partitions: 3\n  acls:\n    - {principal: User:a, operations: [read]}\n"
            "    - {principal: User:a, operations: [write]}\n"
        ),
        "  partitions: 3\n  acls: [{principal: User:a, operations: [describe]}]\n",
    ),
}


@pytest.mark.parametrize(("ours", "theirs"), FIELDS.values(), ids=FIELDS.keys())
def test_what_changed_on_a_topic_is_accepted(bench: Bench, ours: str, theirs: str) -> None:
    bench.write("manifests/orders.yaml", topic(ours))
    bench.apply()
    somebody_else(bench, namespace("  {}\n"), topic(theirs))
    assert accepted(bench, ORDERS).notes == ()
    check_agreed(bench)


NAMESPACES = {
    "configs and quotas": (
        "  configs: {retention.ms: 7d}\n  quotas: {topics: 5, bytes: 1TiB}\n",
        "  configs: {retention.ms: 8d}\n  quotas: {topics: 6, bytes: 500GB}\n",
    ),
    "a quota in lines": ("  quotas:\n    partitions: 50\n", "  quotas: {partitions: 60}\n"),
    "rules with resources and names": (
        "  acls:\n    - {principal: User:a, operations: [read], resources: [topics, groups], names: [o*]}\n",
        "  acls:\n    - {principal: User:a, operations: [read, write], resources: [topics, groups], names: [o*]}\n",
    ),
}


@pytest.mark.parametrize(("ours", "theirs"), NAMESPACES.values(), ids=NAMESPACES.keys())
def test_what_changed_on_a_namespace_is_accepted(bench: Bench, ours: str, theirs: str) -> None:
    bench.write("manifests/west.yaml", (bench.folder / "manifests/west.yaml").read_text().partition("---")[0])
    bench.write("manifests/shop.yaml", namespace(ours))
    bench.apply()
    somebody_else(bench, namespace(theirs))
    assert accepted(bench, "namespace/west/shop").notes == ()
    check_agreed(bench)


PARTS = {
    "an operation of one kind": (
        "    - {principal: User:a, operations: [read, write], resources: [topics, groups]} # the shop\n",
        ("acls.allow User:a", ("read",)),
        (
            "    - {principal: User:a, operations: [read], resources: [groups]} # the shop\n"
            '    - {principal: "User:a", operations: [read]}\n'
        ),
    ),
    "one kind": (
        (
            "    - principal: User:a # the shop\n      operations: [read, write]\n      resources:\n"
            "        - topics\n        - groups\n"
        ),
        ("acls.allow User:a on groups", None),
        "    - principal: User:a # the shop\n      operations: [read, write]\n      resources: [topics]\n",
    ),
    "one kind of one name": (
        "    - {principal: User:a, operations: [read], resources: [topics, groups], names: [a*, b*]}\n",
        ("acls.allow User:a on groups named a*", None),
        (
            "    - {principal: User:a, operations: [read], resources: [topics], names: [a*, b*]}\n"
            '    - {principal: "User:a", operations: [read], resources: [groups], names: ["b*"]}\n'
        ),
    ),
    "what two rules say": (
        (
            "    - {principal: User:a, operations: [read], resources: [topics, groups]}\n"
            "    - {principal: User:a, operations: [write]}\n"
        ),
        ("acls.allow User:a", ("describe",)),
        (
            "    - {principal: User:a, operations: [read], resources: [groups]}\n"
            "    - {principal: User:a, operations: [describe]}\n"
        ),
    ),
    "what no rule says yet": (
        "    - {principal: User:a, operations: [create], resources: [topics, groups]}\n",
        ("acls.allow User:a on groups", ("read",)),
        (
            "    - {principal: User:a, operations: [create], resources: [topics, groups]}\n"
            '    - {principal: "User:a", operations: [read], resources: [groups]}\n'
        ),
    ),
}


@pytest.mark.parametrize(("before", "found", "after"), PARTS.values(), ids=PARTS.keys())
def test_a_part_of_a_rule_is_accepted_where_a_platform_keeps_rules_in_parts(
    bench: Bench, before: str, found: tuple[str, tuple[str, ...] | None], after: str
) -> None:
    path = bench.write("manifests/shop.yaml", namespace(f"  acls:\n{before}").replace("name: shop", "name: b"))
    work = open_work(bench.invocation, Select(), is_reader=True)
    manifests = Manifests(work.loaded)
    accept_field(manifests, Address("namespace/west/b"), *found, OPERATIONS)
    old, new = (rules_apart(text) for text in (before, after))
    git_apply(bench.folder, manifests.build_patch())
    assert path.read_text().partition("  acls:\n")[2] == after
    assert new == {path: meant for path, meant in {**old, found[0]: found[1]}.items() if meant}


def rules_apart(text: str) -> dict[str, tuple[str, ...]]:
    """Return the rules that a broker keeps for what is written."""
    rules = (NamespaceAcl.model_validate(rule) for rule in yaml.safe_load(text))
    return to_rule_fields(split_namespace_rules(rules, OPERATIONS))


def test_a_rule_that_no_document_says_is_left_to_be_taken_out_by_hand(bench: Bench) -> None:
    bench.write("manifests/shop.yaml", namespace("  acls: [{principal: User:a, operations: [read]}]\n"))
    bench.write("manifests/west.yaml", (bench.folder / "manifests/west.yaml").read_text().partition("---")[0])
    manifests = Manifests(open_work(bench.invocation, Select(), is_reader=True).loaded)
    with pytest.raises(FieldEditError, match="no single rule there declares it"):
        accept_field(manifests, Address("namespace/west/shop"), "acls.allow User:b", None)


def test_what_is_gone_leaves_the_files_and_what_stands_around_it_stays(bench: Bench) -> None:
    texts = [topic("  partitions: 1 # one\n", name) for name in ("first", "second", "third")]
    bench.write("manifests/orders.yaml", "# The shop.\n\n# the first\n" + "---\n# next\n".join(texts))
    bench.apply()
    for name in ("first", "third"):
        west(bench).delete_topic(f"shop:{name}")
    assert accepted(bench, "topic/west/shop:*").notes == ()
    assert (bench.folder / "manifests/orders.yaml").read_text() == f"# The shop.\n\n---\n# next\n{texts[1]}"
    check_agreed(bench)


def test_a_file_whose_last_document_is_gone_goes_too(applied: Bench) -> None:
    west(applied).delete_topic("shop:orders")
    accepted(applied, ORDERS)
    assert not (applied.folder / "manifests/orders.yaml").exists()
    check_agreed(applied)


def test_a_file_that_the_workspace_lists_stays_though_nothing_is_left_in_it(applied: Bench) -> None:
    listed = "spec: {manifests: [manifests/west.yaml, manifests/orders.yaml]}\n"
    applied.write("reconciler.yaml", f"{HEAD}kind: Workspace\nmetadata: {{name: shop}}\n{listed}")
    west(applied).delete_topic("shop:orders")
    accepted(applied, ORDERS)
    assert (applied.folder / "manifests/orders.yaml").read_text() == ""
    check_agreed(applied)


def test_what_nobody_declares_gets_a_manifest_of_its_own(applied: Bench) -> None:
    configs = {"cleanup.policy": "compact,delete", "retention.ms": "-1", "segment.bytes": "1048576"}
    west(applied).create_topic("shop:legacy", partitions=2, configs=configs)
    west(applied).create_topic("odd", partitions=1)
    west(applied).create_namespace("shop:eu")
    assert accepted(applied, "*").notes == ()
    assert {path.name for path in (applied.folder / "manifests/accepted").iterdir()} == {
        "topic-west-shop-legacy.yaml",
        "topic-west-odd.yaml",
        "namespace-west-shop-eu.yaml",
    }
    check_agreed(applied)


def test_a_topic_whose_name_is_as_long_as_it_may_be_gets_a_file_with_a_shorter_one(applied: Bench) -> None:
    for last in "ab":
        west(applied).create_topic("x" * 248 + last, partitions=1)
    assert accepted(applied, "*").notes == ()
    names = sorted(path.name for path in (applied.folder / "manifests/accepted").iterdir())
    assert names == [f"topic-west-{'x' * 189}{number}.yaml" for number in ("-2", "")]
    check_agreed(applied)


RECREATED = "it was deleted and created again outside reconciler"


def test_a_topic_that_was_created_again_with_more_partitions_keeps_them(applied: Bench) -> None:
    cluster = west(applied)
    cluster.delete_topic("shop:orders")
    cluster.create_topic("shop:orders", partitions=6)
    found = accepted(applied, ORDERS)
    assert (found.notes, found.left_out) == ((f"{ORDERS}: {RECREATED}; `reconciler apply` adopts the new one",), 0)
    assert "partitions: 6" in (applied.folder / "manifests/orders.yaml").read_text()
    assert applied.apply().verdict is None
    assert applied.plan().plan.is_empty
    assert cluster.topic("shop:orders").partitions == 6


def test_a_topic_that_was_created_again_and_cannot_be_adopted_is_told_why(bench: Bench) -> None:
    bench.write("manifests/orders.yaml", topic("  partitions: 3\n  configs: {retention.ms: 7d}\n"))
    bench.apply()
    cluster = west(bench)
    cluster.delete_topic("shop:orders")
    cluster.create_topic("shop:orders", partitions=3)
    bench.write("manifests/orders.yaml", topic("  partitions: 3\n  replicationFactor: 32768\n"))
    found = accepted(bench, ORDERS)
    assert (found.patch, found.left_out) == ("", 1)
    why = "replication factor 32768 is more than 32767"
    assert found.notes == (f"{ORDERS}: {RECREATED}, and cannot be adopted: {why}",)


def test_a_key_that_hides_what_a_namespace_says_becomes_the_topics_own(bench: Bench) -> None:
    bench.write("manifests/west.yaml", (bench.folder / "manifests/west.yaml").read_text().partition("---")[0])
    bench.write("manifests/shop.yaml", namespace("  configs: {max.message.bytes: 1MiB}\n"))
    bench.apply()
    west(bench).alter_topic("shop:orders", {"max.message.bytes": "7"})
    accepted(bench, ORDERS)
    assert "max.message.bytes: 7" in (bench.folder / "manifests/orders.yaml").read_text()
    check_agreed(bench)


def test_a_value_of_a_variable_is_explained_and_left_alone(bench: Bench) -> None:
    bench.write(
        "reconciler.yaml", f"{HEAD}kind: Workspace\nmetadata: {{name: shop}}\nspec: {{values: [values.yaml]}}\n"
    )
    bench.write("values.yaml", "week: 7d\n")
    bench.write("manifests/orders.yaml", topic('  partitions: 3\n  configs: {retention.ms: "${var.week}"}\n'))
    bench.apply()
    west(bench).alter_topic("shop:orders", {"retention.ms": "1000"})
    found = accepted(bench, ORDERS)
    assert found.patch == ""
    where = "manifests/orders.yaml:6 (var.week of values.yaml)"
    assert found.notes == (f"{ORDERS}: spec.configs.retention.ms comes from a variable: change its value, {where}",)


def test_a_value_of_an_overlay_is_explained_and_one_of_the_base_is_said_to_be_everybodys(bench: Bench) -> None:
    bench.write("manifests/orders.yaml", topic("  partitions: 3\n  configs: {retention.ms: 7d, segment.ms: 1d}\n"))
    bench.write("overlays/prod/orders.yaml", topic("  configs: {retention.ms: 9d}\n"))
    prod = Select(environment="prod")
    bench.apply(prod)
    west(bench).alter_topic("shop:orders", {"retention.ms": "1000", "segment.ms": "7200000"})
    found = accepted(bench, ORDERS, select=prod)
    overlay, shared = found.notes
    assert overlay == (
        f"{ORDERS}: the overlay of this environment sets spec.configs.retention.ms: change it there, "
        "overlays/prod/orders.yaml:1"
    )
    assert "manifests/orders.yaml: read by every environment" in shared
    assert "segment.ms: 2h" in (bench.folder / "manifests/orders.yaml").read_text()


def test_a_value_of_a_policy_is_explained(bench: Bench) -> None:
    policy = f"{HEAD}kind: TieringPolicy\nmetadata: {{name: standard}}\nspec: {{segmentBytes: 64MiB}}\n"
    bench.write("manifests/policy.yaml", policy)
    bench.write("manifests/orders.yaml", topic("  partitions: 3\n  tieringPolicy: standard\n"))
    bench.apply()
    west(bench).alter_topic("shop:orders", {"segment.bytes": "1048576"})
    found = accepted(bench, ORDERS)
    assert found.patch == ""
    (note,) = found.notes
    assert "configs.segment.bytes comes from policy/standard" in note


def test_an_anchor_is_never_pulled_from_under_its_aliases(bench: Bench) -> None:
    spec = "  partitions: 3\n  configs: {retention.ms: &week 604800000, segment.ms: *week}\n"
    bench.write("manifests/orders.yaml", topic(spec))
    bench.apply()
    west(bench).alter_topic("shop:orders", {"retention.ms": "1209600000"})
    found = accepted(bench, ORDERS)
    assert found.patch == ""
    assert found.notes == (
        f"{ORDERS}: change by hand: manifests/orders.yaml:6 spec.configs.retention.ms: 14d {UNSAFE}",
    )
    assert found.left_out == 1
    west(bench).alter_topic("shop:orders", {"retention.ms": "604800000", "segment.ms": "1000"})
    assert accepted(bench, ORDERS).notes == ()
    assert "&week 604800000, segment.ms: 1000" in (bench.folder / "manifests/orders.yaml").read_text()
    check_agreed(bench)


def test_what_the_files_changed_is_not_the_clusters_to_accept(applied: Bench) -> None:
    path = applied.folder / "manifests/orders.yaml"
    path.write_text(path.read_text().replace("7d", "9d"))
    found = accepted(applied, ORDERS)
    assert (found.patch, found.notes) == (
        "",
        (f"{ORDERS}: the files changed, not the cluster: apply that, or take it back",),
    )


def test_nothing_to_accept_is_said(applied: Bench) -> None:
    with pytest.raises(UserError, match="nothing differs at topic/west/shop:ordres"):
        accept(applied.invocation, Select(), ["topic/west/shop:ordres"])


def test_a_patch_applies_in_a_workspace_below_the_top_of_its_repository(bench: Bench) -> None:
    subprocess.run(["git", "init", "-q", str(bench.folder)], check=True)
    below = bench.folder / "streams"
    (below / "manifests").mkdir(parents=True)
    for path in ("reconciler.yaml", "manifests/west.yaml", "manifests/orders.yaml"):
        (bench.folder / path).rename(below / path)
    inner = bench.with_(workspace=below)
    inner.folder = below
    inner.apply()
    west(inner).alter_topic("shop:orders", {"retention.ms": "1000"})
    west(inner).create_topic("shop:legacy", partitions=1)
    found = accept(inner.invocation, Select(), ["*"])
    git_apply(below, found.patch)
    assert "retention.ms: 1s" in (below / "manifests/orders.yaml").read_text()
    assert (below / "manifests/accepted/topic-west-shop-legacy.yaml").exists()


def test_carriage_returns_and_a_missing_last_line_end_stay(bench: Bench) -> None:
    text = topic("  partitions: 3\n  configs:\n    retention.ms: 7d").replace("\n", "\r\n")
    path = bench.folder / "manifests/orders.yaml"
    path.write_bytes(text.encode())
    bench.apply()
    west(bench).alter_topic("shop:orders", {"retention.ms": "1000"})
    accepted(bench, ORDERS)
    assert path.read_bytes() == text.replace("7d", "1s").encode()


# What no patch of `drift --accept` can change is a note that says what to write where, and blocks nothing else.


OUTSIDE = "(its file is outside the workspace)"


def one_folder_down(bench: Bench) -> Bench:
    """Return the workspace in a folder below, so that there is something around it."""
    folder = bench.folder / "shop"
    folder.mkdir()
    for name in ("reconciler.yaml", "manifests"):
        (bench.folder / name).rename(folder / name)
    return replace(bench.with_(cwd=folder), folder=folder)


def test_what_is_written_outside_the_workspace_is_changed_by_hand_and_the_rest_by_the_patch(bench: Bench) -> None:
    bench = one_folder_down(bench)
    spec = "spec: {manifests: [manifests, ../common]}\n"
    bench.write("reconciler.yaml", f"{HEAD}kind: Workspace\nmetadata: {{name: shop}}\n{spec}")
    common = bench.write("../common/clicks.yaml", topic("  partitions: 3\n  configs: {retention.ms: 7d}\n", "clicks"))
    gone = bench.write("../common/gone.yaml", topic("  partitions: 3\n", "gone"))
    assert bench.apply().verdict is None
    west(bench).alter_topic("shop:clicks", {"retention.ms": "1000"})
    west(bench).alter_topic("shop:orders", {"retention.ms": "1000"})
    west(bench).delete_topic("shop:gone")
    before = common.read_text()
    found = accepted(bench, "topic/*")
    assert sorted(found.notes) == [
        f"topic/west/shop:clicks: change by hand: {common.resolve()}:6 spec.configs.retention.ms: 1s {OUTSIDE}",
        f"topic/west/shop:gone: change by hand: {gone.resolve()}:1 take this document out {OUTSIDE}",
    ]
    assert found.left_out == 2
    assert common.read_text() == before
    assert "retention.ms: 1s" in (bench.folder / "manifests/orders.yaml").read_text()


def test_through_a_link_the_real_file_is_patched_where_it_lies_in_the_workspace(bench: Bench) -> None:
    real = bench.folder / "shared/orders.yaml"
    bench.write("shared/orders.yaml", (bench.folder / "manifests/orders.yaml").read_text())
    (bench.folder / "manifests/orders.yaml").unlink()
    (bench.folder / "manifests/orders.yaml").symlink_to("../shared/orders.yaml")
    bench.apply()
    west(bench).alter_topic("shop:orders", {"retention.ms": "1000"})
    found = accepted(bench, "topic/*")
    assert found.patch.startswith("--- a/shared/orders.yaml\n+++ b/shared/orders.yaml\n")
    assert "retention.ms: 1s" in real.read_text()
    check_agreed(bench)
    bench.apply()
    west(bench).delete_topic("shop:orders")
    accepted(bench, "topic/*")
    assert real.read_text() == ""  # a link that leads nowhere would be an error
    check_agreed(bench)


def test_a_link_to_a_file_outside_is_a_note_and_blocks_nothing(bench: Bench) -> None:
    bench = one_folder_down(bench)
    outside = bench.write("../clicks.yaml", topic("  partitions: 3\n  configs: {retention.ms: 7d}\n", "clicks"))
    (bench.folder / "manifests/clicks.yaml").symlink_to(outside)
    bench.apply()
    west(bench).alter_topic("shop:clicks", {"retention.ms": "1000"})
    west(bench).alter_topic("shop:orders", {"retention.ms": "1000"})
    found = accepted(bench, "topic/*")
    assert found.notes == (
        f"topic/west/shop:clicks: change by hand: manifests/clicks.yaml:6 spec.configs.retention.ms: 1s {OUTSIDE}",
    )
    assert "shared" not in found.patch
    assert "retention.ms: 1s" in (bench.folder / "manifests/orders.yaml").read_text()


def test_a_manifest_folder_that_is_a_link_gets_its_new_files_where_it_really_is(bench: Bench) -> None:
    (bench.folder / "manifests").rename(bench.folder / "real")
    (bench.folder / "manifests").symlink_to("real")
    bench.apply()
    west(bench).create_topic("odd", partitions=1)
    assert accepted(bench, "*").patch.startswith("--- /dev/null\n+++ b/real/accepted/topic-west-odd.yaml\n")
    check_agreed(bench)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("%YAML 1.2\n---\n{head}spec:\n  partitions: 3\n  configs: {{retention.ms: 7d, segment.ms: 1d}}\n", 8),
        ("{head}? spec\n:\n  partitions: 3\n  configs: {{retention.ms: 7d, segment.ms: 1d}}\n", 7),
        ("# a\u2028# b\n{head}spec:\n  partitions: 3\n  configs: {{retention.ms: 7d, segment.ms: 1d}}\n", 8),
        ("{head}spec:\r  partitions: 3\r  configs: {{retention.ms: 7d, segment.ms: 1d}}\r", 6),
    ],
    ids=["a directive", "a key with its sign", "another line end", "carriage returns"],
)
def test_a_layout_that_is_left_alone_says_each_field_once_with_its_line(bench: Bench, text: str, line: int) -> None:
    head = f"{HEAD}kind: Topic\nmetadata: {{name: orders, namespace: shop, cluster: west}}\n"
    head = head.replace("\n", "\r") if "\r" in text else head
    (bench.folder / "manifests/orders.yaml").write_bytes(text.format(head=head).encode())
    bench.apply()
    west(bench).alter_topic("shop:orders", {"retention.ms": "1000", "segment.ms": "7200000"}, partitions=6)
    found = accepted(bench, ORDERS)
    assert (found.patch, found.left_out) == ("", 3)
    at = f"{ORDERS}: change by hand: manifests/orders.yaml"
    assert found.notes == (
        f"{at}:{line} spec.configs.retention.ms: 1s {UNSAFE}",
        f"{at}:{line} spec.configs.segment.ms: 2h {UNSAFE}",
        f"{at}:{line - 1} spec.partitions: 6 {UNSAFE}",
    )


def test_comments_before_the_mark_of_a_document_outlive_it(bench: Bench) -> None:
    first, second, third = (topic("  partitions: 3\n", name) for name in ("orders", "second", "third"))
    text = f"# of the file\n---\n# of orders\n{first}\n# of second\n---\n{second}# of third\n---\n{third}"
    bench.write("manifests/orders.yaml", text)
    bench.apply()
    west(bench).delete_topic("shop:orders")
    accepted(bench, ORDERS)
    path = bench.folder / "manifests/orders.yaml"
    assert path.read_text() == f"# of the file\n# of second\n---\n{second}# of third\n---\n{third}"
    west(bench).delete_topic("shop:second")
    accepted(bench, "topic/west/shop:second")
    assert path.read_text() == f"# of the file\n# of second\n# of third\n---\n{third}"
    check_agreed(bench)


def test_a_config_that_no_manifest_may_declare_is_not_written_into_one() -> None:
    assert format_config("retention.bytes", "1073741824") == "1GiB"
    assert format_config("message.format.version", "3.0-IV1") == "3.0-IV1"
    with pytest.raises(
        ElsewhereError, match=r"configs\.retention\.bytes: no manifest can express it: -2 is out of range"
    ):
        format_config("retention.bytes", "-2")
