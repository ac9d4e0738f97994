"""A workspace of two clusters with a bidirectional link, for the commands about mirrors."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import orjson

from reconciler.cli.main import main
from reconciler.embedded.catalog.tiering_state import get_topic_location
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.mounts.mounts import Mount
from reconciler.objectstore.directory import DirectoryStore

if TYPE_CHECKING:
    from tests.cli.conftest import Call, Said


MANIFESTS = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec: {embedded: {root: "file://.clusters/west"}}
---
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: east}
spec: {embedded: {root: "file://.clusters/east"}}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: shop, cluster: west}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: shop, cluster: east}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, namespace: shop, cluster: west}
spec: {partitions: 2}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: clicks, namespace: shop, cluster: west}
spec: {partitions: 1}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: views, namespace: shop, cluster: west}
spec: {partitions: 1}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: plain, namespace: shop, cluster: east}
spec: {partitions: 1}
---
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {name: twin, cluster: east}
spec:
  source: west
  mode: bidirectional
  mirrorTopics:
    - {source: "shop:orders"}
    - {source: "shop:clicks"}
"""
ORDERS = "mirror/east/shop:orders"
CLICKS = "mirror/east/shop:clicks"
SCHEMAS = {path.stem: path.read_bytes() for path in (Path(__file__).parents[2] / "schemas").glob("*.json")}
"""As they are shipped: to make them anew takes seconds, and one test does."""


@dataclass
class Twins:
    """The workspace, the commands typed in it, and what they act on."""

    typed: Call
    folder: Path

    def said(self, *arguments: str, stdin: bytes = b"") -> str:
        """Type what works, and return what it prints."""
        said = self.typed(*arguments, stdin=stdin)
        assert said.code == 0, said.err
        return said.out

    def printed(self, schema: str, *arguments: str, code: int = 0) -> Any:
        """Type it with JSON, and return what was printed, having seen that it is of its schema."""
        said: Said = self.typed(*arguments, "--format", "json")
        assert said.code == code, said.err
        printed = orjson.loads(said.out)
        jsonschema.validate(printed, orjson.loads(SCHEMAS[schema]))
        return printed

    def produce(self, address: str, *values: str, partition: int = 0) -> None:
        rows = "".join(f'"{value}"\n' for value in values).encode()
        form = ("--input", "-", "--input-format", "jsonl")
        self.said("topic", "produce", address, *form, "--partition", str(partition), stdin=rows)

    def values(self, address: str) -> list[str]:
        found = self.said("topic", "consume", address, "--output-format", "values").split()
        return sorted(str(orjson.loads(value)) for value in found)

    def copy(self) -> None:
        self.said("run", "--once", "--only", "mirror")

    def status(self, address: str) -> str:
        (found,) = self.printed("mirror-description", "mirror", "describe", address)["mirrors"]
        return str(found["mirror_status"])

    def status_without_state(self, address: str) -> str:
        """Return it as the cluster itself has it."""
        _, cluster, name = address.split("/")
        mirror = self.cluster(cluster).topic(name).mirror
        assert mirror is not None
        return mirror.state

    def cluster(self, name: str) -> EmbeddedCluster:
        """Open a cluster beside the commands, as another process would."""
        return EmbeddedCluster.open(
            DirectoryStore(self.folder / ".clusters" / name),
            now_ms=lambda: time.time_ns() // 1_000_000,
            new_id=lambda: str(uuid.uuid4()),
        )

    def lose(self, cluster: str) -> None:
        """Let a cluster be gone, as if its place did not answer: it is still recorded."""
        place = self.folder / ".clusters"
        (place / cluster).rename(place / f"lost-{cluster}")

    def find(self, cluster: str) -> None:
        place = self.folder / ".clusters"
        (place / f"lost-{cluster}").rename(place / cluster)


def make_twins(folder: Path) -> None:
    """Make it: three records of orders, one of clicks, and mirrors that have them all."""
    (folder / "reconciler.yaml").write_text(
        "apiVersion: reconciler/v1\nkind: Workspace\nmetadata: {name: shop}\nspec: {state: file://.state}\n"
    )
    (folder / "manifests").mkdir()
    (folder / "manifests" / "all.yaml").write_text(MANIFESTS)
    (folder / "orders.jsonl").write_text('"a"\n"b"\n')
    (folder / "more.jsonl").write_text('"c"\n')
    at = ("--workspace", str(folder))
    for arguments in (
        ("apply", "--yes"),
        ("topic", "produce", "topic/west/shop:orders", "--input", str(folder / "orders.jsonl"), "--partition", "0"),
        ("topic", "produce", "topic/west/shop:orders", "--input", str(folder / "more.jsonl"), "--partition", "1"),
        ("topic", "produce", "topic/west/shop:clicks", "--input", str(folder / "more.jsonl")),
        ("run", "--once", "--only", "mirror"),
    ):
        assert main((*arguments, *at)) == 0


# A workspace of two clusters that share one object storage, for the commands about mountable topics.


CLUSTER = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {{name: {name}}}
spec:
  embedded: {{root: "file://.clusters/{name}"}}
  objectStorage: {{url: "file://.bucket"}}
  properties: {{cloud_storage_enabled: true}}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {{name: shop, cluster: {name}}}
---
"""
TOPICS = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, namespace: shop, cluster: west}
spec: {partitions: 2, configs: {remote.write: true, remote.read: true}}
"""
MOUNTED_ORDERS = "shop:orders"


@dataclass
class Shop:
    """The workspace, the commands typed in it, and what they act on."""

    typed: Call
    folder: Path

    def said(self, *arguments: str, stdin: bytes = b"") -> str:
        """Type what works, and return what it prints."""
        said = self.typed(*arguments, stdin=stdin)
        assert said.code == 0, said.err
        return said.out

    def cluster(self, name: str) -> EmbeddedCluster:
        """Open a cluster beside the commands, as another process would."""
        return EmbeddedCluster.open(
            DirectoryStore(self.folder / ".clusters" / name),
            now_ms=lambda: time.time_ns() // 1_000_000,
            new_id=lambda: str(uuid.uuid4()),
            storage=self.bucket,
        )

    @property
    def bucket(self) -> DirectoryStore:
        return DirectoryStore(self.folder / ".bucket")

    @property
    def location(self) -> str:
        west = self.cluster("west")
        return str(get_topic_location(MOUNTED_ORDERS, west.topics()[MOUNTED_ORDERS], west.cluster_id))

    def unmounting(self, *verbs: str) -> int:
        """Begin an unmount that goes on only where it is asked to, and ask so far."""
        return self._asked("west", self.cluster("west").mounts.unmount(MOUNTED_ORDERS, is_automatic=False), verbs)

    def mounting(self, location: str, *verbs: str, name: str = MOUNTED_ORDERS) -> int:
        """Begin a mount on `east` that goes on only where it is asked to, and ask so far."""
        mounts = self.cluster("east").mounts
        return self._asked("east", mounts.mount(Mount(location, name), is_automatic=False), verbs)

    def begun(self, kind: str, *verbs: str) -> int:
        """Begin an unmount on `west`, or a mount on `east`."""
        return self.mounting(self.unmounted(), *verbs) if kind == "mount" else self.unmounting(*verbs)

    def unmounted(self) -> str:
        """Unmount the topic to the end; return its location."""
        location, mounts = self.location, self.cluster("west").mounts
        assert mounts.drive(mounts.unmount(MOUNTED_ORDERS)) is None
        return location

    def mounted(self, location: str, name: str = MOUNTED_ORDERS) -> None:
        mounts = self.cluster("east").mounts
        assert mounts.drive(mounts.mount(Mount(location, name))) is None

    def _asked(self, cluster: str, number: int, verbs: tuple[str, ...]) -> int:
        mounts = self.cluster(cluster).mounts
        for place, verb in enumerate(verbs):
            if place:
                mounts.drive(number)
            if verb:
                mounts.ask(number, verb)
        return number


def make_shop(folder: Path) -> None:
    """Make it, with two records in a tiered topic of `west`."""
    (folder / "reconciler.yaml").write_text(
        "apiVersion: reconciler/v1\nkind: Workspace\nmetadata: {name: shop}\nspec: {state: file://.state}\n"
    )
    (folder / "manifests").mkdir()
    (folder / "manifests" / "all.yaml").write_text(CLUSTER.format(name="west") + CLUSTER.format(name="east") + TOPICS)
    (folder / "records.jsonl").write_text("1\n2\n")
    for arguments in (
        ("apply", "--yes"),
        ("topic", "produce", f"topic/west/{MOUNTED_ORDERS}", "--input", str(folder / "records.jsonl")),
    ):
        assert main((*arguments, "--workspace", str(folder))) == 0


def follows(name: str, said: Said, code: int = 0) -> Any:
    """Return the JSON that was printed, having seen that it is of its schema."""
    assert said.code == code, said.err
    printed = orjson.loads(said.out)
    jsonschema.validate(printed, orjson.loads(SCHEMAS[name]))
    return printed
