"""The other half of a link that has two: of one name on both clusters, derived from what is declared of the first."""

from __future__ import annotations

from reconciler.planning.situation import Wanted
from reconciler.resources.address import Address, address_of
from reconciler.resources.mirrorlink import MirrorLink, MirrorLinkSpec


def half_at(link: MirrorLink) -> Address:
    """Return the address of the other half: on the source's cluster, under the same name."""
    return address_of("link", link.spec.source, link.metadata.name)


def has_two_halves(link: MirrorLink) -> bool:
    """Tell whether a link is made on both clusters."""
    return link.spec.mode != "destination"


def half_of(link: MirrorLink, source: str) -> Wanted:
    """Return the other half, which mirrors nothing until roles are swapped.

    What it does then is what this one does; what makes mirrors or writes by itself stays with this one.
    """
    spec = link.spec
    half = MirrorLinkSpec(source=link.cluster, mode=spec.mode)
    if spec.mode == "bidirectional":
        same = ("paused", "retry_timeout", "metadata_interval", "consumer_offset_sync", "topic_config_sync")
        half = half.model_copy(update={name: getattr(spec, name) for name in same})
    metadata = link.metadata.model_copy(update={"cluster": spec.source})
    other = link.model_copy(update={"metadata": metadata, "spec": half})
    return Wanted(other, source, marks=((link.address, ("spec", "mode")),))
