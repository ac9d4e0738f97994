"""What a check says of mirrors: nothing while they are at work, and what mends them where something was left."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.check.damage import CheckFinding, Kind, Severity
from reconciler.embedded.check.mend import repair_findings
from reconciler.embedded.segments.head import Head, Partition, swap_head
from tests.embedded.links.linked import ORDERS, Linked, archived, joined, mirrored
from tests.embedded.segments.test_truncation import deaths

if TYPE_CHECKING:
    from reconciler.embedded.catalog.tables import Draft


def found(linked: Linked, cluster: str = "east") -> list[CheckFinding]:
    return check_cluster(linked.stores[cluster], deep=True).findings


def mended(linked: Linked, cluster: str = "east") -> list[str]:
    return [each.what for each in repair_findings(linked.cluster(cluster), check_cluster(linked.stores[cluster]))]


def forget_link(linked: Linked) -> None:
    def forget(draft: Draft) -> None:
        draft.put_link("dr", None)

    linked.east.catalog.commit(forget)


def test_mirrors_at_work_are_no_fault() -> None:
    linked = mirrored(partitions=2)
    linked.produce("west", "next")
    linked.catch_up("east")
    assert found(linked) == found(linked, "west") == []
    linked.east.linking.start_operation(ORDERS, "failover")
    linked.produce("east", "own")
    assert found(linked) == []


@pytest.mark.parametrize("verb", ["promote", "reverse-and-start"])
def test_a_transition_that_nobody_ends_is_told_and_is_no_error(verb: str) -> None:
    linked = mirrored()
    linked.east.linking.start_operation(ORDERS, verb, operation="operation-1")
    (finding,) = found(linked)
    assert (finding.kind, finding.severity) == (Kind.TRANSITION_UNDER_WAY, Severity.NOTE)
    assert f"{verb} is in progress" in finding.what
    assert mended(linked) == []


def test_a_mirror_of_a_link_that_is_gone_is_an_error_until_it_is_failed_over() -> None:
    linked = mirrored()
    forget_link(linked)
    (finding,) = found(linked)
    assert finding.kind is Kind.LINK_MISSING
    assert "Fail it over" in finding.rule.advice
    assert mended(linked) == []
    linked.east.linking.start_operation(ORDERS, "failover")
    (finding,) = found(linked)
    assert (finding.kind, finding.severity) == (Kind.MIRROR_LEFT_OVER, Severity.WARNING)
    assert mended(linked) == [f"made {ORDERS} ordinary topics, whose mirroring has ended and whose link was deleted"]
    assert found(linked) == []
    assert linked.east.topic(ORDERS).mirror is None
    linked.produce("east", "own")
    assert len(linked.read("east")) == 11


def stop_mirror(linked: Linked) -> None:
    """Stop it as a failover does that dies before it comes to the heads."""

    def stop(draft: Draft) -> None:
        topic = draft.topics[ORDERS]
        assert topic.mirror is not None
        draft.put_topic(ORDERS, replace(topic, mirror=replace(topic.mirror, state="STOPPED")))

    linked.east.catalog.commit(stop)


def test_a_head_that_whoever_ended_mirroring_did_not_come_to_is_handed_over() -> None:
    linked = mirrored()
    stop_mirror(linked)
    (finding,) = found(linked)
    assert finding.kind is Kind.HANDOVER_UNFINISHED
    assert "may append according to the head, producers according to the catalog" in finding.what
    assert mended(linked) == ["gave 1 partition to whom the catalog lets append"]
    assert found(linked) == []
    linked.produce("east", "own")
    assert len(linked.read("east")) == 11


def test_a_repair_that_hands_a_head_over_holds_groups_to_what_was_mirrored() -> None:
    linked = mirrored()
    linked.east.groups.commit("checkout", {(ORDERS, 0): 12})
    stop_mirror(linked)
    assert mended(linked) == ["gave 1 partition to whom the catalog lets append"]
    for number in range(4):
        linked.produce("east", f"own {number}")
    assert linked.east.groups.read_committed_offsets("checkout", [ORDERS]) == {(ORDERS, 0): 10}


def test_a_partition_that_holds_a_copy_of_another_topic_is_told() -> None:
    linked = mirrored()

    def of_another(head: Head) -> Head:
        return replace(head, source={**(head.source or {}), "topic_id": "another"})

    assert swap_head(linked.stores["east"], Partition(ORDERS, linked.east.topic(ORDERS).id, 0), of_another)
    (finding,) = found(linked)
    assert finding.kind is Kind.MIRROR_SOURCE
    assert "a copy of topic id another, and its mirror follows shop:orders" in finding.what
    assert mended(linked) == []
    linked.east.linking.start_operation(ORDERS, "failover")
    assert found(linked) == []


@pytest.mark.thorough
def test_a_cut_that_died_before_object_storage_was_cut_is_told_as_what_run_finishes() -> None:
    it = archived()
    joined(it)
    seen: set[Kind] = set()
    for left in deaths(it, 9):
        report = check_cluster(left.store, deep=True, storage=left.storage)
        assert all(finding.severity is not Severity.ERROR for finding in report.findings)
        seen |= {finding.kind for finding in report.findings}
        left.opened().upkeep().retain()
        after = {finding.kind for finding in check_cluster(left.store, deep=True, storage=left.storage).findings}
        assert after <= {Kind.TRANSITION_UNDER_WAY, Kind.UNNAMED}
    assert Kind.CUT_UNFINISHED in seen
