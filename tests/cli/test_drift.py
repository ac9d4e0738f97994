"""`drift` and what follows from it, as it is typed: codes, streams, and what goes with what."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import jsonschema
import pytest

from reconciler.objectstore.directory import DirectoryStore
from tests.cli.conftest import Call
from tests.embedded.deaths import opened

SCHEMA = Path(__file__).resolve().parents[2] / "schemas/drift.json"
ORDERS = "topic/west/shop:orders"


@pytest.fixture
def call(typed: Call) -> Call:
    """Run commands in a workspace that `init` made, and that is applied."""
    assert typed("init").code == 0
    assert typed("apply", "--yes").code == 0
    return typed


def grow() -> None:
    """Let the cluster have more partitions than the files say, as another tool would make it."""
    opened(DirectoryStore(Path(".clusters/west"))).alter_topic("shop:orders", partitions=6)


def test_drift_as_json_follows_its_schema_and_says_what_fails(call: Call) -> None:
    grow()
    said = call("drift", "--format", "json")
    printed = json.loads(said.out)
    jsonschema.validate(printed, json.loads(SCHEMA.read_bytes()))
    assert said.code == 3
    (found,) = printed["findings"]
    assert (found["kind"], found["path"], found["fails"]) == ("drift", "partitions", True)
    assert found["fingerprint"].startswith("sha256:")
    assert printed["summary"]["in_doubt"] == 0


def test_of_many_resources_that_nobody_declares_only_the_number_is_told_unless_they_fail(call: Call) -> None:
    there = opened(DirectoryStore(Path(".clusters/west")))
    for number in range(3):
        there.create_topic(f"shop:other-{number}")
    assert "  ? topic/west/shop:other-2" in call("drift").out
    there.create_topic("shop:other-3")
    said = call("drift").out
    assert "UNMANAGED 4\n  ? 4 resources not in the files, left alone  named with --format json\n" in said
    assert "other" not in said
    assert "  ? topic/west/shop:other-3" in call("drift", "--fail-on", "unmanaged").out
    assert len(json.loads(call("drift", "--format", "json").out)["findings"]) == 4


def test_what_is_accepted_is_a_patch_alone_on_standard_output(call: Call) -> None:
    grow()
    said = call("drift", "--accept", ORDERS, "--accept", "namespace/*")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("--- a/manifests/example.yaml\n+++ b/manifests/example.yaml\n@@ ")
    subprocess.run(["git", "apply", "-"], input=said.out.encode(), check=True)
    assert call("drift").code == 0
    assert call("apply", "--yes").code == 0
    assert call("drift").out == "No drift: clusters are as they were last applied.\n"


def test_what_no_patch_can_say_is_a_comment_on_standard_error(call: Call) -> None:
    path = Path("manifests/example.yaml")
    path.write_text(path.read_text().replace("partitions: 3", "partitions: 4"))
    said = call("drift", "--accept", ORDERS)
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith(f"# {ORDERS}: the files changed, not the cluster")


@pytest.mark.parametrize(
    "more", [["--known", "k.json"], ["--fail-on", "pending"], ["--format", "json"]], ids=lambda more: more[0]
)
def test_a_patch_goes_with_nothing_that_is_about_the_list(call: Call, more: list[str]) -> None:
    assert call("drift", "--accept", ORDERS, *more).code == 64


def test_what_was_told_is_told_once(call: Call) -> None:
    grow()
    assert call("drift", "--known", "k.json").code == 3
    said = call("drift", "--known", "k.json")
    assert (said.code, said.out.splitlines()[-1]) == (0, "Nothing new: 1 finding told before.")


@pytest.mark.parametrize("name", ["in-doubt", "in doubt", "pending"])
def test_a_class_is_added_by_its_name(call: Call, name: str) -> None:
    assert call("drift", "--fail-on", name).code == 0


def test_a_class_that_is_none_is_a_slip_of_usage(call: Call) -> None:
    said = call("drift", "--fail-on", "doubt")
    assert said.code == 64
    assert "drift, missing, in-doubt, unmanaged, pending, blocked" in said.err


def test_a_saved_plan_and_only_drift_do_not_go_together(call: Call) -> None:
    assert call("plan", "--out", "p.json").code == 0
    assert call("apply", "p.json", "--only-drift").code == 64


def remake() -> None:
    """Delete the topic and make another one of its name, as somebody with another tool does."""
    cluster = opened(DirectoryStore(Path(".clusters/west")))
    cluster.delete_topic("shop:orders")
    cluster.create_topic("shop:orders", partitions=3, configs={})


def declare(before: str, after: str) -> None:
    path = Path("manifests/example.yaml")
    path.write_text(path.read_text().replace(before, after))


def test_a_field_that_files_and_cluster_changed_goes_back_by_the_command_that_is_hinted(call: Call) -> None:
    declare("partitions: 3", "partitions: 3\n  configs: {retention.ms: 7d}")
    assert call("apply", "--yes").code == 0
    opened(DirectoryStore(Path(".clusters/west"))).alter_topic("shop:orders", {"retention.ms": "999999"})
    declare("retention.ms: 7d", "retention.ms: 8d")
    said = call("drift")
    assert (said.code, "reconciler apply --only-drift" in said.err) == (3, True)
    assert call("apply", "--only-drift", "--yes").code == 0
    again = call("drift", "--format", "json")
    assert [found["kind"] for found in json.loads(again.out)["findings"]] == ["pending"]
    assert again.code == 0


def test_what_was_made_anew_is_adopted_not_set_back(call: Call) -> None:
    remake()
    said = call("drift")
    assert said.code == 3
    assert said.err.splitlines()[-1].endswith(": reconciler apply")
    only = call("apply", "--only-drift", "--yes")
    assert "that cannot be set back. `reconciler apply` adopts what exists" in only.err
    assert call("apply", "--yes").code == 0
    assert call("drift").code == 0


def test_what_cannot_be_set_back_is_named_and_the_rest_can_be_done(call: Call) -> None:
    grow()
    said = call("drift")
    assert "--only-drift" not in said.err
    assert "reconciler drift --accept ADDR" in said.err
    only = call("apply", "--only-drift", "--yes")
    assert only.code == 0
    assert f"{ORDERS}: it has 6 partitions, and the files still have 3: added partitions stay" in only.err


def test_a_patch_that_lacks_something_is_printed_and_fails(call: Call) -> None:
    legacy = "apiVersion: reconciler/v1\n? kind\n: Topic\nmetadata: {name: odd, cluster: west}\nspec: {partitions: 1}\n"
    Path("manifests/odd.yaml").write_text(legacy)
    assert call("apply", "--yes").code == 0
    cluster = opened(DirectoryStore(Path(".clusters/west")))
    for name in ("shop:orders", "odd"):
        cluster.alter_topic(name, {}, partitions=6)
    said = call("drift", "--accept", "topic/*")
    assert said.code == 1
    assert said.err.startswith(
        "# topic/west/odd: change by hand: manifests/odd.yaml:5 spec.partitions: 6 (its layout allows"
    )
    assert "1 finding is not in the patch" in said.err
    subprocess.run(["git", "apply", "-"], input=said.out.encode(), check=True)
    assert "partitions: 6" in Path("manifests/example.yaml").read_text()


# What monitoring is told.


def metrics_in(path: Path) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in path.read_text().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def test_the_metrics_count_what_was_found_by_class_and_say_when(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "drift.prom"
    assert call("drift", "--metrics", "drift.prom").code == 0
    before = metrics_in(path)
    assert {value for name, value in before.items() if "findings" in name} == {0}
    (whole,) = (value for name, value in before.items() if "compared_all" in name)
    assert whole == 1
    opened(DirectoryStore(tmp_path / ".clusters/west")).delete_topic("shop:orders")
    assert call("drift", "--metrics", "drift.prom").code == 3
    after = metrics_in(path)
    (found,) = (name for name, value in after.items() if "findings" in name and value)
    assert 'class="missing"' in found
    assert [value for name, value in after.items() if "failing" in name] == [1]


def test_metrics_never_take_the_place_of_something_else(call: Call, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert call("drift", "--metrics", "notes.txt").code == 64
    assert (tmp_path / "notes.txt").read_text() == "mine"
