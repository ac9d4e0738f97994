"""Several at once on one cluster: workspaces, applies, and people with Kafka's own tools. Nothing is lost or undone."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cli.conftest import COMMAND, environment
from tests.cli.kafka.conftest import WORKSPACE, Desk

pytestmark = pytest.mark.soak  # minutes: brokers are started, killed and asked by whole commands


ONLY: Final = 'spec: {state: "file://state", manifests: [manifests], guards: {only: [PATTERNS]}}'
TOPICS: Final = 25
CONFIG_TOOL: Final = "kafka.admin.ConfigCommand"


def limited(folder: Path, *patterns: str) -> None:
    quoted = ", ".join(f'"{pattern}"' for pattern in patterns)
    given = WORKSPACE.replace('spec: {state: "file://state", manifests: [manifests]}', ONLY.replace("PATTERNS", quoted))
    (folder / "reconciler.yaml").write_text(given)


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment(),
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def test_two_workspaces_apply_to_one_cluster_at_once_and_keep_to_their_own(desk: Desk, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree("manifests", other / "manifests")
    theirs = f"{desk.prefix}-b"
    for number in range(TOPICS):
        desk.topic(f"t{number}", configs={"retention.ms": "1d"})
        text = Path(f"manifests/t{number}.yaml").read_text()
        (other / f"manifests/t{number}.yaml").write_text(text.replace(f'"{desk.prefix}"', f'"{theirs}"'))
    namespace = Path("manifests/namespace.yaml").read_text()
    (other / "manifests/namespace.yaml").write_text(namespace.replace(f'"{desk.prefix}"', f'"{theirs}"'))
    for folder, name in ((Path(), desk.prefix), (other, theirs)):
        limited(folder, "cluster/live", f"namespace/live/{name}", f"topic/live/{name}:*")
    both = [started(folder, "apply", "--yes") for folder in (Path(), other)]
    said = [each.communicate(timeout=120)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0], said
    listed = desk.kafka.names()
    assert {f"{name}.t{number}" for name in (desk.prefix, theirs) for number in range(TOPICS)} <= set(listed)
    again = [started(folder, "plan", "--detailed-exitcode") for folder in (Path(), other)]
    assert [(each.communicate(timeout=120)[0], each.returncode)[1] for each in again] == [0, 0]
    shutil.copy(other / "manifests/t0.yaml", "manifests/stolen.yaml")
    refused = desk.plan("--detailed-exitcode")
    assert refused.code == 7
    assert f"topic/live/{theirs}:t0" in refused.out + refused.err


def test_two_applies_of_one_workspace_do_everything_once(desk: Desk) -> None:
    for number in range(TOPICS):
        desk.topic(f"t{number}", configs={"retention.ms": "1d"})
    both = [started(Path(), "apply", "--yes") for _ in range(2)]
    said = [each.communicate(timeout=120)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0], said
    assert sorted("nothing to do" in each for each in said) == [False, True], said
    desk.settled()


def test_what_a_person_changed_meanwhile_is_told_as_drift_and_set_back(either: Desk) -> None:
    kept = either.topic("kept", partitions=2, configs={"retention.ms": "1d"})
    gone = either.topic("gone")
    either.apply()
    either.kafka.tool(
        CONFIG_TOOL,
        *("--bootstrap-server", either.kafka.bootstrap(), "--entity-type", "topics", "--entity-name", kept),
        *("--alter", "--add-config", "retention.ms=1000,flush.ms=7000"),
    )
    either.kafka.topics("--alter", "--topic", kept, "--partitions", "3")
    either.kafka.topics("--delete", "--topic", gone)
    said = either.typed("drift")
    assert said.code == 3
    for each in (f"{either.prefix}:kept", "retention.ms", "partitions", f"{either.prefix}:gone"):
        assert each in said.out, said.out
    assert either.plan().code == 1  # Partitions do not become fewer.
    either.topic("kept", partitions=3, configs={"retention.ms": "1d"})
    either.apply()
    either.settled()
    assert either.own(kept) == {"retention.ms": "86400000", "flush.ms": "7000"}
    assert gone in either.kafka.names()


@pytest.mark.parametrize("change", ["configs", "partitions", "deleted"])
def test_a_person_who_is_quicker_than_an_approved_plan_makes_it_stale(desk: Desk, change: str) -> None:
    name = desk.topic("orders", partitions=2, configs={"retention.ms": "1d"})
    desk.apply()
    desk.topic("orders", partitions=4, configs={"retention.ms": "2d"})
    assert desk.plan("--out", "plan.json").code == 0
    by_hand: dict[str, Callable[[], object]] = {
        "configs": lambda: desk.by_hand(name, {"retention.ms": "3600000"}),
        "partitions": lambda: desk.kafka.topics("--alter", "--topic", name, "--partitions", "3"),
        "deleted": lambda: desk.kafka.topics("--delete", "--topic", name),
    }
    by_hand[change]()
    said = desk.typed("apply", "plan.json")
    assert said.code == 6, said.out + said.err
    desk.apply()
    desk.settled()
    assert "PartitionCount: 4" in desk.kafka.topics("--describe", "--topic", name)


def test_a_topic_that_somebody_makes_first_is_adopted_and_never_written_over(desk: Desk) -> None:
    name = desk.topic("orders", partitions=2, configs={"retention.ms": "1d"})
    assert desk.plan("--out", "plan.json").code == 0
    desk.kafka.topics("--create", "--topic", name, "--partitions", "2", "--config", "flush.ms=7000")
    said = desk.typed("apply", "plan.json")
    assert said.code == 6, said.out + said.err
    desk.apply()
    assert desk.own(name) == {"retention.ms": "86400000", "flush.ms": "7000"}
    desk.settled()


def test_a_person_who_changes_all_the_time_spoils_no_apply(desk: Desk) -> None:
    """Whatever is refused as stale is told; once nobody changes anything, one apply sets all of it."""
    names = [desk.topic(f"t{number}", configs={"retention.ms": "1d"}) for number in range(TOPICS)]
    desk.apply()
    for round_ in range(3):
        for number in range(TOPICS):
            desk.topic(f"t{number}", configs={"retention.ms": f"{round_ + 2}d", "segment.ms": "1h"})
        applying = started(Path(), "apply", "--yes")
        beat = 0
        while applying.poll() is None:
            beat += 1
            desk.by_hand(names[beat % TOPICS], {"retention.ms": str(3_600_000 + beat)})
        said = applying.communicate()[0]
        assert applying.returncode in {0, 8}, said
    desk.apply()
    desk.settled()
    assert {desk.own_now(name)["retention.ms"] for name in names} == {str(4 * 86_400_000)}


@dataclass
class Person:
    """Somebody who makes, alters and deletes topics all the time: those that are declared, and others."""

    desk: Desk
    declared: list[str]
    own: list[str] = field(default_factory=list)
    beat: int = 0

    def act(self) -> None:
        """Do one thing; of what is declared the others may have been quicker."""
        self.beat += 1
        name = self.declared[self.beat * 7 % len(self.declared)]
        match self.beat % 4:
            case 0:
                self.own.append(f"{self.desk.prefix}.own{self.beat}")
                self._admin.create_topics([NewTopic(self.own[-1], 1, 1)])[self.own[-1]].result(30)
            case 1:
                with suppress(AssertionError):
                    self.desk.by_hand(name, {"retention.ms": str(3_600_000 + self.beat)})
            case 2:
                with suppress(KafkaException):
                    self._admin.delete_topics([name])[name].result(30)
            case _:
                with suppress(KafkaException):
                    self._admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.desk.kafka.bootstrap()})


def test_two_applies_and_a_person_on_the_same_topics_end_well_and_leave_what_is_not_declared(desk: Desk) -> None:
    names = [desk.topic(f"t{number}", configs={"retention.ms": "1d"}) for number in range(TOPICS)]
    desk.apply()
    person = Person(desk, names)
    for round_ in range(3):
        for number in range(TOPICS):
            desk.topic(f"t{number}", configs={"retention.ms": f"{round_ + 2}d", "segment.ms": "1h"})
        both = [started(Path(), "apply", "--yes") for _ in range(2)]
        while any(each.poll() is None for each in both):
            person.act()
        for each in both:
            said = each.communicate()[0]
            assert each.returncode in {0, 8}, said
            assert "Traceback" not in said, said
            assert "\nDone: " in said or "Nothing to do." in said, said
    desk.apply()
    desk.settled()
    assert {desk.own_now(name)["retention.ms"] for name in names} == {str(4 * 86_400_000)}
    assert person.own
    assert set(person.own) <= set(desk.kafka.names())
