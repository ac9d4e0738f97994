"""`fmt` and `validate`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconciler.errors import ReconcilerError, UserError
from reconciler.manifests.files import (
    OVERLAYS,
    WORKSPACE_FILE,
    is_outside,
    label_of,
    manifest_files,
    outside,
    read_bounded,
)
from reconciler.manifests.format import format_text
from reconciler.manifests.load import load_workspace
from reconciler.manifests.overlays import Variables
from reconciler.manifests.positions import ManifestError, Problem
from reconciler.manifests.yaml_documents import parse
from reconciler.objectstore.directory import write_whole
from reconciler.operations.steps.invocation import (
    Invocation,
    Select,
    errors_in_files,
    load_files,
    located,
    workspace_folder,
)
from reconciler.planning.checks.offline import check_offline

if TYPE_CHECKING:
    from reconciler.planning.plan import Finding


_HINT: Final = "Mend them first; nothing was changed"


@dataclass(frozen=True, slots=True)
class Formatted:
    """Which files were, or would be, changed."""

    changed: tuple[Path, ...]
    files: int
    verdict: ReconcilerError | None


def fmt(invocation: Invocation, paths: Sequence[Path], *, check: bool) -> Formatted:
    """Lay out the named files and folders, or the whole workspace; with `check` only say what would change.

    Raises:
        ManifestError: Some are not YAML; nothing was changed.
    """
    found = _named(invocation, paths) if paths else _of_workspace(invocation)
    texts: dict[Path, str] = {}
    problems: list[Problem] = []
    for path in found:
        try:
            before, after = _laid_out(path, label_of(path, invocation.cwd))
        except ManifestError as error:
            problems += error.problems
            continue
        if after != before:
            texts[path] = after
    if problems:
        raise ManifestError(problems, hint=_HINT)
    if not check:
        for path, text in texts.items():
            _write(path, text)
    verdict = None
    if check and texts:
        verdict = UserError(f"{len(texts)} files are not in canonical form", hint="Run: reconciler fmt")
    changed = tuple(Path(label_of(path, invocation.cwd)) for path in texts)
    return Formatted(changed, len(found), verdict)


def _laid_out(path: Path, label: str) -> tuple[str, str]:
    raw = read_bounded(path, label)
    if isinstance(raw, Problem):
        raise ManifestError([raw], hint=_HINT)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        # The parser says which byte, and how to mend it.
        raise ManifestError(parse(raw, label).problems, hint=_HINT) from None
    return text, format_text(text, label)


def _named(invocation: Invocation, paths: Sequence[Path]) -> tuple[Path, ...]:
    cwd = invocation.cwd
    return _found(cwd, [label_of(cwd / path, cwd) for path in paths], invocation.read_limit(cwd))


def _of_workspace(invocation: Invocation) -> tuple[Path, ...]:
    folder = workspace_folder(invocation).resolve()
    variables = Variables.of((), environ=invocation.environ)
    within = invocation.read_limit(folder)
    spec = load_workspace(folder, environment=None, variables=variables, within=within).spec
    beside = [WORKSPACE_FILE, *spec.values, *([OVERLAYS] if (folder / OVERLAYS).is_dir() else [])]
    return _found(folder, [*beside, *spec.manifests], within)


def _found(folder: Path, names: Sequence[str], within: Path | None) -> tuple[Path, ...]:
    found = manifest_files(folder, names, apart=frozenset(), may_be_empty=True, within=within)
    problems = [*found.problems, *(outside(label_of(file, folder)) for file in found.files if is_outside(file, within))]
    if problems:
        raise ManifestError(problems, hint=_HINT)
    return found.files


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}", hint="Make it writable, or run: reconciler fmt --check"
        ) from error


def folder_of(invocation: Invocation) -> Path:
    """Return the folder of the workspace, or where there is none the one that the command works in."""
    try:
        return workspace_folder(invocation)
    except UserError:
        return invocation.cwd


def name_of_workspace(invocation: Invocation) -> str:
    """Return the name of the workspace as far as its file can be read: reports on broken files are filed under it."""
    folder = folder_of(invocation).resolve()
    raw = read_bounded(folder / WORKSPACE_FILE, WORKSPACE_FILE)
    if isinstance(raw, Problem):
        return folder.name
    for document in parse(raw, WORKSPACE_FILE).documents:
        match document.content:
            case {"kind": "Workspace", "metadata": {"name": str(name)}} if name:
                return name
    found = _NAME.search(raw.decode(errors="replace"))
    return found[1] if found else folder.name


_NAME: Final = re.compile(r"""\bname:[ \t]*["']?([A-Za-z0-9][A-Za-z0-9._-]*)""")
"""Of a file that is no YAML any more; the first thing that is named there is the workspace."""


# `validate`: everything that can be known of the files without asking any cluster or store.


@dataclass(frozen=True, slots=True)
class Validated:
    """What was read, and what is wrong with it beyond its form."""

    workspace: str
    counts: Mapping[str, int]
    """How many of each kind."""
    warnings: tuple[str, ...]
    findings: tuple[Finding, ...]
    verdict: ReconcilerError | None


def validate(invocation: Invocation, select: Select) -> Validated:
    """Check the manifests.

    Raises:
        ManifestError: Some do not read; lists every problem of every file.
    """
    loaded = load_files(invocation, select)
    found = check_offline(loaded.desired, loaded.workspace.spec.guards, today=invocation.today())
    findings = located(found, loaded)
    counts = Counter(declared.resource.kind for declared in loaded.desired.values())
    return Validated(
        workspace=loaded.workspace.metadata.name,
        counts=dict(sorted(counts.items())),
        warnings=tuple(str(problem) for problem in loaded.warnings),
        findings=findings,
        verdict=errors_in_files(findings) if findings else None,
    )
