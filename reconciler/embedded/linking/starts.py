"""Where a mirror begins: where its source does, while its link syncs retention. What expired there goes here, too.

The mirror's own retention leaves it alone then (`upkeep/cleanup.py`): both would keep different records otherwise, for
their clocks, segments and sizes are their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.embedded.catalog.lookups import topic_named
from reconciler.embedded.catalog.syncing import follows_starts
from reconciler.embedded.partition.head import read_borders, read_head
from reconciler.embedded.partition.headswaps import Partition
from reconciler.embedded.remote.leaving.retaining import TieredPartition
from reconciler.embedded.remote.storagefile import check_given
from reconciler.embedded.remote.tier import remote_tier
from reconciler.embedded.threads import all_side_by_side
from reconciler.embedded.upkeep.cleanup import cleanup_policy
from reconciler.embedded.upkeep.retention import raise_start

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.embedded.admin import Admin


def follow_starts(cluster: Admin, full_name: str, starts: Mapping[int, int]) -> None:
    """Let partitions of a mirror begin where those of its source do, as far as they reach; none begins earlier again.

    Where its link does not sync retention, and once its mirroring is over, nothing is done.

    Raises:
        UserError: There is no such topic, or its object storage is not at hand.
        OwnershipLostError: Its remote part belongs to another cluster now.
        LostRaceError: Others were faster every time.
    """
    catalog = cluster.catalog.read()
    topic = topic_named(catalog, full_name)
    if not follows_starts(catalog, topic):
        return
    later = {number: start for number, start in starts.items() if start}
    heads = read_borders(cluster.store, topic.id, later)
    behind = sorted(number for number, head in heads.items() if head.start < min(later[number], head.bounds.stable))
    policy = cleanup_policy(catalog, full_name, cluster.cluster_id)
    remote = None
    if behind and policy.tiering is not None:
        check_given(cluster.storage, catalog.cluster.storage_id)
        remote = remote_tier(cluster.storage, cluster.cluster_id, catalog.cluster)

    def follow(number: int) -> None:
        partition = Partition(full_name, topic.id, number)
        if policy.tiering is None:
            raise_start(cluster.store, partition, later[number], policy.limits)
            return
        head = read_head(cluster.store, topic.id, number)
        if head is not None:
            tier = TieredPartition(cluster.store, partition, policy, policy.tiering, remote)
            tier.expire(*tier.sound(head), later[number])

    all_side_by_side(follow, behind, name="starts")
