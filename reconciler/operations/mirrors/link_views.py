"""`link list` and `describe`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from reconciler.errors import NotFoundError, ReconcilerError, UsageError, UserError
from reconciler.lifecycles import MirrorStatus
from reconciler.operations.clusters.mounts import query_clusters, unread_clusters_error
from reconciler.operations.mirrors.mirror_selection import parse_link_address, warn_of_absent_clusters
from reconciler.operations.steps.observe import absent_cluster_error, check_cluster_exists
from reconciler.operations.steps.runner import SiteOptions
from reconciler.operations.steps.workspace import Site, list_possible_clusters
from reconciler.resources.address import Address, address_of, cluster_of, matches_pattern
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import find_similar_spelling, format_suggestion
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.resources.mirrors import ObservedLink


LinkVerb: TypeAlias = Literal["pause", "resume", "delete"]

_ANY: Final = "*"
_LIST: Final = "See the links with: reconciler link list"


@dataclass(frozen=True, slots=True)
class LinkRow:
    """A link, with its number of mirrors by state."""

    cluster: str
    """Destination cluster."""
    seen: ObservedLink
    mirrors: Mapping[MirrorStatus, int]
    names: tuple[str, ...] = ()
    can_pause: bool = True
    """Whether the platform can pause links."""

    @property
    def address(self) -> Address:
        """Address of the link."""
        return address_of("link", self.cluster, self.seen.name)

    @property
    def live(self) -> int:
        """Number of mirrors that are not stopped, and prevent deletion of the link (F-C-090)."""
        return sum(count for status, count in self.mirrors.items() if status is not MirrorStatus.STOPPED)

    @property
    def legal(self) -> tuple[str, ...]:
        """Verbs that are allowed in the current state."""
        pausing = ("resume" if self.seen.declared.spec.paused else "pause",) if self.can_pause else ()
        return (*pausing, *(() if self.live else ("delete",)))


@dataclass(frozen=True, slots=True)
class LinkList:
    """Links by cluster and name."""

    rows: tuple[LinkRow, ...]
    lost: Mapping[str, ReconcilerError]

    @property
    def verdict(self) -> ReconcilerError | None:
        """Error for an unreadable cluster."""
        return unread_clusters_error(self.lost)


def list_links(reach: SiteOptions, clusters: Sequence[str]) -> LinkList:
    """Return the links of these clusters; without names, of all."""
    site = reach.open_site(is_reader=True)
    names = tuple(sorted({name.removeprefix("cluster/") for name in clusters})) or tuple(sorted(site.clusters))
    for name in names:
        site.providers[name]
    recorded = reach.read_recorded_ids(site)
    rows_by_cluster, lost = query_clusters(
        names, lambda name: _read_rows(site, name) if check_cluster_exists(site, name, recorded) else ()
    )
    return LinkList(
        tuple(require_row for name in sorted(rows_by_cluster) for require_row in rows_by_cluster[name]), lost
    )


def describe_links(reach: SiteOptions, texts: Sequence[str]) -> tuple[LinkRow, ...]:
    """Return the links that match addresses or patterns."""
    check_link_arguments(texts)
    site = reach.open_site(is_reader=True)
    recorded = reach.read_recorded_ids(site)
    links = _LinkIndex.read(site, texts, lambda name: check_cluster_exists(site, name, recorded))
    return tuple(links.require_row(address) for address in links.select(texts))


def _read_rows(site: Site, cluster: str) -> tuple[LinkRow, ...]:
    links = site.providers[cluster].links
    if links is None:
        return ()
    mirrors: dict[str, Counter[MirrorStatus]] = {}
    names: dict[str, list[str]] = {}
    for mirror in links.list_mirrors():
        mirrors.setdefault(mirror.link, Counter())[mirror.status] += 1
        if mirror.status is not MirrorStatus.STOPPED:
            names.setdefault(mirror.link, []).append(mirror.name)
    can_pause = "paused" in site.providers[cluster].capabilities.mirrors.features
    return tuple(
        LinkRow(cluster, seen, mirrors.get(seen.name, {}), tuple(sorted(names.get(seen.name, ()))), can_pause)
        for seen in links.list_links()
    )


def check_link_arguments(texts: Sequence[str]) -> None:
    """Check the syntax of the arguments."""
    if not texts:
        raise UsageError("no links were named", hint="For example link/east/twin, or 'link/east/*'.")
    for text in texts:
        parse_link_address(text)


def select_links(
    site: Site, texts: Sequence[str], recorded: Callable[[], Mapping[Address, str | None]]
) -> dict[Address, bool]:
    """Return the selected links, with true for each that an address names.

    Only patterns query clusters. Warn if they skip a cluster in `recorded`.
    """
    patterns = [text for text in texts if _ANY in text]
    links = _LinkIndex.read(site, patterns, lambda name: site.providers[name].identify() is not None)
    warn_of_absent_clusters(site, links.absent, recorded, patterns)
    return {address: address in texts for address in links.select(texts)}


@dataclass(frozen=True)
class _LinkIndex:
    rows: Mapping[Address, LinkRow]
    absent: frozenset[str]
    site: Site

    @classmethod
    def read(cls, site: Site, texts: Sequence[str], is_there: Callable[[str], bool]) -> _LinkIndex:
        names = list_possible_clusters(site, texts)
        read = map_in_parallel(lambda name: _read_rows(site, name) if is_there(name) else None, names, name="links")
        rows_by_cluster = dict(zip(names, read, strict=True))
        rows = {
            require_row.address: require_row
            for rows_of_cluster in rows_by_cluster.values()
            for require_row in rows_of_cluster or ()
        }
        return cls(
            rows, frozenset(name for name, rows_of_cluster in rows_by_cluster.items() if rows_of_cluster is None), site
        )

    def select(self, texts: Sequence[str]) -> tuple[Address, ...]:
        return tuple(dict.fromkeys(address for text in texts for address in self._match_argument(text)))

    def require_row(self, address: Address) -> LinkRow:
        if address in self.rows:
            return self.rows[address]
        cluster = cluster_of(address) or ""
        if cluster in self.absent:
            raise absent_cluster_error(self.site.clusters[cluster])
        known = ", ".join(sorted(self.rows)) or "none"
        hint = format_suggestion(find_similar_spelling(address, self.rows), otherwise=f"Links there: {known}.")
        raise NotFoundError(f"{address}: there is no such link", hint=hint)

    def _match_argument(self, text: str) -> tuple[Address, ...]:
        if _ANY not in text:
            return (Address(text),)
        matches_of_text = tuple(address for address in sorted(self.rows) if matches_pattern(text, address))
        if not matches_of_text:
            raise UserError(f"no link matches {text}: nothing was done", hint=_LIST)
        return matches_of_text
