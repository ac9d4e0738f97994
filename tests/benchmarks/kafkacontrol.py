"""Plan, apply and destroy on a Kafka broker: beside bare processes, and beside the tools people do it with today."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kafkapeers import PARALLEL, Peer, terraform, topicctl
from measuring import HERE, RECONCILER, LeftOut, Row, Scale, compared, in_seconds, in_turns, process, script
from workspaces import topic_names, write_workspace

MIB = 1024 * 1024
DESTROY = (RECONCILER, "destroy", "--recursive", "--yes", "--allow", "delete:topic/west/*")
AIMS = {
    "terraform plan": 1 / 3,
    "tofu plan": 1 / 3,
    "topicctl apply --dry-run": 0.35,
    "terraform apply": 1 / 40,
    f"tofu apply {PARALLEL}": 1 / 15,
    "terraform destroy": 1 / 100,
}
"""At most so many times what each of them needs."""


@dataclass
class Bench:
    """One broker, what is measured on it, and the seconds that each thing took."""

    brokers: str
    scale: Scale
    scratch: Path
    took: dict[str, float] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """Why a tool could not be measured, by its name."""

    @property
    def topics(self) -> int:
        return self.scale.of(1_000, 100)

    @property
    def repetitions(self) -> int:
        return self.scale.of(3, 1)

    @property
    def files(self) -> int:
        return self.scale.of(100, 10)

    def workspace(self, topics: int) -> Path:
        folder = self.scratch / f"kafka-{topics}"
        return write_workspace(folder, topics=topics, files=self.files, brokers=self.brokers)

    def floor(self, name: str, *arguments: str) -> float:
        return script(f"floors/{name}.py", self.brokers, *arguments).seconds


def rows(scale: Scale, scratch: Path) -> Iterator[Row | LeftOut]:
    with running_broker() as brokers:
        bench = Bench(brokers, scale, scratch)
        yield from _created(bench)
        _measure_terraform(bench)
        yield from _planned(bench)
        yield from _beside(bench)


@contextmanager
def running_broker() -> Iterator[str]:
    """Yield how a broker is reached; a process of its own keeps it."""
    command = ["env", f"PYTHONPATH={HERE.parents[1]}", sys.executable, str(HERE / "probes" / "kafka_broker.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdin
        assert keeper.stdout
        try:
            yield keeper.stdout.readline().strip()
        finally:
            keeper.stdin.close()


def _created(bench: Bench) -> Iterator[Row]:
    """Create topics and delete them again, in turns with bare clients."""
    written, folder = bench.workspace(bench.topics), bench.scratch / "kafka-run"

    def apply() -> float:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(written, folder)
        return process(RECONCILER, "apply", "--yes", folder=folder).seconds

    subjects: dict[str, Callable[[], float]] = {
        "floor": lambda: bench.floor("kafka_create", str(bench.topics)),
        "bare delete": lambda: bench.floor("kafka_delete"),
        "ours": apply,
        "destroy": lambda: process(*DESTROY, folder=folder).seconds,
    }
    medians = in_turns(subjects, bench.repetitions)
    bench.took |= {"apply": medians["ours"], "destroy": medians["destroy"]}
    what = f"create {bench.topics:,} topics on a Kafka broker by one apply, lease and journal included"
    against = "a bare client that lists, describes, creates in one request, describes"
    yield compared(what, against, medians, aim=2)
    deleted = {"floor": medians["bare delete"], "ours": medians["destroy"]}
    what = f"delete {bench.topics:,} topics on a Kafka broker by one destroy"
    yield compared(what, "a bare client that lists, deletes in one request, sees them gone", deleted, aim=5)


def _planned(bench: Bench) -> Iterator[Row]:
    few, many = bench.scratch / f"kafka-{bench.topics}", bench.workspace(10 * bench.topics)
    found, _ = _plans(bench, few)
    bench.took["plan"] = found["ours"]
    what = "a plan with nothing to do, {:,} topics on a Kafka broker, start to exit"
    against = "a bare client that lists and describes them, and their configs"
    yield compared(what.format(bench.topics), against, found, aim=1.4)
    yield from _changed(bench, few, against)
    _measure_topicctl(bench)
    process(*DESTROY, folder=few)
    large, peak = _plans(bench, many)
    yield compared(what.format(10 * bench.topics), against, large, aim=0.45)
    against, seconds = f"the same of {bench.topics:,}", large["ours"] / found["ours"]
    yield Row(
        what.format(10 * bench.topics), against, in_seconds(large["ours"]), in_seconds(found["ours"]), seconds, 10
    )
    yield Row("memory of that plan on Kafka", "—", f"{peak / MIB:.0f} MiB", "—", peak / 1e6, 500, " MB")


def _changed(bench: Bench, folder: Path, against: str) -> Iterator[Row]:
    """Plan and apply another retention of one topic, in turns with a bare look."""
    file = folder / "manifests" / "team-000.yaml"
    text, days = file.read_text(encoding="utf-8"), iter(range(8, 30))

    def plan() -> float:
        file.write_text(text.replace("retention.ms: 7d", f"retention.ms: {next(days)}d", 1), encoding="utf-8")
        return process(RECONCILER, "plan", folder=folder).seconds

    subjects: dict[str, Callable[[], float]] = {
        "floor": lambda: bench.floor("kafka_observe"),
        "plan": plan,
        "apply": lambda: process(RECONCILER, "apply", "--yes", folder=folder).seconds,
    }
    medians = in_turns(subjects, bench.repetitions)
    for command, aim in (("plan", 1.6), ("apply", 2.0)):
        what = f"the {command} of one changed topic of {bench.topics:,} on a Kafka broker, start to exit"
        yield compared(what, against, {**medians, "ours": medians[command]}, aim=aim)


def _plans(bench: Bench, folder: Path) -> tuple[dict[str, float], int]:
    """Apply a workspace, then plan it in turns with a bare look; return the medians and the most memory of a plan."""
    process(RECONCILER, "apply", "--yes", folder=folder)
    peaks: list[int] = []

    def plan() -> float:
        finished = process(RECONCILER, "plan", "--detailed-exitcode", folder=folder)
        peaks.append(finished.peak_bytes)
        return finished.seconds

    subjects = {"floor": lambda: bench.floor("kafka_observe"), "ours": plan}
    return in_turns(subjects, bench.repetitions), max(peaks)


def _measure_terraform(bench: Bench) -> None:
    """Create, plan and delete with Terraform and OpenTofu, once each: it takes them minutes."""
    for name, options in (("terraform", ()), ("tofu", (PARALLEL,))):
        peer = terraform(name, bench.scratch / name, bench.brokers, topic_names(bench.topics, bench.files))
        quiet = ("-auto-approve", "-no-color", "-input=false", *options)
        _measure(bench, peer, f"{name} apply{' ' * bool(options)}{' '.join(options)}", "apply", *quiet)
        _measure(bench, peer, f"{name} plan", "plan", "-detailed-exitcode", "-no-color", "-input=false")
        _measure(bench, peer, f"{name} destroy", "destroy", *quiet)


def _measure_topicctl(bench: Bench) -> None:
    peer = topicctl(bench.scratch / "topicctl", bench.brokers, topic_names(bench.topics, bench.files))
    files = sorted(str(path) for path in (peer.folder / "topics").glob("*.yaml"))
    _measure(bench, peer, "topicctl apply --dry-run", "apply", "--dry-run", "--skip-confirm", *files)


def _measure(bench: Bench, peer: Peer, name: str, *arguments: str) -> None:
    if peer.missing:
        bench.missing[name] = peer.missing
    else:
        bench.took[name] = peer.run(*arguments)


def _beside(bench: Bench) -> Iterator[Row | LeftOut]:
    """Compare with what the others took, where they are installed."""
    what = {"plan": "that plan of {:,} topics", "apply": "that apply of {:,} topics", "destroy": "delete {:,} topics"}
    for name, aim in AIMS.items():
        if name in bench.missing:
            yield LeftOut(f"`{name}`", bench.missing[name])
            continue
        verb = "plan" if "dry-run" in name else name.split()[1]
        ours, theirs = bench.took[verb], bench.took[name]
        yield Row(
            what[verb].format(bench.topics), f"`{name}`", in_seconds(ours), in_seconds(theirs), ours / theirs, aim
        )
