"""What is accepted of links and mirrors: from files as they are, and a record and clusters as plain mappings."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.manifests.load import LoadedWorkspace, load_manifests
from reconciler.manifests.overlays import Variables
from reconciler.operations.drift_patch import AcceptResult, build_patch
from reconciler.operations.plan import PlanDecision
from reconciler.operations.steps.observe import ObservedClusters
from reconciler.operations.steps.recorded import RecordedState
from reconciler.planning.actions import Adopt, Forget
from reconciler.planning.plan import Plan, PlanInput
from reconciler.planning.planner import assess_draft, decide_actions
from reconciler.resources.address import Address
from reconciler.resources.inventory import Observed, Recorded
from tests.planning.casefile import Case
from tests.planning.short import observed, recorded

HEAD = "apiVersion: reconciler/v1\n"
FILES = f"""\
{HEAD}kind: Cluster
metadata: {{name: west}}
spec: {{embedded: {{root: "file://.west"}}}}
---
{HEAD}kind: Cluster
metadata: {{name: east}}
spec: {{embedded: {{root: "file://.east"}}}}
---
{HEAD}kind: Topic
metadata: {{name: orders, cluster: west}}
spec: {{partitions: 1}}
---
{HEAD}kind: Topic
metadata: {{name: clicks, cluster: west}}
spec: {{partitions: 1}}
"""
LINK = f"""\
{HEAD}kind: MirrorLink
metadata: {{name: l, cluster: east}}
spec:
  source: west
  retryTimeout: 5m   # patience
  mirrorTopics:
    # money
    - source: orders
      configs: {{min.insync.replicas: 1}}
    - source: clicks # not money
"""
STATES = ["mirroring", "paused", "promoted", "failed-over", "reversed"]
FEATURES = [
    *("bidirectional-mode", "paused", "auto-create"),
    *("topic-config-sync", "retry-timeout", "metadata-interval", "start-offset", "mirror-configs"),
]


class Two:
    """Two clusters, a link from one to the other, and the files of both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "manifests").mkdir()
        (folder / "reconciler.yaml").write_text(f"{HEAD}kind: Workspace\nmetadata: {{name: shop}}\n")
        (folder / "manifests/all.yaml").write_text(FILES)
        self.link = folder / "manifests/link.yaml"
        self.link.write_text(LINK)
        given = {"given": {"capabilities": {"mirror_states": STATES, "link_features": FEATURES}}}
        self.given: PlanInput = Case("links", {"clusters": ["west", "east"], **given}).world.given
        short: list[dict[str, Any]] = [
            {"topic": "orders"},
            {"topic": "clicks"},
            {"link": "l", "where": "east", "source": "west"},
            {"mirror": "orders", "where": "east", "link": "l", "configs": {"min.insync.replicas": 1}},
            {"mirror": "clicks", "where": "east", "link": "l"},
        ]
        self.recorded: dict[Address, Recorded] = dict(recorded(item) for item in short)
        self.observed: dict[Address, Observed] = dict(observed(item) for item in short)
        for address, declared in self.loaded.desired.items():
            if address.startswith("cluster/"):
                mark = f"{address.removeprefix('cluster/')}-id"
                self.recorded[address] = Recorded(declared.resource, mark)
                self.observed[address] = Observed(declared.resource, mark)

    @property
    def loaded(self) -> LoadedWorkspace:
        return load_manifests(self.folder, environment=None, variables=Variables())

    @property
    def plan(self) -> Plan:
        return assess_draft(decide_actions(self.loaded.desired, self.recorded, self.observed, request=self.given), {})

    def see(self, item: dict[str, Any]) -> None:
        address, seen = observed(item)
        self.observed[address] = seen

    def accepted(self, pattern: str = "*") -> AcceptResult:
        """Accept with git what the clusters have, and check that only the record is left to learn it."""
        seen = ObservedClusters(self.observed, self.given.capabilities, self.given.identities, {})
        found = build_patch(self.loaded, PlanDecision(self.plan, None, self.recorded, seen, RecordedState()), [pattern])
        if found.patch:
            subprocess.run(["git", "apply", "-"], input=found.patch.encode(), cwd=self.folder, check=True)
            left = self.plan
            assert [action.id for action in left.actions if not isinstance(action, Adopt | Forget)] == []
            assert not left.errors
        return found


@pytest.fixture
def two(tmp_path: Path) -> Two:
    made = Two(tmp_path)
    assert (made.plan.actions, made.plan.errors) == ((), ())
    return made


MIRROR = {"mirror": "orders", "where": "east", "link": "l", "configs": {"min.insync.replicas": 1}}


@pytest.mark.parametrize(
    ("declared", "seen", "said"),
    [
        ("mirroring", {"state": "PAUSED"}, "paused"),
        ("paused", {"state": "STOPPED"}, "promoted"),
        ("paused", {"state": "STOPPED", "stopped_by": "promote"}, "promoted"),
        ("paused", {"state": "STOPPED", "stopped_by": "failover"}, "failed-over"),
    ],
    ids=["paused by hand", "stopped by an unknown command", "promoted by hand", "failed over by hand"],
)
def test_the_role_a_mirror_was_given_by_hand_becomes_its_state(
    two: Two, declared: str, seen: dict[str, str], said: str
) -> None:
    two.link.write_text(LINK.replace("replicas: 1}\n", f"replicas: 1}}\n      state: {declared}\n"))
    two.see({**MIRROR, "is": seen})
    assert two.accepted("mirror/east/orders").notes == ()
    wanted = LINK.replace("replicas: 1}\n", f"replicas: 1}}\n      state: {said}\n")
    assert two.link.read_text() == wanted


def test_a_mirror_that_goes_on_again_is_said_to_mirror(two: Two) -> None:
    two.link.write_text(LINK.replace("# not money", "# not money\n      state: paused"))
    two.accepted("mirror/east/clicks")
    assert two.link.read_text().endswith("    - source: clicks # not money\n      state: mirroring\n")


def test_a_state_that_no_manifest_names_is_told(two: Two) -> None:
    two.see({**MIRROR, "is": {"state": "FAILED"}})
    found = two.accepted("mirror/east/orders")
    assert (found.patch, len(found.notes)) == ("", 1)
    assert "it is FAILED" in found.notes[0]


def test_what_changed_on_a_link_and_on_a_mirror_is_accepted(two: Two) -> None:
    two.see({"link": "l", "where": "east", "source": "west", "retryTimeout": "10m", "paused": True})
    two.see({**MIRROR, "configs": {"min.insync.replicas": 2}})
    assert two.accepted().notes == ()
    wanted = LINK.replace("5m ", "10m ").replace("replicas: 1", "replicas: 2")
    assert two.link.read_text() == wanted + "  paused: true\n"


def test_of_the_half_that_a_link_makes_on_the_other_cluster_that_link_is_named(two: Two) -> None:
    two.link.write_text(LINK.replace("  source: west\n", "  source: west\n  mode: bidirectional\n", 1))
    half = {"link": "l", "where": "west", "source": "east", "mode": "bidirectional"}
    for known in ({"link": "l", "where": "east", "source": "west", "mode": "bidirectional"}, half):
        two.recorded.update([recorded(known)])
        two.see(known)
    two.see({**half, "retryTimeout": "10m"})
    found = two.accepted("link/west/l")
    assert found.patch == ""
    assert "it is the other half of a bidirectional link; accept that link" in found.notes[0]


def test_mirrors_that_are_gone_leave_their_link_one_by_one(two: Two) -> None:
    del two.observed[Address("mirror/east/orders")]
    assert two.accepted().notes == ()
    assert two.link.read_text() == LINK.partition("    - source: orders")[0] + "    - source: clicks # not money\n"
    del two.observed[Address("mirror/east/clicks")]
    del two.recorded[Address("mirror/east/orders")]
    assert two.accepted().notes == ()
    assert "mirrorTopics" not in two.link.read_text()


def test_a_link_that_is_gone_goes_with_its_mirrors(two: Two) -> None:
    for name in ("link/east/l", "mirror/east/orders", "mirror/east/clicks"):
        del two.observed[Address(name)]
    assert two.accepted().notes == ()
    assert not two.link.exists()


def test_a_link_that_nobody_declares_is_accepted_with_its_mirrors(two: Two) -> None:
    two.link.unlink()
    for name in ("link/east/l", "mirror/east/orders", "mirror/east/clicks"):
        del two.recorded[Address(name)]
    two.see({**MIRROR, "is": {"state": "PAUSED"}})
    assert two.accepted("link/*").notes == ()
    made = two.folder / "manifests/accepted/link-east-l.yaml"
    assert "{source: orders, state: paused, configs: {min.insync.replicas: 1}}" in made.read_text()


@pytest.mark.parametrize(
    ("making", "named"),
    [
        ({"enabled": False}, {"orders", "clicks"}),
        ({"enabled": True, "filters": [{"name": "click", "patternType": "prefixed"}]}, {"orders"}),
        ({"enabled": True, "filters": [{"name": "*"}]}, set()),
    ],
    ids=["switched off", "of other topics", "of all topics"],
)
def test_a_link_is_accepted_with_the_mirrors_that_it_does_not_make_itself(
    two: Two, making: dict[str, Any], named: set[str]
) -> None:
    two.link.unlink()
    for name in ("link/east/l", "mirror/east/orders", "mirror/east/clicks"):
        del two.recorded[Address(name)]
    two.see({"link": "l", "where": "east", "source": "west", "autoCreate": making})
    two.accepted("link/*")
    made = (two.folder / "manifests/accepted/link-east-l.yaml").read_text()
    assert {name for name in ("orders", "clicks") if f"source: {name}" in made} == named


def test_a_role_is_not_written_where_the_platform_does_not_know_it(two: Two) -> None:
    given = two.given.capabilities.items()
    only = {name: replace(one, mirrors=replace(one.mirrors, roles=frozenset({"mirroring"}))) for name, one in given}
    two.given = replace(two.given, capabilities=only)
    two.see({**MIRROR, "is": {"state": "PAUSED"}})
    assert two.accepted("mirror/east/orders").patch == ""
