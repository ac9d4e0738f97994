"""Which clusters of ours the files of another tool speak of: as asked, as declared, or by the names they have there."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconciler.errors import UsageError, UserError
from reconciler.manifests.importing.targets import PROVIDER, SEPARATOR, Target
from reconciler.manifests.loading import find_workspace
from reconciler.resources.address import cluster_of
from reconciler.resources.cluster import Cluster
from reconciler.resources.tieringpolicy import TieringPolicy
from reconciler.workflow.beginning.files import load_files, workspace_folder
from reconciler.workflow.beginning.invocation import Invocation, Select

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from reconciler.manifests.importing.found import Reading
    from reconciler.manifests.loading import Loaded

_UNNAMED: Final = "kafka"
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The workspace that manifests are written into, as far as it can be read."""

    folder: Path | None = None
    targets: Mapping[str, Target] = field(default_factory=dict)
    """Its clusters by name."""
    policies: Mapping[str, TieringPolicy] = field(default_factory=dict)


def surroundings(invocation: Invocation, out: Path) -> Surroundings:
    """Return the workspace that is named, or the nearest upwards of where manifests go, else of where we are."""
    folder = _folder(invocation, out)
    if folder is None:
        return Surroundings()
    try:
        loaded = load_files(replace(invocation, workspace=folder), Select())
    except UserError:
        # One that has no manifests yet, or broken ones: `validate` says so; names of clusters are taken as they are.
        return Surroundings(folder)
    found = (declared.resource for declared in loaded.desired.values())
    policies = {each.metadata.name: each for each in found if isinstance(each, TieringPolicy)}
    return Surroundings(folder, {target.name: target for target in _declared(loaded)}, policies)


def targets_of(
    reading: Reading, around: Surroundings, asked: Iterable[str], separator: str | None
) -> dict[str, Target]:
    """Return for each cluster, as the files call it, which of ours it is.

    Raises:
        UsageError: What was asked names no cluster of the files, or one name for several.
    """
    theirs = _named(reading)
    wanted = _wanted(asked, theirs)
    several = [name for name in theirs if name]
    # What names no cluster is on the only one there is, unless another one has no name.
    meant = several[0] if len(several) == 1 and "" not in {cluster.name for cluster in reading.clusters} else ""
    is_only = len({name or meant for name in theirs}) == 1
    found = {}
    for name in theirs:
        ours = wanted.get(name or meant) or _matched(name or meant, around, is_only=is_only)
        found[name] = _separated(around.targets.get(ours, Target(name=ours)), separator)
    return found


def _folder(invocation: Invocation, out: Path) -> Path | None:
    if invocation.workspace is not None:
        return workspace_folder(invocation)
    for start in (out, invocation.cwd):
        try:
            return find_workspace(start)
        except UserError:
            continue
    return None


def _declared(loaded: Loaded) -> Iterable[Target]:
    for declared in loaded.desired.values():
        cluster = declared.resource
        if isinstance(cluster, Cluster):
            kafka = cluster.spec.kafka
            yield Target(
                name=cluster.metadata.name,
                separator=kafka.namespace_separator if kafka is not None else SEPARATOR,
                provider=cluster.spec.provider,
                is_declared=True,
                declared={
                    address: each
                    for address, each in loaded.desired.items()
                    if cluster_of(address) == cluster.metadata.name
                },
            )


def _named(reading: Reading) -> list[str]:
    clusters = {cluster.name for cluster in reading.clusters}
    used = {topic.cluster for topic in reading.topics} | {rule.cluster for rule in reading.rules}
    return sorted(clusters | used)


def _wanted(asked: Iterable[str], theirs: list[str]) -> dict[str, str]:
    """Return what `--cluster NAME` and `--cluster THEIRS=OURS` say."""
    several = [name for name in theirs if name]
    found: dict[str, str] = {}
    for text in asked:
        left, sign, right = text.rpartition("=")
        if not sign and len(several) > 1:
            example = f"--cluster {several[0]}={text}"
            raise UsageError(f"the files speak of {', '.join(several)}", hint=f"Say which of them it is: {example}")
        if sign and left not in theirs:
            hint = f"They speak of {', '.join(several)}." if several else f"They name none: --cluster {right}"
            raise UsageError(f"no cluster {left!r} is in these files", hint=hint)
        found[left if sign else (several or theirs or [""])[0]] = right
    return found


def _matched(theirs: str, around: Surroundings, *, is_only: bool) -> str:
    if theirs in around.targets:
        return theirs
    real = [target.name for target in around.targets.values() if target.provider != "embedded"]
    if is_only and len(real) == 1:
        return real[0]
    return _ODD.sub("-", theirs).strip("-._") or _UNNAMED


def _separated(target: Target, separator: str | None) -> Target:
    if separator is None or separator == target.separator:
        return target
    if target.is_declared and target.provider == PROVIDER:
        hint = "Leave --namespace-separator out, or change namespaceSeparator there."
        raise UsageError(f"cluster {target.name} is declared with the separator {target.separator!r}", hint=hint)
    return replace(target, separator=separator)
