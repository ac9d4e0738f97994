"""`mount list`: everything that can be mounted, is mounted after it was detached once, or is on its way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from reconciler.errors import ReconcilerError, UserError
from reconciler.lifecycles.mounting import MigrationState
from reconciler.resources.address import cluster_address
from reconciler.workflow.looking.overviews import stands
from reconciler.workflow.mounting.migrations import Underway
from reconciler.workflow.mounting.reaching import ask_each, clusters_named, storage_of, verdict_on

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from reconciler.resources.mountable import Mountable
    from reconciler.workflow.beginning.opening import Site
    from reconciler.workflow.mounting.reaching import Reach

Lying: TypeAlias = Literal["mountable", "mounting", "mounted", "unmounting"]

_ENDED: Final = frozenset({MigrationState.FINISHED, MigrationState.CANCELLED})
_STATES: Final[Mapping[str, Lying]] = {"detached": "mountable", "claimed": "mounting", "mounted": "mounted"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MountRow:
    """One location. Sizes are those it had when it was detached last; `None`: it never was."""

    location: str
    name: str
    """What its owner calls it; of a mountable one, the name it was made with."""
    state: Lying
    storage: str
    clusters: tuple[str, ...]
    """Those of the workspace that share the object storage: it can be mounted on any of them."""
    owner: str | None = None
    """Id of the cluster that has it, or is taking it."""
    owner_name: str | None = None
    """What the workspace calls that cluster; `None`: it is not one of the workspace."""
    partitions: int | None = None
    records: int | None = None
    bytes: int | None = None
    since_ms: int | None = None
    migrations: tuple[Underway, ...] = ()


@dataclass(frozen=True, slots=True)
class DamagedRegister:
    """A register that does not say who owns a topic."""

    storage: str
    key: str
    error: UserError


@dataclass(frozen=True, slots=True)
class MountList:
    """What the object storages of clusters have, sorted by location."""

    rows: tuple[MountRow, ...]
    damaged: tuple[DamagedRegister, ...]
    lost: Mapping[str, ReconcilerError]
    """Clusters of which nothing is known, and why."""
    storages: tuple[str, ...]

    @property
    def verdict(self) -> ReconcilerError | None:
        """The error to end with, where something could not be read."""
        if self.damaged:
            count = len(self.damaged)
            what = "1 register" if count == 1 else f"{count:,} registers"
            message = f"{what} of ownership cannot be read: who has those topics is not known"
            return UserError(message, hint=self.damaged[0].error.hint)
        return verdict_on(self.lost)


@dataclass(frozen=True, slots=True)
class _Cluster:
    """What one cluster says of itself; no id: it was never made."""

    cluster_id: str | None
    migrations: tuple[Underway, ...] = ()


def list_mounts(reach: Reach, clusters: Sequence[str]) -> MountList:
    """Return what lies in the object storage of clusters, by default of all: one row for each location.

    Raises:
        UserError: One is not in this workspace, or has no object storage.
    """
    site = reach.site(is_reader=True)
    names = clusters_named(site, clusters)
    sharing: dict[str, list[str]] = {}
    for name in names:
        sharing.setdefault(storage_of(site, name), []).append(name)
    recorded = reach.recorded(site)

    def look(name: str) -> _Cluster:
        if not stands(site, name, recorded):
            return _Cluster(None)
        provider = site.providers[name]
        identity = provider.identify()
        return _Cluster(
            None if identity is None else identity.cluster_id,
            tuple(Underway(name, each) for each in provider.migrations.under_way(is_measured=False)),
        )

    found, lost = ask_each(names, look)
    listed, unlisted = ask_each(list(sharing), lambda url: list(site.providers[sharing[url][0]].migrations.detached()))
    for url, error in unlisted.items():
        lost |= dict.fromkeys(sharing[url], error)
    owners = {cluster_id: name for name in site.clusters if (cluster_id := recorded.get(cluster_address(name)))}
    owners |= {each.cluster_id: name for name, each in found.items() if each.cluster_id}
    rows: list[MountRow] = []
    damaged: list[DamagedRegister] = []
    for url, names_here in sharing.items():
        registers, here = listed.get(url, []), tuple(names_here)
        way = [each for name in here if name in found for each in found[name].migrations]
        good = {each.location: each for _, each in registers if not isinstance(each, UserError)}
        damaged += [DamagedRegister(url, key, each) for key, each in registers if isinstance(each, UserError)]
        rows += [replace(row, storage=url, clusters=here) for row in _rows(good, way, owners)]
    return MountList(_merged(rows), tuple(damaged), lost, tuple(sharing))


def cluster_ids(site: Site, names: Iterable[str]) -> dict[str, str]:
    """Return the clusters that answer, by their id; one that does not is nobody."""
    found, _ = ask_each(list(names), lambda name: site.providers[name].identify())
    return {identity.cluster_id: name for name, identity in found.items() if identity is not None}


def _rows(
    registers: Mapping[str, Mountable], under_way: Sequence[Underway], owners: Mapping[str, str]
) -> Iterator[MountRow]:
    moving: dict[str, list[Underway]] = {}
    for each in under_way:
        if MigrationState(each.migration.state) not in _ENDED:
            for topic in each.migration.topics:
                moving.setdefault(topic.location, []).append(each)
    for location in sorted({*registers, *moving}):
        row = _row(location, registers.get(location), tuple(moving.get(location, ())))
        yield replace(row, owner_name=None if row.owner is None else owners.get(row.owner))


def _row(location: str, register: Mountable | None, moving: tuple[Underway, ...]) -> MountRow:
    full_name, cluster_id, _ = location.split("/")
    row = MountRow(location=location, name=full_name, state="mounted", storage="", clusters=(), owner=cluster_id)
    if register is not None:
        is_owned = register.state != "detached"
        row = replace(
            row,
            name=register.name if is_owned else register.full_name,
            state=_STATES[register.state],
            owner=register.owner if is_owned else None,
            partitions=register.partitions,
            records=register.records,
            bytes=register.bytes,
            since_ms=register.at_ms,
        )
    if not moving:
        return row
    first = moving[0].migration
    topic = next(topic for topic in first.topics if topic.location == location)
    return replace(
        row,
        name=topic.full_name,
        state="mounting" if first.direction == "inbound" else "unmounting",
        partitions=row.partitions if row.partitions is not None else topic.partitions,
        since_ms=first.created_ms,
        migrations=moving,
    )


def _merged(rows: Sequence[MountRow]) -> tuple[MountRow, ...]:
    """Return one row for each location: a bucket may be written in two ways, and is the same one."""
    merged: dict[MountRow, MountRow] = {}
    for row in rows:
        alike = replace(row, storage="", clusters=(), migrations=())
        there = merged.get(alike)
        merged[alike] = (
            row
            if there is None
            else replace(
                there,
                clusters=(*there.clusters, *row.clusters),
                migrations=(*there.migrations, *row.migrations),
            )
        )
    return tuple(sorted(merged.values(), key=lambda row: (row.location, row.storage)))
