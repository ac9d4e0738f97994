"""A workspace whose topic `orders` on `west` is mirrored by two clusters, over links that go both ways."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.run import run_once
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions
from tests.embedded.samples import NOW, ids
from tests.operations.ordered import give_roles

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.operations.mirrors.mirror_rounds import Upkeep
    from reconciler.operations.steps.orders import OrderResult
    from reconciler.planning.orders import RoleVerb

CLUSTER = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: NAME}
spec:
  embedded: {root: "file://.clusters/NAME"}
"""
TOPIC = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: NAME, cluster: CLUSTER}
spec: {partitions: COUNT}
"""
LINK = """\
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {name: NAME, cluster: HERE}
spec: {source: SOURCE, mode: MODE, mirrorTopics: [{source: TOPIC, state: ROLE}]}
"""
ORDERS = "orders"
WEST, EAST, NORTH = (f"mirror/{name}/orders" for name in ("west", "east", "north"))


def topic(bench: Bench, cluster: str, name: str = ORDERS, partitions: int = 1) -> None:
    """Declare a topic."""
    text = TOPIC.replace("NAME", name).replace("CLUSTER", cluster).replace("COUNT", str(partitions))
    bench.write(f"manifests/{cluster}-{name}.yaml", text)


def link(bench: Bench, name: str, here: str, role: str, **given: str) -> None:
    """Declare a link with one mirror: of `orders` of `west`, over both ways, unless something else is said."""
    text = LINK.replace("NAME", name).replace("HERE", here).replace("ROLE", role)
    text = text.replace("SOURCE", given.get("source", "west")).replace("MODE", given.get("mode", "bidirectional"))
    bench.write(f"manifests/link-{name}.yaml", text.replace("TOPIC", given.get("of", ORDERS)))


def roles(bench: Bench, east: str, north: str) -> None:
    """Declare the roles of both mirrors."""
    link(bench, "a", "east", east)
    link(bench, "b", "north", north)


def fan(bench: Bench) -> Bench:
    """Return the bench with `orders` of five records on `west`, mirrored to `east` and `north`."""
    for name in ("west", "east", "north"):
        bench.write(f"manifests/{name}.yaml", CLUSTER.replace("NAME", name))
    (bench.folder / "manifests/orders.yaml").unlink()
    topic(bench, "west")
    roles(bench, "mirroring", "mirroring")
    bench = bench.with_(environ=dict(os.environ))
    assert bench.apply().verdict is None
    produce(bench, "west", *(f"a{number}" for number in range(5)))
    copy(bench)
    return bench


def opened(bench: Bench, name: str) -> EmbeddedCluster:
    """Open a cluster as some other process would."""
    return EmbeddedCluster.open(DirectoryStore(bench.folder / ".clusters" / name), now_ms=lambda: NOW, new_id=ids())


def produce(bench: Bench, cluster: str, *values: str) -> None:
    """Append records."""
    with opened(bench, cluster).producer() as producer:
        for value in values:
            producer.send(ORDERS, value, partition=0)


def values(bench: Bench, cluster: str) -> list[str]:
    """Return what can be read."""
    return [(one.value or b"").decode() for one in opened(bench, cluster).consume(ORDERS)]


def copy(bench: Bench) -> Upkeep:
    """Do one pass of `run` over the mirrors."""
    return run_once(
        SiteOptions(invocation=bench.invocation, select=Select()),
        only=("mirror",),
        report=bench.events.append,
        stop=bench.stop,
    )


def ask(
    bench: Bench, verb: RoleVerb, *addresses: str, links: tuple[str, ...] = (), is_dry_run: bool = False
) -> OrderResult:
    """Apply a verb to mirrors, as its command does."""
    return give_roles(bench.acting(f"mirror {verb}"), verb, *addresses, links=links, is_dry_run=is_dry_run)


def said(result: OrderResult) -> list[str]:
    """Return why mirrors were refused or failed."""
    return [f"{error.message}. {error.hint}" for error in result.failed.values()]


def lose(bench: Bench, cluster: str) -> None:
    """Move a cluster away."""
    (bench.folder / ".clusters" / cluster).rename(bench.folder / f"lost-{cluster}")


def status(bench: Bench, cluster: str) -> str:
    """Return the state and the source of a mirror: `ACTIVE of west`; an ordinary topic has none."""
    catalog = opened(bench, cluster).catalog.read()
    mirror = catalog.topics[ORDERS].mirror
    if mirror is None:
        return ""
    source = next(link.source_cluster for link in catalog.links.values() if link.id == mirror.link_id)
    return f"{mirror.state} of {source}"
