"""`link list` and `describe`; and which links addresses and patterns name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from reconciler.errors import NotFoundError, ReconcilerError, UsageError, UserError
from reconciler.lifecycles import MirrorStatus
from reconciler.operations.clusters.mounts import ask_each, verdict_on
from reconciler.operations.mirrors.mirror_selection import link_named, warn_of_absent
from reconciler.operations.steps.observe import absent_cluster, stands
from reconciler.operations.steps.runner import SiteOptions
from reconciler.operations.steps.workspace import Site, clusters_meant
from reconciler.resources.address import Address, address_of, cluster_of, matches
from reconciler.runtime.text import did_you_mean, nearest_spelling
from reconciler.runtime.threads import side_by_side

if TYPE_CHECKING:
    from reconciler.resources.mirrors import LinkSeen


LinkVerb: TypeAlias = Literal["pause", "resume", "delete"]

_ANY: Final = "*"
_LIST: Final = "See the links with: reconciler link list"


@dataclass(frozen=True, slots=True)
class LinkRow:
    """A link, and how many of its mirrors are in which state."""

    cluster: str
    """The destination, on which it lives."""
    seen: LinkSeen
    mirrors: Mapping[MirrorStatus, int]
    names: tuple[str, ...] = ()
    """Full names of its mirrors that are not stopped."""

    @property
    def address(self) -> Address:
        """What it is called."""
        return address_of("link", self.cluster, self.seen.name)

    @property
    def live(self) -> int:
        """How many of its mirrors are not stopped: while there are some it cannot be deleted (F-C-090)."""
        return sum(count for status, count in self.mirrors.items() if status is not MirrorStatus.STOPPED)

    @property
    def legal(self) -> tuple[str, ...]:
        """The verbs that may be asked for in its state."""
        return ("resume" if self.seen.declared.spec.paused else "pause", *(() if self.live else ("delete",)))


@dataclass(frozen=True, slots=True)
class LinkList:
    """Links by cluster and name."""

    rows: tuple[LinkRow, ...]
    lost: Mapping[str, ReconcilerError]
    """Clusters whose links are not known, and why."""

    @property
    def verdict(self) -> ReconcilerError | None:
        """The error to end with, where a cluster could not be read."""
        return verdict_on(self.lost)


def list_links(reach: SiteOptions, clusters: Sequence[str]) -> LinkList:
    """Return the links of clusters, by default of all.

    Raises:
        UserError: A cluster is not in this workspace.
    """
    site = reach.site(is_reader=True)
    names = tuple(sorted({name.removeprefix("cluster/") for name in clusters})) or tuple(sorted(site.clusters))
    for name in names:
        site.providers[name]  # says which there are
    recorded = reach.recorded(site)
    found, lost = ask_each(names, lambda name: _rows(site, name) if stands(site, name, recorded) else ())
    return LinkList(tuple(row for name in sorted(found) for row in found[name]), lost)


def describe_links(reach: SiteOptions, texts: Sequence[str]) -> tuple[LinkRow, ...]:
    """Return the links that addresses and patterns name.

    Raises:
        UserError: One is not there, or a pattern matches nothing.
        RetryableError: A cluster cannot be reached.
    """
    check_links_typed(texts)
    site = reach.site(is_reader=True)
    recorded = reach.recorded(site)
    links = _Links.read(site, texts, lambda name: stands(site, name, recorded))
    return tuple(links.row(address) for address in links.chosen(texts))


def _rows(site: Site, cluster: str) -> tuple[LinkRow, ...]:
    links = site.providers[cluster].links
    if links is None:
        return ()
    mirrors: dict[str, Counter[MirrorStatus]] = {}
    names: dict[str, list[str]] = {}
    for mirror in links.mirrors():
        mirrors.setdefault(mirror.link, Counter())[mirror.status] += 1
        if mirror.status is not MirrorStatus.STOPPED:
            names.setdefault(mirror.link, []).append(mirror.name)
    return tuple(
        LinkRow(cluster, seen, mirrors.get(seen.name, {}), tuple(sorted(names.get(seen.name, ()))))
        for seen in links.links()
    )


def check_links_typed(texts: Sequence[str]) -> None:
    """Refuse what names no link, before anything is opened.

    Raises:
        UsageError: Nothing was named, or one is no address of a link.
    """
    if not texts:
        raise UsageError("no links were named", hint="For example link/east/twin, or 'link/east/*'.")
    for text in texts:
        link_named(text)


def chosen_links(
    site: Site, texts: Sequence[str], recorded: Callable[[], Mapping[Address, str | None]]
) -> dict[Address, bool]:
    """Return the links that addresses and patterns name, each with whether an address names it.

    Only patterns ask clusters. `recorded`: which clusters these should be; it is said which ones patterns leave out.

    Raises:
        UserError: A pattern matches no link.
        RetryableError: A cluster that a pattern may be about cannot be reached.
    """
    patterns = [text for text in texts if _ANY in text]
    links = _Links.read(site, patterns, lambda name: site.providers[name].identify() is not None)
    warn_of_absent(site, links.absent, recorded, patterns)
    return {address: address in texts for address in links.chosen(texts)}


@dataclass(frozen=True)
class _Links:
    """The links of the clusters that are meant, by address."""

    rows: Mapping[Address, LinkRow]
    absent: frozenset[str]
    """Clusters that were never made."""
    site: Site

    @classmethod
    def read(cls, site: Site, texts: Sequence[str], is_there: Callable[[str], bool]) -> _Links:
        """Ask as few clusters as addresses and patterns allow, all at once: one may not answer today.

        Raises:
            UserError: A cluster is not known here.
            RetryableError: One cannot be reached.
        """
        names = clusters_meant(site, texts)
        read = side_by_side(lambda name: _rows(site, name) if is_there(name) else None, names, name="links")
        found = dict(zip(names, read, strict=True))
        rows = {row.address: row for each in found.values() for row in each or ()}
        return cls(rows, frozenset(name for name, each in found.items() if each is None), site)

    def chosen(self, texts: Sequence[str]) -> tuple[Address, ...]:
        """Return the addresses that are meant, each once; whether one that was named itself is there is not asked.

        Raises:
            UserError: A pattern matches no link.
        """
        return tuple(dict.fromkeys(each for text in texts for each in self._matching(text)))

    def row(self, address: Address) -> LinkRow:
        """Return a link.

        Raises:
            UserError: It is not there.
        """
        if address in self.rows:
            return self.rows[address]
        cluster = cluster_of(address) or ""
        if cluster in self.absent:
            raise absent_cluster(self.site.clusters[cluster])
        known = ", ".join(sorted(self.rows)) or "none"
        hint = did_you_mean(nearest_spelling(address, self.rows), otherwise=f"Links there: {known}.")
        raise NotFoundError(f"{address}: there is no such link", hint=hint)

    def _matching(self, text: str) -> tuple[Address, ...]:
        if _ANY not in text:
            return (Address(text),)
        found = tuple(address for address in sorted(self.rows) if matches(text, address))
        if not found:
            raise UserError(f"no link matches {text}: nothing was done", hint=_LIST)
        return found
