"""Links and mirrors as resources, and as their destination keeps them: the same on every platform that has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import UserError
from reconciler.resources.linkentries import LinkEntry
from reconciler.resources.linkrules import synced_configs
from reconciler.resources.linksyncs import KEPT
from reconciler.resources.metadata import OnCluster
from reconciler.resources.mirrorlink import MirrorLink, MirrorLinkSpec, MirrorTopic
from reconciler.resources.sourcetopic import SourceTopic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reconciler.planning.actions import Change
    from reconciler.resources.address import Address
    from reconciler.resources.linkentries import MirrorEntry
    from reconciler.resources.mirrorstates import Named

_NOT_KEPT: Final = frozenset({"mirrorTopics", "movedFrom"})


def link_in(name: str, cluster: str, entry: LinkEntry) -> MirrorLink:
    """Return a link of a cluster as it was declared, without its mirrors.

    Raises:
        UserError: Whoever declared it calls its source what this cluster is called here.
    """
    spec = MirrorLinkSpec.model_validate(entry.declared, context=KEPT)
    if spec.source == cluster:
        message = (
            f"link {name} of cluster {cluster} was declared elsewhere, where {spec.source} is the name of its source"
        )
        hint = "A link keeps the name of its source: call clusters the same in every workspace that has links of one."
        raise UserError(message, hint=hint)
    return MirrorLink(metadata=OnCluster(name=name, cluster=cluster), spec=spec)


def mirror_in(
    cluster: str, full_name: str, mirror: MirrorEntry, of: Named, configs: Mapping[str, str], partitions: int
) -> MirrorTopic:
    """Return a mirror of a cluster, with those of the configs it sets that it does not take from its source."""
    link_name, link = of
    synced = frozenset(synced_configs(link))
    return MirrorTopic(
        cluster=cluster,
        link=link_name,
        source_cluster=link.source_cluster,
        source=mirror.source,
        name=full_name,
        configs={key: value for key, value in configs.items() if key not in synced},
        partitions=partitions,
    )


def link_entry(link: MirrorLink, link_id: str) -> LinkEntry:
    """Return what is kept of a link: all of its spec but the mirrors, which are topics."""
    declared = {key: value for key, value in link.spec.to_json().items() if key not in _NOT_KEPT}
    return LinkEntry(link_id, link.spec.source, declared)


def source_taken(address: Address, parameters: Mapping[str, Any]) -> SourceTopic:
    """Return what a new mirror takes from its source, as the plan says it.

    Raises:
        UserError: The plan does not say how many partitions the source has.
    """
    partitions = parameters.get("partitions")
    if not isinstance(partitions, int):
        raise UserError(f"{address}: how many partitions its source has is not known", hint="Plan again.")
    taken: dict[str, str] = dict(parameters.get("configs") or {})
    return SourceTopic(partitions=partitions, incarnation=parameters.get("incarnation"), configs=taken)


def declared_after(declared: Mapping[str, Any], changes: Sequence[Change]) -> dict[str, Any]:
    """Return the kept spec of a link with dotted paths set, or removed where they become `None`."""
    after = dict(declared)
    for change in changes:
        *above, last = change.path.split(".")
        place = after
        for name in above:
            within = dict(place.get(name) or {})
            place[name] = within
            place = within
        if change.after is None:
            place.pop(last, None)
        else:
            place[last] = list(change.after) if isinstance(change.after, tuple) else change.after
    return after
