"""How a benchmark measures: ours and the floor in turns, in processes of their own, and the medians compared."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
# An installed package has its bytecode, as the libraries of the floors have theirs: so has the one that is measured.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
RECONCILER = str(Path(sys.executable).with_name("reconciler"))
KIB = 1024


@dataclass(frozen=True)
class Scale:
    """How much of everything a run takes. `quick` only shows that the benchmarks work."""

    quick: bool

    def of(self, full: int, quick: int) -> int:
        return quick if self.quick else full


@dataclass(frozen=True)
class Row:
    """One line of the table. `measured` and `aim` are in the unit of `measure`."""

    what: str
    against: str
    ours: str
    floor: str
    measured: float
    aim: float
    unit: str = "×"
    why: str = ""
    """Why the aim is missed, where it is known to be: one sentence."""

    @property
    def is_met(self) -> bool:
        return self.measured <= self.aim


@dataclass(frozen=True)
class LeftOut:
    """Something that cannot be measured on this machine."""

    what: str
    why: str


@dataclass(frozen=True)
class Finished:
    """A process from start to exit."""

    seconds: float
    peak_bytes: int
    output: str


class BenchmarkError(Exception):
    """A command that was to be measured did not do its work."""


def process(*command: str, folder: Path | None = None) -> Finished:
    """Run a command to its exit. `peak_bytes` is its own resident set, not that of what it starts.

    This process stays small: a child's peak is never counted below what its parent held when it forked.
    """
    began = time.perf_counter()
    child = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    with child:
        output = child.stdout.read() if child.stdout else ""
        _, status, usage = os.wait4(child.pid, 0)
        took = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise BenchmarkError(f"{' '.join(command)} exited with {child.returncode}:\n{output}")
    return Finished(took, usage.ru_maxrss * KIB, output)


def script(name: str, *arguments: str, folder: Path | None = None) -> Finished:
    """Run a script of this folder (`floors/…`, `probes/…`); its neighbours can be imported, and the test servers."""
    return process(
        "env", f"PYTHONPATH={HERE}:{HERE.parents[1]}", sys.executable, str(HERE / name), *arguments, folder=folder
    )


def printed_seconds(name: str, *arguments: str) -> float:
    """Run a script that measures itself and prints seconds as its last line."""
    return float(script(name, *arguments).output.split()[-1])


def in_turns(subjects: Mapping[str, Callable[[], float]], repetitions: int) -> dict[str, float]:
    """Measure each once, then each again: what slows the machine for a while slows all. Return medians."""
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(repetitions):
        for name, measure in subjects.items():
            times[name].append(measure())
    return {name: statistics.median(each) for name, each in times.items()}


def compared(what: str, against: str, medians: Mapping[str, float], *, aim: float, why: str = "") -> Row:
    """Return the row of two medians, `ours` and `floor`, in seconds."""
    ours, floor = medians["ours"], medians["floor"]
    ratio = ours / floor
    return Row(what, against, in_seconds(ours), in_seconds(floor), ratio, aim, why=why)


def in_seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def as_strings(values: Sequence[object]) -> tuple[str, ...]:
    return tuple(str(value) for value in values)
