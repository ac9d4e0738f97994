"""`mirror list`, `describe` and `errors`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from reconciler.errors import NotFoundError, ReconcilerError, RetryableError, UsageError
from reconciler.lifecycles import MirrorStatus
from reconciler.operations.clusters.mounts import query_clusters, unread_clusters_error
from reconciler.operations.steps.observe import absent_cluster_error, check_cluster_exists
from reconciler.planning.diff.mirror_orders import find_legal_verbs
from reconciler.providers.protocol import require_links
from reconciler.resources.address import Address, address_of, cluster_of, full_name_of, kind_of
from reconciler.resources.mirrors import NEVER_FETCHED, ObservedLink, ObservedMirror, Position, Trouble
from reconciler.runtime.dataclass import dataclass, field
from reconciler.runtime.text import find_similar_spelling, format_suggestion

if TYPE_CHECKING:
    from reconciler.operations.steps.runner import SiteOptions
    from reconciler.operations.steps.workspace import Site
    from reconciler.providers.protocol_links import Links


_ADDRESS_PARTS = 3


class MirrorName(NamedTuple):
    """Cluster and full name of a mirror."""

    cluster: str
    name: str

    @property
    def address(self) -> Address:
        """Address of the mirror."""
        return address_of("mirror", self.cluster, self.name)


def parse_mirror_address(text: str) -> MirrorName:
    """Parse the address of a mirror, or of the topic that a promoted mirror became."""
    address = Address(text)
    parts = text.split("/", _ADDRESS_PARTS - 1)
    if kind_of(address) not in {"mirror", "topic"} or len(parts) < _ADDRESS_PARTS or not all(parts):
        raise UsageError(f"{text!r} is not the address of a mirror", hint="Write it as mirror/east/shop:eu:orders.")
    return MirrorName(cluster_of(address) or "", full_name_of(address))


def parse_mirror_addresses(texts: Iterable[str]) -> list[MirrorName]:
    """Parse mirror addresses, in order and without duplicates."""
    return list(dict.fromkeys(map(parse_mirror_address, texts)))


def find_mirror(links: Links, named: MirrorName) -> ObservedMirror:
    """Return a mirror. Raises `NotFoundError` with similar names."""
    try:
        return links.read_mirror(named.name)
    except NotFoundError as error:
        near = find_similar_spelling(
            named.address, [MirrorName(named.cluster, mirror.name).address for mirror in links.list_mirrors()]
        )
        hint = format_suggestion(near, then=f"See the mirrors with: reconciler mirror list {named.cluster}")
        raise NotFoundError(f"{named.address}: {error.message}", hint=hint) from error


def find_other_source_cluster(site: Site, cluster: str, name: str) -> str | None:
    """Return the source cluster's id if it changed since the link's creation, or `None`."""
    link = next((link for link in require_links(site.providers[cluster]).list_links() if link.name == name), None)
    if link is None or link.source_cluster_id is None:
        return None
    identity = site.providers[link.declared.spec.source].identify()
    return None if identity is None or identity.cluster_id == link.source_cluster_id else identity.cluster_id


MAX_MEASURED_PARTITIONS: Final = 1_000


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """Offsets and lag of a mirror's partition."""

    partition: int
    end: int
    """Next offset of the mirror."""
    lag: int | None
    """Source end minus mirror end; `null` if unknown, or if the mirror does not copy its source."""
    fetched: int
    """Last copied source offset; -1 if none."""


@dataclass(frozen=True, slots=True)
class MirrorRow:
    """A mirror with its lag. `partitions` is empty if unmeasured."""

    seen: ObservedMirror
    partitions: tuple[PartitionLag, ...] = ()
    legal: tuple[str, ...] = ()

    @property
    def address(self) -> Address:
        """Address of the mirror."""
        return address_of("mirror", self.seen.cluster, self.seen.name)

    @property
    def max_lag(self) -> int | None:
        """Lag of the slowest partition; `null` if unknown."""
        lags = [partition_lag.lag for partition_lag in self.partitions if partition_lag.lag is not None]
        return max(lags) if lags and len(lags) == len(self.partitions) else None


@dataclass(frozen=True, slots=True)
class MirrorList:
    """Mirrors by cluster and name."""

    rows: tuple[MirrorRow, ...]
    lost: Mapping[str, ReconcilerError]
    clusters: tuple[str, ...] = ()

    @property
    def verdict(self) -> ReconcilerError | None:
        """Error for an unreadable cluster."""
        return unread_clusters_error(self.lost)


@dataclass(frozen=True, slots=True)
class MirrorError:
    """An error of a link, task or mirror."""

    cluster: str
    link: str
    trouble: Trouble
    mirror: str | None = None
    task: str | None = None


@dataclass(frozen=True, slots=True)
class MirrorErrors:
    """Errors by cluster, link and mirror."""

    errors: tuple[MirrorError, ...]
    lost: Mapping[str, ReconcilerError]

    @property
    def verdict(self) -> ReconcilerError | None:
        """Error for an unreadable cluster."""
        return unread_clusters_error(self.lost)


@dataclass
class LagReader:
    """Measures lags of mirrors. An unresponsive source is queried only once."""

    site: Site
    _unreachable: set[str] = field(default_factory=set)
    _replaced_sources: dict[tuple[str, str], bool] = field(default_factory=dict)

    def measure(self, seen: ObservedMirror, own: Mapping[int, Position] | None = None) -> tuple[PartitionLag, ...]:
        """Return the offsets and lag of a mirror's partitions."""
        if own is None:
            own = require_links(self.site.providers[seen.cluster]).read_positions(seen.name)
        return compute_lags(own, {} if seen.status is MirrorStatus.STOPPED else self.read_source_positions(seen))

    def read_source_positions(self, seen: ObservedMirror) -> Mapping[int, Position]:
        """Return the positions of the source's partitions; empty if unreadable."""
        if seen.source_cluster in self._unreachable or seen.source_cluster not in self.site.clusters:
            return {}
        try:
            if self._is_source_replaced(seen):
                return {}
            provider = self.site.providers[seen.source_cluster]
            source = provider.read_source_topic(address_of("topic", seen.source_cluster, seen.source))
            if seen.source_topic_id not in {None, source.incarnation}:
                return {}
            return require_links(provider).read_positions(seen.source)
        except RetryableError:
            self._unreachable.add(seen.source_cluster)
            return {}
        except ReconcilerError:
            return {}

    def _is_source_replaced(self, seen: ObservedMirror) -> bool:
        key = seen.cluster, seen.link
        if key not in self._replaced_sources:
            self._replaced_sources[key] = find_other_source_cluster(self.site, *key) is not None
        return self._replaced_sources[key]


def list_mirrors(reach: SiteOptions, clusters: Sequence[str], link: str | None = None) -> MirrorList:
    """Return mirrors of these clusters, or of all; optionally of one link."""
    site = reach.open_site(is_reader=True)
    names = _select_clusters(site, clusters)
    mirrors, lost = _read_mirrors(reach, site, names)
    wanted = [seen for name in sorted(mirrors) for seen in mirrors[name] if link is None or seen.link == link]
    return MirrorList(tuple(measure_lags(site, wanted)), lost, names)


def describe_mirrors(reach: SiteOptions, addresses: Sequence[str]) -> tuple[MirrorRow, ...]:
    """Return mirrors with their partitions."""
    site = reach.open_site(is_reader=True)
    lags = LagReader(site)
    seen_mirrors = [_require_mirror(reach, site, named) for named in parse_mirror_addresses(addresses)]
    roles = {seen.cluster: site.providers[seen.cluster].capabilities.mirrors.roles for seen in seen_mirrors}
    links = {
        (name, link.name): link.declared.spec
        for name in roles
        for link in require_links(site.providers[name]).list_links()
    }
    return tuple(
        MirrorRow(
            seen,
            lags.measure(seen),
            find_legal_verbs(seen.status, roles[seen.cluster], links.get((seen.cluster, seen.link))),
        )
        for seen in seen_mirrors
    )


def read_mirror_errors(reach: SiteOptions, addresses: Sequence[str]) -> MirrorErrors:
    """Return errors of the named mirrors and links, or all."""
    site = reach.open_site(is_reader=True)
    links = [Address(address) for address in addresses if kind_of(Address(address)) == "link"]
    mirrors = parse_mirror_addresses(text for text in addresses if kind_of(Address(text)) != "link")
    named = {(mirror.cluster, _require_mirror(reach, site, mirror).link) for mirror in mirrors}
    named |= {(cluster_of(address) or "", full_name_of(address)) for address in links}
    names = _select_clusters(site, sorted({cluster for cluster, _ in named}) if addresses else ())
    recorded = reach.read_recorded_ids(site)
    links_by_cluster: dict[str, Sequence[ObservedLink]] = {}

    def read_cluster(name: str) -> list[MirrorError]:
        links_by_cluster[name] = ()
        its = site.providers[name].links if check_cluster_exists(site, name, recorded) else None
        if its is None:
            return []
        links_by_cluster[name] = its.list_links()
        return [*_list_link_errors(name, links_by_cluster[name]), *_list_mirror_errors(its.list_mirrors())]

    errors_by_cluster, lost = query_clusters(names, read_cluster)
    _check_links_exist(links, {name: links_by_cluster[name] for name in errors_by_cluster})
    mirror_addresses = {mirror.address for mirror in mirrors}
    selected = [
        error
        for name in sorted(errors_by_cluster)
        for error in errors_by_cluster[name]
        if not addresses
        or _is_about(error, named, mirror_addresses, {(cluster_of(link), full_name_of(link)) for link in links})
    ]
    return MirrorErrors(tuple(sorted(selected, key=_sort_key)), lost)


def _check_links_exist(named: Iterable[Address], links_by_cluster: Mapping[str, Sequence[ObservedLink]]) -> None:
    known = sorted(
        address_of("link", cluster, link.name) for cluster, links in links_by_cluster.items() for link in links
    )
    for address in named:
        if cluster_of(address) in links_by_cluster and address not in known:
            otherwise = f"Links there: {', '.join(known) or 'none'}."
            hint = format_suggestion(find_similar_spelling(address, known), otherwise=otherwise)
            raise NotFoundError(f"{address}: there is no such link", hint=hint)


def _sort_key(error: MirrorError) -> tuple[str, str, str, str]:
    return error.cluster, error.link, error.mirror or "", error.task or ""


def _is_about(
    error: MirrorError, named: set[tuple[str, str]], mirrors: set[Address], links: set[tuple[str | None, str]]
) -> bool:
    place = error.cluster, error.link
    if error.mirror is None:
        return place in named
    return place in links or MirrorName(error.cluster, error.mirror).address in mirrors


def _list_link_errors(cluster: str, links: Iterable[ObservedLink]) -> Iterator[MirrorError]:
    for link in links:
        if link.trouble is not None:
            yield MirrorError(cluster, link.name, link.trouble)
        for task, trouble in link.tasks.items():
            yield MirrorError(cluster, link.name, trouble, task=task)


def _list_mirror_errors(mirrors: Iterable[ObservedMirror]) -> Iterator[MirrorError]:
    for seen in mirrors:
        if seen.trouble is not None:
            yield MirrorError(seen.cluster, seen.link, seen.trouble, mirror=seen.name)


def _select_clusters(site: Site, names: Sequence[str]) -> tuple[str, ...]:
    unique_names = tuple(sorted({name.removeprefix("cluster/") for name in names})) or tuple(sorted(site.clusters))
    for name in unique_names:
        site.providers[name]
    return unique_names


def _read_mirrors(
    reach: SiteOptions, site: Site, names: Sequence[str]
) -> tuple[dict[str, Sequence[ObservedMirror]], dict[str, ReconcilerError]]:
    recorded = reach.read_recorded_ids(site)

    def read_cluster(name: str) -> Sequence[ObservedMirror]:
        links = site.providers[name].links if check_cluster_exists(site, name, recorded) else None
        return [] if links is None else links.list_mirrors()

    return query_clusters(names, read_cluster)


def _require_mirror(reach: SiteOptions, site: Site, named: MirrorName) -> ObservedMirror:
    site.providers[named.cluster]
    is_present, lost = query_clusters(
        [named.cluster], lambda name: check_cluster_exists(site, name, reach.read_recorded_ids(site))
    )
    if (verdict := unread_clusters_error(lost)) is not None:
        raise verdict
    if not is_present[named.cluster]:
        raise absent_cluster_error(site.clusters[named.cluster])
    return find_mirror(require_links(site.providers[named.cluster]), named)


def measure_lags(site: Site, mirrors: Sequence[ObservedMirror]) -> Iterator[MirrorRow]:
    """Yield mirrors with lags. Beyond the limit of partitions, lags are unmeasured."""
    left, measured, names = MAX_MEASURED_PARTITIONS, set[ObservedMirror](), dict[str, list[str]]()
    for seen in mirrors:
        if seen.partitions <= left:
            left -= seen.partitions
            measured.add(seen)
            names.setdefault(seen.cluster, []).append(seen.name)
    positions: dict[str, Mapping[str, Mapping[int, Position]]] = {}
    for cluster, of_cluster in names.items():
        with suppress(ReconcilerError):  # Mirrors are read one by one then.
            positions[cluster] = require_links(site.providers[cluster]).read_positions_of_topics(of_cluster)
    lags = LagReader(site)
    for seen in mirrors:
        partitions: tuple[PartitionLag, ...] = ()
        if seen in measured:
            with suppress(ReconcilerError):
                partitions = lags.measure(seen, positions.get(seen.cluster, {}).get(seen.name))
        yield MirrorRow(seen, partitions)


def compute_lags(own: Mapping[int, Position], source: Mapping[int, Position]) -> tuple[PartitionLag, ...]:
    """Return each partition's lag."""
    return tuple(_compute_partition_lag(partition, position, source) for partition, position in sorted(own.items()))


def _compute_partition_lag(partition: int, position: Position, source: Mapping[int, Position]) -> PartitionLag:
    source_position = source.get(partition)
    source_end = position.source_end if source_position is None else source_position.end
    behind = None if source_end is None else max(0, source_end - position.end)
    return PartitionLag(partition, position.end, behind, max(position.fetched - 1, NEVER_FETCHED))
