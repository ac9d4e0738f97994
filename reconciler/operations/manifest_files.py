"""`fmt` and `validate`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconciler.errors import ReconcilerError, UserError
from reconciler.manifests.files import (
    OVERLAYS,
    WORKSPACE_FILE,
    build_label,
    build_outside_problem,
    find_manifests,
    is_outside,
    read_bounded,
)
from reconciler.manifests.format import format_text
from reconciler.manifests.load import load_workspace
from reconciler.manifests.overlays import Variables
from reconciler.manifests.positions import ManifestError, Problem
from reconciler.manifests.yaml_documents import parse_yaml
from reconciler.objectstore.directory import write_atomically
from reconciler.operations.steps.invocation import (
    Invocation,
    Select,
    add_locations,
    combine_file_errors,
    find_workspace_folder,
    load_files,
    read_variables,
)
from reconciler.operations.steps.trust import Trust
from reconciler.planning.checks.offline import check_offline
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.planning.plan import PlanFinding


_HINT: Final = "Mend them first; nothing was changed"


@dataclass(frozen=True, slots=True)
class FormatResult:
    """Changed files; with `check`, files to change."""

    changed: tuple[Path, ...]
    files: int
    verdict: ReconcilerError | None


def format_files(invocation: Invocation, paths: Sequence[Path], *, check: bool) -> FormatResult:
    """Format files, folders or the workspace. With `check`, only report changes."""
    files = _list_named_files(invocation, paths) if paths else _list_workspace_files(invocation)
    texts: dict[Path, str] = {}
    problems: list[Problem] = []
    for path in files:
        try:
            before, after = _read_and_format(path, build_label(path, invocation.cwd))
        except ManifestError as error:
            problems += error.problems
            continue
        if after != before:
            texts[path] = after
    if problems:
        raise ManifestError(problems, hint=_HINT)
    if not check:
        for path, text in texts.items():
            _write_file(path, text)
    verdict = None
    if check and texts:
        verdict = UserError(f"{len(texts)} files are not in canonical form", hint="Run: reconciler fmt")
    changed = tuple(Path(build_label(path, invocation.cwd)) for path in texts)
    return FormatResult(changed, len(files), verdict)


def _read_and_format(path: Path, label: str) -> tuple[str, str]:
    raw = read_bounded(path, label)
    if isinstance(raw, Problem):
        raise ManifestError([raw], hint=_HINT)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise ManifestError(parse_yaml(raw, label).problems, hint=_HINT) from None
    return text, format_text(text, label)


def _list_named_files(invocation: Invocation, paths: Sequence[Path]) -> tuple[Path, ...]:
    cwd = invocation.cwd
    return _list_files(cwd, [build_label(cwd / path, cwd) for path in paths], invocation.read_limit(cwd))


def _list_workspace_files(invocation: Invocation) -> tuple[Path, ...]:
    folder = find_workspace_folder(invocation).resolve()
    variables = Variables.parse((), environ=invocation.environ)
    within = invocation.read_limit(folder)
    spec = load_workspace(folder, environment=None, variables=variables, within=within).spec
    beside = [WORKSPACE_FILE, *spec.values, *([OVERLAYS] if (folder / OVERLAYS).is_dir() else [])]
    return _list_files(folder, [*beside, *spec.manifests], within)


def _list_files(folder: Path, names: Sequence[str], within: Path | None) -> tuple[Path, ...]:
    listing = find_manifests(folder, names, apart=frozenset(), may_be_empty=True, within=within)
    problems = [
        *listing.problems,
        *(build_outside_problem(build_label(file, folder)) for file in listing.files if is_outside(file, within)),
    ]
    if problems:
        raise ManifestError(problems, hint=_HINT)
    return listing.files


def _write_file(path: Path, text: str) -> None:
    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}", hint="Make it writable, or run: reconciler fmt --check"
        ) from error


def find_folder(invocation: Invocation) -> Path:
    """Return the workspace folder, or the current folder."""
    try:
        return find_workspace_folder(invocation)
    except UserError:
        return invocation.cwd


def read_workspace_name(invocation: Invocation) -> str:
    """Return the workspace name for reports, even from an invalid file."""
    folder = find_folder(invocation).resolve()
    raw = read_bounded(folder / WORKSPACE_FILE, WORKSPACE_FILE)
    if isinstance(raw, Problem):
        return folder.name
    for document in parse_yaml(raw, WORKSPACE_FILE).documents:
        match document.content:
            case {"kind": "Workspace", "metadata": {"name": str(name)}} if name:
                return name
    match = _NAME.search(raw.decode(errors="replace"))
    return match[1] if match else folder.name


_NAME: Final = re.compile(r"""\bname:[ \t]*["']?([A-Za-z0-9][A-Za-z0-9._-]*)""")


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """Result of an offline check."""

    workspace: str
    counts: Mapping[str, int]
    warnings: tuple[str, ...]
    findings: tuple[PlanFinding, ...]
    verdict: ReconcilerError | None


def validate(invocation: Invocation, select: Select) -> ValidationResult:
    """Check manifests without clusters or state."""
    loaded = load_files(invocation, select)
    problems = [*check_offline(loaded.desired, loaded.workspace.spec.guards, today=invocation.today())]
    warnings = [str(problem) for problem in loaded.warnings]
    try:
        problems += Trust(
            invocation, select, read_variables(invocation, select), loaded, dict
        ).find_refused_references()
    except UserError as error:
        warnings.append(f"which secrets manifests may name is not known: {error.message}. {error.hint}")
    findings = add_locations(problems, loaded)
    counts = Counter(declared.resource.kind for declared in loaded.desired.values())
    return ValidationResult(
        workspace=loaded.workspace.metadata.name,
        counts=dict(sorted(counts.items())),
        warnings=tuple(warnings),
        findings=findings,
        verdict=combine_file_errors(findings) if findings else None,
    )
