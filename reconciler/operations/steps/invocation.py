"""What was typed, the files of a workspace, and findings as one error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from reconciler.errors import UsageError, UserError
from reconciler.manifests.files import Findings, find_workspace
from reconciler.manifests.load import Loaded, load, load_workspace
from reconciler.manifests.overlays import Variables

if TYPE_CHECKING:
    from reconciler.planning.plan import Finding
    from reconciler.resources.workspace import Workspace


class Base(NamedTuple):
    """What the base of a pull request has, beside what the pull request has."""

    root: Path
    """The repository."""
    files: Path
    """A folder that stands for it, with the files of the base."""

    def of(self, path: Path) -> Path:
        """Return where the base's file is that stands at a path of the repository."""
        return self.files / path.relative_to(self.root)


def no_commit(_folder: Path) -> str | None:
    """Return no commit: the folder is in no repository."""
    return None


def no_fork(_folder: Path, revision: str) -> str:
    """Return the revision: nothing is known of branches."""
    return revision


def no_history(_folder: Path, _commit: str, _of: str) -> bool | None:
    """Return `None`: there is no repository in which commits could be compared."""
    return None


def no_changes(_folder: Path, _beside: Sequence[Path], _revision: str) -> tuple[str, ...]:
    """Return no files: nothing changed since that revision."""
    return ()


def no_base(_folder: Path) -> Base | None:
    """Return no files: this is no pull request."""
    return None


def no_limit(_folder: Path) -> Path | None:
    """Return no folder: this is no pull request, and its files may be anywhere."""
    return None


def quiet(_line: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """Clocks, ids, the environment and the working folder: nothing below reads any of them by itself."""

    cwd: Path
    environ: Mapping[str, str]
    now_ms: Callable[[], int]
    """Wall clock, for people and for timestamps of records."""
    new_id: Callable[[], str]
    """Makes UUID4: lineages, clusters, topics."""
    new_run: Callable[[], str]
    """Makes UUIDv7: runs, sorted by time."""
    tool: str
    """Our version."""
    who: str
    """Who acts, as others read it in the lease: `anna@build-7`."""
    ci_url: str | None = None
    git_commit: Callable[[Path], str | None] = no_commit
    fork_point: Callable[[Path, str], str] = no_fork
    """Returns the commit at which a folder's branch left a revision."""
    is_ancestor: Callable[[Path, str, str], bool | None] = no_history
    """Tells whether a commit of a folder's repository is an ancestor of another; `None`: git cannot compare them."""
    changed_files: Callable[[Path, Sequence[Path], str], tuple[str, ...]] = no_changes
    """Files below a folder, relative to it, and others beside it that changed since a revision."""
    base_files: Callable[[Path], Base | None] = no_base
    """Of a pull request: what its base has of a folder and around it; `None`: this is none."""
    read_limit: Callable[[Path], Path | None] = no_limit
    """Of a pull request: the folder outside of which no file is read because a file of it says so."""
    workspace: Path | None = None
    """The folder of `reconciler.yaml`; `None`: the nearest one upwards from `cwd`."""
    principal: str | None = None
    """Who acts on embedded clusters; `None` is the super user."""
    host: str = "*"
    """Where that principal acts from; `*`: nobody knows."""
    warn: Callable[[str], None] = quiet
    """Takes one line for people, at once."""
    tell: Callable[[str], None] = quiet
    """Takes what is being done, until the next; from any thread."""

    def today(self) -> date:
        """Return the day in UTC: when reviewed allowances end."""
        return datetime.fromtimestamp(self.now_ms() / 1000, tz=UTC).date()


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    """SELECT of the command line, as it was typed."""

    environment: str | None = None
    variables: tuple[str, ...] = ()
    var_files: tuple[Path, ...] = ()
    targets: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    changed_since: str | None = None
    allow: tuple[str, ...] = ()


# A workspace's files: found and loaded. All that `validate` and `fmt` need; no store, no cluster, no plan.


def load_files(invocation: Invocation, select: Select) -> Loaded:
    """Find the workspace and load its manifests.

    Raises:
        UserError: There is no workspace here, or its files have problems (`ManifestError` lists them all).
    """
    folder = workspace_folder(invocation)
    variables, within = variables_of(invocation, select), invocation.read_limit(folder)
    return load(folder, environment=select.environment, variables=variables, within=within, tell=invocation.tell)


def load_workspace_file(invocation: Invocation, select: Select) -> Workspace:
    """Find the workspace and load `reconciler.yaml` alone: the state can be asked while manifests are broken.

    Raises:
        UserError: There is no workspace here, or that file has problems.
    """
    folder = workspace_folder(invocation)
    variables, within = variables_of(invocation, select), invocation.read_limit(folder)
    return load_workspace(folder, environment=select.environment, variables=variables, within=within)


def workspace_folder(invocation: Invocation) -> Path:
    """Return the folder of `reconciler.yaml`: the one named, or the nearest upwards."""
    if invocation.workspace is None:
        return find_workspace(invocation.cwd)
    named = invocation.cwd / invocation.workspace
    folder = named.parent if named.name == "reconciler.yaml" else named
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", hint="Give --workspace the folder of a reconciler.yaml.")
    if not (folder / "reconciler.yaml").exists():
        message = f"{folder} is no workspace: it has no reconciler.yaml"
        raise UsageError(message, hint="Name another folder, or make one with: reconciler init")
    return folder


def variables_of(invocation: Invocation, select: Select) -> Variables:
    """Return the variables of a command line and the environment."""
    files = tuple(invocation.cwd / path for path in select.var_files)
    return Variables.of(select.variables, files=files, environ=invocation.environ)


# Findings of a plan or of the files, as lines and as one error.


_SHOWN: Final = 3


def located(findings: Sequence[Finding], loaded: Loaded) -> tuple[Finding, ...]:
    """Say of each finding on which line of which file the fields are that it is about."""
    if not any(finding.marks for finding in findings):
        return tuple(findings)
    files = Findings(loaded.folder)
    return tuple(_located(finding, loaded, files) for finding in findings)


def _located(finding: Finding, loaded: Loaded, files: Findings) -> Finding:
    lines: dict[str, None] = {}
    own: dict[str, None] = {}
    for address, path in finding.marks:
        if address in loaded.places:
            line = files.where(loaded.places[address], path)
            is_own = address == finding.address or finding.address not in loaded.places
            (own if is_own else lines)[line] = None
    source, *others = [*own, *lines] if own else [finding.source or "", *lines]
    also = [line for line in others if line != source]
    message = f"{finding.message} (see {', '.join(also)})" if also else finding.message
    return replace(finding, source=source or None, message=message, marks=())


def finding_line(finding: Finding) -> str:
    """Return a finding as one line that begins with where it is, and what it is about."""
    about = f"{finding.address}: " if finding.source and finding.address else ""
    return f"{finding.source or finding.address or 'plan'}: {about}{finding.message}. {finding.hint}"


def errors_of(findings: Sequence[Finding], *, can_exclude: bool = False) -> UserError:
    """Return all errors of a plan as one; `can_exclude`: the command can be typed again without what they are about."""
    return UserError(_listed("the plan has", findings), hint=_hint(findings, can_exclude=can_exclude))


def errors_in_files(findings: Sequence[Finding]) -> UserError:
    """Return all that is wrong with files as one, without having looked at a cluster."""
    return UserError(_listed("the files have", findings), hint="Correct them and run `reconciler validate`")


def _listed(has: str, findings: Sequence[Finding]) -> str:
    count = f"{len(findings)} errors" if len(findings) > 1 else "1 error"
    return "\n  ".join([f"{has} {count}:", *map(finding_line, findings)])


def _hint(findings: Sequence[Finding], *, can_exclude: bool) -> str:
    # A hint that has an --allow of another command in it is not to be taken for one of these.
    lifts = "No --allow given here lifts these." if _names_one(findings) else "No --allow lifts these."
    patterns = sorted({_pattern(finding) for finding in findings})
    if not can_exclude or not all(patterns):
        return lifts
    shown = [f"--exclude '{pattern}'" for pattern in patterns[:_SHOWN]]
    return f"{lifts} To do the rest: {' '.join(shown)}{' …' if len(patterns) > _SHOWN else ''}"


def _pattern(finding: Finding) -> str:
    """Return what leaves a finding out of the plan; empty where nothing does."""
    return finding.address or "" if finding.excluded_by is None else finding.excluded_by


def _names_one(findings: Sequence[Finding]) -> bool:
    return any("--allow " in finding.hint for finding in findings)
