"""What is wrong with a link, beside its mirrors: as its platform, its other half and its neighbours say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.planning.fields import LINK_FEATURES
from reconciler.planning.finding import Finding
from reconciler.planning.judging.limits import beyond
from reconciler.planning.wanted.halves import half_at, has_two_halves
from reconciler.resources.address import cluster_address
from reconciler.resources.mirrorlink import MirrorLink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.planning.situation import Situation, Wanted
    from reconciler.resources.address import Address

_PREFIX: Final = ("spec", "prefix")


def check_link(link: MirrorLink, situation: Situation) -> Iterator[tuple[str, str]]:
    """Yield what of a link is beyond its platform, and the cluster it cannot mirror."""
    capabilities = situation.capabilities(link.cluster)
    spec = link.spec
    if not capabilities.links:
        yield beyond(capabilities, "mirror topics over a link")
        return
    if cluster_address(spec.source) not in situation.wanted:
        yield f"its source, cluster {spec.source}, is not declared", f"Declare a Cluster named {spec.source}."
    if spec.mode != "destination" and f"{spec.mode}-mode" not in capabilities.link_features:
        yield beyond(capabilities, f"have a link of mode {spec.mode}")
    defaults = type(spec)(source=spec.source)
    for field in sorted(type(spec).model_fields):
        alias = type(spec).model_fields[field].alias or field
        feature = LINK_FEATURES.get(alias)
        if feature and feature not in capabilities.link_features and getattr(spec, field) != getattr(defaults, field):
            yield beyond(capabilities, f"have {alias} on a link")


def check_links(situation: Situation) -> Iterator[Finding]:
    """Yield links of one prefix, links from a cluster to itself, between formats, and halves that are none."""
    links = {
        address: (wanted, wanted.resource)
        for address, wanted in sorted(situation.wanted.items())
        if isinstance(wanted.resource, MirrorLink) and situation.is_decidable(address)
    }
    for address, (wanted, link) in links.items():
        yield from _check_ends(address, wanted, link, situation)
        yield from _check_half(address, wanted, link, situation)
        yield from _check_prefix(address, wanted, link, situation)


def _check_ends(address: Address, wanted: Wanted, link: MirrorLink, situation: Situation) -> Iterator[Finding]:
    here, there = (situation.given.identities.get(name) for name in (link.cluster, link.spec.source))
    if here is None or there is None:
        return
    at = ((address, ("spec", "source")), *wanted.marks)
    if here.cluster_id == there.cluster_id:
        message = f"{link.spec.source} and {link.cluster} are one cluster ({here.cluster_id}): no link leads to itself"
        yield Finding(address, wanted.source, message, "Name the cluster the records come from.", at)
    elif None not in (here.format, there.format) and here.format != there.format:
        message = (
            f"{link.cluster} is of format {here.format} and {link.spec.source} of {there.format}: records are copied "
            "as they are, so both have to be of one"
        )
        yield Finding(address, wanted.source, message, "Upgrade the older of the two first.", at)


def _check_half(address: Address, wanted: Wanted, link: MirrorLink, situation: Situation) -> Iterator[Finding]:
    other = situation.wanted.get(half_at(link))
    if other is None or not has_two_halves(link) or not isinstance(other.resource, MirrorLink):
        return
    half = other.resource.spec
    if (half.source, half.mode) != (link.cluster, link.spec.mode):
        yield Finding(
            address,
            wanted.source,
            f"its half {half_at(link)} is declared at {other.source} as {half.mode} from {half.source}, "
            f"and not as {link.spec.mode} from {link.cluster}",
            "Both halves of a link have one name and one mode: correct it, or leave it out, and it is derived.",
            ((address, ("spec", "mode")),),
        )


def _check_prefix(address: Address, wanted: Wanted, link: MirrorLink, situation: Situation) -> Iterator[Finding]:
    if not link.spec.prefix:
        return
    for other in sorted({*situation.observed, *situation.wanted}):
        item = situation.wanted.get(other) or situation.observed[other]
        is_gone = other not in situation.wanted and other in situation.recorded
        if other == address or is_gone or not isinstance(item.resource, MirrorLink):
            continue
        if (item.resource.cluster, item.resource.spec.prefix) != (link.cluster, link.spec.prefix):
            continue
        where = situation.wanted[other].source if other in situation.wanted else "on the cluster"
        yield Finding(
            address,
            wanted.source,
            f"{other} ({where}) has the prefix {link.spec.prefix!r}, too: each link of a cluster has one of its own",
            "Choose another prefix for one of the two.",
            ((address, _PREFIX),),
        )
        return
