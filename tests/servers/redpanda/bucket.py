"""A folder as a bucket: topics leave a cluster for it and come back with the same records at the same offsets."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.servers.emulation.logs import (
    OPEN,
    Batch,
    create_topic,
    read_bounds,
    read_configs,
    read_log,
    set_configs,
    write_log,
)
from tests.servers.emulation.wire import BrokerConnection


class Location(NamedTuple):
    """Where a topic is in the bucket."""

    topic: str
    uuid: str
    revision: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.uuid}/{self.revision}"


class Bucket:
    """A folder that clusters may share: mount manifests (`migration/…`) and the data of topics (`data/…`), and what is
    recovered, topics (`topics/…`) and whole clusters (`clusters/…`)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def list_mountable(self) -> list[Location]:
        parts = [path.relative_to(self.folder).parts for path in self.folder.glob("migration/*/kafka/*/*")]
        return sorted(Location(topic, uuid, int(revision)) for _, uuid, _, topic, revision in parts)

    def release(self, location: Location) -> None:
        """Write the mount manifest: no cluster owns the topic."""
        self._manifest(location).parent.mkdir(parents=True, exist_ok=True)
        self._manifest(location).touch()

    def claim(self, location: Location) -> bool:
        """Remove the mount manifest; only one cluster succeeds."""
        with suppress(FileNotFoundError):
            self._manifest(location).unlink()
            return True
        return False

    def offer(self, topic: str, location: Location) -> None:
        """Write the manifest by which a topic of this name is recovered."""
        self._offered(topic).parent.mkdir(parents=True, exist_ok=True)
        self._offered(topic).write_text(str(location))

    def withdraw(self, topic: str) -> None:
        self._offered(topic).unlink(missing_ok=True)

    def list_recoverable(self) -> dict[str, Location]:
        rows = {path.name: path.read_text().split("/") for path in self.folder.glob("topics/*")}
        return {name: Location(topic, uuid, int(revision)) for name, (topic, uuid, revision) in rows.items()}

    def store_cluster(self, uuid: str, document: dict[str, Any]) -> None:
        """Write what a new cluster needs to restore the whole cluster."""
        (self.folder / "clusters").mkdir(parents=True, exist_ok=True)
        (self.folder / "clusters" / uuid).write_text(json.dumps({"uuid": uuid, **document}))

    def list_clusters(self) -> list[dict[str, Any]]:
        """Return what clusters wrote, the latest last."""
        paths = sorted(self.folder.glob("clusters/*"), key=lambda path: path.stat().st_mtime_ns)
        return [json.loads(path.read_text()) for path in paths]

    def store(self, broker: BrokerConnection, topic: str, location: Location, settings: dict[str, Any]) -> None:
        """Copy a topic's raw batches and configs from the broker."""
        self._data(location).mkdir(parents=True, exist_ok=True)
        bounds = read_bounds(broker, topic)
        for partition, (start, end) in bounds.items():
            (self._data(location) / f"{partition}.log").write_bytes(read_log(broker, topic, partition, start, end))
        document = {"bounds": bounds, "configs": read_configs(broker, topic), "settings": settings}
        (self._data(location) / "topic.json").write_text(json.dumps(document))

    def read_topic(self, location: Location) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self._data(location) / "topic.json").read_text())
        return {**document, "bounds": {int(key): tuple(value) for key, value in document["bounds"].items()}}

    def remove(self, location: Location) -> None:
        shutil.rmtree(self._data(location), ignore_errors=True)

    def restore(self, broker: BrokerConnection, topic: str, location: Location, configs: dict[str, str]) -> None:
        """Create a topic at the broker with its records at the same offsets.

        Raises:
            StoppedError: A gap inside the log cannot be written; the topic is left with the records before it.
        """
        bounds = self.read_topic(location)["bounds"]
        create_topic(broker, topic, len(bounds))
        for number, (start, end) in bounds.items():
            content = (self._data(location) / f"{number}.log").read_bytes()
            write_log(broker, topic, number, Batch.split(content), start, end)
        set_configs(broker, topic, {**dict.fromkeys(OPEN), **configs})

    def _manifest(self, location: Location) -> Path:
        return self.folder / "migration" / location.uuid / "kafka" / location.topic / str(location.revision)

    def _offered(self, topic: str) -> Path:
        return self.folder / "topics" / topic

    def _data(self, location: Location) -> Path:
        return self.folder / "data" / str(location)
