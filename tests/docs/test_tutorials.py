"""Each tutorial is typed through as it stands.

Blocks of shell are run in order, in one folder. Comments that readers do not see say what they do in an editor:
`write: FILE` and `put: FILE` before YAML (the whole file, or the documents of that name), `remove: NAME from FILE`, and
`exits: CODE` of the next block.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.docs import markdown

if TYPE_CHECKING:
    from tests.servers.kafka import Kafka
    from tests.servers.weed import S3Server

pytestmark = pytest.mark.thorough
TUTORIALS = markdown.ROOT / "docs" / "tutorials"
_STEP = re.compile(r"^<!-- (\w+): (.*?) -->$|^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TOOLS = {"kafka-topics.sh": "org.apache.kafka.tools.TopicCommand", "kafka-configs.sh": "kafka.admin.ConfigCommand"}
_IDENTITY = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@b"}


class Reader:
    """A reader of tutorials at a shell, and where the shell is."""

    def __init__(self, folder: Path, **names: str) -> None:
        self.folder = folder
        self.names = names
        self.kafka: Kafka | None = None
        self.outputs: list[str] = []

    def follow(self, page: str) -> None:
        text = (TUTORIALS / page).read_text(encoding="utf-8")
        for name, value in self.names.items():
            text = text.replace(name, value)
        code, target = 0, ""
        for step in _STEP.finditer(text):
            marker, argument, language, body = step.groups()
            match marker or language:
                case "exits":
                    code = int(argument)
                case "write" | "put":
                    target = f"{marker} {argument}"
                case "remove":
                    self._remove(*argument.split(" from "))
                case "sh":
                    self._type(body, code)
                    code = 0
                case "console":
                    self._use_tools(body)
                case "yaml" if target:
                    self._edit(*target.split(), body)
                    target = ""

    def _type(self, body: str, code: int) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "CI", "GITHUB_"))}
        path = f"{Path(sys.executable).parent}:{environ['PATH']}"
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", f"{body}\npwd > '{self.folder}/.pwd'"],
            cwd=self.folder,
            env={**environ, **_IDENTITY, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, f"{body}\n{done.stdout}\n{done.stderr}"
        self.outputs.append(done.stdout)
        marker = self.folder / ".pwd"
        if marker.exists():
            self.folder = Path(marker.read_text().strip())
            marker.unlink()

    def _use_tools(self, body: str) -> None:
        for line in body.splitlines():
            _, docker, command, *rest = shlex.split(line)
            assert docker == "docker"
            if command == "exec":
                assert self.kafka is not None
                _, tool, *arguments = rest
                self.kafka.tool(_TOOLS[Path(tool).name], *arguments)

    def _edit(self, how: str, name: str, body: str) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        documents = [] if how == "write" else file.read_text().split("---\n")
        for document in body.split("---\n"):
            places = [place for place, text in enumerate(documents) if _name(text) == _name(document)]
            documents[slice(*(places[0], places[0] + 1) if places else (len(documents), None))] = [document]
        file.write_text("---\n".join(documents))

    def _remove(self, name: str, where: str) -> None:
        file = self.folder / where
        documents = [text for text in file.read_text().split("---\n") if _name(text) != ("Topic", name)]
        file.write_text("---\n".join(documents))


def _name(text: str) -> tuple[str, str]:
    document = yaml.safe_load(text)
    return document.get("kind", ""), document.get("metadata", {}).get("name", "")


def test_the_tutorial_of_a_failover_is_typed_through(tmp_path: Path) -> None:
    Reader(tmp_path).follow("first-failover.md")


def test_the_tutorials_of_a_workspace_and_of_a_pull_request_are_typed_through(
    tmp_path: Path, s3_server: S3Server, s3_environ: dict[str, str]
) -> None:
    assert s3_environ
    reader = Reader(tmp_path, **{"s3://my-bucket": s3_server.settings().url})
    reader.follow("first-workspace.md")
    assert "o-1" in reader.outputs[-2]
    reader.follow("first-pull-request.md")
    called = re.findall(r"uses: OWNER/reconciler/(\S+)@v", (reader.folder / ".github/workflows/topics.yml").read_text())
    assert [name for name in called if not (markdown.ROOT / name).exists()] == []
    assert len(called) == 2


def test_the_tutorial_of_a_kafka_cluster_is_typed_through(tmp_path: Path, start_kafka: Callable[..., Kafka]) -> None:
    kafka = start_kafka()
    reader = Reader(tmp_path, **{"localhost:9092": kafka.bootstrap()})
    reader.kafka = kafka
    reader.follow("first-kafka-cluster.md")
    assert {name for name in kafka.names() if not name.startswith("__")} == {"shop.eu.orders", "shop.eu.customers"}
