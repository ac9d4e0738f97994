"""Repair findings of a check without data loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.archives.manifest import read_manifest, remote_partition
from reconciler.archives.ownership import Ownership, OwnershipState, iter_ownerships, read_ownership, unclaim_topic
from reconciler.embedded.catalog.model import NamespaceEntry, TopicEntry
from reconciler.embedded.catalog.tiering_state import get_topic_location
from reconciler.embedded.check.check_catalog import find_missing_namespaces
from reconciler.embedded.check.check_owners import (
    convert_unlinked_mirrors,
    correct_head_writers,
    find_holding_migration,
    find_stale_claims,
)
from reconciler.embedded.check.damage import CheckFinding, Kind, RepairResult
from reconciler.embedded.clients.transactions import finish_transaction
from reconciler.embedded.keys import parse_group_key, parse_head_key, parse_transaction_key
from reconciler.embedded.segments.gate import remove_partition
from reconciler.embedded.segments.groups import Group, change_group
from reconciler.errors import UserError
from reconciler.objectstore.register import restore_truncated
from reconciler.runtime.text import pluralize
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.embedded.catalog.tables import Catalog, Draft
    from reconciler.embedded.check.damage import CheckResult
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore


def release_stale_holds(cluster: EmbeddedCluster) -> list[str]:
    """Free topics that an ended migration still holds, if this cluster owns their data; return their names."""
    catalog = cluster.catalog.read()
    safe = {
        topic.id
        for name, topic in catalog.topics.items()
        if _is_stale(catalog, topic) and _is_owned_here(cluster, name)
    }
    done: list[str] = []

    def decide(draft: Draft) -> None:
        done.clear()
        for name, topic in list(draft.topics.items()):
            if topic.id in safe and _is_stale(draft, topic):
                draft.put_topic(name, replace(topic, hold=None))
                done.append(name)

    if safe:
        cluster.catalog.commit(decide)
    return sorted(done)


def release_stale_claims(cluster: EmbeddedCluster) -> list[str]:
    """Release claims of deleted migrations; return the locations."""
    remote = cluster.remote
    if remote is None:
        return []
    owned = {key: ownership for key, ownership in iter_ownerships(remote.storage) if isinstance(ownership, Ownership)}
    # The catalog is read after the registers: a migration is committed before its claim.
    left = [ownership for _, ownership in find_stale_claims(cluster.catalog.read(), cluster.cluster_id, owned)]
    for ownership in left:
        unclaim_topic(remote.storage, ownership.location, cluster.cluster_id, ownership.claim or "", cluster.now_ms())
    return sorted(str(ownership.location) for ownership in left)


def _is_stale(catalog: Catalog | Draft, topic: TopicEntry) -> bool:
    return topic.hold is not None and find_holding_migration(catalog, topic) is None


def _is_owned_here(cluster: EmbeddedCluster, full_name: str) -> bool:
    topic, remote = cluster.topic(full_name), cluster.remote
    if topic.hold is not None and not topic.hold.is_closed:
        return True  # Only a closed topic's manifests can have been released.
    if remote is None:
        return False
    location, cluster_id = get_topic_location(full_name, topic, cluster.cluster_id), cluster.cluster_id
    ownership = read_ownership(remote.storage, location)
    has_it = (
        location.cluster_id == cluster_id
        if ownership is None
        else (ownership.state, ownership.owner) == (OwnershipState.MOUNTED, cluster_id)
    )
    places = (remote_partition(location, number) for number in range(topic.partitions))
    manifests = map_in_parallel(lambda place: read_manifest(remote.storage, place), places, name="owners")
    return has_it and all(manifest is None or manifest.owner == cluster_id for manifest in manifests)


def restore_truncated_registers(
    store: ObjectStore, storage: ObjectStore | None, checked: CheckResult
) -> list[RepairResult]:
    """Restore truncated registers from the bucket's object versions."""
    done: dict[Kind, list[str]] = {}
    for finding in checked.findings:
        lies_in = store if finding.kind in _REGISTERS else storage if finding.kind in _REMOTE_REGISTERS else None
        key = finding.place.key
        if lies_in is not None and key not in done.get(finding.kind, []) and restore_truncated(lies_in, key):
            done.setdefault(finding.kind, []).append(key)
    return [
        RepairResult(kind, f"put back the last whole version of {', '.join(keys)}, where a write was cut off")
        for kind, keys in done.items()
    ]


def repair_findings(cluster: EmbeddedCluster, checked: CheckResult) -> list[RepairResult]:
    """Repair findings without data loss; return the repairs. Repeatable."""
    if checked.kinds & _OF_THE_CATALOG or checked.serial is None:
        return []
    catalog = cluster.catalog.read()
    if catalog.serial < checked.serial:
        message = f"the catalog was at commit {checked.serial} when it was checked, and is at {catalog.serial} now"
        raise UserError(
            message, hint="An older version of the catalog was restored. Nothing was repaired; check again."
        )
    by_kind: dict[Kind, list[CheckFinding]] = {}
    for finding in checked.findings:
        if finding.rule.is_mended:
            by_kind.setdefault(finding.kind, []).append(finding)
    mended = []
    for kind, step in _STEPS.items():
        findings = by_kind.get(kind)
        what = step(cluster, findings) if findings else None
        if what is not None:
            mended.append(RepairResult(kind, what))
    return mended


def _create_namespaces(cluster: EmbeddedCluster, _findings: Sequence[CheckFinding]) -> str | None:
    made: list[str] = []

    def decide(draft: Draft) -> None:
        made[:] = sorted(find_missing_namespaces(draft))
        for name in made:
            draft.put_namespace(name, NamespaceEntry())

    cluster.catalog.commit(decide)
    return f"created namespaces {', '.join(made)}" if made else None


def _finish_deletions(cluster: EmbeddedCluster, _findings: Sequence[CheckFinding]) -> str | None:
    done = cluster.finish_deletions()
    return f"finished deleting {pluralize(done, 'topic')}" if done else None


def _finish_rewrites(cluster: EmbeddedCluster, _findings: Sequence[CheckFinding]) -> str | None:
    done = cluster.finish_rewrites()
    return f"wrote {pluralize(done, 'topic')} again under the key of the namespace" if done else None


def _finish_transactions(cluster: EmbeddedCluster, findings: Sequence[CheckFinding]) -> str | None:
    names = [name for finding in findings if (name := parse_transaction_key(finding.place.key)) is not None]
    done = [name for name in names if finish_transaction(cluster.store, cluster.catalog, name, now_ms=cluster.now_ms())]
    return f"carried out what was decided of transactions {', '.join(done)}" if done else None


def _remove_stale_holds(cluster: EmbeddedCluster, _findings: Sequence[CheckFinding]) -> str | None:
    done = release_stale_holds(cluster)
    return f"released topics {', '.join(done)}, whose migration no longer exists" if done else None


def _correct_writers(cluster: EmbeddedCluster, findings: Sequence[CheckFinding]) -> str | None:
    done = correct_head_writers(cluster, findings)
    return f"gave {pluralize(done, 'partition')} to whom the catalog lets append" if done else None


def _convert_unlinked_mirrors(cluster: EmbeddedCluster, _findings: Sequence[CheckFinding]) -> str | None:
    done = convert_unlinked_mirrors(cluster)
    return (
        f"made {', '.join(done)} ordinary topics, whose mirroring has ended and whose link was deleted"
        if done
        else None
    )


def _release_stale_claims(cluster: EmbeddedCluster, _findings: Sequence[CheckFinding]) -> str | None:
    done = release_stale_claims(cluster)
    return f"gave back the claims on {', '.join(done)}" if done else None


def _sweep_objects(cluster: EmbeddedCluster, _findings: Sequence[CheckFinding]) -> str | None:
    swept = cluster.sweep()
    if not swept.objects:
        return None
    objects = pluralize(swept.objects, "object")
    return f"deleted {objects} of {swept.bytes:,} bytes that nothing referred to for a day"


def _delete_topic_heads(cluster: EmbeddedCluster, findings: Sequence[CheckFinding]) -> str | None:
    catalog = cluster.catalog.read()
    live = {entry.id for entry in catalog.topics.values()}
    deleted = 0
    for finding in findings:
        topic_id, partition = parse_head_key(finding.place.key)
        if topic_id not in live:
            remove_partition(cluster.store, topic_id, partition)
            deleted += 1
    return f"deleted {pluralize(deleted, 'partition')} of deleted topics" if deleted else None


def _drop_deleted_offsets(cluster: EmbeddedCluster, findings: Sequence[CheckFinding]) -> str | None:
    def keep_existing(group: Group) -> Group:
        # The catalog is read after the group, to include the topics of new offsets.
        return group.limit_to_topics(entry.id for entry in cluster.catalog.read().topics.values())

    names = [name for finding in findings if (name := parse_group_key(finding.place.key)) is not None]
    changed = [name for name in names if change_group(cluster.store, name, keep_existing)]
    return f"removed offsets of deleted topics from groups {', '.join(changed)}" if changed else None


_OF_THE_CATALOG: Final = frozenset(
    {Kind.CLUSTER_FILE, Kind.CATALOG_LOST, Kind.CATALOG_DAMAGED, Kind.CATALOG_CONTRADICTION, Kind.HEAD_UNKNOWN}
)
_REGISTERS: Final = frozenset(
    {Kind.CLUSTER_FILE, Kind.CATALOG_DAMAGED, Kind.HEAD_DAMAGED, Kind.GROUP_DAMAGED, Kind.TRANSACTION_DAMAGED}
)
_REMOTE_REGISTERS: Final = frozenset({Kind.MANIFEST_DAMAGED, Kind.OWNERSHIP_DAMAGED})
_STEPS: Final[dict[Kind, Callable[[EmbeddedCluster, Sequence[CheckFinding]], str | None]]] = {
    Kind.NAMESPACE_MISSING: _create_namespaces,
    Kind.DELETION_UNFINISHED: _finish_deletions,
    Kind.REWRITE_UNFINISHED: _finish_rewrites,
    Kind.TRANSACTION_UNFINISHED: _finish_transactions,
    Kind.MIRROR_LEFT_OVER: _convert_unlinked_mirrors,
    Kind.HANDOVER_UNFINISHED: _correct_writers,
    Kind.HOLD_STALE: _remove_stale_holds,
    Kind.CLAIM_LEFT: _release_stale_claims,
    Kind.HEAD_LEFT_OVER: _delete_topic_heads,
    Kind.GROUP_LEFT_OVER: _drop_deleted_offsets,
    Kind.UNNAMED: _sweep_objects,
}
"""Repairs by kind, in order: later ones remove leftovers of earlier ones."""
