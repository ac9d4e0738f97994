"""A pass of `run` over a chain of clusters: what is made, copied and committed on the first reaches the last."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from reconciler.operations.mirrors.mirror_rounds import sources_first
from reconciler.resources.inventory import Observed
from reconciler.resources.mirror_link import MirrorLink
from tests.workflow.linkedshop import CLUSTER, ORDERS, TOPIC, opened, produce, upkeep, values

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.resources.inventory import Inventory

GROUP = "shop:checkout"
FOLLOWING = """\
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {name: NAME, cluster: DESTINATION}
spec:
  source: SOURCE
  mode: destination
  autoCreate: {enabled: true, filters: [{name: "*"}]}
  consumerOffsetSync: {enabled: true, interval: 1s, filters: [{name: "*"}]}
"""


def follow(bench: Bench, destination: str, source: str) -> None:
    link = FOLLOWING.replace("NAME", f"of-{source}").replace("DESTINATION", destination).replace("SOURCE", source)
    bench.write(f"manifests/{destination}-link.yaml", link)


@pytest.mark.fact("F-C-095")
@pytest.mark.parametrize("last", ["north", "asia"])
def test_one_pass_brings_topics_records_and_groups_through_a_chain(bench: Bench, last: str) -> None:
    for name in ("west", "mid", last):
        bench.write(f"manifests/{name}.yaml", CLUSTER.replace("NAME", name))
    bench.write("manifests/orders.yaml", TOPIC)
    follow(bench, "mid", "west")
    follow(bench, last, "mid")
    bench = bench.with_(environ=dict(os.environ))
    assert bench.apply().verdict is None
    produce(bench, "west", *(str(number) for number in range(50)))
    opened(bench, "west").create_topic("shop:clicks")
    with opened(bench, "west").producer() as producer:
        producer.send("shop:clicks", "c", partition=0)
    opened(bench, "west").groups.commit(GROUP, {(ORDERS, 0): 40})
    assert upkeep(bench, "mirror").verdict is None
    assert values(bench, last) == values(bench, "mid") == values(bench, "west")
    assert len(values(bench, last)) == 50
    assert [one.value for one in opened(bench, last).consume("shop:clicks")] == [b"c"]
    assert opened(bench, last).groups.committed(GROUP, [ORDERS]).get((ORDERS, 0)) == 40


CIRCLES = [
    ({"a": "b", "b": "c", "c": ""}, ["c", "b", "a"]),
    ({"east": "west", "west": "east", "north": "east"}, ["west", "east", "north"]),
    ({"a": "c", "b": "a", "c": "b"}, ["b", "c", "a"]),
    ({"a": "away", "b": "a"}, ["a", "b"]),
]


@pytest.mark.parametrize(("follows", "order"), CIRCLES)
def test_sources_come_first_and_circles_of_clusters_are_cut(follows: dict[str, str], order: list[str]) -> None:
    def links(name: str, source: str) -> Inventory:
        spec = {"metadata": {"name": "dr", "cluster": name}, "spec": {"source": source, "mode": "destination"}}
        link = MirrorLink.model_validate(spec)
        return {link.address: Observed(link)}

    assert sources_first({name: links(name, source) if source else {} for name, source in follows.items()}) == order
