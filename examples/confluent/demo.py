"""Topics and a cluster link on two Confluent clusters, a failover, and the way back.

`demo.py [FOLDER]`: the folder is made again and left for the reader. It starts an emulation of Confluent's documented
APIs, which needs Java and ends with it. `CONFLUENT=FILE` names two test clusters instead, as the README describes.
There it creates topics that begin with `shop.` and a link `from-west`, and leaves them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))
from story import Story, chapter, require, say

STORY = Story.of(__file__)
WORKSPACE = STORY.workspace
run, edit, settled = STORY.run, STORY.edit, STORY.settled
CLUSTERS: dict[str, Any] = {}
"""Addresses and login by cluster: what the emulation prints."""
BLOCKED = 7
ORDERS = 1_000
"""Records before the failover."""
SOURCE, MIRROR = "topic/west/shop:orders", "topic/east/shop:orders"
CLUSTER = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {{name: {name}}}
spec:
  provider: confluent
  confluent:
    restEndpoint: {rest}
    clusterId: {cluster_id}
    apiKey: ${{env:{name}_key}}
    apiSecret: ${{env:{name}_secret}}
    bootstrapServers: [{kafka}]
"""


def main() -> int:
    with clusters() as found:
        CLUSTERS.update(west=found["source"], east=found["destination"])
        for name, place in CLUSTERS.items():
            os.environ |= {f"{name}_{part}": place[part] for part in ("key", "secret")}
        return STORY.tell(CHAPTERS)


@contextmanager
def clusters() -> Iterator[dict[str, Any]]:
    """Yield two test clusters of the reader's own, or an emulation that ends with the story."""
    given = os.environ.get("CONFLUENT")
    if given:
        yield json.loads(given if given.startswith("{") else Path(given).read_text(encoding="utf-8"))
        return
    command = [sys.executable, "-m", "tests.servers.confluent"]
    root, pipe = STORY.here.parents[1], subprocess.PIPE
    with subprocess.Popen(command, cwd=root, stdin=pipe, stdout=pipe, text=True) as server:
        line = server.stdout.readline() if server.stdout is not None else ""
        if not line:
            sys.exit("demo: the emulation of Confluent did not start, for the reason above")
        yield json.loads(line)  # It ends with its standard input, which the block closes.


def merge(file: str) -> None:
    """Add a manifest, as a pull request would."""
    say(f"   + manifests/{file}")
    text = (STORY.here / "pull-requests" / file).read_text(encoding="utf-8")
    (WORKSPACE / "manifests" / file).write_text(text, encoding="utf-8")


def produce(topic: str, first: int, count: int) -> None:
    lines = (json.dumps({"order": number, "customer": f"c{number % 7}"}) for number in range(first, first + count))
    (WORKSPACE / "orders.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    run("topic", "produce", topic, "--input", "orders.jsonl", "--key-field", "customer", shows=f"{count:,} records")


def consume(topic: str) -> list[str]:
    """Return the records of a topic with partitions, offsets, keys and times."""
    run("topic", "consume", topic, "--out", "consumed.jsonl")
    return (WORKSPACE / "consumed.jsonl").read_text(encoding="utf-8").splitlines()


def begin() -> None:
    chapter("1. Two clusters, and the pull request with the topics of west")
    STORY.begin()
    (WORKSPACE / "manifests").mkdir()
    for name, place in CLUSTERS.items():
        text = CLUSTER.format(name=name, **place)
        if place["rest"].startswith("http:"):
            text += "    security: {protocol: PLAINTEXT}\n"
        (WORKSPACE / "manifests" / f"{name}.yaml").write_text(text, encoding="utf-8")
    STORY.show("east.yaml")
    merge("topics.yaml")
    run("plan", shows="to add")
    run("apply", "--yes")
    settled()
    produce(SOURCE, 0, ORDERS)


def mirror() -> None:
    chapter("2. A cluster link with two mirrors: Confluent copies the records")
    merge("link.yaml")
    run("plan", shows="link/east/from-west")
    run("apply", "--yes")
    settled()
    while any(row["max_mirror_lag"] for row in STORY.read("mirror", "list", "east")["mirrors"]):
        pass  # The link reports how far it is.
    run("mirror", "list", "east", shows="from-west")
    require(that=consume(SOURCE) == consume(MIRROR), otherwise="the mirror has other records than its source")


def fail_over() -> None:
    chapter("3. The failover, with no pull request: it is done when Confluent reports STOPPED")
    run("mirror", "failover", "--link", "link/east/from-west", "--dry-run", shows="failover: ACTIVE → STOPPED")
    run("mirror", "failover", "--link", "link/east/from-west", "--yes")
    produce(MIRROR, ORDERS, 150)
    run("drift", shows="2 pending")
    for name in ("orders", "payments"):
        edit("link.yaml", f'"shop:{name}", state: mirroring', f'"shop:{name}", state: failed-over')
    run("apply", "--yes")
    settled()


def go_back() -> None:
    chapter("4. West is back: its own last records are shown, cut off, and it mirrors east")
    produce(SOURCE, 10 * ORDERS, 7)
    for name in ("orders", "payments"):
        edit("link.yaml", f'"shop:{name}", state: failed-over', f'"shop:{name}", state: reversed')
    run("plan", shows="7 offsets", expect=BLOCKED)
    run("apply", "--yes", "--allow", "truncate-and-restore:mirror/west/shop:*")
    settled()
    while any(row["max_mirror_lag"] for row in STORY.read("mirror", "list", "west")["mirrors"]):
        pass
    require(that=consume(MIRROR) == consume(SOURCE), otherwise="west has other records than east")

    chapter("5. The original roles again, without a loss: west is reversed")
    for name in ("orders", "payments"):
        edit("link.yaml", f'"shop:{name}", state: reversed', f'"shop:{name}", state: mirroring')
    run("plan", shows="reverse-and-start")
    run("apply", "--yes")
    settled()
    produce(SOURCE, 20 * ORDERS, 10)
    run("mirror", "list", "east", shows="2 ACTIVE")


CHAPTERS = (begin, mirror, fail_over, go_back)

if __name__ == "__main__":
    sys.exit(main())
