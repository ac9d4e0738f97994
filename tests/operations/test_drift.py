from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import DriftError, UsageError, UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.drift import DriftItem, DriftResult, DriftScope, KnownDriftFile, drift
from reconciler.operations.steps.invocation import Select
from reconciler.planning.diff.field_differences import build_drift_finding
from reconciler.planning.plan_rows import hash_value
from reconciler.resources.address import Address

if TYPE_CHECKING:
    from conftest import Bench


ORDERS = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, namespace: shop, cluster: west}
spec: {partitions: 3}
"""


def look(bench: Bench, *, fail_on: Sequence[str] = (), known: Path | None = None) -> DriftResult:
    drifted = drift(bench.invocation, Select(), fail_on=fail_on, known=known)
    drifted.record_shown()
    return drifted


def kinds(drifted: DriftResult) -> list[tuple[str, str]]:
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


def test_known_drift_is_left_out_until_it_changes(applied: Bench) -> None:
    west(applied).alter_topic("shop:orders", {"retention.ms": "1000"})
    known = Path("known.json")
    assert isinstance(look(applied, known=known).verdict, DriftError)
    again = look(applied, known=known)
    assert (again.findings, again.verdict) == ((), None)

    west(applied).alter_topic("shop:orders", {"retention.ms": "2000"})
    assert isinstance(look(applied, known=known).verdict, DriftError)


def test_a_file_of_known_drift_that_cannot_be_kept_is_said(applied: Bench) -> None:
    for name, said in (("no/such/folder/known.json", "cannot write"), ("manifests", "cannot read")):
        with pytest.raises(UserError, match=said):
            look(applied, known=Path(name))


def test_a_key_set_by_hand_that_hides_what_a_namespace_says_is_drift_and_set_back(applied: Bench) -> None:
    _let_the_namespace_say(applied, "{max.message.bytes: 1MiB}")
    applied.apply()
    west(applied).alter_topic("shop:orders", {"max.message.bytes": "7"})
    drifted = look(applied)
    assert [(found.kind, found.path, found.recorded, found.observed) for found in drifted.findings] == [
        ("drift", "configs.max.message.bytes", "1048576", "7")
    ]
    assert isinstance(drifted.verdict, DriftError)
    assert applied.apply(options=ApplyOptions(yes=True, only_drift=True)).verdict is None
    assert "max.message.bytes" not in west(applied).topic("shop:orders").configs
    assert look(applied).findings == ()
    assert applied.plan().plan.is_empty


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


def test_what_is_not_selected_is_not_told(applied: Bench) -> None:
    west(applied).alter_topic("shop:orders", {"retention.ms": "1000"})
    west(applied).create_topic("shop:legacy")
    for select in (Select(excludes=("*orders",)), Select(targets=("namespace/west/shop",))):
        found = drift(applied.invocation, select)
        assert "topic/west/shop:orders" not in {one.address for one in found.findings}
        assert found.verdict is None


def test_what_a_namespace_that_is_left_out_lacks_is_no_error_of_comparing(bench: Bench) -> None:
    found = drift(bench.invocation, Select(excludes=("namespace/*",)))
    assert kinds(found) == [("pending", "cluster/west"), ("pending", "topic/west/shop:orders")]
    assert found.verdict is None
    assert bench.plan(Select(excludes=("namespace/*",))).plan.errors


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


# The file of `drift --known`: whole or as it was, whatever happens to who writes it.


KNOWN, CLICKS = Address("topic/west/orders"), Address("topic/west/clicks")
SHOP = DriftScope("shop")


def found(address: Address, observed: object, *, ignored: str | None = None) -> DriftItem:
    mark = hash_value([address, "configs.retention.ms", observed])
    return DriftItem("drift", address, "moved", mark, "configs.retention.ms", None, None, ignored)


def told(
    path: Path,
    findings: Sequence[DriftItem],
    *,
    looked_at: Sequence[Address] = (KNOWN, CLICKS),
    whose: DriftScope = SHOP,
) -> list[DriftItem]:
    """Look once: return what is new, and remember it."""
    known = KnownDriftFile.read(path, whose, findings, lambda address: address in looked_at)
    known.store_findings()
    return list(known.unknown)


def test_a_finding_is_told_once_and_again_when_it_changed_or_came_back(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    first, second = found(KNOWN, "1"), found(KNOWN, "2")
    assert told(path, [first]) == [first]
    assert told(path, [first]) == []
    assert told(path, [second]) == [second]
    assert told(path, []) == []
    assert told(path, [second]) == [second]


def test_what_was_not_looked_at_stays_known(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    orders, clicks = found(KNOWN, "1"), found(CLICKS, "1")
    told(path, [orders, clicks])
    assert told(path, [orders], looked_at=[KNOWN]) == []
    assert told(path, [orders, clicks]) == []


def test_what_is_no_longer_ignored_is_told_anew(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    left, failing = found(KNOWN, "1", ignored="OPS-1, until 2030-01-01"), found(KNOWN, "1")
    assert told(path, [left]) == [left]
    assert told(path, [left]) == []
    assert told(path, [failing]) == [failing]


def test_what_was_not_shown_is_not_remembered(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    KnownDriftFile.read(path, SHOP, [found(KNOWN, "1")], lambda _address: True)
    assert not path.exists()


OLD = "reconciler.known-drift/1"


def test_an_old_file_that_says_no_more_than_fingerprints_is_read(tmp_path: Path) -> None:
    path, one = tmp_path / "known.json", found(KNOWN, "1")
    path.write_text(json.dumps({"format": OLD, "fingerprints": [one.fingerprint]}))
    assert told(path, [one]) == []
    assert told(path, [one]) == []


def test_an_old_file_hides_nothing_of_an_environment_for_it_may_be_anothers(tmp_path: Path) -> None:
    path, one = tmp_path / "known.json", found(KNOWN, "1")
    prod = DriftScope("shop", "prod", "line")
    path.write_text(json.dumps({"format": OLD, "fingerprints": [one.fingerprint], "addresses": {}}))
    assert told(path, [one], whose=prod) == [one]
    assert told(path, [one], whose=prod) == []
    assert told(path, [one]) == []


def test_one_file_keeps_workspaces_environments_and_states_apart(tmp_path: Path) -> None:
    path, one = tmp_path / "known.json", found(KNOWN, "1")
    all_of_them = [
        DriftScope("shop"),
        DriftScope("shop", "dev", "a"),
        DriftScope("shop", "prod", "a"),
        DriftScope("shop", "prod", "b"),
        DriftScope("bank", "prod", "b"),
    ]
    assert [told(path, [one], whose=whose) for whose in all_of_them] == [[one]] * 5
    assert [told(path, [one], whose=whose) for whose in all_of_them] == [[]] * 5
    told(path, [], whose=all_of_them[1])
    assert [told(path, [one], whose=whose) for whose in all_of_them] == [[], [one], [], [], []]


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        '{"format": "reconciler.known-drift/3"}',
        '{"format": "reconciler.known-drift/2", "told": [1]}',
        '{"format": "reconciler.known-drift/1", "fingerprints": 3}',
        '{"format": "reconciler.known-drift/2", "told": [{"workspace": "s", "environment": [], "fingerprints": []}]}',
    ],
)
def test_what_is_no_such_file_is_said(tmp_path: Path, text: str) -> None:
    path = tmp_path / "known.json"
    path.write_text(text)
    with pytest.raises(UserError, match="is not a file of"):
        told(path, [])


def test_the_same_content_gives_the_same_bytes_and_the_rights_of_the_file_stay(tmp_path: Path) -> None:
    path, other = tmp_path / "known.json", tmp_path / "other.json"
    findings = [found(KNOWN, "1"), found(CLICKS, "2")]
    told(path, findings)
    path.chmod(0o640)
    told(path, findings)
    told(other, list(reversed(findings)))
    assert path.read_bytes() == other.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o640
    assert {child.name for child in tmp_path.iterdir()} == {"known.json", "other.json"}


def test_through_a_link_the_file_it_names_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "known.json"
    link.symlink_to(tmp_path / "there/real.json")
    told(link, [found(KNOWN, "1")])
    assert link.is_symlink()
    assert told(tmp_path / "there/real.json", [found(KNOWN, "1")]) == []


def test_two_at_once_corrupt_nothing_and_neither_forgets_what_the_other_told(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    findings = [found(Address(f"topic/west/t{number}"), "1") for number in range(40)]
    before = [KnownDriftFile.read(path, SHOP, [one], lambda _address: True) for one in findings]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(KnownDriftFile.store_findings, before))
    assert KnownDriftFile.read(path, SHOP, findings, lambda _address: True).unknown == ()


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path, first = tmp_path / "known.json", found(KNOWN, "1")
    told(path, [first])
    before = path.read_bytes()
    many = [found(Address(f"topic/west/t{number}"), "1") for number in range(1000)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(UserError, match=r"cannot write .*it is as it was"):
            told(path, many)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert [child.name for child in tmp_path.iterdir()] == ["known.json"]


KILLED = """
import os, signal, sys
from pathlib import Path
from reconciler.operations import drift as known
real = os.fsync
def die(descriptor):
    real(descriptor)
    os.kill(os.getpid(), signal.SIGKILL)
os.fsync = die
known.KnownDriftFile.read(Path(sys.argv[1]), known.DriftScope("shop"), [], lambda _address: True).store_findings()
"""


def test_a_kill_while_it_is_written_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    told(path, [found(KNOWN, "1")])
    before = path.read_bytes()
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False, env=dict(os.environ))
    assert done.returncode == -9
    assert path.read_bytes() == before
    assert told(path, [found(KNOWN, "1")]) == []


def test_a_folder_that_is_not_there_is_said_before_anything_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no folder"):
        KnownDriftFile.read(tmp_path / "no/known.json", SHOP, [], lambda _address: True)


def test_a_fingerprint_means_the_same_in_every_version() -> None:
    # Files of --known outlive an upgrade: these values are part of their format.
    moved = build_drift_finding(KNOWN, "configs.retention.ms", "604800000", "1000")
    assert moved.fingerprint == "sha256:7736d41010a1aecfb7ff6685cbc733f75d55db7148b99605dc388a703bb4ae00"
    gone = build_drift_finding(KNOWN, "", {"kind": "Topic"}, None)
    assert gone.fingerprint == "sha256:ba655b349f0b0444828c34073e9ffa493f169530236b1d48fe763c989168fce3"


def test_a_fingerprint_depends_on_no_order_of_keys_and_no_way_of_writing() -> None:
    one = build_drift_finding(KNOWN, "autoCreate", None, {"a": ("x", "y"), "b": 1})
    same = build_drift_finding(KNOWN, "autoCreate", {"b": 2}, {"b": 1, "a": ["x", "y"]})
    assert one.fingerprint == same.fingerprint
    raw = build_drift_finding(KNOWN, "configs.cleanup.policy", None, "delete,compact", meaning="compact,delete")
    assert raw.fingerprint == build_drift_finding(KNOWN, "configs.cleanup.policy", None, "compact,delete").fingerprint
