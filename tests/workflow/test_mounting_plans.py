"""Mountings by plan and apply: what they take from object storage, what is refused, what the next plan says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from reconciler.applying.events import ActionFailed
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.directory import DirectoryStore
from reconciler.workflow.plan import Planned
from tests.embedded.samples import NOW, ids

if TYPE_CHECKING:
    from conftest import Bench

TIERED = "{remote.write: true, remote.read: true}"


def cluster(name: str, bucket: str | None = "bucket", *, more: str = "") -> str:
    storage = "" if bucket is None else f'  objectStorage: "file://{bucket}"\n'
    return f"""\
apiVersion: reconciler/v1
kind: Cluster
metadata: {{name: {name}}}
spec:
  embedded: {{root: "file://.clusters/{name}"}}
{storage}{more}---
apiVersion: reconciler/v1
kind: Namespace
metadata: {{name: shop, cluster: {name}}}
"""


def topic(name: str, where: str, *, partitions: int = 2, configs: str = TIERED, more: str = "") -> str:
    return f"""\
apiVersion: reconciler/v1
kind: Topic
metadata: {{name: {name}, namespace: shop, cluster: {where}}}
spec: {{partitions: {partitions}, configs: {configs}{more}}}
"""


def mounting(name: str, where: str, state: str, *, namespace: str = "shop", more: str = "") -> str:
    return f"""\
apiVersion: reconciler/v1
kind: Mounting
metadata: {{name: {name}, namespace: "{namespace}", cluster: {where}}}
spec: {{state: {state}{more}}}
"""


@dataclass
class Shop:
    """Two clusters on one bucket, and a tiered topic of west with records."""

    bench: Bench

    def opened(self, name: str, bucket: str = "bucket") -> EmbeddedCluster:
        folder = self.bench.folder
        root, storage = DirectoryStore(folder / ".clusters" / name), DirectoryStore(folder / bucket)
        return EmbeddedCluster.open(root, now_ms=lambda: NOW, new_id=ids(), storage=storage)

    def say(self, **files: str | None) -> None:
        """Write documents, one file each; `None` takes one away."""
        for name, text in files.items():
            path = self.bench.folder / "manifests" / f"{name}.yaml"
            if text is None:
                path.unlink()
            else:
                self.bench.write(f"manifests/{name}.yaml", text)

    def apply(self, **files: str | None) -> None:
        """Apply, and find nothing to do afterwards."""
        self.say(**files)
        applied = self.bench.apply()
        failed = [str(event.error) for event in self.bench.events if isinstance(event, ActionFailed)]
        assert applied.verdict is None, (applied.verdict, failed)
        assert ids_of(self.bench.plan()) == []

    def location(self, name: str = "shop:orders", where: str = "west") -> str:
        found = self.bench.plan()
        del found
        opened = self.opened(where)
        entry = opened.topics()[name]
        topic, made_by = entry.origin or (name, opened.cluster_id)
        return f"{topic}/{made_by}/{entry.revision}"

    def values(self, name: str = "shop:orders", where: str = "west") -> list[bytes | None]:
        return sorted(each.value or b"" for each in self.opened(where).consume(name))


def ids_of(planned: Planned) -> list[str]:
    assert planned.plan.errors == ()
    return [action.id for action in planned.plan.actions]


def errors_of(planned: Planned) -> list[str]:
    return [f"{each.source} {each.address}: {each.message}. {each.hint}" for each in planned.plan.errors]


def location_of(planned: Planned, action: str) -> str:
    found = next(each for each in planned.plan.actions if each.id == action)
    return str(found.parameters["source"])  # type: ignore[union-attr]  # a transition


@pytest.fixture
def shop(bench: Bench) -> Shop:
    shop = Shop(bench)
    (bench.folder / "manifests" / "west.yaml").unlink()
    shop.apply(clusters=cluster("west") + "---\n" + cluster("east"), orders=topic("orders", "west"))
    with shop.opened("west").producer() as producer:
        for number in range(3):
            producer.send("shop:orders", f"v{number}".encode(), key=f"k{number}".encode())
    return shop


class TestThereAndBack:
    def test_after_an_unmount_the_manifest_of_its_topic_is_understood_and_nothing_is_to_be_done(
        self, shop: Shop
    ) -> None:
        location = shop.location()
        shop.say(sleep=mounting("orders", "west", "unmounted"))
        planned = shop.bench.plan()
        assert ids_of(planned) == ["unmount:mounting/west/shop:orders"]
        assert location_of(planned, "unmount:mounting/west/shop:orders") == location
        shop.apply()
        assert "shop:orders" not in shop.opened("west").topics()

    def test_what_was_unmounted_is_mounted_again_by_one_word_with_what_its_manifest_says_by_then(
        self, shop: Shop
    ) -> None:
        shop.apply(sleep=mounting("orders", "west", "unmounted"))
        changed = topic(
            "orders", "west", partitions=3, configs="{remote.write: true, remote.read: true, segment.ms: 1d}"
        )
        shop.say(sleep=mounting("orders", "west", "mounted"), orders=changed)
        planned = shop.bench.plan()
        assert ids_of(planned) == ["mount:mounting/west/shop:orders", "update:topic/west/shop:orders"]
        assert planned.plan.drift == ()
        shop.apply()
        assert shop.values() == [b"v0", b"v1", b"v2"]
        assert shop.opened("west").topics()["shop:orders"].partitions == 3

    def test_what_was_mounted_again_as_it_was_is_known_again(self, shop: Shop) -> None:
        shop.apply(sleep=mounting("orders", "west", "unmounted"))
        shop.apply(sleep=mounting("orders", "west", "mounted"))
        planned = shop.bench.plan()
        assert planned.plan.drift == ()
        shop.apply(sleep=None)
        assert shop.values() == [b"v0", b"v1", b"v2"]

    def test_a_topic_goes_to_another_cluster_under_an_alias_in_one_plan(self, shop: Shop) -> None:
        shop.say(
            sleep=mounting("orders", "west", "unmounted"),
            wake=mounting("orders", "east", "mounted", more=", as: orders-2025, timeout: 10m"),
            east=topic("orders-2025", "east", configs="{segment.ms: 1d}"),
        )
        assert ids_of(shop.bench.plan()) == [
            "unmount:mounting/west/shop:orders",
            "mount:mounting/east/shop:orders",
            "adopt:topic/east/shop:orders-2025",
            "update:topic/east/shop:orders-2025",
        ]
        shop.apply()
        assert shop.values("shop:orders-2025", "east") == [b"v0", b"v1", b"v2"]
        shop.apply(
            sleep=mounting("orders", "west", "mounted"),
            wake=mounting("orders", "east", "unmounted", more=", as: orders-2025"),
        )
        assert shop.values() == [b"v0", b"v1", b"v2"]
