"""`mirror list`, `describe` and `errors`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from reconciler.errors import (
    NotFoundError,
    ReconcilerError,
    RetryableError,
    UsageError,
)
from reconciler.lifecycles import MirrorStatus
from reconciler.operations.clusters.mounts import ask_each, verdict_on
from reconciler.operations.steps.observe import absent_cluster, stands
from reconciler.planning.diff.mirror_orders import legal_verbs
from reconciler.providers.protocol import links_of
from reconciler.resources.address import Address, address_of, cluster_of, full_name_of, kind_of
from reconciler.resources.mirrors import NEVER_FETCHED, LinkSeen, MirrorSeen, Position, Trouble
from reconciler.runtime.text import did_you_mean, nearest_spelling

if TYPE_CHECKING:
    from reconciler.operations.steps.runner import SiteOptions
    from reconciler.operations.steps.workspace import Site
    from reconciler.providers.protocol_links import Links


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


def find_mirror(links: Links, named: Named) -> MirrorSeen:
    """Return a mirror as its cluster has it.

    Raises:
        UserError: There is no such topic, or it is not mirrored; says what comes nearest.
    """
    try:
        return links.mirror(named.name)
    except NotFoundError as error:
        near = nearest_spelling(named.address, [Named(named.cluster, each.name).address for each in links.mirrors()])
        hint = did_you_mean(near, then=f"See the mirrors with: reconciler mirror list {named.cluster}")
        raise NotFoundError(f"{named.address}: {error.message}", hint=hint) from error


def another_cluster(site: Site, cluster: str, name: str) -> str | None:
    """Return the cluster at the place of a link's source, where that is not the one the link was made to.

    Raises:
        RetryableError: It does not answer.
    """
    link = next((link for link in links_of(site.providers[cluster]).links() if link.name == name), None)
    if link is None or link.source_cluster_id is None:
        return None  # It has not met its source yet.
    found = site.providers[link.declared.spec.source].identify()
    return None if found is None or found.cluster_id == link.source_cluster_id else found.cluster_id


# `mirror list`, `describe` and `errors`: mirrors as their clusters have them, and how far they are behind.


MEASURED_AT_MOST: Final = 1_000
"""So many partitions are looked at for a list: a look at each, on both sides."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of a mirror."""

    partition: int
    end: int
    """Next offset of the mirror."""
    lag: int | None
    """Source end - mirror end. Null: the source does not say, or is followed no more."""
    fetched: int
    """-1: nothing was ever copied."""


@dataclass(frozen=True, slots=True)
class MirrorRow:
    """A mirror, and how far behind it is; no partitions: it was not measured."""

    seen: MirrorSeen
    partitions: tuple[PartitionLag, ...] = ()
    legal: tuple[str, ...] = ()
    """The verbs that may be asked for in its state, where that was looked up."""

    @property
    def address(self) -> Address:
        """What it is called."""
        return address_of("mirror", self.seen.cluster, self.seen.name)

    @property
    def max_lag(self) -> int | None:
        """Of its slowest partition. Null: not measured, or unknown."""
        lags = [each.lag for each in self.partitions if each.lag is not None]
        return max(lags) if lags and len(lags) == len(self.partitions) else None


@dataclass(frozen=True, slots=True)
class MirrorList:
    """Mirrors by cluster and name."""

    rows: tuple[MirrorRow, ...]
    lost: Mapping[str, ReconcilerError]
    """Clusters whose mirrors are not known, and why."""
    clusters: tuple[str, ...] = ()
    """Those that were asked."""

    @property
    def verdict(self) -> ReconcilerError | None:
        """The error to end with, where a cluster could not be read."""
        return verdict_on(self.lost)


@dataclass(frozen=True, slots=True)
class MirrorError:
    """What is wrong with a link, with one of its tasks, or with one of its mirrors."""

    cluster: str
    link: str
    trouble: Trouble
    mirror: str | None = None
    """Null: it is not of one mirror."""
    task: str | None = None
    """Null: it is not of a task."""


@dataclass(frozen=True, slots=True)
class MirrorErrors:
    """What is wrong, by cluster, link and mirror."""

    errors: tuple[MirrorError, ...]
    lost: Mapping[str, ReconcilerError]

    @property
    def verdict(self) -> ReconcilerError | None:
        """The error to end with, where a cluster could not be read."""
        return verdict_on(self.lost)


@dataclass
class Lags:
    """How far mirrors are behind; a source that does not answer is asked once."""

    site: Site
    _away: set[str] = field(default_factory=set)
    _elsewhere: dict[tuple[str, str], bool] = field(default_factory=dict)
    """By cluster and link, whether another cluster lies at the place of its source."""

    def of(self, seen: MirrorSeen) -> tuple[PartitionLag, ...]:
        """Return where the partitions of a mirror stand."""
        own = links_of(self.site.providers[seen.cluster]).positions(seen.name)
        return lags_between(own, {} if seen.status is MirrorStatus.STOPPED else self.source_of(seen))

    def source_of(self, seen: MirrorSeen) -> Mapping[int, Position]:
        """Return where the partitions of its source stand; nothing where that cannot be asked."""
        if seen.source_cluster in self._away or seen.source_cluster not in self.site.clusters:
            return {}
        try:
            if self._is_elsewhere(seen):
                return {}  # What lies there now says nothing of what was copied.
            provider = self.site.providers[seen.source_cluster]
            source = provider.source_topic(address_of("topic", seen.source_cluster, seen.source))
            if seen.source_topic_id not in {None, source.incarnation}:
                return {}  # Nor does a topic that was made anew.
            return links_of(provider).positions(seen.source)
        except RetryableError:
            self._away.add(seen.source_cluster)
            return {}
        except ReconcilerError:
            return {}  # The source topic is not there; its mirror says so itself.

    def _is_elsewhere(self, seen: MirrorSeen) -> bool:
        key = seen.cluster, seen.link
        if key not in self._elsewhere:
            self._elsewhere[key] = another_cluster(self.site, *key) is not None
        return self._elsewhere[key]


def list_mirrors(reach: SiteOptions, clusters: Sequence[str], link: str | None = None) -> MirrorList:
    """Return the mirrors of clusters, by default of all, or those of one link.

    Raises:
        UserError: A cluster is not in this workspace.
    """
    site = reach.site(is_reader=True)
    names = _clusters(site, clusters)
    found, lost = _mirrors(reach, site, names)
    wanted = [seen for name in sorted(found) for seen in found[name] if link is None or seen.link == link]
    return MirrorList(tuple(measured(site, wanted)), lost, names)


def describe_mirrors(reach: SiteOptions, addresses: Sequence[str]) -> tuple[MirrorRow, ...]:
    """Return mirrors, each with its partitions.

    Raises:
        UserError: One is not there, or is not mirrored.
        RetryableError: A cluster cannot be reached.
    """
    site = reach.site(is_reader=True)
    lags = Lags(site)
    found = [_found(reach, site, named) for named in mirrors_named(addresses)]
    roles = {seen.cluster: site.providers[seen.cluster].capabilities.mirrors.roles for seen in found}
    links = {(name, link.name): link.declared.spec for name in roles for link in links_of(site.providers[name]).links()}
    return tuple(
        MirrorRow(
            seen,
            lags.of(seen),
            legal_verbs(seen.status, roles[seen.cluster], links.get((seen.cluster, seen.link))),
        )
        for seen in found
    )


def mirror_errors(reach: SiteOptions, addresses: Sequence[str]) -> MirrorErrors:
    """Return what is wrong with links, their tasks and their mirrors: of all, or of the mirrors and links named.

    Raises:
        UserError: A mirror or link that was named is not there.
    """
    site = reach.site(is_reader=True)
    links = [Address(each) for each in addresses if kind_of(Address(each)) == "link"]
    mirrors = mirrors_named(each for each in addresses if kind_of(Address(each)) != "link")
    named = {(each.cluster, _found(reach, site, each).link) for each in mirrors}
    named |= {(cluster_of(each) or "", full_name_of(each)) for each in links}
    names = _clusters(site, sorted({cluster for cluster, _ in named}) if addresses else ())
    recorded = reach.recorded(site)
    there: dict[str, Sequence[LinkSeen]] = {}

    def look(name: str) -> list[MirrorError]:
        there[name] = ()
        its = site.providers[name].links if stands(site, name, recorded) else None
        if its is None:
            return []
        there[name] = its.links()
        return [*_of_links(name, there[name]), *_of_mirrors(its.mirrors())]

    found, lost = ask_each(names, look)
    _check_links(links, {name: there[name] for name in found})
    asked = {each.address for each in mirrors}
    errors = [
        error
        for name in sorted(found)
        for error in found[name]
        if not addresses or _is_asked(error, named, asked, {(cluster_of(each), full_name_of(each)) for each in links})
    ]
    return MirrorErrors(tuple(sorted(errors, key=_place)), lost)


def _check_links(named: Iterable[Address], there: Mapping[str, Sequence[LinkSeen]]) -> None:
    """Refuse a link that its cluster, which answers, does not have: nothing is known of what is wrong with it."""
    known = sorted(address_of("link", cluster, link.name) for cluster, links in there.items() for link in links)
    for address in named:
        if cluster_of(address) in there and address not in known:
            otherwise = f"Links there: {', '.join(known) or 'none'}."
            hint = did_you_mean(nearest_spelling(address, known), otherwise=otherwise)
            raise NotFoundError(f"{address}: there is no such link", hint=hint)


def _place(error: MirrorError) -> tuple[str, str, str, str]:
    return error.cluster, error.link, error.mirror or "", error.task or ""


def _is_asked(
    error: MirrorError,
    named: set[tuple[str, str]],
    mirrors: set[Address],
    links: set[tuple[str | None, str]],
) -> bool:
    """Tell whether an error is of what was named: of a link all, of a mirror what keeps it from going on."""
    place = error.cluster, error.link
    if error.mirror is None:
        return place in named
    return place in links or Named(error.cluster, error.mirror).address in mirrors


def _of_links(cluster: str, links: Iterable[LinkSeen]) -> Iterator[MirrorError]:
    for link in links:
        if link.trouble is not None:
            yield MirrorError(cluster, link.name, link.trouble)
        for task, trouble in link.tasks.items():
            yield MirrorError(cluster, link.name, trouble, task=task)


def _of_mirrors(mirrors: Iterable[MirrorSeen]) -> Iterator[MirrorError]:
    for seen in mirrors:
        if seen.trouble is not None:
            yield MirrorError(seen.cluster, seen.link, seen.trouble, mirror=seen.name)


def _clusters(site: Site, names: Sequence[str]) -> tuple[str, ...]:
    given = tuple(sorted({name.removeprefix("cluster/") for name in names})) or tuple(sorted(site.clusters))
    for name in given:
        site.providers[name]  # says which there are
    return given


def _mirrors(
    reach: SiteOptions, site: Site, names: Sequence[str]
) -> tuple[dict[str, Sequence[MirrorSeen]], dict[str, ReconcilerError]]:
    recorded = reach.recorded(site)

    def look(name: str) -> Sequence[MirrorSeen]:
        links = site.providers[name].links if stands(site, name, recorded) else None
        return [] if links is None else links.mirrors()

    return ask_each(names, look)


def _found(reach: SiteOptions, site: Site, named: Named) -> MirrorSeen:
    site.providers[named.cluster]  # says which there are
    found, lost = ask_each([named.cluster], lambda name: stands(site, name, reach.recorded(site)))
    if (verdict := verdict_on(lost)) is not None:
        raise verdict
    if not found[named.cluster]:
        raise absent_cluster(site.clusters[named.cluster])
    return find_mirror(links_of(site.providers[named.cluster]), named)


def measured(site: Site, mirrors: Sequence[MirrorSeen]) -> Iterator[MirrorRow]:
    """Yield mirrors with how far they are behind: as many as may be looked at, and of those that are still there."""
    lags, left = Lags(site), MEASURED_AT_MOST
    for seen in mirrors:
        partitions: tuple[PartitionLag, ...] = ()
        if seen.partitions <= left:
            left -= seen.partitions
            with suppress(ReconcilerError):  # deleted, or its cluster is away, since it was listed
                partitions = lags.of(seen)
        yield MirrorRow(seen, partitions)


def lags_between(own: Mapping[int, Position], source: Mapping[int, Position]) -> tuple[PartitionLag, ...]:
    """Return how far the partitions of a mirror are behind those of its source."""
    return tuple(_lag(partition, position, source) for partition, position in sorted(own.items()))


def _lag(partition: int, position: Position, source: Mapping[int, Position]) -> PartitionLag:
    there = source.get(partition)
    behind = None if there is None else max(0, there.end - position.end)
    return PartitionLag(partition, position.end, behind, max(position.fetched - 1, NEVER_FETCHED))
