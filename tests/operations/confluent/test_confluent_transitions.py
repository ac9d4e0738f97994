"""Roles and verbs of mirrors over cluster links that go one way: the table of the facts, section 3.2, on Confluent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from reconciler.errors import ReconcilerError
from reconciler.operations.mirrors.mirror_views import read_mirror_errors
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions
from reconciler.providers.confluent import mirrors
from reconciler.resources.mirror_link import ALWAYS_SYNCED
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


def mirror_one_for_each_verb(desk: Desk, orders: str, **link: bool) -> dict[RoleVerb, str]:
    names = {verb: f"{orders}-{verb}" for verb in VERBS}
    desk.apply(*map(topic, names.values()), desk.mirror(dict.fromkeys(names.values(), "mirroring"), **link))
    return names


def check_verbs(desk: Desk, names: dict[RoleVerb, str], state: str, legal: dict[str, str]) -> None:
    """Send each verb to its mirror. One that is not legal is refused with the state."""
    for verb, name in names.items():
        result = give_roles(desk.bench.acting(f"mirror {verb}"), verb, f"mirror/east/{name}")
        said = [f"{error.message}. {error.hint}" for error in result.failed.values()]
        assert (verb, bool(said)) == (verb, verb not in legal), (said, result)
        assert not said or state in said[0] or "already stopped" in said[0], said
        assert (verb, desk.states()[name]) == (verb, legal.get(verb, state))


@pytest.fixture
def desk(bench: Bench, confluent: Pair) -> Desk:
    return Desk(bench, confluent, f"orders-{uuid4().hex[:8]}")


@pytest.fixture
def orders(desk: Desk) -> str:
    """Return a topic's name that no other test uses."""
    return desk.link.removesuffix("-link")


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrors, "_STALLED_S", 2.0)


@pytest.mark.fact("F-C-060", "F-C-067")
@pytest.mark.parametrize("state", LEGAL)
def test_each_verb_does_what_the_table_says_and_is_refused_with_the_state_elsewhere(
    desk: Desk, orders: str, state: str
) -> None:
    names = mirror_one_for_each_verb(desk, orders)
    put(desk, state)
    check_verbs(desk, names, state, LEGAL[state])


@pytest.mark.fact("F-C-062")
def test_while_platform_pauses_the_link_a_mirror_can_only_fail_over(bench: Bench, confluent_platform: Pair) -> None:
    desk = Desk(bench, confluent_platform, f"orders-{uuid4().hex[:8]}", type="platform")
    names = mirror_one_for_each_verb(desk, desk.link.removesuffix("-link"), paused=True)
    assert set(desk.states().values()) == {"LINK_PAUSED"}
    check_verbs(desk, names, "LINK_PAUSED", {"failover": "STOPPED"})


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
        f"it is STOPPED and cannot become {role}. Restore it on the original source over a bidirectional link, or "
        "delete it and mirror again. Legal from there: truncate-and-restore, delete."
        for role in ("mirroring", "paused")
    ]
    stopped = {name: role for role, name in names.items() if role in {"promoted", "failed-over"}}
    desk.apply(*topics, desk.mirror(stopped | {names[role]: before for role in ("mirroring", "paused")}))


@pytest.mark.fact("F-C-207")
@pytest.mark.parametrize("link", [{}, {"prefix": "p-"}], ids=["one-way", "prefixed"])
def test_reversing_over_a_link_that_goes_one_way_is_refused_at_plan(
    desk: Desk, orders: str, link: dict[str, str]
) -> None:
    desk.apply(topic(orders), desk.mirror({orders: "mirroring"}, **link))
    desk.declare(topic(orders), desk.mirror({orders: "reversed"}, **link))
    with pytest.raises(ReconcilerError, match="a mirror of a destination link cannot be reversed"):
        desk.bench.plan()


@pytest.mark.fact("F-C-210")
def test_a_task_that_reports_an_error_is_shown_with_its_text(desk: Desk, orders: str) -> None:
    rules = {"enabled": True, "filters": [{"resourceType": "topic", "operation": "read"}]}
    desk.apply(topic(orders), desk.mirror({orders: "mirroring"}, aclSync=rules))
    text = "ACL migration is enabled but acl.filters is not set. Please set acl.filters to proceed with ACL migration."
    error = {"code": "MISCONFIGURATION_ERROR", "message": text}
    fault = desk.servers["east"].faults.add("fails", "LINK", f"{desk.link}/AclSync", times=ALWAYS, **error)
    link = [f"link/east/{desk.link}"]
    reach = SiteOptions(invocation=desk.bench.invocation, select=Select())
    until(lambda: fault.times < ALWAYS, "the task did not run")
    until(lambda: text in str(read_mirror_errors(reach, link)), lambda: str(read_mirror_errors(reach, link)))


@pytest.mark.fact("F-C-212")
@pytest.mark.parametrize(("clusters", "synced"), [("confluent", "producer"), ("confluent_platform", "gzip")])
def test_compression_is_copied_where_the_platform_of_the_destination_copies_it(
    bench: Bench, request: pytest.FixtureRequest, clusters: str, synced: str
) -> None:
    desk = Desk(bench, request.getfixturevalue(clusters), f"orders-{uuid4().hex[:8]}")
    orders = desk.link.removesuffix("-link")
    include = [*ALWAYS_SYNCED, "retention.ms", "compression.type"]
    declared = topic(orders), desk.mirror({orders: "mirroring"}, topicConfigSync={"include": include})
    desk.apply(*declared)
    configs, to_set = {"compression.type": "gzip", "retention.ms": "86400000"}, AlterConfigOpType.SET
    entries = [ConfigEntry(*row, incremental_operation=to_set) for row in configs.items()]
    resource = ConfigResource(ResourceType.TOPIC, orders, incremental_configs=entries)
    # Cloud does not let a client set it.
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{desk.servers['west'].broker_port}"})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()

    def read() -> dict[str, str]:
        with desk.servers["east"].read_own([orders]) as own:
            return own.read_configs([orders])[orders]

    until(lambda: read().get("retention.ms") == "86400000", read)
    assert read().get("compression.type", "producer") == synced
