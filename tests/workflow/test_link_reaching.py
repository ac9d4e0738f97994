"""Whether a link reaches its source, and what becomes of mirrors whose source is lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from reconciler.embedded.catalog.mirror_tables import alter_link
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import MendFirstError, NotAuthorizedError, ReconcilerError, UserError
from reconciler.lifecycles.mirror import LinkStatus
from reconciler.objectstore.memory import MemoryStore
from reconciler.resources.mirrors import LinkSeen
from tests.embedded.linking.linked import LINK, ORDERS, mirrored
from tests.workflow.linksyncs import MINUTE, Refusing, Runner, denied


def mirroring(**spec: Any) -> Runner:
    return Runner(mirrored(mode="destination", **spec))


def told(link: LinkSeen) -> tuple[str, str] | None:
    return None if link.trouble is None else (link.status.value, link.trouble.code)


@pytest.mark.fact("F-C-069")
def test_an_unreachable_source_is_waited_for_as_long_as_it_takes() -> None:
    run = mirroring()
    run.over["west"] = Refusing()
    for _ in range(3):
        run.later(10 * MINUTE)
        assert run().status is LinkStatus.UNAVAILABLE
    assert (run.linked.status("east"), told(run.link())) == ("SOURCE_UNAVAILABLE", ("UNAVAILABLE", "TIMEOUT_ERROR"))
    assert run.link().trouble.since_ms == run.linked.clock() - 20 * MINUTE  # type: ignore[union-attr]
    run.over.clear()
    assert run().status is LinkStatus.ACTIVE
    assert (run.linked.status("east"), run.link().trouble) == ("ACTIVE", None)


def test_a_root_that_is_empty_may_only_not_be_mounted() -> None:
    run = mirroring()
    run.over["west"] = MemoryStore()
    assert run().status is LinkStatus.UNAVAILABLE


@pytest.mark.fact("F-C-072")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MendFirstError("the credentials have expired", hint="Renew them."), "AUTHENTICATION_ERROR"),
        (NotAuthorizedError("not for you", hint="Ask."), "AUTHENTICATION_ERROR"),
        (UserError("access denied", hint="Ask."), "MISCONFIGURATION_ERROR"),
    ],
)
def test_a_source_that_somebody_has_to_mend_breaks_the_link_until_that_is_done(
    error: ReconcilerError, code: str
) -> None:
    run = mirroring()
    run.over["west"] = Refusing(error)
    assert run().errors["link"] is error
    assert (run.linked.status("east"), told(run.link())) == ("LINK_FAILED", ("FAILED", code))
    run.over.clear()
    run()
    assert (run.linked.status("east"), told(run.link())) == ("ACTIVE", None)


@pytest.mark.fact("F-C-072")
def test_another_cluster_at_the_place_of_the_source_is_never_followed() -> None:
    run = mirroring(autoCreate={"enabled": True, "filters": [{"name": "*"}]})
    run()
    run.over["west"] = MemoryStore()
    other = EmbeddedCluster.create(run.over["west"], now_ms=run.linked.clock, new_id=run.linked.new_id)
    other.create_topic("clicks")
    done = run()
    assert (run.linked.status("east"), told(run.link())) == ("LINK_FAILED", ("FAILED", "MISCONFIGURATION_ERROR"))
    assert f"lies cluster {other.cluster_id}; the link was made to {run.linked.west.cluster_id}" in str(done.errors)
    assert list(run.linked.east.topics()) == [ORDERS]
    run.over.clear()
    run()
    assert run.linked.status("east") == "ACTIVE"


def test_nothing_is_committed_where_nothing_changed() -> None:
    run = mirroring(
        autoCreate={"enabled": True, "filters": [{"name": "*"}]},
        consumerOffsetSync={"enabled": True, "filters": [{"name": "*"}]},
        aclSync={"enabled": True, "filters": [{"resourceType": "topic"}]},
    )
    run()
    before = run.serial()
    for _ in range(2):
        run.later(10 * MINUTE)
        assert run().errors == {}
    run.over["west"] = Refusing()
    run()
    run.later(MINUTE)
    run()
    assert run.serial() == before + 1


@pytest.mark.fact("F-C-070")
def test_a_mirror_fails_only_once_its_source_topic_was_gone_for_the_retry_timeout() -> None:
    run = mirroring(retryTimeout="5m")
    run()
    run.linked.west.delete_topic(ORDERS)
    assert run().failed == ()
    assert seen(run) == ("SOURCE_UNAVAILABLE", "SOURCE_TOPIC_MAY_BE_DELETED")
    run.later(5 * MINUTE)
    assert (run().failed, seen(run)[0]) == ((), "SOURCE_UNAVAILABLE")
    run.later(1)
    assert (run().failed, seen(run)) == ((ORDERS,), ("FAILED", "SOURCE_TOPIC_MAY_BE_DELETED"))


@pytest.mark.fact("F-C-070", "F-C-009")
@pytest.mark.parametrize("where", ["topic", "namespace"])
@pytest.mark.parametrize("operation", ["read", "all"])
def test_a_right_that_was_revoked_is_waited_for_and_may_come_back(where: str, operation: str) -> None:
    run = mirroring()
    give = (
        (lambda rules: run.linked.west.set_topic_acls(ORDERS, rules))
        if where == "topic"
        else (lambda rules: run.linked.west.set_namespace_acls("shop", rules))
    )
    give([denied(operation)])
    run()
    assert seen(run) == ("SOURCE_UNAVAILABLE", "AUTHORIZATION_ERROR")
    run.later(4 * MINUTE)
    give([])
    run()
    assert seen(run) == ("ACTIVE", None)
    give([denied(operation)])
    for expected in ("SOURCE_UNAVAILABLE", "FAILED"):
        run()
        assert seen(run)[0] == expected
        run.later(5 * MINUTE + 1)


@pytest.mark.fact("F-C-009")
@pytest.mark.parametrize("rule", [denied("write"), denied("read", "User:link-other"), denied("read", "User:alice")])
def test_a_link_may_read_all_that_is_not_denied_to_it(rule: Any) -> None:
    run = mirroring()
    run.linked.west.set_topic_acls(ORDERS, [rule])
    run()
    assert seen(run) == ("ACTIVE", None)


@pytest.mark.fact("F-C-094")
def test_a_source_that_was_made_anew_fails_its_mirror_at_once_and_is_never_mixed() -> None:
    run = mirroring()
    run.linked.west.delete_topic(ORDERS)
    run.linked.west.create_topic(ORDERS, partitions=3)
    assert run().failed == (ORDERS,)
    assert seen(run) == ("FAILED", "SOURCE_TOPIC_ID_CHANGED")
    assert run.linked.east.topic(ORDERS).partitions == 1


def test_a_paused_mirror_fails_too_where_its_source_stays_away_and_is_still_paused_where_not() -> None:
    run = mirroring()
    run.linked.provider("east").links.ask(ORDERS, "pause")
    run.linked.west.set_topic_acls(ORDERS, [denied()])
    run()
    assert seen(run) == ("PAUSED", "AUTHORIZATION_ERROR")
    run.later(5 * MINUTE + 1)
    run()
    assert seen(run)[0] == "FAILED"


@pytest.mark.fact("F-C-062")
def test_a_paused_link_does_nothing_by_itself() -> None:
    run = mirroring(paused=True, autoCreate={"enabled": True, "filters": [{"name": "*"}]})
    run.linked.west.create_topic("clicks")
    run.over["west"] = Refusing()
    before = run.serial()
    assert run().status is LinkStatus.PAUSED
    assert (run.serial(), run.linked.status("east")) == (before, "LINK_PAUSED")


def test_a_link_that_was_paused_while_it_was_broken_is_paused_once_it_is_mended() -> None:
    run = mirroring()
    run.over["west"] = Refusing(UserError("access denied", hint="Ask."))
    run()
    declared = {**run.link().declared.spec.to_json(), "paused": True}
    run.linked.east.catalog.commit(lambda draft: alter_link(draft, LINK, declared))
    assert (run().status, run.linked.status("east")) == (LinkStatus.FAILED, "LINK_FAILED")
    run.over.clear()
    run.linked.west.alter_topic(ORDERS, partitions=2)
    assert (run().status, run.linked.status("east")) == (LinkStatus.PAUSED, "LINK_PAUSED")
    assert run.linked.east.topic(ORDERS).partitions == 1


def test_two_runners_at_once_do_what_one_does() -> None:
    run = mirroring(autoCreate={"enabled": True, "filters": [{"name": "*"}]})
    other = Runner(run.linked)
    run.linked.west.create_topic("clicks")
    with ThreadPoolExecutor(2) as threads:
        done = [pass_.result() for pass_ in [threads.submit(run), threads.submit(other)]]
    assert [one.errors for one in done] == [{}, {}]
    assert sorted(run.linked.east.topics()) == ["clicks", ORDERS]


@pytest.mark.fact("F-C-082")
def test_a_promotion_that_may_not_read_its_source_says_so_and_ends_once_it_may() -> None:
    run = mirroring()
    run.linked.west.set_topic_acls(ORDERS, [denied()])
    run.linked.provider("east").links.ask(ORDERS, "promote", operation="p-1")
    assert isinstance(run().errors[ORDERS], NotAuthorizedError)
    assert seen(run) == ("PENDING_STOPPED", "AUTHORIZATION_ERROR")
    run.linked.west.set_topic_acls(ORDERS, [])
    assert run().drove == (ORDERS,)
    assert seen(run) == ("STOPPED", None)


def test_a_source_that_is_not_declared_here_is_said_and_noted_nowhere() -> None:
    run = mirroring()
    run.linked.stores.pop("west")
    before = run.serial()
    assert "cluster west, is not known here" in str(run().errors["link"])
    assert run.serial() == before


def seen(run: Runner) -> tuple[str, str | None]:
    mirror = run.linked.seen("east")
    return mirror.status.value, None if mirror.trouble is None else mirror.trouble.code
