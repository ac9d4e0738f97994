"""Which mirrors are meant: addresses, patterns, and all those of links."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from reconciler.errors import UsageError, UserError
from reconciler.lifecycles import MirrorStatus
from reconciler.operations.mirrors.mirror_views import Named, mirror_named
from reconciler.operations.steps.observe import absent_cluster
from reconciler.operations.steps.workspace import Site, clusters_meant
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_address,
    cluster_of,
    full_name_of,
    kind_of,
    matches,
)
from reconciler.resources.mirrors import RESTORE, MirrorSeen
from reconciler.runtime.text import did_you_mean, nearest_spelling
from reconciler.runtime.threads import side_by_side

_ANY: Final = "*"
_LIST: Final = "See the mirrors with: reconciler mirror list"
_PARTS: Final = 3


@dataclass(frozen=True, slots=True)
class MirrorChoice:
    """What was typed: addresses and patterns of mirrors, and addresses or patterns of links."""

    addresses: Sequence[str]
    links: Sequence[str] = ()

    @property
    def is_one(self) -> bool:
        """Tell whether one mirror was named, and nothing else."""
        return not self.links and len(set(self.addresses)) == 1 and _ANY not in self.addresses[0]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The mirrors that are meant, each once, in the order in which they were named; those of a pattern by address."""

    names: tuple[Named, ...]
    found: frozenset[Named] = frozenset()
    """Those that only a pattern or a link names: one that is as the verb would leave it is left alone."""
    over: Mapping[Named, frozenset[str]] = field(default_factory=dict)
    """Of topics that are restored, the links of the mirrors that were named: only from those it is done."""


def check_typed(choice: MirrorChoice) -> None:
    """Refuse what names no mirror and no link, before anything is opened.

    Raises:
        UsageError: Nothing was named, or an address is none of a mirror or link.
    """
    if not choice.addresses and not choice.links:
        hint = "For example mirror/east/shop:eu:orders, 'mirror/east/shop:*', or --link link/east/twin."
        raise UsageError("no mirrors were named", hint=hint)
    for text in choice.addresses:
        if _ANY not in text:
            mirror_named(text)
    for text in choice.links:
        link_named(text, "--link ")


def chosen(
    site: Site, choice: MirrorChoice, verb: str, recorded: Callable[[], Mapping[Address, str | None]] = dict
) -> Chosen:
    """Return the mirrors that are meant; clusters are asked only where a pattern or a link was given.

    `recorded`: which clusters these should be; of one that is not there it is said that it is left out.

    For a restore these are the original sources of stopped mirrors. Links then say from which mirrors the topics that
    were named are restored; without such topics they name all their original sources.

    Raises:
        UserError: A pattern matches no mirror, a link is not there or has no mirrors.
        RetryableError: A cluster that a pattern may be about cannot be reached.
    """
    named = [mirror_named(text) for text in choice.addresses if _ANY not in text]
    patterns = [text for text in choice.addresses if _ANY in text]
    links = [link_named(text) for text in choice.links]
    if not patterns and not links:
        return Chosen(tuple(dict.fromkeys(named)))
    is_over = verb == RESTORE and bool(links)
    mirrors = _Mirrors.read(site, _clusters(site, () if is_over else patterns, links, verb))
    warn_of_absent(site, mirrors.absent, recorded, (*patterns, *links))
    if is_over:
        return _chosen_over(mirrors, choice, links)
    names = [
        each
        for text in choice.addresses
        for each in (mirrors.matching(text, verb) if _ANY in text else (mirror_named(text),))
    ]
    names += [_meant(each, verb) for link in links for each in mirrors.of_link(link, verb)]
    return Chosen(tuple(dict.fromkeys(names)), frozenset(names) - frozenset(named))


def _chosen_over(mirrors: _Mirrors, choice: MirrorChoice, links: Iterable[Address]) -> Chosen:
    """Return the topics that are restored over links: those that are named, or all that the links can restore."""
    over: dict[Named, set[str]] = {}
    for link in links:
        for each in mirrors.of_link(link, RESTORE):
            over.setdefault(_meant(each, RESTORE), set()).add(each.link)
    typed = [mirror_named(text) for text in choice.addresses if _ANY not in text]
    for named in typed:
        if named not in over:
            message = f"{named.address}: {', '.join(choice.links)} has no stopped mirror of it: nothing was done"
            raise UserError(message, hint=_LIST)
    names = [
        each
        for text in choice.addresses
        for each in (mirrors.matching(text, RESTORE) if _ANY in text else (mirror_named(text),))
        if each in over
    ]
    names = list(dict.fromkeys(names if choice.addresses else over))
    if not names:
        message = f"no original source of a stopped mirror of {', '.join(choice.links)} matches: nothing was done"
        raise UserError(message, hint=_LIST)
    chosen_links = {named: frozenset(over[named]) for named in names}
    return Chosen(tuple(names), frozenset(names) - frozenset(typed), chosen_links)


def warn_of_absent(
    site: Site,
    absent: Iterable[str],
    recorded: Callable[[], Mapping[Address, str | None]],
    texts: Iterable[str],
) -> None:
    """Warn of clusters that patterns leave out, though they were made: a root may only not be mounted.

    Raises:
        UserError: One of `texts` names a cluster, and no cluster answers there.
    """
    names = sorted(absent)
    for name in {cluster_of(Address(text)) for text in texts} & {*names}:
        raise absent_cluster(site.clusters[name or ""])
    known = recorded() if names else {}
    for name in names:
        if cluster_address(name) in known:
            site.invocation.warn(f"cluster {name} is recorded, but nothing is there now: what it has is left out")


def link_named(text: str, option: str = "") -> Address:
    """Return the address or pattern of links; `option` is what it was typed behind.

    Raises:
        UsageError: It is none.
    """
    address = Address(text)
    parts = text.split("/", _PARTS - 1)
    is_whole = len(parts) == _PARTS and all(parts)
    if kind_of(address) != "link" or not (is_whole or _ANY in text):
        raise UsageError(f"{option}{text!r} is not the address of a link", hint="Write it as link/east/twin.")
    return address


def _clusters(site: Site, patterns: Iterable[str], links: Iterable[Address], verb: str) -> tuple[str, ...]:
    """Return the clusters whose mirrors may be meant; the source of a stopped mirror may be mirrored to any."""
    closed = [text for text in patterns if verb != RESTORE and text.count("/") >= _PARTS - 1]
    return clusters_meant(site, (*links, *(text if text in closed else _ANY for text in patterns)))


@dataclass(frozen=True, slots=True)
class _Mirrors:
    """The mirrors of clusters, and the links that are there."""

    mirrors: tuple[MirrorSeen, ...]
    links: tuple[Address, ...]
    absent: tuple[str, ...] = ()
    """Clusters that are not where they should be."""

    @classmethod
    def read(cls, site: Site, clusters: Sequence[str]) -> _Mirrors:
        """Ask clusters, all at once.

        Raises:
            RetryableError: One cannot be reached.
        """

        def look(name: str) -> tuple[list[MirrorSeen], list[Address]] | None:
            provider = site.providers[name]
            if provider.identify() is None:
                return None
            links = provider.links
            if links is None:
                return [], []
            return list(links.mirrors()), [address_of("link", name, each.name) for each in links.links()]

        asked = dict(zip(clusters, side_by_side(look, clusters, name="mirrors"), strict=True))
        found = [answer for answer in asked.values() if answer is not None]
        mirrors = sorted((each for some, _ in found for each in some), key=lambda each: (each.cluster, each.name))
        absent = tuple(name for name, answer in asked.items() if answer is None)
        return cls(tuple(mirrors), tuple(sorted(link for _, some in found for link in some)), absent)

    def matching(self, pattern: str, verb: str) -> tuple[Named, ...]:
        """Return the mirrors that a pattern names.

        Raises:
            UserError: It names none.
        """
        wanted = "mirror/" + pattern.removeprefix("topic/") if pattern.startswith("topic/") else pattern
        meant = (_meant(each, verb) for each in self._of(verb))
        found = tuple(each for each in meant if matches(wanted, each.address))
        if not found:
            what = "original source of a stopped mirror" if verb == RESTORE else "mirror"
            raise UserError(f"no {what} matches {pattern}: nothing was done", hint=_LIST)
        return found

    def of_link(self, link: Address, verb: str) -> tuple[MirrorSeen, ...]:
        """Return the mirrors of the links that an address or a pattern names.

        Raises:
            UserError: There is no such link, or it has no mirrors.
        """
        there = [each for each in self.links if matches(link, each)]
        if not there:
            known = ", ".join(self.links) or "none"
            near = [] if _ANY in link else nearest_spelling(link, self.links)
            hint = did_you_mean(near, otherwise=f"Links there: {known}.")
            raise UserError(f"no link matches {link}: nothing was done", hint=hint)
        names = {(cluster_of(each), full_name_of(each)) for each in there}
        found = tuple(each for each in self._of(verb) if (each.cluster, each.link) in names)
        if not found:
            what = "stopped mirrors" if verb == RESTORE else "mirrors"
            raise UserError(f"{link} has no {what}: nothing was done", hint=_LIST)
        return found

    def _of(self, verb: str) -> Iterator[MirrorSeen]:
        for each in self.mirrors:
            if verb != RESTORE or each.status is MirrorStatus.STOPPED:
                yield each


def _meant(seen: MirrorSeen, verb: str) -> Named:
    """Return the mirror itself, or for a restore what it followed."""
    return Named(seen.source_cluster, seen.source) if verb == RESTORE else Named(seen.cluster, seen.name)
