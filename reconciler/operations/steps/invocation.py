"""Inputs of a command, files of its workspace, and errors from findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from reconciler.errors import UsageError, UserError
from reconciler.manifests.files import Findings, find_workspace
from reconciler.manifests.load import LoadedWorkspace, load_manifests, load_workspace
from reconciler.manifests.overlays import Variables
from reconciler.runtime.dataclass import dataclass, replace

if TYPE_CHECKING:
    from reconciler.planning.plan import PlanFinding
    from reconciler.resources.workspace import Workspace


class PullRequestBase(NamedTuple):
    """Base of a pull request, in a separate folder."""

    root: Path
    files: Path

    def map_path(self, path: Path) -> Path:
        """Return a repository file's path in the base."""
        return self.files / path.relative_to(self.root)


def no_commit(_folder: Path) -> str | None:
    """Default without git: no commit is known."""
    return None


def no_fork(_folder: Path, revision: str) -> str:
    """Default without git: return the revision as fork point."""
    return revision


def no_history(_folder: Path, _commit: str, _of: str) -> bool | None:
    """Default without git: the history is unknown."""
    return None


def no_changes(_folder: Path, _beside: Sequence[Path], _revision: str) -> tuple[str, ...]:
    """Default without git: no files changed."""
    return ()


def no_base(_folder: Path) -> PullRequestBase | None:
    """Default: there is no pull request."""
    return None


def no_limit(_folder: Path) -> Path | None:
    """Default: references to files are unlimited."""
    return None


def print_nothing(_line: str) -> None:
    """Default: discard the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """Clocks, ids, environment and folder of a command."""

    cwd: Path
    environ: Mapping[str, str]
    now_ms: Callable[[], int]
    new_id: Callable[[], str]
    new_run: Callable[[], str]
    """Returns a UUIDv7, so runs sort by time."""
    tool: str
    who: str
    """User in the lease, such as `anna@build-7`."""
    ci_url: str | None = None
    git_commit: Callable[[Path], str | None] = no_commit
    fork_point: Callable[[Path, str], str] = no_fork
    is_ancestor: Callable[[Path, str, str], bool | None] = no_history
    """Whether a commit is an ancestor of another; `None` if unknown."""
    changed_files: Callable[[Path, Sequence[Path], str], tuple[str, ...]] = no_changes
    """Returns changed files since a revision, below a folder and among named files."""
    base_files: Callable[[Path], PullRequestBase | None] = no_base
    """Base of the pull request for a folder; `None` without one."""
    files_at: Callable[[Path, str], PullRequestBase | None] = lambda _folder, _commit: None
    """Files of a commit; `None` without git."""
    read_limit: Callable[[Path], Path | None] = no_limit
    """Folder of all files that a pull request may reference; `None` if unlimited."""
    workspace: Path | None = None
    """Folder of `reconciler.yaml`; `None` means the nearest above `cwd`."""
    principal: str | None = None
    """Principal on embedded clusters; `None` is the super user."""
    host: str = "*"
    """Host of the principal; `*` if unknown."""
    warn: Callable[[str], None] = print_nothing
    tell: Callable[[str], None] = print_nothing
    """Shows the current step. Thread-safe."""

    def today(self) -> date:
        """Return the current UTC day, on which allowances may expire."""
        return datetime.fromtimestamp(self.now_ms() / 1000, tz=UTC).date()


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    """Selection options of a command, as typed."""

    environment: str | None = None
    variables: tuple[str, ...] = ()
    var_files: tuple[Path, ...] = ()
    targets: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    changed_since: str | None = None
    allow: tuple[str, ...] = ()


def load_files(invocation: Invocation, select: Select) -> LoadedWorkspace:
    """Find the workspace and load its manifests."""
    folder = find_workspace_folder(invocation)
    variables, within = read_variables(invocation, select), invocation.read_limit(folder)
    return load_manifests(
        folder, environment=select.environment, variables=variables, within=within, tell=invocation.tell
    )


def load_workspace_file(invocation: Invocation, select: Select) -> Workspace:
    """Find the workspace and load only `reconciler.yaml`. Other files may be invalid."""
    folder = find_workspace_folder(invocation)
    variables, within = read_variables(invocation, select), invocation.read_limit(folder)
    return load_workspace(folder, environment=select.environment, variables=variables, within=within)


def find_workspace_folder(invocation: Invocation) -> Path:
    """Return the named workspace folder, or the nearest above."""
    if invocation.workspace is None:
        return find_workspace(invocation.cwd)
    named = invocation.cwd / invocation.workspace
    folder = named.parent if named.name == "reconciler.yaml" else named
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", hint="Give --workspace the folder of a reconciler.yaml.")
    if not (folder / "reconciler.yaml").exists():
        message = f"{folder} is not a workspace: it has no reconciler.yaml"
        raise UsageError(message, hint="Name another folder, or make one with: reconciler init")
    return folder


def read_variables(invocation: Invocation, select: Select) -> Variables:
    """Return variables from command line and environment."""
    files = tuple(invocation.cwd / path for path in select.var_files)
    return Variables.parse(select.variables, files=files, environ=invocation.environ)


_SHOWN_PATTERNS: Final = 3


def add_locations(findings: Sequence[PlanFinding], loaded: LoadedWorkspace) -> tuple[PlanFinding, ...]:
    """Add file and line to each finding."""
    if not any(finding.marks for finding in findings):
        return tuple(findings)
    files = Findings(loaded.folder)
    return tuple(_add_location(finding, loaded, files) for finding in findings)


def _add_location(finding: PlanFinding, loaded: LoadedWorkspace, files: Findings) -> PlanFinding:
    lines: dict[str, None] = {}
    own: dict[str, None] = {}
    for address, path in finding.marks:
        if address in loaded.places:
            line = files.format_location(loaded.places[address], path)
            is_own = address == finding.address or finding.address not in loaded.places
            (own if is_own else lines)[line] = None
    source, *others = [*own, *lines] if own else [finding.source or "", *lines]
    also = [line for line in others if line != source]
    message = f"{finding.message} (see {', '.join(also)})" if also else finding.message
    return replace(finding, source=source or None, message=message, marks=())


def format_finding(finding: PlanFinding) -> str:
    """Format a finding as a line with position, subject, message and hint."""
    about = f"{finding.address}: " if finding.source and finding.address else ""
    return f"{finding.source or finding.address or 'plan'}: {about}{finding.message}. {finding.hint}"


def combine_errors(findings: Sequence[PlanFinding], *, can_exclude: bool = False) -> UserError:
    """Return one error for all errors of a plan. `can_exclude` suggests `--exclude`."""
    return UserError(
        _join_findings("the plan has", findings), hint=_build_exclude_hint(findings, can_exclude=can_exclude)
    )


def combine_file_errors(findings: Sequence[PlanFinding]) -> UserError:
    """Return one error for findings about files."""
    return UserError(_join_findings("the files have", findings), hint="Correct them and run `reconciler validate`")


def _join_findings(has: str, findings: Sequence[PlanFinding]) -> str:
    count = f"{len(findings)} errors" if len(findings) > 1 else "1 error"
    return "\n  ".join([f"{has} {count}:", *map(format_finding, findings)])


def _build_exclude_hint(findings: Sequence[PlanFinding], *, can_exclude: bool) -> str:
    lifts = "No --allow but those named above lifts these." if _names_one(findings) else "No --allow lifts these."
    patterns = sorted({_build_exclude_pattern(finding) for finding in findings})
    if not can_exclude or not all(patterns):
        return lifts
    shown = [f"--exclude '{pattern}'" for pattern in patterns[:_SHOWN_PATTERNS]]
    return f"{lifts} To do the rest: {' '.join(shown)}{' …' if len(patterns) > _SHOWN_PATTERNS else ''}"


def _build_exclude_pattern(finding: PlanFinding) -> str:
    return finding.address or "" if finding.exclude_pattern is None else finding.exclude_pattern


def _names_one(findings: Sequence[PlanFinding]) -> bool:
    return any("--allow " in finding.hint for finding in findings)
