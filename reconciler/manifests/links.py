"""Links beside each other: prefixes, halves, and topics that would be mirrored in more than one direction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.resources.address import address_of
from reconciler.resources.base import Complaint
from reconciler.resources.mirrorlink import MirrorLink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.manifests.findings import Findings, Place
    from reconciler.manifests.gathering import Gathering
    from reconciler.manifests.positions import Path
    from reconciler.resources.address import Address
    from reconciler.resources.mirrortopic import MirrorTopic

_PREFIX: Final = ("spec", "prefix")
_MODE: Final = ("spec", "mode")
_COPYING: Final = frozenset({"mirroring", "paused"})

_Entry = tuple["MirrorTopic", tuple["Place", ...], "Path"]


def check_links(gathering: Gathering, findings: Findings) -> None:
    """Complain of links that cannot be beside each other, and of mirrors that lead in a circle."""
    links = {
        address: declared.resource
        for address, declared in gathering.desired.items()
        if isinstance(declared.resource, MirrorLink)
    }
    _check_prefixes(links, gathering, findings)
    _check_halves(links, gathering, findings)
    entries: dict[Address, _Entry] = {}
    for address, link in links.items():
        for position, mirror in enumerate(link.mirrors()):
            at: Path = ("spec", "mirrorTopics", position, "source")
            entries.setdefault(mirror.address, (mirror, gathering.places[address], at))
    _check_directions(entries, links, findings)


def _check_prefixes(links: Mapping[Address, MirrorLink], gathering: Gathering, findings: Findings) -> None:
    first: dict[tuple[str, str], Address] = {}
    for address, link in links.items():
        if not link.spec.prefix:
            continue
        other = first.setdefault((link.cluster, link.spec.prefix), address)
        if other != address:
            where = findings.where(gathering.places[other], _PREFIX)
            message = f"{other} has the prefix {link.spec.prefix!r} already, at {where}"
            hint = "Choose another prefix: each link of a cluster has one of its own"
            findings.complain(gathering.places[address], Complaint(message, hint, _PREFIX))


def _check_halves(links: Mapping[Address, MirrorLink], gathering: Gathering, findings: Findings) -> None:
    for address, link in links.items():
        half = address_of("link", link.spec.source, link.metadata.name)
        other = links.get(half)
        if other is None or link.spec.mode == "destination":
            continue
        if (other.spec.mode, other.spec.source) != (link.spec.mode, link.cluster):
            where = findings.where(gathering.places[half], _MODE)
            message = (
                f"its other half {half}, declared at {where}, is {other.spec.mode} from {other.spec.source}, "
                f"and not {link.spec.mode} from {link.cluster}"
            )
            hint = "Both halves of a link have one name and one mode: correct it, or leave it out and it is derived"
            findings.complain(gathering.places[address], Complaint(message, hint, _MODE))


def _check_directions(
    entries: Mapping[Address, _Entry], links: Mapping[Address, MirrorLink], findings: Findings
) -> None:
    for address, (mirror, places, at) in entries.items():
        above = entries.get(address_of("mirror", mirror.source_cluster, mirror.source))
        if above is None:
            continue
        source = above[0]
        is_back = (source.source_cluster, source.source) == (mirror.cluster, mirror.name)
        two_way = links[address_of("link", mirror.cluster, mirror.link)].spec.mode == "bidirectional"
        if is_back and two_way and source.link == mirror.link and address > source.address:
            where = findings.where(above[1], above[2])
            message = f"{source.address} is declared at {where}, and mirrors what this entry makes"
            hint = "A topic has one entry: keep one of the two; state reversed says that the roles are swapped"
            findings.complain(places, Complaint(message, hint, at))
        elif circle := _circle(mirror, entries):
            message = f"it mirrors itself in a circle: {' → '.join(circle)}"
            findings.complain(
                places, Complaint(message, "A topic is mirrored in one direction: remove one of them", at)
            )


def _circle(mirror: MirrorTopic, entries: Mapping[Address, _Entry]) -> tuple[str, ...]:
    """Return the mirrors of a circle, source before copy; told once, at the last of them by its address."""
    way = [mirror.address]
    here: MirrorTopic | None = mirror
    while here is not None and here.state in _COPYING:
        above = address_of("mirror", here.source_cluster, here.source)
        if above == mirror.address:
            return (*reversed(way), way[-1]) if mirror.address == max(way) else ()
        if above in way:
            return ()
        way.append(above)
        here = entries[above][0] if above in entries else None
    return ()
