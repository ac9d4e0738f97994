"""The machine without chance: each of its rules with a death at every write, or overtaken before every write."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final, Literal

from reconciler.objectstore.memory import MemoryStore
from tests.embedded.mortal import Fault
from tests.embedded.tieredmachine import SWITCHES, WRITES, TieredMachine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.embedded.tieredmachine import Work

    Rule = Callable[[TieredMachine, Fault | None], None]


def _tend(job: str, work: Work) -> Rule:
    return lambda machine, death: machine.tend(job=job, work=work, death=death)


def _switch(then: str) -> Rule:
    def rule(machine: TieredMachine, death: Fault | None) -> None:
        machine.tend(job="retain", work="new", death=None)
        machine.switch_both(then=then, death=death)

    return rule


def _recover(machine: TieredMachine, death: Fault | None) -> None:
    machine.tend(job="retain", work="new", death=None)
    machine.lose_the_disk(death=death)


def _behind(machine: TieredMachine, death: Fault | None) -> None:
    machine.tend(job="roll", work="new", death=None)
    machine.tend(job="retain", work="none", death=death)


def _undecided(machine: TieredMachine, death: Fault | None) -> None:
    machine.begin(partition=0)
    machine.tend(job="upload", work="new", death=death)
    machine.end(commits=False)


RULES: Final[Mapping[str, Rule]] = {
    "upload": _tend("upload", "new"),
    "eviction": _tend("retain", "new"),
    "retention": _tend("retain", "old"),
    "merge": _tend("merge", "new"),
    "delete": _switch("off, delete"),
    "retain": _switch("off, retain"),
    "recovery": _recover,
    "retention before any upload": _behind,
    "upload beside a transaction": _undecided,
}
HOWS: Final[tuple[Literal["dies before", "dies after"], ...]] = ("dies before", "dies after")
WORKS: Final[Mapping[str, Work]] = {"roll": "new", "upload": "new", "retain": "old", "merge": "new"}
OTHERS: Final = ("upload", "retain", "merge", "sweep", *SWITCHES)


def die_everywhere(name: str, *, every: int = 1) -> int:
    """Let a rule die before and after each of its writes, others finish what it left; return how often it died."""
    died = 0
    for how in HOWS:
        for at in itertools.count(step=every):
            machine = TieredMachine(MemoryStore, MemoryStore)
            RULES[name](machine, Fault(at, how))
            if not machine.deaths:
                break
            died += 1
            finish(machine)
    return died


def be_overtaken(job: str, then: str, *, moments: int = 3) -> None:
    """Let one job be overtaken by another, or by a switch, before its first writes of each kind."""
    for at, kind in itertools.product(range(moments), WRITES):
        machine = TieredMachine(MemoryStore, MemoryStore)
        machine.overtake(job=job, work=WORKS[job], moment=(at, kind), then=then)
        finish(machine)


def finish(machine: TieredMachine) -> None:
    """Let others come by, switch tiering on again, and see that it all ends well."""
    machine.tend_wholly(death=None)
    machine.switch_both(then="on", death=None)
    machine.tend(job="retain", work="new", death=None)
    machine.teardown()
