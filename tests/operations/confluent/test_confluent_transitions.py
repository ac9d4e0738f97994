"""Roles and verbs of mirrors over cluster links that go one way: the table of the facts, section 3.2, on Confluent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pytest

from reconciler.providers.confluent import mirrors
from tests.operations.confluent.test_confluent import Desk, topic
from tests.operations.stage import give_roles
from tests.servers.confluent.mirrors import MIRROR
from tests.servers.emulation.faults import ALWAYS
from tests.waiting import until

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.planning.orders import RoleVerb
    from tests.servers.confluentfixtures import Pair

pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("confluent")]
VERBS: Final[tuple[RoleVerb, ...]] = ("pause", "resume", "promote", "failover")
LEGAL: Final[dict[str, dict[str, str]]] = {
    "ACTIVE": {"pause": "PAUSED", "promote": "STOPPED", "failover": "STOPPED"},
    "PAUSED": {"resume": "ACTIVE", "promote": "STOPPED", "failover": "STOPPED"},
    "PENDING_STOPPED": {"failover": "STOPPED"},
    "SOURCE_UNAVAILABLE": {"failover": "STOPPED"},
    "LINK_FAILED": {"failover": "STOPPED"},
    "FAILED": {"failover": "STOPPED"},
    "STOPPED": {},
}
"""The next state by state and verb."""
ROLES: Final = {"mirroring": "ACTIVE", "paused": "PAUSED", "promoted": "STOPPED", "failed-over": "STOPPED"}
LIVE: Final = [state for state in LEGAL if state != "STOPPED"]


def put(desk: Desk, state: str) -> None:
    """Bring all mirrors into a state in which they stay."""
    server = desk.servers["east"]
    if state in {"SOURCE_UNAVAILABLE", "LINK_FAILED"}:
        code = "AUTHENTICATION_ERROR" if state == "LINK_FAILED" else ""
        server.faults.add("lost", "LINK", f"{desk.link}/source", times=ALWAYS, code=code)
    else:
        if state == "PENDING_STOPPED":
            server.faults.add("hangs", MIRROR, f"/{state}/", times=ALWAYS, code="INTERNAL_ERROR", message="busy")
        for name in desk.states():
            server.mirrors.set_state(desk.link, name, state)
    until(lambda: set(desk.states().values()) == {state}, desk.states)


@pytest.fixture
def desk(bench: Bench, confluent: Pair) -> Desk:
    return Desk(bench, confluent, f"orders-{uuid4().hex[:8]}")


@pytest.fixture
def orders(desk: Desk) -> str:
    """Return a topic's name that no other test uses."""
    return desk.link.removeprefix("link-of-")


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrors, "_STALLED_S", 2.0)


@pytest.mark.fact("F-C-060", "F-C-067")
@pytest.mark.parametrize("state", LEGAL)
def test_each_verb_does_what_the_table_says_and_is_refused_with_the_state_elsewhere(
    desk: Desk, orders: str, state: str
) -> None:
    names = {verb: f"{orders}-{verb}" for verb in VERBS}
    desk.apply(*map(topic, names.values()), desk.mirror(dict.fromkeys(names.values(), "mirroring")))
    put(desk, state)
    for verb, name in names.items():
        result = give_roles(desk.bench.acting(f"mirror {verb}"), verb, f"mirror/east/{name}")
        said = [f"{error.message}. {error.hint}" for error in result.failed.values()]
        assert (verb, bool(said)) == (verb, verb not in LEGAL[state]), (said, result)
        assert not said or state in said[0] or "already stopped" in said[0], said
        assert (verb, desk.states()[name]) == (verb, LEGAL[state].get(verb, state))


@pytest.mark.fact("F-C-065", "F-C-066", "F-C-071")
@pytest.mark.parametrize("state", LIVE)
def test_a_mirror_in_any_state_is_failed_over_by_its_file(desk: Desk, orders: str, state: str) -> None:
    desk.apply(topic(orders), desk.mirror({orders: "mirroring"}))
    put(desk, state)
    desk.apply(topic(orders), desk.mirror({orders: "failed-over"}))
    assert desk.states() == {orders: "STOPPED"}


@pytest.mark.parametrize("before", ["mirroring", "paused"])
@pytest.mark.parametrize("after", ROLES)
def test_each_role_is_reached_from_each_role_that_mirrors(desk: Desk, orders: str, before: str, after: str) -> None:
    desk.apply(topic(orders), desk.mirror({orders: before}))
    desk.apply(topic(orders), desk.mirror({orders: after}))
    assert desk.states() == {orders: ROLES[after]}


@pytest.mark.parametrize("before", ["promoted", "failed-over"])
def test_a_stopped_mirror_takes_no_other_role(desk: Desk, orders: str, before: str) -> None:
    names = {role: f"{orders}-{role}" for role in ROLES}
    topics = [*map(topic, names.values())]
    for role in ("mirroring", before):
        desk.apply(*topics, desk.mirror(dict.fromkeys(names.values(), role)))
    assert desk.errors(*topics, desk.mirror({name: role for role, name in names.items()})) == [
        f"it is STOPPED and cannot become {role}. Delete it and mirror again: "
        f"reconciler topic delete topic/east/{names[role]}"
        for role in ("mirroring", "paused")
    ]
    stopped = {name: role for role, name in names.items() if role in {"promoted", "failed-over"}}
    desk.apply(*topics, desk.mirror(stopped | {names[role]: before for role in ("mirroring", "paused")}))
