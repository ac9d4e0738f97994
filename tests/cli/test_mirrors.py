"""`mirror …` as people type it: what is listed, what several mirrors answer, and what is refused and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.resources.mirrors import TOPIC_CONFIGS_SYNC, TroubleEntry
from tests.cli.sample_links import CLICKS, ORDERS, Twins

if TYPE_CHECKING:
    from reconciler.embedded.clients.producer import Producer

PLAIN = "mirror/east/shop:plain"


def opened(twins: Twins, topic: str) -> Producer:
    """Leave a transaction open in a topic of the source: nothing behind it can be copied."""
    writer = twins.cluster("west").producer("checkout")
    writer.init_transactions()
    writer.begin()
    writer.send(topic, '"open"', partition=0)
    writer.flush()
    return writer


# -- looking


def test_mirrors_are_listed_with_states_and_lags(twins: Twins) -> None:
    twins.produce("topic/west/shop:orders", "d", "e", partition=1)
    listed = twins.said("mirror", "list").splitlines()
    assert listed[0].split("  ")[0] == "Cluster"
    assert [line.split()[:5] for line in listed[1:3]] == [
        ["east", "twin", "shop:clicks", "shop:clicks", "ACTIVE"],
        ["east", "twin", "shop:orders", "shop:orders", "ACTIVE"],
    ]
    assert [line.split()[-2:] for line in listed[1:3]] == [["1", "0"], ["2", "2"]]
    assert listed[-1] == "2 mirrors: 2 ACTIVE"
    printed = twins.printed("mirrors", "mirror", "list", "east", "--link", "twin")
    assert [row["max_mirror_lag"] for row in printed["mirrors"]] == [0, 2]
    assert twins.said("mirror", "list", "west") == "There are no mirrors on cluster west.\n"
    assert twins.printed("mirrors", "mirror", "list", "--link", "other")["mirrors"] == []
    unknown = twins.typed("mirror", "list", "north")
    assert (unknown.code, "there is no cluster 'north'" in unknown.err) == (1, True)


@pytest.mark.fact("F-C-083")
def test_a_mirror_is_described_by_partition_in_the_columns_of_the_field(twins: Twins) -> None:
    twins.produce("topic/west/shop:orders", "d", partition=1)
    said = twins.said("mirror", "describe", ORDERS).splitlines()
    assert said[0].startswith(f"{ORDERS} mirrors west/shop:orders: ACTIVE since 20")
    asked = "pause, promote, failover, reverse-and-start (mirror reverse), reverse-and-pause (mirror reverse --pause)"
    assert f"may be asked: {asked}, delete (by the files)" in said[1]
    headings = "Link Name, Mirror Topic Name, Source Topic Name, Mirror Status, Status Time (ms), Partition, "
    headings += "Partition Mirror Lag, Last Source Fetch Offset"
    assert [heading for heading in headings.split(", ") if heading not in said[3]] == []
    assert [line.split()[-3:] for line in said[4:]] == [["0", "0", "1"], ["1", "1", "0"]]
    (printed,) = twins.printed("mirror-description", "mirror", "describe", "topic/east/shop:orders")["mirrors"]
    assert [(each["lag"], each["last_source_fetch_offset"]) for each in printed["mirror_lags"]] == [(0, 1), (1, 0)]
    twins.lose("west")
    (printed,) = twins.printed("mirror-description", "mirror", "describe", ORDERS)["mirrors"]
    assert [(each["lag"], each["last_source_fetch_offset"]) for each in printed["mirror_lags"]] == [
        (None, 1),
        (None, 0),
    ]
    assert twins.said("mirror", "describe", ORDERS).splitlines()[-1].split()[-2:] == ["?", "0"]


@pytest.mark.fact("F-C-082", "F-C-210")
def test_errors_of_transitions_and_of_tasks_are_listed_and_mending_the_cause_ends_the_transition(twins: Twins) -> None:
    assert twins.said("mirror", "errors") == "Nothing is wrong.\n"
    writer = opened(twins, "shop:clicks")
    east = twins.cluster("east").linking
    east.set_task_trouble("twin", TOPIC_CONFIGS_SYNC, TroubleEntry("AUTHORIZATION_ERROR", "it may not describe", 7))
    east.ask("shop:clicks", "promote", operation="op")
    assert twins.typed("run", "--once", "--only", "mirror").code != 0
    assert twins.status(CLICKS) == "PENDING_STOPPED"
    listed = twins.printed("mirror-errors", "mirror", "errors")["errors"]
    of_mirror = [each for each in listed if each["mirror_topic_name"] == "shop:clicks"]
    assert [each["error_code"] for each in of_mirror] == ["INTERNAL_ERROR"]
    assert "lacks 1 records of its source" in of_mirror[0]["error_message"]
    assert f"INTERNAL_ERROR: {of_mirror[0]['error_message']}" in twins.said("mirror", "describe", CLICKS)
    assert "mirror shop:clicks" in twins.said("mirror", "errors", CLICKS)
    assert twins.printed("mirror-errors", "mirror", "errors", ORDERS)["errors"] == [
        each for each in listed if each["mirror_topic_name"] is None
    ]
    writer.commit()
    twins.copy()
    assert twins.status(CLICKS) == "STOPPED"
    left = twins.printed("mirror-errors", "mirror", "errors", "link/east/twin")["errors"]
    assert [each for each in left if each["mirror_topic_name"] is not None] == []


# -- asking several


@pytest.mark.fact("F-C-081")
def test_several_mirrors_are_asked_at_once_and_one_that_fails_does_not_stop_the_others(twins: Twins) -> None:
    said = twins.typed("mirror", "pause", ORDERS, PLAIN, "mirror/east/shop:none", CLICKS)
    assert said.code == 8
    assert [line for line in said.out.splitlines() if line.startswith(("✓", "✗"))] == [
        f"✓ {ORDERS}  pause: ACTIVE → PAUSED",
        f"✗ {PLAIN}  pause: topic shop:plain is not mirrored",
        "✗ mirror/east/shop:none  pause: topic shop:none does not exist",
        f"✓ {CLICKS}  pause: ACTIVE → PAUSED",
    ]
    assert "pause: 2 of 4 mirrors were refused or failed" in said.err
    printed = twins.printed("mirror-answers", "mirror", "resume", ORDERS, PLAIN, ORDERS, code=8)
    assert [(each["address"], each["after"], each["error_message"]) for each in printed["mirrors"]] == [
        (ORDERS, "ACTIVE", None),
        (PLAIN, None, f"{PLAIN}: topic shop:plain is not mirrored"),
    ]
    assert (twins.status(ORDERS), twins.status(CLICKS)) == ("ACTIVE", "PAUSED")
    none = twins.typed("mirror", "pause", PLAIN, "mirror/east/shop:none")
    assert (none.code, "2 of 2" in none.err) == (1, True)


@pytest.mark.fact("F-C-061")
def test_a_paused_mirror_fetches_nothing_and_goes_on_where_it_was(twins: Twins) -> None:
    twins.said("mirror", "pause", ORDERS)
    twins.produce("topic/west/shop:orders", "d")
    twins.copy()
    assert twins.values(ORDERS) == ["a", "b", "c"]
    pending = twins.typed("drift")
    assert (pending.code, "1 pending" in pending.out) == (0, True)
    twins.said("mirror", "resume", ORDERS)
    twins.copy()
    assert twins.values(ORDERS) == ["a", "b", "c", "d"]
    assert twins.typed("plan", "--detailed-exitcode").code == 0


# -- what is refused

WRONG = [
    (("pause",), "resume", "PAUSED", None),
    ((), "resume", "ACTIVE", "pause, promote, failover"),
    (("pause",), "pause", "PAUSED", "resume, promote, failover"),
    (("pause",), "reverse", "PAUSED", "resume, promote, failover"),
    (("failover",), "promote", "already stopped", "truncate-and-restore"),
    (("failover",), "failover", "already stopped", "truncate-and-restore"),
    (("failover",), "pause", "STOPPED", "truncate-and-restore"),
    ((), "restore", "ACTIVE", "can be restored: reconciler mirror restore mirror/west/shop:orders"),
    (("failover",), "pause", "STOPPED", "truncate-and-restore (mirror restore)"),
]


@pytest.mark.fact("F-C-060", "F-C-067")
@pytest.mark.parametrize(("before", "verb", "says", "legal"), WRONG, ids=str)
def test_a_verb_in_the_wrong_state_is_refused_with_the_state_and_what_is_legal(
    twins: Twins, before: tuple[str, ...], verb: str, says: str, legal: str | None
) -> None:
    yes = {"failover", "promote", "reverse", "restore"}
    for each in before:
        twins.said("mirror", each, ORDERS, *(["--yes"] if each in yes else []))
    said = twins.typed("mirror", verb, ORDERS, *(["--yes"] if verb in yes else []))
    if legal is None:
        assert said.code == 0
        return
    assert (said.code, said.out) == (1, "")
    assert says in said.err
    assert legal in said.err


@pytest.mark.parametrize("verb", ["describe", "pause", "resume", "promote", "failover", "reverse", "restore"])
def test_what_is_no_mirror_is_refused_with_what_comes_nearest(twins: Twins, verb: str) -> None:
    near = twins.typed("mirror", verb, "mirror/east/shop:order")
    assert (near.code, near.out) == (1, "")
    assert "does not exist" in near.err
    assert verb == "restore" or "Did you mean mirror/east/shop:orders?" in near.err
    plain = twins.typed("mirror", verb, PLAIN)
    assert (plain.code, plain.out) == (1, "")
    assert "no stopped mirror of it is known" in plain.err if verb == "restore" else "is not mirrored" in plain.err
    for wrong in ("orders", "mirror/east", "mirror/east/", "link/east/twin", "mirror//shop:orders"):
        said = twins.typed("mirror", verb, wrong)
        assert (said.code, "is not the address of a mirror" in said.err) == (64, True), said.err
    absent = twins.typed("mirror", verb, "mirror/north/shop:orders")
    assert (absent.code, "there is no cluster 'north'" in absent.err) == (1, True)
    assert twins.typed("mirror", verb).code == 64


@pytest.mark.parametrize("verb", ["promote", "failover", "reverse", "restore"])
def test_without_a_terminal_and_without_yes_nothing_is_done(twins: Twins, verb: str) -> None:
    address = ORDERS
    if verb == "restore":
        twins.said("mirror", "failover", ORDERS, "--yes")
        address = "mirror/west/shop:orders"
    before = twins.said("mirror", "list")
    said = twins.typed("mirror", verb, address)
    assert said.code == 64
    assert address in said.out
    assert "no terminal to confirm on, so nothing was done" in said.err
    assert twins.said("mirror", "list") == before


# -- making


@pytest.mark.fact("F-C-004", "F-C-005", "F-C-006")
def test_a_mirror_that_was_made_by_a_command_is_left_as_it_is(twins: Twins) -> None:
    said = twins.said("mirror", "create", "mirror/east/shop:views", "--link", "twin", "--config", "segment.bytes=2mib")
    assert said == "✓ mirror/east/shop:views  create: ACTIVE\n"
    twins.produce("topic/west/shop:views", "v")
    twins.copy()
    assert twins.values("mirror/east/shop:views") == ["v"]
    said = twins.typed("apply", "--yes")
    assert (said.code, "reconciler drift --accept mirror/east/shop:views" in said.err) == (0, True)
    assert twins.values("mirror/east/shop:views") == ["v"]
    again = twins.typed("mirror", "create", "mirror/east/shop:views", "--link", "twin")
    assert again.code == 1


REFUSED = [
    (("shop:plain", "--link", "twin"), "topic shop:plain exists"),
    (("shop:orders", "--link", "twin"), "exists"),
    (("shop:views", "--link", "twn"), "there is no link 'twn' on cluster east"),
    (("shop:none", "--link", "twin"), "shop:none does not exist"),
    (("shop:x", "--link", "twin", "--source-topic", "shop:views"), "a mirror has the name of its source"),
    (
        ("shop:views", "--link", "twin", "--config", "retention.ms=1"),
        "Cannot set configuration retention.ms for mirror",
    ),
    (("shop:views", "--link", "twin", "--config", "segment.byte=1"), "segment.byte is not a config"),
    (("shop:views", "--link", "twin", "--config", "segment.bytes=x"), "segment.bytes=x"),
]


@pytest.mark.parametrize(("arguments", "says"), REFUSED)
def test_a_mirror_that_cannot_be_made_says_why(twins: Twins, arguments: tuple[str, ...], says: str) -> None:
    name, *rest = arguments
    said = twins.typed("mirror", "create", f"mirror/east/{name}", *rest)
    assert (said.code, said.out) == (1, "")
    assert says in said.err


def test_a_mirror_whose_source_does_not_answer_is_not_made(twins: Twins) -> None:
    twins.lose("west")
    said = twins.typed("mirror", "create", "mirror/east/shop:views", "--link", "twin")
    assert (said.code, "its source topic/west/shop:views" in said.err) == (1, True)
    assert [row["mirror_topic_name"] for row in twins.printed("mirrors", "mirror", "list", "east")["mirrors"]] == [
        "shop:clicks",
        "shop:orders",
    ]


# -- comparing


def test_a_mirror_is_compared_with_its_source_by_its_address_alone(twins: Twins) -> None:
    assert "Equal: 2 partitions, 3 records" in twins.said("verify", ORDERS)
    twins.produce("topic/west/shop:orders", "d")
    behind = twins.typed("verify", ORDERS)
    assert (behind.code, "differs in end" in behind.out, "reconciler run --once" in behind.err) == (1, True, True)
    twins.said("mirror", "pause", ORDERS)
    assert "The mirror is PAUSED: nothing is copied to it" in twins.typed("verify", ORDERS).err
    assert twins.said("verify", CLICKS, "topic/west/shop:clicks")
    plain = twins.typed("verify", "topic/east/shop:plain")
    assert (plain.code, "is not mirrored" in plain.err) == (1, True)
    assert "Two logs are compared by two addresses" in plain.err


def test_topics_say_of_mirrors_what_they_follow_and_in_which_state(twins: Twins) -> None:
    twins.said("mirror", "pause", CLICKS)
    twins.said("mirror", "failover", ORDERS, "--yes")
    listed = twins.said("topic", "list").splitlines()
    assert listed[-1].split() == [CLICKS, "1", "?", "west/shop:clicks", "over", "twin:", "PAUSED"]
    assert [line for line in listed if "over twin" in line] == listed[-1:]
    assert any(line.startswith("topic/east/shop:orders ") for line in listed), "what was stopped is a topic"
    rows = {row["address"]: row["mirror"] for row in twins.printed("topics", "topic", "list")["topics"]}
    assert rows[CLICKS] == {"mirror_status": "PAUSED", "link_name": "twin", "source": "west/shop:clicks"}
    assert rows["topic/east/shop:orders"] is None
    described = twins.said("topic", "describe", CLICKS)
    assert f"mirrors west/shop:clicks over twin: PAUSED; see: reconciler mirror describe {CLICKS}" in described
    assert twins.printed("topic-description", "topic", "describe", ORDERS)["mirror"] is None
    assert "observed     PAUSED" in twins.said("show", CLICKS)
    assert CLICKS in twins.said("topic", "storage", CLICKS)
