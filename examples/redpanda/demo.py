"""From a Redpanda cluster that people made by hand to pull requests: export, tiering, an unmount and a mount.

`demo.py [FOLDER]`: the folder is made again and left for the reader. It starts an emulation of Redpanda's documented
APIs, which needs Java and ends with it. `REDPANDA=FILE` names a test cluster instead, as the README describes. There it
creates topics that begin with `shop.` and `web.`, if there are none yet, and leaves them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))
from story import Story, chapter, require, say

STORY = Story.of(__file__)
WORKSPACE = STORY.workspace
run, edit, show, settled = STORY.run, STORY.edit, STORY.show, STORY.settled
CLUSTER: dict[str, Any] = {}
"""Addresses and login: what the emulation prints."""
WEEK, MONTH = "604800000", "2592000000"
BY_HAND: Mapping[str, Mapping[str, str]] = {
    "shop.eu.orders": {"retention.ms": WEEK},
    "shop.eu.payments": {"retention.ms": WEEK},
    "shop.eu.returns": {"retention.ms": WEEK},
    "web.clicks": {"retention.ms": MONTH},
}
"""Configs by topic."""
ORDERS = 1_000
"""Records in the topic that is moved."""
BEFORE, AFTER = "topic/east/shop:eu:orders", "topic/east/shop:eu:orders-2025"
EU = "east/namespaces/shop/eu.yaml"
REFERENCE = "${env:RECONCILER_PASSWORD}"


def main() -> int:
    with cluster() as found:
        CLUSTER.update(found)
        os.environ["RECONCILER_PASSWORD"] = found["password"]
        return STORY.tell(CHAPTERS)


@contextmanager
def cluster() -> Iterator[dict[str, Any]]:
    """Yield a test cluster of the reader's own, or an emulation that ends with the story."""
    given = os.environ.get("REDPANDA")
    if given:
        yield json.loads(given if given.startswith("{") else Path(given).read_text(encoding="utf-8"))
        return
    command = [sys.executable, "-m", "tests.servers.redpanda"]
    root, pipe = STORY.here.parents[1], subprocess.PIPE
    with subprocess.Popen(command, cwd=root, stdin=pipe, stdout=pipe, text=True) as server:
        line = server.stdout.readline() if server.stdout is not None else ""
        if not line:
            sys.exit("demo: the emulation of Redpanda did not start, for the reason above")
        yield json.loads(line)  # It ends with its standard input, which the block closes.


@contextmanager
def admin() -> Iterator[Any]:
    """Yield the client with which somebody changes the cluster by hand."""
    from kafka import KafkaAdminClient  # noqa: PLC0415 - kafka-python is part of the extra that this story needs

    names = {"protocol": "security_protocol", "mechanism": "sasl_mechanism", "caFile": "ssl_cafile"}
    options = {names[field]: value for field, value in CLUSTER.get("security", {}).items()}
    if "sasl_mechanism" in options:
        options |= {"sasl_plain_username": CLUSTER["user"], "sasl_plain_password": CLUSTER["password"]}
    with closing(KafkaAdminClient(bootstrap_servers=CLUSTER["kafka"].split(","), **options)) as client:
        yield client


def begin() -> None:
    chapter("1. A cluster: four topics, made by hand")
    STORY.begin()
    with admin() as by_hand:
        existing = sorted(name for name in by_hand.list_topics() if name.startswith(("shop.", "web.")))
        require(
            that=not existing, otherwise=f"the cluster has topics that this story would create: {', '.join(existing)}"
        )
        for name, configs in BY_HAND.items():
            shown = " ".join(f"-c {key}={value}" for key, value in configs.items())
            say(f"   $ rpk topic create {name} -p 2 {shown}")
        by_hand.create_topics(
            {name: {"num_partitions": 2, "replication_factor": -1, "configs": dict(BY_HAND[name])} for name in BY_HAND}
        )


def export() -> None:
    chapter("2. One Cluster manifest, and export writes the others")
    login = {"username": CLUSTER["user"], "password": REFERENCE}
    connection = {
        "bootstrapServers": CLUSTER["kafka"].split(","),
        "adminUrls": CLUSTER["admin"],
        "admin": login,
    }
    if security := CLUSTER.get("security"):
        connection["security"] = {**security, **(login if "mechanism" in security else {})}
    fields = "\n".join(f"    {name}: {json.dumps(value)}" for name, value in connection.items())
    text = (
        "apiVersion: reconciler/v1\nkind: Cluster\nmetadata: {name: east}\nspec:\n  provider: redpanda\n  redpanda:\n"
    )
    (WORKSPACE / "manifests").mkdir()
    storage = f"  objectStorage: {CLUSTER.get('objectStorage', 's3://tests')}"
    (WORKSPACE / "manifests" / "east.yaml").write_text(f"{text}{fields}\n{storage}\n", encoding="utf-8")
    show("east.yaml")
    run("validate")
    run("export", "east", "--out", "manifests/east", shows="Wrote ")
    show(EU)


def adopt() -> None:
    chapter("3. The plan adopts everything and changes nothing")
    run("plan", shows="6 to adopt")
    run("apply", "--yes")
    settled()


def tier() -> None:
    chapter("4. A pull request: the topics of shop:eu are tiered. The plan is its comment; merged, it is applied")
    merge("archive.yaml")
    edit(EU, "configs: {retention.ms: 7d}", "tieringPolicy: archive")
    run("plan", "--format", "markdown", "--out", "plan.json", shows="3 to change")
    run("apply", "plan.json", "--yes")
    settled()


def merge(file: str) -> None:
    """Add a manifest, as a pull request would."""
    say(f"   + manifests/{file}")
    text = (STORY.here / "pull-requests" / file).read_text(encoding="utf-8")
    (WORKSPACE / "manifests" / file).write_text(text, encoding="utf-8")


def unmount() -> None:
    chapter(f"5. {ORDERS:,} orders, and the pull request that unmounts their topic")
    lines = (json.dumps({"order": number, "customer": f"c{number % 7}"}) for number in range(ORDERS))
    (WORKSPACE / "orders.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    run("topic", "produce", BEFORE, "--input", "orders.jsonl", "--key-field", "customer", shows=f"{ORDERS:,} records")
    run("topic", "consume", BEFORE, "--out", "before.jsonl")
    merge("orders.yaml")
    run("plan", shows="unmount shop:eu:orders")
    run("apply", "--yes")
    settled()
    run("topic", "describe", BEFORE, expect=1)
    run("mount", "list", shows="1 mountable")


def mount() -> None:
    chapter("6. It is mounted under another name, with the same records at the same offsets")
    edit("orders.yaml", "state: unmounted", "state: mounted\n  as: orders-2025")
    edit(EU, "{name: orders, ", "{name: orders-2025, ")
    path = WORKSPACE / "manifests" / EU
    head, found, rest = path.read_text(encoding="utf-8").partition("{name: orders-2025, ")
    path.write_text(head + found + rest.replace("spec:\n", "spec:\n  movedFrom: shop:eu:orders\n", 1), encoding="utf-8")
    say(f"   {EU}: + movedFrom: shop:eu:orders")
    run("plan", shows="as orders-2025")
    run("apply", "--yes")
    settled()
    run("topic", "describe", AFTER, shows="365d")
    run("topic", "consume", AFTER, "--out", "after.jsonl")
    records = [(WORKSPACE / f"{time}.jsonl").read_text(encoding="utf-8").splitlines() for time in ("before", "after")]
    require(that=len(records[0]) == ORDERS, otherwise=f"{len(records[0]):,} records before the unmount")
    require(that=records[0] == records[1], otherwise="the records are not the same after the mount")
    say(f"   before.jsonl and after.jsonl are equal: {ORDERS:,} records, with partitions, offsets, keys and times")


CHAPTERS = (begin, export, adopt, tier, unmount, mount)

if __name__ == "__main__":
    sys.exit(main())
