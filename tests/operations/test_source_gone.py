"""The source's store goes away in the middle of things: what is said, that nothing is lost, and that all goes on.

Real processes: each loses the source at the very step that is named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.applying.events import ActionFailed
from reconciler.errors import PartialError, UserError
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.steps.invocation import Select
from tests.operations.stage import MIRROR, mirroring, planned, produce, status, upkeep, values, waiting, want
from tests.processes import ran

if TYPE_CHECKING:
    from conftest import Bench

OLD = [f"a{number}" for number in range(5)]

LOSING = """
import importlib, os, sys, time, uuid
from pathlib import Path
from reconciler.applying.events import ActionFailed
from reconciler.operations.apply import ApplyOptions, Hooks, apply
from reconciler.operations.steps.invocation import Invocation, Select
from reconciler.operations.run import run_once
from reconciler.operations.steps.runner import SiteOptions, Stop

folder, command, module, kind, step, *allow = sys.argv[1:]
owner = getattr(importlib.import_module(module), kind)
whole = getattr(owner, step)

def losing(*given, **named):
    source = Path(folder, ".clusters/west")
    if source.exists():
        source.rename(Path(folder, "lost"))
    return whole(*given, **named)

setattr(owner, step, losing)

def report(event):
    if isinstance(event, ActionFailed):
        print(event.id, event.error, event.hint, sep=" | ")

here = Invocation(cwd=Path(folder), environ=dict(os.environ), now_ms=lambda: time.time_ns() // 10**6,
    new_id=lambda: str(uuid.uuid4()), new_run=lambda: str(uuid.uuid4()), tool="0.1.0", who="bob@laptop")
if command == "run":
    reach = SiteOptions(invocation=here, select=Select())
    verdict = run_once(reach, only=("mirror",), report=report, stop=Stop()).verdict
else:
    select = Select(allow=tuple(allow))
    verdict = apply(here, select, ApplyOptions(yes=True), Hooks(lambda _: True, report, Stop())).verdict
sys.exit(0 if verdict is None else verdict.exit_code)
"""
LINKING = ("reconciler.embedded.link_side", "Linking")


@pytest.fixture
def shop(bench: Bench) -> Bench:
    """Ten records on `west`, mirrored to `east` over a link that goes both ways; one more waits on `west`."""
    shop = mirroring(bench)
    produce(shop, "west", "late")
    return shop


def losing(shop: Bench, command: str, module: str, kind: str, step: str, *allow: str) -> tuple[int, str]:
    """Do something in a process of its own that loses the source right before a step."""
    done = ran(LOSING, str(shop.folder), command, module, kind, step, *allow)
    assert "Traceback" not in done.stderr, done.stderr
    assert (shop.folder / "lost").exists()
    return done.returncode, done.stdout


def find(shop: Bench) -> None:
    (shop.folder / "lost").rename(shop.folder / ".clusters/west")


@pytest.mark.fact("F-C-069")
def test_during_a_copy(shop: Bench) -> None:
    code, said = losing(shop, "run", "reconciler.jobs.flows", "Following", "pieces")
    assert code == PartialError.exit_code
    assert said.startswith(f"mirror:{MIRROR} | ")
    assert values(shop, "east") == OLD
    again = upkeep(shop, "mirror")
    assert again.verdict is not None
    find(shop)
    upkeep(shop, "mirror")
    assert values(shop, "east") == [*OLD, "late"]
    assert status(shop) == "ACTIVE"
    assert planned(shop) == []


@pytest.mark.fact("F-C-064")
def test_while_a_mirror_catches_up_nothing_is_promoted(shop: Bench) -> None:
    want(shop, "promoted")
    code, said = losing(shop, "apply", "reconciler.jobs.flows", "Following", "pieces")
    assert code == PartialError.exit_code
    assert said.startswith(f"catch-up:{MIRROR} | ")
    assert status(shop) == "ACTIVE"
    with pytest.raises(UserError, match="Cannot append records to read-only mirror topic"):
        produce(shop, "east", "its own")
    find(shop)
    assert shop.apply().verdict is None
    assert values(shop, "east") == [*OLD, "late"]
    assert planned(shop) == []


@pytest.mark.fact("F-C-064", "F-C-082")
def test_during_a_promotion_it_stays_pending_and_ends_when_the_source_is_back(shop: Bench) -> None:
    want(shop, "promoted")
    code, said = losing(shop, "apply", *LINKING, "aim")
    assert code == PartialError.exit_code
    assert said.startswith(f"promote:{MIRROR} | ")
    assert status(shop) == "PENDING_STOPPED"
    passed = upkeep(shop, "mirror")
    assert passed.verdict is not None
    assert any(isinstance(event, ActionFailed) for event in shop.events)
    assert status(shop) == "PENDING_STOPPED"
    with pytest.raises(UserError, match="Cannot append records to read-only mirror topic"):
        produce(shop, "east", "its own")
    find(shop)
    assert waiting(shop) == [(MIRROR, "PENDING_STOPPED")]
    assert upkeep(shop, "mirror").verdict is None
    assert (status(shop), values(shop, "east")) == ("STOPPED", [*OLD, "late"])
    assert shop.apply().verdict is None
    assert planned(shop) == []


@pytest.mark.fact("F-C-066")
def test_a_promotion_that_lost_its_source_is_failed_over_instead(shop: Bench) -> None:
    want(shop, "promoted")
    losing(shop, "apply", *LINKING, "aim")
    want(shop, "failed-over")
    assert shop.apply(Select(allow=(f"failover:{MIRROR}",)), ApplyOptions(yes=True)).verdict is None
    assert status(shop) == "STOPPED"
    produce(shop, "east", "its own")
    assert planned(shop) == []


@pytest.mark.fact("F-C-065")
def test_during_a_failover_it_is_no_matter(shop: Bench) -> None:
    want(shop, "failed-over")
    code, said = losing(shop, "apply", *LINKING, "open_heads", f"failover:{MIRROR}")
    assert (code, said) == (0, "")
    assert (status(shop), values(shop, "east")) == ("STOPPED", OLD)
    produce(shop, "east", "its own")
    assert planned(shop) == []
