"""Mirrors that `mirror create` made, and the files do not name: left alone, told, and written down where accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.operations.drift import drift
from reconciler.operations.mirrors.mirror_commands import NewMirrors, ask_mirrors, create_mirrors
from reconciler.operations.mirrors.mirror_selection import MirrorChoice
from reconciler.operations.steps.invocation import Select
from tests.operations.linked_shop import LINK, TOPIC, mirroring, planned, take_in

if TYPE_CHECKING:
    from conftest import Bench

CLICKS = "mirror/east/shop:clicks"
SAID = "it was made by a command, and the files do not name it"


@pytest.fixture
def shop(bench: Bench) -> Bench:
    """One topic that is mirrored, and another whose mirror was made by a command."""
    bench = mirroring(bench)
    bench.write("manifests/clicks.yaml", TOPIC.replace("orders", "clicks"))
    assert bench.apply().verdict is None
    create(bench)
    return bench


def create(shop: Bench) -> None:
    """Make the mirror now, as its command does."""
    new = NewMirrors(link="dr", configs={"min.insync.replicas": "1"})
    assert create_mirrors(shop.acting("mirror create"), [CLICKS], new).verdict is None


def findings(shop: Bench) -> list[tuple[str, str, str]]:
    found = drift(shop.invocation, Select())
    assert (found.verdict, found.obstacles) == (None, ())
    return [(each.kind, each.address, each.message) for each in found.findings]


def told(shop: Bench) -> list[str]:
    return [each.message for each in shop.plan().plan.warnings if each.address == CLICKS]


def test_it_is_left_told_and_accepted(shop: Bench) -> None:
    assert planned(shop) == []
    assert told(shop) == [f"{SAID}: it is left as it is"]
    assert findings(shop) == [("pending", CLICKS, SAID)]
    accepted = take_in(shop, CLICKS)
    assert (accepted.notes, accepted.left_out) == ((), 0)
    assert [line for line in accepted.patch.splitlines() if line.startswith("+ ")] == [
        '+    - {source: "shop:clicks", configs: {min.insync.replicas: 1}}',
    ]
    # What is left is for the record, and the first copy of what nothing was copied to yet.
    assert planned(shop) == [f"adopt:{CLICKS}", f"mirror:{CLICKS}"]
    assert shop.apply().verdict is None
    assert (planned(shop), told(shop), findings(shop)) == ([], [], [])
    # From here on it is the files' to take out: that is blocked, as ever.
    link = (shop.folder / "manifests/link.yaml").read_text()
    shop.write("manifests/link.yaml", link[: link.index('    - {source: "shop:clicks"')])
    assert [action.id for action in shop.plan().plan.blocked] == [f"delete:{CLICKS}"]


def test_with_the_role_that_another_command_gave_it(shop: Bench) -> None:
    done = ask_mirrors(shop.acting("mirror failover"), "failover", MirrorChoice([CLICKS]), confirm=lambda _ready: True)
    assert done.verdict is None
    assert planned(shop) == []
    assert findings(shop) == [("pending", CLICKS, SAID)]
    assert take_in(shop, CLICKS).left_out == 0
    link = (shop.folder / "manifests/link.yaml").read_text()
    assert '- {source: "shop:clicks", state: failed-over, configs' in link
    assert shop.apply().verdict is None
    assert (planned(shop), findings(shop)) == ([], [])


def test_a_link_that_lists_no_mirrors_gets_a_list(shop: Bench) -> None:
    done = ask_mirrors(
        shop.acting(), "failover", MirrorChoice(["mirror/east/shop:orders"]), confirm=lambda _ready: True
    )
    assert done.verdict is None
    shop.write("manifests/link.yaml", LINK[: LINK.index("  mirrorTopics")].replace("MODE", "bidirectional"))
    assert shop.apply().verdict is None
    take_in(shop, CLICKS)
    assert 'mirrorTopics: [{source: "shop:clicks", configs' in (shop.folder / "manifests/link.yaml").read_text()
    assert shop.apply().verdict is None
    assert (planned(shop), findings(shop)) == ([], [])


def test_it_goes_with_its_link_and_when_all_is_destroyed(shop: Bench) -> None:
    (shop.folder / "manifests/link.yaml").unlink()
    assert f"delete:{CLICKS}" in [action.id for action in shop.plan().plan.blocked]
