"""Filters of links against what their sources have: what matches nothing, and what auto-create leaves out."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from reconciler.planning.finding import Finding
from reconciler.planning.situation import is_live
from reconciler.planning.wanted.sources import topics_on
from reconciler.resources.address import address_of, cluster_of, kind_of
from reconciler.resources.mirrorlink import MirrorLink
from reconciler.resources.namefilters import is_about, is_never_made, takes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from reconciler.planning.review import Review
    from reconciler.planning.situation import Situation, Wanted
    from reconciler.resources.address import Address
    from reconciler.resources.linksyncs import NameFilter

_FEW: Final = 3
_TOPICS: Final = ("spec", "autoCreate", "filters")
_GROUPS: Final = ("spec", "consumerOffsetSync", "filters")


def warnings_of_links(review: Review) -> Iterator[Finding]:
    """Yield filters that match nothing of what was read of the source, and mirrors that a prefix leaves out.

    And once, with the first link of a cluster, that its mirrors take records of others where they do.
    """
    situation = review.situation
    yield from _open_mirrors(situation)
    for address, wanted in sorted(situation.wanted.items()):
        link = wanted.resource
        if not isinstance(link, MirrorLink) or not situation.is_decidable(address) or wanted.marks:
            continue
        if link.spec.source in situation.trusted:
            yield from _of_topics(address, wanted, link, situation)
            yield from _of_groups(address, wanted, link, situation)


def _open_mirrors(situation: Situation) -> Iterator[Finding]:
    links = sorted(address for address, item in situation.wanted.items() if isinstance(item.resource, MirrorLink))
    told = {cluster_of(address) for address in situation.recorded if kind_of(address) == "link"}
    for address in links:
        cluster = cluster_of(address) or ""
        if cluster in told or not situation.is_decidable(address):
            continue
        told.add(cluster)
        if not situation.capabilities(cluster).mirrors_read_only:
            yield Finding(
                address,
                situation.wanted[address].source,
                f"mirrors on cluster {cluster} take records of others, too: nothing there keeps them read-only, and "
                "what is written to one is not in its source",
                "Let nobody but the link write there: allow its principal alone, or deny the others write.",
            )


def _of_topics(address: Address, wanted: Wanted, link: MirrorLink, situation: Situation) -> Iterator[Finding]:
    making = link.spec.auto_create
    if making is None or not making.enabled:
        return
    known = topics_on(link.spec.source, situation)
    yield from _unmatched((address, wanted), _TOPICS, making.filters, known, f"no topic of cluster {link.spec.source}")
    mirrors = [name for name in known if _is_mirror(link.spec.source, name, situation)] if link.spec.prefix else []
    left = [name for name in mirrors if takes(making.filters, name) and not is_never_made(name)]
    if left:
        yield Finding(
            address,
            wanted.source,
            f"{_some(left)} of cluster {link.spec.source}, which the filters take, is a mirror itself: a link with a "
            "prefix makes no mirrors of mirrors",
            "Name it in mirrorTopics to mirror it on, or exclude it from the filters.",
            ((address, _TOPICS),),
        )


def _of_groups(address: Address, wanted: Wanted, link: MirrorLink, situation: Situation) -> Iterator[Finding]:
    syncing, known = link.spec.consumer_offset_sync, situation.given.groups.get(link.spec.source)
    if syncing is not None and syncing.enabled and known is not None:
        what = f"no group of cluster {link.spec.source}"
        yield from _unmatched((address, wanted), _GROUPS, syncing.filters, known, what)


def _unmatched(
    of: tuple[Address, Wanted],
    at: tuple[str, ...],
    filters: Sequence[NameFilter],
    known: Iterable[str],
    nothing: str,
) -> Iterator[Finding]:
    address, wanted = of
    names = sorted(known)
    for place, each in enumerate(filters):
        if each.filter_type == "exclude" or each.name == "*" or any(is_about(each, name) for name in names):
            continue
        near = get_close_matches(each.name, names, n=_FEW)
        guess = f"Did you mean {' or '.join(near)}? " if near else ""
        yield Finding(
            address,
            wanted.source,
            f"{at[1]} filter {each.name!r} ({each.pattern_type}) takes {nothing} that is there",
            f"{guess}It takes effect if and when there is one.",
            ((address, (*at, place)),),
        )


def _is_mirror(cluster: str, name: str, situation: Situation) -> bool:
    address = address_of("mirror", cluster, name)
    return is_live(situation.observed.get(address)) or address in situation.entries


def _some(names: Sequence[str]) -> str:
    first = ", ".join(names[:_FEW])
    return first if len(names) <= _FEW else f"{first} and {len(names) - _FEW} more"
