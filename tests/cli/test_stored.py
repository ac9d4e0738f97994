"""States and clusters that an older version wrote are read, continued and changed by this one.

`tests/stored/before-the-house` was written by the last commit before the modules were merged: a workspace with two
embedded clusters, a tiered topic, a compacted topic, its mirror and a consumer group.

`tests/stored/after-commands.tar.xz` was written by the last commit that did not plan commands as orders:
`tests/stored/after_commands.sh` says what was applied, and which commands changed it, with and without `--no-state`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import Call
from tests.cli.emergencies.ways import stage
from tests.cli.sample_workspaces import Shop

if TYPE_CHECKING:
    from tests.cli.emergencies.ways import Command

STORED = Path(__file__).parents[1] / "stored" / "before-the-house"


@pytest.fixture
def stored(typed: Call, tmp_path: Path) -> Call:
    shutil.copytree(STORED, tmp_path, dirs_exist_ok=True)
    return typed


def test_a_stored_workspace_has_nothing_to_do(stored: Call) -> None:
    assert stored("plan", "--detailed-exitcode").code == 0
    assert stored("drift").code == 0
    checked = stored("cluster", "check", "east")
    assert checked.code == 0, checked.out + checked.err


def test_stored_records_groups_and_mirrors_are_what_they_were(stored: Call) -> None:
    orders = [json.loads(line) for line in stored("topic", "consume", "topic/east/shop:orders").out.splitlines()]
    assert len(orders) == 300
    assert sorted(json.loads(row["value"])["n"] for row in orders) == list(range(1, 301))
    rest = stored("topic", "consume", "topic/east/shop:orders", "--group", "readers").out.splitlines()
    assert len(rest) == 200
    verified = stored("verify", "topic/east/shop:carts", "mirror/west/shop:carts")
    assert verified.code == 0, verified.out + verified.err


def test_a_stored_workspace_is_changed_and_its_history_goes_on(stored: Call, tmp_path: Path) -> None:
    manifests = tmp_path / "manifests" / "all.yaml"
    manifests.write_text(manifests.read_text().replace("partitions: 2", "partitions: 3"))
    applied = stored("apply", "--auto-approve")
    assert applied.code == 0, applied.out + applied.err
    rows = stored("state", "history", "--format", "json").out
    assert [each["serial"] for each in json.loads(rows)["snapshots"]] == [2, 1]
    assert stored("plan", "--detailed-exitcode").code == 0


COMMANDED = STORED.with_name("after-commands.tar.xz")
HELD = {
    "mirror/east/shop:failed": ["failed-1", "failed-2"],
    "mirror/east/shop:promoted": ["promoted-1", "promoted-2"],
    "topic/east/shop:roaming": ["roaming-1", "roaming-2"],
    "topic/west/shop:cancelled": ["cancelled-1", "cancelled-2"],
    "topic/west/store:boxes": ["box"],
}
"""What commands placed or let take records, by the address it has since."""


@dataclass
class Commanded(Shop):
    """A workspace after commands, and the option with which these were typed."""

    options: Command

    def values(self, address: str) -> list[str]:
        """Read the values of a topic or mirror."""
        rows = self.said("topic", "consume", address, "--output-format", "values").split()
        return sorted(json.loads(row) for row in rows)

    def do(self, *arguments: str) -> None:
        """Type a command that changes a cluster, with the state or without."""
        self.said(*arguments, *self.options)

    def settle(self) -> None:
        """Apply, and see that nothing is left to do and nothing was lost."""
        self.said("apply", "--yes")
        assert self.typed("plan", "--detailed-exitcode").code == 0


@pytest.fixture(params=["with-state", "no-state"])
def commanded(request: pytest.FixtureRequest, typed: Call, tmp_path: Path) -> Commanded:
    with tarfile.open(COMMANDED) as archive:
        archive.extractall(tmp_path / "all", filter="data")
    shutil.copytree(tmp_path / "all" / request.param, tmp_path, dirs_exist_ok=True)
    return Commanded(typed, tmp_path, ("--no-state",) if request.param == "no-state" else ())


def declare(commanded: Commanded, name: str, cluster: str, spec: str) -> None:
    with (commanded.folder / "manifests/all.yaml").open("a") as manifests:
        manifests.write(
            "---\napiVersion: reconciler/v1\nkind: Mounting\n"
            f"metadata: {{name: {name}, namespace: shop, cluster: {cluster}}}\nspec: {spec}\n"
        )


def test_what_commands_did_is_neither_taken_back_nor_made_again_empty(commanded: Commanded) -> None:
    """Whether or not the rest is done: no records are lost, and no mirror follows its source again."""
    for command in (("plan",), ("drift",), ("apply", "--yes"), ("apply", "--yes", "--only-drift")):
        done = commanded.typed(*command)
        assert "Traceback" not in done.err
    assert {address: commanded.values(address) for address in HELD} == HELD
    assert [stage("east", f"shop:{name}")(commanded) for name in ("failed", "promoted")] == ["STOPPED"] * 2
    west = commanded.cluster("west").topics()
    assert not {"shop:asleep", "shop:roaming", "depot:boxes"} & set(west)
    assert west["shop:prepared"]
    assert set(commanded.cluster("east").catalog.read().links) >= {"rescue", "still", "twin"}
    commanded.do("topic", "mount", "topic/west/shop:asleep", "--yes")
    assert commanded.values("topic/west/shop:asleep") == ["asleep-1", "asleep-2"]


def test_commands_take_back_what_older_commands_did(commanded: Commanded) -> None:
    back = [f"mirror/west/shop:{name}" for name in ("promoted", "failed", "reversed")]
    commanded.do("mirror", "resume", "mirror/east/shop:paused")
    commanded.do("mirror", "restore", *back[:2], "--yes")
    commanded.said("run", "--once", "--only", "mirror")
    commanded.do("mirror", "reverse", *back, "--yes")
    commanded.do("link", "resume", "link/east/still")
    commanded.do("mirror", "failover", "mirror/east/shop:w.made", "--yes")
    commanded.do("link", "delete", "link/east/rescue", "--yes")
    commanded.do("topic", "alter", "topic/west/shop:altered", "--delete", "retention.ms", "--yes")
    commanded.do("topic", "unmount", "topic/east/shop:roaming", "--yes")
    commanded.do("topic", "mount", "topic/west/shop:asleep", "topic/west/shop:roaming", "--yes")
    commanded.do("topic", "alter", "topic/west/shop:asleep", "--delete", "retention.ms", "--yes")
    commanded.do("mount", "cancel", "14", "--cluster", "west", "--yes")
    commanded.do("namespace", "move", "west", "store", "depot")
    commanded.settle()
    active = ("paused", "promoted", "failed", "reversed", "resting")
    assert {stage("east", f"shop:{name}")(commanded) for name in active} == {"ACTIVE"}


def test_drift_accepts_what_older_commands_did(commanded: Commanded) -> None:
    mirrors = [f"mirror/east/shop:{name}" for name in ("paused", "promoted", "failed")]
    topics = [f"topic/west/{name}" for name in ("shop:asleep", "shop:roaming", "depot:boxes", "shop:altered")]
    accepted = (*mirrors, *topics, "link/east/still", "link/east/rescue")
    patch = commanded.said("drift", *(option for address in accepted for option in ("--accept", address)))
    subprocess.run(["git", "apply"], cwd=commanded.folder, input=patch, text=True, check=True)
    commanded.do("mirror", "reverse", "mirror/west/shop:reversed", "--yes")
    commanded.do("mount", "cancel", "14", "--cluster", "west", "--yes")
    commanded.settle()
    assert {address: commanded.values(address) for address in HELD} == HELD


@pytest.mark.parametrize("way", ["command", "apply"])
def test_an_unmount_that_an_older_command_prepared_waits_for_a_command_or_is_done_by_apply_once_cancelled(
    commanded: Commanded, way: str
) -> None:
    mounting = "mounting/west/shop:prepared"
    if way == "apply":
        declare(commanded, "prepared", "west", "{state: unmounted}")
        commanded.said("apply", "--yes", "--target", mounting)
        assert "shop:prepared" in commanded.cluster("west").topics()
        commanded.do("mount", "cancel", "14", "--cluster", "west", "--yes")
        commanded.said("apply", "--yes", "--target", mounting)
    else:
        commanded.do("topic", "unmount", "--finish", "topic/west/shop:prepared", "--yes")
    assert "shop:prepared" not in commanded.cluster("west").topics()
    commanded.do("topic", "mount", "topic/east/shop:prepared", "--yes")
    assert commanded.values("topic/east/shop:prepared") == ["prepared-1", "prepared-2"]
    commanded.do("mount", "delete", "15", "--cluster", "west", "--yes")
