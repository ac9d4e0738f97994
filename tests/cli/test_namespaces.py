"""`namespace create|list|move|delete` as people call them: what they print, in text and JSON, and their exit codes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from reconciler.cli.options import parse_pairs
from reconciler.errors import UsageError
from reconciler.runtime.text import format_bytes
from tests.cli.sample_workspaces import SCHEMAS

if TYPE_CHECKING:
    from tests.cli.conftest import Call, Finished, Run


@pytest.fixture
def run(typed: Call) -> Run:
    """Type commands in this process: what they print is the point here, not how they start."""

    def start(*arguments: str, stdin: str = "") -> Finished:
        said = typed(*arguments, stdin=stdin.encode())
        return subprocess.CompletedProcess(arguments, *said)

    return start


@pytest.fixture
def workspace(run: Run, tmp_path: Path) -> Run:
    assert run("init").returncode == 0
    assert run("apply", "--yes").returncode == 0
    fed = run(
        "topic", "produce", "topic/west/shop:orders", "--input", "-", "--input-format", "jsonl", stdin='{"n": 1}\n'
    )
    assert fed.returncode == 0, fed.stderr
    assert (tmp_path / ".clusters").is_dir()
    return run


ALLOWED = ("--allow", "delete:topic/west/*")
"""The cluster of these tests has deletionProtection."""


def follows(name: str, said: Finished) -> Any:
    """Return the JSON that was printed, having seen that it is of its schema."""
    assert said.returncode == 0, said.stderr
    printed = json.loads(said.stdout)
    jsonschema.validate(printed, json.loads(SCHEMAS[name]))
    return printed


def test_a_namespace_is_made_listed_moved_to_and_deleted(workspace: Run) -> None:
    run = workspace
    planned = run("namespace", "create", "west", "org:apache", "--dry-run")
    assert (planned.returncode, planned.stdout.splitlines()[-1][:14]) == (0, "Plan: 2 to add")
    made = run("namespace", "create", "west", "org:apache", "--set", "retention.ms=1d")
    assert (made.returncode, made.stdout) == (
        0,
        "✓ namespace/west/org  created\n✓ namespace/west/org:apache  created\nnamespace create: 2 done\n",
    )
    again = run("namespace", "create", "cluster/west", "org:apache")
    assert (again.returncode, again.stdout) == (0, "· namespace/west/org:apache  unchanged\n")
    listed = run("namespace", "list", "west", "org")
    assert [row.split()[0] for row in listed.stdout.splitlines()] == ["address", "namespace/west/org:apache"]
    moved = run("namespace", "move", "west", "shop", "org:apache", "--topic", "orders")
    assert moved.returncode == 0, moved.stderr
    assert moved.stdout.startswith("✓ topic/west/org:apache:orders  move: shop:orders → org:apache:orders")
    assert "inherits retention.ms 30d → 1d" in moved.stdout
    nested = run("namespace", "delete", "west", "org", "--yes")
    assert nested.returncode == 7
    assert "namespace org holds namespaces: org:apache" in nested.stderr
    assert "--recursive" in nested.stderr
    held = run("namespace", "delete", "west", "org", "--recursive", "--yes")
    assert held.returncode == 7
    assert "--allow delete:topic/west/org:apache:orders" in held.stderr
    delete = ("namespace", "delete", "west", "org", "--recursive", "--allow", "delete:topic/west/org:*")
    planned = run(*delete, "--dry-run")
    assert (planned.returncode, "Plan: 3 to delete" in planned.stdout) == (0, True)
    gone = run(*delete, "--yes")
    assert gone.returncode == 0, gone.stderr
    assert gone.stdout.splitlines()[-1] == "✓ namespace/west/org  deleted"
    assert "org" not in run("namespace", "list", "west").stdout


def result_of(said: Finished) -> list[str]:
    """Return the resources of the last of the events that were printed, having seen that these are of their schema."""
    assert said.returncode == 0, said.stderr
    events = [json.loads(row) for row in said.stdout.splitlines()]
    for event in events:
        jsonschema.validate(event, json.loads(SCHEMAS["event"]))
    assert all(each["changed"] for each in events[-1]["resources"])
    return [each["address"] for each in events[-1]["resources"]]


def test_the_same_as_json(workspace: Run) -> None:
    run = workspace
    create = ("namespace", "create", "west", "a:b", "--format", "json")
    assert follows("plan", run(*create, "--dry-run"))["summary"]["create"] == 2
    assert result_of(run(*create)) == ["namespace/west/a", "namespace/west/a:b"]
    moved = run("namespace", "move", "west", "shop", "a:b", "--format", "json")
    assert result_of(moved) == ["topic/west/a:b:orders"]
    follows("namespaces", run("namespace", "list", "west", "a", "--format", "json"))
    gone = run("namespace", "delete", "west", "a", "--recursive", "--yes", *ALLOWED, "--format", "json")
    assert result_of(gone) == ["namespace/west/a"]


def test_configs_and_access_rules_of_a_namespace_are_altered_and_set_back_by_the_next_apply(workspace: Run) -> None:
    run = workspace
    rule = ("--acl", "{principal: User:checkout, operations: [read, write], resources: [topics, groups]}")
    altered = run("namespace", "alter", "west", "shop", "--set", "retention.ms=60d", *rule)
    assert altered.returncode == 0, altered.stderr
    assert "+acl allow User:checkout on groups,topics: read,write, retention.ms 30d → 60d" in altered.stdout
    drifted = json.loads(run("drift", "--format", "json").stdout)["findings"]
    paths = {"acls.allow User:checkout on groups,topics", "configs.retention.ms"}
    assert {(each["kind"], each["path"]) for each in drifted} == {("drift", path) for path in paths}
    assert run("apply", "--yes").returncode == 0
    assert run("plan", "--detailed-exitcode").returncode == 0
    lossy = run("namespace", "alter", "west", "shop", "--set", "cleanup.policy=compact")
    assert (lossy.returncode, "data loss" in lossy.stdout) == (64, True)
    assert run("namespace", "alter", "west", "shop", *rule).returncode == 0
    removed = run(
        "namespace", "alter", "west", "shop", "--delete-acl", "{principal: User:checkout, resources: [topics, groups]}"
    )
    assert (removed.returncode, "-acl allow User:checkout" in removed.stdout) == (0, True), removed.stderr
    assert run("plan", "--detailed-exitcode").returncode == 0


BELOW = """\
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: "shop:eu", cluster: west}
spec: {quotas: {bytes: unlimited}}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: small, namespace: "shop:eu", cluster: west}
spec: {partitions: 2}
"""


def test_how_much_of_its_quotas_a_namespace_uses_is_shown_with_them(workspace: Run, tmp_path: Path) -> None:
    run, example = workspace, tmp_path / "manifests/example.yaml"
    (tmp_path / "manifests/below.yaml").write_text(BELOW)
    plain, quotas = example.read_text(), "  quotas: {topics: 9, partitions: 90, bytes: 1TiB}\n"
    example.write_text(plain.replace("  configs: {retention.ms: 30d}", f"{quotas}  configs: {{retention.ms: 30d}}"))
    assert run("apply", "--yes").returncode == 0
    size = sum(
        each["bytes"] for each in json.loads(run("topic", "list", "--sizes", "--format", "json").stdout)["topics"]
    )
    rows = [("topics", 9, 2), ("partitions", 90, 5), ("bytes", 2**40, size)]
    expected = [{"quota": word, "limit": limit, "used": used} for word, limit, used in rows]
    listed = follows("namespaces", run("namespace", "list", "--format", "json"))["namespaces"]
    assert [each["quotas"] for each in listed] == [expected, []]
    (shown,) = follows("show", run("show", "namespace/west/shop", "--format", "json"))["resources"]
    assert shown["quotas"] == expected
    for command in (("namespace", "list"), ("show", "namespace/west/shop")):
        assert f"topics 2 of 9, partitions 5 of 90, bytes {format_bytes(size)} of 1TiB" in run(*command).stdout
    example.write_text(plain)
    assert run("apply", "--yes").returncode == 0
    assert "quotas" not in run("namespace", "list").stdout


def test_groups_named_in_a_namespace_that_is_deleted_are_named_with_what_deletes_them(workspace: Run) -> None:
    for group in ("shop:checkout", "shopping", "audit"):
        assert workspace("topic", "consume", "topic/west/shop:orders", "--group", group).returncode == 0
    staying = "1 group named in it: shop:checkout. Groups stay until they are deleted: "
    asked = workspace("namespace", "delete", "west", "shop", *ALLOWED)
    assert staying in asked.stdout
    gone = workspace("namespace", "delete", "west", "shop", *ALLOWED, "--yes")
    assert f"{staying}reconciler group delete west shop:checkout" in gone.stdout
    assert workspace("group", "delete", "west", "shop:checkout", "--force", "--yes").returncode == 0


def test_nothing_is_deleted_where_nobody_can_be_asked(workspace: Run) -> None:
    asked = workspace("namespace", "delete", "west", "shop", "--allow", "delete:topic/west/shop:orders")
    assert asked.returncode == 64
    assert "there is no terminal to confirm on; nothing was done" in asked.stderr
    assert "topic/west/shop:orders" in asked.stdout
    assert workspace("plan", "--detailed-exitcode").returncode == 0


BAD = (
    (("create", "west", "under_score"), 1, "not a namespace"),
    (("create", "west", "a", "--set", "retention.mss=1"), 1, "Did you mean retention.ms?"),
    (("create", "west", "a", "--set", "x"), 64, "--set 'x' is not KEY=VALUE"),
    (("create", "est", "a"), 1, "there is no cluster 'est' in this workspace"),
    (("alter", "west", "shop"), 64, "there is nothing to alter"),
    (("alter", "west", "nowhere", "--set", "retention.ms=1d"), 1, "namespace 'nowhere' does not exist on cluster west"),
    (("alter", "west", "shop", "--acl", "{principal: x, operations: [read]}"), 64, "not a principal"),
    (("alter", "west", "shop", "--acl", "{"), 64, "--acl {: "),
    (("list", "west", "nowhere"), 1, "namespace 'nowhere' does not exist on cluster west"),
    (("move", "west", "shop", "nowhere"), 1, "namespace 'nowhere' does not exist on cluster west"),
    (("delete", "west", "nowhere", "--yes"), 1, "namespace 'nowhere' does not exist on cluster west"),
    (("delete", "west", "", "--yes"), 1, "the default namespace '' stays"),
)


def test_bad_input_gets_a_sentence_and_a_way_on(workspace: Run) -> None:
    for arguments, code, said in BAD:
        found = workspace("namespace", *arguments)
        assert (found.returncode, said in found.stderr) == (code, True), found.stderr
        assert "hint:" in found.stderr
        assert "Traceback" not in found.stderr


def test_without_the_state_it_is_said_that_the_state_does_not_know(workspace: Run) -> None:
    made = workspace("namespace", "create", "west", "byhand", "--no-state")
    assert made.returncode == 0
    assert "The state does not record this change" in made.stderr


def test_a_key_that_is_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--set retention\.ms is given twice"):
        parse_pairs("--set", ["retention.ms=3d", "retention.ms=4d"])
    assert parse_pairs("--set", ["retention.ms=3d", "cleanup.policy=a=b"]) == {
        "retention.ms": "3d",
        "cleanup.policy": "a=b",
    }
