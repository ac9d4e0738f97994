"""Through how many modules a changed retention goes from the YAML to the brokers: those whose functions ran.

`python -m tests.structure.longest_way` prints them, for Kafka and for the embedded cluster, each with the function that
ran first in it and what called that. A module that was only imported is not counted, nor what ran while it was.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Final, Self

import reconciler
from reconciler.cli.main import main
from tests.servers.kafka import Kafka

OURS: Final = str(Path(reconciler.__file__).parent) + "/"
UNCOUNTED: Final = frozenset({"runtime.dataclass"})
"""What every data class shares, as it would the standard library's."""
TREE: Final = Path(reconciler.__file__).parent.parent

WORKSPACE: Final = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {name: way}
spec: {state: "file://state", manifests: [manifests]}
"""
EMBEDDED: Final = "{embedded: {root: file://cluster}}"
TOPIC: Final = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {{name: live}}
spec: {cluster}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {{name: longest-way, cluster: live}}
spec: {{partitions: 1, configs: {{retention.ms: {retention}}}}}
"""


@dataclass(frozen=True, slots=True)
class Entered:
    """A module on the way: the first of its functions that ran, and who called it."""

    module: str
    function: str
    caller: str


class Way:
    """Notes, while it is entered, which modules of ours are entered, on every thread."""

    def __init__(self) -> None:
        self.entered: dict[str, Entered] = {}
        self._seen: set[CodeType] = set()

    def __enter__(self) -> Self:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type] # the stubs do not know that it takes none

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event != "call" or code in self._seen or not code.co_filename.startswith(OURS):
            return
        if not code.co_flags & CO_OPTIMIZED or _is_importing(frame):
            return
        self._seen.add(code)
        module = _module_of(frame)
        if module not in UNCOUNTED:
            self.entered.setdefault(module, Entered(module, code.co_qualname, _caller_of(frame)))


def _is_importing(frame: FrameType | None) -> bool:
    """Tell whether the body of a module of ours is being run: what it calls makes its tables."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(OURS):
            return True
        frame = frame.f_back
    return False


def _caller_of(frame: FrameType) -> str:
    """Return the function of another module of ours that led to a call, through libraries if need be."""
    above = frame.f_back
    while above is not None:
        if above.f_code.co_filename.startswith(OURS) and _module_of(above) != _module_of(frame):
            return f"{_module_of(above)}.{above.f_code.co_qualname}"
        above = above.f_back
    return "the command" if threading.current_thread() is threading.main_thread() else threading.current_thread().name


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals["__name__"]).removeprefix("reconciler.")


def way_of_a_changed_retention(cluster: str) -> list[Entered]:
    """Apply a topic, then apply another retention of it in a process that notes where it goes.

    `cluster` is the spec of its Cluster, in YAML.
    """
    with tempfile.TemporaryDirectory(prefix="way-") as name:
        folder = Path(name)
        (folder / "reconciler.yaml").write_text(WORKSPACE)
        (folder / "manifests").mkdir()
        for retention, module in (("7d", "reconciler.cli.main"), ("14d", "tests.structure.longest_way")):
            (folder / "manifests" / "all.yaml").write_text(TOPIC.format(cluster=cluster, retention=retention))
            command = (sys.executable, "-m", module, "apply", "--yes")
            said = subprocess.run(
                command, cwd=folder, env={"PYTHONPATH": str(TREE)}, capture_output=True, text=True, check=False
            )
            if said.returncode:
                raise RuntimeError(said.stdout + said.stderr)
        return [Entered(**row) for row in json.loads((folder / "way.json").read_text())]


def on_kafka(kafka: Kafka) -> str:
    """Return the spec of a Cluster for running brokers."""
    return f"{{provider: kafka, kafka: {{bootstrapServers: ['{kafka.bootstrap()}']}}}}"


def _noting(arguments: Sequence[str]) -> int:
    with Way() as way:
        code = main(arguments)
    rows = [asdict(way.entered[module]) for module in sorted(way.entered)]
    Path("way.json").write_text(json.dumps(rows))
    return code


def _shown(platform: str, way: Sequence[Entered]) -> str:
    width = max(len(each.module) for each in way)
    lines = (f"  {each.module:{width}}  {each.function}  ← {each.caller}" for each in way)
    return "\n".join((f"{platform}: {len(way)} modules", *lines, ""))


def _print() -> None:
    with Kafka.start() as kafka:
        sys.stdout.write(_shown("kafka", way_of_a_changed_retention(on_kafka(kafka))))
    sys.stdout.write(_shown("embedded", way_of_a_changed_retention(EMBEDDED)))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(_noting(sys.argv[1:]))
    _print()
