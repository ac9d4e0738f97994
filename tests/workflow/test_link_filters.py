"""Filters of a link that take nothing of what is on its source: a warning where they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.workflow.linkedshop import CLUSTER, LINK, TOPIC, opened, produce

if TYPE_CHECKING:
    from conftest import Bench


@pytest.mark.fact("F-C-022", "F-C-040")
def test_filters_that_take_nothing_are_named_with_their_line_and_the_nearest_name(bench: Bench) -> None:
    for name in ("west", "east"):
        bench.write(f"manifests/{name}.yaml", CLUSTER.replace("NAME", name))
    bench.write("manifests/orders.yaml", TOPIC)
    assert bench.apply().verdict is None
    produce(bench, "west", "one")
    opened(bench, "west").groups.commit("checkout", {("shop:orders", 0): 1})
    syncing = (
        'autoCreate: {enabled: true, filters: [{name: "shop:ordres"}]}\n'
        "  consumerOffsetSync:\n    enabled: true\n    filters:\n      - name: chekout\n  mirrorTopics:"
    )
    bench.write(
        "manifests/link.yaml",
        LINK.replace("MODE", "destination").replace("ROLE", "mirroring").replace("mirrorTopics:", syncing),
    )
    warnings = bench.plan().plan.warnings
    assert [(each.source, each.message, each.hint) for each in warnings] == [
        (
            "manifests/link.yaml:7",
            "autoCreate filter 'shop:ordres' (literal) takes no topic of cluster west that is there",
            "Did you mean shop:orders? It takes effect if and when there is one.",
        ),
        (
            "manifests/link.yaml:11",
            "consumerOffsetSync filter 'chekout' (literal) takes no group of cluster west that is there",
            "Did you mean checkout? It takes effect if and when there is one.",
        ),
    ]


@pytest.mark.fact("F-C-097")
def test_what_never_changes_of_a_link_is_named_with_its_line(bench: Bench) -> None:
    for name in ("west", "east"):
        bench.write(f"manifests/{name}.yaml", CLUSTER.replace("NAME", name))
    bench.write("manifests/orders.yaml", TOPIC)
    link = LINK.replace("ROLE", "mirroring")
    bench.write("manifests/link.yaml", link.replace("MODE", "bidirectional").partition("  mirrorTopics")[0])
    assert bench.apply().verdict is None
    bench.write("manifests/link.yaml", link.replace("MODE", "destination").partition("  mirrorTopics")[0])
    errors = bench.plan().plan.errors
    assert [(each.source, each.message) for each in errors if each.address == "link/east/dr"] == [
        ("manifests/link.yaml:6", "mode of a link never changes ('bidirectional' → 'destination')")
    ]
