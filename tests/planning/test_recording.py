"""The record after an action: a pure fold."""

from __future__ import annotations

from dataclasses import replace

from reconciler.planning.actions import Adopt, Create, Delete, Forget, Reason, RunJob, Transition, Update
from reconciler.planning.record import RecordChanges, apply_record_changes, record_action
from reconciler.resources.address import Address
from reconciler.resources.inventory import Record, Recorded
from tests.planning.short import recorded, resource
from tests.planning.world import Answered

ORDERS = Address("topic/west/orders")
DONE = Answered("id-1", "physical")


def folded(record: Record, changes: RecordChanges) -> Record:
    after = dict(record)
    apply_record_changes(after, changes)
    return after


def test_what_is_created_is_ours() -> None:
    made = resource({"topic": "orders", "protect": True})
    origins = {"configs.segment.ms": "policy/p"}
    changes = record_action(Create(address=ORDERS, after=made, origins=origins), DONE, {}, "run-9")
    assert changes == {
        ORDERS: Recorded(made, "id-1", "physical", "created", protect=True, run="run-9", origins=origins)
    }


def test_what_was_missing_and_is_made_again_is_another_one() -> None:
    record = dict([recorded({"topic": "orders", "is": {"ownership": "adopted", "protect": True}})])
    made = resource({"topic": "orders"})
    changes = record_action(Create(address=ORDERS, after=made), Answered(), record, "run-9")
    item = changes[ORDERS]
    assert item is not None
    assert (item.incarnation, item.ownership, item.protect) == (None, "created", True)


def test_an_update_keeps_who_owns_it_and_which_one_it_is() -> None:
    record = dict([recorded({"topic": "orders", "is": {"ownership": "adopted", "incarnation": "id-0"}})])
    after = resource({"topic": "orders", "partitions": 9})
    action = Update(address=ORDERS, before=record[ORDERS].resource, after=after, changes=())
    assert record_action(action, Answered(), record, "run-9") == {
        ORDERS: replace(record[ORDERS], resource=after, run="run-9")
    }


def test_protection_is_held_until_it_is_lifted() -> None:
    record = dict([recorded({"topic": "orders", "is": {"protect": True}})])
    held = resource({"topic": "orders"})
    lifted = resource({"topic": "orders", "protect": False})
    for after, expected in ((held, True), (lifted, False)):
        changes = record_action(Adopt(address=ORDERS, observed=after, after=after), None, record, "run-9")
        item = changes[ORDERS]
        assert item is not None
        assert item.protect is expected


def test_what_is_adopted_says_so_and_follows_a_name() -> None:
    old = Address("mirror/west/orders")
    record = {old: recorded({"topic": "orders", "is": {"incarnation": "id-0"}})[1]}
    topic = resource({"topic": "orders"})
    fresh = record_action(Adopt(address=ORDERS, observed=topic, after=topic, incarnation="id-7"), None, {}, "r")
    assert fresh[ORDERS] == Recorded(topic, "id-7", None, "adopted", run="r")
    moved = record_action(Adopt(address=ORDERS, observed=topic, after=topic, moved_from=old), None, record, "r")
    assert moved[old] is None
    assert moved[ORDERS] == Recorded(topic, "id-0", None, "created", run="r")


def test_what_somebody_else_made_anew_is_adopted_whoever_made_the_one_before() -> None:
    record = dict([recorded({"topic": "orders", "is": {"incarnation": "id-0", "protect": True}})])
    topic = resource({"topic": "orders"})
    action = Adopt(address=ORDERS, observed=topic, after=topic, incarnation="id-7", reasons=(Reason.RECREATED,))
    after = record_action(action, None, record, "r")
    assert after[ORDERS] == Recorded(topic, "id-7", None, "adopted", protect=True, run="r")


def test_deleting_and_forgetting_leave_nothing() -> None:
    record = dict([recorded({"topic": "orders"})])
    for action in (Delete(address=ORDERS, before=record[ORDERS].resource), Forget(address=ORDERS)):
        assert folded(record, record_action(action, DONE, record, "r")) == {}


def test_a_move_takes_the_record_along() -> None:
    old = Address("topic/west/purchases")
    record = {old: recorded({"topic": "purchases", "is": {"incarnation": "id-0", "ownership": "adopted"}})[1]}
    topic = resource({"topic": "orders"})
    action = Transition(
        address=ORDERS,
        machine="topic",
        verb="move",
        from_state="purchases",
        to_state="orders",
        after=topic,
        parameters={"from": old},
    )
    assert folded(record, record_action(action, Answered(), record, "r")) == {
        ORDERS: Recorded(topic, "id-0", None, "adopted", run="r")
    }


def test_a_move_of_a_lifecycle_keeps_its_address() -> None:
    address = Address("mirror/east/orders")
    mirror = resource({"mirror": "orders", "where": "east", "link": "l"})
    action = Transition(
        address=address, machine="mirror", verb="pause", from_state="ACTIVE", to_state="PAUSED", after=mirror
    )
    assert folded({}, record_action(action, DONE, {}, "r"))[address].incarnation == "id-1"


def test_what_is_asked_of_the_mirror_on_the_other_cluster_is_remembered_at_its_entry() -> None:
    entry = Address("mirror/east/orders")
    last = Recorded(resource({"mirror": "orders", "where": "east", "link": "l", "state": "reversed"}), "id-0")
    peer = resource({"mirror": "orders", "where": "west", "sourceCluster": "east", "link": "l"})
    action = Transition(
        address=peer.address,
        machine="mirror",
        verb="reverse-and-start",
        from_state="ACTIVE",
        to_state="STOPPED",
        after=peer,
        parameters={"entry": entry, "role": "mirroring"},
    )
    after = folded({entry: last}, record_action(action, DONE, {entry: last}, "r"))
    assert list(after) == [entry]
    assert after[entry].resource.to_json()["state"] == "mirroring"
    assert (after[entry].incarnation, after[entry].run) == ("id-0", "r")
    adopted = folded({}, record_action(action, DONE, {}, "r"))
    assert adopted[entry].resource.address == entry
    assert adopted[entry].ownership == "adopted"


def test_a_job_changes_no_record() -> None:
    job = RunJob(address=Address("mirror/east/o"), job="mirror", source=ORDERS, sink=ORDERS)
    assert record_action(job, None, {}, "r") == {}


LOCATION = "clicks/67f5505a-32f3-4677-bcad-3c75a1a702a6/10"
CLICKS = Address("mounting/west/clicks")


def moved(verb: str) -> Transition:
    return Transition(
        address=CLICKS,
        machine=verb,
        verb=verb,
        from_state="",
        to_state=f"{verb}ed",
        after=resource({"mounting": "clicks", "state": f"{verb}ed", "as": "orders"}),
        parameters={"source": LOCATION},
    )


def test_of_a_mounting_is_remembered_where_its_topic_lies_and_which_one_it_is_here() -> None:
    record = record_action(moved("mount"), Answered("id-1"), {}, "run-9")
    mounted = record[CLICKS]
    assert mounted is not None
    assert (mounted.physical_name, mounted.incarnation) == (LOCATION, "id-1")
    assert mounted.ownership == "created"
    found = replace(mounted, ownership="adopted")
    unmounted = record_action(moved("unmount"), Answered(None), {CLICKS: found}, "run-9")[CLICKS]
    assert unmounted is not None
    assert unmounted.ownership == "created"
    assert (unmounted.physical_name, unmounted.incarnation) == (LOCATION, None)


def test_a_topic_that_was_ours_is_another_one_once_it_is_mounted_again() -> None:
    record = dict([recorded({"topic": "orders", "is": {"incarnation": "id-0", "protect": True}})])
    changes = record_action(moved("mount"), Answered("id-1"), record, "run-9")
    assert changes[ORDERS] == replace(record[ORDERS], incarnation="id-1")
    assert ORDERS not in record_action(moved("unmount"), Answered(None), record, "run-9")


def test_a_topic_that_is_owned_after_its_mount_is_the_one_that_was_mounted() -> None:
    record = folded({}, record_action(moved("mount"), Answered("id-1"), {}, "run-9"))
    topic = resource({"topic": "orders"})
    owned = record_action(Adopt(address=ORDERS, observed=topic, after=topic), None, record, "run-9")[ORDERS]
    assert owned is not None
    assert owned.incarnation == "id-1"
