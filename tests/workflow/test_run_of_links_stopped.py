"""`run --interval` over several links: ended by a signal in the middle of a transition, and one of two sources gone.

Real processes: each is sent its signal by the very step that is named.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.processes import ran
from tests.workflow.linkedshop import CLUSTER, LINK, TOPIC, mirroring, opened, planned, produce, status, upkeep, values
from tests.workflow.linkedshop import MIRROR as MIRROR_OF_WEST

if TYPE_CHECKING:
    from conftest import Bench

CLICKS = "shop:clicks"
DEADLINE_S = 60.0
RUN = ("run", "--interval", "1s", "--only", "mirror")
COMMAND = (sys.executable, "-m", "reconciler.cli.main")

SIGNALLED = """
import importlib, os, signal, sys
from reconciler.cli.main import main

module, kind, step, number = sys.argv[1:5]
owner = getattr(importlib.import_module(module), kind)
whole = getattr(owner, step)

def signalled(*given, **named):
    setattr(owner, step, whole)
    os.kill(os.getpid(), int(number))
    return whole(*given, **named)

setattr(owner, step, signalled)
sys.exit(main(sys.argv[5:]))
"""
LINKING = ("reconciler.embedded.link_side", "Linking")
DRIVER = ("reconciler.operations.steps.transitions", "Driver")


@pytest.fixture
def shop(bench: Bench) -> Bench:
    """Two sources of one cluster; one more record waits on the first, whose mirror is being promoted."""
    shop = mirroring(bench)
    shop.write("manifests/north.yaml", CLUSTER.replace("NAME", "north"))
    shop.write("manifests/clicks.yaml", TOPIC.replace("orders", "clicks").replace("west", "north"))
    link = LINK.replace("dr,", "from-north,").replace("source: west", "source: north").replace("orders", "clicks")
    shop.write("manifests/clicks-link.yaml", link.replace("ROLE", "mirroring").replace("MODE", "destination"))
    assert shop.apply().verdict is None
    produce(shop, "west", "late")
    opened(shop, "east").linking.ask("shop:orders", "promote", operation="019a")
    assert status(shop) == "PENDING_STOPPED"
    return shop


def click(shop: Bench, value: str) -> None:
    with opened(shop, "north").producer() as producer:
        producer.send(CLICKS, value, partition=0)


def clicked(shop: Bench) -> list[str]:
    return [(one.value or b"").decode() for one in opened(shop, "east").consume(CLICKS)]


STEPS = [(*LINKING, "aim"), (*LINKING, "advance"), (*DRIVER, "drive")]


@pytest.mark.fact("F-C-064")
@pytest.mark.parametrize(
    "by", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.soak)], ids=["SIGTERM", "Ctrl-C"]
)
@pytest.mark.parametrize("step", STEPS, ids=[step for _, _, step in STEPS])
def test_a_run_ends_when_it_is_asked_and_the_next_one_ends_the_promotion(
    shop: Bench, step: tuple[str, str, str], by: signal.Signals
) -> None:
    done = ran(SIGNALLED, *step, str(by.value), *RUN, cwd=shop.folder)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode in {0, 4}, (done.returncode, done.stderr)
    assert status(shop) in {"PENDING_STOPPED", "STOPPED"}
    assert upkeep(shop, "mirror").verdict is None
    assert status(shop) == "STOPPED"
    assert values(shop, "east")[-1] == "late"
    assert shop.apply().verdict is None
    assert planned(shop) == []


@pytest.mark.fact("F-C-069")
def test_a_source_that_is_gone_stops_no_mirror_of_another(shop: Bench) -> None:
    (shop.folder / ".clusters/west").rename(shop.folder / "lost")
    with subprocess.Popen(
        [*COMMAND, *RUN],
        cwd=shop.folder,
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            for number in range(2):
                click(shop, f"c{number}")
                until = time.monotonic() + DEADLINE_S
                while len(clicked(shop)) <= number:
                    assert process.poll() is None
                    assert time.monotonic() < until
            assert status(shop) == "PENDING_STOPPED"
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert "Traceback" not in said, said
    assert MIRROR_OF_WEST in said or "west" in said
    assert clicked(shop) == ["c0", "c1"]
    (shop.folder / "lost").rename(shop.folder / ".clusters/west")
    assert upkeep(shop, "mirror").verdict is None
    assert (status(shop), values(shop, "east")[-1]) == ("STOPPED", "late")
