"""`link list|describe|create|alter|pause|resume|delete`: what they name, refuse and do, and what the next plan says."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.cli.sample_workspaces import CLICKS, ORDERS, Twins

LINK, HALF = "link/east/twin", "link/west/twin"
EXTRA = "link/east/extra"
YELLOW = "\x1b[33m"


def states(twins: Twins) -> dict[str, str]:
    return {each["address"]: each["link_state"] for each in twins.printed("links", "link", "list")["links"]}


def planned(twins: Twins) -> list[str]:
    plan = twins.printed("plan", "plan")
    return [f"{action['verb']}:{action['address']}" for action in plan["actions"]]


def drift(twins: Twins) -> list[tuple[str, str]]:
    found = twins.typed("drift", "--format", "json")
    assert found.code in {0, 3}, found.err
    printed = twins.printed("drift", "drift", code=found.code)
    return [(each["kind"], each["address"]) for each in printed["findings"]]


def test_links_are_listed_and_described_with_their_mirrors(twins: Twins) -> None:
    (east, west) = twins.printed("links", "link", "list")["links"]
    assert (east["address"], east["source_cluster"], east["mode"]) == (LINK, "west", "bidirectional")
    assert (east["mirrors"], west["mirrors"]) == ({"ACTIVE": 2}, {})
    assert twins.said("link", "list", "west").splitlines()[1].split()[:4] == ["west", "twin", "east", "bidirectional"]
    (found,) = twins.printed("link-description", "link", "describe", LINK)["links"]
    assert (found["spec"]["startOffset"], found["tasks"], found["legal"]) == ("earliest", [], ["pause"])
    assert f"{LINK} from west" in twins.said("link", "describe", "link/*/twin")


UNNAMED = [
    (("pause",), 64, "no links were named"),
    (("pause", "mirror/east/shop:orders"), 64, "is not the address of a link"),
    (("pause", "link/east"), 64, "is not the address of a link"),
    (("pause", "link/east/none*"), 1, "no link matches link/east/none*: nothing was done"),
    (("pause", LINK, "link/east/none*"), 1, "no link matches link/east/none*: nothing was done"),
    (("pause", "link/east/twn"), 1, "Did you mean link/east/twin?"),
    (("pause", "link/north/twin"), 1, "there is no cluster 'north'"),
    (("describe", "link/north/*"), 1, "there is no cluster 'north'"),
    (("delete", LINK), 7, "has mirrors that are not stopped: 2 ACTIVE"),
    (("create", "link/east/*", "--source", "west"), 64, "is a pattern"),
    (("create", LINK, "--source", "west"), 1, f"{LINK} exists already"),
    (("create", EXTRA, "--source", "east"), 1, "a link cannot mirror cluster east to itself"),
    (("create", EXTRA, "--source", "wst"), 1, "there is no cluster 'wst'"),
    (("create", "link/east/a/b", "--source", "west"), 1, "is not a name"),
    (("create", EXTRA, "--source", "west", "--set", "autoCreate={enabled: ["), 64, "--set autoCreate"),
    (
        ("create", EXTRA, "--source", "west", "--set", "autoCreate={enabled: true, filters: [{name: 48e1230}]}"),
        1,
        'Quote it: "48e1230"',
    ),
    (("create", EXTRA, "--source", "west", "--set", "mode=source"), 64, "has its own option"),
    (("create", EXTRA, "--source", "west", "--set", "nix=1"), 1, "nix: is not a field here"),
    (("create", EXTRA, "--source", "west", "--set", "mirrorTopics=[]"), 64, "a command changes the link alone"),
    (("create", EXTRA, "--source", "west", "--set", "paused=perhaps"), 1, "paused: wants true or false"),
    (("alter", LINK), 64, "there is nothing to alter"),
    (("alter", LINK, "--set", "nix=1"), 1, "nix: is not a field here"),
    (("alter", LINK, "--set", "retryTimeout=soon"), 1, "retryTimeout: "),
    (("alter", LINK, "--delete", "retryTimeuot"), 1, "Did you mean retryTimeout?"),
    (("alter", LINK, "--delete", "source"), 64, "no command resets it"),
    (("alter", LINK, "--set", "prefix=w."), 1, "prefix of a link never changes"),
    (("alter", LINK, "--delete", "mode"), 1, "mode of a link never changes"),
]


def test_mirrors_that_files_list_are_no_difference_of_a_link(twins: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = twins.typed("show", "link/east/twin").out
    assert "mirrorTopics" in shown
    assert YELLOW not in shown


@pytest.mark.parametrize(("asked", "code", "says"), UNNAMED, ids=str)
def test_what_cannot_be_is_refused_before_anything_is_done(
    twins: Twins, asked: tuple[str, ...], code: int, says: str
) -> None:
    said = twins.typed("link", *asked)
    assert said.code == code
    assert says in said.err
    assert states(twins) == {LINK: "ACTIVE", HALF: "ACTIVE"}


@pytest.mark.fact("F-C-062")
def test_a_paused_link_is_drift_that_can_be_accepted_or_set_back(twins: Twins) -> None:
    done = twins.typed("link", "pause", LINK)
    assert f"✓ {LINK}  paused false → true" in done.out.splitlines()
    assert f"To write it into the files: reconciler drift --accept {LINK}" in done.err
    assert (twins.status(ORDERS), twins.status(CLICKS)) == ("LINK_PAUSED", "LINK_PAUSED")
    assert drift(twins) == [("drift", LINK)]
    assert planned(twins) == [f"update:{LINK}"]
    patch = twins.said("drift", "--accept", LINK)
    assert [line for line in patch.splitlines() if line.startswith("+ ")] == ["+  paused: true"]
    twins.said("apply", "--yes")
    assert states(twins)[LINK] == "ACTIVE"
    twins.said("link", "pause", LINK)
    subprocess.run(["git", "apply", "-"], input=patch.encode(), cwd=twins.folder, check=True)
    twins.said("apply", "--yes")
    assert (states(twins)[LINK], planned(twins), drift(twins)) == ("PAUSED", [], [])


def test_one_that_cannot_stops_no_other_and_a_pattern_leaves_what_is_so_already(twins: Twins) -> None:
    twins.said("link", "pause", LINK)
    again = twins.typed("link", "pause", LINK)
    assert (again.code, f"{LINK} is paused already" in again.err) == (1, True)
    said = twins.said("link", "pause", "link/*").splitlines()
    assert said[-3:-1] == [f"· {LINK}  unchanged: PAUSED already", f"✓ {HALF}  paused false → true"]
    done = twins.typed("link", "resume", "link/east/none", LINK, HALF, "--format", "json")
    result = next(line for line in map(json.loads, done.out.splitlines()) if line["event"] == "result")
    assert (done.code, [(each["address"], each["state"]) for each in result["resources"]]) == (
        8,
        [("link/east/none", None), (LINK, "ACTIVE"), (HALF, "ACTIVE")],
    )
    assert (planned(twins), drift(twins)) == ([], [])


def test_fields_of_a_link_are_altered_reset_and_set_back_by_the_files(twins: Twins) -> None:
    done = twins.typed("link", "alter", LINK, "--set", "retryTimeout=10m", "--set", "startOffset=latest")
    changes = "retryTimeout 300000 → 600000, startOffset earliest → latest"
    assert (done.code, done.out.splitlines()[-1]) == (0, f"✓ {LINK}  {changes}"), done.err
    assert spec_of(twins) == ("latest", 600_000)
    assert drift(twins) == [("drift", LINK), ("drift", LINK)]
    twins.said("link", "alter", LINK, "--delete", "startOffset")
    assert spec_of(twins) == ("earliest", 600_000)
    assert twins.said("link", "alter", LINK, "--set", "retryTimeout=10m").splitlines() == [
        f"· {LINK}  unchanged: ACTIVE already"
    ]
    twins.said("apply", "--yes")
    assert spec_of(twins) == ("earliest", 300_000)


def spec_of(twins: Twins) -> tuple[str, int]:
    (link,) = twins.printed("link-description", "link", "describe", LINK)["links"]
    return link["spec"]["startOffset"], link["spec"]["retryTimeout"]


def test_a_dry_run_changes_nothing_and_takes_no_lease(twins: Twins) -> None:
    before = twins.said("state", "history")
    plan = twins.printed("plan", "link", "pause", "link/*", "--dry-run")
    assert [action["address"] for action in plan["actions"]] == [LINK, HALF]
    forced = twins.said("link", "delete", LINK, "--force", "--dry-run")
    assert [name in forced for name in (ORDERS, CLICKS)] == [True, True]
    assert forced.count("0 offsets lost as of now") == 2
    refused = twins.typed("link", "delete", LINK, "--dry-run")
    assert (refused.code, "2 ACTIVE" in refused.out) == (7, True)
    assert (states(twins), twins.said("state", "history")) == ({LINK: "ACTIVE", HALF: "ACTIVE"}, before)


@pytest.mark.fact("F-C-091")
def test_a_link_goes_once_its_mirrors_are_stopped_and_their_topics_stay(twins: Twins) -> None:
    assert "there is no terminal to confirm on" in twins.typed("link", "delete", LINK, "--force").err
    done = twins.typed("link", "delete", LINK, "--force", "--yes")
    assert f"✓ {LINK}  deleted" in done.out.splitlines()
    assert f"To delete it too: reconciler link delete {HALF}" in done.out
    assert states(twins) == {HALF: "ACTIVE"}
    assert twins.values("topic/east/shop:orders") == ["a", "b", "c"]
    twins.produce("topic/east/shop:orders", "own")
    assert ("missing", LINK) in drift(twins)
    twins.said("link", "delete", HALF, "--yes")
    assert states(twins) == {}


def test_what_a_command_made_is_left_told_and_accepted_with_its_mirrors(twins: Twins) -> None:
    twins.said("link", "create", EXTRA, "--source", "west", "--prefix", "w.", "--set", "retryTimeout=10m")
    second = twins.typed("link", "create", "link/east/third", "--source", "west", "--prefix", "w.")
    assert (second.code, "link/east/extra (on the cluster) has the prefix 'w.', too" in second.err) == (1, True)
    both = twins.typed("link", "create", "link/east/k", "link/east/l", "--source", "west", "--prefix", "v.")
    assert "link/east/l (ordered, too) has the prefix 'v.', too" in both.out
    twins.said("mirror", "create", "mirror/east/shop:w.orders", "--link", "extra")
    twins.copy()
    assert twins.values("topic/east/shop:w.orders") == ["a", "b", "c"]
    assert (planned(twins), ("unmanaged", EXTRA) in drift(twins)) == ([], True)
    twins.said("link", "pause", EXTRA)
    assert states(twins)[EXTRA] == "PAUSED"
    twins.said("link", "resume", EXTRA)
    patch = twins.said("drift", "--accept", EXTRA)
    subprocess.run(["git", "apply", "-"], input=patch.encode(), cwd=twins.folder, check=True)
    assert twins.typed("apply", "--yes").code == 0
    assert (planned(twins), drift(twins)) == ([], [])


def test_a_bidirectional_link_is_made_with_its_other_half(twins: Twins) -> None:
    made = twins.said("link", "create", EXTRA, "--source", "west", "--mode", "bidirectional")
    assert [line.split()[1] for line in made.splitlines() if line.startswith("✓")] == [EXTRA, "link/west/extra"]
    assert {EXTRA, "link/west/extra"} <= states(twins).keys()
    twins.said("mirror", "create", "mirror/east/shop:views", "--link", "extra")
    assert twins.typed("mirror", "failover", "mirror/east/shop:views", "--yes").code == 0


def test_without_the_files_or_the_state_a_link_is_paused_nevertheless(twins: Twins) -> None:
    state = f"file://{twins.folder}/.state"
    (twins.folder / "manifests" / "all.yaml").unlink()
    twins.said("link", "pause", LINK, "--state", state)
    twins.lose("west")
    assert "✓" in twins.said("link", "resume", LINK, "--state", state)
    refused = twins.typed("link", "pause", LINK, "--state", state, "--no-state")
    assert (refused.code, "--state and --no-state cannot be combined" in refused.err) == (64, True)
    assert "link/east/twin from west" in twins.said("link", "describe", LINK, "--state", state)
