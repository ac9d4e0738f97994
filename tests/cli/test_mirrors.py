"""`mirror …` as people type it: what is listed, what several mirrors answer, and what is refused and why."""

from __future__ import annotations

import re
import shutil
import uuid
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.directory import DirectoryStore
from reconciler.records.log import OffsetRange
from reconciler.resources.mirrors import TOPIC_CONFIGS_SYNC, Trouble, set_task_trouble
from tests.cli.sample_workspaces import CLICKS, ORDERS, Twins

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
    assert listed[0].split("  ")[0] == "cluster"
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
    assert f"commands: {asked}, delete (mirror delete)" in said[1]
    assert said[3].split() == [
        "link",
        "mirror",
        "source",
        "status",
        "since",
        "partition",
        "lag",
        "last",
        "fetched",
        "offset",
    ]
    assert " 20" in said[4]  # The time of the status, as people write it.
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
    trouble = Trouble("AUTHORIZATION_ERROR", "it may not describe", 7)
    east.change_link("twin", lambda link: set_task_trouble(link, TOPIC_CONFIGS_SYNC, trouble))
    east.start_operation("shop:clicks", "promote", operation="op")
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


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("link/east/twim", "link/east/twim: there is no such link\n  hint: Did you mean link/east/twin?"),
        ("link/east/*", "link/east/*: there is no such link\n  hint: Links there: link/east/twin"),
    ],
)
def test_errors_of_a_link_that_is_not_there_are_refused_and_not_called_none(
    twins: Twins, named: str, says: str
) -> None:
    asked = twins.typed("mirror", "errors", named)
    assert asked.code == 1
    assert says in asked.out + asked.err


def test_a_topic_in_the_way_of_a_mirror_that_its_link_would_make_is_listed_with_what_to_do(twins: Twins) -> None:
    files = twins.folder / "manifests/all.yaml"
    making = '  autoCreate: {enabled: true, filters: [{name: "shop:views"}, {name: "shop:plain"}]}\n  mirrorTopics'
    files.write_text(files.read_text().replace("  mirrorTopics", making))
    twins.said("apply", "--yes")
    twins.cluster("west").create_topic("shop:plain")
    ran = twins.typed("run", "--once", "--only", "mirror")
    message = "topic shop:plain of cluster east is in use already, so autoCreate cannot make a mirror of shop:plain"
    hint = "Exclude shop:plain by autoCreate.filters, move the existing topic, or make the link with another prefix."
    assert ran.code == 8
    assert f"link/east/twin, AutoCreateMirror: {message}" in ran.out + ran.err
    assert hint in ran.out + ran.err
    assert twins.status("mirror/east/shop:views") == "ACTIVE"
    for command in (("mirror", "errors"), ("link", "describe", "link/east/twin")):
        listed = twins.said(*command)
        assert f"{message}. {hint}" in listed
        assert "TOPIC_EXISTS_ERROR" in listed
    twins.cluster("west").delete_topic("shop:plain")
    twins.copy()
    assert twins.said("mirror", "errors") == "Nothing is wrong.\n"


# -- asking several


@pytest.mark.fact("F-C-081")
def test_several_mirrors_are_asked_at_once_and_one_that_fails_does_not_stop_the_others(twins: Twins) -> None:
    said = twins.typed("mirror", "pause", ORDERS, PLAIN, "mirror/east/shop:none", CLICKS)
    assert said.code == 8
    assert [line for line in said.out.splitlines() if line.startswith(("✓", "✗"))] == [
        f"✓ {ORDERS}  paused: ACTIVE → PAUSED",
        f"✗ {PLAIN}  topic shop:plain is not mirrored",
        "✗ mirror/east/shop:none  topic shop:none does not exist",
        f"✓ {CLICKS}  paused: ACTIVE → PAUSED",
    ]
    assert said.out.splitlines()[-1] == "mirror pause: 2 done, 2 refused or failed"
    assert "pause: 2 of 4 mirrors were refused or failed" in said.err
    resumed = twins.typed("mirror", "resume", ORDERS, PLAIN, ORDERS, "--format", "json")
    (result,) = [event for event in map(orjson.loads, resumed.out.splitlines()) if event["event"] == "result"]
    assert [(each["address"], each["state"], each["error"]) for each in result["resources"]] == [
        (ORDERS, "ACTIVE", None),
        (PLAIN, None, f"{PLAIN}: topic shop:plain is not mirrored"),
    ]
    assert (twins.status(ORDERS), twins.status(CLICKS)) == ("ACTIVE", "PAUSED")
    none = twins.typed("mirror", "pause", PLAIN, "mirror/east/shop:none")
    assert (none.code, "2 of 2" in none.err) == (1, True)


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


# -- making


REFUSED = [
    (("shop:plain", "--link", "twin"), "topic shop:plain exists"),
    (("shop:orders", "--link", "twin", "--config", "segment.bytes=2mib"), f"{ORDERS} exists already: it is ACTIVE"),
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


def test_every_mirror_of_a_link_is_compared_with_its_source_by_one_command(twins: Twins) -> None:
    twins.produce("topic/west/shop:orders", "d")
    behind = twins.typed("verify", "link/east/twin")
    assert behind.code == 1
    assert re.search(rf"^{CLICKS} +topic/west/shop:clicks +[0-9]+  equal$", behind.out, re.MULTILINE)
    assert re.search(rf"^{ORDERS} .*  differs in 1 partition$", behind.out, re.MULTILINE)
    assert f"link/east/twin: 1 mirror differs ({ORDERS})" in behind.err
    assert "reconciler run --once" in behind.err
    twins.said("run", "--once")
    assert "Equal: 2 mirrors, " in twins.said("verify", "link/east/twin")
    twins.said("mirror", "promote", CLICKS, "--yes")
    found = twins.printed("link-verification", "verify", "link/east/twin")
    assert [(each["mirror"], each["equal"]) for each in found["mirrors"]] == [(ORDERS, True)]
    assert (found["equal"], found["stopped"], found["failed"]) == (True, [CLICKS], [])


def test_a_mirror_that_cannot_be_compared_is_named_and_keeps_no_other_from_it(twins: Twins) -> None:
    twins.cluster("west").delete_topic("shop:orders")
    said = twins.typed("verify", "link/east/twin")
    assert said.code == 1
    assert "by kept digests; not compared: 1 mirror" in said.out
    (row,) = [each for each in said.out.splitlines() if each.startswith("✗")]
    assert row.startswith(f"✗ {ORDERS}: ")
    assert f"link/east/twin: 1 mirror could not be compared ({ORDERS}): " in said.err
    (hint,) = re.findall("hint: (.*)", said.err)
    assert row.count(hint.rstrip(".")) == 1  # once, not behind itself
    twins.cluster("west").delete_topic("shop:clicks")
    both = twins.typed("verify", "link/east/twin")
    assert "\nNot compared: 2 mirrors" in both.out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("link/east/twim",), 1, "there is no such link\n  hint: Did you mean link/east/twin?"),
        (("link/east/twin", ORDERS), 64, "link/east/twin is a link, which takes no second address"),
        (("link/east",), 64, "'link/east' is not the address of a link"),
        (("lnk/east/twin",), 64, "'lnk/east/twin' is not the address of a mirror or a link"),
    ],
    ids=["another-name", "two-addresses", "no-name", "another-kind"],
)
def test_what_names_no_link_to_compare_is_refused(
    twins: Twins, arguments: tuple[str, ...], code: int, says: str
) -> None:
    said = twins.typed("verify", *arguments)
    assert (said.code, said.out) == (code, "")
    assert says in said.err


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


# The day itself: mirrors acted on without files, without a state, without the source; and going back.


RESTORED = "mirror/west/shop:orders"


def lines_of(said: str, mark: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith(mark)]


@pytest.mark.fact("F-C-065")
def test_a_failover_shows_what_is_lost_and_afterwards_nothing_dangerous_is_planned(twins: Twins) -> None:
    twins.produce("topic/west/shop:orders", "d", "e", partition=1)
    said = twins.said("mirror", "failover", ORDERS, "--yes")
    assert "data loss: 2 offsets (2 of partition 1), " in said
    assert "lost as of now, which only its source has" in said
    assert said.splitlines()[-1] == f"✓ {ORDERS}  failed over: ACTIVE → STOPPED"
    twins.produce("topic/east/shop:orders", "own")
    assert twins.values("topic/east/shop:orders") == ["a", "b", "c", "own"]
    planned = twins.printed("plan", "plan")
    assert (planned["actions"], planned["errors"]) == ([], [])
    (warning,) = [each for each in planned["warnings"] if each["address"] == ORDERS]
    assert "it was made failed-over by a command, and the files still have mirroring" in warning["message"]
    assert warning["hint"] == f"Write it into the files: reconciler drift --accept {ORDERS}"
    assert twins.typed("apply", "--yes").code == 0
    assert twins.values("topic/east/shop:orders") == ["a", "b", "c", "own"]


def test_a_failover_is_an_ordinary_run_that_the_history_tells(twins: Twins) -> None:
    twins.said("mirror", "failover", ORDERS, "--yes")
    assert "mirror failover" in twins.said("state", "history")
    recorded = twins.said("state", "show", ORDERS)
    assert "failed-over" in recorded


def test_one_plan_resumes_a_link_and_promotes_its_mirror(twins: Twins) -> None:
    manifests = twins.folder / "manifests" / "all.yaml"
    written = manifests.read_text()
    manifests.write_text(written.replace("source: west\n", "source: west\n  paused: true\n"))
    twins.said("apply", "--yes")
    assert twins.status(ORDERS) == "LINK_PAUSED"
    twins.produce("topic/west/shop:orders", "d")
    manifests.write_text(written.replace('{source: "shop:orders"}', '{source: "shop:orders", state: promoted}'))
    twins.said("apply", "--yes")
    assert twins.status(ORDERS) == "STOPPED"
    assert "d" in twins.values(ORDERS)
    assert twins.typed("plan", "--detailed-exitcode").code == 0


@pytest.mark.parametrize("broken", ["gone", "unreadable"])
def test_with_a_state_the_files_are_not_needed(twins: Twins, broken: str) -> None:
    url = f"file://{twins.folder}/.state"
    if broken == "gone":
        shutil.rmtree(twins.folder / "manifests")
        (twins.folder / "reconciler.yaml").unlink()
    else:
        (twins.folder / "manifests" / "all.yaml").write_text("kind: [")
    refused = twins.typed("mirror", "failover", ORDERS, "--yes")
    assert (refused.code != 0, "--state URL" in refused.err) == (True, True)
    assert "2 mirrors: 2 ACTIVE" in twins.said("mirror", "list", "--state", url)
    assert ORDERS in twins.said("mirror", "describe", ORDERS, "--state", url)
    assert twins.said("mirror", "errors", "--state", url) == "Nothing is wrong.\n"
    twins.said("mirror", "pause", CLICKS, "--state", url)
    twins.said("mirror", "failover", ORDERS, "--yes", "--state", url)
    assert "1 PAUSED, 1 STOPPED" in twins.said("mirror", "list", "--state", url)
    nearest = twins.typed("mirror", "describe", "mirror/east/shop:order", "--state", url)
    assert f"reconciler mirror list --state {url}" in nearest.err


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("run", "--once", "--metrics", "m.prom"), "mirror/east/shop:orders"),
        (("topic", "list"), "topic/west/shop:orders"),
        (("topic", "describe", "topic/west/shop:orders"), "topic/west/shop:orders"),
        (("topic", "consume", "topic/west/shop:orders", "--output-format", "values"), '"d"'),
        (("topic", "consume", "west", "--regex", "shop:orders", "--group", "late"), "shop:orders"),
        (("topic", "storage"), "topic/west/shop:orders"),
        (("group", "list", "west"), "readers"),
        (("group", "describe", "west", "readers"), "shop:orders"),
        (("group", "reset", "west", "readers", "--to", "latest", "--force", "--yes"), "shop:orders"),
        (("group", "delete", "west", "readers", "--force", "--yes"), "readers"),
        (("namespace", "list"), "namespace/west/shop"),
        (("verify", "mirror/east/shop:clicks"), "mirror/east/shop:clicks"),
        (("verify", "link/east/twin"), "shop:clicks"),
    ],
)
def test_a_broken_manifest_stops_neither_a_schedule_nor_a_look(
    twins: Twins, command: tuple[str, ...], says: str
) -> None:
    twins.produce("topic/west/shop:orders", "d")
    twins.said("topic", "consume", "topic/west/shop:orders", "--group", "readers", "--max", "1")
    twins.copy()
    (twins.folder / "manifests" / "broken.yaml").write_text("kind: [")
    refused = twins.typed(*command)
    assert (refused.code, "To continue without the files: --state URL" in refused.err) == (1, True)
    assert says in twins.said(*command, "--state", f"file://{twins.folder}/.state")


@pytest.mark.fact("F-C-065")
def test_a_failover_needs_neither_source_nor_state_nor_files(twins: Twins) -> None:
    twins.produce("topic/west/shop:orders", "d")
    twins.lose("west")
    (twins.folder / ".state").rename(twins.folder / ".lost-state")
    (twins.folder / "manifests").rename(twins.folder / ".lost-manifests")
    (twins.folder / "reconciler.yaml").rename(twins.folder / ".lost.yaml")
    at = ("--cluster", f"east=file://{twins.folder}/.clusters/east")
    without = twins.typed("mirror", "failover", ORDERS, "--yes", *at)
    assert (without.code, "--no-state" in without.err) == (64, True)
    twice = twins.typed("mirror", "failover", ORDERS, "--yes", "--no-state", *at, *at)
    assert (twice.code, "--cluster east is given twice" in twice.err) == (64, True)
    for url in ("ftp://x", "127.0.0.1:9092"):
        wrong = twins.typed("mirror", "failover", ORDERS, "--yes", "--no-state", "--cluster", f"east={url}")
        assert (wrong.code, "does not give the location of an embedded cluster" in wrong.err) == (1, True)
        assert "For a Kafka cluster name the file of its manifest" in wrong.err
    nowhere = f"file://{twins.folder}/.clusters/eats"
    for named in ((ORDERS,), ("--link", "link/east/twin"), ("mirror/east/*",)):
        misspelt = twins.typed("mirror", "failover", *named, "--yes", "--no-state", "--cluster", f"east={nowhere}")
        assert misspelt.code == 1
        assert f"cluster east is not there: nothing is at {nowhere}" in misspelt.err
    said = twins.typed("mirror", "failover", ORDERS, "--yes", "--no-state", *at)
    assert said.code == 0, said.err
    assert "cannot tell how much is lost: west is not declared here" in said.out
    assert "last source fetch offset: 1 of partition 0, 0 of partition 1" in said.out
    assert lines_of(said.out, "✓") == [f"✓ {ORDERS}  failed over: ACTIVE → STOPPED"]
    assert "The state does not record this change" in said.err
    for name in (".state", "manifests"):
        (twins.folder / f".lost-{name.removeprefix('.')}").rename(twins.folder / name)
    (twins.folder / ".lost.yaml").rename(twins.folder / "reconciler.yaml")
    twins.find("west")
    assert twins.printed("plan", "plan")["actions"] == []
    twins.produce("topic/east/shop:orders", "own")


def test_whoever_fails_over_beside_a_run_reads_how_to_do_it_at_once(twins: Twins) -> None:
    lockfile = next(path for path in (twins.folder / ".state").iterdir() if path.is_file())
    body = orjson.loads(lockfile.read_bytes())
    body["lease"] |= {"status": "held", "lease_s": 90, "run": "r-7", "holder": "h", "who": "anna@build-7"}
    lockfile.write_bytes(orjson.dumps(body))
    refused = twins.typed("mirror", "failover", ORDERS, "--yes", "--lock-timeout", "1s")
    assert (refused.code, "hint: In an emergency, --no-state" in refused.err) == (5, True), refused.err
    assert "--no-state" not in twins.typed("mirror", "promote", ORDERS, "--yes", "--lock-timeout", "1s").err
    twins.said("mirror", "failover", ORDERS, "--yes", "--no-state")


def test_no_state_is_made_where_one_was_lost(twins: Twins) -> None:
    (twins.folder / ".state").rename(twins.folder / ".lost-state")
    refused = twins.typed("mirror", "failover", ORDERS, "--yes")
    assert (refused.code, "there is no state at " in refused.err, "--no-state" in refused.err) == (1, True, True)
    assert not (twins.folder / ".state").exists()
    twins.said("mirror", "failover", ORDERS, "--yes", "--no-state")


def test_nothing_is_measured_against_another_cluster_at_the_place_of_the_source(twins: Twins) -> None:
    twins.copy()
    twins.produce("topic/west/shop:orders", "d")
    twins.lose("west")
    store = DirectoryStore(twins.folder / ".clusters" / "west")
    foreign = EmbeddedCluster.create(store, now_ms=lambda: 1, new_id=lambda: str(uuid.uuid4()))
    foreign.create_namespace("shop")
    foreign.create_topic("shop:orders", partitions=2)
    foreign_id = foreign.cluster_id
    listed = twins.printed("mirrors", "mirror", "list", "east")["mirrors"]
    assert [row["max_mirror_lag"] for row in listed] == [None, None]
    said = twins.typed("mirror", "failover", ORDERS, "--yes").out
    assert f"cannot tell how much is lost: west is another cluster than when the link was created: {foreign_id}" in said


@pytest.mark.parametrize(
    "command", [("mirror", "pause", "mirror/*"), ("link", "pause", "link/*/twin")], ids=["mirrors", "links"]
)
def test_a_cluster_that_a_pattern_leaves_out_for_it_is_not_there_is_named(
    twins: Twins, command: tuple[str, ...]
) -> None:
    left = "cluster west is recorded, but its location is empty: its mirrors are left out"
    twins.lose("west")
    asked = twins.typed(*command)
    assert (asked.code, left in asked.err) == (0, True), asked.err
    assert left not in twins.typed(*command, "--no-state").err


@pytest.mark.fact("F-C-064", "F-C-073")
@pytest.mark.parametrize("verb", ["promote", "reverse", "restore"])
def test_what_needs_both_clusters_says_which_is_not_there_and_begins_nothing(twins: Twins, verb: str) -> None:
    address, other = ORDERS, "west"
    if verb == "restore":
        twins.said("mirror", "failover", ORDERS, "--yes")
        address, other = RESTORED, "east"
    twins.lose(other)
    said = twins.typed("mirror", verb, address, "--yes")
    assert (said.code, said.out) == (1, "")
    assert f"needs both clusters, and {other} " in said.err
    assert "Fail over" in said.err or verb == "restore"
    twins.find(other)
    assert twins.status(ORDERS) == ("STOPPED" if verb == "restore" else "ACTIVE")


@pytest.mark.fact("F-C-063")
def test_a_promotion_waits_for_lag_0_and_changes_nothing_where_it_does_not_shrink(twins: Twins) -> None:
    twins.produce("topic/west/shop:clicks", "d")
    writer = opened(twins, "shop:clicks")
    said = twins.typed("mirror", "promote", CLICKS, "--yes", "--timeout", "1s")
    assert said.code == 1
    assert f"the lag of {CLICKS} did not shrink" in said.err
    assert "nothing was changed" in said.err
    assert twins.status(CLICKS) == "ACTIVE"
    assert twins.typed("topic", "produce", CLICKS, "--input", "more.jsonl").code == 1
    writer.commit()
    twins.said("mirror", "promote", CLICKS, "--yes")
    assert twins.values("topic/east/shop:clicks") == ["c", "d", "open"]
    twins.produce("topic/east/shop:clicks", "own")
    wrong = twins.typed("mirror", "promote", ORDERS, "--yes", "--timeout", "soon")
    assert wrong.code == 64


@pytest.mark.fact("F-C-078", "F-C-079", "F-C-080", "F-C-074", "F-C-075")
def test_there_and_back_by_commands_alone(twins: Twins) -> None:
    twins.produce("topic/west/shop:orders", "late", "later", partition=1)
    twins.said("mirror", "failover", ORDERS, "--yes")
    twins.produce("topic/east/shop:orders", "meanwhile")
    wrong = twins.typed("mirror", "restore", ORDERS, "--yes")
    assert (wrong.code, f"reconciler mirror restore {RESTORED}" in wrong.err) == (1, True)
    said = twins.typed("mirror", "restore", "topic/west/shop:orders", "--yes")
    assert said.code == 0, said.err
    assert "2 offsets (2 of partition 1 from 1 on) deleted permanently, which its new source does not have" in said.out
    assert said.out.splitlines()[-1] == f"✓ {RESTORED}  restored: REGULAR → ACTIVE"
    twins.copy()
    assert twins.values("topic/west/shop:orders") == ["a", "b", "c", "meanwhile"]
    twins.said("mirror", "reverse", RESTORED, "--yes")
    assert (twins.status(ORDERS), twins.status(RESTORED)) == ("ACTIVE", "STOPPED")
    twins.produce("topic/west/shop:orders", "home")
    twins.copy()
    assert "Equal" in twins.said("verify", ORDERS)
    assert twins.values(ORDERS) == ["a", "b", "c", "home", "meanwhile"]
    assert twins.typed("plan", "--detailed-exitcode").code == 0


@pytest.mark.fact("F-C-075")
def test_a_reversal_may_leave_the_new_mirror_paused(twins: Twins) -> None:
    twins.produce("topic/west/shop:orders", "d")
    said = twins.said("mirror", "reverse", ORDERS, "--pause", "--yes")
    assert "to be copied first: 1 offset (1 of partition 0), " in said
    assert said.splitlines()[-1] == f"✓ {ORDERS}  reversed: ACTIVE → STOPPED"
    assert twins.status(RESTORED) == "PAUSED"
    assert twins.values("topic/east/shop:orders") == ["a", "b", "c", "d"]
    assert "mirrors: 1 ACTIVE, 1 PAUSED, 1 STOPPED" in twins.said("mirror", "list")


def test_a_restore_names_the_other_mirrors_of_what_it_cuts(twins: Twins) -> None:
    twins.said("link", "create", "link/east/far", "--source", "west", "--prefix", "far-")
    twins.said("mirror", "create", "mirror/east/shop:far-orders", "--link", "far")
    twins.said("mirror", "failover", ORDERS, "--yes")
    twins.produce("topic/west/shop:orders", "late")
    twins.copy()
    foreseen = twins.said("mirror", "restore", RESTORED, "--dry-run")
    warning = "mirror/east/shop:far-orders: its source topic/west/shop:orders is truncated by"
    assert warning in foreseen
    assert warning in twins.said("mirror", "restore", RESTORED, "--yes")
    assert "mirror/east/shop:far-orders" in twins.typed("run", "--once", "--only", "mirror").err


def test_what_a_mirror_follows_its_source_in_is_not_altered_and_what_is_its_own_is(twins: Twins) -> None:
    twins.said("topic", "alter", "topic/west/shop:orders", "--set", "retention.ms=9d")
    twins.copy()
    for change in (("--set", "retention.ms=5d"), ("--delete", "retention.ms"), ("--set", "cleanup.policy=compact")):
        said = twins.typed("topic", "alter", ORDERS, *change, "--yes")
        assert (said.code, "follows its source in" in said.err, "Change it on the source" in said.err) == (
            1,
            True,
            True,
        )
    for size, shown in (("2", "unset → 2MiB"), ("3", "2MiB → 3MiB")):
        assert shown in twins.said("topic", "alter", ORDERS, "--set", f"segment.bytes={size}MiB")
    twins.said("mirror", "failover", ORDERS, "--yes")
    stopped = ("topic", "alter", "topic/east/shop:orders", "--set", "retention.ms=5d", "--yes")
    assert "9d → 5d" in twins.said(*stopped)
    assert twins.typed("plan").code == 0


@pytest.mark.parametrize("state", ["SOURCE_UNAVAILABLE", "LINK_PAUSED"])
def test_a_state_that_a_link_imposes_has_a_time_of_its_own(twins: Twins, state: str) -> None:
    def described() -> tuple[str, int]:
        (mirror,) = twins.printed("mirror-description", "mirror", "describe", ORDERS)["mirrors"]
        return mirror["mirror_status"], mirror["status_time_ms"]

    active = described()
    if state == "LINK_PAUSED":
        twins.said("link", "pause", "link/east/twin")
        assert described() == (state, 0)
        assert f"{state}\n" in twins.said("mirror", "describe", ORDERS)
        twins.said("link", "resume", "link/east/twin")
    else:
        twins.lose("west")
        twins.typed("run", "--once", "--only", "mirror")
        errors = twins.printed("mirror-errors", "mirror", "errors", "link/east/twin")["errors"]
        (since,) = {
            each["since_ms"] for each in errors if each["mirror_topic_name"] is None and each["task_name"] is None
        }
        assert described() == (state, since)
        assert since > active[1]
        twins.find("west")
        twins.copy()
    assert described() == active


# Verbs of many mirrors: which are meant, what is foreseen of each, and what comes of those that cannot.


LINK = "link/east/twin"
BACK = "mirror/west/shop:orders"


def lag(twins: Twins, seconds: int) -> None:
    """Let the source of orders have two records that its mirror lacks, the later so much younger than its newest."""
    log = twins.cluster("east").log("shop:orders")
    held = (
        batch for number, at in log.read_bounds().items() for batch in log.read(number, OffsetRange(at.start, at.end))
    )
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
