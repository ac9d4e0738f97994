"""Mirrors by the addresses that people type, and what is said where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reconciler.errors import UsageError, UserError
from reconciler.manifests.suggestions import nearest
from reconciler.resources.address import Address, address_of, cluster_of, full_name_of, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reconciler.providers.base import LinksOfCluster
    from reconciler.resources.mirroring import MirrorSeen

_PARTS = 3


class Named(NamedTuple):
    """A mirror that was named: its cluster and its full name there."""

    cluster: str
    name: str

    @property
    def address(self) -> Address:
        """What it is called."""
        return address_of("mirror", self.cluster, self.name)


def mirror_named(text: str) -> Named:
    """Return the mirror that was named; what was promoted is a topic, too, and may be called so.

    Raises:
        UsageError: It names no mirror.
    """
    given = Address(text)
    parts = text.split("/", _PARTS - 1)
    if kind_of(given) not in {"mirror", "topic"} or len(parts) < _PARTS or not all(parts):
        raise UsageError(f"{text!r} is not the address of a mirror", hint="Write it as mirror/east/shop:eu:orders.")
    return Named(cluster_of(given) or "", full_name_of(given))


def mirrors_named(texts: Iterable[str]) -> list[Named]:
    """Return the mirrors that were named, each once, in the order in which they were."""
    return list(dict.fromkeys(map(mirror_named, texts)))


def find_mirror(links: LinksOfCluster, named: Named) -> MirrorSeen:
    """Return a mirror as its cluster has it.

    Raises:
        UserError: There is no such topic, or it is not mirrored; says what comes nearest.
    """
    try:
        return links.mirror(named.name)
    except UserError as error:
        is_topic = "does not exist" not in error.message
        near = None if is_topic else nearest(named.name, (mirror.name for mirror in links.mirrors()))
        see = f"See the mirrors with: reconciler mirror list {named.cluster}"
        hint = see if near is None else f"Did you mean {Named(named.cluster, near).address}? {see}"
        raise UserError(f"{named.address}: {error.message}", hint=hint) from error
