"""A pass of `run` over a workspace with a link: records first, then the groups that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.operations.run import run_every
from reconciler.operations.steps.invocation import Select
from tests.workflow.linkedshop import LINK, ORDERS, mirroring, opened, produce, upkeep, want

if TYPE_CHECKING:
    from conftest import Bench

GROUP = "shop:checkout"
SYNCING = 'consumerOffsetSync: {enabled: true, interval: INTERVAL, filters: [{name: "*"}]}\n  mirrorTopics:'


def following(bench: Bench, interval: str = "30s", replaced: str = "") -> Bench:
    """Return the bench with a link that brings groups; its mirror has the ten records of its source."""
    bench = mirroring(bench, "destination")
    link = LINK.replace("ROLE", "mirroring").replace("MODE", "destination")
    bench.write("manifests/link.yaml", link.replace("mirrorTopics:", replaced + SYNCING.replace("INTERVAL", interval)))
    assert bench.apply().verdict is None
    return bench


def commit(bench: Bench, offset: int, topic: str = ORDERS) -> None:
    opened(bench, "west").groups.commit(GROUP, {(topic, 0): offset})


def committed(bench: Bench, topic: str = ORDERS) -> int | None:
    """Return where the group would go on reading on `east`."""
    return opened(bench, "east").groups.committed(GROUP, [topic]).get((topic, 0))


@pytest.mark.fact("F-C-040", "F-C-041")
def test_after_one_pass_groups_stand_where_they_do_at_the_source(bench: Bench) -> None:
    bench = following(bench)
    produce(bench, "west", *map(str, range(3000)))
    commit(bench, 1700)
    assert upkeep(bench, "mirror").verdict is None
    assert committed(bench) == 1700


@pytest.mark.fact("F-C-040", "F-C-023")
def test_after_one_pass_groups_stand_in_mirrors_that_it_made(bench: Bench) -> None:
    bench = following(bench, replaced='autoCreate: {enabled: true, filters: [{name: "*"}]}\n  ')
    clicks = "shop:clicks"
    opened(bench, "west").create_topic(clicks)
    with opened(bench, "west").producer() as producer:
        for number in range(100):
            producer.send(clicks, str(number), partition=0)
    commit(bench, 60, clicks)
    done = upkeep(bench, "mirror")
    assert done.verdict is None
    assert committed(bench, clicks) == 60
    assert [(each.job, each.upkept.done) for each in done.jobs if each.upkept is not None] == [("link", 2)]


@pytest.mark.fact("F-C-040")
def test_passes_of_an_interval_bring_groups_at_the_interval_of_groups(bench: Bench) -> None:
    bench = following(bench, "1h")
    commit(bench, 3)
    found = []
    for _ in run_every(bench.invocation, Select(), 0.0, only=["mirror"], report=bench.events.append, stop=bench.stop):
        found.append(committed(bench))
        commit(bench, 4)
        if len(found) == 3:
            bench.stop.request()
    assert found == [3, 3, 3]


@pytest.mark.parametrize(
    ("role", "left"), [("mirroring", {}), ("paused", {"PAUSED": 1}), ("failed-over", {"STOPPED": 1})]
)
def test_a_pass_counts_mirrors_that_it_leaves_alone(bench: Bench, role: str, left: dict[str, int]) -> None:
    bench = mirroring(bench, "destination")
    want(bench, role, "destination")
    bench.apply(Select(allow=("failover:mirror/*",)))
    assert upkeep(bench, "mirror").left == left
