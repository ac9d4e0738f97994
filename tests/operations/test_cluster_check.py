"""`cluster check` over a workspace: which cluster is looked at, what a repair may do, and what it refuses."""

from __future__ import annotations

import io
import shutil
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.check.damage import Kind
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import RetryableError, UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.clusters.cluster_check import CheckedCluster, run_cluster_check
from reconciler.operations.clusters.consume import ProduceOptions, produce
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions
from tests.servers.weed import REGION, credentials_of

if TYPE_CHECKING:
    from conftest import Bench

    from tests.servers.weed import S3Server


ORDERS = "topic/west/shop:orders"


def checked(
    bench: Bench, name: str = "west", *, repair: bool = False, deep: bool = False, state: str | None = None
) -> CheckedCluster:
    reach = SiteOptions(invocation=bench.invocation, select=Select(), state_url=state)
    return run_cluster_check(reach, name, repair=repair, deep=deep)


@pytest.fixture
def fed(applied: Bench) -> Bench:
    """The workspace, applied, with a record in its topic."""
    options = ProduceOptions(input_format="jsonl", partition=0)
    body = io.BytesIO(b'{"a": 1}\n')
    produce(
        SiteOptions(invocation=applied.invocation, select=Select()),
        ORDERS,
        options,
        stdin=body,
        report=lambda _records, _size: None,
    )
    return applied


def test_a_cluster_that_is_well_has_no_verdict(fed: Bench) -> None:
    found = checked(fed, deep=True)
    assert (found.address, found.verdict, found.mended) == ("cluster/west", None, ())
    assert (found.checked.topics, found.checked.records) == (1, 1)


@pytest.mark.parametrize("repair", [False, True])
def test_broken_files_do_not_stop_a_check_that_names_the_state(fed: Bench, *, repair: bool) -> None:
    fed.write("manifests/orders.yaml", "kind: [\n")
    with pytest.raises(UserError) as refused:
        checked(fed, repair=repair)
    assert refused.value.hint.endswith("To continue without the files: --state URL, as `spec.state` has it")
    found = checked(fed, repair=repair, state="file://.reconciler")
    assert (found.address, found.verdict, found.checked.records) == ("cluster/west", None, 1)


def test_what_is_lost_is_the_verdict_also_after_a_repair(fed: Bench) -> None:
    for part in (fed.folder / ".clusters/west/topics").rglob("*.parquet"):
        part.unlink()
    for repair in (False, True):
        found = checked(fed, repair=repair)
        assert found.verdict is not None
        assert found.verdict.message == "cluster west is not consistent: 1 error"
        assert [finding.kind for finding in found.checked.findings] == [Kind.PART_MISSING]


def test_a_repair_says_what_it_did_and_how_it_is_then(fed: Bench) -> None:
    cluster = EmbeddedCluster.open(
        DirectoryStore(fed.folder / ".clusters/west"), now_ms=fed.invocation.now_ms, new_id=fed.invocation.new_id
    )
    cluster.catalog.commit(lambda draft: draft.put_namespace("shop", None))
    assert checked(fed).verdict is not None
    found = checked(fed, repair=True)
    assert [each.what for each in found.mended] == ["created namespaces shop"]
    assert (found.checked.findings, found.verdict) == ([], None)


def test_a_cluster_that_is_not_there_is_said(bench: Bench) -> None:
    with pytest.raises(UserError, match="there is no cluster 'north' in this workspace"):
        checked(bench, "north")
    with pytest.raises(UserError, match="there is no cluster at file://"):
        checked(bench)


def test_a_recorded_cluster_that_is_gone_is_not_an_empty_one(applied: Bench) -> None:
    shutil.rmtree(applied.folder / ".clusters/west")
    with pytest.raises(RetryableError, match="cluster west is recorded, but nothing is at file://"):
        checked(applied)


def test_another_cluster_is_not_repaired_in_its_place(applied: Bench) -> None:
    root = applied.folder / ".clusters/west"
    shutil.rmtree(root)
    EmbeddedCluster.create(DirectoryStore(root), "another", now_ms=lambda: 0, new_id=lambda: "x")
    assert checked(applied).checked.cluster_id == "another"
    with pytest.raises(UserError, match="but another answers"):
        checked(applied, repair=True)


def test_a_check_needs_no_state_and_a_repair_does(fed: Bench) -> None:
    fed.write(".reconciler/lockfile.json", "{")
    assert checked(fed).verdict is None
    assert "the state cannot be read" in fed.warned[-1]
    with pytest.raises(UserError, match="cannot be read"):
        checked(fed, repair=True)


def test_only_the_super_user_checks(fed: Bench) -> None:
    with pytest.raises(UserError, match="checked by the super user"):
        checked(fed.with_(principal="User:anna"))


def test_other_platforms_are_not_ours_to_check(bench: Bench) -> None:
    bench.write(
        "manifests/far.yaml",
        "apiVersion: reconciler/v1\nkind: Cluster\nmetadata: {name: far}\n"
        "spec: {provider: kafka, kafka: {bootstrapServers: ['localhost:1']}}\n",
    )
    with pytest.raises(UserError, match="cluster far is not an embedded one"):
        checked(bench, "far")


@pytest.mark.thorough
def test_object_storage_is_reached_with_the_keys_that_the_properties_of_the_cluster_name(
    bench: Bench, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    place = f"url: {s3_server.url('checked')}, endpoint: '{s3_server.endpoint}', forcePathStyle: true, region: {REGION}"
    keys = "cloud_storage_access_key: '${env:KEY}', cloud_storage_secret_key: '${env:SECRET}'"
    west = bench.folder / "manifests/west.yaml"
    root = '{root: "file://.clusters/west"}\n'
    more = f"  objectStorage: {{{place}}}\n  properties: {{{keys}}}\n"
    west.write_text(west.read_text().replace(root, root + more))
    workspace = bench.folder / "reconciler.yaml"
    workspace.write_text(f"{workspace.read_text()}spec: {{references: {{allow: ['env:KEY', 'env:SECRET']}}}}\n")
    credentials = credentials_of("admin")
    environ = {"KEY": credentials.access_key, "SECRET": credentials.secret_key.text}
    bench = bench.with_(environ=environ)
    assert bench.apply().verdict is None
    for repair in (False, True):
        assert checked(bench, repair=repair).verdict is None
