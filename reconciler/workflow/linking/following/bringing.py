"""Groups that follow their topics: where they go on reading at the source is where they would go on reading mirrors."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from reconciler.errors import ReconcilerError, UserError
from reconciler.resources.address import join_name, split_name
from reconciler.resources.namefilters import takes
from reconciler.resources.syncs import Brought
from reconciler.workflow.linking.following.telling import TaskDone, failed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from reconciler.providers.syncing import SyncsOfCluster
    from reconciler.resources.mirroring import MirrorSeen
    from reconciler.resources.mirrorlink import MirrorLinkSpec
    from reconciler.resources.syncs import GroupOffsets
    from reconciler.workflow.linking.following.pacing import Pace
    from reconciler.workflow.linking.following.sides import Sides

IN_USE: Final = "CONSUMER_GROUP_IN_USE_ERROR"


def bring(sides: Sides, pace: Pace) -> TaskDone:
    """Bring the groups that a link takes, of all its mirrors: one listing, and those that committed since the last."""
    mirrors, spec = sides.live, sides.spec
    above, below = sides.source.links.syncs, sides.destination.links.syncs
    versions = {name: version for name, version in above.group_versions().items() if is_taken(spec, name)}
    rests_on = (spec.prefix, spec.consumer_offset_sync, tuple((one.source, one.name, one.topic_id) for one in mirrors))
    settled = pace.groups(sides.link.id, rests_on)
    news = [name for name, version in sorted(versions.items()) if settled.get(name) != version]
    return brought(spec, mirrors, (above.group_offsets(news) if news else {}, below), settled=(settled, versions))


def is_taken(spec: MirrorLinkSpec, group: str) -> bool:
    """Tell whether a link brings the offsets of a group."""
    asked = spec.consumer_offset_sync
    return asked is not None and asked.enabled and takes(asked.filters, group)


def brought(
    spec: MirrorLinkSpec,
    mirrors: Iterable[MirrorSeen],
    ends: tuple[Mapping[str, GroupOffsets], SyncsOfCluster],
    *,
    settled: tuple[dict[str, str], Mapping[str, str]] | None = None,
) -> TaskDone:
    """Bring offsets of groups to the cluster of some mirrors, and note which are settled by that."""
    offsets, below = ends
    names = {mirror.source: mirror.name for mirror in mirrors}
    of_mirrors = {name: _renamed(found, names) for name, found in offsets.items()}
    asked = {_called(spec, name): found for name, found in of_mirrors.items() if found}
    outcomes = below.bring_offsets(asked) if asked else {}
    errors: dict[str, ReconcilerError] = {}
    in_use: dict[str, ReconcilerError] = {}
    count = 0
    for name in offsets:
        outcome = outcomes.get(_called(spec, name), Brought())
        if isinstance(outcome, ReconcilerError):
            errors[f"group {name}"] = outcome
            continue
        if outcome.reading:
            in_use[f"group {name}"] = _in_use(outcome.reading)
            continue
        count += outcome.is_changed
        if outcome.own:
            in_use[f"group {name}"] = _has_its_own(outcome.own)
            continue  # Until that is gone it is looked at again.
        if settled is not None and not outcome.is_clamped:
            settled[0][name] = settled[1][name]
    if errors or not in_use:
        return failed(count, errors)
    return replace(failed(count, in_use), code=IN_USE)


def _renamed(offsets: GroupOffsets, names: Mapping[str, str]) -> GroupOffsets:
    return {(names[topic], part): each for (topic, part), each in offsets.items() if topic in names}


def _called(spec: MirrorLinkSpec, group: str) -> str:
    """Return what a group is called at the destination: the same, unless the link's prefix is for groups, too."""
    asked = spec.consumer_offset_sync
    if asked is None or not asked.prefix_groups:
        return group
    namespace, own = split_name(group)
    return join_name(namespace, spec.prefix + own)


def _in_use(topics: Collection[str]) -> UserError:
    message = f"it reads {', '.join(sorted(topics)[:3])} on the destination itself: it committed within 24 hours"
    return UserError(message, hint="Exclude it from consumerOffsetSync.filters, or stop it there.")


def _has_its_own(topics: Collection[str]) -> UserError:
    message = f"it committed offsets of {', '.join(sorted(topics)[:3])} on the destination itself, or was reset there"
    hint = "Exclude it from consumerOffsetSync.filters, or let the link go on: reconciler group delete, with --topic."
    return UserError(message, hint=hint)


@dataclass
class GroupsRead:
    """Offsets of the groups of clusters, each read once for each of its versions."""

    _known: dict[tuple[str, str], tuple[str, GroupOffsets]] = field(default_factory=dict)

    def taken(self, cluster: str, spec: MirrorLinkSpec, above: SyncsOfCluster) -> dict[str, GroupOffsets]:
        """Return the offsets of all groups that a link takes."""
        versions = {name: version for name, version in above.group_versions().items() if is_taken(spec, name)}
        news = [name for name, version in versions.items() if self._known.get((cluster, name), ("",))[0] != version]
        if news:
            for name, offsets in above.group_offsets(sorted(news)).items():
                self._known[cluster, name] = versions[name], offsets
        return {name: self._known[cluster, name][1] for name in sorted(versions) if (cluster, name) in self._known}
