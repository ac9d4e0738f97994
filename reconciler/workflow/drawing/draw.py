"""What `graph` draws: the table of a lifecycle, what the files say of clusters, or what waits for what in a plan."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from reconciler.errors import UserError
from reconciler.lifecycles.all import LIFECYCLES
from reconciler.resources.cluster import Cluster
from reconciler.resources.mirrorlink import MirrorLink
from reconciler.resources.mounting import Mounting
from reconciler.workflow.beginning.files import load_files
from reconciler.workflow.drawing.picture import Arrow, Node, Picture, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reconciler.planning.document.documents import PlanDocument
    from reconciler.resources.inventory import Desired
    from reconciler.workflow.beginning.invocation import Invocation, Select


def draw_lifecycle(name: str) -> Picture:
    """Return a state machine: every state, and every move of its table.

    Raises:
        UserError: There is none of that name.
    """
    lifecycle = LIFECYCLES.get(name)
    if lifecycle is None:
        near = get_close_matches(name, LIFECYCLES, n=1)
        hint = f"Did you mean {near[0]}? " if near else ""
        raise UserError(f"there is no lifecycle {name!r}", hint=f"{hint}Lifecycles: {', '.join(LIFECYCLES)}.")
    return Picture(
        of="lifecycle",
        name=name,
        nodes=tuple(Node(str(state), "state") for state in lifecycle.states),
        arrows=tuple(
            Arrow(str(move.start), str(move.end), move.verb, move.condition, move.by_itself) for move in lifecycle.moves
        ),
        initial=str(lifecycle.initial),
        refusals=tuple(Refusal(str(state), verb, reason) for state, verb, reason in lifecycle.refusals),
    )


def draw_workspace(invocation: Invocation, select: Select) -> Picture:
    """Return the clusters that the files declare, the links between them, and what is mounted; asks no cluster.

    Raises:
        UserError: There is no workspace here, or its files have problems.
    """
    loaded = load_files(invocation, select)
    clusters = {
        item.resource.metadata.name: item.resource
        for _, item in sorted(loaded.desired.items())
        if isinstance(item.resource, Cluster)
    }
    mounted = _mounted(loaded.desired)
    storages = {
        name: storage.url
        for name in mounted
        if name in clusters and (storage := clusters[name].spec.object_storage) is not None
    }
    return Picture(
        of="workspace",
        name=loaded.workspace.metadata.name,
        nodes=(
            *(Node(name, "cluster") for name in clusters),
            *(Node(url, "storage") for url in sorted(set(storages.values()))),
        ),
        arrows=(
            *(arrow for arrow in _links(loaded.desired) if {arrow.start, arrow.end} <= clusters.keys()),
            *(
                Arrow(url, name, count) if verb == "mount" else Arrow(name, url, count)
                for name, url in sorted(storages.items())
                for verb, count in mounted[name].items()
            ),
        ),
    )


def draw_plan(document: PlanDocument) -> Picture:
    """Return the actions of a plan, and which waits for which."""
    names = {action.id: f"{action.verb} {action.address}" for action in document.actions}
    return Picture(
        of="plan",
        name=document.workspace,
        nodes=tuple(Node(name, "action") for name in names.values()),
        arrows=tuple(
            Arrow(names[before], names[action.id])
            for action in document.actions
            for before in action.depends_on
            if before in names
        ),
    )


def _links(desired: Desired) -> Iterator[Arrow]:
    for _, item in sorted(desired.items()):
        if isinstance(item.resource, MirrorLink):
            yield _link(item.resource)


def _link(link: MirrorLink) -> Arrow:
    spec = link.spec
    said = [link.metadata.name]
    if spec.mode != "destination":
        said.append(spec.mode)
    if spec.prefix:
        said.append(f"prefix {spec.prefix}")
    if spec.mirror_topics:
        said.append(_counted(len(spec.mirror_topics), "mirror"))
    if spec.auto_create is not None and spec.auto_create.enabled:
        said.append("auto-create")
    if spec.paused:
        said.append("paused")
    return Arrow(spec.source, link.cluster, ", ".join(said))


def _mounted(desired: Desired) -> Mapping[str, Mapping[str, str]]:
    """Return what each cluster mounts and unmounts, counted: there may be thousands."""
    counts: dict[str, dict[str, int]] = {}
    for _, item in sorted(desired.items()):
        if isinstance(item.resource, Mounting):
            verb = "mount" if item.resource.spec.state == "mounted" else "unmount"
            of_cluster = counts.setdefault(item.resource.metadata.cluster or "", {})
            of_cluster[verb] = of_cluster.get(verb, 0) + 1
    return {
        cluster: {verb: f"{verb}s {_counted(count, 'topic')}" for verb, count in found.items()}
        for cluster, found in counts.items()
    }


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"
