"""Delete a topic's records below given offsets, in both storage tiers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from reconciler.archives.storage import check_storage_given
from reconciler.embedded.acl import Kind, Operation
from reconciler.embedded.catalog.tables import Catalog, check_not_replica, check_served, get_topic
from reconciler.embedded.segments.head import Partition, read_head, read_trimmed_heads
from reconciler.embedded.segments.retention import raise_start, read_cleanup_policy
from reconciler.embedded.tiered.remote_retention import TieredPartition
from reconciler.embedded.tiered.remote_tier import build_remote_tier
from reconciler.errors import StalePlanError, UserError
from reconciler.runtime.retry import skip_check
from reconciler.runtime.threads import run_in_parallel

if TYPE_CHECKING:
    from reconciler.embedded.admin import Admin


def trim_topic(
    cluster: Admin, full_name: str, offsets: Mapping[int, int], may_go_on: Callable[[], None] = skip_check
) -> None:
    """Delete records below `offsets`, by partition. Idempotent.

    Raises:
        UserError: The topic is a mirror, or cannot be written now.
        StalePlanError: A partition was closed while its records were deleted.
    """
    catalog = cluster.catalog.read()
    cluster.permissions.check_allowed(catalog, Operation.DELETE, Kind.TOPIC, full_name)
    topic = get_topic(catalog, full_name)
    check_not_replica(full_name, topic, "trimming it")
    check_served(full_name, topic)
    if topic.active_mirror is not None:
        raise UserError(f"topic {full_name} is a mirror: its records come from its source", hint="Trim its source.")
    raise_starts(cluster, catalog, full_name, offsets, may_go_on)
    heads = read_trimmed_heads(cluster.store, topic.id, offsets)
    left = [number for number, head in heads.items() if head.start < min(offsets[number], head.bounds.stable)]
    if left:
        message = f"topic {full_name}, partition {min(left)}: it was closed by another process; its records remain"
        raise StalePlanError(message, hint="See what holds it: reconciler mount status. Then run the command again.")


def raise_starts(
    cluster: Admin,
    catalog: Catalog,
    full_name: str,
    starts: Mapping[int, int],
    may_go_on: Callable[[], None] = skip_check,
) -> None:
    """Raise the first offsets of partitions, but not above their last stable offsets."""
    topic = get_topic(catalog, full_name)
    heads = read_trimmed_heads(cluster.store, topic.id, starts)
    behind = sorted(number for number, head in heads.items() if head.start < min(starts[number], head.bounds.stable))
    policy = read_cleanup_policy(catalog, full_name, cluster.cluster_id)
    remote = None
    if behind and policy.tiering is not None:
        check_storage_given(cluster.storage, catalog.cluster.storage_id)
        remote = build_remote_tier(cluster.storage, cluster.cluster_id, catalog.cluster)

    def raise_partition_start(number: int) -> None:
        may_go_on()
        partition = Partition(full_name, topic.id, number)
        if policy.tiering is None:
            raise_start(cluster.store, partition, starts[number], policy.limits)
            return
        head = read_head(cluster.store, topic.id, number)
        if head is not None:
            tier = TieredPartition(cluster.store, partition, policy, policy.tiering, remote)
            tier.expire_to(*tier.read_agreeing_state(head), starts[number])

    run_in_parallel(raise_partition_start, behind, name="starts")
