"""`cluster check` on the command line: what it prints and the code it leaves with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import jsonschema
import pytest

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.objects import create_cluster
from reconciler.objectstore.open import open_store
from tests.cli.conftest import Call, Run
from tests.cli.test_signals import write_workspace

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from tests.servers.weed import S3Server


SCHEMA = Path(__file__).resolve().parents[2] / "schemas" / "check.json"
TOPIC = "topic/west/shop:orders"


@pytest.mark.thorough
def test_a_cluster_is_checked_and_what_is_lost_is_named(run: Run, tmp_path: Path) -> None:
    assert run("init").returncode == 0
    assert run("apply", "--yes").returncode == 0
    produced = run("topic", "produce", TOPIC, "--input", "-", "--input-format", "jsonl", "--partition", "1", stdin="{}")
    assert produced.returncode == 0, produced.stderr
    well = run("cluster", "check", "west")
    assert (well.returncode, well.stderr) == (0, "")
    assert "1 namespace, 1 topic, 1 partition written, 1 part, 1 record" in well.stdout
    assert well.stdout.endswith("\nConsistent\n")

    (part,) = (tmp_path / ".clusters/west/topics").rglob("*.parquet")
    part.unlink()
    said = run("cluster", "check", "west", "--repair")
    assert said.returncode == 1
    assert f"ERROR part-missing  1\n  ✗ shop:orders, partition 1, offsets 0 to 0: topics/shop/orders_1/{part.name}" in (
        said.stdout
    )
    assert "why: The records at these offsets are missing" in said.stdout
    assert said.stdout.endswith("\nNot consistent: 1 error\n")
    assert said.stderr.startswith("Error: cluster west is not consistent: 1 error\n")

    printed = json.loads(run("cluster", "check", "west", "--format", "json").stdout)
    jsonschema.validate(printed, json.loads(SCHEMA.read_bytes()))
    assert not printed["consistent"]
    assert printed["findings"][0]["gone"] == [{"start": 0, "stop": 1}]
    assert (printed["findings"][0]["topic"], printed["findings"][0]["partition"]) == ("shop:orders", 1)


# What a killed write left empty: commands say what mends it, and that mends it.
#
# The bucket keeps versions, so that a register of a cluster can be put back; a state is made anew without any.


CUT: Final = "topic/west/orders"


class Bucket:
    """A workspace whose state and cluster lie in it."""

    def __init__(self, store: ObjectStore, call: Call) -> None:
        self.store = store
        self.call = call

    def empty(self, prefix: str) -> str:
        """Leave nothing in the last object under a prefix; return its key."""
        key = [listed.key for listed in self.store.list(prefix)][-1]
        self.store.put(key, b"")
        return key

    def records(self) -> list[str]:
        said = self.call("topic", "consume", CUT, "--output-format", "values")
        assert said.code == 0, said.err
        return said.out.splitlines()

    def produce(self, value: str) -> None:
        said = self.call(
            "topic", "produce", CUT, "--input", "-", "--input-format", "jsonl", stdin=b'"%s"' % value.encode()
        )
        assert said.code == 0, said.err

    def finds_all_applied(self) -> None:
        planned = self.call("plan", "--detailed-exitcode")
        assert (planned.code, "Traceback" in planned.err) == (0, False), planned


@pytest.fixture
def bucket(typed: Call, s3_server: S3Server, s3_environ: dict[str, str]) -> Bucket:
    assert s3_environ
    url = s3_server.versioned("shop")
    write_workspace(Path.cwd(), state=f"{url}/state", root=f"{url}/west")
    assert typed("apply", "--yes").code == 0
    return Bucket(open_store(s3_server.settings(url=url)), typed)


REGISTERS: Final = {
    "west/catalog/head.json": "catalog-damaged",
    "west/heads/": "head-damaged",
    "west/groups/": "group-damaged",
    "west/cluster.json": "cluster-file",
}


@pytest.mark.thorough
@pytest.mark.parametrize("prefix", REGISTERS)
def test_a_register_of_a_cluster_is_put_back_from_the_versions_of_its_bucket(bucket: Bucket, prefix: str) -> None:
    bucket.produce("one")
    assert bucket.call("topic", "consume", CUT, "--group", "readers").code == 0
    key = bucket.empty(prefix).removeprefix("west/")
    told = bucket.call("topic", "consume", CUT, "--group", "readers")
    assert told.code == 1
    assert f"{key} cannot be read: there is nothing in it" in told.err
    assert "reconciler cluster check CLUSTER --repair" in told.err
    found = bucket.call("cluster", "check", "west")
    assert (found.code, REGISTERS[prefix] in found.out) == (1, True), found
    mended = bucket.call("cluster", "check", "west", "--repair")
    assert mended.code == 0, mended
    assert f"put back the last whole version of {key}, where a write was cut off" in mended.out
    bucket.produce("two")
    assert bucket.records() == ['"one"', '"two"']
    assert bucket.call("topic", "consume", CUT, "--group", "readers", "--output-format", "values").out == '"two"\n'
    bucket.finds_all_applied()


@pytest.mark.thorough
def test_several_registers_are_put_back_at_once_also_those_that_an_empty_catalog_hides(bucket: Bucket) -> None:
    bucket.produce("one")
    for prefix in ("west/cluster.json", "west/catalog/head.json", "west/heads/"):
        bucket.empty(prefix)
    assert bucket.call("cluster", "check", "west", "--repair", "--verbose").code == 0
    assert bucket.records() == ['"one"']


@pytest.mark.thorough
def test_an_empty_lockfile_is_made_anew_by_state_repair(bucket: Bucket) -> None:
    bucket.empty("state/lockfile.json")
    for command in (("plan",), ("apply", "--yes")):
        told = bucket.call(*command)
        assert (told.code, "reconciler state repair" in told.err) == (1, True)
    assert bucket.call("state", "repair", "--yes").code == 0
    bucket.finds_all_applied()


@pytest.mark.thorough
@pytest.mark.parametrize("left", [b"", b"\x1f\x8b\x08"])
def test_an_empty_snapshot_that_no_lockfile_names_stops_nothing(bucket: Bucket, left: bytes) -> None:
    bucket.store.put("state/state/000000000002-0123456789ab.json.gz", left)
    bucket.finds_all_applied()
    manifest = Path("manifests/all.yaml")
    manifest.write_text(manifest.read_text().replace("partitions: 2", "partitions: 3"))
    assert bucket.call("apply", "--yes").code == 0
    assert bucket.call("state", "history").code == 0
    bucket.finds_all_applied()


@pytest.mark.thorough
@pytest.mark.parametrize("left", [b"", b'{"format": "reco'], ids=["empty", "cut off"])
@pytest.mark.parametrize("name", ["west/heads/", "west/groups/readers.json", "west/catalog/head.json"])
def test_a_register_whose_first_write_was_cut_off_is_as_if_it_was_never_written(
    typed: Call, s3_server: S3Server, s3_environ: dict[str, str], name: str, left: bytes
) -> None:
    """The only version that the bucket has of it; where nothing else could tell."""
    assert s3_environ
    url = s3_server.versioned("shop")
    write_workspace(Path.cwd(), state=f"{url}/state", root=f"{url}/west")
    bucket = Bucket(open_store(s3_server.settings(url=url)), typed)
    if name.endswith("head.json"):
        create_cluster(open_store(s3_server.settings(url=f"{url}/west")), "11111111-1111-4111-8111-111111111111")
    else:
        assert typed("apply", "--yes").code == 0
    if name == "west/heads/":
        store = open_store(s3_server.settings(url=f"{url}/west"))
        cluster = EmbeddedCluster.open(store, now_ms=lambda: 0, new_id=lambda: "")
        name += f"{cluster.topic('orders').id}/00000.json"
    bucket.store.put(name, left)
    assert bucket.call("apply", "--yes").code == 0
    checked = bucket.call("cluster", "check", "west")
    assert checked.code == 0, checked
    bucket.produce("one")
    for _ in range(8):  # to each partition some
        bucket.produce("more")
    consumed = bucket.call("topic", "consume", CUT, "--group", "readers", "--output-format", "values")
    assert sorted(consumed.out.splitlines()) == sorted(bucket.records()) == ['"more"'] * 8 + ['"one"']
    assert bucket.call("cluster", "check", "west", "--deep").code == 0
    bucket.finds_all_applied()


@pytest.mark.thorough
@pytest.mark.parametrize("prefix", ["west/catalog/head.json", "west/heads/"])
def test_a_register_in_a_bucket_without_versions_is_left_as_it_is(
    typed: Call, s3_server: S3Server, s3_environ: dict[str, str], prefix: str
) -> None:
    assert s3_environ
    url = s3_server.url("shop")
    write_workspace(Path.cwd(), state=f"{url}/state", root=f"{url}/west")
    assert typed("apply", "--yes").code == 0
    bucket = Bucket(open_store(s3_server.settings(url=url)), typed)
    bucket.produce("one")
    key = bucket.empty(prefix)
    said = typed("cluster", "check", "west", "--repair")
    assert (said.code, REGISTERS[prefix] in said.out) == (1, True), said
    left = bucket.store.get(key)
    assert left is not None
    assert left.body == b""


def test_the_hint_of_a_repair_is_not_the_command_that_was_typed(
    typed: Call, s3_server: S3Server, s3_environ: dict[str, str]
) -> None:
    assert s3_environ
    url = s3_server.url("shop")
    write_workspace(Path.cwd(), state=f"{url}/state", root=f"{url}/west")
    assert typed("apply", "--yes").code == 0
    open_store(s3_server.settings(url=url)).put("west/cluster.json", b"{")
    said = typed("cluster", "check", "west", "--repair")
    assert (said.code, "restore it from a copy of the store" in said.err) == (1, True), said
    assert "cluster check CLUSTER" not in said.err + said.out + typed("cluster", "check", "west").out


@pytest.mark.thorough
def test_a_catalog_that_was_cut_off_before_any_record_was_written_is_begun_again(
    typed: Call, s3_server: S3Server, s3_environ: dict[str, str]
) -> None:
    """Also without versions: no partition was written to, so what is gone stands in the files."""
    assert s3_environ
    url = s3_server.url("shop")
    write_workspace(Path.cwd(), state=f"{url}/state", root=f"{url}/west")
    assert typed("apply", "--yes").code == 0
    bucket = Bucket(open_store(s3_server.settings(url=url)), typed)
    bucket.empty("west/catalog/head.json")
    planned = typed("plan", "--detailed-exitcode")
    assert (planned.code, "topic/west/orders" in planned.out) == (2, True), planned
    assert typed("apply", "--yes").code == 0
    bucket.produce("one")
    assert bucket.records() == ['"one"']
    bucket.finds_all_applied()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "mend"), [("state/lockfile.json", ["state", "repair", "--yes"]), ("west/cluster.json", None)]
)
def test_a_first_write_that_was_cut_off_is_made_again(
    typed: Call, s3_server: S3Server, s3_environ: dict[str, str], name: str, mend: list[str] | None
) -> None:
    assert s3_environ
    url = s3_server.url("shop")
    write_workspace(Path.cwd(), state=f"{url}/state", root=f"{url}/west")
    open_store(s3_server.settings(url=url)).put(name, b"")
    if mend is not None:
        assert f"reconciler {mend[0]} {mend[1]}" in typed("apply", "--yes").err
        assert typed(*mend).code == 0
    else:
        assert "there is no cluster at" in typed("cluster", "check", "west").err
    assert typed("apply", "--yes").code == 0
    assert typed("cluster", "check", "west").code == 0
