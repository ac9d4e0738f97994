"""Plan over TOPICS topics of which a tenth changed and a tenth is new; print how long planning alone took."""

import sys
import time
from datetime import date

from reconciler.operations.steps.observe import pause_garbage_collection
from reconciler.planning.plan import PlanInput
from reconciler.planning.planner import assess_draft, decide_actions
from reconciler.resources.cluster import Cluster
from reconciler.resources.inventory import Capabilities, ClusterIdentity, DeclaredResource, Observed, Recorded
from reconciler.resources.topic import Topic

CLUSTER_ID = "67f5505a-32f3-4677-bcad-3c75a1a702a6"
count = int(sys.argv[1])


def topic(number: int, retention: str) -> Topic:
    return Topic.model_validate(
        {
            "kind": "Topic",
            "metadata": {"name": f"topic-{number:06d}", "cluster": "west", "labels": {"team": f"team-{number % 50}"}},
            "spec": {"partitions": 12, "configs": {"retention.ms": retention, "cleanup.policy": "delete"}},
        }
    )


west = Cluster.model_validate(
    {"kind": "Cluster", "metadata": {"name": "west"}, "spec": {"embedded": {"root": "file://.clusters/west"}}}
)
desired = {west.address: DeclaredResource(west, "manifests/cluster.yaml:1")}
recorded = {west.address: Recorded(west, incarnation=CLUSTER_ID)}
observed = {west.address: Observed(west, incarnation=CLUSTER_ID)}
for number in range(count):
    last = topic(number, "7d")
    wanted = topic(number, "14d") if number % 10 == 0 else topic(number, "7d")
    desired[wanted.address] = DeclaredResource(wanted, f"manifests/topics.yaml:{number}")
    if number % 10 != 1:
        recorded[last.address] = Recorded(last, incarnation=str(number))
        observed[last.address] = Observed(topic(number, "7d"), incarnation=str(number))

given = PlanInput(
    workspace="bench",
    capabilities={"west": Capabilities("embedded", inherits_configs=True)},
    identities={"west": ClusterIdentity("embedded", CLUSTER_ID)},
    today=date(2026, 1, 1),
    now_ms=1_767_225_600_000,
)
few = list(desired)[:100]  # what only the first plan of a process costs is paid by a small one
assess_draft(
    decide_actions(
        *({a: every[a] for a in few if a in every} for every in (desired, recorded, observed)), request=given
    ),
    {},
)
began = time.perf_counter()
with pause_garbage_collection():  # as `reconciler plan` does
    planned = assess_draft(decide_actions(desired, recorded, observed, request=given), {})
took = time.perf_counter() - began
if planned.errors or len(planned.actions) != count // 5:
    sys.exit(f"{len(planned.actions)} actions, errors {planned.errors[:3]}")
print(len(planned.actions), took)
