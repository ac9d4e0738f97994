"""Select mirrors by address, pattern or link."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from reconciler.errors import UsageError, UserError
from reconciler.lifecycles import MirrorStatus
from reconciler.operations.mirrors.mirror_views import MirrorName, parse_mirror_address
from reconciler.operations.steps.observe import absent_cluster_error
from reconciler.operations.steps.workspace import Site, list_possible_clusters
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_address,
    cluster_of,
    full_name_of,
    kind_of,
    matches_pattern,
)
from reconciler.resources.mirrors import RESTORE, ObservedMirror
from reconciler.runtime.dataclass import dataclass, field
from reconciler.runtime.text import find_similar_spelling, format_suggestion
from reconciler.runtime.threads import map_in_parallel

_ANY: Final = "*"
_LIST: Final = "See the mirrors with: reconciler mirror list"
_PARTS: Final = 3


@dataclass(frozen=True, slots=True)
class MirrorChoice:
    """Addresses or patterns of mirrors and links, which select mirrors."""

    addresses: Sequence[str]
    links: Sequence[str] = ()

    @property
    def is_one(self) -> bool:
        """Whether this is the address of exactly one mirror."""
        return not self.links and len(set(self.addresses)) == 1 and _ANY not in self.addresses[0]


@dataclass(frozen=True, slots=True)
class SelectedMirrors:
    """Distinct mirrors in argument order; matches of a pattern are sorted."""

    names: tuple[MirrorName, ...]
    by_pattern: frozenset[MirrorName] = frozenset()
    """Mirrors selected only by a pattern or link. Verbs skip those already in the target state."""
    restore_links: Mapping[MirrorName, frozenset[str]] = field(default_factory=dict)
    """Links over which a topic may be restored."""


def check_mirror_arguments(choice: MirrorChoice) -> None:
    """Check the syntax of the arguments."""
    if not choice.addresses and not choice.links:
        hint = "For example mirror/east/shop:eu:orders, 'mirror/east/shop:*', or --link link/east/twin."
        raise UsageError("no mirrors were named", hint=hint)
    for text in choice.addresses:
        if _ANY not in text:
            parse_mirror_address(text)
    for text in choice.links:
        parse_link_address(text, "--link ")


def choose_mirrors(
    site: Site, choice: MirrorChoice, verb: str, recorded: Callable[[], Mapping[Address, str | None]] = dict
) -> SelectedMirrors:
    """Return the selected mirrors; for a restore, the original sources of stopped ones.

    Only patterns and links query clusters. Warn if they skip a cluster in `recorded`.
    """
    named = [parse_mirror_address(text) for text in choice.addresses if _ANY not in text]
    patterns = [text for text in choice.addresses if _ANY in text]
    links = [parse_link_address(text) for text in choice.links]
    if not patterns and not links:
        return SelectedMirrors(tuple(dict.fromkeys(named)))
    is_restore_by_link = verb == RESTORE and bool(links)
    mirrors = _MirrorIndex.read(
        site, _list_clusters_to_query(site, () if is_restore_by_link else patterns, links, verb)
    )
    warn_of_absent_clusters(site, mirrors.absent, recorded, (*patterns, *links))
    if is_restore_by_link:
        return _choose_restored_topics(mirrors, choice, links)
    names = [
        mirror
        for text in choice.addresses
        for mirror in (mirrors.match_pattern(text, verb) if _ANY in text else (parse_mirror_address(text),))
    ]
    names += [_find_target(mirror, verb) for link in links for mirror in mirrors.match_link(link, verb)]
    return SelectedMirrors(tuple(dict.fromkeys(names)), frozenset(names) - frozenset(named))


def _choose_restored_topics(mirrors: _MirrorIndex, choice: MirrorChoice, links: Iterable[Address]) -> SelectedMirrors:
    restore_links: dict[MirrorName, set[str]] = {}
    for link in links:
        for mirror in mirrors.match_link(link, RESTORE):
            restore_links.setdefault(_find_target(mirror, RESTORE), set()).add(mirror.link)
    typed = [parse_mirror_address(text) for text in choice.addresses if _ANY not in text]
    for named in typed:
        if named not in restore_links:
            message = f"{named.address}: {', '.join(choice.links)} has no stopped mirror of it: nothing was done"
            raise UserError(message, hint=_LIST)
    names = [
        mirror
        for text in choice.addresses
        for mirror in (mirrors.match_pattern(text, RESTORE) if _ANY in text else (parse_mirror_address(text),))
        if mirror in restore_links
    ]
    names = list(dict.fromkeys(names if choice.addresses else restore_links))
    if not names:
        message = f"no original source of a stopped mirror of {', '.join(choice.links)} matches: nothing was done"
        raise UserError(message, hint=_LIST)
    chosen_links = {named: frozenset(restore_links[named]) for named in names}
    return SelectedMirrors(tuple(names), frozenset(names) - frozenset(typed), chosen_links)


def warn_of_absent_clusters(
    site: Site, absent: Iterable[str], recorded: Callable[[], Mapping[Address, str | None]], texts: Iterable[str]
) -> None:
    """Warn that the patterns `texts` select nothing on absent clusters, which the state records."""
    names = sorted(absent)
    for name in {cluster_of(Address(text)) for text in texts} & {*names}:
        raise absent_cluster_error(site.clusters[name or ""])
    known = recorded() if names else {}
    for name in names:
        if cluster_address(name) in known:
            site.invocation.warn(f"cluster {name} is recorded, but its location is empty: its mirrors are left out")


def parse_link_address(text: str, option: str = "") -> Address:
    """Parse a link's address or pattern. Errors begin with `option`."""
    address = Address(text)
    parts = text.split("/", _PARTS - 1)
    is_whole = len(parts) == _PARTS and all(parts)
    if kind_of(address) != "link" or not (is_whole or _ANY in text):
        raise UsageError(f"{option}{text!r} is not the address of a link", hint="Write it as link/east/twin.")
    return address


def _list_clusters_to_query(
    site: Site, patterns: Iterable[str], links: Iterable[Address], verb: str
) -> tuple[str, ...]:
    closed = [text for text in patterns if verb != RESTORE and text.count("/") >= _PARTS - 1]
    return list_possible_clusters(site, (*links, *(text if text in closed else _ANY for text in patterns)))


@dataclass(frozen=True, slots=True)
class _MirrorIndex:
    mirrors: tuple[ObservedMirror, ...]
    links: tuple[Address, ...]
    absent: tuple[str, ...] = ()

    @classmethod
    def read(cls, site: Site, clusters: Sequence[str]) -> _MirrorIndex:
        def read_cluster(name: str) -> tuple[list[ObservedMirror], list[Address]] | None:
            provider = site.providers[name]
            if provider.identify() is None:
                return None
            links = provider.links
            if links is None:
                return [], []
            return list(links.list_mirrors()), [address_of("link", name, link.name) for link in links.list_links()]

        answers_by_cluster = dict(zip(clusters, map_in_parallel(read_cluster, clusters, name="mirrors"), strict=True))
        answers = [answer for answer in answers_by_cluster.values() if answer is not None]
        mirrors = sorted(
            (mirror for some, _ in answers for mirror in some), key=lambda mirror: (mirror.cluster, mirror.name)
        )
        absent = tuple(name for name, answer in answers_by_cluster.items() if answer is None)
        return cls(tuple(mirrors), tuple(sorted(link for _, some in answers for link in some)), absent)

    def match_pattern(self, pattern: str, verb: str) -> tuple[MirrorName, ...]:
        wanted = "mirror/" + pattern.removeprefix("topic/") if pattern.startswith("topic/") else pattern
        meant = (_find_target(mirror, verb) for mirror in self._list_candidates(verb))
        match_pattern = tuple(mirror for mirror in meant if matches_pattern(wanted, mirror.address))
        if not match_pattern:
            what = "original source of a stopped mirror" if verb == RESTORE else "mirror"
            raise UserError(f"no {what} matches {pattern}: nothing was done", hint=_LIST)
        return match_pattern

    def match_link(self, link: Address, verb: str) -> tuple[ObservedMirror, ...]:
        match_pattern = [address for address in self.links if matches_pattern(link, address)]
        if not match_pattern:
            known = ", ".join(self.links) or "none"
            near = [] if _ANY in link else find_similar_spelling(link, self.links)
            hint = format_suggestion(near, otherwise=f"Links there: {known}.")
            raise UserError(f"no link matches {link}: nothing was done", hint=hint)
        names = {(cluster_of(address), full_name_of(address)) for address in match_pattern}
        mirrors = tuple(mirror for mirror in self._list_candidates(verb) if (mirror.cluster, mirror.link) in names)
        if not mirrors:
            what = "stopped mirrors" if verb == RESTORE else "mirrors"
            raise UserError(f"{link} has no {what}: nothing was done", hint=_LIST)
        return mirrors

    def _list_candidates(self, verb: str) -> Iterator[ObservedMirror]:
        for mirror in self.mirrors:
            if verb != RESTORE or mirror.status is MirrorStatus.STOPPED:
                yield mirror


def _find_target(seen: ObservedMirror, verb: str) -> MirrorName:
    return MirrorName(seen.source_cluster, seen.source) if verb == RESTORE else MirrorName(seen.cluster, seen.name)
