"""What became of an action in doubt, from what is there now: one row a case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.errors import NotAuthorizedError
from reconciler.planning.actions import Action, Adopt, Change, Create, Delete, Forget, RunJob, Transition, Update
from reconciler.planning.settle import list_settled_addresses, settle_action
from reconciler.resources.address import Address
from reconciler.resources.configs import EMBEDDED_CONFIGS
from tests.planning.short import observed, resource

TOPIC = {"topic": "orders", "partitions": 3, "configs": {"retention.ms": "60000"}}
BARE = {"topic": "orders", "partitions": 3}
NARROW = {**TOPIC, "partitions": 1}
MIRROR = {"mirror": "orders", "where": "east", "link": "from-west"}
HERE = Address("topic/west/orders")


def create(item: dict[str, Any]) -> Action:
    after = resource(item)
    return Create(address=after.address, after=after)


def update(*changes: tuple[str, Any, Any]) -> Action:
    made = tuple(Change(path, before, after) for path, before, after in changes)
    return Update(address=HERE, before=resource(TOPIC), after=resource(TOPIC), changes=made)


def delete(incarnation: str | None) -> Action:
    return Delete(address=HERE, before=resource(TOPIC), incarnation=incarnation)


def move() -> Action:
    return Transition(
        address=HERE,
        machine="topic",
        verb="move",
        from_state="old",
        to_state="orders",
        after=resource(TOPIC),
        parameters={"from": "topic/west/old"},
    )


def promote() -> Action:
    mirror = resource(MIRROR)
    return Transition(
        address=mirror.address, machine="mirror", verb="promote", from_state="ACTIVE", to_state="STOPPED", after=mirror
    )


def ask(verb: str, before: str, after: str) -> Action:
    mirror = resource(MIRROR)
    return Transition(
        address=mirror.address, machine="mirror", verb=verb, from_state=before, to_state=after, after=mirror
    )


def to_declared_mirror(state: str) -> list[dict[str, Any]]:
    return [{**MIRROR, "is": {"state": state}}]


REVERSE = ask("reverse-and-start", "ACTIVE", "STOPPED")
RESTORE = ask("truncate-and-restore", "STOPPED", "ACTIVE")


def mount(verb: str = "mount") -> Action:
    mounting = resource({"mounting": "clicks", "state": f"{verb}ed", "as": "orders"})
    return Transition(
        address=mounting.address,
        machine=verb,
        verb=verb,
        from_state="unmounted" if verb == "mount" else "mounted",
        to_state=f"{verb}ed",
        after=mounting,
        parameters={"source": LOCATION, "as": "orders"},
    )


def unmount_by_jobs(incarnation: str) -> Action:
    """Return an unmount of a topic that has an id and, before it is archived, no location."""
    action = mount("unmount")
    assert isinstance(action, Transition)
    return replace(action, parameters={"source": "orders", "by": "jobs", "incarnation": incarnation})


def migration(state: str, to: str) -> dict[str, Any]:
    return {"mounting": "clicks", "state": to, "as": "orders", "is": {"state": state}}


LOCATION = "clicks/67f5505a-32f3-4677-bcad-3c75a1a702a6/10"
HELD = {**TOPIC, "is": {"state": "MIGRATING", "legacy": LOCATION}}
MOUNTED = {**TOPIC, "is": {"state": "ENABLED", "legacy": LOCATION}}
FOREIGN = {**TOPIC, "is": {"state": "ENABLED", "legacy": LOCATION.replace("/10", "/11")}}
OLD = {**TOPIC, "topic": "old"}
RETAIN = ("configs.retention.ms", "60000", "120000")
GROW = ("partitions", 3, 6)
SPREAD = ("replicationFactor", 1, 3)
WIDE = {**TOPIC, "replicationFactor": 3}
LATER = {**TOPIC, "configs": {"retention.ms": "120000"}}
BOTH = {**LATER, "partitions": 6}
STRANGE = {**TOPIC, "configs": {"retention.ms": "7"}}
NOT_SHOWN = NotAuthorizedError("User:x may not describe topic orders", hint="Allow it.")
HIDDEN = {**BARE, "is": {"incarnation": None, "hidden": NOT_SHOWN}}
SEALED = {**BARE, "is": {"hidden": NOT_SHOWN}}

ROWS: list[tuple[str, Action, list[dict[str, Any]], str]] = [
    ("nothing was made", create(TOPIC), [], "absent"),
    ("all of it was made", create(TOPIC), [TOPIC], "done"),
    ("more is set than was asked for", create(BARE), [TOPIC], "done"),
    ("it was made bare", create(TOPIC), [BARE], "partial"),
    ("another one was made, of other partitions", create(TOPIC), [NARROW], "conflict"),
    ("a mirror was made", create(MIRROR), [MIRROR], "done"),
    ("a namespace was made", create({"namespace": "shop"}), [{"namespace": "shop"}], "done"),
    ("nothing was changed", update(RETAIN), [TOPIC], "absent"),
    ("all was changed", update(RETAIN, GROW), [BOTH], "done"),
    ("half was changed", update(RETAIN, GROW), [LATER], "partial"),
    ("somebody else changed it", update(RETAIN), [STRANGE], "conflict"),
    ("half was changed by us, half by somebody else", update(RETAIN, GROW), [{**STRANGE, "partitions": 6}], "conflict"),
    ("it is gone", update(RETAIN), [], "conflict"),
    ("its replicas came", update(SPREAD), [WIDE], "done"),
    ("its replicas still move", update(SPREAD), [{**WIDE, "is": {"is_moving": True}}], "moving"),
    ("its replicas move, and it was not asked for", update(RETAIN), [{**LATER, "is": {"is_moving": True}}], "done"),
    ("its replicas do not move yet", update(SPREAD), [{**TOPIC, "replicationFactor": 1}], "absent"),
    ("the same value in other words", update(("configs.retention.ms", "1", "60000")), [TOPIC], "done"),
    ("it is there still", delete("topic orders"), [TOPIC], "absent"),
    ("it is gone as wanted", delete("topic orders"), [], "done"),
    ("another one is there under its name", delete("first"), [TOPIC], "done"),
    ("which one it was is not known", delete(None), [TOPIC], "absent"),
    ("it was not moved", move(), [OLD], "absent"),
    ("it was moved", move(), [TOPIC], "done"),
    ("both are there", move(), [OLD, TOPIC], "conflict"),
    ("neither is there", move(), [], "conflict"),
    ("the mirror is where it was", promote(), [MIRROR], "absent"),
    ("the mirror is on its way", promote(), to_declared_mirror("PENDING_STOPPED"), "partial"),
    ("the mirror got there", promote(), to_declared_mirror("STOPPED"), "done"),
    ("the mirror went on from there by itself", promote(), to_declared_mirror("PENDING_MIRROR"), "done"),
    ("the roles are being swapped", REVERSE, to_declared_mirror("PENDING_SYNCHRONIZE"), "partial"),
    ("the roles are nearly swapped", REVERSE, to_declared_mirror("PENDING_STOPPED"), "partial"),
    ("the roles were swapped", REVERSE, to_declared_mirror("STOPPED"), "done"),
    ("the roles were not swapped", REVERSE, to_declared_mirror("ACTIVE"), "absent"),
    ("a reversal was suspended", REVERSE, to_declared_mirror("PAUSED"), "conflict"),
    ("it is about to be cut", RESTORE, to_declared_mirror("PENDING_SETUP_FOR_RESTORE"), "partial"),
    ("it is being cut", RESTORE, to_declared_mirror("PENDING_RESTORE"), "partial"),
    ("it was cut, and mirrors", RESTORE, to_declared_mirror("ACTIVE"), "done"),
    ("it was cut, and its source is away", RESTORE, to_declared_mirror("SOURCE_UNAVAILABLE"), "done"),
    ("it was not cut", RESTORE, to_declared_mirror("STOPPED"), "absent"),
    ("an ordinary topic was not cut", RESTORE, [], "absent"),
    ("it failed over", ask("failover", "ACTIVE", "STOPPED"), to_declared_mirror("STOPPED"), "done"),
    ("it did not fail over", ask("failover", "FAILED", "STOPPED"), to_declared_mirror("FAILED"), "absent"),
    (
        "a suspended reversal went on to its end",
        ask("resume", "PAUSED", "PENDING_SYNCHRONIZE"),
        to_declared_mirror("STOPPED"),
        "done",
    ),
    ("it is paused", ask("pause", "ACTIVE", "PAUSED"), to_declared_mirror("PAUSED"), "done"),
    ("the mirror lost its source", promote(), [{**MIRROR, "is": {"state": "SOURCE_UNAVAILABLE"}}], "absent"),
    ("the mirror is gone", promote(), [], "absent"),
    ("it was not mounted", mount(), [], "absent"),
    ("it is being mounted", mount(), [migration("preparing", "mounted")], "partial"),
    ("it is nearly mounted", mount(), [migration("cut_over", "mounted"), HELD], "partial"),
    ("it was mounted", mount(), [MOUNTED], "done"),
    ("its mount was cancelled", mount(), [migration("cancelled", "mounted")], "absent"),
    ("another topic has its name", mount(), [FOREIGN], "conflict"),
    ("somebody unmounts it", mount(), [migration("preparing", "unmounted"), HELD], "conflict"),
    ("it was not unmounted", mount("unmount"), [MOUNTED], "absent"),
    ("it is being unmounted", mount("unmount"), [migration("executing", "unmounted"), HELD], "partial"),
    ("it was unmounted", mount("unmount"), [], "done"),
    ("its unmount was cancelled", mount("unmount"), [migration("cancelled", "unmounted"), MOUNTED], "absent"),
    ("another topic has its name after it", mount("unmount"), [FOREIGN], "done"),
    ("the topic that jobs unmount has its id", unmount_by_jobs("topic orders"), [TOPIC], "absent"),
    ("another topic has the name that jobs unmounted", unmount_by_jobs("first"), [TOPIC], "done"),
    ("the mirror was paused", promote(), [{**MIRROR, "is": {"state": "PAUSED"}}], "conflict"),
    ("nobody can tell whether the hidden topic is there", delete("topic orders"), [HIDDEN], "unknown"),
    ("the hidden topic is there still", delete("topic orders"), [SEALED], "absent"),
    ("another one is there, and hidden", delete("first"), [SEALED], "done"),
    ("the topic that was made is hidden", create(TOPIC), [SEALED], "unknown"),
    ("the topic that was changed is hidden", update(RETAIN), [SEALED], "unknown"),
    ("the topic of the mirror is hidden", create(MIRROR), [{**HIDDEN, "where": "east"}], "unknown"),
]


@pytest.mark.parametrize(("action", "there", "verdict"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_it_is_settled_by_looking_at_what_is_in_its_scope(
    action: Action, there: list[dict[str, Any]], verdict: str
) -> None:
    assert settle_action(action, dict(observed(item) for item in there), EMBEDDED_CONFIGS).verdict == verdict
    seen = {address: item for address, item in map(observed, there) if address in list_settled_addresses(action)}
    assert settle_action(action, seen, EMBEDDED_CONFIGS).verdict == verdict


def test_what_is_done_says_which_one_it_is() -> None:
    settled = settle_action(create(TOPIC), dict([observed({**TOPIC, "is": {"physical_name": "o"}})]), EMBEDDED_CONFIGS)
    assert (settled.incarnation, settled.physical_name) == ("topic orders", "o")


def test_what_calls_no_platform_is_done_and_a_job_finds_its_own_way() -> None:
    topic = resource(TOPIC)
    job = RunJob(address=Address("mirror/west/orders"), job="mirror", source=HERE, sink=HERE)
    assert settle_action(Adopt(address=HERE, observed=topic, after=topic), {}, {}).verdict == "done"
    assert settle_action(Forget(address=HERE), {}, {}).verdict == "done"
    assert settle_action(job, {}, {}).verdict == "absent"
