"""Completion in a shell: what the files declare is offered, quickly, and nothing else is ever written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from reconciler.cli.completion import COMPLETION_VARIABLE, list_declared_addresses
from tests.cli import terminals
from tests.cli.conftest import COMMAND, Call, environment

Complete = Callable[..., list[str]]

LINK = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: east}
spec: {embedded: {root: "file://.clusters/east"}}
---
# The metadata in a block, after the spec, with a comment in it.
kind: MirrorLink
spec:
  source: west
  prefix: west-
  mirrorTopics: [{source: "shop:orders"}]
metadata:
  # of the link
  name: from-west

  cluster: east
apiVersion: reconciler/v1
"""


@pytest.fixture
def offered(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Complete:
    """Ask as bash does, with the words as it takes them apart; a last word of its own may be empty."""
    (tmp_path / "manifests" / "link.yaml").write_text(LINK)
    (tmp_path / "overlays" / "prod").mkdir(parents=True)
    (tmp_path / "overlays" / "prod" / "more.yaml").write_text(
        "kind: Topic\nmetadata: {name: only-prod, cluster: west}\nspec: {partitions: 1}\n"
    )

    def ask(*words: str) -> list[str]:
        monkeypatch.setenv(COMPLETION_VARIABLE, "complete_bash")
        monkeypatch.setenv("COMP_WORDS", "\n".join(("reconciler", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        said = call()
        assert not said.err
        return said.out.split()

    return ask


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("explain", "topic/west/"), ["topic/west/shop:orders"]),
        (("explain", "topic/west/shop", ":"), ["orders"]),
        (("explain", "topic/west/shop", ":", "ord"), ["orders"]),
        (("explain", "topic/west/shop:ord"), ["topic/west/shop:orders"]),
        (("explain", '"topic/west/shop:ord'), ["topic/west/shop:orders"]),
        (("plan", "--target", "=", "topic/west/shop", ":", "ord"), ["orders"]),
        (("plan", "--target", "=", "cluster/"), ["cluster/east", "cluster/west"]),
        (("plan", "--exclude", "topic/"), ["topic/west/shop:orders"]),
        (("plan", "-e", "prod", "--target", "topic/"), ["topic/west/only-prod", "topic/west/shop:orders"]),
        (("plan", "--environment", ""), ["prod"]),
        (("apply", "--allow", "delete", ":", "topic/west/shop", ":"), ["orders"]),
        (("apply", "--allow", "del"), []),
        (("export", ""), ["east", "west"]),
        (("group", "list", "e"), ["east"]),
        (("mirror", "pause", ""), ["link/east/from-west", "mirror/east/shop:west-orders"]),
        (("mirror", "create", "--link", ""), ["from-west"]),
        (("link", "pause", ""), ["link/east/from-west"]),
        (("link", "list", "e"), ["east"]),
        (("link", "create", "--source", "w"), ["west"]),
        (("topic", "unmount", ""), ["mirror/east/shop:west-orders", "topic/west/shop:orders"]),
        (("topic", "describe", ""), ["mirror/east/shop:west-orders", "topic/west/shop:orders"]),
        (("plan", "--format", "=", "js"), ["json"]),
        (("expl",), ["explain"]),
        (("state", "unlock", ""), []),
    ],
    ids=" ".join,
)
def test_what_the_workspace_has_is_offered(offered: Complete, words: tuple[str, ...], found: list[str]) -> None:
    assert offered(*words) == found


def test_runs_come_from_a_state_in_a_folder_newest_first(offered: Complete, tmp_path: Path) -> None:
    for run in ("01a-first", "01b-second"):
        (tmp_path / ".reconciler" / "runs" / run).mkdir(parents=True)
    assert offered("state", "unlock", "") == ["01b-second", "01a-first"]
    workspace = tmp_path / "reconciler.yaml"
    workspace.write_text(workspace.read_text().replace("file://.reconciler", "s3://bucket/state"))
    assert offered("state", "unlock", "") == []


@pytest.mark.parametrize(
    "name", ["$(touch pwned)", "`touch pwned`", "a b", "x;y", "\\x1b[31m", "${var.name}", "*", "o'clock", "~root"]
)
def test_names_that_a_shell_would_read_as_more_than_a_name_are_not_offered(
    offered: Complete, tmp_path: Path, name: str
) -> None:
    topic = 'kind: Topic\nmetadata: {{name: "{}", cluster: odd}}\n'
    (tmp_path / "manifests" / "odd.yaml").write_text("---\n".join(map(topic.format, (name, "fine"))))
    assert offered("explain", "topic/odd/") == ["topic/odd/fine"]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("reconciler.yaml", "spec: [\n"),
        ("reconciler.yaml", "- 1\n"),
        ("reconciler.yaml", "spec: {manifests: 7}\n"),
        ("manifests/link.yaml", "kind: MirrorLink\nmetadata: {name: l, cluster: c}\nspec: 7\n"),
        ("manifests/link.yaml", "metadata: &a [*a]\nkind: Topic\n---\n\x00"),
    ],
)
def test_what_is_broken_is_no_completion_and_no_output(offered: Complete, tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text)
    assert all(
        each.startswith(("cluster/", "namespace/", "topic/", "link/", "mirror/")) for each in offered("show", "")
    )


def test_without_a_workspace_there_is_nothing_to_say(tmp_path: Path) -> None:
    asked = {COMPLETION_VARIABLE: "complete_bash", "COMP_WORDS": "reconciler\nexplain\n", "COMP_CWORD": "2"}
    done = subprocess.run(COMMAND, capture_output=True, text=True, cwd=tmp_path, env=environment(**asked), check=False)
    assert (done.stdout.strip(), done.stderr) == ("", "")


def test_a_thousand_topics_are_found_without_reading_what_they_say(tmp_path: Path) -> None:
    topic = "kind: Topic\nmetadata:\n  name: orders-{}\n  cluster: west\nspec: {{partitions: [not, checked]}}\n"
    (tmp_path / "manifests").mkdir()
    (tmp_path / "reconciler.yaml").write_text("kind: Workspace\nmetadata: {name: many}\n")
    (tmp_path / "manifests" / "a.yaml").write_text("---\n".join(topic.format(number) for number in range(1000)))
    program = (
        "import sys; from pathlib import Path; from reconciler.cli.completion import list_declared_addresses; "
        "print(len(list_declared_addresses(Path(sys.argv[1]), None))); "
        "print(sorted({'pyarrow', 'boto3', 'pydantic', 'reconciler.manifests.load'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["1000", "[]"]
    assert list_declared_addresses(tmp_path, None)[0] == "topic/west/orders-0"


SHELL: Mapping[str, str] = {"PS1": "$ ", "INPUTRC": "/dev/null", "HISTFILE": "/dev/null"}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("keys", "got"),
    [
        ("explain topic/west/shop:ord\t", "explain topic/west/shop:orders"),
        ("explain to\t", "explain topic/west/shop:orders"),
        ("explain 'topic/west/shop:ord\t", "explain topic/west/shop:orders"),
        ("plan --target=topic/west/shop:\t", "plan --target=topic/west/shop:orders"),
        ("apply --allow delete:topic/w\t", "apply --allow delete:topic/west/shop:orders"),
        ("export w\t", "export west"),
    ],
)
def test_a_real_bash_completes_the_word_that_was_begun(call: Call, tmp_path: Path, keys: str, got: str) -> None:
    program = tmp_path / "bin" / "reconciler"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n')
    program.chmod(0o755)
    bash = shutil.which("bash") or "bash"
    environ = environment(**SHELL, PATH=f"{program.parent}:{os.environ['PATH']}")
    assert call("validate").code == 0
    _, shown = terminals.on_terminal(
        [bash, "--norc", "--noprofile", "-i"],
        cwd=tmp_path,
        environ=environ,
        types=[
            ("$ ", b"source <(reconciler --show-completion); reconciler() { echo \"got <$*>\"; }; echo re''ady\n"),
            ("ready", f"reconciler {keys}".encode()),
            (got.rpartition(":")[2].rpartition("/")[2], b"\n"),
            ("got <", b"exit\n"),
        ],
    )
    assert f"got <{got}>" in shown
