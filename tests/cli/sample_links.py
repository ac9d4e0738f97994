"""A workspace of two clusters with a bidirectional link, for the commands about mirrors."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jsonschema
import orjson

from reconciler.cli.json.schemas import schema_bytes
from reconciler.cli.main import main
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.directory import DirectoryStore

if TYPE_CHECKING:
    from pathlib import Path

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
SCHEMAS = schema_bytes()


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
        """Write records, as anybody would."""
        rows = "".join(f'"{value}"\n' for value in values).encode()
        form = ("--input", "-", "--input-format", "jsonl")
        self.said("topic", "produce", address, *form, "--partition", str(partition), stdin=rows)

    def values(self, address: str) -> list[str]:
        """Read a topic or a mirror."""
        found = self.said("topic", "consume", address, "--output-format", "values").split()
        return sorted(str(orjson.loads(value)) for value in found)

    def copy(self) -> None:
        """Bring all mirrors up to date."""
        self.said("run", "--once", "--only", "mirror")

    def status(self, address: str) -> str:
        """Return the state a mirror is shown in."""
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
        """Let it be there again."""
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
