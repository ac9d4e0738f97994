"""`graph`: state machines, a workspace and the order of a plan, in each language."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.cli.text.inventory_text import format_dot, format_mermaid
from reconciler.lifecycles import LIFECYCLES
from reconciler.operations.show import Arrow, Node, Picture, draw_lifecycle
from tests.cli.sample_workspaces import follows

if TYPE_CHECKING:
    from tests.cli.conftest import Call, Run

LINKED = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec: {embedded: {root: "file://.clusters/west"}, objectStorage: {url: "file://.bucket"}}
---
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: east}
spec: {embedded: {root: "file://.clusters/east"}}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: shop, cluster: west}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: shop, cluster: east}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, namespace: shop, cluster: west}
spec: {partitions: 1}
---
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {name: from-west, cluster: east}
spec: {source: west, prefix: w., paused: true, mirrorTopics: [{source: "shop:orders"}]}
---
apiVersion: reconciler/v1
kind: Mounting
metadata: {name: clicks, namespace: shop, cluster: west}
spec: {source: "shop:clicks/67f5505a-32f3-4677-bcad-3c75a1a702a6/10", state: mounted}
"""


@pytest.fixture
def linked(call: Call, tmp_path: Path) -> Call:
    for old in (tmp_path / "manifests").glob("*.yaml"):
        old.unlink()
    (tmp_path / "manifests" / "all.yaml").write_text(LINKED)
    return call


@pytest.mark.parametrize("name", LIFECYCLES)
def test_every_state_machine_is_drawn_whole_in_every_language(typed: Call, name: str) -> None:
    lifecycle = LIFECYCLES[name]
    text = typed("graph", "--lifecycle", name)
    assert (text.code, text.err) == (0, "")
    printed = follows("graph", typed("graph", "--lifecycle", name, "--format", "json"))
    assert [node["name"] for node in printed["nodes"]] == [str(state) for state in lifecycle.states]
    assert [
        (each["start"], each["label"], each["end"], each["by_itself"], each["condition"]) for each in printed["arrows"]
    ] == [(move.start, move.verb, move.end, move.is_automatic, move.condition) for move in lifecycle.moves]
    mermaid = typed("graph", "--lifecycle", name, "--format", "mermaid").out
    dot = typed("graph", "--lifecycle", name, "--format", "dot").out
    assert mermaid.splitlines()[0] == "stateDiagram-v2"
    assert f"[*] --> {lifecycle.initial}" in mermaid
    for move in lifecycle.moves:
        drawn = re.findall(rf"^  {move.start} --> {move.end} : (.*{move.verb}.*)$", mermaid, re.MULTILINE)
        assert any(move.condition in said for said in drawn)
        assert re.search(rf"^  {re.escape(move.verb or 'by itself')}.* +→ +{move.end}", text.out, re.MULTILINE)
    assert dot.count(" -> ") == mermaid.count(" --> ") - 1


def test_the_picture_of_a_mirror_shows_states_verbs_conditions_and_what_goes_by_itself(typed: Call) -> None:
    said = typed("graph", "--lifecycle", "mirror").out
    block = said[said.index("\nPAUSED\n") : said.index("\nLINK_PAUSED\n")]
    assert block.splitlines()[2:] == [
        "  resume     →  ACTIVE",
        "  resume     →  PENDING_SYNCHRONIZE  where a reversal is suspended",
        "  promote    →  PENDING_STOPPED",
        "  failover   →  STOPPED",
        "  delete     →  ABSENT",
        "  by itself  →  LINK_FAILED",
        "  by itself  →  FAILED",
    ]
    assert "  failover              ✗  it is already stopped" in said
    mermaid = format_mermaid(draw_lifecycle("mirror")).splitlines()
    assert "  ACTIVE --> PENDING_SYNCHRONIZE : reverse-and-start or reverse-and-pause" in mermaid
    assert "  ACTIVE --> SOURCE_UNAVAILABLE : by itself" in mermaid


def test_an_unknown_state_machine_is_refused_with_the_nearest(typed: Call) -> None:
    said = typed("graph", "--lifecycle", "miror")
    assert (said.code, said.out) == (1, "")
    assert "there is no lifecycle 'miror'" in said.err
    assert "Did you mean mirror? Lifecycles: mount, unmount, mirror" in said.err
    both = typed("graph", "plan.json", "--lifecycle", "mirror")
    assert (both.code, "not both" in both.err) == (64, True)


def test_a_workspace_is_drawn_from_its_files_alone(linked: Call) -> None:
    assert linked("graph").out.splitlines() == [
        "east",
        "west",
        "  from-west, prefix w., 1 mirror, paused  →  east",
        f"{_bucket(linked)}",
        "  mounts 1 topic  →  west",
    ]
    printed = follows("graph", linked("graph", "--format", "json"))
    assert [(node["name"], node["shape"]) for node in printed["nodes"]][:2] == [
        ("east", "cluster"),
        ("west", "cluster"),
    ]
    mermaid = linked("graph", "--format", "mermaid").out.splitlines()
    assert mermaid[:3] == ["graph LR", '  n0["east"]', '  n1["west"]']
    assert '  n1 -->|"from-west#44; prefix w.#44; 1 mirror#44; paused"| n0' in mermaid
    assert "shape=cylinder" in linked("graph", "--format", "dot").out


def _bucket(call: Call) -> str:
    nodes = follows("graph", call("graph", "--format", "json"))["nodes"]
    (storage,) = [node["name"] for node in nodes if node["shape"] == "storage"]
    assert storage.startswith("file://")
    return str(storage)


def test_the_order_of_a_saved_plan_is_drawn(linked: Call, tmp_path: Path) -> None:
    manifests = tmp_path / "manifests" / "all.yaml"
    manifests.write_text(LINKED[: LINKED.rindex("---\n")].replace("paused: true, ", ""))
    assert linked("plan", "--out", "plan.json").code == 0
    drawn = linked("graph", "plan.json").out
    assert "create topic/west/shop:orders\n  then  →  create mirror/east/shop:w.orders" in drawn
    assert " --> " in linked("graph", "plan.json", "--format", "mermaid").out
    missing = linked("graph", "./none.json")
    assert (missing.code, missing.out) == (1, "")


def test_a_name_that_speaks_a_language_is_only_ever_a_label() -> None:
    evil = 'x"]; end\n click n0 "javascript:alert(1)" %%{init}%% \\'
    picture = Picture("workspace", "w", (Node(evil, "cluster"),), (Arrow(evil, evil, evil),))
    mermaid = format_mermaid(picture).splitlines()
    assert len(mermaid) == 3
    assert all('"' not in line.partition('"')[2].rpartition('"')[0] for line in mermaid[1:])
    dot = format_dot(picture)
    assert dot.count("\n") == 5
    assert re.sub(r'"(\\.|[^"\\])*"', "", dot).count('"') == 0


@pytest.mark.thorough
def test_a_real_process_draws_without_a_workspace(run: Run) -> None:
    said = run("graph", "--lifecycle", "mirror", "--format", "mermaid")
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith("stateDiagram-v2\n")
    without = run("graph")
    assert without.returncode != 0
    assert "reconciler init" in without.stderr
