"""`init`: create a workspace."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconciler.errors import UserError
from reconciler.objectstore.open import open_store
from reconciler.objectstore.settings import StoreSettings
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.operations.steps.invocation import Invocation


SCHEMA: Final = ".schemas/manifest.json"
"""Local copy of the schema, so editors need no network."""
_STATE: Final = ".reconciler"
_ADVICE: Final = "; s3://bucket/prefix to share it"
_LOCATION: Final = re.compile(r"(file|s3|gs|az)://[^\s#'\"]+")
_CLUSTERS: Final = ".clusters"

_SETTINGS: Final = ".vscode/settings.json"
_MANIFESTS: Final = ("reconciler.yaml", "manifests/**/*.yaml")

_WORKSPACE: Final = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {{name: {name}}}
spec:
  state: {state} # where what was applied is remembered{advice}
  manifests: [manifests]
"""

_EXAMPLE: Final = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {{name: west}}
spec:
  provider: embedded # a whole streaming platform in a folder or bucket; needs no server
  embedded: {{root: "file://{clusters}/west"}}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {{name: shop, cluster: west}}
spec:
  configs: {{retention.ms: 30d}} # inherited by every topic below
---
apiVersion: reconciler/v1
kind: Topic
metadata: {{name: orders, namespace: shop, cluster: west}}
spec:
  partitions: 3
"""


@dataclass(frozen=True, slots=True)
class InitResult:
    """Written files, and URL of the state."""

    folder: Path
    files: tuple[Path, ...]
    state: str


def init(invocation: Invocation, directory: Path, *, state: str | None = None) -> InitResult:
    """Create a workspace, and test its state store. Existing files stay."""
    folder = (invocation.cwd / directory).resolve()
    location = state or f"file://{_STATE}"
    if not _LOCATION.fullmatch(location):
        hint = "Write file://folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix."
        wrong = re.search(r"[\s#'\"]", location)
        why = f": it has {wrong[0]!r} in it" if wrong is not None else ""
        raise UserError(f"{location!r} is not a place for a state{why}", hint=hint)
    texts = {
        folder / "reconciler.yaml": add_schema_lines(format_workspace_file(folder, location), 0),
        folder / "manifests" / "example.yaml": add_schema_lines(_EXAMPLE.format(clusters=_CLUSTERS), 1),
        folder / SCHEMA: format_schema(),
    }
    for path in texts:
        if path.exists():
            raise UserError(f"{path} is there already", hint="Nothing was written. Name another folder, or edit it.")
    try:
        probed = _probe_state_store(folder, location)
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        beside = add_git_and_editor_files(folder)
    except OSError as error:
        raise UserError(
            f"cannot write into {folder}: {error.strerror or error}",
            hint="Make the folder writable, or name another one.",
        ) from error
    return InitResult(folder, (*texts, *beside), probed)


def format_workspace_file(folder: Path, state: str = f"file://{_STATE}", *, references: Sequence[str] = ()) -> str:
    """Return a new `reconciler.yaml`. `references` are secrets to allow, as `env:NAME`."""
    advice = "" if state.startswith("s3:") else _ADVICE
    text = _WORKSPACE.format(name=_make_workspace_name(folder), state=state, advice=advice)
    quoted = ", ".join(f'"{reference}"' for reference in ("env:RECONCILER_*", *references))
    return f"{text}  references: {{allow: [{quoted}]}} # the secrets that manifests may name\n" if references else text


def add_schema_lines(text: str, depth: int) -> str:
    """Add the schema line to each document. `depth` is the number of folders below the workspace."""
    line = f"# yaml-language-server: $schema={'../' * depth}{SCHEMA}\n"
    return re.sub(r"\A|^---\n", lambda start: start[0] + line, text, flags=re.MULTILINE)


@cache
def format_schema() -> str:
    """Return the JSON Schema of manifests."""
    from reconciler.manifests.json_schema import build_schemas  # noqa: PLC0415 - other commands write no schema

    return json.dumps(build_schemas()["manifest"], separators=(",", ":")) + "\n"


def _probe_state_store(folder: Path, location: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    settings = StoreSettings.resolve(location, folder=folder)
    failures = open_store(settings).find_violated_conditions()
    if failures:
        raise UserError(
            f"{settings.url} does not keep the promises a state needs: {'; '.join(failures)}",
            hint="Put the state on another file system, or into a bucket with conditional writes.",
        )
    return settings.url


def add_git_and_editor_files(folder: Path) -> tuple[Path, ...]:
    """Complete `.gitignore` and VS Code settings. Return changed files."""
    settings = folder / _SETTINGS
    if settings.exists() or not (folder / SCHEMA).exists():
        return _add_gitignore_lines(folder)
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"yaml.schemas": {SCHEMA: _MANIFESTS}}, indent=2) + "\n", encoding="utf-8")
    return (*_add_gitignore_lines(folder), settings)


def _add_gitignore_lines(folder: Path) -> tuple[Path, ...]:
    path = folder / ".gitignore"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    missing = [entry for entry in (f"{_STATE}/", f"{_CLUSTERS}/") if entry not in text.splitlines()]
    if not missing:
        return ()
    lead = "\n" if text and not text.endswith("\n") else ""
    path.write_text(text + lead + "".join(f"{entry}\n" for entry in missing), encoding="utf-8")
    return (path,)


def _make_workspace_name(folder: Path) -> str:
    cleaned = re.sub(r"[^a-z0-9-]+", "-", folder.name.lower()).strip("-")
    return cleaned[:40].strip("-") or "workspace"
