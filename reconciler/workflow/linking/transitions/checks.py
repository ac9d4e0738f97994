"""What must be true before a transition begins, or a mirror opens: looked at on the other side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import SourceChangedError, UserError
from reconciler.lifecycles.mirror import MirrorStatus
from reconciler.resources.address import address_of
from reconciler.resources.mirroring import SOURCE_TOPIC_ID_CHANGED
from reconciler.workflow.linking.transitions.origins import mirror_at, provider_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from reconciler.providers.base import Provider
    from reconciler.resources.address import Address
    from reconciler.resources.mirroring import MirrorSeen


def source_of(mirror: MirrorSeen) -> Address:
    """Return the address of what a mirror follows."""
    return address_of("topic", mirror.source_cluster, mirror.source)


def check_source(providers: Mapping[str, Provider], here: MirrorSeen) -> None:
    """Refuse what needs the source where it is not there, or is not what was copied.

    Raises:
        UserError: There is no such topic.
        SourceChangedError: It was deleted and made anew.
        RetryableError: It does not answer.
    """
    found = provider_of(providers, here.source_cluster).source_topic(source_of(here))
    if here.source_topic_id not in {None, found.incarnation}:
        message = f"the source {here.source} of mirror {here.name} was deleted and made anew"
        hint = "Fail over to keep what the mirror has, or delete it and make it again."
        raise SourceChangedError(message, code=SOURCE_TOPIC_ID_CHANGED, hint=hint)


def check_other_half(providers: Mapping[str, Provider], here: MirrorSeen) -> None:
    """Refuse to reverse a mirror whose source cannot become its mirror.

    Raises:
        UserError: The link has no half over there, or the source is itself a mirror.
    """
    links = provider_of(providers, here.source_cluster).links
    halves = {half.name: half for half in links.links()}
    if here.link not in halves or halves[here.link].declared.spec.source != here.cluster:
        message = f"link {here.link} has no half on cluster {here.source_cluster}"
        raise UserError(message, hint="Declare the link with `mode: bidirectional`, and apply that first.")
    there = mirror_at(links, here.source)
    if there is not None and there.status is not MirrorStatus.STOPPED:
        message = f"mirror {here.name} cannot be reversed: its source is itself a mirror ({there.status})"
        raise UserError(message, hint=f"Promote or fail over {here.source} of cluster {here.source_cluster} first.")


def check_shut(providers: Mapping[str, Provider], here: MirrorSeen) -> None:
    """Refuse to open a mirror whose source was rescued meanwhile: both would take records.

    Raises:
        UserError: The source is not a part of that reversal any more.
    """
    there = provider_of(providers, here.source_cluster).links.mirror(here.source)
    if there.operation is None or here.operation is None or there.operation.id != here.operation.id:
        raise broken_off(here, there)


def ended(here: MirrorSeen, verbs: Collection[str]) -> MirrorSeen:
    """Return a mirror, unless it ended otherwise than was asked.

    Raises:
        UserError: Somebody failed it over meanwhile.
    """
    if here.status is MirrorStatus.STOPPED and here.stopped_by not in verbs:
        message = f"mirror {here.name} of cluster {here.cluster} was stopped meanwhile, by {here.stopped_by}"
        raise UserError(message, hint="It takes records; what it has is what it had by then.")
    return here


def broken_off(here: MirrorSeen, peer: MirrorSeen) -> UserError:
    """Return what is said of a reversal of which the other side was failed over."""
    message = f"the reversal was broken off: {peer.name} of cluster {peer.cluster} is {peer.status}"
    address = address_of("mirror", here.cluster, here.name)
    return UserError(message, hint=f"Let {here.name} take records again with: reconciler mirror failover {address}")
