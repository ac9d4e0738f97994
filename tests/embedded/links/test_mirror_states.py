"""Mirrors in every state: what may be asked of them, who may write to them, and that they can be read."""

from __future__ import annotations

import pytest

from reconciler.embedded.catalog.mirror_tables import alter_link
from reconciler.errors import BlockedError, UserError
from reconciler.lifecycles import MIRROR, LinkStatus, MirrorStatus
from reconciler.providers.models import to_link_entry
from tests.embedded.links.linked import (
    LINK,
    ORDERS,
    WAYS,
    Linked,
    Placed,
    east_of,
    mirrored,
    pause_link,
    to_declared_mirror,
)

STATES = list(WAYS)
LIVE = [state for state in STATES if state is not MirrorStatus.STOPPED]
BECOMING = [MirrorStatus.PENDING_MIRROR, MirrorStatus.PENDING_SETUP_FOR_RESTORE, MirrorStatus.PENDING_RESTORE]
"""States of a topic that was a source, on the other cluster."""
ASKED = ("pause", "resume", "promote", "failover", "reverse-and-start", "reverse-and-pause")
TAKEN = {"enabled": True, "filters": [{"name": "shop:", "patternType": "prefixed"}]}
EXCLUDED = {**TAKEN, "filters": [*TAKEN["filters"], {"name": ORDERS, "filterType": "exclude"}]}
VALUES = [f"0-{number}" for number in range(10)]


def values(placed: Placed) -> list[str]:
    return [value for _, value in placed.linked.read(placed.cluster)]


def test_every_state_of_a_record_is_tried() -> None:
    assert set(MirrorStatus) - set(STATES) == {MirrorStatus.ABSENT, MirrorStatus.REGULAR}
    for state in STATES:
        assert to_declared_mirror(state).status == state


@pytest.mark.fact("F-C-002")
@pytest.mark.parametrize("state", LIVE)
def test_nobody_produces_to_a_mirror_that_is_not_stopped(state: MirrorStatus) -> None:
    placed = to_declared_mirror(state)
    with pytest.raises(UserError, match="Cannot append records to read-only mirror topic"):
        placed.linked.produce(placed.cluster, "no")
    assert values(placed) == VALUES


@pytest.mark.fact("F-C-003")
@pytest.mark.parametrize("state", STATES)
def test_it_is_consumed_in_every_state(state: MirrorStatus) -> None:
    placed = to_declared_mirror(state)
    assert values(placed) == VALUES
    consumer = placed.linked.cluster(placed.cluster).consumer("billing", topics=[ORDERS])
    (fetched,) = consumer.poll()
    consumer.commit()
    assert fetched.records.num_rows == 10
    assert consumer.committed() == {(ORDERS, 0): 10}


@pytest.mark.fact("F-C-060")
@pytest.mark.parametrize("verb", ASKED)
@pytest.mark.parametrize("state", STATES)
def test_a_cluster_does_what_the_table_says_and_refuses_the_rest(state: MirrorStatus, verb: str) -> None:
    placed = to_declared_mirror(state)
    if verb in MIRROR.list_legal_verbs(state):
        seen = placed.links.request_verb(ORDERS, verb, operation="operation-2")
        assert seen.status == MIRROR.apply_verb(state, verb)
        return
    with pytest.raises(UserError) as refused:
        placed.links.request_verb(ORDERS, verb, operation="operation-2")
    assert state.value in refused.value.message
    assert all(legal in refused.value.hint for legal in MIRROR.list_legal_verbs(state))
    assert placed.status == state


@pytest.mark.fact("F-C-060")
@pytest.mark.parametrize("state", STATES)
def test_it_is_deleted_in_the_states_of_the_table_and_in_no_other(state: MirrorStatus) -> None:
    placed = to_declared_mirror(state)
    cluster = placed.linked.cluster(placed.cluster)
    if "delete" in MIRROR.list_legal_verbs(state):
        assert cluster.delete_topic(ORDERS)
        return
    with pytest.raises(UserError, match=f"mirror {ORDERS} is {state}: cannot delete while {state}"):
        cluster.delete_topic(ORDERS)
    assert placed.status == state


@pytest.mark.fact("F-C-004")
@pytest.mark.parametrize("state", STATES)
def test_no_mirror_is_made_over_a_topic_be_it_a_mirror_that_stopped(state: MirrorStatus) -> None:
    placed = to_declared_mirror(state)
    other = {"east": "west", "west": "east"}[placed.cluster]
    with pytest.raises(UserError, match="exists"):
        placed.linked.mirror(placed.cluster, other)
    assert placed.status == state


@pytest.mark.fact("F-C-065")
@pytest.mark.parametrize("state", LIVE)
def test_a_failover_works_in_every_state_without_the_other_cluster(state: MirrorStatus) -> None:
    placed = to_declared_mirror(state)
    for other in set(placed.linked.stores) - {placed.cluster}:
        del placed.linked.stores[other]
    assert placed.links.request_verb(ORDERS, "failover").status == "STOPPED"
    placed.linked.produce(placed.cluster, "own")
    assert values(placed) == [*VALUES, "own"]


@pytest.mark.fact("F-C-065")
@pytest.mark.parametrize("state", LIVE)
def test_a_failover_works_without_the_link_and_what_lost_its_link_hides_no_other(state: MirrorStatus) -> None:
    placed = to_declared_mirror(state)
    cluster = placed.linked.cluster(placed.cluster)
    cluster.catalog.commit(lambda draft: draft.put_link(LINK, None))
    (seen,) = placed.links.list_mirrors()
    assert seen == placed.links.read_mirror(ORDERS)
    shown = state if state in {MirrorStatus.FAILED, *BECOMING} or state.startswith("PENDING") else "LINK_FAILED"
    assert (seen.name, seen.status, seen.source_cluster) == (ORDERS, shown, "")
    assert placed.links.request_verb(ORDERS, "failover").status == "STOPPED"
    placed.linked.produce(placed.cluster, "own")
    assert values(placed) == [*VALUES, "own"]


@pytest.mark.fact("F-C-062")
def test_a_paused_link_is_shown_on_all_its_mirrors_and_each_is_again_what_it_was() -> None:
    linked = mirrored()
    for name in ("shop:clicks", "shop:users"):
        linked.west.create_topic(name, partitions=1)
        linked.mirror("east", "west", name)
    east_of(linked).request_verb("shop:clicks", "pause")
    east_of(linked).request_verb("shop:users", "failover")
    pause_link(linked, paused=True)
    assert [(seen.name, seen.status) for seen in east_of(linked).list_mirrors()] == [
        ("shop:clicks", "LINK_PAUSED"),
        (ORDERS, "LINK_PAUSED"),
        ("shop:users", "STOPPED"),
    ]
    assert [link.status for link in east_of(linked).list_links()] == [LinkStatus.PAUSED]
    pause_link(linked, paused=False)
    assert [seen.status.value for seen in east_of(linked).list_mirrors()] == ["PAUSED", "ACTIVE", "STOPPED"]


@pytest.mark.fact("F-C-068", "F-C-091")
def test_what_is_stopped_is_remembered_until_its_link_goes_and_stays_a_topic() -> None:
    linked = mirrored()
    linked.clock.now_ms += 5
    east_of(linked).request_verb(ORDERS, "failover")
    linked.produce("east", "own")
    seen = linked.seen("east")
    assert (seen.status, seen.since_ms, linked.positions("east")[0].fetched) == ("STOPPED", linked.clock.now_ms, 10)
    assert linked.east.delete_link(LINK)
    assert east_of(linked).list_mirrors() == []
    assert linked.east.topic(ORDERS).mirror is None
    assert linked.read("east")[-1] == (10, "own")


@pytest.mark.fact("F-C-090")
@pytest.mark.parametrize("state", LIVE)
def test_a_link_with_a_mirror_that_is_not_stopped_stays(state: MirrorStatus) -> None:
    placed = to_declared_mirror(state)
    with pytest.raises(BlockedError, match=f"link {LINK} has mirrors that are not stopped: {ORDERS}"):
        placed.linked.cluster(placed.cluster).delete_link(LINK)
    assert placed.status == state
    assert placed.links.request_verb(ORDERS, "failover").status == "STOPPED"
    assert placed.linked.cluster(placed.cluster).delete_link(LINK)


@pytest.mark.fact("F-C-092")
def test_a_new_topic_of_a_deleted_mirror_s_name_stays_empty() -> None:
    linked = mirrored()
    linked.east.delete_topic(ORDERS)
    linked.east.create_topic(ORDERS, partitions=1)
    with pytest.raises(UserError, match="is not mirrored"):
        linked.catch_up("east")
    linked.produce("west", "later")
    assert linked.read("east") == []
    linked.produce("east", "own")
    assert linked.read("east") == [(0, "own")]


def auto_create(linked: Linked, asked: dict[str, object]) -> None:
    declared = linked.east.catalog.read().links[LINK].declared
    linked.east.catalog.commit(lambda draft: alter_link(draft, LINK, {**declared, "autoCreate": asked}))


@pytest.mark.fact("F-C-082")
def test_why_a_transition_does_not_end_is_told_by_code_until_it_is_mended() -> None:
    linked = mirrored()
    linked.produce("west", "late")
    (half,) = linked.provider("west").links.list_links()
    linked.west.delete_link(LINK)
    east_of(linked).request_verb(ORDERS, "reverse-and-start", operation="operation-1")
    with pytest.raises(UserError, match=f"link {LINK} does not exist"):
        linked.driver().drive("east", ORDERS)
    seen = linked.seen("east")
    assert (seen.status, seen.trouble and seen.trouble.code) == ("PENDING_SYNCHRONIZE", "INVALID_REQUEST_ERROR")
    assert seen.trouble is not None
    assert "does not exist" in seen.trouble.message
    linked.west.create_link(LINK, to_link_entry(half.declared, "link-again"))
    linked.driver().drive("east", ORDERS)
    assert (linked.status("east"), linked.status("west")) == ("STOPPED", "ACTIVE")
    assert linked.seen("east").trouble is None
