"""The day itself: mirrors acted on without files, without a state, without the source; and going back."""

from __future__ import annotations

import shutil
import uuid
from typing import TYPE_CHECKING

import orjson
import pytest

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.directory import DirectoryStore
from tests.cli.sample_links import CLICKS, ORDERS
from tests.cli.test_mirrors import opened

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Run
    from tests.cli.sample_links import Twins

RESTORED = "mirror/west/shop:orders"


def lines_of(said: str, mark: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith(mark)]


@pytest.mark.fact("F-C-065")
def test_a_failover_shows_what_is_lost_and_afterwards_nothing_dangerous_is_planned(twins: Twins) -> None:
    twins.produce("topic/west/shop:orders", "d", "e", partition=1)
    said = twins.said("mirror", "failover", ORDERS, "--yes")
    assert "    2 offsets (2 of partition 1) lost as of now, which only its source has" in said.splitlines()
    assert said.splitlines()[-1] == f"✓ {ORDERS}  failover: ACTIVE → STOPPED; it takes records"
    twins.produce("topic/east/shop:orders", "own")
    assert twins.values("topic/east/shop:orders") == ["a", "b", "c", "own"]
    planned = twins.printed("plan", "plan")
    assert (planned["actions"], planned["errors"]) == ([], [])
    (warning,) = planned["warnings"]
    assert "it was made failed-over by a command, and the files still say mirroring" in warning["message"]
    assert warning["hint"] == f"Write it into the files: reconciler drift --accept {ORDERS}"
    assert twins.typed("apply", "--yes").code == 0
    assert twins.values("topic/east/shop:orders") == ["a", "b", "c", "own"]


def test_a_failover_is_an_ordinary_run_that_the_history_tells(twins: Twins) -> None:
    twins.said("mirror", "failover", ORDERS, "--yes")
    assert "mirror failover" in twins.said("state", "history")
    recorded = twins.said("state", "show", ORDERS)
    assert "failed-over" in recorded


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
    wrong = twins.typed("mirror", "failover", ORDERS, "--yes", "--no-state", "--cluster", "east=ftp://x")
    assert (wrong.code, "does not say where an embedded cluster is" in wrong.err) == (1, True)
    nowhere = f"file://{twins.folder}/.clusters/eats"
    misspelt = twins.typed("mirror", "failover", ORDERS, "--yes", "--no-state", "--cluster", f"east={nowhere}")
    assert (misspelt.code, f"cluster east is not there: nothing is at {nowhere}" in misspelt.err) == (1, True), misspelt
    said = twins.typed("mirror", "failover", ORDERS, "--yes", "--no-state", *at)
    assert said.code == 0, said.err
    assert "cannot tell how much is lost: west is not known here" in said.out
    assert "last source fetch offset: 1 of partition 0, 0 of partition 1" in said.out
    assert lines_of(said.out, "✓") == [f"✓ {ORDERS}  failover: ACTIVE → STOPPED; it takes records"]
    assert "The state does not know of this" in said.err
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
    assert (refused.code, "hint: Where nobody can wait: --no-state" in refused.err) == (5, True), refused.err
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
    assert f"cannot tell how much is lost: at the place of west lies another cluster, {foreign_id}" in said


def test_a_failover_with_the_files_needs_no_state_that_can_be_read(twins: Twins) -> None:
    lockfile = next(path for path in (twins.folder / ".state").iterdir() if path.is_file())
    lockfile.write_text("{")
    twins.lose("west")
    refused = twins.typed("mirror", "failover", ORDERS, "--yes")
    assert refused.code == 1
    assert twins.status_without_state(ORDERS) == "ACTIVE"
    twins.said("mirror", "failover", ORDERS, "--yes", "--no-state")
    assert twins.status_without_state(ORDERS) == "STOPPED"


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
    assert f"the lag of {CLICKS} does not shrink" in said.err
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
    assert "2 offsets (2 of partition 1 from 1 on) cut off for good, which only it has" in said.out
    assert said.out.splitlines()[-1] == "    partition 1 was cut at 1: 2 offsets lost"
    twins.copy()
    assert twins.values("topic/west/shop:orders") == ["a", "b", "c", "meanwhile"]
    printed = twins.printed("mirror-answers", "mirror", "reverse", RESTORED, "--yes")
    assert [(each["before"], each["after"]) for each in printed["mirrors"]] == [("ACTIVE", "STOPPED")]
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
    assert said.splitlines()[-1] == (f"✓ {ORDERS}  reverse-and-pause: ACTIVE → STOPPED; {RESTORED} mirrors it now")
    assert twins.status(RESTORED) == "PAUSED"
    assert twins.values("topic/east/shop:orders") == ["a", "b", "c", "d"]
    assert "mirrors: 1 ACTIVE, 1 PAUSED, 1 STOPPED" in twins.said("mirror", "list")


def test_only_yes_confirms(twins: Twins, on_terminal: Callable[..., tuple[int, str]]) -> None:
    twins.produce("topic/west/shop:orders", "d")
    code, shown = on_terminal("mirror", "failover", ORDERS, types=[("Only 'yes' goes on: ", b"y\n")])
    assert code == 1
    assert "not confirmed: nothing was done" in shown
    assert twins.status(ORDERS) == "ACTIVE"
    code, shown = on_terminal("mirror", "failover", ORDERS, types=[("Only 'yes' goes on: ", b"yes\n")])
    assert code == 0, shown
    assert "1 offset (1 of partition 0) lost as of now" in shown
    assert twins.status(ORDERS) == "STOPPED"


def test_real_processes_find_what_others_did(twins: Twins, run: Run) -> None:
    twins.produce("topic/west/shop:orders", "d")
    copied = run("run", "--once", "--only", "mirror")
    assert copied.returncode == 0, copied.stderr
    failed = run("mirror", "failover", ORDERS, "--yes", "--no-state")
    assert (failed.returncode, "→ STOPPED" in failed.stdout) == (0, True), failed.stderr
    again = run("mirror", "failover", ORDERS, "--yes")
    assert (again.returncode, "already stopped" in again.stderr) == (1, True)
    assert "\x1b" not in failed.stdout + failed.stderr
