"""Verbs of many mirrors: which are meant, what is foreseen of each, and what comes of those that cannot."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.records.log import OffsetRange
from tests.cli.sample_workspaces import CLICKS, ORDERS, Twins

LINK = "link/east/twin"
BACK = "mirror/west/shop:orders"


def lag(twins: Twins, seconds: int) -> None:
    """Let the source of orders have two records that its mirror lacks, the later so much younger than its newest."""
    log = twins.cluster("east").log("shop:orders")
    held = (batch for number, at in log.bounds().items() for batch in log.read(number, OffsetRange(at.start, at.end)))
    newest_ms = max(stamp for batch in held for stamp in batch.column("timestamp_ms").to_pylist()) + seconds * 1000
    with twins.cluster("west").producer() as writer:
        writer.send("shop:orders", '"d"', partition=1, timestamp_ms=newest_ms - 1)
        writer.send("shop:orders", '"e"', partition=1, timestamp_ms=newest_ms)
        writer.flush()


def costs_of(plan: dict[str, Any]) -> list[tuple[str, int, dict[str, Any]]]:
    """Return the address, the lost offsets and the whole cost of each change of a role in a plan."""
    costs = [(action["address"], action["estimate"]["role"]) for action in plan["actions"]]
    return [(at, sum(each["stop"] - each["start"] for each in cost["lost"]), cost) for at, cost in costs]


NAMES = [
    (("mirror/east/*",), [CLICKS, ORDERS]),
    (("topic/east/shop:o*",), [ORDERS]),
    (("mirror/*/shop:clicks", ORDERS), [CLICKS, ORDERS]),
    (("--link", LINK), [CLICKS, ORDERS]),
    (("--link", "link/*"), [CLICKS, ORDERS]),
    ((ORDERS, "--link", LINK, "mirror/east/*"), [ORDERS, CLICKS]),
]


@pytest.mark.parametrize(("named", "means"), NAMES, ids=" ".join)
def test_mirrors_are_named_by_addresses_patterns_and_links(
    twins: Twins, named: tuple[str, ...], means: list[str]
) -> None:
    actions = twins.printed("plan", "mirror", "failover", *named, "--dry-run")["actions"]
    assert {(each["address"], each["parameters"]["from"]) for each in actions} == {(at, "ACTIVE") for at in means}


UNNAMED = [
    ((), 64, "no mirrors were named"),
    (("mirror/east/none*",), 1, "no mirror matches mirror/east/none*: nothing was done"),
    (("mirror/east/*", "mirror/west/*"), 1, "no mirror matches mirror/west/*: nothing was done"),
    (("mirror/north/*",), 1, "there is no cluster 'north'"),
    (("--link", "twin"), 64, "--link 'twin' is not the address of a link"),
    (("--link", "link/east/twn"), 1, "Did you mean link/east/twin?"),
    (("--link", "link/west/*"), 1, "link/west/* has no mirrors: nothing was done"),
]


@pytest.mark.parametrize(("named", "code", "says"), UNNAMED, ids=str)
def test_what_names_no_mirror_is_refused_before_anything_is_done(
    twins: Twins, named: tuple[str, ...], code: int, says: str
) -> None:
    said = twins.typed("mirror", "pause", *named)
    assert (said.code, said.out) == (code, "")
    assert says in said.err
    assert (twins.status(ORDERS), twins.status(CLICKS)) == ("ACTIVE", "ACTIVE")


def test_a_rehearsal_says_what_is_lost_of_each_mirror_and_changes_nothing(twins: Twins) -> None:
    lag(twins, seconds=3600)
    before = twins.said("state", "history")
    said = twins.said("mirror", "failover", "--link", LINK, "--dry-run").splitlines()
    clicks, orders = (line for line in said if line.startswith("  » "))
    assert "0 offsets lost as of now" in clicks
    assert "data loss: 2 offsets (2 of partition 1), 3,600.0 s lost as of now" in orders
    assert said[-1] == "Lost in total: 2 offsets of 1 mirror, at most 3,600.0 s"
    printed = twins.printed("plan", "mirror", "failover", "mirror/east/*", "--dry-run")
    assert {at: (lost, cost["lost_ms"]) for at, lost, cost in costs_of(printed)} == {
        CLICKS: (0, None),
        ORDERS: (2, 3_600_000),
    }
    assert twins.said("state", "history") == before
    assert (twins.status(ORDERS), twins.status(CLICKS)) == ("ACTIVE", "ACTIVE")


def test_a_rehearsal_of_one_mirror_says_what_its_question_says(twins: Twins) -> None:
    lag(twins, seconds=60)
    said = twins.said("mirror", "failover", ORDERS, "--dry-run")
    asked = twins.typed("mirror", "failover", ORDERS)
    assert (asked.code, asked.out) == (64, said)


def test_the_whole_is_shown_before_it_is_done_and_counted_after(twins: Twins) -> None:
    lag(twins, seconds=60)
    asked = twins.typed("mirror", "failover", "mirror/east/*")
    assert asked.code == 64
    assert "Lost in total: 2 offsets of 1 mirror" in asked.out
    assert twins.status(ORDERS) == "ACTIVE"
    said = twins.said("mirror", "failover", "mirror/east/*", "--yes").splitlines()
    assert said[-3:] == [
        f"✓ {CLICKS}  failed over: ACTIVE → STOPPED",
        f"✓ {ORDERS}  failed over: ACTIVE → STOPPED",
        "mirror failover: 2 done",
    ]
    twins.produce("topic/east/shop:orders", "own")


def test_mirrors_in_several_states_are_told_apart(twins: Twins) -> None:
    twins.said("mirror", "failover", CLICKS, "--yes")
    said = twins.said("mirror", "failover", "--link", LINK, "--yes")
    assert said.splitlines()[-3:] == [
        f"· {CLICKS}  unchanged: STOPPED already",
        f"✓ {ORDERS}  failed over: ACTIVE → STOPPED",
        "mirror failover: 1 done, 1 unchanged",
    ]
    # One that is named itself was meant, so that it is stopped already is an error.
    named = twins.typed("mirror", "failover", CLICKS, "mirror/east/*", "--yes")
    assert named.code == 8
    assert "STOPPED: it is already stopped" in named.out
    # A verb that leads elsewhere is refused of all that cannot, with their states.
    paused = twins.typed("mirror", "pause", "mirror/east/*")
    assert (paused.code, paused.out.count("is STOPPED: ")) == (1, 2)
    assert "pause: 2 of 2 mirrors were refused or failed" in paused.err


def test_one_that_cannot_is_shown_before_the_question_and_stops_no_other(twins: Twins) -> None:
    twins.said("mirror", "failover", CLICKS, "--yes")
    rehearsed = twins.typed("mirror", "promote", CLICKS, ORDERS, "--dry-run")
    assert rehearsed.code == 8
    assert f"✗ {CLICKS}  is STOPPED: it is already stopped" in rehearsed.out
    assert f"{ORDERS}  promote: ACTIVE → STOPPED" in rehearsed.out
    assert "Nothing was done: it is a rehearsal" in rehearsed.err
    said = twins.typed("mirror", "promote", CLICKS, ORDERS, "--yes")
    assert said.code == 8
    assert twins.status(ORDERS) == "STOPPED"


def test_a_whole_link_fails_over_without_its_source_and_says_that_the_loss_is_not_known(twins: Twins) -> None:
    twins.lose("west")
    said = twins.said("mirror", "failover", "--link", LINK, "--no-state", "--yes")
    assert "Lost in total: 0 offsets of 0 mirrors; unknown of 2 mirrors" in said
    assert said.splitlines()[-1] == "mirror failover: 2 done"
    assert (twins.status_without_state(ORDERS), twins.status_without_state(CLICKS)) == ("STOPPED", "STOPPED")


def test_a_whole_link_is_paused_resumed_reversed_and_restored(twins: Twins) -> None:
    twins.said("mirror", "pause", "--link", LINK)
    assert (twins.status(ORDERS), twins.status(CLICKS)) == ("PAUSED", "PAUSED")
    twins.said("mirror", "resume", "mirror/*")
    twins.said("mirror", "reverse", "--link", LINK, "--yes")
    assert twins.status(BACK) == "ACTIVE"
    twins.said("mirror", "reverse", "mirror/west/*", "--yes")
    assert twins.status(ORDERS) == "ACTIVE"
    twins.said("mirror", "failover", "--link", LINK, "--yes")
    twins.produce("topic/west/shop:orders", "cut off")
    foreseen = twins.printed("plan", "mirror", "restore", "mirror/west/*", "--dry-run")
    assert {at: lost for at, lost, _ in costs_of(foreseen)} == {"mirror/west/shop:clicks": 0, BACK: 1}
    twins.said("mirror", "restore", "--link", LINK, "--yes")
    assert twins.status(BACK) == "ACTIVE"
    assert twins.values("topic/west/shop:orders") == ["a", "b", "c"]


# -- so many that they are read together


MANY = 12


@pytest.fixture
def many(twins: Twins) -> Twins:
    """Twelve more mirrors over the same link, all of them up to date."""
    path = twins.folder / "manifests/all.yaml"
    topics = [f"shop:more-{number:02}" for number in range(MANY)]
    path.write_text(
        path.read_text()
        + "".join(f"    - {{source: {topic!r}}}\n" for topic in topics)
        + "".join(
            "---\napiVersion: reconciler/v1\nkind: Topic\n"
            f"metadata: {{name: {topic.removeprefix('shop:')}, namespace: shop, cluster: west}}\n"
            "spec: {partitions: 1}\n"
            for topic in topics
        )
    )
    twins.said("apply", "--yes")
    return twins


@pytest.mark.thorough
@pytest.mark.parametrize("state", [(), ("--no-state",)], ids=["with the state", "without"])
def test_many_mirrors_are_foreseen_as_one_is_and_done_together(many: Twins, state: tuple[str, ...]) -> None:
    # One source is gone, and one is another topic by now: what is lost of those cannot be told.
    many.produce("topic/west/shop:more-06", "old")
    many.copy()
    west = many.cluster("west")
    for name in ("shop:more-05", "shop:more-06"):
        west.delete_topic(name)
    assert many.typed("run", "--once").code == 8
    west.create_topic("shop:more-06", partitions=1)
    lag(many, seconds=60)
    many.produce("topic/west/shop:more-03", "x", "y", "z")
    many.said("mirror", "pause", "mirror/east/shop:more-04")
    together = many.printed("plan", "mirror", "failover", "mirror/east/*", "--dry-run", *state)
    assert len(together["actions"]) == MANY + 2
    for each in together["actions"]:
        (alone,) = many.printed("plan", "mirror", "failover", each["address"], "--dry-run", *state)["actions"]
        assert alone == each
    lost = {at.rpartition(":")[2]: None if cost["unknown"] else lost for at, lost, cost in costs_of(together)}
    assert [lost[name] for name in ("orders", "clicks", "more-03", "more-05", "more-06")] == [2, 0, 3, None, None]
    said = many.said("mirror", "failover", "mirror/east/*", "--yes", *state)
    assert "Lost in total: 5 offsets of 2 mirrors" in said
    assert "; unknown of 2 mirrors" in said
    assert f"failover: {MANY + 2} done" in said
    listed = many.printed("mirrors", "mirror", "list")["mirrors"]
    assert {each["mirror_status"] for each in listed} == {"STOPPED"}


def test_of_many_without_the_state_one_that_fails_stops_no_other(many: Twins) -> None:
    many.said("mirror", "failover", "mirror/east/shop:more-02", "--yes", "--no-state")
    said = many.typed("mirror", "pause", "mirror/east/*", "--no-state")
    assert said.code == 8
    assert [line for line in said.out.splitlines() if line.startswith("✗")] == [
        "✗ mirror/east/shop:more-02  is STOPPED: cannot pause while STOPPED"
    ]
    assert said.out.count("paused: ACTIVE → PAUSED") == MANY + 1
