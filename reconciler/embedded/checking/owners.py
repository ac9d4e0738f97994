"""Who owns what was ever detached, held against the catalog: registers `mountable/…` of object storage.

All of them are read, of whatever cluster: a topic of ours may have been released, and a claim of ours may have been
forgotten. Registers are read before the catalog, and what looks wrong is looked at again: migrations may go on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.embedded.catalog.tiering import location_of
from reconciler.embedded.checking.findings import Finding, Kind, Place
from reconciler.embedded.checking.migrations import migration_of, state_of
from reconciler.embedded.keys import MOUNTABLE, is_mountable_key, mountable_key
from reconciler.embedded.mounting.ownership import Ownership, Owning, ownership_at
from reconciler.embedded.remote.manifests.topicmanifest import read_topic_manifest
from reconciler.embedded.threads import side_by_side
from reconciler.errors import UserError
from reconciler.lifecycles.mounting import MigrationState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from reconciler.embedded.catalog.entries import TopicEntry
    from reconciler.embedded.catalog.migrationentries import MigrationEntry
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.objectstore.base import ObjectStore

_LOOKS: Final = 3
_CLAIMED: Final = frozenset({MigrationState.EXECUTED, MigrationState.CUT_OVER})
"""States of an inbound migration in which its topics are claimed, all of them."""
_OVER: Final = frozenset({MigrationState.FINISHED, MigrationState.CANCELLED, MigrationState.GONE, None})


@dataclass(frozen=True, slots=True)
class Owned:
    """What was found of registers; `lost` are the topics of the catalog, by full name, that are not ours any more."""

    findings: tuple[Finding, ...] = ()
    lost: frozenset[str] = frozenset()


def look_at_owners(storage: ObjectStore, cluster_id: str, catalog: Callable[[], Catalog | None]) -> Owned:
    """Look at every register of ownership: one listing, a GET each; again, where something is wrong.

    `catalog` reads the catalog of the cluster `cluster_id`; `None`: it cannot be read, and registers alone are judged.
    """
    found = _once(storage, cluster_id, catalog)
    for _ in range(_LOOKS - 1):
        if not found.findings:
            break
        before, found = found, _once(storage, cluster_id, catalog)
        if found == before:
            break
    return found


def _once(storage: ObjectStore, cluster_id: str, read: Callable[[], Catalog | None]) -> Owned:
    findings: list[Finding] = []
    keys: list[str] = []
    for listed in storage.list(MOUNTABLE):
        if is_mountable_key(listed.key):
            keys.append(listed.key)
        else:
            findings.append(
                Finding(Kind.FOREIGN, f"{listed.key} is no register of who owns a topic", Place(listed.key))
            )
    registers: dict[str, Ownership] = {}
    looked = side_by_side(lambda key: ownership_at(storage, key), keys, name="owners")
    for key, found in zip(keys, looked, strict=True):
        if isinstance(found, UserError):
            findings.append(Finding(Kind.OWNERSHIP_DAMAGED, found.message, Place(key)))
        elif found is not None:
            registers[key] = found
    catalog = read()
    if catalog is None:
        return Owned(tuple(findings))
    lost = dict(lost_topics(catalog, cluster_id, registers))
    findings += lost.values()
    findings += _of_claims(catalog, cluster_id, registers)
    findings += (each for each in _of_owned(catalog, cluster_id, registers) if _is_there(storage, registers, each))
    return Owned(tuple(findings), frozenset(lost))


def lost_topics(catalog: Catalog, cluster_id: str, registers: Mapping[str, Ownership]) -> Iterator[tuple[str, Finding]]:
    """Yield the topics, by full name, of which object storage says that they are not this cluster's. Pure."""
    for name, topic in catalog.topics.items():
        key = _register_of(name, topic, cluster_id)
        found = registers.get(key)
        if found is not None and not _is_ours(found, cluster_id, migration_of(catalog, topic)):
            yield name, Finding(Kind.OWNERSHIP_LOST, _whose(found, cluster_id), Place(key, name))


def _is_ours(found: Ownership, cluster_id: str, migration: MigrationEntry | None) -> bool:
    """Tell whether a register says of a topic of this cluster what it should."""
    has_it = found.state is Owning.MOUNTED and found.owner == cluster_id
    if migration is None:
        return has_it
    if migration.direction == "outbound":
        return has_it or found.claim == migration.claim
    is_claimed = found.owner == cluster_id and found.claim == migration.claim and found.state is not Owning.DETACHED
    return is_claimed or state_of(migration) not in _CLAIMED


def _whose(found: Ownership, cluster_id: str) -> str:
    match found.state:
        case Owning.DETACHED:
            return f"{found.location} was released: it lies detached, and nobody owns it"
        case Owning.CLAIMED:
            return f"{found.location} is being mounted on cluster {_named(found, cluster_id)}"
        case Owning.MOUNTED:
            return f"{found.location} is mounted on cluster {_named(found, cluster_id)}"


def _named(found: Ownership, cluster_id: str) -> str:
    whose = "this one, by another migration," if found.owner == cluster_id else str(found.owner)
    return f"{whose} as {found.name}"


def _of_claims(catalog: Catalog, cluster_id: str, registers: Mapping[str, Ownership]) -> Iterator[Finding]:
    for key, found in left_claims(catalog, cluster_id, registers):
        what = f"{found.location} is claimed by this cluster as {found.name}, and no migration of it is there"
        yield Finding(Kind.CLAIM_LEFT, what, Place(key))


def left_claims(
    catalog: Catalog, cluster_id: str, registers: Mapping[str, Ownership]
) -> Iterator[tuple[str, Ownership]]:
    """Yield the claims of this cluster, by key, that no migration of its catalog goes on with. Pure."""
    going_on = {each.claim for each in catalog.migrations.values() if state_of(each) not in _OVER}
    own = {_register_of(name, topic, cluster_id) for name, topic in catalog.topics.items()}
    for key, found in registers.items():
        is_claim = found.state is Owning.CLAIMED and found.owner == cluster_id
        if is_claim and found.claim not in going_on and key not in own:
            yield key, found


def _of_owned(catalog: Catalog, cluster_id: str, registers: Mapping[str, Ownership]) -> Iterator[Finding]:
    own = {_register_of(name, topic, cluster_id) for name, topic in catalog.topics.items()}
    doomed = {entry.location for entry in catalog.deletions.values()}
    for key, found in registers.items():
        is_ours = found.state is Owning.MOUNTED and found.owner == cluster_id
        if is_ours and key not in own and str(found.location) not in doomed:
            what = f"{found.location} is mounted here as {found.name}, and no topic of this cluster is at that location"
            yield Finding(Kind.OWNED_WITHOUT_TOPIC, what, Place(key))


def _is_there(storage: ObjectStore, registers: Mapping[str, Ownership], finding: Finding) -> bool:
    """Tell whether anything of the topic is left: where its objects went with it, its register means nothing."""
    location = registers[finding.place.key].location
    try:
        return read_topic_manifest(storage, location.cluster_id, location.revision) is not None
    except UserError:
        return True


def _register_of(full_name: str, topic: TopicEntry, cluster_id: str) -> str:
    location = location_of(full_name, topic, cluster_id)
    return mountable_key(location.topic, location.cluster_id, location.revision)
