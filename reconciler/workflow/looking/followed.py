"""The consumer groups that links may follow: asked only where the filters of a link are about groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import ReconcilerError
from reconciler.resources.mirrorlink import MirrorLink

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reconciler.providers.base import Provider
    from reconciler.resources.inventory import Desired
    from reconciler.workflow.looking.observing import Seen


def followed_groups(providers: Mapping[str, Provider], desired: Desired, seen: Seen) -> Mapping[str, Sequence[str]]:
    """Return the groups of the clusters whose groups a link follows, of those that were read.

    It is only for a warning: a cluster that cannot tell, or does not let us know, is left out.
    """
    links = (declared.resource for declared in desired.values() if isinstance(declared.resource, MirrorLink))
    sources = {link.spec.source for link in links if _follows_by_name(link)}
    there = (name for name in sorted(sources) if seen.identities.get(name) is not None)
    return {name: names for name in there if (names := _names(providers[name])) is not None}


def _follows_by_name(link: MirrorLink) -> bool:
    syncing = link.spec.consumer_offset_sync
    return syncing is not None and syncing.enabled and any(each.name != "*" for each in syncing.filters)


def _names(provider: Provider) -> Sequence[str] | None:
    try:
        return provider.groups.names()
    except ReconcilerError:
        return None
