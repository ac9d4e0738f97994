"""Mirrors beside what else is declared: one topic has one owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.resources.address import address_of
from reconciler.resources.base import Complaint
from reconciler.resources.mirrorlink import MirrorLink
from reconciler.resources.mounting import Mounting

if TYPE_CHECKING:
    from reconciler.manifests.findings import Findings, Place
    from reconciler.manifests.gathering import Gathering
    from reconciler.manifests.positions import Path
    from reconciler.resources.mirrortopic import MirrorTopic

_COPYING: Final = ("mirroring", "paused")


def check_mirrors(gathering: Gathering, findings: Findings) -> None:
    """Complain where two entries make one mirror, a live mirror is a Topic too, or two mountings make one topic."""
    owners: dict[str, tuple[tuple[Place, ...], Path]] = {}
    for address, declared in gathering.desired.items():
        places = gathering.places[address]
        match declared.resource:
            case MirrorLink() as link:
                for position, mirror in enumerate(link.mirrors()):
                    at: Path = ("spec", "mirrorTopics", position, "source")
                    _check_owner(f"{mirror.address} is declared", owners, (places, at), findings)
                    _check_topic(mirror, gathering, (places, at), findings)
            case Mounting() as mounting if mounting.spec.state == "mounted":
                at = ("spec", "as") if mounting.spec.as_ is not None else ("metadata", "name")
                what = f"a topic {mounting.topic_name} is mounted on {mounting.cluster}"
                _check_owner(what, owners, (places, at), findings)
            case _:
                pass


def _check_owner(
    what: str,
    owners: dict[str, tuple[tuple[Place, ...], Path]],
    written: tuple[tuple[Place, ...], Path],
    findings: Findings,
) -> None:
    first = owners.setdefault(what, written)
    if first is not written:
        message = f"{what} already, at {findings.where(*first)}"
        findings.complain(written[0], Complaint(message, "Keep one of the two", written[1]))


def _check_topic(
    mirror: MirrorTopic, gathering: Gathering, written: tuple[tuple[Place, ...], Path], findings: Findings
) -> None:
    topic = address_of("topic", mirror.cluster, mirror.full_name)
    if mirror.state in _COPYING and topic in gathering.places:
        where = findings.where(gathering.places[topic], ("metadata", "name"))
        message = f"{topic} is declared at {where}, and a topic that is {mirror.state} is its link's"
        hint = "Remove the Topic, or let the entry be promoted or failed-over"
        findings.complain(written[0], Complaint(message, hint, written[1]))
