"""A small API server of Kubernetes, which starts each pod of Spark as a process, with the entrypoint of the image."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from reconciler.jobs.session import format_setting

ROOT = Path(__file__).parents[2]
HOST = "127.0.0.1"
SPARK_SETTINGS: dict[str, str | int | bool] = {
    "spark.driver.memory": "512m",
    "spark.executor.instances": 2,
    "spark.executor.memory": "512m",
    "spark.kubernetes.container.image": "reconciler:spark",
    "spark.kubernetes.executor.enableApiWatcher": False,
    "spark.kubernetes.executor.apiPollingInterval": "1s",
    "spark.scheduler.minRegisteredResourcesRatio": "0",
    "spark.sql.shuffle.partitions": 2,
    "spark.ui.enabled": False,
}
"""Two small executors, which the driver lists: the server sends no events to watchers."""
_PATIENCE_S = 300


class Kubernetes(ThreadingHTTPServer):
    """Objects by kind and name, and the processes of pods by name, in the order in which they started."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__((HOST, 0), _Requests)
        self.folder, self.url = folder, f"http://{HOST}:{self.server_port}"
        self.lock = threading.Lock()
        self.objects: dict[str, dict[str, Any]] = defaultdict(dict)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def create(self, kind: str, document: Any) -> Any:
        """Store an object, and start each pod whose config maps exist now."""
        name = document["metadata"]["name"]
        document["metadata"] |= {"uid": name, "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
        self.objects[kind][name] = document
        for name, pod in self.objects["pods"].items():
            maps = {each["name"]: each["configMap"]["name"] for each in pod["spec"]["volumes"] if "configMap" in each}
            if name not in self.processes and set(maps.values()) <= set(self.objects["configmaps"]):
                self.processes[name] = self._start(pod, self.folder / name, maps)
        return document

    def select(self, kind: str, selector: str) -> list[Any]:
        """Return the objects of a kind with the labels of a selector such as `a=b,c!=d`."""
        for name, pod in self.objects["pods"].items():
            code = self.processes[name].poll() if name in self.processes else None
            phase = "Running" if code is None else "Failed" if code else "Succeeded"
            pod["status"] = {"phase": phase if name in self.processes else "Pending", "podIP": HOST}
        terms = [term.partition("=") for term in selector.split(",") if term]
        return [
            document
            for document in self.objects[kind].values()
            if all(
                (document["metadata"]["labels"].get(label.removesuffix("!")) == value) != label.endswith("!")
                for label, _, value in terms
            )
        ]

    def delete(self, kind: str, name: str) -> None:
        del self.objects[kind][name]
        if name in self.processes:
            self.processes[name].terminate()

    def submit(self, main: Path, *arguments: str, conf: dict[str, str | int | bool]) -> int:
        """Run a Python program in cluster mode; return the exit code of the driver's pod."""
        settings = SPARK_SETTINGS | {
            "spark.kubernetes.driver.master": self.url,
            "spark.kubernetes.driverEnv.PYTHONPATH": str(ROOT),
            "spark.kubernetes.executor.useDriverPodIP": True,  # the server has no names of services
            "spark.kubernetes.submission.waitAppCompletion": False,
            "spark.pyspark.python": sys.executable,
            **conf,
        }
        options = [part for name, value in settings.items() for part in ("--conf", f"{name}={format_setting(value)}")]
        submit = [Path(sys.executable).with_name("spark-submit"), "--master", f"k8s://{self.url}"]
        subprocess.run([*submit, "--deploy-mode", "cluster", *options, f"local://{main}", *arguments], check=True)
        return next(iter(self.processes.values())).wait(_PATIENCE_S)

    def _start(self, pod: Any, folder: Path, maps: dict[str, str]) -> subprocess.Popen[bytes]:
        """Start the container of a pod, with folders in place of its volumes."""
        (container,) = pod["spec"]["containers"]
        folders = {}
        for mount in container["volumeMounts"]:
            folders[mount["mountPath"]] = volume = folder / mount["name"]
            volume.mkdir(parents=True)
            if mount["name"] in maps:
                for file, text in self.objects["configmaps"][maps[mount["name"]]]["data"].items():
                    (volume / file).write_text(text)

        def mounted(value: str) -> str:
            return next((value.replace(path, str(to)) for path, to in folders.items() if value.startswith(path)), value)

        fields = {"status.podIP": HOST, "metadata.name": folder.name}
        environ = {
            each["name"]: fields[each["valueFrom"]["fieldRef"]["fieldPath"]] if "valueFrom" in each else each["value"]
            for each in container["env"]
        }
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        with (folder / "log").open("wb") as log:
            return subprocess.Popen(
                [ROOT / "spark-entrypoint", *map(mounted, container["args"])],
                env={"PATH": path, **{name: mounted(value) for name, value in environ.items()}},
                stdout=log,
                stderr=log,
            )


class _Requests(BaseHTTPRequestHandler):
    server: Kubernetes
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kind, *name = url.path.removeprefix("/api/v1/namespaces/default/").split("/")
        (selector,) = parse_qs(url.query).get("labelSelector", [""])
        with self.server.lock:
            status, document = self._do(kind, name, selector, body)
        answer = json.dumps({"apiVersion": "v1", **document}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _do(self, kind: str, name: list[str], selector: str, body: bytes) -> tuple[int, Any]:
        if self.command in {"POST", "PATCH"}:  # Spark's patches apply a whole object
            return 201, self.server.create(kind, json.loads(body))
        objects = self.server.select(kind, selector)
        if name:
            objects = [each for each in objects if each["metadata"]["name"] == name[0]]
            if not objects:
                return 404, {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
        if self.command == "DELETE":
            for each in objects:
                self.server.delete(kind, each["metadata"]["name"])
            return 200, {"kind": "Status", "status": "Success"}
        return 200, objects[0] if name else {"kind": "List", "metadata": {}, "items": objects}

    do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815 - the names that http.server calls

    def log_message(self, *_: object) -> None:
        """Write nothing for a request."""


@contextmanager
def kubernetes(folder: Path) -> Iterator[Kubernetes]:
    """Start a server with the namespace `default`, and end it with the processes of its pods."""
    with Kubernetes(folder) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield server
        finally:
            server.shutdown()
            for process in server.processes.values():
                process.kill()
                process.wait()
