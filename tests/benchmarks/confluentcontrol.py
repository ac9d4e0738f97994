"""Plans, failovers and the pace on emulated Confluent clusters, compared with bare scripts and the server's rate."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measuring import HERE, RECONCILER, Row, Scale, compared, in_turns, process, script
from workspaces import topic_names, write_workspace

_WORKSPACE = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {name: bench}
spec:
  state: file://.reconciler
  manifests: [manifests]
  references: {allow: ["env:*"]}
"""
_CLUSTER = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: %s}
spec:
  provider: confluent
  confluent:
    kind: dedicated
    restEndpoint: %s
    restTimeout: 10m
    clusterId: %s
    apiKey: ${env:%s_KEY}
    apiSecret: ${env:%s_SECRET}
    bootstrapServers: [%s]
    security: {protocol: PLAINTEXT}
"""
_LINK = """\
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {name: from-east, cluster: west}
spec:
  source: east
  mirrorTopics: [%s]
"""
_TOPIC = """\
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: %s, cluster: west}
spec: {partitions: 1}
"""
_ALLOWED = ("--allow", "failover:mirror/west/*")
_RATE = 10
"""Requests a second that the slow server lets through."""


class Servers:
    """The two clusters of a process: `west` mirrors topics of `east`."""

    def __init__(self, keeper: subprocess.Popen[str]) -> None:
        self._keeper = keeper
        self.places = self._read()

    def _read(self) -> dict[str, Any]:
        assert self._keeper.stdout
        return dict(json.loads(self._keeper.stdout.readline()))

    def do(self, **order: object) -> dict[str, Any]:
        """Send an order; return time, method and path of each request by cluster since the last one."""
        assert self._keeper.stdin
        print(json.dumps(order), file=self._keeper.stdin, flush=True)
        return self._read()


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:
    yield from _plan(scale, scratch)
    yield _fail_over(scale, scratch)
    yield _keep_pace(scale, scratch)


@contextmanager
def running_confluent() -> Iterator[Servers]:
    """Yield two clusters that a process of its own emulates."""
    command = ["env", f"PYTHONPATH={HERE.parents[1]}", sys.executable, str(HERE / "probes/confluent_servers.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdin
        try:
            servers = Servers(keeper)
            for name, place in servers.places.items():
                os.environ |= {f"{name.upper()}_{part.upper()}": place[part] for part in ("key", "secret")}
            yield servers
        finally:
            keeper.stdin.close()


def _plan(scale: Scale, scratch: Path) -> Iterator[Row]:
    """Plan without a state: every topic and mirror exists and is adopted."""
    topics, mirrors = scale.of(10_000, 200), scale.of(2_000, 40)
    with running_confluent() as servers:
        folder = _link(servers, scratch / "plan", mirrors, topics)
        servers.do()
        process(RECONCILER, "plan", folder=folder)
        counted = servers.do()
        sent = [(name, path) for name, passed in counted.items() for _, _, path in passed]
        places = {name: (place["rest"], place["key"], place["secret"]) for name, place in servers.places.items()}
        file = scratch / "requests.json"
        file.write_text(json.dumps([(places[name][0], path, *places[name][1:]) for name, path in sent]))
        subjects = {
            "floor": lambda: script("floors/confluent_requests.py", str(file)).seconds,
            "ours": lambda: process(RECONCILER, "plan", folder=folder).seconds,
        }
        times = in_turns(subjects, scale.of(3, 1))
    what = f"a plan of {topics:,} topics of which {mirrors:,} are mirrors, start to exit"
    yield compared(what, "a bare script that sends its REST requests and parses the answers", times, aim=1.5)
    yield Row("REST requests of that plan, to both clusters", "a limit", str(len(sent)), "12", len(sent), 12, unit="")


def _fail_over(scale: Scale, scratch: Path) -> Row:
    """Fail over as many mirrors each time, of a pair of its own."""
    mirrors = scale.of(2_000, 40)
    names = topic_names(mirrors, mirrors // 10)
    times = {}
    for subject in ("floor", "ours"):
        with running_confluent() as servers:
            folder, place = _link(servers, scratch / subject, mirrors, mirrors), servers.places["west"]
            _apply(folder, _declare_link(names))
            if subject == "ours":
                times[subject] = _apply(folder, _declare_link(names, "failed-over"), *_ALLOWED)
            else:
                cluster = f"{place['rest']}/kafka/v3/clusters/{place['cluster_id']}"
                floor = ("floors/confluent_failover.py", cluster, place["key"], place["secret"], *names)
                times[subject] = script(*floor).seconds
    against = "a bare script that sends the same batches of 100 and polls"
    why = "One apply starts, reads the configs of all topics and plans before its first batch; the script does not."
    return compared(f"fail over {mirrors:,} mirrors of a cluster link, one apply", against, times, aim=1.5, why=why)


def _keep_pace(scale: Scale, scratch: Path) -> Row:
    """Create topics on a server that lets few requests through; those of the first second are its burst."""
    names = [f"orders-{number:03d}" for number in range(scale.of(300, 60))]
    with running_confluent() as servers:
        folder = _write_clusters(servers, scratch / "pace")
        servers.do(rate=_RATE)
        _apply(folder, "".join(_TOPIC % name for name in names))
        times = [at for at, method, _ in servers.do()["west"] if method == "POST"][_RATE:]
    used = (len(names) - _RATE - 1) / (times[-1] - times[0])
    what = f"create {len(names):,} topics where {_RATE} requests a second are let through"
    return Row(what, "the rate of the server", f"{used:.1f}/s", f"{_RATE}/s", _RATE / used, 1 / 0.8)


def _link(servers: Servers, folder: Path, mirrors: int, topics: int) -> Path:
    """Return a workspace whose cluster `west` mirrors topics of `east`, and has other topics."""
    for name, count in (("east", mirrors), ("west", topics)):
        servers.do(create=topic_names(count, count // 10), on=name)
    written = write_workspace(folder.with_name(f"{folder.name}-topics"), topics=topics, files=topics // 10, brokers="-")
    _write_clusters(servers, folder)
    _apply(folder, _declare_link(()))
    names = topic_names(mirrors, mirrors // 10)
    servers.do(adopt=names)
    for file in sorted((written / "manifests").glob("team-*.yaml"))[mirrors // 10 :]:
        shutil.copy(file, folder / "manifests")
    _declare(folder, _declare_link(names))
    return folder


def _write_clusters(servers: Servers, folder: Path) -> Path:
    (folder / "manifests").mkdir(parents=True)
    (folder / "reconciler.yaml").write_text(_WORKSPACE, encoding="utf-8")
    for name, place in servers.places.items():
        login = (name.upper(), name.upper())
        text = _CLUSTER % (name, place["rest"], place["cluster_id"], *login, place["kafka"])
        (folder / "manifests" / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder


def _declare_link(names: Sequence[str], state: str = "mirroring") -> str:
    return _LINK % ", ".join(f"{{source: {name}, state: {state}}}" for name in names)


def _declare(folder: Path, text: str) -> None:
    (folder / "manifests" / "all.yaml").write_text(text, encoding="utf-8")


def _apply(folder: Path, text: str, *options: str) -> float:
    _declare(folder, text)
    return process(RECONCILER, "apply", "--yes", *options, folder=folder).seconds
