"""`namespace create|list|move|delete` as people call them: what they print, in text and JSON, and their exit codes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from reconciler.cli.options import pairs
from reconciler.errors import UsageError
from reconciler.runtime.text import bytes_text
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
    made = run("namespace", "create", "west", "org:apache", "--set", "retention.ms=1d")
    assert (made.returncode, made.stdout) == (0, "+ namespace/west/org\n+ namespace/west/org:apache\n")
    again = run("namespace", "create", "cluster/west", "org:apache")
    assert (again.returncode, again.stdout) == (0, "namespace/west/org:apache is there already\n")
    listed = run("namespace", "list", "west", "org")
    assert [row.split()[0] for row in listed.stdout.splitlines()] == ["address", "namespace/west/org:apache"]
    moved = run("namespace", "move", "west", "shop", "org:apache", "--topic", "orders")
    says = "» topic/west/shop:orders → topic/west/org:apache:orders, inherits retention.ms 30d → 1d\n"
    assert (moved.returncode, moved.stdout) == (0, says)
    nested = run("namespace", "delete", "west", "org", "--yes")
    assert nested.returncode == 7
    assert "namespace org holds namespaces: org:apache; nothing was deleted" in nested.stderr
    held = run("namespace", "delete", "west", "org", "--recursive", "--yes")
    assert held.returncode == 7
    assert "--recursive --allow 'delete:topic/west/org:*'" in held.stderr
    gone = run("namespace", "delete", "west", "org", "--recursive", "--yes", "--allow", "delete:topic/west/org:*")
    assert gone.returncode == 0, gone.stderr
    assert "2 namespaces, 1 topic: 1 record, " in gone.stdout
    assert gone.stdout.splitlines()[-1] == "Deleted 2 namespaces, 1 topic; `reconciler run` frees the space"
    assert "org" not in run("namespace", "list", "west").stdout


def test_the_same_as_json(workspace: Run) -> None:
    run = workspace
    made = follows("namespace-creation", run("namespace", "create", "west", "a:b", "--format", "json"))
    assert made["created"] == ["namespace/west/a", "namespace/west/a:b"]
    moved = follows("topic-moves", run("namespace", "move", "west", "shop", "a:b", "--format", "json"))
    inherits = [{"path": "configs.retention.ms", "before": "2592000000", "after": None}]
    assert moved["moves"] == [
        {"before": "topic/west/shop:orders", "after": "topic/west/a:b:orders", "changes": inherits}
    ]
    follows("namespaces", run("namespace", "list", "west", "a", "--format", "json"))
    gone = follows(
        "namespace-deletion",
        run("namespace", "delete", "west", "a", "--recursive", "--yes", *ALLOWED, "--format", "json"),
    )
    assert (gone["nested"], gone["topics"][0]["records"]) == (["namespace/west/a:b"], 1)


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
        assert f"topics 2 of 9, partitions 5 of 90, bytes {bytes_text(size)} of 1TiB" in run(*command).stdout
    example.write_text(plain)
    assert run("apply", "--yes").returncode == 0
    assert "quotas" not in run("namespace", "list").stdout


def test_groups_named_in_a_namespace_that_is_deleted_are_named_with_what_deletes_them(workspace: Run) -> None:
    for group in ("shop:checkout", "shopping", "audit"):
        assert workspace("topic", "consume", "topic/west/shop:orders", "--group", group).returncode == 0
    staying = "1 group named in it: shop:checkout; groups stay until they are deleted: "
    asked = workspace("namespace", "delete", "west", "shop", *ALLOWED)
    assert staying in asked.stdout
    gone = workspace("namespace", "delete", "west", "shop", *ALLOWED, "--yes")
    assert f"{staying}reconciler group delete west shop:checkout" in gone.stdout.splitlines()[-1]
    assert workspace("group", "delete", "west", "shop:checkout", "--force", "--yes").returncode == 0


def test_nothing_is_deleted_where_nobody_can_be_asked(workspace: Run) -> None:
    asked = workspace("namespace", "delete", "west", "shop", "--allow", "delete:topic/west/shop:orders")
    assert asked.returncode == 64
    assert "there is no terminal to confirm on, so nothing was done" in asked.stderr
    assert "topic/west/shop:orders" in asked.stdout
    assert workspace("plan", "--detailed-exitcode").returncode == 0


BAD = (
    (("create", "west", "under_score"), 1, "not a namespace"),
    (("create", "west", "a", "--set", "retention.mss=1"), 1, "Did you mean retention.ms?"),
    (("create", "west", "a", "--set", "x"), 64, "--set 'x' is not KEY=VALUE"),
    (("create", "est", "a"), 1, "there is no cluster 'est' in this workspace"),
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
    assert "The state does not know of this" in made.stderr


def test_a_key_that_is_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--set retention\.ms is given twice"):
        pairs("--set", ["retention.ms=3d", "retention.ms=4d"])
    assert pairs("--set", ["retention.ms=3d", "cleanup.policy=a=b"]) == {"retention.ms": "3d", "cleanup.policy": "a=b"}
