"""Original sources of stopped mirrors: which may be restored, from what, and where the two agree last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import UserError
from reconciler.lifecycles.mirror import MirrorStatus
from reconciler.resources import standing
from reconciler.resources.address import address_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.providers.base import LinksOfCluster, Provider
    from reconciler.resources.mirroring import MirrorSeen


def provider_of(providers: Mapping[str, Provider], cluster: str) -> Provider:
    """Return what reaches a cluster.

    Raises:
        UserError: It is not known here.
    """
    found = providers.get(cluster)
    if found is None:
        message = f"cluster {cluster} is not known here"
        raise UserError(message, hint="Declare it, or name a state that has it with --state.")
    return found


def mirror_at(links: LinksOfCluster, full_name: str) -> MirrorSeen | None:
    """Return a topic as the mirror it is or was; `None`: it never was one."""
    return next((seen for seen in links.mirrors() if seen.name == full_name), None)


def restorable(providers: Mapping[str, Provider], cluster: str, full_name: str) -> MirrorSeen:
    """Return the stopped mirror whose original source a topic is.

    Raises:
        UserError: There is none that could be restored from; says what is missing.
    """
    links = provider_of(providers, cluster).links
    for link in links.links():
        peer = providers.get(link.declared.spec.source)
        found = () if peer is None else peer.links.mirrors(link.name)
        for mirror in found:
            is_of = (mirror.source, mirror.source_cluster) == (full_name, cluster)
            if is_of and mirror.status is MirrorStatus.STOPPED:
                check_restorable(providers, cluster, full_name, mirror)
                return mirror
    message = f"topic {full_name} of cluster {cluster} cannot be restored: no stopped mirror of it is known"
    hint = "Restore works on the original source of a stopped mirror, over a bidirectional link."
    raise UserError(message, hint=hint)


def check_restorable(providers: Mapping[str, Provider], cluster: str, full_name: str, peer: MirrorSeen) -> None:
    """Refuse to restore a topic from a stopped mirror that is none of it as it is now.

    Raises:
        UserError: The mirror follows again, the topic was made anew or has more partitions, or it stopped last itself.
    """
    provider = provider_of(providers, cluster)
    topic = provider.source_topic(address_of("topic", cluster, full_name))
    what = f"topic {full_name} of cluster {cluster} cannot be restored from {peer.name} of cluster {peer.cluster}"
    if peer.status is not MirrorStatus.STOPPED:
        raise UserError(
            f"{what}: that is {peer.status}, and takes no records itself",
            hint="Let this one take records again with: reconciler mirror failover "
            f"{address_of('mirror', cluster, full_name)}",
        )
    if peer.source_topic_id not in {None, topic.incarnation}:
        raise UserError(
            f"{what}: it was deleted and made anew (SOURCE_TOPIC_ID_CHANGED)",
            hint="Delete it here, and mirror it afresh.",
        )
    if peer.partitions < topic.partitions:
        raise UserError(
            f"{what}: it has {topic.partitions} partitions, and {peer.name} {peer.partitions}",
            hint=f"Add partitions to {peer.name} first: a mirror has as many as its source.",
        )
    own = mirror_at(provider.links, full_name)
    is_of_each_other = own is not None and (own.source_cluster, own.source) == (peer.cluster, peer.name)
    if own is not None and is_of_each_other and own.status is MirrorStatus.STOPPED and own.since_ms > peer.since_ms:
        message = f"{what}: it stopped after that, which is the original source of the two"
        raise UserError(message, hint=f"Restore {peer.name} of cluster {peer.cluster} from it.")


def cuts(providers: Mapping[str, Provider], cluster: str, full_name: str, peer: MirrorSeen) -> dict[int, int]:
    """Return where each partition of an original source is to be cut: where it and its mirror agree last."""
    provider = provider_of(providers, cluster)
    topic_id = provider.source_topic(address_of("topic", cluster, full_name)).incarnation
    theirs = provider_of(providers, peer.cluster).links.positions(peer.name)
    return standing.cuts(provider.links.positions(full_name), topic_id, theirs, peer.topic_id)
