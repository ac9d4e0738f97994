"""What commands did to mirrors, and the files do not say yet: no plan undoes it, drift tells it, accepting ends it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.cli.json.checks_json import DriftDocument
from reconciler.cli.text.drift_text import drift_lines
from reconciler.cli.text.lines import text_of
from reconciler.errors import UserError
from reconciler.operations.drift import drift
from reconciler.operations.mirrors.mirror_views import describe_mirrors
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions
from tests.operations.stage import (
    BACK,
    CLUSTER,
    COPY,
    LINK,
    MIRROR,
    SOURCE,
    TOPIC,
    give_roles,
    mirroring,
    planned,
    produce,
    status,
    take_in,
    upkeep,
    values,
    want,
)

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.planning.orders import RoleVerb


WITHOUT = Select(excludes=("*/west/*",))
"""On the day when the source is gone."""


@pytest.fixture
def shop(bench: Bench) -> Bench:
    """Ten records on `west`, mirrored to `east` over a link that goes both ways."""
    return mirroring(bench)


PREFIXED_HALF = """\
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {name: dr, cluster: west}
spec: {source: east, mode: bidirectional, prefix: "e."}
"""


def command(shop: Bench, verb: RoleVerb, address: str = MIRROR) -> None:
    """Apply a verb now, as its command does."""
    assert give_roles(shop.acting(f"mirror {verb}"), verb, address).verdict is None


def findings(shop: Bench, select: Select | None = None) -> list[tuple[str, str, str]]:
    found = drift(shop.invocation, select or Select())
    assert found.verdict is None
    assert found.obstacles == ()
    return [(each.kind, each.address, each.message) for each in found.findings]


def told(shop: Bench) -> list[str]:
    """Return what a plan warns of at the mirror."""
    return [each.message for each in shop.plan().plan.warnings if each.address == MIRROR]


@pytest.mark.fact("F-C-074")
def test_a_topic_that_a_command_made_a_mirror_is_not_said_to_be_declared_so(shop: Bench) -> None:
    command(shop, "reverse-and-start")
    (told,) = [each for each in shop.plan().plan.warnings if each.address == SOURCE]
    assert told.message.startswith(f"it is a mirror of {COPY}: ")
    made = f"{MIRROR} was made reversed by a command, and the files say mirroring"
    assert told.hint == f"{made}. To swap the roles back: reconciler mirror reverse {BACK}"
    command(shop, "reverse-and-start", BACK)
    assert [each for each in shop.plan().plan.warnings if each.address == SOURCE] == []


def test_files_that_say_something_new_are_followed(shop: Bench) -> None:
    command(shop, "pause")
    produce(shop, "west", "late")
    want(shop, "promoted")
    assert planned(shop) == [f"catch-up:{MIRROR}", f"promote:{MIRROR}"]
    assert shop.apply().verdict is None
    assert values(shop, "east")[-1] == "late"
    assert planned(shop) == []


def test_drift_says_which_cluster_it_could_not_read_though_the_plan_does_without(shop: Bench, tmp_path: Path) -> None:
    known = tmp_path / "known"
    (shop.folder / ".clusters/west").rename(shop.folder / "lost")
    command(shop, "failover")
    assert shop.plan().plan.errors == ()
    found = drift(shop.invocation, Select(), known=known)
    assert [each.kind for each in found.findings] == ["pending"]
    assert found.verdict is not None
    assert found.verdict.exit_code == UserError.exit_code
    assert found.verdict.message.startswith("cannot read cluster west: ")
    assert found.verdict.hint.endswith("To go on without: --exclude '*/west/*'")
    (error,) = DriftDocument.of(found).errors
    assert error.startswith("cannot read cluster west: ")
    first, *_ = text_of(drift_lines(found)).splitlines()
    assert first.startswith("manifests/west.yaml:1: cluster/west: cannot read cluster west: ")
    found = drift(shop.invocation, WITHOUT)
    assert (found.verdict, found.errors, [each.kind for each in found.findings]) == (None, (), ["pending"])


def test_a_failover_without_state_or_source_leaves_the_rest_to_be_applied(shop: Bench) -> None:
    (shop.folder / ".clusters/west").rename(shop.folder / "lost")
    assert give_roles(shop.acting(no_state=True), "failover", MIRROR).verdict is None
    shop.write("manifests/more.yaml", TOPIC.replace("orders", "more").replace("west", "east"))
    assert planned(shop) == ["create:topic/east/shop:more"]
    assert shop.apply().verdict is None
    assert [kind for kind, _, _ in findings(shop, WITHOUT)] == ["pending"]
    assert take_in(shop, MIRROR).left_out == 0
    assert shop.apply().verdict is None
    (shop.folder / "lost").rename(shop.folder / ".clusters/west")
    assert (planned(shop), findings(shop)) == ([], [])


# -- mirrors that their link made by itself: no file names them, before a command and after it


MADE = LINK[: LINK.index("  mirrorTopics")].replace("MODE", "bidirectional")
MADE += '  autoCreate: {enabled: true, filters: [{name: "*"}]}\n'


@pytest.fixture
def automatic(bench: Bench) -> Bench:
    """A mirror of ten records that its link made by itself."""
    for name in ("west", "east"):
        bench.write(f"manifests/{name}.yaml", CLUSTER.replace("NAME", name))
    bench.write("manifests/orders.yaml", TOPIC)
    bench.write("manifests/link.yaml", MADE)
    bench = bench.with_(environ=dict(os.environ))
    assert bench.apply().verdict is None
    produce(bench, "west", *map(str, range(10)))
    assert upkeep(bench).verdict is None
    assert (status(bench), planned(bench)) == ("ACTIVE", [])
    return bench


@pytest.mark.parametrize(
    ("asked", "left", "role"),
    [
        ([("pause", MIRROR)], "PAUSED", None),
        ([("pause", MIRROR), ("resume", MIRROR)], "ACTIVE", None),
        ([("promote", MIRROR)], "STOPPED", "promoted"),
        ([("failover", MIRROR)], "STOPPED", "failed-over"),
        ([("pause", MIRROR), ("failover", MIRROR)], "STOPPED", "failed-over"),
        ([("reverse-and-start", MIRROR), ("reverse-and-start", BACK)], "ACTIVE", None),
    ],
)
def test_what_a_command_does_to_a_mirror_that_its_link_made_is_not_recorded(
    automatic: Bench, asked: list[tuple[RoleVerb, str]], left: str, role: str | None
) -> None:
    for verb, address in asked:
        command(automatic, verb, address)
    assert status(automatic) == left
    said = f"it was made {role} by a command, and follows its source no more: no file says that"
    assert (planned(automatic), findings(automatic)) == ([], [("pending", MIRROR, said)] if role else [])


@pytest.mark.fact("F-C-073")
@pytest.mark.parametrize("is_dry_run", [True, False])
def test_nothing_is_asked_of_mirrors_whose_link_has_a_prefix_on_the_other_cluster(
    bench: Bench, *, is_dry_run: bool
) -> None:
    bench.write("manifests/half.yaml", PREFIXED_HALF)
    shop = mirroring(bench)
    answers = []
    asked: list[tuple[RoleVerb, str]]
    asked = [("reverse-and-start", MIRROR), ("failover", MIRROR), ("truncate-and-restore", BACK)]
    for verb, address in asked:
        result = give_roles(shop.acting(f"mirror {verb}"), verb, address, is_dry_run=is_dry_run and verb != "failover")
        answers += [str(error) for error in result.failed.values()]
    why = "link dr of cluster west has the prefix e."
    assert [answer.partition(". ")[0] for answer in answers] == [
        f"{MIRROR} cannot be reversed: {why}",
        f"{BACK} cannot be restored: {why}",
    ]
    assert status(shop, "west") == ""


def test_over_a_link_that_goes_one_way_no_way_back_is_offered_and_its_refusal_names_the_link(bench: Bench) -> None:
    shop = mirroring(bench, mode="destination")
    reach = SiteOptions(invocation=shop.invocation, select=Select())
    (live,) = describe_mirrors(reach, [MIRROR])
    assert live.legal == ("pause", "promote", "failover", "delete")
    command(shop, "failover")
    (stopped,) = describe_mirrors(reach, [MIRROR])
    assert stopped.legal == ("delete",)
    said = {
        BACK: "link dr has no half on cluster west, its mode on cluster east is destination",
        MIRROR: "link dr of cluster east is not bidirectional",
    }
    for address, why in said.items():
        (error,) = give_roles(shop.acting("restore"), "truncate-and-restore", address).failed.values()
        assert error.message == f"{address} cannot be restored: {why}"
