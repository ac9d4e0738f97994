"""What no link may be, said at plan and before anything is done."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import ReconcilerError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.steps.invocation import Select

if TYPE_CHECKING:
    from conftest import Bench

EAST = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: east}
spec:
  embedded: {root: "file://.clusters/east"}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: shop, cluster: east}
"""
NORTH = EAST.replace("east", "north")
TWELVE, THIRTEEN = "abcdefghij._", "abcdefghij._-"


@pytest.fixture
def linked(applied: Bench) -> Bench:
    """A source that is there, and a second cluster; the link is what each test declares."""
    applied.write("manifests/east.yaml", EAST)
    return applied.with_(environ=dict(os.environ))


def declare(bench: Bench, spec: str, *, name: str = "from-west", cluster: str = "east") -> Bench:
    link = (
        f"apiVersion: reconciler/v1\nkind: MirrorLink\nmetadata: {{name: {name}, cluster: {cluster}}}\nspec: {spec}\n"
    )
    bench.write("manifests/link.yaml", link)
    return bench


def refusal(bench: Bench) -> str:
    """Return what a plan says is wrong."""
    try:
        planned = bench.plan()
    except ReconcilerError as error:
        return str(error)
    assert planned.plan.errors, [action.id for action in planned.plan.actions]
    return "\n".join(f"{error.message}. {error.hint}" for error in planned.plan.errors)


REFUSED = [
    pytest.param(f"{{source: west, prefix: {THIRTEEN}}}", "up to 12 of", id="prefix-13"),
    pytest.param('{source: west, prefix: "a:"}', "up to 12 of", id="prefix-colon"),
    pytest.param(
        "{source: west, prefix: w., aclSync: {enabled: true, filters: [{resourceType: topic}]}}",
        "a link with a prefix cannot sync ACLs",
        id="prefix-and-acls",
    ),
    pytest.param(
        "{source: west, mode: bidirectional, consumerOffsetSync: {prefixGroups: true}}",
        "a bidirectional link cannot prefix groups",
        id="group-prefix-both-ways",
    ),
    pytest.param(
        "{source: west, autoCreate: {enabled: true}}",
        "are required where enabled is true",
        id="no-filters",
    ),
    pytest.param(
        "{source: west, consumerOffsetSync: {enabled: true}}",
        "are required where enabled is true",
        id="no-group-filters",
    ),
    pytest.param("{source: east}", "a link cannot mirror cluster east to itself", id="itself"),
    pytest.param(
        '{source: west, mirrorTopics: [{source: "shop:orders", partitions: 3}]}',
        "partitions",
        id="partitions",
    ),
    pytest.param(
        '{source: west, mirrorTopics: [{source: "shop:nowhere"}]}',
        "neither there nor declared",
        id="no-source-topic",
    ),
    pytest.param(
        '{source: west, mirrorTopics: [{source: "shop:order"}]}',
        "Did you mean shop:orders? Declare the Topic on cluster west, or correct mirrorTopics.source.",
        id="nearest-source-topic",
    ),
    pytest.param(
        '{source: west, mirrorTopics: [{source: "shop:orders", configs: {cleanup.policy: compact}}]}',
        "is synced from the source",
        id="synced-config",
    ),
    pytest.param(
        '{source: west, mirrorTopics: [{source: "shop:orders", state: reversed}]}',
        "cannot be reversed",
        id="reversed-one-way",
    ),
]


@pytest.mark.fact("F-C-005", "F-C-008", "F-C-023", "F-C-030", "F-C-031", "F-C-032", "F-C-050", "F-C-073")
@pytest.mark.parametrize(("spec", "says"), REFUSED)
def test_a_link_that_cannot_be_is_refused_at_plan(linked: Bench, spec: str, says: str) -> None:
    assert says in refusal(declare(linked, spec))


def test_rules_of_everything_are_asked_for_as_the_refusal_says(linked: Bench) -> None:
    says = refusal(declare(linked, "{source: west, aclSync: {enabled: true}}"))
    example = says.partition("write `")[2].partition("`")[0]
    assert declare(linked, f"{{source: west, aclSync: {{enabled: true, {example}}}}}").apply().verdict is None


@pytest.mark.fact("F-C-030")
def test_a_prefix_of_twelve_is_taken(linked: Bench) -> None:
    spec = f'{{source: west, prefix: {TWELVE}, mirrorTopics: [{{source: "shop:orders"}}]}}'
    ids = [action.id for action in declare(linked, spec).plan().plan.actions]
    assert f"create:mirror/east/shop:{TWELVE}orders" in ids


@pytest.mark.fact("F-C-097", "F-C-030")
@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("{source: west, prefix: w.}", "prefix of a link never changes"),
        ("{source: west, mode: bidirectional}", "mode of a link never changes"),
        ("{source: north}", "source of a link never changes"),
    ],
    ids=["prefix", "mode", "source"],
)
def test_what_makes_a_link_never_changes(linked: Bench, spec: str, says: str) -> None:
    linked.write("manifests/north.yaml", NORTH)
    assert declare(linked, "{source: west}").apply().verdict is None
    assert says in refusal(declare(linked, spec))


@pytest.mark.fact("F-C-097", "F-C-030")
@pytest.mark.parametrize(
    ("spec", "fixed"),
    [("source: west, prefix: w.", "prefix"), ("source: north", "source"), ("source: west, mode: source", "mode")],
    ids=["prefix", "source", "mode"],
)
def test_no_mirror_is_offered_to_be_deleted_for_a_link_that_never_changes(linked: Bench, spec: str, fixed: str) -> None:
    linked.write("manifests/north.yaml", NORTH)
    mirrors = 'mirrorTopics: [{source: "shop:orders"}]'
    assert declare(linked, f"{{source: west, {mirrors}}}").apply().verdict is None
    plan = declare(linked, f"{{{spec}, {mirrors}}}").plan().plan
    assert f"{fixed} of a link never changes" in " ".join(error.message for error in plan.errors)
    assert [action.blocked.allow for action in plan.actions if action.blocked] in ([], [None])


@pytest.mark.fact("F-C-011")
def test_a_mirror_never_changes_its_link(linked: Bench) -> None:
    mirrors = '{source: west, mirrorTopics: [{source: "shop:orders"}]}'
    assert declare(linked, mirrors).apply().verdict is None
    says = refusal(declare(linked, mirrors, name="other"))
    assert "it mirrors topic/west/shop:orders over link from-west, which never changes" in says


@pytest.mark.fact("F-C-023")
def test_disabling_auto_create_clears_its_filters(linked: Bench) -> None:
    declare(linked, '{source: west, autoCreate: {enabled: true, filters: [{name: "shop:x"}]}}')
    assert linked.apply().verdict is None
    declare(linked, '{source: west, autoCreate: {enabled: false, filters: [{name: "shop:x"}]}}')
    assert linked.apply().verdict is None
    assert linked.plan().plan.is_empty
    east = EmbeddedCluster.open(DirectoryStore(linked.folder / ".clusters/east"), now_ms=lambda: 0, new_id=str)
    assert not east.catalog.read().links["from-west"].declared.get("autoCreate", {}).get("filters")


@pytest.mark.fact("F-C-005")
def test_no_mirror_is_made_of_a_cluster_that_cannot_be_reached(linked: Bench) -> None:
    declare(linked, '{source: west, mirrorTopics: [{source: "shop:orders"}]}')
    (linked.folder / ".clusters/west").rename(linked.folder / "away")
    assert "cannot read cluster west" in refusal(linked)
    planned = linked.plan(Select(excludes=("*/west/*",))).plan
    assert not [action.id for action in planned.actions if "mirror/" in action.id]
    assert "its source, cluster west, was not read" in "\n".join(warning.message for warning in planned.warnings)
