"""Count what a round with nothing new over PARTITIONS mirrored partitions asks of both clusters; print it, and seconds.

The stores are in memory and count; heads are there without records, for what they name is not looked at.
"""

import json
import sys
import time

from reconciler.embedded.segments.head import PRODUCERS, Head, build_link_writer, head_register
from tests.embedded.links.linked import LINK, Linked
from tests.operations.stage import counting, rounds

PARTITIONS_OF_A_TOPIC = 100
partitions = int(sys.argv[1])

linked = Linked()
west, east = linked.west, linked.east
linked.link("east", "west")
for number in range(partitions // PARTITIONS_OF_A_TOPIC):
    name = f"shop:orders-{number}"
    west.create_topic(name, partitions=PARTITIONS_OF_A_TOPIC)
    linked.mirror("east", "west", name)
writer = build_link_writer(east.catalog.read().links[LINK].id)
for cluster, who in ((west, PRODUCERS), (east, writer)):
    for topic in cluster.topics().values():
        for partition in range(topic.partitions):
            kept = Head(who, is_settled=True).to_json()
            head_register(cluster.store, topic.id, partition).update(lambda _held, kept=kept: kept, mark="made")

for _ in range(2):  # The first looks at all of them, the second finds how they are listed.
    rounds(linked).run_round(["east", "west"])
asked = counting(linked.stores)
fresh = rounds(linked)
for each in asked.values():
    each.clear()
began = time.perf_counter()
done = fresh.run_round(["east", "west"])
seconds = time.perf_counter() - began
looked = sum(len(one.partitions) for one in done.synced)
if done.failed or looked or any(one.error for one in done.synced):
    sys.exit(f"it was not quiet: {looked} partitions were looked at, {done.failed}")
found = {
    "lists": max(each["list"] for each in asked.values()),
    "others": sum(count for each in asked.values() for what, count in each.items() if what != "list"),
    "seconds": seconds,
}
print(json.dumps(found))
