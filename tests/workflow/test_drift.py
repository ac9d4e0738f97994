from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import DriftError, UsageError, UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.drift import drift
from reconciler.operations.steps.invocation import Select

ORDERS = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, namespace: shop, cluster: west}
spec: {partitions: 3}
"""

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conftest import Bench

    from reconciler.operations.drift import Drifted


def look(bench: Bench, *, fail_on: Sequence[str] = (), known: Path | None = None) -> Drifted:
    drifted = drift(bench.invocation, Select(), fail_on=fail_on, known=known)
    drifted.remember()
    return drifted


def kinds(drifted: Drifted) -> list[tuple[str, str]]:
    return [(found.kind, found.address) for found in drifted.findings]


RULE = (
    "apiVersion: reconciler/v1\nkind: Workspace\nmetadata: {name: shop}\nspec:\n  guards:\n    ignoreDrift:\n"
    "      - {match: 'topic/west/*', field: configs.retention.ms, until: %s, reason: OPS-1}\n"
)


def west(bench: Bench) -> EmbeddedCluster:
    store = DirectoryStore(bench.folder / ".clusters/west")
    return EmbeddedCluster.open(store, now_ms=bench.invocation.now_ms, new_id=bench.invocation.new_id)


def _let_the_namespace_say(bench: Bench, configs: str) -> None:
    path = bench.folder / "manifests/west.yaml"
    before = "metadata: {name: shop, cluster: west}\n"
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, f"{before}spec: {{configs: {configs}}}\n"))


def everything(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_nobody_touched_has_not_drifted(applied: Bench) -> None:
    found = look(applied)
    assert (found.findings, found.verdict) == ((), None)


def test_a_change_behind_our_back_is_drift_and_apply_sets_it_back(applied: Bench) -> None:
    west(applied).alter_topic("shop:orders", {"retention.ms": "1000"})
    before = everything(applied.folder)
    drifted = look(applied)
    assert everything(applied.folder) == before
    assert isinstance(drifted.verdict, DriftError)
    (found,) = drifted.findings
    assert (found.kind, found.path, found.recorded, found.observed) == (
        "drift",
        "configs.retention.ms",
        "604800000",
        "1000",
    )
    applied.apply()
    assert look(applied).findings == ()
    assert applied.plan().plan.is_empty


def test_what_is_gone_is_missing(applied: Bench) -> None:
    west(applied).delete_topic("shop:orders")
    drifted = look(applied)
    assert kinds(drifted) == [("missing", "topic/west/shop:orders")]
    assert isinstance(drifted.verdict, DriftError)
    applied.apply()
    assert look(applied).verdict is None


def test_what_the_files_ask_for_is_pending_and_fails_only_where_asked(applied: Bench) -> None:
    path = applied.folder / "manifests/orders.yaml"
    path.write_text(path.read_text().replace("7d", "9d"))
    drifted = look(applied)
    assert kinds(drifted) == [("pending", "topic/west/shop:orders")]
    assert drifted.verdict is None
    assert isinstance(look(applied, fail_on=["pending"]).verdict, DriftError)


def test_what_a_guard_refuses_is_blocked(applied: Bench) -> None:
    (applied.folder / "manifests/orders.yaml").unlink()
    drifted = look(applied)
    assert kinds(drifted) == [("blocked", "topic/west/shop:orders")]
    assert drifted.verdict is None
    assert isinstance(look(applied, fail_on=["blocked"]).verdict, DriftError)


def test_what_nobody_declares_is_unmanaged(applied: Bench) -> None:
    west(applied).create_topic("shop:legacy")
    drifted = look(applied)
    assert kinds(drifted) == [("unmanaged", "topic/west/shop:legacy")]
    assert drifted.verdict is None
    assert isinstance(look(applied, fail_on=["unmanaged"]).verdict, DriftError)


def test_a_class_that_is_none_is_refused(applied: Bench) -> None:
    with pytest.raises(UsageError, match="everything"):
        look(applied, fail_on=["everything"])


def test_known_drift_is_left_out_until_it_changes(applied: Bench) -> None:
    west(applied).alter_topic("shop:orders", {"retention.ms": "1000"})
    known = Path("known.json")
    assert isinstance(look(applied, known=known).verdict, DriftError)
    again = look(applied, known=known)
    assert (again.findings, again.verdict) == ((), None)

    west(applied).alter_topic("shop:orders", {"retention.ms": "2000"})
    assert isinstance(look(applied, known=known).verdict, DriftError)


def test_known_drift_that_went_and_came_back_is_told_again(applied: Bench) -> None:
    known = Path("known.json")
    for told in (True, False):
        west(applied).alter_topic("shop:orders", {"retention.ms": "1000"})
        assert (look(applied, known=known).verdict is not None) is told
    applied.apply()
    assert look(applied, known=known).verdict is None
    west(applied).alter_topic("shop:orders", {"retention.ms": "1000"})
    assert look(applied, known=known).verdict is not None


@pytest.mark.parametrize("text", ["", "[]", '{"format": "other"}', '{"format": "reconciler.known-drift/1"}'])
def test_a_file_of_known_drift_that_is_none_is_refused(applied: Bench, text: str) -> None:
    applied.write("known.json", text)
    with pytest.raises(UserError, match=r"known\.json"):
        look(applied, known=Path("known.json"))


def test_a_file_of_known_drift_that_cannot_be_kept_is_said(applied: Bench) -> None:
    for name, said in (("no/such/folder/known.json", "cannot write"), ("manifests", "cannot read")):
        with pytest.raises(UserError, match=said):
            look(applied, known=Path(name))


def test_ignored_drift_is_listed_and_fails_nothing(applied: Bench) -> None:
    applied.write(
        "reconciler.yaml",
        "apiVersion: reconciler/v1\nkind: Workspace\nmetadata: {name: shop}\nspec:\n  guards:\n    ignoreDrift:\n"
        "      - {match: 'topic/west/*', field: configs.retention.ms, until: 2999-01-01, reason: OPS-1}\n",
    )
    west(applied).alter_topic("shop:orders", {"retention.ms": "1000"})
    drifted = look(applied)
    assert [found.ignored is not None for found in drifted.findings] == [True]
    assert drifted.verdict is None
    assert applied.plan().plan.is_empty


def test_a_key_set_by_hand_that_hides_what_a_namespace_says_is_listed_and_left_alone(applied: Bench) -> None:
    _let_the_namespace_say(applied, "{max.message.bytes: 1MiB}")
    applied.apply()
    west(applied).alter_topic("shop:orders", {"max.message.bytes": "7"})
    drifted = look(applied)
    assert [(found.kind, found.path, found.recorded, found.observed) for found in drifted.findings] == [
        ("unmanaged", "configs.max.message.bytes", "1048576", "7")
    ]
    assert drifted.verdict is None
    assert applied.plan().plan.is_empty
    assert isinstance(look(applied, fail_on=["unmanaged"]).verdict, DriftError)


def test_an_expired_rule_is_an_error_that_names_rule_day_and_reason(applied: Bench) -> None:
    applied.write("reconciler.yaml", RULE % "2020-01-31")
    west(applied).alter_topic("shop:orders", {"retention.ms": "1000"})
    found = look(applied)
    assert kinds(found) == [("drift", "topic/west/shop:orders")]
    assert isinstance(found.verdict, UserError)
    said = "guards.ignoreDrift topic/west/* configs.retention.ms expired on 2020-01-31 (OPS-1)"
    assert said in found.verdict.message


def test_a_rule_that_can_match_nothing_is_warned_about(applied: Bench) -> None:
    applied.write("reconciler.yaml", (RULE % "2999-01-31").replace("topic/west/*", "topic/wset/*"))
    (warning,) = look(applied).warnings
    assert "topic/wset/* configs.retention.ms matches nothing that is declared or recorded" in warning.message


def test_ignored_drift_says_why_and_until_when(applied: Bench) -> None:
    applied.write("reconciler.yaml", RULE % "2999-01-31")
    west(applied).alter_topic("shop:orders", {"retention.ms": "1000"})
    found = look(applied, fail_on=["drift"])
    assert [one.ignored for one in found.findings] == ["OPS-1, until 2999-01-31"]
    assert (found.failing, found.verdict) == ((), None)


def test_drift_that_cannot_be_set_back_is_drift_and_no_error_of_looking(applied: Bench) -> None:
    west(applied).alter_topic("shop:orders", {}, partitions=6)
    found = look(applied)
    assert kinds(found) == [("drift", "topic/west/shop:orders")]
    assert isinstance(found.verdict, DriftError)


def test_what_the_files_say_too_is_only_pending(applied: Bench) -> None:
    west(applied).alter_topic("shop:orders", {"retention.ms": "777600000"})
    path = applied.folder / "manifests/orders.yaml"
    path.write_text(path.read_text().replace("7d", "9d"))
    found = look(applied)
    assert kinds(found) == [("pending", "topic/west/shop:orders")]
    assert "the files say the same" in found.findings[0].message
    assert found.verdict is None


def test_intent_and_drift_in_one_topic_are_both_told(applied: Bench) -> None:
    west(applied).alter_topic("shop:orders", {"retention.ms": "1000"})
    path = applied.folder / "manifests/orders.yaml"
    path.write_text(path.read_text().replace("partitions: 3", "partitions: 5"))
    assert [kind for kind, _ in kinds(look(applied))] == ["drift", "pending"]


def test_what_is_not_selected_is_not_told(applied: Bench) -> None:
    west(applied).alter_topic("shop:orders", {"retention.ms": "1000"})
    west(applied).create_topic("shop:legacy")
    for select in (Select(excludes=("*orders",)), Select(targets=("namespace/west/shop",))):
        found = drift(applied.invocation, select)
        assert "topic/west/shop:orders" not in {one.address for one in found.findings}
        assert found.verdict is None


def test_every_finding_has_a_fingerprint_of_its_own(applied: Bench) -> None:
    west(applied).alter_topic("shop:orders", {"retention.ms": "1000"}, partitions=4)
    west(applied).create_topic("shop:legacy")
    applied.write("manifests/more.yaml", ORDERS.replace("orders", "more"))
    marks = [found.fingerprint for found in look(applied).findings]
    assert len(set(marks)) == len(marks) == 4
    assert all(mark.startswith("sha256:") for mark in marks)


@pytest.mark.parametrize("name", ["in-doubt", "in doubt"])
def test_in_doubt_may_be_typed_without_its_blank(applied: Bench, name: str) -> None:
    assert look(applied, fail_on=[name]).verdict is None


@pytest.mark.parametrize("asks", [False, True], ids=["yes", "asked"])
def test_only_drift_sets_back_what_drifted_and_leaves_the_rest_for_later(applied: Bench, *, asks: bool) -> None:
    path = applied.folder / "manifests/orders.yaml"
    path.write_text(path.read_text().replace("partitions: 3", "partitions: 5"))
    applied.write("manifests/more.yaml", ORDERS.replace("orders", "more"))
    cluster = west(applied)
    cluster.alter_topic("shop:orders", {"retention.ms": "1000"})
    pending = [found for found in kinds(look(applied)) if found[0] != "drift"]
    done = applied.apply(options=ApplyOptions(yes=not asks, only_drift=True))
    assert done.verdict is None
    assert [action.id for action in done.planned.plan.actions] == ["update:topic/west/shop:orders"]
    orders = cluster.topic("shop:orders")
    assert (orders.configs["retention.ms"], orders.partitions) == ("604800000", 3)
    assert kinds(look(applied)) == pending
    assert applied.apply().verdict is None
    assert applied.plan().plan.is_empty


def test_only_drift_makes_what_is_gone_again_as_it_was(applied: Bench) -> None:
    west(applied).delete_topic("shop:orders")
    path = applied.folder / "manifests/orders.yaml"
    path.write_text(path.read_text().replace("partitions: 3", "partitions: 5"))
    assert applied.apply(options=ApplyOptions(yes=True, only_drift=True)).verdict is None
    assert west(applied).topic("shop:orders").partitions == 3


def test_a_saved_plan_says_itself_what_is_done(applied: Bench) -> None:
    applied.plan(out=Path("p.json"))
    with pytest.raises(UsageError, match="--only-drift"):
        applied.apply(options=ApplyOptions(file=Path("p.json"), only_drift=True))
