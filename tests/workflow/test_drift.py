from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import DriftError, UsageError, UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.workflow.drift import drift
from reconciler.workflow.invocation import Select

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conftest import Bench

    from reconciler.workflow.drift import Drifted


def look(bench: Bench, *, fail_on: Sequence[str] = (), known: Path | None = None) -> Drifted:
    drifted = drift(bench.invocation, Select(), fail_on=fail_on, known=known)
    drifted.remember()
    return drifted


def kinds(drifted: Drifted) -> list[tuple[str, str]]:
    return [(found.kind, found.address) for found in drifted.findings]


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
