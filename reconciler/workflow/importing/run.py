"""`import`: manifests of what the files of another tool say; the next plan adopts what is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.errors import PartialError, ReconcilerError, UsageError, UserError
from reconciler.manifests.files import label_of
from reconciler.manifests.importing.compose import compose
from reconciler.manifests.importing.found import FoundCluster, Lost, Place
from reconciler.manifests.importing.tools import read_files
from reconciler.workflow.exporting.bare import in_workspace
from reconciler.workflow.exporting.documents import document_text
from reconciler.workflow.exporting.files import texts_of
from reconciler.workflow.exporting.writing import saved
from reconciler.workflow.importing.factoring import gather
from reconciler.workflow.importing.targets import Surroundings, surroundings, targets_of
from reconciler.workflow.init import ignored

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from reconciler.manifests.importing.compose import Composed
    from reconciler.manifests.importing.found import Reading
    from reconciler.manifests.importing.targets import Target
    from reconciler.resources.address import Address
    from reconciler.workflow.beginning.invocation import Invocation
    from reconciler.workflow.importing.factoring import Gathered


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """What is imported, and where to."""

    tool: str
    path: Path
    out: Path
    clusters: tuple[str, ...] = ()
    """`NAME`, or `THEIRS=OURS`."""
    separator: str | None = None
    """What ':' of a namespace is in names on the broker; `None`: as declared, else a dot."""
    at_least: int = 0
    """Topics that make a prefix of names a namespace; 0: only access rules do."""
    bootstrap_servers: tuple[str, ...] = ()
    """Where the brokers are, if the files do not say; the folder becomes a workspace."""
    is_workspace: bool = False
    """The folder becomes a workspace of its own, with its clusters."""
    is_forced: bool = False
    """Also into a folder that holds something; nothing there is overwritten."""


@dataclass(frozen=True, slots=True)
class ClusterNote:
    """A cluster that manifests name: whether the files here declare it, and what would."""

    name: str
    is_declared: bool
    manifest: str | None
    """Its Cluster document, as far as the other tool's files say it."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What was written, and what could not be carried over."""

    tool: str
    path: str
    read: tuple[str, ...]
    unread: tuple[str, ...]
    """Files of the same form beside them that are none of the tool's."""
    files: tuple[Path, ...]
    addresses: tuple[Address, ...]
    places: Mapping[Address, Place]
    clusters: tuple[ClusterNote, ...]
    lost: tuple[Lost, ...]

    @property
    def left_out(self) -> tuple[Lost, ...]:
        """What would have been carried over, were it written otherwise."""
        return tuple(lost for lost in self.lost if lost.is_left_out)

    @property
    def unsaid(self) -> tuple[Lost, ...]:
        """What manifests have no words for."""
        return tuple(lost for lost in self.lost if not lost.is_left_out)

    @property
    def verdict(self) -> ReconcilerError | None:
        """Return what the exit code says: something was left out, or nothing was there."""
        if not self.addresses:
            where = f"{self.tool}'s files in {self.path}"
            return UserError(f"{where} have nothing to import", hint="Nothing was written.")
        if self.left_out:
            return PartialError(f"{len(self.left_out)} left out of the import", hint="Why is told for each of them.")
        return None


def import_files(invocation: Invocation, options: ImportOptions) -> Imported:
    """Write manifests of what the files of another tool say.

    Raises:
        UserError: The files cannot be read, nothing of that tool is there, or the folder holds something.
    """
    path, out = invocation.cwd / options.path, invocation.cwd / options.out
    is_workspace = options.is_workspace or bool(options.bootstrap_servers)
    reading = read_files(options.tool, path, invocation.cwd)
    around = Surroundings() if is_workspace else surroundings(invocation, out)
    targets = targets_of(reading, around, options.clusters, options.separator)
    reading.clusters += _reached(options, reading, targets)
    composed = compose(reading, targets)
    gathered = gather(composed.flat, targets.values(), around.policies, options.at_least)
    if is_workspace and gathered.resources:
        _check_reached(composed, targets)
    files = _written(composed, gathered, out, is_workspace=is_workspace, is_forced=options.is_forced)
    lost = sorted((*composed.lost, *gathered.lost), key=lambda each: (each.place.file, each.place.line or 0))
    return Imported(
        tool=options.tool,
        path=label_of(path, invocation.cwd),
        read=tuple(reading.files),
        unread=tuple(reading.unread),
        files=files,
        addresses=tuple(sorted(gathered.resources)),
        places=gathered.places,
        clusters=tuple(_notes(composed, targets, is_workspace=is_workspace)),
        lost=tuple(lost),
    )


def _written(
    composed: Composed, gathered: Gathered, out: Path, *, is_workspace: bool, is_forced: bool
) -> tuple[Path, ...]:
    if not gathered.resources:
        return ()
    clusters = composed.clusters.values() if is_workspace else ()
    texts = texts_of([*clusters, *gathered.resources.values()], {})
    if not is_workspace:
        return saved(texts, out, is_forced=is_forced)
    files = saved(in_workspace(texts, out), out, is_forced=is_forced)
    return (*files, *ignored(out))


def _reached(options: ImportOptions, reading: Reading, targets: Mapping[str, Target]) -> list[FoundCluster]:
    """Return the cluster whose brokers were named on the command line: the one of which the files do not say it."""
    if not options.bootstrap_servers:
        return []
    said = {targets[cluster.name].name for cluster in reading.clusters}
    missing = [theirs for theirs, target in targets.items() if target.name not in said]
    if len({targets[theirs].name for theirs in missing}) != 1:
        message = "--bootstrap-server is for one cluster of which the files do not say where it is"
        instead = "Leave it out" if options.is_workspace else "Write --init in its place"
        raise UsageError(message, hint=f"{instead}, and edit the Cluster that is written.")
    place = Place("--bootstrap-server")
    return [FoundCluster(name=missing[0], place=place, bootstrap_servers=options.bootstrap_servers)]


def _check_reached(composed: Composed, targets: Mapping[str, Target]) -> None:
    missing = sorted({target.name for target in targets.values()} - composed.clusters.keys())
    if missing:
        hint = "Add --bootstrap-server HOST:PORT; or leave --init out, and declare the cluster yourself."
        raise UserError(f"the files do not say where the brokers of cluster {missing[0]} are", hint=hint)


def _notes(composed: Composed, targets: Mapping[str, Target], *, is_workspace: bool) -> list[ClusterNote]:
    texts = {name: document_text(cluster, {}) for name, cluster in composed.clusters.items()}
    ours = {target.name: target for target in targets.values()}
    return [ClusterNote(name, is_workspace or ours[name].is_declared, texts.get(name)) for name in sorted(ours)]
