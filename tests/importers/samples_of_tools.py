"""Samples of other tools, imported: `python -m tests.importers.samples_of_tools` writes what is expected anew."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from reconciler.operations.imports import ImportOptions, ImportResult, import_files
from reconciler.operations.steps.invocation import Invocation, Select

SAMPLES = Path(__file__).parent / "samples"
TOOLS = ("jikkou", "julie", "kafka-gitops", "strimzi", "terraform-state", "topicctl")
BROKERS = ("broker-1.example.com:9092",)
NOT_SAID_WHERE = frozenset({"jikkou", "kafka-gitops", "terraform-state"})
"""Tools whose files do not say where the brokers are."""


def invocation_in(folder: Path) -> Invocation:
    """Return what a command is told of the world, in a folder."""
    return Invocation(
        cwd=folder,
        environ={},
        now_ms=lambda: 0,
        new_id=lambda: "",
        new_run=lambda: "",
        tool="0.1.0",
        who="anna@build-7",
    )


def imported(tool: str, out: Path, **more: Any) -> ImportResult:
    """Import the sample of a tool as a workspace."""
    given: dict[str, Any] = {"bootstrap_servers": BROKERS} if tool in NOT_SAID_WHERE else {"is_workspace": True}
    options = ImportOptions(tool=tool, path=Path("files"), out=out, **{**given, **more})
    return import_files(invocation_in(SAMPLES / tool), Select(), options)


def manifests_in(out: Path) -> dict[str, str]:
    """Return the manifests below a folder, by their names, without the lines for editors."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((out / "manifests").rglob("*.yaml"))}
    return {
        path.relative_to(out / "manifests").as_posix(): re.sub(
            r"^# yaml-language-server.*\n", "", text, flags=re.MULTILINE
        )
        for path, text in texts.items()
    }


def losses(found: ImportResult) -> str:
    """Return what was not carried over, a line each."""
    return "".join(
        f"{each.place} {'left out' if each.is_expressible else 'unsaid'}: {each.subject}"
        f"{' ' if each.field else ''}{each.field}: {each.why}\n"
        for each in found.lost
    )


def _write(tool: str) -> None:
    expected = SAMPLES / tool / "expected"
    shutil.rmtree(expected, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "shop"
        found = imported(tool, out)
        for name, text in manifests_in(out).items():
            (expected / name).parent.mkdir(parents=True, exist_ok=True)
            (expected / name).write_text(text, encoding="utf-8")
    (expected / "losses.txt").write_text(losses(found), encoding="utf-8")


if __name__ == "__main__":
    for each in sys.argv[1:] or TOOLS:
        _write(each)
