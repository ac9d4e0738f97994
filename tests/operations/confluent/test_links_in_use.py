"""Links that hold mirrors: deletes that an allowance forces, new credentials, and offset sync during a promotion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.operations.steps.invocation import Select
from reconciler.planning.actions import Delete
from tests.operations.confluent.test_confluent import Desk, describe_cluster, topic
from tests.operations.redpanda.test_redpanda import ids
from tests.waiting import until

if TYPE_CHECKING:
    from conftest import Bench

    from tests.servers.confluentfixtures import Pair

pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("confluent")]
GROUPS: dict[str, Any] = {"enabled": True, "filters": [{"name": "*"}]}


def test_a_link_in_use_is_deleted_only_if_an_allowance_names_its_address(bench: Bench, confluent: Pair) -> None:
    desk = Desk(bench, confluent, "forced")
    auto = {"enabled": True, "filters": [{"name": "forced", "patternType": "prefixed"}]}
    desk.apply(topic("forced"), desk.mirror({}, autoCreate=auto))
    until(lambda: desk.states() == {"forced": "ACTIVE"}, desk.states)
    desk.declare(topic("forced"))
    for allowed in ((), ("delete:*",)):
        (error,) = desk.bench.plan(Select(allow=allowed)).plan.errors
        assert f"--allow delete:link/east/{desk.link}" in str(error.hint)
    select = Select(allow=(f"delete:link/east/{desk.link}",))
    (action,) = [each for each in desk.bench.plan(select).plan.actions if isinstance(each, Delete)]
    assert "forced" in action.reasons
    assert desk.bench.apply(select).verdict is None
    assert desk.link not in desk.servers["east"].links.rows
    assert "forced" in desk.servers["east"].topics.read(["forced"])
    sent = [path for _, method, path in desk.servers["east"].requests if method == "DELETE"]
    assert any("force=true" in path for path in sent)


def test_a_link_is_deleted_with_its_live_mirrors_while_its_stopped_ones_keep_their_topics(
    bench: Bench, confluent: Pair
) -> None:
    desk = Desk(bench, confluent, "left")
    names = ["left-live", "left-failed-over", "left-promoted"]
    topics = [topic(name) for name in names]
    desk.apply(*topics, desk.mirror(dict.fromkeys(names, "mirroring")))
    desk.apply(*topics, desk.mirror(dict(zip(names, ["mirroring", "failed-over", "promoted"], strict=True))))
    select = Select(allow=("delete:mirror/east/left-live",))
    desk.declare(*topics)
    applied = desk.bench.apply(select)
    assert (applied.verdict, ids(desk.bench.plan(select))) == (None, [])
    assert desk.link not in desk.servers["east"].links.rows
    assert [*desk.servers["east"].topics.read(names)] == names[1:]


@pytest.mark.fact("F-C-208")
def test_new_credentials_are_written_into_the_same_link_with_its_next_change(
    bench: Bench, start_confluent: Callable[..., Pair]
) -> None:
    desk = Desk(bench, start_confluent(kind="dedicated", needs_kafka_login=True), "orders")
    for name, server in desk.servers.items():
        login = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": server.key}
        security = {**login, "password": f"${{env:{name.upper()}_SECRET}}", "allowPlaintextPasswords": True}
        desk.write(name, describe_cluster(name, server, security=security))
    desk.apply(topic("orders"), desk.mirror({"orders": "mirroring"}))
    west, link = desk.servers["west"], desk.servers["east"].links.rows[desk.link]
    before = link.uid
    west.keys[west.key] = "fresh-secret"
    environ = {**desk.bench.invocation.environ, "WEST_SECRET": "fresh-secret"}
    desk.bench = replace(desk.bench, invocation=replace(desk.bench.invocation, environ=environ))
    desk.apply(topic("orders"), desk.mirror({"orders": "mirroring"}, consumerOffsetSync=GROUPS))
    link = desk.servers["east"].links.rows[desk.link]
    assert (link.uid, "fresh-secret" in link.configs["sasl.jaas.config"]) == (before, True)
    until(lambda: desk.states() == {"orders": "ACTIVE"}, desk.states)


def test_offset_sync_of_promoted_mirrors_is_told_and_paused_first_where_the_link_says_so(
    bench: Bench, confluent: Pair
) -> None:
    desk = Desk(bench, confluent, "promoted")
    desk.apply(topic("promoted"), desk.mirror({"promoted": "mirroring"}, consumerOffsetSync=GROUPS))
    desk.declare(topic("promoted"), desk.mirror({"promoted": "promoted"}, consumerOffsetSync=GROUPS))
    warnings = [warning.message for warning in desk.bench.plan().plan.warnings]
    assert any("overwrites the offsets of groups" in message for message in warnings), warnings
    desk.declare(topic("promoted"), desk.mirror({"promoted": "promoted"}))
    assert not [each for each in desk.bench.plan().plan.warnings if "offset sync" in each.message]
    del desk.servers["east"].requests[:]
    desk.apply(topic("promoted"), desk.mirror({"promoted": "promoted"}))
    changes = [path for _, method, path in desk.servers["east"].requests if method in {"PUT", "POST"}]
    order = [path.partition("/links/")[2] for path in changes if "configs:alter" in path or "mirrors:promote" in path]
    assert [path.rpartition("/")[2].partition("?")[0] for path in order] == ["configs:alter", "mirrors:promote"]
